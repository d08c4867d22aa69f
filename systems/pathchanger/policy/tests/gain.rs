//! A connection that has sent much leaves a path only for one that gives it more.

use std::sync::Arc;

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_net::{Bytes, Rate, Span, Time};
use sidestep_policy::{Connection, Decision, Path, PolicySettings, Reason, Round, Shared, Stay};

const MSS: u64 = 1_250;
/// Of each path: ten thousand segments a second.
const RATE: Rate = Rate::from_mbits(100);
const RTT: Span = Span::from_millis(20);
const ROUNDS_A_SECOND: u32 = 50;

/// A host, and what its connections learnt together.
struct Host {
    shared: Arc<Shared>,
    paths: Vec<Path>,
    random: Pcg32,
    settings: PolicySettings,
}

/// A connection with a steady rate, all of whose rounds have a mark or all none.
struct Flow {
    connection: Connection,
    /// Segments a round.
    rate: u32,
    now: Time,
    delivered: u32,
    marks: u32,
    srtt: Span,
}

/// How many segments a round this share of a path is.
fn segments(percent: u32) -> u32 {
    10_000 / ROUNDS_A_SECOND * percent / 100
}

impl Host {
    fn new(paths: u32, seed: u64) -> Self {
        let path = |id| Path::new(id, RATE, RTT);
        Host {
            shared: Arc::default(),
            paths: (0..paths).map(path).collect(),
            random: Pcg32::new(seed, 1),
            settings: PolicySettings { gain_guard: true, ..PolicySettings::default() },
        }
    }

    /// A connection on path `on` that has this share of it.
    fn open(&mut self, on: usize, percent: u32) -> Flow {
        let now = Time::from_nanos(3_600_000_000_000);
        let connection = loop {
            let draw = self.random.next_u32();
            let shared = Some(self.shared.clone());
            let connection = Connection::open_among(&self.settings, &self.paths, shared, now, draw).unwrap();
            if connection.path() == on {
                break connection;
            }
        };
        Flow { connection, rate: segments(percent), now, delivered: 1, marks: 0, srtt: RTT }
    }

    /// Some seconds of a flow that meets a mark in all rounds; its first move, if there is one.
    fn run(&mut self, flow: &mut Flow, seconds: u32) -> Option<Decision> {
        self.run_with(flow, seconds, 1)
    }

    /// The same with so many marks a round.
    fn run_with(&mut self, flow: &mut Flow, seconds: u32, marks: u32) -> Option<Decision> {
        (0..seconds * ROUNDS_A_SECOND).find_map(|_| {
            let decision = flow.round(marks, self.random.next_u32());
            decision.moved.then_some(decision)
        })
    }
}

impl Flow {
    fn round(&mut self, marks: u32, random: u32) -> Decision {
        self.now += Span::from_millis(1_000 / u64::from(ROUNDS_A_SECOND));
        self.delivered += self.rate;
        self.marks += marks;
        let round = Round {
            now: self.now,
            cwnd: Bytes::new(u64::from(self.rate) * MSS),
            srtt: self.srtt,
            mss: MSS as u32,
            in_flight: self.rate,
            delivered: self.delivered,
            delivered_ce: self.marks,
            received: 0,
        };
        self.connection.handle_round(round, random)
    }
}

/// How many of 200 hosts move a connection with this share of the first of two paths within some seconds, where so much of
/// both is not in use.
fn moved(percent: u32, rooms: [u64; 2], seconds: u32) -> usize {
    let moves = |seed: &u64| {
        let mut host = Host::new(2, *seed);
        let mut flow = host.open(0, percent);
        flow.connection.set_rooms(rooms.map(Rate::from_mbits).into_iter());
        let moved = host.run(&mut flow, seconds);
        assert!(
            moved.is_none_or(|decision| decision.reason == Some(Reason::Crowded) && decision.path == 1),
            "{moved:?}"
        );
        moved.is_some()
    };
    (0..200).filter(moves).count()
}

#[test]
fn a_connection_that_has_its_path_for_itself_stays_whatever_marks_it_meets() {
    // All rounds are marked in full: two of them were a signal.
    let stays = |gain_guard| {
        let mut host = Host::new(2, 1);
        host.settings.gain_guard = gain_guard;
        let mut flow = host.open(0, 95);
        flow.connection.set_rooms([Rate::ZERO, RATE].into_iter());
        (0..60 * ROUNDS_A_SECOND).all(|_| !flow.round(flow.rate, host.random.next_u32()).moved)
    };
    assert!(stays(true), "an idle path gives no more");
    assert!(!stays(false), "without the guard it leaves");
}

#[test]
fn two_that_share_a_path_leave_for_an_idle_one_about_one_at_a_time() {
    // From the second epoch on each leaves with a quarter's probability.
    let after = |seconds| moved(50, [0, 100], seconds);
    assert_eq!(after(2), 0, "nothing is known in the first two epochs");
    let (three, ten) = (after(4), after(12));
    assert!((40..110).contains(&three), "{three} of 200 within two epochs");
    assert!(ten > 170, "{ten} of 200 within ten");
}

#[test]
fn where_nobody_reports_one_that_shares_its_path_looks_rarely_and_goes_back_where_it_had_more() {
    // Of 200 hosts, those that look within some seconds, and of these those that go back from where they have this share.
    let looks = |percent: u32, seconds: u32, there: u32| {
        let (mut looked, mut went_back) = (0, 0);
        for seed in 0..200 {
            let mut host = Host::new(2, seed);
            let mut flow = host.open(0, percent);
            if host.run(&mut flow, seconds).is_some() {
                looked += 1;
                flow.rate = segments(there);
                went_back += usize::from(host.run(&mut flow, 7).is_some());
            }
        }
        (looked, went_back)
    };
    let (soon, _) = looks(50, 7, 50);
    let (late, back) = looks(50, 60, 10);
    assert!((20..90).contains(&soon) && (170..200).contains(&late), "{soon} and {late} of 200");
    assert!(back > late * 3 / 4, "{back} of {late} go back to where they had five times as much");
    let (_, back) = looks(50, 60, 95);
    assert_eq!(back, 0, "nobody leaves what it has for itself");
    assert_eq!(looks(95, 60, 50), (0, 0), "one that is alone has nothing to look for");
    assert_eq!(moved(50, [0, 0], 60), 0, "where all is reported there is nothing to look for");
}

#[test]
fn looks_of_one_that_finds_nothing_better_become_rarer_than_one_a_minute() {
    let in_minutes = |seed| {
        let mut host = Host::new(4, seed);
        let mut flow = host.open(0, 25);
        [(); 4].map(|()| (0..60 * ROUNDS_A_SECOND).filter(|_| flow.round(1, host.random.next_u32()).moved).count())
    };
    let mut moves = [0; 4];
    for seed in 0..100 {
        let one = in_minutes(seed);
        moves = std::array::from_fn(|minute| moves[minute] + one[minute]);
    }
    assert!(moves[0] < 300 && moves[1] < 100 && moves[3] < 60, "{moves:?} moves of 100 connections, by minute");
}

#[test]
fn a_path_that_has_less_room_than_the_connection_has_is_no_gain() {
    assert_eq!(moved(50, [0, 55], 30), 0, "an eighth more is the least");
    assert!(moved(50, [0, 60], 30) > 0);
    assert_eq!(moved(80, [0, 70], 30), 0);
    // An idle path counts for more where the own one is shared.
    assert_eq!((moved(90, [0, 80], 30), moved(60, [0, 50], 30)), (0, 0));
    assert!(moved(60, [0, 76], 30) > 0);
    // What connections leave of their own path, they may leave of another.
    assert_eq!(moved(50, [30, 80], 30), 0);
    assert!(moved(50, [30, 100], 30) > 0);
}

#[test]
fn marks_move_a_connection_that_shares_its_path_where_that_is_reported_to_have_room_but_not_where_nobody_reports() {
    let reason = |room: Option<u64>| {
        let mut host = Host::new(2, 3);
        let mut flow = host.open(0, 50);
        if let Some(room) = room {
            flow.connection.set_rooms([Rate::from_mbits(room); 2].into_iter());
        }
        let marks = flow.rate;
        host.run_with(&mut flow, 20, marks).and_then(|decision| decision.reason)
    };
    assert_eq!((reason(Some(50)), reason(Some(0))), (Some(Reason::Ecn), None));
    assert!(reason(None).is_none_or(|reason| reason == Reason::Crowded));
}

#[test]
fn a_path_that_comes_up_again_is_taken_without_measuring_anew() {
    // A quarter leaves in each epoch. A connection that measured its share anew would know nothing after two.
    let moved = |kept: u32| {
        let moves = |seed: &u64| {
            let mut host = Host::new(1, *seed);
            let mut flow = host.open(0, 50);
            flow.connection.set_rooms([Rate::ZERO].into_iter());
            assert!(host.run(&mut flow, 5).is_none());
            let paths = [kept, kept + 1].map(|id| Path::new(id, RATE, RTT));
            flow.connection.handle_paths(&paths, Some(Arc::default()), flow.now, 0).unwrap();
            flow.connection.set_rooms([Rate::ZERO, RATE].into_iter());
            host.run(&mut flow, 2).is_some()
        };
        (0..200).filter(moves).count()
    };
    assert!((50..130).contains(&moved(0)), "{}", moved(0));
    // The connection's own path is gone, and nothing is known of the one that it is on now.
    assert_eq!(moved(7), 0);
}

#[test]
fn what_other_connections_of_the_host_have_is_known() {
    // One has a tenth of its path, and another half of the other: to join that would give it a third.
    let moved = |others_percent| {
        let moves = |seed: &u64| {
            let mut host = Host::new(2, *seed);
            let (mut own, mut other) = (host.open(0, 10), host.open(1, others_percent));
            (0..20 * ROUNDS_A_SECOND).any(|_| {
                other.round(1, u32::MAX);
                own.round(1, host.random.next_u32()).reason == Some(Reason::Crowded)
            })
        };
        (0..50).filter(moves).count()
    };
    assert!(moved(50) > 20, "{}", moved(50));
    assert_eq!(moved(10), 0, "to join would give no more");
}

#[test]
fn a_connection_in_slow_start_stays_where_its_host_knows_of_no_other_path() {
    let stay = |knows: bool| {
        let mut host = Host::new(2, 5);
        if knows {
            host.open(1, 10).round(0, 0);
            host.open(1, 10).round(0, 0);
        }
        let mut flow = host.open(0, 20);
        // In the first half a second, in which not much is sent: the first draw waits for the back-off.
        let stays = (0..12).map(|_| flow.round(flow.rate, host.random.next_u32()).stay).collect::<Vec<_>>();
        stays.contains(&Some(Stay::NoGain))
    };
    assert!(stay(false) && !stay(true));
}

#[test]
fn a_queue_that_stands_in_slow_start_moves_connections_between_unlike_paths_only() {
    let moved = |rate: Rate, rtt: Span| {
        let mut host = Host::new(1, 5);
        host.paths.push(Path::new(1, rate, rtt));
        let mut flow = host.open(0, 1);
        flow.round(0, 0);
        flow.srtt = RTT * 4;
        let decisions = (0..40).map(|_| flow.round(0, host.random.next_u32()));
        decisions.filter_map(|decision| decision.moved.then_some(decision.reason)).next().flatten()
    };
    assert_eq!(moved(RATE, RTT), None);
    for (mbits, rtt_ms) in [(100, 10), (100, 40), (200, 20)] {
        let moved = moved(Rate::from_mbits(mbits), Span::from_millis(rtt_ms));
        assert_eq!(moved, Some(Reason::StandingQueue), "{mbits} Mbit/s, {rtt_ms} ms");
    }
    assert_eq!(moved(Rate::from_mbits(50), RTT), None, "a slower path is no better");
}

#[test]
fn hosts_whose_numbers_follow_each_other_begin_on_different_paths() {
    for (paths, hosts) in [(2, 2), (4, 4), (6, 6), (4, 8), (4, 16), (6, 12), (3, 9)] {
        for from in [0, 5, 1_000_000] {
            let mut counts = vec![0; paths as usize];
            for number in from..from + hosts {
                let mut host = Host::new(paths, u64::from(number));
                host.shared = Arc::new(Shared::of_host(number, paths as usize));
                let draw = host.random.next_u32();
                let shared = Some(host.shared.clone());
                let now = Time::from_nanos(3_600_000_000_000);
                let connection = Connection::open_among(&host.settings, &host.paths, shared, now, draw).unwrap();
                counts[connection.path()] += 1;
            }
            assert!(counts.iter().all(|count| *count == hosts / paths), "{paths} paths, from {from}: {counts:?}");
        }
    }
}
