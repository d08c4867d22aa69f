//! Shares of a whole, side by side: a bar for each whole, a colour for each kind of part.

use maud::{Markup, html};

use crate::summary::printable;

/// A bar.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Text before the bar.
    pub label: String,
    /// Text behind the bar.
    pub note: String,
    /// The amount of each kind; only the proportions are drawn.
    pub parts: Vec<u64>,
}

/// Colours by kind, from the worst to the best: grey for none, then ColorBrewer's YlGnBu from its second shade on.
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
    let content = html! {
        text x="20" y="32" font-size="18" { (title) }
        (legend(kinds, stacks))
        @for percent in [0, 25, 50, 75, 100] {
            text x=(LEFT + (RIGHT - LEFT) * percent / 100) y=(bottom + 18) text-anchor="middle" font-size="12" fill="#696969" {
                (percent) " %"
            }
        }
        @for (y, stack) in (TOP..).step_by(ROW).zip(stacks) {
            (bar(y, kinds, stack))
        }
        text x=((LEFT + RIGHT) / 2) y=(bottom + 40) text-anchor="middle" font-size="13" fill="#696969" { (below) }
    };
    picture([WIDTH, bottom + 52], 14, &content)
}

/// SVG text of this width and height in pixels and with letters of this size, on white; control characters are replaced.
pub(crate) fn picture([width, height]: [usize; 2], letters: u32, content: &Markup) -> String {
    let view = format!("0 0 {width} {height}");
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height) viewBox=(view)
            font-family="system-ui, sans-serif" font-size=(letters) fill="#222222" {
            rect width=(width) height=(height) fill="#ffffff" {}
            (content)
        }
    };
    printable(svg.into_string()) + "\n"
}

fn shade(kind: usize) -> &'static str {
    SHADES.get(kind).or(SHADES.last()).copied().unwrap_or_default()
}

fn legend(kinds: &[String], stacks: &[Stack]) -> Markup {
    let mut x = LEFT;
    let mut entries = Vec::new();
    for (kind, name) in kinds.iter().enumerate() {
        if stacks.iter().any(|stack| stack.parts.get(kind).is_some_and(|part| *part > 0)) {
            entries.push((x, kind, name));
            // As wide as text of this size is at most.
            x += 44 + 7 * name.chars().count();
        }
    }
    html! {
        @for (x, kind, name) in entries {
            rect x=(x) y="54" width="14" height="14" fill=(shade(kind)) {}
            text x=(x + 20) y="66" font-size="13" { (name) }
        }
    }
}

fn bar(y: usize, kinds: &[String], stack: &Stack) -> Markup {
    let whole: u64 = stack.parts.iter().sum();
    let middle = y + ROW / 2 + 5;
    let length = |parts: u64| (RIGHT - LEFT) as f64 * parts as f64 / whole as f64;
    let mut before = 0;
    let mut parts = Vec::new();
    for (kind, part) in stack.parts.iter().enumerate().filter(|(_, part)| **part > 0) {
        let name = kinds.get(kind).map_or("more", String::as_str);
        let tip = format!("{name}: {part} ({:.1} %)", 100.0 * *part as f64 / whole as f64);
        parts.push((LEFT as f64 + length(before), length(*part), shade(kind), tip));
        before += part;
    }
    html! {
        text x=(LEFT - 10) y=(middle) text-anchor="end" font-size="13" { (stack.label) }
        text x=(RIGHT + 10) y=(middle) font-size="13" { (stack.note) }
        @for (left, width, color, tip) in parts {
            rect x=(format!("{left:.2}")) y=(y + 4) width=(format!("{width:.2}")) height=(ROW - 8) fill=(color) {
                title { (tip) }
            }
        }
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
