//! Keeps each flow on its egress, and makes those begin again that cannot live there; spreads flows where load decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sidestep_hostd::AgentError;
use sidestep_linux::{
    netlink::Family,
    nftables::{FlowEgress, FlowRules, FlowSpread, FlowTable},
};
use tokio::time::Instant;

use super::{Moves, RouteControl};
use crate::{BUCKETS, Health};

/// What is known of the table of flows.
pub(super) struct Flows {
    table: FlowTable,
    /// What was written, and what it looked like then.
    written: FlowRules,
    fingerprint: Option<u64>,
    /// Egresses that were dead for a family.
    dead: BTreeSet<(Family, usize)>,
    /// When the flows of a family have to be gone from an egress.
    drains: BTreeMap<(Family, usize), Instant>,
    /// Egresses whose flows of a family must begin again.
    doomed: Vec<(Family, usize)>,
    pub(super) forgotten: u64,
}

/// The table's name.
pub(super) fn name(table_base: u32) -> String {
    format!("sidestep-{table_base}")
}

impl RouteControl {
    /// Puts the table of flows into the kernel, or removes it.
    pub(super) fn apply_flows(&mut self) -> Result<(), AgentError> {
        let numbers = self.numbers();
        let wanted = self.flow_rules();
        if !wanted.keeps && wanted.spread.is_empty() {
            self.flows = None;
            FlowTable::open(&name(numbers.base), numbers.mask)?.remove()?;
            return Ok(());
        }
        if self.flows.as_ref().is_some_and(|flows| flows.written == wanted && flows.fingerprint.is_some()) {
            return Ok(());
        }
        let mut table = FlowTable::open(&name(numbers.base), numbers.mask)?;
        table.replace(&wanted)?;
        let fingerprint = table.fingerprint()?;
        let before = self.flows.take();
        let forgotten = before.as_ref().map_or(0, |flows| flows.forgotten);
        // How flows are spread does not concern those that stay where they are.
        let before = before.filter(|flows| flows.written.keeps && flows.written.egresses == wanted.egresses);
        let (dead, drains, doomed) = before.map_or_else(Default::default, |of| (of.dead, of.drains, of.doomed));
        self.flows = Some(Flows { table, written: wanted, fingerprint, dead, drains, doomed, forgotten });
        Ok(())
    }

    /// What the table of flows should do.
    fn flow_rules(&self) -> FlowRules {
        let (config, numbers) = (&self.options.config, self.numbers());
        let egress = |(number, of): (usize, &super::EgressConfig)| FlowEgress {
            dev: of.dev.clone(),
            mark: numbers.mark(number),
        };
        let spread = self.flow_spread();
        let sources = self.egresses.ways.iter().flat_map(|ways| &ways.sources).copied();
        FlowRules {
            egresses: config.egresses.iter().enumerate().map(egress).collect(),
            keeps: config.route_control.moves == Moves::NewConnections,
            sources: if spread.is_empty() { Vec::new() } else { sources.collect() },
            spread,
        }
    }

    /// By family: the marks of the buckets that another egress has than the one in use.
    fn flow_spread(&self) -> Vec<FlowSpread> {
        let numbers = self.numbers();
        let spread = self.all_active().into_iter().filter_map(|(family, active)| {
            let side = self.side(family)?;
            let side = side.follows.and_then(|of| self.side(of)).unwrap_or(side);
            let mark = |bucket| {
                let egress = side.controller.egress_of(bucket);
                let leaves = egress != active && self.why_unusable(egress, family).is_none();
                if leaves { numbers.mark(egress) } else { 0 }
            };
            let marks: Vec<u32> =
                if side.controller.is_spread() { (0..BUCKETS).map(mark).collect() } else { Vec::new() };
            marks.iter().any(|mark| *mark != 0).then_some(FlowSpread { family, marks })
        });
        spread.collect()
    }

    /// Makes flows take the egresses that load has chosen, if they do not yet.
    pub(super) fn follow_spread(&mut self) -> Result<(), AgentError> {
        if self.options.dry_run || !self.tenure.is_at_work() {
            return Ok(());
        }
        let written = self.flows.as_ref().map_or(&[][..], |flows| &flows.written.spread);
        if self.flow_spread() == written { Ok(()) } else { self.apply_flows() }
    }

    /// Whether another program has changed the table of flows.
    pub(super) fn forget_lost_flows(&mut self) -> Result<bool, AgentError> {
        let Some(flows) = &mut self.flows else { return Ok(false) };
        let is_as_it_was = flows.table.fingerprint()? == flows.fingerprint;
        if !is_as_it_was {
            flows.fingerprint = None;
        }
        Ok(!is_as_it_was)
    }

    /// Packets of a family take another egress: flows of the former one may stay for a while, those of the new one for good.
    pub(super) fn drain(&mut self, family: Family, from: usize, to: usize) {
        let after = self.options.config.egresses.get(from).and_then(|of| of.drain);
        let Some(flows) = self.flows.as_mut().filter(|flows| flows.written.keeps) else { return };
        flows.drains.remove(&(family, to));
        flows.drains.remove(&(family, from));
        flows.drains.extend(after.map(|after| ((family, from), Instant::now() + after.to_std())));
    }

    /// Notes the egresses whose flows cannot live any more; they begin again only if there is an egress for them.
    pub(super) fn note_dead(&mut self) {
        if !self.flows.as_ref().is_some_and(|flows| flows.written.keeps) {
            return;
        }
        let active = self.all_active();
        let egresses = 0..self.egresses.len();
        let is_dead = |family, egress| {
            let is_dead = matches!(self.health(family, egress), None | Some(Health::Dead | Health::ForwardsNothing));
            is_dead || self.why_unusable(egress, family).is_some()
        };
        let dead: Vec<((Family, usize), bool)> = active
            .keys()
            .flat_map(|family| egresses.clone().map(|egress| (*family, egress)))
            .map(|place| (place, is_dead(place.0, place.1)))
            .collect();
        let Some(flows) = &mut self.flows else { return };
        for ((family, egress), is_dead) in &dead {
            let Some(active) = active.get(family) else { continue };
            let has_refuge = dead.contains(&((*family, *active), false));
            if *is_dead && has_refuge && egress != active && !flows.dead.contains(&(*family, *egress)) {
                flows.doomed.push((*family, *egress));
            }
            // While there is nowhere to go they wait.
            if *is_dead && has_refuge {
                flows.dead.insert((*family, *egress));
            } else {
                flows.dead.remove(&(*family, *egress));
            }
        }
        let now = Instant::now();
        flows.drains.retain(|(family, egress), until| {
            let is_over = *until <= now && active.get(family) != Some(egress);
            if is_over {
                flows.doomed.push((*family, *egress));
            }
            !is_over
        });
    }

    /// Makes flows begin again whose egress is dead, or whose time there is over.
    pub(super) fn forget_flows(&mut self) -> Result<(), AgentError> {
        let numbers = self.numbers();
        let Some(flows) = &mut self.flows else { return Ok(()) };
        for (family, egress) in std::mem::take(&mut flows.doomed) {
            flows.table.forget(family, numbers.mark(egress))?;
            flows.forgotten += 1;
            let family = family.to_string();
            tracing::info!(egress, family, "flows of an egress begin again by another");
        }
        Ok(())
    }
}

/// How often drains are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);
