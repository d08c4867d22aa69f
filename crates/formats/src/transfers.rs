//! Lists of transfers, as simulators of data centres publish them: who sends how much to whom, and when.
//!
//! Nodes are those of the graph, by name; a number that no node has as its name is a node's place in the file, from 0 on.
//! Transfers of a node to itself are left out.

mod htsim;
mod simple;
#[cfg(test)]
mod tests;

use std::{fmt, path::Path};

use serde::Serialize;
use sidestep_net::{Bytes, Graph, ListedTransfer, ParseError, Span};

use crate::{Fault, MAX_TEXT, check_count, places::Places, quantity::amount, shown, words::Piece};

/// More transfers than this are refused.
const MAX_TRANSFERS: usize = 4_000_000;

/// Larger transfers and later starts are refused, in bytes and in nanoseconds.
const MAX_SIZE: f64 = 1e12;
const MAX_START: f64 = 1e18;

/// The account of how transfers were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TransferReading {
    /// How many there are.
    pub transfers: usize,
    /// The unit of starts without one.
    pub start_unit: &'static str,
    /// How many transfers of a node to itself were left out.
    pub own: usize,
}

impl fmt::Display for TransferReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TransferReading { transfers, start_unit, own } = self;
        write!(f, "transfers: {transfers}, sizes in bytes and starts in {start_unit} where no unit is given")?;
        if *own > 0 { write!(f, "; left out: {own} of a node to itself") } else { Ok(()) }
    }
}

/// Reads the transfers between nodes of `graph`, in the format that the extension of `file_name` names.
///
/// An error names the line and the column. It fails on text that the format does not allow, on nodes that the graph does not
/// have, on sizes below a byte or above 10^12, on starts that are negative, and beyond 64 MiB or 4 million transfers.
pub fn read_transfers(
    text: &str,
    file_name: &str,
    graph: &Graph,
) -> Result<(Vec<ListedTransfer>, TransferReading), ParseError> {
    let error = |text: &str, at, message: &str| ParseError::new(text, at, message).in_file(file_name);
    if text.len() > MAX_TEXT {
        return Err(error("", 0, "the file is larger than 64 MiB; is it the right one?"));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let extension = Path::new(file_name).extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let mut list = List { places: Places::new(graph), transfers: Vec::new(), start: SECONDS, own: 0 };
    let read = match extension.as_str() {
        "cm" | "tm" => htsim::read(text, &mut list),
        "csv" | "tsv" => simple::read_table(text, &mut list),
        "txt" | "flow" | "tr" | "dat" => simple::read_plain(text, &mut list),
        other => Err(Fault::new(
            0,
            format!(
                "`.{}` is no format of transfers; read are tables (.csv, .tsv, .txt), htsim's connection matrices (.cm) and \
                 HPCC's flows (.txt)",
                shown(other)
            ),
        )),
    };
    let read = read.and_then(|()| match list.transfers.is_empty() {
        true => Err(Fault::new(text.len(), "there is no transfer between two nodes in the file")),
        false => Ok(()),
    });
    read.map_err(|fault| error(text, fault.at, &fault.message))?;
    let reading = TransferReading { transfers: list.transfers.len(), start_unit: list.start.name, own: list.own };
    Ok((list.transfers, reading))
}

/// A unit of time.
#[derive(Clone, Copy)]
struct TimeUnit {
    name: &'static str,
    nanos: f64,
}

const SECONDS: TimeUnit = TimeUnit { name: "s", nanos: 1e9 };
const TIMES: [TimeUnit; 5] = [
    SECONDS,
    TimeUnit { name: "ms", nanos: 1e6 },
    TimeUnit { name: "us", nanos: 1e3 },
    TimeUnit { name: "ns", nanos: 1.0 },
    PICOSECONDS,
];
const PICOSECONDS: TimeUnit = TimeUnit { name: "ps", nanos: 1e-3 };

/// What the readers of all formats fill.
struct List<'g> {
    places: Places<'g>,
    transfers: Vec<ListedTransfer>,
    /// The unit of starts without one.
    start: TimeUnit,
    own: usize,
}

impl List<'_> {
    /// Adds a transfer between these nodes.
    fn add(&mut self, from: (Piece<'_>, usize), to: usize, size: Piece<'_>, start: Piece<'_>) -> Result<(), Fault> {
        let (size, start) = (self.size(size)?, self.span(start)?);
        if from.1 == to {
            self.own += 1;
            return Ok(());
        }
        check_count(from.0.at, "transfers", self.transfers.len(), MAX_TRANSFERS)?;
        self.transfers.push(ListedTransfer { from: from.1, to, size, start });
        Ok(())
    }

    /// A size: a number of bytes, or with a unit behind.
    fn size(&self, piece: Piece<'_>) -> Result<Bytes, Fault> {
        let size = match piece.text.parse::<Bytes>() {
            Ok(size) => size.get() as f64,
            Err(_) => amount("size", piece.text).map_err(|error| piece.fault(error))?.ceil(),
        };
        if (1.0..=MAX_SIZE).contains(&size) {
            Ok(Bytes::new(size as u64))
        } else {
            Err(piece.fault(format!("the size `{}` is not between 1 and 10^12 bytes", shown(piece.text))))
        }
    }

    /// A start: a number in the list's unit, or with a unit behind.
    fn span(&self, piece: Piece<'_>) -> Result<Span, Fault> {
        let nanos = match piece.text.parse::<Span>() {
            // `0` alone is a number.
            Ok(start) if piece.text.parse::<f64>().is_err() => start.as_nanos() as f64,
            _ => amount("start", piece.text).map_err(|error| piece.fault(error))? * self.start.nanos,
        };
        if nanos <= MAX_START {
            Ok(Span::from_nanos(nanos.round() as u64))
        } else {
            Err(piece.fault(format!("the start `{}` is more than 30 years", shown(piece.text))))
        }
    }
}
