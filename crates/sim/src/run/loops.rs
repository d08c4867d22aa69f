//! Traffic that goes on by itself: users who think between transfers, and streams of packets.

use rand_pcg::Pcg32;
use sidestep_engine::{FlowId, Move};
use sidestep_flow_hash::FlowKey;
use sidestep_net::{NodeId, Time};
use sidestep_scenario::{FIRST_SERVER_PORT, FLOW_STREAMS, Flow, Scenario, workload};

use super::{
    SimError,
    agenda::Task,
    capture::Endpoints,
    flows::{Namer, Planned, at},
    simulation::Simulation,
};

/// UDP's number among IP's protocols.
const UDP: u8 = 17;
/// Where the senders' ports of streams begin.
const CBR_PORT: u16 = 20_000;

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
pub(super) struct Stream {
    flow: usize,
    id: FlowId,
    ends: (NodeId, NodeId),
    key: FlowKey,
    /// When it sends its next packets.
    instants: Box<dyn Iterator<Item = Time> + Send>,
}

/// The connections that are planned, and those who begin more.
pub(super) struct Traffic<'a> {
    scenario: &'a Scenario,
    pub(super) planned: Vec<Planned>,
    namer: Namer<'a>,
    users: Vec<User>,
    streams: Vec<Stream>,
}

impl<'a> Traffic<'a> {
    /// The planned flows, without users and streams.
    pub(super) fn new(scenario: &'a Scenario, planned: Vec<Planned>) -> Self {
        Traffic { scenario, planned, namer: Namer::new(scenario), users: Vec::new(), streams: Vec::new() }
    }

    /// When a user who thinks from `since` on begins the next transfer; `None` if that is too late.
    fn think(&mut self, user: usize, since: Time) -> Option<Time> {
        let of = self.users.get_mut(user)?;
        let Some(Flow::ClosedLoop(flow)) = self.scenario.flows.get(of.flow) else { return None };
        let done = since + workload::exponential(flow.think, &mut of.random);
        (done < at(flow.stop.unwrap_or(self.scenario.duration))).then_some(done)
    }

    /// Plans the transfer that a user begins now; returns its index.
    fn plan_transfer(&mut self, user: usize, now: Time) -> Option<usize> {
        let of = self.users.get_mut(user)?;
        let Some(Flow::ClosedLoop(flow)) = self.scenario.flows.get(of.flow) else { return None };
        let size = flow.size.draw(&mut of.random);
        let (from, to) = (of.from, of.to);
        let connection = self.namer.connection(of.flow, flow.port, from, to);
        let name = (of.flow, format!("{}-{user}-{}", flow.name, of.transfers));
        of.transfers += 1;
        let stop = at(self.scenario.duration);
        self.planned.push(Planned::of_user(name, connection, (from, to), (now, stop), (size, user)));
        Some(self.planned.len() - 1)
    }

    /// The packet that a stream sends now: its flow, its size, and when the next one is due.
    fn next_packet(&mut self, index: usize) -> Option<(FlowId, u16, Option<Time>)> {
        let stream = self.streams.get_mut(index)?;
        let Some(Flow::Cbr(flow)) = self.scenario.flows.get(stream.flow) else { return None };
        Some((stream.id, flow.packet, stream.instants.next()))
    }
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
                        self.traffic.users.push(User { flow: number, from, to, transfers: 0, random });
                        self.think(self.traffic.users.len() - 1, at(flow.start));
                    }
                }
                Flow::Cbr(flow) => {
                    for (index, ((from, to), rate)) in flow.pairs.iter().zip(&flow.rates).enumerate() {
                        let network = &mut self.world.network;
                        let ecmp = self.systems.of_flow(number).ecmp;
                        let equal = self.routing.equal(&scenario.topology, network, *from, *to, ecmp);
                        let problem = |problem| SimError::NoRoute { number, flow: flow.name.clone(), problem };
                        let equal = equal.map_err(problem)?;
                        let ports =
                            (CBR_PORT.wrapping_add(index as u16), FIRST_SERVER_PORT.wrapping_add(number as u16));
                        let key = self.addressing.key((*from, *to), ports, UDP);
                        let hashes = self.addressing.hashes(&key);
                        let id = self.world.add_datagrams(equal.pick(hashes.0));
                        self.world.set_hashes(id, if ecmp { hashes } else { (0, 0) });
                        if let Some(capture) = &mut self.capture {
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
                                    fin: None,
                                    other: None,
                                },
                            );
                        }
                        let random = flow.random.then(|| Pcg32::new(seed.wrapping_add(index as u64), stream));
                        let between = (at(flow.start), at(flow.stop.unwrap_or(scenario.duration)));
                        let mut instants = workload::constant_rate(*rate, flow.packet, flow.bursts, between, random);
                        let first = instants.next();
                        let (ends, instants) = ((*from, *to), Box::new(instants));
                        self.traffic.streams.push(Stream { flow: number, id, ends, key, instants });
                        if let Some(first) = first {
                            self.agenda.at(first, Task::Send(self.traffic.streams.len() - 1));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Routes the streams whose route is gone as routers have it now.
    pub(super) fn route_streams_again(&mut self) {
        for index in 0..self.traffic.streams.len() {
            let Stream { flow, id, ends: (from, to), key, .. } = self.traffic.streams[index];
            let ecmp = self.systems.of_flow(flow).ecmp;
            let equal = self.routing.equal(&self.scenario.topology, &mut self.world.network, from, to, ecmp);
            let Ok(equal) = equal else { continue };
            let forward = equal.keep_or_pick(self.world.routes(id).0, self.addressing.hashes(&key).0);
            self.world.reroute(id, Move { forward: Some(forward), reverse: None });
        }
    }

    /// A user thinks from `since` on.
    pub(super) fn think(&mut self, user: usize, since: Time) {
        if let Some(done) = self.traffic.think(user, since) {
            self.agenda.at(done, Task::Think(user));
        }
    }

    /// A user begins a transfer.
    pub(super) fn transfer(&mut self, user: usize) -> Result<(), SimError> {
        match self.traffic.plan_transfer(user, self.world.now()) {
            Some(planned) => self.open(planned),
            None => Ok(()),
        }
    }

    /// A stream sends a packet, and sees when the next is due.
    pub(super) fn send(&mut self, index: usize) {
        let Some((id, packet, next)) = self.traffic.next_packet(index) else { return };
        self.world.send_datagram(id, packet);
        if let Some(next) = next {
            self.agenda.at(next, Task::Send(index));
        }
    }
}
