//! Distribution functions.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};
use sidestep_results::ink::{GRID, INK, PALETTE, letters};

use crate::ReproError;

/// A sample whose distribution is drawn.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The text in the picture.
    pub label: String,
    /// The values, in any order; one that is not finite is left out.
    pub values: Vec<f64>,
}

/// Other shades, for lists longer than the palette.
const MORE: [RGBColor; 4] =
    [RGBColor(120, 94, 240), RGBColor(34, 34, 34), RGBColor(120, 120, 120), RGBColor(150, 75, 0)];
const SIZE: (u32, u32) = (900, 480);
const LEGEND: i32 = 690;

/// The shares of values up to each value, as SVG text; `x` says what the values are, and `of` what has them.
pub fn curves(title: &str, x: &str, of: &str, curves: &[Curve]) -> Result<String, ReproError> {
    draw(title, x, of, curves).map_err(|error| ReproError::Picture(error.to_string()))
}

fn draw(title: &str, x: &str, of: &str, curves: &[Curve]) -> Result<String, DrawingAreaErrorKind<std::io::Error>> {
    let sorted: Vec<Vec<f64>> = curves.iter().map(sorted).collect();
    let least = sorted.iter().filter_map(|values| values.first()).copied().fold(f64::INFINITY, f64::min);
    let most = sorted.iter().filter_map(|values| values.last()).copied().fold(f64::NEG_INFINITY, f64::max);
    let (least, most) = if least < most { (least, most) } else { (0.0, most.max(1.0)) };
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let font = |size: i32| letters(size, INK, HPos::Left, VPos::Top);
        root.draw(&Text::new(title.to_owned(), (20, 18), font(18)))?;
        let area = root.clone().shrink((10, 50), (LEGEND as u32 - 30, SIZE.1 - 60));
        let mut chart = ChartBuilder::on(&area)
            .set_label_area_size(LabelAreaPosition::Left, 60)
            .set_label_area_size(LabelAreaPosition::Bottom, 44)
            .build_cartesian_2d(least..most, 0.0..1.0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(RGBColor(150, 150, 150))
            .label_style(font(14))
            .axis_desc_style(font(14))
            .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .x_desc(x)
            .y_desc(format!("share of {of}"))
            .draw()?;
        let colors = PALETTE.iter().chain(&MORE).cycle();
        for (index, ((curve, values), color)) in curves.iter().zip(&sorted).zip(colors).enumerate() {
            chart.draw_series(LineSeries::new(steps(values, least, most), color.stroke_width(2)))?;
            let y = 70 + 24 * index as i32;
            root.draw(&PathElement::new([(LEGEND, y), (LEGEND + 22, y)], color.stroke_width(3)))?;
            let beside = letters(14, INK, HPos::Left, VPos::Center);
            root.draw(&Text::new(curve.label.clone(), (LEGEND + 30, y), beside))?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn sorted(curve: &Curve) -> Vec<f64> {
    let mut values: Vec<f64> = curve.values.iter().copied().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The corners of the distribution function, from one edge of the picture to the other.
fn steps(values: &[f64], least: f64, most: f64) -> Vec<(f64, f64)> {
    let mut points = vec![(least, 0.0)];
    for (index, value) in values.iter().enumerate() {
        let share = |count: usize| count as f64 / values.len() as f64;
        points.extend([(*value, share(index)), (*value, share(index + 1))]);
    }
    points.push((most, if values.is_empty() { 0.0 } else { 1.0 }));
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_by_a_step_at_each_value() {
        let curve = Curve { label: "c".into(), values: vec![3.0, 1.0, f64::NAN] };
        let corners = [(0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0), (4.0, 1.0)];
        assert_eq!(steps(&sorted(&curve), 0.0, 4.0), corners);
    }

    #[test]
    fn no_values_and_equal_values_can_be_drawn() {
        for values in [vec![], vec![2.0], vec![0.0, 0.0], vec![f64::NAN]] {
            let svg = curves("t", "x", "draws", &[Curve { label: "<c>".into(), values }]).unwrap();
            assert!(svg.contains("<svg") && svg.contains("&lt;c&gt;") && !svg.contains("NaN"));
        }
    }
}
