//! Whether connections leave by the paths that their marks name.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use sidestep_hostd::{
    AgentError,
    effect::{Effects, OPTION, Overridden, Watched, led, path_of, within},
    paths::{MarkBits, Slots, tables},
};
use sidestep_linux::{
    effect::Checker,
    netlink::{Family, LOCAL, Netlink, RoutingRule},
};

use super::ownership::{RoutingSpace, stakes_at_work};
use crate::daemon::program::{HostConfig as ProgramConfig, HostProgram, Names};

const TCP: u8 = 6;
/// Most paths whose sources are asked about one by one.
const MAX_WITH_SOURCES: usize = 256;

/// What an agent's packets are recognised by, and what paths are called.
struct View<'a> {
    mark: MarkBits,
    table_base: u32,
    /// The slots of paths, and their names; `None` where only the rules and routes are known.
    paths: Option<(&'a Slots, &'a Names)>,
}

/// The paths of an agent whose packets do not leave by them now, whether or not it runs.
pub async fn host_overrides(netlink: &Netlink, program: &HostProgram) -> Result<Vec<Overridden>, AgentError> {
    let Some(config) = program.config()?.filter(|config| config.dry_run == 0) else { return Ok(Vec::new()) };
    let ProgramConfig { table_base, mark_mask, .. } = config;
    let (slots, names) = (program.slots()?, program.names()?);
    let view = View { mark: MarkBits::new(mark_mask), table_base, paths: Some((&slots, &names)) };
    let mut effects = Effects::default();
    let all =
        async |checker: &Checker<'_>| view.watched(netlink, checker, |id, to, from| takes(program, id, to, from)).await;
    effects.look_quietly(netlink, all, OPTION).await?;
    Ok(effects.found().cloned().collect())
}

/// The packets of agents at work here that do not leave by their paths, by what the kernel knows alone.
pub async fn overrides_at_work(netlink: &Netlink) -> Result<Vec<Overridden>, AgentError> {
    let mut found = Vec::new();
    for (tables, mask) in stakes_at_work()? {
        let view = View { mark: MarkBits::new(mask), table_base: tables.start() - 1, paths: None };
        let mut effects = Effects::default();
        let all = async |checker: &Checker<'_>| view.watched(netlink, checker, |_, _, _| false).await;
        effects.look_quietly(netlink, all, OPTION).await?;
        found.extend(effects.found().cloned());
    }
    Ok(found)
}

/// Whether a path takes packets from here.
fn takes(program: &HostProgram, id: u32, destination: IpNet, source: IpAddr) -> bool {
    program.takes_from(destination, id, source).unwrap_or(false)
}

/// Asks the kernel whether marked packets leave by their paths, which have these slots and names.
pub(super) async fn look(
    effects: &mut Effects,
    netlink: &Netlink,
    program: &HostProgram,
    ground: &RoutingSpace,
    paths: (&Slots, &Names),
) -> Result<(), AgentError> {
    let view = View { mark: ground.mark, table_base: ground.table_base, paths: Some(paths) };
    let all =
        async |checker: &Checker<'_>| view.watched(netlink, checker, |id, to, from| takes(program, id, to, from)).await;
    effects.look(netlink, all, OPTION).await
}

impl View<'_> {
    /// What is expected of each path: that packets of its mark leave by the route of its table.
    async fn watched(
        &self,
        netlink: &Netlink,
        checker: &Checker<'_>,
        takes: impl Fn(u32, IpNet, IpAddr) -> bool,
    ) -> Result<Vec<Watched>, AgentError> {
        let MarkBits { mask, shift } = self.mark;
        let (tables, addresses) = (tables(self.table_base), netlink.addresses().await?);
        let routes: Vec<_> =
            netlink.own_routes_found().await?.into_iter().filter(|route| tables.contains(&route.table)).collect();
        let of_ours = |rule: &RoutingRule| {
            rule.mark.1 == mask && rule.mark.0 >> shift > 0 && rule.input.as_deref() == Some(LOCAL)
        };
        let destinations: BTreeSet<_> = self.paths.iter().flat_map(|(slots, _)| slots.keys().copied()).collect();
        let mut watched = Vec::new();
        let all = led(&checker.policy().rules, &routes, of_ours);
        let names_sources = all.len() <= MAX_WITH_SOURCES;
        for led in all {
            let destination = led.route.destination;
            let Some((what, id)) = self.what(destination, led.route.table) else { continue };
            let mut expected = led.expected();
            expected.except.extend(within(&destinations, destination));
            expected.protocol = TCP;
            let usable =
                addresses.iter().filter(|one| Family::of(one.address) == Family::of(destination) && !one.deprecated);
            let usable = usable.map(|one| one.address.addr()).filter(|_| names_sources);
            let usable = usable.filter(|address| takes(id, destination, *address));
            expected.sources = usable.map(IpNet::from).collect();
            watched.push(Watched { what, expected });
        }
        Ok(watched)
    }

    /// What packets to a destination by one of our tables are called, and the Path ID, if there is such a path.
    fn what(&self, destination: IpNet, table: u32) -> Option<(String, u32)> {
        let slot = table.checked_sub(self.table_base)?;
        let Some((slots, names)) = self.paths else {
            return Some((format!("the mark {:#x} to {destination}", slot << self.mark.shift), 0));
        };
        let (id, _) = slots.get(&destination)?.iter().find(|(_, of)| **of == slot)?;
        let name = names.get(&(destination, *id)).cloned().unwrap_or_else(|| format!("{id:08x}"));
        Some((path_of(&name, destination), *id))
    }
}
