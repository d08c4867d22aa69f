//! The summary of a run in a few columns, for the terminal and for the page.

use comfy_table::{CellAlignment, Table, presets};

use crate::{Estimate, Repeated, RunResult, SystemResult, measures};

/// From so many times another value on, the multiple says nothing but that the other is next to nothing.
pub(crate) const MANY: f64 = 100.0;

/// A column of the summary; the first is text, the others are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    System,
    Goodput,
    TimesTcp,
    MeanTime,
    LongTime,
    Fairness,
    LeastUsed,
    Moves,
    Drops,
}

/// The columns that say something of this run.
pub(crate) fn columns(run: &RunResult) -> Vec<Column> {
    let mut columns = vec![Column::System, Column::Goodput];
    if !run.is_of_transfers() {
        columns.push(Column::TimesTcp);
    }
    if run.systems.values().any(|system| taken(system).is_some()) {
        columns.extend([Column::MeanTime, Column::LongTime]);
    }
    columns.extend([Column::Fairness, Column::LeastUsed, Column::Moves, Column::Drops]);
    columns
}

/// The results as a table for a terminal, one row per system, and below it what is incomplete.
pub fn table(run: &RunResult) -> String {
    let mut table = Table::new();
    let columns = columns(run);
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(columns.iter().map(|column| column.title()));
    for (name, system) in run.systems.iter() {
        table.add_row(columns.iter().map(|column| printable(column.cell(run, name, system))));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let incomplete = run.incomplete().into_iter().map(|line| format!("\nincomplete: {}", printable(line)));
    table.to_string() + &incomplete.collect::<String>()
}

impl Column {
    /// All of them, in their order.
    pub(crate) const ALL: [Column; 9] = [
        Column::System,
        Column::Goodput,
        Column::TimesTcp,
        Column::MeanTime,
        Column::LongTime,
        Column::Fairness,
        Column::LeastUsed,
        Column::Moves,
        Column::Drops,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Column::System => "system",
            Column::Goodput => "goodput Mbit/s",
            Column::TimesTcp => "× tcp",
            Column::MeanTime => "mean time s",
            Column::LongTime => "99 % s",
            Column::Fairness => "fairness",
            Column::LeastUsed => "least used path, 2nd half",
            Column::Moves => "moves",
            Column::Drops => "drops",
        }
    }

    /// What the column means, where its title does not say it.
    pub(crate) fn meaning(self) -> Option<&'static str> {
        Some(match self {
            Column::System | Column::TimesTcp => return None,
            Column::Goodput => "Goodput: bytes of applications that were acknowledged after the warm-up.",
            Column::MeanTime => {
                "Mean time: of transfers, from start to last acknowledgement, or to the end of the run."
            }
            Column::LongTime => "99 %: so many of the transfers took at most this long.",
            Column::Fairness => "Fairness: Jain's index over the goodput of connections, 1 if all have the same.",
            Column::LeastUsed => "Least used path: share of its capacity that was used.",
            Column::Moves => "Moves: how often a connection was put on another path.",
            Column::Drops => "Drops: packets that links dropped.",
        })
    }

    /// One system's cell. After several seeds it has means, and ± half of the confidence interval.
    pub(crate) fn cell(self, run: &RunResult, name: &str, system: &SystemResult) -> String {
        let repeated = system.repeated.as_ref();
        match (self, repeated) {
            (Column::System, _) => name.to_owned(),
            (Column::Goodput, None) => {
                or_dash(Some(system.goodput_mbps).filter(|mbps| mbps.is_finite()).map(|mbps| format!("{mbps:.1}")))
            }
            (Column::Goodput, Some(Repeated { goodput_mbps: goodput, .. })) => {
                format!("{:.1} ± {:.1}", goodput.mean, goodput.half_width())
            }
            (Column::TimesTcp, _) => or_dash(
                times_tcp(run, system)
                    .map(|times| if times < MANY { format!("{times:.2}") } else { format!("> {MANY:.0}") }),
            ),
            (Column::MeanTime, None) => or_dash(taken(system).map(|(mean, _)| format!("{mean:.*}", digits(mean)))),
            (Column::LongTime, None) => or_dash(taken(system).map(|(_, p99)| format!("{p99:.*}", digits(p99)))),
            (Column::MeanTime, Some(repeated)) => {
                or_dash(over_seeds(repeated, |(mean, _)| mean).or(repeated.afct_s).map(with_interval))
            }
            (Column::LongTime, Some(repeated)) => {
                or_dash(over_seeds(repeated, |(_, p99)| p99).or(repeated.fct_p99_s).map(with_interval))
            }
            (Column::Fairness, None) => or_dash(system.fairness.map(|index| format!("{index:.3}"))),
            (Column::Fairness, Some(repeated)) => {
                or_dash(repeated.fairness.map(|index| format!("{:.3} ± {:.3}", index.mean, index.half_width())))
            }
            (Column::LeastUsed, None) => {
                or_dash(system.least_used_path().map(|(path, share)| format!("{} ({path})", percent(share))))
            }
            (Column::LeastUsed, Some(repeated)) => or_dash(repeated.least_used.map(|share| percent(share.mean))),
            (Column::Moves, None) => system.total_moves().to_string(),
            (Column::Moves, Some(repeated)) => format!("{:.0}", repeated.moves.mean),
            (Column::Drops, None) => system.total_drops().to_string(),
            (Column::Drops, Some(repeated)) => {
                let drops: Vec<f64> = repeated.each.iter().map(|one| one.total_drops() as f64).collect();
                or_dash(measures::mean(&drops).map(|mean| format!("{mean:.0}")))
            }
        }
    }
}

/// Mean and 99th percentile of the times of transfers in seconds. One that has not ended counts with what it has taken
/// until the end of the run: without it, a system that stalls some would look faster.
pub(crate) fn taken(system: &SystemResult) -> Option<(f64, f64)> {
    let with_unfinished = system.unfinished.map(|unfinished| (unfinished.mean_s, unfinished.p99_s));
    with_unfinished.or(system.afct_s.zip(system.fct_p99_s))
}

/// What [`taken`] says of the mean; after several seeds the mean of theirs.
pub(crate) fn mean_time(system: &SystemResult) -> Option<f64> {
    match &system.repeated {
        Some(repeated) => over_seeds(repeated, |(mean, _)| mean).or(repeated.afct_s).map(|estimate| estimate.mean),
        None => taken(system).map(|(mean, _)| mean),
    }
}

/// Goodput in Mbit/s; after several seeds the mean of theirs.
pub(crate) fn mean_goodput(system: &SystemResult) -> f64 {
    system.repeated.as_ref().map_or(system.goodput_mbps, |repeated| repeated.goodput_mbps.mean)
}

/// A system's goodput over plain TCP's; `None` where that was not run, or carried nothing, or where one of the two runs was cut
/// short: then the two are of different times.
pub(crate) fn times_tcp(run: &RunResult, system: &SystemResult) -> Option<f64> {
    let tcp = run.systems.get("tcp").filter(|tcp| !tcp.is_cut() && !system.is_cut())?;
    let tcp = Some(mean_goodput(tcp)).filter(|tcp| *tcp > 0.0)?;
    Some(mean_goodput(system) / tcp)
}

/// Of what [`taken`] says of each seed; `None` where one has no transfers, or only the means are known.
fn over_seeds(repeated: &Repeated, which: impl Fn((f64, f64)) -> f64) -> Option<Estimate> {
    let each: Option<Vec<f64>> = repeated.each.iter().map(|one| taken(one).map(&which)).collect();
    Estimate::of(&each?)
}

fn with_interval(estimate: Estimate) -> String {
    let digits = digits(estimate.mean);
    format!("{:.digits$} ± {:.digits$}", estimate.mean, estimate.half_width())
}

/// How many digits behind the point leave a number of seconds three that count, or one.
fn digits(seconds: f64) -> usize {
    match seconds {
        ..0.9995 => 3,
        ..9.995 => 2,
        _ => 1,
    }
}

/// Seconds with three digits.
pub(crate) fn seconds(seconds: f64) -> String {
    format!("{seconds:.*} s", digits(seconds))
}

/// A rate in Mbit/s that was set and not measured, to the digit; a mean of such rates that has no end, with four digits.
pub(crate) fn exact(mbps: f64) -> String {
    let rounded = (mbps * 1e3).round() / 1e3;
    if (rounded - mbps).abs() < 1e-6 || mbps <= 0.0 {
        return rounded.to_string();
    }
    let digit = 10f64.powf(3.0 - mbps.log10().floor());
    ((mbps * digit).round() / digit).to_string()
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

    /// A run in which all connections have a size; under the second system one of three does not end.
    fn transfers() -> RunResult {
        let mut run = testing::run(&["tcp", "pathchanger"], 2);
        for (name, mean, p99) in [("tcp", 0.5, 12.345), ("pathchanger", 0.115, 1.24)] {
            let system = run.systems.get_mut(name).unwrap();
            (system.afct_s, system.fct_p99_s, system.fairness_endless) = (Some(mean), Some(p99), None);
            system.goodput_mbps = 20.0;
        }
        let stalled = crate::Unfinished { flows: 1, mean_s: 0.25, p50_s: 0.1, p99_s: 9.996 };
        run.systems.get_mut("pathchanger").unwrap().unfinished = Some(stalled);
        run
    }

    #[test]
    fn transfers_are_judged_by_their_times_those_that_did_not_end_included() {
        insta::assert_snapshot!(table(&transfers()), @r#"
        ┌─────────────┬────────────────┬─────────────┬────────┬──────────┬───────────────────────────┬───────┬───────┐
        │ system      ┆ goodput Mbit/s ┆ mean time s ┆ 99 % s ┆ fairness ┆ least used path, 2nd half ┆ moves ┆ drops │
        ╞═════════════╪════════════════╪═════════════╪════════╪══════════╪═══════════════════════════╪═══════╪═══════╡
        │ tcp         ┆           20.0 ┆       0.500 ┆   12.3 ┆    1.000 ┆                  1 % (p2) ┆     0 ┆    30 │
        │ pathchanger ┆           20.0 ┆       0.250 ┆   10.0 ┆    1.000 ┆                 89 % (p2) ┆    20 ┆    30 │
        └─────────────┴────────────────┴─────────────┴────────┴──────────┴───────────────────────────┴───────┴───────┘
        "#);
    }

    #[test]
    fn means_over_seeds_have_their_intervals_and_drops() {
        let mut run = transfers();
        for name in ["tcp", "pathchanger"] {
            let system = run.systems.get_mut(name).unwrap();
            let other = SystemResult { afct_s: system.afct_s.map(|mean| mean + 0.01), ..system.clone() };
            system.repeated = Repeated::of(&[system.clone(), other]);
        }
        insta::assert_snapshot!(table(&run), @r#"
        ┌─────────────┬────────────────┬───────────────┬────────────┬───────────────┬───────────────────────────┬───────┬───────┐
        │ system      ┆ goodput Mbit/s ┆   mean time s ┆     99 % s ┆      fairness ┆ least used path, 2nd half ┆ moves ┆ drops │
        ╞═════════════╪════════════════╪═══════════════╪════════════╪═══════════════╪═══════════════════════════╪═══════╪═══════╡
        │ tcp         ┆     20.0 ± 0.0 ┆ 0.505 ± 0.064 ┆ 12.3 ± 0.0 ┆ 1.000 ± 0.000 ┆                       1 % ┆     0 ┆    30 │
        │ pathchanger ┆     20.0 ± 0.0 ┆ 0.250 ± 0.000 ┆ 10.0 ± 0.0 ┆ 1.000 ± 0.000 ┆                      89 % ┆    20 ┆    30 │
        └─────────────┴────────────────┴───────────────┴────────────┴───────────────┴───────────────────────────┴───────┴───────┘
        "#);
    }

    #[test]
    fn where_plain_tcp_carried_next_to_nothing_there_is_no_number_of_times() {
        let mut run = testing::run(&["tcp", "pathchanger"], 2);
        run.systems.get_mut("tcp").unwrap().goodput_mbps = 0.002;
        assert!(table(&run).contains("┆ > 100 ┆"), "{}", table(&run));
    }

    #[test]
    fn a_run_that_was_cut_short_is_no_multiple_of_another_and_no_other_of_it() {
        for cut in ["tcp", "pathchanger"] {
            let mut run = testing::run(&["tcp", "pathchanger"], 6);
            let system = run.systems.get_mut(cut).unwrap();
            system.planned_s = Some(60.0);
            system.incomplete.push("interrupted after 20 s of 60 s".into());
            let table = table(&run);
            let own = if cut == "tcp" { "    –" } else { " 1.00" };
            assert!(table.contains(&format!("┆           88.5 ┆ {own} ┆")), "{table}");
            assert!(table.contains("┆          345.0 ┆     – ┆"), "{table}");
            assert!(table.ends_with(&format!("\nincomplete: {cut}: interrupted after 20 s of 60 s")), "{table}");
        }
    }

    #[test]
    fn where_nothing_was_measured_there_is_no_goodput() {
        let mut run = testing::run(&["tcp"], 1);
        let system = run.systems.get_mut("tcp").unwrap();
        (system.goodput_mbps, system.planned_s) = (f64::NAN, Some(60.0));
        assert!(table(&run).contains("│ tcp    ┆              – ┆"), "{}", table(&run));
    }

    #[test]
    fn what_was_set_is_printed_to_the_digit_and_times_to_three() {
        assert_eq!([68.75, 100.0, 0.1 + 0.2].map(exact), ["68.75", "100", "0.3"]);
        assert_eq!([300.0 / 7.0, 790.0 / 7.0, 100_000.0 / 7.0, 0.0].map(exact), ["42.86", "112.9", "14290", "0"]);
        assert_eq!(
            [0.0004, 0.9994, 0.9996, 9.994, 9.996].map(seconds),
            ["0.000 s", "0.999 s", "1.00 s", "9.99 s", "10.0 s"]
        );
    }

    #[test]
    fn a_systems_name_cannot_steer_the_terminal() {
        assert!(!table(&testing::run(&["\u{1b}[31mred"], 1)).contains('\u{1b}'));
    }
}
