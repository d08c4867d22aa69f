//! Explains in three sentences why a connection, or what goes to an address, did or did not move.
//!
//! The first sentence says where it is and why, the second what happened, the third what can happen and what to do. The
//! caller gathers the facts; here they become words.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::indexing_slicing))]

mod question;
mod words;

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::Serialize;
use sidestep_net::Span;
use sidestep_policy::{Reason, Stay};

pub use self::question::Question;
use self::words::{and, count, time};

/// The three sentences.
pub type Sentences = [String; 3];

/// A path, as those to one destination that a connection could take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathFacts {
    /// What it is called, or else its Path ID.
    pub name: String,
    /// Whether it takes packets from the source address in question.
    pub takes: bool,
    /// Whether new connections are kept off it.
    pub dead: bool,
    /// For how many seconds nothing has been delivered on it, where it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_s: Option<f64>,
    /// The rule or route of others that leads its packets elsewhere, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overridden: Option<String>,
}

/// A connection that has a path.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionFacts {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Whether the other end opened it.
    pub passive: bool,
    /// The destination prefix.
    pub destination: IpNet,
    /// The place of its path in `paths`; `None` if that has just gone.
    pub path: Option<usize>,
    /// The paths to the destination.
    pub paths: Vec<PathFacts>,
    /// Signals since it opened.
    pub signals: u32,
    /// Moves since it opened.
    pub moves: u32,
    /// How long ago the last signal came, what it was, and what kept it on its path.
    pub last: Option<(Span, Reason, Option<Stay>)>,
    /// Timeouts in a row without an answer, as the kernel counts them.
    pub timeouts: u8,
    /// Whether the agent only decides, and moves nothing.
    pub dry_run: bool,
}

/// What goes to an address.
#[derive(Clone, Debug, PartialEq)]
pub struct DestinationFacts {
    /// The address.
    pub address: IpAddr,
    /// The destination prefix.
    pub destination: IpNet,
    /// The paths to it.
    pub paths: Vec<PathFacts>,
    /// The addresses of this host, and which of the paths take each.
    pub sources: Vec<(IpAddr, Vec<bool>)>,
    /// The connections to the address: how many are on each path, and how often they have moved.
    pub connections: Vec<u64>,
    /// Moves of these connections.
    pub moves: u64,
}

/// What begins at an address of this host.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceFacts {
    /// The address.
    pub address: IpAddr,
    /// The interface that has it.
    pub interface: String,
    /// Each destination of its family with the paths to it.
    pub destinations: Vec<(IpNet, Vec<PathFacts>)>,
    /// The connections from the address that have a path, those of them whose path is dead, and how often all have moved.
    pub connections: u64,
    /// Those whose path is dead.
    pub waiting: u64,
    /// Moves of these connections.
    pub moves: u64,
}

/// Why the agent leaves something alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "rule")]
pub enum LeftAlone {
    /// The address is this host's own, or one of its loopback.
    Own,
    /// The address means something on one link only.
    LinkLocal,
    /// The address is a group's.
    Multicast,
    /// No destination has the address.
    NoDestination,
    /// A destination without paths has it: by name, or because the main or the local table has a route of its own there.
    WithoutPaths {
        /// The prefix.
        prefix: IpNet,
    },
    /// The socket is bound to an interface, or belongs to a VRF.
    Device {
        /// The interface.
        interface: String,
    },
    /// No path takes its source address.
    NoSource {
        /// The destination.
        destination: IpNet,
        /// Its paths.
        paths: Vec<String>,
    },
    /// It has a mark that is not the agent's.
    Mark {
        /// The mark.
        mark: u32,
        /// The bits that are the agent's.
        mask: u32,
    },
    /// The process that made it is not in the agent's control group.
    Group {
        /// The process's group.
        group: String,
        /// The agent's.
        of_agent: String,
    },
    /// It began before the agent, or while its program was not attached, or a process of another network namespace made it.
    Before,
}

/// What the agent leaves alone: a connection, or all that goes to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftAloneFacts {
    /// A connection's ends, or an address.
    pub subject: String,
    /// Why.
    pub why: LeftAlone,
    /// The connection's mark, if it is a connection.
    pub mark: Option<u32>,
}

impl PathFacts {
    fn has_failed(&self) -> bool {
        self.failed_s.is_some()
    }

    /// Whether nothing prevents a connection on it.
    fn lives(&self) -> bool {
        !self.dead && !self.has_failed()
    }

    /// Its name, and why packets do not leave by it.
    fn led_elsewhere(&self) -> Option<String> {
        self.overridden.as_ref().map(|why| format!("{} ({why})", self.name))
    }

    /// What is known of it: `green (dead, nothing delivered for 12 s)`.
    fn described(&self) -> String {
        match self.failed_s {
            Some(seconds) => format!("{} (dead: nothing was delivered there for {})", self.name, time(seconds)),
            None if self.dead => format!("{} (an answer is late there)", self.name),
            None if self.overridden.is_some() => format!("{} (its packets are led elsewhere)", self.name),
            None => format!("{} (alive)", self.name),
        }
    }
}

impl ConnectionFacts {
    /// The three sentences.
    pub fn sentences(&self) -> Sentences {
        [self.place(), self.past(), self.future()]
    }

    fn current(&self) -> Option<&PathFacts> {
        self.paths.get(self.path?)
    }

    /// The other paths that take its address.
    fn others(&self) -> impl Iterator<Item = &PathFacts> {
        self.paths
            .iter()
            .enumerate()
            .filter(|(place, path)| Some(*place) != self.path && path.takes)
            .map(|(_, path)| path)
    }

    fn place(&self) -> String {
        let ConnectionFacts { local, remote, destination, .. } = self;
        let who = format!("The connection from {local} to {remote}");
        let of = format!("one of {} to {destination}", count(self.paths.len() as u64, "path"));
        let Some(path) = self.current() else {
            return format!("{who} was on a path to {destination} that is gone, and is about to get another.");
        };
        let would = if self.dry_run { "would be" } else { "is" };
        let name = &path.name;
        let why = match &self.last {
            _ if self.paths.len() == 1 => {
                return format!("{who} {would} on {name}, the only path to {destination}{}.", self.elsewhere());
            }
            Some((ago, reason, None)) if self.moves > 0 => {
                format!("to which it moved {} ago ({reason})", time(ago.as_secs_f64()))
            }
            _ if self.others().next().is_none() => {
                format!("the only one of them that takes packets from its source address {}", local.ip())
            }
            _ if self.moves > 0 => "to which it has moved".into(),
            _ if self.passive => "which was drawn when the other end had opened it".into(),
            _ => "which was drawn when it opened".into(),
        };
        format!("{who} {would} on {name}, {of}, {why}{}.", self.elsewhere())
    }

    /// What leads its packets elsewhere: then the path is only what was decided.
    fn elsewhere(&self) -> String {
        let why = self.current().and_then(|path| path.overridden.as_ref());
        why.map_or_else(String::new, |why| format!("; but {why}"))
    }

    fn past(&self) -> String {
        let happened = match (self.signals, &self.last) {
            (0, _) => "No signal has come since it opened, so nothing asked for a move".to_string(),
            (signals, Some((ago, reason, stay))) => {
                let came = format!("{} came", count(signals.into(), "signal"));
                let stayed = stay.map_or(String::new(), |stay| format!(" and left it there: {}", words::stay(stay)));
                format!(
                    "{came} so far, {}; the last was {reason}, {} ago,{}",
                    count(self.moves.into(), "move"),
                    time(ago.as_secs_f64()),
                    if stayed.is_empty() { " and moved it".into() } else { stayed }
                )
            }
            (signals, None) => {
                format!("{} came so far, {}", count(signals.into(), "signal"), count(self.moves.into(), "move"))
            }
        };
        let path = match self.current() {
            Some(PathFacts { name, failed_s: Some(seconds), .. }) => {
                format!("; {name} is held for dead, as nothing was delivered on it for {}", time(*seconds))
            }
            Some(PathFacts { name, dead: true, .. }) => format!("; an answer to a SYN is late on {name}"),
            Some(PathFacts { name, .. }) => format!("; {name} is not held for dead"),
            None => String::new(),
        };
        let waits = match self.timeouts {
            0 => String::new(),
            n => format!(", and TCP has had {} in a row without an answer", count(n.into(), "timeout")),
        };
        format!("{happened}{path}{waits}.")
    }

    fn future(&self) -> String {
        let (alive, dead): (Vec<_>, Vec<_>) = self.others().partition(|path| path.lives());
        let refuse: Vec<_> = self.paths.iter().filter(|path| !path.takes).collect();
        let names = |of: &[&PathFacts]| and(&of.iter().map(|path| path.described()).collect::<Vec<_>>());
        let source = self.local.ip();
        let here_failed = self.current().is_some_and(PathFacts::has_failed);
        if !alive.is_empty() {
            let rest = if dead.is_empty() {
                String::new()
            } else {
                format!("; {} also take it, and are not drawn", names(&dead))
            };
            return format!("It can move to {} at its next signal that asks for it{rest}.", names(&alive));
        }
        if !dead.is_empty() {
            return format!(
                "It stays until something is delivered on another path that takes {source}: {}.",
                names(&dead)
            );
        }
        if refuse.is_empty() {
            return "It cannot move, as there is no other path: give the destination a second one.".into();
        }
        let others_live = refuse.iter().any(|path| path.lives());
        let now = match (here_failed, others_live) {
            (true, true) => {
                "its application must connect anew to use one of these, or on_dead = \"reset\" in [pathchanger] has it do so"
            }
            (true, false) => "and as these do not live either, it waits",
            (false, _) => {
                "should its path die, its application must connect anew, or on_dead = \"reset\" in [pathchanger] has it do so"
            }
        };
        format!(
            "It can never move, as {} {} not take packets from {source}: {now}; only MPTCP, or an address that all paths take, \
             would let it live through that.",
            names(&refuse),
            if refuse.len() == 1 { "does" } else { "do" },
        )
    }
}

impl DestinationFacts {
    /// The three sentences.
    pub fn sentences(&self) -> Sentences {
        let DestinationFacts { address, destination, .. } = self;
        let paths: Vec<_> = self.paths.iter().map(PathFacts::described).collect();
        let [is, of] = if paths.len() == 1 { ["is", "path"] } else { ["are", "paths"] };
        let place = format!(
            "{address} belongs to the destination {destination}, whose {of} {is} {}{}.",
            and(&paths),
            elsewhere(&self.paths)
        );
        [place, self.past(), self.future()]
    }

    fn past(&self) -> String {
        let all: u64 = self.connections.iter().sum();
        if all == 0 {
            return "No connection of this host goes there now that has a path.".into();
        }
        let on = |(path, n): (&PathFacts, &u64)| (*n > 0).then(|| format!("{n} on {}", path.name));
        let by_path: Vec<_> = self.paths.iter().zip(&self.connections).filter_map(on).collect();
        let go = if all == 1 { "goes" } else { "go" };
        format!("{} {go} there now, {}, with {}.", count(all, "connection"), and(&by_path), count(self.moves, "move"))
    }

    fn future(&self) -> String {
        let alive: Vec<_> = self.paths.iter().filter(|path| path.lives()).map(|path| path.name.as_str()).collect();
        let begin = match alive.as_slice() {
            [] => "New connections may begin on any of them, as none is alive".to_string(),
            alive => format!("New connections begin on {}", and(alive)),
        };
        let bound: Vec<_> = self.sources.iter().filter(|(_, takes)| !takes.iter().all(|takes| *takes)).collect();
        if bound.is_empty() {
            let stay = if self.paths.len() < 2 { ", and cannot move" } else { ", and can move to each of them" };
            return format!("{begin}{stay}.");
        }
        let of = |(source, takes): &&(IpAddr, Vec<bool>)| {
            let names = self.paths.iter().zip(takes).filter(|(_, takes)| **takes).map(|(path, _)| path.name.as_str());
            match names.collect::<Vec<_>>().as_slice() {
                [] => format!("from {source} none (they are left alone)"),
                [one] => format!("from {source} {one} only (they can never move)"),
                some => format!("from {source} {}", and(some)),
            }
        };
        format!("{begin}; of the paths, connections can use {}.", and(&bound.iter().map(of).collect::<Vec<_>>()))
    }
}

impl SourceFacts {
    /// The three sentences.
    pub fn sentences(&self) -> Sentences {
        [self.place(), self.past(), self.future()]
    }

    fn place(&self) -> String {
        let who = format!("{} is an address of this host, on {}", self.address, self.interface);
        let of = |(destination, paths): &(IpNet, Vec<PathFacts>)| {
            let takers: Vec<_> = paths.iter().filter(|path| path.takes).map(PathFacts::described).collect();
            match takers.len() {
                0 => format!("none to {destination}"),
                1 if paths.len() > 1 => format!("to {destination} by {} only", and(&takers)),
                _ => format!("to {destination} by {}", and(&takers)),
            }
        };
        if self.destinations.is_empty() {
            return format!("{who}, and no destination of its family has paths.");
        }
        let takers = self.destinations.iter().flat_map(|(_, paths)| paths.iter().filter(|path| path.takes));
        let elsewhere = elsewhere(takers);
        format!(
            "{who}; its packets are taken {}{elsewhere}.",
            and(&self.destinations.iter().map(of).collect::<Vec<_>>())
        )
    }

    fn past(&self) -> String {
        if self.connections == 0 {
            return "No connection that has a path begins at it now.".into();
        }
        let begin = if self.connections == 1 { "begins" } else { "begin" };
        let waiting = match self.waiting {
            0 => "none of them on a dead path".to_string(),
            n => format!("{n} of them on a dead path"),
        };
        let (connections, moves) = (count(self.connections, "connection"), count(self.moves, "move"));
        format!("{connections} {begin} at it now, {waiting}, with {moves}.")
    }

    fn future(&self) -> String {
        let single = |(_, paths): &&(IpNet, Vec<PathFacts>)| paths.iter().filter(|path| path.takes).count() == 1;
        let bound: Vec<_> = self.destinations.iter().filter(single).map(|(net, _)| net.to_string()).collect();
        if bound.is_empty() {
            return "Its connections move where several paths take them, and are left alone where none does.".into();
        }
        format!(
            "Its connections to {} can never move: when their path dies, new ones begin at another address, and on_dead = \
             \"reset\" in [pathchanger], MPTCP, or an address that all paths take would help those that are open.",
            and(&bound)
        )
    }
}

/// What leads packets of these paths elsewhere, as the end of a sentence.
fn elsewhere<'a>(paths: impl IntoIterator<Item = &'a PathFacts>) -> String {
    let mut led: Vec<_> = paths.into_iter().filter_map(PathFacts::led_elsewhere).collect();
    led.dedup();
    if led.is_empty() { String::new() } else { format!("; but others lead packets elsewhere: {}", and(&led)) }
}

impl LeftAloneFacts {
    /// The three sentences.
    pub fn sentences(&self) -> Sentences {
        let [why, todo] = self.why.words();
        let takes = match self.mark {
            Some(0) => "Its packets have no mark and take the host's own routes, as without the agent.".into(),
            Some(mark) => {
                format!("Its packets have the mark {mark:#x}, and take the routes that the host's rules have for it.")
            }
            None => "What goes there takes the host's own routes, as without the agent.".into(),
        };
        [format!("{} is left alone: {why}.", self.subject), takes, format!("{todo}.")]
    }
}

impl LeftAlone {
    /// Why, and what to do.
    fn words(&self) -> [String; 2] {
        let both = |why: &str, todo: &str| [why.to_string(), todo.to_string()];
        match self {
            LeftAlone::Own => both("the address is this host's own", "It never leaves the host, so there is nothing to move"),
            LeftAlone::LinkLocal => {
                both("the address is link-local", "It can be reached by one link only, so there is nothing to move")
            }
            LeftAlone::Multicast => both("the address is a group's", "TCP does not go there, so there is nothing to move"),
            LeftAlone::NoDestination => both(
                "no destination of the agent has the address",
                "Add a [[destination]] that has it, with paths, to have its connections moved",
            ),
            LeftAlone::WithoutPaths { prefix } => [
                format!("the destination {prefix} has no paths"),
                format!(
                    "Either the file says so (path = []), or the main table has a route to {prefix} of its own, which wins over \
                     wider destinations: give {prefix} paths by name if its connections are to move"
                ),
            ],
            LeftAlone::Device { interface } => [
                format!("its socket is bound to {interface}"),
                "The kernel looks for its routes through that interface, or in its VRF, whatever the mark says: have the \
                 application not bind it"
                    .into(),
            ],
            LeftAlone::NoSource { destination, paths } => [
                format!("no path to {destination} takes packets from its source address"),
                format!("Name the address in the sources of a path ({}), if its provider lets it through", paths.join(", ")),
            ],
            LeftAlone::Mark { mark, mask } => [
                format!("others have set its mark {mark:#x}, within the agent's bits {mask:#x}"),
                "Give the agent bits that nothing else uses (mark_mask in [pathchanger]); `sidestep doctor` lists free ones".into(),
            ],
            LeftAlone::Group { group, of_agent } => [
                format!("it belongs to the control group {group}, and the agent's is {of_agent}"),
                "Start the agent with a --cgroup that holds both, or with none for all".into(),
            ],
            LeftAlone::Before => both(
                "it began before the agent, or while the agent's program was not attached",
                "It keeps its route until it ends; the connections that its application opens next get a path",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
