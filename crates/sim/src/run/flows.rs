//! A scenario's traffic as a list of connections.

use sidestep_net::{Bytes, NodeId, Span, Time};
use sidestep_scenario::{BulkFlow, FIRST_SERVER_PORT, Flow, OpenLoopFlow, Scenario};

/// A connection to be made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Planned {
    /// Number of its flow in the scenario, and a name, unique.
    pub(super) number: usize,
    pub(super) flow: String,
    /// Name of the connection, unique, and that of its series if that is another: there the end that sends is named first.
    pub(super) connection: String,
    series: Option<String>,
    /// Of the client and of the server.
    pub(super) ports: (u16, u16),
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) start: Time,
    /// When it ends if it still runs.
    pub(super) stop: Time,
    pub(super) size: Option<Bytes>,
    /// The client asks with so much, and the server sends; `None`: the client sends.
    pub(super) request: Option<Bytes>,
    /// Whose it is: the index of a user in a closed loop.
    pub(super) user: Option<usize>,
}

impl Planned {
    /// A connection of the flow of this number, of a user in a closed loop.
    pub(super) fn of_user(
        (number, flow): (usize, String),
        (connection, ports): (String, (u16, u16)),
        (from, to): (NodeId, NodeId),
        (start, stop): (Time, Time),
        (size, user): (Bytes, usize),
    ) -> Planned {
        let (series, request) = (None, None);
        let (size, user) = (Some(size), Some(user));
        Planned { number, flow, connection, series, ports, from, to, start, stop, size, request, user }
    }

    /// The name of its series.
    pub(super) fn series(&self) -> &String {
        self.series.as_ref().unwrap_or(&self.connection)
    }
}

/// Clients' ports count from where Linux takes them.
const FIRST_CLIENT_PORT: u32 = 32_768;

/// All connections whose start is known beforehand, by that time; arrivals follow from `seed`.
pub(super) fn plan(scenario: &Scenario, seed: u64, late_starts: &[Span]) -> Vec<Planned> {
    let mut planned = Vec::new();
    let mut namer = Namer::new(scenario);
    for (number, flow) in scenario.flows.iter().enumerate() {
        match flow {
            Flow::Bulk(flow) => plan_bulk(scenario, flow, number, seed, &mut namer, &mut planned),
            Flow::OpenLoop(flow) => plan_open_loop(scenario, flow, number, seed, &mut namer, &mut planned),
            Flow::ClosedLoop(_) | Flow::Cbr(_) | Flow::Exec(_) => {}
        }
    }
    planned.sort_by_key(|one: &Planned| one.start);
    // Starts that follow one another are late together, as a host's programs wait for the same processor: so they are not drawn.
    for (one, late) in planned.iter_mut().zip(late_starts.iter().cycle()) {
        one.start = (one.start + *late).min(one.stop);
    }
    planned.sort_by_key(|one: &Planned| one.start);
    planned
}

/// Gives connections their names.
pub(super) struct Namer<'a> {
    scenario: &'a Scenario,
    connections: u32,
}

impl<'a> Namer<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        Namer { scenario, connections: 0 }
    }

    /// `c1:40112-s1:7000`, as the lab has it: the sending end first. Ports are used again after the last one.
    pub(super) fn connection(
        &mut self,
        number: usize,
        port: Option<u16>,
        from: NodeId,
        to: NodeId,
    ) -> (String, (u16, u16)) {
        let name = |node: NodeId| &self.scenario.topology.node(node).name;
        let port = port.unwrap_or(FIRST_SERVER_PORT.wrapping_add(number as u16));
        let client = FIRST_CLIENT_PORT + self.connections % (65_536 - FIRST_CLIENT_PORT);
        let again = match self.connections / (65_536 - FIRST_CLIENT_PORT) {
            0 => String::new(),
            round => format!("#{round}"),
        };
        self.connections += 1;
        (format!("{}:{client}{again}-{}:{port}", name(from), name(to)), (client as u16, port))
    }

    /// `s1:7000-c1:40112` of `c1:40112-s1:7000`.
    fn seen_from(&self, server: NodeId, port: u16, connection: &str) -> String {
        let server = format!("{}:{port}", self.scenario.topology.node(server).name);
        let client = connection.strip_suffix(&server).map_or(connection, |rest| rest.trim_end_matches('-'));
        format!("{server}-{client}")
    }
}

fn plan_bulk(
    scenario: &Scenario,
    flow: &BulkFlow,
    number: usize,
    seed: u64,
    namer: &mut Namer<'_>,
    planned: &mut Vec<Planned>,
) {
    let stop = flow.stop.unwrap_or(scenario.duration);
    let mut starts = flow.starts(number, seed).into_iter();
    for (pair, (from, to)) in flow.pairs.iter().enumerate() {
        for connection in 0..flow.connections {
            let (name, ports) = namer.connection(number, flow.port, *from, *to);
            planned.push(Planned {
                number,
                flow: format!("{}-{pair}-{connection}", flow.name),
                series: None,
                connection: name,
                ports,
                from: *from,
                to: *to,
                start: at(starts.next().unwrap_or(flow.start)),
                stop: at(stop),
                size: flow.size,
                request: None,
                user: None,
            });
        }
    }
}

fn plan_open_loop(
    scenario: &Scenario,
    flow: &OpenLoopFlow,
    number: usize,
    seed: u64,
    namer: &mut Namer<'_>,
    planned: &mut Vec<Planned>,
) {
    for (count, arrival) in flow.arrivals(number, seed, scenario.duration).enumerate() {
        let (from, to) = flow.pairs[arrival.pair];
        let (connection, ports) = namer.connection(number, flow.port, from, to);
        let series = flow.request.map(|_| namer.seen_from(to, ports.1, &connection));
        planned.push(Planned {
            number,
            flow: format!("{}-{count}", flow.name),
            series,
            connection,
            ports,
            from,
            to,
            start: arrival.at,
            stop: at(scenario.duration),
            size: Some(arrival.size),
            request: flow.request,
            user: None,
        });
    }
}

pub(super) fn at(since_start: Span) -> Time {
    Time::ZERO + since_start
}

#[cfg(test)]
mod tests {
    use sidestep_scenario::builder::{ScenarioBuilder, bulk};

    use super::*;

    #[test]
    fn flows_begin_late_by_the_times_given_in_turn_and_never_after_their_end() {
        let traffic = bulk("c1", "s1").with("connections", 4).with("start", "1 s").with("stop", "1008 ms");
        let scenario = ScenarioBuilder::new("4 s").parallel_paths(2).flow(traffic).build();
        let starts = |late: &[Span]| plan(&scenario, 1, late).iter().map(|one| one.start).collect::<Vec<_>>();
        assert_eq!(starts(&[]), [at(Span::from_secs(1)); 4]);
        let late = [7, 2, 9].map(Span::from_millis);
        assert_eq!(starts(&late), [1_002, 1_007, 1_007, 1_008].map(|millis| at(Span::from_millis(millis))));
    }
}
