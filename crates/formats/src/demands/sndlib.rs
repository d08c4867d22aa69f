//! SNDlib's demands (Orlowski and others 2010), in XML and in its native format, in the unit that `<unit>` names.
//!
//! Demands have a direction, as those of SNDlib's measured networks. Admissible paths are left out.

use super::{Fault, Reader, shown};
use crate::{
    graphml::xml::{Tag, Xml},
    words::{Piece, lines},
};

/// The unit as SNDlib writes it.
fn unit(name: &str) -> &str {
    match name.trim() {
        "MBITPERSEC" => "Mbit/s",
        "GBITPERSEC" => "Gbit/s",
        "KBITPERSEC" => "kbit/s",
        "BITPERSEC" => "bit/s",
        other => other,
    }
}

/// Reads a network or a matrix in XML.
pub(super) fn read_xml(text: &str, reader: &mut Reader<'_>) -> Result<(), Fault> {
    let mut xml = Xml::new(text);
    match xml.child()? {
        Some(tag) if tag.name == "network" => {}
        Some(tag) => return Err(Fault::new(tag.at, format!("`{}` stands where `<network>` should", shown(&tag.name)))),
        None => return Err(Fault::new(text.len(), "there is no `<network>` in the file")),
    }
    let mut depth = 0;
    loop {
        let Some(tag) = xml.child()? else {
            if depth == 0 {
                return Ok(());
            }
            depth -= 1;
            continue;
        };
        match tag.name.as_str() {
            "meta" | "demands" => depth += 1,
            "unit" => {
                let (at, name) = xml.text()?;
                reader.set_unit_named(at, unit(&name))?;
            }
            "demand" => demand(&mut xml, &tag, reader)?,
            _ => xml.skip()?,
        }
    }
}

fn demand(xml: &mut Xml<'_>, tag: &Tag, reader: &mut Reader<'_>) -> Result<(), Fault> {
    let [mut from, mut to, mut rate] = [None, None, None];
    while let Some(child) = xml.child()? {
        let place = match child.name.as_str() {
            "source" => &mut from,
            "target" => &mut to,
            "demandValue" => &mut rate,
            // How much of a link's capacity a unit of the demand takes.
            "routingUnit" => {
                let (at, text) = xml.text()?;
                if text.trim().parse() != Ok(1.0) {
                    return Err(Fault::new(at, format!("the routing unit `{}` is not 1", shown(text.trim()))));
                }
                continue;
            }
            _ => {
                xml.skip()?;
                continue;
            }
        };
        let (at, text) = xml.text()?;
        let inner = text.trim();
        *place = Some((at + (text.len() - text.trim_start().len()), inner.to_owned()));
    }
    let (Some(from), Some(to), Some(rate)) = (from, to, rate) else {
        return Err(Fault::new(tag.at, "a demand needs a `<source>`, a `<target>` and a `<demandValue>`"));
    };
    let node = |end: &(usize, String)| reader.places.node(Piece { at: end.0, text: &end.1 });
    let (from, to) = (node(&from)?, node(&to)?);
    let rate = reader.rate(Piece { at: rate.0, text: &rate.1 })?;
    reader.add(tag.at, from, to, rate)
}

/// Reads the sections `META` and `DEMANDS` of a native file.
///
/// A demand is a line `ID ( SOURCE TARGET ) ROUTING_UNIT VALUE MAX_PATH_LENGTH`.
pub(super) fn read_native(text: &str, reader: &mut Reader<'_>) -> Result<(), Fault> {
    let mut section = "";
    for line in lines(text) {
        let words: Vec<Piece<'_>> = line.words().take(8).collect();
        let texts: Vec<&str> = words.iter().map(|word| word.text).collect();
        match (section, texts.as_slice()) {
            (_, [first, ..]) if first.starts_with(['#', '?']) => {}
            (_, [")"]) => section = "",
            (_, [name @ ("META" | "NODES" | "LINKS" | "DEMANDS" | "ADMISSIBLE_PATHS"), "("]) => section = name,
            ("META", ["unit", "=", name, ..]) => reader.set_unit_named(line.at, unit(name))?,
            ("DEMANDS", [_, "(", _, _, ")", unit, _, ..]) => {
                if unit.parse() != Ok(1.0) {
                    return Err(line.fault(format!("the routing unit `{}` is not 1", shown(unit))));
                }
                let [_, _, from, to, _, _, rate, ..] = words.as_slice() else { continue };
                let (from, to, rate) = (reader.places.node(*from)?, reader.places.node(*to)?, reader.rate(*rate)?);
                reader.add(line.at, from, to, rate)?;
            }
            ("DEMANDS", _) => {
                return Err(line.fault("a demand is `ID ( SOURCE TARGET ) ROUTING_UNIT VALUE MAX_PATH_LENGTH`"));
            }
            _ => {}
        }
    }
    Ok(())
}
