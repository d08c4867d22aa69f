//! How paths do, by what the kernel knows of the connections on them; and what takes the place of a rate or a round-trip
//! time that is not given.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr, SocketAddrV6},
    time::{Duration, Instant},
};

use ipnet::IpNet;
use sidestep_hostd::paths::{DestinationPaths, HostPath};
use sidestep_linux::{
    LinuxError,
    sock_diag::{SockDiag, TcpInfo},
};
use sidestep_net::{Bytes, Rate, Span};

use crate::daemon::program::HostConnection;

/// What the kernel knows of each TCP connection of a network namespace.
#[derive(Clone, Debug, Default)]
pub struct Sockets(BTreeMap<(SocketAddr, SocketAddr), TcpInfo>);

/// How the connections on one path do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathQuality {
    /// How many there are.
    pub connections: u64,
    /// What they deliver together: the sum of their last delivery rates.
    pub rate: Rate,
    /// The part of `rate` that the path limits, and not the application.
    pub limited: Rate,
    /// The lowest round-trip time of any.
    pub min_rtt: Option<Span>,
    /// Payload sent, retransmissions included.
    pub sent: Bytes,
    /// Payload sent again.
    pub retransmitted: Bytes,
    /// The sum of the smoothed round-trip times of those that have one.
    pub(super) rtt_sum: Span,
    pub(super) with_rtt: u64,
}

/// Destination prefixes, among which the longest that covers an address is found.
#[derive(Clone, Debug, Default)]
pub struct Prefixes {
    nets: BTreeSet<IpNet>,
    lengths: BTreeSet<u8>,
}

/// The paths to destinations, by prefix and Path ID.
pub type ByPath<T> = BTreeMap<(IpNet, u32), T>;

impl Sockets {
    /// Asks the kernel for the connections of the calling thread's network namespace.
    pub fn read() -> Result<Self, LinuxError> {
        let mut sockets = Vec::new();
        let found = SockDiag::open()?.tcp_sockets(&mut sockets)?.iter();
        Ok(Sockets(found.map(|one| ((ends(one.local), ends(one.remote)), one.info)).collect()))
    }

    /// What is known of a connection; `None` if it has just closed.
    pub fn of(&self, connection: &HostConnection) -> Option<&TcpInfo> {
        self.0.get(&(canonical(connection.local), canonical(connection.remote)))
    }

    /// How the paths to `destinations` do, by what is known of these connections.
    pub fn by_path(&self, connections: &[HostConnection], destinations: &Prefixes) -> ByPath<PathQuality> {
        let mut found: ByPath<PathQuality> = BTreeMap::new();
        for connection in connections {
            let Some(destination) = destinations.covering(connection.remote.ip()) else { continue };
            let quality = found.entry((destination, connection.path)).or_default();
            quality.connections += 1;
            if let Some(info) = self.of(connection) {
                quality.add(info);
            }
        }
        found
    }
}

impl PathQuality {
    fn add(&mut self, info: &TcpInfo) {
        let sum = |a: Rate, b: Rate| Rate::from_bits_per_sec(a.bits_per_sec().saturating_add(b.bits_per_sec()));
        self.rate = sum(self.rate, info.delivery_rate());
        if !info.app_limited {
            self.limited = sum(self.limited, info.delivery_rate());
        }
        self.sent = self.sent + Bytes::new(info.bytes_sent);
        self.retransmitted = self.retransmitted + Bytes::new(info.bytes_retrans);
        self.min_rtt = self.min_rtt.into_iter().chain(info.min_rtt()).min();
        if info.srtt_us > 0 {
            self.rtt_sum = self.rtt_sum + Span::from_micros(info.srtt_us.into());
            self.with_rtt += 1;
        }
    }

    /// The mean of the smoothed round-trip times; `None` if there is none.
    pub fn rtt(&self) -> Option<Span> {
        (self.with_rtt > 0).then(|| Span::from_nanos(self.rtt_sum.as_nanos() / self.with_rtt))
    }

    /// The share of what was sent that was sent again; `None` if nothing was sent.
    pub fn loss(&self) -> Option<f64> {
        (self.sent > Bytes::default()).then(|| self.retransmitted.get() as f64 / self.sent.get() as f64)
    }
}

/// What was measured of paths whose rate or round-trip time is not given.
#[derive(Debug, Default)]
pub(super) struct Measured {
    paths: ByPath<Estimate>,
    at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Estimate {
    rate: Rate,
    rtt: Option<Span>,
}

/// How often paths are measured.
const INTERVAL: Duration = Duration::from_secs(5);
/// With each measurement an older one counts less by one part in this number: half of it after a minute.
const FADES: u64 = 16;
/// A path whose measured rate is lower counts for one part in this number of the largest rate.
const MIN: u64 = 4;

impl Measured {
    /// Whether it is time to measure paths, as one of `sets` needs it.
    pub(super) fn is_due(&self, sets: &[DestinationPaths]) -> bool {
        let needs = |path: &HostPath| path.capacity == Rate::default() || path.rtt == Span::ZERO;
        self.at.is_none_or(|at| at.elapsed() >= INTERVAL) && sets.iter().flat_map(|set| &set.paths).any(needs)
    }

    /// Takes note of how paths do now.
    pub(super) fn take(&mut self, now: &ByPath<PathQuality>) {
        self.at = Some(Instant::now());
        for estimate in self.paths.values_mut() {
            let (rate, rtt) = (estimate.rate.bits_per_sec(), estimate.rtt.map(Span::as_nanos));
            estimate.rate = Rate::from_bits_per_sec(rate - rate / FADES);
            estimate.rtt = rtt.map(|nanos| Span::from_nanos(nanos + nanos / FADES / 4));
        }
        for (key, quality) in now {
            let estimate = self.paths.entry(*key).or_default();
            estimate.rate = estimate.rate.max(quality.limited);
            estimate.rtt = estimate.rtt.into_iter().chain(quality.min_rtt).min();
        }
        self.paths.retain(|_, estimate| estimate.rate > Rate::default() || estimate.rtt.is_some());
    }

    /// The paths of `set`, with what was measured where nothing is given.
    ///
    /// What connections deliver is less than what a path could carry, and nothing is known of a path that no connection takes.
    /// So a path counts for at least a quarter of the largest rate of its set, and for all of it as long as nothing was
    /// measured: it is tried, and can show what it carries.
    pub(super) fn complete(&self, set: &DestinationPaths) -> DestinationPaths {
        let estimate = |path: &HostPath| self.paths.get(&(set.destination, path.id)).copied().unwrap_or_default();
        let known = |path: &HostPath| path.capacity.max(estimate(path).rate);
        let largest = set.paths.iter().map(known).max().unwrap_or_default();
        let complete = |path: &HostPath| {
            let Estimate { rate, rtt } = estimate(path);
            let least = Rate::from_bits_per_sec(largest.bits_per_sec() / MIN);
            let capacity = match (path.capacity, rate) {
                (Rate::ZERO, Rate::ZERO) => largest,
                (Rate::ZERO, rate) => rate.max(least),
                (given, _) => given,
            };
            let rtt = if path.rtt == Span::ZERO { rtt.unwrap_or_default() } else { path.rtt };
            HostPath { capacity, rtt, ..path.clone() }
        };
        DestinationPaths { destination: set.destination, paths: set.paths.iter().map(complete).collect() }
    }
}

impl FromIterator<IpNet> for Prefixes {
    fn from_iter<T: IntoIterator<Item = IpNet>>(nets: T) -> Self {
        let nets: BTreeSet<IpNet> = nets.into_iter().map(|net| net.trunc()).collect();
        let lengths = nets.iter().map(IpNet::prefix_len).collect();
        Prefixes { nets, lengths }
    }
}

impl Prefixes {
    /// The longest prefix that covers an address.
    pub fn covering(&self, address: IpAddr) -> Option<IpNet> {
        let cut = |length: &u8| IpNet::new(address, *length).ok().map(|net| net.trunc());
        self.lengths.iter().rev().filter_map(cut).find(|net| self.nets.contains(net))
    }
}

fn ends(address: SocketAddrV6) -> SocketAddr {
    canonical(address.into())
}

/// An address without scope, and IPv4 as such: the kernel's tables differ in how they write it.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_hostd::paths::PathRoute;

    fn info(megabits: u64, min_rtt_ms: u32, app_limited: bool) -> TcpInfo {
        TcpInfo {
            delivery_rate: megabits * 125_000,
            app_limited,
            min_rtt_us: min_rtt_ms * 1_000,
            srtt_us: min_rtt_ms * 2_000,
            bytes_sent: 1_000,
            bytes_retrans: 10,
            ..TcpInfo::default()
        }
    }

    fn quality(of: &[TcpInfo]) -> PathQuality {
        let mut quality = PathQuality::default();
        of.iter().for_each(|info| quality.add(info));
        quality
    }

    #[test]
    fn a_path_does_as_its_connections_do_together() {
        let quality = quality(&[info(10, 20, false), info(5, 30, true), TcpInfo::default()]);
        assert_eq!((quality.rate, quality.limited), (Rate::from_mbits(15), Rate::from_mbits(10)));
        assert_eq!((quality.min_rtt, quality.rtt()), (Some(Span::from_millis(20)), Some(Span::from_millis(50))));
        assert_eq!(quality.loss(), Some(0.01));
        assert_eq!((PathQuality::default().rtt(), PathQuality::default().loss()), (None, None));
    }

    #[test]
    fn the_longest_prefix_covers_an_address() {
        let prefixes: Prefixes =
            ["::/0", "fd02::/16", "fd02:9::1/32", "10.0.0.0/8"].map(|net| net.parse().unwrap()).into_iter().collect();
        for (address, net) in
            [("fd02:9::7", "fd02:9::/32"), ("fd02:8::7", "fd02::/16"), ("::1", "::/0"), ("10.1.1.1", "10.0.0.0/8")]
        {
            assert_eq!(prefixes.covering(address.parse().unwrap()), Some(net.parse().unwrap()));
        }
        assert_eq!(prefixes.covering("11.1.1.1".parse().unwrap()), None);
    }

    fn net() -> IpNet {
        "2001:db8::/32".parse().unwrap()
    }

    /// A set of paths with these given rates in Mbit/s, and no round-trip time.
    fn set(given: &[u64]) -> DestinationPaths {
        let path = |(id, megabits): (u32, &u64)| HostPath {
            id,
            slot: 0,
            name: format!("path-{id}"),
            route: PathRoute::Default,
            capacity: Rate::from_mbits(*megabits),
            usage: Rate::default(),
            rtt: Span::ZERO,
            mtu: None,
            sources: Vec::new(),
        };
        DestinationPaths { destination: net(), paths: (1..).zip(given).map(path).collect() }
    }

    fn rates(measured: &Measured, given: &[u64]) -> Vec<u64> {
        let paths = measured.complete(&set(given)).paths;
        paths.iter().map(|path| path.capacity.bits_per_sec() / 1_000_000).collect()
    }

    #[test]
    fn what_is_not_given_is_measured_and_a_path_that_no_connection_takes_is_taken_for_the_best() {
        let mut measured = Measured::default();
        assert!(measured.is_due(&[set(&[100, 0])]));
        assert_eq!(rates(&measured, &[0, 0]), [0, 0], "all are alike");
        assert_eq!(rates(&measured, &[100, 0]), [100, 100]);
        measured.take(&BTreeMap::from([((net(), 2), quality(&[info(40, 20, false)]))]));
        assert!(!measured.is_due(&[set(&[100, 0])]), "not again at once");
        assert_eq!(rates(&measured, &[100, 0]), [100, 40]);
        assert_eq!(rates(&measured, &[0, 0]), [40, 40]);
        assert_eq!(rates(&measured, &[0, 0, 300]), [300, 75, 300], "never below a quarter");
        assert_eq!(measured.complete(&set(&[0, 0])).paths[1].rtt, Span::from_millis(20));
        let given = |rate| DestinationPaths { paths: set(&[rate]).paths, ..set(&[]) };
        assert!(!Measured::default().is_due(&[DestinationPaths {
            paths: vec![HostPath { rtt: Span::from_millis(1), ..given(9).paths[0].clone() }],
            ..set(&[])
        }]));
    }

    #[test]
    fn what_an_application_limits_says_nothing_of_the_path_and_old_measurements_fade() {
        let mut measured = Measured::default();
        measured.take(&BTreeMap::from([((net(), 1), quality(&[info(40, 20, true)]))]));
        assert_eq!(rates(&measured, &[0, 0]), [0, 0]);
        measured.take(&BTreeMap::from([((net(), 1), quality(&[info(64, 20, false)]))]));
        for _ in 0..11 {
            measured.take(&BTreeMap::new());
        }
        assert_eq!(rates(&measured, &[0])[0], 31, "half after a minute");
        let rtt = measured.complete(&set(&[0])).paths[0].rtt;
        assert!((Span::from_millis(20)..Span::from_millis(25)).contains(&rtt), "{rtt}");
    }
}
