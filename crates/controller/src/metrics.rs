//! The metrics that the controller exports to Prometheus.

use sidestep_metrics::{Metric, Page};

use crate::controller::Controller;

const STATE: Metric = Metric::gauge(
    "sidestep_controller_state_version",
    "Number of the state that agents are sent: rises with each change of paths or of usage",
);
const PATH_SETS: Metric = Metric::gauge("sidestep_controller_path_sets", "Pairs of access routers that have paths");
const PATHS: Metric = Metric::gauge("sidestep_controller_paths", "Paths between access routers");
const BINDINGS: Metric = Metric::gauge("sidestep_controller_bindings", "Path IDs that routers are to install");
const WATCHERS: Metric =
    Metric::gauge("sidestep_controller_watchers", "Agents of hosts and routers that are connected");

/// Every metric of the controller.
pub const CONTROLLER_METRICS: &[Metric] = &[STATE, PATH_SETS, PATHS, BINDINGS, WATCHERS];

impl Controller {
    /// The metrics page for Prometheus.
    pub fn page(&self) -> Page {
        let sets = self.sets();
        let mut page = Page::default();
        page.one(STATE, self.version() as f64);
        page.one(PATH_SETS, sets.iter().filter(|pair| !pair.paths.is_empty()).count() as f64);
        page.one(PATHS, sets.iter().map(|pair| pair.paths.len()).sum::<usize>() as f64);
        page.one(BINDINGS, self.bindings().iter().map(|router| router.bindings.len()).sum::<usize>() as f64);
        page.one(WATCHERS, self.watchers() as f64);
        page
    }
}
