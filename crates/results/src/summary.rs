//! The summary of a run in a few columns, for the terminal and for the page.

use comfy_table::{CellAlignment, Table, presets};

use crate::{Difference, Estimate, Repeated, RunResult, SystemResult, measures};

/// From this multiple of another value on, the multiple shows only that the other value is next to nothing.
pub(crate) const MANY: f64 = 100.0;

/// A column of the summary; the first is text, the others are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    System,
    Goodput,
    TimesTcp,
    Less,
    MeanTime,
    MedianTime,
    LongTime,
    Fairness,
    Slowest,
    LeastUsed,
    Moves,
    Drops,
}

/// The columns that show something about this run.
///
/// Where all flows have a size, fairness of goodput and the slowest flow are not among them: a flow that is larger, or begins
/// later, has another goodput without any unfairness.
pub(crate) fn columns(run: &RunResult) -> Vec<Column> {
    let mut columns = vec![Column::System, Column::Goodput];
    if !run.is_of_transfers() {
        columns.push(Column::TimesTcp);
    }
    if run.systems.values().any(|system| taken(system).is_some()) {
        columns.extend([Column::MeanTime, Column::MedianTime, Column::LongTime]);
    }
    if !run.is_of_transfers() {
        columns.extend([Column::Fairness, Column::Slowest]);
    }
    columns.extend([Column::LeastUsed, Column::Moves, Column::Drops]);
    columns
}

/// The results as a table for a terminal, one row per system, and below it the headline, how far systems are apart seed by seed,
/// why to doubt the run, what else there is to remark, and what is incomplete.
pub fn table(run: &RunResult) -> String {
    let mut table = Table::new();
    let columns = columns(run);
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(columns.iter().map(|column| column.title()));
    for (name, system) in run.systems.iter() {
        table.add_row(columns.iter().map(|column| printable(column.cell(run, name, system))));
    }
    align(&mut table);
    let mut lines = vec![table.to_string()];
    if let Some((titles, rows)) = differences(run) {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED).set_header(titles.into_iter().map(printable));
        for row in rows {
            table.add_row(row.into_iter().map(printable));
        }
        align(&mut table);
        lines.push(table.to_string());
    }
    lines.extend(run.headline.iter().map(|headline| printable(headline.text.clone())));
    lines.extend(run.validity.iter().map(|doubt| printable(format!("doubt: {}: {}", doubt.system, doubt.text))));
    for (name, system) in run.systems.iter() {
        lines.extend(system.notes.iter().map(|note| printable(format!("note: {name}: {note}"))));
    }
    lines.extend(run.incomplete().into_iter().map(|line| printable(format!("incomplete: {line}"))));
    lines.join("\n")
}

fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// How far systems are from the baseline seed by seed: titles, and a row for each system. `None` of one seed.
pub(crate) fn differences(run: &RunResult) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let baseline = &run.differences.first()?.baseline;
    let mut measures: Vec<(&str, &str)> = Vec::new();
    for one in &run.differences {
        let measure = (one.measure.as_str(), one.unit.as_str());
        // Goodput of transfers is what was offered.
        if !(measures.contains(&measure) || run.is_of_transfers() && one.measure == "goodput") {
            measures.push(measure);
        }
    }
    let titles = measures.iter().map(|(measure, unit)| format!("{measure} {unit}"));
    let titles = std::iter::once(format!("less {baseline}, seed by seed")).chain(titles).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for name in run.systems.iter().map(|(name, _)| name).filter(|name| name != baseline) {
        let of = |(measure, _): &(&str, &str)| {
            let found = run.differences.iter().find(|one| one.system == name && one.measure == *measure);
            or_dash(found.map(|one| {
                let none = if one.is_none() { " (no difference)" } else { "" };
                difference(one) + none
            }))
        };
        rows.push(std::iter::once(name.to_owned()).chain(measures.iter().map(of)).collect());
    }
    Some((titles, rows))
}

/// A difference with its sign, and half of its interval.
fn difference(one: &Difference) -> String {
    let digits = if one.estimate.mean.abs().max(one.estimate.half_width()) < 10.0 { 2 } else { 1 };
    format!("{} ± {:.digits$}", signed(one.estimate.mean, digits), one.estimate.half_width())
}

impl Column {
    /// All of them, in their order.
    pub(crate) const ALL: [Column; 12] = [
        Column::System,
        Column::Goodput,
        Column::TimesTcp,
        Column::Less,
        Column::MeanTime,
        Column::MedianTime,
        Column::LongTime,
        Column::Fairness,
        Column::Slowest,
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
            Column::Less => "less baseline",
            Column::MedianTime => "50 % s",
            Column::LongTime => "99 % s",
            Column::Fairness => "fairness",
            Column::Slowest => "slowest Mbit/s",
            Column::LeastUsed => "least used path, 2nd half",
            Column::Moves => "moves",
            Column::Drops => "drops",
        }
    }

    /// What the column means, where its title does not show it.
    pub(crate) fn meaning(self) -> Option<&'static str> {
        Some(match self {
            Column::System | Column::TimesTcp => return None,
            Column::Goodput => "Goodput: bytes of applications that were acknowledged after the warm-up.",
            Column::MeanTime => {
                "Mean time: of transfers, from start to last acknowledgement, or to the end of the run."
            }
            Column::Less => {
                "Less baseline: goodput in Mbit/s, or the mean time of transfers in ms, less that of the baseline, seed by seed."
            }
            Column::MedianTime => "50 %: half of the transfers took at most this long.",
            Column::LongTime => "99 %: likewise, 99 of 100.",
            Column::Fairness => {
                "Fairness: Jain's index over the goodput of connections without a size, 1 if all have the same."
            }
            Column::Slowest => "Slowest: goodput of the connection without a size that has least of it.",
            Column::LeastUsed => "Least used path: share of its capacity that was used.",
            Column::Moves => "Moves: how often a connection was put on another path.",
            Column::Drops => "Drops: packets that links dropped.",
        })
    }

    /// One system's cell. After several seeds it has means, and ± half of the confidence interval, if
    /// the seeds made a difference.
    pub(crate) fn cell(self, run: &RunResult, name: &str, system: &SystemResult) -> String {
        let repeated = system.repeated.as_ref();
        match (self, repeated) {
            (Column::System, _) => name.to_owned(),
            (Column::Goodput, None) => {
                or_dash(Some(system.goodput_mbps).filter(|mbps| mbps.is_finite()).map(|mbps| format!("{mbps:.1}")))
            }
            (Column::Goodput, Some(Repeated { goodput_mbps: goodput, same, .. })) => with_interval(*goodput, 1, *same),
            (Column::TimesTcp, _) => or_dash(
                times_tcp(run, system)
                    .map(|times| if times < MANY { format!("{times:.2}") } else { format!("> {MANY:.0}") }),
            ),
            (Column::Less, _) => or_dash(main_difference(run, name).map(difference)),
            (Column::MeanTime, _) => time(system, 0),
            (Column::MedianTime, _) => time(system, 1),
            (Column::LongTime, _) => time(system, 2),
            (Column::Fairness, None) => or_dash(fairness(system).map(|index| format!("{index:.3}"))),
            (Column::Fairness, Some(repeated)) => {
                let index = each(repeated, fairness).or(repeated.fairness);
                or_dash(index.map(|index| with_interval(index, 3, repeated.same)))
            }
            (Column::Slowest, None) => or_dash(system.goodput_mbps_min.map(|mbps| format!("{mbps:.2}"))),
            (Column::Slowest, Some(repeated)) => {
                let slowest = each(repeated, |one| one.goodput_mbps_min).or(repeated.goodput_mbps_min);
                or_dash(slowest.map(|mbps| with_interval(mbps, 2, repeated.same)))
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

/// Jain's index over the connections without a size; where none is known, over all.
pub(crate) fn fairness(system: &SystemResult) -> Option<f64> {
    system.fairness_endless.or(system.fairness)
}

/// Mean, median and 99th percentile of the times of transfers in seconds. One that has not ended counts with what it has taken
/// until the end of the run: without it, a system that stalls some would look faster.
pub(crate) fn taken_at(system: &SystemResult) -> Option<[f64; 3]> {
    let with_unfinished = system.unfinished.map(|unfinished| [unfinished.mean_s, unfinished.p50_s, unfinished.p99_s]);
    with_unfinished.or_else(|| Some([system.afct_s?, system.fct_p50_s?, system.fct_p99_s?]))
}

/// Mean and 99th percentile of these times.
pub(crate) fn taken(system: &SystemResult) -> Option<(f64, f64)> {
    taken_at(system).map(|[mean, _, long]| (mean, long))
}

/// The cell of one of [`taken_at`]'s times.
fn time(system: &SystemResult, which: usize) -> String {
    let Some(repeated) = &system.repeated else {
        return or_dash(taken_at(system).map(|times| format!("{:.*}", digits(times[which]), times[which])));
    };
    let known = [repeated.afct_s, repeated.fct_p50_s, repeated.fct_p99_s];
    let time = each(repeated, |one| taken_at(one).map(|times| times[which])).or(known[which]);
    or_dash(time.map(|time| with_interval(time, digits(time.mean), repeated.same)))
}

/// How far a system is from the baseline in what the run is about.
fn main_difference<'a>(run: &'a RunResult, name: &str) -> Option<&'a Difference> {
    let measure = if run.is_of_transfers() { "mean time" } else { "goodput" };
    run.differences.iter().find(|one| one.system == name && one.measure == measure)
}

/// What [`taken`] returns for the mean; after several seeds the mean of theirs.
pub(crate) fn mean_time(system: &SystemResult) -> Option<f64> {
    match &system.repeated {
        Some(repeated) => {
            each(repeated, |one| taken(one).map(|(mean, _)| mean)).or(repeated.afct_s).map(|estimate| estimate.mean)
        }
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

/// A measure over the seeds; `None` where one lacks it, or only the means are known.
fn each(repeated: &Repeated, of: impl Fn(&SystemResult) -> Option<f64>) -> Option<Estimate> {
    let each: Option<Vec<f64>> = repeated.each.iter().map(of).collect();
    Estimate::of(&each?)
}

/// A mean with half of its interval, but of seeds that gave the [same](Repeated::same).
fn with_interval(estimate: Estimate, digits: usize, same: bool) -> String {
    let interval = if same { String::new() } else { format!(" ± {:.digits$}", estimate.half_width()) };
    format!("{:.digits$}{interval}", estimate.mean)
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

/// A number with its sign, and `digits` digits behind the point.
pub(crate) fn signed(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let sign = if text.bytes().all(|byte| byte == b'0' || byte == b'.') {
        ""
    } else if value < 0.0 {
        "−"
    } else {
        "+"
    };
    format!("{sign}{text}")
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
        ┌─────────────┬────────────────┬───────┬──────────┬────────────────┬───────────────────────────┬───────┬───────┐
        │ system      ┆ goodput Mbit/s ┆ × tcp ┆ fairness ┆ slowest Mbit/s ┆ least used path, 2nd half ┆ moves ┆ drops │
        ╞═════════════╪════════════════╪═══════╪══════════╪════════════════╪═══════════════════════════╪═══════╪═══════╡
        │ tcp         ┆           88.5 ┆  1.00 ┆    1.000 ┆          88.50 ┆                  1 % (p2) ┆     0 ┆   210 │
        │ ecmp        ┆          261.0 ┆  2.95 ┆    1.000 ┆          85.50 ┆                  2 % (p6) ┆    43 ┆   210 │
        │ pathchanger ┆          427.5 ┆  4.83 ┆    0.999 ┆          82.50 ┆                  1 % (p6) ┆    44 ┆   210 │
        └─────────────┴────────────────┴───────┴──────────┴────────────────┴───────────────────────────┴───────┴───────┘
        "#);
    }

    #[test]
    fn without_plain_tcp_there_is_no_multiple_of_it() {
        let run = testing::run(&["ecmp"], 2);
        insta::assert_snapshot!(table(&run), @r#"
        ┌────────┬────────────────┬───────┬──────────┬────────────────┬───────────────────────────┬───────┬───────┐
        │ system ┆ goodput Mbit/s ┆ × tcp ┆ fairness ┆ slowest Mbit/s ┆ least used path, 2nd half ┆ moves ┆ drops │
        ╞════════╪════════════════╪═══════╪══════════╪════════════════╪═══════════════════════════╪═══════╪═══════╡
        │ ecmp   ┆           88.5 ┆     – ┆    1.000 ┆          88.50 ┆                  1 % (p2) ┆     0 ┆    30 │
        └────────┴────────────────┴───────┴──────────┴────────────────┴───────────────────────────┴───────┴───────┘
        "#);
    }

    /// A run in which all connections have a size; under the second system one of three does not end.
    fn transfers() -> RunResult {
        let mut run = testing::run(&["tcp", "pathchanger"], 2);
        for (name, mean, p99) in [("tcp", 0.5, 12.345), ("pathchanger", 0.115, 1.24)] {
            let system = run.systems.get_mut(name).unwrap();
            (system.afct_s, system.fct_p50_s, system.fct_p99_s) = (Some(mean), Some(mean / 2.0), Some(p99));
            system.fairness_endless = None;
            system.goodput_mbps = 20.0;
        }
        let stalled = crate::Unfinished { flows: 1, mean_s: 0.25, p50_s: 0.1, p99_s: 9.996 };
        run.systems.get_mut("pathchanger").unwrap().unfinished = Some(stalled);
        run
    }

    #[test]
    fn transfers_are_judged_by_their_times_those_that_did_not_end_included() {
        insta::assert_snapshot!(table(&transfers()), @r#"
        ┌─────────────┬────────────────┬─────────────┬────────┬────────┬───────────────────────────┬───────┬───────┐
        │ system      ┆ goodput Mbit/s ┆ mean time s ┆ 50 % s ┆ 99 % s ┆ least used path, 2nd half ┆ moves ┆ drops │
        ╞═════════════╪════════════════╪═════════════╪════════╪════════╪═══════════════════════════╪═══════╪═══════╡
        │ tcp         ┆           20.0 ┆       0.500 ┆  0.250 ┆   12.3 ┆                  1 % (p2) ┆     0 ┆    30 │
        │ pathchanger ┆           20.0 ┆       0.250 ┆  0.100 ┆   10.0 ┆                 89 % (p2) ┆    20 ┆    30 │
        └─────────────┴────────────────┴─────────────┴────────┴────────┴───────────────────────────┴───────┴───────┘
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
        ┌─────────────┬────────────────┬───────────────┬───────────────┬────────────┬───────────────────────────┬───────┬───────┐
        │ system      ┆ goodput Mbit/s ┆   mean time s ┆        50 % s ┆     99 % s ┆ least used path, 2nd half ┆ moves ┆ drops │
        ╞═════════════╪════════════════╪═══════════════╪═══════════════╪════════════╪═══════════════════════════╪═══════╪═══════╡
        │ tcp         ┆     20.0 ± 0.0 ┆ 0.505 ± 0.064 ┆ 0.250 ± 0.000 ┆ 12.3 ± 0.0 ┆                       1 % ┆     0 ┆    30 │
        │ pathchanger ┆     20.0 ± 0.0 ┆ 0.250 ± 0.000 ┆ 0.100 ± 0.000 ┆ 10.0 ± 0.0 ┆                      89 % ┆    20 ┆    30 │
        └─────────────┴────────────────┴───────────────┴───────────────┴────────────┴───────────────────────────┴───────┴───────┘
        "#);
    }

    #[test]
    fn seeds_that_change_nothing_are_one_run_without_intervals_and_said() {
        let mut run = transfers();
        for name in ["tcp", "pathchanger"] {
            let system = run.systems.get_mut(name).unwrap();
            system.repeated = Repeated::of(&vec![system.clone(); 30]);
        }
        run.conclude(&testing::catalogue());
        let shown = table(&run);
        assert!(!shown.contains('±') && shown.contains("┆       0.500 ┆"), "{shown}");
        for name in ["tcp", "pathchanger"] {
            assert!(
                shown.contains(&format!("note: {name}: the seeds make no difference here: all 30 gave the same")),
                "{shown}"
            );
        }
        assert!(run.differences.is_empty(), "{:?}", run.differences);
        // One of the two that differs makes the difference one of seeds.
        let tcp = run.systems.get_mut("tcp").unwrap();
        let other = SystemResult { goodput_mbps: 19.0, ..tcp.clone() };
        tcp.repeated.as_mut().unwrap().same = false;
        tcp.repeated.as_mut().unwrap().each[0] = other;
        assert!(crate::paired::between(&run, "pathchanger", "tcp", &|one| Some(one.goodput_mbps)).is_some());
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

    #[test]
    fn signs_are_of_what_is_shown() {
        assert_eq!([0.04, -0.04, 1.25, -3.0].map(|value| signed(value, 1)), ["0.0", "0.0", "+1.2", "−3.0"]);
    }
}
