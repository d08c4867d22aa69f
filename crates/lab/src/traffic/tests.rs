//! Flows over the loopback interface of private namespaces.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv6Addr, SocketAddrV6, TcpListener},
    os::fd::{AsFd, AsRawFd},
    thread,
};

use nix::sys::{
    signal::{Signal, raise},
    socket::{AddressFamily, Backlog, SockFlag, SockType, SockaddrIn6, bind, getsockopt, listen, socket, sockopt},
};
use sidestep_linux::{netlink, netns::NetNs, sock_diag::SockDiag, testing::root_or_skip};
use sidestep_net::{Bytes, Span};

use super::*;

#[test]
fn a_sized_transfer_completes_with_exactly_its_bytes() {
    let Some((flows, sink)) = with_sink(|options| {
        let options = SendOptions { connections: 3, size: Some(Bytes::new(1_234_567)), first_index: 5, ..options };
        transfer(&options).unwrap()
    }) else {
        return;
    };
    assert_eq!((sink.connections, sink.bytes), (3, 3 * 1_234_567));
    assert_eq!(flows.iter().map(|flow| flow.connection).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(flows.iter().map(|flow| flow.local_port).collect::<BTreeSet<_>>().len(), 3);
    for flow in flows {
        assert!(flow.completed && flow.error.is_none(), "{flow:?}");
        assert_eq!((flow.bytes_acked, flow.bytes_in_window), (1_234_567, 1_234_567));
        let (fct, connect) = (flow.fct_s.unwrap(), flow.connect_s.unwrap());
        assert!(0.0 < connect && connect < fct && fct < 5.0, "{flow:?}");
        assert_eq!(fct, (flow.end_ns - flow.start_ns) as f64 / 1e9);
    }
}

#[test]
fn a_transfer_of_nothing_completes() {
    let Some((flows, sink)) =
        with_sink(|options| transfer(&SendOptions { size: Some(Bytes::new(0)), ..options }).unwrap())
    else {
        return;
    };
    assert_eq!((sink.connections, sink.bytes), (1, 0));
    assert!(flows[0].completed && flows[0].bytes_acked == 0, "{flows:?}");
}

#[test]
fn a_flow_without_a_size_runs_until_the_stop_and_leaves_no_socket() {
    let Some(((epoch, flows, left), _)) = with_sink(|options| {
        let options = SendOptions { connections: 4, start_at: millis(50), stop_at: millis(250), ..options };
        let flows = transfer(&options).unwrap();
        let left = SockDiag::open().unwrap().tcp_sockets(&mut Vec::new()).unwrap().to_vec();
        (options.epoch, flows, left)
    }) else {
        return;
    };
    for flow in flows {
        assert!(left.iter().all(|socket| socket.local.port() != flow.local_port), "{left:?}");
        assert!(!flow.completed && flow.fct_s.is_none() && flow.error.is_none(), "{flow:?}");
        assert!(flow.bytes_acked > 0 && flow.bytes_in_window == flow.bytes_acked, "{flow:?}");
        assert!(flow.start_ns >= (epoch + millis(50)).as_nanos(), "{flow:?}");
        assert!(flow.end_ns >= (epoch + millis(250)).as_nanos(), "{flow:?}");
    }
}

#[test]
fn the_bytes_acknowledged_are_those_that_the_receiver_holds() {
    let Some((flows, held)) = in_namespace(|| {
        let listener = TcpListener::bind(address(5001)).unwrap();
        let holding = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            // No process reads: by then the receive window has long been full.
            thread::sleep(millis(250).to_std());
            stream.peek(&mut vec![0; 16 << 20]).unwrap() as u64
        });
        let flows = transfer(&SendOptions { stop_at: millis(400), ..options(5001) }).unwrap();
        (flows, holding.join().unwrap())
    }) else {
        return;
    };
    assert!(held > 10_000, "{held}");
    assert_eq!(flows[0].bytes_acked, held);
}

#[test]
fn the_window_counts_what_is_acknowledged_between_its_ends() {
    let Some((flows, _)) = with_sink(|options| {
        let epoch = options.epoch;
        let flow = |start_at, stop_at, size, window| {
            let options = SendOptions { start_at: millis(start_at), stop_at: millis(stop_at), size, ..options.clone() };
            transfer(&SendOptions { window, ..options }).unwrap().remove(0)
        };
        let from_to = |from, to| epoch + millis(from)..epoch + millis(to);
        let sized = Some(Bytes::new(100_000));
        [
            flow(0, 300, None, from_to(100, 200)),
            flow(300, 2_300, sized, from_to(0, 200)),
            flow(300, 2_300, sized, from_to(2_200, 2_300)),
        ]
    }) else {
        return;
    };
    let [across, after, before] = flows;
    assert!(across.bytes_in_window > 0, "{across:?}");
    // A third of the time; the margin is for a busy machine.
    let share = across.bytes_in_window as f64 / across.bytes_acked as f64;
    assert!((0.02..0.9).contains(&share), "{share} of {across:?}");
    assert_eq!((after.bytes_acked, after.bytes_in_window), (100_000, 0), "began after the window");
    assert_eq!((before.bytes_acked, before.bytes_in_window), (100_000, 0), "was over before the window");
}

#[test]
fn a_refused_connection_is_recorded_as_an_error() {
    let Some(flows) = in_namespace(|| transfer(&options(9)).unwrap()) else { return };
    assert_eq!(flows[0].error.as_deref(), Some("connect: Connection refused (os error 111)"));
    assert!(!flows[0].completed && flows[0].connect_s.is_none() && flows[0].start_ns > 0, "{flows:?}");
}

#[test]
fn an_unreachable_sink_is_recorded_as_an_error() {
    let to = SocketAddrV6::new(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1), 9, 0, 0);
    let Some((flows, took)) = in_namespace(|| {
        let options = SendOptions { to, ..options(9) };
        (transfer(&options).unwrap(), Monotonic::now().unwrap().since(options.epoch))
    }) else {
        return;
    };
    assert_eq!(flows[0].error.as_deref(), Some("connect: Network is unreachable (os error 101)"));
    assert!(took < Span::from_secs(5), "did not wait for the stop: {took}");
}

#[test]
fn a_connection_without_an_answer_is_given_up_at_the_stop() {
    let Some(flows) = in_namespace(|| {
        // With a queue of one, and no process that accepts, every SYN after the first connection is dropped.
        let full = socket(AddressFamily::Inet6, SockType::Stream, SockFlag::empty(), None).unwrap();
        bind(full.as_raw_fd(), &SockaddrIn6::from(address(5001))).unwrap();
        listen(&full, Backlog::new(0).unwrap()).unwrap();
        transfer(&SendOptions { connections: 3, stop_at: millis(100), ..options(5001) }).unwrap()
    }) else {
        return;
    };
    assert_eq!(flows[0].error, None);
    assert_eq!(flows[2].error.as_deref(), Some("connect: not answered before the stop"));
    assert_eq!((flows[2].bytes_acked, flows[2].connect_s), (0, None));
}

#[test]
fn a_sink_that_goes_away_is_recorded_as_an_error() {
    let Some(flows) = in_namespace(|| {
        let listener = TcpListener::bind(address(5001)).unwrap();
        let leaving = thread::spawn(move || listener.accept().unwrap().0.read_exact(&mut [0; 1_000]));
        let flows = transfer(&options(5001)).unwrap();
        leaving.join().unwrap().unwrap();
        flows
    }) else {
        return;
    };
    let error = flows[0].error.as_deref().unwrap();
    assert!(error.starts_with("send: Connection reset") || error.starts_with("send: Broken pipe"), "{error}");
    assert!(flows[0].connect_s.is_some() && !flows[0].completed, "{flows:?}");
}

#[test]
fn the_results_are_one_line_of_json_for_each_connection() {
    let Some((text, _)) = with_sink(|options| {
        let mut text = Vec::new();
        send(&SendOptions { connections: 2, size: Some(Bytes::new(1_000)), ..options }, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }) else {
        return;
    };
    let flows: Vec<FlowOut> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        flows.iter().map(|flow| (flow.connection, flow.bytes_acked)).collect::<Vec<_>>(),
        [(0, 1_000), (1, 1_000)]
    );
    assert!(text.lines().all(|line| line.ends_with(r#""error":null}"#)), "{text}");
}

#[test]
fn the_sink_ends_on_sigterm() {
    /// Raises SIGTERM, in the sink's own thread, once the sink reports that it is ready.
    struct TermWhenReady(Vec<u8>);
    impl Write for TermWhenReady {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            raise(Signal::SIGTERM)?;
            self.0.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut out = TermWhenReady(Vec::new());
    let Some(seen) = in_namespace(|| {
        sink(&SinkOptions { socket: SocketOptions::default(), listen: address(5001), answer: false }, &mut out).unwrap()
    }) else {
        return;
    };
    let said = String::from_utf8(out.0).unwrap();
    let last = said.strip_prefix("ready\n").unwrap();
    assert_eq!((&seen, serde_json::from_str(last).unwrap()), (&SinkOut::default(), SinkOut::default()));
}

#[test]
fn a_socket_has_the_congestion_control_that_it_was_given() {
    let options = SocketOptions { congestion_control: Some("reno".into()), ..SocketOptions::default() };
    let socket = options.open().unwrap();
    let name = getsockopt(&socket, sockopt::TcpCongestion).unwrap();
    assert_eq!(name.to_string_lossy().trim_end_matches('\0'), "reno");
    assert!(SocketOptions { congestion_control: Some("nosuch".into()), ..options }.open().is_err());
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |change: &dyn Fn(&mut SendOptions)| {
        let mut options = options(9);
        change(&mut options);
        transfer(&options).unwrap_err().to_string()
    };
    assert_eq!(refused(&|options| options.connections = 10_001), "10001 connections are more than the 10000 allowed");
    assert_eq!(refused(&|options| options.request = Some(Bytes::new(15))), "a request has at least 16 B");
    assert_eq!(refused(&|options| options.request = Some(Bytes::new(16))), "an answer needs a size");
    assert_eq!(refused(&|options| options.first_index = u32::MAX), "connections cannot be numbered from 4294967295");
    assert_eq!(
        refused(&|options| options.start_at = Span::from_secs(11)),
        "the stop (10 s) is before the start (11 s)"
    );
    assert!(refused(&|options| options.window = Monotonic::from_nanos(2)..Monotonic::from_nanos(1)).contains("window"));
    assert!(refused(&|options| options.socket.congestion_control = Some("nonesuch".into())).contains("`nonesuch`"));
}

#[test]
fn an_answer_comes_with_exactly_the_bytes_that_were_asked_for() {
    let schedule = Transfer::parse("0 1\n1000000 1460\n2000000 3000000\n3000000 20000").unwrap();
    let Some((flows, server)) = with_other_end(true, |options| {
        transfer(&SendOptions { request: Some(Bytes::new(300)), schedule, ..options }).unwrap()
    }) else {
        return;
    };
    assert_eq!((server.connections, server.bytes), (4, 4 * 300), "what the server received are the requests");
    assert_eq!(flows.iter().map(|flow| flow.bytes_acked).collect::<Vec<_>>(), [1, 1_460, 3_000_000, 20_000]);
    for flow in flows {
        assert!(flow.completed && flow.error.is_none() && flow.bytes_in_window == flow.bytes_acked, "{flow:?}");
        assert!(flow.connect_s.unwrap() < flow.fct_s.unwrap(), "{flow:?}");
    }
}

#[test]
fn programs_report_how_late_they_went_on_with_each_request() {
    let schedule = Transfer::parse("50000000 1000\n100000000 100000\n150000000 1").unwrap();
    let Some((flows, server)) = with_other_end(true, |options| {
        transfer(&SendOptions { request: Some(Bytes::new(300)), schedule, ..options }).unwrap()
    }) else {
        return;
    };
    // Connected, and the end of the answer; the kernel needs a moment until it notes times.
    assert!(flows.iter().all(|flow| (1..=2).contains(&flow.late_wakeups_ns.len())), "{flows:?}");
    assert_eq!(flows[2].late_wakeups_ns.len(), 2);
    assert!((1..=3).contains(&server.late_wakeups_ns.len()), "{server:?}");
    let all = flows.iter().flat_map(|flow| &flow.late_wakeups_ns).chain(&server.late_wakeups_ns);
    let ended = Monotonic::now().unwrap().as_nanos();
    let is_within = |(at, late): &(u64, u64)| *at >= flows[0].start_ns && *at + late <= ended;
    assert!(all.clone().all(is_within) && all.map(|(_, late)| late).sum::<u64>() > 0, "{flows:?} {server:?}");
}

#[test]
fn an_answer_that_is_cut_short_is_recorded_as_an_error() {
    let Some(flows) = in_namespace(|| {
        let listener = TcpListener::bind(address(5001)).unwrap();
        let short = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.read_exact(&mut [0; 16]).unwrap();
            stream.write_all(&[0; 99]).unwrap();
        });
        let sizes = (Some(Bytes::new(100)), Some(Bytes::new(16)));
        let flows = transfer(&SendOptions { size: sizes.0, request: sizes.1, ..options(5001) }).unwrap();
        short.join().unwrap();
        flows
    }) else {
        return;
    };
    assert_eq!(flows[0].error.as_deref(), Some("receive: the sink closed the connection before its end"));
    assert!(!flows[0].completed && flows[0].bytes_acked == 99, "{flows:?}");
}

#[test]
fn a_schedule_gives_each_connection_its_start_and_its_size() {
    let schedule = Transfer::parse("0 1000\n150000000 50000\n300000000 1").unwrap();
    let outcome = with_sink(|options| {
        let epoch = options.epoch;
        (transfer(&SendOptions { schedule: schedule.clone(), ..options }).unwrap(), epoch)
    });
    let Some(((flows, epoch), _)) = outcome else { return };
    assert_eq!(flows.iter().map(|flow| flow.bytes_acked).collect::<Vec<_>>(), [1_000, 50_000, 1]);
    assert!(flows.iter().all(|flow| flow.completed));
    let began = |flow: &FlowOut| Monotonic::from_nanos(flow.start_ns).since(epoch);
    for (flow, transfer) in flows.iter().zip(&schedule) {
        assert!(began(flow) >= transfer.at && began(flow) < transfer.at + millis(100), "{flow:?}");
    }
    assert!(Transfer::parse("0").is_err() && Transfer::parse("x 1").is_err());
    assert_eq!(Transfer::parse("7 -").unwrap(), [Transfer { at: Span::from_nanos(7), size: None }]);
}

fn options(port: u16) -> SendOptions {
    let epoch = Monotonic::now().unwrap();
    SendOptions {
        socket: SocketOptions::default(),
        to: address(port),
        connections: 1,
        size: None,
        request: None,
        schedule: Vec::new(),
        users: None,
        epoch,
        start_at: Span::ZERO,
        stop_at: Span::from_secs(10),
        window: epoch..epoch + Span::from_secs(10),
        first_index: 0,
    }
}

fn address(port: u16) -> SocketAddrV6 {
    SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0)
}

fn millis(millis: u64) -> Span {
    Span::from_millis(millis)
}

/// Runs `flows`, and a sink beside it, in a namespace of their own; `None`: skipped.
fn with_sink<T: Send>(flows: impl FnOnce(SendOptions) -> T + Send) -> Option<(T, SinkOut)> {
    with_other_end(false, flows)
}

/// Runs `flows` in a private namespace, beside a sink that answers requests if `answer`; `None`: skipped.
fn with_other_end<T: Send>(answer: bool, flows: impl FnOnce(SendOptions) -> T + Send) -> Option<(T, SinkOut)> {
    in_namespace(|| {
        let (stop, stopper) = io::pipe().unwrap();
        let (said, mut out) = io::pipe().unwrap();
        // A thread is in the namespace of the one that starts it.
        let options = SinkOptions { socket: SocketOptions::default(), listen: address(5001), answer };
        let sink = thread::spawn(move || sink_until(&options, &mut out, stop.as_fd()).unwrap());
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let result = flows(self::options(5001));
        drop(stopper);
        (result, sink.join().unwrap())
    })
}

/// Runs `work` in a namespace of its own, where only the loopback interface is up; `None`: skipped.
fn in_namespace<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    if !root_or_skip("flows in a private namespace") {
        return None;
    }
    let inside = || {
        netlink::block_on(async |netlink| netlink.loopback_up().await)?;
        Ok(work())
    };
    Some(NetNs::create().unwrap().run(inside).unwrap())
}
