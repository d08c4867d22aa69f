//! The goodput of each system over time, the band of its seeds, and what the network can carry.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};

use super::{
    AXIS_TITLE, Canvas, FRAME, GAP, GOODPUT_HEIGHT, LEFT, Label, PlotError, RIGHT, TOP, WARMUP, color, line_names,
};
use crate::{
    RunResult, Scene, Trace,
    palette::{INK, PALETTE, QUIET, letters},
    summary::{exact, mean_goodput, megabits},
};

/// A ceiling that is above the data by more than this factor is written, and not drawn: it would press the curves to the ground.
const NEAR: f64 = 1.8;

/// The vertical axis, which the data make.
#[derive(Debug, PartialEq)]
pub(super) struct Axis {
    /// Where it ends, in Mbit/s.
    pub(super) top: f64,
    /// Whether all of the ceiling is on it.
    pub(super) has_ceiling: bool,
}

impl Axis {
    /// The axis of these curves under a ceiling that has these steps.
    pub(super) fn of(traces: &[Trace], ceiling: &[(f64, f64)]) -> Axis {
        let bands = traces.iter().filter_map(|trace| trace.band.as_ref()).flat_map(|band| &band.high);
        let highest = traces.iter().flat_map(|trace| &trace.goodput).chain(bands).copied().fold(0.0, f64::max);
        let most = ceiling.iter().map(|(_, mbps)| *mbps).fold(0.0, f64::max);
        let has_ceiling = most > 0.0 && (most <= highest * NEAR || highest <= 0.0);
        let top = if has_ceiling { highest.max(most) } else { highest };
        Axis { top: if top > 0.0 { top * 1.08 } else { 1.0 }, has_ceiling }
    }
}

impl Canvas<'_> {
    pub(super) fn goodput(&self, run: &RunResult, traces: &[Trace], scene: &Scene) -> Result<(), PlotError> {
        let alone = run.ceiling_mbps.map(|mbps| (0.0, mbps));
        let ceiling: Vec<(f64, f64)> =
            if scene.ceiling.is_empty() { alone.into_iter().collect() } else { scene.ceiling.clone() };
        let axis = Axis::of(traces, &ceiling);
        let highest = axis.top;
        let area = self.root.clone().shrink((AXIS_TITLE, TOP), (RIGHT - AXIS_TITLE, GOODPUT_HEIGHT));
        let mut chart = ChartBuilder::on(&area)
            .set_label_area_size(LabelAreaPosition::Left, LEFT - AXIS_TITLE)
            .build_cartesian_2d(0.0..self.end.max(f64::MIN_POSITIVE), 0.0..highest)?;
        let warmup = traces.iter().map(|trace| trace.window.warmup.as_secs_f64()).fold(0.0, f64::max).min(self.end);
        if warmup > 0.0 {
            chart.draw_series([Rectangle::new([(0.0, 0.0), (warmup, highest)], WARMUP.filled())])?;
            self.text("warm-up", (LEFT + 6, TOP + 10), 14, QUIET, HPos::Left, false)?;
        }
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FRAME.mix(0.6))
            .axis_style(FRAME)
            .y_labels(6)
            .y_label_formatter(&|mbps| ((mbps * 1e6).round() / 1e6).to_string())
            .label_style(letters(16, INK, HPos::Left, VPos::Top))
            .axis_desc_style(letters(16, INK, HPos::Left, VPos::Top))
            .y_desc("goodput (Mbit/s)")
            .draw()?;
        let mut labels = Vec::new();
        if let Some(mean) = run.ceiling_mbps.filter(|_| !ceiling.is_empty()) {
            let ends = ceiling.iter().skip(1).map(|(at, _)| *at).chain([self.end]);
            let shown = ceiling.iter().zip(ends).filter(|((at, _), _)| *at <= self.end && axis.has_ceiling);
            let line: Vec<(f64, f64)> =
                shown.flat_map(|((at, mbps), end)| [(*at, *mbps), (end.min(self.end), *mbps)]).collect();
            chart.draw_series(DashedLineSeries::new(line, 7, 5, INK.stroke_width(1)))?;
            let text = format!("ceiling {}", exact(mean));
            let (at, text) = if axis.has_ceiling { (mean, text) } else { (highest, format!("↑ {text}")) };
            labels.push(Label::new(&chart, (self.end, at), text, INK));
        }
        for (number, trace) in traces.iter().enumerate().rev() {
            let Some(band) = &trace.band else { continue };
            let step = trace.duration() / trace.goodput.len().max(1) as f64;
            let at = |bin: usize| (bin as f64 + 0.5) * step;
            let upper = band.high.iter().enumerate().map(|(bin, mbps)| (at(bin), *mbps));
            let lower = band.low.iter().enumerate().rev().map(|(bin, mbps)| (at(bin), *mbps));
            let outline: Vec<(f64, f64)> = upper.chain(lower).collect();
            chart.draw_series([Polygon::new(outline, color(number).mix(0.18).filled())])?;
        }
        // The first system is what others are compared with. It is drawn last, so that it stays visible.
        for (number, (trace, name)) in traces.iter().zip(line_names(traces)).enumerate().rev() {
            let step = trace.duration() / trace.goodput.len().max(1) as f64;
            let points = trace.goodput.iter().enumerate().map(|(bin, mbps)| ((bin as f64 + 0.5) * step, *mbps));
            if number < PALETTE.len() {
                chart.draw_series(LineSeries::new(points, color(number).stroke_width(2)))?;
            } else {
                chart.draw_series(DashedLineSeries::new(points, 4, 3, color(number).stroke_width(2)))?;
            }
            let mean = run.systems.get(&trace.system).map_or(0.0, mean_goodput);
            let text = if mean.is_finite() { format!("{name} {}", megabits(mean)) } else { name };
            labels.push(Label::new(&chart, (self.end, if mean.is_finite() { mean } else { 0.0 }), text, color(number)));
        }
        self.labels(labels)
    }

    /// Writes labels beside the ends of their lines, pushed apart where they would overlap.
    fn labels(&self, mut labels: Vec<Label>) -> Result<(), PlotError> {
        const LINE: i32 = 18;
        labels.sort_by_key(|label| label.y);
        // Upwards from the panel's foot, so that none falls below it; then downwards, so that none rises above it.
        let mut limit = TOP + GOODPUT_HEIGHT - 6;
        for label in labels.iter_mut().rev() {
            label.y = label.y.min(limit);
            limit = label.y - LINE;
        }
        let mut limit = TOP;
        for label in &mut labels {
            label.y = label.y.max(limit);
            limit = label.y + LINE;
        }
        for label in labels {
            let mark =
                Rectangle::new([(RIGHT + GAP, label.y - 5), (RIGHT + GAP + 10, label.y + 5)], label.color.filled());
            self.root.draw(&mark)?;
            self.text(&label.text, (RIGHT + GAP + 16, label.y), 16, INK, HPos::Left, false)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plot::plot, testing};

    #[test]
    fn the_axis_follows_the_curves_and_a_ceiling_far_above_is_written_at_its_end() {
        let (mut run, traces) = testing::traced_run(&["tcp"], 1);
        let highest = traces[0].goodput.iter().copied().fold(0.0, f64::max);
        let near = Axis::of(&traces, &[(0.0, highest * 1.5)]);
        assert!(near.has_ceiling && (near.top / highest - 1.5 * 1.08).abs() < 1e-9, "{near:?}");
        let far = Axis::of(&traces, &[(0.0, highest * 20.0)]);
        assert_eq!(far, Axis { top: highest * 1.08, has_ceiling: false });
        assert_eq!(Axis::of(&traces, &[]).top, highest * 1.08);
        run.ceiling_mbps = Some(2030.0);
        let svg = plot(&run, &traces, &Scene { ceiling: vec![(0.0, 2030.0)], ..Scene::default() }).unwrap();
        assert!(svg.contains("↑ ceiling 2030") && !svg.contains(">\n2000\n<"), "{svg}");
    }

    #[test]
    fn seeds_have_a_band_that_the_axis_has_room_for() {
        let (run, mut traces) = testing::traced_run(&["tcp", "pathchanger"], 2);
        let without = plot(&run, &traces, &Scene::default()).unwrap();
        let others = [traces[1].of_seed(), traces[0].of_seed()];
        let last = traces.remove(1).with_seeds(&others);
        traces.push(last);
        let svg = plot(&run, &traces, &Scene::default()).unwrap();
        assert_eq!(svg.matches("<polygon").count() - without.matches("<polygon").count(), 1, "{svg}");
        assert!(svg.contains("band: 5 % to 95 % of 3 seeds"), "{svg}");
    }
}
