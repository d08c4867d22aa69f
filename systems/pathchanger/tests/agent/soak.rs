//! Chaos: real daemons are killed at any instant, links fail, interfaces go, and others remove rules and routes; no transfer is
//! lost or changed, and all is mended.
//!
//! A few faults with every test run; `make soak` takes 1,000. `SIDESTEP_SOAK` sets how many, `SIDESTEP_SOAK_SEED` which.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv6Addr, Shutdown, SocketAddrV6, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    socket::{setsockopt, sockopt},
    time::TimeVal,
};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_linux::testing::root_or_skip;
use sidestep_net::topology_file;
use sidestep_proto::link::LinkState;

use crate::{
    support::{
        Lab, PORT, PRIORITY, TABLE_BASE, connect, program, run_agent, socket_in, stop_agent, tail, via_text, within,
    },
    takeover::Kept,
};

/// Faults of a run with the other tests: two of each kind.
const FEW: u32 = 2 * Fault::ALL.len() as u32;
/// Transfers at the same time, to either server.
const SHORT: u32 = 4;
const LONG: u32 = 2;
/// Longer than a connection takes to open although its first packets are lost.
const OPENING: Duration = Duration::from_secs(60);
/// Within this time what others removed must be there again, once they leave it alone.
const MENDED: Duration = Duration::from_secs(120);

/// A host with two providers and, by the first, two SRv6 paths of a controller; one server for each kind of path.
const NETWORK: &[(&str, &str, u32)] = &[
    ("h", "A", 1),
    ("h", "R", 1),
    ("A", "M", 1),
    ("M", "B", 1),
    ("A", "N", 2),
    ("N", "B", 2),
    ("R", "B", 2),
    ("B", "s", 1),
    ("B", "t", 1),
];
/// The interface towards `R` that comes and goes.
const SPARE: &str = "spare";
/// The host's own prefix.
const OWN_PREFIX: &str = "fd02:0:1::";
/// The agent's tables.
const TABLES: [u32; 3] = [TABLE_BASE + 1, TABLE_BASE + 2, TABLE_BASE + 3];

#[derive(Debug, Default)]
struct Tally {
    begun: AtomicU32,
    completed: AtomicU32,
    stop: AtomicBool,
}

/// What happens to the daemons, or to what they have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    AgentKilled,
    ControllerKilled,
    RouterKilled,
    /// A link goes down or swallows packets, in one direction or both.
    Outage,
    /// Another daemon removes the agent's rules.
    RulesFlushed,
    /// Another daemon removes the agent's routes.
    RoutesFlushed,
    /// Another daemon removes what the router's Path IDs stand for.
    BindingsFlushed,
    /// An interface with a path is deleted, and made again.
    InterfaceDeleted,
    /// An interface with a path is set down, and up again.
    InterfaceDown,
}

impl Fault {
    const ALL: [Fault; 9] = [
        Fault::AgentKilled,
        Fault::ControllerKilled,
        Fault::RouterKilled,
        Fault::Outage,
        Fault::RulesFlushed,
        Fault::RoutesFlushed,
        Fault::BindingsFlushed,
        Fault::InterfaceDeleted,
        Fault::InterfaceDown,
    ];
}

#[test]
fn no_transfer_is_lost_whatever_happens_to_daemons_links_and_what_they_made() {
    if !root_or_skip("the soak") {
        return;
    }
    let Some(program) = program() else {
        println!("skipped: the program is not built; `cargo build -p sidestep`");
        return;
    };
    let number = |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (steps, seed) = (number("SIDESTEP_SOAK", FEW), number("SIDESTEP_SOAK_SEED", 1));
    let (lab, kept, tally) = (Lab::new(NETWORK), Kept::new(), Tally::default());
    add_spare(&lab);
    let installed = || installed(&lab);
    let nothing = installed();
    let world = World::new(&program, &lab, &kept);

    let listeners = ["s", "t"].map(|server| lab.serve(server));
    let mut counts = [0; Fault::ALL.len()];
    let mut mended = false;
    thread::scope(|scope| {
        for listener in &listeners {
            scope.spawn(|| serve(listener, &tally));
        }
        let ends = End { tally: &tally, lab: &lab };
        let mut random = Pcg32::seed_from_u64(seed.into());
        let mut daemons = Daemons::start(&world);
        let begin = Instant::now();
        // Routes are made one after the other: all are there when nothing is added any more.
        let mut last = installed();
        let everything = loop {
            thread::sleep(Duration::from_millis(300));
            let now = installed();
            if is_whole(&lab, &now) && now == last {
                break now;
            }
            assert!(begin.elapsed() < MENDED, "not all paths are there: {now:#?}");
            last = now;
        };
        for index in 0..SHORT + LONG {
            let (lab, tally) = (&lab, &tally);
            scope.spawn(move || transfer_until_stopped(lab, tally, index));
        }
        for step in 0..steps {
            thread::sleep(Duration::from_millis((random.next_u32() % 300).into()));
            // Each kind once, and then as it comes.
            let kinds = Fault::ALL.len() as u32;
            let kind = if step < kinds { step } else { random.next_u32() % kinds } as usize;
            counts[kind] += 1;
            daemons.suffer(Fault::ALL[kind], &world, &mut random);
        }
        let begin = Instant::now();
        while !mended && begin.elapsed() < MENDED {
            thread::sleep(Duration::from_millis(100));
            mended = installed() == everything;
        }
        if !mended {
            println!("not mended: {everything:#?}\nis now {:#?}", installed());
        }
        daemons.end(&world);
        drop(ends);
    });

    let (begun, completed) = (tally.begun.load(Ordering::Relaxed), tally.completed.load(Ordering::Relaxed));
    println!("{steps} faults, seed {seed}: {:?}", std::iter::zip(Fault::ALL, counts).collect::<Vec<_>>());
    println!("{begun} connections begun, {completed} completed, {} lost", begun - completed);
    let leftovers = usize::from(installed() != nothing) + usize::from(world.state.exists());
    println!("{leftovers} leftovers");
    assert_eq!((begun - completed, leftovers, mended), (0, 0, true));
    assert!(begun > steps);
}

/// The rules and routes of the host's agent, and the routes of the access router's daemon. The network's own routes are none
/// of them.
fn installed(lab: &Lab) -> [String; 3] {
    let routes = TABLES.map(|table| lab.ip_output("h", &format!("-6 route show table {table}"))).join("\n");
    [
        lab.ip("h", "-6 rule show"),
        routes,
        lab.ip_output("A", &format!("-6 route show table all root {}", binding_sids(lab))),
    ]
}

/// What all SIDs of Path IDs of the access router begin with.
fn binding_sids(lab: &Lab) -> String {
    let mut segments = lab.locator("A").network().segments();
    segments[3] = 0xb;
    format!("{}/64", Ipv6Addr::from(segments))
}

/// Whether there are three paths to `t`, three of the controller's to `s`, none to the host itself, and what the Path IDs stand
/// for.
fn is_whole(lab: &Lab, [rules, routes, bindings]: &[String; 3]) -> bool {
    let has = |text: &String, parts: &[&str]| parts.iter().all(|part| text.contains(part));
    rules.matches(&format!("{PRIORITY}:")).count() == 3
        && ["s", "t"].iter().all(|server| routes.matches(&lab.prefix(server).to_string()).count() == 3)
        && has(routes, &["dev A", "dev R", &format!("dev {SPARE}"), "encap seg6"])
        && has(bindings, &["End.B6.Encaps"])
        && !routes.contains(OWN_PREFIX)
}

/// Makes the interface that comes and goes, towards `R`, with addresses that its path names.
fn add_spare(lab: &Lab) {
    let router = lab.network.node(lab.id("R"));
    let place = format!("/proc/{}/fd/{}", std::process::id(), router.raw_fd());
    lab.ip("h", &format!("link add {SPARE} type veth peer name {SPARE} netns {place}"));
    for (node, address) in [("h", "fe80::a"), ("R", "fe80::b")] {
        lab.ip(node, &format!("link set {SPARE} addrgenmode none"));
        lab.ip(node, &format!("link set {SPARE} up"));
        lab.ip(node, &format!("-6 address add {address}/64 dev {SPARE} nodad"));
    }
}

/// What daemons are started with.
struct World<'a> {
    program: &'a Path,
    lab: &'a Lab,
    state: PathBuf,
    config: PathBuf,
    topology: PathBuf,
    endpoint: String,
}

impl<'a> World<'a> {
    fn new(program: &'a Path, lab: &'a Lab, kept: &Kept) -> Self {
        World {
            program,
            lab,
            state: kept.pins(false).directory,
            config: kept.file("agent.toml", &configuration(lab)),
            topology: kept.file("topology.toml", &topology_file::print(&lab.topology)),
            endpoint: format!("unix:{}", kept.files().join("controller.sock").display()),
        }
    }

    fn controller(&self) -> Child {
        let mut command = Command::new(self.program);
        command.arg("controller").arg("--topology").arg(&self.topology).args(["--listen", &self.endpoint]);
        started(command)
    }

    fn router(&self) -> Child {
        let mut command = self.within("A");
        command.args(["router", "--controller", &self.endpoint, "--node", "A"]);
        for interface in &self.lab.network.plan(self.lab.id("A")).interfaces {
            let link = &self.lab.topology.link(interface.arc.link()).name;
            command.arg("--link").arg(format!("{link}={}", interface.name));
        }
        started(command)
    }

    fn agent(&self, last_paths: bool) -> Child {
        let mut command = self.within("h");
        run_agent(&mut command, self.lab, &self.config, &self.state);
        command.args(["--controller", &self.endpoint, "--node", "h"]);
        command.args(["--when-killed", if last_paths { "last-paths" } else { "default-route" }]);
        started(command)
    }

    fn within(&self, node: &str) -> Command {
        within(self.program, self.lab, node)
    }
}

fn started(mut command: Command) -> Child {
    // To look at what daemons log: SIDESTEP_LOG=info, and a file for it.
    let errors =
        std::env::var_os("SIDESTEP_SOAK_LOG").map(|log| fs::File::options().append(true).create(true).open(log));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(errors.map_or_else(Stdio::null, |file| Stdio::from(file.unwrap())));
    command.spawn().unwrap()
}

/// The daemons at work.
struct Daemons {
    controller: Child,
    router: Child,
    agent: Child,
}

impl Daemons {
    fn start(world: &World<'_>) -> Daemons {
        Daemons { controller: world.controller(), router: world.router(), agent: world.agent(false) }
    }

    /// Makes a fault happen, and whatever ends it.
    fn suffer(&mut self, fault: Fault, world: &World<'_>, random: &mut Pcg32) {
        let lab = world.lab;
        let mut below = |limit: u32| random.next_u32() % limit;
        match fault {
            Fault::AgentKilled => {
                kill(&mut self.agent);
                pause(below(200));
                self.agent = world.agent(below(2) == 0);
            }
            Fault::ControllerKilled => {
                kill(&mut self.controller);
                pause(below(400));
                self.controller = world.controller();
            }
            Fault::RouterKilled => {
                kill(&mut self.router);
                pause(below(200));
                self.router = world.router();
            }
            Fault::Outage => {
                let [from, to] = [["A", "M"], ["A", "N"], ["R", "B"]][below(3) as usize];
                let arcs = [lab.arc(from, to), lab.arc(to, from)];
                let fate = [LinkState::Down, LinkState::Blackhole][below(2) as usize];
                let directions = below(2) as usize + 1;
                let set = |state| {
                    arcs[..directions].iter().for_each(|arc| lab.network.wires().set_state(*arc, state).unwrap())
                };
                set(fate);
                pause(below(400));
                set(LinkState::Up);
            }
            Fault::RulesFlushed => {
                // One at a time, as `ip rule flush` knows no priority; there may be none while an agent starts.
                while lab.try_ip("h", &format!("-6 rule del priority {PRIORITY}")) {}
            }
            Fault::RoutesFlushed => {
                for table in TABLES {
                    lab.try_ip("h", &format!("-6 route flush table {table}"));
                }
            }
            Fault::BindingsFlushed => {
                lab.try_ip("A", &format!("-6 route flush table all root {}", binding_sids(lab)));
            }
            Fault::InterfaceDeleted => {
                lab.ip("h", &format!("link delete {SPARE}"));
                pause(below(300));
                add_spare(lab);
            }
            Fault::InterfaceDown => {
                lab.ip("h", &format!("link set {SPARE} down"));
                pause(below(300));
                lab.ip("h", &format!("link set {SPARE} up"));
                lab.ip("h", &format!("-6 address replace fe80::a/64 dev {SPARE} nodad"));
            }
        }
    }

    /// Kills the agent and the router once more; what they left is removed as an operator would.
    fn end(mut self, world: &World<'_>) {
        kill(&mut self.agent);
        stop_agent(world.program, world.lab, &world.state, "at the end");
        kill(&mut self.router);
        let stop = world.within("A").args(["router", "stop"]).output().unwrap();
        assert!(stop.status.success(), "{}", String::from_utf8_lossy(&stop.stderr));
        kill(&mut self.controller);
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        for daemon in [&mut self.agent, &mut self.router, &mut self.controller] {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Kills a daemon that must be at work.
fn kill(daemon: &mut Child) {
    assert_eq!(daemon.try_wait().unwrap(), None, "a daemon has ended by itself");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

fn pause(millis: u32) {
    thread::sleep(Duration::from_millis(millis.into()));
}

/// Ends the transfers, also when a step fails.
struct End<'a> {
    tally: &'a Tally,
    lab: &'a Lab,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.tally.stop.store(true, Ordering::Relaxed);
        // Long transfers end within a moment; then the server, by a last connection.
        thread::sleep(Duration::from_secs(3));
        for server in ["s", "t"] {
            let _ = self.lab.network.node(self.lab.id("h")).run(|| {
                let _ = TcpStream::connect(SocketAddrV6::new(self.lab.address(server), PORT, 0, 0));
                Ok(())
            });
        }
    }
}

fn configuration(lab: &Lab) -> String {
    let [a, r] = ["A", "R"].map(|provider| via_text(tail(lab, provider, "h"), provider));
    let agent = "[pathchanger]\nsilence_backoff = { min = \"10 ms\", max = \"1 s\" }\n";
    format!(
        "{agent}[[destination]]\nprefix = \"{}\"\n{a}{r}{}",
        lab.prefix("t"),
        via_text("fe80::b".parse().unwrap(), SPARE)
    )
}

/// Answers each connection with a checksum of what came.
fn serve(listener: &TcpListener, tally: &Tally) {
    thread::scope(|scope| {
        while let Ok((mut stream, _)) = listener.accept() {
            if tally.stop.load(Ordering::Relaxed) && stream.peek(&mut [0]).is_ok_and(|length| length == 0) {
                return;
            }
            scope.spawn(move || {
                let (mut buffer, mut sum) = (vec![0; 1 << 16], FIRST);
                loop {
                    match stream.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(length) => sum = checksum(sum, &buffer[..length]),
                        Err(_) => return,
                    }
                }
                let _ = stream.write_all(&sum.to_be_bytes());
            });
        }
    });
}

/// Short transfers one after the other, or a long one that lasts as long as the run.
fn transfer_until_stopped(lab: &Lab, tally: &Tally, index: u32) {
    let long = index >= SHORT;
    let mut random = Pcg32::seed_from_u64(index.into());
    while !tally.stop.load(Ordering::Relaxed) {
        tally.begun.fetch_add(1, Ordering::Relaxed);
        let server = if random.next_u32() % 2 == 0 { "s" } else { "t" };
        let outcome = transfer(lab, tally, server, long, &mut random);
        match outcome {
            Ok(true) => drop(tally.completed.fetch_add(1, Ordering::Relaxed)),
            other => println!("a {} transfer to {server} is lost: {other:?}", if long { "long" } else { "short" }),
        }
        thread::sleep(Duration::from_millis(u64::from(random.next_u32() % 20)));
    }
}

fn transfer(lab: &Lab, tally: &Tally, server: &str, long: bool, random: &mut Pcg32) -> std::io::Result<bool> {
    let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(OPENING.as_secs() as i64, 0))?;
    let mut stream = connect(socket, SocketAddrV6::new(lab.address(server), PORT, 0, 0))?;
    let mut chunk = vec![0; if long { 10_000 } else { 1 + random.next_u32() as usize % 60_000 }];
    let mut sum = FIRST;
    loop {
        random.fill_bytes(&mut chunk);
        stream.write_all(&chunk)?;
        sum = checksum(sum, &chunk);
        if !long || tally.stop.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    stream.shutdown(Shutdown::Write)?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    Ok(u64::from_be_bytes(answer) == sum)
}

const FIRST: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a.
fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
