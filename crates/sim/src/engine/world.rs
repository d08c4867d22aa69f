//! Hosts: the flows that live on them, their timers, and what moves them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
};

use sidestep_model::Time;
use sidestep_proto::{
    mptcp::{self, Connection, Reassembly},
    packet::{Flags, Kind, Packet},
    tcp::{self, Receiver, Sender, Signals, State},
};
use sidestep_results::Outage;

use super::network::{Network, RouteId};

/// A flow: a TCP connection or a subflow of MPTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// What a flow is like.
#[derive(Clone, Copy, Debug)]
pub struct FlowSpec {
    /// The way of its data.
    pub forward: RouteId,
    /// The way of its ACKs.
    pub reverse: RouteId,
    /// Application bytes; `None`: without end.
    pub bytes: Option<u64>,
    /// Payload of a segment in bytes.
    pub mss: u16,
}

/// Bytes of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// IP and TCP headers of every packet, the timestamps option included.
    pub header: u16,
    /// What the options of a SYN and its answer add.
    pub syn: u16,
    /// What MPTCP adds to a data packet, and to an ACK (RFC 8684: the DSS option).
    pub mptcp_data: u16,
    /// The same of an ACK.
    pub mptcp_ack: u16,
}

/// A flow's new routes, where they change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Move {
    /// The way of its data.
    pub forward: Option<RouteId>,
    /// The way of its ACKs.
    pub reverse: Option<RouteId>,
}

/// What moves flows; asked only when something happens to one.
pub trait Steering {
    /// Something happened to the sender of a flow.
    fn signals(&mut self, now: Time, flow: FlowId, sender: &Sender, signals: Signals) -> Move;
    /// The sender of a flow retransmitted segments, not after a timeout.
    fn retransmitted(&mut self, now: Time, flow: FlowId, sender: &Sender, segments: u32) -> Move;
    /// The receiver of a flow got a segment that it had; asked before it answers.
    fn duplicate(&mut self, now: Time, flow: FlowId, sender: &Sender, receiver: &Receiver) -> Move;
}

/// Nothing moves.
impl Steering for () {
    fn signals(&mut self, _: Time, _: FlowId, _: &Sender, _: Signals) -> Move {
        Move::default()
    }
    fn retransmitted(&mut self, _: Time, _: FlowId, _: &Sender, _: u32) -> Move {
        Move::default()
    }
    fn duplicate(&mut self, _: Time, _: FlowId, _: &Sender, _: &Receiver) -> Move {
        Move::default()
    }
}

/// Why [`World::run_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The instant was reached.
    Reached,
    /// A flow (of MPTCP: the first of its connection) finished, or failed to connect.
    Finished(FlowId),
}

/// The network and the flows on it.
#[derive(Debug)]
pub struct World<S> {
    /// The network.
    pub network: Network,
    /// What moves flows.
    pub steering: S,
    now: Time,
    tcp: tcp::Config,
    mptcp: mptcp::Config,
    sizes: Sizes,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    flows: Vec<Flow>,
    connections: Vec<Multipath>,
    /// Deadlines, by time: of senders under twice the flow's index, of receivers under one more.
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    next_timer: Time,
    finished: VecDeque<FlowId>,
    free: VecDeque<u32>,
    /// Of flows; the last of each may still last.
    outages: BTreeMap<u32, Vec<Outage>>,
    /// Flows of which one lasts.
    out: BTreeSet<u32>,
}

/// What the shell of a flow knows.
#[derive(Clone, Copy, Debug)]
struct Flow {
    forward: RouteId,
    reverse: RouteId,
    /// The timers that are in the heap; [`Time::MAX`] for none.
    sender_timer: Time,
    receiver_timer: Time,
    /// Index into `connections`, or [`NONE`].
    connection: u32,
    /// Number and payload of the last segment.
    last: u32,
    last_payload: u16,
    mss: u16,
}

#[derive(Debug)]
struct Multipath {
    connection: Connection,
    reassembly: Reassembly,
    first: u32,
    count: u32,
    done: bool,
}

const NONE: u32 = u32::MAX;

impl Default for Sizes {
    fn default() -> Self {
        // IPv6, TCP, and the timestamps option padded. Of a SYN the options take 20 bytes, timestamps included.
        Sizes { header: 40 + 20 + 12, syn: 8, mptcp_data: 20, mptcp_ack: 12 }
    }
}

impl<S: Steering> World<S> {
    /// A network without flows, at time zero.
    pub fn new(network: Network, tcp: tcp::Config, mptcp: mptcp::Config, sizes: Sizes, steering: S) -> Self {
        World {
            network,
            steering,
            now: Time::ZERO,
            tcp,
            mptcp,
            sizes,
            senders: Vec::new(),
            receivers: Vec::new(),
            flows: Vec::new(),
            connections: Vec::new(),
            timers: BinaryHeap::new(),
            next_timer: Time::MAX,
            finished: VecDeque::new(),
            free: VecDeque::new(),
            outages: BTreeMap::new(),
            out: BTreeSet::new(),
        }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The flow that the next [`add_flow`](Self::add_flow) makes.
    pub fn next_flow(&mut self) -> FlowId {
        // A flow that is over may still have packets on the way; its place is taken only when they are gone.
        let ready = self.free.front().is_some_and(|flow| self.network.on_the_way(*flow) == 0);
        FlowId(if ready { self.free[0] } else { self.flows.len() as u32 })
    }

    /// Makes a flow; it does nothing until it is [opened](Self::open).
    pub fn add_flow(&mut self, spec: FlowSpec) -> FlowId {
        let id = self.next_flow();
        let (segments, last_payload) = segments(spec);
        let flow = Flow {
            forward: spec.forward,
            reverse: spec.reverse,
            sender_timer: Time::MAX,
            receiver_timer: Time::MAX,
            connection: NONE,
            last: segments.wrapping_sub(1),
            last_payload,
            mss: spec.mss,
        };
        let mut sender = Sender::new(&self.tcp);
        sender.supply(segments);
        if spec.bytes.is_some() {
            sender.finish();
        }
        sender.pace(spec.mss + self.sizes.header);
        let index = id.0 as usize;
        if index < self.flows.len() {
            self.free.pop_front();
            (self.flows[index], self.senders[index]) = (flow, sender);
            self.receivers[index] = Receiver::new(&self.tcp);
        } else {
            self.flows.push(flow);
            self.senders.push(sender);
            self.receivers.push(Receiver::new(&self.tcp));
            self.network.add_flow();
        }
        id
    }

    /// Makes an MPTCP connection with a subflow for each pair of routes; the flows' numbers follow each other.
    ///
    /// Of `spec` the routes do not matter.
    pub fn add_connection(&mut self, spec: FlowSpec, routes: &[(RouteId, RouteId)]) -> FlowId {
        let first = self.flows.len() as u32;
        let (segments, last_payload) = segments(spec);
        let mut connection = Connection::new(&self.mptcp, routes.len());
        connection.supply(segments);
        if spec.bytes.is_some() {
            connection.finish();
        }
        let index = self.connections.len() as u32;
        for (forward, reverse) in routes {
            self.flows.push(Flow {
                forward: *forward,
                reverse: *reverse,
                sender_timer: Time::MAX,
                receiver_timer: Time::MAX,
                connection: index,
                last: segments.wrapping_sub(1),
                last_payload,
                mss: spec.mss,
            });
            self.senders.push(Sender::new(&self.tcp));
            self.receivers.push(Receiver::new(&self.tcp));
            self.network.add_flow();
        }
        let count = routes.len() as u32;
        let reassembly = Reassembly::default();
        self.connections.push(Multipath { connection, reassembly, first, count, done: false });
        FlowId(first)
    }

    /// Begins to connect a flow, or all subflows of the connection that it is the first of.
    pub fn open(&mut self, flow: FlowId) {
        let connection = self.flows[flow.0 as usize].connection;
        let count = if connection == NONE { 1 } else { self.connections[connection as usize].count };
        for index in flow.0..flow.0 + count {
            self.senders[index as usize].open();
            self.pump(index);
        }
    }

    /// Sends a packet of so many bytes on the forward way of a flow that is nothing but packets.
    pub fn send_cbr(&mut self, flow: FlowId, len: u16) {
        let route = self.flows[flow.0 as usize].forward;
        let packet = Packet { flow: flow.0, kind: Kind::Cbr, len, ..Packet::default() };
        self.network.inject(self.now.as_nanos(), route, packet);
    }

    /// Ends a flow, or a connection by its first: nothing of it is sent any more.
    pub fn close(&mut self, flow: FlowId) {
        let connection = self.flows[flow.0 as usize].connection;
        let count = if connection == NONE { 1 } else { self.connections[connection as usize].count };
        for index in flow.0 as usize..(flow.0 + count) as usize {
            self.senders[index] = Sender::new(&self.tcp);
        }
    }

    /// Lets the place of a finished flow be used again; not for MPTCP.
    pub fn release(&mut self, flow: FlowId) {
        self.close(flow);
        self.free.push_back(flow.0);
    }

    /// Runs until `end`, or until a flow finishes.
    pub fn run_until(&mut self, end: Time) -> Stopped {
        loop {
            if let Some(flow) = self.finished.pop_front() {
                return Stopped::Finished(flow);
            }
            let limit = self.next_timer.min(end);
            match self.network.next(limit.as_nanos()) {
                Some((now, packet)) => {
                    self.now = Time::from_nanos(now);
                    self.deliver(&packet);
                }
                None if self.next_timer <= end => self.fire(),
                None => {
                    self.now = end;
                    return Stopped::Reached;
                }
            }
        }
    }

    /// The sender of a flow.
    pub fn sender(&self, flow: FlowId) -> &Sender {
        &self.senders[flow.0 as usize]
    }

    /// How many flows there are, and have been.
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Application bytes acknowledged; of an MPTCP connection by its first subflow.
    pub fn acked_bytes(&self, flow: FlowId) -> u64 {
        let of = &self.flows[flow.0 as usize];
        let una = match self.connections.get(of.connection as usize) {
            Some(multipath) => multipath.connection.data_una(),
            None => self.senders[flow.0 as usize].una(),
        };
        let short = u64::from(of.mss - of.last_payload);
        u64::from(una) * u64::from(of.mss) - if of.last != NONE && una > of.last { short } else { 0 }
    }

    /// The outages that a flow had since it was opened, or since this was called last.
    pub fn take_outages(&mut self, flow: FlowId) -> Vec<Outage> {
        self.out.remove(&flow.0);
        self.outages.remove(&flow.0).unwrap_or_default()
    }

    /// Moves a flow.
    pub fn reroute(&mut self, flow: FlowId, to: Move) {
        let of = &mut self.flows[flow.0 as usize];
        of.forward = to.forward.unwrap_or(of.forward);
        of.reverse = to.reverse.unwrap_or(of.reverse);
    }

    /// The way of a flow's data, and of its ACKs.
    pub fn routes(&self, flow: FlowId) -> (RouteId, RouteId) {
        let of = &self.flows[flow.0 as usize];
        (of.forward, of.reverse)
    }

    #[inline]
    fn deliver(&mut self, packet: &Packet) {
        match packet.kind {
            Kind::Data => self.deliver_data(packet),
            Kind::Ack | Kind::SynAck => self.deliver_ack(packet),
            Kind::Syn => {
                let reply = self.receivers[packet.flow as usize].handle_syn(&self.tcp, packet);
                self.reply(packet.flow, reply);
            }
            Kind::Cbr => {}
        }
    }

    #[inline]
    fn deliver_data(&mut self, packet: &Packet) {
        let index = packet.flow as usize;
        if packet.seq < self.receivers[index].received() {
            // Its answer goes the new way.
            let (sender, receiver) = (&self.senders[index], &self.receivers[index]);
            let to = self.steering.duplicate(self.now, FlowId(packet.flow), sender, receiver);
            self.reroute(FlowId(packet.flow), to);
        }
        let flow = self.flows[index];
        let receiver = &mut self.receivers[index];
        let (network, sizes, now) = (&mut self.network, self.sizes, self.now.as_nanos());
        if flow.connection == NONE {
            receiver.handle_data(&self.tcp, self.now, packet, &mut |ack: Packet| {
                let ack = Packet { flow: packet.flow, len: sizes.ack(&ack), ..ack };
                network.inject(now, flow.reverse, ack);
            });
        } else {
            let reassembly = &mut self.connections[flow.connection as usize].reassembly;
            reassembly.handle_data(packet.data_seq);
            let (data_seq, window) = (reassembly.data_ack(), self.mptcp.receive_buffer);
            receiver.handle_data(&self.tcp, self.now, packet, &mut |ack: Packet| {
                // Beside MPTCP's option and the timestamps a TCP header has room for one block.
                let ack = Packet { sack: [ack.sack[0], (0, 0), (0, 0)], ..ack };
                let len = sizes.ack(&ack) + sizes.mptcp_ack;
                network.inject(now, flow.reverse, Packet { flow: packet.flow, data_seq, window, len, ..ack });
            });
        }
        let deadline = receiver.poll_timeout();
        if deadline < flow.receiver_timer {
            self.flows[index].receiver_timer = deadline;
            self.arm(deadline, packet.flow * 2 + 1);
        }
    }

    #[inline]
    fn deliver_ack(&mut self, packet: &Packet) {
        let index = packet.flow as usize;
        let sender = &mut self.senders[index];
        let acked = sender.handle_ack(&self.tcp, self.now, packet);
        let connection = self.flows[index].connection;
        if connection != NONE {
            self.handle_multipath(packet, &acked, connection as usize);
        }
        if acked.segments > 0 && !self.out.is_empty() && self.out.remove(&packet.flow) {
            let last = self.outages.get_mut(&packet.flow).and_then(|outages| outages.last_mut());
            last.into_iter().for_each(|outage| outage.until = Some(self.now));
        }
        if acked.signals.any() {
            self.signal(packet.flow, acked.signals);
        }
        self.pump(packet.flow);
    }

    fn handle_multipath(&mut self, packet: &Packet, acked: &tcp::Acked, connection: usize) {
        let multipath = &mut self.connections[connection];
        let range = multipath.first as usize..(multipath.first + multipath.count) as usize;
        let subflow = (packet.flow - multipath.first) as usize;
        multipath.connection.handle_ack(&self.mptcp, &mut self.senders[range], subflow, packet, acked);
        if multipath.connection.is_finished() && !multipath.done {
            multipath.done = true;
            let first = FlowId(multipath.first);
            self.finished.push_back(first);
            self.close(first);
        }
    }

    /// Sends what a flow may send.
    #[inline]
    fn pump(&mut self, flow: u32) {
        let resent = self.transmit(flow);
        let connection = self.flows[flow as usize].connection;
        if connection != NONE {
            self.schedule(connection as usize, flow);
        }
        if resent > 0 && self.senders[flow as usize].state() == State::Recovery {
            let sender = &self.senders[flow as usize];
            let to = self.steering.retransmitted(self.now, FlowId(flow), sender, resent);
            self.reroute(FlowId(flow), to);
        }
    }

    /// Gives data to the subflows that have room, and has them send it.
    fn schedule(&mut self, connection: usize, flow: u32) {
        loop {
            let Multipath { connection, first, count, .. } = &mut self.connections[connection];
            let subflows = &mut self.senders[*first as usize..(*first + *count) as usize];
            let hint = (flow - *first) as usize;
            let Some(assigned) = connection.poll_transmit(&self.mptcp, subflows, hint) else { return };
            let to = *first + assigned.subflow as u32;
            self.transmit(to);
        }
    }

    /// Sends what a flow's sender has; returns how many segments were sent again.
    #[inline]
    fn transmit(&mut self, index: u32) -> u32 {
        let flow = &mut self.flows[index as usize];
        let sender = &mut self.senders[index as usize];
        let mut resent = 0;
        while let Some(transmit) = sender.poll_transmit(&self.tcp, self.now) {
            let mut packet = Packet {
                sent: self.now,
                flow: index,
                seq: transmit.seq,
                kind: transmit.kind,
                flags: transmit.flags,
                len: self.sizes.header,
                ..Packet::default()
            };
            if self.tcp.algorithm == tcp::Algorithm::Rcp {
                packet.rate = u32::MAX;
                packet.rtt = sender.srtt().map_or(0, |srtt| (srtt.as_nanos() / 1_000) as u32);
            }
            if transmit.kind == Kind::Syn {
                packet.len += self.sizes.syn;
            } else {
                let mut data_seq = transmit.seq;
                if flow.connection != NONE {
                    let multipath = &self.connections[flow.connection as usize];
                    data_seq = multipath.connection.data_seq((index - multipath.first) as usize, transmit.seq);
                    packet.data_seq = data_seq;
                    packet.len += self.sizes.mptcp_data;
                }
                packet.payload = if data_seq == flow.last { flow.last_payload } else { flow.mss };
                packet.len += packet.payload;
                resent += u32::from(transmit.flags.has(Flags::RETRANSMIT));
            }
            self.network.inject(self.now.as_nanos(), flow.forward, packet);
        }
        let deadline = sender.poll_timeout();
        if deadline < flow.sender_timer {
            flow.sender_timer = deadline;
            self.arm(deadline, index * 2);
        }
        resent
    }

    fn reply(&mut self, flow: u32, packet: Packet) {
        let route = self.flows[flow as usize].reverse;
        let multipath = self.flows[flow as usize].connection != NONE;
        let window = if multipath { self.mptcp.receive_buffer } else { packet.window };
        let len = self.sizes.ack(&packet) + if multipath { self.sizes.mptcp_ack } else { 0 };
        self.network.inject(self.now.as_nanos(), route, Packet { flow, len, window, ..packet });
    }

    fn signal(&mut self, flow: u32, signals: Signals) {
        if signals.timeout() {
            let outages = self.outages.entry(flow).or_default();
            if self.out.insert(flow) {
                let rto = self.senders[flow as usize].rto();
                outages.push(Outage { at: self.now, rto, until: None, timeouts: 0 });
            }
            outages.last_mut().into_iter().for_each(|outage| outage.timeouts += 1);
        }
        let to = self.steering.signals(self.now, FlowId(flow), &self.senders[flow as usize], signals);
        self.reroute(FlowId(flow), to);
        if signals.finished() && self.flows[flow as usize].connection == NONE {
            self.finished.push_back(FlowId(flow));
        }
    }

    #[inline]
    fn arm(&mut self, deadline: Time, timer: u32) {
        self.timers.push(Reverse((deadline, timer)));
        self.next_timer = self.next_timer.min(deadline);
    }

    /// Serves the timer that is due next, unless its deadline has moved meanwhile.
    fn fire(&mut self) {
        let Some(Reverse((due, timer))) = self.timers.pop() else { return };
        self.next_timer = self.timers.peek().map_or(Time::MAX, |Reverse((time, _))| *time);
        self.now = due;
        let index = timer / 2;
        if timer % 2 == 1 {
            if self.flows[index as usize].receiver_timer == due {
                self.fire_receiver(index);
            }
        } else if self.flows[index as usize].sender_timer == due {
            self.fire_sender(index);
        }
    }

    fn fire_receiver(&mut self, index: u32) {
        let receiver = &mut self.receivers[index as usize];
        if let Some(mut ack) = receiver.handle_timeout(&self.tcp, self.now) {
            let connection = self.flows[index as usize].connection;
            if let Some(multipath) = self.connections.get(connection as usize) {
                ack.data_seq = multipath.reassembly.data_ack();
            }
            self.reply(index, ack);
        }
        let deadline = self.receivers[index as usize].poll_timeout();
        self.flows[index as usize].receiver_timer = deadline;
        if deadline != Time::MAX {
            self.arm(deadline, index * 2 + 1);
        }
    }

    fn fire_sender(&mut self, index: u32) {
        self.flows[index as usize].sender_timer = Time::MAX;
        let signals = self.senders[index as usize].handle_timeout(&self.tcp, self.now);
        if signals.any() {
            self.signal(index, signals);
            let connection = self.flows[index as usize].connection;
            if let Some(multipath) = self.connections.get_mut(connection as usize) {
                let range = multipath.first as usize..(multipath.first + multipath.count) as usize;
                let subflow = (index - multipath.first) as usize;
                multipath.connection.handle_signals(&self.mptcp, &mut self.senders[range], subflow, signals);
            }
            self.pump(index);
        } else if self.tcp.algorithm == tcp::Algorithm::Rcp {
            self.transmit(index);
        }
        let deadline = self.senders[index as usize].poll_timeout();
        let flow = &mut self.flows[index as usize];
        if deadline < flow.sender_timer {
            flow.sender_timer = deadline;
            self.arm(deadline, index * 2);
        }
    }
}

impl Sizes {
    /// Length of an ACK: each SACK block takes 8 bytes, and they take 2 more and padding (RFC 2018).
    #[inline]
    fn ack(&self, packet: &Packet) -> u16 {
        let blocks = packet.sack.iter().take_while(|block| **block != (0, 0)).count() as u16;
        let syn = if packet.kind == Kind::SynAck { self.syn } else { 0 };
        self.header + syn + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }
}

/// How many segments a flow has, and the payload of the last.
fn segments(spec: FlowSpec) -> (u32, u16) {
    let Some(bytes) = spec.bytes else { return (NONE, spec.mss) };
    let mss = u64::from(spec.mss);
    let segments = bytes.div_ceil(mss).clamp(1, u64::from(NONE - 1));
    (segments as u32, (bytes - (segments - 1) * mss).min(mss) as u16)
}

// A run with a hundred thousand flows fits any machine.
const _: () = assert!(size_of::<Flow>() + size_of::<Sender>() + size_of::<Receiver>() < 512, "an idle flow is small");
