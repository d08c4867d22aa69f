//! Reading a scenario file.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

mod demands;
mod event;
mod flow;
mod impairment;

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};
use toml::Table;

use self::demands::HostDemand;
use super::{
    Files, ParseError, PathSettings, Place, RoutingSettings, Scenario, SystemSpec, TcpSettings,
    document::{Document, Item},
};
use sidestep_net::{Span, Topology, topology_file};

/// Reads a scenario file; see [`Scenario::parse`].
pub(super) fn scenario(text: &str, default_name: &str, files: &dyn Files) -> Result<Scenario, ParseError> {
    let document = Document::parse(text)?;
    let tables = tables_of_systems(&document)?;
    let of_systems: Vec<&str> = tables.keys().map(String::as_str).collect();
    let file: File = document.read(document.root(), &of_systems)?;
    let topology = topology_file::read(&document, files)?;
    let (duration, seed) = (file.duration, file.seed);
    let mut reader = Reader { document: &document, topology: &topology, files, duration, seed, demands: Vec::new() };
    reader.check_times(&file)?;
    reader.check_settings(&file)?;
    reader.check_systems(&file)?;
    reader.demands = reader.demands()?;
    let flows = reader.flows()?;
    let events = reader.events()?;
    let impairments = reader.impairments()?;
    let name = match &file.name {
        Some(name) if is_name(name) => name.clone(),
        Some(_) => return Err(reader.at("name", "must be 1 to 64 letters, digits, `-`, `_` or `.`")),
        None => name_from(default_name),
    };
    Ok(Scenario {
        name,
        seed: file.seed,
        repetition: file.repetition,
        duration: file.duration,
        warmup: file.warmup,
        sample: file.sample,
        systems: file.systems,
        topology,
        tcp: file.tcp,
        tables,
        routing: file.routing,
        paths: file.paths,
        flows,
        events,
        impairments,
    })
}

/// See [`Scenario::error_at`].
pub(super) fn error_at(text: &str, place: Place, message: &str) -> ParseError {
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(error) => return error,
    };
    let root = document.root();
    match place {
        Place::Flow(number) => document.error_in(root, "flow", number, message),
        Place::Key(table, key) => document.error_at(root.get_ref().get(table).unwrap_or(root), key, message),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    #[serde(default = "default_seed")]
    seed: u64,
    #[serde(default)]
    repetition: u32,
    duration: Span,
    #[serde(default)]
    warmup: Span,
    #[serde(default = "default_sample")]
    sample: Span,
    #[serde(default = "default_systems")]
    systems: Vec<SystemSpec>,
    #[serde(rename = "topology")]
    _topology: IgnoredAny,
    #[serde(default)]
    tcp: TcpSettings,
    #[serde(default)]
    routing: RoutingSettings,
    #[serde(default)]
    paths: PathSettings,
    #[serde(rename = "demands", default)]
    _demands: IgnoredAny,
    #[serde(rename = "demand", default)]
    _demand: IgnoredAny,
    #[serde(rename = "flow", default)]
    _flow: IgnoredAny,
    #[serde(rename = "event", default)]
    _event: IgnoredAny,
    #[serde(rename = "impairment", default)]
    _impairment: IgnoredAny,
}

/// The tables of a file that are the scenario's own; others are systems'.
const OWN_TABLES: [&str; 5] = ["topology", "tcp", "routing", "paths", "demands"];

/// The tables of systems in a file, as they are written.
fn tables_of_systems(document: &Document<'_>) -> Result<BTreeMap<String, Table>, ParseError> {
    let root = document.root().get_ref().as_table().into_iter().flatten();
    let tables = root.filter(|(key, item)| item.get_ref().is_table() && !OWN_TABLES.contains(&key.get_ref().as_ref()));
    tables.map(|(key, item)| Ok((key.get_ref().to_string(), document.read(item, &[])?))).collect()
}

fn default_seed() -> u64 {
    1
}

fn default_sample() -> Span {
    Span::from_millis(100)
}

fn default_systems() -> Vec<SystemSpec> {
    vec![SystemSpec::plain("tcp")]
}

/// What every part of the file is read against.
struct Reader<'a> {
    document: &'a Document<'a>,
    topology: &'a Topology,
    files: &'a dyn Files,
    duration: Span,
    seed: u64,
    /// What hosts want to send to each other, by pair.
    demands: Vec<HostDemand>,
}

impl<'a> Reader<'a> {
    fn check_times(&self, file: &File) -> Result<(), ParseError> {
        if file.duration == Span::ZERO {
            return Err(self.at("duration", "a run must last longer than nothing"));
        }
        if file.warmup >= file.duration {
            let message = format!("a warm-up of {} leaves nothing of a run of {}", file.warmup, file.duration);
            return Err(self.at("warmup", message));
        }
        if file.sample < Span::from_millis(1) || file.sample > file.duration {
            return Err(self.at("sample", "samples must be at least 1 ms apart, and at most the duration"));
        }
        Ok(())
    }

    fn check_settings(&self, file: &File) -> Result<(), ParseError> {
        for (table, check) in [("tcp", file.tcp.check()), ("paths", file.paths.check())] {
            check.map_err(|error| {
                let root = self.document.root();
                let item = root.get_ref().get(table).unwrap_or(root);
                self.document.error_at(item, error.setting, &error)
            })?;
        }
        Ok(())
    }

    fn check_systems(&self, file: &File) -> Result<(), ParseError> {
        if file.systems.is_empty() {
            return Err(self.at("systems", "name at least one system"));
        }
        let mut seen = std::collections::BTreeSet::new();
        for (index, system) in file.systems.iter().enumerate() {
            let bad = |message: String| self.document.error_in(self.document.root(), "systems", index, message);
            if !seen.insert(system.to_string()) {
                return Err(bad(format!("system `{system}` is listed twice")));
            }
        }
        Ok(())
    }

    /// Checks the time at which something happens.
    fn check_within(&self, item: &Item<'_>, key: &str, time: Span) -> Result<(), ParseError> {
        if time < self.duration {
            return Ok(());
        }
        Err(self.document.error_at(
            item,
            key,
            format_args!("{time} is not before the end of the run, {}", self.duration),
        ))
    }

    /// An error at a key of the top level.
    fn at(&self, key: &str, message: impl std::fmt::Display) -> ParseError {
        self.document.error_at(self.document.root(), key, message)
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// A scenario's name from a file's stem, which may hold anything.
fn name_from(stem: &str) -> String {
    let fine = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = stem.chars().map(fine).take(64).collect();
    if name.is_empty() { "scenario".into() } else { name }
}
