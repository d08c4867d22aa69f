//! Hosts: the flows that live on them, their timers, and what moves them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

use sidestep_net::{Span, Time};
use sidestep_proto::{
    packet::{Kind, Packet},
    tcp::{self, Receiver, Sender, Signals, State},
};

use super::{
    closing::Closing,
    endpoint::{Endpoint, Half, Outbox},
    flows::{Flow, FlowId, FlowKind, Sizes},
    mptcp::Multipath,
    network::{Network, RouteId},
    outage::Outage,
    programs::Programs,
    request::Exchange,
    steering::{End, Event, Move, Steering},
};

/// Why [`World::run_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The instant was reached.
    Reached,
    /// A flow (of MPTCP: the first of its connection) finished, or failed to connect. One whose other end has something to send
    /// then finishes a second time when it [is over](World::is_over).
    Finished(FlowId),
}

/// The network and the flows on it.
#[derive(Debug)]
pub struct World<S> {
    /// The network.
    pub network: Network,
    /// What moves flows.
    pub steering: S,
    pub(super) now: Time,
    pub(super) configs: Vec<tcp::Config>,
    pub(super) sizes: Sizes,
    pub(super) flows: Vec<Flow>,
    /// The two ends of flows of TCP and of subflows.
    pub(super) senders: Vec<Sender>,
    pub(super) receivers: Vec<Receiver>,
    pub(super) connections: Vec<Multipath>,
    /// Those of flows that ask and are answered.
    pub(super) exchanges: Vec<Exchange>,
    /// What the receivers of flows send when all has arrived.
    pub(super) closings: BTreeMap<u32, Closing>,
    /// Those of other flows; one is taken out while it is called.
    pub(super) others: Vec<Option<Box<dyn Endpoint>>>,
    pub(super) outbox: Outbox,
    pub(super) timers: Timers,
    pub(super) programs: Programs,
    pub(super) finished: VecDeque<FlowId>,
    /// Flows of TCP, others, and those that ask, whose place may be used again.
    pub(super) free: VecDeque<u32>,
    pub(super) free_others: VecDeque<u32>,
    pub(super) free_exchanges: VecDeque<u32>,
    /// Of flows; the last of each may still last.
    outages: BTreeMap<u32, Vec<Outage>>,
    /// How often SYNs, and requests, of a flow were not answered in time.
    syn_timeouts: BTreeMap<u32, u64>,
    /// Whether an outage of the flow lasts, for each flow.
    pub(super) out: Vec<bool>,
}

/// When the ends of flows want to be woken.
#[derive(Debug)]
pub(super) struct Timers {
    /// By [time and end](entry); with [`PROGRAM`] if its program does.
    heap: BinaryHeap<Reverse<u128>>,
    /// The earliest; [`Time::MAX`] for none.
    next: Time,
}

/// The name of an end: twice the flow's index, and one more for the receiver.
pub(super) fn end_of(flow: u32, half: Half) -> u32 {
    flow * 2 + u32::from(half == Half::Receiver)
}

/// A time in nanoseconds above the name of an end: one number is compared faster than two.
fn entry(at: Time, end: u32) -> Reverse<u128> {
    Reverse(u128::from(at.as_nanos()) << 32 | u128::from(end))
}

/// Marks an end whose program is woken.
const PROGRAM: u32 = 1 << 31;

impl Default for Timers {
    fn default() -> Self {
        Timers { heap: BinaryHeap::new(), next: Time::MAX }
    }
}

impl Timers {
    /// Wakes one end of a flow when its `timeout` is due, unless it is `armed` to wake before: it then asks again.
    #[inline(always)]
    pub(super) fn arm(&mut self, armed: &mut Time, timeout: Option<Time>, flow: u32, half: Half) {
        let deadline = timeout.unwrap_or(Time::MAX);
        if deadline < *armed {
            *armed = deadline;
            self.heap.push(entry(deadline, end_of(flow, half)));
            self.next = self.next.min(deadline);
        }
    }

    /// Wakes the program at an end.
    pub(super) fn wake_program(&mut self, at: Time, end: u32) {
        self.heap.push(entry(at, end | PROGRAM));
        self.next = self.next.min(at);
    }

    /// Takes the earliest: when, which end of which flow, and whether it is for its program.
    fn pop(&mut self) -> Option<(Time, u32, Half, bool)> {
        let Reverse(first) = self.heap.pop()?;
        let time = |entry: u128| Time::from_nanos((entry >> 32) as u64);
        self.next = self.heap.peek().map_or(Time::MAX, |Reverse(next)| time(*next));
        let (due, timer) = (time(first), first as u32);
        let half = if timer % 2 == 1 { Half::Receiver } else { Half::Sender };
        Some((due, (timer & !PROGRAM) / 2, half, timer & PROGRAM != 0))
    }
}

impl<S: Steering> World<S> {
    /// A network without flows, at time zero; `tcp` are the settings of [`TcpId::default`](super::TcpId).
    pub fn new(network: Network, tcp: tcp::Config, sizes: Sizes, steering: S) -> Self {
        World {
            network,
            steering,
            now: Time::ZERO,
            configs: vec![tcp],
            sizes,
            flows: Vec::new(),
            senders: Vec::new(),
            receivers: Vec::new(),
            connections: Vec::new(),
            exchanges: Vec::new(),
            closings: BTreeMap::new(),
            others: Vec::new(),
            outbox: Outbox::default(),
            timers: Timers::default(),
            programs: Programs::default(),
            finished: VecDeque::new(),
            free: VecDeque::new(),
            free_others: VecDeque::new(),
            free_exchanges: VecDeque::new(),
            outages: BTreeMap::new(),
            syn_timeouts: BTreeMap::new(),
            out: Vec::new(),
        }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Runs until `end`, or until a flow finishes.
    pub fn run_until(&mut self, end: Time) -> Stopped {
        loop {
            if let Some(flow) = self.finished.pop_front() {
                return Stopped::Finished(flow);
            }
            let limit = self.timers.next.min(end);
            match self.network.next(limit.as_nanos()) {
                Some((now, arrived)) => {
                    self.now = Time::from_nanos(now);
                    let packet = self.network.arrived(arrived);
                    self.deliver(&packet);
                }
                None if self.timers.next <= end => self.fire(),
                None => {
                    self.now = end;
                    return Stopped::Reached;
                }
            }
        }
    }

    /// The outages that a flow had since it was opened, or since this was called last.
    pub fn take_outages(&mut self, flow: FlowId) -> Vec<Outage> {
        self.out[flow.0 as usize] = false;
        self.outages.remove(&flow.0).unwrap_or_default()
    }

    /// How often the flow's SYN, or its request, was not answered in time since it was opened, or since this was called last.
    pub fn take_syn_timeouts(&mut self, flow: FlowId) -> u64 {
        self.syn_timeouts.remove(&flow.0).unwrap_or(0)
    }

    /// Moves a flow.
    #[inline]
    pub fn reroute(&mut self, flow: FlowId, to: Move) {
        let of = &mut self.flows[flow.0 as usize];
        of.forward = to.forward.unwrap_or(of.forward);
        of.reverse = to.reverse.unwrap_or(of.reverse);
    }

    /// Makes a flow of TCP that is not open yet send its SYN again after `rto`, and `more_retries` times more than otherwise.
    pub fn set_syn_timeout(&mut self, flow: FlowId, rto: Span, more_retries: u8) {
        let of = self.flows[flow.0 as usize];
        match of.kind {
            FlowKind::Tcp => self.senders[of.slot as usize].set_syn_timeout(rto, more_retries),
            FlowKind::Asking => self.set_syn_timeout_of_exchange(flow.0, rto, more_retries),
            _ => {}
        }
    }

    /// The route of a flow's data, and of its ACKs.
    pub fn routes(&self, flow: FlowId) -> (RouteId, RouteId) {
        let of = &self.flows[flow.0 as usize];
        (of.forward, of.reverse)
    }

    #[inline]
    fn deliver(&mut self, packet: &Packet) {
        match packet.kind {
            Kind::Data => self.deliver_data(packet),
            Kind::Ack | Kind::SynAck => self.deliver_ack(packet),
            Kind::Syn => self.deliver_syn(packet),
            Kind::HandshakeAck => self.deliver_handshake_ack(packet),
            Kind::LastAck => self.deliver_last_ack(packet),
            Kind::Cbr | Kind::Control => {}
        }
    }

    /// New data of a flow was acknowledged: its outage is over, if it had one.
    #[inline]
    pub(super) fn end_outage(&mut self, flow: u32) {
        if std::mem::take(&mut self.out[flow as usize]) {
            self.end_outage_of(flow);
        }
    }

    #[cold]
    fn end_outage_of(&mut self, flow: u32) {
        let last = self.outages.get_mut(&flow).and_then(|outages| outages.last_mut());
        last.into_iter().for_each(|outage| outage.until = Some(self.now));
    }

    /// The retransmission timer of a flow fired, whose timeout is `rto`: an outage begins, or lasts.
    pub(super) fn note_timeout(&mut self, flow: u32, rto: Span) {
        let outages = self.outages.entry(flow).or_default();
        if !std::mem::replace(&mut self.out[flow as usize], true) {
            outages.push(Outage { at: self.now, rto, until: None, timeouts: 0 });
        }
        outages.last_mut().into_iter().for_each(|outage| outage.timeouts += 1);
    }

    /// A timeout of a flow that is no outage: of its SYN, or of a request.
    pub(super) fn count_timeout(&mut self, flow: u32) {
        *self.syn_timeouts.entry(flow).or_default() += 1;
    }

    /// Something happened to the sender of a flow of TCP: it may be moved for that.
    pub(super) fn signal(&mut self, flow: u32, signals: Signals) {
        let slot = self.flows[flow as usize].slot as usize;
        if signals.timeout() {
            self.note_timeout(flow, self.senders[slot].rto());
        }
        if signals.syn_timeout() {
            self.count_timeout(flow);
        }
        let closes = self.closes_apart(flow);
        if signals.established() && closes {
            self.send_without_data(flow, Kind::HandshakeAck);
        }
        let end = End::of(Half::Sender, &self.senders[slot]);
        let to = self.steering.happened(self.now, FlowId(flow), end, Event::Signals(signals));
        self.reroute(FlowId(flow), to);
        let waits = closes && self.senders[slot].state() == State::Finished;
        if signals.finished() && self.flows[flow as usize].kind == FlowKind::Tcp && !waits {
            self.finished.push_back(FlowId(flow));
        }
    }

    /// Serves the timer that is due next, unless its deadline has moved meanwhile.
    fn fire(&mut self) {
        let Some((due, index, half, of_program)) = self.timers.pop() else { return };
        self.now = due;
        if of_program {
            return self.wake_program(index, half);
        }
        let of = &self.flows[index as usize];
        let armed = if half == Half::Receiver { of.receiver_timer } else { of.sender_timer };
        if armed != due {
            return;
        }
        match (of.kind, half) {
            (FlowKind::Other, half) => self.fire_endpoint(index, half),
            (FlowKind::Asking, half) => self.fire_exchange(index, half),
            (_, Half::Receiver) => self.fire_receiver(index),
            (_, Half::Sender) => self.fire_sender(index),
        }
    }
}
