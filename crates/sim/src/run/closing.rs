//! How a connection ends: what is recorded of it, and what is free again.

use std::net::SocketAddrV6;

use sidestep_engine::{FlowId, Half};
use sidestep_flow_hash::FlowKey;
use sidestep_net::{Bytes, NodeId, Time};
use sidestep_proto::tcp::Sender;
use sidestep_results::{FlowRecord, Recorder, Records, SubflowRecord, WriteError};

use super::{SimError, connections::Open, simulation::Simulation};
use crate::steering::read;

impl Simulation<'_> {
    /// A connection is over: records it.
    pub(super) fn finished(
        &mut self,
        flow: FlowId,
        completed: bool,
        writer: &mut Option<&mut Records>,
        recorder: &mut Recorder,
    ) -> Result<(), SimError> {
        let Some(open) = self.connections.open.remove(&flow) else {
            if let Some(open) = self.connections.closing.remove(&flow) {
                self.ended(flow, open);
            }
            return Ok(());
        };
        let now = self.world.now();
        let bytes = self.world.acked_bytes(flow);
        let planned = &self.traffic.planned[open.planned];
        let name = |node: NodeId| self.scenario.topology.node(node).name.clone();
        let flows = open.flows(flow);
        let subflows = self.subflow_records(flow, &open);
        let before = if now < Time::ZERO + self.scenario.warmup { bytes } else { open.acked_at_warmup };
        let record = FlowRecord {
            flow: planned.flow.clone(),
            from: name(planned.from),
            to: name(planned.to),
            connection: planned.connection.clone(),
            series: Some(planned.series().clone()),
            start: planned.start,
            end: now,
            sized: planned.size.is_some(),
            completed: completed && planned.size.is_some_and(|size| bytes >= size.get()),
            bytes: Bytes::new(bytes),
            bytes_in_window: Bytes::new(bytes - before.min(bytes)),
            retransmits: flows.clone().map(|flow| self.world.report(flow).retransmits).sum(),
            moves: self.world.steering.moves_of(flow),
            // Those of data are the outages'.
            timeouts: flows.clone().map(|flow| self.world.take_syn_timeouts(flow)).sum(),
            outages: flows.flat_map(|flow| self.world.take_outages(flow)).collect(),
        };
        record_flow(writer, recorder, &record)?;
        if let Some(writer) = writer {
            for subflow in &subflows {
                writer.subflow(recorder, subflow)?;
            }
        }
        let user = self.traffic.planned[open.planned].user;
        if completed && !self.world.is_over(flow) {
            if self.world.answers_of(flow).is_none() {
                // Its FIN was acknowledged before that of the other end came.
                let round = self.world.sender(flow).map(|sender| read(now, sender, open.mss));
                self.world.steering.close(flow, Half::Sender, round.unwrap_or_default());
            }
            self.connections.closing.insert(flow, open);
        } else {
            self.ended(flow, open);
        }
        if let Some(user) = user {
            self.think(user, now);
        }
        Ok(())
    }

    /// Nothing of a connection is sent any more: what it took is free again.
    pub(super) fn ended(&mut self, flow: FlowId, open: Open) {
        let now = self.world.now();
        let round = |sender: &Sender| read(now, sender, open.mss);
        let own = self.world.sender(flow).map(round).unwrap_or_default();
        self.connections.count(&self.world, flow, &open);
        let server = self.world.server(flow).map(round);
        self.world.steering.close(flow, Half::Sender, own);
        server.into_iter().for_each(|round| self.world.steering.close(flow, Half::Receiver, round));
        self.world.steering.end(flow);
        self.world.release(flow);
        self.addressing.release(self.traffic.planned[open.planned].from, &open.taken);
    }

    /// The subflows of an MPTCP connection; none of others.
    fn subflow_records(&self, first: FlowId, open: &Open) -> Vec<SubflowRecord> {
        if open.system.subflows().is_none() {
            return Vec::new();
        }
        let connection = &self.traffic.planned[open.planned].connection;
        let warm = self.world.now() >= Time::ZERO + self.scenario.warmup;
        let bytes = |segments: u32| Bytes::new(u64::from(segments) * u64::from(open.mss));
        let record = |(number, (key, before)): (u32, (&FlowKey, &u32))| {
            let flow = FlowId(first.0 + number);
            let report = self.world.report(flow);
            let segments = self.world.sender(flow).map_or(0, |sender| sender.una());
            SubflowRecord {
                connection: connection.clone(),
                subflow: number,
                local: SocketAddrV6::new(key.source, key.source_port, 0, 0),
                remote: SocketAddrV6::new(key.destination, key.destination_port, 0, 0),
                path: None,
                opened: self.world.ready_at(flow),
                bytes: bytes(segments),
                bytes_in_window: bytes(if warm { segments.saturating_sub(*before) } else { 0 }),
                retransmits: report.retransmits,
                srtt: report.srtt,
            }
        };
        (0..).zip(open.keys.iter().zip(&open.subflows_at_warmup)).map(record).collect()
    }
}

fn record_flow(
    writer: &mut Option<&mut Records>,
    recorder: &mut Recorder,
    record: &FlowRecord,
) -> Result<(), WriteError> {
    match writer {
        Some(writer) => writer.flow(recorder, record),
        None => {
            recorder.flow(record);
            Ok(())
        }
    }
}
