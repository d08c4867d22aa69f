//! The sender's side: which subflow carries what.

use std::collections::VecDeque;

use super::{Config, Coupling, Olia, Path, Scheduler, coupled};
use crate::{
    packet::Packet,
    tcp::{Acked, Sender, Signals, State},
};

/// The sending side of a connection. The driver owns the subflows' [`Sender`]s and passes them in.
///
/// After each event the driver calls [`poll_transmit`](Self::poll_transmit) until that returns `None`, and lets the
/// subflow named in each answer send the segment that it was supplied.
#[derive(Clone, Debug)]
pub struct Connection {
    subflows: Vec<Subflow>,
    /// The first data segment not acknowledged, the first never sent, and how many there are.
    data_una: u32,
    data_next: u32,
    data_end: u32,
    finishing: bool,
    /// Segments below it fit the receiver's buffer.
    window_end: u32,
    /// The subflow with which round robin continues.
    turn: usize,
    /// Data segments that a failed subflow held and others shall carry; ascending.
    reinject: VecDeque<u32>,
    /// LIA: α over the sum of windows, and for how many more segments it holds.
    lia: f64,
    lia_holds: u32,
    /// OLIA's view of the subflows.
    olia: Option<Olia>,
    /// The subflow that was given data last. What is sent after an idle time begins with a smaller window.
    assigned: usize,
    /// No subflow had room at the last check, so only a subflow whose window has opened since then has room.
    saturated: bool,
}

#[derive(Clone, Debug, Default)]
struct Subflow {
    /// The data segment of each subflow segment from `base` on.
    mapping: VecDeque<u32>,
    base: u32,
    /// The next data segment that it has not sent, for the redundant scheduler.
    redundant_next: u32,
    /// Segments acknowledged since the last loss, and between the two losses before (OLIA).
    since_loss: f64,
    between_losses: f64,
    /// It timed out, and no ACK has arrived since.
    failed: bool,
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
        Connection {
            subflows: vec![Subflow::default(); subflows],
            data_una: 0,
            data_next: 0,
            data_end: 0,
            finishing: false,
            window_end: config.receive_buffer,
            turn: 0,
            reinject: VecDeque::new(),
            lia: 0.0,
            lia_holds: 0,
            olia: (config.coupling == Coupling::Olia).then(|| Olia::new(subflows)),
            assigned: 0,
            saturated: false,
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

    /// Gives the next data segment to a subflow that has room for it.
    ///
    /// `hint` is the subflow whose window has just opened: mostly the only one with room.
    #[inline]
    pub fn poll_transmit(&mut self, config: &Config, subflows: &mut [Sender], hint: usize) -> Option<Assigned> {
        self.note_restart(subflows);
        if config.scheduler == Scheduler::Redundant {
            return self.poll_redundant(subflows);
        }
        let again = self.pending_reinjection();
        if again.is_none() && (self.data_next >= self.data_end || self.data_next >= self.window_end) {
            self.saturated = false;
            return None;
        }
        let Some(subflow) = self.pick(config.scheduler, subflows, hint) else {
            self.saturated = true;
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
        subflows: &mut [Sender],
        subflow: usize,
        packet: &Packet,
        acked: &Acked,
    ) {
        if packet.data_seq > self.data_una && packet.data_seq <= self.data_next {
            self.data_una = packet.data_seq;
        }
        self.window_end = self.window_end.max(packet.data_seq.saturating_add(packet.window));
        if acked.segments > 0 {
            let own = &mut self.subflows[subflow];
            let gone = (acked.segments as usize).min(own.mapping.len());
            own.mapping.drain(..gone);
            own.base += acked.segments;
            own.since_loss += f64::from(acked.segments);
            if own.failed {
                own.failed = false;
                self.saturated = false;
            }
            if acked.in_avoidance {
                self.grow(config.coupling, subflows, subflow, acked.segments);
            } else {
                self.note_change(subflows, subflow);
            }
        }
        if acked.signals.any() {
            self.handle_signals(config, subflows, subflow, acked.signals);
        }
    }

    /// Handles the events of a subflow: couples its loss, and after a timeout gives its segments to other subflows.
    pub fn handle_signals(&mut self, config: &Config, subflows: &mut [Sender], subflow: usize, signals: Signals) {
        if signals.entered_recovery() || signals.timeout() {
            let own = &mut self.subflows[subflow];
            own.between_losses = own.since_loss;
            own.since_loss = 0.0;
            self.lia_holds = 0;
        }
        if signals.entered_recovery() && config.coupling == Coupling::Balia {
            // The subflow has halved its window already, so the coupled decrease starts from twice the window.
            let mut paths = [EMPTY; MAX_PATHS];
            let count = self.paths(subflows, &mut paths);
            if let Some(own) = paths[..count].get_mut(subflow) {
                own.cwnd *= 2.0;
            }
            let window = coupled::shrink(Coupling::Balia, &paths[..count], subflow);
            subflows[subflow].set_ssthresh(window);
            subflows[subflow].set_cwnd(window);
        }
        if signals.timeout() && !self.subflows[subflow].failed && subflows.len() > 1 {
            self.subflows[subflow].failed = true;
            self.saturated = false;
            let una = self.data_una;
            let held = self.subflows[subflow].mapping.iter().copied().filter(|data_seq| *data_seq >= una);
            let mut all: Vec<u32> = self.reinject.iter().copied().chain(held).collect();
            all.sort_unstable();
            all.dedup();
            self.reinject = all.into();
        }
        self.note_change(subflows, subflow);
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

    fn assign(&mut self, subflows: &mut [Sender], subflow: usize, data_seq: u32) -> Assigned {
        self.subflows[subflow].mapping.push_back(data_seq);
        self.assigned = subflow;
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

    #[inline]
    fn pick(&mut self, scheduler: Scheduler, subflows: &[Sender], hint: usize) -> Option<usize> {
        let usable = |index: usize| subflows[index].room() > 0 && !self.subflows[index].failed;
        if self.saturated {
            return usable(hint).then_some(hint);
        }
        match scheduler {
            Scheduler::RoundRobin => {
                let count = subflows.len();
                let found = (0..count).map(|step| (self.turn + step) % count).find(|index| usable(*index))?;
                self.turn = found + 1;
                Some(found)
            }
            _ => {
                let mut best = usable(hint).then_some(hint);
                for index in 0..subflows.len() {
                    let shorter = |best: usize| subflows[index].srtt() < subflows[best].srtt();
                    if index != hint && best.is_none_or(shorter) && usable(index) {
                        best = Some(index);
                    }
                }
                best
            }
        }
    }

    fn poll_redundant(&mut self, subflows: &mut [Sender]) -> Option<Assigned> {
        let (una, end) = (self.data_una, self.data_end.min(self.window_end));
        for index in 0..subflows.len() {
            let own = &mut self.subflows[index];
            own.redundant_next = own.redundant_next.max(una);
            if own.redundant_next < end && subflows[index].room() > 0 {
                let data_seq = own.redundant_next;
                own.redundant_next += 1;
                self.data_next = self.data_next.max(data_seq + 1);
                return Some(self.assign(subflows, index, data_seq));
            }
        }
        None
    }

    #[inline]
    fn grow(&mut self, coupling: Coupling, subflows: &mut [Sender], subflow: usize, acked: u32) {
        let own = subflows[subflow].cwnd();
        let acked_f = f64::from(acked);
        if coupling == Coupling::Lia {
            // RFC 6356, section 3.1: α may be computed once for each window of data.
            if self.lia_holds < acked {
                let mut paths = [EMPTY; MAX_PATHS];
                let count = self.paths(subflows, &mut paths);
                let (alpha, total) = coupled::lia(&paths[..count]);
                self.lia = alpha / total;
                self.lia_holds = total as u32 + acked;
            }
            self.lia_holds -= acked;
            subflows[subflow].set_cwnd(own + acked_f * self.lia.min(1.0 / own));
            return;
        }
        if self.olia.is_some() {
            return self.grow_by_olia(subflows, subflow, acked_f);
        }
        let mut paths = [EMPTY; MAX_PATHS];
        let count = self.paths(subflows, &mut paths);
        let window = own + coupled::increase(coupling, &paths[..count], subflow, acked_f);
        subflows[subflow].set_cwnd(window.max(1.0));
    }

    #[inline]
    fn grow_by_olia(&mut self, subflows: &mut [Sender], subflow: usize, acked: f64) {
        let path = self.path(subflows, subflow);
        let (Some(olia), Some(path)) = (&mut self.olia, path) else { return };
        olia.set(subflow, Some(&path));
        let cwnd = (path.cwnd + olia.increase(subflow, &path, acked)).max(1.0);
        olia.set(subflow, Some(&Path { cwnd, ..path }));
        subflows[subflow].set_cwnd(cwnd);
    }

    /// Something of a subflow has changed that OLIA looks at.
    #[inline]
    fn note_change(&mut self, subflows: &[Sender], subflow: usize) {
        if self.olia.is_some() {
            let path = self.path(subflows, subflow);
            self.olia.iter_mut().for_each(|olia| olia.set(subflow, path.as_ref()));
        }
    }

    /// The subflow that was given data last may have begun with a smaller window after an idle time.
    #[inline]
    fn note_restart(&mut self, subflows: &[Sender]) {
        let cwnd = subflows.get(self.assigned).map_or(0.0, Sender::cwnd);
        if self.olia.as_ref().is_some_and(|olia| olia.window(self.assigned).is_some_and(|known| known != cwnd)) {
            self.note_change(subflows, self.assigned);
        }
    }

    /// A subflow as coupling sees it; `None` if it does not count, as it has no round-trip time yet, or has failed.
    #[inline]
    fn path(&self, subflows: &[Sender], subflow: usize) -> Option<Path> {
        let (sender, own) = (subflows.get(subflow)?, self.subflows.get(subflow)?);
        let rtt = sender.srtt().filter(|_| !matches!(sender.state(), State::Closed | State::SynSent) && !own.failed)?;
        Some(Path {
            cwnd: sender.cwnd(),
            rtt: rtt.as_secs_f64(),
            between_losses: own.between_losses.max(own.since_loss),
        })
    }

    /// The paths for coupling; a subflow that does not count is [`EMPTY`].
    fn paths(&self, subflows: &[Sender], paths: &mut [Path; MAX_PATHS]) -> usize {
        let count = subflows.len().min(MAX_PATHS);
        for (index, path) in paths.iter_mut().enumerate().take(count) {
            *path = self.path(subflows, index).unwrap_or(EMPTY);
        }
        count
    }

    /// The growth of a subflow's window as OLIA keeps it, and as it follows from a look at all subflows.
    #[cfg(test)]
    pub(super) fn audit(&self, subflows: &[Sender], subflow: usize) -> Option<(f64, f64)> {
        let own = self.path(subflows, subflow)?;
        let mut paths = [EMPTY; MAX_PATHS];
        let count = self.paths(subflows, &mut paths);
        let scanned = coupled::increase(Coupling::Olia, &paths[..count], subflow, 1.0);
        self.olia.as_ref().map(|olia| (olia.increase(subflow, &own, 1.0), scanned))
    }
}

/// Most subflows of a connection that are coupled.
const MAX_PATHS: usize = Olia::MAX_SUBFLOWS;
/// A subflow that does not count.
const EMPTY: Path = Path { cwnd: 0.0, rtt: 1.0, between_losses: 0.0 };
