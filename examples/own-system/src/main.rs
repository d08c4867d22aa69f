//! A system of my own: routers send each packet over the next hop whose queue is shortest.

use std::{collections::BTreeMap, error::Error};

use sidestep_sim::engine::{Behaviour, Counter, Fate, Leaving, Node, RouteId};
use sidestep_sim::net::{ArcId, Bytes, SettingsTable, Time, Topology};
use sidestep_sim::scenario::{Scenario, SystemInfo};
use sidestep_sim::system::{Context, MakeBehaviour, Registry, Setup, System};
use sidestep_sim::{RunOptions, SimError, paths::Igp, results::table, run};

/// The table `[shortest-queue]` of a scenario.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// By how much another queue must be shorter.
    margin: Bytes,
}

impl SettingsTable for Settings {}

struct ShortestQueue;

impl System for ShortestQueue {
    fn info(&self) -> SystemInfo {
        SystemInfo::with_settings::<Settings>("shortest-queue", "each packet by the shortest queue", "shortest-queue")
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        let Settings { margin } = context.settings()?;
        let make = MakeBehaviour::new(move |topology, node| {
            let router = Router { topology: topology.clone(), margin, ways: BTreeMap::new(), turns: 0 };
            topology.is_router(node).then(|| Box::new(router) as Box<dyn Behaviour>)
        });
        Ok(Setup { behaviour: Some(make), ..Setup::tcp(context)? })
    }
}

#[derive(Debug)]
struct Router {
    topology: Topology,
    margin: Bytes,
    /// The equally short ways on, by the last arc of a packet's route.
    ways: BTreeMap<ArcId, Vec<(ArcId, RouteId)>>,
    turns: u64,
}

impl Behaviour for Router {
    fn handle_packet(&mut self, _: Time, leaving: &Leaving, node: &mut Node<'_>) -> Fate {
        let (last, topology) = (node.last_arc(leaving), &self.topology);
        let ways = self.ways.entry(last).or_insert_with(|| {
            let (igp, to) = (Igp::new(topology), topology.head(last));
            let on = |arc: ArcId| Some([vec![arc], igp.first_path(topology.head(arc), to)?].concat());
            let arcs: Vec<_> = igp.next_arcs(node.id(), to).collect();
            arcs.into_iter().filter_map(|arc| Some((arc, node.add_route(&on(arc)?)))).collect()
        });
        let own = node.queue(leaving.to);
        let shortest = ways.iter().min_by_key(|(arc, _)| node.queue(*arc)).copied();
        let shorter = shortest.filter(|(arc, _)| node.queue(*arc).get() + self.margin.get() < own.get());
        let Some((_, route)) = shorter else { return Fate::Forward };
        self.turns += 1;
        node.note_move("shorter queue");
        Fate::Reroute(route)
    }

    fn counters(&self) -> Vec<(&'static str, Counter)> {
        vec![("turns", Counter::Sum(self.turns))]
    }
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::parse(include_str!("../own.toml"), "own")?;
    let registry = Registry::new().with(sidestep_tcp::sim::Tcp).with(ShortestQueue);
    let systems = scenario.systems.clone();
    let out = Some("out/own-system".into());
    let (result, _) = run(&RunOptions { out, ..RunOptions::once(registry, scenario, systems) }, &())?;
    println!("{}", table(&result));
    Ok(())
}
