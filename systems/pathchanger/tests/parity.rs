//! The policy in the kernel and the policy in the simulator are the same function: the BPF program and the native
//! build are fed the same histories, and all that they know is compared byte by byte.

#[path = "../../../crates/flow-hash/tests/common/any_key.rs"]
mod any_key;

use std::sync::Arc;

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_flow_hash::{self as flow_hash, FlowHashCall, Symmetry};
use sidestep_linux::testing::root_or_skip;
use sidestep_net::{Bytes, InitialName, Rate, Ratio, Span, Time};
use sidestep_pathchanger::daemon::{
    parity::{COST_CALLS, PolicyParity},
    program::HostProgram,
};
use sidestep_policy::{
    Backoff, Connection, Decision, Path, PolicyName, PolicySettings, Reason, RewardName, Round, Shared, WeightsName,
    raw::{self, Cost, MAX_PATHS, Parity, SHARED_WORDS, Sharing},
};
use zerocopy::IntoBytes;

use self::any_key::any_key;

/// Connections of each policy, which have 1 to 16 paths in turn.
const CONNECTIONS: u64 = PolicyName::ALL.len() as u64 * 16 * 2;
/// The signals that each of them observes.
const SIGNALS: u32 = 300;

/// Kinds of signal, "none" included.
const REASONS: usize = Reason::ALL.len();

const OPEN: u32 = 0;
const ROUND: u32 = 1;
const RETRANSMIT: u32 = 2;
const TIMEOUT: u32 = 3;
const DUPLICATE: u32 = 4;
const CLOSE: u32 = 5;
const FIRST: u32 = 6;
const UNEVENTFUL: u32 = 7;
const SYN_RTO: u32 = 8;

#[test]
fn the_kernel_and_the_simulator_decide_alike_through_long_histories() {
    if !root_or_skip("the policy in BPF") {
        return;
    }
    let mut kernel = PolicyParity::load().unwrap();
    let mut observed = [0u32; REASONS];
    let (mut calls, mut moves) = (0u32, 0);
    for number in 0..CONNECTIONS {
        let mut history = History::open(&mut kernel, number);
        for _ in 0..SIGNALS {
            let decision = history.signal(&mut kernel);
            observed[decision.reason as usize] += 1;
            moves += decision.moved;
        }
        calls += 1 + SIGNALS;
    }
    assert!(calls > 20_000);
    // A comparison of calls that all do nothing would prove nothing.
    let [others @ .., queues, crowds] = &observed;
    assert!(others.iter().all(|count| *count > 1_000), "{observed:?}");
    // Only one of the policies observes queues, and what other paths give.
    assert!(*queues > 20 && *crowds > 0, "{observed:?}");
    assert!(moves > 1_000, "{moves}");
}

#[test]
fn the_kernel_takes_the_path_changer_and_its_verifier_has_room_to_spare() {
    if !root_or_skip("loading the path changer") {
        return;
    }
    let _loaded = HostProgram::load(None).unwrap();
    let programs = libbpf_rs::query::ProgInfoIter::default();
    let ours: Vec<_> = programs.filter(|program| program.name.to_string_lossy().starts_with("sidestep_host")).collect();
    let verified = ours.iter().map(|program| program.verified_insns).max().unwrap();
    println!("the verifier walked {verified} instructions of the path changer");
    // Kernels since 5.2 give up at a million: half of that stays. Older verifiers walk more: Linux 6.1 walks 427,000 where
    // 6.18 walks 321,000.
    assert!((1..500_000).contains(&verified), "{verified}");
}

/// A measurement, not a test: `make bench-policy` prints what a call of the policy costs in the kernel.
#[test]
#[ignore = "a measurement: make bench-policy"]
fn what_a_call_of_the_policy_costs() {
    if !root_or_skip("timing the policy in BPF") {
        return;
    }
    /// Time between two calls: in that a draw's table grows old; in a microsecond it does not.
    const APART: Span = Span::from_millis(20);
    const AT_ONCE: Span = Span::from_micros(1);
    let calls = [
        ("first", FIRST, APART),
        ("again", FIRST, AT_ONCE),
        ("SYN", SYN_RTO, APART),
        ("round", UNEVENTFUL, APART),
        ("open", OPEN, APART),
        ("signal", ROUND, APART),
        ("timeout", TIMEOUT, APART),
    ];
    let kernel = PolicyParity::load().unwrap();
    println!(
        "ns a call, medians of 101 runs\n{:<14} paths{}",
        "policy",
        calls.map(|(name, ..)| format!("{name:>8}")).concat()
    );
    for policy in [PolicyName::DelayWeighted, PolicyName::Exp3, PolicyName::Random, PolicyName::Paper] {
        for n_paths in [1, 3, 6, 8, 16] {
            let costs = calls.map(|(_, op, step)| {
                let mut runs: Vec<_> = (0..101).map(|seed| cost(&kernel, policy, n_paths, op, step, seed)).collect();
                runs.sort_by(f64::total_cmp);
                format!("{:>8.0}", runs[runs.len() / 2])
            });
            println!("{:<14} {n_paths:>5}{}", policy.to_string(), costs.concat());
        }
    }
}

/// What a call of the policy costs in ns, in the mean of a thousand, on a host whose paths have all been measured.
fn cost(kernel: &PolicyParity, policy: PolicyName, n_paths: u32, op: u32, step: Span, seed: u64) -> f64 {
    let mut random = Pcg32::new(seed, 5);
    let settings = PolicySettings { policy, ..PolicySettings::default() };
    let paths: Vec<_> = (0..n_paths)
        .map(|id| Path { weight: 20_000, rtt: Span::from_nanos(10_000_000), ..any_path(&mut random, id) })
        .collect();
    let now = Time::from_nanos(1_000_000_000);
    let shared = Arc::new(Shared::default());
    let round = |call: u64| Round {
        now: now + step * call,
        cwnd: Bytes::new(30_000),
        srtt: Span::from_nanos(12_000_000),
        mss: 1_440,
        in_flight: 10,
        delivered: call as u32 * 10,
        delivered_ce: 0,
        received: 0,
    };
    for draw in 0..64 {
        let mut neighbour = Connection::open_among(&settings, &paths, Some(shared.clone()), now, draw << 26).unwrap();
        for call in 1..4 {
            neighbour.handle_round(round(call), draw);
        }
    }
    let connection = Connection::open_among(&settings, &paths, Some(shared.clone()), now, random.next_u32()).unwrap();
    let mut call = Parity {
        op,
        random: random.next_u32(),
        n_paths,
        conn: *connection.raw(),
        round: round(4).to_raw(),
        ..Parity::default()
    };
    call.config = raw::Config::try_from(&settings).unwrap();
    for (slot, path) in call.paths.iter_mut().zip(&paths) {
        *slot = path.to_raw();
    }
    let mut context = Cost { step_ns: step.as_nanos(), delivered: 10, call, ..Cost::default() };
    kernel.cost(&mut context, &shared.words()).unwrap();
    context.ns as f64 / COST_CALLS as f64
}

#[test]
fn processors_that_learn_together_at_once_lose_no_step_and_always_draw_by_weights_that_add_up() {
    if !root_or_skip("sharing weights in BPF") {
        return;
    }
    const THREADS: u64 = 4;
    const CALLS: u64 = 500;
    const TIMES: u32 = 1_000;
    /// So small that no path falls behind, where it would be lifted.
    const LARGEST: u32 = 1_000;
    const N: u32 = 5;
    let kernel = PolicyParity::load().unwrap();
    let walk = |thread: u64| {
        let mut random = Pcg32::new(thread, 2);
        let mut sums = [0_u64; MAX_PATHS];
        for _ in 0..CALLS {
            // Mostly the same path, for processors to meet.
            let path = if random.next_u32().is_multiple_of(4) { random.next_u32() % N } else { 0 };
            let step = i64::from(random.next_u32() % (2 * LARGEST)) - i64::from(LARGEST);
            let mut context = Sharing { step, n_paths: N, path, times: TIMES, gamma_q16: 6_554, ..Sharing::default() };
            context.random = random.next_u32();
            kernel.share(&mut context).unwrap();
            sums[path as usize] = sums[path as usize].wrapping_add((step * i64::from(TIMES)) as u64);
            let weights = &context.exp3.log_weight[..N as usize];
            assert_eq!(weights.iter().max(), Some(&0));
            assert!(weights.iter().all(|weight| *weight >= -(10 << 32)), "{weights:?}");
            assert!(context.drawn < N);
            // Never less than what explores.
            assert!(u64::from(context.chance_q32) >= (1 << 32) * 6_553 / 65_536 / u64::from(N));
        }
        sums
    };
    let walk = &walk;
    let sums = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || walk(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let expected = std::array::from_fn(|path| sums.iter().fold(0_u64, |sum, of| sum.wrapping_add(of[path])));
    assert_eq!(kernel.shared().unwrap()[..MAX_PATHS], expected);
    assert_ne!(expected, [0; MAX_PATHS]);
}

#[test]
fn the_kernel_and_the_simulator_hash_flows_alike() {
    if !root_or_skip("the flow hash in BPF") {
        return;
    }
    let kernel = PolicyParity::load().unwrap();
    let mut random = Pcg32::new(1, 3);
    for number in 0..20_000_u32 {
        let key = any_key(&mut random, number);
        let (seed, choices) = (random.next_u32(), random.next_u32() >> (random.next_u32() % 33).min(31));
        for symmetry in [Symmetry::Directed, Symmetry::Symmetric] {
            let call = FlowHashCall {
                key: key.to_raw(),
                seed,
                symmetric: symmetry.to_raw(),
                choices,
                ..FlowHashCall::default()
            };
            let hash = flow_hash::hash(&key, seed, symmetry);
            let mut context = call;
            kernel.flow_hash(&mut context).unwrap();
            assert_eq!(context, FlowHashCall { hash, picked: flow_hash::pick(hash, choices), ..call }, "{key:?}");
        }
    }
}

/// A connection's past in both worlds.
struct History {
    random: Pcg32,
    native: Connection,
    /// Another one to the same destination, which only the native build knows of.
    neighbour: Connection,
    shared: Arc<Shared>,
    /// What was in it before the call.
    table: [u64; SHARED_WORDS],
    context: Parity,
}

impl History {
    fn open(kernel: &mut PolicyParity, number: u64) -> Self {
        let mut random = Pcg32::new(number, 1);
        let n = number as usize % MAX_PATHS + 1;
        let policy = PolicyName::ALL[number as usize % PolicyName::ALL.len()];
        let settings = any_settings(&mut random, policy);
        let paths: Vec<_> = (0..n).map(|id| any_path(&mut random, id as u32)).collect();
        let (now, draw) = (Time::from_nanos(u64::from(random.next_u32())), random.next_u32());
        let shared = Arc::new(Shared::from_words(any_words(&mut random, now)));
        let open = |at, draw| Connection::open_among(&settings, &paths, Some(shared.clone()), at, draw).unwrap();
        // The weights by which it drew may be used again, or are too old.
        let before = Span::from_nanos(u64::from(random.next_u32() % 2_000_000));
        let neighbour = open(Time::from_nanos(now.as_nanos().saturating_sub(before.as_nanos())), !draw);
        let table = shared.words();
        let native = open(now, draw);

        let mut context = Parity { op: OPEN, random: draw, n_paths: n as u32, ..Parity::default() };
        context.config = raw::Config::try_from(&settings).unwrap();
        context.round.now_ns = now.as_nanos();
        for (slot, path) in context.paths.iter_mut().zip(&paths) {
            *slot = path.to_raw();
        }
        // What was there before a connection was opened must not matter.
        context.conn.as_mut_bytes().fill(0xa5);
        let mut history = History { random, native, neighbour, shared, table, context };
        let decision = history.context.decision;
        history.compare(kernel, decision);
        history
    }

    /// Gives both worlds the same signal, some time later.
    fn signal(&mut self, kernel: &mut PolicyParity) -> raw::Decision {
        let random = &mut self.random;
        // Mostly a few milliseconds, now and then long enough for a back-off to end.
        let pause =
            1 + random.next_u32() % if random.next_u32().is_multiple_of(8) { 3_000_000_000 } else { 20_000_000 };
        let context = &mut self.context;
        let any = |random: &mut Pcg32| random.next_u32() >> (random.next_u32() % 32);
        let mut round = Round {
            now: Time::from_nanos(context.round.now_ns + u64::from(pause)),
            cwnd: Bytes::new(u64::from(any(random))),
            srtt: Span::from_nanos(u64::from(any(random))),
            mss: any(random),
            in_flight: random.next_u32() % 2,
            delivered: context.round.delivered,
            delivered_ce: context.round.delivered_ce,
            received: context.round.received.wrapping_add(random.next_u32() % 3 * 1_000),
        };
        context.random = random.next_u32();
        self.neighbour.handle_timeout(round, false, random.next_u32());
        self.table = self.shared.words();
        let decision = match random.next_u32() % 11 {
            0..=3 => {
                // Counters that wrap are part of it.
                let delivered = random.next_u32() % 100;
                let marked = [0, delivered / 2, delivered][random.next_u32() as usize % 3];
                context.op = ROUND;
                round.delivered = round.delivered.wrapping_add(delivered);
                round.delivered_ce = round.delivered_ce.wrapping_add(marked);
                self.native.handle_round(round, context.random)
            }
            4 | 5 => {
                context.op = RETRANSMIT;
                context.segs = random.next_u32() >> (random.next_u32() % 32);
                self.native.handle_retransmit(round, context.segs, context.random)
            }
            6 | 7 => {
                let quiet = Span::from_nanos(u64::from(random.next_u32() % 400_000_000));
                context.op = DUPLICATE;
                context.quiet_q16 = (quiet.as_nanos() * 65_536 / round.to_raw().rto_ns.max(200_000_000)) as u32;
                self.native.handle_duplicate(round, quiet, context.random)
            }
            8 => {
                context.op = CLOSE;
                self.native.close(round);
                context.round = round.to_raw();
                let decision = context.decision;
                self.compare(kernel, decision);
                return raw::Decision::default();
            }
            _ => {
                context.op = TIMEOUT;
                context.syn = random.next_u32() % 2;
                self.native.handle_timeout(round, context.syn == 1, context.random)
            }
        };
        context.round = round.to_raw();
        self.compare(kernel, as_raw(decision));
        self.context.decision
    }

    /// Makes the kernel do the call, and compares all that it wrote with the native outcome.
    fn compare(&mut self, kernel: &mut PolicyParity, decision: raw::Decision) {
        let expected = Parity { conn: *self.native.raw(), decision, ..self.context };
        kernel.call(&mut self.context, &mut self.table).unwrap();
        assert_eq!(self.table, self.shared.words());
        // The difference is easier to read in the fields than in the bytes.
        assert_eq!(self.context, expected);
        assert_eq!(self.context.as_bytes(), expected.as_bytes());
    }
}

fn any_settings(random: &mut Pcg32, policy: PolicyName) -> PolicySettings {
    let mut share = || Ratio::from_ppb(random.next_u32() % 1_000_000_001);
    let (gamma, ce_share, jitter) = (share().as_f64().max(1e-6), share(), share());
    let mut backoff = |first: u32| {
        let min = Span::from_nanos(u64::from(random.next_u32() % first));
        Backoff { min, max: min + Span::from_nanos(u64::from(random.next_u32())) }
    };
    let (congestion_backoff, silence_backoff) = (backoff(200_000_000), backoff(50_000_000));
    PolicySettings {
        policy,
        gamma,
        ce_share,
        ce_rounds: random.next_u32() % 4,
        ce_window: random.next_u32() % 70,
        retransmit_burst: random.next_u32() % 5,
        jitter,
        congestion_backoff,
        silence_backoff,
        reward: RewardName::ALL[random.next_u32() as usize % RewardName::ALL.len()],
        weights: WeightsName::ALL[random.next_u32() as usize % WeightsName::ALL.len()],
        next_rtos: random.next_u32() % 4,
        ack_quiet: Ratio::from_ppb(random.next_u32() % 100 * 10_000_000),
        settle_rounds: random.next_u32() % 4,
        rtt_guard: Span::from_nanos(u64::from(random.next_u32() >> (random.next_u32() % 32) & !1)),
        reorder_guard: random.next_u32().is_multiple_of(2),
        plb_idle_rounds: random.next_u32() % 4,
        plb_rounds: random.next_u32() % 6,
        plb_pause: Span::from_nanos(u64::from(random.next_u32())),
        mark_mask: 0,
        initial: InitialName::Available,
        gain_guard: random.next_u32().is_multiple_of(2),
        queue_rounds: random.next_u32() % 4,
        ..PolicySettings::default()
    }
}

/// Nothing learnt, something learnt, times shortly before `now`, or anything at all.
fn any_words(random: &mut Pcg32, now: Time) -> [u64; SHARED_WORDS] {
    match random.next_u32() % 4 {
        0 => [0; SHARED_WORDS],
        1 => [0; SHARED_WORDS].map(|_| u64::from(random.next_u32()) << (random.next_u32() % 4)),
        2 => [0; SHARED_WORDS].map(|_| now.as_nanos().saturating_sub(u64::from(random.next_u32()))),
        _ => [0; SHARED_WORDS].map(|_| random.next_u64()),
    }
}

fn any_path(random: &mut Pcg32, id: u32) -> Path {
    let any = |random: &mut Pcg32| random.next_u32() >> (random.next_u32() % 32);
    Path {
        id: 100 + id,
        weight: any(random),
        bdp: Bytes::new(u64::from(any(random))),
        rtt: Span::from_nanos(u64::from(any(random))),
        room: random.next_u32().is_multiple_of(2).then(|| Rate::from_bits_per_sec(u64::from(any(random)))),
    }
}

fn as_raw(decision: Decision) -> raw::Decision {
    raw::Decision {
        path: decision.path as u32,
        reason: decision.reason.map_or(0, |reason| reason as u32),
        moved: decision.moved.into(),
        decided: decision.decided.into(),
        stay: decision.stay.map_or(0, |stay| stay as u32 + 1),
        unused: 0,
    }
}
