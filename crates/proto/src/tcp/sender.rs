//! The sending half of a connection: its public face, and what both machines have.

mod handshake;

use sidestep_net::{Span, Time};

use super::{
    Config, Counters, State, Transmit,
    linux::{self, Linux},
    rfc::Rfc,
    signals::{Acked, Signals},
    timeout::SenderTimeout,
    transfer::{Stage, Transfer, flag},
};
use crate::packet::{Flags, Kind, Packet};

/// The half of a connection that sends data.
///
/// The driver calls [`handle_ack`](Self::handle_ack) and [`handle_timeout`](Self::handle_timeout). After each of them,
/// and after [`open`](Self::open) and [`supply`](Self::supply), it calls [`poll_transmit`](Self::poll_transmit) until
/// that returns `None`.
// Of two cache lines: large simulations are as fast as memory is.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Sender {
    transfer: Transfer,
    machine: Machine,
}

/// What decides when which segment is sent: windows, losses and timers.
#[derive(Clone, Debug)]
enum Machine {
    Rfc(Rfc),
    /// Apart, as it is larger.
    Linux(Box<Linux>),
}

impl Machine {
    fn new(config: &Config) -> Self {
        if config.is_linux() { Machine::Linux(Box::new(Linux::new(config))) } else { Machine::Rfc(Rfc::new(config)) }
    }

    /// Nothing is sent any more.
    fn end(&mut self) {
        match self {
            Machine::Rfc(rfc) => rfc.end(),
            Machine::Linux(linux) => linux.disarm(),
        }
    }
}

impl Sender {
    /// A connection that is not open yet.
    pub fn new(config: &Config) -> Self {
        Sender { transfer: Transfer::new(config.receive_window), machine: Machine::new(config) }
    }

    /// Supplies more segments to send.
    pub fn supply(&mut self, segments: u32) {
        self.transfer.supplied = self.transfer.supplied.saturating_add(segments);
    }

    /// Declares that no segments follow those supplied so far.
    pub fn finish(&mut self) {
        self.transfer.flags |= flag::FIN;
    }

    /// Whether no segments follow those supplied so far.
    pub fn is_finishing(&self) -> bool {
        self.transfer.flags & flag::FIN != 0
    }

    /// Handles an ACK or a SYN-ACK.
    #[inline]
    pub fn handle_ack(&mut self, config: &Config, now: Time, packet: &Packet) -> Acked {
        if packet.kind == Kind::SynAck {
            return self.established(config, now, packet);
        }
        match &mut self.machine {
            Machine::Rfc(rfc) => rfc.handle_ack(&mut self.transfer, config, now, packet),
            Machine::Linux(linux) => linux.handle_ack(&mut self.transfer, config, now, packet),
        }
    }

    /// Handles the timeout that is due; before its time nothing happens.
    pub fn handle_timeout(&mut self, config: &Config, now: Time) -> Signals {
        let due = self.next_timeout().filter(|(at, _)| *at <= now);
        let Some((_, timeout)) = due else { return Signals::default() };
        match &mut self.machine {
            Machine::Rfc(rfc) => rfc.disarm(),
            Machine::Linux(linux) => linux.disarm(),
        }
        match &mut self.machine {
            _ if timeout == SenderTimeout::Syn => self.handle_syn_timeout(config),
            Machine::Rfc(rfc) => rfc.handle_timeout(&mut self.transfer, config),
            Machine::Linux(linux) => linux.handle_timeout(&mut self.transfer, config, now),
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next; `None`: never.
    #[inline(always)]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_timeout().map(|(due, _)| due)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, and what for; `None`: never.
    #[inline(always)]
    pub fn next_timeout(&self) -> Option<(Time, SenderTimeout)> {
        match &self.machine {
            Machine::Rfc(rfc) => {
                let is_syn = self.transfer.stage == Stage::SynSent;
                let timer = if is_syn { SenderTimeout::Syn } else { SenderTimeout::Retransmission };
                (rfc.due() != Time::MAX).then(|| (rfc.due(), timer))
            }
            Machine::Linux(linux) => linux.next_timeout(),
        }
    }

    /// As [`poll_timeout`](Self::poll_timeout), if that is due before `limit`: cheaper where it is not.
    #[inline]
    pub fn poll_timeout_before(&self, limit: Time) -> Option<Time> {
        match &self.machine {
            Machine::Rfc(_) => self.poll_timeout().filter(|due| *due < limit),
            Machine::Linux(linux) => linux.poll_timeout_before(limit),
        }
    }

    /// The next segment to send.
    #[inline]
    pub fn poll_transmit(&mut self, config: &Config, now: Time) -> Option<Transmit> {
        if self.transfer.stage == Stage::SynSent {
            return self.transmit_syn(config, now);
        }
        match &mut self.machine {
            Machine::Rfc(rfc) => rfc.poll_transmit(&mut self.transfer, config, now),
            Machine::Linux(linux) => linux.poll_transmit(&mut self.transfer, config, now),
        }
    }

    /// Whether the congestion window allows a segment now, or a segment goes regardless of the window. RFC 3042: for
    /// each that is sacked a new one goes, whose ACK may be the third duplicate.
    #[inline]
    pub fn window_has_room(&self, config: &Config) -> bool {
        match &self.machine {
            Machine::Rfc(rfc) => rfc.window_has_room(&self.transfer, config),
            Machine::Linux(linux) => linux.window_has_room(&self.transfer),
        }
    }

    /// Whether there is a segment that the receiver's window allows: a new one, or one to send again.
    pub fn has_segment(&self) -> bool {
        let (_, waiting) = self.pipe();
        waiting > 0 || self.transfer.has_new() && !self.transfer.is_over()
    }

    /// Segments in the network, and lost ones that wait to be sent again.
    #[inline]
    fn pipe(&self) -> (u32, u32) {
        let outstanding = self.transfer.outstanding();
        match &self.machine {
            Machine::Rfc(rfc) => rfc.pipe(outstanding),
            Machine::Linux(linux) => linux.pipe(outstanding),
        }
    }

    /// The congestion window, in segments.
    #[inline]
    pub fn cwnd(&self) -> f64 {
        match &self.machine {
            Machine::Rfc(rfc) => rfc.window.cwnd,
            Machine::Linux(linux) => linux.cwnd(),
        }
    }

    /// Changes the congestion window by whole segments, of which two stay; for the MPTCP connection that couples it.
    #[inline]
    pub fn change_cwnd(&mut self, segments: i32) {
        match &mut self.machine {
            Machine::Rfc(rfc) => rfc.window.change(segments),
            Machine::Linux(linux) => linux.change_cwnd(segments),
        }
    }

    /// Sets the share of the window that a loss or a mark leaves to [`Algorithm::Coupled`](super::Algorithm::Coupled), times 2¹⁶.
    #[inline]
    pub fn set_loss_share(&mut self, share: u32) {
        match &mut self.machine {
            Machine::Rfc(rfc) => rfc.window.kept = share,
            Machine::Linux(linux) => linux.set_loss_share(share),
        }
    }

    /// The slow-start threshold in segments; infinite before the first loss.
    pub fn ssthresh(&self) -> f64 {
        match &self.machine {
            Machine::Rfc(rfc) => rfc.window.ssthresh,
            Machine::Linux(linux) => linux.ssthresh(),
        }
    }

    /// The smoothed round-trip time; `None` before the first sample.
    #[inline]
    pub fn srtt(&self) -> Option<Span> {
        match &self.machine {
            Machine::Rfc(rfc) => rfc.round_trip.smoothed(),
            Machine::Linux(linux) => linux.srtt(),
        }
    }

    /// Segments sent and not acknowledged.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.transfer.outstanding()
    }

    /// Segments supplied and not acknowledged, those not sent yet included.
    #[inline]
    pub fn queued(&self) -> u32 {
        self.transfer.supplied - self.transfer.una
    }

    /// The rate at which Linux would pace, in segments a second (`tcp_update_pacing_rate`); before the first sample as if the
    /// round trip took a second. Twice the window in slow start, 1.2 times later, so that it can grow. None is paced.
    pub fn pacing_rate(&self) -> f64 {
        linux::pacing_rate((self.cwnd(), self.ssthresh()), self.srtt(), self.in_flight())
    }

    /// Halves the congestion window, and the slow-start threshold if there is one, although nothing was lost; for the MPTCP
    /// connection whose receive window the subflow blocks.
    pub fn halve(&mut self) {
        match &mut self.machine {
            Machine::Rfc(rfc) => rfc.window.halve(),
            Machine::Linux(linux) => linux.halve(),
        }
    }

    /// How many new segments the windows allow now, if they were supplied.
    #[inline]
    pub fn room(&self) -> u32 {
        let transfer = &self.transfer;
        if transfer.stage != Stage::Established {
            return 0;
        }
        let (pipe, waiting) = self.pipe();
        let unsent = transfer.supplied - transfer.next;
        let taken = pipe + waiting + unsent;
        (self.cwnd() as u32).saturating_sub(taken).min(transfer.window_end.saturating_sub(transfer.supplied))
    }

    /// Segments that the receiver's window allows, from the first that is not acknowledged on.
    #[inline]
    pub fn receive_window(&self) -> u32 {
        self.transfer.window_end.saturating_sub(self.transfer.una)
    }

    /// The first segment not acknowledged.
    #[inline]
    pub fn una(&self) -> u32 {
        self.transfer.una
    }

    /// Whether packets of this end without data are ECN-capable, as a mark.
    #[inline]
    pub fn beside_data(&self) -> Flags {
        self.transfer.beside_data()
    }

    /// The first segment not sent.
    #[inline]
    pub fn next(&self) -> u32 {
        self.transfer.next
    }

    /// Segments supplied so far.
    #[inline]
    pub fn supplied(&self) -> u32 {
        self.transfer.supplied
    }

    /// The state of the connection.
    #[inline]
    pub fn state(&self) -> State {
        match (self.transfer.stage, &self.machine) {
            (Stage::Closed, _) => State::Closed,
            (Stage::SynSent, _) => State::SynSent,
            (Stage::Finished, _) => State::Finished,
            (Stage::Failed, _) => State::Failed,
            (Stage::Established, Machine::Rfc(rfc)) => rfc.state(),
            (Stage::Established, Machine::Linux(linux)) => linux.state(),
        }
    }

    /// Segments sent again.
    pub fn retransmits(&self) -> u32 {
        self.transfer.retransmits
    }

    /// Segments known to have arrived; wraps.
    pub fn delivered(&self) -> u32 {
        self.transfer.delivered
    }

    /// Segments known to have arrived whose ACK echoed a mark, counted as Linux does; wraps.
    pub fn delivered_ce(&self) -> u32 {
        self.transfer.delivered_ce
    }

    /// The retransmission timeout before back-off.
    pub fn rto(&self) -> Span {
        match &self.machine {
            Machine::Rfc(rfc) => rfc.round_trip.rto(),
            Machine::Linux(linux) => linux.rto(),
        }
    }

    /// Whether it is that of [`Profile::Linux`](super::Profile::Linux).
    #[inline]
    pub fn is_linux(&self) -> bool {
        matches!(self.machine, Machine::Linux(_))
    }

    /// What happened, as the kernel counts it; `None` under [`Profile::Rfc`](crate::tcp::Profile::Rfc).
    pub fn counters(&self) -> Option<Counters> {
        match &self.machine {
            Machine::Rfc(_) => None,
            Machine::Linux(linux) => Some(linux.counters(&self.transfer)),
        }
    }

    /// Timeouts in a row.
    pub fn backoff(&self) -> u8 {
        self.transfer.backoff
    }

    /// The degree of reordering; `None`: the profile is another.
    #[cfg(test)]
    pub(super) fn reordering(&self) -> Option<u32> {
        match &self.machine {
            Machine::Rfc(_) => None,
            Machine::Linux(linux) => Some(linux.reordering()),
        }
    }

    /// The counts that the machine keeps, and the same counts computed from its segments.
    #[cfg(test)]
    pub(super) fn audit(&self) -> Option<([u32; 3], [u32; 3])> {
        let (una, next) = (self.transfer.una, self.transfer.next);
        match &self.machine {
            Machine::Rfc(rfc) => rfc.audit(una, next),
            Machine::Linux(linux) => Some(linux.audit(una, next)),
        }
    }
}

const _: () = assert!(size_of::<Sender>() == 128, "a sender without what only some have is two cache lines");
