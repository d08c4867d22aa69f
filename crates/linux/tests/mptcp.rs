//! A path manager in userspace, at real connections: what the kernel takes, reports and refuses.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{Backlog, SockaddrStorage, bind, connect, listen};
use sidestep_linux::{
    Result,
    mptcp::{
        Ends, EventSocket, ManagerSetting, MptcpChange, MptcpEvent, NewSubflow, Received, Refusal, RefusalKind,
        SubflowRequests, TcpEnds, Token, tcp_ends,
    },
    netlink,
    netns::{NetNs, set_sysctl},
    sock_diag::{SockDiag, TcpState},
    testing::root_or_skip,
};

const PORT: u16 = 7000;
const PATIENCE: Duration = Duration::from_secs(5);
/// Room for events.
const ROOM: usize = 8 << 20;

/// A namespace whose connections to itself are managed by the test.
fn in_namespace(what: &str, work: impl FnOnce() + Send) {
    if !root_or_skip(what) {
        return;
    }
    let inside = || -> Result<()> {
        netlink::block_on(async |kernel| kernel.loopback_up().await)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _context = runtime.enter();
        work();
        Ok(())
    };
    NetNs::create().unwrap().run(inside).unwrap();
}

fn socket(family: libc::c_int) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the descriptor is new, and no other code knows of it.
    unsafe {
        let socket = libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_MPTCP);
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(socket)
    }
}

/// A connection of MPTCP that has carried data in both directions: its ends, and the listener.
fn connected() -> (TcpStream, TcpStream, TcpListener) {
    let (server, client) = (socket(libc::AF_INET6), socket(libc::AF_INET6));
    let at = SockaddrStorage::from(SocketAddr::from((Ipv6Addr::LOCALHOST, PORT)));
    bind(server.as_raw_fd(), &at).unwrap();
    listen(&server, Backlog::new(64).unwrap()).unwrap();
    let server = TcpListener::from(server);
    connect(client.as_raw_fd(), &at).unwrap();
    let client = TcpStream::from(client);
    (client, server.accept().unwrap().0, server)
}

fn exchange(client: &mut TcpStream, server: &mut TcpStream) {
    client.write_all(b"ping").unwrap();
    server.read_exact(&mut [0; 4]).unwrap();
    server.write_all(b"pong").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
}

fn events(socket: &mut EventSocket) -> Vec<MptcpEvent> {
    match socket.read(10_000).unwrap() {
        Received::Events(events) => events,
        Received::Nothing => Vec::new(),
        Received::Overflow => panic!("events were lost"),
    }
}

/// Waits until `found` gives something of the events that come.
fn await_event<T>(socket: &mut EventSocket, mut found: impl FnMut(&MptcpEvent) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = events(socket).iter().find_map(&mut found) {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "the event does not come");
        thread::sleep(Duration::from_millis(2));
    }
}

fn leave_paths_to_programs() {
    let setting = ManagerSetting::current().unwrap();
    assert!(!setting.is_for_programs());
    setting.for_programs().set().unwrap();
    assert!(ManagerSetting::current().unwrap().is_for_programs());
}

fn subflows(of: Token) -> Vec<TcpEnds> {
    let mut found = tcp_ends(&mut SockDiag::open().unwrap()).unwrap();
    // One that was ended may still wait for the other end's FIN.
    found.retain(|ends| ends.state == TcpState::Established && ends.subflow.is_some_and(|subflow| subflow.token == of));
    found
}

/// Begins a subflow; kernels before 6.6 want a number of its own for the address of the first.
fn create(requests: &mut SubflowRequests, subflow: &NewSubflow) -> std::result::Result<(), Refusal> {
    match requests.create(subflow) {
        Err(refusal) if refusal.kind == RefusalKind::NeedsId && subflow.local_id == 0 => {
            println!("this kernel wants a number: {refusal}");
            requests.create(&NewSubflow { local_id: 1, ..*subflow })
        }
        result => result,
    }
}

fn further(token: Token, ends: Ends) -> NewSubflow {
    let local = SocketAddr::new(ends.local.ip(), 0);
    NewSubflow { token, local, local_id: 0, remote: ends.remote, remote_id: 0 }
}

#[test]
fn a_connection_gets_31_further_subflows_when_it_is_fully_established_and_not_before() {
    in_namespace("subflows of MPTCP", || {
        leave_paths_to_programs();
        let (mut heard, mut requests) = (EventSocket::open(ROOM).unwrap(), SubflowRequests::open().unwrap());
        let (mut client, mut server, _listener) = connected();
        let (token, first) = await_event(&mut heard, |event| match event.what {
            MptcpChange::Created(first) if !first.accepted => Some((event.token, first)),
            _ => None,
        });
        assert_eq!(first.ends.local, client.local_addr().unwrap());
        let early = create(&mut requests, &further(token, first.ends));
        assert_eq!(early.unwrap_err().kind, RefusalKind::NotConnected);
        exchange(&mut client, &mut server);
        await_event(&mut heard, |event| {
            (event.token == token && matches!(event.what, MptcpChange::Established(_))).then_some(())
        });
        for _ in 0..31 {
            create(&mut requests, &further(token, first.ends)).unwrap();
        }
        let mut established = BTreeSet::new();
        await_event(&mut heard, |event| {
            if let MptcpChange::SubflowEstablished(ends) = event.what
                && event.token == token
            {
                established.insert(ends);
            }
            (established.len() == 31).then_some(())
        });
        let listed = subflows(token);
        assert_eq!(listed.len(), 32);
        assert_eq!(listed.iter().filter(|ends| ends.subflow.unwrap().is_first).count(), 1);
        assert!(listed.iter().all(|ends| ends.subflow.unwrap().opened_here));
        assert!(listed.iter().any(|ends| ends.subflow.unwrap().fully_established));

        let victim = *established.first().unwrap();
        requests.destroy(token, &victim).unwrap();
        await_event(&mut heard, |event| match event.what {
            MptcpChange::SubflowClosed { ends, .. } if ends == victim => Some(()),
            _ => None,
        });
        assert_eq!(subflows(token).len(), 31);
        assert_eq!(requests.destroy(token, &victim).unwrap_err().kind, RefusalKind::NoSubflow);
        create(&mut requests, &further(token, first.ends)).unwrap();
        exchange(&mut client, &mut server);
        drop((client, server));
        await_event(&mut heard, |event| (event.token == token && event.what == MptcpChange::Closed).then_some(()));
        // The kernel reports the end shortly before it forgets the token.
        let start = Instant::now();
        let refusal = loop {
            match create(&mut requests, &further(token, first.ends)).unwrap_err().kind {
                RefusalKind::NotConnected if start.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(1)),
                kind => break kind,
            }
        };
        assert_eq!(refusal, RefusalKind::Gone);
    });
}

#[test]
fn a_connection_of_before_keeps_the_kernels_path_manager() {
    in_namespace("path managers of MPTCP", || {
        let (mut heard, mut requests) = (EventSocket::open(ROOM).unwrap(), SubflowRequests::open().unwrap());
        let (mut client, mut server, _listener) = connected();
        leave_paths_to_programs();
        exchange(&mut client, &mut server);
        let (token, first) = await_event(&mut heard, |event| match event.what {
            MptcpChange::Established(first) if !first.accepted => Some((event.token, first)),
            _ => None,
        });
        let refused = create(&mut requests, &further(token, first.ends)).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::KernelManager, "{refused}");
    });
}

#[test]
fn explicit_ports_need_a_number_each() {
    in_namespace("ports of subflows", || {
        leave_paths_to_programs();
        let (mut heard, mut requests) = (EventSocket::open(ROOM).unwrap(), SubflowRequests::open().unwrap());
        let (mut client, mut server, _listener) = connected();
        exchange(&mut client, &mut server);
        let (token, first) = await_event(&mut heard, |event| match event.what {
            MptcpChange::Established(first) if !first.accepted => Some((event.token, first)),
            _ => None,
        });
        let at = |port, local_id| NewSubflow {
            local: SocketAddr::new(first.ends.local.ip(), port),
            local_id,
            ..further(token, first.ends)
        };
        requests.create(&at(40_001, 1)).unwrap();
        requests.create(&at(40_002, 2)).unwrap();
        let taken: Refusal = requests.create(&at(40_003, 2)).unwrap_err();
        assert_eq!(taken.kind, RefusalKind::IdTaken, "{taken}");
        let busy = requests.create(&at(PORT, 3)).unwrap_err();
        assert_eq!(busy.kind, RefusalKind::NoPort, "{busy}");
        let listed = subflows(token);
        let ports: BTreeSet<u16> = listed.iter().map(|ends| ends.ends.local.port()).collect();
        assert!(ports.is_superset(&[40_001, 40_002].into()), "{ports:?}");
    });
}

#[test]
fn ports_run_out_and_the_kernel_reports_it() {
    in_namespace("ports of subflows", || {
        set_sysctl("ipv4/ip_local_port_range", "50000 50009").unwrap();
        leave_paths_to_programs();
        let (mut heard, mut requests) = (EventSocket::open(ROOM).unwrap(), SubflowRequests::open().unwrap());
        let (mut client, mut server, _listener) = connected();
        exchange(&mut client, &mut server);
        let (token, first) = await_event(&mut heard, |event| match event.what {
            MptcpChange::Established(first) if !first.accepted => Some((event.token, first)),
            _ => None,
        });
        let results: Vec<_> = (0..20).map(|_| create(&mut requests, &further(token, first.ends))).collect();
        let made = results.iter().filter(|result| result.is_ok()).count();
        let refusals: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        assert!(refusals.iter().all(|refusal| refusal.kind == RefusalKind::NoPort), "{refusals:?}");
        assert!((8..=9).contains(&made), "{made}");
    });
}
