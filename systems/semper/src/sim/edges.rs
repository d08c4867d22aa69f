//! Edge routers that spread flows over the paths to other edges: by hash, or by a table of subflows.
//!
//! An edge is a router with hosts. Between two edges there are the disjoint paths of the controller. An edge chooses a
//! path for each packet of its own hosts by the flow's hash, which is the same for both directions; so the answers take
//! the same path back. A path of one link is a next hop and costs nothing; others are forced by an outer header.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use sidestep_balance::{ALL_LIVE, BalanceMode, Balanced, PathSet};
use sidestep_control::Planner;
use sidestep_engine::{Behaviour, Fate, Leaving, Node, RouteId};
use sidestep_net::{ArcId, Channel, NodeId, Rate, Time, Topology, srv6};
use sidestep_paths::PathSettings;
use sidestep_proto::{
    link::LinkState,
    packet::{Flags, Kind, Packet},
};
use sidestep_sim::system::{EdgePaths, MakeBehaviour};

use crate::{
    SemperSettings,
    table::{self, Choices, Marks, Table},
};

/// The paths between the edges of a network, computed when first asked for.
#[derive(Clone, Debug)]
pub(super) struct Edges {
    topology: Arc<Topology>,
    plans: Arc<Mutex<Plans>>,
}

#[derive(Debug)]
struct Plans {
    settings: PathSettings,
    planner: Option<Planner>,
    /// By the two edges, the one with the lower number first.
    known: BTreeMap<(NodeId, NodeId), Arc<[EdgePath]>>,
}

/// A path between two edges.
#[derive(Clone, Debug)]
struct EdgePath {
    /// Its identity, in both directions alike.
    id: u32,
    /// Its arcs from one edge to the other.
    arcs: Vec<ArcId>,
    /// Bytes that forcing it adds to a packet.
    extra: u16,
    /// The lowest rate of its arcs; zero if none is limited.
    capacity: Rate,
    /// The largest packet of a host that fits.
    room: u32,
}

impl Edges {
    /// Paths of this network under these limits.
    pub(super) fn new(topology: &Topology, settings: PathSettings) -> Self {
        let plans = Plans { settings, planner: None, known: BTreeMap::new() };
        Edges { topology: Arc::new(topology.clone()), plans: Arc::new(Mutex::new(plans)) }
    }

    /// What the edges do; with a table if they are `stateful`.
    pub(super) fn behaviour(&self, settings: SemperSettings, stateful: bool) -> MakeBehaviour {
        let edges = self.clone();
        MakeBehaviour(Arc::new(move |topology, node| {
            let hosts = hosts_of(topology, node);
            let edge =
                |hosts| Box::new(Edge::new(edges.clone(), node, hosts, settings, stateful)) as Box<dyn Behaviour>;
            (!hosts.is_empty()).then(|| edge(hosts))
        }))
    }

    /// The paths from one edge to another, in an order that both directions share.
    fn between(&self, from: NodeId, to: NodeId) -> Vec<EdgePath> {
        let paths = self.known(from, to);
        if from < to { paths.to_vec() } else { paths.iter().map(EdgePath::reversed).collect() }
    }

    /// The paths between two edges, from the one with the lower number.
    fn known(&self, one: NodeId, other: NodeId) -> Arc<[EdgePath]> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.between(&self.topology, one.min(other), one.max(other))
    }
}

impl EdgePaths for Edges {
    fn room(&self, from: NodeId, to: NodeId) -> Option<u32> {
        let (from, to) = (self.topology.access_router(from)?, self.topology.access_router(to)?);
        self.known(from, to).iter().map(|path| path.room).min()
    }

    fn count(&self, from: NodeId, to: NodeId) -> usize {
        let edges = self.topology.access_router(from).zip(self.topology.access_router(to));
        edges.map_or(0, |(from, to)| self.known(from, to).len())
    }
}

impl Plans {
    fn between(&mut self, topology: &Arc<Topology>, from: NodeId, to: NodeId) -> Arc<[EdgePath]> {
        if let Some(known) = self.known.get(&(from, to)) {
            return known.clone();
        }
        let paths: Arc<[EdgePath]> = self.compute(topology, from, to).into();
        self.known.insert((from, to), paths.clone());
        paths
    }

    fn compute(&mut self, topology: &Arc<Topology>, from: NodeId, to: NodeId) -> Vec<EdgePath> {
        let host = |edge: NodeId| hosts_of(topology, edge).first().map(|arc| topology.tail(*arc));
        let (Some(source), Some(destination)) = (host(from), host(to)) else { return Vec::new() };
        if self.planner.is_none() {
            // The limits were checked when the scenario was read.
            self.planner = Planner::new(topology.clone(), self.settings).ok();
        }
        let found = self.planner.as_mut().map(|planner| planner.paths(source, destination)).unwrap_or_default();
        let of_both = found.iter().map(|host_path| &host_path.path);
        of_both
            .filter(|path| path.ingress == from && path.egress == to)
            .map(|path| {
                let next_hop = path.arcs.len() == 1;
                let link = |arc: &ArcId| topology.link(arc.link()).mtu;
                let room = if next_hop { path.arcs.iter().map(link).min() } else { path.plain_mtu };
                EdgePath {
                    id: path.id.get(),
                    arcs: path.arcs.clone(),
                    // A list has at most 32 segments, so this fits.
                    extra: if room.is_some() { 0 } else { srv6::encap_len(path.segments.len()) as u16 },
                    capacity: path.capacity,
                    room: room.unwrap_or(path.mtu),
                }
            })
            .collect()
    }
}

impl EdgePath {
    fn reversed(&self) -> EdgePath {
        EdgePath { arcs: self.arcs.iter().rev().map(|arc| arc.reversed()).collect(), ..self.clone() }
    }
}

/// The arcs from hosts to a router; none to a host.
fn hosts_of(topology: &Topology, router: NodeId) -> Vec<ArcId> {
    let mut arcs: Vec<ArcId> = topology.host_arcs(router).map(ArcId::reversed).collect();
    arcs.sort_unstable();
    arcs
}

/// An edge router.
#[derive(Debug)]
struct Edge {
    edges: Edges,
    node: NodeId,
    mode: BalanceMode,
    aware: bool,
    /// The arcs by which its hosts' packets come, ascending.
    hosts: Vec<ArcId>,
    /// Arcs out of it that have no carrier.
    down: BTreeSet<ArcId>,
    /// By other edge: index into `towards`; `None`: there is no path.
    known: BTreeMap<NodeId, Option<usize>>,
    towards: Vec<PeerEdge>,
    /// By the arc to a host, ascending: where that is; `None`: its packets are left alone.
    destinations: Vec<(ArcId, Option<Destination>)>,
    /// Of a stateful edge: by flow and by the arc from a host. Paths are named by their first arc.
    table: Option<Table<u32, ArcId>>,
}

/// The paths to another edge.
#[derive(Debug)]
struct PeerEdge {
    set: PathSet,
    paths: Vec<EdgePath>,
    /// A bit for each path that is not known to be dead.
    live: u32,
}

/// A host behind another edge.
#[derive(Clone, Debug)]
struct Destination {
    toward: usize,
    /// By path: the route to the host.
    routes: Vec<RouteId>,
}

impl Edge {
    fn new(edges: Edges, node: NodeId, hosts: Vec<ArcId>, settings: SemperSettings, stateful: bool) -> Edge {
        let config =
            table::Config { capacity: settings.table as usize, idle: settings.idle, ..table::Config::default() };
        Edge {
            edges,
            node,
            mode: settings.mode,
            aware: settings.aware,
            hosts,
            down: BTreeSet::new(),
            known: BTreeMap::new(),
            towards: Vec::new(),
            destinations: Vec::new(),
            table: stateful.then(|| Table::new(config)),
        }
    }

    /// Where in `destinations` the host is that `last` leads to.
    fn destination(&mut self, last: ArcId, node: &mut Node<'_>) -> usize {
        self.destinations.binary_search_by_key(&last, |(arc, _)| *arc).unwrap_or_else(|at| {
            let found = self.find(last, node);
            self.destinations.insert(at, (last, found));
            at
        })
    }

    fn find(&mut self, last: ArcId, node: &mut Node<'_>) -> Option<Destination> {
        let egress = self.edges.topology.tail(last);
        let toward = match self.known.get(&egress) {
            Some(known) => *known,
            None => {
                let toward = self.toward(egress).map(|toward| {
                    self.towards.push(toward);
                    self.towards.len() - 1
                });
                self.known.insert(egress, toward);
                toward
            }
        }?;
        let route = |path: &EdgePath| {
            let hops: Vec<(ArcId, u16)> = path.arcs.iter().map(|arc| (*arc, path.extra)).chain([(last, 0)]).collect();
            node.add_encapsulated_route(&hops)
        };
        Some(Destination { toward, routes: self.towards.get(toward)?.paths.iter().map(route).collect() })
    }

    /// The paths to another edge; `None` if there is none.
    fn toward(&self, egress: NodeId) -> Option<PeerEdge> {
        if egress == self.node || !self.edges.topology.is_router(egress) {
            return None;
        }
        let paths = self.edges.between(self.node, egress);
        let balanced = |path: &EdgePath| Balanced { id: path.id, weight: path.capacity.bits_per_sec().max(1) };
        let set = PathSet::new(self.mode, 0, 0, &paths.iter().map(balanced).collect::<Vec<_>>()).ok()?;
        let mut toward = PeerEdge { set, paths, live: ALL_LIVE };
        toward.look(&self.down);
        Some(toward)
    }
}

impl PeerEdge {
    /// Leaves out the paths that begin with an arc that is down.
    fn look(&mut self, down: &BTreeSet<ArcId>) {
        let dead = |path: &EdgePath| path.arcs.first().is_some_and(|arc| down.contains(arc));
        let live = |(at, path): (usize, &EdgePath)| u32::from(!dead(path)) << at;
        self.live = self.paths.iter().enumerate().map(live).sum();
    }

    fn position(&self, path: u32) -> Option<usize> {
        self.paths.iter().position(|of| of.arcs.first() == Some(&ArcId(path)))
    }

    fn name(&self, position: u32) -> Option<u32> {
        self.paths.get(position as usize)?.arcs.first().map(|arc| arc.0)
    }
}

impl Choices for PeerEdge {
    fn by_hash(&self, hash: u32) -> Option<u32> {
        self.name(self.set.choose_by_hash(self.live, hash))
    }

    fn after(&self, path: u32) -> Option<u32> {
        // The one after the last is the first.
        let last = self.position(path).map_or(self.set.count().wrapping_sub(1), |position| position as u32);
        self.name(self.set.next(self.live, last))
    }

    fn is_live(&self, path: u32) -> bool {
        self.position(path).is_some_and(|position| self.live >> position & 1 == 1)
    }
}

impl Behaviour for Edge {
    fn wants(&self, arc: ArcId) -> bool {
        // What arrives for its hosts matters only to the table.
        self.table.is_some() || self.hosts.binary_search(&arc.reversed()).is_err()
    }

    fn handle_packet(&mut self, now: Time, leaving: &Leaving, node: &mut Node<'_>) -> Fate {
        // Flows of other systems have no hash, and keep their routes.
        let hash = node.hash(leaving.packet);
        let Some(from) = leaving.from.filter(|_| hash != 0) else { return Fate::Forward };
        let outbound = self.hosts.binary_search(&from).is_ok();
        let inbound = self.hosts.binary_search(&leaving.to.reversed()).is_ok();
        if outbound == inbound {
            return Fate::Forward;
        }
        if inbound {
            if let Some(table) = &mut self.table {
                let packet = node.packet(leaving.packet);
                table.handle_inbound(now, packet.flow, from.reversed().0, marks(&packet));
            }
            return Fate::Forward;
        }
        let at = self.destination(node.last_arc(leaving), node);
        let Some((_, Some(Destination { toward, routes }))) = self.destinations.get(at) else { return Fate::Forward };
        let toward = &self.towards[*toward];
        let position = match &mut self.table {
            None => Some(toward.set.choose_by_hash(toward.live, hash) as usize),
            Some(table) => {
                let packet = node.packet(leaving.packet);
                let path = table.handle_outbound(now, packet.flow, from, hash, marks(&packet), toward);
                path.and_then(|path| toward.position(path))
            }
        };
        position.and_then(|position| routes.get(position)).map_or(Fate::Forward, |route| Fate::Reroute(*route))
    }

    fn handle_link(&mut self, _: Time, arc: ArcId, _: &Channel, state: LinkState, _: &mut Node<'_>) {
        if !self.aware {
            return;
        }
        if state == LinkState::Down {
            self.down.insert(arc);
        } else {
            self.down.remove(&arc);
        }
        self.towards.iter_mut().for_each(|toward| toward.look(&self.down));
    }

    fn handle_timeout(&mut self, now: Time, _: &mut Node<'_>) {
        self.table.iter_mut().for_each(|table| table.handle_timeout(now));
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.table.as_ref()?.poll_timeout()
    }
}

fn marks(packet: &Packet) -> Marks {
    let syn = matches!(packet.kind, Kind::Syn | Kind::SynAck);
    Marks { syn, fin: packet.flags.has(Flags::FIN), rst: false }
}

#[cfg(test)]
mod tests;
