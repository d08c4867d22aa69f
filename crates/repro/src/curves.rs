//! Distribution functions.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};
use sidestep_results::{
    lines::short,
    palette::{GRID, INK, PALETTE, letters},
    tooltip::Tooltips,
};

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
/// How near a step the pointer shows its value, in pixels, and of how many steps of a curve.
const REACH: i32 = 5;
const TOLD: usize = 100;

/// The shares of values up to each value, as SVG text; `x` is what the values are, and `of` what has them.
pub fn curves(title: &str, x: &str, of: &str, curves: &[Curve]) -> Result<String, ReproError> {
    draw(title, x, of, curves).map_err(|error| ReproError::Picture(error.to_string()))
}

fn draw(title: &str, x: &str, of: &str, curves: &[Curve]) -> Result<String, DrawingAreaErrorKind<std::io::Error>> {
    let sorted: Vec<Vec<f64>> = curves.iter().map(sorted).collect();
    let least = sorted.iter().filter_map(|values| values.first()).copied().fold(f64::INFINITY, f64::min);
    let most = sorted.iter().filter_map(|values| values.last()).copied().fold(f64::NEG_INFINITY, f64::max);
    let (least, most) = if least < most { (least, most) } else { (0.0, most.max(1.0)) };
    let (mut svg, mut tooltips) = (String::new(), Tooltips::default());
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
            for (value, share) in told(values) {
                let (left, top) = chart.backend_coord(&(value, share));
                let says = format!("{}\n{:.0} % up to {}", curve.label, share * 100.0, short(value));
                tooltips.add([left - REACH, top - REACH].map(f64::from), [f64::from(2 * REACH); 2], &says);
            }
            let y = 70 + 24 * index as i32;
            root.draw(&PathElement::new([(LEGEND, y), (LEGEND + 22, y)], color.stroke_width(3)))?;
            let beside = letters(14, INK, HPos::Left, VPos::Center);
            root.draw(&Text::new(curve.label.clone(), (LEGEND + 30, y), beside))?;
        }
        root.present()?;
    }
    Ok(tooltips.over(&svg))
}

/// Values that are shown where the pointer rests, each with the share up to it: the ends of steps, evenly taken.
fn told(values: &[f64]) -> Vec<(f64, f64)> {
    let count = values.len();
    let ends: Vec<usize> = (1..=count).filter(|end| values.get(*end) != values.get(end - 1)).collect();
    let every = ends.len().div_ceil(TOLD).max(1);
    let last = ends.len().saturating_sub(1) % every;
    let kept = ends.iter().skip(last).step_by(every);
    kept.filter_map(|end| Some((*values.get(end - 1)?, *end as f64 / count as f64))).collect()
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
    use crate::testing;

    #[test]
    fn a_distribution_rises_by_a_step_at_each_value() {
        let curve = Curve { label: "c".into(), values: vec![3.0, 1.0, f64::NAN] };
        let corners = [(0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0), (4.0, 1.0)];
        assert_eq!(steps(&sorted(&curve), 0.0, 4.0), corners);
    }

    #[test]
    fn a_step_shows_how_many_values_lie_up_to_it() {
        let curve = Curve { label: "<c>".into(), values: vec![3.0, 1.0, 1.0, f64::NAN, 2.0] };
        let svg = curves("t", "x", "draws", &[curve]).unwrap();
        let says: Vec<String> = testing::told(&svg).into_iter().map(|(_, says)| says).collect();
        assert_eq!(says, ["<c>\n50 % up to 1.000", "<c>\n75 % up to 2.000", "<c>\n100 % up to 3.000"]);
        let many: Vec<f64> = (0..1_000).map(f64::from).collect();
        assert_eq!((told(&many).len(), told(&many).last()), (TOLD, Some(&(999.0, 1.0))));
    }

    #[test]
    fn no_values_and_equal_values_can_be_drawn() {
        for values in [vec![], vec![2.0], vec![0.0, 0.0], vec![f64::NAN]] {
            let svg = curves("t", "x", "draws", &[Curve { label: "<c>".into(), values }]).unwrap();
            assert!(svg.contains("<svg") && svg.contains("&lt;c&gt;") && !svg.contains("NaN"));
        }
    }
}
