//! Flows: what there is to know of one, how it begins and how it ends.

use std::collections::VecDeque;

use sidestep_net::{Bytes, Span, Time};
use sidestep_proto::{
    packet::{Kind, Packet},
    tcp::{Config, Receiver, Sender, Transmit},
};

use super::{
    endpoint::Endpoint,
    network::{Network, RouteId},
    steering::Steering,
    world::World,
};

/// A flow: a TCP connection, a subflow of MPTCP, one of another [`Endpoint`], or a stream of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// Settings of TCP that flows share; the default is what the [`World`] was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TcpId(pub(super) u16);

/// What a flow is like.
#[derive(Clone, Copy, Debug)]
pub struct FlowSpec {
    /// The route of its data.
    pub forward: RouteId,
    /// The route of its ACKs.
    pub reverse: RouteId,
    /// Application bytes; `None`: without end.
    pub bytes: Option<u64>,
    /// Payload of a segment in bytes.
    pub mss: u16,
    /// The settings of its TCP.
    pub tcp: TcpId,
}

/// Bytes of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// IP and TCP headers of every packet, the timestamps option included.
    pub header: u16,
    /// What the options of a SYN and its answer add.
    pub syn: u16,
    /// What MPTCP adds to a data packet (RFC 8684: the DSS option).
    pub mptcp_data: u16,
    /// What MPTCP adds to an ACK.
    pub mptcp_ack: u16,
}

/// How a flow's sender is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Its congestion window; `None` where the protocol has none.
    pub cwnd: Option<Bytes>,
    /// Its smoothed round-trip time; `None` before the first sample.
    pub srtt: Option<Span>,
    /// Packets sent again.
    pub retransmits: u64,
    /// The mode in which the sender is; `None` where there is one mode only.
    pub mode: Option<&'static str>,
}

/// What the shell of a flow knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) forward: RouteId,
    pub(super) reverse: RouteId,
    /// The timers that are in the heap; [`Time::MAX`] for none.
    pub(super) sender_timer: Time,
    pub(super) receiver_timer: Time,
    /// Where the state of its two ends lies: index into `senders` and `receivers`, into `others`, or into `exchanges`.
    pub(super) slot: u32,
    /// Of MPTCP: index into `connections`.
    pub(super) connection: u32,
    /// Number and payload of the last segment.
    pub(super) last: u32,
    pub(super) last_payload: u16,
    pub(super) mss: u16,
    pub(super) tcp: TcpId,
    pub(super) kind: FlowKind,
}

/// What protocol a flow has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowKind {
    Tcp,
    Subflow,
    /// That of an [`Endpoint`].
    Other,
    /// Packets without an answer.
    Datagrams,
    /// The first and the second flow of a connection that asks and is answered.
    Asking,
    Answering,
}

impl FlowKind {
    /// Whether its ends lie elsewhere than in `senders` and `receivers`.
    #[inline(always)]
    pub(super) fn is_elsewhere(self) -> bool {
        !matches!(self, FlowKind::Tcp | FlowKind::Subflow)
    }

    /// Whether it is of a connection that asks and is answered.
    pub(super) fn is_exchange(self) -> bool {
        matches!(self, FlowKind::Asking | FlowKind::Answering)
    }
}

/// No index.
pub(super) const NONE: u32 = u32::MAX;

impl Default for Sizes {
    fn default() -> Self {
        // IPv6, TCP, and the timestamps option padded. Of a SYN the options take 20 bytes, timestamps included.
        Sizes { header: 40 + 20 + 12, syn: 8, mptcp_data: 20, mptcp_ack: 12 }
    }
}

impl Flow {
    pub(super) fn new(spec: FlowSpec, kind: FlowKind, slot: u32) -> Flow {
        let (segments, last_payload) = segments(spec.bytes, spec.mss);
        Flow {
            forward: spec.forward,
            reverse: spec.reverse,
            sender_timer: Time::MAX,
            receiver_timer: Time::MAX,
            slot,
            connection: NONE,
            last: segments.wrapping_sub(1),
            last_payload,
            mss: spec.mss,
            tcp: spec.tcp,
            kind,
        }
    }
}

impl Flow {
    /// Whether it ends by itself.
    pub(super) fn is_sized(&self) -> bool {
        self.last != NONE.wrapping_sub(1)
    }
}

impl<S: Steering> World<S> {
    /// The settings of TCP as flows name them; equal settings have one name.
    pub fn tcp(&mut self, config: Config) -> TcpId {
        let known = self.configs.iter().position(|known| *known == config);
        TcpId(known.unwrap_or_else(|| {
            self.configs.push(config);
            self.configs.len() - 1
        }) as u16)
    }

    /// Makes a TCP flow; it does nothing until it is [opened](Self::open).
    pub fn add_flow(&mut self, spec: FlowSpec) -> FlowId {
        let config = &self.configs[usize::from(spec.tcp.0)];
        let mut sender = Sender::new(config);
        let receiver = Receiver::new(config);
        // A program that is late writes once it is woken.
        if !(sender.is_linux() && self.programs.are_late()) {
            sender.supply(segments(spec.bytes, spec.mss).0);
            // Under Linux's profile nothing follows only once that is written.
            if spec.bytes.is_some_and(|bytes| bytes == 0 || !sender.is_linux()) {
                sender.finish();
            }
        }
        if let Some(index) = reusable(&mut self.free, &self.network, 1) {
            let slot = self.flows[index as usize].slot;
            self.flows[index as usize] = Flow::new(spec, FlowKind::Tcp, slot);
            (self.senders[slot as usize], self.receivers[slot as usize]) = (sender, receiver);
            return FlowId(index);
        }
        let slot = self.senders.len() as u32;
        self.senders.push(sender);
        self.receivers.push(receiver);
        self.push_flow(Flow::new(spec, FlowKind::Tcp, slot))
    }

    /// Makes a flow with two ends of its own; it does nothing until it is [opened](Self::open).
    ///
    /// Of `spec` only the routes matter.
    pub fn add_endpoint(&mut self, spec: FlowSpec, endpoint: Box<dyn Endpoint>) -> FlowId {
        if let Some(index) = reusable(&mut self.free_others, &self.network, 1) {
            let slot = self.flows[index as usize].slot;
            self.flows[index as usize] = Flow::new(spec, FlowKind::Other, slot);
            self.others[slot as usize] = Some(endpoint);
            return FlowId(index);
        }
        let slot = self.others.len() as u32;
        self.others.push(Some(endpoint));
        self.push_flow(Flow::new(spec, FlowKind::Other, slot))
    }

    /// Makes a flow of datagrams, which [`send_datagram`](Self::send_datagram) sends and no node answers.
    pub fn add_datagrams(&mut self, route: RouteId) -> FlowId {
        let spec = FlowSpec { forward: route, reverse: route, bytes: None, mss: 1, tcp: TcpId::default() };
        self.push_flow(Flow::new(spec, FlowKind::Datagrams, NONE))
    }

    pub(super) fn push_flow(&mut self, flow: Flow) -> FlowId {
        self.flows.push(flow);
        self.out.push(false);
        self.network.add_flow();
        FlowId(self.flows.len() as u32 - 1)
    }

    /// Lets routers know the hashes of a flow's data and of its ACKs, by which they route packets again that they held.
    ///
    /// Without them, or where they are zero, such packets take the first of equal-cost paths.
    pub fn set_hashes(&mut self, flow: FlowId, (data, acks): (u32, u32)) {
        self.network.set_hashes(flow.0, [data, acks]);
    }

    /// Begins to connect a flow, or the connection whose first subflow it is.
    pub fn open(&mut self, flow: FlowId) {
        let FlowId(index) = flow;
        let of = self.flows[index as usize];
        match of.kind {
            FlowKind::Tcp => {
                self.senders[of.slot as usize].open();
                self.pump(index);
            }
            FlowKind::Subflow => self.open_subflows(of.connection as usize),
            FlowKind::Other => self.drive(index, |endpoint, now, out| endpoint.open(now, out)),
            FlowKind::Asking => self.open_request(index),
            FlowKind::Datagrams | FlowKind::Answering => {}
        }
    }

    /// Sends a packet of `len` bytes on the route of a flow of datagrams.
    pub fn send_datagram(&mut self, flow: FlowId, len: u16) {
        let route = self.flows[flow.0 as usize].forward;
        let packet = Packet { flow: flow.0, kind: Kind::Cbr, len, ..Packet::default() };
        self.network.inject(self.now.as_nanos(), route, packet);
    }

    /// Ends a flow, or a connection by its first: nothing of it is sent any more.
    pub fn close(&mut self, flow: FlowId) {
        for index in self.members(flow) {
            let of = self.flows[index as usize];
            match of.kind {
                FlowKind::Tcp | FlowKind::Subflow => {
                    self.senders[of.slot as usize] = Sender::new(&self.configs[usize::from(of.tcp.0)]);
                    self.closings.remove(&index);
                    self.programs.forget(index);
                }
                FlowKind::Other => {
                    self.others[of.slot as usize].iter_mut().for_each(|endpoint| endpoint.close());
                }
                FlowKind::Asking => {
                    self.close_exchange(index);
                    self.programs.forget(index);
                }
                FlowKind::Datagrams | FlowKind::Answering => {}
            }
        }
    }

    /// Lets the place of a finished flow be used again; subflows of MPTCP keep theirs.
    pub fn release(&mut self, flow: FlowId) {
        self.close(flow);
        match self.flows[flow.0 as usize].kind {
            FlowKind::Tcp => self.free.push_back(flow.0),
            FlowKind::Other => self.free_others.push_back(flow.0),
            FlowKind::Asking => self.free_exchanges.push_back(flow.0),
            FlowKind::Subflow | FlowKind::Datagrams | FlowKind::Answering => {}
        }
    }

    /// The numbers of a flow, or of all subflows of the connection that it is the first of.
    pub(super) fn members(&self, flow: FlowId) -> std::ops::Range<u32> {
        let connection = self.flows[flow.0 as usize].connection;
        let count = self.connections.get(connection as usize).map_or(1, |multipath| multipath.count);
        flow.0..flow.0 + count
    }

    /// How many flows there are, and have been.
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// The sender of a flow of TCP or MPTCP; of one that asks, or answers, that of its end.
    pub fn sender(&self, flow: FlowId) -> Option<&Sender> {
        let of = self.flows.get(flow.0 as usize)?;
        match of.kind {
            FlowKind::Tcp | FlowKind::Subflow => self.senders.get(of.slot as usize),
            FlowKind::Asking | FlowKind::Answering => self.sender_of_exchange(flow),
            FlowKind::Other | FlowKind::Datagrams => None,
        }
    }

    /// The receiver of a flow of TCP or MPTCP; of one that asks, or answers, that of its end.
    pub fn receiver(&self, flow: FlowId) -> Option<&Receiver> {
        let of = self.flows.get(flow.0 as usize)?;
        match of.kind {
            FlowKind::Tcp | FlowKind::Subflow => self.receivers.get(of.slot as usize),
            FlowKind::Asking | FlowKind::Answering => Some(self.socket_of_exchange(flow)?.receiver()),
            FlowKind::Other | FlowKind::Datagrams => None,
        }
    }

    /// How a flow's sender is.
    pub fn report(&self, flow: FlowId) -> Report {
        if let Some(sender) = self.sender(flow) {
            let mss = f64::from(self.flows[flow.0 as usize].mss);
            let cwnd = Some(Bytes::new((sender.cwnd() * mss) as u64));
            return Report { cwnd, srtt: sender.srtt(), retransmits: u64::from(sender.retransmits()), mode: None };
        }
        self.endpoint(flow).map_or(Report::default(), |endpoint| Report {
            cwnd: None,
            srtt: endpoint.srtt(),
            retransmits: endpoint.retransmits(),
            mode: endpoint.mode(),
        })
    }

    /// Application bytes acknowledged; of an MPTCP connection by its first subflow; of one that asks, bytes of the answer.
    pub fn acked_bytes(&self, flow: FlowId) -> u64 {
        let of = &self.flows[flow.0 as usize];
        let una = match of.kind {
            FlowKind::Subflow => self.connections[of.connection as usize].connection.data_una(),
            // A FIN without data is beyond the last segment.
            FlowKind::Tcp => self.senders[of.slot as usize].una().min(of.last.saturating_add(1)),
            FlowKind::Asking | FlowKind::Answering => return self.answered_bytes(flow),
            FlowKind::Other | FlowKind::Datagrams => return self.endpoint(flow).map_or(0, |of| of.acked_bytes()),
        };
        acked_bytes(una, of.mss, of.last, of.last_payload)
    }

    fn endpoint(&self, flow: FlowId) -> Option<&dyn Endpoint> {
        let of = self.flows.get(flow.0 as usize).filter(|of| of.kind == FlowKind::Other)?;
        self.others.get(of.slot as usize)?.as_deref()
    }
}

impl Sizes {
    /// Length of an ACK: each SACK block takes 8 bytes, and they take 2 more and padding (RFC 2018).
    #[inline]
    pub fn ack(&self, packet: &Packet) -> u16 {
        let blocks = packet.sack.iter().take_while(|block| **block != (0, 0)).count() as u16;
        let syn = if packet.kind == Kind::SynAck { self.syn } else { 0 };
        self.header + syn + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }
}

/// The segments of a flow whose [`Endpoint`] is not the engine's own, and the packets that carry them.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    sizes: Sizes,
    mss: u16,
    count: u32,
    last_payload: u16,
}

impl Segments {
    /// The segments of a flow whose packets have headers of these sizes.
    pub fn new(spec: &FlowSpec, sizes: Sizes) -> Segments {
        let (count, last_payload) = segments(spec.bytes, spec.mss);
        Segments { sizes, mss: spec.mss, count, last_payload }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Length of a full one with its headers.
    pub fn full(&self) -> u16 {
        self.mss + self.sizes.header
    }

    /// The packet that carries a segment, or opens the connection.
    pub fn packet(&self, now: Time, transmit: Transmit) -> Packet {
        let Transmit { seq, kind, flags } = transmit;
        let (payload, syn) = match kind {
            Kind::Syn => (0, self.sizes.syn),
            _ if seq == self.count.wrapping_sub(1) => (self.last_payload, 0),
            _ => (self.mss, 0),
        };
        Packet {
            sent: now.into(),
            seq,
            kind,
            flags,
            len: self.sizes.header + payload + syn,
            payload,
            ..Packet::default()
        }
    }

    /// An answer of the receiver's, complete.
    pub fn answer(&self, ack: Packet) -> Packet {
        Packet { len: self.sizes.ack(&ack), ..ack }
    }

    /// Application bytes in the segments below `una`.
    pub fn acked_bytes(&self, una: u32) -> u64 {
        acked_bytes(una, self.mss, self.count.wrapping_sub(1), self.last_payload)
    }
}

/// Takes the place for `flows` flows that has been free for the longest time. A flow that is over may still have packets in the
/// network: its place is taken only when they are gone.
pub(super) fn reusable(free: &mut VecDeque<u32>, network: &Network, flows: u32) -> Option<u32> {
    let is_gone = |first: u32| (first..first + flows).all(|flow| network.in_network(flow) == 0);
    let index = free.front().copied().filter(|index| is_gone(*index))?;
    free.pop_front();
    Some(index)
}

/// How many segments `bytes` application bytes take (`None`: without end), and the payload of the last.
pub fn segments(bytes: Option<u64>, mss: u16) -> (u32, u16) {
    let Some(bytes) = bytes else { return (NONE, mss) };
    let mss = u64::from(mss);
    let segments = bytes.div_ceil(mss).clamp(1, u64::from(NONE - 1));
    (segments as u32, (bytes - (segments - 1) * mss).min(mss) as u16)
}

/// Application bytes in the segments below `una`, of which the one with the number `last` may be shorter.
pub fn acked_bytes(una: u32, mss: u16, last: u32, last_payload: u16) -> u64 {
    let short = u64::from(mss - last_payload);
    u64::from(una) * u64::from(mss) - if last != NONE && una > last { short } else { 0 }
}

// A run with a hundred thousand flows fits any machine.
const _: () = assert!(size_of::<Flow>() + size_of::<Sender>() + size_of::<Receiver>() < 512, "an idle flow is small");
