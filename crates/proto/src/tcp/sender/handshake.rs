//! How a connection begins: the SYN, its timer, and its answer.

use sidestep_net::{Span, Time};

use super::{Machine, Sender};
use crate::{
    packet::{Flags, Kind, Packet},
    tcp::{
        Config, Transmit,
        linux::Linux,
        signals::{Acked, Signals},
        transfer::{Stage, flag},
    },
};

impl Sender {
    /// Sends the first SYN again after `rto` if no answer comes, and SYNs `more_retries` times more than the configuration sets.
    pub fn set_syn_timeout(&mut self, rto: Span, more_retries: u8) {
        match &mut self.machine {
            Machine::Rfc(rfc) => rfc.round_trip.set_rto(rto),
            Machine::Linux(linux) => linux.set_rto(rto),
        }
        self.transfer.more_syn_retries = more_retries;
    }

    /// Begins to connect.
    pub fn open(&mut self) {
        self.transfer.stage = Stage::SynSent;
        self.transfer.flags |= flag::FORCED;
    }

    /// Begins as the end that was called: its answer to the SYN, sent at `answered` (`None`: it was sent several times), has
    /// been acknowledged.
    pub fn accept(&mut self, config: &Config, now: Time, answered: Option<Time>, ecn: bool) {
        self.transfer.stage = Stage::SynSent;
        let answer = Packet {
            kind: Kind::SynAck,
            sent: answered.into(),
            window: config.receive_window,
            flags: Flags::when(ecn, Flags::ECE),
            ..Packet::default()
        };
        self.established(config, now, &answer);
    }

    pub(super) fn established(&mut self, config: &Config, now: Time, packet: &Packet) -> Acked {
        let transfer = &mut self.transfer;
        if transfer.stage != Stage::SynSent {
            return Acked::default();
        }
        transfer.stage = Stage::Established;
        transfer.window_end = packet.window;
        match &mut self.machine {
            Machine::Rfc(rfc) => rfc.establish(transfer, config, now, packet),
            Machine::Linux(linux) => linux.establish(transfer, config, now, packet),
        }
        transfer.flags &= !flag::FORCED;
        if config.ecn && packet.flags.has(Flags::ECE) {
            transfer.flags |= flag::ECN | if config.needs_ecn() { flag::ALL_ECT } else { 0 };
        }
        let mut acked = Acked::default();
        acked.signals.bits |= Signals::ESTABLISHED;
        if transfer.supplied == 0 && transfer.flags & flag::FIN != 0 {
            transfer.stage = Stage::Finished;
            self.machine.end();
            acked.signals.bits |= Signals::FINISHED;
        }
        acked
    }

    pub(super) fn transmit_syn(&mut self, config: &Config, now: Time) -> Option<Transmit> {
        let transfer = &mut self.transfer;
        if transfer.flags & flag::FORCED == 0 {
            return None;
        }
        transfer.flags &= !flag::FORCED;
        let sent = transfer.backoff;
        match &mut self.machine {
            Machine::Rfc(rfc) => rfc.arm_syn(config, now, sent),
            Machine::Linux(linux) => linux.arm_syn(config, now, sent),
        }
        // Linux's asks for no ECN when it goes again, as a router may drop what does (`tcp_ecn_fallback`).
        let asks = config.ecn && !(self.is_linux() && sent > 0);
        let flags = Flags::when(asks, Flags::ECE.with(Flags::CWR));
        let flags = flags.with(Flags::when(config.needs_ecn(), Flags::ECT));
        Some(Transmit { seq: 0, kind: Kind::Syn, flags })
    }

    pub(super) fn handle_syn_timeout(&mut self, config: &Config) -> Signals {
        let mut signals = Signals { bits: Signals::SYN_TIMEOUT };
        let transfer = &mut self.transfer;
        transfer.backoff = transfer.backoff.saturating_add(1);
        let retries = match &self.machine {
            Machine::Rfc(_) => config.syn_retries,
            Machine::Linux(_) => Linux::syn_retries(config),
        };
        let failed = transfer.backoff > retries.saturating_add(transfer.more_syn_retries);
        if failed {
            transfer.stage = Stage::Failed;
            self.machine.end();
            signals.bits |= Signals::FINISHED;
        }
        transfer.flags |= flag::FORCED;
        if let Machine::Linux(linux) = &mut self.machine {
            linux.count_syn_timeout(transfer.backoff > 1 && !failed);
        }
        signals
    }
}
