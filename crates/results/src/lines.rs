//! Lines over a common axis, in panels below each other.

use crate::{
    PlotError,
    hover::Hover,
    ink::{GRID, INK, PALETTE, letters},
};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
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
/// How near a point the pointer is told its value, in pixels, and of how many points of a line.
const REACH: i32 = 5;
const TOLD: usize = 300;

/// Panels below each other as SVG text; `x` says what the horizontal axis is, `dots` marks each point.
pub fn lines(title: &str, x: &str, panels: &[Panel], dots: bool) -> Result<String, PlotError> {
    let labels = labels(panels);
    let all = || panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let least = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let most = all().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
    let (least, most) = if least < most { (least, most) } else { (0.0, 1.0) };
    let height = TOP + HEIGHT * panels.len() as u32 + 20;
    let (mut svg, mut hover) = (String::new(), Hover::default());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let font = |size: i32| letters(size, INK, HPos::Left, VPos::Top);
        root.draw(&Text::new(title.to_owned(), (20, 18), font(18)))?;
        for (index, panel) in panels.iter().enumerate() {
            let top = TOP + HEIGHT * index as u32;
            let area = root.clone().shrink((10, top), (LEGEND as u32 - 30, HEIGHT));
            let mut chart = ChartBuilder::on(&area)
                .set_label_area_size(LabelAreaPosition::Left, 70)
                .set_label_area_size(LabelAreaPosition::Bottom, 44)
                .margin_top(8)
                .build_cartesian_2d(least..most, panel.range[0]..panel.range[1])?;
            let mut mesh = chart.configure_mesh();
            mesh.light_line_style(TRANSPARENT).bold_line_style(GRID).axis_style(RGBColor(150, 150, 150));
            mesh.label_style(font(13)).axis_desc_style(font(13)).y_desc(panel.y.as_str());
            mesh.x_desc(if index + 1 == panels.len() { x } else { "" }).draw()?;
            if let Some((value, label)) = &panel.mark {
                chart.draw_series(LineSeries::new([(least, *value), (most, *value)], GRID.stroke_width(2)))?;
                let beside = letters(12, RGBColor(120, 120, 120), HPos::Right, VPos::Bottom);
                chart.draw_series([Text::new(label.clone(), (most, *value), beside)])?;
            }
            for line in &panel.lines {
                let color = color(&labels, &line.label);
                let finite = || line.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite());
                chart.draw_series(LineSeries::new(finite(), color.stroke_width(2)))?;
                for (x, y) in finite().take(TOLD) {
                    let (left, top) = chart.backend_coord(&(x, y));
                    let corner = [left - REACH, top - REACH].map(f64::from);
                    hover.add(corner, [f64::from(2 * REACH); 2], &format!("{}\n{x}: {}", line.label, short(y)));
                }
                if dots {
                    chart.draw_series(finite().map(|point| Circle::new(point, 3, color.filled())))?;
                }
            }
        }
        for (index, label) in labels.iter().enumerate() {
            let y = TOP as i32 + 20 + 24 * index as i32;
            root.draw(&PathElement::new([(LEGEND, y), (LEGEND + 22, y)], color(&labels, label).stroke_width(3)))?;
            let beside = letters(14, INK, HPos::Left, VPos::Center);
            root.draw(&Text::new((*label).to_owned(), (LEGEND + 30, y), beside))?;
        }
        root.present()?;
    }
    Ok(hover.over(&svg))
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
}
