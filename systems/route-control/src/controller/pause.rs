//! Probes that show nothing: those that the host could not send, or whose answers it could not wait for.

use sidestep_net::Time;

use super::{Controller, Probe, probes};
use crate::{Health, RouteControlMode, patience::Flights};

impl Controller {
    /// A probe shows nothing: the host could not send it, or has closed the socket to which the answer would come. It is no loss.
    pub fn handle_void(&mut self, probe: Probe) {
        if let Some(egress) = self.egresses.get_mut(probe.egress as usize) {
            egress.measurement(probe.period).void(probe.period, probe.number);
            if let Some(flights) = &mut egress.flights {
                flights.void(probe);
            }
        }
    }

    /// Nothing is known of an egress any more: its probes cannot be sent, for a reason that has nothing to do with its path.
    pub fn forget_health(&mut self, egress: usize) {
        if let Some(of) = self.egresses.get_mut(egress).filter(|of| of.carrier) {
            (of.health, of.fine_since, of.lost) = (Health::Unknown, None, 0.0);
        }
    }

    /// The driver did not run for a while, or the machine was suspended. Probes that were in flight then show nothing, and no
    /// decision goes by the time that has passed; the next one is a routing period from now.
    pub fn handle_pause(&mut self, now: Time) {
        if !matches!(self.settings.mode, RouteControlMode::Practical | RouteControlMode::Predictive) {
            return;
        }
        for egress in &mut self.egresses {
            // How it was meanwhile is not known.
            egress.fine_since = egress.fine_since.map(|_| now);
            egress.flights.iter_mut().for_each(Flights::clear);
        }
        self.pending.clear();
        self.sending = usize::MAX;
        if self.probes_left < probes(&self.settings) {
            // Probes of this period were sent; answers that come yet are of no period.
            self.period = self.period.wrapping_add(1);
        }
        self.period_ends = now;
        self.plan(0);
    }
}
