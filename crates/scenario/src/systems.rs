//! What a scenario knows of the systems that it may name: a catalogue, which each world fills.
//!
//! A system's settings are a table of the file. The scenario keeps the tables as they are written; only the system that a table
//! belongs to knows what they mean.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::fmt;

use serde::{Deserialize, Serialize};
use sidestep_net::{ParseError, SettingsTable, document::Document};
use toml::Table;

use crate::{Scenario, Standing, SystemError, SystemSpec, settings};

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// Network namespaces and the kernel's TCP, in real time.
    Lab,
    /// The packet-level simulator, in virtual time.
    Sim,
}

/// A system, as files and lists name it.
#[derive(Clone, Copy, Debug)]
pub struct SystemInfo {
    /// The name in files, on the command line and in results.
    pub name: &'static str,
    /// What it is, in a few words.
    pub what: &'static str,
    /// The scenario's table whose keys it takes as parameters; `None`: it takes none.
    pub settings: Option<SettingsInfo>,
    /// What it is where systems are compared, with its settings at their defaults.
    pub standing: Standing,
    /// What else it is where a parameter has a value: name, value and standing.
    pub(crate) standing_when: &'static [(&'static str, &'static str, Standing)],
}

/// A system's table of settings in scenario files.
#[derive(Clone, Copy, Debug)]
pub struct SettingsInfo {
    /// The table's key.
    pub key: &'static str,
    /// Settings that the system fixes.
    pub fixed: &'static [(&'static str, &'static str)],
    /// The settings in full that a table stands for, every range checked.
    fill: fn(&Table) -> Result<Table, SystemError>,
    /// As `fill`, but the error names line and column of the table in this document.
    read: fn(&Document<'_>, &str) -> Result<Table, ParseError>,
    /// The settings with a system's parameters over them, every range checked.
    overlay: fn(&Table, &SettingsInfo, &SystemSpec) -> Result<Table, SystemError>,
}

impl SystemInfo {
    /// A system without settings.
    pub const fn plain(name: &'static str, what: &'static str) -> SystemInfo {
        SystemInfo { name, what, settings: None, standing: Standing::CANDIDATE, standing_when: &[] }
    }

    /// A system whose settings are the table `key` of the scenario.
    pub const fn with_settings<T: SettingsTable>(
        name: &'static str,
        what: &'static str,
        key: &'static str,
    ) -> SystemInfo {
        let (fill, read, overlay) = (settings::fill::<T>, settings::read::<T>, settings::overlay::<T>);
        let settings = Some(SettingsInfo { key, fixed: &[], fill, read, overlay });
        SystemInfo { settings, ..SystemInfo::plain(name, what) }
    }

    /// The same system with some settings fixed, which are then no parameters.
    #[must_use]
    pub const fn fixing(mut self, fixed: &'static [(&'static str, &'static str)]) -> SystemInfo {
        if let Some(settings) = &mut self.settings {
            settings.fixed = fixed;
        }
        self
    }
}

/// The systems that a file may name, in the order in which they are listed to people, and where they run.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    systems: Vec<(SystemInfo, Vec<World>)>,
}

impl Catalogue {
    /// Adds systems that run in a world.
    pub fn add(&mut self, world: World, systems: impl IntoIterator<Item = SystemInfo>) {
        for info in systems {
            match self.systems.iter_mut().find(|(known, _)| known.name == info.name) {
                Some((_, worlds)) => worlds.push(world),
                None => self.systems.push((info, vec![world])),
            }
        }
    }

    /// All systems.
    pub fn systems(&self) -> impl Iterator<Item = &SystemInfo> {
        self.systems.iter().map(|(info, _)| info)
    }

    /// The systems that a world runs.
    pub fn of(&self, world: World) -> impl Iterator<Item = &SystemInfo> {
        self.systems.iter().filter(move |(_, worlds)| worlds.contains(&world)).map(|(info, _)| info)
    }

    /// The system of this name; the error lists those that there are.
    pub fn find(&self, name: &str) -> Result<&SystemInfo, SystemError> {
        let found = self.systems().find(|info| info.name == name);
        found.ok_or_else(|| SystemError::UnknownSystem { name: name.into(), known: names(self.systems()).join(", ") })
    }

    /// Refuses a system that `world` cannot run; the error lists those that it can.
    pub fn require(&self, world: World, name: &str) -> Result<(), SystemError> {
        self.find(name)?;
        if self.of(world).any(|info| info.name == name) {
            return Ok(());
        }
        Err(SystemError::NotInWorld { world, system: name.into(), known: listed(self.of(world)) })
    }

    /// The settings of a system in a scenario, its own parameters over the file's, every range checked.
    pub fn settings<T: SettingsTable>(&self, scenario: &Scenario, spec: &SystemSpec) -> Result<T, SystemError> {
        settings::of(self.find(&spec.name)?, &scenario.tables, spec)
    }

    /// Checks that a system can be had as it is written.
    pub fn check(&self, scenario: &Scenario, spec: &SystemSpec) -> Result<(), SystemError> {
        self.find(&spec.name)?.check(&scenario.tables, spec)
    }

    /// Checks the tables of a scenario and fills them in: every setting that they leave out has its default, also in the tables
    /// of these systems and of those that its flows name. What a system has as parameters [`check`](Self::check) checks.
    pub fn resolve(&self, scenario: &mut Scenario, systems: &[SystemSpec]) -> Result<(), SystemError> {
        let tables = std::mem::take(&mut scenario.tables);
        for (key, table) in tables {
            let Some(settings) = self.table(&key) else {
                return Err(SystemError::UnknownTable { key, known: self.keys().join(", ") });
            };
            scenario.tables.insert(key, (settings.fill)(&table)?);
        }
        let of_flows = scenario.flows.iter().filter_map(|flow| flow.transport()?.system.as_ref());
        let specs: Vec<SystemSpec> = systems.iter().chain(of_flows).cloned().collect();
        for spec in &specs {
            let info = self.find(&spec.name)?;
            if let Some(settings) = info.settings
                && !scenario.tables.contains_key(settings.key)
            {
                scenario.tables.insert(settings.key.into(), (settings.fill)(&Table::new())?);
            }
        }
        Ok(())
    }

    /// As [`resolve`](Self::resolve), of a scenario that was read from this text: errors name line and column.
    pub fn resolve_read(&self, scenario: &mut Scenario, text: &str) -> Result<(), ParseError> {
        let document = Document::parse(text)?;
        for key in scenario.tables.keys() {
            let Some(settings) = self.table(key) else {
                let problem = SystemError::UnknownTable { key: key.clone(), known: self.keys().join(", ") };
                return Err(document.error_at(document.root(), key, problem));
            };
            (settings.read)(&document, key)?;
        }
        for (index, spec) in scenario.systems.iter().enumerate() {
            let bad = |error: SystemError| document.error_in(document.root(), "systems", index, error);
            self.check(scenario, spec).map_err(bad)?;
        }
        for (number, flow) in scenario.flows.iter().enumerate() {
            let Some(spec) = flow.transport().and_then(|transport| transport.system.as_ref()) else { continue };
            let item = document.tables(document.root(), "flow")?.get(number).unwrap_or(document.root());
            self.check(scenario, spec).map_err(|error| document.error_at(item, "system", error))?;
        }
        let systems = scenario.systems.clone();
        self.resolve(scenario, &systems).map_err(|error| document.error_at(document.root(), "systems", error))
    }

    /// The table of systems as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::from("| name | is | lab | simulator | parameters |\n|---|---|---|---|---|\n");
        for (info, worlds) in &self.systems {
            let yes = |world| if worlds.contains(&world) { "yes" } else { "no" };
            let (lab, sim) = (yes(World::Lab), yes(World::Sim));
            let parameters = info.settings.map_or("–".into(), |settings| format!("`[{}]`", settings.key));
            out += &format!("| `{}` | {} | {lab} | {sim} | {parameters} |\n", info.name, info.what);
        }
        out
    }

    fn table(&self, key: &str) -> Option<SettingsInfo> {
        self.systems().filter_map(|info| info.settings).find(|settings| settings.key == key)
    }

    /// The tables that systems read, each once.
    fn keys(&self) -> Vec<&'static str> {
        let mut keys: Vec<_> = self.systems().filter_map(|info| Some(info.settings?.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

impl SystemInfo {
    /// Checks that the system can be had as it is written, beside these tables.
    pub fn check(
        &self,
        tables: &std::collections::BTreeMap<String, Table>,
        spec: &SystemSpec,
    ) -> Result<(), SystemError> {
        match (&self.settings, spec.params.first()) {
            (None, None) => Ok(()),
            (None, Some((parameter, _))) => Err(settings::unknown(self.name, parameter, &[])),
            (Some(of), _) => {
                let empty = Table::new();
                (of.overlay)(tables.get(of.key).unwrap_or(&empty), of, spec).map(drop)
            }
        }
    }
}

impl World {
    /// Both worlds.
    pub const ALL: [World; 2] = [World::Lab, World::Sim];

    /// The name in files and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            World::Lab => "lab",
            World::Sim => "sim",
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            World::Lab => "lab",
            World::Sim => "simulator",
        })
    }
}

fn names<'a>(systems: impl Iterator<Item = &'a SystemInfo>) -> Vec<&'static str> {
    systems.map(|info| info.name).collect()
}

/// The names of `systems` as a person lists them: `tcp, ecmp and random`.
fn listed<'a>(systems: impl Iterator<Item = &'a SystemInfo>) -> String {
    let mut names = names(systems);
    let last = names.pop().unwrap_or("none");
    if names.is_empty() { last.into() } else { format!("{} and {last}", names.join(", ")) }
}
