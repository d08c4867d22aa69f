//! All results below a directory on one page.

use std::{
    fmt::Write,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use sidestep_results::{document, escape};

use crate::{Outcome, Paper, ReproError, Verdict, write::file};

/// A result or picture larger than this is left out, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// One page, without scripts, of every `ID/result.json` in `dir`; what cannot be read is named on it.
pub fn report(dir: &Path) -> Result<String, ReproError> {
    let mut places: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(dir).map_err(file(dir))? {
        let place = entry.map_err(file(dir))?.path();
        if place.join("result.json").is_file() {
            places.push(place);
        }
    }
    places.sort();
    let mut body = String::new();
    for place in places {
        match section(&place) {
            Ok(section) => body.push_str(&section),
            Err(error) => {
                let _ = writeln!(body, "<p class=\"note\">{}</p>", escape(&error.to_string()));
            }
        }
    }
    if body.is_empty() {
        body = "<p>Nothing has been run yet: <code>sidestep repro run ID</code>.</p>".into();
    }
    let heading = "<h1>The papers’ tables and figures, ours beside theirs</h1>\n";
    Ok(document("Reproduction – sidestep", &format!("{heading}{body}")))
}

fn section(place: &Path) -> Result<String, ReproError> {
    let path = place.join("result.json");
    let outcome: Outcome = serde_json::from_str(&read(&path)?).map_err(io::Error::other).map_err(file(&path))?;
    let mut out = format!(
        "<h2>{} – {}, {}</h2>\n<p>{} {}, {} mode.</p>\n<div class=\"scroll\"><table>\n\
         <tr><th>quantity</th><th>unit</th><th>paper</th><th>ours</th><th>95 %</th><th>verdict</th><th>why</th></tr>\n",
        escape(&outcome.id),
        escape(&outcome.paper),
        escape(&outcome.figure),
        escape(&outcome.title),
        outcome.world.map_or("Computed".into(), |world| format!("Run in the {}", world.as_str())),
        format!("{:?}", outcome.mode).to_lowercase(),
    );
    for row in &outcome.rows {
        let paper = match &row.paper {
            Paper::Number(number) => number.to_string(),
            Paper::Text(text) => escape(text),
            Paper::None => "–".into(),
        };
        let interval = row.ci95.map_or("–".into(), |[low, high]| format!("{low:.3} … {high:.3}"));
        let verdict = match row.verdict {
            Verdict::Holds => "<td style=\"color:#007a4d\">holds</td>",
            Verdict::Differs => "<td style=\"color:#b3261e\">differs</td>",
            Verdict::NoPaperValue => "<td>no paper value</td>",
        };
        let _ = writeln!(
            out,
            "<tr><th>{}</th><td>{}</td><td>{paper}</td><td>{:.3}</td><td>{interval}</td>{verdict}<td>{}</td></tr>",
            escape(&row.quantity),
            escape(&row.unit),
            row.ours,
            escape(&row.why),
        );
    }
    out.push_str("</table></div>\n");
    for name in &outcome.pictures {
        // Only a file of this directory: the name comes from a file.
        let plain = !name.contains(['/', '\\']) && name.ends_with(".svg");
        let picture = place.join(name);
        if plain && let Ok(svg) = read(&picture) {
            let _ = writeln!(out, "<figure><img alt=\"{}\" src=\"{}\"/></figure>", escape(name), data_address(&svg));
        }
    }
    Ok(out)
}

/// A picture within an address: a browser runs nothing of what it loads as an image.
fn data_address(svg: &str) -> String {
    let mut address = String::from("data:image/svg+xml,");
    for byte in svg.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~ /:=,;".contains(&byte) {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address
}

fn read(path: &Path) -> Result<String, ReproError> {
    let mut text = String::new();
    let open = fs::File::open(path).map_err(file(path))?;
    open.take(MAX_FILE + 1).read_to_string(&mut text).map_err(file(path))?;
    if text.len() as u64 > MAX_FILE {
        return Err(file(path)(io::Error::other("is larger than 16 MiB")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(dir: &Path, id: &str, text: &str) {
        fs::create_dir_all(dir.join(id)).unwrap();
        fs::write(dir.join(id).join("result.json"), text).unwrap();
    }

    fn outcome(quantity: &str) -> String {
        let row = crate::Row::new(
            quantity,
            "Mbit/s",
            Paper::Text("at most 100".into()),
            sidestep_results::Estimate { mean: 93.5, ci95: [93.0, 94.0] },
            crate::Rule::AtMost(100.0),
        );
        let outcome = Outcome {
            schema: 1,
            id: quantity.into(),
            paper: "P".into(),
            figure: "F".into(),
            title: "T".into(),
            mode: crate::Mode::Quick,
            world: Some(sidestep_results::World::Sim),
            rows: vec![row],
            pictures: vec!["../secret.svg".into(), "p.svg".into()],
        };
        serde_json::to_string(&outcome).unwrap()
    }

    #[test]
    fn a_broken_result_is_named_and_the_others_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret.svg"), "<svg>SECRET</svg>").unwrap();
        write(dir.path(), "a", &outcome("first"));
        write(dir.path(), "b", "{ not json");
        write(dir.path(), "c", &outcome("second"));
        let page = report(dir.path()).unwrap();
        assert!(page.contains("first") && page.contains("second") && page.contains("holds"));
        assert!(page.contains("b/result.json") && !page.contains("SECRET"));
    }

    #[test]
    fn without_results_the_page_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        assert!(report(dir.path()).unwrap().contains("sidestep repro run"));
        assert!(report(&dir.path().join("nowhere")).is_err());
    }

    proptest! {
        #[test]
        fn no_text_becomes_markup(text in "[<>\"'&a-z/ ]{0,40}") {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), "x", &outcome(&format!("{text}<script>alert(1)</script>")));
            prop_assert!(!report(dir.path()).unwrap().contains("<script"));
        }
    }
}
