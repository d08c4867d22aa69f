//! Two paths, one flow of 20 MB, and a router that sends each packet over the path with the shorter queue.
use sidestep_engine::{
    Behaviour, Fate, FlowSpec, Leaving, Network, Node, RouteId, Sizes, Stopped, TcpId, World,
    net::{ArcId, ParallelPaths, Span, Time},
    proto::tcp,
};

#[derive(Debug)]
struct ShorterQueue([(ArcId, RouteId); 2]);

impl Behaviour for ShorterQueue {
    fn handle_packet(&mut self, _: Time, leaving: &Leaving, node: &mut Node<'_>) -> Fate {
        let Some(own) = self.0.iter().position(|(arc, _)| *arc == leaving.to) else { return Fate::Forward };
        let (other, route) = self.0[1 - own];
        if node.queue(other) < node.queue(leaving.to) { Fate::Reroute(route) } else { Fate::Forward }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let topology = ParallelPaths { paths: 2, ..ParallelPaths::default() }.build()?;
    let mut network = Network::new(&topology, 1, Span::ZERO);
    let along = |nodes: [&str; 5]| topology.arcs_along(&nodes).ok_or("there is no such path");
    let (upper, lower) = (along(["c1", "A", "m1", "B", "s1"])?, along(["c1", "A", "m2", "B", "s1"])?);
    let mut route = |arcs: &[ArcId]| network.add_route(arcs.iter().map(|arc| (*arc, 0)));
    let (forward, reverse) = (route(&upper), route(&along(["s1", "B", "m1", "A", "c1"])?));
    let choice = ShorterQueue([(upper[1], route(&upper[1..])), (lower[1], route(&lower[1..]))]);
    network.set_behaviour(&topology, topology.find("A")?, Box::new(choice));
    let mut world = World::new(network, tcp::Config::default(), Sizes::default(), ());
    let flow = world.add_flow(FlowSpec { forward, reverse, bytes: Some(20_000_000), mss: 1400, tcp: TcpId::default() });
    world.open(flow);
    assert_eq!(world.run_until(Time::ZERO + Span::from_secs(60)), Stopped::Finished(flow));
    let seconds = world.now().as_secs_f64();
    println!("20 MB in {seconds:.2} s: {:.1} Mbit/s", 160.0 / seconds);
    Ok(())
}
