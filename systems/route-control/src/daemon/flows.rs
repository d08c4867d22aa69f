//! Keeps each flow on its egress, and makes those begin again that cannot live there.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sidestep_hostd::AgentError;
use sidestep_linux::{
    netlink::Family,
    nftables::{FlowEgress, FlowTable},
};
use tokio::time::Instant;

use super::{Moves, RouteControl};
use crate::Health;

/// What is known of the table of flows.
pub(super) struct Flows {
    table: FlowTable,
    /// What was written, and what it looked like then.
    written: Vec<FlowEgress>,
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
        if self.options.config.route_control.moves == Moves::Aggregate {
            self.flows = None;
            FlowTable::open(&name(numbers.base), numbers.mask)?.remove()?;
            return Ok(());
        }
        let egress = |(number, of): (usize, &super::EgressConfig)| FlowEgress {
            dev: of.dev.clone(),
            mark: numbers.mark(number),
        };
        let wanted: Vec<_> = self.options.config.egresses.iter().enumerate().map(egress).collect();
        if self.flows.as_ref().is_some_and(|flows| flows.written == wanted && flows.fingerprint.is_some()) {
            return Ok(());
        }
        let mut table = FlowTable::open(&name(numbers.base), numbers.mask)?;
        table.replace(&wanted)?;
        let fingerprint = table.fingerprint()?;
        let forgotten = self.flows.as_ref().map_or(0, |flows| flows.forgotten);
        let (dead, drains) = (BTreeSet::new(), BTreeMap::new());
        self.flows = Some(Flows { table, written: wanted, fingerprint, dead, drains, doomed: Vec::new(), forgotten });
        Ok(())
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
        let Some(flows) = &mut self.flows else { return };
        flows.drains.remove(&(family, to));
        flows.drains.remove(&(family, from));
        flows.drains.extend(after.map(|after| ((family, from), Instant::now() + after.to_std())));
    }

    /// Notes the egresses whose flows cannot live any more; they begin again only if there is an egress for them.
    pub(super) fn note_dead(&mut self) {
        if self.flows.is_none() {
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
