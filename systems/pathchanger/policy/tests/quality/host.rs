//! A host with a table of what its connections measure.

use std::sync::Arc;

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_net::{Bytes, Rate, Span, Time};
use sidestep_policy::{Connection, Path, PathLearnt, PolicyName, PolicySettings, Reason, Round, Shared};

pub const MSS: u32 = 1_448;

pub fn settings() -> PolicySettings {
    PolicySettings { policy: PolicyName::DelayWeighted, ..PolicySettings::default() }
}

/// Paths of 100 Mbit/s with these propagation round trips in milliseconds.
pub fn paths(rtts: &[u64]) -> Vec<Path> {
    let path = |(id, rtt): (u32, &u64)| Path::new(id, Rate::from_mbits(100), Span::from_millis(*rtt));
    (0..).zip(rtts).map(path).collect()
}

/// A host with its table, some time after its start.
pub struct Host {
    pub shared: Arc<Shared>,
    pub paths: Vec<Path>,
    pub now: Time,
    pub random: Pcg32,
}

impl Host {
    pub fn new(rtts: &[u64]) -> Self {
        let now = Time::from_nanos(3_600_000_000_000);
        Host { shared: Arc::default(), paths: paths(rtts), now, random: Pcg32::new(7, 7) }
    }

    pub fn open(&mut self) -> Connection {
        let draw = self.random.next_u32();
        Connection::open_among(&settings(), &self.paths, Some(self.shared.clone()), self.now, draw).unwrap()
    }

    /// A connection that begins on this path.
    pub fn open_on(&mut self, path: usize) -> Connection {
        loop {
            let connection = self.open();
            if connection.path() == path {
                return connection;
            }
        }
    }

    pub fn wait(&mut self, milliseconds: u64) {
        self.now += Span::from_millis(milliseconds);
    }

    pub fn round(&self, srtt_ms: u64, delivered: u32) -> Round {
        let srtt = Span::from_millis(srtt_ms);
        Round { now: self.now, cwnd: Bytes::new(14_600), srtt, mss: MSS, delivered, in_flight: 1, ..Round::default() }
    }

    /// A short transfer: the handshake and two round trips, each as long as `rtts` gives for its path; returns the path.
    pub fn transfer(&mut self, rtts: &[u64]) -> usize {
        let mut connection = self.open();
        let path = connection.path();
        for delivered in [0, 10, 20] {
            self.wait(1);
            connection.handle_round(self.round(rtts[path], delivered), 0);
        }
        path
    }

    /// `count` transfers.
    pub fn transfers(&mut self, count: usize, rtts: &[u64]) {
        (0..count).for_each(|_| {
            self.transfer(rtts);
        });
    }

    /// How many of a thousand connections begin on each path; nothing is measured on them.
    pub fn drawn(&mut self) -> Vec<usize> {
        let mut counts = vec![0; self.paths.len()];
        (0..1_000).for_each(|_| counts[self.open().path()] += 1);
        counts
    }

    /// Of a thousand connections whose SYNs leave now, those that begin on this path.
    pub fn begun_on(&mut self, path: usize) -> Vec<Connection> {
        let begin = |host: &mut Host| {
            let connection = host.open();
            connection.connect();
            connection
        };
        (0..1_000).map(|_| begin(self)).filter(|connection| connection.path() == path).collect()
    }

    /// What the host shows of its paths.
    pub fn learnt(&self) -> Vec<PathLearnt> {
        let paths: Vec<_> = self.paths.iter().map(Path::to_raw).collect();
        self.shared.learnt(&(&settings()).try_into().unwrap(), &paths, self.now)
    }

    /// Whether others leave this path alone.
    pub fn dead(&self, path: usize) -> bool {
        self.learnt()[path].dead
    }

    /// Puts a connection on a path where nothing arrives, and makes it meet a timeout.
    pub fn fail_on(&mut self, path: usize) -> Connection {
        let mut connection = self.open_on(path);
        self.wait(1_000);
        let decision = connection.handle_timeout(self.round(0, 0), true, 0);
        assert!(decision.moved && decision.reason == Some(Reason::SynTimeout));
        connection
    }
}
