//! Destinations that no path leads to, whatever prefix covers them: this host itself, and what is on one link only.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use sidestep_linux::netlink::{LOCAL_TABLE, Netlink};

use crate::AgentError;

/// Most of them that are heeded. They share the program's map, with room for 4,096 destinations, with paths and routes.
const MAX: usize = 1024;

/// Never another host's, or not beyond the link: "this host" and loopback (RFC 1122, RFC 4291), link-local (RFC 3927,
/// RFC 4291), multicast (RFC 5771, RFC 4291), limited broadcast (RFC 919).
const ALWAYS: [&str; 9] = [
    "0.0.0.0/32",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "::/128",
    "::1/128",
    "fe80::/10",
    "ff00::/8",
];

/// What is this host's, and what is on a link only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// The prefixes that are so by their nature.
    always: BTreeSet<IpNet>,
    /// Those of the table `local` in addition: addresses of this host, and broadcast addresses.
    table: BTreeSet<IpNet>,
}

impl Local {
    /// Reads the table `local` of both families.
    pub async fn read(netlink: &Netlink) -> Result<Self, AgentError> {
        Ok(Self::of(netlink.table_destinations(LOCAL_TABLE).await?))
    }

    /// With these destinations of the table `local`.
    pub fn of(table: impl IntoIterator<Item = IpNet>) -> Self {
        let always: BTreeSet<IpNet> = ALWAYS.iter().filter_map(|net| net.parse().ok()).collect();
        let table = table.into_iter().map(|net| net.trunc()).filter(|net| !covers(&always, *net)).collect();
        Local { always, table }
    }

    /// Whether a prefix lies within one of these, so that nothing in it is ours to move.
    pub fn covers(&self, net: IpNet) -> bool {
        covers(&self.always, net) || covers(&self.table, net)
    }

    /// Whether a route of the table `local` that came or went is one more, or one less.
    pub fn differs_by(&self, table: u32, destination: IpNet, added: bool) -> bool {
        table == LOCAL_TABLE && !covers(&self.always, destination) && self.table.contains(&destination.trunc()) != added
    }

    /// Those within the destinations `around`, but those that `others` cover with no destination in between: others are
    /// left alone as well.
    ///
    /// Of too many addresses neighbours are put together, and then those beyond the limit are left out: the kernel
    /// delivers their packets all the same.
    pub fn within(&self, around: &[IpNet], others: &BTreeSet<IpNet>) -> Vec<IpNet> {
        let around: BTreeSet<_> = around.iter().map(IpNet::trunc).collect();
        let is_needed = |net: &&IpNet| match nearest(&around, **net) {
            Some(set) => nearest(others, **net).is_none_or(|other| other.prefix_len() < set.prefix_len()),
            None => false,
        };
        let always = self.always.iter().filter(is_needed).copied();
        let mut table: Vec<IpNet> = self.table.iter().filter(is_needed).copied().collect();
        if table.len() > MAX {
            // Not beyond a destination: an address on its edge has no neighbour there.
            let merged = IpNet::aggregate(&table);
            table = merged.into_iter().filter(|net| nearest(&around, *net).is_some()).collect();
        }
        if table.len() > MAX {
            tracing::warn!(
                addresses = table.len(),
                most = MAX,
                "this host has too many addresses: connections to the last of them are taken for those of paths"
            );
            table.truncate(MAX);
        }
        always.chain(table).collect()
    }
}

/// Whether one of `nets` contains all of `net`.
fn covers(nets: &BTreeSet<IpNet>, net: IpNet) -> bool {
    nets.contains(&net.trunc()) || nearest(nets, net).is_some()
}

/// The longest of `nets` that contains `net` and more.
fn nearest(nets: &BTreeSet<IpNet>, net: IpNet) -> Option<IpNet> {
    let cut = |length| IpNet::new(net.addr(), length).ok().map(|net| net.trunc());
    (0..net.prefix_len()).rev().filter_map(cut).find(|net| nets.contains(net))
}

/// Whether packets ever have this destination: the unspecified addresses name the host to `connect` only.
pub fn is_on_the_wire(net: IpNet) -> bool {
    let whole = net.prefix_len() == net.max_prefix_len();
    !(whole && matches!(net.addr(), address @ (IpAddr::V4(_) | IpAddr::V6(_)) if address.is_unspecified()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(text: &[&str]) -> Vec<IpNet> {
        text.iter().map(|net| net.parse().unwrap()).collect()
    }

    fn set(text: &[&str]) -> BTreeSet<IpNet> {
        nets(text).into_iter().collect()
    }

    #[test]
    fn a_default_route_covers_neither_the_host_nor_its_links() {
        let local = Local::of(nets(&["198.51.100.10/32", "198.51.100.255/32", "127.0.0.1/32", "2001:db8::5/128"]));
        let within = |around: &[&str], others: &[&str]| {
            local.within(&nets(around), &set(others)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let v4 = ["0.0.0.0/32", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32"];
        assert_eq!(within(&["0.0.0.0/0"], &[])[..5], v4);
        assert_eq!(within(&["0.0.0.0/0"], &[])[5..], ["198.51.100.10/32", "198.51.100.255/32"]);
        assert_eq!(within(&["::/0"], &[]), ["::/128", "::1/128", "fe80::/10", "ff00::/8", "2001:db8::5/128"]);
        // The connected subnet is left alone already; but not where it has paths itself, or a part of it.
        assert_eq!(within(&["0.0.0.0/0"], &["198.51.100.0/24"]), v4);
        assert_eq!(within(&["0.0.0.0/0", "198.51.100.8/29"], &["198.51.100.0/24"])[5..], ["198.51.100.10/32"]);
        assert_eq!(within(&["203.0.113.0/24"], &[]), [""; 0]);
    }

    #[test]
    fn a_destination_that_is_the_hosts_own_is_covered() {
        let local = Local::of(nets(&["198.51.100.10/32", "10.7.0.0/16"]));
        for (net, covered) in [
            ("198.51.100.10/32", true),
            ("10.7.3.0/24", true),
            ("127.1.0.0/16", true),
            ("fe80::/64", true),
            ("ff02::1/128", true),
            ("0.0.0.0/0", false),
            ("198.51.100.0/24", false),
            ("10.0.0.0/8", false),
        ] {
            assert_eq!(local.covers(net.parse().unwrap()), covered, "{net}");
        }
    }

    #[test]
    fn an_address_that_comes_or_goes_makes_a_difference_and_those_of_links_do_not() {
        let local = Local::of(nets(&["198.51.100.10/32"]));
        let differs = |table, net: &str, added| local.differs_by(table, net.parse().unwrap(), added);
        assert!(differs(LOCAL_TABLE, "198.51.100.11/32", true) && differs(LOCAL_TABLE, "198.51.100.10/32", false));
        assert!(!differs(LOCAL_TABLE, "198.51.100.10/32", true) && !differs(254, "198.51.100.11/32", true));
        assert!(!differs(LOCAL_TABLE, "fe80::7/128", true) && !differs(LOCAL_TABLE, "127.0.0.9/32", true));
    }

    #[test]
    fn many_addresses_are_put_together_and_there_is_a_most() {
        let address = |n: u32| IpNet::from(IpAddr::from(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n)));
        let around = nets(&["0.0.0.0/0"]);
        let block = Local::of((0..4096).map(address)).within(&around, &BTreeSet::new());
        assert_eq!((block.len(), block[5].to_string()), (6, "10.0.0.0/20".into()));
        let scattered = Local::of((0..4096).map(|n| address(4 * n))).within(&around, &BTreeSet::new());
        assert_eq!(scattered.len(), 5 + MAX);
    }

    #[test]
    fn the_unspecified_addresses_are_never_on_the_wire() {
        for (net, there) in [("0.0.0.0/32", false), ("::/128", false), ("0.0.0.0/0", true), ("::1/128", true)] {
            assert_eq!(is_on_the_wire(net.parse().unwrap()), there, "{net}");
        }
    }
}
