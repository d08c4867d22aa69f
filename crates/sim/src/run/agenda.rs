//! The tasks of a run, and when each is due.

use std::{cmp::Reverse, collections::BinaryHeap};

use sidestep_engine::FlowId;
use sidestep_net::{NodeId, Time};

/// A task that is due at a certain time; in this order where times are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// The IGP has converged on what happened to links.
    Converge,
    /// The planned connection of this index opens.
    Open(usize),
    /// The connection of this first flow ends.
    Close(FlowId),
    /// The user of this index has thought.
    Think(usize),
    /// The constant-rate stream of this index sends.
    Send(usize),
    Warmup,
    /// The agent of this host looks at the weights of its SYN-ACKs.
    Reweigh(NodeId),
    /// Agents report usage.
    Usage,
    Sample,
}

/// The tasks to come, in the order of their times, and then in that in which they were entered.
#[derive(Default)]
pub(super) struct Agenda {
    tasks: BinaryHeap<Reverse<(Time, u32, Task)>>,
    entries: u32,
}

impl Agenda {
    /// Enters a task.
    pub(super) fn at(&mut self, time: Time, task: Task) {
        self.entries += 1;
        self.tasks.push(Reverse((time, self.entries, task)));
    }

    /// When the next task is due.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.tasks.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next task, if it is due by `now`.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Task> {
        self.next_at().filter(|at| *at <= now)?;
        self.tasks.pop().map(|Reverse((_, _, task))| task)
    }
}
