//! The controller and the agents' half of the protocol over real sockets.

use std::{sync::Arc, time::Duration};

use sidestep_api::{
    Connection, HostIdentity, Latest, Reporter, Watcher, listen, proto::path_control_client::PathControlClient,
    watch_bindings, watch_paths,
};
use sidestep_controller::{Controller, ServeError, serve};
use sidestep_net::{Rate, Span, Topology};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, timeout},
};
use tonic::Code;

use crate::common::{KNOBS, build, parallel, report, topology};

struct Server {
    controller: Arc<Controller>,
    endpoint: String,
    topologies: mpsc::UnboundedSender<Topology>,
    computed: oneshot::Receiver<()>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Server {
    async fn start(endpoint: &str) -> Server {
        Server::start_with(endpoint, Controller::new(topology(), KNOBS).unwrap()).await
    }

    async fn start_with(endpoint: &str, controller: Controller) -> Server {
        let controller = Arc::new(controller);
        let listener = listen(endpoint).await.unwrap();
        let endpoint = listener.endpoint().unwrap();
        let ((stop, stopped), (compute, computed)) = (oneshot::channel(), oneshot::channel());
        let (topologies, changed) = mpsc::unbounded_channel();
        let stopped = async move { drop(stopped.await) };
        let announce = || compute.send(()).unwrap();
        let task = tokio::spawn(serve(controller.clone(), listener, changed, None, announce, stopped));
        Server { controller, endpoint, topologies, computed, stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        timeout(Duration::from_secs(4), self.task).await.unwrap().unwrap().unwrap();
    }
}

/// Waits until `wanted` holds.
async fn until<T>(watcher: &mut Watcher<T>, wanted: impl Fn(&Latest<T>) -> bool) -> Latest<T> {
    let waiting = async {
        let mut latest = watcher.latest();
        while !wanted(&latest) {
            latest = watcher.changed().await.unwrap();
        }
        latest
    };
    timeout(Duration::from_secs(10), waiting).await.unwrap()
}

fn host(name: &str) -> HostIdentity {
    HostIdentity::Node(name.into())
}

fn unix(dir: &tempfile::TempDir) -> String {
    format!("unix:{}", dir.path().join("controller.sock").display())
}

#[tokio::test]
async fn a_host_sees_its_paths_and_a_report_shows_as_usage() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&unix(&dir)).await;
    let mut watcher = watch_paths(&server.endpoint, host("c1"), true).await.unwrap();
    let update = watcher.latest().update.unwrap();
    // No path leads to c2, which is behind the same router.
    assert_eq!(update.sets.len(), 1);
    let path = &update.sets[0].paths[0];
    assert_eq!(path.name, "path-1");
    assert_eq!((path.delay, path.rtt), (Span::from_millis(4), Span::from_millis(8)), "with the hosts' own links");
    assert_eq!(path.route_mtu, 1500, "the hosts' own links are the narrowest");
    assert_eq!(path.plain_mtu, Some(1500), "it is the shortest");

    let mut reporter = Reporter::new(&server.endpoint).unwrap();
    reporter.report(report("A", 1, "A-m1", 0)).await.unwrap();
    reporter.report(report("A", 2, "A-m1", 2_500_000)).await.unwrap();
    let usage = |latest: &Latest<sidestep_api::PathUpdate>| latest.update.as_ref().unwrap().sets[0].paths[0].usage;
    let latest = until(&mut watcher, |latest| usage(latest) != Rate::default()).await;
    assert_eq!(usage(&latest), Rate::from_mbits(20));
    assert!(latest.update.unwrap().generation > update.generation);
    server.stop().await;
}

#[test]
fn watchers_wait_for_a_controller_that_computes_and_it_knows_then_what_was_reported_meanwhile() {
    let one_computation = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
    one_computation.unwrap().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (go_on, wait) = std::sync::mpsc::channel();
        // As long as this does not end, no path is computed.
        let other = spawn_blocking(move || wait.recv());
        let mut server = Server::start_with(&unix(&dir), Controller::without_paths(topology(), KNOBS).unwrap()).await;
        let mut bindings = watch_bindings(&server.endpoint, "A", false).await.unwrap();
        let mut paths = watch_paths(&server.endpoint, host("c1"), false).await.unwrap();
        let mut report = report("A", 1, "A-m1", 0);
        report.counters[0].down = true;
        let mut reporter = Reporter::new(&server.endpoint).unwrap();
        let reported = tokio::spawn(async move { reporter.report(report).await });
        let refused = watch_bindings(&server.endpoint, "nosuch", true).await.unwrap_err().to_string();
        assert!(refused.contains("there is no node `nosuch`"), "{refused}");
        sleep(Duration::from_millis(1_200)).await;
        assert_eq!([bindings.latest().update.is_some(), paths.latest().update.is_some()], [false; 2]);
        assert!(server.controller.status().starts_with("computing paths between "), "{}", server.controller.status());
        assert!(server.computed.try_recv().is_err());

        go_on.send(()).unwrap();
        other.await.unwrap().unwrap();
        reported.await.unwrap().unwrap();
        let latest = until(&mut bindings, |latest| latest.connection == Connection::Connected).await;
        assert_eq!(latest.update.unwrap().bindings.len(), 2, "one of three paths has a link that is down");
        let latest = until(&mut paths, |latest| latest.connection == Connection::Connected).await;
        assert_eq!(latest.update.unwrap().sets[0].paths.len(), 2);
        assert!(server.controller.status().ends_with("2 agents and routers connected; 1 links down"));
        server.computed.try_recv().unwrap();
        server.stop().await;
    });
}

#[tokio::test]
async fn a_host_may_name_itself_by_its_address() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&unix(&dir)).await;
    let sets = server.controller.sets();
    let [first, second] = sets[0].sources[..] else { panic!("{sets:?}") };
    let of = |prefixes: Vec<_>| watch_paths(&server.endpoint, HostIdentity::Prefixes(prefixes), true);
    let address = ipnet::Ipv6Net::from(first.hosts().nth(5).unwrap());
    assert_eq!(of(vec![address]).await.unwrap().latest().update.unwrap().sets.len(), 1);
    assert!(of(vec![first, second]).await.unwrap_err().to_string().contains("two hosts"));
    let error = of(vec!["fd99::/64".parse().unwrap()]).await.unwrap_err().to_string();
    assert!(error.contains("no host of the controller's topology has the prefix fd99::/64"), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn an_access_router_sees_its_bindings_over_tcp_and_again_when_the_network_changes() {
    let server = Server::start("tcp:[::1]:0").await;
    let mut watcher = watch_bindings(&server.endpoint, "A", true).await.unwrap();
    let update = watcher.latest().update.unwrap();
    assert_eq!(update.bindings, server.controller.bindings()[0].bindings);
    assert_eq!(update.bindings.len(), 3);
    let (nodes, wires) = parallel();
    let smaller = build(&nodes, &wires[..wires.len() - 2]);
    server.topologies.send(smaller).unwrap();
    until(&mut watcher, |latest| latest.update.as_ref().unwrap().bindings.len() == 2).await;
    server.stop().await;
}

#[tokio::test]
async fn an_agent_keeps_its_last_set_while_the_controller_is_away_and_finds_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&unix(&dir)).await;
    let endpoint = server.endpoint.clone();
    let mut watcher = watch_paths(&endpoint, host("s1"), true).await.unwrap();
    let before = watcher.latest().update.unwrap();
    let stopping = Instant::now();
    server.stop().await;
    assert!(stopping.elapsed() < Duration::from_secs(1), "watchers do not hold up the shutdown");
    assert!(!dir.path().join("controller.sock").exists());
    let lost = until(&mut watcher, |latest| matches!(latest.connection, Connection::Lost { .. })).await;
    assert_eq!(lost.update.as_deref(), Some(&*before));

    let server = Server::start(&endpoint).await;
    let found = until(&mut watcher, |latest| latest.connection == Connection::Connected).await;
    assert_eq!(found.update.unwrap().sets, before.sets, "same ids after the restart");
    server.stop().await;
}

#[tokio::test]
async fn only_a_watcher_that_is_to_fail_fast_fails() {
    let dir = tempfile::tempdir().unwrap();
    let error = watch_paths(&unix(&dir), host("c1"), true).await.unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    let mut patient = watch_paths(&unix(&dir), host("c1"), false).await.unwrap();
    assert_eq!(patient.latest().connection, Connection::Connecting);
    let server = Server::start(&unix(&dir)).await;
    until(&mut patient, |latest| latest.connection == Connection::Connected).await;
    server.stop().await;
}

#[tokio::test]
async fn a_watcher_that_never_reads_delays_no_other_and_not_the_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&unix(&dir)).await;
    // With a window of ten bytes not even the first update gets through.
    let endpoint = tonic::transport::Endpoint::from_shared(server.endpoint.clone()).unwrap();
    let channel = endpoint.initial_stream_window_size(10).connect().await.unwrap();
    let hello = sidestep_api::proto::HostHello::from(host("c1"));
    let _unread = PathControlClient::new(channel).watch_paths(hello).await.unwrap();
    let mut reader = watch_paths(&server.endpoint, host("c1"), true).await.unwrap();
    server.controller.record(&report("A", 1, "A-m1", 0)).unwrap();
    server.controller.record(&report("A", 2, "A-m1", 1_000)).unwrap();
    until(&mut reader, |latest| latest.update.as_ref().unwrap().sets[0].paths[0].usage != Rate::default()).await;
    server.stop().await;
}

#[tokio::test]
async fn unknown_nodes_and_malformed_requests_get_a_clear_status() {
    use sidestep_api::proto::{HostHello, LinkCounter, RouterHello, UsageReport};
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&unix(&dir)).await;
    let mut client = PathControlClient::new(sidestep_api::connect(&server.endpoint).await.unwrap());
    let status = client.watch_paths(HostHello { node: "nobody".into(), prefixes: vec![] }).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "there is no node `nobody` in the controller's topology")
    );
    let status = client.watch_bindings(RouterHello { node: "c1".into() }).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "`c1` is a host, not a router"));
    let report = |counters| UsageReport { node: "A".into(), at_ns: 0, counters };
    let counter = |link: &str| LinkCounter { link: link.into(), tx_bytes: 0, down: false };
    let status = client.report(report(vec![counter("m1-B")])).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "`m1-B` is not a link of `A`"));
    let status = client.report(report(vec![counter("A-m1"), counter("A-m1")])).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "link A-m1 occurs twice"));
    let status = client.report(report(vec![counter("A-m1"); 9_000])).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let status = client.report(report(vec![counter(&"x".repeat(2 << 20))])).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    server.stop().await;
}

#[tokio::test]
async fn a_host_that_leaves_the_topology_is_notified() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&unix(&dir)).await;
    let mut watcher = watch_paths(&server.endpoint, host("c2"), true).await.unwrap();
    let (nodes, mut wires) = parallel();
    wires.remove(1);
    let nodes: Vec<_> = nodes.into_iter().filter(|name| *name != "c2").collect();
    server.topologies.send(build(&nodes, &wires)).unwrap();
    let lost = until(&mut watcher, |latest| latest.connection != Connection::Connected).await;
    assert!(format!("{:?}", lost.connection).contains("there is no node `c2`"), "{:?}", lost.connection);
    // It stays lost, and keeps what it had.
    sleep(Duration::from_millis(300)).await;
    assert!(watcher.latest().update.is_some());
    server.stop().await;
}
