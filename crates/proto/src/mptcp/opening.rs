//! When the subflows of a connection are opened, and from when on they may carry data.

use sidestep_net::{Span, Time};

/// How a path manager opens the subflows after the first (RFC 8684, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joins {
    /// From the moment at which the connection is fully established to the first join.
    pub delay: Span,
    /// From one join to the next.
    pub interval: Span,
}

/// What [`Connection::poll_timeout`](super::Connection::poll_timeout) is due for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionTimeout {
    /// A subflow must be opened.
    Join,
    /// The last ACK of a join's handshake arrives: its subflow may carry data. Under Linux's scheduler: the packet before it may
    /// have to go again.
    Ready,
    /// What has not been acknowledged on the connection's level may be sent again.
    Retransmission,
}

/// Which subflows have been opened, and when the next one is.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    joins: Option<Joins>,
    /// The first subflow not opened, and how many there are.
    next: usize,
    count: usize,
    /// When it is opened; [`Time::MAX`]: it is not known yet.
    due: Time,
}

impl Opening {
    /// Of `count` subflows; without `joins` all of them at once.
    pub(super) fn new(joins: Option<Joins>, count: usize) -> Self {
        Opening { joins, next: 0, count, due: if joins.is_none() { Time::ZERO } else { Time::MAX } }
    }

    /// The next subflow to open now.
    pub(super) fn poll(&mut self, now: Time) -> Option<usize> {
        let due = self.next == 0 || self.due <= now;
        if self.next >= self.count || !due {
            return None;
        }
        if let Some(joins) = self.joins.filter(|_| self.next > 0) {
            self.due += joins.interval;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    /// The connection is fully established, as the peer has acknowledged data on its level.
    #[inline]
    pub(super) fn established(&mut self, now: Time) {
        if let Some(joins) = self.joins.filter(|_| self.due == Time::MAX) {
            self.due = now + joins.delay;
        }
    }

    /// When the next subflow is opened.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        (0 < self.next && self.next < self.count && self.due != Time::MAX).then_some(self.due)
    }
}
