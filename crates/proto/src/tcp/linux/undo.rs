//! What is taken back when a segment was sent again needlessly: by D-SACK, by timestamps (Eifel, RFC 3522), by F-RTO (RFC 5682).

use sidestep_net::{MaybeTime, Time};

use super::{CaState, Linux};
use crate::tcp::{
    signals::Signals,
    transfer::{Transfer, flag},
};

/// What an undo needs to know.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    /// The first segment not acknowledged when the window was reduced (`undo_marker`).
    marker: Option<u32>,
    /// Segments sent again since, of which the receiver has not reported that it had them (`undo_retrans`); −1: not known.
    retransmits: i32,
    /// When the first of them was sent again (`retrans_stamp`).
    pub(super) first_again: Option<u64>,
    /// Duplicates that the receiver reported (`dsack_dups`).
    pub(super) duplicates: u32,
}

/// Which kind of undo it was, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmark {
    Yes,
    No,
}

/// Whether what echoes this time answers what was sent before `at`, in ns (`tcp_tsopt_ecr_before`; RFC 3522 §3.2).
/// Timestamps count milliseconds.
pub(super) fn answers_before(echo: MaybeTime, at: u64) -> bool {
    echo.get().is_some_and(|echo| echo.as_nanos() / 1_000_000 < at / 1_000_000)
}

impl Undo {
    pub(super) fn is_possible(&self) -> bool {
        self.marker.is_some()
    }

    /// `tcp_init_undo`: what is out already, a tail loss probe too, may be reported twice. Zero would mean that all was
    /// spurious.
    pub(super) fn begin(&mut self, una: u32, retransmitted: u32, probe: bool) {
        self.marker = Some(una);
        let out = retransmitted as i32 + i32::from(probe);
        self.retransmits = if out == 0 { -1 } else { out };
    }

    pub(super) fn forbid(&mut self) {
        self.marker = None;
    }

    /// A segment is sent again as it was lost.
    pub(super) fn note_resent(&mut self, now: u64) {
        self.first_again = self.first_again.or(Some(now));
        self.retransmits = self.retransmits.max(0) + 1;
    }

    /// The receiver reports that it had a segment that was sent again.
    pub(super) fn note_duplicate(&mut self, end: u32) {
        if self.retransmits > 0 && self.marker.is_some_and(|marker| end > marker) {
            self.retransmits -= 1;
        }
    }

    fn all_in_vain(&self) -> bool {
        self.is_possible() && self.retransmits == 0
    }

    /// The ACK answers what was sent before anything was sent again, or nothing was (`tcp_packet_delayed`).
    fn is_delayed(&self, echo: MaybeTime) -> bool {
        self.first_again.is_none_or(|at| answers_before(echo, at))
    }
}

impl Linux {
    /// Whether a sent-again segment is out, or the first one was sent again (`tcp_any_retrans_done`).
    pub(super) fn any_retransmitted(&self, una: u32, next: u32) -> bool {
        self.segments.retransmitted > 0 || una < next && self.segments.has(una, super::segments::EVER)
    }

    pub(super) fn may_undo(&self, echo: MaybeTime) -> bool {
        self.undo.is_possible() && (self.undo.all_in_vain() || self.undo.is_delayed(echo))
    }

    /// Gives the window back that was taken (`tcp_undo_cwnd_reduction`): segments were late and not lost, so the path
    /// was not full.
    pub(super) fn undo_reduction(&mut self, transfer: &mut Transfer, unmark: Unmark) {
        if unmark == Unmark::Yes {
            self.segments.unmark_losses(transfer.una, transfer.next);
        }
        if self.reduction.prior_ssthresh > 0 {
            self.window.set_cwnd(self.window.cwnd().max(self.reduction.prior_cwnd));
            if self.reduction.prior_ssthresh > self.window.ssthresh() {
                self.window.set_ssthresh(self.reduction.prior_ssthresh);
                transfer.flags &= !flag::CWR;
            }
            self.noted |= Signals::UNDONE;
        }
        self.undo.forbid();
        self.rack.advanced = true;
    }

    /// All that was lost has been acknowledged (`tcp_try_undo_recovery`).
    pub(super) fn try_undo_recovery(&mut self, transfer: &mut Transfer, now: Time, echo: MaybeTime) {
        if self.may_undo(echo) {
            let loss = self.state == CaState::Loss;
            self.undo_reduction(transfer, Unmark::No);
            let count = if loss { &mut self.counters.loss_undo } else { &mut self.counters.full_undo };
            *count += 1;
        } else {
            // RFC 8985 §6.2, step 4: one recovery less, as this one was not spurious.
            self.rack.persists = self.rack.persists.saturating_sub(1);
        }
        self.set_state(transfer, now, CaState::Open);
    }

    /// The receiver had all that was sent again (`tcp_try_undo_dsack`).
    pub(super) fn try_undo_duplicates(&mut self, transfer: &mut Transfer) -> bool {
        if !self.undo.all_in_vain() {
            return false;
        }
        self.rack.persists = (self.rack.persists + 1).min(super::rack::PERSISTS);
        self.undo_reduction(transfer, Unmark::No);
        self.counters.dsack_undo += 1;
        true
    }

    /// An ACK within a recovery (`tcp_try_undo_partial`); returns whether nothing more must be done for it.
    pub(super) fn try_undo_partial(
        &mut self,
        transfer: &mut Transfer,
        now: Time,
        echo: MaybeTime,
        prior_una: u32,
    ) -> bool {
        if !(self.undo.is_possible() && self.undo.is_delayed(echo)) {
            return false;
        }
        self.note_reordering(prior_una, transfer.una);
        if self.segments.retransmitted > 0 {
            return true;
        }
        if !self.any_retransmitted(transfer.una, transfer.next) {
            self.undo.first_again = None;
        }
        self.undo_reduction(transfer, Unmark::Yes);
        self.counters.partial_undo += 1;
        self.keep_open(transfer, now);
        false
    }

    /// A timeout was spurious (`tcp_try_undo_loss`).
    pub(super) fn try_undo_loss(&mut self, transfer: &mut Transfer, now: Time, echo: MaybeTime, by_frto: bool) -> bool {
        if !by_frto && !self.may_undo(echo) {
            return false;
        }
        self.undo_reduction(transfer, Unmark::Yes);
        self.counters.loss_undo += 1;
        self.counters.spurious_timeouts += u32::from(by_frto);
        self.retransmits = 0;
        self.set_state(transfer, now, CaState::Open);
        true
    }
}
