//! A host with very many connections, whose path fails.

use std::{
    fs,
    io::{self, ErrorKind, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sidestep_lab::LabError;
use sidestep_linux::{monotonic_now, sock_diag::TcpInfo};
use sidestep_net::Time;

use super::{
    BenchOptions, Progress,
    load::{failed, open},
    stage::{self, Stage},
};
use crate::daemon::program::{HostConnection, HostProgram};

/// Most connections: they all have one client, whose ports are about 28,000.
pub const MAX_CONNECTIONS: u32 = 20_000;

/// What became of the connections, and what they cost.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// How many there were.
    pub connections: usize,
    /// Resident memory of the agent's process before any connection opened, in bytes.
    pub agent_before: u64,
    /// Resident memory of the agent's process with all connections open, in bytes.
    pub agent_after: u64,
    /// Memory of the agent's maps as the kernel counts it, in bytes; without what connections store.
    pub maps: u64,
    /// What each connection stores, in bytes; without the kernel's own header.
    pub storage: u64,
    /// How many connections moved.
    pub moved: usize,
    /// Time from the path failure until the first connection moved, in seconds.
    pub first_move: f64,
    /// Time from the path failure until the last connection moved, in seconds.
    pub last_move: f64,
    /// Time from the path failure until the byte that each connection sent after it had arrived, in seconds.
    pub delivered: f64,
    /// How long `sidestep agent status --json` took, in seconds.
    pub status: f64,
}

impl Crowd {
    /// Moves per second, from the first to the last.
    pub fn moves_per_second(&self) -> f64 {
        self.moved as f64 / (self.last_move - self.first_move).max(1e-9)
    }
}

/// Longer than anything should take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens `connections` connections that all take the first of two paths, makes that path fail, makes each connection send
/// a byte, and waits until all bytes have arrived.
///
/// # Errors
/// Without root, where the kernel lacks what the agent needs, or where this number of files cannot be open.
pub fn crowd(options: &BenchOptions, connections: u32, progress: Progress<'_>) -> Result<Crowd, LabError> {
    let wanted = connections.clamp(1, MAX_CONNECTIONS) as usize;
    // The other 200 are for everything that is no connection.
    allow_descriptors(u64::from(connections) + 200)?;
    progress("building the network", 0, 4);
    let stage = Stage::build(options.program.clone())?;
    let agent = stage.agent(stage::FIRST, Some(stage.state()))?;
    let agent_before = resident(agent.pid())?;
    progress("opening connections", 1, 4);
    let sink = stage.sink()?;
    let mut clients = open_all(&stage, wanted)?;
    let agent_after = resident(agent.pid())?;
    let maps = maps_of(agent.pid())?;

    progress("moving them", 2, 4);
    let failed_at = monotonic_now();
    stage.fail_first()?;
    for client in &mut clients {
        client.write_all(b"!").map_err(failed("sending"))?;
    }
    let delivered = all_arrive(&clients)?.since(failed_at).as_secs_f64();

    progress("listing them", 3, 4);
    let begun = Instant::now();
    let listed = stage.ask(&["agent", "status", "--json"])?;
    let status = begun.elapsed().as_secs_f64();
    check_list(&listed, wanted)?;
    let all = listed_by_kernel(&stage)?;
    let moves = all.iter().filter(|one| one.moves > 0).filter_map(|one| one.decided);
    let moves: Vec<_> = moves.filter(|(at, _)| *at >= failed_at).collect();
    let after = |at: Option<&(Time, _)>| at.map_or(0.0, |(at, _)| at.since(failed_at).as_secs_f64());
    let outcome = Crowd {
        connections: wanted,
        agent_before,
        agent_after,
        maps: maps.memory,
        storage: maps.storage,
        moved: moves.len(),
        first_move: after(moves.iter().min_by_key(|(at, _)| *at)),
        last_move: after(moves.iter().max_by_key(|(at, _)| *at)),
        delivered,
        status,
    };
    drop(clients);
    sink.stop()?;
    agent.stop()?;
    Ok(outcome)
}

/// Raises the limit on open files.
fn allow_descriptors(needed: u64) -> Result<(), LabError> {
    let refused = |allowed| LabError::Descriptors { needed, allowed };
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|_| refused(0))?;
    if soft >= needed {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).map_err(|_| refused(hard))
}

fn open_all(stage: &Stage, wanted: usize) -> Result<Vec<TcpStream>, LabError> {
    Ok(stage.host.run(|| (0..wanted).map(|_| open()).collect())?)
}

/// Waits until the other end has acknowledged a byte of each connection; returns the time of the last acknowledgement.
fn all_arrive(clients: &[TcpStream]) -> Result<Time, LabError> {
    let begun = Instant::now();
    let mut waiting: Vec<&TcpStream> = clients.iter().collect();
    loop {
        let mut still = Vec::new();
        for client in waiting {
            // The kernel counts the SYN as a byte.
            let info = TcpInfo::of(client).map_err(failed("waiting for acknowledgements"))?;
            if info.bytes_acked < 2 {
                still.push(client);
            }
        }
        waiting = still;
        if waiting.is_empty() {
            return Ok(monotonic_now());
        }
        if begun.elapsed() > PATIENCE {
            let late = io::Error::new(ErrorKind::TimedOut, format!("{} connections are stuck", waiting.len()));
            return Err(failed("waiting for acknowledgements")(late).into());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn listed_by_kernel(stage: &Stage) -> Result<Vec<HostConnection>, LabError> {
    let pins = stage.pins();
    // This thread's mount namespace has the pins; the host's network namespace has the connections.
    let program = HostProgram::look(&pins)?;
    let list = || program.as_ref().map(HostProgram::connections).transpose();
    Ok(stage.host.run(list)?.unwrap_or_default())
}

/// Checks that `agent status` has listed all connections.
fn check_list(listed: &str, wanted: usize) -> Result<(), LabError> {
    let read: Result<serde_json::Value, _> = serde_json::from_str(listed);
    let count = read.ok().and_then(|value| Some(value.get("connections")?.as_array()?.len()));
    if count == Some(wanted) {
        return Ok(());
    }
    let wrong = io::Error::other(format!("{count:?} of {wanted} connections are listed"));
    Err(failed("agent status")(wrong).into())
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> Result<u64, LabError> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(LabError::file(&path))?;
    Ok(number_after(&text, "VmRSS:").unwrap_or(0) * 1024)
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Maps {
    memory: u64,
    storage: u64,
}

/// The BPF maps that a process holds, as the kernel describes its descriptors.
fn maps_of(pid: u32) -> Result<Maps, LabError> {
    let directory = format!("/proc/{pid}/fdinfo");
    let entries = fs::read_dir(&directory).map_err(LabError::file(&directory))?;
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    Ok(read_maps(texts))
}

fn read_maps(texts: impl Iterator<Item = String>) -> Maps {
    /// `BPF_MAP_TYPE_SK_STORAGE`
    const SK_STORAGE: u64 = 24;
    let mut seen = std::collections::BTreeSet::new();
    let mut maps = Maps::default();
    for text in texts {
        let (Some(kind), Some(id)) = (number_after(&text, "map_type:"), number_after(&text, "map_id:")) else {
            continue;
        };
        if !seen.insert(id) {
            continue;
        }
        maps.memory += number_after(&text, "memlock:").unwrap_or(0);
        if kind == SK_STORAGE {
            maps.storage += number_after(&text, "value_size:").unwrap_or(0);
        }
    }
    maps
}

/// The number in the line that begins with `key`.
fn number_after(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_map_counts_once_however_often_it_is_open() {
        let map = |id, kind| {
            format!("pos:\t0\nmap_type:\t{kind}\nkey_size:\t4\nvalue_size:\t344\nmemlock:\t1000\nmap_id:\t{id}\n")
        };
        let texts = [map(1, 24), map(2, 2), map(2, 2), "pos:\t0\nflags:\t02\n".into()];
        assert_eq!(read_maps(texts.into_iter()), Maps { memory: 2_000, storage: 344 });
        assert_eq!(number_after("VmRSS:\t  5120 kB\n", "VmRSS:"), Some(5120));
    }
}
