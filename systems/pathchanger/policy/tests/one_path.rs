//! Connections that can use one path only: they measure it, and what fails them keeps others off it.

use std::sync::Arc;

use sidestep_net::{Bytes, Rate, Span, Time};
use sidestep_policy::{Connection, Path, PathLearnt, PolicyName, PolicySettings, Reason, Round, Shared, Stay};

/// The bit of the first path, whose provider alone takes the connection's address.
const FIRST: u32 = 1;

fn settings() -> PolicySettings {
    PolicySettings { policy: PolicyName::DelayWeighted, ..PolicySettings::default() }
}

/// A host with a path through each provider.
struct Host {
    shared: Arc<Shared>,
    paths: Vec<Path>,
    now: Time,
    draws: u32,
}

impl Host {
    fn new(providers: u32) -> Self {
        let path = |id| Path::new(id, Rate::from_mbits(100), Span::from_millis(10));
        let now = Time::from_nanos(3_600_000_000_000);
        Host { shared: Arc::default(), paths: (0..providers).map(path).collect(), now, draws: 0 }
    }

    fn open(&mut self) -> Connection {
        self.draws = self.draws.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Connection::begin(&settings(), &self.paths, Some(self.shared.clone()), self.now, self.draws).unwrap()
    }

    /// A connection on the first path, which it cannot leave.
    fn bound(&mut self) -> Connection {
        loop {
            let mut connection = self.open();
            if connection.path() == 0 {
                connection.restrict(FIRST);
                return connection;
            }
        }
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now += Span::from_millis(milliseconds);
    }

    fn round(&self, srtt_ms: u64, delivered: u32) -> Round {
        let srtt = Span::from_millis(srtt_ms);
        Round { now: self.now, cwnd: Bytes::new(14_600), srtt, mss: 1_448, delivered, in_flight: 1, ..Round::default() }
    }

    /// How many of 400 connections begin on the first path.
    fn on_first(&mut self) -> usize {
        (0..400).filter(|_| self.open().path() == 0).count()
    }

    fn learnt(&self) -> Vec<PathLearnt> {
        let paths: Vec<_> = self.paths.iter().map(Path::to_raw).collect();
        self.shared.learnt(&(&settings()).try_into().unwrap(), &paths, self.now)
    }
}

#[test]
fn what_fails_a_connection_that_cannot_leave_is_avoided_until_something_is_delivered_on_it() {
    let mut host = Host::new(2);
    let mut stuck = host.bound();
    stuck.handle_round(host.round(10, 10), 0);
    host.wait(300);
    assert!(host.on_first() > 100);
    let decision = stuck.handle_timeout(host.round(10, 10), false, 0);
    assert_eq!((decision.moved, decision.decided, decision.stay), (false, false, Some(Stay::OnlyPath)));
    assert_eq!((decision.reason, stuck.raw().suppressed), (Some(Reason::Rto), 1));
    assert!(host.learnt()[0].failed.is_some() && host.learnt()[0].stranded);
    // A try would cost the connection that makes it.
    for _ in 0..20 {
        assert_eq!(host.on_first(), 0);
        host.wait(3_000);
    }
    // The retransmission arrives.
    stuck.handle_round(host.round(10, 20), 0);
    assert!(host.learnt()[0].failed.is_none() && host.learnt()[0].delivers);
    assert!(host.on_first() > 0);
    // What the failure added to its delay has faded.
    host.wait(20_000);
    assert!(host.on_first() > 100);
}

#[test]
fn the_syn_of_such_a_connection_finds_out_as_well() {
    let mut host = Host::new(2);
    let mut asking = host.bound();
    asking.connect();
    host.wait(1_000);
    let decision = asking.handle_timeout(host.round(0, 0), true, 0);
    assert_eq!((decision.reason, decision.stay), (Some(Reason::SynTimeout), Some(Stay::OnlyPath)));
    host.wait(2_000);
    assert_eq!(host.on_first(), 0);
}

#[test]
fn it_measures_its_path_for_others() {
    let mut host = Host::new(2);
    let mut bound = host.bound();
    for turn in 1..30 {
        host.wait(80);
        bound.handle_round(host.round(80, 10 * turn), 0);
    }
    let learnt = host.learnt();
    assert_eq!(learnt[0].delay.map(|delay| delay.as_nanos() / 10_000_000), Some(8), "{learnt:?}");
    assert!(learnt[0].factor < learnt[1].factor);
}

#[test]
fn a_path_that_carries_others_is_not_dead_for_one_timeout() {
    let mut host = Host::new(2);
    let (mut unlucky, mut lucky) = (host.bound(), host.bound());
    lucky.handle_round(host.round(10, 10), 0);
    host.wait(20);
    assert_eq!(unlucky.handle_timeout(host.round(10, 10), false, 0).stay, Some(Stay::OnlyPath));
    assert!(!host.learnt()[0].dead && !host.learnt()[0].stranded);
}

#[test]
fn without_an_agent_that_tries_it_a_connection_does_after_nine_minutes() {
    let mut host = Host::new(2);
    let mut stuck = host.bound();
    host.wait(1_000);
    stuck.handle_timeout(host.round(0, 0), true, 0);
    host.wait(500_000);
    assert_eq!(host.on_first(), 0);
    host.wait(60_000);
    assert!(host.on_first() > 0);
}

#[test]
fn a_connection_that_left_the_path_strands_none_there() {
    let mut host = Host::new(2);
    let mut leaving = host.bound();
    leaving.restrict(0);
    host.wait(1_000);
    assert!(leaving.handle_timeout(host.round(0, 0), true, 0).moved);
    assert!(!host.learnt()[0].stranded && host.on_first() == 0);
    host.wait(400);
    assert!(host.on_first() > 0, "one may try it, and leave it again");
}

#[test]
fn lost_acknowledgements_keep_others_off_for_four_seconds_only() {
    let mut host = Host::new(2);
    let mut receiving = host.bound();
    host.wait(1_000);
    let decision = receiving.handle_duplicate(host.round(10, 0), Span::from_secs(1), 0);
    assert_eq!((decision.reason, decision.stay), (Some(Reason::AckLoss), Some(Stay::OnlyPath)));
    assert_eq!(host.on_first(), 0);
    host.wait(5_000);
    assert!(host.on_first() > 0, "it is not measured that they arrive again");
}

#[test]
fn a_destination_with_one_path_shows_that_it_is_dead_and_timers_stay_as_they_were() {
    let mut host = Host::new(1);
    let mut conn = host.bound();
    conn.handle_round(host.round(10, 10), 0);
    let before = conn.syn_timeout(host.now);
    host.wait(300);
    assert_eq!(conn.handle_timeout(host.round(10, 10), false, 0).stay, Some(Stay::OnlyPath));
    assert!(host.learnt()[0].failed.is_some());
    assert_eq!(conn.syn_timeout(host.now), before);
    assert_eq!(host.on_first(), 400, "there is no other");
}

#[test]
fn where_all_others_are_dead_a_signal_says_so() {
    let mut host = Host::new(2);
    let mut congested = host.bound();
    congested.restrict(0);
    congested.handle_round(host.round(10, 10), 0);
    // On the other path a connection is stuck.
    let mut stuck = loop {
        let connection = host.open();
        if connection.path() == 1 {
            break connection;
        }
    };
    stuck.restrict(2);
    stuck.handle_round(host.round(10, 10), 0);
    host.wait(1_000);
    stuck.handle_timeout(host.round(10, 10), false, 0);
    stuck.handle_timeout(host.round(10, 10), false, 0);
    congested.handle_retransmit(host.round(10, 20), 1, 0);
    congested.handle_round(host.round(10, 20), 0);
    let decision = congested.handle_retransmit(host.round(10, 20), 9, 0);
    assert_eq!((decision.decided, decision.moved, decision.stay), (true, false, Some(Stay::OthersDead)));
}
