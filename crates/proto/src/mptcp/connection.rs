//! The sender's side: which subflow carries what.

use std::collections::VecDeque;

use sidestep_net::{Span, Time};

use super::{
    Config, ConnectionTimeout, ReceiveWindow, Scheduler,
    coupled::{Share, Shared},
    mainline::Mainline,
    opening::Opening,
    scheduler::Burst,
};
use crate::{
    packet::{Kind, Packet},
    tcp::{Acked, Sender, Signals, State},
};

/// After what time the third packet of a handshake goes again while no round trip is known (`TCP_TIMEOUT_INIT`).
const UNKNOWN_ROUND_TRIP: Span = Span::from_secs(1);

/// The sending side of a connection. The driver owns the subflows' [`Sender`]s and passes them in.
///
/// The driver opens the subflows that [`poll_open`](Self::poll_open) names: at the beginning, after each ACK, and when
/// [`poll_timeout`](Self::poll_timeout) is due. When a subflow is established, and when that is due, it also asks
/// [`poll_confirm`](Self::poll_confirm) until that returns `None`. After each event it calls [`poll_transmit`](Self::poll_transmit) until that
/// returns `None`, and lets the subflow named in each answer send the segment that it was supplied.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) subflows: Vec<Subflow>,
    /// The first data segment not acknowledged, the first never sent, and how many there are.
    pub(super) data_una: u32,
    pub(super) data_next: u32,
    pub(super) data_end: u32,
    finishing: bool,
    opening: Opening,
    /// The earliest of the subflows' [`Subflow::ready_at`] and [`Subflow::confirm_at`] that is to come; [`Time::MAX`]: none.
    ready: Time,
    /// Segments below it fit the receiver's buffer.
    pub(super) window_end: u32,
    /// The subflow with which round robin continues.
    pub(super) turn: usize,
    /// Data segments that a failed subflow held and others shall carry; ascending.
    pub(super) reinject: VecDeque<u32>,
    /// What Linux's scheduler goes on with.
    pub(super) burst: Burst,
    /// The data segment that blocked the receiver's window last, and the subflows that hold it, as bits.
    pub(super) blocking: (u32, u64),
    /// What coupling needs of all subflows.
    pub(super) shared: Shared,
    /// No subflow had room at the last check, so only a subflow whose window has opened since then has room.
    pub(super) saturated: bool,
    /// What mainline does on the connection's level, under [`Scheduler::Linux`].
    pub(super) mainline: Option<Box<Mainline>>,
}

#[derive(Clone, Debug)]
pub(super) struct Subflow {
    /// The data segment of each subflow segment from `base` on.
    mapping: VecDeque<u32>,
    base: u32,
    /// The next data segment that it has not sent, for the redundant scheduler.
    pub(super) redundant_next: u32,
    pub(super) share: Share,
    /// When its last ACK came: with nothing in flight also when it was last used.
    pub(super) last_ack: Time,
    /// From when on it may carry data; [`Time::MAX`] before that is known.
    pub(super) ready_at: Time,
    /// When the third packet of its handshake goes, or goes again; [`Time::MAX`]: it does not.
    confirm_at: Time,
    /// Its pacing rate as Linux's scheduler averages it, in segments a second; 0 before it is known.
    pub(super) pace: f64,
    /// When its window was last halved as it blocked the receiver's window.
    pub(super) penalised_at: Option<Time>,
    /// It timed out, and no ACK has arrived since.
    pub(super) failed: bool,
}

/// A data segment given to a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// Index of the subflow, which has been supplied one segment.
    pub subflow: usize,
    /// The data segment.
    pub data_seq: u32,
}

impl Connection {
    /// A connection of `subflows` subflows.
    pub fn new(config: &Config, subflows: usize) -> Self {
        let mainline = config.scheduler == Scheduler::Linux;
        let first_window = if mainline { ReceiveWindow::FIRST } else { u32::MAX };
        Connection {
            subflows: vec![Subflow::new(); subflows],
            data_una: 0,
            data_next: 0,
            data_end: 0,
            finishing: false,
            opening: Opening::new(config.joins, subflows),
            ready: Time::MAX,
            window_end: config.receive_buffer.min(first_window),
            turn: 0,
            reinject: VecDeque::new(),
            burst: Burst::default(),
            blocking: (0, 0),
            shared: Shared::default(),
            saturated: false,
            mainline: mainline.then(|| Box::new(Mainline::new(subflows))),
        }
    }

    /// Supplies more data segments to send.
    pub fn supply(&mut self, segments: u32) {
        self.data_end = self.data_end.saturating_add(segments);
    }

    /// Declares that no data segments follow those supplied so far.
    pub fn finish(&mut self) {
        self.finishing = true;
    }

    /// Whether all data is acknowledged.
    pub fn is_finished(&self) -> bool {
        self.finishing && self.data_una == self.data_end
    }

    /// The next subflow to open now: the first one at the beginning, the others as [`Config::joins`] sets.
    pub fn poll_open(&mut self, now: Time) -> Option<usize> {
        self.opening.poll(now)
    }

    /// Handles the timeout that is due; before its time nothing happens. The driver then asks
    /// [`poll_open`](Self::poll_open) and [`poll_transmit`](Self::poll_transmit).
    pub fn handle_timeout(&mut self, now: Time, subflows: &[Sender]) {
        if self.mainline.as_ref().is_some_and(|of| of.deadline <= now) {
            self.retransmit(now, subflows);
        }
        if self.ready <= now {
            let times = self.subflows.iter().flat_map(|subflow| [subflow.ready_at, subflow.confirm_at]);
            self.ready = times.filter(|at| *at > now).min().unwrap_or(Time::MAX);
            self.saturated = false;
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next; `None`: never.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_timeout().map(|(due, _)| due)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, and what for; `None`: never.
    #[inline]
    pub fn next_timeout(&self) -> Option<(Time, ConnectionTimeout)> {
        let ready = Some((self.ready, ConnectionTimeout::Ready)).filter(|(at, _)| *at != Time::MAX);
        let join = self.opening.poll_timeout().map(|at| (at, ConnectionTimeout::Join));
        let again = self.mainline.as_ref().map(|of| (of.deadline, ConnectionTimeout::Retransmission));
        let again = again.filter(|(at, _)| *at != Time::MAX);
        ready.into_iter().chain(join).chain(again).min_by_key(|(at, _)| *at)
    }

    /// Whether the first subflow was given up before any was established: then there is no connection.
    pub fn is_refused(&self, subflows: &[Sender]) -> bool {
        let failed = subflows.first().is_some_and(|first| first.state() == State::Failed);
        failed && self.subflows.iter().all(|of| of.ready_at == Time::MAX)
    }

    /// From when on a subflow could carry data; `None` if that is not known yet.
    pub fn ready_at(&self, subflow: usize) -> Option<Time> {
        self.subflows.get(subflow).map(|of| of.ready_at).filter(|at| *at != Time::MAX)
    }

    /// Gives the next data segment to a subflow that has room for it.
    ///
    /// `hint` is the subflow whose window has just opened: mostly the only one with room.
    #[inline]
    pub fn poll_transmit(
        &mut self,
        config: &Config,
        now: Time,
        subflows: &mut [Sender],
        hint: usize,
    ) -> Option<Assigned> {
        if config.scheduler == Scheduler::Redundant {
            return self.poll_redundant(now, subflows);
        }
        let mut end = self.data_end.min(self.window_end);
        if let Some(buffer) = self.mainline.as_ref().map(|of| of.buffer()) {
            if let Some(assigned) = self.poll_retransmission(subflows) {
                return Some(assigned);
            }
            end = end.min(self.data_una.saturating_add(buffer));
        }
        let again = self.pending_reinjection();
        if again.is_none() && self.data_next >= end {
            self.saturated = false;
            self.burst.end();
            let blocked = self.data_next < self.data_end;
            return if blocked { self.unblock(config, now, subflows) } else { None };
        }
        let Some(subflow) = self.pick(config, now, subflows, hint) else {
            self.saturated = true;
            self.burst.end();
            return None;
        };
        let data_seq = match again {
            Some(data_seq) => {
                self.reinject.pop_front();
                data_seq
            }
            None => {
                self.data_next += 1;
                self.data_next - 1
            }
        };
        Some(self.assign(subflows, subflow, data_seq))
    }

    /// The data segment that a subflow's segment carries.
    #[inline]
    pub fn data_seq(&self, subflow: usize, seq: u32) -> u32 {
        let of = &self.subflows[subflow];
        of.mapping.get(seq.wrapping_sub(of.base) as usize).copied().unwrap_or(0)
    }

    /// Handles the ACK of a subflow; call after [`Sender::handle_ack`].
    #[inline]
    pub fn handle_ack(
        &mut self,
        config: &Config,
        now: Time,
        subflows: &mut [Sender],
        subflow: usize,
        packet: &Packet,
        acked: &Acked,
    ) {
        let mut moved = false;
        if packet.data_seq > self.data_una && packet.data_seq <= self.data_next {
            self.data_una = packet.data_seq;
            self.opening.established(now);
            moved = true;
        }
        self.window_end = self.window_end.max(packet.data_seq.saturating_add(packet.window));
        let own = &mut self.subflows[subflow];
        own.last_ack = now;
        if acked.segments > 0 {
            let gone = (acked.segments as usize).min(own.mapping.len());
            own.mapping.drain(..gone);
            own.base += acked.segments;
            if own.failed {
                own.failed = false;
                self.saturated = false;
            }
        }
        if acked.signals != Signals::default() {
            self.handle_signals(config, subflows, subflow, acked.signals);
        }
        if acked.in_avoidance > 0 {
            self.grow(config.coupling, now, subflows, subflow, acked.in_avoidance);
        }
        if acked.signals.established() {
            self.answered(config, now, subflows, subflow);
        } else if self.subflows[subflow].confirm_at != Time::MAX && packet.kind == Kind::Ack {
            // The fourth packet.
            (self.subflows[subflow].ready_at, self.subflows[subflow].confirm_at) = (now, Time::MAX);
            self.saturated = false;
        }
        if let Some(mainline) = &mut self.mainline {
            mainline.note_ack(subflow, &subflows[subflow]);
            if self.data_una == self.data_next {
                mainline.deadline = Time::MAX;
            } else if moved || mainline.deadline == Time::MAX {
                mainline.restart(now, subflows);
            }
        }
    }

    /// A subflow's SYN was answered. The first may send data at once, with the third packet of its handshake. A join waits
    /// until the peer has acknowledged the third packet (RFC 8684, section 3.2). Under Linux's scheduler
    /// [that is sent](Self::poll_confirm); otherwise it counts as acknowledged a round trip later.
    fn answered(&mut self, config: &Config, now: Time, subflows: &[Sender], subflow: usize) {
        let joins = subflow > 0 && config.joins.is_some();
        if joins && self.mainline.is_some() {
            self.subflows[subflow].confirm_at = now;
            return;
        }
        let round_trip = subflows[subflow].srtt().filter(|_| joins);
        let ready_at = now + round_trip.unwrap_or(Span::ZERO);
        self.subflows[subflow].ready_at = ready_at;
        if ready_at > now {
            self.ready = self.ready.min(ready_at);
        }
    }

    /// A subflow that must send the third packet of its handshake now, and does again after two round trips if that is not
    /// acknowledged (`schedule_3rdack_retransmission`).
    pub fn poll_confirm(&mut self, now: Time, subflows: &[Sender]) -> Option<usize> {
        let index = self.subflows.iter().position(|subflow| subflow.confirm_at <= now)?;
        let again = subflows[index].srtt().map_or(UNKNOWN_ROUND_TRIP, |round_trip| round_trip + round_trip);
        self.subflows[index].confirm_at = now + again;
        self.ready = self.ready.min(now + again);
        Some(index)
    }

    /// Handles the events of a subflow: notes losses, and after a timeout gives its segments to other subflows.
    pub fn handle_signals(&mut self, config: &Config, subflows: &[Sender], subflow: usize, signals: Signals) {
        self.subflows[subflow].note_loss(signals);
        if signals.timeout() && !self.subflows[subflow].failed && self.mainline.is_none() {
            self.handle_subflow_timeout(config, subflows, subflow);
        }
    }

    /// A subflow's retransmission timer fired. What others may send instead is what the receiver waits for, if the subflow
    /// holds it, and all that it holds once it is stale.
    fn handle_subflow_timeout(&mut self, config: &Config, subflows: &[Sender], subflow: usize) {
        let other = |(index, of): (usize, &Subflow)| index != subflow && of.ready_at != Time::MAX;
        if !self.subflows.iter().enumerate().any(other) {
            return;
        }
        let stale = subflows[subflow].backoff() >= config.stale_after;
        let own = &mut self.subflows[subflow];
        own.failed = stale;
        self.saturated = false;
        let una = self.data_una;
        let again = own.mapping.iter().copied().filter(|data_seq| *data_seq >= una && (stale || *data_seq == una));
        let mut all: Vec<u32> = self.reinject.iter().copied().chain(again).collect();
        all.sort_unstable();
        all.dedup();
        self.reinject = all.into();
    }

    /// Data segments not acknowledged.
    pub fn data_in_flight(&self) -> u32 {
        self.data_next - self.data_una
    }

    /// The first data segment not acknowledged.
    #[inline]
    pub fn data_una(&self) -> u32 {
        self.data_una
    }

    pub(super) fn assign(&mut self, subflows: &mut [Sender], subflow: usize, data_seq: u32) -> Assigned {
        self.subflows[subflow].mapping.push_back(data_seq);
        subflows[subflow].supply(1);
        Assigned { subflow, data_seq }
    }

    /// The first segment to send again that has not been acknowledged meanwhile.
    fn pending_reinjection(&mut self) -> Option<u32> {
        while let Some(first) = self.reinject.front() {
            if *first >= self.data_una {
                return Some(*first);
            }
            self.reinject.pop_front();
        }
        None
    }
}

impl Subflow {
    fn new() -> Self {
        Subflow {
            mapping: VecDeque::new(),
            base: 0,
            redundant_next: 0,
            share: Share::default(),
            last_ack: Time::ZERO,
            ready_at: Time::MAX,
            confirm_at: Time::MAX,
            pace: 0.0,
            penalised_at: None,
            failed: false,
        }
    }

    /// Segments of it that were acknowledged.
    #[inline]
    pub(super) fn acked(&self) -> u32 {
        self.base
    }

    /// Whether it may be given data.
    #[inline]
    pub(super) fn is_active(&self, now: Time) -> bool {
        !self.failed && self.ready_at <= now
    }

    /// Whether a data segment that is not acknowledged was given to it.
    pub(super) fn holds(&self, data_seq: u32) -> bool {
        self.mapping.contains(&data_seq)
    }
}
