//! What mainline Linux does on the connection's level (`net/mptcp/protocol.c` and `pm.c` of Linux 6.18): it sends again what
//! does not arrive, finds stale subflows, and bounds what a connection keeps.

use std::collections::VecDeque;

use sidestep_net::{Span, Time};

use super::connection::{Assigned, Connection};
use crate::tcp::{Sender, SenderTimeout};

/// How many times in a row the connection's timer finds a subflow silent before that is stale
/// (`net.mptcp.stale_loss_cnt`): a single timeout may be a lost segment, and all data goes again when a subflow is
/// stale.
const STALE_LOSS_COUNT: u8 = 4;
/// The connection's timeout while no subflow has one (`TCP_RTO_MIN`, in `__mptcp_set_timeout`).
const MIN_TIMEOUT: Span = Span::from_millis(200);
/// Segments of a piece of data as a connection keeps it, which is sent again as a whole: the 32 KiB of `sk_page_frag`,
/// in which `mptcp_page_frag_refill` collects it.
pub(super) const FRAGMENT: u32 = 22;
/// Segments that the send buffer holds for each segment of the widest window that a subflow has had, which counts for ten at
/// least (`tcp_sndbuf_expand`: two times 2,304 bytes for 1,428). The connection's buffer is the sum of its subflows'.
pub(super) const BUFFERED: f64 = 3.2;
/// `TCP_INIT_CWND` (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;

/// The connection's level of a sender.
#[derive(Clone, Debug)]
pub(super) struct Mainline {
    /// When the connection's timer fires; [`Time::MAX`]: never.
    pub(super) deadline: Time,
    subflows: Vec<Watched>,
    /// The segments that the connection's send buffer holds.
    buffer: f64,
    /// Segments to send again over a subflow that was idle.
    again: VecDeque<u32>,
    idle: usize,
}

#[derive(Clone, Debug)]
struct Watched {
    /// When its last ACK had come at the last look.
    seen: Time,
    /// How many times in a row no ACK had come since the look before.
    silent: u8,
    /// Its widest window so far; 0 before it is established.
    widest: f64,
}

impl Mainline {
    pub(super) fn new(subflows: usize) -> Self {
        let watched = Watched { seen: Time::ZERO, silent: 0, widest: 0.0 };
        Mainline {
            deadline: Time::MAX,
            subflows: vec![watched; subflows],
            buffer: 0.0,
            again: VecDeque::new(),
            idle: 0,
        }
    }

    /// An ACK of a subflow has come. Its buffer grows with its window: when the kernel asks, a few segments of the window are
    /// always free (`tcp_should_expand_sndbuf`).
    pub(super) fn note_ack(&mut self, subflow: usize, sender: &Sender) {
        let Some(own) = self.subflows.get_mut(subflow) else { return };
        let window = sender.cwnd().max(INITIAL_WINDOW);
        if window > own.widest {
            self.buffer += BUFFERED * (window - own.widest);
            own.widest = window;
        }
    }

    /// Whether a subflow's send buffer takes more beside `queued` segments.
    pub(super) fn has_memory(&self, subflow: usize, queued: u32) -> bool {
        self.subflows.get(subflow).is_some_and(|own| f64::from(queued) < BUFFERED * own.widest)
    }

    /// Segments not acknowledged, those not sent included, for which the connection has memory.
    pub(super) fn buffer(&self) -> u32 {
        self.buffer as u32
    }

    /// Starts the timer again: it fires at the last timeout of a subflow that is not silent (`mptcp_set_timeout`).
    pub(super) fn restart(&mut self, now: Time, subflows: &[Sender]) {
        let pending = subflows.iter().zip(&self.subflows).filter(|(_, own)| own.silent == 0);
        let due = pending.filter_map(|(sender, _)| match sender.next_timeout()? {
            (_, SenderTimeout::Syn) => None,
            (at, _) => (at > now).then_some(at),
        });
        self.deadline = due.max().unwrap_or(now + MIN_TIMEOUT);
    }

    /// Looks at a subflow that has data (`mptcp_pm_subflow_chk_stale`): whether an ACK came since the last look. It
    /// is stale only if another received one recently (`mptcp_pm_nl_subflow_chk_stale`), as else its data has nowhere to
    /// go.
    fn look(&mut self, subflow: usize, last_ack: Time) -> Look {
        let Some(own) = self.subflows.get_mut(subflow) else { return Look::Heard };
        if own.seen != last_ack {
            (own.seen, own.silent) = (last_ack, 0);
            return Look::Heard;
        }
        own.silent = own.silent.saturating_add(1);
        let others = |(index, other): (usize, &Watched)| index != subflow && other.silent < STALE_LOSS_COUNT - 1;
        let silent = own.silent > STALE_LOSS_COUNT;
        if silent && self.subflows.iter().enumerate().any(others) { Look::Stale } else { Look::Silent }
    }
}

enum Look {
    Heard,
    Silent,
    Stale,
}

impl Connection {
    /// The connection's timer fired (`__mptcp_retrans`): a subflow that has nothing to do sends the first piece of data again.
    /// Subflows that have data and received no ACK since the timer fired before come nearer to being stale; once they are, all
    /// data is sent again over the others.
    pub(super) fn retransmit(&mut self, now: Time, subflows: &[Sender]) {
        let Some(mainline) = &mut self.mainline else { return };
        mainline.deadline = Time::MAX;
        if self.data_una >= self.data_next {
            return;
        }
        let mut idle = None;
        for (index, (own, sender)) in self.subflows.iter_mut().zip(subflows).enumerate() {
            if own.ready_at > now {
                continue;
            }
            if sender.queued() == 0 {
                idle = idle.or(Some(index));
                continue;
            }
            match mainline.look(index, own.last_ack) {
                Look::Heard => own.failed = false,
                Look::Stale if !own.failed => {
                    own.failed = true;
                    self.reinject = (self.data_una..self.data_next).collect();
                }
                Look::Stale | Look::Silent => {}
            }
        }
        if let Some(idle) = idle {
            let end = (self.data_una / FRAGMENT + 1) * FRAGMENT;
            mainline.again = (self.data_una..end.min(self.data_next)).collect();
            mainline.idle = idle;
        }
        mainline.restart(now, subflows);
        self.saturated = false;
    }

    /// The next segment of the piece of data that an idle subflow sends again.
    pub(super) fn poll_retransmission(&mut self, subflows: &mut [Sender]) -> Option<Assigned> {
        let mainline = self.mainline.as_mut()?;
        while let Some(data_seq) = mainline.again.pop_front() {
            if data_seq >= self.data_una {
                let idle = mainline.idle;
                return Some(self.assign(subflows, idle, data_seq));
            }
        }
        None
    }
}
