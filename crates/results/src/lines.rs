//! Lines over a common axis, in panels below each other.

use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::{HPos, VPos},
};

use crate::{
    PlotError,
    palette::{GRID, INK, PALETTE, letters},
    plot::shorten,
    tooltip::Tooltips,
};

/// A line in a panel.
#[derive(Clone, Debug)]
pub struct Line {
    /// The text in the picture; lines of one text have one colour in all panels.
    pub label: String,
    /// Its points, from left to right; one that is not finite is left out.
    pub points: Vec<(f64, f64)>,
}

/// Lines over the same range of values.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What the values are.
    pub y: String,
    /// The least and the greatest value of the axis.
    pub range: [f64; 2],
    /// The lines.
    pub lines: Vec<Line>,
    /// A value that the reader compares with, and its label.
    pub mark: Option<(f64, String)>,
}

const WIDTH: u32 = 900;
const HEIGHT: u32 = 250;
const TOP: u32 = 50;
const LEGEND: i32 = 690;
/// The axis' length in pixels.
const AXIS: usize = LEGEND as usize - 30 - 70;
/// How near a point the pointer shows its value, in pixels, and of how many points of a line.
const REACH: i32 = 5;
const TOLD: usize = 300;

/// The horizontal axis, and how points stand on it.
pub(crate) struct Across<'a> {
    /// What it is.
    pub(crate) title: &'a str,
    /// The places with a tick, ascending, and their texts; without any, ticks are at round numbers.
    pub(crate) ticks: &'a [(f64, String)],
    /// Whether there is something between two ticks, so that lines join the points.
    pub(crate) joined: bool,
    /// Whether each point is marked.
    pub(crate) dots: bool,
    /// How lines are distinguished.
    pub(crate) styles: Styles,
}

/// How lines are distinguished by two things: one by the colour, the other by dashes and marks.
#[derive(Debug, Default)]
pub(crate) struct Styles {
    /// By the line's text: number of its colour and of its dashes. Lines that are not here have a colour each.
    pub(crate) of: Vec<(String, usize, usize)>,
    /// What the colours stand for.
    pub(crate) colors: Vec<String>,
    /// What the dashes stand for.
    pub(crate) dashes: Vec<String>,
    /// What stands at the head of each panel.
    pub(crate) heads: Vec<String>,
}

/// The number of kinds of dashes, and of marks, that a reader can distinguish.
pub(crate) const DASHES: usize = 4;
/// Pixels of a dash, and of the gap behind it; the first kind has none.
const GAPS: [(i32, i32); DASHES] = [(0, 0), (9, 5), (4, 4), (2, 7)];
/// The length of a line in the legend that shows dashes.
const WIDE: i32 = 26;

/// The confidence interval of a point.
pub(crate) struct Whisker {
    /// The panel's number.
    pub(crate) panel: usize,
    /// The line's text.
    pub(crate) label: String,
    /// Where the point stands.
    pub(crate) x: f64,
    /// The interval.
    pub(crate) ends: [f64; 2],
}

type Chart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Panels below each other as SVG text; `x` is the title of the horizontal axis, `dots` marks each point.
pub fn lines(title: &str, x: &str, panels: &[Panel], dots: bool) -> Result<String, PlotError> {
    draw(title, &Across { title: x, ticks: &[], joined: true, dots, styles: Styles::default() }, panels, &[])
}

/// As [`lines`], over an axis of one's own and with confidence intervals.
pub(crate) fn draw(
    title: &str,
    across: &Across<'_>,
    panels: &[Panel],
    whiskers: &[Whisker],
) -> Result<String, PlotError> {
    let labels = labels(panels);
    let [least, most] = range(across, panels);
    let height = TOP + HEIGHT * panels.len() as u32 + 20;
    let (mut svg, mut tooltips) = (String::new(), Tooltips::default());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw(&Text::new(title.to_owned(), (20, 18), letters(18, INK, HPos::Left, VPos::Top)))?;
        for (index, panel) in panels.iter().enumerate() {
            let top = TOP + HEIGHT * index as u32;
            let area = root.clone().shrink((10, top), (LEGEND as u32 - 30, HEIGHT));
            let mut chart = ChartBuilder::on(&area)
                .set_label_area_size(LabelAreaPosition::Left, 70)
                .set_label_area_size(LabelAreaPosition::Bottom, 44)
                .margin_top(8)
                .build_cartesian_2d(least..most, panel.range[0]..panel.range[1])?;
            if let Some(head) = across.styles.heads.get(index) {
                let beside = letters(13, INK, HPos::Left, VPos::Top);
                root.draw(&Text::new(shorten(head, AXIS / 7), (86, top as i32 - 6), beside))?;
            }
            let title = if index + 1 == panels.len() { across.title } else { "" };
            axes(&mut chart, title, across.ticks.is_empty(), &panel.y)?;
            ticks(&root, &chart, across.ticks, panel.range)?;
            if let Some((value, label)) = &panel.mark {
                chart.draw_series(LineSeries::new([(least, *value), (most, *value)], GRID.stroke_width(2)))?;
                let beside = letters(12, RGBColor(120, 120, 120), HPos::Right, VPos::Bottom);
                chart.draw_series([Text::new(label.clone(), (most, *value), beside)])?;
            }
            for line in &panel.lines {
                let own = whiskers.iter().filter(|one| one.panel == index && one.label == line.label);
                let own: Vec<&Whisker> = own.collect();
                let style = across.styles.of(&labels, &line.label);
                points(&mut chart, across, line, style, (&own, panel.range[1]))?;
                add_tooltips(&mut tooltips, &chart, across, line, &own);
            }
        }
        legend(&root, across, &labels)?;
        root.present()?;
    }
    Ok(tooltips.over(&svg))
}

/// The least and the greatest place of the horizontal axis: beside names there is room for half a step.
fn range(across: &Across<'_>, panels: &[Panel]) -> [f64; 2] {
    let places = panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points).map(|point| point.0);
    let places: Vec<f64> = places.chain(across.ticks.iter().map(|(at, _)| *at)).filter(|x| x.is_finite()).collect();
    let least = places.iter().copied().fold(f64::INFINITY, f64::min);
    let most = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match (least < most, across.joined) {
        (true, true) => [least, most],
        (false, true) => [0.0, 1.0],
        (_, false) => [0.5, across.ticks.len().max(1) as f64 + 0.5],
    }
}

fn axes(chart: &mut Chart<'_, '_>, title: &str, round_numbers: bool, y: &str) -> Result<(), PlotError> {
    let font = |size: i32| letters(size, INK, HPos::Left, VPos::Top);
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT).bold_line_style(GRID).axis_style(RGBColor(150, 150, 150));
    mesh.label_style(font(13)).axis_desc_style(font(13)).y_desc(y).x_desc(title);
    if !round_numbers {
        mesh.disable_x_mesh().x_labels(0);
    }
    Ok(mesh.draw()?)
}

/// The ticks with texts of their own; a text that is longer than its share of the axis is cut.
fn ticks(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    chart: &Chart<'_, '_>,
    ticks: &[(f64, String)],
    [low, _]: [f64; 2],
) -> Result<(), PlotError> {
    const LETTER: usize = 7;
    let room = AXIS / ticks.len().max(1) / LETTER;
    for (at, text) in ticks {
        let (x, y) = chart.backend_coord(&(*at, low));
        root.draw(&PathElement::new([(x, y), (x, y + 4)], RGBColor(150, 150, 150)))?;
        let below = letters(13, INK, HPos::Center, VPos::Top);
        root.draw(&Text::new(shorten(text, room.max(2)), (x, y + 7), below))?;
    }
    Ok(())
}

/// What colours stand for, and below that what dashes do.
fn legend(root: &DrawingArea<SVGBackend<'_>, Shift>, across: &Across<'_>, labels: &[&str]) -> Result<(), PlotError> {
    let Styles { colors, dashes, .. } = &across.styles;
    let texts: Vec<&str> =
        if colors.is_empty() { labels.to_vec() } else { colors.iter().map(String::as_str).collect() };
    let text = |y: i32, text: &str| -> Result<(), PlotError> {
        let beside = letters(14, INK, HPos::Left, VPos::Center);
        Ok(root.draw(&Text::new(text.to_owned(), (LEGEND + 30, y), beside))?)
    };
    let mut y = TOP as i32 + 20;
    for (index, label) in texts.into_iter().enumerate() {
        let color = PALETTE[index % PALETTE.len()];
        root.draw(&PathElement::new([(LEGEND, y), (LEGEND + 22, y)], color.stroke_width(3)))?;
        text(y, label)?;
        y += 24;
    }
    y += 12;
    for (index, label) in dashes.iter().enumerate() {
        let (size, gap) = GAPS[index % DASHES];
        let step = if gap > 0 { size + gap } else { WIDE };
        for from in (0..if across.joined { WIDE } else { 0 }).step_by(step as usize) {
            let to = (from + if gap > 0 { size } else { WIDE }).min(WIDE);
            root.draw(&PathElement::new([(LEGEND - 2 + from, y), (LEGEND - 2 + to, y)], INK.stroke_width(2)))?;
        }
        let (filled, square) = shape(index);
        let style = if filled { INK.filled() } else { INK.stroke_width(2) };
        let middle = LEGEND + 11;
        if square {
            root.draw(&Rectangle::new([(middle - 3, y - 3), (middle + 3, y + 3)], style))?;
        } else {
            root.draw(&Circle::new((middle, y), 3, style))?;
        }
        text(y, label)?;
        y += 24;
    }
    Ok(())
}

/// The mark of a kind of dashes: whether it is filled, and whether it is a square.
fn shape(dash: usize) -> (bool, bool) {
    (dash.is_multiple_of(2), dash % DASHES >= 2)
}

impl Styles {
    /// The colour of a line, and the number of its dashes.
    fn of(&self, labels: &[&str], label: &str) -> (RGBColor, usize) {
        match self.of.iter().find(|(text, ..)| text == label) {
            Some((_, color, dash)) => (PALETTE[color % PALETTE.len()], dash % DASHES),
            None => (color(labels, label), 0),
        }
    }
}

fn finite(line: &Line) -> impl Iterator<Item = (f64, f64)> {
    line.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
}

fn points(
    chart: &mut Chart<'_, '_>,
    across: &Across<'_>,
    line: &Line,
    (color, dash): (RGBColor, usize),
    (whiskers, top): (&[&Whisker], f64),
) -> Result<(), PlotError> {
    match GAPS[dash % DASHES] {
        _ if !across.joined => {}
        (0, _) => drop(chart.draw_series(LineSeries::new(finite(line), color.stroke_width(2)))?),
        (size, gap) => {
            let points: Vec<(f64, f64)> = finite(line).collect();
            chart.draw_series(DashedLineSeries::new(points, size, gap, color.stroke_width(2)))?;
        }
    }
    for Whisker { x, ends: [low, high], .. } in whiskers {
        chart.draw_series([PathElement::new([(*x, low.min(top)), (*x, high.min(top))], color.stroke_width(1))])?;
    }
    if across.dots {
        let (filled, square) = shape(dash);
        let style = if filled { color.filled() } else { color.stroke_width(2) };
        for at in finite(line) {
            if square {
                let corners = [(-3, -3), (3, 3)];
                chart.draw_series([EmptyElement::at(at) + Rectangle::new(corners, style)])?;
            } else {
                chart.draw_series([Circle::new(at, 3, style)])?;
            }
        }
    }
    Ok(())
}

/// What each point shows where the pointer rests: where it stands, its value, and the interval of that.
fn add_tooltips(
    tooltips: &mut Tooltips,
    chart: &Chart<'_, '_>,
    across: &Across<'_>,
    line: &Line,
    whiskers: &[&Whisker],
) {
    for (x, y) in finite(line).take(TOLD) {
        let (left, top) = chart.backend_coord(&(x, y));
        // Points of one tick stand beside each other.
        let tick = across.ticks.iter().min_by(|one, other| (one.0 - x).abs().total_cmp(&(other.0 - x).abs()));
        let place = tick.map_or_else(|| x.to_string(), |(_, text)| text.clone());
        let mut says = format!("{}\n{place}: {}", line.label, short(y));
        if let Some(Whisker { ends: [low, high], .. }) = whiskers.iter().find(|one| one.x == x) {
            says += &format!("\n95 %: {} to {}", short(*low), short(*high));
        }
        tooltips.add([left - REACH, top - REACH].map(f64::from), [f64::from(2 * REACH); 2], &says);
    }
}

/// A value with four digits that count.
pub fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let digits = 3 - (value.abs().max(1e-9).log10().floor() as i32).min(3);
    format!("{value:.*}", digits.unsigned_abs() as usize)
}

/// The texts of all lines, each once.
fn labels(panels: &[Panel]) -> Vec<&str> {
    let mut labels: Vec<&str> = Vec::new();
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        if !labels.contains(&line.label.as_str()) {
            labels.push(&line.label);
        }
    }
    labels
}

fn color(labels: &[&str], label: &str) -> RGBColor {
    let index = labels.iter().position(|other| *other == label).unwrap_or(0);
    PALETTE[index % PALETTE.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_is_in_the_legend_once_and_what_is_not_finite_is_left_out() {
        let line = |label: &str, points: &[(f64, f64)]| Line { label: label.into(), points: points.to_vec() };
        let panel = |lines| Panel { y: "y".into(), range: [0.0, 2.0], lines, mark: Some((1.0, "m&".into())) };
        let both = vec![line("<a>", &[(1.0, 1.0), (2.0, f64::NAN), (3.0, 2.0)]), line("b", &[])];
        let svg = lines("t", "x", &[panel(both.clone()), panel(both)], true).unwrap();
        assert_eq!(svg.matches(">\n&lt;a&gt;").count(), 1);
        assert_eq!(svg.matches("<circle").count(), 4);
        let told: Vec<&str> = svg.split("<title>").skip(1).filter_map(|rest| rest.split("</title>").next()).collect();
        assert_eq!(told, ["&lt;a&gt;\n1: 1.000", "&lt;a&gt;\n3: 2.000"].repeat(2));
        assert_eq!([0.0, 0.012346, 12.3456, 123456.7].map(short), ["0", "0.01235", "12.35", "123457"]);
        assert!(svg.contains("m&amp;") && !svg.contains("NaN"));
        assert!(lines("t", "x", &[], false).unwrap().contains("<svg"));
    }

    #[test]
    fn names_on_the_axis_have_a_tick_each_and_no_line_between_their_points() {
        let points = vec![(1.0, 100.0), (2.0, 150.0)];
        let lines = vec![Line { label: "a".into(), points }];
        let panel = Panel { y: "y".into(), range: [0.0, 200.0], lines, mark: None };
        let names = [(1.0, "Abilene".to_owned()), (2.0, "Geant2012".to_owned())];
        let whiskers = [Whisker { panel: 0, label: "a".into(), x: 2.0, ends: [125.0, 175.0] }];
        let picture = |joined| {
            let across = Across { title: "topology", ticks: &names, joined, dots: true, styles: Styles::default() };
            draw("t", &across, std::slice::from_ref(&panel), &whiskers).unwrap()
        };
        let svg = picture(false);
        for name in ["Abilene", "Geant2012", "topology"] {
            assert_eq!(svg.matches(&format!(">\n{name}\n<")).count(), 1, "{name}: {svg}");
        }
        assert!(!svg.contains(">\n1.1\n<") && !svg.contains(">\n1.0\n<"), "{svg}");
        // Of the line's colour: two points, an interval, and the line in the legend.
        let drawn = |svg: &str| svg.matches("#0072B2").count();
        assert_eq!((svg.matches("<circle").count(), drawn(&picture(true)) - drawn(&svg)), (2, 1));
        assert!(svg.contains("a\nGeant2012: 150.0\n95 %: 125.0 to 175.0</title>"), "{svg}");
        assert!(svg.contains("a\nAbilene: 100.0</title>"), "{svg}");
    }
}
