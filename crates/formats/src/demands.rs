//! Demands between the nodes of a graph, read from the formats in which they are published, or drawn.
//!
//! Nodes are those of the graph, by name; a number that no node has as its name is a node's place in the file, from 0 on.
//! Demands of a pair are added up. A node's demands to itself and those of 0 are left out.

mod generate;
mod json;
mod repetita;
mod sndlib;
mod table;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, path::Path, str::FromStr};

use serde::Serialize;
use sidestep_net::{Demand, Graph, ParseError, Rate, TrafficMatrix};

pub use generate::{GenerateError, Generator};

use crate::{
    Fault, MAX_TEXT, check_count,
    mapping::{Role, Unit},
    places::Places,
    quantity::amount,
    shown,
    words::Piece,
};

/// More pairs with a demand than this are refused.
const MAX_DEMANDS: usize = 4_000_000;

/// Rates above this are refused, in bit/s.
const MAX_RATE: f64 = 1e18;

/// The unit of the rates of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DemandUnit(Unit);

/// The account of how demands were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DemandReading {
    /// How many pairs have a demand.
    pub demands: usize,
    /// The unit of rates without one.
    pub unit: &'static str,
    /// Whether the unit is assumed: neither the file, its format nor the user says it.
    pub assumed: bool,
    /// How many demands of a node to itself were left out.
    pub own: usize,
}

impl FromStr for DemandUnit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unit = Unit::of(Role::Rate, text).map(DemandUnit);
        unit.ok_or_else(|| format!("`{}` is no unit of a rate; known are {UNITS}", shown(text)))
    }
}

const UNITS: &str = "bit/s, kbit/s, Mbit/s, Gbit/s and Tbit/s";

impl fmt::Display for DemandReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DemandReading { demands, unit, assumed, own } = self;
        write!(f, "demands: of {demands} pairs, {unit}{}", if *assumed { " assumed" } else { "" })?;
        if *own > 0 { write!(f, "; left out: {own} of a node to itself") } else { Ok(()) }
    }
}

/// Reads the demands between nodes of `graph`, in the format that the extension of `file_name` names.
///
/// `unit` is that of rates without one, whatever the format says. An error names the line and the column. It fails on text
/// that the format does not allow, on nodes that the graph does not have, on names that two nodes have, on rates that are
/// negative, not finite or above 10^18 bit/s, and beyond 64 MiB or 4 million pairs.
pub fn read_demands(
    text: &str,
    file_name: &str,
    graph: &Graph,
    unit: Option<DemandUnit>,
) -> Result<(TrafficMatrix, DemandReading), ParseError> {
    let path = Path::new(file_name);
    let error = |text: &str, at, message: &str| ParseError::new(text, at, message).in_file(file_name);
    if text.len() > MAX_TEXT {
        return Err(error("", 0, "the file is larger than 64 MiB; is it the right one?"));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader::new(graph, unit.map(|unit| unit.0));
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    let read = match extension.as_deref().unwrap_or_default() {
        "demands" => repetita::read(text, &mut reader),
        "xml" => sndlib::read_xml(text, &mut reader),
        "csv" | "tsv" => table::read(text, &mut reader),
        "json" => json::read(text, &mut reader),
        "txt" if text.trim_start().starts_with("?SNDlib") => sndlib::read_native(text, &mut reader),
        "txt" => table::read(text, &mut reader),
        "pkl" => Err(Fault::new(
            0,
            "a pickle is a program and is not read; write the matrix as JSON: json.dump(matrix.tolist(), file)",
        )),
        other => Err(Fault::new(
            0,
            format!(
                "`.{}` is no format of demands; read are REPETITA (.demands), SNDlib (.xml, .txt), CSV (.csv, .txt) and \
                 matrices in JSON (.json)",
                shown(other)
            ),
        )),
    };
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    read.and_then(|()| reader.finish(name, text.len())).map_err(|fault| error(text, fault.at, &fault.message))
}

/// What the readers of all formats fill.
struct Reader<'g> {
    places: Places<'g>,
    /// The unit of rates without one, and whether the user gave it.
    unit: Unit,
    is_given: bool,
    is_assumed: bool,
    /// By pair, in bit/s.
    rates: BTreeMap<(usize, usize), f64>,
    own: usize,
}

impl<'g> Reader<'g> {
    fn new(graph: &'g Graph, unit: Option<Unit>) -> Self {
        let (is_given, unit) = (unit.is_some(), unit.unwrap_or(MBIT));
        let places = Places::new(graph);
        Reader { places, unit, is_given, is_assumed: !is_given, rates: BTreeMap::new(), own: 0 }
    }

    /// The format or the file says this unit; the user's wins.
    fn set_unit(&mut self, unit: Unit) {
        if !self.is_given {
            (self.unit, self.is_assumed) = (unit, false);
        }
    }

    /// The file says the unit of this name, at `at`.
    fn set_unit_named(&mut self, at: usize, name: &str) -> Result<(), Fault> {
        match Unit::of(Role::Rate, name) {
            Some(unit) => self.set_unit(unit),
            None if self.is_given => {}
            None => {
                return Err(Fault::new(
                    at,
                    format!("`{}` is no unit of a rate; known are {UNITS}; --demand-unit sets one", shown(name)),
                ));
            }
        }
        Ok(())
    }

    /// A rate in bit/s: a number in the file's unit, or with a unit behind.
    fn rate(&self, piece: Piece<'_>) -> Result<f64, Fault> {
        let text = piece.text.trim();
        let rate = match text.parse::<Rate>() {
            Ok(rate) => rate.bits_per_sec() as f64,
            Err(_) => amount("demand", text).map_err(|error| piece.fault(error))? * self.unit.factor,
        };
        if rate <= MAX_RATE {
            Ok(rate)
        } else {
            Err(piece.fault(format!("the demand `{}` is above 10^18 bit/s; is --demand-unit right?", shown(text))))
        }
    }

    /// Adds a demand in bit/s.
    fn add(&mut self, at: usize, from: usize, to: usize, rate: f64) -> Result<(), Fault> {
        if from == to {
            self.own += usize::from(rate > 0.0);
        } else if rate > 0.0 {
            check_count(at, "pairs with a demand", self.rates.len(), MAX_DEMANDS)?;
            let sum = self.rates.entry((from, to)).or_default();
            *sum = (*sum + rate).min(MAX_RATE);
        }
        Ok(())
    }

    fn finish(self, name: String, end: usize) -> Result<(TrafficMatrix, DemandReading), Fault> {
        let matrix = matrix(name, self.rates);
        if matrix.demands.is_empty() {
            return Err(Fault::new(end, "there is no demand above zero between two nodes in the file"));
        }
        let reading = DemandReading {
            demands: matrix.demands.len(),
            unit: self.unit.name,
            assumed: self.is_assumed,
            own: self.own,
        };
        Ok((matrix, reading))
    }
}

/// Megabits per second, the unit of matrices that name none.
const MBIT: Unit = Unit { name: "Mbit/s", measure: crate::mapping::Measure::Rate, factor: 1e6 };

/// The matrix of these rates in bit/s; those below half a bit/s are left out.
fn matrix(name: String, rates: impl IntoIterator<Item = ((usize, usize), f64)>) -> TrafficMatrix {
    let whole = |((from, to), rate): ((usize, usize), f64)| {
        let rate = rate.round() as u64;
        (rate > 0).then(|| Demand { from, to, rate: Rate::from_bits_per_sec(rate) })
    };
    TrafficMatrix { name, demands: rates.into_iter().filter_map(whole).collect() }
}
