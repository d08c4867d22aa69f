//! The balancer in the kernel and the balancer in the simulator are the same function.

#[path = "../../../crates/flow-hash/tests/common/any_key.rs"]
mod any_key;

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_balance::{BalanceCall, MAX_PATHS as MAX_BALANCED, RawPath, RawSet};
use sidestep_linux::testing::root_or_skip;
use sidestep_semper::daemon::parity::{BALANCE_CALLS, BalanceParity};

use self::any_key::any_key;

#[test]
fn the_kernel_and_the_simulator_choose_a_million_flows_paths_alike() {
    if !root_or_skip("the balancer in BPF") {
        return;
    }
    let kernel = BalanceParity::load().unwrap();
    let mut random = Pcg32::new(1, 4);
    let mut calls = [BalanceCall::default(); BALANCE_CALLS];
    let mut chosen = [0_u32; MAX_BALANCED];
    for round in 0..1_000 {
        let set = any_set(&mut random);
        for (number, call) in calls.iter_mut().enumerate() {
            let key = any_key(&mut random, number as u32).to_raw();
            // Mostly all paths are live; sometimes a few are, or none.
            let live = if number % 2 == 0 { u32::MAX } else { random.next_u32() & random.next_u32() };
            *call = BalanceCall { set, key, live, last: random.next_u32() % 40, ..BalanceCall::default() };
        }
        let expected = calls.map(BalanceCall::answered);
        kernel.balance(&mut calls).unwrap();
        assert!(calls == expected, "round {round}: {set:?}");
        let n = set.n.min(MAX_BALANCED as u32);
        for call in &calls {
            assert!(if n == 0 { call.chosen == u32::MAX } else { call.chosen < n && call.next < n }, "{call:?}");
            chosen.get_mut(call.chosen as usize).into_iter().for_each(|count| *count += 1);
        }
    }
    assert!(chosen.iter().all(|count| *count > 2_000), "{chosen:?}");
}

/// Any set of paths, those included that the safe face refuses: none, too many, an unknown mode, weights of 0 only.
fn any_set(random: &mut Pcg32) -> RawSet {
    let weights = random.next_u32() % 4;
    let mut path = [RawPath::default(); MAX_BALANCED];
    for path in &mut path {
        let any = random.next_u32() >> (random.next_u32() % 32);
        path.id = random.next_u32() >> (random.next_u32() % 32);
        path.weight = [0, 1, u32::MAX, any][weights as usize];
        path.weight *= u32::from(!random.next_u32().is_multiple_of(4));
    }
    RawSet {
        generation: random.next_u64(),
        mode: random.next_u32() % 4,
        seed: random.next_u32(),
        n: random.next_u32() % 40,
        unused: 0,
        path,
    }
}
