//! Programs at the ends of flows of TCP, which go on when the kernel has something for them: at once, or as late as the lab's do.
//!
//! A client is told that it is connected, and of the other end's end; a server, that a request or a transfer has arrived.

use std::collections::BTreeMap;

use sidestep_model::{Span, Time};

use super::{
    delays::{Times, late_wakeup},
    endpoint::Half,
    flows::{FlowId, FlowKind},
    steering::Steering,
    world::{World, end_of},
};

/// How late programs are woken, and which are to be.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// Empty: they are woken in time.
    lateness: Times,
    chance: u64,
    /// By [end](end_of).
    due: BTreeMap<u32, Time>,
}

impl Programs {
    /// Whether they are late at all.
    pub(super) fn are_late(&self) -> bool {
        !self.lateness.is_empty()
    }

    /// Whether that of an end is to be woken.
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
    /// Has programs be woken late, each time by one of these times, of which each is as likely as is said; which one follows
    /// from `chance`.
    pub fn set_late_wakeups(&mut self, lateness: &[(Span, u64)], chance: u64) {
        self.programs = Programs { lateness: Times::new(lateness), chance, due: BTreeMap::new() };
    }

    /// There is something to do for the program at an end: whether it is awake. If not, it is woken later.
    pub(super) fn is_awake(&mut self, flow: u32, half: Half) -> bool {
        let Programs { lateness, chance, due } = &mut self.programs;
        if lateness.is_empty() {
            return true;
        }
        let (now, end) = (self.now, end_of(flow, half));
        let timers = &mut self.timers;
        due.entry(end).or_insert_with(|| {
            let at = now + late_wakeup(now, end, *chance, lateness);
            timers.wake_program(at, end);
            at
        });
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
