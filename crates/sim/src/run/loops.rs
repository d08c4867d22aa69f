//! Traffic that goes on by itself: users who think between transfers, and streams of packets.

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_model::{
    Bytes, NodeId, Span, Time,
    scenario::{FLOW_STREAMS, Flow},
    workload,
};

use super::{
    SimError,
    capture::Endpoints,
    flows::{Planned, at},
    simulation::{Action, Simulation},
};
use crate::engine::{FlowId, FlowSpec};

/// A user in a closed loop.
#[derive(Debug)]
pub(super) struct User {
    /// Index of the flow in the scenario.
    flow: usize,
    from: NodeId,
    to: NodeId,
    transfers: u32,
    random: Pcg32,
}

/// A stream of packets at a constant rate.
#[derive(Debug)]
pub(super) struct Stream {
    flow: usize,
    id: FlowId,
    /// When the burst ends that it is in.
    until: Time,
    sent: u64,
    random: Pcg32,
}

impl Simulation<'_> {
    /// Sets up users who think and streams that send.
    pub(super) fn begin_loops(&mut self, seed: u64) -> Result<(), SimError> {
        let scenario = self.scenario;
        for (number, flow) in scenario.flows.iter().enumerate() {
            let stream = FLOW_STREAMS + number as u64;
            match flow {
                Flow::ClosedLoop(flow) => {
                    let users = flow.pairs.iter().flat_map(|pair| (0..flow.users).map(move |_| *pair));
                    for (index, (from, to)) in users.enumerate() {
                        let random = Pcg32::new(seed.wrapping_add(index as u64), stream);
                        self.users.push(User { flow: number, from, to, transfers: 0, random });
                        self.think(self.users.len() - 1, at(flow.start));
                    }
                }
                Flow::Cbr(flow) => {
                    for (index, (from, to)) in flow.pairs.iter().enumerate() {
                        let network = &mut self.world.network;
                        let equal = self.routing.equal(&scenario.topology, network, *from, *to, self.setup.ecmp);
                        let problem = |problem| SimError::NoRoute { number, flow: flow.name.clone(), problem };
                        let forward = equal.map_err(problem)?.pick(self.random.next_u32());
                        let spec = FlowSpec { forward, reverse: forward, bytes: None, mss: 1 };
                        let id = self.world.add_flow(spec);
                        if let Some(capture) = &mut self.capture {
                            let (_, ports) = self.namer.connection(number, None, *from, *to);
                            capture.opened(
                                id,
                                Endpoints {
                                    from: *from,
                                    to: *to,
                                    ports,
                                    mss: 1,
                                    options: 0,
                                    multipath: false,
                                    last: None,
                                },
                            );
                        }
                        let random = Pcg32::new(seed.wrapping_add(index as u64), stream);
                        self.streams.push(Stream { flow: number, id, until: Time::ZERO, sent: 0, random });
                        self.at(at(flow.start), Action::Send(self.streams.len() - 1));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A user thinks from `since` on.
    pub(super) fn think(&mut self, user: usize, since: Time) {
        let Some(of) = self.users.get_mut(user) else { return };
        let Some(Flow::ClosedLoop(flow)) = self.scenario.flows.get(of.flow) else { return };
        let done = since + workload::exponential(flow.think, &mut of.random);
        if done < at(flow.stop.unwrap_or(self.scenario.duration)) {
            self.at(done, Action::Think(user));
        }
    }

    /// A user begins a transfer.
    pub(super) fn transfer(&mut self, user: usize) -> Result<(), SimError> {
        let Some(of) = self.users.get_mut(user) else { return Ok(()) };
        let Some(Flow::ClosedLoop(flow)) = self.scenario.flows.get(of.flow) else { return Ok(()) };
        let size = Some(flow.size.draw(&mut of.random));
        let (from, to, start) = (of.from, of.to, self.world.now());
        let (connection, ports) = self.namer.connection(of.flow, flow.port, from, to);
        let name = format!("{}-{user}-{}", flow.name, of.transfers);
        of.transfers += 1;
        let stop = at(self.scenario.duration);
        self.planned.push(Planned {
            number: of.flow,
            flow: name,
            connection,
            ports,
            from,
            to,
            start,
            stop,
            size,
            user: Some(user),
        });
        self.open(self.planned.len() - 1)
    }

    /// A stream sends a packet, and sees when the next is due.
    pub(super) fn send(&mut self, index: usize) {
        let now = self.world.now();
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Some(Flow::Cbr(flow)) = self.scenario.flows.get(stream.flow) else { return };
        let mut next = now + flow.rate.time_for(Bytes::new(u64::from(flow.packet)));
        let mut lasts = |mean: Span| if flow.random { workload::exponential(mean, &mut stream.random) } else { mean };
        if let Some((on, off)) = flow.bursts {
            if stream.until == Time::ZERO {
                stream.until = now + lasts(on);
            }
            if next >= stream.until {
                next = stream.until + lasts(off);
                stream.until = next + lasts(on);
            }
        }
        stream.sent += 1;
        let id = stream.id;
        self.world.send_cbr(id, flow.packet);
        // A rate that leaves no time between packets still lets time pass.
        let next = next.max(now + Span::from_nanos(1));
        if next < at(flow.stop.unwrap_or(self.scenario.duration)) {
            self.at(next, Action::Send(index));
        }
    }
}
