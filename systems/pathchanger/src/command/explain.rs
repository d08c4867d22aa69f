//! `sidestep agent explain`: why a connection, or what goes to an address, did or did not move.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use ipnet::IpNet;
use serde::Serialize;
use sidestep_command::{Failure, Outcome, print_json, println};
use sidestep_hostd::Overridden;
use sidestep_linux::{
    cgroup,
    netlink::{Interface, InterfaceAddress, Netlink, block_on},
    netns::NetNsId,
    sock_diag::{FoundSocket, SockDiag},
};
use sidestep_net::Time;
use sidestep_policy::PathLearnt;

use super::{args::AgentExplain, watch};
use crate::daemon::{
    explain::{
        ConnectionFacts, DestinationFacts, LeftAlone, LeftAloneFacts, PathFacts, Question, Sentences, SourceFacts,
    },
    program::{HostConfig, HostConnection, HostProgram, Names, Way, Ways},
};

/// Most connections that are explained one by one.
const MAX: usize = 16;

/// What is printed as JSON.
#[derive(Serialize)]
struct Shown {
    schema: u32,
    /// How many more connections the question means than are explained.
    more: usize,
    explanations: Vec<Explanation>,
}

/// One thing explained.
#[derive(Default, Serialize)]
struct Explanation {
    /// `connection`, `destination`, `source` or `left_alone`.
    about: &'static str,
    sentences: Sentences,
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<IpNet>,
    /// The name of the connection's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The paths to the destination.
    paths: Vec<PathFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signals: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    moves: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u64>,
    /// The paths to each destination, of an address of this host.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    destinations: BTreeMap<IpNet, Vec<PathFacts>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_alone: Option<LeftAlone>,
}

/// Explains what the user asks about.
pub fn run(args: &AgentExplain) -> Outcome {
    let question: Question = args.what.join(" ").parse().map_err(Failure::usage)?;
    let (explanations, more) = Around::read(&args.state)?.answer(question)?;
    if args.json {
        return print_json(&Shown { schema: 1, more, explanations });
    }
    for (place, explanation) in explanations.iter().enumerate() {
        if place > 0 {
            println!();
        }
        explanation.sentences.iter().for_each(|sentence| println!("{sentence}"));
    }
    if more > 0 {
        println!("\n{more} more connections have this end; `sidestep agent status` lists them");
    }
    Ok(())
}

/// What is known of the agent and of the machine.
struct Around {
    program: HostProgram,
    config: Option<HostConfig>,
    names: Names,
    learnt: BTreeMap<(IpNet, u32), PathLearnt>,
    connections: Vec<HostConnection>,
    addresses: Vec<InterfaceAddress>,
    interfaces: Vec<Interface>,
    /// What leads packets of paths elsewhere.
    overridden: Vec<Overridden>,
    now: Time,
}

impl Around {
    fn read(state: &Path) -> Result<Self, Failure> {
        let (_, program) = watch::find(state)?;
        let config = program.config()?;
        let elsewhere = config.and_then(|config| config.netns());
        if elsewhere.is_some_and(|netns| NetNsId::current().is_ok_and(|here| here.cookie != netns.cookie)) {
            let place = state.display();
            return Err(Failure::run(format!(
                "the agent of {place} works in another network namespace: ask there (`ip netns exec NAME …`)"
            )));
        }
        let machine = async |netlink: &Netlink| Ok((netlink.addresses().await?, netlink.interfaces().await?));
        let (addresses, interfaces) = block_on(machine)?;
        let overridden = watch::overridden(&program);
        let learnt = program.learnt()?.into_iter();
        let learnt = learnt.flat_map(|one| one.paths.into_iter().map(move |(id, path)| ((one.destination, id), path)));
        Ok(Around {
            config,
            names: program.names()?,
            learnt: learnt.collect(),
            connections: program.connections()?,
            addresses,
            interfaces,
            overridden,
            now: sidestep_linux::monotonic_now(),
            program,
        })
    }

    /// The explanations, and how many more there could be.
    fn answer(&self, question: Question) -> Result<(Vec<Explanation>, usize), Failure> {
        let is_meant = |local: SocketAddr, remote: SocketAddr| match question {
            Question::Connection(one, other) => (local, remote) == (one, other) || (remote, local) == (one, other),
            Question::End(end) => local == end || remote == end,
            Question::Address(_) => false,
        };
        if let Question::Address(address) = question {
            return Ok((vec![self.address(address)?], 0));
        }
        let sockets = SockDiag::open()?.find(is_meant)?;
        let mut explained = Vec::new();
        for one in self.connections.iter().filter(|one| is_meant(one.local, one.remote)) {
            let socket = sockets.iter().find(|socket| (socket.local, socket.remote) == (one.local, one.remote));
            explained.push(self.connection(one, socket)?);
        }
        let has_path = |socket: &&FoundSocket| {
            self.connections.iter().any(|one| (one.local, one.remote) == (socket.local, socket.remote))
        };
        for socket in sockets.iter().filter(|socket| !has_path(socket)) {
            explained.push(self.left_alone(socket)?);
        }
        match question {
            Question::End(end) if explained.is_empty() => explained.push(self.address(end.ip())?),
            Question::Connection(one, other) if explained.is_empty() => {
                return Err(Failure::run(format!(
                    "there is no connection between {one} and {other} in this network namespace; `sidestep agent status` lists \
                     those with a path, `ss -tn` all"
                )));
            }
            _ => {}
        }
        let more = explained.len().saturating_sub(MAX);
        explained.truncate(MAX);
        Ok((explained, more))
    }

    /// The paths to a destination, with what is known of them.
    fn paths(&self, ways: &Ways) -> Vec<PathFacts> {
        let path = |way: &Way| {
            let key = (ways.destination, way.id);
            let learnt = self.learnt.get(&key).copied().unwrap_or_default();
            let name = self.names.get(&key).cloned().unwrap_or_else(|| format!("{:08x}", way.id));
            let overridden = self.overridden.iter().find(|one| one.is_of_path(&name, ways.destination));
            PathFacts {
                overridden: overridden.map(|one| one.why.clone()),
                name,
                takes: way.takes,
                dead: learnt.dead,
                failed_s: learnt.failed.map(|failed| self.now.since(failed).as_secs_f64()),
            }
        };
        ways.paths.iter().map(path).collect()
    }

    fn connection(&self, one: &HostConnection, socket: Option<&FoundSocket>) -> Result<Explanation, Failure> {
        let Some(ways) = self.program.ways(one.remote.ip(), Some(one.local.ip()))? else {
            let (ends, why) = ((one.local, one.remote), LeftAlone::NoDestination);
            return Ok(left_alone(LeftAloneFacts { subject: named(ends), why, mark: None }, Some(ends), None));
        };
        let facts = ConnectionFacts {
            local: one.local,
            remote: one.remote,
            passive: one.passive,
            destination: ways.destination,
            path: ways.paths.iter().position(|way| way.id == one.path),
            paths: self.paths(&ways),
            signals: one.decisions.saturating_add(one.suppressed),
            moves: one.moves,
            last: one.signal.map(|signal| (self.now.since(signal.at), signal.reason, signal.stay)),
            timeouts: socket.map_or(0, |socket| socket.info.timeouts),
            dry_run: self.config.is_some_and(|config| config.dry_run != 0),
        };
        Ok(Explanation {
            about: "connection",
            sentences: facts.sentences(),
            local: Some(facts.local),
            remote: Some(facts.remote),
            destination: Some(facts.destination),
            path: facts.path.and_then(|place| facts.paths.get(place)).map(|path| path.name.clone()),
            signals: Some(facts.signals),
            moves: Some(facts.moves.into()),
            paths: facts.paths,
            ..Explanation::default()
        })
    }

    /// A connection that the kernel has and the agent leaves alone.
    fn left_alone(&self, socket: &FoundSocket) -> Result<Explanation, Failure> {
        let ends = (socket.local, socket.remote);
        let ways = self.program.ways(ends.1.ip(), Some(ends.0.ip()))?;
        let destination = ways.as_ref().map(|ways| ways.destination);
        let why = match self.leaves_alone(ends.1.ip(), ways.as_ref()) {
            Some(why) => why,
            None => self.leaves_socket_alone(socket, ways.as_ref()),
        };
        Ok(left_alone(LeftAloneFacts { subject: named(ends), why, mark: Some(socket.mark) }, Some(ends), destination))
    }

    /// Why connections to an address are left alone; `None`: they are not.
    fn leaves_alone(&self, address: IpAddr, ways: Option<&Ways>) -> Option<LeftAlone> {
        let link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        if address.is_loopback() || self.interface_of(address).is_some() {
            return Some(LeftAlone::Own);
        }
        match ways {
            _ if address.is_multicast() => Some(LeftAlone::Multicast),
            Some(ways) if !ways.paths.is_empty() => None,
            _ if link_local => Some(LeftAlone::LinkLocal),
            None => Some(LeftAlone::NoDestination),
            Some(ways) => Some(LeftAlone::WithoutPaths { prefix: ways.destination }),
        }
    }

    fn leaves_socket_alone(&self, socket: &FoundSocket, ways: Option<&Ways>) -> LeftAlone {
        let mask = self.config.map_or(0, |config| config.mark_mask);
        if socket.interface != 0 {
            return LeftAlone::Device { interface: self.name_of(socket.interface) };
        }
        if let Some(ways) = ways.filter(|ways| ways.paths.iter().all(|way| !way.takes)) {
            let paths = self.paths(ways).into_iter().map(|path| path.name).collect();
            return LeftAlone::NoSource { destination: ways.destination, paths };
        }
        if socket.mark & mask != 0 {
            return LeftAlone::Mark { mark: socket.mark, mask };
        }
        self.group_of(socket).unwrap_or(LeftAlone::Before)
    }

    /// The control group of a connection and the agent's, if both are known and the one does not hold the other.
    fn group_of(&self, socket: &FoundSocket) -> Option<LeftAlone> {
        let mount = cgroup::mount_point().ok()?;
        let of_agent = self.program.groups().unwrap_or_default().into_iter();
        let of_agent: Vec<_> = of_agent.filter_map(|number| cgroup::of_number(number, &mount)).collect();
        let (group, first) = (cgroup::of_number(socket.group?, &mount)?, of_agent.first()?);
        let is_outside = !of_agent.iter().any(|of_agent| group.starts_with(of_agent));
        is_outside.then(|| LeftAlone::Group { group: cgroup::shown(&group), of_agent: cgroup::shown(first) })
    }

    fn address(&self, address: IpAddr) -> Result<Explanation, Failure> {
        if let Some(interface) = self.interface_of(address) {
            return self.source(address, interface);
        }
        let ways = self.program.ways(address, None)?;
        let why = self.leaves_alone(address, ways.as_ref());
        let (None, Some(ways)) = (&why, &ways) else {
            let why = why.unwrap_or(LeftAlone::NoDestination);
            let facts = LeftAloneFacts { subject: format!("What goes to {address}"), why, mark: None };
            let destination = ways.map(|ways| ways.destination);
            return Ok(Explanation { address: Some(address), ..left_alone(facts, None, destination) });
        };
        let there: Vec<_> = self.connections.iter().filter(|one| one.remote.ip() == address).collect();
        let on = |id| there.iter().filter(|one| one.path == id).count() as u64;
        let mut sources = Vec::new();
        let own = self.addresses.iter().map(|one| one.address.addr());
        for source in own.filter(|own| own.is_ipv4() == address.is_ipv4()) {
            if let Some(ways) = self.program.ways(address, Some(source))? {
                sources.push((source, ways.paths.iter().map(|way| way.takes).collect()));
            }
        }
        let facts = DestinationFacts {
            address,
            destination: ways.destination,
            connections: ways.paths.iter().map(|way| on(way.id)).collect(),
            moves: there.iter().map(|one| u64::from(one.moves)).sum(),
            paths: self.paths(ways),
            sources,
        };
        Ok(Explanation {
            about: "destination",
            sentences: facts.sentences(),
            address: Some(address),
            destination: Some(facts.destination),
            moves: Some(facts.moves),
            connections: Some(facts.connections.iter().sum()),
            paths: facts.paths,
            ..Explanation::default()
        })
    }

    /// An address of this host's own.
    fn source(&self, address: IpAddr, interface: u32) -> Result<Explanation, Failure> {
        let mut destinations = Vec::new();
        for net in self.program.destinations()?.into_iter().filter(|net| net.addr().is_ipv4() == address.is_ipv4()) {
            let ways = self.program.ways_of(net, Some(address))?;
            destinations.extend(ways.filter(|ways| !ways.paths.is_empty()).map(|ways| (net, self.paths(&ways))));
        }
        destinations.sort_by_key(|(net, _)| *net);
        let here: Vec<_> = self.connections.iter().filter(|one| one.local.ip() == address).collect();
        let mut waiting = 0;
        for one in &here {
            let ways = self.program.ways(one.remote.ip(), Some(address))?;
            let of = ways.and_then(|ways| self.learnt.get(&(ways.destination, one.path)));
            waiting += u64::from(of.is_some_and(|path| path.failed.is_some()));
        }
        let facts = SourceFacts {
            address,
            interface: self.name_of(interface),
            connections: here.len() as u64,
            moves: here.iter().map(|one| u64::from(one.moves)).sum(),
            waiting,
            destinations,
        };
        Ok(Explanation {
            about: "source",
            sentences: facts.sentences(),
            address: Some(address),
            moves: Some(facts.moves),
            connections: Some(facts.connections),
            destinations: facts.destinations.into_iter().collect(),
            ..Explanation::default()
        })
    }

    /// The interface that has an address of this host.
    fn interface_of(&self, address: IpAddr) -> Option<u32> {
        self.addresses.iter().find(|one| one.address.addr() == address).map(|one| one.interface)
    }

    fn name_of(&self, index: u32) -> String {
        let found = self.interfaces.iter().find(|interface| interface.index == index);
        found.map_or_else(|| format!("the interface {index}"), |interface| interface.name.clone())
    }
}

fn named((local, remote): (SocketAddr, SocketAddr)) -> String {
    format!("The connection from {local} to {remote}")
}

fn left_alone(
    facts: LeftAloneFacts,
    ends: Option<(SocketAddr, SocketAddr)>,
    destination: Option<IpNet>,
) -> Explanation {
    Explanation {
        about: "left_alone",
        sentences: facts.sentences(),
        local: ends.map(|(local, _)| local),
        remote: ends.map(|(_, remote)| remote),
        destination,
        left_alone: Some(facts.why),
        ..Explanation::default()
    }
}
