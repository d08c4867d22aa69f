//! Reading `[demands]` and `[[demand]]`, and lists of transfers: what nodes of the network send each other.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use sidestep_net::{
    Bytes, Graph, ListedTransfer, NodeId, ParseError, Rate, Span, Time, TrafficMatrix,
    document::{Item, quoted},
    topology_file,
};

use super::{Reader, flow::MAX_ARRIVALS, flow::MAX_CONNECTIONS};
use crate::{Arrivals, OpenLoopFlow, SystemSpec, workload::Arrival};

/// What a host wants to send to another, in bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HostDemand {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) rate: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DemandsFile {
    file: Option<String>,
    unit: Option<String>,
    #[serde(default = "unscaled")]
    scale: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DemandFile {
    from: String,
    to: String,
    rate: Rate,
}

/// Transfers that the scenario or a file lists.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListFile {
    name: Option<String>,
    file: Option<String>,
    transfers: Option<Vec<(String, String, Bytes, Span)>>,
    #[serde(default)]
    start: Span,
    port: Option<u16>,
    system: Option<SystemSpec>,
    #[serde(rename = "tcp")]
    _tcp: Option<serde::de::IgnoredAny>,
}

fn unscaled() -> f64 {
    1.0
}

/// Between whom the hosts' files say what is sent: the names that they may use, and the hosts that each stands for.
struct Places {
    graph: Graph,
    hosts: Vec<Vec<NodeId>>,
}

impl Reader<'_> {
    /// What hosts want to send to each other, by pair; empty if the scenario has no demands.
    pub(super) fn demands(&self) -> Result<Vec<HostDemand>, ParseError> {
        let root = self.document.root();
        let settings = root.get_ref().get("demands");
        let tables = self.document.tables(root, "demand")?;
        let (item, file) = match settings {
            Some(item) => (item, self.document.read::<DemandsFile>(item, &[])?),
            None if tables.is_empty() => return Ok(Vec::new()),
            None => (root, DemandsFile { file: None, unit: None, scale: unscaled() }),
        };
        if !(file.scale.is_finite() && file.scale > 0.0) {
            return Err(self.document.error_at(item, "scale", "must be a number above zero"));
        }
        let demands = match &file.file {
            Some(_) if !tables.is_empty() => {
                return Err(self.document.error_at(item, "file", "leave out either this or every `[[demand]]`"));
            }
            Some(name) => self.demands_of_file(item, name, file.unit.as_deref())?,
            None if file.unit.is_some() => {
                return Err(self.document.error_at(
                    item,
                    "unit",
                    "is that of a file's numbers, and there is no `file`",
                ));
            }
            None => self.demands_of_tables(tables)?,
        };
        if demands.is_empty() {
            return Err(self.document.error_at(item, "file", "name a file of demands, or add a `[[demand]]`"));
        }
        // Two demands of the file may be between the same hosts.
        let mut by_pair: BTreeMap<(NodeId, NodeId), f64> = BTreeMap::new();
        for HostDemand { from, to, rate } in demands {
            *by_pair.entry((from, to)).or_default() += rate * file.scale;
        }
        Ok(by_pair.into_iter().map(|((from, to), rate)| HostDemand { from, to, rate }).collect())
    }

    fn demands_of_file(&self, item: &Item<'_>, name: &str, unit: Option<&str>) -> Result<Vec<HostDemand>, ParseError> {
        let bad = |problem: String| self.document.error_at(item, "file", problem);
        let mut places = self.places()?;
        if TrafficMatrix::is_drawn(name) {
            places.keep_those_with_hosts();
        }
        let matrix = self.files.demands(name, unit, &places.graph, self.seed).map_err(bad)?;
        let mut demands = Vec::new();
        for demand in &matrix.demands {
            let (from, to) = (places.hosts(demand.from).map_err(bad)?, places.hosts(demand.to).map_err(bad)?);
            spread(from, to, demand.rate, &mut demands);
            if demands.len() as u64 > MAX_CONNECTIONS {
                return Err(bad(format!("more than {MAX_CONNECTIONS} pairs of hosts have a demand; use fewer hosts")));
            }
        }
        Ok(demands)
    }

    fn demands_of_tables(&self, tables: &[Item<'_>]) -> Result<Vec<HostDemand>, ParseError> {
        let mut demands = Vec::new();
        for table in tables {
            let file: DemandFile = self.document.read(table, &[])?;
            let hosts = |key: &str, name: &str| {
                let id = self.topology.find(name).map_err(|error| self.document.error_at(table, key, error))?;
                hosts_of(self.topology, id).map_err(|problem| self.document.error_at(table, key, problem))
            };
            if file.rate == Rate::default() {
                return Err(self.document.error_at(table, "rate", "must be above zero"));
            }
            let before = demands.len();
            spread(&hosts("from", &file.from)?, &hosts("to", &file.to)?, file.rate, &mut demands);
            if demands.len() == before {
                return Err(self.document.error_at(table, "to", "must be another place than `from`"));
            }
            if demands.len() as u64 > MAX_CONNECTIONS {
                let problem = format!("more than {MAX_CONNECTIONS} pairs of hosts have a demand; use fewer hosts");
                return Err(self.document.error_at(table, "from", problem));
            }
        }
        Ok(demands)
    }

    /// Transfers of a list.
    pub(super) fn list(
        &self,
        item: &Item<'_>,
        index: usize,
        connections: &mut u64,
    ) -> Result<OpenLoopFlow, ParseError> {
        let file: ListFile = self.document.read(item, &["kind"])?;
        let (key, mut transfers) = match (&file.file, &file.transfers) {
            (Some(name), None) => ("file", self.transfers_of_file(item, name)?),
            (None, Some(listed)) => ("transfers", self.transfers_here(item, listed)?),
            _ => {
                let message = "a list needs `file`, or `transfers` with from, to, size and start of each, and not both";
                return Err(self.document.error(item.span(), message));
            }
        };
        let bad = |message: String| self.document.error_at(item, key, message);
        // Pairs are numbered as they begin, so that the printed list reads as the same.
        transfers.sort_by_key(|(_, _, _, start)| *start);
        let mut pairs = Vec::new();
        let mut places: BTreeMap<(NodeId, NodeId), usize> = BTreeMap::new();
        let mut arrivals = Vec::with_capacity(transfers.len());
        for (from, to, size, start) in transfers {
            let pair = *places.entry((from, to)).or_insert_with(|| {
                pairs.push((from, to));
                pairs.len() - 1
            });
            arrivals.push(Arrival { at: Time::ZERO + file.start + start, pair, size });
        }
        if arrivals.is_empty() {
            return Err(bad("there is no transfer in it".into()));
        }
        *connections += pairs.len() as u64;
        if *connections > MAX_CONNECTIONS {
            return Err(bad(format!("more than {MAX_CONNECTIONS} pairs of hosts in all")));
        }
        let flow = OpenLoopFlow {
            name: file.name.unwrap_or_else(|| format!("list-{}", index + 1)),
            pairs,
            arrivals: Arrivals::Listed(arrivals),
            request: None,
            start: Span::ZERO,
            stop: None,
            port: file.port,
            transport: self.transport(item, file.system)?,
        };
        let expected = flow.expected(self.duration);
        if expected > MAX_ARRIVALS {
            return Err(bad(format!("{expected:.0} transfers are more than the {MAX_ARRIVALS:.0} of a run")));
        }
        Ok(flow)
    }

    fn transfers_of_file(&self, item: &Item<'_>, name: &str) -> Result<Vec<(NodeId, NodeId, Bytes, Span)>, ParseError> {
        let bad = |problem: String| self.document.error_at(item, "file", problem);
        let places = self.places()?;
        let listed = self.files.transfers(name, &places.graph).map_err(bad)?;
        // Where a router has several hosts its transfers take turns among them.
        let mut turns = vec![0; places.hosts.len()];
        let mut host = |place: usize| -> Result<NodeId, ParseError> {
            let hosts = places.hosts(place).map_err(bad)?;
            let turn = turns.get_mut(place);
            let number = turn.map_or(0, |turn| std::mem::replace(turn, *turn + 1));
            hosts.get(number % hosts.len().max(1)).copied().ok_or_else(|| bad("a place without a host".into()))
        };
        let mut transfers = Vec::with_capacity(listed.len());
        for ListedTransfer { from, to, size, start } in listed {
            transfers.push((host(from)?, host(to)?, size, start));
        }
        Ok(transfers)
    }

    fn transfers_here(
        &self,
        item: &Item<'_>,
        listed: &[(String, String, Bytes, Span)],
    ) -> Result<Vec<(NodeId, NodeId, Bytes, Span)>, ParseError> {
        let mut transfers = Vec::with_capacity(listed.len());
        for (index, (from, to, size, start)) in listed.iter().enumerate() {
            let bad = |message: String| self.document.error_in(item, "transfers", index, message);
            let (from, to) = (self.host(from).map_err(bad)?, self.host(to).map_err(bad)?);
            if from == to {
                return Err(bad("a transfer is between two hosts".into()));
            }
            if *size == Bytes::new(0) {
                return Err(bad("the size must be more than nothing".into()));
            }
            transfers.push((from, to, *size, *start));
        }
        Ok(transfers)
    }

    fn places(&self) -> Result<Places, ParseError> {
        let (graph, nodes) = topology_file::places(self.document, self.topology, self.files)?;
        // Only those that are used need a host.
        let hosts = nodes.into_iter().map(|id| hosts_of(self.topology, id).unwrap_or_default()).collect();
        Ok(Places { graph, hosts })
    }
}

impl Places {
    /// Leaves out routers without hosts, which want nothing; and where hosts themselves are places, all routers.
    fn keep_those_with_hosts(&mut self) {
        let mut taken = BTreeSet::new();
        let (nodes, hosts) = (std::mem::take(&mut self.graph.nodes), std::mem::take(&mut self.hosts));
        for (node, hosts) in nodes.into_iter().zip(hosts) {
            if hosts.iter().any(|host| taken.insert(*host)) {
                self.graph.nodes.push(node);
                self.hosts.push(hosts);
            }
        }
    }

    /// The hosts of a place, of which there is at least one.
    fn hosts(&self, place: usize) -> Result<&[NodeId], String> {
        let hosts = self.hosts.get(place).map(Vec::as_slice).unwrap_or_default();
        if hosts.is_empty() {
            let name = self.graph.nodes.get(place).map_or("", |node| node.name.as_str());
            return Err(no_host(name));
        }
        Ok(hosts)
    }
}

/// A host itself, or those of a router.
fn hosts_of(topology: &sidestep_net::Topology, id: NodeId) -> Result<Vec<NodeId>, String> {
    if !topology.is_router(id) {
        return Ok(vec![id]);
    }
    let heads = topology.around(id).iter().map(|arc| topology.head(*arc));
    let mut hosts: Vec<NodeId> = heads.filter(|head| !topology.is_router(*head)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    if hosts.is_empty() { Err(no_host(&topology.node(id).name)) } else { Ok(hosts) }
}

fn no_host(router: &str) -> String {
    format!("the router {} has a demand, and no host; add one, or let `at` have it", quoted(router))
}

/// Adds a demand, of which each pair of two hosts has an equal part.
fn spread(from: &[NodeId], to: &[NodeId], rate: Rate, demands: &mut Vec<HostDemand>) {
    let pairs = || from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to))).filter(|(from, to)| from != to);
    let part = rate.bits_per_sec() as f64 / pairs().count().max(1) as f64;
    demands.extend(pairs().map(|(from, to)| HostDemand { from, to, rate: part }));
}
