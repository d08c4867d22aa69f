//! The summary of a run in a few columns, for the terminal and for the page.

use comfy_table::{CellAlignment, Table, presets};

use crate::{Repeated, RunResult, SystemResult};

/// The columns; the first is text, the others are numbers.
pub(crate) const COLUMNS: [&str; 7] =
    ["system", "goodput Mbit/s", "× tcp", "fairness", "least used path, 2nd half", "moves", "drops"];

/// The results as a table for a terminal, one row per system, and below it what is incomplete.
pub fn table(run: &RunResult) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(COLUMNS);
    for (name, system) in run.systems.iter() {
        table.add_row(row(run, name, system).map(printable));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let incomplete = run.incomplete().into_iter().map(|line| format!("\nincomplete: {}", printable(line)));
    table.to_string() + &incomplete.collect::<String>()
}

/// One system's cells under [`COLUMNS`].
pub(crate) fn row(run: &RunResult, name: &str, system: &SystemResult) -> [String; COLUMNS.len()] {
    if let Some(repeated) = &system.repeated {
        return repeated_row(run, name, repeated);
    }
    let least_used = system.least_used_path().map(|(path, share)| format!("{} ({path})", percent(share)));
    [
        name.to_owned(),
        format!("{:.1}", system.goodput_mbps),
        or_dash(run.times_tcp(name).map(|times| format!("{times:.2}"))),
        or_dash(system.fairness.map(|index| format!("{index:.3}"))),
        or_dash(least_used),
        system.total_moves().to_string(),
        system.total_drops().to_string(),
    ]
}

/// One system's cells under [`COLUMNS`] when it ran under several seeds: means, and ± half of the confidence interval.
fn repeated_row(run: &RunResult, name: &str, repeated: &Repeated) -> [String; COLUMNS.len()] {
    let goodput = &repeated.goodput_mbps;
    let tcp = run.systems.get("tcp").and_then(|tcp| tcp.repeated.as_ref()).map(|tcp| tcp.goodput_mbps.mean);
    let times = tcp.filter(|tcp| *tcp > 0.0).map(|tcp| format!("{:.2}", goodput.mean / tcp));
    [
        name.to_owned(),
        format!("{:.1} ± {:.1}", goodput.mean, goodput.half_width()),
        or_dash(times),
        or_dash(repeated.fairness.map(|index| format!("{:.3} ± {:.3}", index.mean, index.half_width()))),
        or_dash(repeated.least_used.map(|share| percent(share.mean))),
        format!("{:.0}", repeated.moves.mean),
        "–".into(),
    ]
}

/// Megabits per second, short; with a decimal where it matters.
pub(crate) fn megabits(mbps: f64) -> String {
    if mbps < 10.0 { format!("{mbps:.1}") } else { format!("{mbps:.0}") }
}

/// A share as a whole percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The text, or a dash where there is none.
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".into())
}

/// The text with U+FFFD in place of control characters, which would steer the reader's terminal, and of what XML excludes.
pub(crate) fn printable(text: String) -> String {
    if text.contains(is_unprintable) { text.replace(is_unprintable, "\u{fffd}") } else { text }
}

/// The lines of a text, each [printable].
pub(crate) fn printable_lines(text: String) -> String {
    let foul = |c: char| c != '\n' && is_unprintable(c);
    if text.contains(foul) { text.replace(foul, "\u{fffd}") } else { text }
}

fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use crate::testing;

    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_system_in_the_order_of_the_run() {
        let run = testing::run(&["tcp", "ecmp", "pathchanger"], 6);
        insta::assert_snapshot!(table(&run), @r#"
        ┌─────────────┬────────────────┬───────┬──────────┬───────────────────────────┬───────┬───────┐
        │ system      ┆ goodput Mbit/s ┆ × tcp ┆ fairness ┆ least used path, 2nd half ┆ moves ┆ drops │
        ╞═════════════╪════════════════╪═══════╪══════════╪═══════════════════════════╪═══════╪═══════╡
        │ tcp         ┆           88.5 ┆  1.00 ┆    1.000 ┆                  1 % (p2) ┆     0 ┆   210 │
        │ ecmp        ┆          261.0 ┆  2.95 ┆    1.000 ┆                  2 % (p6) ┆    43 ┆   210 │
        │ pathchanger ┆          427.5 ┆  4.83 ┆    0.999 ┆                  1 % (p6) ┆    44 ┆   210 │
        └─────────────┴────────────────┴───────┴──────────┴───────────────────────────┴───────┴───────┘
        "#);
    }

    #[test]
    fn without_plain_tcp_there_is_no_multiple_of_it() {
        let run = testing::run(&["ecmp"], 2);
        insta::assert_snapshot!(table(&run), @r#"
        ┌────────┬────────────────┬───────┬──────────┬───────────────────────────┬───────┬───────┐
        │ system ┆ goodput Mbit/s ┆ × tcp ┆ fairness ┆ least used path, 2nd half ┆ moves ┆ drops │
        ╞════════╪════════════════╪═══════╪══════════╪═══════════════════════════╪═══════╪═══════╡
        │ ecmp   ┆           88.5 ┆     – ┆    1.000 ┆                  1 % (p2) ┆     0 ┆    30 │
        └────────┴────────────────┴───────┴──────────┴───────────────────────────┴───────┴───────┘
        "#);
    }

    #[test]
    fn a_systems_name_cannot_steer_the_terminal() {
        assert!(!table(&testing::run(&["\u{1b}[31mred"], 1)).contains('\u{1b}'));
    }
}
