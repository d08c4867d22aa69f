//! What moves flows: the path policies of hosts, and Linux by flow labels.

mod events;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_engine::{End, Event, FlowId, Half, Move, RouteId, Steering};
use sidestep_flow_hash::{FlowKey, Symmetry, hash};
use sidestep_net::{Bytes, NodeId, Rate, Time};
use sidestep_policy::{Connection, Decision, Path, Reason, Request, Round, Shared, are_off, draw_reply};
use sidestep_proto::tcp::Sender;

use crate::{
    routing::EcmpPaths,
    system::{LabelRule, MakeRule},
};

/// What moves the flows of one run.
#[derive(Debug, Default)]
pub struct Steer {
    flows: Vec<Option<Box<Steered>>>,
    moves: Vec<Moved>,
    /// A stream of random numbers for each node.
    random: Vec<Pcg32>,
    /// What the connections of a host to another learn together, and over which path set.
    shared: BTreeMap<(NodeId, NodeId), (usize, Arc<Shared>)>,
    /// By which weights a host draws the paths of its SYN-ACKs to another, and what they follow.
    replies: BTreeMap<(NodeId, NodeId), (Vec<u32>, Request)>,
}

/// A move that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// When.
    pub time: Time,
    /// Of which flow.
    pub flow: FlowId,
    /// Why.
    pub reason: &'static str,
}

/// What moves one flow.
#[derive(Debug)]
pub struct Steered {
    node: NodeId,
    mss: u16,
    /// How often it moved.
    moves: u32,
    by: By,
}

#[derive(Debug)]
enum By {
    /// Nothing, any more.
    Nothing,
    /// The policy of the eBPF program, among these routes; and that of the other end's, for ACKs.
    Policy { data: PathSelector, acks: Option<Acceptor> },
    /// A new flow label: after timeouts, and when its rule says so.
    Label { data: Labelled, acks: Labelled, client: Counts, server: Counts },
}

/// What Linux counts at one end of a flow that is moved by its labels.
#[derive(Debug, Default)]
struct Counts {
    rule: Option<Box<dyn LabelRule>>,
    /// Segments that came again.
    duplicates: u32,
    /// Whether it has answered a SYN.
    answered: bool,
}

/// One direction of a flow whose route follows from its flow label.
#[derive(Clone, Debug)]
pub struct Labelled {
    /// What routers hash: the label is the one that the flow has now.
    pub key: FlowKey,
    /// From which the routers' hash begins.
    pub seed: u32,
    /// What they choose from.
    pub paths: Arc<EcmpPaths>,
}

/// The end of a flow that accepts the connection.
#[derive(Debug)]
enum Acceptor {
    /// Its program does not know the connection yet: each SYN-ACK is drawn a path.
    PendingConnection(Box<PendingConnection>),
    /// Its program moves ACKs.
    Accepted(PathSelector),
}

/// A host that is asked for a connection.
#[derive(Debug)]
pub struct PendingConnection {
    /// The host.
    pub node: NodeId,
    /// Who asks.
    pub peer: NodeId,
    /// What its program will begin with.
    pub request: Request,
    /// The routes of the paths that `request` has.
    pub routes: Vec<RouteId>,
}

/// What chooses one direction's route.
#[derive(Debug)]
pub struct PathSelector {
    /// The host that does.
    pub node: NodeId,
    /// Its program's state.
    pub connection: Box<Connection>,
    /// The routes of the paths that `connection` was opened with.
    pub routes: Vec<RouteId>,
    /// Whether its connection is closed.
    closed: bool,
}

impl Labelled {
    /// The route that routers choose for the present label.
    pub fn route(&self) -> RouteId {
        self.paths.pick(self.hash())
    }

    fn hash(&self) -> u32 {
        hash(&self.key, self.seed, Symmetry::Directed)
    }

    /// Gives the flow a new label of 20 bits; returns where it leads.
    fn relabel(&mut self, random: u32) -> RouteId {
        self.key.flow_label = random >> 12;
        self.route()
    }

    /// Routers choose from other paths now; returns the route of the flow, which stays while it is among them.
    fn repath(&mut self, present: RouteId, paths: Arc<EcmpPaths>) -> RouteId {
        self.paths = paths;
        self.paths.keep_or_pick(present, self.hash())
    }
}

impl Acceptor {
    /// The route of ACKs, once the connection is accepted.
    fn route(&self) -> Option<RouteId> {
        match self {
            Acceptor::PendingConnection(_) => None,
            Acceptor::Accepted(chosen) => chosen.route(),
        }
    }
}

impl PathSelector {
    /// What the program of a host does for a connection, whose paths have these routes.
    pub fn new(node: NodeId, connection: Connection, routes: Vec<RouteId>) -> PathSelector {
        PathSelector { node, connection: Box::new(connection), routes, closed: false }
    }

    fn close(&mut self, round: Round) {
        if !std::mem::replace(&mut self.closed, true) {
            self.connection.close(round);
        }
    }

    /// The route in use.
    pub fn route(&self) -> Option<RouteId> {
        self.routes.get(self.connection.path()).copied()
    }
}

impl Steer {
    /// Nothing is steered yet; each of so many nodes has random numbers of its own, which follow from `seed`.
    pub fn new(seed: u64, nodes: usize) -> Self {
        let random = (0..nodes as u64).map(|node| Pcg32::new(seed, node)).collect();
        Steer { random, ..Steer::default() }
    }

    /// 32 random bits of a node's.
    pub fn draw(&mut self, node: NodeId) -> u32 {
        self.random.get_mut(node.index()).map_or(0, Rng::next_u32)
    }

    /// What the connections of `host` to `peer` over a path set learn together; at first what `new` gives. On Linux they are
    /// those to one destination of the agent's, and in the lab each host is one, whether or not others have the same paths.
    pub fn shared(&mut self, (host, peer): (NodeId, NodeId), set: usize, new: impl FnOnce() -> Shared) -> Arc<Shared> {
        let (_, shared) = self.shared.entry((host, peer)).or_insert_with(|| (set, Arc::new(new())));
        shared.clone()
    }

    /// These path sets have changed: what was learnt of their paths means nothing any more.
    pub fn forget_shared(&mut self, sets: &[usize]) {
        self.shared.retain(|_, (set, _)| !sets.contains(set));
        self.replies.retain(|pair, _| self.shared.contains_key(pair));
    }

    /// The agent of a host has the weights of its SYN-ACKs follow what was learnt.
    pub fn reweigh(&mut self, now: Time, host: NodeId) {
        for (_, (weights, request)) in self.replies.range_mut((host, NodeId(0))..=(host, NodeId(u32::MAX))) {
            let wanted = request.weights(now);
            if are_off(weights, &wanted) {
                *weights = wanted;
            }
        }
    }

    /// The policy of one end has other paths to choose from, with these routes; returns the flow's new route, if any.
    ///
    /// A set with the same ids in the same order changes nothing.
    pub fn handle_paths(
        &mut self,
        now: Time,
        flow: FlowId,
        of_acks: bool,
        (paths, routes): (&[Path], Vec<RouteId>),
        shared: Option<Arc<Shared>>,
    ) -> Move {
        let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) else { return Move::default() };
        let By::Policy { data, acks } = &mut steered.by else { return Move::default() };
        let chosen = match acks {
            _ if !of_acks => data,
            Some(Acceptor::Accepted(chosen)) => chosen,
            Some(Acceptor::PendingConnection(asked)) => {
                // The next SYN-ACK is drawn among these.
                if let Ok(request) = asked.request.among(paths, shared) {
                    (asked.request, asked.routes) = (request, routes);
                }
                return Move::default();
            }
            None => return Move::default(),
        };
        if chosen.connection.path_ids().eq(paths.iter().map(|path| path.id)) {
            return Move::default();
        }
        let random = self.random.get_mut(chosen.node.index()).map_or(0, Rng::next_u32);
        let Ok(moved) = chosen.connection.handle_paths(paths, shared, now, random) else { return Move::default() };
        chosen.routes = routes;
        let route = chosen.route();
        if moved {
            steered.moves += u32::from(!of_acks);
            self.moves.push(Moved { time: now, flow, reason: Reason::PathsChanged.as_str() });
        }
        if of_acks { Move { forward: None, reverse: route } } else { Move { forward: route, reverse: None } }
    }

    /// The controller reports what is not in use of each path that a flow's data may take.
    pub fn set_rooms(&mut self, flow: FlowId, rooms: impl Iterator<Item = Rate>) {
        let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) else { return };
        if let By::Policy { data, .. } = &mut steered.by {
            data.connection.set_rooms(rooms);
        }
    }

    /// Nothing moves a flow any more; how often it moved stays known.
    pub fn detach(&mut self, flow: FlowId) {
        if let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) {
            steered.by = By::Nothing;
        }
    }

    /// Has a policy at both ends move a flow: its data, and its ACKs where that end has paths.
    pub fn by_policy(&mut self, flow: FlowId, mss: u16, data: PathSelector, acks: Option<PendingConnection>) {
        let acks = acks.map(|asked| Acceptor::PendingConnection(Box::new(asked)));
        self.insert(flow, Steered { node: data.node, mss, moves: 0, by: By::Policy { data, acks } });
    }

    /// Has Linux move a flow of `node` by its flow label, and by a rule at each end if there is one.
    pub fn by_label(&mut self, flow: FlowId, node: NodeId, data: Labelled, acks: Labelled, rule: Option<&MakeRule>) {
        let counts = || Counts { rule: rule.map(MakeRule::make), ..Counts::default() };
        let by = By::Label { data, acks, client: counts(), server: counts() };
        self.insert(flow, Steered { node, mss: 0, moves: 0, by });
    }

    /// Routers choose from other paths for a flow that has a label; returns its routes, if it is steered by one.
    ///
    /// `present` are its routes now: each stays while it is among the paths. What the flow has been through stays as well.
    pub fn repath(
        &mut self,
        flow: FlowId,
        present: (RouteId, RouteId),
        (forward, reverse): (Arc<EcmpPaths>, Arc<EcmpPaths>),
    ) -> Option<Move> {
        let steered = self.flows.get_mut(flow.0 as usize)?.as_mut()?;
        let By::Label { data, acks, .. } = &mut steered.by else { return None };
        let forward = data.repath(present.0, forward);
        let reverse = acks.repath(present.1, reverse);
        Some(Move { forward: Some(forward), reverse: Some(reverse) })
    }

    /// The connection is closed at one end of a flow.
    pub fn close(&mut self, flow: FlowId, end: Half, round: Round) {
        let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) else { return };
        let By::Policy { data, acks } = &mut steered.by else { return };
        match (end, acks) {
            (Half::Sender, _) => data.close(round),
            (Half::Receiver, Some(Acceptor::Accepted(chosen))) => chosen.close(round),
            (Half::Receiver, _) => {}
        }
    }

    /// Nothing of a flow is left.
    pub fn end(&mut self, flow: FlowId) {
        self.flows.get_mut(flow.0 as usize).and_then(Option::take);
    }

    /// How often a flow moved.
    pub fn moves_of(&self, flow: FlowId) -> u64 {
        let steered = self.flows.get(flow.0 as usize).and_then(Option::as_ref);
        steered.map_or(0, |steered| u64::from(steered.moves))
    }

    /// The path that a flow is on, by its index; `None` if no policy moves it.
    pub fn path_of(&self, flow: FlowId) -> Option<usize> {
        match &self.flows.get(flow.0 as usize)?.as_ref()?.by {
            By::Policy { data, .. } => Some(data.connection.path()),
            By::Label { .. } | By::Nothing => None,
        }
    }

    /// The moves made since this was called last.
    pub fn take_moves(&mut self) -> Vec<Moved> {
        std::mem::take(&mut self.moves)
    }

    fn insert(&mut self, flow: FlowId, steered: Steered) {
        let index = flow.0 as usize;
        if self.flows.len() <= index {
            self.flows.resize_with(index + 1, || None);
        }
        self.flows[index] = Some(Box::new(steered));
    }

    /// The program of the end that was called knows the connection from now on, and draws a path for it.
    fn accepted(&mut self, now: Time, flow: FlowId) -> Move {
        let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) else { return Move::default() };
        let By::Policy { acks, .. } = &mut steered.by else { return Move::default() };
        let Some(Acceptor::PendingConnection(asked)) = acks else { return Move::default() };
        let random = self.random.get_mut(asked.node.index()).map_or(0, Rng::next_u32);
        let routes = std::mem::take(&mut asked.routes);
        *acks = asked
            .request
            .accept(now, random)
            .ok()
            .map(|connection| Acceptor::Accepted(PathSelector::new(asked.node, connection, routes)));
        Move { forward: None, reverse: acks.as_ref().and_then(Acceptor::route) }
    }

    /// Takes a decision of the policy.
    fn decided(&mut self, now: Time, flow: FlowId, decision: Decision, of_acks: bool) -> Move {
        let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) else { return Move::default() };
        let By::Policy { data, acks } = &steered.by else { return Move::default() };
        if !decision.moved {
            return Move::default();
        }
        let reason = decision.reason.map_or("unknown", |reason| reason.as_str());
        self.moves.push(Moved { time: now, flow, reason });
        if of_acks {
            return Move { forward: None, reverse: acks.as_ref().and_then(Acceptor::route) };
        }
        steered.moves += 1;
        Move { forward: data.route(), reverse: None }
    }

    /// Moves the flow to where a new label leads.
    fn relabel(&mut self, now: Time, flow: FlowId, random: u32, reason: &'static str, of_acks: bool) -> Move {
        let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) else { return Move::default() };
        let By::Label { data, acks, .. } = &mut steered.by else { return Move::default() };
        let to = if of_acks { acks } else { data }.relabel(random);
        steered.moves += 1;
        self.moves.push(Moved { time: now, flow, reason });
        if of_acks { Move { reverse: Some(to), forward: None } } else { Move { forward: Some(to), reverse: None } }
    }

    /// A flow that is steered, and random bits of its node's.
    fn steered(&mut self, flow: FlowId) -> Option<(&mut Steered, u32)> {
        let steered = self.flows.get_mut(flow.0 as usize)?.as_mut()?;
        let random = self.random.get_mut(steered.node.index()).map_or(0, Rng::next_u32);
        Some((steered, random))
    }
}

impl Steering for Steer {
    fn requested(&mut self, now: Time, flow: FlowId) -> Move {
        let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) else { return Move::default() };
        if let By::Label { server, .. } = &mut steered.by {
            // A SYN-ACK that is sent again has another label (`tcp_rtx_synack`), which the connection keeps.
            if !std::mem::replace(&mut server.answered, true) {
                return Move::default();
            }
            let random = self.random.get_mut(steered.node.index()).map_or(0, Rng::next_u32);
            return self.relabel(now, flow, random, "syn_ack", true);
        }
        let By::Policy { acks: Some(Acceptor::PendingConnection(asked)), .. } = &mut steered.by else {
            return Move::default();
        };
        let random = self.random.get_mut(asked.node.index()).map_or(0, Rng::next_u32);
        let pair = (asked.node, asked.peer);
        let new = || (asked.request.weights(now), asked.request.clone());
        let (weights, _) = self.replies.entry(pair).or_insert_with(new);
        let reverse = asked.routes.get(draw_reply(weights, random)).copied();
        Move { forward: None, reverse }
    }

    fn happened(&mut self, now: Time, flow: FlowId, end: End<'_>, event: Event) -> Move {
        let Some(Some(steered)) = self.flows.get(flow.0 as usize) else { return Move::default() };
        match &steered.by {
            By::Policy { .. } if event == Event::Accepted => self.accepted(now, flow),
            By::Policy { .. } => self.decide(now, flow, end, event),
            By::Label { .. } => self.label(now, flow, end, event),
            By::Nothing => Move::default(),
        }
    }
}

/// What the program would read of the socket.
pub fn read(now: Time, sender: &Sender, mss: u16) -> Round {
    Round {
        now,
        cwnd: Bytes::new((sender.cwnd() * f64::from(mss)) as u64),
        srtt: sender.srtt().unwrap_or_default(),
        mss: mss.into(),
        in_flight: sender.in_flight(),
        // Linux counts the SYN.
        delivered: sender.delivered() + u32::from(sender.srtt().is_some()),
        delivered_ce: sender.delivered_ce(),
        received: 0,
    }
}
