//! Box plots.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};
use sidestep_results::{
    lines::short,
    measures::percentile,
    palette::{BLUE, GRID, INK, QUIET, VERMILION, letters},
    tooltip::Tooltips,
};

use crate::ReproError;

/// A box: the quartiles, and as whiskers the 5th and 95th percentile.
#[derive(Clone, Debug)]
pub struct Spread {
    /// The text in the picture.
    pub label: String,
    /// In ascending order; not empty.
    pub values: Vec<f64>,
    /// The paper's median, if it gives one.
    pub paper: Option<f64>,
}

const BOX: RGBColor = BLUE;
const PAPER: RGBColor = VERMILION;
const WIDTH: i32 = 760;
const HEIGHT: i32 = 460;
const LEFT: i32 = 80;
const RIGHT: i32 = 730;
const TOP: i32 = 74;
const BOTTOM: i32 = 390;
/// How near a flat mark the pointer shows its value, in pixels.
const REACH: i32 = 5;

/// Boxes side by side as SVG text, on one scale from zero.
pub fn boxes(title: &str, unit: &str, below: &str, boxes: &[Spread]) -> Result<String, ReproError> {
    draw(title, unit, below, boxes).map_err(|error| ReproError::Picture(error.to_string()))
}

fn draw(
    title: &str,
    unit: &str,
    below: &str,
    boxes: &[Spread],
) -> Result<String, DrawingAreaErrorKind<std::io::Error>> {
    let highest = boxes.iter().filter_map(|one| percentile(&one.values, 95)).fold(1.0, f64::max) * 1.04;
    let y = |value: f64| BOTTOM - (f64::from(BOTTOM - TOP) * (value / highest).clamp(0.0, 1.0)).round() as i32;
    let (mut svg, mut tooltips) = (String::new(), Tooltips::default());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH as u32, HEIGHT as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        let text = |text: &str, at: (i32, i32), size: i32, color: RGBColor, side| {
            root.draw_text(text, &letters(size, color, side, VPos::Center), at)
        };
        text(title, (20, 24), 18, INK, HPos::Left)?;
        text(unit, (20, 48), 13, QUIET, HPos::Left)?;
        text("▬ the paper’s median", (RIGHT, 48), 13, PAPER, HPos::Right)?;
        let step = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0].into_iter().find(|step| highest / step <= 8.0);
        for tick in (0..=8).map(|tick| f64::from(tick) * step.unwrap_or(highest)).filter(|tick| *tick <= highest) {
            root.draw(&PathElement::new([(LEFT, y(tick)), (RIGHT, y(tick))], GRID))?;
            text(&tick.to_string(), (LEFT - 8, y(tick)), 13, INK, HPos::Right)?;
        }
        let pitch = (RIGHT - LEFT) / boxes.len().max(1) as i32;
        for (middle, one) in (0..).map(|index| LEFT + pitch * index + pitch / 2).zip(boxes) {
            let at = |percent| percentile(&one.values, percent).map_or(BOTTOM, y);
            let half = pitch / 4;
            root.draw(&PathElement::new([(middle, at(5)), (middle, at(95))], INK))?;
            for end in [5, 95] {
                root.draw(&PathElement::new([(middle - half / 2, at(end)), (middle + half / 2, at(end))], INK))?;
            }
            let corners = [(middle - half, at(75)), (middle + half, at(25))];
            root.draw(&Rectangle::new(corners, WHITE.filled()))?;
            root.draw(&Rectangle::new(corners, BOX.mix(0.35).filled()))?;
            let median = [(middle - half, at(50)), (middle + half, at(50))];
            root.draw(&PathElement::new(median, BOX.stroke_width(3)))?;
            let top = at(95) - REACH;
            tooltips.add(
                [middle - half, top].map(f64::from),
                [2 * half, at(5) + REACH - top].map(f64::from),
                &caption(one),
            );
            if let Some(paper) = one.paper {
                let ends = [(middle + half + 4, y(paper)), (middle + half + 18, y(paper))];
                root.draw(&PathElement::new(ends, PAPER.stroke_width(4)))?;
                let corner = [middle + half + 2, y(paper) - REACH].map(f64::from);
                tooltips.add(corner, [18, 2 * REACH].map(f64::from), &format!("the paper’s median {}", short(paper)));
            }
            let value = percentile(&one.values, 50).map_or(String::new(), |median| format!("{median:.0}"));
            text(&value, (middle - half - 6, at(50)), 13, INK, HPos::Right)?;
            text(&one.label, (middle, BOTTOM + 16), 14, INK, HPos::Center)?;
        }
        text(below, ((LEFT + RIGHT) / 2, BOTTOM + 42), 14, QUIET, HPos::Center)?;
        root.present()?;
    }
    Ok(tooltips.over(&svg))
}

/// What a box shows where the pointer rests.
fn caption(one: &Spread) -> String {
    let at = |percent| percentile(&one.values, percent).map_or("–".into(), short);
    format!(
        "{}\nmedian {}\nquartiles {} … {}\n5 % … 95 %: {} … {}\n{} values",
        one.label,
        at(50),
        at(25),
        at(75),
        at(5),
        at(95),
        one.values.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_box_reaches_from_one_quartile_to_the_other() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let svg = boxes("t", "%", "<below>", &[Spread { label: "l&".into(), values, paper: Some(60.0) }]).unwrap();
        let white = svg.split("<rect").find(|rect| rect.contains("fill=\"#FFFFFF\"") && rect.contains("y=\"150\""));
        // 316 pixels are 98.8: the 95th percentile and 4 %. The quartiles are 25 and 75.
        assert!(white.is_some_and(|rect| rect.contains("height=\"160\"")), "{svg}");
        assert!(svg.contains("\n50\n") && svg.contains("l&amp;") && svg.contains("&lt;below&gt;"), "{svg}");
    }

    #[test]
    fn a_box_and_the_papers_median_show_their_values_where_they_are() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let spread = |paper| Spread { label: "l&".into(), values: values.clone(), paper };
        let told = testing::told(&boxes("t", "%", "", &[spread(Some(60.0)), spread(None)]).unwrap());
        let says = "l&\nmedian 50.00\nquartiles 25.00 … 75.00\n5 % … 95 %: 5.000 … 95.00\n100 values";
        assert_eq!(
            told.iter().map(|(_, says)| says.as_str()).collect::<Vec<_>>(),
            [says, "the paper’s median 60.00", says]
        );
        // 650 pixels for two boxes, half as wide as their places; 98.8 are 316 pixels.
        assert_eq!(told[0].0, ["161.0", "81.0", "162.0", "298.0"]);
        assert_eq!(told[1].0, ["325.0", "193.0", "18.0", "10.0"]);
    }
}
