//! The paths that the agent was given: by its configuration and by the controller.

use std::{collections::BTreeSet, sync::Arc};

use ipnet::IpNet;
use sidestep_api::PathUpdate;
use sidestep_hostd::paths::DestinationPaths;
use sidestep_linux::monotonic_now;
use sidestep_net::Time;

use crate::daemon::program::{ControllerState, Names};

/// The note on a destination that the file and the controller have paths to.
const FILE_WINS: &str = "the controller has paths to it, too: those of the file are used";

/// The paths as they were given last, and by whom.
pub(super) struct GivenPaths {
    /// Paths of the configuration.
    own: Vec<DestinationPaths>,
    /// Paths of the controller.
    update: Option<Arc<PathUpdate>>,
    controller: ControllerState,
    /// When the paths came.
    at: Time,
    /// Destinations of the controller that the file has, too.
    shadowed: BTreeSet<IpNet>,
}

impl GivenPaths {
    /// Those of the configuration. What is inherited came at `inherited`, and is as old as it was.
    pub(super) fn new(own: Vec<DestinationPaths>, follows: bool, inherited: Option<Time>) -> Self {
        GivenPaths {
            own,
            update: None,
            controller: if follows { ControllerState::Away } else { ControllerState::None },
            at: inherited.filter(|_| follows).unwrap_or_else(monotonic_now),
            shadowed: BTreeSet::new(),
        }
    }

    /// The state of the controller.
    pub(super) fn controller(&self) -> ControllerState {
        self.controller
    }

    /// When the paths came.
    pub(super) fn at(&self) -> Time {
        self.at
    }

    /// Whether the controller has yet to report what becomes of paths that an earlier daemon left.
    pub(super) fn awaits_controller(&self) -> bool {
        self.controller != ControllerState::None && self.update.is_none()
    }

    /// Takes note that the controller cannot be reached: the last paths stay.
    pub(super) fn lose_controller(&mut self) {
        self.controller = ControllerState::Away;
    }

    /// Takes the paths of the controller.
    pub(super) fn follow(&mut self, update: Option<Arc<PathUpdate>>) {
        self.update = update;
        self.controller = ControllerState::Connected;
        self.at = monotonic_now();
    }

    /// Takes note that the configuration was read again.
    pub(super) fn note_config(&mut self) {
        if self.update.is_none() {
            self.at = monotonic_now();
        }
    }

    /// Takes the paths of the configuration as interfaces have them now.
    pub(super) fn set_own(&mut self, own: Vec<DestinationPaths>) {
        self.own = own;
    }

    /// The paths of the file, and the controller's to destinations that the file does not have.
    pub(super) fn merged(&mut self) -> Vec<DestinationPaths> {
        let given = self.update.as_deref().map(DestinationPaths::from_update).unwrap_or_default();
        let own: BTreeSet<IpNet> = self.own.iter().map(|set| set.destination.trunc()).collect();
        let (shadowed, added): (Vec<_>, Vec<_>) =
            given.into_iter().partition(|set| own.contains(&set.destination.trunc()));
        let shadowed: BTreeSet<IpNet> = shadowed.into_iter().map(|set| set.destination).collect();
        for destination in shadowed.difference(&self.shadowed) {
            tracing::warn!(%destination, "{FILE_WINS}");
        }
        self.shadowed = shadowed;
        self.own.iter().cloned().chain(added).collect()
    }

    /// What is reported of destinations of the controller that are not used, as the names of paths are.
    pub(super) fn notes(&self) -> Names {
        self.shadowed.iter().map(|destination| ((*destination, 0), FILE_WINS.to_string())).collect()
    }
}
