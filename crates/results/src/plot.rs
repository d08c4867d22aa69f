//! `plot.svg`: goodput over time, and below it each system's use of the paths.

mod events;
mod goodput;

use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::{HPos, VPos},
};
use thiserror::Error;

use crate::{
    RunResult, Scene, SystemResult, Trace, measures,
    palette::{INK, PALETTE, QUIET, letters},
    summary::{percent, printable},
    tooltip::{Columns, Tooltips},
};

/// The plot could not be drawn.
#[derive(Debug, Error)]
#[error("cannot draw the plot: {0}")]
pub struct PlotError(#[from] DrawingAreaErrorKind<std::io::Error>);

/// Utilisation from 0 to 1: ColorBrewer's YlGnBu, whose lightness falls all the way.
const HEAT: [RGBColor; 6] = [
    RGBColor(255, 255, 217),
    RGBColor(199, 233, 180),
    RGBColor(127, 205, 187),
    RGBColor(65, 182, 196),
    RGBColor(34, 94, 168),
    RGBColor(8, 29, 88),
];
/// Number of shades for utilisation. Neighbours in time that have one shade are drawn as one rectangle.
const SHADES: f64 = 40.0;
const FRAME: RGBColor = RGBColor(190, 190, 190);
const WARMUP: RGBColor = RGBColor(240, 240, 240);

// Geometry in pixels. All panels share the columns LEFT..RIGHT, so that one time axis serves them all.
const WIDTH: i32 = 1000;
const LEFT: i32 = 104;
const AXIS_TITLE: i32 = 30;
const RIGHT: i32 = 800;
const GAP: i32 = 10;
const TOP: i32 = 76;
const GOODPUT_HEIGHT: i32 = 280;
const HEADING: i32 = 40;
const RUG: i32 = 18;
const FOOT: i32 = 92;

/// The name of the strip that shows the fullest cache; no path has it.
const FULLEST: &str = "cache (max)";

/// The picture of a run as SVG text; `traces` are the systems' in the order of the run, `scene` is what happens in it.
pub fn plot(run: &RunResult, traces: &[Trace], scene: &Scene) -> Result<String, PlotError> {
    let panels: Vec<Panel> = layout(run, traces);
    let bottom = panels.last().map_or(TOP + GOODPUT_HEIGHT, Panel::bottom);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH as u32, (bottom + FOOT) as u32)).into_drawing_area();
        let canvas = Canvas { root, end: traces.iter().map(Trace::duration).fold(0.0, f64::max) };
        canvas.root.fill(&WHITE)?;
        canvas.title(run, traces)?;
        canvas.goodput(run, traces, scene)?;
        for panel in &panels {
            canvas.panel(panel)?;
        }
        canvas.events(scene, bottom)?;
        canvas.time_axis(bottom)?;
        if !panels.is_empty() {
            canvas.key(bottom + FOOT - 24)?;
        }
        canvas.root.present()?;
    }
    let mut tooltips = tooltips(traces, &panels);
    let end = traces.iter().map(Trace::duration).fold(0.0, f64::max);
    events::add_tooltips(&mut tooltips, &events::marks(scene, end, |seconds| column(seconds, end)), bottom);
    Ok(tooltips.over(&svg))
}

/// What the picture shows where the pointer rests.
fn tooltips(traces: &[Trace], panels: &[Panel]) -> Tooltips {
    let end = traces.iter().map(Trace::duration).fold(0.0, f64::max);
    let columns = Columns { left: f64::from(LEFT), right: f64::from(RIGHT), end };
    let mut tooltips = Tooltips::default();
    columns.goodput(&mut tooltips, traces, [TOP, GOODPUT_HEIGHT].map(f64::from));
    for panel in panels {
        let (top, bottom) = (panel.strips_top(), panel.strips_bottom());
        columns.paths(&mut tooltips, panel.trace, [top, bottom - top].map(f64::from));
    }
    tooltips
}

/// Where one system's use of the paths is drawn.
struct Panel<'a> {
    trace: &'a Trace,
    result: Option<&'a SystemResult>,
    color: RGBColor,
    /// The system, with the number that it has beside its line if only that distinguishes it.
    heading: String,
    top: i32,
    strip: i32,
}

struct Canvas<'a> {
    root: DrawingArea<SVGBackend<'a>, Shift>,
    /// Length of the longest run in seconds.
    end: f64,
}

type Chart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn layout<'a>(run: &'a RunResult, traces: &'a [Trace]) -> Vec<Panel<'a>> {
    let mut top = TOP + GOODPUT_HEIGHT + 34;
    let mut panels = Vec::new();
    for (number, (trace, label)) in traces.iter().zip(line_names(traces)).enumerate() {
        let strip = (150 / strips(trace).count().max(1) as i32).clamp(13, 26);
        let mark = format!("#{}", number + 1);
        let heading = shorten(&trace.system, 60);
        let heading = if label.ends_with(&format!(" {mark}")) { format!("{mark} {heading}") } else { heading };
        let panel = Panel { trace, result: run.systems.get(&trace.system), color: color(number), heading, top, strip };
        top = panel.bottom();
        panels.push(panel);
    }
    panels
}

/// What one system's panel has a strip of: its paths, and the fullest of its routers' caches.
pub(crate) fn strips(trace: &Trace) -> impl Iterator<Item = (&str, &[Option<f64>])> {
    let caches = trace.caches.iter().any(Option::is_some).then_some((FULLEST, &trace.caches[..]));
    trace.paths.iter().map(|(name, shares)| (name, &shares[..])).chain(caches)
}

impl Panel<'_> {
    fn strips_top(&self) -> i32 {
        self.top + HEADING
    }

    fn strips_bottom(&self) -> i32 {
        self.strips_top() + self.strip * strips(self.trace).count() as i32
    }

    fn bottom(&self) -> i32 {
        self.strips_bottom() + 3 + RUG
    }
}

impl<'a> Canvas<'a> {
    fn title(&self, run: &RunResult, traces: &[Trace]) -> Result<(), PlotError> {
        self.text(&shorten(&run.scenario, 70), (LEFT, 26), 25, INK, HPos::Left, true)?;
        let cut = if run.is_cut() { " · interrupted" } else { "" };
        let (world, seed) = (run.world.as_str(), run.seed);
        let bands = traces.iter().filter_map(|trace| trace.band.as_ref()).map(|band| band.seeds).max();
        let under = match bands {
            None => format!("goodput of each system, and how it used the paths · {world} · seed {seed}{cut}"),
            Some(seeds) => format!(
                "goodput: median, band: 5 % to 95 % of {seeds} seeds · paths and moves: seed {seed} · {world}{cut}"
            ),
        };
        self.text(&under, (LEFT, 50), 16, QUIET, HPos::Left, false)
    }

    fn panel(&self, panel: &Panel) -> Result<(), PlotError> {
        let heading = panel.top + HEADING - 12;
        self.root.draw(&Rectangle::new([(LEFT, heading - 5), (LEFT + 10, heading + 5)], panel.color.filled()))?;
        self.text(&panel.heading, (LEFT + 16, heading), 17, INK, HPos::Left, true)?;
        self.text("mean, 2nd half", (RIGHT + GAP, heading), 14, QUIET, HPos::Left, false)?;
        let mut top = panel.strips_top();
        for (name, shares) in strips(panel.trace) {
            let bottom = top + panel.strip;
            let middle = (top + bottom) / 2;
            self.text(&shorten(name, 12), (LEFT - 8, middle), 15, INK, HPos::Right, false)?;
            self.strip(panel.trace, shares, top, bottom)?;
            let settled = match name {
                FULLEST => measures::mean(&shares[shares.len() / 2..].iter().flatten().copied().collect::<Vec<_>>()),
                path => panel.result.and_then(|result| result.paths.get(path)?.utilisation_second_half),
            };
            if let Some(share) = settled {
                self.text(&percent(share), (RIGHT + GAP, middle), 15, INK, HPos::Left, false)?;
            }
            top = bottom;
        }
        self.rug(panel)
    }

    /// One path's utilisation over time as a strip of shades.
    fn strip(&self, trace: &Trace, shares: &[Option<f64>], top: i32, bottom: i32) -> Result<(), PlotError> {
        let step = trace.duration() / shares.len().max(1) as f64;
        let mut from = 0;
        let shade = |share: &Option<f64>| share.map(|share| (share.clamp(0.0, 1.0) * SHADES).round());
        for run in shares.chunk_by(|one, next| shade(one) == shade(next)) {
            let to = from + run.len();
            if let Some(shade) = run.first().and_then(shade) {
                let ends = [(self.x(from as f64 * step), top), (self.x(to as f64 * step), bottom)];
                self.root.draw(&Rectangle::new(ends, heat(shade / SHADES).filled()))?;
            }
            from = to;
        }
        self.root.draw(&Rectangle::new([(LEFT, top), (RIGHT, bottom)], FRAME.stroke_width(1)))?;
        Ok(())
    }

    /// The moves as ticks on the panel's lower edge; a tick is the longer, the more moves it stands for.
    fn rug(&self, panel: &Panel) -> Result<(), PlotError> {
        let moves = &panel.trace.moves;
        let (top, bottom) = (panel.strips_bottom() + 3, panel.bottom());
        let step = panel.trace.duration() / moves.len().max(1) as f64;
        let most = moves.iter().copied().max().unwrap_or(0).max(1);
        for (bin, count) in moves.iter().enumerate().filter(|(_, count)| **count > 0) {
            let share = 0.35 + 0.65 * f64::from(*count) / f64::from(most);
            let x = self.x((bin as f64 + 0.5) * step);
            let height = (f64::from(RUG) * share).round() as i32;
            self.root.draw(&Rectangle::new([(x - 1, top), (x + 1, top + height)], INK.filled()))?;
        }
        let middle = (top + bottom) / 2;
        self.text("moves", (LEFT - 8, middle), 15, QUIET, HPos::Right, false)?;
        let total = panel.result.map_or(0, SystemResult::total_moves);
        self.text(&total.to_string(), (RIGHT + GAP, middle), 15, INK, HPos::Left, false)
    }

    /// The scenario's events as lines through all panels, with what they do where there is room.
    fn events(&self, scene: &Scene, bottom: i32) -> Result<(), PlotError> {
        for mark in events::marks(scene, self.end, |seconds| self.x(seconds)) {
            self.root.draw(&PathElement::new([(mark.x, TOP - 4), (mark.x, bottom)], QUIET.mix(0.7)))?;
            if let Some((left, text)) = &mark.label {
                self.text(text, (*left, TOP - 11), 13, QUIET, HPos::Left, false)?;
            }
        }
        Ok(())
    }

    fn time_axis(&self, top: i32) -> Result<(), PlotError> {
        let y = top + 6;
        self.root.draw(&PathElement::new([(LEFT, y), (RIGHT, y)], FRAME))?;
        for seconds in ticks(self.end) {
            let x = self.x(seconds);
            self.root.draw(&PathElement::new([(x, y), (x, y + 5)], FRAME))?;
            self.text(&seconds.to_string(), (x, y + 15), 16, INK, HPos::Center, false)?;
        }
        self.text("time (s)", ((LEFT + RIGHT) / 2, y + 35), 16, INK, HPos::Center, false)
    }

    /// The key to the shades.
    fn key(&self, y: i32) -> Result<(), PlotError> {
        const CELL: i32 = 8;
        self.text("utilisation", (LEFT - 8 + 112, y), 15, QUIET, HPos::Right, false)?;
        self.text("0 %", (LEFT + 140, y), 15, INK, HPos::Right, false)?;
        let left = LEFT + 148;
        for cell in 0..20 {
            let ends = [(left + cell * CELL, y - 6), (left + (cell + 1) * CELL, y + 6)];
            self.root.draw(&Rectangle::new(ends, heat(f64::from(cell) / 19.0).filled()))?;
        }
        let right = left + 20 * CELL;
        self.root.draw(&Rectangle::new([(left, y - 6), (right, y + 6)], FRAME.stroke_width(1)))?;
        self.text("100 %", (right + 8, y), 15, INK, HPos::Left, false)?;
        self.root.draw(&Rectangle::new([(right + 88, y - 6), (right + 90, y + 6)], INK.filled()))?;
        self.text("moves to another path", (right + 98, y), 15, QUIET, HPos::Left, false)
    }

    /// The column of an instant in seconds.
    fn x(&self, seconds: f64) -> i32 {
        column(seconds, self.end)
    }

    fn text(
        &self,
        text: &str,
        at: (i32, i32),
        size: i32,
        color: RGBColor,
        side: HPos,
        bold: bool,
    ) -> Result<(), PlotError> {
        let weight = if bold { FontStyle::Bold } else { FontStyle::Normal };
        let mut style = letters(size, color, side, VPos::Center);
        style.font = style.font.style(weight);
        Ok(self.root.draw_text(&printable(text.to_owned()), &style, at)?)
    }
}

struct Label {
    y: i32,
    text: String,
    color: RGBColor,
}

impl Label {
    fn new(chart: &Chart, point: (f64, f64), text: String, color: RGBColor) -> Self {
        Label { y: chart.backend_coord(&point).1, text, color }
    }
}

/// The column of an instant of a run of `end` seconds.
fn column(seconds: f64, end: f64) -> i32 {
    let share = if end > 0.0 { seconds / end } else { 0.0 };
    LEFT + (share.clamp(0.0, 1.0) * f64::from(RIGHT - LEFT)).round() as i32
}

fn color(number: usize) -> RGBColor {
    PALETTE[number % PALETTE.len()]
}

/// The shade of a utilisation, between the two nearest of [`HEAT`].
fn heat(share: f64) -> RGBColor {
    let at = share.clamp(0.0, 1.0) * (HEAT.len() - 1) as f64;
    let low = (at as usize).min(HEAT.len() - 2);
    let between = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * (at - low as f64)).round() as u8;
    let (RGBColor(r, g, b), RGBColor(r2, g2, b2)) = (HEAT[low], HEAT[low + 1]);
    RGBColor(between(r, r2), between(g, g2), between(b, b2))
}

/// Round instants from 0 to `end`, at most twelve.
fn ticks(end: f64) -> Vec<f64> {
    let decade = 10f64.powf((end / 10.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade).into_iter().find(|step| end / step <= 11.0);
    let Some(step) = step.filter(|step| step.is_finite() && *step > 0.0) else { return vec![0.0] };
    // Rounded, because 3 × 0.1 is not 0.3.
    (0..=(end / step + 1e-9) as u32).map(|n| (f64::from(n) * step * 1e9).round() / 1e9).collect()
}

/// What stands beside each system's line.
fn line_names(traces: &[Trace]) -> Vec<String> {
    distinct(traces.iter().map(|trace| trace.system.as_str()), 18)
}

/// The names, none longer than `most` characters, and still different from each other: of those that begin alike the end
/// is kept, and where that does not distinguish them their number.
fn distinct<'a>(names: impl Iterator<Item = &'a str> + Clone, most: usize) -> Vec<String> {
    let heads: Vec<String> = names.clone().map(|name| shorten(name, most)).collect();
    let tails: Vec<String> = names
        .map(|name| {
            let beyond = name.chars().count().saturating_sub(most - 1);
            ['…'].into_iter().chain(name.chars().skip(beyond)).collect()
        })
        .collect();
    let is_alone = |all: &[String], text: &String| all.iter().filter(|other| *other == text).count() == 1;
    let choose = |(number, (head, tail)): (usize, (&String, &String))| match () {
        () if is_alone(&heads, head) => head.clone(),
        () if is_alone(&tails, tail) => tail.clone(),
        () => format!("{} #{}", shorten(head, most - 4), number + 1),
    };
    heads.iter().zip(&tails).enumerate().map(choose).collect()
}

/// The text, with an ellipsis where it is longer than `most` characters.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Recorder, World, testing};

    fn texts(svg: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).unwrap();
        document
            .descendants()
            .filter_map(|node| Some(node.text()?.trim().to_owned()))
            .filter(|t| !t.is_empty())
            .collect()
    }

    #[test]
    fn the_plot_names_the_scenario_the_systems_the_paths_and_the_units() {
        let (run, traces) = testing::traced_run(&["tcp", "pathchanger"], 6);
        let texts = texts(&plot(&run, &traces, &Scene::default()).unwrap());
        for wanted in
            ["parallel-paths", "tcp", "pathchanger", "p1", "p6", "goodput (Mbit/s)", "time (s)", "ceiling 600"]
        {
            assert!(texts.iter().any(|text| text == wanted), "{wanted} is not among {texts:?}");
        }
    }

    #[test]
    fn caches_have_a_strip_below_the_paths_where_there_are_any() {
        let (run, mut traces) = testing::traced_run(&["inrpp"], 2);
        assert!(!texts(&plot(&run, &traces, &Scene::default()).unwrap()).contains(&FULLEST.to_owned()));
        traces[0].caches = vec![Some(0.37); 150];
        let texts = texts(&plot(&run, &traces, &Scene::default()).unwrap());
        assert!(texts.contains(&FULLEST.to_owned()) && texts.contains(&"37 %".to_owned()), "{texts:?}");
    }

    #[test]
    fn one_to_six_systems_and_one_to_sixteen_paths_stay_within_the_picture() {
        let names = ["tcp", "ecmp", "plb", "semper", "pathchanger", "inrpp"];
        for (systems, paths) in [(1, 1), (1, 16), (6, 1), (6, 16), (3, 6)] {
            let (run, traces) = testing::traced_run(&names[..systems], paths);
            let svg = plot(&run, &traces, &Scene::default()).unwrap();
            let document = roxmltree::Document::parse(&svg).unwrap();
            let number = |node: roxmltree::Node, name| node.attribute(name).and_then(|text| text.parse::<f64>().ok());
            let size =
                (number(document.root_element(), "width").unwrap(), number(document.root_element(), "height").unwrap());
            let mut placed = 0;
            for node in document.descendants() {
                let (Some(x), Some(y)) = (number(node, "x"), number(node, "y")) else { continue };
                placed += 1;
                assert!((0.0..=size.0).contains(&x) && (0.0..=size.1).contains(&y), "{node:?}");
                assert!(number(node, "width").is_none_or(|width| width >= 0.0 && x + width <= size.0), "{node:?}");
            }
            // A strip and a name for each path of each system, at least.
            assert!(placed > 2 * systems * paths, "{placed}");
        }
    }

    #[test]
    fn systems_with_long_names_stay_apart() {
        let names = ["pathchanger:policy=next,weights=prefix", "pathchanger:policy=next,weights=own", "tcp"];
        assert_eq!(distinct(names.into_iter(), 18), ["…xt,weights=prefix", "…=next,weights=own", "tcp"]);
        let same = ["pathchanger:policy=next,weights=own", "pathchanger:policy=best,weights=own"];
        assert_eq!(distinct(same.into_iter(), 12), ["pathcha… #1", "pathcha… #2"]);
        let (run, traces) = testing::traced_run(&names, 2);
        let texts = texts(&plot(&run, &traces, &Scene::default()).unwrap());
        assert!(texts.iter().any(|text| text.starts_with("…xt,weights=prefix ")), "{texts:?}");
        assert!(!texts.iter().any(|text| text.starts_with('#')), "{texts:?}");
    }

    #[test]
    fn panels_have_the_numbers_that_tell_lines_apart() {
        let [one, other] = ["next", "best"].map(|policy| format!("pathchanger:policy={policy},initial=available"));
        let names = [one.as_str(), "tcp", other.as_str()];
        let (run, traces) = testing::traced_run(&names, 2);
        let texts = texts(&plot(&run, &traces, &Scene::default()).unwrap());
        for (number, name) in [(1, names[0]), (3, names[2])] {
            assert!(texts.contains(&format!("#{number} {name}")), "{name}");
            assert!(texts.iter().any(|text| text.contains(&format!("… #{number} "))), "{name}");
        }
        assert!(texts.iter().any(|text| text == "tcp"));
    }

    #[test]
    fn events_are_marked_where_they_happen_and_the_ceiling_follows_them() {
        let (run, traces) = testing::traced_run(&["tcp"], 2);
        let events = [(4.0, "p1 down"), (4.1, "p1 up"), (12.0, "p2 20 Mbit/s"), (30.0, "after the end")];
        let events = events.map(|(at, text)| (at, text.to_owned())).into();
        let scene = Scene { events, ceiling: vec![(0.0, 200.0), (4.0, 100.0), (4.1, 200.0)], ..Scene::default() };
        let texts = texts(&plot(&run, &traces, &scene).unwrap());
        let marked = |text: &str| texts.iter().any(|one| one == text);
        assert!(marked("p1 down") && marked("p2 20 Mbit/s"), "{texts:?}");
        assert!(!marked("p1 up") && !marked("after the end"), "no room, or no such time: {texts:?}");
    }

    #[test]
    fn names_that_need_escaping_come_out_as_they_are() {
        let (mut run, traces) = testing::traced_run(&["<b>&\"'"], 1);
        run.scenario = "a < b & \u{1}c".into();
        let texts = texts(&plot(&run, &traces, &Scene::default()).unwrap());
        assert!(texts.iter().any(|text| text == "<b>&\"'"), "{texts:?}");
        assert!(texts.iter().any(|text| text == "a < b & \u{fffd}c"), "{texts:?}");
    }

    #[test]
    fn an_empty_run_and_a_run_without_time_can_be_drawn() {
        let run = RunResult::new("empty", World::Sim, 1);
        let svg = plot(&run, &[], &Scene::default()).unwrap();
        assert!(texts(&svg).iter().any(|text| text == "empty"), "{svg}");
        let window = crate::testing::window(0, 0);
        let (_, trace) = Recorder::new("tcp", window, []).finish();
        let svg = plot(&run, &[trace], &Scene::default()).unwrap();
        assert!(texts(&svg).iter().any(|text| text == "tcp") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn ticks_are_round_and_reach_the_end() {
        assert_eq!(ticks(20.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0]);
        assert_eq!(ticks(0.5).last(), Some(&0.5));
        assert_eq!(ticks(0.0), [0.0]);
        for end in [0.003, 1.0, 9.9, 37.0, 86_400.0] {
            assert!((5..=12).contains(&ticks(end).len()), "{end}: {:?}", ticks(end));
        }
    }

    #[test]
    fn shades_darken_with_utilisation() {
        let lightness = |share| {
            let RGBColor(r, g, b) = heat(share);
            0.2126 * f64::from(r) + 0.7152 * f64::from(g) + 0.0722 * f64::from(b)
        };
        assert!((1..=40).all(|n| lightness(f64::from(n) / 40.0) < lightness(f64::from(n - 1) / 40.0)));
        assert_eq!((heat(-1.0), heat(7.0)), (HEAT[0], HEAT[5]));
    }
}
