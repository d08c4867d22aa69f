//! The rules of coupling by hand, and reassembly against a set.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sidestep_net::{Span, Time};

use super::{
    coupled::{Path, increase, lia, shrink},
    *,
};
use crate::{
    packet::{Kind, Packet},
    tcp::{self, Algorithm, Sender},
};

fn path(cwnd: f64, rtt: f64) -> Path {
    Path { cwnd, rtt, between_losses: 0.0 }
}

#[test]
fn lia_of_two_equal_paths_is_a_quarter_as_keen_as_reno_on_each() {
    // α = w_tot · (w/rtt²) / (2w/rtt)² = 20 · 10 / 20² = 1/2; α / w_tot = 1/40.
    let paths = [path(10.0, 1.0), path(10.0, 1.0)];
    assert_eq!(lia(&paths), (0.5, 20.0));
    assert!((increase(Coupling::Lia, &paths, 0, 1.0) - 1.0 / 40.0).abs() < 1e-12);
}

#[test]
fn lia_on_different_round_trips_follows_the_formula() {
    let paths = [path(20.0, 0.1), path(10.0, 0.05)];
    // max(20 / 0.01, 10 / 0.0025) = 4000; (200 + 200)² = 160000; α = 30 · 4000 / 160000 = 0.75.
    let (alpha, total) = lia(&paths);
    assert!((alpha - 0.75).abs() < 1e-12 && total == 30.0);
    assert!((increase(Coupling::Lia, &paths, 1, 2.0) - 2.0 * 0.75 / 30.0).abs() < 1e-12);
}

#[test]
fn olia_moves_window_from_the_widest_to_the_best_path() {
    let best = Path { cwnd: 5.0, rtt: 0.1, between_losses: 1_000.0 };
    let widest = Path { cwnd: 20.0, rtt: 0.1, between_losses: 100.0 };
    let paths = [best, widest];
    // (w/rtt²) / (Σ w/rtt)² = 500 / 250² = 0.008 and 2000 / 62500 = 0.032; ε = ±1/2, over the path's window.
    assert!((increase(Coupling::Olia, &paths, 0, 1.0) - (0.008 + 0.5 / 5.0)).abs() < 1e-12);
    assert!((increase(Coupling::Olia, &paths, 1, 1.0) - (0.032 - 0.5 / 20.0)).abs() < 1e-12);
    // Where the best is the widest nothing is moved.
    let paths = [Path { cwnd: 30.0, ..best }, widest];
    let sum = 500.0f64;
    assert!((increase(Coupling::Olia, &paths, 0, 1.0) - 3_000.0 / (sum * sum)).abs() < 1e-12);
}

#[test]
fn olia_leaves_subflows_beyond_the_64th_alone() {
    let (mut olia, one) = (Olia::new(70), path(10.0, 0.1));
    (0..70).for_each(|subflow| olia.set(subflow, Some(&one)));
    assert!(olia.increase(63, &one, 1.0) > 0.0 && olia.increase(64, &one, 1.0) == 0.0);
}

#[test]
fn balia_follows_the_draft() {
    let paths = [path(10.0, 0.1), path(40.0, 0.1)];
    // x = 100 and 400, a = 4 and 1.
    let sum = 500.0f64;
    let slow = 100.0 / (0.1 * sum * sum) * (5.0 / 2.0) * (8.0 / 5.0);
    let fast = 400.0 / (0.1 * sum * sum);
    assert!((increase(Coupling::Balia, &paths, 0, 1.0) - slow).abs() < 1e-12);
    assert!((increase(Coupling::Balia, &paths, 1, 1.0) - fast).abs() < 1e-12);
    // A loss takes half of the window, and half as much again at most: min(a, 1.5).
    assert_eq!(shrink(Coupling::Balia, &paths, 0), 10.0 - 5.0 * 1.5);
    assert_eq!(shrink(Coupling::Balia, &paths, 1), 20.0);
}

fn any_path() -> impl Strategy<Value = Path> {
    let path = (1.0..1_000.0f64, 0.0001..1.0f64, 0.0..1e6f64);
    path.prop_map(|(cwnd, rtt, between_losses)| Path { cwnd, rtt, between_losses })
}

fn fine() -> impl Strategy<Value = Option<Path>> {
    any_path().prop_map(Some)
}

fn paths() -> impl Strategy<Value = Vec<Path>> {
    prop::collection::vec(any_path(), 1..9)
}

/// A connection coupled by OLIA that always has data, and its subflows.
struct Rig {
    tcp: tcp::Config,
    config: Config,
    senders: Vec<Sender>,
    connection: Connection,
    now: Time,
}

impl Rig {
    fn new(subflows: usize) -> Rig {
        let tcp = tcp::Config { algorithm: Algorithm::Coupled, ..tcp::Config::rfc() };
        let config = Config::new(Coupling::Olia, Scheduler::RoundRobin, 1 << 20);
        let mut connection = Connection::new(&config, subflows);
        connection.supply(1 << 20);
        let mut senders = vec![Sender::new(&tcp); subflows];
        senders.iter_mut().for_each(Sender::open);
        Rig { tcp, config, senders, connection, now: Time::ZERO + Span::from_millis(1) }
    }

    /// Time goes on by `span`, and then a subflow gets an ACK, a loss or a timeout.
    fn step(&mut self, subflow: usize, event: u8, span: Span) {
        let sent = self.now;
        self.now += span;
        let sender = &self.senders[subflow];
        let ack = Packet { kind: Kind::Ack, sent, window: 1 << 20, ..Packet::default() };
        let outstanding = sender.in_flight();
        let packet = match event {
            _ if sender.state() == tcp::State::SynSent => Packet { kind: Kind::SynAck, ..ack },
            0 => return self.time_out(subflow),
            // The first segment is lost, and four after it arrive.
            1 if outstanding > 4 => Packet { seq: sender.una(), sack: [(1, 5), (0, 0), (0, 0)], ..ack },
            2 => Packet { seq: sender.una() + outstanding, ..ack },
            _ => Packet { seq: sender.una() + outstanding.min(2), ..ack },
        };
        self.handle(subflow, &packet);
    }

    fn handle(&mut self, subflow: usize, packet: &Packet) {
        let acked = self.senders[subflow].handle_ack(&self.tcp, self.now, packet);
        self.connection.handle_ack(&self.config, self.now, &mut self.senders, subflow, packet, &acked);
        self.send(subflow);
    }

    fn time_out(&mut self, subflow: usize) {
        if let Some((due, _)) = self.senders[subflow].next_timeout() {
            self.now = self.now.max(due);
            let signals = self.senders[subflow].handle_timeout(&self.tcp, self.now);
            self.connection.handle_signals(&self.config, &mut self.senders, subflow, signals);
            self.send(subflow);
        }
    }

    fn send(&mut self, subflow: usize) {
        while self.senders[subflow].poll_transmit(&self.tcp, self.now).is_some() {}
        while let Some(assigned) = self.connection.poll_transmit(&self.config, self.now, &mut self.senders, subflow) {
            while self.senders[assigned.subflow].poll_transmit(&self.tcp, self.now).is_some() {}
        }
    }
}

#[test]
fn under_the_scheduler_of_linux_a_burst_ends_with_the_window_and_the_next_goes_to_the_shortest_queue() {
    let mut rig = Rig::new(2);
    rig.config = Config::new(Coupling::Cubic, Scheduler::Linux, 1 << 20);
    rig.connection = Connection::new(&rig.config, 2);
    rig.connection.supply(1 << 20);
    let given = |rig: &Rig| [0, 1].map(|subflow| rig.senders[subflow].supplied());
    let answer = Packet { kind: Kind::SynAck, sent: rig.now, window: 45, ..Packet::default() };
    rig.now += Span::from_millis(10);
    rig.handle(0, &answer);
    // The connection has memory for 32 segments until the second subflow brings its own. Then the window has room for 45. The
    // burst that the first was given would have had 46.
    assert_eq!(given(&rig), [32, 0]);
    rig.handle(1, &answer);
    assert_eq!(given(&rig), [32, 13]);
    // The window moves by two segments: they do not go to where they came from, but to the queue that ends first.
    rig.now += Span::from_millis(10);
    rig.handle(0, &Packet { kind: Kind::Ack, seq: 2, data_seq: 2, window: 45, ..answer });
    assert_eq!(given(&rig), [32, 15]);
}

/// Few different values, so that subflows are often equally wide, or equally good.
fn coarse() -> impl Strategy<Value = Option<Path>> {
    let path = (1u8..5, 1u8..4, 0u8..4).prop_map(|(cwnd, rtt, between_losses)| Path {
        cwnd: f64::from(cwnd),
        rtt: f64::from(rtt) * 0.01,
        between_losses: f64::from(between_losses) * 10.0,
    });
    prop_oneof![4 => path.prop_map(Some), 1 => Just(None)]
}

proptest! {
    #[test]
    fn olia_by_changes_agrees_with_a_look_at_all_subflows(
        count in 1usize..33,
        changes in prop::collection::vec((0usize..32, prop_oneof![coarse(), fine()]), 0..3_000),
    ) {
        let (mut olia, mut present) = (Olia::new(count), vec![None; count]);
        for (subflow, path) in changes {
            let subflow = subflow % count;
            olia.set(subflow, path.as_ref());
            present[subflow] = path;
            let closed = Path { cwnd: 0.0, rtt: 1.0, between_losses: 0.0 };
            let paths: Vec<Path> = present.iter().map(|path| path.unwrap_or(closed)).collect();
            for which in [subflow, (subflow * 7 + 3) % count] {
                let Some(own) = present[which] else { continue };
                let (kept, scanned) = (olia.increase(which, &own, 2.0), increase(Coupling::Olia, &paths, which, 2.0));
                // Sums that thousands of changes were added to and taken from.
                prop_assert!((kept - scanned).abs() <= 1e-7 * scanned.abs().max(1e-3), "{} {}", kept, scanned);
            }
        }
    }

    #[test]
    fn a_connection_keeps_olia_up_to_date_through_acks_losses_timeouts_and_idle_times(
        events in prop::collection::vec((0usize..8, 0u8..8, 1u64..200), 0..400),
    ) {
        let mut rig = Rig::new(8);
        for (subflow, event, millis) in events {
            rig.step(subflow, event, Span::from_millis(millis));
            for subflow in 0..8 {
                if let Some((kept, scanned)) = rig.connection.audit(&rig.senders, subflow) {
                    prop_assert!((kept - scanned).abs() <= 1e-9 * scanned.abs().max(1e-3), "{} {}", kept, scanned);
                }
            }
        }
    }

    #[test]
    fn one_path_alone_grows_as_reno_does(cwnd in 1.0..1_000.0f64, rtt in 0.0001..1.0f64, acked in 1.0..3.0f64) {
        for coupling in [Coupling::Lia, Coupling::Olia, Coupling::Balia] {
            let grown = increase(coupling, &[path(cwnd, rtt)], 0, acked);
            prop_assert!((grown * cwnd / acked - 1.0).abs() < 1e-9, "{:?} {}", coupling, grown);
        }
    }

    #[test]
    fn lia_is_never_keener_than_reno_and_nothing_shrinks_below_two(paths in paths(), which in 0usize..8) {
        let which = which % paths.len();
        let reno = 1.0 / paths[which].cwnd;
        prop_assert!(increase(Coupling::Lia, &paths, which, 1.0) <= reno * (1.0 + 1e-12));
        for coupling in [Coupling::Reno, Coupling::Lia, Coupling::Olia, Coupling::Balia] {
            prop_assert!(shrink(coupling, &paths, which) >= 2.0);
            prop_assert!(increase(coupling, &paths, which, 1.0).is_finite());
        }
    }

    #[test]
    fn reassembly_agrees_with_a_set(segments in prop::collection::vec(0u32..400, 0..600)) {
        let (mut reassembly, mut seen) = (Reassembly::default(), BTreeSet::new());
        let mut duplicates = 0;
        for segment in segments {
            let before = reassembly.data_ack();
            let new = reassembly.handle_data(segment);
            duplicates += u64::from(!seen.insert(segment));
            let next = (0..).find(|seq| !seen.contains(seq)).unwrap_or(0);
            prop_assert_eq!(reassembly.data_ack(), next);
            prop_assert_eq!(new, next - before);
            prop_assert_eq!(reassembly.held() as usize, seen.range(next..).count());
        }
        prop_assert_eq!(reassembly.duplicates(), duplicates);
    }
}
