//! What is sampled of a run: links, caches and connections.

use sidestep_engine::{FlowId, Network, World};
use sidestep_net::{ArcId, Bytes, NodeId, Span, Time, Topology};
use sidestep_results::{ArcState, LinkSampler, Recorder, Records, SampleKind, SamplePoint, WriteError, rate_of};
use sidestep_scenario::Scenario;

use super::{SimError, connections::Connections, flows::Planned};
use crate::steering::Steer;

/// The samples until now.
pub(super) struct Sampling {
    links: LinkSampler,
    arcs: Vec<ArcState>,
    last: Time,
    /// Links crossed that the observer knows of.
    reported: u64,
}

impl Sampling {
    /// Nothing was sampled yet.
    pub(super) fn new(scenario: &Scenario) -> Self {
        Sampling { links: LinkSampler::new(scenario), arcs: Vec::new(), last: Time::ZERO, reported: 0 }
    }

    /// How many links packets crossed since this was asked last.
    pub(super) fn take_traversals(&mut self, network: &Network) -> u64 {
        let traversals = network.traversals();
        traversals - std::mem::replace(&mut self.reported, traversals)
    }

    /// Samples links, caches and connections as they are now.
    pub(super) fn sample(
        &mut self,
        (topology, planned): (&Topology, &[Planned]),
        world: &mut World<Steer>,
        connections: &mut Connections,
        writer: &mut Option<&mut Records>,
        recorder: &mut Recorder,
    ) -> Result<(), SimError> {
        let now = world.now();
        let interval = now.since(self.last);
        self.arcs.clear();
        for arc in 0..world.network.arc_count() as u32 {
            let (counters, queue) = world.network.arc(now, ArcId(arc));
            let drops = counters.drops.total() + world.network.discarded_at(ArcId(arc));
            self.arcs.push(ArcState { sent: counters.bytes - queue, queue, drops, marks: counters.ce_marked });
        }
        self.links.sample(now, &self.arcs, |point| record_sample(writer, recorder, point))?;
        sample_caches(topology, &world.network, (now, interval), writer, recorder)?;
        sample_stores(topology, &world.network, (now, interval), (planned, connections), writer, recorder)?;
        for (flow, open) in &mut connections.open {
            let acked = world.acked_bytes(*flow);
            let progress = acked.saturating_sub(open.acked_at_sample);
            open.acked_at_sample = acked;
            let steering = &world.steering;
            let (sends, path) = match world.answers_of(*flow) {
                Some(answers) => (answers, steering.path_of_answers(*flow).and_then(|path| open.back.get(path))),
                None => (*flow, steering.path_of(*flow).and_then(|path| open.paths.get(path))),
            };
            let (report, path) = (world.report(sends), path.map(|path| &path.name));
            let point = SamplePoint {
                time: now,
                interval,
                kind: SampleKind::Connection,
                name: planned[open.planned].series().clone(),
                rate: Some(rate_of(Bytes::new(progress), interval)),
                cwnd: report.cwnd,
                srtt: report.srtt,
                path: path.cloned().or(report.mode.map(str::to_owned)),
                ..SamplePoint::default()
            };
            record_sample(writer, recorder, &point)?;
        }
        self.last = now;
        Ok(())
    }
}

fn sample_caches(
    topology: &Topology,
    network: &Network,
    (now, interval): (Time, Span),
    writer: &mut Option<&mut Records>,
    recorder: &mut Recorder,
) -> Result<(), WriteError> {
    for cache in network.caches() {
        let name = |node: NodeId| &topology.node(node).name;
        let point = SamplePoint {
            time: now,
            interval,
            kind: SampleKind::Cache,
            name: format!("{}>{}", name(topology.tail(cache.arc)), name(topology.head(cache.arc))),
            utilisation: Some(cache.held.get() as f64 / cache.room.get().max(1) as f64),
            queue: Some(cache.held),
            drops: Some(cache.dropped),
            path: Some(cache.state.into()),
            ..SamplePoint::default()
        };
        record_sample(writer, recorder, &point)?;
    }
    Ok(())
}

/// What caches hold of each connection.
fn sample_stores(
    topology: &Topology,
    network: &Network,
    (now, interval): (Time, Span),
    (planned, connections): (&[Planned], &Connections),
    writer: &mut Option<&mut Records>,
    recorder: &mut Recorder,
) -> Result<(), WriteError> {
    for stored in network.stored() {
        let Some(open) = connections.open.get(&FlowId(stored.flow)) else { continue };
        let name = |node: NodeId| &topology.node(node).name;
        let connection = &planned[open.planned].connection;
        let (tail, head) = (topology.tail(stored.arc), topology.head(stored.arc));
        let point = SamplePoint {
            time: now,
            interval,
            kind: SampleKind::Stored,
            name: format!("{}>{} {connection}", name(tail), name(head)),
            queue: Some(stored.held),
            ..SamplePoint::default()
        };
        record_sample(writer, recorder, &point)?;
    }
    Ok(())
}

fn record_sample(
    writer: &mut Option<&mut Records>,
    recorder: &mut Recorder,
    point: &SamplePoint,
) -> Result<(), WriteError> {
    match writer {
        Some(writer) => writer.sample(recorder, point),
        None => {
            recorder.sample(point);
            Ok(())
        }
    }
}
