//! Transfers in columns: tables with titles, source, destination, size and start without them, and HPCC's `flow.txt`.
//!
//! HPCC's first line is a count; source, destination, priority, port (which some of its descendants leave out), size in bytes
//! and start in seconds follow on so many lines, and perhaps an explanation.

use super::{Fault, List, MAX_TRANSFERS, TIMES, TimeUnit, shown};
use crate::{
    table::cells,
    words::{Piece, lines},
};

/// Where source, destination, size and start stand.
type Columns = [usize; 4];

/// Reads a table whose cells commas, semicolons, tabs or blanks separate; lines that begin with `#` are left out.
pub(super) fn read_table(text: &str, list: &mut List<'_>) -> Result<(), Fault> {
    let mut lines = lines(text).filter(|line| !line.text.trim_start().starts_with('#')).peekable();
    let Some(first) = lines.peek().copied() else {
        return Err(Fault::new(text.len(), "there is not one line in the file"));
    };
    let separator = [',', ';', '\t'].into_iter().find(|separator| first.text.contains(*separator));
    let mut columns: Columns = [0, 1, 2, 3];
    if let Some((titled, unit)) = titles(&cells(first, separator)?)? {
        columns = titled;
        list.start = unit;
        lines.next();
    }
    for line in lines {
        row(line, &cells(line, separator)?, columns, list)?;
    }
    Ok(())
}

/// Reads HPCC's flows, or a table.
pub(super) fn read_plain(text: &str, list: &mut List<'_>) -> Result<(), Fault> {
    let mut all = lines(text);
    let Some(first) = all.next() else { return Err(Fault::new(text.len(), "there is not one line in the file")) };
    let mut words = first.words();
    let count = match (words.next().and_then(|word| word.text.parse::<usize>().ok()), words.next()) {
        (Some(count), None) => count,
        _ => return read_table(text, list),
    };
    if count > MAX_TRANSFERS {
        return Err(first.fault(format!("{count} transfers are more than the {MAX_TRANSFERS} that may be")));
    }
    for number in 0..count {
        let line = all.next().ok_or_else(|| {
            Fault::new(text.len(), format!("the file ends before transfer {} of {count}", number + 1))
        })?;
        let cells: Vec<Piece<'_>> = line.words().collect();
        let columns = match cells.len() {
            6 => [0, 1, 4, 5],
            5 => [0, 1, 3, 4],
            other => {
                return Err(line.fault(format!(
                    "{other} fields; expected source, destination, priority, port, size in bytes and start in seconds"
                )));
            }
        };
        row(line, &cells, columns, list)?;
    }
    Ok(())
}

fn row(line: Piece<'_>, cells: &[Piece<'_>], columns: Columns, list: &mut List<'_>) -> Result<(), Fault> {
    let [Some(from), Some(to), Some(size), Some(start)] = columns.map(|column| cells.get(column)) else {
        let needed = columns.into_iter().max().unwrap_or_default() + 1;
        return Err(line.fault(format!("the line has {} cells; a transfer needs {needed}", cells.len())));
    };
    let (from_node, to) = (list.places.node(*from)?, list.places.node(*to)?);
    list.add((*from, from_node), to, *size, *start)
}

/// The columns that titles name, and the unit of starts, which may be in their title, such as `start_us`; `None` if they are no
/// titles.
fn titles(head: &[Piece<'_>]) -> Result<Option<(Columns, TimeUnit)>, Fault> {
    let place = |known: &[&str]| {
        head.iter()
            .position(|cell| known.contains(&cell.text.to_lowercase().split(['_', ' ', '(']).next().unwrap_or("")))
    };
    let from = place(&["src", "source", "from", "sender"]);
    let to = place(&["dst", "dest", "destination", "to", "receiver"]);
    let size = place(&["size", "bytes", "length", "flowsize"]);
    let start = place(&["start", "time", "arrival", "begin"]);
    let [Some(from), Some(to), Some(size), Some(start)] = [from, to, size, start] else {
        let has_name = |place: Option<usize>| place.is_some();
        return match [from, to, size, start].map(has_name) {
            [true, true, ..] => {
                let at = head.first().map_or(0, |cell| cell.at);
                Err(Fault::new(
                    at,
                    "the titles must name source, destination, size and start, such as src,dst,size,start",
                ))
            }
            _ => Ok(None),
        };
    };
    let unit = |place: usize| {
        let title = head.get(place).map_or("", |title| title.text);
        title.split_once(['_', ' ', '(']).map_or("", |(_, unit)| unit).trim_matches(['(', ')', ' ', '[', ']'])
    };
    let fault = |place: usize, message: String| Fault::new(head.get(place).map_or(0, |title| title.at), message);
    let in_bytes = ["", "b", "byte", "bytes"];
    if !in_bytes.contains(&unit(size).to_lowercase().as_str()) {
        let message = format!("sizes must be bytes, or have their unit in each cell; not `{}`", shown(unit(size)));
        return Err(fault(size, message));
    }
    let named = match unit(start) {
        "" | "time" => "s",
        other => other.strip_prefix("time_").unwrap_or(other),
    };
    match TIMES.into_iter().find(|time| time.name == named) {
        Some(time) => Ok(Some(([from, to, size, start], time))),
        None => Err(fault(start, format!("`{}` is no unit of time; known are s, ms, us, ns and ps", shown(named)))),
    }
}
