//! What Prometheus reads of an agent at work.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use sidestep_hostd::MetricsConfig;
use sidestep_linux::{netlink, testing::root_or_skip};
use sidestep_pathchanger::daemon::{HOST_METRICS, RecordFile};

use crate::{
    support::{Agent, Flow, Lab, SOME, TWO_PROVIDERS, eventually, settings, slot, tail, via},
    takeover::{Kept, in_host},
};

/// Where the agent listens.
pub const LISTEN: &str = "[::1]:9435";

/// The page of the agent in `h`.
pub fn scrape(lab: &Lab) -> String {
    let address: SocketAddr = LISTEN.parse().unwrap();
    in_host(lab, || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    })
}

/// The value of a metric with these labels.
pub fn value(page: &str, metric: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn prometheus_reads_moves_paths_maps_and_runs_of_an_agent_at_work() {
    if !root_or_skip("metrics of an agent at work") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    lab.network.node(lab.id("h")).run(|| netlink::block_on(async |netlink| netlink.loopback_up().await)).unwrap();
    let paths = [("R1", "1 Tbit/s"), ("R2", "1 kbit/s")].map(|(by, rate)| via(&lab, "h", by, rate)).to_vec();
    let prefix = lab.prefix("s");
    let agent = Agent::start_as(&lab, "h", settings(), &prefix.to_string(), paths, |options| {
        options.config.metrics = MetricsConfig { listen: Some(LISTEN.parse().unwrap()), bpf_stats: true };
    });
    let page = scrape(&lab);
    assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    for metric in HOST_METRICS {
        assert!(page.contains(&format!("# TYPE {} ", metric.name)), "{}", metric.name);
    }
    let (ids, name) = (agent.ids(), |by: &str| format!("{}%{by}", tail(&lab, by, "h")));
    let on = |slot: u32| {
        let (id, name) = (ids[&slot], name(["R1", "R2"][slot as usize - 1]));
        format!("sidestep_agent_connections{{destination=\"{prefix}\",path=\"{id:08x}\",name=\"{name}\"}}")
    };
    assert_eq!((value(&page, &on(1)), value(&page, &on(2))), (Some(0.0), Some(0.0)));

    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    let page = scrape(&lab);
    assert_eq!(value(&page, &on(1)), Some(1.0));
    let of_path = |metric: &str, slot: u32| {
        on(slot).replace("sidestep_agent_connections", &format!("sidestep_agent_path_{metric}"))
    };
    for metric in ["rate_bits_per_second", "rtt_seconds", "min_rtt_seconds"] {
        assert!(value(&page, &of_path(metric, 1)) > Some(0.0), "{metric}\n{page}");
        assert_eq!(value(&page, &of_path(metric, 2)), None, "no connection is there");
    }
    let loss = value(&page, &of_path("loss_ratio", 1));
    assert!(loss.is_some_and(|loss| loss < 0.05), "{loss:?}");
    lab.swallow("R1", "Z", true);
    flow.pass(SOME);
    assert_eq!(slot(&flow.sender), 2);
    let page = scrape(&lab);
    assert_eq!((value(&page, &on(1)), value(&page, &on(2))), (Some(0.0), Some(1.0)));
    for (metric, expected) in [
        ("sidestep_agent_moves_total{reason=\"rto\"}", 1.0),
        ("sidestep_agent_would_be_moves_total{reason=\"rto\"}", 0.0),
        ("sidestep_agent_connections_opened_total{by=\"here\"}", 1.0),
        ("sidestep_agent_map_entries{map=\"sidestep_dests\"}", 1.0),
        ("sidestep_agent_map_capacity{map=\"sidestep_dests\"}", 4096.0),
        ("sidestep_agent_map_entries{map=\"sidestep_conns\"}", 1.0),
        ("sidestep_agent_program_runs_counted", 1.0),
        ("sidestep_agent_destinations", 1.0),
        ("sidestep_agent_attached", 1.0),
        ("sidestep_agent_paths_left_out", 0.0),
        ("sidestep_agent_errors_total{kind=\"mark_refused\"}", 0.0),
    ] {
        assert_eq!(value(&page, metric), Some(expected), "{metric}\n{page}");
    }
    let runs = value(&page, "sidestep_agent_program_runs_total{program=\"sidestep_host\"}").unwrap();
    let seconds = value(&page, "sidestep_agent_program_run_seconds_total{program=\"sidestep_host\"}").unwrap();
    assert!(runs > 10.0 && seconds > 0.0 && seconds / runs < 1e-3, "{runs} runs in {seconds} s");
    assert!(value(&page, "sidestep_agent_paths_age_seconds").is_some_and(|age| age > 0.0 && age < 60.0));
    assert_eq!(value(&page, "sidestep_agent_controller_connected"), None, "there is no controller");
    agent.stop();
    // A program that another test starts has a copy of the listening socket for a moment, between fork and exec.
    eventually("the port to go with the agent", || in_host(&lab, || TcpStream::connect(LISTEN).is_err()).then_some(()));
}

#[test]
fn an_agent_does_not_start_without_its_port() {
    if !root_or_skip("a port in use") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    lab.network.node(lab.id("h")).run(|| netlink::block_on(async |netlink| netlink.loopback_up().await)).unwrap();
    let _taken = in_host(&lab, || std::net::TcpListener::bind(LISTEN).unwrap());
    let options = |options: &mut sidestep_pathchanger::daemon::HostOptions| {
        options.config.metrics.listen = Some(LISTEN.parse().unwrap());
    };
    let paths = vec![via(&lab, "h", "R1", "1 Gbit/s")];
    let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Agent::start_as(&lab, "h", settings(), &lab.prefix("s").to_string(), paths, options)
    }));
    let why = started.err().and_then(|panic| panic.downcast::<String>().ok()).expect("it does not start");
    assert!(why.contains(LISTEN) && why.contains("AddrInUse"), "{why}");
    eventually("nothing is left", || (!lab.ip("h", "-6 rule").contains("830")).then_some(()));
}

#[test]
fn a_full_disk_costs_records_which_are_counted_and_nothing_else() {
    if !root_or_skip("an agent whose disk is full") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    lab.network.node(lab.id("h")).run(|| netlink::block_on(async |netlink| netlink.loopback_up().await)).unwrap();
    let paths = [("R1", "1 Tbit/s"), ("R2", "1 kbit/s")].map(|(by, rate)| via(&lab, "h", by, rate)).to_vec();
    let agent = Agent::start_as(&lab, "h", settings(), &lab.prefix("s").to_string(), paths, |options| {
        options.config.metrics = MetricsConfig { listen: Some(LISTEN.parse().unwrap()), bpf_stats: false };
        options.events = Some(RecordFile::at("/dev/full"));
    });
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    lab.swallow("R1", "Z", true);
    flow.pass(SOME);
    assert_eq!(slot(&flow.sender), 2, "it moves all the same");
    let lost = || value(&scrape(&lab), "sidestep_agent_errors_total{kind=\"records_lost\"}").unwrap();
    // The paths, the opening and the move.
    eventually("three lost records", || (lost() >= 3.0).then_some(()));
    agent.stop();
}

/// A file system of 64 KiB; unmounted when dropped.
struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("none"), directory.path(), Some("tmpfs"), flags, Some("size=64k")).unwrap();
        TinyDisk(directory)
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut other = fs::File::create(self.file("other")).unwrap();
        while other.write_all(&[0; 4096]).is_ok() {}
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.0.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

#[test]
fn an_agent_begins_on_a_full_disk_takes_over_there_and_records_again_when_there_is_room() {
    if !root_or_skip("an agent that begins on a full disk") {
        return;
    }
    let (lab, kept, disk) = (Lab::new(TWO_PROVIDERS), Kept::new(), TinyDisk::new());
    disk.fill();
    let paths = || [("R1", "1 kbit/s"), ("R2", "1 Tbit/s")].map(|(by, rate)| via(&lab, "h", by, rate)).to_vec();
    let start = || {
        Agent::start_as(&lab, "h", settings(), &lab.prefix("s").to_string(), paths(), |options| {
            options.pins = Some(kept.pins(true));
            options.events = Some(RecordFile::at(disk.file("events.jsonl")));
        })
    };
    let first = start();
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    assert_eq!(slot(&flow.sender), 2);
    first.kill();
    let second = start();
    flow.pass(SOME);
    assert_eq!(slot(&flow.sender), 2, "taken over");
    lab.swallow("R2", "Z", true);
    flow.pass(SOME);
    assert_eq!(slot(&flow.sender), 1, "and moved");
    let records = || fs::read_to_string(disk.file("events.jsonl")).unwrap_or_default();
    assert_eq!(records(), "");
    fs::remove_file(disk.file("other")).unwrap();
    eventually("a record", || {
        let _fresh = lab.connect("h", "s");
        std::thread::sleep(Duration::from_millis(100));
        records().contains("\"opened\"").then_some(())
    });
    second.stop();
    assert_eq!(slot(&flow.sender), 0);
}
