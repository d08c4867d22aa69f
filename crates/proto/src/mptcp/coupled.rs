//! Coupled congestion control: when a subflow looks at the others, as the kernel's program does (`coupled.bpf.c`).

use sidestep_coupled::{Algorithm, Path, Sums, grown};
use sidestep_net::{MaybeTime, Span, Time};

use super::{
    Coupling,
    connection::{Connection, Subflow},
};
use crate::tcp::{self, Sender, Signals, State};

/// The sums over a connection's subflows, which these share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    pub(super) sums: Sums,
    /// When they were added up; zero: never.
    pub(super) added: MaybeTime,
}

/// What a subflow keeps for coupling.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    /// Of its window for each segment acknowledged, and what has not become a segment yet; Q32.
    growth: i64,
    pub(super) credit: i64,
    /// When it looked at the others; zero: it must look.
    pub(super) looked: MaybeTime,
    /// Segments acknowledged at the last loss, and between the two losses before.
    mark: u32,
    before: u32,
}

/// Payload of a segment in bytes: segments are counted here, and all are alike.
const MSS: u32 = 1_448;
/// How much longer than a round trip a subflow may be without a packet, and count: the least timeout (`TCP_RTO_MIN`), after which
/// slow start begins again.
const IDLE: Span = Span::from_millis(200);

impl Coupling {
    /// What couples the windows; `None`: each subflow is by itself.
    pub fn algorithm(self) -> Option<Algorithm> {
        match self {
            Coupling::Lia => Some(Algorithm::Lia),
            Coupling::Olia => Some(Algorithm::Olia),
            Coupling::Balia => Some(Algorithm::Balia),
            Coupling::Reno | Coupling::Cubic => None,
        }
    }

    /// The congestion control of subflows.
    pub fn tcp(self) -> tcp::Algorithm {
        match self {
            Coupling::Lia | Coupling::Olia | Coupling::Balia => tcp::Algorithm::Coupled,
            Coupling::Reno => tcp::Algorithm::Reno,
            Coupling::Cubic => tcp::Algorithm::Cubic,
        }
    }
}

impl Connection {
    /// Grows a subflow's window after `acked` segments were acknowledged in congestion avoidance.
    #[inline]
    pub(super) fn grow(&mut self, coupling: Coupling, now: Time, subflows: &mut [Sender], subflow: usize, acked: u32) {
        let (Some(algorithm), Some(rtt)) = (coupling.algorithm(), subflows[subflow].srtt()) else { return };
        if is_older(self.subflows[subflow].share.looked, now, rtt) {
            self.look(algorithm, now, subflows, subflow, rtt);
        }
        let share = &mut self.subflows[subflow].share;
        let change = grown(&mut share.credit, share.growth, acked);
        if change != 0 {
            subflows[subflow].change_cwnd(change);
        }
    }

    #[inline(never)]
    fn look(&mut self, algorithm: Algorithm, now: Time, subflows: &mut [Sender], subflow: usize, rtt: Span) {
        if is_older(self.shared.added, now, rtt) {
            let paths = subflows.iter().zip(&self.subflows).filter_map(|(sender, own)| own.path(now, sender));
            self.shared = Shared { sums: Sums::of(paths), added: now.into() };
        }
        let (own, sender) = (&mut self.subflows[subflow], &mut subflows[subflow]);
        let path = own.path_of(sender.cwnd(), rtt);
        own.share.looked = now.into();
        own.share.growth = self.shared.sums.growth(algorithm, &path);
        if algorithm == Algorithm::Balia {
            sender.set_loss_share(self.shared.sums.kept(algorithm, &path));
        }
    }
}

impl Subflow {
    /// Notes a loss or a mark, or that there was none.
    pub(super) fn note_loss(&mut self, signals: Signals) {
        let (acked, share) = (self.acked(), &mut self.share);
        if signals.undone() {
            // What was acknowledged before counts on.
            share.mark = share.mark.saturating_sub(share.before);
            share.looked = MaybeTime::NONE;
        }
        if signals.shrunk() {
            share.before = acked - share.mark;
            share.mark = acked;
            share.looked = MaybeTime::NONE;
            share.credit = 0;
        }
    }

    /// As the sums see it; `None` if it does not count.
    pub(super) fn path(&self, now: Time, sender: &Sender) -> Option<Path> {
        let window = match sender.state() {
            State::Open => sender.cwnd(),
            // The window then is what is in flight (PRR); where it goes is the threshold.
            State::Reduced | State::Recovery => sender.ssthresh(),
            // After a timeout the path may be dead, and what it carried before would make it the best.
            _ => return None,
        };
        let rtt = sender.srtt().filter(|_| !self.failed)?;
        // An idle subflow's window is of another time.
        let idle = sender.in_flight() == 0 && now.since(self.last_ack) > rtt + IDLE;
        (!idle).then(|| self.path_of(window, rtt))
    }

    fn path_of(&self, window: f64, rtt: Span) -> Path {
        let since = self.acked() - self.share.mark;
        Path {
            window: (window.round() * f64::from(MSS)) as u64,
            between_losses: u64::from(since.max(self.share.before)) * u64::from(MSS),
            rtt: u32::try_from(rtt.as_nanos() / 1_000).unwrap_or(u32::MAX),
            mss: MSS,
        }
    }
}

/// Whether something is of longer than a round trip ago, or never was.
#[inline]
fn is_older(at: MaybeTime, now: Time, rtt: Span) -> bool {
    at.get().is_none_or(|at| now.since(at) > rtt)
}
