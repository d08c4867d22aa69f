//! The host daemon's configuration file: the policy's settings, and paths that need no controller.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde::Deserialize;
use sidestep_hostd::{
    MetricsConfig,
    paths::{self, Checker, ConfigError, DestinationPaths, Interfaces, Places, StaticDestination},
};
use sidestep_net::{ParseError, SettingsTable as _, document::Document};
use sidestep_policy::{PolicySettings, raw::MAX_PATHS};

/// The file, as TOML.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostConfig {
    /// The path changer's settings; the keys are those of a scenario's `[pathchanger]`.
    #[serde(rename = "pathchanger")]
    pub agent: PolicySettings,
    /// Destinations with paths of their own.
    #[serde(rename = "destination")]
    pub destinations: Vec<StaticDestination>,
    /// What Prometheus may read.
    pub metrics: MetricsConfig,
    /// Where the file names interfaces.
    #[serde(skip)]
    pub places: Places,
}

impl HostConfig {
    /// Reads the file; an error names line and column of the mistake.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let document = Document::parse(text)?;
        let mut config: HostConfig = document.read(document.root(), &[])?;
        for destination in &mut config.destinations {
            destination.prefix = destination.prefix.trunc();
        }
        config.check_settings(&document)?;
        let checker = Checker { document: &document, destinations: &config.destinations, most_paths: MAX_PATHS };
        let places = checker.check()?;
        config.places = places;
        Ok(config)
    }

    /// Checks what is no path.
    fn check_settings(&self, document: &Document<'_>) -> Result<(), ParseError> {
        let root = document.root();
        // A file that an editor or a full disk has emptied is no wish to have no paths any more.
        if root.get_ref().as_table().is_none_or(|table| table.is_empty()) {
            let message = "the file says nothing; write `[pathchanger]` if every setting is to have its default";
            return Err(document.error(0..0, message));
        }
        let agent = root.get_ref().get("pathchanger").unwrap_or(root);
        let most = self.destinations.iter().map(|d| d.paths.len()).max().unwrap_or(0).clamp(1, MAX_PATHS);
        let checked = self.agent.check().and_then(|()| self.agent.check_max_paths(most));
        checked.map_err(|error| document.error_at(agent, error.setting, &error))
    }

    /// Puts the file's name in front of errors that are only found when the paths are resolved.
    pub fn in_file(mut self, file: &str) -> Self {
        self.places = self.places.in_file(file);
        self
    }

    /// What [`parse`](Self::parse) reads otherwise than it stands in the file: prefixes with host bits.
    pub fn notes(text: &str) -> Vec<ParseError> {
        let Ok(document) = Document::parse(text) else { return Vec::new() };
        let destinations = document.tables(document.root(), "destination").unwrap_or_default();
        destinations.iter().filter_map(|item| document.note_host_bits(item, "prefix")).collect()
    }

    /// Destinations with paths by next hops on several interfaces, of which one names no sources: its interface's
    /// addresses are then taken for those that its provider lets through.
    pub fn assumed_sources(&self) -> Vec<IpNet> {
        let assumes = |destination: &&StaticDestination| {
            let by_next_hop = || destination.paths.iter().filter(|path| path.via.is_some());
            let interfaces: BTreeSet<_> = by_next_hop().filter_map(|path| path.dev.as_deref()).collect();
            interfaces.len() > 1 && by_next_hop().any(|path| path.sources.is_empty())
        };
        self.destinations.iter().filter(assumes).map(|destination| destination.prefix).collect()
    }

    /// The paths, with interface names looked up in `interfaces`.
    pub fn resolve(&self, interfaces: &Interfaces) -> Result<Vec<DestinationPaths>, ConfigError> {
        paths::resolve(&self.destinations, interfaces, &self.places, Err)
    }

    /// The paths whose interface is there now; the others are left out with a warning.
    pub fn resolve_present(&self, interfaces: &Interfaces) -> Vec<DestinationPaths> {
        paths::resolve_present(&self.destinations, interfaces, &self.places)
    }
}
