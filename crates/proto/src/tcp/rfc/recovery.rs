//! How ACKs that report losses and marks change the window.

use super::{Phase, Rfc};
use crate::{
    packet::Packet,
    tcp::{
        Config,
        signals::{Acked, Signals},
        transfer::{Transfer, flag},
    },
};

impl Rfc {
    /// Handles an ACK that is a duplicate, carries SACK blocks or a mark, or arrives in a recovery. Returns for how
    /// many segments the window may grow.
    #[inline(never)]
    pub(super) fn handle_trouble(
        &mut self,
        transfer: &mut Transfer,
        config: &Config,
        packet: &Packet,
        marked: bool,
        acked: &mut Acked,
    ) -> u32 {
        let (una, next, ack) = (transfer.una, transfer.next, packet.seq);
        let mut grows = acked.segments;
        let duplicate = acked.segments == 0 && next > una;
        if config.sack {
            self.handle_sack(transfer, config, packet, acked);
        } else if self.board.is_some() || duplicate {
            self.count_duplicates(transfer, acked, duplicate);
        }
        let flight = f64::from(next - una);
        let lost = self.board.as_ref().is_some_and(|board| board.lost > 0);
        match self.phase {
            Phase::Open | Phase::Reduced if lost => {
                self.enter_recovery(transfer, flight, acked);
                grows = 0;
            }
            Phase::Recovery | Phase::Loss if ack >= transfer.recover => self.leave_recovery(),
            // RFC 6675, section 5: in a recovery sending goes by the pipe, and the window stays.
            Phase::Recovery => grows = 0,
            // Only once a segment sent since is acknowledged: that segment announced the reduction.
            Phase::Reduced if ack > transfer.recover => self.phase = Phase::Open,
            Phase::Reduced => grows = 0,
            _ => {}
        }
        // RFC 3168, section 6.1.2: a mark counts as a loss does, once in a window of data.
        if marked && self.phase == Phase::Open && acked.segments > 0 {
            self.window.shrink(self.window.cwnd, true);
            self.phase = Phase::Reduced;
            transfer.recover = next;
            transfer.flags |= flag::CWR;
            acked.signals.bits |= Signals::REDUCED | Signals::SHRUNK;
            grows = 0;
        }
        grows
    }

    fn handle_sack(&mut self, transfer: &Transfer, config: &Config, packet: &Packet, acked: &mut Acked) {
        if self.board.is_none() && packet.sack[0] == (0, 0) {
            return;
        }
        let (una, next, ack) = (transfer.una, transfer.next, packet.seq);
        let board = self.board.get_or_insert_default();
        board.reserve(una, next);
        let known = board.acknowledge(una, ack);
        acked.delivered -= known;
        let mut new = 0;
        for (from, to) in packet.sack {
            let (from, to) = (ack + u32::from(from), ack + u32::from(to));
            if from < to && to <= next {
                new += board.sack(from, to);
            }
        }
        acked.delivered += new;
        if new > 0 {
            board.detect_losses(ack, config.dup_threshold);
            board.detect_lost_retransmissions(ack, config.dup_threshold);
        }
    }

    /// Handles an ACK in NewReno without SACK (RFC 6582): duplicates stand for segments that arrived.
    fn count_duplicates(&mut self, transfer: &mut Transfer, acked: &mut Acked, duplicate: bool) {
        let (una, next) = (transfer.una, transfer.next);
        let ack = una + acked.segments;
        let board = self.board.get_or_insert_default();
        board.reserve(una, next);
        board.acknowledge(una, ack);
        if duplicate {
            self.duplicates += 1;
            board.count_duplicate(next - una);
            acked.delivered += 1;
            // RFC 6582, section 3.2, step 2: three, as fewer are often reordered; and none for what was sent before
            // `recover`, which are answers to what was sent again without need.
            if self.duplicates == 3
                && self.phase != Phase::Recovery
                && self.phase != Phase::Loss
                && una >= transfer.recover
            {
                board.lose_first(una);
            }
        } else if acked.segments > 0 {
            board.uncount_duplicates(acked.segments);
            if ack >= transfer.recover || self.phase == Phase::Open {
                board.forget_duplicates();
            } else if self.phase == Phase::Recovery {
                // Step 3, a partial ACK: the next hole was lost with the first.
                board.lose_first(ack);
                transfer.flags |= flag::FORCED;
            }
        }
        board.bound_duplicates(next - ack);
    }

    fn enter_recovery(&mut self, transfer: &mut Transfer, flight: f64, acked: &mut Acked) {
        // A reduction for a mark in the same window of data counts for the loss too (RFC 3168, section 6.1.2).
        if self.phase == Phase::Open {
            self.window.shrink(flight, false);
            acked.signals.bits |= Signals::SHRUNK;
        }
        self.phase = Phase::Recovery;
        transfer.recover = transfer.next;
        // The first retransmission does not wait for the pipe to drain (RFC 6675, section 5, step 4.3).
        transfer.flags |= flag::FORCED | flag::CWR;
        if transfer.flags & flag::ECN == 0 {
            transfer.flags &= !flag::CWR;
        }
        acked.signals.bits |= Signals::RECOVERY;
    }

    fn leave_recovery(&mut self) {
        if self.phase == Phase::Recovery {
            // RFC 6582, section 3.2, step 3, a full ACK: the window deflates to the threshold.
            self.window.cwnd = self.window.cwnd.min(self.window.ssthresh);
        }
        self.phase = Phase::Open;
    }
}
