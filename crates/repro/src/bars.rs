//! Bars with confidence intervals.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};
use sidestep_results::{
    Estimate,
    lines::short,
    palette::{BLUE, GREEN, INK, PURPLE, VERMILION, letters},
    tooltip::Tooltips,
};

use crate::ReproError;

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The text in the picture.
    pub label: String,
    /// The bar's length, and the confidence interval that is drawn on it.
    pub estimate: Estimate,
    /// Bars of one group have the same colour.
    pub group: usize,
}

const GROUPS: [RGBColor; 4] = [BLUE, GREEN, VERMILION, PURPLE];
const MARK: RGBColor = RGBColor(150, 150, 150);
const WIDTH: i32 = 960;
const LEFT: i32 = 300;
const RIGHT: i32 = 800;
const TOP: i32 = 70;
const ROW: i32 = 26;
/// How near a mark the pointer shows its value, in pixels.
const REACH: i32 = 4;

/// Horizontal bars as SVG text; `marks` are values that the reader compares with, each with its label.
pub fn bars(title: &str, unit: &str, bars: &[Bar], marks: &[(f64, &str)]) -> Result<String, ReproError> {
    draw(title, unit, bars, marks).map_err(|error| ReproError::Picture(error.to_string()))
}

fn draw(
    title: &str,
    unit: &str,
    bars: &[Bar],
    marks: &[(f64, &str)],
) -> Result<String, DrawingAreaErrorKind<std::io::Error>> {
    let bottom = TOP + ROW * bars.len() as i32;
    let most = bars.iter().map(|bar| bar.estimate.ci95[1]).chain(marks.iter().map(|mark| mark.0));
    let most = most.fold(f64::MIN_POSITIVE, f64::max) * 1.02;
    let x = |value: f64| LEFT + (f64::from(RIGHT - LEFT) * (value / most).clamp(0.0, 1.0)) as i32;
    let (mut svg, mut tooltips) = (String::new(), Tooltips::default());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH as u32, (bottom + 50) as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw(&Text::new(title.to_owned(), (20, 18), letters(18, INK, HPos::Left, VPos::Top)))?;
        for (value, label) in marks {
            root.draw(&PathElement::new([(x(*value), TOP - 6), (x(*value), bottom)], MARK.stroke_width(1)))?;
            root.draw(&Text::new(
                (*label).to_owned(),
                (x(*value), TOP - 8),
                letters(12, MARK, HPos::Center, VPos::Bottom),
            ))?;
        }
        for (index, bar) in bars.iter().enumerate() {
            let y = TOP + ROW * index as i32;
            let color = GROUPS[bar.group % GROUPS.len()];
            let Estimate { mean, ci95: [low, high] } = bar.estimate;
            root.draw(&Text::new(
                bar.label.clone(),
                (LEFT - 8, y + ROW / 2),
                letters(13, INK, HPos::Right, VPos::Center),
            ))?;
            root.draw(&Rectangle::new([(LEFT, y + 4), (x(mean), y + ROW - 4)], color.filled()))?;
            let middle = y + ROW / 2;
            root.draw(&PathElement::new([(x(low), middle), (x(high), middle)], INK.stroke_width(2)))?;
            tooltips.add([LEFT, y].map(f64::from), [RIGHT - LEFT, ROW].map(f64::from), &caption(bar, unit));
            // By both ends: that of a median is rarely around its middle.
            let interval = if high > low { format!(" ({low:.1} to {high:.1})") } else { String::new() };
            let beside = letters(12, INK, HPos::Left, VPos::Center);
            root.draw(&Text::new(format!("{mean:.1}{interval}"), (RIGHT + 8, middle), beside))?;
        }
        root.draw(&Text::new(unit.to_owned(), (LEFT, bottom + 16), letters(13, MARK, HPos::Left, VPos::Top)))?;
        root.present()?;
    }
    // Above the bars, as a mark is thinner.
    for (value, label) in marks {
        let corner = [x(*value) - REACH, TOP - ROW].map(f64::from);
        let size = [2 * REACH, bottom - TOP + ROW].map(f64::from);
        tooltips.add(corner, size, &format!("{label}\n{} {}", short(*value), plain(unit)));
    }
    Ok(tooltips.over(&svg))
}

/// What a bar shows where the pointer rests.
fn caption(bar: &Bar, unit: &str) -> String {
    let Estimate { mean, ci95: [low, high] } = bar.estimate;
    let value = format!("{}\n{} {}", bar.label, short(mean), plain(unit));
    if high > low { format!("{value}\n95 %: {} … {}", short(low), short(high)) } else { value }
}

/// The unit without the other notes on the bars.
fn plain(unit: &str) -> &str {
    unit.split(',').next().unwrap_or(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn bars_are_as_long_as_their_values_and_texts_are_escaped() {
        let bar = |label: &str, mean: f64, half: f64| {
            let estimate = Estimate { mean, ci95: [mean - half, mean + half] };
            Bar { label: label.into(), estimate, group: 0 }
        };
        let svg = bars("t<", "Mbit/s", &[bar("<a>", 100.0, 5.0), bar("b", 50.0, 0.0)], &[(200.0, "m&")]).unwrap();
        let filled = svg.split("<rect").filter(|rect| rect.contains("#0072B2"));
        let width = |rect: &str| rect.split("width=\"").nth(1)?.split('"').next()?.parse::<i32>().ok();
        // 500 pixels are 204 Mbit/s: the highest mark and 2 %.
        assert_eq!(filled.map(width).collect::<Vec<_>>(), [Some(245), Some(122)]);
        for text in ["100.0 (95.0 to 105.0)", "\n50.0\n", "&lt;a&gt;", "t&lt;", "m&amp;"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
    }

    #[test]
    fn an_interval_that_is_not_around_its_value_is_shown_by_its_ends() {
        let estimate = Estimate { mean: 93.6, ci95: [77.0, 100.0] };
        let svg = bars("t", "%", &[Bar { label: "a".into(), estimate, group: 0 }], &[]).unwrap();
        assert!(svg.contains("\n93.6 (77.0 to 100.0)\n") && !svg.contains('±'), "{svg}");
    }

    #[test]
    fn a_bar_and_a_mark_show_their_values_where_they_are() {
        let bar = |label: &str, mean: f64, half: f64| {
            let estimate = Estimate { mean, ci95: [mean - half, mean + half] };
            Bar { label: label.into(), estimate, group: 0 }
        };
        let unit = "Mbit/s, with 95 % confidence intervals";
        let svg = bars("t", unit, &[bar("<a>", 100.04, 5.0), bar("b", 50.0, 0.0)], &[(200.0, "m&")]).unwrap();
        let wanted = [
            (["300.0", "70.0", "500.0", "26.0"], "<a>\n100.0 Mbit/s\n95 %: 95.04 … 105.0"),
            (["300.0", "96.0", "500.0", "26.0"], "b\n50.00 Mbit/s"),
            (["786.0", "44.0", "8.0", "78.0"], "m&\n200.0 Mbit/s"),
        ];
        assert_eq!(testing::told(&svg), wanted.map(|(place, says)| (place.map(String::from), says.to_owned())));
    }
}
