//! Which of the host's addresses connections may have subflows from.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_hostd::paths::is_interface_name;
use sidestep_linux::mptcp::HostAddress;

/// Which addresses further subflows may leave from.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct AddressesConfig {
    /// Names of interfaces, with `*` and `?`, and prefixes of addresses; empty: all but virtual ones, such as `docker*`.
    pub interfaces: Vec<String>,
    /// Names of interfaces and prefixes that are never used.
    pub exclude: Vec<String>,
    /// Whether temporary addresses of IPv6 (RFC 8981) are used as well.
    pub temporary: bool,
    /// What decides by which interface packets from an address leave.
    pub paths: PathsOf,
}

/// What decides by which interface packets from an address leave.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum PathsOf {
    /// The host's rules and routes.
    #[default]
    Routes,
    /// The paths of the host agent: its rules for marks, and the host's rules and routes where it has none.
    Agent,
}

/// Interfaces that lead to containers and virtual machines of this host, or nowhere: not used unless they are named.
pub const VIRTUAL: [&str; 17] = [
    "lo", "docker*", "br-*", "veth?*", "virbr*", "vnet*", "cni*", "cilium*", "cali*", "flannel*", "kube-*", "lxc*",
    "lxdbr*", "incusbr*", "podman*", "nerdctl*", "dummy*",
];

/// An interface, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) running: bool,
    pub(super) loopback: bool,
}

/// What is known of an address of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressStatus {
    /// The address.
    pub address: IpAddr,
    /// The name of its interface.
    pub interface: String,
    /// Why no subflow begins from it; `None`: some may.
    pub why_not: Option<String>,
}

/// The addresses of a host, and what they are good for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    /// All addresses, with the reason why one is not used.
    pub(super) all: Vec<AddressStatus>,
    /// The interface by which packets from a usable address have to leave; `None`: by any, as the address is on a loopback
    /// interface.
    pub(super) usable: BTreeMap<IpAddr, Option<u32>>,
    /// Those on interfaces that are up and have a carrier, usable or not.
    pub(super) present: Vec<IpAddr>,
}

impl AddressesConfig {
    /// The key and place of an entry that is neither a name nor a prefix, and what is wrong.
    pub(super) fn problem(&self) -> Option<(&'static str, usize, String)> {
        let lists = [("interfaces", &self.interfaces), ("exclude", &self.exclude)];
        lists.into_iter().find_map(|(key, list)| {
            let (index, entry) = list.iter().enumerate().find(|(_, entry)| Selector::read(entry).is_none())?;
            let message = format!("`{entry}` is neither a name of interfaces, such as `eth*`, nor a prefix");
            Some((key, index, message))
        })
    }

    /// Shows for each address what it is good for.
    pub(super) fn judge(&self, addresses: &[HostAddress], links: &BTreeMap<u32, Link>) -> Judged {
        let mut judged = Judged::default();
        for one in addresses {
            // One that went between the two lists.
            let Some(link) = links.get(&one.interface) else { continue };
            if link.running {
                judged.present.push(one.address);
            }
            let why_not = self.why_not(one, link);
            if why_not.is_none() {
                judged.usable.insert(one.address, (!link.loopback).then_some(one.interface));
            }
            judged.all.push(AddressStatus { address: one.address, interface: link.name.clone(), why_not });
        }
        judged.all.sort_by_key(|one| one.address);
        judged
    }

    fn why_not(&self, one: &HostAddress, link: &Link) -> Option<String> {
        let is_in = |list: &[String]| {
            list.iter()
                .find(|entry| Selector::read(entry).is_some_and(|entry| entry.takes(&link.name, one.address)))
                .cloned()
        };
        if let Some(entry) = is_in(&self.exclude) {
            return Some(format!("excluded by `{entry}`"));
        }
        let virtual_name = || VIRTUAL.iter().find(|pattern| matches(pattern, &link.name));
        if self.interfaces.is_empty() {
            if let Some(pattern) = virtual_name() {
                return Some(format!("virtual interfaces (`{pattern}`) are not used unless named"));
            }
        } else if is_in(&self.interfaces).is_none() {
            return Some("not among `interfaces`".into());
        }
        let states = [
            (!one.global, "of one link or one machine only"),
            (one.deprecated, "deprecated"),
            (one.tentative, "tentative: duplicate address detection has not ended well yet"),
            (one.temporary && !self.temporary, "temporary"),
            (!link.running, "its interface is down or has no carrier"),
        ];
        states.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why.into())
    }
}

/// An entry of a list.
enum Selector<'a> {
    Name(&'a str),
    Prefix(IpNet),
}

impl<'a> Selector<'a> {
    fn read(entry: &'a str) -> Option<Self> {
        let prefix = entry.parse().ok().or_else(|| entry.parse::<IpAddr>().ok().map(IpNet::from));
        match prefix {
            Some(prefix) => Some(Selector::Prefix(prefix)),
            None => is_interface_name(entry).then_some(Selector::Name(entry)),
        }
    }

    fn takes(&self, name: &str, address: IpAddr) -> bool {
        match self {
            Selector::Name(pattern) => matches(pattern, name),
            Selector::Prefix(prefix) => prefix.contains(&address),
        }
    }
}

/// Whether a name is as the pattern says: `*` stands for any characters, `?` for one.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // Whether the pattern so far matches the first `n` characters, for each `n`.
    let mut so_far = vec![false; name.len() + 1];
    if let Some(none) = so_far.first_mut() {
        *none = true;
    }
    for sign in pattern {
        let mut next = vec![false; so_far.len()];
        for (n, matched) in so_far.iter().enumerate() {
            if sign == '*' {
                let before = n > 0 && next.get(n - 1).copied().unwrap_or_default();
                next.get_mut(n).into_iter().for_each(|place| *place = *matched || before);
            } else if *matched && name.get(n).is_some_and(|found| sign == '?' || sign == *found) {
                next.get_mut(n + 1).into_iter().for_each(|place| *place = true);
            }
        }
        so_far = next;
    }
    so_far.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn link(name: &str) -> Link {
        Link { name: name.into(), running: true, loopback: name == "lo" }
    }

    fn address(interface: u32, text: &str) -> HostAddress {
        let address = text.parse().unwrap();
        HostAddress { interface, address, global: true, deprecated: false, tentative: false, temporary: false }
    }

    fn names() -> BTreeMap<u32, Link> {
        let names =
            ["lo", "wan0", "wan1", "docker0", "br-0a1b2c", "veth01ab", "virbr0", "cni0", "veth", "br0", "wlan0"];
        (1..).zip(names.map(link)).collect()
    }

    fn usable(config: &AddressesConfig, addresses: &[HostAddress]) -> Vec<String> {
        config.judge(addresses, &names()).usable.keys().map(ToString::to_string).collect()
    }

    fn all() -> Vec<HostAddress> {
        (1..=11).map(|index| address(index, &format!("10.0.{index}.1"))).collect()
    }

    #[test]
    fn bridges_of_containers_and_loopback_are_used_only_where_they_are_named() {
        let none = AddressesConfig::default();
        assert_eq!(usable(&none, &all()), ["10.0.2.1", "10.0.3.1", "10.0.9.1", "10.0.10.1", "10.0.11.1"]);
        let named = |interfaces: &[&str], exclude: &[&str]| {
            let list = |entries: &[&str]| entries.iter().map(ToString::to_string).collect();
            usable(&AddressesConfig { interfaces: list(interfaces), exclude: list(exclude), ..none.clone() }, &all())
        };
        assert_eq!(named(&["docker0", "wan?"], &[]), ["10.0.2.1", "10.0.3.1", "10.0.4.1"]);
        assert_eq!(named(&["wan*", "10.0.1.1"], &["10.0.3.0/24"]), ["10.0.1.1", "10.0.2.1"]);
        assert_eq!(named(&[], &["w*"]), ["10.0.9.1", "10.0.10.1"]);
        assert_eq!(named(&["10.0.0.0/16"], &["*0"]), ["10.0.1.1", "10.0.3.1", "10.0.5.1", "10.0.6.1", "10.0.9.1"]);
    }

    #[test]
    fn an_address_that_is_not_ready_or_that_goes_is_not_used_and_the_reason_is_said() {
        let config = AddressesConfig::default();
        let with = |text: &str, change: fn(&mut HostAddress)| {
            let mut one = address(2, text);
            change(&mut one);
            one
        };
        let addresses = [
            with("2001:db8::1", |_| {}),
            with("2001:db8::2", |one| one.temporary = true),
            with("2001:db8::3", |one| one.tentative = true),
            with("2001:db8::4", |one| one.deprecated = true),
            with("fe80::5", |one| one.global = false),
        ];
        let judged = config.judge(&addresses, &names());
        assert_eq!(judged.usable.keys().map(ToString::to_string).collect::<Vec<_>>(), ["2001:db8::1"]);
        assert_eq!(judged.present.len(), 5, "they are there all the same");
        let whys: Vec<_> = judged.all.iter().map(|one| one.why_not.as_deref().unwrap_or("used")).collect();
        assert_eq!(whys[..2], ["used", "temporary"]);
        assert!(whys[2].starts_with("tentative") && whys[3] == "deprecated" && whys[4].starts_with("of one link"));
        let temporary = AddressesConfig { temporary: true, ..config.clone() };
        assert_eq!(temporary.judge(&addresses, &names()).usable.len(), 2);
        // The carrier of its interface is lost.
        let mut down = names();
        down.get_mut(&2).unwrap().running = false;
        let judged = config.judge(&addresses, &down);
        assert_eq!((judged.usable.len(), judged.present.len()), (0, 0));
        assert!(judged.all[0].why_not.as_deref().unwrap().contains("no carrier"));
    }

    #[test]
    fn an_entry_that_is_neither_a_name_nor_a_prefix_is_found() {
        let with = |entry: &str| AddressesConfig { exclude: vec!["eth0".into(), entry.into()], ..Default::default() };
        assert_eq!(with("docker*").problem(), None);
        assert_eq!(with("2001:db8::/32").problem(), None);
        for wrong in ["", "10.0.0.0/33", "a b", "much-longer-than-any-name"] {
            let (key, index, message) = with(wrong).problem().unwrap();
            assert_eq!((key, index), ("exclude", 1), "{message}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_is_matched_as_the_slow_way_does(pattern in "[ab*?]{0,6}", name in "[ab]{0,6}") {
            fn slow(pattern: &[u8], name: &[u8]) -> bool {
                match (pattern, name) {
                    ([], name) => name.is_empty(),
                    ([b'*', rest @ ..], name) => (0..=name.len()).any(|n| slow(rest, &name[n..])),
                    ([sign, rest @ ..], [first, left @ ..]) => (*sign == b'?' || sign == first) && slow(rest, left),
                    _ => false,
                }
            }
            prop_assert_eq!(matches(&pattern, &name), slow(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
