//! A scenario run with several values of some of its keys: one table, one picture, one page.

use comfy_table::{CellAlignment, Table, presets};
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use crate::{
    Estimate, PlotError, RunResult, SystemResult, document,
    lines::{Across, DASHES, Line, Panel, Styles, Whisker, draw},
    summary::{Column, columns, printable, taken_at},
};

/// The version of `sweep.json` that this crate writes.
const SCHEMA: u32 = 1;

/// The results of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Swept {
    schema: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// The keys that were swept, such as `topology.rate`.
    pub keys: Vec<String>,
    /// What was run, in the order of the values.
    pub points: Vec<SweptPoint>,
}

/// A value of each key, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweptPoint {
    /// The values, as the user wrote them, in the order of the keys.
    pub values: Vec<String>,
    /// Directory of the run's own files, beside the page.
    pub directory: String,
    /// The run.
    pub run: RunResult,
}

/// A measure that the picture shows: its name, and its value of one seed.
type Measure = (&'static str, fn(&SystemResult) -> Option<f64>);

const MEASURES: [Measure; 8] = [
    ("goodput, Mbit/s", |one| Some(one.goodput_mbps)),
    ("mean time, ms", |one| taken_at(one).map(|[mean, ..]| mean * 1e3)),
    ("50 % of times, ms", |one| taken_at(one).map(|[_, median, _]| median * 1e3)),
    ("99 % of times, ms", |one| taken_at(one).map(|[.., long]| long * 1e3)),
    ("fairness", |one| one.fairness_endless),
    ("slowest, Mbit/s", |one| one.goodput_mbps_min),
    ("moves", |one| Some(one.total_moves() as f64)),
    ("drops", |one| Some(one.total_drops() as f64)),
];

impl Swept {
    /// The results of these points; each has a value for each key.
    pub fn new(scenario: impl Into<String>, keys: Vec<String>, points: Vec<SweptPoint>) -> Swept {
        Swept { schema: SCHEMA, scenario: scenario.into(), keys, points }
    }

    /// All results as a table for a terminal, a row for each point and system.
    pub fn table(&self) -> String {
        let (columns, mut table) = (self.columns(), Table::new());
        let titles = self.keys.iter().map(String::as_str).chain(columns.iter().map(|column| column.title()));
        table.load_style(presets::UTF8_FULL_CONDENSED).set_header(titles.map(|title| printable(title.to_owned())));
        for (point, row) in self.rows(&columns) {
            table.add_row(point.values.iter().cloned().chain(row).map(printable));
        }
        for column in table.column_iter_mut().skip(self.keys.len() + 1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut lines = vec![table.to_string()];
        lines.extend(self.doubts().into_iter().map(|doubt| printable(format!("doubt: {doubt}"))));
        lines.join("\n")
    }

    /// Why to doubt the runs, each with its values and system.
    fn doubts(&self) -> Vec<String> {
        let of = |point: &SweptPoint| {
            let values = point.values.join(", ");
            let each = point.run.validity.iter();
            each.map(|doubt| format!("{values}: {}: {}", doubt.system, doubt.text)).collect::<Vec<_>>()
        };
        self.points.iter().flat_map(of).collect()
    }

    /// Each measure over the first key as SVG text: a colour for each system, dashes and marks for each value of the other keys, or
    /// panels of their own where these are too many for dashes; points alone where the values are no numbers. After several seeds,
    /// points have their 95 % confidence intervals.
    pub fn picture(&self) -> Result<String, PlotError> {
        let axis = Axis::of(self.points.iter().filter_map(|point| point.values.first()).map(String::as_str));
        let (systems, others) = (self.systems(), self.others());
        let apart = others.len() > DASHES;
        let only: Vec<Option<&String>> = if apart { others.iter().map(Some).collect() } else { vec![None] };
        let (mut panels, mut whiskers, mut heads) = (Vec::new(), Vec::new(), Vec::new());
        for measure in &MEASURES {
            let (mut range, first) = ([0.0, 0.0_f64], panels.len());
            for other in &only {
                if let Some((panel, own)) = self.panel(measure, &axis, panels.len(), *other) {
                    range[1] = range[1].max(panel.range[1]);
                    panels.push(panel);
                    whiskers.extend(own);
                    heads.extend(other.cloned());
                }
            }
            // Panels of one measure are compared with each other.
            panels.iter_mut().skip(first).for_each(|panel: &mut Panel| panel.range = range);
        }
        let mut of = Vec::new();
        for (color, system) in systems.iter().enumerate() {
            for (dash, other) in others.iter().enumerate() {
                of.push((label(system, other), color, if apart { 0 } else { dash }));
            }
        }
        let dashes = if apart || others.len() < 2 { Vec::new() } else { others };
        let styles = Styles { of, colors: systems.into_iter().map(printable).collect(), dashes, heads };
        let title = printable(axis.title(self.keys.first().map_or("", String::as_str)));
        let across = Across { title: &title, ticks: &axis.ticks, joined: axis.are_numbers, dots: true, styles };
        draw(&printable(self.scenario.clone()), &across, &panels, &whiskers)
    }

    /// The names of all systems.
    fn systems(&self) -> Vec<String> {
        let mut systems: Vec<String> = Vec::new();
        for (name, _) in self.points.iter().flat_map(|point| point.run.systems.iter()) {
            if !systems.iter().any(|known| known == name) {
                systems.push(name.to_owned());
            }
        }
        systems
    }

    /// The values of all keys but the first, in the order in which they come.
    fn others(&self) -> Vec<String> {
        let mut others: Vec<String> = Vec::new();
        for other in self.points.iter().map(|point| self.other(point)) {
            if !others.contains(&other) {
                others.push(other);
            }
        }
        others
    }

    /// The values of all keys but the first at a point, such as `ecn = true`.
    fn other(&self, point: &SweptPoint) -> String {
        let each = self.keys.iter().zip(&point.values).skip(1).map(|(key, value)| {
            let short = key.rsplit('.').next().unwrap_or(key);
            format!("{short} = {value}")
        });
        printable(each.collect::<Vec<_>>().join(", "))
    }

    /// The picture and the table on a page; `command` makes them again.
    pub fn page(&self, command: &str) -> Result<String, PlotError> {
        let picture = self.picture()?;
        let body = html! {
            h1 { (self.scenario) ": " (self.keys.join(", ")) }
            figure { (PreEscaped(picture)) }
            div.scroll { (self.markup()) }
            p { small { (self.columns().into_iter().filter_map(Column::meaning).collect::<Vec<_>>().join(" ")) } }
            @for doubt in self.doubts() { p { strong { "Doubt: " } (doubt) "." } }
            h2 { "Run it again" }
            pre { (command) }
            p { a href="sweep.json" { "sweep.json" } }
        };
        Ok(document(&format!("{} – sidestep", self.scenario), &body))
    }

    fn markup(&self) -> Markup {
        let columns = self.columns();
        html! {
            table {
                tr {
                    @for key in &self.keys { th { (key) } }
                    @for column in &columns { th { (column.title()) } }
                }
                @for (point, row) in self.rows(&columns) {
                    tr {
                        @for value in &point.values { td { a href=(format!("{}/index.html", point.directory)) { (value) } } }
                        @for cell in row { td { (cell) } }
                    }
                }
            }
        }
    }

    /// The columns that show something about any of the runs.
    fn columns(&self) -> Vec<Column> {
        let of_each: Vec<Vec<Column>> = self.points.iter().map(|point| columns(&point.run)).collect();
        let less = self.points.iter().any(|point| !point.run.differences.is_empty());
        let has = |column: &Column| of_each.iter().any(|has| has.contains(column)) || less && *column == Column::Less;
        Column::ALL.into_iter().filter(has).collect()
    }

    fn rows<'a>(&'a self, columns: &'a [Column]) -> impl Iterator<Item = (&'a SweptPoint, Vec<String>)> {
        let of = move |point: &'a SweptPoint| {
            let systems = point.run.systems.iter();
            systems.map(move |(name, system)| {
                (point, columns.iter().map(|column| column.cell(&point.run, name, system)).collect())
            })
        };
        self.points.iter().flat_map(of)
    }

    /// A measure's lines in the panel of this number, and the points' intervals; of one value of the other keys, or of all. `None`
    /// where the measure is missing, or zero everywhere.
    fn panel(
        &self,
        (name, of): &Measure,
        axis: &Axis,
        index: usize,
        only: Option<&String>,
    ) -> Option<(Panel, Vec<Whisker>)> {
        let (mut panel, mut whiskers): (Vec<Line>, Vec<Whisker>) = (Vec::new(), Vec::new());
        for (number, point) in self.points.iter().enumerate() {
            let other = self.other(point);
            if only.is_some_and(|only| *only != other) {
                continue;
            }
            for (system, result) in point.run.systems.iter() {
                let Some(value) = over_seeds(result, of) else { continue };
                let ends = value.ci95.map(|end| end.max(0.0));
                let label = label(system, &other);
                let x = axis.at.get(number).copied().unwrap_or_default();
                if ends[1] > ends[0] {
                    whiskers.push(Whisker { panel: index, label: label.clone(), x, ends });
                }
                match panel.iter_mut().find(|line| line.label == label) {
                    Some(line) => line.points.push((x, value.mean)),
                    None => panel.push(Line { label, points: vec![(x, value.mean)] }),
                }
            }
        }
        if !axis.are_numbers {
            apart(&mut panel, &mut whiskers);
        }
        panel.iter_mut().for_each(|line| line.points.sort_by(|one, other| one.0.total_cmp(&other.0)));
        let values = panel.iter().flat_map(|line| &line.points).map(|point| point.1);
        let values: f64 = values.fold(0.0, f64::max);
        let ends = whiskers.iter().map(|whisker| whisker.ends[1]).fold(values, f64::max);
        // The axis is the values'; an interval of a few seeds that is far wider leaves the picture.
        let highest = ends.min(values * WIDE);
        let y = (*name).to_owned();
        (highest > 0.0).then_some((Panel { y, range: [0.0, highest * 1.08], lines: panel, mark: None }, whiskers))
    }
}

/// Intervals reach at most this multiple of the largest value.
const WIDE: f64 = 1.6;

/// What a line stands for.
fn label(system: &str, other: &str) -> String {
    printable(if other.is_empty() { system.to_owned() } else { format!("{system}, {other}") })
}

/// The mean over the seeds, and its interval; `None` where a seed lacks the measure.
fn over_seeds(result: &SystemResult, of: &fn(&SystemResult) -> Option<f64>) -> Option<Estimate> {
    match &result.repeated {
        Some(repeated) => Estimate::of(&repeated.each.iter().map(of).collect::<Option<Vec<f64>>>()?),
        None => Estimate::of(&[of(result)?]),
    }
}

/// Puts the points of one tick beside each other, so that none hides another.
fn apart(lines: &mut [Line], whiskers: &mut [Whisker]) {
    let count = lines.len() as f64;
    let step = (0.6 / count).min(0.08);
    for (number, line) in lines.iter_mut().enumerate() {
        let aside = (number as f64 - (count - 1.0) / 2.0) * step;
        line.points.iter_mut().for_each(|point| point.0 += aside);
        whiskers.iter_mut().filter(|whisker| whisker.label == line.label).for_each(|whisker| whisker.x += aside);
    }
}

/// Where the values of a key stand on an axis.
struct Axis {
    at: Vec<f64>,
    /// A tick for each value; none where the numbers are too near each other for that.
    ticks: Vec<(f64, String)>,
    /// The unit that all have; empty where they are pure numbers, or none.
    unit: String,
    /// Whether all values are numbers of one unit.
    are_numbers: bool,
}

/// The least share of the axis between two ticks.
const NEAR: f64 = 0.07;

impl Axis {
    fn of<'a>(values: impl Iterator<Item = &'a str>) -> Axis {
        let values: Vec<&str> = values.collect();
        let numbers: Option<Vec<(f64, &str)>> = values.iter().map(|value| number(value)).collect();
        if let Some(numbers) = numbers
            && let Some((_, unit)) = numbers.first()
            && numbers.iter().all(|(_, other)| other == unit)
        {
            let at: Vec<f64> = numbers.iter().map(|(number, _)| *number).collect();
            return Axis { ticks: ticks(&at), at, unit: (*unit).to_owned(), are_numbers: true };
        }
        let mut distinct: Vec<String> = Vec::new();
        let at = values.iter().map(|value| {
            let known = distinct.iter().position(|other| other == value);
            let place = known.unwrap_or_else(|| {
                distinct.push((*value).to_owned());
                distinct.len() - 1
            });
            place as f64 + 1.0
        });
        let at = at.collect();
        let named = distinct.into_iter().enumerate().map(|(place, value)| (place as f64 + 1.0, printable(value)));
        Axis { at, ticks: named.collect(), unit: String::new(), are_numbers: false }
    }

    fn title(&self, key: &str) -> String {
        if self.unit.is_empty() { key.to_owned() } else { format!("{key}, {}", self.unit) }
    }
}

/// A tick for each of these numbers, or none where two would overlap.
fn ticks(numbers: &[f64]) -> Vec<(f64, String)> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let near = (most - least) * NEAR;
    if sorted.len() < 2 || sorted.windows(2).any(|two| two[1] - two[0] < near) {
        return Vec::new();
    }
    sorted.into_iter().map(|number| (number, number.to_string())).collect()
}

/// The number that a value begins with, and its unit.
fn number(value: &str) -> Option<(f64, &str)> {
    let value = value.trim().trim_matches('"');
    let end = value.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(value.len());
    let (digits, unit) = value.split_at(end);
    Some((digits.parse().ok().filter(|number: &f64| number.is_finite())?, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// The panels of a run without transfers.
    const PANELS: [&str; 5] = ["goodput, Mbit/s", "fairness", "slowest, Mbit/s", "moves", "drops"];

    fn swept(keys: &[&str], values: &[&[&str]]) -> Swept {
        let point = |(number, values): (usize, &&[&str])| {
            let mut run = testing::run(&["tcp", "pathchanger"], 2);
            for name in ["tcp", "pathchanger"] {
                run.systems.get_mut(name).unwrap().goodput_mbps += number as f64;
            }
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            SweptPoint { values, directory: format!("{}", number + 1), run }
        };
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Swept::new("test", keys, values.iter().enumerate().map(point).collect())
    }

    #[test]
    fn the_table_has_a_row_for_each_value_and_system() {
        let swept = swept(&["topology.rate"], &[&["10 Mbit/s"], &["20 Mbit/s"]]);
        insta::assert_snapshot!(swept.table(), @r#"
        ┌───────────────┬─────────────┬────────────────┬───────┬──────────┬────────────────┬───────────────────────────┬───────┬───────┐
        │ topology.rate ┆ system      ┆ goodput Mbit/s ┆ × tcp ┆ fairness ┆ slowest Mbit/s ┆ least used path, 2nd half ┆ moves ┆ drops │
        ╞═══════════════╪═════════════╪════════════════╪═══════╪══════════╪════════════════╪═══════════════════════════╪═══════╪═══════╡
        │ 10 Mbit/s     ┆ tcp         ┆           88.5 ┆  1.00 ┆    1.000 ┆          88.50 ┆                  1 % (p2) ┆     0 ┆    30 │
        │ 10 Mbit/s     ┆ pathchanger ┆          175.5 ┆  1.98 ┆    1.000 ┆          87.00 ┆                 89 % (p2) ┆    20 ┆    30 │
        │ 20 Mbit/s     ┆ tcp         ┆           89.5 ┆  1.00 ┆    1.000 ┆          88.50 ┆                  1 % (p2) ┆     0 ┆    30 │
        │ 20 Mbit/s     ┆ pathchanger ┆          176.5 ┆  1.97 ┆    1.000 ┆          87.00 ┆                 89 % (p2) ┆    20 ┆    30 │
        └───────────────┴─────────────┴────────────────┴───────┴──────────┴────────────────┴───────────────────────────┴───────┴───────┘
        "#);
    }

    #[test]
    fn the_picture_has_a_line_for_each_system_and_value_of_the_other_keys() {
        let both = [["1", "true"], ["2", "true"], ["1", "false"], ["2", "false"]];
        let both: Vec<&[&str]> = both.iter().map(|values| &values[..]).collect();
        let svg = swept(&["flow.0.connections", "tcp.ecn"], &both).picture().unwrap();
        for wanted in ["flow.0.connections", "tcp, ecn = true", "pathchanger, ecn = false", "goodput, Mbit/s"] {
            assert!(svg.contains(wanted), "{wanted}");
        }
        // In the legend a colour for each system, and dashes for each value of the second key.
        for entry in ["tcp", "pathchanger", "ecn = true", "ecn = false"] {
            assert_eq!(svg.matches(&format!(">\n{entry}\n<")).count(), 1, "{entry}: {svg}");
        }
        let lines =
            |color: &str| svg.matches(&format!("<polyline fill=\"none\" opacity=\"1\" stroke=\"{color}\"")).count();
        assert!(
            lines("#0072B2") > 0 && lines("#D55E00") > 0 && lines("#009E73") == 0,
            "two systems have two colours: {svg}"
        );
        // Two values of the first key on each of four lines, in each panel.
        let panels = PANELS.iter().filter(|name| svg.contains(**name)).count();
        // In the legend each value of the second key has its mark.
        assert_eq!(svg.matches("<circle").count(), 8 * panels + 2);
        // The second value's marks are hollow.
        let hollow = svg.lines().filter(|line| line.starts_with("<circle") && line.contains("fill=\"none\"")).count();
        assert_eq!(hollow, 4 * panels + 1);
        assert!(!svg.contains("mean time"), "no flow has a size");
    }

    #[test]
    fn more_values_of_the_second_key_than_dashes_have_panels_of_their_own_on_one_axis() {
        let all: Vec<[String; 2]> =
            (1..=2).flat_map(|x| (1..=5).map(move |y| [x.to_string(), y.to_string()])).collect();
        let all: Vec<Vec<&str>> = all.iter().map(|two| two.iter().map(String::as_str).collect()).collect();
        let all: Vec<&[&str]> = all.iter().map(Vec::as_slice).collect();
        let svg = swept(&["flow.0.connections", "mptcp.subflows"], &all).picture().unwrap();
        assert_eq!(svg.matches(">\ngoodput, Mbit/s\n<").count(), 5, "{svg}");
        for value in 1..=5 {
            assert!(svg.contains(&format!(">\nsubflows = {value}\n<")), "{value}");
        }
    }

    #[test]
    fn values_of_one_unit_are_numbers_on_the_axis_and_others_are_named() {
        let axis = |values: &[&str]| Axis::of(values.iter().copied());
        assert_eq!(axis(&["10 ms", "\"2.5ms\""]).at, [10.0, 2.5]);
        assert_eq!(axis(&["10 ms", "2 ms"]).title("a.b"), "a.b, ms");
        assert_eq!(axis(&["1", "4"]).title("a"), "a");
        let mixed = axis(&["900 kB", "1 MB", "900 kB"]);
        assert_eq!((mixed.at.clone(), mixed.title("size")), (vec![1.0, 2.0, 1.0], "size".to_owned()));
        assert_eq!(mixed.ticks, [(1.0, "900 kB".to_owned()), (2.0, "1 MB".to_owned())]);
        assert!(!mixed.are_numbers && axis(&["1", "4"]).are_numbers);
        assert_eq!(axis(&["reno", "cubic"]).at, [1.0, 2.0]);
        let ticks = |values: &[&str]| axis(values).ticks.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(ticks(&["10 ms", "2.5 ms", "5 ms", "10 ms"]), ["2.5", "5", "10"]);
        assert_eq!(ticks(&["1", "2", "1000"]), [""; 0], "1 and 2 would overlap");
    }

    #[test]
    fn networks_are_named_below_their_points_which_no_line_joins() {
        let svg = swept(&["topology"], &[&["Abilene"], &["Geant2012"]]).picture().unwrap();
        let panels = PANELS.iter().filter(|name| svg.contains(**name)).count();
        for name in ["Abilene", "Geant2012"] {
            assert_eq!(svg.matches(&format!(">\n{name}\n<")).count(), panels, "{svg}");
        }
        assert!(svg.contains("tcp\nGeant2012: 89.50</title>"), "{svg}");
        assert!(!svg.contains(">\n1.1\n<") && !svg.contains("1 Abilene"), "{svg}");
        let joined = swept(&["topology.rate"], &[&["10 Mbit/s"], &["20 Mbit/s"]]).picture().unwrap();
        assert_eq!(joined.matches("<polyline").count() - svg.matches("<polyline").count(), 2 * panels);
    }

    #[test]
    fn after_several_seeds_each_point_has_its_interval() {
        let mut swept = swept(&["topology"], &[&["Abilene"], &["Geant2012"]]);
        assert!(!swept.picture().unwrap().contains("95 %"));
        for point in &mut swept.points {
            let one = point.run.systems.get_mut("tcp").unwrap();
            let other = SystemResult { goodput_mbps: one.goodput_mbps + 2.0, ..one.clone() };
            one.repeated = crate::Repeated::of(&[one.clone(), other]);
        }
        let svg = swept.picture().unwrap();
        // 89.5 ± 12.7: two values that are 2 apart.
        assert!(svg.contains("tcp\nAbilene: 89.50\n95 %: 76.79 to 102.2</title>"), "{svg}");
        assert_eq!(svg.matches("95 %: ").count(), 2, "{svg}");
    }

    #[test]
    fn hostile_names_do_not_become_markup() {
        let mut swept = swept(&["a<b"], &[&["\"><script>alert(1)</script>\u{1b}[31m"]]);
        swept.scenario = "<i>".into();
        let page = swept.page("sidestep '<b>'").unwrap();
        assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains("<i>"), "{page}");
        assert!(!swept.table().contains('\u{1b}'));
    }
}
