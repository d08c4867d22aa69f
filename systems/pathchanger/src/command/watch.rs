//! What an agent controls, read from the kernel: for `sidestep agent status` and `sidestep top`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use ipnet::IpNet;
use serde::Serialize;
use sidestep_command::{Failure, runtime};
use sidestep_hostd::{Overridden, RestoredMarks, restored_marks};
use sidestep_linux::{netlink::Netlink, sock_diag::TcpInfo};
use sidestep_net::{Span, Time};
use sidestep_policy::{PathLearnt, Stay};

use super::args::ConnectionFilter;
use crate::daemon::{
    Prefixes, Reach, Sockets, host_overrides,
    program::{self, ControllerState, HostConnection, HostProgram, Names, Pins},
    reaches_now,
};

/// A look at an agent's state, again and again.
pub struct Watch {
    pins: Pins,
    program: HostProgram,
    filter: Filter,
}

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// Version of this format.
    pub schema: u32,
    /// Whether the agent only records what it would do: paths and moves are then what they would be.
    pub dry_run: bool,
    /// Whether an agent works with the state: if not, nothing but the program in the kernel moves connections.
    pub at_work: bool,
    /// Seconds since an agent was last at work, if none is.
    pub last_at_work_s: Option<f64>,
    /// Whether the program is attached to its control group: if not, new connections are left alone. `None` where that is
    /// unknown: to know it takes CAP_SYS_ADMIN and an agent at work.
    pub attached: Option<bool>,
    /// `none`, `connected` or `away`; `none` if no agent is at work.
    pub controller: &'static str,
    /// Seconds since the paths came, from the controller or the configuration file.
    pub paths_age_s: Option<f64>,
    /// Rules and routes of the agent that others removed, and that it put back.
    pub mended: u32,
    /// Paths whose packets do not leave by them, as a rule or a route of others comes first.
    pub overridden: Vec<Overridden>,
    /// Rules of others that restore the marks of connections, so that moves have no effect.
    pub restored: Vec<RestoredMarks>,
    /// Prefixes within those that have paths, to which connections are left alone.
    pub left_alone: Vec<IpNet>,
    /// Prefixes that have paths.
    pub destinations: Vec<IpNet>,
    /// Moves since the program was loaded, of all connections, by reason.
    pub moves: BTreeMap<&'static str, u64>,
    /// Signals since the program was loaded that did not move a connection, by what kept it.
    pub stays: BTreeMap<&'static str, u64>,
    /// What went wrong since the program was loaded, by kind.
    pub errors: BTreeMap<&'static str, u64>,
    /// Notes on destinations.
    pub notes: BTreeMap<IpNet, String>,
    /// The paths that the connections which the filter lets through are on.
    pub paths: Vec<PathSeen>,
    /// What connections have learnt together; nothing where each learns for itself.
    pub learnt: Vec<Learnt>,
    /// How many paths connections from each address of this host may use.
    pub source_addresses: Vec<Reach>,
    /// The connections that the filter lets through.
    pub connections: Vec<Connection>,
}

/// A path, by the connections on it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PathSeen {
    /// The prefix that it leads to; `None` if that has just lost its paths.
    pub destination: Option<IpNet>,
    /// Eight hexadecimal digits, as the controller has them.
    pub path: String,
    /// What it is called.
    pub name: Option<String>,
    /// How many connections are on it.
    pub connections: u64,
    /// How often these have moved.
    pub moves: u64,
    /// Mbit/s that they deliver together.
    pub rate_mbps: Option<f64>,
    /// The mean of their smoothed round-trip times, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Their lowest round-trip time, in milliseconds.
    pub min_rtt_ms: Option<f64>,
    /// The share of what they sent that they sent again.
    pub loss: Option<f64>,
    /// Bytes that they sent again.
    pub retransmitted_bytes: Option<u64>,
    /// Whether the path has gone within the last minute, with its interface or address.
    pub withdrawn: bool,
}

/// What the connections to one destination have learnt together.
#[derive(Clone, Debug, Serialize)]
pub struct Learnt {
    /// The prefix.
    pub destination: IpNet,
    /// Its paths, in their order.
    pub paths: Vec<LearntPath>,
}

/// What was learnt of a path.
#[derive(Clone, Debug, Serialize)]
pub struct LearntPath {
    /// Eight hexadecimal digits, as the controller has them.
    pub path: String,
    /// What it is called.
    pub name: Option<String>,
    /// What its initial weight is multiplied by: 1 for the best path, less for others.
    pub factor: f64,
    /// Milliseconds that a segment takes on it now, where the policy measures that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// Whether no connection takes it, as it failed or an answer to a SYN is late.
    pub dead: bool,
    /// Seconds since something was delivered on it, where it failed and nothing was since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_s: Option<f64>,
}

/// A connection, as `--json` has it.
#[derive(Clone, Debug, Serialize)]
pub struct Connection {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The prefix whose paths it uses; `None` if that has just lost them.
    pub destination: Option<IpNet>,
    /// Whether the other end opened it.
    pub passive: bool,
    /// Eight hexadecimal digits, as the controller has them.
    pub path: String,
    /// What the path is called.
    pub name: Option<String>,
    /// Seconds since it opened; nothing is known of a connection to which nothing has happened yet.
    pub age_s: Option<f64>,
    /// Mbit/s that it delivered last.
    pub rate_mbps: Option<f64>,
    /// Its smoothed round-trip time in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Its lowest round-trip time in milliseconds.
    pub min_rtt_ms: Option<f64>,
    /// The share of what it sent that it sent again.
    pub loss: Option<f64>,
    /// Bytes that it sent again.
    pub retransmitted_bytes: Option<u64>,
    /// Signals since it opened: decisions, and those that led to none.
    pub signals: u32,
    /// Draws after the first.
    pub decisions: u32,
    /// Draws that changed the path, and moves as its path was gone.
    pub moves: u32,
    /// Signals that led to no decision.
    pub suppressed: u32,
    /// The last decision.
    pub last: Option<Last>,
    /// The last signal, and what came of it.
    pub last_signal: Option<LastSignal>,
}

/// The last signal of a connection.
#[derive(Clone, Debug, Serialize)]
pub struct LastSignal {
    /// The signal.
    pub reason: &'static str,
    /// What kept the connection on its path; `None`: it moved.
    pub stay: Option<&'static str>,
    /// Seconds since then.
    pub age_s: f64,
}

/// The last decision about a connection.
#[derive(Clone, Debug, Serialize)]
pub struct Last {
    /// The signal.
    pub reason: &'static str,
    /// Seconds since then.
    pub age_s: f64,
}

struct Filter {
    to: Option<IpNet>,
    path: Option<String>,
    moved: bool,
    reason: Option<String>,
}

/// What an agent keeps in `state`, whether or not it runs.
pub fn find(state: &Path) -> Result<(Pins, HostProgram), Failure> {
    let pins = Pins { directory: Pins::locate(state.into()), program: false };
    match HostProgram::look(&pins)? {
        Some(program) => Ok((pins, program)),
        None => {
            let place = state.display();
            Err(Failure::run(format!("no agent keeps its state in {place}; is one running, and with which --state?")))
        }
    }
}

/// What leads packets of an agent's paths elsewhere; nothing where that cannot be asked.
pub fn overridden(program: &HostProgram) -> Vec<Overridden> {
    let asked = runtime()
        .ok()
        .and_then(|runtime| runtime.block_on(async { host_overrides(&Netlink::open()?, program).await }).ok());
    asked.unwrap_or_default()
}

impl Watch {
    /// Finds what the agent keeps in `state`, whether or not it runs.
    pub fn open(state: &Path, filter: &ConnectionFilter) -> Result<Self, Failure> {
        let filter = Filter {
            to: filter.to.as_deref().map(prefix).transpose()?,
            path: filter.path.clone(),
            moved: filter.moved,
            reason: filter.reason.clone(),
        };
        let (pins, program) = find(state)?;
        Ok(Watch { pins, program, filter })
    }

    /// The prefixes that have paths, and those that have none.
    fn destinations(&self) -> Result<(Vec<IpNet>, Vec<IpNet>), Failure> {
        let (with, without): (Vec<_>, Vec<_>) =
            self.program.slots()?.into_iter().partition(|(_, paths)| !paths.is_empty());
        let prefixes = |of: Vec<(IpNet, _)>| of.into_iter().map(|(prefix, _)| prefix).collect();
        Ok((prefixes(with), prefixes(without)))
    }

    /// The paths that have just gone: the agent keeps their names for a while.
    fn withdrawn(&self, names: &Names) -> Result<BTreeSet<(IpNet, u32)>, Failure> {
        let slots = self.program.slots()?;
        let is_there = |(destination, id): &(IpNet, u32)| slots.get(destination).is_some_and(|of| of.contains_key(id));
        let wanted = |(destination, id): &&(IpNet, u32)| {
            *id != 0
                && self.filter.to.is_none_or(|to| to.contains(destination) || destination.contains(&to))
                && self.filter.path.as_ref().is_none_or(|path| names.get(&(*destination, *id)) == Some(path))
        };
        Ok(names.keys().filter(wanted).filter(|path| !is_there(path)).copied().collect())
    }

    /// The present state, with the connections of the caller's network namespace.
    pub fn look(&self) -> Result<Seen, Failure> {
        let config = self.program.config()?;
        let now = sidestep_linux::monotonic_now();
        let at_work = self.pins.holder().is_ok_and(|holder| !holder.is_gone());
        let last_seen = self.pins.last_seen().filter(|_| !at_work);
        let (destinations, left_alone) = self.destinations()?;
        let mut names = self.program.names()?;
        let notes = destinations.iter().filter_map(|net| Some((*net, names.remove(&(*net, 0))?))).collect();
        let around = Around {
            now,
            destinations: destinations.iter().copied().collect(),
            withdrawn: self.withdrawn(&names)?,
            names,
            // It takes no privilege, but a kernel may lack it.
            sockets: Sockets::read().unwrap_or_default(),
        };
        let wanted = |one: &HostConnection| self.filter.lets_through(one, &around);
        let mut connections: Vec<_> = self.program.connections()?.into_iter().filter(wanted).collect();
        connections.sort_by_key(|one| (one.remote, one.local));
        let counters = self.program.counters()?;
        Ok(Seen {
            schema: 1,
            dry_run: config.is_some_and(|config| config.dry_run != 0),
            at_work,
            last_at_work_s: last_seen.map(|age| age.as_secs_f64()),
            attached: self.program.are_attached().unwrap_or_default(),
            controller: match config.filter(|_| at_work).map(|config| config.controller()) {
                Some(ControllerState::Connected) => "connected",
                Some(ControllerState::Away) => "away",
                _ => "none",
            },
            paths_age_s: config.map(|config| since(now, Time::from_nanos(config.paths_ns))),
            overridden: overridden(&self.program),
            restored: config
                .filter(|config| config.dry_run == 0)
                .map_or_else(Vec::new, |config| restored_marks(config.mark_mask)),
            left_alone,
            mended: config.map_or(0, |config| config.mended),
            learnt: self.program.learnt()?.into_iter().map(|one| Learnt::new(one, &around)).collect(),
            notes,
            source_addresses: reaches_now(&self.program, &around.names).unwrap_or_default(),
            paths: around.paths(&connections),
            moves: counters.moves().collect(),
            stays: counters.stays().collect(),
            errors: counters.errors().into(),
            connections: connections.iter().map(|one| Connection::new(one, &around)).collect(),
            destinations,
        })
    }
}

impl Seen {
    /// How many connections and destinations there are, and how old the paths are, in one line.
    pub fn headline(&self) -> String {
        self.headline_parts().join(", ")
    }

    /// The parts of [`Self::headline`].
    pub fn headline_parts(&self) -> Vec<String> {
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let mut parts = vec![
            plural(self.connections.len(), "connection"),
            format!("paths to {}", plural(self.destinations.len(), "destination")),
        ];
        if let Some(seconds) = self.paths_age_s {
            parts.push(format!("{} old", age(seconds)));
        }
        match (self.at_work, self.last_at_work_s, self.controller) {
            (false, Some(seconds), _) => parts.push(format!("no agent is at work since {}", age(seconds))),
            (false, None, _) => parts.push("no agent is at work".into()),
            (true, _, "none") => {}
            (true, _, state) => parts.push(format!("controller {state}")),
        }
        if self.attached == Some(false) {
            parts.push("the program is not attached to its control group: new connections are left alone".into());
        }
        if self.mended > 0 {
            parts.push(format!("rules and routes put back: {}", self.mended));
        }
        if self.dry_run {
            parts.push("dry run: no connection is moved, paths and moves are what they would be".into());
        }
        parts
    }
}

impl PathSeen {
    /// The headings of [`Self::cells`].
    pub const COLUMNS: [&str; 8] =
        ["destination", "path", "connections", "Mbit/s", "rtt ms", "lowest ms", "loss %", "their moves"];

    /// A row for people.
    pub fn cells(&self) -> [String; 8] {
        [
            self.destination.map(|prefix| prefix.to_string()).unwrap_or_default(),
            format!("{}{}", self.name.as_ref().unwrap_or(&self.path), if self.withdrawn { " (withdrawn)" } else { "" }),
            self.connections.to_string(),
            shown(self.rate_mbps),
            shown(self.rtt_ms),
            shown(self.min_rtt_ms),
            shown(self.loss.map(|loss| loss * 1e2)),
            self.moves.to_string(),
        ]
    }
}

impl fmt::Display for LearntPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.3}", self.name.as_ref().unwrap_or(&self.path), self.factor)?;
        if let Some(delay) = self.delay_ms {
            write!(f, " ({delay:.1} ms)")?;
        }
        match self.failed_s {
            Some(seconds) => write!(f, " dead: nothing delivered for {}", age(seconds)),
            None if self.dead => f.write_str(" dead"),
            None => Ok(()),
        }
    }
}

/// What is known in addition to the connections.
struct Around {
    now: Time,
    destinations: Prefixes,
    names: Names,
    /// Paths that have just gone.
    withdrawn: BTreeSet<(IpNet, u32)>,
    sockets: Sockets,
}

impl Around {
    /// The prefix whose paths a connection uses, and the name of its path.
    fn path_of(&self, one: &HostConnection) -> (Option<IpNet>, Option<&String>) {
        let destination = self.destinations.covering(one.remote.ip());
        (destination, destination.and_then(|destination| self.names.get(&(destination, one.path))))
    }

    /// The paths that connections are on.
    fn paths(&self, connections: &[HostConnection]) -> Vec<PathSeen> {
        let mut moves: BTreeMap<(Option<IpNet>, u32), u64> = BTreeMap::new();
        for one in connections {
            *moves.entry((self.path_of(one).0, one.path)).or_default() += u64::from(one.moves);
        }
        for (destination, id) in &self.withdrawn {
            moves.entry((Some(*destination), *id)).or_default();
        }
        let quality = self.sockets.by_path(connections, &self.destinations);
        let seen = |((destination, path), moves): ((Option<IpNet>, u32), u64)| {
            let of = destination.and_then(|destination| quality.get(&(destination, path)).copied());
            let known = of.filter(|of| of.sent.get() > 0);
            let alone = connections.iter().filter(|one| one.path == path && destination.is_none()).count() as u64;
            PathSeen {
                destination,
                path: format!("{path:08x}"),
                name: destination.and_then(|destination| self.names.get(&(destination, path)).cloned()),
                connections: of.map_or(alone, |of| of.connections),
                moves,
                rate_mbps: known.map(|of| of.rate.bits_per_sec() as f64 / 1e6),
                rtt_ms: of.and_then(|of| of.rtt()).map(milliseconds),
                min_rtt_ms: of.and_then(|of| of.min_rtt).map(milliseconds),
                loss: of.and_then(|of| of.loss()),
                retransmitted_bytes: known.map(|of| of.retransmitted.get()),
                withdrawn: destination.is_some_and(|destination| self.withdrawn.contains(&(destination, path))),
            }
        };
        moves.into_iter().map(seen).collect()
    }
}

fn milliseconds(time: Span) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Learnt {
    fn new(learnt: program::Learnt, around: &Around) -> Self {
        let path = |(id, of): (u32, PathLearnt)| LearntPath {
            path: format!("{id:08x}"),
            name: around.names.get(&(learnt.destination, id)).cloned(),
            factor: of.factor,
            delay_ms: of.delay.map(|delay| delay.as_secs_f64() * 1e3),
            dead: of.dead,
            failed_s: of.failed.map(|failed| since(around.now, failed)),
        };
        Learnt { destination: learnt.destination, paths: learnt.paths.iter().copied().map(path).collect() }
    }
}

impl Filter {
    fn lets_through(&self, one: &HostConnection, around: &Around) -> bool {
        self.to.is_none_or(|to| to.contains(&one.remote.ip()))
            && self
                .path
                .as_ref()
                .is_none_or(|path| around.path_of(one).1 == Some(path) || u32::from_str_radix(path, 16) == Ok(one.path))
            && (!self.moved || one.moves > 0)
            && self.reason.as_ref().is_none_or(|reason| one.decided.is_some_and(|(_, why)| why.as_str() == reason))
    }
}

impl Connection {
    /// The headings of [`Self::cells`].
    pub const COLUMNS: [&str; 11] = [
        "local",
        "remote",
        "destination",
        "path",
        "age",
        "Mbit/s",
        "rtt ms",
        "loss %",
        "signals",
        "moves",
        "last decision",
    ];

    fn new(one: &HostConnection, around: &Around) -> Self {
        let (now, info) = (around.now, around.sockets.of(one));
        let (destination, name) = around.path_of(one);
        Connection {
            local: one.local,
            remote: one.remote,
            destination,
            passive: one.passive,
            path: format!("{:08x}", one.path),
            name: name.cloned(),
            rate_mbps: info.map(|info| info.delivery_rate().bits_per_sec() as f64 / 1e6),
            rtt_ms: info.and_then(TcpInfo::srtt).map(milliseconds),
            min_rtt_ms: info.and_then(TcpInfo::min_rtt).map(milliseconds),
            loss: info.and_then(TcpInfo::loss),
            retransmitted_bytes: info.map(|info| info.bytes_retrans),
            age_s: one.opened.map(|opened| since(now, opened)),
            signals: one.decisions.saturating_add(one.suppressed),
            decisions: one.decisions,
            moves: one.moves,
            suppressed: one.suppressed,
            last: one.decided.map(|(at, reason)| Last { reason: reason.as_str(), age_s: since(now, at) }),
            last_signal: one.signal.map(|signal| LastSignal {
                reason: signal.reason.as_str(),
                stay: signal.stay.map(Stay::as_str),
                age_s: since(now, signal.at),
            }),
        }
    }

    /// What its path is called, or else the Path ID.
    pub fn label(&self) -> &str {
        self.name.as_ref().unwrap_or(&self.path)
    }

    /// A row for people.
    pub fn cells(&self) -> [String; 11] {
        let last = match (&self.last_signal, &self.last) {
            (Some(LastSignal { reason, stay: Some(stay), age_s }), _) => {
                Some(format!("{reason}, {} ago: {stay}", age(*age_s)))
            }
            (_, last) => last.as_ref().map(|last| format!("{}, {} ago", last.reason, age(last.age_s))),
        };
        [
            self.local.to_string(),
            self.remote.to_string(),
            self.destination.map(|prefix| prefix.to_string()).unwrap_or_default(),
            self.label().to_string(),
            self.age_s.map(age).unwrap_or_default(),
            shown(self.rate_mbps),
            shown(self.rtt_ms),
            shown(self.loss.map(|loss| loss * 1e2)),
            self.signals.to_string(),
            self.moves.to_string(),
            last.unwrap_or_default(),
        ]
    }
}

/// Reads an address or prefix.
fn prefix(text: &str) -> Result<IpNet, Failure> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    let read: Result<IpNet, _> = text.parse().or_else(|_| address());
    let prefix = read.map_err(|_| Failure::usage(format!("`{text}` is neither an address nor a prefix")))?;
    if prefix.addr() != prefix.network() {
        tracing::warn!("`--to {text}` has host bits; it is read as {}", prefix.trunc());
    }
    Ok(prefix.trunc())
}

/// A number with one digit after the point; nothing where it is not known.
pub fn shown(number: Option<f64>) -> String {
    number.map(|number| format!("{number:.1}")).unwrap_or_default()
}

fn since(now: Time, then: Time) -> f64 {
    now.since(then).as_secs_f64()
}

/// A number of seconds for people: one digit too many hides what matters.
fn age(seconds: f64) -> String {
    match seconds as u64 {
        0 => format!("{:.0} ms", seconds * 1e3),
        1..10 => format!("{seconds:.1} s"),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        assert_eq!(age(0.0421), "42 ms");
        assert_eq!(age(2.34), "2.3 s");
        assert_eq!(age(11.9), "11 s");
        assert_eq!(age(3_599.0), "59 min");
        assert_eq!(age(100_000.0), "27 h");
        assert_eq!(age(1e7), "115 d");
    }
}
