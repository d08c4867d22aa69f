//! Programs at the ends of flows of TCP, which go on when the kernel has something for them: at once, or as late as the lab's do.
//!
//! A client is notified when it is connected, and when the other end ends; a server, when a request or a transfer has arrived.

use std::collections::BTreeMap;

use sidestep_net::{Span, Time};

use super::{
    endpoint::Half,
    flows::{FlowId, FlowKind},
    steering::Steering,
    world::{World, end_of},
};

/// How late programs are woken, and which will be.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// When others should have been, in order, and how late these were. Empty: all are woken in time.
    lateness: Box<[(Time, Span)]>,
    /// By [end](end_of).
    due: BTreeMap<u32, Time>,
}

impl Programs {
    /// Whether they are late at all.
    pub(super) fn are_late(&self) -> bool {
        !self.lateness.is_empty()
    }

    /// How late one is that should be woken now: as the one that was due nearest to now. Those of one processor wait for each
    /// other, so what is woken together is late together.
    fn late(&self, now: Time) -> Span {
        let after = self.lateness.partition_point(|(at, _)| *at <= now);
        let next_to = self.lateness[after.saturating_sub(1)..].iter().take(2);
        next_to.min_by_key(|(at, _)| now.since(*at).max(at.since(now))).map_or(Span::ZERO, |(_, late)| *late)
    }

    /// Whether that of an end will be woken.
    pub(super) fn is_due(&self, flow: u32, half: Half) -> bool {
        self.due.contains_key(&end_of(flow, half))
    }

    /// Those of a flow are not woken any more.
    pub(super) fn forget(&mut self, flow: u32) {
        for half in [Half::Sender, Half::Receiver] {
            self.due.remove(&end_of(flow, half));
        }
    }
}

impl<S: Steering> World<S> {
    /// Makes programs wake late: times since the start, in order, and how late those are that are due nearest to each.
    pub fn set_late_wakeups(&mut self, lateness: &[(Span, Span)]) {
        let lateness = lateness.iter().map(|(at, late)| (Time::ZERO + *at, *late)).collect();
        self.programs = Programs { lateness, due: BTreeMap::new() };
    }

    /// There is something to do for the program at an end: whether it is awake. If not, it is woken later.
    pub(super) fn is_awake(&mut self, flow: u32, half: Half) -> bool {
        if !self.programs.are_late() {
            return true;
        }
        if !self.programs.is_due(flow, half) {
            let end = end_of(flow, half);
            let at = self.now + self.programs.late(self.now);
            self.programs.due.insert(end, at);
            self.timers.wake_program(at, end);
        }
        false
    }

    /// The time has come to wake the program at an end, unless its flow was closed meanwhile.
    #[cold]
    pub(super) fn wake_program(&mut self, flow: u32, half: Half) {
        let end = end_of(flow, half);
        if self.programs.due.get(&end) != Some(&self.now) {
            return;
        }
        self.programs.due.remove(&end);
        match (self.flows[flow as usize].kind, half) {
            (FlowKind::Asking, half) => self.go_on_with_exchange(flow, half),
            (_, Half::Receiver) => self.close_server(flow),
            (_, Half::Sender) if self.has_fin(flow) => self.finished.push_back(FlowId(flow)),
            (_, Half::Sender) => self.write_all(flow),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_as_late_as_the_one_that_was_to_be_woken_next_to_it() {
        let at = |micros| Time::ZERO + Span::from_micros(micros);
        let late = [(100, 3), (200, 5), (210, 7)].map(|(micros, late)| (at(micros), Span::from_nanos(late)));
        let programs = Programs { lateness: late.into(), due: BTreeMap::new() };
        let found = [0, 100, 149, 151, 200, 204, 206, 9_000].map(|micros| programs.late(at(micros)).as_nanos());
        assert_eq!(found, [3, 3, 3, 5, 5, 5, 7, 7]);
        assert_eq!(Programs::default().late(at(1)), Span::ZERO);
    }
}
