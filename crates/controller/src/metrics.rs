//! The metrics that the controller exports to Prometheus.

use sidestep_hostd::{Metric, Page};

use crate::{controller::Controller, plan::Sizes};

const STATE: Metric = Metric::gauge(
    "sidestep_controller_state_version",
    "Number of the state that agents are sent: rises with each change of paths or of usage",
);
const PATH_SETS: Metric = Metric::gauge("sidestep_controller_path_sets", "Pairs of access routers that have paths");
const PATHS: Metric = Metric::gauge("sidestep_controller_paths", "Paths between access routers");
const BINDINGS: Metric = Metric::gauge("sidestep_controller_bindings", "Path IDs that routers are to install");
const WATCHERS: Metric =
    Metric::gauge("sidestep_controller_watchers", "Agents of hosts and routers that are connected");
const FAULTS: Metric = Metric::counter("sidestep_controller_faults", "Errors after which the controller went on");

/// Every metric of the controller.
pub const CONTROLLER_METRICS: &[Metric] = &[STATE, PATH_SETS, PATHS, BINDINGS, WATCHERS, FAULTS];

impl Controller {
    /// The metrics page for Prometheus; `faults` is how many errors the daemon has survived.
    pub fn page(&self, faults: u64) -> Page {
        let Sizes { pairs, paths, bindings } = self.snapshot().sizes();
        let mut page = Page::default();
        page.one(STATE, self.version() as f64);
        page.one(PATH_SETS, pairs as f64);
        page.one(PATHS, paths as f64);
        page.one(BINDINGS, bindings as f64);
        page.one(WATCHERS, self.watchers() as f64);
        page.one(FAULTS, faults as f64);
        page
    }
}
