//! All sockets that probe targets by egresses, and when they do not count.

use std::hash::{BuildHasher, RandomState};

use sidestep_hostd::AgentError;
use sidestep_linux::{LinuxError, Pauses, netlink::Family};
use sidestep_net::{Span, Time};

use super::{
    RouteControlConfig,
    egresses::Egresses,
    following::PAUSE,
    kernel::Numbers,
    probes::{self, Probing, Sent},
};
use crate::Probe;

/// What probes, and the random bits by which it does.
pub(super) struct Probers {
    all: Vec<Probing>,
    /// Probes that this host could not send.
    refused: u64,
    pauses: Pauses,
    random: RandomState,
    drawn: u64,
}

impl Probers {
    /// No sockets yet.
    pub(super) fn new() -> Self {
        Probers { all: Vec::new(), refused: 0, pauses: Pauses::new(PAUSE), random: RandomState::new(), drawn: 0 }
    }

    /// How many sockets there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Closes all.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    /// What probes a target by an egress.
    pub(super) fn of(&self, egress: usize, target: u32) -> Option<&Probing> {
        self.all.iter().find(|one| (one.egress, one.target) == (egress, target))
    }

    /// How many probes this host could not send.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Random bits.
    pub(super) fn draw(&mut self) -> u32 {
        self.drawn = self.drawn.wrapping_add(1);
        self.random.hash_one(self.drawn) as u32
    }

    /// For how long the daemon did not run, if it did not.
    pub(super) fn look_for_pause(&mut self) -> Option<Span> {
        self.pauses.look()
    }

    /// Opens the sockets that are missing. Where the machine lacks what they need, that is an error.
    pub(super) fn open(&mut self) -> Result<(), AgentError> {
        for prober in &mut self.all {
            match prober.open() {
                Err(error) if error.is_environment() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits until a socket may have an answer; never completes without sockets. Its number comes back.
    pub(super) async fn answered(&self) -> usize {
        probes::answered(&self.all).await
    }

    /// The next answer that has come at a socket: when, to which probe, and of which target.
    pub(super) fn receive(&mut self, socket: usize) -> Result<Option<(Time, Probe, u32)>, LinuxError> {
        let Some(prober) = self.all.get_mut(socket) else { return Ok(None) };
        Ok(prober.receive()?.map(|(at, probe)| (at, probe, prober.target)))
    }

    /// Makes the sockets those of the addresses and interfaces that are there. Returns the probes, by family, whose answers
    /// cannot be taken any more.
    pub(super) fn follow(
        &mut self,
        config: &RouteControlConfig,
        numbers: Numbers,
        egresses: &Egresses,
    ) -> Vec<(Family, Probe)> {
        let wanted = config.targets();
        self.all.retain(|one| wanted.of.get(one.egress).is_some_and(|targets| targets.contains(&one.target)));
        let mut given_up = Vec::new();
        for (egress, of) in config.egresses.iter().enumerate() {
            for number in wanted.of.get(egress).into_iter().flatten() {
                let Some(target) = config.targets.get(*number as usize) else { continue };
                let spec = match (egresses.carrier(egress, of), egresses.ways.get(egress)) {
                    (Ok(link), Some(ways)) => match ways.of(target.family()) {
                        Ok(way) => Ok((probes::spec((egress, of), target, way, numbers), link.index)),
                        Err(why) => Err(why.to_string()),
                    },
                    (Ok(_), None) => Err(format!("{} is down or has no carrier", of.dev)),
                    (Err(why), _) => Err(why),
                };
                let place = self.all.iter().position(|one| (one.egress, one.target) == (egress, *number));
                let place = place.unwrap_or_else(|| {
                    self.all.push(Probing::new(egress, *number, target.family()));
                    self.all.len() - 1
                });
                let Some(probing) = self.all.get_mut(place) else { continue };
                given_up.extend(probing.follow(spec).into_iter().map(|probe| (target.family(), probe)));
            }
        }
        given_up
    }

    /// Sends a probe to a target. Returns those, this one too, of which nothing comes as the host could not send it.
    pub(super) fn send(&mut self, target: u32, probe: Probe) -> Vec<Probe> {
        let egress = probe.egress as usize;
        let prober = self.all.iter_mut().find(|one| (one.egress, one.target) == (egress, target));
        let sent = prober.map(|prober| (prober.send(probe), prober.given_up()));
        let Some((Sent::Refused, given_up)) = sent else { return Vec::new() };
        self.refused += 1;
        given_up.into_iter().chain([probe]).collect()
    }

    /// Why probes of a family by an egress cannot be sent; `None` if those to some target can.
    pub(super) fn why_not(
        &self,
        config: &RouteControlConfig,
        egresses: &Egresses,
        egress: usize,
        family: Family,
    ) -> Option<String> {
        let of = config.egresses.get(egress)?;
        let ways = egresses.ways.get(egress).filter(|ways| ways.has(family))?;
        if let Err(why) = egresses.carrier(egress, of) {
            return Some(why);
        }
        if let Err(why) = ways.of(family) {
            return Some(why.to_string());
        }
        let mut probers = self.all.iter().filter(|one| (one.egress, one.family) == (egress, family)).peekable();
        let first = probers.peek().and_then(|one| one.why_not())?.to_string();
        probers.all(|one| one.why_not().is_some()).then_some(first)
    }

    /// Whether an egress has targets of a family.
    pub(super) fn have_targets(&self, egress: usize, family: Family) -> bool {
        self.all.iter().any(|one| (one.egress, one.family) == (egress, family))
    }
}
