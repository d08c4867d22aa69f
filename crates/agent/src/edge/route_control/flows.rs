//! Keeps each flow on its egress, and has those begin anew that cannot live there.

use std::time::Duration;

use sidestep_linux::nftables::{FlowEgress, FlowTable};
use sidestep_proto::irc::Health;
use tokio::time::Instant;

use super::{Moves, RouteControl};
use crate::AgentError;

/// What is known of the table of flows.
pub(super) struct Flows {
    table: FlowTable,
    /// What was written, and what it looked like then.
    written: Vec<FlowEgress>,
    fingerprint: Option<u64>,
    /// By egress: whether it was dead, and when its flows have to be gone.
    dead: Vec<bool>,
    drains: Vec<Option<Instant>>,
    /// Egresses whose flows are to begin anew.
    doomed: Vec<usize>,
    pub(super) forgotten: u64,
}

/// The table's name.
pub(super) fn name(table_base: u32) -> String {
    format!("sidestep-{table_base}")
}

impl RouteControl {
    /// Has the kernel have the table of flows, or not.
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
        let (count, forgotten) = (wanted.len(), self.flows.as_ref().map_or(0, |flows| flows.forgotten));
        let (dead, drains) = (vec![false; count], vec![None; count]);
        self.flows = Some(Flows { table, written: wanted, fingerprint, dead, drains, doomed: Vec::new(), forgotten });
        Ok(())
    }

    /// Whether somebody has changed the table of flows.
    pub(super) fn forget_lost_flows(&mut self) -> Result<bool, AgentError> {
        let Some(flows) = &mut self.flows else { return Ok(false) };
        let is_as_it_was = flows.table.fingerprint()? == flows.fingerprint;
        if !is_as_it_was {
            flows.fingerprint = None;
        }
        Ok(!is_as_it_was)
    }

    /// Packets take another egress: flows of the former one may stay for a while, those of the new one for good.
    pub(super) fn drain(&mut self, from: usize, to: usize) {
        let after = self.options.config.egresses.get(from).and_then(|of| of.drain);
        let Some(flows) = &mut self.flows else { return };
        if let Some(drain) = flows.drains.get_mut(from) {
            *drain = after.map(|after| Instant::now() + after.to_std());
        }
        if let Some(drain) = flows.drains.get_mut(to) {
            *drain = None;
        }
    }

    /// Notes the egresses whose flows cannot live any more; they begin anew only if there is an egress for them.
    pub(super) fn note_dead(&mut self) {
        let active = self.controller.active();
        let is_dead = |egress: usize| {
            let is_usable = self.usable.get(egress).copied().unwrap_or(false);
            !is_usable || self.controller.report(egress).is_none_or(|report| report.health == Health::Dead)
        };
        let now: Vec<bool> = (0..self.links.len()).map(is_dead).collect();
        let has_refuge = now.get(active) == Some(&false);
        let Some(flows) = &mut self.flows else { return };
        for (egress, dead) in now.into_iter().enumerate() {
            let Some(before) = flows.dead.get_mut(egress) else { continue };
            if dead && !*before && has_refuge && egress != active {
                flows.doomed.push(egress);
            }
            // While there is nowhere to go they wait.
            *before = dead && has_refuge;
        }
        for (egress, drain) in flows.drains.iter_mut().enumerate() {
            if egress != active && drain.take_if(|until| *until <= Instant::now()).is_some() {
                flows.doomed.push(egress);
            }
        }
    }

    /// Has flows begin anew whose egress is dead, or whose time there is over.
    pub(super) fn forget_flows(&mut self) -> Result<(), AgentError> {
        let numbers = self.numbers();
        let Some(flows) = &mut self.flows else { return Ok(()) };
        for egress in std::mem::take(&mut flows.doomed) {
            flows.table.forget(numbers.mark(egress))?;
            flows.forgotten += 1;
            tracing::info!(egress, "flows of an egress begin anew by another");
        }
        Ok(())
    }
}

/// How often drains are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);
