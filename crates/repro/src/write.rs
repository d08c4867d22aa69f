//! What an experiment leaves: `result.json`, `rows.csv`, its pictures and tables.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};
use sidestep_results::World;

use crate::{Experiment, Findings, Mode, Paper, ReproError, Row};

/// The version of `result.json`.
pub const SCHEMA: u32 = 1;

/// What `result.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Version of the format, [`SCHEMA`].
    pub schema: u32,
    /// The experiment's name.
    pub id: String,
    /// The paper.
    pub paper: String,
    /// The figure or table.
    pub figure: String,
    /// What the figure shows.
    #[serde(default)]
    pub title: String,
    /// How thorough the run was.
    pub mode: Mode,
    /// The world of its runs; `None` if it is computed from topologies alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<World>,
    /// What a reader must know of the data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The quantities.
    pub rows: Vec<Row>,
    /// Names of the pictures beside it.
    #[serde(default)]
    pub pictures: Vec<String>,
}

/// Writes all files, `result.json` last: where it exists, the run is complete.
pub(crate) fn write(
    experiment: &Experiment,
    mode: Mode,
    world: Option<World>,
    findings: &Findings,
    notes: Vec<String>,
    out: &Path,
) -> Result<Outcome, ReproError> {
    fs::create_dir_all(out).map_err(file(out))?;
    let outcome = Outcome {
        schema: SCHEMA,
        id: experiment.id.into(),
        paper: experiment.paper.into(),
        figure: experiment.figure.into(),
        title: experiment.title.into(),
        mode,
        world,
        notes,
        rows: findings.rows.clone(),
        pictures: findings.pictures.iter().map(|(name, _)| name.clone()).collect(),
    };
    for (name, text) in findings.pictures.iter().chain(&findings.tables) {
        write_whole(&out.join(name), text.as_bytes())?;
    }
    write_whole(&out.join("rows.csv"), &csv(&findings.rows).map_err(file(&out.join("rows.csv")))?)?;
    let json = serde_json::to_string_pretty(&outcome).map_err(io::Error::other).map_err(file(out))?;
    write_whole(&out.join("result.json"), (json + "\n").as_bytes())?;
    Ok(outcome)
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ReproError> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    fs::write(&part, bytes).and_then(|()| fs::rename(&part, path)).map_err(file(path))
}

pub(crate) fn file(path: &Path) -> impl Fn(io::Error) -> ReproError {
    let path = path.to_path_buf();
    move |source| ReproError::File { path: path.clone(), source }
}

fn csv(rows: &[Row]) -> io::Result<Vec<u8>> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(["quantity", "unit", "paper", "ours", "ci95_low", "ci95_high", "verdict", "why"])?;
    for row in rows {
        let paper = match &row.paper {
            Paper::Number(number) => number.to_string(),
            Paper::Text(text) => text.clone(),
            Paper::None => String::new(),
        };
        let bound = |index: usize| row.ci95.map_or(String::new(), |ci95| ci95[index].to_string());
        let (ours, verdict) = (row.ours.to_string(), row.verdict.as_str());
        out.write_record([&row.quantity, &row.unit, &paper, &ours, &bound(0), &bound(1), verdict, &row.why])?;
    }
    out.into_inner().map_err(|error| io::Error::other(error.to_string()))
}
