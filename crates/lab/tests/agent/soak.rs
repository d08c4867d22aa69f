//! Chaos: real agent processes are killed at any instant, links fail, and no transfer is lost or changed.
//!
//! A few steps with every test run; `make soak` takes 200. `SIDESTEP_SOAK` says how many, `SIDESTEP_SOAK_SEED` which.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddrV6, TcpListener, TcpStream},
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_linux::testing::root_or_skip;
use sidestep_proto::link::LinkState;

use crate::{
    support::{Lab, PORT, TABLE_BASE, TWO_PROVIDERS, connect, socket_in, tail},
    takeover::Kept,
};

/// Steps of a run with the other tests.
const FEW: u32 = 8;
/// Transfers at the same time.
const SHORT: u32 = 3;
const LONG: u32 = 2;

#[derive(Debug, Default)]
struct Tally {
    begun: AtomicU32,
    completed: AtomicU32,
    stop: AtomicBool,
}

/// The program itself, which is built beside the tests.
fn program() -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("sidestep"));
    std::env::var_os("SIDESTEP_PROGRAM").map(PathBuf::from).or_else(beside).filter(|program| program.exists())
}

#[test]
fn no_transfer_is_lost_whatever_happens_to_agents_and_links() {
    if !root_or_skip("the soak") {
        return;
    }
    let Some(program) = program() else {
        println!("skipped: the program is not built; `cargo build -p sidestep`");
        return;
    };
    let number = |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (steps, seed) = (number("SIDESTEP_SOAK", FEW), number("SIDESTEP_SOAK_SEED", 1));
    let (lab, kept, tally) = (Lab::new(TWO_PROVIDERS), Kept::new(), Tally::default());
    let (rules, routes) = (|| lab.ip("h", "-6 rule show"), || lab.ip("h", "-6 route show table all proto 83"));
    let before = (rules(), routes());
    let state = kept.pins(false).directory;
    let config = kept.file("agent.toml", &configuration(&lab));

    let listener = lab.serve("s");
    let (mut kills, mut outages) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| serve(&listener, &tally));
        let ends = End { tally: &tally, lab: &lab };
        for index in 0..SHORT + LONG {
            let (lab, tally) = (&lab, &tally);
            scope.spawn(move || transfer_until_stopped(lab, tally, index));
        }
        let mut random = Pcg32::seed_from_u64(seed.into());
        let mut below = |limit: u32| random.next_u32() % limit;
        let mut agent = start(&program, &lab, &state, &config, false);
        for _ in 0..steps {
            thread::sleep(Duration::from_millis(below(300).into()));
            if below(2) == 0 {
                agent.kill().unwrap();
                agent.wait().unwrap();
                kills += 1;
                thread::sleep(Duration::from_millis(below(200).into()));
                agent = start(&program, &lab, &state, &config, below(2) == 0);
            } else {
                let provider = ["R1", "R2"][below(2) as usize];
                let arcs = [lab.arc(provider, "Z"), lab.arc("Z", provider)];
                let fate = [LinkState::Down, LinkState::Blackhole][below(2) as usize];
                let directions = below(2) as usize + 1;
                let set = |state| {
                    arcs[..directions].iter().for_each(|arc| lab.network.wires().set_state(*arc, state).unwrap())
                };
                set(fate);
                outages += 1;
                thread::sleep(Duration::from_millis(below(400).into()));
                set(LinkState::Up);
            }
        }
        agent.kill().unwrap();
        agent.wait().unwrap();
        drop(ends);
    });

    let stop = in_namespace(&program, &lab).args(["agent", "stop", "--state"]).arg(&state).output().unwrap();
    assert!(stop.status.success(), "{}", String::from_utf8_lossy(&stop.stderr));
    let (begun, completed) = (tally.begun.load(Ordering::Relaxed), tally.completed.load(Ordering::Relaxed));
    println!(
        "{kills} kills and {outages} outages, seed {seed}: {begun} connections begun, {completed} completed, {} lost",
        begun - completed
    );
    let leftovers = usize::from((rules(), routes()) != before) + usize::from(state.exists());
    println!("{leftovers} leftovers");
    assert_eq!((begun - completed, leftovers), (0, 0));
    assert!(begun > steps);
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
        let _ = self.lab.network.node(self.lab.id("h")).run(|| {
            let _ = TcpStream::connect(SocketAddrV6::new(self.lab.address("s"), PORT, 0, 0));
            Ok(())
        });
    }
}

fn in_namespace(program: &Path, lab: &Lab) -> Command {
    let namespace = lab.network.node(lab.id("h")).raw_fd();
    let mut command = Command::new(program);
    // SAFETY: one system call, on a descriptor that lives as long as the lab.
    unsafe {
        command.pre_exec(move || match libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    command
}

fn start(program: &Path, lab: &Lab, state: &Path, config: &Path, last_paths: bool) -> Child {
    let mut command = in_namespace(program, lab);
    command.arg("agent").arg("--config").arg(config).arg("--state").arg(state);
    command.arg("--cgroup").arg(lab.cgroup.0.path()).arg("--table-base").arg(TABLE_BASE.to_string());
    command.args(["--when-killed", if last_paths { "last-paths" } else { "default-route" }]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn configuration(lab: &Lab) -> String {
    let path = |provider: &str| {
        let via = tail(lab, provider, "h");
        format!("[[destination.path]]\nvia = \"{via}\"\ndev = \"{provider}\"\nrate = \"1 Gbit/s\"\nrtt = \"6 ms\"\n")
    };
    let agent = "[agent]\nsilence_backoff = { min = \"10 ms\", max = \"1 s\" }\n";
    format!("{agent}[[destination]]\nprefix = \"{}\"\n{}{}", lab.prefix("s"), path("R1"), path("R2"))
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
        let outcome = transfer(lab, tally, long, &mut random);
        match outcome {
            Ok(true) => drop(tally.completed.fetch_add(1, Ordering::Relaxed)),
            other => println!("a transfer is lost: {other:?}"),
        }
        thread::sleep(Duration::from_millis(u64::from(random.next_u32() % 20)));
    }
}

fn transfer(lab: &Lab, tally: &Tally, long: bool, random: &mut Pcg32) -> std::io::Result<bool> {
    let socket = socket_in(&lab.cgroup.0, lab.network.node(lab.id("h")), libc::AF_INET6);
    let mut stream = connect(socket, SocketAddrV6::new(lab.address("s"), PORT, 0, 0))?;
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

impl Kept {
    /// Writes a file for agents to read, outside the BPF file system.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.files().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}
