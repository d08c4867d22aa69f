//! Values that a browser shows where the pointer rests on a picture: SVG's own titles, without a script or a server.

use std::fmt::Write;

use crate::{
    Trace,
    plot::strips,
    summary::{megabits, percent, printable_lines},
};

/// The most columns of time that show their values; a pointer does not find narrower ones.
const COLUMNS: usize = 200;

/// Places of a picture, and what they show.
#[derive(Debug, Default)]
pub struct Tooltips(String);

impl Tooltips {
    /// The rectangle from `x` and `y` in pixels, `width` and `height` large, shows this.
    pub fn add(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], says: &str) {
        let says = printable_lines(says.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"));
        let _ = writeln!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"#fff\" fill-opacity=\"0\">\
             <title>{says}</title></rect>"
        );
    }

    /// The picture with these places on top.
    pub fn over(self, svg: &str) -> String {
        match svg.rsplit_once("</svg>") {
            Some((drawn, rest)) => format!("{drawn}{}</svg>{rest}", self.0),
            None => svg.to_owned(),
        }
    }
}

/// Columns of a panel over time, from pixel `left` to `right`, which `end` seconds take.
pub(crate) struct Columns {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) end: f64,
}

impl Columns {
    /// Each column's pixels, and the middle of its time, for values in `steps` steps.
    fn of(&self, steps: usize) -> impl Iterator<Item = ([f64; 2], f64)> {
        let (count, left, end) = (steps.min(COLUMNS), self.left, self.end);
        let width = (self.right - self.left) / count.max(1) as f64;
        (0..count).map(move |column| {
            let from = left + width * column as f64;
            ([from, width], end * (column as f64 + 0.5) / count as f64)
        })
    }

    /// The goodput of all systems, in Mbit/s.
    pub(crate) fn goodput(&self, tooltips: &mut Tooltips, traces: &[Trace], [top, height]: [f64; 2]) {
        let steps = traces.iter().map(|trace| trace.goodput.len()).max().unwrap_or(0);
        for ([x, width], time) in self.of(steps) {
            let mut says = format!("{time:.2} s");
            for trace in traces {
                if let Some(mbps) = at(trace, &trace.goodput, time) {
                    let _ = write!(says, "\n{} {} Mbit/s", trace.system, megabits(*mbps));
                }
                if let Some(band) = &trace.band
                    && let (Some(low), Some(high)) = (at(trace, &band.low, time), at(trace, &band.high, time))
                {
                    let _ = write!(says, " ({} to {})", megabits(*low), megabits(*high));
                }
            }
            tooltips.add([x, top], [width, height], &says);
        }
    }

    /// The utilisation of a system's paths.
    pub(crate) fn paths(&self, tooltips: &mut Tooltips, trace: &Trace, [top, height]: [f64; 2]) {
        let steps = strips(trace).map(|(_, shares)| shares.len()).max().unwrap_or(0);
        for ([x, width], time) in self.of(steps) {
            let mut says = format!("{}, {time:.2} s", trace.system);
            for (name, shares) in strips(trace) {
                if let Some(Some(share)) = at(trace, shares, time) {
                    let _ = write!(says, "\n{name} {}", percent(*share));
                }
            }
            tooltips.add([x, top], [width, height], &says);
        }
    }
}

/// The value of the step that a time falls into.
fn at<'a, T>(trace: &Trace, steps: &'a [T], time: f64) -> Option<&'a T> {
    let length = trace.duration();
    (length > 0.0 && time < length).then(|| steps.get((time / length * steps.len() as f64) as usize))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scene, plot::plot, testing};

    fn titles(svg: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).unwrap();
        let titles = document.descendants().filter(|node| node.has_tag_name("title"));
        titles.filter_map(|node| Some(node.text()?.to_owned())).collect()
    }

    #[test]
    fn each_time_tells_the_goodput_of_all_systems_and_the_use_of_their_paths() {
        let (run, traces) = testing::traced_run(&["tcp", "path<changer>"], 2);
        let titles = titles(&plot(&run, &traces, &Scene::default()).unwrap());
        let middle = titles.iter().find(|title| title.contains("\ntcp ") && title.contains("\npath<changer> "));
        let middle = middle.expect("a column of goodput");
        assert_eq!((middle.lines().count(), middle.matches(" Mbit/s").count()), (3, 2), "{middle}");
        let (time, mbps) = (middle.lines().next().unwrap(), middle.lines().nth(1).unwrap());
        let seconds: f64 = time.trim_end_matches(" s").parse().unwrap();
        let step = seconds / traces[0].duration() * traces[0].goodput.len() as f64;
        assert_eq!(mbps, format!("tcp {} Mbit/s", megabits(traces[0].goodput[step as usize])));
        assert!(
            titles.iter().any(|title| title.starts_with("path<changer>, ") && title.contains("\np2 ")),
            "{titles:?}"
        );
    }

    #[test]
    fn a_long_run_has_no_more_columns_than_a_pointer_finds() {
        let columns = Columns { left: 0.0, right: 700.0, end: 10.0 };
        assert_eq!(columns.of(5_000).count(), COLUMNS);
        let ([from, width], _) = columns.of(5_000).last().unwrap();
        assert!((from + width - 700.0).abs() < 1e-6);
        assert_eq!(columns.of(0).count(), 0);
    }
}
