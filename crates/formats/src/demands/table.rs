//! Demands in CSV: a matrix with names above and at the left, a matrix of numbers alone, or a list of pairs.
//!
//! Commas, semicolons, tabs or blanks separate; quotes may surround a cell; lines that begin with `#` are left out.

use sidestep_net::Rate;

use super::{Fault, Reader, shown};
use crate::{
    mapping::{Role, Unit},
    table::cells,
    words::{Piece, lines},
};

/// The columns of a list: where the source, the destination and the rate stand.
type Columns = [usize; 3];

/// Reads a table.
pub(super) fn read(text: &str, reader: &mut Reader<'_>) -> Result<(), Fault> {
    let lines: Vec<Piece<'_>> = lines(text).filter(|line| !line.text.trim_start().starts_with('#')).collect();
    let Some(first) = lines.first() else { return Err(Fault::new(text.len(), "there is not one line in the file")) };
    let separator = [',', ';', '\t'].into_iter().find(|separator| first.text.contains(*separator));
    let mut rows = Vec::with_capacity(lines.len());
    for line in lines {
        rows.push((line, cells(line, separator)?));
    }
    let Some(((_, head), rest)) = rows.split_first() else { return Ok(()) };
    let is_number = |cell: &Piece<'_>| cell.text.parse::<f64>().is_ok() || cell.text.parse::<Rate>().is_ok();
    if let Some((columns, unit)) = titles(head)? {
        if let Some(unit) = unit {
            reader.set_unit(unit);
        }
        return list(rest, columns, reader);
    }
    if let [_, _, rate] = head.as_slice()
        && is_number(rate)
        && !(reader.places.graph.nodes.len() == 3 && head.iter().all(is_number))
    {
        return list(&rows, [0, 1, 2], reader);
    }
    if head.len() == reader.places.graph.nodes.len() && head.iter().all(is_number) {
        let all: Vec<usize> = (0..head.len()).collect();
        let many = rows.len();
        if many != all.len() {
            let at = rows.last().map_or(0, |(line, _)| line.at);
            return Err(Fault::new(at, format!("a matrix of {} nodes needs as many lines, not {many}", all.len())));
        }
        for (from, (line, cells)) in rows.iter().enumerate() {
            row(*line, from, &all, cells, reader)?;
        }
        return Ok(());
    }
    matrix(head, rest, reader)
}

/// The columns that titles name, and the unit in the rate's title, such as `rate_mbps` or `demand (Mbit/s)`; `None` if
/// they are no titles of a list.
fn titles(head: &[Piece<'_>]) -> Result<Option<(Columns, Option<Unit>)>, Fault> {
    let place = |known: &[&str]| {
        head.iter()
            .position(|cell| known.contains(&cell.text.to_lowercase().split(['_', ' ', '(']).next().unwrap_or("")))
    };
    let from = place(&["src", "source", "from", "origin"]);
    let to = place(&["dst", "dest", "destination", "target", "to"]);
    let rate = place(&["rate", "demand", "bw", "bandwidth", "traffic", "volume", "value"]);
    let (Some(from), Some(to), Some(rate)) = (from, to, rate) else { return Ok(None) };
    let Some(title) = head.get(rate) else { return Ok(None) };
    let behind =
        title.text.split_once(['_', ' ', '(']).map_or("", |(_, unit)| unit).trim_matches(['(', ')', ' ', '[', ']']);
    let unit = Unit::of(Role::Rate, behind);
    if unit.is_none() && !behind.is_empty() {
        return Err(title.fault(format!("`{}` is no unit of a rate; known are {}", shown(behind), super::UNITS)));
    }
    Ok(Some(([from, to, rate], unit)))
}

fn list(rows: &[(Piece<'_>, Vec<Piece<'_>>)], columns: Columns, reader: &mut Reader<'_>) -> Result<(), Fault> {
    for (line, cells) in rows {
        let [Some(from), Some(to), Some(rate)] = columns.map(|column| cells.get(column)) else {
            let needed = columns.into_iter().max().unwrap_or_default() + 1;
            return Err(line.fault(format!("the line has {} cells; a demand needs {needed}", cells.len())));
        };
        let (from, to, rate) = (reader.places.node(*from)?, reader.places.node(*to)?, reader.rate(*rate)?);
        reader.add(line.at, from, to, rate)?;
    }
    Ok(())
}

/// A matrix with the destinations' names in its first line and the source's name at the left of each other line.
fn matrix(head: &[Piece<'_>], rows: &[(Piece<'_>, Vec<Piece<'_>>)], reader: &mut Reader<'_>) -> Result<(), Fault> {
    // The corner may be missing.
    let is_short = rows.first().is_some_and(|(_, cells)| cells.len() == head.len() + 1);
    let names = if is_short { head } else { head.get(1..).unwrap_or_default() };
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        columns.push(reader.places.node(*name)?);
    }
    for (line, cells) in rows {
        let Some((name, cells)) = cells.split_first() else { continue };
        let from = reader.places.node(*name)?;
        row(*line, from, &columns, cells, reader)?;
    }
    Ok(())
}

/// The demands of a source; an empty cell is none.
fn row(
    line: Piece<'_>,
    from: usize,
    columns: &[usize],
    cells: &[Piece<'_>],
    reader: &mut Reader<'_>,
) -> Result<(), Fault> {
    if cells.len() != columns.len() {
        return Err(line.fault(format!(
            "the line has {} demands, but there are {} destinations",
            cells.len(),
            columns.len()
        )));
    }
    for (to, cell) in columns.iter().zip(cells).filter(|(_, cell)| !cell.text.is_empty()) {
        let rate = reader.rate(*cell)?;
        reader.add(cell.at, from, *to, rate)?;
    }
    Ok(())
}
