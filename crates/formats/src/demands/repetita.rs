//! REPETITA's `.demands` files: `DEMANDS` with a count, a line of titles, and a demand a line, in kbit/s.
//!
//! Nodes are their numbers in the `.graph` file, from 0 on.

use super::{Fault, MAX_DEMANDS, Reader, shown};
use crate::{
    mapping::{Role, Unit},
    words::{Piece, lines},
};

const TITLES: [&str; 4] = ["label", "src", "dest", "bw"];

/// Reads a `.demands` file.
pub(super) fn read(text: &str, reader: &mut Reader<'_>) -> Result<(), Fault> {
    if let Some(unit) = Unit::of(Role::Rate, "kbit/s") {
        reader.set_unit(unit);
    }
    let mut lines = lines(text);
    let end = |what: &str| Fault::new(text.len(), format!("the file ends before {what}"));
    let head = lines.next().ok_or_else(|| end("`DEMANDS` and how many there are"))?;
    let mut words = head.words();
    match words.next() {
        Some(word) if word.text == "DEMANDS" => {}
        _ => return Err(head.fault("the file must begin with `DEMANDS` and how many there are")),
    }
    // Some programs that write the format leave out the count.
    let count = words.next().map(|word| count(word)).transpose()?;
    let titles = lines.next().ok_or_else(|| end("the titles `label src dest bw`"))?;
    if !titles.words().map(|word| word.text).eq(TITLES) {
        return Err(titles.fault(format!("the titles must be `{}`", TITLES.join(" "))));
    }
    let mut number = 0;
    for line in lines {
        if count == Some(number) {
            return Err(line.fault(format!("there are more lines than the {number} demands that `DEMANDS` announced")));
        }
        let [_, from, to, rate] = line.fields("a demand: label, source, destination and bandwidth")?;
        let (at, from, to) = (from.at, reader.places.number(from)?, reader.places.number(to)?);
        let rate = reader.rate(rate)?;
        reader.add(at, from, to, rate)?;
        number += 1;
    }
    match count {
        Some(count) if count > number => Err(end(&format!("demand {number} of {count}"))),
        _ => Ok(()),
    }
}

fn count(word: Piece<'_>) -> Result<usize, Fault> {
    match word.text.parse() {
        Ok(count) if count <= MAX_DEMANDS => Ok(count),
        _ => Err(word.fault(format!("`{}` is no count, or more than the {MAX_DEMANDS} that may be", shown(word.text)))),
    }
}
