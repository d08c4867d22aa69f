//! Pooled credits are an interface's own, and bounded.

use super::*;

/// The most that are kept for an interface.
const KEPT: usize = 64;

impl Bench {
    /// Packets of a flow arrive one by one, as fast as the link takes them; returns how many go on.
    fn passed(&mut self, flow: u64, nonce: u32, packets: usize) -> usize {
        let mut passed = 0;
        for _ in 0..packets {
            passed += usize::from(self.data(flow, Nonces::one(Nonce(nonce))) == Fate::Forward);
            self.wait(Span::from_micros(1_200));
        }
        passed
    }
}

#[test]
fn credits_that_one_interface_has_brought_release_nothing_that_waits_for_another() {
    let mut bench = Bench::new(config());
    bench.handle_notice(4, Notice::SlowDown, 98);
    for _ in 0..10 {
        bench.handle_notice(3, Notice::SlowDown, 99);
    }
    assert_eq!(bench.passed(1, 98, 5), 1, "98 has brought one credit");
    assert_eq!(bench.held(), 4);
    for _ in 0..20 {
        bench.handle_notice(3, Notice::SlowDown, 99);
    }
    assert_eq!(bench.held(), 4, "ACKs of 99 go on to come");
    assert_eq!(bench.passed(2, 99, 40), 30, "its own credits are all there");
    bench.handle_notice(4, Notice::SlowDown, 98);
    assert_eq!(bench.router.occupancy_of(OUT, 1), Bytes::new(3 * 1_500), "one of 98 serves a flow that waits for 98");
}

#[test]
fn of_each_interface_a_number_of_credits_is_kept_and_no_more() {
    let mut bench = Bench::new(config());
    for nonce in [98, 99] {
        for _ in 0..1_000 {
            bench.handle_notice(3, Notice::SlowDown, nonce);
        }
    }
    assert_eq!(bench.passed(1, 98, 100), KEPT);
    assert_eq!(bench.passed(2, 99, 100), KEPT);
}

#[test]
fn a_cancel_forgets_the_credits_of_its_interface_alone() {
    let mut bench = Bench::new(config());
    for nonce in [98, 99] {
        for _ in 0..3 {
            bench.handle_notice(3, Notice::SlowDown, nonce);
        }
    }
    bench.handle_notice(3, Notice::Cancel, 99);
    bench.handle_notice(3, Notice::SlowDown, 99);
    assert_eq!(bench.passed(2, 99, 5), 1, "the ACK since then has brought one");
    assert_eq!(bench.passed(1, 98, 5), 3);
}
