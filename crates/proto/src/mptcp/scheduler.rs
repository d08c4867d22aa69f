//! Which subflow gets the next segment.

use sidestep_net::Time;

use super::{
    Config, Scheduler,
    connection::{Assigned, Connection},
    mainline::FRAGMENT,
};
use crate::tcp::Sender;

/// What Linux's scheduler goes on with: the subflow that it has chosen, and how many segments that still gets. It chooses again
/// whenever it is asked, so a burst ends with the data or the receiver's window, too (`__subflow_push_pending`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    subflow: usize,
    left: u32,
    /// Whether the subflow has got any of it.
    begun: bool,
}

impl Burst {
    /// There is nothing more to send now.
    pub(super) fn end(&mut self) {
        *self = Burst::default();
    }
}

impl Connection {
    /// The subflow for the next segment; `None`: none has room.
    #[inline]
    pub(super) fn pick(&mut self, config: &Config, now: Time, subflows: &[Sender], hint: usize) -> Option<usize> {
        if config.scheduler == Scheduler::Linux {
            return self.pick_linux(config, now, subflows);
        }
        let usable = |index: usize| subflows[index].room() > 0 && self.subflows[index].is_active(now);
        if self.saturated {
            return usable(hint).then_some(hint);
        }
        match config.scheduler {
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

    /// Mainline's `mptcp_subflow_get_send`: the subflow whose queue, sent data that is not acknowledged included, lasts the
    /// shortest time at its pacing rate. It gets a burst of 64 KiB, or of what the receiver's window still allows, as far as
    /// its send buffer does. The windows of congestion control do not matter: a subflow queues what it cannot send yet.
    ///
    /// A burst, as data that changed its subflow with each segment would come out of order (`MPTCP_SEND_BURST_SIZE`).
    /// The pacing rate is averaged over what is queued and the burst, so that one window does not decide alone
    /// (`avg_pacing_rate`).
    fn pick_linux(&mut self, config: &Config, now: Time, subflows: &[Sender]) -> Option<usize> {
        let Some(mainline) = &self.mainline else { return None };
        let has_memory = |index: usize| mainline.has_memory(index, subflows[index].queued());
        let Burst { subflow, left, begun } = self.burst;
        // All of that is looked at between the pieces of data only.
        let within = !self.data_next.is_multiple_of(FRAGMENT);
        if begun && (within || left > 0 && has_memory(subflow) && self.subflows[subflow].is_active(now)) {
            self.burst.left = left.saturating_sub(1);
            return Some(subflow);
        }
        let mut best: Option<(f64, usize)> = None;
        for (index, (of, sender)) in self.subflows.iter_mut().zip(subflows).enumerate() {
            if !of.is_active(now) {
                continue;
            }
            if of.pace == 0.0 {
                of.pace = sender.pacing_rate();
            }
            let lingers = f64::from(sender.queued()) / of.pace;
            if of.pace > 0.0 && best.is_none_or(|(least, _)| lingers < least) {
                best = Some((lingers, index));
            }
        }
        let (_, subflow) = best.filter(|(_, index)| has_memory(*index))?;
        let count = config.burst.min(self.window_end.saturating_sub(self.data_next)).max(1);
        let (queued, burst) = (f64::from(subflows[subflow].queued()), f64::from(count));
        let pace = &mut self.subflows[subflow].pace;
        *pace = (*pace * queued + subflows[subflow].pacing_rate() * burst) / (queued + burst);
        self.burst = Burst { subflow, left: count - 1, begun: true };
        Some(subflow)
    }

    /// The next segment of a redundant connection, which each subflow carries.
    pub(super) fn poll_redundant(&mut self, now: Time, subflows: &mut [Sender]) -> Option<Assigned> {
        let (una, end) = (self.data_una, self.data_end.min(self.window_end));
        for index in 0..subflows.len() {
            let own = &mut self.subflows[index];
            own.redundant_next = own.redundant_next.max(una);
            if own.redundant_next < end && subflows[index].room() > 0 && own.ready_at <= now {
                let data_seq = own.redundant_next;
                own.redundant_next += 1;
                self.data_next = self.data_next.max(data_seq + 1);
                return Some(self.assign(subflows, index, data_seq));
            }
        }
        None
    }

    /// The receiver's window keeps new data back, and a subflow has room: opportunistic retransmission and penalisation
    /// (Raiciu and others, "How Hard Can It Be? Designing and Implementing a Deployable Multipath TCP", NSDI 2012, section
    /// 4.2), as far as they are switched on. The segment that blocks the window goes over the fastest subflow too. The window
    /// of a slower subflow that holds it is halved, at most once in a round trip of that subflow.
    pub(super) fn unblock(&mut self, config: &Config, now: Time, subflows: &mut [Sender]) -> Option<Assigned> {
        let una = self.data_una;
        if !(config.opportunistic_retransmission || config.penalisation) || una == self.data_next {
            return None;
        }
        let usable = |index: &usize| subflows[*index].room() > 0 && self.subflows[*index].is_active(now);
        let count = subflows.len().min(u64::BITS as usize);
        let fastest = (0..count).filter(usable).min_by_key(|index| subflows[*index].srtt())?;
        if self.blocking.0 != una || self.blocking.1 == 0 {
            let holders = (0..count).filter(|at| self.subflows[*at].holds(una));
            self.blocking = (una, holders.fold(0, |set, index| set | 1 << index));
        }
        let holders = self.blocking.1;
        if holders & 1 << fastest != 0 {
            return None;
        }
        if config.penalisation {
            for index in (0..count).filter(|index| holders >> index & 1 == 1) {
                self.penalise(now, subflows, index, fastest);
            }
        }
        if !config.opportunistic_retransmission {
            return None;
        }
        self.blocking.1 |= 1 << fastest;
        Some(self.assign(subflows, fastest, una))
    }

    fn penalise(&mut self, now: Time, subflows: &mut [Sender], slow: usize, fast: usize) {
        let (Some(round_trip), of) = (subflows[slow].srtt(), &mut self.subflows[slow]) else { return };
        if subflows[fast].srtt() < Some(round_trip) && of.penalised_at.is_none_or(|at| now.since(at) >= round_trip) {
            of.penalised_at = Some(now);
            subflows[slow].halve();
        }
    }
}
