//! The C structs of `include/policy`, as they lie in BPF maps; and, in `calls`, the natively compiled functions on them.
//!
//! Fixed-point fields are named after their fractional bits: 65536 is one in `_q16`. The header documents each field.

mod calls;

use std::sync::atomic::AtomicU64;

use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(crate) use self::calls::*;

/// The most paths that a connection chooses from (`PC_MAX_PATHS`).
pub const MAX_PATHS: usize = 16;

/// `PC_DELAY_WEIGHTED` of `enum pc_policy`.
pub const DELAY_WEIGHTED: u32 = 8;

/// `struct pc_config`: the settings, made of [`PolicySettings`](crate::PolicySettings).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Config {
    /// `enum pc_policy`.
    pub policy: u32,
    /// EXP3's share of draws that ignore what was learnt; how fast EXP3-IX learns.
    pub gamma_q16: u32,
    /// Share of CE marks that makes a round congested.
    pub ce_share_q16: u32,
    /// How many congested rounds among the last `ce_window` make a signal.
    pub ce_rounds: u32,
    /// How many of the last rounds are looked at for `ce_rounds`.
    pub ce_window: u32,
    /// Segments retransmitted in a round that make a signal; 0 for never.
    pub retransmit_burst: u32,
    /// Share by which waits vary.
    pub jitter_q16: u32,
    /// `enum pc_reward`.
    pub reward: u32,
    /// Timeouts in a row after which `PC_NEXT` moves.
    pub next_rtos: u32,
    /// Rounds after a move that are not judged.
    pub settle_rounds: u32,
    /// 1: a connection that has sent much leaves a path only for one that gives more.
    pub gain_guard: u16,
    /// 1: a move that reorders packets halves the reward of what it led to.
    pub reorder_guard: u16,
    /// Congested rounds in a row after which `PC_PLB` moves when idle.
    pub plb_idle_rounds: u32,
    /// Congested rounds in a row after which `PC_PLB` moves with packets in flight.
    pub plb_rounds: u32,
    /// Share of the RTO without new data after which a duplicate is a signal; 0 for never.
    pub ack_quiet_q16: u32,
    /// 1: all connections to the destination learn together.
    pub shared: u32,
    /// Rounds in a row with a standing queue that make a signal; 0 for never.
    pub queue_rounds: u32,
    /// First wait after a decision on congestion.
    pub congestion_min_ns: u64,
    /// Longest wait after a decision on congestion.
    pub congestion_max_ns: u64,
    /// First wait after a decision on a path failure.
    pub failure_min_ns: u64,
    /// Longest wait after a decision on a path failure.
    pub failure_max_ns: u64,
    /// By how much a path's round trip may be longer than the present one's; 0 for any.
    pub rtt_guard_ns: u64,
    /// Least time without moves on congestion after a timeout, of `PC_PLB`.
    pub plb_pause_ns: u64,
}

/// `struct pc_path`: a path to choose.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Path {
    /// The caller's name for it.
    pub id: u32,
    /// Initial weight; 0 counts as 1.
    pub weight: u32,
    /// Bandwidth-delay product in bytes; 0 counts as 1.
    pub bdp_bytes: u64,
    /// Round-trip propagation time; 0: not known.
    pub rtt_ns: u64,
    /// What a short transfer takes at the path's rate; 0: not known.
    pub transfer_ns: u64,
    /// Bytes a second that are not in use, as reported; the whole rate where there is no report.
    pub room: u64,
}

/// `struct pc_exp3`: the logarithms of EXP3's weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Exp3 {
    /// Base 2, Q32, the greatest at 0.
    pub log_weight: [i64; MAX_PATHS],
}

/// `struct pc_backoff`: the wait between decisions.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Backoff {
    /// The next wait, before jitter.
    pub interval_ns: u64,
    /// No decision before this time.
    pub next_ns: u64,
    /// When the last signal came.
    pub signal_ns: u64,
}

/// `struct pc_mean`: a quotient of two sums since the last decision.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Mean {
    /// Sum of the samples, or bytes.
    pub sum: u64,
    /// Number of samples, or nanoseconds.
    pub count: u64,
}

/// `struct pc_share`: what a connection has of its path.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Share {
    /// When the present epoch began; 0: with the next round.
    pub epoch_ns: u64,
    /// The largest share in a round of this epoch in which the path was full; 0: none was.
    pub most_q16: u32,
    /// The same as a moving average over epochs.
    pub mean_q16: u32,
    /// How many epochs it is of.
    pub epochs: u16,
    /// 1: it came to this path without reports of what is in use.
    pub tried: u16,
    /// Segments of the round before.
    pub delivered: u32,
}

/// `struct pc_conn`: the state of a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Conn {
    /// What was learnt of the paths.
    pub exp3: Exp3,
    /// Back-off of congestion.
    pub congestion: Backoff,
    /// Back-off of path failures.
    pub failure: Backoff,
    /// Mean congestion window since the last decision.
    pub cwnd: Mean,
    /// Mean round-trip time, without the rounds that are not judged.
    pub rtt: Mean,
    /// Delivered rate, without the rounds that are not judged.
    pub rate: Mean,
    /// What it has of its path.
    pub share: Share,
    /// Lowest round-trip propagation time of the paths; 0: not known.
    pub lowest_rtt_ns: u64,
    /// When the last round ended.
    pub round_ns: u64,
    /// `PC_PLB` does not move on congestion before this time.
    pub plb_pause_ns: u64,
    /// A bit for each round since the last decision, the latest lowest: whether it was congested.
    pub ce_history: u64,
    /// Number of paths.
    pub n_paths: u32,
    /// Index of the path in use.
    pub current: u32,
    /// Packets delivered by the end of the last round.
    pub delivered: u32,
    /// CE-marked packets among `delivered`.
    pub delivered_ce: u32,
    /// Segments retransmitted in this round.
    pub retransmitted: u32,
    /// Rounds left that are not judged.
    pub settling: u32,
    /// Failure signals in a row, for `PC_NEXT`.
    pub timeouts: u32,
    /// What had been delivered and received by the last of them.
    pub progress: u32,
    /// Congested rounds in a row, of `PC_PLB`.
    pub plb_rounds: u32,
    /// 1 if the last move reordered packets.
    pub reordered: u32,
    /// Draws after the first.
    pub decisions: u32,
    /// Decisions that changed the path.
    pub moves: u32,
    /// Signals that were ignored.
    pub suppressed: u32,
    /// Bit set of the paths left on a failure since anything was delivered or received.
    pub failed: u32,
    /// Probability of the present path among those that could be drawn.
    pub chance_q32: u32,
    /// Segments retransmitted in this round.
    pub lost: u32,
    /// Rounds in a row with a standing queue.
    pub queue_rounds: u32,
    /// Bit set of the paths that the connection may take; 0: all.
    pub allowed: u32,
}

/// `struct pc_shared`: what all connections to a destination have learnt together; C changes it by atomic steps.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Shared {
    /// Base 2, Q32, modulo 2⁶⁴: only differences between paths mean anything.
    pub log_gain: [AtomicU64; MAX_PATHS],
    /// What was recently measured on each path.
    pub quality: [Quality; MAX_PATHS],
    /// Of the first draws of connections.
    pub sequence: AtomicU64,
    /// The weights of the first draws of connections.
    pub draws: Draws,
}

/// `struct pc_draws`: the weights of the first draws of connections, as they were recently.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Draws {
    /// To be used before this time; 0: never.
    pub until_ns: AtomicU64,
    /// Of the weights of a path and all before it.
    pub sum: [AtomicU64; MAX_PATHS],
}

/// `struct pc_quality`: what a host's connections recently measured on a path.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Quality {
    /// What queues and losses added to a round trip, as of `updated_ns`.
    pub added_ns: AtomicU64,
    /// When that was.
    pub updated_ns: AtomicU64,
    /// The lowest round trip; 0: none yet.
    pub lowest_ns: AtomicU64,
    /// When something was last delivered; 0: never.
    pub delivered_ns: AtomicU64,
    /// When it last failed; 0: never.
    pub failed_ns: AtomicU64,
    /// How long after that no connection tries it, unless something is delivered.
    pub hold_ns: AtomicU64,
    /// 1 if the failure was one of acknowledgements, whose delivery is not measured.
    pub unproven: AtomicU64,
    /// When a SYN left, the first since something was delivered; 0: none.
    pub asked_ns: AtomicU64,
    /// By how much ten segments prolonged a round trip, at least; 0: not measured.
    pub slow_ns: AtomicU64,
    /// When that was last measured.
    pub slow_at_ns: AtomicU64,
    /// 1 if the failure was one of a connection that has no other path.
    pub stranded: AtomicU64,
    /// Bytes a second that a connection had of the path while it was full.
    pub rate: AtomicU64,
    /// When that was measured; 0: never.
    pub rate_ns: AtomicU64,
}

/// How many 64-bit words [`Shared`] has.
pub const SHARED_WORDS: usize = size_of::<Shared>() / size_of::<u64>();

impl Quality {
    /// The fields in their order.
    pub(crate) fn words(&self) -> [&AtomicU64; 13] {
        let Quality { added_ns, updated_ns, lowest_ns, delivered_ns, failed_ns, .. } = self;
        let Quality { hold_ns, unproven, asked_ns, slow_ns, slow_at_ns, stranded, rate, rate_ns, .. } = self;
        [
            added_ns,
            updated_ns,
            lowest_ns,
            delivered_ns,
            failed_ns,
            hold_ns,
            unproven,
            asked_ns,
            slow_ns,
            slow_at_ns,
            stranded,
            rate,
            rate_ns,
        ]
    }
}

/// `struct pc_round`: what is read of the socket with every signal.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Round {
    /// The time.
    pub now_ns: u64,
    /// The congestion window.
    pub cwnd_bytes: u64,
    /// The smoothed round-trip time; 0: none yet.
    pub srtt_ns: u64,
    /// The retransmission timeout; 0: not known.
    pub rto_ns: u64,
    /// Packets delivered so far; wraps.
    pub delivered: u32,
    /// CE-marked packets among `delivered`; wraps.
    pub delivered_ce: u32,
    /// Payload of a segment.
    pub mss: u32,
    /// Segments sent and not acknowledged.
    pub in_flight: u32,
    /// Where the data received in order ends; wraps.
    pub received: u32,
    /// Zero.
    pub unused: u32,
}

/// `struct pc_decision`: what came of a signal.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Decision {
    /// Index of the path to use from now on.
    pub path: u32,
    /// `enum pc_reason`.
    pub reason: u32,
    /// 1 if the path is another than before.
    pub moved: u32,
    /// 1 if a path was drawn.
    pub decided: u32,
    /// `enum pc_stay`.
    pub stay: u32,
    /// Zero.
    pub unused: u32,
}

/// `struct parity_ctx` of `policy_parity.bpf.c`: one call of the policy, run by the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Parity {
    /// 0 open, 1 round, 2 retransmit, 3 timeout, 4 duplicate, 5 close; of connections without a state 6 first, 7 uneventful
    /// round, 8 timeout of a SYN.
    pub op: u32,
    /// The call's random bits.
    pub random: u32,
    /// For open: how many paths.
    pub n_paths: u32,
    /// For retransmit: how many segments.
    pub segs: u32,
    /// For timeout: 1 if of the SYN.
    pub syn: u32,
    /// For duplicate: the time without new data, as a share of the RTO.
    pub quiet_q16: u32,
    /// What was read of the socket; for open only the time.
    pub round: Round,
    /// The settings.
    pub config: Config,
    /// The paths.
    pub paths: [Path; MAX_PATHS],
    /// The state, before and after.
    pub conn: Conn,
    /// The outcome, except of open and close.
    pub decision: Decision,
}

/// `struct cost_ctx` of `policy_parity.bpf.c`: a thousand calls of the policy, timed by the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Cost {
    /// Written: what the calls took together, in ns.
    pub ns: u64,
    /// By how much each call is later than the one before, in ns.
    pub step_ns: u64,
    /// How many more segments were delivered at each call.
    pub delivered: u32,
    /// Zero.
    pub unused: u32,
    /// The first call.
    pub call: Parity,
}

/// `struct sharing_ctx` of `policy_parity.bpf.c`: steps in a table that the kernel's processors share, and a draw.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Sharing {
    /// What is added to a path's log weight, Q32.
    pub step: i64,
    /// How many paths there are; all have the same initial weight.
    pub n_paths: u32,
    /// The path.
    pub path: u32,
    /// EXP3's share of exploration.
    pub gamma_q16: u32,
    /// The draw's random bits.
    pub random: u32,
    /// The weights after the step.
    pub exp3: Exp3,
    /// The path drawn.
    pub drawn: u32,
    /// The probability of `drawn`, Q32.
    pub chance_q32: u32,
    /// How often the step is made, at most 1000.
    pub times: u32,
    /// Zero.
    pub pad: u32,
}

/// Makes the compiler compare the size of each struct with the header's `_Static_assert`.
macro_rules! sizes {
    ($($type:ty: $size:literal),* $(,)?) => {$(
        const _: () = assert!(size_of::<$type>() == $size, "differs from the C struct");
    )*};
}
sizes!(Config: 112, Path: 40, Exp3: 128, Backoff: 24, Mean: 16, Share: 24, Conn: 352, Round: 56, Decision: 24);
sizes!(Parity: 1208, Sharing: 168, Shared: 1936, Quality: 104);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_are_made_of_their_bytes() {
        let path = Path { id: 1, weight: 2, bdp_bytes: 3, rtt_ns: 4, transfer_ns: 5, room: 6 };
        assert_eq!(Path::read_from_bytes(path.as_bytes()), Ok(path));
        assert!(Path::read_from_bytes(&[0; 39]).is_err());
    }
}
