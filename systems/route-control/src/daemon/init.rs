//! A first configuration, from the routes, leases and firewalls that the machine has.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use sidestep_hostd::{AgentError, Proposal, speed};
use sidestep_linux::{
    marks::MarkUses,
    netlink::{Family, Interface, InterfaceAddress, Netlink, Uplink},
};
use sidestep_net::Rate;

use super::doubts::is_documentation;

/// Resolvers of different operators that anybody may ask, by anycast: they are near, and answer pings.
pub const PUBLIC_TARGETS: [&str; 6] =
    ["1.1.1.1", "8.8.8.8", "9.9.9.9", "2606:4700:4700::1111", "2001:4860:4860::8888", "2620:fe::fe"];

/// Where the kernel shows how fast a link is.
const SPEEDS: &str = "/sys/class/net";
/// Where systemd-networkd has its leases and links, by the numbers of interfaces.
const NETWORKD: [&str; 2] = ["/run/systemd/netif/leases", "/run/systemd/netif/links"];
/// Where resolvconf has what each client of DHCP has given it, by interface and program.
const RESOLVCONF: &str = "/run/resolvconf/interfaces";
/// This number of name servers of a provider is probed.
const MAX_SERVERS: usize = 2;

/// Reads the default routes of all tables, the leases and the firewall, and writes a configuration of a route controller whose egresses
/// follow the interfaces of these routes.
///
/// `targets` are probed; without any, the providers' name servers are, as far as leases name them, and others are proposed. `None` if
/// there is no default route at all.
pub async fn propose_route_control(targets: &[IpAddr]) -> Result<Option<Proposal>, AgentError> {
    let netlink = Netlink::open()?;
    let interfaces = netlink.interfaces().await?;
    let servers = interfaces.iter().map(|one| (one.name.clone(), servers(one))).collect();
    let uses = MarkUses::read(&netlink).await?;
    let machine = Machine {
        addresses: netlink.ready_addresses().await?,
        uplinks: netlink.uplinks().await?.defaults,
        translated: uses.translated(),
        unseen: uses.unseen,
        interfaces,
        servers,
    };
    Ok(machine.propose(targets, |interface| speed(&Path::new(SPEEDS).join(interface).join("speed"))))
}

/// The name servers that a provider has named with its lease.
fn servers(interface: &Interface) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for directory in NETWORKD {
        let file = Path::new(directory).join(interface.index.to_string());
        for line in fs::read_to_string(file).unwrap_or_default().lines() {
            found.extend(line.strip_prefix("DNS=").into_iter().flat_map(str::split_whitespace).filter_map(address));
        }
    }
    let begins = |file: &PathBuf| {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.strip_prefix(&interface.name).is_some_and(|rest| rest.starts_with('.'))
    };
    let files = fs::read_dir(RESOLVCONF).into_iter().flatten().flatten().map(|entry| entry.path());
    for file in files.filter(begins) {
        for line in fs::read_to_string(file).unwrap_or_default().lines() {
            found.extend(line.strip_prefix("nameserver ").and_then(address));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn address(text: &str) -> Option<IpAddr> {
    text.trim().parse().ok()
}

/// What the machine shows.
struct Machine {
    interfaces: Vec<Interface>,
    addresses: Vec<InterfaceAddress>,
    /// The default routes, the preferred ones first.
    uplinks: Vec<Uplink>,
    /// Families whose packets have their sources translated.
    translated: Vec<Family>,
    /// Rules that could not be read.
    unseen: Vec<String>,
    /// The name servers that came with leases, by interface.
    servers: BTreeMap<String, Vec<IpAddr>>,
}

/// An egress of the file.
struct Entry<'a> {
    name: String,
    interface: &'a Interface,
    /// The next hops, if the interface has several of a family, so that it cannot be followed.
    via: Vec<IpAddr>,
    families: Vec<Family>,
}

impl Machine {
    fn propose(&self, targets: &[IpAddr], speed: impl Fn(&str) -> Option<Rate>) -> Option<Proposal> {
        let entries = self.entries();
        if entries.is_empty() {
            return None;
        }
        let mut report = Proposal { text: String::new(), found: Vec::new(), missing: Vec::new() };
        let families = families(&entries, &mut report);
        let mut text = String::new();
        self.write_settings(&families, &mut text, &mut report);
        for entry in &entries {
            self.write_egress(entry, &speed, &mut text, &mut report);
        }
        if entries.len() < 2 {
            report.missing.push("two egresses are the least, and this machine has one default route only".into());
        }
        self.note_others(&entries, &mut text, &mut report);
        self.write_targets(targets, &entries, &families, &mut text, &mut report);
        let comments = report.found.iter().chain(&report.missing).map(|line| format!("# - {line}\n"));
        report.text = format!(
            "# Written by `sidestep edge route-control init` from what this machine has:\n{}#\n\
             # Check it with `sidestep edge route-control --check --config FILE`. Every key: route-control.md.\n\n{text}",
            comments.collect::<String>()
        );
        Some(report)
    }

    /// An egress for each interface of a default route, the preferred one first; one for each next hop where an interface has several.
    fn entries(&self) -> Vec<Entry<'_>> {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        let mut order: Vec<&Uplink> = self.uplinks.iter().collect();
        order.sort_by_key(|one| (one.table != sidestep_linux::netlink::MAIN_TABLE, one.route.metric));
        for uplink in order {
            let (family, hop) = (uplink.route.family, uplink.route.hop);
            let Some(interface) = self.interfaces.iter().find(|one| one.index == hop.interface && !one.loopback) else {
                continue;
            };
            let mut hops: Vec<Option<IpAddr>> = Vec::new();
            for one in self.uplinks.iter().filter(|one| one.route.hop.interface == hop.interface) {
                if one.route.family == family && !hops.contains(&one.route.hop.via) {
                    hops.push(one.route.hop.via);
                }
            }
            let several = hops.len() > 1;
            let number = hops.iter().position(|one| *one == hop.via).unwrap_or(0) + 1;
            let name = if several { format!("{}-{number}", interface.name) } else { interface.name.clone() };
            let via: Vec<IpAddr> = hop.via.into_iter().filter(|_| several).collect();
            match entries.iter_mut().find(|entry| entry.name == name) {
                Some(entry) => {
                    if !entry.families.contains(&family) {
                        entry.families.push(family);
                        entry.via.extend(via);
                    }
                }
                None => entries.push(Entry { name, interface, via, families: vec![family] }),
            }
        }
        entries
    }

    fn write_settings(&self, families: &[Family], text: &mut String, report: &mut Proposal) {
        let prefix = |family: &Family| if *family == Family::V4 { "\"0.0.0.0/0\"" } else { "\"::/0\"" };
        let destinations: Vec<_> = families.iter().map(prefix).collect();
        // Writing to a string does not fail.
        let _ = write!(text, "[route_control]\ndestinations = [{}]\n", destinations.join(", "));
        let translated: Vec<_> = families.iter().filter(|family| self.translated.contains(family)).collect();
        for family in &translated {
            report
                .found
                .push(format!("sources of {family} are translated (masquerade or SNAT): flows stay on their egress"));
        }
        if translated.is_empty() {
            let _ =
                writeln!(text, "# moves = \"new-connections\"  # if a firewall translates the sources by each egress");
        } else {
            text.push_str("moves = \"new-connections\"  # a translated flow cannot move to another address\n");
        }
        for unseen in &self.unseen {
            report.missing.push(format!("{unseen} cannot be read: they may translate sources"));
        }
    }

    fn write_egress(
        &self,
        entry: &Entry<'_>,
        speed: impl Fn(&str) -> Option<Rate>,
        text: &mut String,
        report: &mut Proposal,
    ) {
        let (dev, index) = (&entry.interface.name, entry.interface.index);
        let mut now = Vec::new();
        for family in &entry.families {
            let is_it = |one: &&Uplink| (one.route.family, one.route.hop.interface) == (*family, index);
            let hops = self.uplinks.iter().filter(is_it).filter_map(|one| one.route.hop.via);
            let hop = hops.into_iter().find(|hop| entry.via.is_empty() || entry.via.contains(hop));
            let hop = hop.map_or_else(|| "the link itself".to_string(), |hop| hop.to_string());
            report.found.push(format!("{} leaves {dev} by {hop} for {family}", entry.name));
            now.push(hop);
        }
        let via: Vec<_> = entry.via.iter().map(|hop| format!("\"{hop}\"")).collect();
        let via = match via.is_empty() {
            true => format!("\"auto\"  # now {}", now.join(" and ")),
            false => format!("[{}]", via.join(", ")),
        };
        let _ = write!(text, "\n[[egress]]\nname = \"{}\"\ndev = \"{dev}\"\nvia = {via}\n", entry.name);
        let is_own = |one: &&InterfaceAddress| one.interface == index && Family::of(one.address) == Family::V6;
        let six = self.addresses.iter().filter(is_own).find(|one| !is_unique_local(one.address.addr()));
        if let Some(address) = six.filter(|_| !self.translated.contains(&Family::V6) && entry.via.is_empty()) {
            let prefix = address.address.trunc();
            let _ = writeln!(
                text,
                "source = \"auto\"  # now {prefix} and what is delegated: it leaves by this provider only"
            );
        }
        match speed(dev) {
            Some(rate) => {
                let _ =
                    writeln!(text, "capacity = \"{rate}\"  # of the link; write that of the provider if it is less");
            }
            None => text.push_str("# capacity = \"100 Mbit/s\"\n"),
        }
        if !entry.interface.running {
            report.missing.push(format!("{dev} is down: its egress is used when it is up"));
        }
    }

    /// Names interfaces that are up and lead nowhere by default: one may be a provider's that has not answered yet.
    fn note_others(&self, entries: &[Entry<'_>], text: &mut String, report: &mut Proposal) {
        let is_used = |one: &Interface| entries.iter().any(|entry| entry.interface.index == one.index);
        for interface in self.interfaces.iter().filter(|one| one.running && !one.loopback && !is_used(one)) {
            let name = &interface.name;
            report
                .missing
                .push(format!("{name} is up and has no default route: uncomment its egress if a provider is there"));
            let _ = write!(text, "\n# [[egress]]\n# name = \"{name}\"\n# dev = \"{name}\"\n# via = \"auto\"\n");
        }
    }

    fn write_targets(
        &self,
        given: &[IpAddr],
        entries: &[Entry<'_>],
        families: &[Family],
        text: &mut String,
        report: &mut Proposal,
    ) {
        text.push_str(
            "\n# What is probed by each egress, at most five times a second each. Three hosts of different operators are better than \
             one.\n",
        );
        let of_family = |address: &IpAddr| families.contains(&Family::of((*address).into()));
        for target in given.iter().filter(|target| !of_family(target)) {
            report.missing.push(format!("{target} is left out: nothing of its family is controlled"));
        }
        for target in given.iter().filter(|target| of_family(target)) {
            let _ = write!(text, "\n[[target]]\naddress = \"{target}\"\n");
            if is_documentation(*target) {
                report.missing.push(format!("{target} is an address for documentation: no host has it"));
            }
        }
        let mut probed = given.iter().any(of_family);
        for entry in entries.iter().filter(|_| given.is_empty()) {
            let servers = self.servers.get(&entry.interface.name).into_iter().flatten();
            let is_gateway = |server: &IpAddr| self.uplinks.iter().any(|one| one.route.hop.via == Some(*server));
            let usable = |server: &&IpAddr| of_family(server) && !server.is_loopback() && !is_gateway(server);
            for server in servers.filter(usable).take(MAX_SERVERS) {
                report.found.push(format!("{server} is a name server that came with the lease of {}", entry.name));
                let _ = write!(text, "\n[[target]]\naddress = \"{server}\"\nby = [\"{}\"]\n", entry.name);
                probed = true;
            }
        }
        if given.is_empty() {
            text.push_str("\n# Public resolvers of three operators, if you want to probe these:\n");
            for target in PUBLIC_TARGETS.iter().filter(|target| address(target).is_some_and(|one| of_family(&one))) {
                let _ = write!(text, "#\n# [[target]]\n# address = \"{target}\"\n");
            }
            report.missing.push(match probed {
                true => "the providers' own name servers are probed alone: add targets that all egresses reach".into(),
                false => "nothing is probed yet: uncomment targets, or name yours with --target".into(),
            });
        }
    }
}

/// The families that route control has a choice for: those with two egresses, or else those with one.
fn families(entries: &[Entry<'_>], report: &mut Proposal) -> Vec<Family> {
    let count = |family: &Family| entries.iter().filter(|entry| entry.families.contains(family)).count();
    let chosen: Vec<Family> = Family::ALL.into_iter().filter(|family| count(family) > 1).collect();
    for family in Family::ALL.into_iter().filter(|family| count(family) == 1 && !chosen.is_empty()) {
        report.missing.push(format!("{family} has one default route only: it is left to the router's own routes"));
    }
    if chosen.is_empty() { Family::ALL.into_iter().filter(|family| count(family) > 0).collect() } else { chosen }
}

fn is_unique_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.segments()[0] & 0xfe00 == 0xfc00)
}

#[cfg(test)]
mod tests {
    use sidestep_linux::netlink::{DefaultRoute, NextHop};

    use super::*;
    use crate::daemon::RouteControlConfig;

    fn interface(index: u32, name: &str) -> Interface {
        let loopback = name == "lo";
        Interface { index, name: name.into(), loopback, ethernet: !loopback, mtu: 1500, running: true, tx_bytes: 0 }
    }

    fn uplink(table: u32, family: Family, metric: u32, via: &str, interface: u32) -> Uplink {
        let hop = NextHop { via: via.parse().ok(), interface };
        Uplink { table, source: None, route: DefaultRoute { family, metric, hop } }
    }

    fn machine(uplinks: &[Uplink], translated: &[Family]) -> Machine {
        Machine {
            interfaces: [(1, "lo"), (2, "wan0"), (3, "wwan0"), (4, "lan")].map(|(n, name)| interface(n, name)).to_vec(),
            addresses: vec![InterfaceAddress {
                interface: 2,
                address: "2600:1:2:3::5/64".parse().unwrap(),
                deprecated: false,
            }],
            uplinks: uplinks.to_vec(),
            translated: translated.to_vec(),
            unseen: Vec::new(),
            servers: BTreeMap::new(),
        }
    }

    fn two() -> [Uplink; 3] {
        [
            uplink(254, Family::V4, 100, "10.9.0.2", 2),
            uplink(254, Family::V4, 200, "10.9.1.2", 3),
            uplink(254, Family::V6, 1024, "fe80::1", 2),
        ]
    }

    #[test]
    fn egresses_follow_the_interfaces_of_default_routes_and_targets_are_asked_for() {
        let proposal = machine(&two(), &[]).propose(&[], |_| None).unwrap();
        let missing = RouteControlConfig::parse(&proposal.text).unwrap_err().to_string();
        assert!(missing.contains("nothing is probed"), "{missing}\n{}", proposal.text);
        assert!(proposal.text.contains("# address = \"9.9.9.9\"") && !proposal.text.contains("2620:fe::fe"));
        let targets = ["9.9.9.9".parse().unwrap(), "192.0.2.1".parse().unwrap()];
        let proposal = machine(&two(), &[]).propose(&targets, |_| None).unwrap();
        let config =
            RouteControlConfig::parse(&proposal.text).unwrap_or_else(|error| panic!("{error}\n{}", proposal.text));
        let names: Vec<_> = config.egresses.iter().map(|one| (one.name.as_str(), one.follows())).collect();
        assert_eq!(names, [("wan0", true), ("wwan0", true)]);
        // IPv6 has one egress only.
        assert_eq!(config.route_control.destinations, ["0.0.0.0/0".parse().unwrap()]);
        assert!(config.egresses[0].follows_sources() && !config.egresses[1].follows_sources());
        assert!(
            proposal.missing.iter().any(|line| line == "192.0.2.1 is an address for documentation: no host has it")
        );
        assert!(proposal.missing.iter().any(|line| line.starts_with("lan is up")));
    }

    #[test]
    fn a_masquerade_has_flows_stay_on_their_egress_and_leases_name_targets() {
        let mut machine = machine(&two(), &[Family::V4]);
        machine.servers =
            [("wan0".into(), vec!["9.8.7.6".parse().unwrap()]), ("wwan0".into(), vec!["10.9.1.2".parse().unwrap()])]
                .into();
        let proposal = machine.propose(&[], |_| Some(Rate::from_mbits(1_000))).unwrap();
        assert!(proposal.text.contains("\nmoves = \"new-connections\""), "{}", proposal.text);
        assert!(proposal.text.contains("[[target]]\naddress = \"9.8.7.6\"\nby = [\"wan0\"]"), "{}", proposal.text);
        // The gateway of the other egress is no target: it is before the provider's network.
        assert!(!proposal.text.contains("[[target]]\naddress = \"10.9.1.2\""));
        assert!(proposal.text.contains("capacity = \"1 Gbit/s\""));
    }

    #[test]
    fn two_routers_on_one_link_and_tables_of_single_interfaces_are_egresses() {
        let shared = [uplink(254, Family::V4, 0, "10.9.0.2", 2), uplink(254, Family::V4, 10, "10.9.0.3", 2)];
        let targets = ["9.9.9.9".parse().unwrap()];
        let config = |uplinks: &[Uplink]| {
            let text = machine(uplinks, &[]).propose(&targets, |_| None).unwrap().text;
            RouteControlConfig::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
        };
        let found = config(&shared);
        let names: Vec<_> = found.egresses.iter().map(|one| (one.name.as_str(), one.hops().next())).collect();
        assert_eq!(names, [("wan0-1", "10.9.0.2".parse().ok()), ("wan0-2", "10.9.0.3".parse().ok())]);
        let apart = [uplink(1000, Family::V4, 0, "10.9.1.2", 3), uplink(254, Family::V4, 50, "10.9.0.2", 2)];
        let names: Vec<_> = config(&apart).egresses.into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["wan0", "wwan0"]);
        assert!(machine(&[], &[]).propose(&targets, |_| None).is_none());
    }
}
