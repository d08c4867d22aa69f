//! What the edge reports of itself: its paths, what they carry, and which of them a flow takes.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sidestep_balance::{BalanceMode, Balanced, PathSet};
use sidestep_flow_hash::FlowKey;
use sidestep_hostd::{
    AgentError,
    effect::Overridden,
    firewall::RestoredMarks,
    paths::{StaticPath, mapped},
    status::read_status,
};
use sidestep_linux::{LinuxError, netlink::Netlink};
use sidestep_net::Span;
use sidestep_proto::rounds::PathRounds;

use super::{Edge, EdgeConfig, SeedOrigin, hash_doubts::HashDoubt, peer::EdgeAgreement, probes::Probes};
use crate::daemon::balancer;

/// The name of the socket at which the status is given.
pub(super) const NAME: &str = "sidestep-edge/status";
/// TCP's number.
const TCP: u8 = 6;

/// The state of an edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// Version of this format.
    pub schema: u32,
    /// Whether packets are counted only.
    pub dry_run: bool,
    /// Whether the kernel's own multipath routes take the place of the program.
    pub offload: bool,
    /// How a path is chosen.
    pub mode: BalanceMode,
    /// The seed of the flow hash.
    pub seed: u32,
    /// Where the seed comes from.
    #[serde(default)]
    pub seed_origin: SeedOrigin,
    /// What is doubtful about the hash.
    #[serde(default)]
    pub doubts: Vec<HashDoubt>,
    /// Counts the changes of the set of paths.
    pub generation: u64,
    /// Interfaces of the site, and whether the program is on each.
    pub inside: BTreeMap<String, bool>,
    /// The destinations.
    pub destinations: Vec<EdgeDestination>,
    /// Packets by what became of them.
    pub packets: BTreeMap<String, u64>,
    /// What each mark slot has carried; slot 0 is the router's own route.
    pub slots: BTreeMap<u32, SlotUsed>,
    /// Flows in the table; `None` for an edge without one.
    pub flows: Option<usize>,
    /// Whether the other edge has the same; `None` where it is not compared with.
    pub peer: Option<EdgeAgreement>,
    /// How many probes of the other edge were answered; `None` for an edge that does not probe.
    #[serde(default)]
    pub reflected: Option<u64>,
    /// Rules, routes and filters that others removed, and that were put back.
    pub mended: u64,
    /// Packets that do not leave as decided, as a rule or a route of others comes first.
    #[serde(default)]
    pub overridden: Vec<Overridden>,
    /// Rules of others that restore marks, which flows of a dead path then keep.
    #[serde(default)]
    pub restored: Vec<RestoredMarks>,
}

/// What a mark slot has carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotUsed {
    /// Packets; one that GRO has merged counts once.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// About how many flows they were of in the last minute; 1,420 stands for more.
    #[serde(default)]
    pub flows: u32,
}

/// The paths to a destination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeDestination {
    /// The destination.
    pub prefix: IpNet,
    /// A number for the mode, the seed, and the paths' order, names and weights: the other edge must have the same.
    pub digest: String,
    /// Whether a target answers probes by any path; `None` where paths are not probed.
    #[serde(default)]
    pub answers: Option<bool>,
    /// The paths in their order.
    pub paths: Vec<EdgePath>,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgePath {
    /// Its name, by which both edges know it.
    pub name: String,
    /// Its identity, which follows from the name.
    pub id: u32,
    /// Its weight, in bits per second; 1 where the mode knows no weights.
    pub weight: u64,
    /// Its mark slot; 0 where it has no route now.
    pub slot: u8,
    /// Whether flows are put on it.
    pub live: bool,
    /// Why it is dead.
    pub why: Option<String>,
    /// What became of its probes; `None` where it is not probed.
    #[serde(default)]
    pub probes: Option<EdgeProbes>,
}

/// What became of the probes of a path. Rounds that no path has answered do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EdgeProbes {
    /// Rounds that it has answered in time.
    pub answered: u64,
    /// Rounds that it has not, though another path has.
    pub lost: u64,
    /// Answers that came after their time.
    pub late: u64,
    /// The last round trip in milliseconds.
    pub rtt_ms: Option<f64>,
}

/// Ends of a flow: `tcp 10.1.0.2:40000 10.2.0.3:443`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// The protocol's number.
    pub protocol: u8,
    /// Who sends.
    pub source: SocketAddr,
    /// Who receives.
    pub destination: SocketAddr,
}

/// Where a flow goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EdgePlace {
    /// Version of this format.
    pub schema: u32,
    /// The destination that the flow belongs to, whichever of its ends that is.
    pub prefix: IpNet,
    /// The path's name.
    pub path: String,
    /// What decided that.
    pub by: PlacedBy,
    /// Its position among the destination's paths, from 0.
    pub position: usize,
    /// Whether it is live.
    pub live: bool,
    /// The flow's hash, which is the same for both directions.
    pub hash: u32,
    /// Counts the changes of the set of paths.
    pub generation: u64,
    /// The set's digest.
    pub digest: String,
}

/// What decides which path a flow takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacedBy {
    /// The flow's hash.
    Hash,
    /// The table of an edge that keeps one.
    Table,
}

impl EdgeStatus {
    /// What a configuration has, as if all paths were live.
    pub fn of_config(config: &EdgeConfig) -> Result<Self, String> {
        let settings = &config.edge;
        let mut destinations = Vec::new();
        for destination in &config.destinations {
            let set = config.set_of(destination)?;
            let path = |(path, weighed): (&StaticPath, Balanced)| EdgePath {
                name: path.name.clone().unwrap_or_default(),
                id: weighed.id,
                weight: weighed.weight,
                slot: 0,
                live: true,
                why: None,
                probes: None,
            };
            destinations.push(EdgeDestination {
                prefix: destination.prefix,
                digest: hexadecimal(&set),
                answers: None,
                paths: destination.paths.iter().zip(config.balanced(destination)).map(path).collect(),
            });
        }
        Ok(EdgeStatus {
            schema: 1,
            dry_run: false,
            offload: false,
            mode: settings.mode,
            seed: settings.seed,
            seed_origin: SeedOrigin::Given,
            doubts: Vec::new(),
            generation: settings.generation,
            inside: settings.inside.iter().map(|name| (name.clone(), false)).collect(),
            destinations,
            packets: BTreeMap::new(),
            slots: BTreeMap::new(),
            flows: None,
            peer: None,
            reflected: None,
            mended: 0,
            overridden: Vec::new(),
            restored: Vec::new(),
        })
    }

    /// The path of a flow, computed by the very function that the kernel runs; `None` if neither end is in a destination.
    ///
    /// Both edges, and both directions, have the same answer if their digests are the same and the same paths are live. An edge
    /// with a table may have assigned the flow otherwise: [`edge_place`] looks there.
    pub fn place(&self, tuple: &Tuple) -> Result<Option<EdgePlace>, String> {
        self.place_in(tuple, None)
    }

    /// The path of a flow for which the table has this slot. While that path is dead, the flow goes by its hash.
    fn place_in(&self, tuple: &Tuple, slot: Option<u32>) -> Result<Option<EdgePlace>, String> {
        if self.offload {
            return Err("the kernel's own hash decides: `ip route get ADDRESS from ADDRESS iif INTERFACE ipproto tcp sport N dport N`".into());
        }
        let Tuple { source, destination, .. } = *tuple;
        let longest = |address: IpAddr| {
            let of = self.destinations.iter().filter(|one| one.prefix.contains(&address));
            of.max_by_key(|one| one.prefix.prefix_len())
        };
        let Some(found) = longest(destination.ip()).or_else(|| longest(source.ip())) else { return Ok(None) };
        let balanced: Vec<_> = found.paths.iter().map(|path| Balanced { id: path.id, weight: path.weight }).collect();
        let set = PathSet::new(self.mode, self.seed, self.generation, &balanced).map_err(|error| error.to_string())?;
        let flow = tuple.key();
        let bits = found.paths.iter().enumerate().map(|(position, path)| u32::from(path.live) << position);
        let hashed = set.choose(bits.fold(0, |live, bit| live | bit), &flow) as usize;
        let all_dead = found.paths.iter().all(|path| !path.live);
        let usable = |path: &EdgePath| (path.live || all_dead) && slot == Some(path.slot.into());
        let tabled = found.paths.iter().position(usable);
        let (position, by) = tabled.map_or((hashed, PlacedBy::Hash), |position| (position, PlacedBy::Table));
        let Some(path) = found.paths.get(position) else { return Ok(None) };
        Ok(Some(EdgePlace {
            schema: 1,
            prefix: found.prefix,
            path: path.name.clone(),
            by,
            position,
            live: path.live,
            hash: set.hash(&flow),
            generation: self.generation,
            digest: hexadecimal(&set),
        }))
    }
}

/// Where the edge daemon of the calling thread's network namespace, whose status this is, puts a flow: by its table if it
/// keeps one and the flow is there, else by the hash.
pub async fn edge_place(status: &EdgeStatus, tuple: &Tuple) -> Result<Result<Option<EdgePlace>, String>, AgentError> {
    let mut slot = None;
    if status.flows.is_some() && tuple.protocol == TCP {
        let netlink = Netlink::open()?;
        for name in status.inside.iter().filter(|(_, is_on)| **is_on).map(|(name, _)| name) {
            slot = slot.or(balancer::slot_in_table(&netlink, netlink.index_of(name).await?, &tuple.key()).await?);
        }
    }
    Ok(status.place_in(tuple, slot))
}

/// What an edge daemon of the calling thread's network namespace reports of itself; `None` if there is none.
pub fn edge_status() -> Result<Option<EdgeStatus>, AgentError> {
    read_status(NAME)
}

impl Edge {
    /// The state now.
    pub(super) fn current_status(&self) -> Result<EdgeStatus, AgentError> {
        let counts = self.program.balancer.counts()?;
        let failed = |error: String| LinuxError::io("reading the status", io::Error::other(error));
        let mut status = EdgeStatus::of_config(&self.options.config).map_err(failed)?;
        for destination in &mut status.destinations {
            let prefix = destination.prefix;
            let site = self.destinations.written().get(&prefix).and_then(Option::as_ref);
            let silent = self.probes.as_ref().map_or(0, |probes| probes.dead(&prefix));
            destination.answers = self.probes.as_ref().and_then(|probes| probes.is_answered(&prefix));
            for (position, path) in destination.paths.iter_mut().enumerate() {
                path.slot = site.and_then(|site| site.slots.get(position).copied()).unwrap_or(0);
                path.live = site.is_some_and(|site| site.live >> position & 1 != 0);
                let here = self.destinations.why_dead(prefix, &path.name);
                let by_probes = || (silent >> position & 1 != 0).then(|| "its probes are not answered".into());
                let there = || (!path.live).then(|| "it is dead at the other edge".into());
                path.why = here.or_else(by_probes).or_else(there);
                path.probes =
                    self.probes.as_ref().and_then(|probes| probes.of(&prefix, position)).map(EdgeProbes::from);
            }
        }
        let missing = self.program.missing(&self.settings().inside);
        for (name, is_on) in &mut status.inside {
            *is_on = !missing.contains(&name.as_str());
        }
        let packets = [
            ("balanced", counts.balanced),
            ("left_alone", counts.left_alone),
            ("fragments", counts.fragments),
            ("icmp_errors", counts.errors),
            ("unrouted", counts.unrouted),
            ("table_full", counts.table_full),
        ];
        status.packets = packets.map(|(what, count)| (what.to_string(), count)).into();
        let (used, seen) = (self.program.balancer.uses()?.into_iter(), self.program.balancer.seen()?);
        let used = used.map(|(slot, of)| {
            let flows = seen.get(&slot).copied().unwrap_or_default();
            (slot, SlotUsed { packets: of.packets, bytes: of.bytes, flows })
        });
        status.slots = used.collect();
        status.seed_origin = self.seed_origin;
        status.doubts = self.spread.doubts().to_vec();
        status.dry_run = self.options.dry_run;
        status.reflected = self.probes.as_ref().map(Probes::reflected);
        status.mended = self.others.mended();
        status.overridden = self.others.effects.found().cloned().collect();
        status.restored = self.others.firewall.found().to_vec();
        let message = self.message();
        status.peer = self.peer.as_ref().map(|peer| peer.agreement(&message));
        status.flows = self.program.flows()?;
        Ok(status)
    }
}

impl From<(PathRounds, Option<Span>)> for EdgeProbes {
    fn from((rounds, rtt): (PathRounds, Option<Span>)) -> Self {
        let PathRounds { answered, lost, late, .. } = rounds;
        EdgeProbes { answered, lost, late, rtt_ms: rtt.map(|rtt| rtt.as_secs_f64() * 1e3) }
    }
}

impl Tuple {
    fn key(&self) -> FlowKey {
        FlowKey {
            source: mapped(self.source.ip()),
            destination: mapped(self.destination.ip()),
            source_port: self.source.port(),
            destination_port: self.destination.port(),
            protocol: self.protocol,
            flow_label: 0,
        }
    }
}

impl FromStr for Tuple {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let [protocol, source, destination] = words[..] else {
            return Err("write PROTOCOL SOURCE DESTINATION, such as `tcp 10.1.0.2:40000 10.2.0.3:443`".into());
        };
        let protocol = match protocol {
            "tcp" => TCP,
            "udp" | "quic" => 17,
            "sctp" => 132,
            other => {
                other.parse().map_err(|_| format!("`{other}` is no protocol: write tcp, udp, sctp or a number"))?
            }
        };
        let end = |text: &str| {
            let plain = || text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 0));
            let read = text.parse().or_else(|_| plain());
            read.map_err(|_| format!("`{text}` is no address with a port, such as 10.1.0.2:443 or [2001:db8::1]:443"))
        };
        let (source, destination) = (end(source)?, end(destination)?);
        if source.is_ipv4() != destination.is_ipv4() {
            return Err("both ends must be of IPv4, or both of IPv6".into());
        }
        Ok(Tuple { protocol, source, destination })
    }
}

impl fmt::Display for EdgePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EdgePlace { path, position, prefix, hash, generation, digest, .. } = self;
        let dead = if self.live { "" } else { ", dead" };
        let by = if self.by == PlacedBy::Table { ", by the table" } else { "" };
        write!(
            f,
            "{path} (position {position}{dead}{by}) to {prefix}; hash {hash:08x}, generation {generation}, digest {digest}"
        )
    }
}

fn hexadecimal(set: &PathSet) -> String {
    format!("{:016x}", set.version().digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_on_the_same_path_in_both_directions_and_at_both_edges() {
        let file = |prefix: &str| {
            let paths = ["a", "b", "c", "d"]
                .map(|name| format!("{{ name = \"{name}\", via = \"fe80::1\", dev = \"{name}\" }}"));
            let text = format!(
                "[edge]\ninside = [\"in\"]\n[[destination]]\nprefix = \"{prefix}\"\npath = [{}]",
                paths.join(",")
            );
            EdgeStatus::of_config(&EdgeConfig::parse(&text).unwrap()).unwrap()
        };
        let (here, there) = (file("2001:db8:2::/48"), file("2001:db8:1::/48"));
        let mut seen = std::collections::BTreeSet::new();
        for port in 1000..1100 {
            let out: Tuple = format!("tcp [2001:db8:1::5]:{port} [2001:db8:2::9]:443").parse().unwrap();
            let back = Tuple { source: out.destination, destination: out.source, ..out };
            let places = [here.place(&out), here.place(&back), there.place(&out), there.place(&back)];
            let places = places.map(|place| place.unwrap().unwrap());
            assert!(places.iter().all(|place| (&place.path, place.hash) == (&places[0].path, places[0].hash)));
            seen.insert(places[0].path.clone());
        }
        assert_eq!(seen.len(), 4);
        let elsewhere: Tuple = "udp 10.0.0.1:1 10.0.0.2:2".parse().unwrap();
        assert_eq!(here.place(&elsewhere), Ok(None));
    }

    #[test]
    fn a_tuple_that_is_none_is_refused_with_what_to_write() {
        for (text, expected) in [
            ("tcp 10.0.0.1:1", "write PROTOCOL SOURCE DESTINATION"),
            ("ftp 10.0.0.1:1 10.0.0.2:2", "`ftp` is no protocol"),
            ("tcp 10.0.0.1:x 10.0.0.2:2", "`10.0.0.1:x` is no address"),
            ("tcp 10.0.0.1:1 [::1]:2", "both ends must be of IPv4"),
        ] {
            let error = text.parse::<Tuple>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!("1 10.0.0.1 10.0.0.2".parse::<Tuple>().unwrap().source.port(), 0);
    }
}
