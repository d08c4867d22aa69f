//! Printing a scenario as TOML with everything filled in.

use std::fmt::{self, Write as _};

use sidestep_net::{
    LinkId, NodeId, Rate, Span, Time, Topology,
    document::{list, quoted},
    topology_file,
};

use super::{
    Arrivals, BulkFlow, CbrFlow, Change, ClosedLoopFlow, Effect, Event, EventDirection, ExecFlow, Flow, Impairment,
    OpenLoopFlow, Periods, Scenario, Transport,
};

use crate::workload::Arrival;

/// `scenario` as TOML that reads as the same scenario.
pub(crate) fn scenario(scenario: &Scenario) -> String {
    let Scenario { name, seed, duration, warmup, sample, systems, topology, .. } = scenario;
    let Scenario { tcp, tables, routing, paths, flows, events, impairments, .. } = scenario;
    let mut out = Table::default();
    out.text("name", name).value("seed", seed);
    if scenario.repetition > 0 {
        out.value("repetition", scenario.repetition);
    }
    out.text("duration", duration).text("warmup", warmup).text("sample", sample);
    out.value("systems", list(systems));
    out.table("tcp", tcp).table("routing", routing).table("paths", paths);
    // The tables of systems, each under its key.
    out.0.push('\n');
    out.0.push_str(&toml::to_string(tables).unwrap_or_default());
    out.0.push('\n');
    out.0.push_str(&topology_file::print(topology));
    for flow in flows {
        match flow {
            Flow::Bulk(flow) => print_bulk(&mut out, topology, flow),
            Flow::Exec(flow) => print_exec(&mut out, topology, flow),
            Flow::OpenLoop(flow) => print_open_loop(&mut out, topology, flow),
            Flow::ClosedLoop(flow) => print_closed_loop(&mut out, topology, flow),
            Flow::Cbr(flow) => print_cbr(&mut out, topology, flow),
        }
    }
    for event in events {
        print_event(&mut out, topology, event);
    }
    for impairment in impairments {
        print_impairment(&mut out, topology, impairment);
    }
    out.0
}

#[derive(Default)]
struct Table(String);

impl Table {
    fn header(&mut self, header: &str) -> &mut Self {
        let _ = write!(self.0, "\n{header}\n");
        self
    }

    /// A table of settings that print themselves.
    fn table(&mut self, name: &str, settings: &impl serde::Serialize) -> &mut Self {
        let text = toml::to_string(settings).unwrap_or_default();
        self.header(&format!("[{name}]"));
        self.0.push_str(&text);
        self
    }

    fn value(&mut self, key: &str, value: impl fmt::Display) -> &mut Self {
        let _ = writeln!(self.0, "{key} = {value}");
        self
    }

    fn text(&mut self, key: &str, value: impl fmt::Display) -> &mut Self {
        self.value(key, quoted(&value.to_string()))
    }

    fn optional(&mut self, key: &str, value: Option<impl fmt::Display>) -> &mut Self {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }
}

/// `kind`, `name` and `pairs`.
fn print_flow<'t>(
    out: &'t mut Table,
    topology: &Topology,
    kind: &str,
    name: &str,
    pairs: &[(NodeId, NodeId)],
) -> &'t mut Table {
    let host = |id| topology.node(id).name.as_str();
    let pairs: Vec<String> = pairs.iter().map(|(from, to)| list([host(*from), host(*to)])).collect();
    out.header("[[flow]]").text("kind", kind).text("name", name);
    out.value("pairs", format_args!("[{}]", pairs.join(", ")))
}

fn print_transport(out: &mut Table, port: Option<u16>, transport: &Transport) {
    if let Some(port) = port {
        out.value("port", port);
    }
    out.optional("system", transport.system.as_ref());
    if let Some(tcp) = transport.tcp.as_ref().and_then(|tcp| toml::Value::try_from(tcp).ok()) {
        out.value("tcp", tcp);
    }
}

fn print_open_loop(out: &mut Table, topology: &Topology, flow: &OpenLoopFlow) {
    match &flow.arrivals {
        Arrivals::Poisson { rate, shares, size } => {
            print_flow(out, topology, "poisson", &flow.name, &flow.pairs);
            // `{:?}` always prints a point or an exponent, as TOML wants it of a float.
            out.value("rate", format_args!("{rate:?}")).value("size", size);
            if !shares.is_empty() {
                out.value("shares", format_args!("{shares:?}"));
            }
            out.optional("request", flow.request);
            out.text("start", flow.start).optional("stop", flow.stop);
        }
        Arrivals::Listed(arrivals) => {
            let host = |id| topology.node(id).name.as_str();
            let transfer = |arrival: &Arrival| {
                let (from, to) = *flow.pairs.get(arrival.pair)?;
                let (size, start) = (arrival.size.to_string(), arrival.at.since(Time::ZERO).to_string());
                Some(list([host(from), host(to), &size, &start]))
            };
            let transfers: Vec<String> = arrivals.iter().filter_map(transfer).collect();
            out.header("[[flow]]").text("kind", "list").text("name", &flow.name);
            out.value("transfers", format_args!("[\n  {},\n]", transfers.join(",\n  ")));
        }
    }
    print_transport(out, flow.port, &flow.transport);
}

fn print_closed_loop(out: &mut Table, topology: &Topology, flow: &ClosedLoopFlow) {
    print_flow(out, topology, "closed-loop", &flow.name, &flow.pairs);
    out.value("users", flow.users).text("think", flow.think).value("size", &flow.size);
    out.text("start", flow.start).optional("stop", flow.stop);
    print_transport(out, flow.port, &flow.transport);
}

fn print_cbr(out: &mut Table, topology: &Topology, flow: &CbrFlow) {
    print_flow(out, topology, "cbr", &flow.name, &flow.pairs);
    match flow.rates.as_slice() {
        [first, rest @ ..] if rest.iter().all(|rate| rate == first) => out.text("rate", first),
        rates => out.value("rate", list(rates.iter().map(Rate::to_string))),
    };
    out.value("packet", flow.packet);
    if let Some((on, off)) = flow.bursts {
        out.text("on", on).text("off", off);
    }
    out.value("random", flow.random).text("start", flow.start).optional("stop", flow.stop);
}

fn print_bulk(out: &mut Table, topology: &Topology, flow: &BulkFlow) {
    print_flow(out, topology, "bulk", &flow.name, &flow.pairs).value("connections", flow.connections);
    out.text("start", flow.start);
    if flow.start_jitter > Span::ZERO {
        out.text("start_jitter", flow.start_jitter);
    }
    out.optional("stop", flow.stop).optional("size", flow.size);
    print_transport(out, flow.port, &flow.transport);
}

fn print_exec(out: &mut Table, topology: &Topology, flow: &ExecFlow) {
    out.header("[[flow]]").text("kind", "exec").text("name", &flow.name);
    out.text("node", &topology.node(flow.node).name).value("command", list(&flow.command));
    let env: Vec<String> = flow.env.iter().map(|(key, value)| format!("{key} = {}", quoted(value))).collect();
    out.value("env", format_args!("{{{}}}", env.join(", ")));
    out.text("start", flow.start).optional("stop", flow.stop).value("wait", flow.wait);
}

fn print_links(out: &mut Table, topology: &Topology, links: &[LinkId], direction: EventDirection) {
    out.value("link", list(links.iter().map(|id| topology.link(*id).name.as_str())));
    let direction = match direction {
        EventDirection::Both => "both",
        EventDirection::Forward => "forward",
        EventDirection::Reverse => "reverse",
    };
    out.text("direction", direction);
}

fn print_impairment(out: &mut Table, topology: &Topology, impairment: &Impairment) {
    let Impairment { links, direction, good, bad, distribution, effect, start, stop } = impairment;
    out.header("[[impairment]]");
    print_links(out, topology, links, *direction);
    out.text("good", good).text("bad", bad);
    let distribution = match distribution {
        Periods::Exponential => "exponential",
        Periods::Fixed => "fixed",
    };
    out.text("distribution", distribution);
    match effect {
        Effect::Outage => out.text("effect", "outage"),
        Effect::Loss(loss) => out.text("effect", "loss").text("loss", loss),
    };
    out.text("start", start).optional("stop", *stop);
}

fn print_event(out: &mut Table, topology: &Topology, event: &Event) {
    out.header("[[event]]").text("at", event.at);
    print_links(out, topology, &event.links, event.direction);
    match event.change {
        Change::Down => out.text("action", "down"),
        Change::Up => out.text("action", "up"),
        Change::Blackhole => out.text("action", "blackhole"),
        Change::Rate(rate) => out.text("action", "rate").text("rate", rate),
        Change::Delay(delay) => out.text("action", "delay").text("delay", delay),
        Change::Loss(loss) => out.text("action", "loss").text("loss", loss),
    };
}
