//! A scenario's traffic as a list of connections.

use sidestep_model::{
    Bytes, NodeId, Scenario, Span, Time,
    scenario::{BulkFlow, Flow},
};

/// A connection to be made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Planned {
    /// Name of its flow, unique.
    pub(super) flow: String,
    /// Name of the connection, unique.
    pub(super) connection: String,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) start: Time,
    /// When it ends if it still runs.
    pub(super) stop: Time,
    pub(super) size: Option<Bytes>,
}

/// Ports as the lab has them: servers' count from 7000, clients' from where Linux takes them.
const FIRST_SERVER_PORT: u16 = 7000;
const FIRST_CLIENT_PORT: u32 = 32_768;

/// All connections that a scenario lists, by the time of their start.
pub(super) fn plan(scenario: &Scenario) -> Vec<Planned> {
    let mut planned = Vec::new();
    for (number, flow) in scenario.flows.iter().enumerate() {
        if let Flow::Bulk(flow) = flow {
            plan_bulk(scenario, flow, number, &mut planned);
        }
    }
    planned.sort_by_key(|one: &Planned| one.start);
    planned
}

fn plan_bulk(scenario: &Scenario, flow: &BulkFlow, number: usize, planned: &mut Vec<Planned>) {
    let name = |node: NodeId| &scenario.topology.node(node).name;
    let port = flow.port.unwrap_or(FIRST_SERVER_PORT.wrapping_add(number as u16));
    let stop = flow.stop.unwrap_or(scenario.duration);
    for (pair, (from, to)) in flow.pairs.iter().enumerate() {
        for connection in 0..flow.connections {
            let client = FIRST_CLIENT_PORT + planned.len() as u32;
            planned.push(Planned {
                flow: format!("{}-{pair}-{connection}", flow.name),
                connection: format!("{}:{client}-{}:{port}", name(*from), name(*to)),
                from: *from,
                to: *to,
                start: at(flow.start),
                stop: at(stop),
                size: flow.size,
            });
        }
    }
}

fn at(since_start: Span) -> Time {
    Time::ZERO + since_start
}
