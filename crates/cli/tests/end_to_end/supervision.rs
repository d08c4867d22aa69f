//! What daemons report to the service manager that started them, and which of their ends it may try again.

use std::{
    os::unix::net::UnixDatagram,
    process::Command,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use sidestep_linux::netns::NetNs;

use crate::common::{Ended, PROGRAM, Room, Running, root_or_skip};

/// What a service manager gets from a daemon.
struct Manager {
    socket: UnixDatagram,
    messages: Vec<String>,
}

impl Manager {
    fn new(room: &Room) -> Manager {
        let socket = UnixDatagram::bind(room.path("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        Manager { socket, messages: Vec::new() }
    }

    /// Starts a daemon under it, which must ping it every 200 ms.
    fn start(&self, room: &Room, arguments: &[&str]) -> Running {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("NOTIFY_SOCKET", room.path("notify")).env("WATCHDOG_USEC", "600000");
        room.start_command(command)
    }

    /// Waits until it has received something that begins like this, and returns that.
    fn told(&mut self, beginning: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if let Some(message) = self.messages.iter().find(|message| message.starts_with(beginning)) {
                return message.clone();
            }
            self.listen();
        }
        panic!("not told {beginning}: {:?}", self.messages);
    }

    /// How often it is pinged in this time.
    fn pings(&mut self, time: Duration) -> usize {
        self.messages.clear();
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            self.listen();
        }
        self.messages.iter().filter(|message| *message == "WATCHDOG=1").count()
    }

    fn listen(&mut self) {
        let mut buffer = [0; 4096];
        if let Ok(length) = self.socket.recv(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]);
            self.messages.extend(text.lines().map(str::to_owned));
        }
    }
}

fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    NetNs::create().and_then(|namespace| namespace.run(|| Ok(work()))).unwrap()
}

fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "{arguments}");
}

#[test]
fn a_router_reports_that_it_is_ready_what_matters_and_that_its_loop_turns() {
    if !root_or_skip("a router") {
        return;
    }
    let room = Room::new();
    let mut manager = Manager::new(&room);
    let ended = apart(|| {
        ip("link set lo up");
        let router = ["router", "--controller", "unix:/nonexistent/socket", "--node", "A", "--link", "A-B=nosuch0"];
        let running = manager.start(&room, &router);
        manager.told("READY=1");
        let status = "STATUS=controller away; Path IDs stay as they were found; links down: A-B";
        assert_eq!(manager.told("STATUS="), status);
        assert!(manager.pings(Duration::from_secs(1)) >= 2, "{:?}", manager.messages);
        running.signal(Signal::SIGHUP);
        assert!(manager.pings(Duration::from_secs(1)) >= 2, "it goes on");
        // A loop that hangs does not ping.
        running.signal(Signal::SIGSTOP);
        manager.pings(Duration::from_millis(100));
        assert_eq!(manager.pings(Duration::from_secs(1)), 0);
        running.signal(Signal::SIGCONT);
        running.signal(Signal::SIGTERM);
        manager.told("STOPPING=1");
        running.wait()
    });
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// A ring of routers with a host each, and links across it.
fn large_network(routers: usize) -> String {
    let mut nodes = String::new();
    let mut links = String::new();
    for n in 0..routers {
        nodes += &format!("{{ name = \"h{n}\", kind = \"host\" }}, {{ name = \"R{n}\" }}, ");
        links += &format!("{{ ends = [\"h{n}\", \"R{n}\"], rate = \"1 Gbit/s\", delay = \"0 ms\" }},\n");
        for step in [1, 7, 31] {
            let to = (n + step) % routers;
            links += &format!(
                "{{ ends = [\"R{n}\", \"R{to}\"], rate = \"1 Gbit/s\", delay = \"1 ms\", mtu = 1700, weight = {} }},\n",
                1 + (n * 7 + step) % 13
            );
        }
    }
    format!("[topology]\nnode = [{nodes}]\nlink = [\n{links}]\n")
}

#[test]
fn a_controller_listens_while_it_computes() {
    let room = Room::new();
    let mut manager = Manager::new(&room);
    let file = room.write("network.toml", &large_network(60));
    let socket = room.path("controller.sock");
    let endpoint = format!("unix:{}", socket.display());
    let mut running = manager.start(&room, &["controller", "--topology", &file, "--listen", &endpoint]);
    manager.told("READY=1");
    assert!(socket.exists(), "it listens");
    assert_eq!(manager.told("STATUS="), "STATUS=computing paths between 60 hosts");
    running.wait_until_ready();
    manager.told("WATCHDOG=1");
    let paths =
        |message: &String| message.contains(" paths of 3540 pairs; 0 agents and routers connected; 0 links down");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !manager.messages.iter().any(paths) {
        assert!(Instant::now() < deadline, "{:?}", manager.messages);
        manager.listen();
    }
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code, Some(0));
}

#[test]
fn what_may_be_there_later_does_not_end_a_daemon_with_the_code_of_wrong_usage() {
    if !root_or_skip("daemons") {
        return;
    }
    let room = Room::new();
    let network = room.write("network.toml", &large_network(2));
    let missing = "[[destination]]\nprefix = \"2001:db8::/64\"\npath = [{ via = \"fe80::1\", dev = \"nosuch0\", \
                   rate = \"1 Mbit/s\", rtt = \"1 ms\" }]\n";
    let config = room.write("agent.toml", missing);
    let taken = std::os::unix::net::UnixListener::bind(room.path("taken")).unwrap();
    let (taken_at, gone) = (format!("unix:{}", room.path("taken").display()), "unix:/nonexistent/socket");
    let run = |arguments: &[&str]| -> Ended {
        apart(|| {
            ip("link set lo up");
            room.run(arguments)
        })
    };
    let agent = ["agent", "--no-state", "--config", &config];
    for (arguments, says) in [
        (vec!["controller", "--topology", &network, "--listen", &taken_at], "another process answers there"),
        (vec!["controller", "--topology", &network, "--listen", "tcp:[fd00:aa::1]:7000"], "Cannot assign"),
        (vec!["controller", "--topology", &network, "--listen", gone], "No such file"),
        (agent.to_vec(), "nosuch0"),
        (vec!["router", "--controller", gone, "--node", "A", "--metrics", "[fd00:aa::1]:1"], "Cannot assign"),
    ] {
        let ended = run(&arguments);
        assert!(ended.complaint(1).contains(says), "{arguments:?}: {ended:?}");
    }
    drop(taken);
    // These do not change by waiting.
    for arguments in [
        vec!["controller", "--topology", &network, "--listen", "tcp:nowhere"],
        vec!["router", "--controller", "nowhere", "--node", "A"],
        vec!["router", "--node", "A"],
    ] {
        run(&arguments).complaint(2);
    }
    // What is there already: one daemon for each namespace.
    let (first, second) = apart(|| {
        ip("link set lo up");
        let router = ["router", "--controller", gone, "--node", "A"];
        let mut first = room.start(&router);
        first.wait_until_ready();
        let second = room.run(&router);
        assert_eq!(room.run(&["router", "stop", "--json"]).stdout, "{\n  \"schema\": 1,\n  \"stopped\": true\n}\n");
        (first.wait(), second)
    });
    assert!(second.complaint(1).contains("sidestep router stop"), "{second:?}");
    assert_eq!(first.code, Some(0), "{first:?}");
}
