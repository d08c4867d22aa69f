//! The policy's functions, compiled natively from `include/policy`.

use std::ptr;

use super::{Config, Conn, Decision, Exp3, MAX_PATHS, Path, Quality, Round, Shared};

unsafe extern "C" {
    fn native_pc_open(
        conn: *mut Conn,
        cfg: *const Config,
        paths: *const Path,
        n: u32,
        shared: *const Shared,
        now_ns: u64,
        random: u32,
    );
    fn native_pc_stateless(cfg: *const Config, shared: *const Shared) -> u32;
    fn native_pc_first(
        cfg: *const Config,
        paths: *const Path,
        n: u32,
        shared: *const Shared,
        now_ns: u64,
        random: u32,
    ) -> u32;
    fn native_pc_uneventful(
        cfg: *const Config,
        paths: *const Path,
        shared: *const Shared,
        current: u32,
        round: *const Round,
    ) -> u32;
    fn native_pc_resume(
        conn: *mut Conn,
        cfg: *const Config,
        paths: *const Path,
        n: u32,
        allowed: u32,
        shared: *const Shared,
        round: *const Round,
        began_ns: u64,
        random: u32,
        current: u32,
    );
    fn native_pc_round(
        conn: *mut Conn,
        cfg: *const Config,
        paths: *const Path,
        shared: *const Shared,
        round: *const Round,
        random: u32,
        decision: *mut Decision,
    );
    fn native_pc_retransmit(
        conn: *mut Conn,
        cfg: *const Config,
        paths: *const Path,
        shared: *const Shared,
        round: *const Round,
        segs: u32,
        random: u32,
        decision: *mut Decision,
    );
    fn native_pc_timeout(
        conn: *mut Conn,
        cfg: *const Config,
        paths: *const Path,
        shared: *const Shared,
        round: *const Round,
        syn: u32,
        random: u32,
        decision: *mut Decision,
    );
    fn native_pc_duplicate(
        conn: *mut Conn,
        cfg: *const Config,
        paths: *const Path,
        shared: *const Shared,
        round: *const Round,
        quiet_q16: u32,
        random: u32,
        decision: *mut Decision,
    );
    fn native_pc_close(
        conn: *mut Conn,
        cfg: *const Config,
        paths: *const Path,
        shared: *const Shared,
        round: *const Round,
    );
    fn native_pc_connect(conn: *const Conn, cfg: *const Config, shared: *const Shared);
    fn native_pc_syn_rto(cfg: *const Config, shared: *const Shared, path: u32, now_ns: u64) -> u64;
    fn native_pc_syn_retries(rto_ns: u64) -> u32;
    fn native_pc_added(quality: *const Quality, now_ns: u64) -> u64;
    fn native_pc_base(path: *const Path, quality: *const Quality, now_ns: u64) -> u64;
    fn native_pc_dead(quality: *const Quality, now_ns: u64) -> u32;
    fn native_pc_down(quality: *const Quality, now_ns: u64) -> u32;
    fn native_pc_open_again(
        conn: *mut Conn,
        cfg: *const Config,
        paths: *const Path,
        n: u32,
        shared: *const Shared,
        kept: u32,
        now_ns: u64,
        random: u32,
    );
    fn native_pc_weigh(exp3: *mut Exp3, paths: *const Path, n: u32, shared: *const Shared);
    #[cfg(test)]
    fn native_pc_shared_add(shared: *const Shared, n: u32, path: u32, step: i64);
    fn native_pc_exp3_open(exp3: *mut Exp3, paths: *const Path, n: u32);
    fn native_pc_exp3_probability(exp3: *const Exp3, n: u32, gamma_q16: u32, path: u32) -> u64;
    fn native_pc_exp3_draw(exp3: *const Exp3, n: u32, gamma_q16: u32, leave: u32, random: u32) -> u32;
    fn native_pc_exp3_reward(exp3: *mut Exp3, n: u32, gamma_q16: u32, path: u32, reward_q16: u32);
    fn native_pc_exp3_lose(exp3: *mut Exp3, n: u32, gamma_q16: u32, path: u32, loss_q16: u32);
    #[cfg(test)]
    fn native_pc_log2(value: u32) -> i64;
    #[cfg(test)]
    fn native_pc_exp2(log: i64) -> u64;
}

// The functions below are for states that began with `open` or `exp3_open`: the C code relies on their weights to
// divide by no zero. They stay inside the crate, which keeps that.

/// The shared table of a destination as a pointer; null if there is none.
fn table(shared: Option<&Shared>) -> *const Shared {
    shared.map_or(ptr::null(), ptr::from_ref)
}

pub(crate) fn open(
    config: &Config,
    paths: &[Path; MAX_PATHS],
    n: u32,
    shared: Option<&Shared>,
    now_ns: u64,
    random: u32,
) -> Conn {
    let mut conn = Conn::default();
    // SAFETY: all pointers come from references, and the array has the MAX_PATHS entries that C reads. The table is made
    // of atomics, which C reads and changes as such; it may be null.
    unsafe { native_pc_open(&mut conn, config, paths.as_ptr(), n, table(shared), now_ns, random) };
    conn
}

/// Whether a connection can begin without a state.
pub(crate) fn stateless(config: &Config, shared: Option<&Shared>) -> bool {
    // SAFETY: as in `open`.
    unsafe { native_pc_stateless(config, table(shared)) == 1 }
}

/// The first path of a connection that begins without a state.
pub(crate) fn first(
    config: &Config,
    paths: &[Path; MAX_PATHS],
    n: u32,
    shared: Option<&Shared>,
    now_ns: u64,
    random: u32,
) -> u32 {
    // SAFETY: as in `open`.
    unsafe { native_pc_first(config, paths.as_ptr(), n, table(shared), now_ns, random) }
}

/// Measures a round of a connection without a state; returns false, and does nothing, if the connection needs one now.
pub(crate) fn uneventful(
    config: &Config,
    paths: &[Path; MAX_PATHS],
    shared: Option<&Shared>,
    current: u32,
    round: &Round,
) -> bool {
    // SAFETY: as in `open`; C masks the index.
    unsafe { native_pc_uneventful(config, paths.as_ptr(), table(shared), current, round) == 1 }
}

/// The state of a connection that began without one at `began_ns`, and is on path `current`.
#[expect(clippy::too_many_arguments, reason = "those of the C function")]
pub(crate) fn resume(
    config: &Config,
    paths: &[Path; MAX_PATHS],
    n: u32,
    allowed: u32,
    shared: Option<&Shared>,
    round: &Round,
    began_ns: u64,
    random: u32,
    current: u32,
) -> Conn {
    debug_assert!(current < n);
    let mut conn = Conn::default();
    // SAFETY: as in `open`.
    unsafe {
        native_pc_resume(&mut conn, config, paths.as_ptr(), n, allowed, table(shared), round, began_ns, random, current)
    };
    conn
}

/// The SYN of a new connection is about to leave.
pub(crate) fn connect(conn: &Conn, config: &Config, shared: Option<&Shared>) {
    // SAFETY: as in `open`.
    unsafe { native_pc_connect(conn, config, table(shared)) };
}

/// After what time a SYN that leaves on `path` is sent again, in nanoseconds; 0: after Linux's own.
pub(crate) fn syn_rto(config: &Config, shared: Option<&Shared>, path: u32, now_ns: u64) -> u64 {
    // SAFETY: as in `open`; C masks the index.
    unsafe { native_pc_syn_rto(config, table(shared), path, now_ns) }
}

/// How many more times a SYN with this timeout is sent than one with Linux's own.
pub(crate) fn syn_retries(rto_ns: u64) -> u32 {
    // SAFETY: a function of an integer.
    unsafe { native_pc_syn_retries(rto_ns) }
}

/// The path set has changed under a connection, which stays on path `kept` if that is one of the `n`.
#[expect(clippy::too_many_arguments, reason = "those of the C function")]
pub(crate) fn open_again(
    conn: &mut Conn,
    config: &Config,
    paths: &[Path; MAX_PATHS],
    n: u32,
    shared: Option<&Shared>,
    kept: u32,
    now_ns: u64,
    random: u32,
) {
    // SAFETY: as in `open`.
    unsafe { native_pc_open_again(conn, config, paths.as_ptr(), n, table(shared), kept, now_ns, random) };
}

pub(crate) fn round(
    conn: &mut Conn,
    config: &Config,
    paths: &[Path; MAX_PATHS],
    shared: Option<&Shared>,
    round: &Round,
    random: u32,
) -> Decision {
    let mut decision = Decision::default();
    // SAFETY: as in `open`.
    unsafe { native_pc_round(conn, config, paths.as_ptr(), table(shared), round, random, &mut decision) };
    decision
}

pub(crate) fn retransmit(
    conn: &mut Conn,
    config: &Config,
    paths: &[Path; MAX_PATHS],
    shared: Option<&Shared>,
    round: &Round,
    segs: u32,
    random: u32,
) -> Decision {
    let mut decision = Decision::default();
    // SAFETY: as in `open`.
    unsafe { native_pc_retransmit(conn, config, paths.as_ptr(), table(shared), round, segs, random, &mut decision) };
    decision
}

pub(crate) fn timeout(
    conn: &mut Conn,
    config: &Config,
    paths: &[Path; MAX_PATHS],
    shared: Option<&Shared>,
    round: &Round,
    syn: bool,
    random: u32,
) -> Decision {
    let mut decision = Decision::default();
    // SAFETY: as in `open`.
    unsafe {
        native_pc_timeout(conn, config, paths.as_ptr(), table(shared), round, u32::from(syn), random, &mut decision)
    };
    decision
}

pub(crate) fn duplicate(
    conn: &mut Conn,
    config: &Config,
    paths: &[Path; MAX_PATHS],
    shared: Option<&Shared>,
    round: &Round,
    quiet_q16: u32,
    random: u32,
) -> Decision {
    let mut decision = Decision::default();
    // SAFETY: as in `open`.
    unsafe {
        native_pc_duplicate(conn, config, paths.as_ptr(), table(shared), round, quiet_q16, random, &mut decision)
    };
    decision
}

pub(crate) fn close(
    conn: &mut Conn,
    config: &Config,
    paths: &[Path; MAX_PATHS],
    shared: Option<&Shared>,
    round: &Round,
) {
    // SAFETY: as in `open`.
    unsafe { native_pc_close(conn, config, paths.as_ptr(), table(shared), round) }
}

/// The weights of a connection to `n` of `paths`, with what was learnt.
pub(crate) fn weigh(paths: &[Path; MAX_PATHS], n: u32, shared: &Shared) -> Exp3 {
    let mut exp3 = Exp3::default();
    // SAFETY: as in `open`.
    unsafe { native_pc_weigh(&mut exp3, paths.as_ptr(), n, shared) };
    exp3
}

/// Adds to what was learnt of `path`, one of `n`.
#[cfg(test)]
pub(crate) fn shared_add(shared: &Shared, n: u32, path: u32, step: i64) {
    // SAFETY: as in `open`; C masks the index.
    unsafe { native_pc_shared_add(shared, n, path, step) }
}

/// What queues and losses add to a round trip of the path, in nanoseconds.
pub(crate) fn added(quality: &Quality, now_ns: u64) -> u64 {
    // SAFETY: the pointer comes from a reference to atomics, which C only reads.
    unsafe { native_pc_added(quality, now_ns) }
}

/// The time that a short transfer takes on the empty path, in nanoseconds; 0: its round trip is not known.
pub(crate) fn base(path: &Path, quality: &Quality, now_ns: u64) -> u64 {
    // SAFETY: as in `added`.
    unsafe { native_pc_base(path, quality, now_ns) }
}

/// Whether no connection should try the path.
pub(crate) fn dead(quality: &Quality, now_ns: u64) -> bool {
    // SAFETY: as in `added`.
    unsafe { native_pc_dead(quality, now_ns) == 1 }
}

/// Whether the path failed, nothing was delivered since, and it is not yet to be tried.
pub(crate) fn down(quality: &Quality, now_ns: u64) -> bool {
    // SAFETY: as in `added`.
    unsafe { native_pc_down(quality, now_ns) == 1 }
}

pub(crate) fn exp3_open(paths: &[Path; MAX_PATHS], n: u32) -> Exp3 {
    let mut exp3 = Exp3::default();
    // SAFETY: as in `open`.
    unsafe { native_pc_exp3_open(&mut exp3, paths.as_ptr(), n) };
    exp3
}

/// The probability of `path` in Q32, for `path < n` and `n` in 1..=16.
///
/// Here and below `gamma_q16` is in 1..=65536; for EXP3-IX it is 0 here and in the draw.
pub(crate) fn exp3_probability(exp3: &Exp3, n: u32, gamma_q16: u32, path: u32) -> u64 {
    // SAFETY: the pointer comes from a reference; C masks the index and divides by `n` and weights, never zero.
    unsafe { native_pc_exp3_probability(exp3, n, gamma_q16, path) }
}

pub(crate) fn exp3_draw(exp3: &Exp3, n: u32, gamma_q16: u32, leave: u32, random: u32) -> u32 {
    // SAFETY: as in `exp3_probability`.
    unsafe { native_pc_exp3_draw(exp3, n, gamma_q16, leave, random) }
}

pub(crate) fn exp3_reward(exp3: &mut Exp3, n: u32, gamma_q16: u32, path: u32, reward_q16: u32) {
    // SAFETY: as in `exp3_probability`.
    unsafe { native_pc_exp3_reward(exp3, n, gamma_q16, path, reward_q16) }
}

pub(crate) fn exp3_lose(exp3: &mut Exp3, n: u32, gamma_q16: u32, path: u32, loss_q16: u32) {
    // SAFETY: as in `exp3_probability`; γ is not zero, so that neither is the divisor.
    unsafe { native_pc_exp3_lose(exp3, n, gamma_q16, path, loss_q16) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log2_is_within_2e_8() {
        let values = (0..32).flat_map(|bit| [1_u32 << bit, (1 << bit) + (1 << bit) / 3, u32::MAX >> bit]);
        for value in values.chain((1..u32::MAX).step_by(99_991)) {
            // SAFETY: a function of an integer.
            let log = unsafe { native_pc_log2(value) } as f64 / 2_f64.powi(32);
            assert!((log - f64::from(value).log2()).abs() < 2e-8, "log2({value}) = {log}");
        }
    }

    #[test]
    fn exp2_is_within_1e_8_until_it_underflows() {
        for log in (0..80_i64 << 32).step_by(9_999_991).chain([0, 1, (1 << 32) - 1, 1 << 32, i64::MAX]) {
            // SAFETY: a function of an integer.
            let power = unsafe { native_pc_exp2(-log) } as f64 / 2_f64.powi(40);
            let exact = (-(log as f64) / 2_f64.powi(32)).exp2();
            assert!((power - exact).abs() <= exact * 1e-8 + 2_f64.powi(-40), "exp2(-{log}) = {power}");
        }
    }
}
