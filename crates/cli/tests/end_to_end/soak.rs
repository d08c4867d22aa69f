//! The lab is killed at any instant, and the next run removes what it left, and nothing that is not its own.
//!
//! A few kills with every test run; `make soak-lab` takes 200. `SIDESTEP_SOAK_LAB` sets how many, `SIDESTEP_SOAK_SEED`
//! at which instants.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_linux::cgroup;
use sidestep_scenario::builder::{ScenarioBuilder, bulk, exec};

use crate::common::{PROGRAM, RUN, Room, lab_of, processes_in, root_or_skip};

/// Kills with the other tests.
const FEW: u32 = 10;
/// What the scenario lasts, set-up and tear-down not counted.
const DURATION: Duration = Duration::from_millis(600);

/// What a daemon of a program that runs in the lab leaves, if no process looked for it.
const DAEMON: &str = "(setsid sleep 1000 &)";

/// When a lab was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was made yet.
    Nothing,
    SetUp,
    Run,
    TearDown,
}

#[test]
fn a_lab_killed_at_any_instant_is_cleaned_up_by_the_next_which_touches_nothing_else() {
    if !root_or_skip("killing labs") {
        return;
    }
    let number = |name: &str, default| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (wanted, seed) = (number("SIDESTEP_SOAK_LAB", FEW), number("SIDESTEP_SOAK_SEED", 1));
    let room = Room::new();
    let millis = DURATION.as_millis();
    let scenario = room.write(
        "soak.toml",
        &ScenarioBuilder::new(&format!("{millis} ms"))
            .set("warmup", "100 ms")
            .set("sample", "50 ms")
            .systems(["pathchanger"])
            .parallel_paths(2)
            .network("rate", "10 Mbit/s")
            .network("delay", "1 ms")
            .network("queue", "1000 packets")
            .network("ecn", "15 packets")
            .flow(bulk("c1", "s1").with("connections", 4))
            .flow(exec("s1", ["sh", "-c", DAEMON]))
            .text(),
    );
    seclude();
    let decoys = Decoys::plant(&room);
    // How long an undisturbed run takes shows at which instants there is something to kill.
    let began = Instant::now();
    let mut whole = Lab::start(&room, &scenario);
    assert!(whole.child.wait().unwrap().success(), "an undisturbed run fails");
    let lasts = began.elapsed();

    let mut random = Pcg32::seed_from_u64(seed.into());
    let (mut kills, mut missed, mut leftovers) = ([0u32; 4], 0, Vec::new());
    let mut killed: Vec<Lab> = vec![whole];
    while kills.iter().sum::<u32>() < wanted && missed < wanted {
        let instant = lasts.mul_f64(f64::from(random.next_u32()) / f64::from(u32::MAX));
        let mut lab = Lab::start(&room, &scenario);
        let Some(phase) = lab.kill_at(instant) else {
            missed += 1;
            continue;
        };
        kills[phase as usize] += 1;
        if phase != Phase::Nothing {
            // This lab had begun to build, and a lab cleans up before that.
            leftovers.extend(killed.iter().flat_map(Lab::traces));
            killed.iter_mut().for_each(|lab| drop(lab.child.wait()));
            killed.clear();
        }
        killed.push(lab);
    }
    assert!(Lab::start(&room, &scenario).child.wait().unwrap().success(), "the last run fails");
    leftovers.extend(killed.iter().flat_map(Lab::traces));
    let [nothing, set_up, run, tear_down] = kills;
    println!(
        "{} kills, seed {seed}: {nothing} before anything was made, {set_up} in set-up, {run} in the run, {tear_down} in \
         tear-down",
        kills.iter().sum::<u32>()
    );
    let touched = decoys.touched();
    println!("{} leftovers, {} of {} decoys touched", leftovers.len(), touched.len(), decoys.count());
    killed.iter_mut().for_each(|lab| drop(lab.child.wait()));
    assert!(leftovers.is_empty() && touched.is_empty(), "leftovers {leftovers:?}, touched {touched:?}");
    assert_eq!(kills.iter().sum::<u32>(), wanted, "{missed} runs ended before they were killed");
}

/// A run. It is not reaped until its successor has cleaned up, as if no process waited for it.
struct Lab {
    child: Child,
    name: String,
    out: PathBuf,
}

impl Lab {
    fn start(room: &Room, scenario: &str) -> Lab {
        let out = room.path("soak");
        let _ = fs::remove_dir_all(&out);
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "run", scenario, "--out"]).arg(&out).current_dir(room.path("."));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Lab { name: lab_of(child.id()), child, out }
    }

    /// Kills it this long after its start; `None` if it had ended by then.
    fn kill_at(&mut self, instant: Duration) -> Option<Phase> {
        let began = Instant::now();
        let mut sends_since = None;
        while began.elapsed() < instant {
            if sends_since.is_none() && self.sends() {
                sends_since = Some(Instant::now());
            }
            thread::sleep(Duration::from_millis(1));
        }
        let made = self.places().iter().any(|place| place.exists());
        if self.child.try_wait().unwrap().is_some() {
            return None;
        }
        self.child.kill().unwrap();
        let lead = Duration::from_millis(300);
        Some(match sends_since {
            Some(since) if since.elapsed() > lead + DURATION => Phase::TearDown,
            Some(_) => Phase::Run,
            None if made => Phase::SetUp,
            None => Phase::Nothing,
        })
    }

    fn sends(&self) -> bool {
        let logs = fs::read_dir(self.out.join("logs/pathchanger"));
        logs.is_ok_and(|logs| logs.flatten().any(|log| log.file_name().to_string_lossy().starts_with("send-")))
    }

    fn places(&self) -> [PathBuf; 2] {
        [cgroup::mount_point().unwrap().join(&self.name), Path::new(RUN).join(&self.name)]
    }

    /// What there is of it.
    fn traces(&self) -> Vec<String> {
        let places = self.places();
        let there = places.iter().filter(|place| place.exists()).map(|place| place.display().to_string());
        let processes = processes_in(&self.name).into_iter().map(|(pid, command)| format!("process {pid}: {command}"));
        there.chain(processes).collect()
    }
}

/// Gives the calling thread, and what it starts, a network and mounts of its own, in which decoys disturb no other process.
fn seclude() {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("run"), "/run", Some("tmpfs"), MsFlags::empty(), none).unwrap();
    mount(Some("bpf"), "/sys/fs/bpf", Some("bpf"), MsFlags::empty(), none).unwrap();
}

/// Things with names like ours that belong to another program; gone when dropped.
struct Decoys {
    directories: Vec<PathBuf>,
    processes: Vec<Child>,
    network: String,
}

/// Control groups; the first is like that of a lab whose process is long gone, but for a letter.
const GROUPS: [&str; 4] = ["sidestep-labs.4194305.1", "sidestep-lab.4194305", "sidestep-lab.decoy.1", "sidestep"];
const DIRECTORIES: [&str; 5] = [
    "/run/sidestep/agent",
    "/run/sidestep/sidestep-lab.decoy",
    "/run/sidestep-lab.4194305.1",
    "/sys/fs/bpf/sidestep",
    "/sys/fs/bpf/sidestep-lab",
];

impl Decoys {
    fn plant(room: &Room) -> Decoys {
        let mount = cgroup::mount_point().unwrap();
        // A number of our own after the names, for there may be other tests; and a lab that runs: this very process.
        let own = std::process::id();
        let mut groups: Vec<_> = GROUPS.iter().map(|name| mount.join(format!("{name}-{own}"))).collect();
        groups.push(mount.join(lab_of(own)));
        let directories = groups.iter().cloned().chain(DIRECTORIES.iter().map(PathBuf::from)).collect();
        let mut decoys = Decoys { directories, processes: Vec::new(), network: String::new() };
        for directory in &decoys.directories {
            fs::create_dir_all(directory).unwrap();
        }
        // Programs of our name, in those groups and outside, one of them in a namespace with a name of ours.
        let program = room.path("sidestep");
        fs::copy("/bin/sleep", &program).unwrap();
        for group in groups.iter().map(Some).chain([None]) {
            let child = Command::new(&program).arg("100000").spawn().unwrap();
            if let Some(group) = group {
                fs::write(group.join("cgroup.procs"), child.id().to_string()).unwrap();
            }
            decoys.processes.push(child);
        }
        for command in [
            "link set lo up",
            "netns add sidestep-lab.4194305.1",
            "link add sidestep0 type veth peer name c1",
            "link set sidestep0 up",
            "link set c1 up",
            "-6 address add fd02:0:1::1/64 dev sidestep0 nodad",
            "-6 rule add priority 8300 fwmark 0x100/0xff00 lookup 8301",
            "-6 route add fd02:0:2::/64 dev sidestep0 table 8301 proto 83",
        ] {
            ip(command);
        }
        // Interfaces need a moment to settle.
        thread::sleep(Duration::from_millis(300));
        decoys.network = network();
        decoys
    }

    fn count(&self) -> usize {
        // The network's are the namespace, two links, an address, a rule and a route.
        self.directories.len() + self.processes.len() + 6
    }

    /// What is gone, or other than it was.
    fn touched(&self) -> Vec<String> {
        let gone = self.directories.iter().filter(|place| !place.exists()).map(|place| place.display().to_string());
        // Zombies have no command line.
        let lives = |pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
        let dead = self.processes.iter().map(Child::id).filter(|pid| !lives(*pid)).map(|pid| format!("process {pid}"));
        let now = network();
        let changed = (now != self.network).then(|| format!("{}\nnow {now}", self.network));
        gone.chain(dead).chain(changed).collect()
    }
}

impl Drop for Decoys {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        for directory in &self.directories {
            let _ = fs::remove_dir(directory);
        }
    }
}

fn network() -> String {
    [
        "netns list",
        "-o link show",
        "-6 -o address show dev sidestep0 scope global",
        "-6 rule show",
        "-6 route show table 8301",
    ]
    .map(ip)
    .join("")
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
