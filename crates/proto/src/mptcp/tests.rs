//! Coupling of whole connections, and reassembly against a set.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sidestep_net::{MaybeTime, Span, Time};

use super::*;
use crate::{
    packet::{Flags, Kind, Packet},
    tcp::{self, Sender, State},
};

/// A connection that always has data, and its subflows.
#[derive(Clone)]
struct Rig {
    tcp: tcp::Config,
    config: Config,
    senders: Vec<Sender>,
    connection: Connection,
    now: Time,
    /// Congestion marks packets, and loses none.
    marks: bool,
}

impl Rig {
    fn new(subflows: usize) -> Rig {
        Rig::with(subflows, Coupling::Olia, &tcp::Config::rfc())
    }

    fn with(subflows: usize, coupling: Coupling, tcp: &tcp::Config) -> Rig {
        let tcp = tcp::Config { algorithm: coupling.tcp(), ..*tcp };
        let config = Config::new(coupling, Scheduler::RoundRobin, 1 << 20);
        let mut connection = Connection::new(&config, subflows);
        connection.supply(1 << 20);
        let mut senders = vec![Sender::new(&tcp); subflows];
        senders.iter_mut().for_each(Sender::open);
        Rig { tcp, config, senders, connection, now: Time::ZERO + Span::from_millis(1), marks: tcp.ecn }
    }

    /// Time goes on by `span`, and then a subflow gets an ACK, a loss or a timeout.
    fn step(&mut self, subflow: usize, event: u8, span: Span) {
        let sent = self.now;
        self.now += span;
        let sender = &self.senders[subflow];
        let ack = Packet { kind: Kind::Ack, sent: sent.into(), window: 1 << 20, ..Packet::default() };
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
            self.connection.handle_signals(&self.config, &self.senders, subflow, signals);
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
    let answer = Packet { kind: Kind::SynAck, sent: rig.now.into(), window: 45, ..Packet::default() };
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

const COUPLED: [Coupling; 3] = [Coupling::Lia, Coupling::Olia, Coupling::Balia];

fn profiles() -> [tcp::Config; 2] {
    [tcp::Config::rfc(), tcp::Config::linux()].map(|tcp| tcp::Config { ecn: false, ..tcp })
}

impl Rig {
    /// Centiseconds pass in each of which those subflows whose round trips end get an ACK for their windows; `trips` has a round
    /// trip for each subflow. Before an ACK `loses` says whether that reports that its first segment is lost.
    fn pass(&mut self, trips: &[u64], centiseconds: u64, loses: impl Fn(usize, &Sender) -> bool) {
        for _ in 0..centiseconds {
            self.now += CENTISECOND;
            let passed = self.now.as_nanos() / CENTISECOND.as_nanos();
            for (subflow, trip) in trips.iter().enumerate().filter(|(_, trip)| passed.is_multiple_of(**trip)) {
                let sender = &self.senders[subflow];
                let sent = Time::from_nanos(self.now.as_nanos() - trip * CENTISECOND.as_nanos());
                let (una, out) = (sender.una(), sender.in_flight());
                let ack =
                    Packet { kind: Kind::Ack, sent: sent.into(), seq: una + out, window: 1 << 20, ..Packet::default() };
                let marked = Flags::when(self.marks, Flags::ECE);
                let packet = match sender.state() {
                    State::SynSent => Packet { kind: Kind::SynAck, seq: 0, flags: marked, ..ack },
                    _ if out == 0 => continue,
                    State::Open if loses(subflow, sender) && self.marks => Packet { flags: marked, ..ack },
                    State::Open if loses(subflow, sender) => Packet { seq: una, sack: [(1, 4), (0, 0), (0, 0)], ..ack },
                    _ => ack,
                };
                self.handle(subflow, &packet);
            }
        }
    }

    /// Two subflows in congestion avoidance, with windows of twenty segments and more.
    fn avoiding(coupling: Coupling, tcp: &tcp::Config, trips: &[u64]) -> Rig {
        let mut rig = Rig::with(trips.len(), coupling, tcp);
        rig.now = Time::ZERO + Span::from_millis(600);
        let longest = trips.iter().max().unwrap();
        let slow_start = |_: usize, sender: &Sender| sender.ssthresh().is_infinite() && sender.cwnd() >= 40.0;
        rig.pass(trips, 40 * longest, slow_start);
        assert!(rig.senders.iter().all(|sender| sender.state() == State::Open && sender.ssthresh().is_finite()));
        rig
    }
}

const CENTISECOND: Span = Span::from_millis(10);

/// Two subflows of 60 and 20 ms, whose rates differ by more than a half, or of 60 and 50 ms, with windows of tens of packets. The
/// first loses a segment, or one is marked.
#[test]
fn a_loss_leaves_what_the_algorithm_says_in_each_profile() {
    let mut halves = 0;
    for (tcp, trips) in profiles().into_iter().flat_map(|tcp| [(tcp, [6, 2]), (tcp, [6, 5])]) {
        for (coupling, ecn) in COUPLED.into_iter().flat_map(|coupling| [(coupling, false), (coupling, true)]) {
            let mut rig = Rig::avoiding(coupling, &tcp::Config { ecn, ..tcp }, &trips);
            // Up to a tick before the end of the first's round trip.
            rig.pass(&trips, 6 * 5 * 4 - 1, |_, _| false);
            let [first, second] = [0, 1].map(|at| rig.senders[at].cwnd());
            let a = (second / trips[1] as f64 / (first / trips[0] as f64)).max(1.0);
            let kept = if coupling == Coupling::Balia { 1.0 - a.min(1.5) / 2.0 } else { 0.5 };
            halves += u32::from((kept - 0.5).abs() < 0.02);
            rig.pass(&trips, 1, |at, _| at == 0);
            let about = format!("{coupling:?}, {:?}, {ecn}, {trips:?}: {first} beside {second}", tcp.profile);
            let left = rig.senders[0].ssthresh();
            let reduced = if ecn { State::Reduced } else { State::Recovery };
            assert_eq!(rig.senders[0].state(), reduced, "{about}");
            let share = &rig.connection.subflows[0].share;
            assert_eq!((share.looked, share.credit), (MaybeTime::NONE, 0), "{about}: it looks anew");
            assert!((left - first * kept).abs() <= 1.0, "{about}: {left} and not {kept}");
            // What was sent meanwhile is acknowledged. That ACK may bring a segment.
            rig.pass(&trips, 6, |_, _| false);
            assert_eq!(rig.senders[0].state(), State::Open, "{about}");
            let grown = rig.senders[0].cwnd() - left;
            assert!((0.0..=1.0).contains(&grown), "{about}: {left} becomes {}", rig.senders[0].cwnd());
        }
    }
    assert_eq!(halves, 16, "the shares of LIA and OLIA alone are halves");
}

/// One subflow of 60 ms whose window grows from twenty segments.
#[test]
fn a_subflow_alone_grows_by_a_segment_in_a_round_trip() {
    for (tcp, coupling) in profiles().into_iter().flat_map(|tcp| COUPLED.map(|coupling| (tcp, coupling))) {
        let mut rig = Rig::avoiding(coupling, &tcp, &[6]);
        let before = rig.senders[0].cwnd();
        rig.pass(&[6], 6 * 50, |_, _| false);
        let grown = rig.senders[0].cwnd() - before;
        // It looks less than once in a round trip, and its window has grown meanwhile.
        assert!((47.0..=51.0).contains(&grown), "{coupling:?}, {:?}: {grown} in 50 round trips", tcp.profile);
    }
}

/// Two subflows of 60 ms, of which one is in a recovery, then times out, or has nothing to send.
#[test]
fn a_subflow_that_is_idle_or_timed_out_does_not_count_and_one_in_recovery_does_with_its_threshold() {
    for tcp in profiles() {
        let trips = [6, 6];
        let both = Rig::avoiding(Coupling::Lia, &tcp, &trips);
        let counted = |rig: &Rig| rig.connection.shared.sums.count();
        assert_eq!(counted(&both), 2);
        // In recovery it counts: with the window that it will have.
        let mut rig = both.clone();
        let threshold = rig.senders[1].cwnd() / 2.0;
        rig.pass(&trips, 6, |at, _| at == 1);
        assert_eq!(rig.senders[1].state(), State::Recovery);
        let path = |rig: &Rig| rig.connection.subflows[1].path(rig.now, &rig.senders[1]);
        let window = path(&rig).unwrap().window as f64 / 1_448.0;
        assert!((window - threshold).abs() <= 1.0, "{window} beside {threshold}");
        // After a timeout it does not, although it is not stale yet.
        rig.config.stale_after = 2;
        while rig.senders[1].state() != State::Loss {
            rig.time_out(1);
        }
        assert_eq!(path(&rig), None);
        // The next timeout is not another loss.
        let noted = rig.connection.subflows[1].share;
        rig.time_out(1);
        assert_eq!((rig.senders[1].backoff(), rig.connection.subflows[1].share), (2, noted));
        rig.pass(&[6, u64::MAX], 24, |_, _| false);
        assert_eq!(counted(&rig), 1);
        // All is acknowledged, and no more is given to it.
        let mut rig = both.clone();
        rig.connection.subflows[1].ready_at = Time::MAX;
        rig.pass(&trips, 6, |_, _| false);
        assert_eq!(rig.senders[1].in_flight(), 0);
        rig.pass(&trips, 18, |_, _| false);
        assert_eq!(counted(&rig), 2, "not idle for 200 ms");
        rig.pass(&trips, 24, |_, _| false);
        assert_eq!(counted(&rig), 1);
    }
}

/// One subflow of 60 ms of Linux, of which a segment only seemed lost: the answer echoes when it was sent first.
#[test]
fn what_was_acknowledged_before_a_needless_recovery_counts_on() {
    let mut rig = Rig::avoiding(Coupling::Olia, &profiles()[1], &[6]);
    let between = |rig: &Rig| rig.connection.subflows[0].path(rig.now, &rig.senders[0]).unwrap().between_losses / 1_448;
    let (before, window) = (between(&rig), rig.senders[0].cwnd());
    let sent = rig.now;
    rig.pass(&[6], 6, |_, _| true);
    assert_eq!((rig.senders[0].state(), between(&rig)), (State::Recovery, before));
    let (sender, now) = (&rig.senders[0], rig.now);
    let (seq, out) = (sender.next(), sender.in_flight());
    rig.now = now + Span::from_millis(20);
    rig.handle(0, &Packet { kind: Kind::Ack, sent: sent.into(), seq, window: 1 << 20, ..Packet::default() });
    assert_eq!(rig.senders[0].counters().unwrap().full_undo, 1);
    assert!(rig.senders[0].cwnd() >= window);
    assert_eq!(between(&rig), before + u64::from(out));
}

proptest! {
    #[test]
    fn whatever_happens_sums_are_of_the_last_round_trip_and_windows_of_linux_are_whole(
        which in 0usize..6,
        events in prop::collection::vec((0usize..8, 0u8..8, 1u64..200), 0..400),
    ) {
        let mut rig = Rig::with(8, COUPLED[which / 2], &profiles()[which % 2]);
        for (subflow, event, millis) in events {
            rig.step(subflow, event, Span::from_millis(millis));
            let (sender, own) = (&rig.senders[subflow], &rig.connection.subflows[subflow]);
            prop_assert!(sender.cwnd() >= 1.0 && sender.ssthresh() >= 2.0);
            prop_assert!(!sender.is_linux() || sender.cwnd().fract() == 0.0);
            if own.share.looked == rig.now.into() {
                prop_assert!(rig.now.since(rig.connection.shared.added.get().unwrap()) <= sender.srtt().unwrap());
            }
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
