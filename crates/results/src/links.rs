//! Samples of links and reported paths, computed from the counters of each direction of each link.

mod rates;

use sidestep_net::{ArcId, Bytes, Direction, LinkId, NamedPath, Rate, Span, Time, Topology};
use sidestep_scenario::Scenario;

use self::rates::Rates;
use crate::{SampleKind, SamplePoint};

/// Turns the states of all arcs into samples of links and paths, for the lab as for the simulator.
#[derive(Debug)]
pub struct LinkSampler {
    links: Vec<SampledLink>,
    paths: Vec<ReportedPath>,
    /// Bytes sent by each arc at the last sample, by the arc's index.
    bytes: Vec<Bytes>,
    utilisation: Vec<f64>,
    rates: Rates,
    last: Time,
}

/// One direction of a link, at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArcState {
    /// Bytes that have left the queue since the start.
    pub sent: Bytes,
    /// Bytes in the queue.
    pub queue: Bytes,
    /// Packets dropped since the start.
    pub drops: u64,
    /// Packets marked CE since the start.
    pub marks: u64,
}

#[derive(Debug)]
struct SampledLink {
    arc: usize,
    name: String,
}

#[derive(Debug)]
pub(crate) struct ReportedPath {
    name: String,
    pub(crate) arcs: Vec<usize>,
}

/// The paths that results are reported for: the topology's, or else each link between routers. Each has its capacity, the lowest
/// rate on it, on the mean of the measured part of the run where events change it; zero if none is limited.
pub fn reported_paths(scenario: &Scenario) -> Vec<(String, Rate)> {
    let capacity = |path: &ReportedPath| Rates::of(scenario).lowest(&path.arcs, scenario.warmup, scenario.duration);
    reported(&scenario.topology).into_iter().map(|path| (path.name.clone(), capacity(&path))).collect()
}

/// Name of one direction of a link in results: the link's, and from which node to which.
pub fn arc_name(topology: &Topology, arc: ArcId) -> String {
    let name = |node| topology.node(node).name.as_str();
    format!("{}:{}>{}", topology.link(arc.link()).name, name(topology.tail(arc)), name(topology.head(arc)))
}

impl LinkSampler {
    /// A sampler of all links of a run of `scenario`.
    pub fn new(scenario: &Scenario) -> Self {
        let topology = &scenario.topology;
        let link = |arc: ArcId| SampledLink { arc: arc.index(), name: arc_name(topology, arc) };
        LinkSampler {
            links: topology.link_ids().flat_map(|id| directions(topology, id)).map(link).collect(),
            paths: reported(topology),
            bytes: vec![Bytes::default(); topology.arc_count()],
            utilisation: vec![0.0; topology.arc_count()],
            rates: Rates::of(scenario),
            last: Time::ZERO,
        }
    }

    /// Samples all links and paths at `now`; `arcs` holds each arc's state at its index. Takes no sample if no time has passed.
    pub fn sample<E>(
        &mut self,
        now: Time,
        arcs: &[ArcState],
        mut take: impl FnMut(&SamplePoint) -> Result<(), E>,
    ) -> Result<(), E> {
        let interval = now.since(self.last);
        if interval == Span::ZERO {
            return Ok(());
        }
        let used = |bytes: &[Bytes], arc: usize| match (arcs.get(arc), bytes.get(arc)) {
            (Some(state), Some(before)) => state.sent - *before,
            _ => Bytes::default(),
        };
        let rooms = self.rates.advance(self.last, now);
        for link in &self.links {
            let Some(state) = arcs.get(link.arc) else { continue };
            let used = used(&self.bytes, link.arc);
            let share = rooms.of(link.arc).map(|room| used.get() as f64 * 8.0 / room);
            self.utilisation[link.arc] = share.unwrap_or(0.0);
            let point = SamplePoint {
                time: now,
                interval,
                kind: SampleKind::Link,
                name: link.name.clone(),
                rate: Some(rate_of(used, interval)),
                utilisation: share,
                queue: Some(state.queue),
                drops: Some(state.drops),
                marks: Some(state.marks),
                ..SamplePoint::default()
            };
            take(&point)?;
        }
        for path in &self.paths {
            let states = || path.arcs.iter().filter_map(|arc| arcs.get(*arc));
            let by_use = |a: &usize, b: &usize| self.utilisation[*a].total_cmp(&self.utilisation[*b]);
            let Some(busiest) = path.arcs.iter().copied().max_by(by_use) else { continue };
            let point = SamplePoint {
                time: now,
                interval,
                kind: SampleKind::Path,
                name: path.name.clone(),
                rate: Some(rate_of(used(&self.bytes, busiest), interval)),
                utilisation: Some(self.utilisation[busiest]),
                queue: states().map(|state| state.queue).max(),
                drops: Some(states().map(|state| state.drops).sum()),
                marks: Some(states().map(|state| state.marks).sum()),
                ..SamplePoint::default()
            };
            take(&point)?;
        }
        for (bytes, state) in self.bytes.iter_mut().zip(arcs) {
            *bytes = state.sent;
        }
        self.last = now;
        Ok(())
    }
}

/// The mean rate of `bytes` in `interval`; zero if the interval is empty.
pub fn rate_of(bytes: Bytes, interval: Span) -> Rate {
    if interval == Span::ZERO {
        return Rate::default();
    }
    Rate::from_bits_per_sec((bytes.get() as f64 * 8.0 / interval.as_secs_f64()) as u64)
}

pub(crate) fn reported(topology: &Topology) -> Vec<ReportedPath> {
    let arcs = |link: LinkId| directions(topology, link).map(|arc| arc.index());
    if !topology.paths().is_empty() {
        let path = |named: &NamedPath| ReportedPath {
            name: named.name.clone(),
            arcs: named.links.iter().copied().flat_map(arcs).collect(),
        };
        return topology.paths().iter().map(path).collect();
    }
    let between_routers = |id: &LinkId| {
        let link = topology.link(*id);
        topology.is_router(link.a) && topology.is_router(link.b)
    };
    let path = |id| ReportedPath { name: topology.link(id).name.clone(), arcs: arcs(id).collect() };
    topology.link_ids().filter(between_routers).map(path).collect()
}

/// The directions that a link has.
fn directions(topology: &Topology, link: LinkId) -> impl Iterator<Item = ArcId> {
    let both = [Direction::AToB, Direction::BToA].map(|direction| link.arc(direction));
    both.into_iter().filter(|arc| topology.has_arc(*arc))
}
