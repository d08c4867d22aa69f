//! Draws a path for each packet that answers without a socket of its own: SYN-ACKs, and resets.
//!
//! The program in TCP moves sockets. A connection that is being opened has none, so its SYN-ACK would take the default
//! route, and while that is dead no client could connect. A table of nf_tables draws instead ([`DrawTable`]), by the weights
//! that new connections are drawn by. It is kept and taken over as rules and routes are, by its name.

use ipnet::IpNet;
use sidestep_hostd::paths::{DestinationPaths, MarkBits};
use sidestep_linux::{
    netlink::Family,
    nftables::{Draw, DrawTable, Share},
};
use sidestep_policy::{PolicySettings, are_off, reply_weights};

use super::{entries::entries, ownership::RoutingSpace};
use crate::daemon::program::{HostConfig as ProgramConfig, HostProgram, Learnt, SlotPath, SourcesByPath};

/// The agent's hold on the table.
#[derive(Debug, Default)]
pub(super) struct Replies {
    /// `None` in a dry run, and before the first paths.
    table: Option<DrawTable>,
    draws: Vec<Draw>,
    /// The table as the kernel had it when we last wrote it; `None` while it is not there.
    written: Option<Written>,
    /// How often another program had changed or removed the table.
    mended: u64,
    /// Whether the table is an earlier agent's, which stays until the controller has answered.
    inherited: bool,
    /// Whether it was reported to the operator that the kernel refuses the table.
    warned: bool,
    /// The families whose connections are kept from being masqueraded, as another program masquerades.
    keeps_sources: Vec<Family>,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    /// Of all tables of the namespace: as long as it stays, nothing has changed.
    generation: u32,
    fingerprint: Option<u64>,
}

impl Replies {
    /// Whether the table is in place.
    pub(super) fn are_drawn(&self) -> bool {
        self.written.is_some() || self.inherited
    }

    /// How often the table was mended.
    pub(super) fn mended(&self) -> u64 {
        self.mended
    }

    /// Makes the table hold `draws`.
    fn write(&mut self, draws: Vec<Draw>) {
        self.inherited = false;
        if self.written.is_some() && self.draws == draws {
            return;
        }
        self.draws = draws;
        self.install();
    }

    fn install(&mut self) {
        self.written = None;
        let Some(table) = &mut self.table else { return };
        for of in Family::ALL {
            let keep = self.keeps_sources.contains(&of);
            if let (Err(error), true) = (table.keep_sources(of, keep), keep && !self.warned) {
                tracing::warn!(
                    %error,
                    "another program masquerades connections of {of}, and the kernel cannot keep ours from that: one that moves \
                     to another interface is lost"
                );
            }
        }
        let written = table.replace(&self.draws).and_then(|()| look(table));
        match written {
            Ok(written) => {
                self.written = Some(written);
                self.warned = false;
            }
            Err(error) if !self.warned => {
                self.warned = true;
                tracing::warn!(
                    %error,
                    "SYN-ACKs take the default route: while that is dead, no client can open a connection to this host"
                );
            }
            Err(_) => {}
        }
    }

    /// Mends the table if another program has changed it, and tries again if it could not be written.
    fn mend(&mut self) {
        let (Some(table), Some(written)) = (&mut self.table, &mut self.written) else { return self.install() };
        match table.generation() {
            Ok(generation) if generation == written.generation => return,
            Ok(_) => {}
            Err(error) => return tracing::debug!(%error, "the table that draws paths of replies cannot be read"),
        }
        match look(table) {
            Ok(now) if now.fingerprint == written.fingerprint => *written = now,
            _ => {
                self.mended += 1;
                tracing::warn!(
                    "another program changed or removed the table that draws paths of SYN-ACKs: it is written again"
                );
                self.install();
            }
        }
    }

    /// Gives draws the weights of `draws`, which have the same paths, where they are off by much.
    fn reweigh(&mut self, draws: Vec<Draw>) {
        let (Some(table), true) = (&mut self.table, self.written.is_some()) else { return };
        let mut changed = false;
        for (position, (present, wanted)) in self.draws.iter_mut().zip(draws).enumerate() {
            if present.destination != wanted.destination || !is_off(present, &wanted) {
                continue;
            }
            if let Err(error) = table.reweigh(position, &wanted) {
                tracing::debug!(%error, "paths of replies keep their weights");
                // Another program was there before us, which the next look finds.
                return;
            }
            *present = wanted;
            changed = true;
        }
        if changed {
            self.written = look(table).ok();
        }
    }

    /// Draws paths of replies from `sets` from now on. What an earlier agent left stays if it `keeps_inherited`.
    pub(super) fn draw(
        &mut self,
        program: &HostProgram,
        sets: &[DestinationPaths],
        odds: &Odds<'_>,
        masqueraded: Vec<Family>,
        keeps_inherited: bool,
    ) {
        self.keeps_sources = masqueraded;
        if self.table.is_none() {
            match DrawTable::open(&table_name(odds.ground.table_base), odds.ground.mark.mask) {
                Ok(table) => self.table = Some(table),
                Err(error) => {
                    if !std::mem::replace(&mut self.warned, true) {
                        tracing::warn!(%error, "SYN-ACKs take the default route");
                    }
                    return;
                }
            }
        }
        let inherited = |table: &mut DrawTable| table.fingerprint().is_ok_and(|there| there.is_some());
        if self.written.is_none() && keeps_inherited && self.table.as_mut().is_some_and(inherited) {
            self.inherited = true;
            return;
        }
        self.write(odds.draws(sets, &program.learnt().unwrap_or_default()));
    }

    /// Makes the table follow what connections have learnt, and mends it if another program has changed it.
    pub(super) fn update_weights(&mut self, sets: &[DestinationPaths], odds: &Odds<'_>, learnt: &[Learnt]) {
        if self.table.is_none() || self.inherited {
            return;
        }
        self.mend();
        self.reweigh(odds.draws(sets, learnt));
    }

    /// Makes connections of these families keep the sources that they have, as another program masquerades.
    pub(super) fn keep_sources(&mut self, of: Vec<Family>) {
        if self.keeps_sources == of {
            return;
        }
        tracing::info!(families = ?of, "connections are masqueraded, or no longer: those with a path keep their sources");
        self.keeps_sources = of;
        if self.written.is_some() {
            self.install();
        }
    }
}

/// What draws are made of, in addition to paths and what was learnt of them.
pub(super) struct Odds<'a> {
    pub(super) ground: &'a RoutingSpace,
    pub(super) settings: &'a PolicySettings,
    pub(super) sources: &'a SourcesByPath,
}

impl Odds<'_> {
    fn draws(&self, sets: &[DestinationPaths], learnt: &[Learnt]) -> Vec<Draw> {
        // They come in the order of destinations.
        let place = |destination: &IpNet| learnt.binary_search_by_key(destination, |one| one.destination).ok();
        let of = |destination: &IpNet| place(destination).and_then(|place| learnt.get(place));
        let draw = |set: &DestinationPaths| Draw {
            destination: set.destination,
            shares: shares(set, of(&set.destination), self.settings, self.ground.mark, self.sources),
        };
        sets.iter().map(draw).collect()
    }
}

/// Removes the table of an agent of this configuration, if there is one.
pub(super) fn remove(config: &ProgramConfig) {
    let removed =
        DrawTable::open(&table_name(config.table_base), config.mark_mask).and_then(|mut table| table.remove());
    if let Err(error) = removed {
        // A kernel without nf_tables has no table.
        tracing::debug!(%error, "no table that draws paths of replies was removed");
    }
}

/// The table's name. Agents with tables of their own have names of their own.
fn table_name(table_base: u32) -> String {
    format!("sidestep-{table_base}")
}

fn look(table: &mut DrawTable) -> sidestep_linux::Result<Written> {
    // In this order: a change between the two is found at the next look.
    let generation = table.generation()?;
    Ok(Written { generation, fingerprint: table.fingerprint()? })
}

/// Whether some weight is off by more than the tolerance.
fn is_off(present: &Draw, wanted: &Draw) -> bool {
    let weights = |draw: &Draw| draw.shares.iter().map(|share| share.weight).collect::<Vec<_>>();
    are_off(&weights(present), &weights(wanted))
}

/// How likely each path of a set is.
fn shares(
    set: &DestinationPaths,
    learnt: Option<&Learnt>,
    settings: &PolicySettings,
    mark: MarkBits,
    sources: &SourcesByPath,
) -> Vec<Share> {
    let of = |id: u32| learnt?.paths.iter().find(|(known, _)| *known == id).map(|(_, learnt)| *learnt);
    let entries = entries(set, settings);
    let paths: Vec<_> = entries.iter().map(|entry| (entry.path.weight, of(entry.path.id))).collect();
    let share = |(entry, weight): (&SlotPath, u32)| {
        let mark = u32::from(entry.slot) << mark.shift;
        let of = sources.get(&(set.destination, entry.path.id)).cloned().unwrap_or_default();
        Share { mark, weight, sources: of.takes, unnamed: of.takes_unnamed }
    };
    entries.iter().zip(reply_weights(settings.policy, &paths)).map(share).collect()
}

#[cfg(test)]
mod tests {
    use sidestep_net::{Rate, Span};
    use sidestep_policy::PathLearnt;

    use super::*;
    use crate::daemon::program::PathSources;
    use sidestep_hostd::paths::{HostPath, PathRoute};

    const MARK: MarkBits = MarkBits { mask: 0xff00, shift: 8 };

    fn set(rates: &[u64]) -> DestinationPaths {
        let path = |(index, rate): (usize, &u64)| HostPath {
            id: index as u32 + 1,
            slot: 3 - index as u32,
            name: String::new(),
            route: PathRoute::Default,
            capacity: Rate::from_mbits(*rate),
            usage: Rate::default(),
            rtt: Span::from_millis(10),
            mtu: None,
            sources: Vec::new(),
        };
        let paths = rates.iter().enumerate().map(path).collect();
        DestinationPaths { destination: "2001:db8::/32".parse().unwrap(), paths }
    }

    #[test]
    fn a_path_has_the_mark_of_its_slot_and_what_was_learnt_of_it() {
        let set = set(&[10, 30]);
        let known = (2, PathLearnt { factor: 1.0 / 3.0, ..PathLearnt::default() });
        let learnt = Learnt { destination: set.destination, paths: vec![known] };
        let takes = vec!["2001:db8:a::/48".parse().unwrap()];
        let sources = PathSources { takes: takes.clone(), takes_unnamed: true, address: None };
        let sources = SourcesByPath::from([((set.destination, 1), sources)]);
        let shares = shares(&set, Some(&learnt), &PolicySettings::default(), MARK, &sources);
        let share = |mark, sources, unnamed| Share { mark, weight: 512, sources, unnamed };
        assert_eq!(shares, [share(0x200, Vec::new(), false), share(0x300, takes, true)]);
    }

    #[test]
    fn small_changes_of_weights_are_not_written() {
        let draw = |weights: [u32; 2]| Draw {
            destination: "2001:db8::/32".parse().unwrap(),
            shares: weights.map(|weight| Share { mark: 0x100, weight, sources: Vec::new(), unnamed: false }).to_vec(),
        };
        assert!(!is_off(&draw([512, 512]), &draw([450, 574])));
        assert!(is_off(&draw([512, 512]), &draw([16, 1008])));
    }
}
