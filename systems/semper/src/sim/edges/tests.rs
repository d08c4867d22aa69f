use sidestep_engine::{FlowId, FlowSpec, Network, Sizes, TcpId, World};
use sidestep_net::{LinkId, ParallelPaths, QueueLimit, Span};
use sidestep_paths::Igp;
use sidestep_proto::tcp;

use super::*;

/// Two clients and a server, and a number of paths between their edges; TCP connections of hashes that the test gives.
struct Branch {
    topology: Topology,
    world: World<()>,
    igp: Igp,
}

/// By connection: the paths that its data took, and those of its ACKs.
type Taken = BTreeMap<u32, [BTreeSet<usize>; 2]>;

impl Branch {
    fn new(paths: u32, hops: u32, settings: SemperSettings, stateful: bool) -> Branch {
        let topology =
            ParallelPaths { paths, hops, clients: 2, queue: QueueLimit::Packets(1_000), ..ParallelPaths::default() };
        let topology = topology.build().unwrap();
        let mut network = Network::new(&topology, 1, Span::ZERO);
        let behaviour = Edges::new(&topology, PathSettings { max_paths: 16, ..PathSettings::default() })
            .behaviour(settings, stateful);
        for node in topology.node_ids() {
            if let Some(behaviour) = (behaviour.0)(&topology, node) {
                network.set_behaviour(&topology, node, behaviour);
            }
        }
        let links: Vec<LinkId> = topology.paths().iter().map(|path| path.links[0]).collect();
        let both = |link: &LinkId| [ArcId(link.0 * 2), ArcId(link.0 * 2 + 1)];
        network.watch(&links.iter().flat_map(both).collect::<Vec<_>>());
        let world = World::new(network, tcp::Config::rfc(), Sizes::default(), ());
        Branch { igp: Igp::new(&topology), topology, world }
    }

    /// Opens a connection of a client, without end or of `bytes` bytes.
    fn open(&mut self, client: &str, bytes: Option<u64>, hash: u32) -> FlowId {
        let [from, to] = [client, "s1"].map(|name| self.topology.find(name).unwrap());
        let mut route = |from, to| {
            let arcs = self.igp.first_path(from, to).unwrap();
            self.world.network.add_route(arcs.into_iter().map(|arc| (arc, 0)))
        };
        let (forward, reverse) = (route(from, to), route(to, from));
        let flow = self.world.add_flow(FlowSpec { forward, reverse, bytes, mss: 1_000, tcp: TcpId::default() });
        self.world.set_hashes(flow, (hash, hash));
        self.world.open(flow);
        flow
    }

    /// Runs on, and returns which paths the connections took meanwhile.
    fn run(&mut self, millis: u64) -> Taken {
        self.world.network.take_copies();
        let end = self.world.now() + Span::from_millis(millis);
        while self.world.run_until(end) != sidestep_engine::Stopped::Reached {}
        let mut taken = Taken::new();
        for copied in self.world.network.take_copies() {
            let path = self.topology.paths().iter().position(|path| path.links[0] == copied.arc.link()).unwrap();
            let ack = matches!(copied.packet.kind, Kind::Ack | Kind::SynAck);
            taken.entry(copied.packet.flow).or_default()[usize::from(ack)].insert(path);
        }
        taken
    }

    fn set_state(&mut self, path: usize, state: LinkState) {
        let link = self.topology.paths()[path].links[0];
        for arc in [ArcId(link.0 * 2), ArcId(link.0 * 2 + 1)] {
            self.world.network.set_state(self.world.now(), arc, state);
        }
    }
}

/// The one path that each connection took in both directions.
fn one_path_each(taken: &Taken) -> Vec<usize> {
    let path = |(flow, [data, acks]): (&u32, &[BTreeSet<usize>; 2])| {
        assert_eq!((data.len(), data), (1, acks), "connection {flow}");
        *data.first().unwrap()
    };
    taken.iter().map(path).collect()
}

fn hash_of(number: u32) -> u32 {
    (number + 1).wrapping_mul(0x9e37_79b9)
}

#[test]
fn both_directions_of_every_connection_take_one_path_and_all_paths_are_used() {
    for mode in BalanceMode::ALL {
        for (stateful, hops) in [(false, 1), (false, 3), (true, 1), (true, 2)] {
            let mut branch = Branch::new(8, hops, SemperSettings { mode, ..SemperSettings::default() }, stateful);
            for number in 0..64 {
                branch.open(["c1", "c2"][number as usize % 2], Some(20_000), hash_of(number));
            }
            let paths = one_path_each(&branch.run(2_000));
            let used: BTreeSet<usize> = paths.iter().copied().collect();
            assert_eq!((paths.len(), used.len()), (64, 8), "{mode:?} {stateful} {hops}: {paths:?}");
        }
    }
}

#[test]
fn a_stateful_edge_gives_each_connection_of_a_host_a_path_of_its_own() {
    let mut branch = Branch::new(6, 1, SemperSettings::default(), true);
    for number in 0..12 {
        // All hashes alike: without a table all would share one path.
        branch.open(if number < 6 { "c1" } else { "c2" }, Some(20_000), 3);
    }
    let paths = one_path_each(&branch.run(1_000));
    assert_eq!(paths, [3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2]);
    let mut branch = Branch::new(6, 1, SemperSettings::default(), false);
    for _ in 0..12 {
        branch.open("c1", Some(20_000), 3);
    }
    assert_eq!(one_path_each(&branch.run(1_000)), [3; 12]);
}

#[test]
fn connections_that_find_no_room_in_the_table_take_the_path_of_their_hash() {
    let mut branch = Branch::new(8, 1, SemperSettings { table: 16, ..SemperSettings::default() }, true);
    for number in 0..64 {
        branch.open("c1", Some(20_000), 8 * number + 5);
    }
    let taken = branch.run(2_000);
    assert_eq!(taken.len(), 64);
    // The first takes its hash's path, the next 15 take turns.
    let data: Vec<usize> = taken.values().filter_map(|[data, _]| data.first().copied()).collect();
    assert_eq!(data[..16], [5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4]);
    assert_eq!(data[16..], [5; 48]);
}

#[test]
fn an_aware_edge_leaves_a_dead_link_at_once_and_comes_back_and_a_blind_one_stays() {
    for stateful in [false, true] {
        for aware in [true, false] {
            let settings = SemperSettings { aware, ..SemperSettings::default() };
            let mut branch = Branch::new(4, 1, settings, stateful);
            for number in 0..8 {
                branch.open(["c1", "c2"][number as usize % 2], None, hash_of(number));
            }
            let before = one_path_each(&branch.run(500));
            branch.set_state(2, LinkState::Down);
            // Those that have lost all their packets wait for their timers.
            branch.run(1_500);
            let during = branch.run(500);
            assert!(during.values().flatten().all(|paths| !paths.contains(&2)));
            let others = |paths: &[usize]| paths.iter().filter(|path| **path != 2).count();
            let moved = if aware { 8 } else { others(&before) };
            assert!(others(&before) < 8 && during.len() == moved, "stateful {stateful} aware {aware}: {during:?}");
            branch.set_state(2, LinkState::Up);
            branch.run(if aware { 500 } else { 3_000 });
            assert_eq!(one_path_each(&branch.run(500)), before, "stateful {stateful} aware {aware}");
        }
    }
}

#[test]
fn what_forces_a_path_of_several_links_counts_on_these_and_limits_segments() {
    let one_link = ParallelPaths { paths: 3, hops: 1, ..ParallelPaths::default() }.build().unwrap();
    let edges = Edges::new(&one_link, PathSettings::default());
    let [from, to] = ["c1", "s1"].map(|name| one_link.find(name).unwrap());
    assert_eq!(edges.room(from, to), Some(1_700));
    let two_links = ParallelPaths { paths: 3, hops: 2, mtu: 1_500, ..ParallelPaths::default() }.build().unwrap();
    let edges = Edges::new(&two_links, PathSettings::default());
    let [from, to] = ["c1", "s1"].map(|name| two_links.find(name).unwrap());
    let room = edges.room(from, to).unwrap();
    let [a, b] = ["A", "B"].map(|name| two_links.find(name).unwrap());
    let paths = edges.between(a, b);
    assert_eq!(paths.iter().map(|path| path.extra > 0).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(room, 1_500 - u32::from(paths[1].extra));
    // The other edge has the same paths in the same order.
    let back = edges.between(b, a);
    let ids = |paths: &[EdgePath]| paths.iter().map(|path| path.id).collect::<Vec<_>>();
    assert_eq!(ids(&paths), ids(&back));
    assert_eq!(back[1].arcs, [paths[1].arcs[1].reversed(), paths[1].arcs[0].reversed()]);
    assert_eq!(two_links.channel(paths[1].arcs[0]).rate, paths[1].capacity);
}
