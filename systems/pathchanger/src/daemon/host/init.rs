//! A first configuration, from the routes that the machine has.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use sidestep_hostd::{AgentError, Proposal, speed};
use sidestep_linux::netlink::{DefaultRoute, Family, Interface, Netlink, NextHop};
use sidestep_net::Rate;

use super::{HostConfig, reaches};

/// Where the kernel shows how fast a link is.
const SPEEDS: &str = "/sys/class/net";

/// Reads the routes of the network namespace, and writes a configuration whose paths are its default routes.
///
/// `None` if there is no default route at all.
pub async fn propose() -> Result<Option<Proposal>, AgentError> {
    let netlink = Netlink::open()?;
    let machine = Machine { interfaces: netlink.interfaces().await?, routes: netlink.default_routes().await? };
    let proposal = machine.propose(|interface| speed(&Path::new(SPEEDS).join(interface).join("speed")));
    let Some(mut proposal) = proposal else { return Ok(None) };
    if let Ok(config) = HostConfig::parse(&proposal.text) {
        let reaches = reaches(&config).await?;
        proposal.note(reaches.iter().filter(|one| one.is_confined()).map(ToString::to_string).collect());
    }
    Ok(Some(proposal))
}

/// What the routes of a machine show.
struct Machine {
    interfaces: Vec<Interface>,
    routes: Vec<DefaultRoute>,
}

impl Machine {
    fn propose(mut self, speed: impl Fn(&str) -> Option<Rate>) -> Option<Proposal> {
        self.routes.sort_by_key(|route| route.metric);
        let mut report = Proposal { text: String::new(), found: Vec::new(), missing: Vec::new() };
        let mut text = String::new();
        for (family, prefix) in [(Family::V6, "::/0"), (Family::V4, "0.0.0.0/0")] {
            let hops = self.next_hops(family);
            match hops.len() {
                0 => report.missing.push(format!("{family} has no default route: it gets no paths")),
                1 => report.missing.push(format!(
                    "{family} has one default route only: its connections have nowhere to move, until you add a path"
                )),
                _ => {}
            }
            if !hops.is_empty() {
                // Writing to a string does not fail.
                let _ = write!(text, "\n[[destination]]\nprefix = \"{prefix}\"\n");
            }
            for path in self.named(&hops) {
                path.write(family, &speed, &mut text, &mut report);
            }
        }
        if text.is_empty() {
            return None;
        }
        self.note_others(&mut report);
        let comments = report.found.iter().chain(&report.missing).map(|line| format!("# - {line}\n"));
        report.text = format!(
            "# Written by `sidestep agent init` from the routes of this machine:\n{}#\n\
             # Try it with `sidestep agent --dry-run --config FILE`. Every key: pathchanger.md.\n\n[pathchanger]\n{text}",
            comments.collect::<String>()
        );
        Some(report)
    }

    /// The next hops of a family's default routes, each once, the preferred one first.
    fn next_hops(&self, family: Family) -> Vec<NextHop> {
        let mut hops = Vec::new();
        for route in self.routes.iter().filter(|route| route.family == family) {
            if !hops.contains(&route.hop) {
                hops.push(route.hop);
            }
        }
        hops
    }

    /// A path for each next hop. Where an interface has one only, the path follows it; where it has several, each is named.
    fn named(&self, hops: &[NextHop]) -> Vec<Entry<'_>> {
        let mut numbers: BTreeMap<u32, usize> = BTreeMap::new();
        let mut paths = Vec::new();
        for hop in hops {
            let Some(interface) = self.interfaces.iter().find(|interface| interface.index == hop.interface) else {
                continue;
            };
            let number = numbers.entry(hop.interface).or_default();
            *number += 1;
            let alone = hops.iter().filter(|other| other.interface == hop.interface).count() == 1;
            let name = if alone { interface.name.clone() } else { format!("{}-{number}", interface.name) };
            paths.push(Entry { name, interface, hop: *hop, alone });
        }
        paths
    }

    /// Names the interfaces that are up and lead nowhere by default.
    fn note_others(&self, report: &mut Proposal) {
        for interface in self.interfaces.iter().filter(|interface| interface.running && !interface.loopback) {
            if !self.routes.iter().any(|route| route.hop.interface == interface.index) {
                report.missing.push(format!("{} is up and has no default route: it gets no path", interface.name));
            }
        }
    }
}

/// A path of the file.
struct Entry<'a> {
    name: String,
    interface: &'a Interface,
    hop: NextHop,
    /// Whether it is the only one through its interface.
    alone: bool,
}

impl Entry<'_> {
    fn write(&self, family: Family, speed: impl Fn(&str) -> Option<Rate>, text: &mut String, report: &mut Proposal) {
        let dev = &self.interface.name;
        let gateway = self.hop.via.map_or_else(|| "the link itself".to_string(), |via| via.to_string());
        report.found.push(format!("{family} by {gateway} through {dev}"));
        if !self.interface.running {
            report.missing.push(format!("{dev} is down: its paths are left out until it is up"));
        }
        let via = match self.hop.via {
            Some(via) if !self.alone => via.to_string(),
            _ => "auto".to_string(),
        };
        let _ = write!(text, "\n[[destination.path]]\nname = \"{}\"\nvia = \"{via}\"", self.name);
        let _ = writeln!(
            text,
            "{}\ndev = \"{dev}\"",
            if via == "auto" { format!("  # now {gateway}") } else { String::new() }
        );
        match speed(dev) {
            Some(rate) => {
                let _ = writeln!(text, "rate = \"{rate}\"  # of the link; write that of the provider if it is less");
            }
            None => report.missing.push(format!("the kernel does not know the speed of {dev}: {family} measures it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::HostConfig;

    fn interface(index: u32, name: &str, running: bool) -> Interface {
        let loopback = name == "lo";
        Interface { index, name: name.into(), loopback, ethernet: !loopback, mtu: 1500, running, tx_bytes: 0 }
    }

    fn route(family: Family, metric: u32, via: &str, interface: u32) -> DefaultRoute {
        DefaultRoute { family, metric, hop: NextHop { via: via.parse().ok(), interface } }
    }

    fn machine(routes: &[DefaultRoute]) -> Machine {
        let names = [(1, "lo", true), (2, "eth0", true), (3, "eth1", true), (4, "wwan0", false), (5, "lan0", true)];
        let interfaces = names.map(|(index, name, running)| interface(index, name, running)).to_vec();
        Machine { interfaces, routes: routes.to_vec() }
    }

    fn gigabit(interface: &str) -> Option<Rate> {
        (interface == "eth0").then(|| Rate::from_mbits(1_000))
    }

    #[test]
    fn the_default_routes_of_both_families_become_paths() {
        let proposal = machine(&[
            route(Family::V6, 1024, "fe80::2", 3),
            route(Family::V6, 100, "fe80::1", 2),
            route(Family::V4, 0, "10.0.0.1", 2),
            route(Family::V4, 0, "10.0.0.2", 2),
            route(Family::V4, 0, "", 4),
        ]);
        let proposal = proposal.propose(gigabit).unwrap();
        let expected = r#"
[pathchanger]

[[destination]]
prefix = "::/0"

[[destination.path]]
name = "eth0"
via = "auto"  # now fe80::1
dev = "eth0"
rate = "1 Gbit/s"  # of the link; write that of the provider if it is less

[[destination.path]]
name = "eth1"
via = "auto"  # now fe80::2
dev = "eth1"

[[destination]]
prefix = "0.0.0.0/0"

[[destination.path]]
name = "eth0-1"
via = "10.0.0.1"
dev = "eth0"
rate = "1 Gbit/s"  # of the link; write that of the provider if it is less

[[destination.path]]
name = "eth0-2"
via = "10.0.0.2"
dev = "eth0"
rate = "1 Gbit/s"  # of the link; write that of the provider if it is less

[[destination.path]]
name = "wwan0"
via = "auto"  # now the link itself
dev = "wwan0"
"#;
        assert!(proposal.text.ends_with(expected), "{}", proposal.text);
        assert_eq!(proposal.found[0], "IPv6 by fe80::1 through eth0");
        let missing = [
            "the kernel does not know the speed of eth1: IPv6 measures it",
            "wwan0 is down: its paths are left out until it is up",
            "the kernel does not know the speed of wwan0: IPv4 measures it",
            "lan0 is up and has no default route: it gets no path",
        ];
        assert_eq!(proposal.missing, missing);
        for line in proposal.found.iter().chain(&proposal.missing) {
            assert!(proposal.text.contains(&format!("# - {line}\n")));
        }
        assert_eq!(HostConfig::parse(&proposal.text).unwrap().destinations.len(), 2);
    }

    #[test]
    fn what_is_noted_stands_in_the_file_too() {
        let mut proposal = machine(&[route(Family::V4, 0, "10.0.0.1", 2)]).propose(gigabit).unwrap();
        proposal.note(vec!["connections can never move".into()]);
        assert_eq!(proposal.missing.last().unwrap(), "connections can never move");
        assert!(proposal.text.contains("# - connections can never move\n#\n# Try it with"), "{}", proposal.text);
        assert!(HostConfig::parse(&proposal.text).is_ok());
    }

    #[test]
    fn a_family_with_nowhere_to_move_is_named() {
        let proposal = machine(&[route(Family::V4, 0, "10.0.0.1", 2)]).propose(gigabit).unwrap();
        assert_eq!(
            proposal.missing[..2],
            [
                "IPv6 has no default route: it gets no paths",
                "IPv4 has one default route only: its connections have nowhere to move, until you add a path"
            ]
        );
        assert!(HostConfig::parse(&proposal.text).is_ok());
        assert_eq!(machine(&[]).propose(gigabit), None);
    }
}
