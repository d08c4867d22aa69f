//! Shares of a whole, side by side: a bar for each whole, a colour for each kind of part.

use std::fmt::Write;

use crate::escape;

/// A bar.
#[derive(Clone, Debug)]
pub struct Stack {
    /// What it is of.
    pub label: String,
    /// What stands behind it.
    pub note: String,
    /// By kind, how much there is of it; only the proportions are drawn.
    pub parts: Vec<u64>,
}

/// ColorBrewer's YlGnBu from its second shade on, in the order in which kinds get better; grey is for nothing.
const SHADES: [&str; 8] = ["#bdbdbd", "#ffe28a", "#a1dab4", "#41b6c4", "#2c7fb8", "#253494", "#4a1486", "#1a1a1a"];
const WIDTH: usize = 900;
const LEFT: usize = 210;
const RIGHT: usize = 790;
const TOP: usize = 92;
const ROW: usize = 28;

/// Bars of equal length as SVG text, with `kinds` as the names of the parts; kinds that no bar has are left out of the
/// legend, and those beyond the eighth share its colour.
pub fn stacks(title: &str, below: &str, kinds: &[String], stacks: &[Stack]) -> String {
    let bottom = TOP + ROW * stacks.len();
    let height = bottom + 52;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"14\" fill=\"#222222\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"20\" y=\"32\" font-size=\"18\">{}</text>\n",
        escape(title)
    );
    legend(&mut svg, kinds, stacks);
    for percent in [0, 25, 50, 75, 100] {
        let x = LEFT + (RIGHT - LEFT) * percent / 100;
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" font-size=\"12\" fill=\"#696969\">{percent} %</text>",
            bottom + 18
        );
    }
    for (y, stack) in (TOP..).step_by(ROW).zip(stacks) {
        bar(&mut svg, y, kinds, stack);
    }
    let middle = (LEFT + RIGHT) / 2;
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-size=\"13\" fill=\"#696969\">{}</text>\n</svg>",
        bottom + 40,
        escape(below)
    );
    svg
}

fn shade(kind: usize) -> &'static str {
    SHADES.get(kind).or(SHADES.last()).copied().unwrap_or_default()
}

fn legend(svg: &mut String, kinds: &[String], stacks: &[Stack]) {
    let mut x = LEFT;
    for (kind, name) in kinds.iter().enumerate() {
        if stacks.iter().all(|stack| stack.parts.get(kind).copied().unwrap_or(0) == 0) {
            continue;
        }
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"54\" width=\"14\" height=\"14\" fill=\"{}\"/><text x=\"{}\" y=\"66\" font-size=\"13\">{}</text>",
            shade(kind),
            x + 20,
            escape(name)
        );
        // As wide as text of this size is at most.
        x += 44 + 7 * name.chars().count();
    }
}

fn bar(svg: &mut String, y: usize, kinds: &[String], stack: &Stack) {
    let whole: u64 = stack.parts.iter().sum();
    let middle = y + ROW / 2 + 5;
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\" font-size=\"13\">{}</text>\n\
         <text x=\"{}\" y=\"{middle}\" font-size=\"13\">{}</text>",
        LEFT - 10,
        escape(&stack.label),
        RIGHT + 10,
        escape(&stack.note)
    );
    let mut before = 0;
    for (kind, part) in stack.parts.iter().enumerate().filter(|(_, part)| **part > 0) {
        let at = |parts: u64| (RIGHT - LEFT) as f64 * parts as f64 / whole as f64;
        let percent = 100.0 * *part as f64 / whole as f64;
        let name = kinds.get(kind).map_or("more", String::as_str);
        let _ = writeln!(
            svg,
            "<rect x=\"{:.2}\" y=\"{}\" width=\"{:.2}\" height=\"{}\" fill=\"{}\"><title>{}: {part} ({percent:.1} %)</title></rect>",
            LEFT as f64 + at(before),
            y + 4,
            at(*part),
            ROW - 8,
            shade(kind),
            escape(name)
        );
        before += part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_bar_in_proportion_and_names_are_escaped() {
        let bars = [
            Stack { label: "<a>".into(), note: "1.5".into(), parts: vec![0, 1, 3] },
            Stack { label: "none".into(), note: String::new(), parts: vec![] },
        ];
        let kinds = ["no \"one\"", "one", "two & more"].map(String::from);
        let svg = stacks("t<", "b>", &kinds, &bars);
        let document = roxmltree::Document::parse(&svg).unwrap();
        let texts: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
        for wanted in ["<a>", "t<", "b>", "two & more", "two & more: 3 (75.0 %)"] {
            assert!(texts.contains(&wanted), "{wanted} is not among {texts:?}");
        }
        assert!(!texts.contains(&"no \"one\""));
        let widths: Vec<f64> = document
            .descendants()
            .filter(|node| node.children().any(|child| child.has_tag_name("title")))
            .map(|bar| bar.attribute("width").unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths, [145.0, 435.0]);
    }
}
