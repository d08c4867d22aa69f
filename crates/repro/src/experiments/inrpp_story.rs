//! The picture that explains INRPP without the paper: a cache on the dumbbell fills, detours and presses back.

use std::fmt::Write;

use crate::series::Sample;

/// One instant of the dumbbell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Frame {
    /// Seconds.
    at: f64,
    /// What each of [`LINKS`] carries, in Mbit/s.
    rates: Vec<f64>,
    /// What the caches of nodes 4 and 0 hold of each flow, in MB.
    stored: [[f64; 3]; 2],
    /// Whether they press back.
    presses: [bool; 2],
}

/// Links: the name of a direction, its ends in the picture, and its colour.
const LINKS: [(&str, [f64; 4], &str); 11] = [
    ("s1-4:s1>4", [70.0, 150.0, 215.0, 220.0], FLOWS[0]),
    ("s2-4:s2>4", [70.0, 220.0, 215.0, 220.0], FLOWS[1]),
    ("s3-4:s3>4", [70.0, 290.0, 215.0, 220.0], FLOWS[2]),
    ("4-0:4>0", [225.0, 220.0, 425.0, 220.0], PIPE),
    ("0-2:0>2", [435.0, 220.0, 645.0, 220.0], PIPE),
    ("0-1:0>1", [430.0, 225.0, 535.0, 315.0], PIPE),
    ("1-2:1>2", [535.0, 315.0, 650.0, 225.0], PIPE),
    ("2-3:2>3", [655.0, 220.0, 735.0, 220.0], PIPE),
    ("3-r1:3>r1", [740.0, 220.0, 860.0, 150.0], FLOWS[0]),
    ("3-r2:3>r2", [740.0, 220.0, 860.0, 220.0], FLOWS[1]),
    ("3-r3:3>r3", [740.0, 220.0, 860.0, 290.0], FLOWS[2]),
];
const FLOWS: [&str; 3] = ["#3b6fb6", "#d98032", "#4f9a54"];
const PIPE: &str = "#777777";
const PRESS: &str = "#c0392b";
/// Nodes and hosts: name, place, and radius.
const NODES: [(&str, f64, f64, f64); 11] = [
    ("s1", 60.0, 150.0, 14.0),
    ("s2", 60.0, 220.0, 14.0),
    ("s3", 60.0, 290.0, 14.0),
    ("4", 220.0, 220.0, 18.0),
    ("0", 430.0, 220.0, 18.0),
    ("1", 535.0, 315.0, 18.0),
    ("2", 650.0, 220.0, 18.0),
    ("3", 738.0, 220.0, 18.0),
    ("r1", 866.0, 150.0, 14.0),
    ("r2", 866.0, 220.0, 14.0),
    ("r3", 866.0, 290.0, 14.0),
];
/// The caches of nodes 4 and 0: left edge, bottom, and pixels for a MB.
const CACHES: [f64; 2] = [198.0, 408.0];
const BOTTOM: f64 = 192.0;
const SCALE: f64 = 8.0;
/// What a cache holds, and where it presses back, in MB.
const ROOM: f64 = 12.5;
const HIGH: f64 = 10.0;
/// The size of one frame.
const SIZE: [f64; 2] = [920.0, 380.0];

/// What a run's series shows at each instant until `until` seconds.
pub(super) fn frames(series: &[&Sample], until: f64) -> Vec<Frame> {
    let mut all: Vec<Frame> = Vec::new();
    for sample in series.iter().filter(|sample| sample.time_s <= until) {
        if all.last().is_none_or(|frame| frame.at < sample.time_s) {
            all.push(Frame { at: sample.time_s, rates: vec![0.0; LINKS.len()], ..Frame::default() });
        }
        let Some(frame) = all.last_mut() else { continue };
        match sample.kind.as_str() {
            "link" => {
                let link = LINKS.iter().position(|(name, ..)| *name == sample.name);
                if let Some(rate) = link.and_then(|link| frame.rates.get_mut(link)) {
                    *rate = sample.mbps.unwrap_or(0.0);
                }
            }
            "stored" | "cache" => {
                let Some(cache) = ["4>0", "0>2"].iter().position(|name| sample.name.starts_with(name)) else {
                    continue;
                };
                let flow = ["s1:", "s2:", "s3:"].iter().position(|host| sample.name.contains(host));
                match flow {
                    Some(flow) => frame.stored[cache][flow] = sample.queue_bytes.unwrap_or(0.0) / 1e6,
                    None => frame.presses[cache] = sample.path == "backpressure",
                }
            }
            _ => {}
        }
    }
    all
}

/// What happens, by the frame: the text below the picture.
fn caption(frame: &Frame) -> &'static str {
    let held = |cache: usize| frame.stored[cache].iter().sum::<f64>();
    match (frame.presses, held(0) > 0.05, held(1) > 0.05) {
        ([true, _], ..) => "Node 4's cache is nearly full, too: it tells the hosts, which send a packet for each ACK.",
        ([false, true], true, _) if frame.rates.iter().take(3).sum::<f64>() < 1.0 => {
            "The hosts are done. Node 4 sends what it has stored as fast as node 0 lets it."
        }
        ([false, true], ..) => "Node 0's cache is nearly full: it asks node 4 to slow down, and node 4 stores in turn.",
        (_, true, _) => "The caches empty: what node 4 stored goes on first.",
        (_, false, true) if frame.rates.iter().take(3).sum::<f64>() > 1.0 => {
            "Node 0's link takes 10 Mbit/s. As much goes around over node 1, and the rest is stored."
        }
        (_, false, true) => "All is sent. Node 0 empties its cache over both ways.",
        _ => "The links carry all that comes.",
    }
}

/// The moving picture: a second takes a second.
pub(super) fn animation(frames: &[Frame]) -> String {
    let seconds = frames.last().map_or(1.0, |frame| frame.at);
    let mut svg = open(SIZE);
    scene(&mut svg, frames, seconds);
    svg + "</svg>\n"
}

/// Some instants below each other.
pub(super) fn strip(frames: &[Frame], at: &[f64]) -> String {
    let chosen = at.iter().filter_map(|at| frames.iter().find(|frame| frame.at >= *at - 1e-6));
    let mut svg = open([SIZE[0], SIZE[1] * at.len() as f64]);
    for (row, frame) in chosen.enumerate() {
        let _ = writeln!(svg, r#"<g transform="translate(0 {})">"#, SIZE[1] * row as f64);
        scene(&mut svg, std::slice::from_ref(frame), 1.0);
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

fn open([width, height]: [f64; 2]) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    )
}

/// The dumbbell; with several frames it moves.
fn scene(svg: &mut String, frames: &[Frame], seconds: f64) {
    for (index, (_, [x1, y1, x2, y2], color)) in LINKS.iter().enumerate() {
        // A link of 10 Mbit/s that is full is 8 pixels wide.
        let width = |frame: &Frame| {
            let rate = frame.rates.get(index).copied().unwrap_or(0.0);
            if rate < 0.05 { 0.0 } else { (rate.sqrt() * 2.5).min(18.0) }
        };
        let ends = format!(r#"x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}""#);
        let _ = writeln!(svg, r##"<line {ends} stroke="#dddddd" stroke-width="1.5"/>"##);
        let moves = moving("stroke-width", frames, seconds, false, width);
        let _ = writeln!(svg, r#"<line {ends} stroke="{color}" opacity="0.8" {}>{}</line>"#, moves.0, moves.1);
    }
    for (cache, left) in CACHES.iter().enumerate() {
        for (flow, fill) in FLOWS.iter().enumerate() {
            let below = |frame: &Frame| frame.stored[cache].iter().take(flow).sum::<f64>();
            let height = moving("height", frames, seconds, false, |frame| frame.stored[cache][flow] * SCALE);
            let top = |frame: &Frame| BOTTOM - (below(frame) + frame.stored[cache][flow]) * SCALE;
            let y = moving("y", frames, seconds, false, top);
            let _ = writeln!(
                svg,
                r#"<rect x="{left}" width="44" fill="{fill}" {} {}>{}{}</rect>"#,
                height.0, y.0, height.1, y.1
            );
        }
        let (top, high) = (BOTTOM - ROOM * SCALE, BOTTOM - HIGH * SCALE);
        let room = ROOM * SCALE;
        let _ =
            writeln!(svg, r##"<rect x="{left}" y="{top}" width="44" height="{room}" fill="none" stroke="#333333"/>"##);
        let (from, to) = (left - 6.0, left + 50.0);
        let _ = writeln!(
            svg,
            r#"<line x1="{from}" y1="{high}" x2="{to}" y2="{high}" stroke="{PRESS}" stroke-dasharray="4 3"/>"#
        );
        text(svg, [to + 4.0, high + 4.0], 12, "10 MB", "");
        // An arrow back to the nodes that are asked.
        let shows = moving("opacity", frames, seconds, true, |frame| f64::from(u8::from(frame.presses[cache])));
        let (tip, tail) = (left - 110.0, left - 20.0);
        let y = 200.0;
        let _ = writeln!(
            svg,
            r#"<g {}>{}<path d="M{tail} {y} L{tip} {y} M{} {} L{tip} {y} L{} {}" stroke="{PRESS}" stroke-width="3" fill="none"/><text x="{}" y="{}" font-size="13" fill="{PRESS}" text-anchor="middle">slow down</text></g>"#,
            shows.0,
            shows.1,
            tip + 9.0,
            y - 6.0,
            tip + 9.0,
            y + 6.0,
            (tip + tail) / 2.0,
            y - 8.0,
        );
    }
    for (name, x, y, radius) in NODES {
        let _ = writeln!(
            svg,
            r##"<circle cx="{x}" cy="{y}" r="{radius}" fill="white" stroke="#333333" stroke-width="1.5"/>"##
        );
        text(svg, [x, y + 5.0], 14, name, r#"text-anchor="middle""#);
    }
    for (at, what) in [
        ([325.0, 252.0], "1 Gbit/s"),
        ([545.0, 208.0], "10 Mbit/s"),
        ([420.0, 290.0], "10 Mbit/s"),
        ([145.0, 320.0], "40 Mbit/s each"),
    ] {
        text(svg, at, 12, what, r##"text-anchor="middle" fill="#777777""##);
    }
    text(
        svg,
        [20.0, 28.0],
        17,
        "Three hosts send 10 MB each. Widths: what links carry. Bars: what caches hold, by flow.",
        "",
    );
    // Runs of frames that show the same share a text.
    let mut from = 0;
    while let Some(first) = frames.get(from) {
        let same = frames.iter().skip(from).take_while(|frame| caption(frame) == caption(first)).count();
        let span = from..from + same;
        let shows = shown(frames.len(), seconds, &span);
        let _ =
            writeln!(svg, r#"<text x="20" y="362" font-size="16" {}>{}{}</text>"#, shows.0, shows.1, caption(first));
        from += same;
    }
    let mut from = 0;
    while let Some(first) = frames.get(from) {
        let same = frames.iter().skip(from).take_while(|frame| frame.at.floor() == first.at.floor()).count();
        let shows = shown(frames.len(), seconds, &(from..from + same));
        let at = if frames.len() == 1 { format!("{:.1} s", first.at) } else { format!("{:.0} s", first.at.floor()) };
        let _ = writeln!(
            svg,
            r#"<text x="890" y="28" font-size="17" text-anchor="end" {}>{}{at}</text>"#,
            shows.0, shows.1
        );
        from += same;
    }
}

fn text(svg: &mut String, [x, y]: [f64; 2], size: u32, what: &str, more: &str) {
    let _ = writeln!(svg, r#"<text x="{x}" y="{y}" font-size="{size}" {more}>{what}</text>"#);
}

/// An attribute, and the element that moves it through the frames.
fn moving(name: &str, frames: &[Frame], seconds: f64, steps: bool, value: impl Fn(&Frame) -> f64) -> (String, String) {
    let values: Vec<String> = frames.iter().map(|frame| format!("{:.1}", value(frame))).collect();
    let first = format!(r#"{name}="{}""#, values.first().map_or("0", String::as_str));
    if values.iter().all(|value| Some(value) == values.first()) {
        return (first, String::new());
    }
    let mode = if steps { r#" calcMode="discrete""# } else { "" };
    let values = values.join(";");
    (
        first,
        format!(
            r#"<animate attributeName="{name}" dur="{seconds}s" repeatCount="indefinite"{mode} values="{values}"/>"#
        ),
    )
}

/// As [`moving`], for what is seen during a range of the `count` frames only.
fn shown(count: usize, seconds: f64, range: &std::ops::Range<usize>) -> (String, String) {
    let values: Vec<&str> = (0..count).map(|at| if range.contains(&at) { "1" } else { "0" }).collect();
    let first = format!(r#"opacity="{}""#, values.first().copied().unwrap_or("1"));
    if range.len() == count {
        return (first, String::new());
    }
    let values = values.join(";");
    (
        first,
        format!(
            r#"<animate attributeName="opacity" dur="{seconds}s" repeatCount="indefinite" calcMode="discrete" values="{values}"/>"#
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time_s: f64, kind: &str, name: &str, value: f64, path: &str) -> Sample {
        let (mbps, queue_bytes) = if kind == "link" { (Some(value), None) } else { (None, Some(value)) };
        Sample {
            time_s,
            kind: kind.into(),
            name: name.into(),
            mbps,
            queue_bytes,
            path: path.into(),
            ..Sample::default()
        }
    }

    #[test]
    fn a_frame_has_what_caches_hold_and_whether_they_press_back() {
        let series = [
            sample(0.1, "link", "s1-4:s1>4", 40.0, ""),
            sample(0.1, "cache", "0>2", 3e6, "store-and-detour"),
            sample(0.1, "stored", "0>2 s1:1-r1:2", 3e6, ""),
            sample(0.2, "cache", "0>2", 10.5e6, "backpressure"),
            sample(0.2, "stored", "0>2 s2:1-r2:2", 10.5e6, ""),
            sample(9.0, "cache", "0>2", 1.0, ""),
        ];
        let frames = frames(&series.iter().collect::<Vec<_>>(), 1.0);
        assert_eq!(frames.len(), 2);
        assert_eq!(
            (frames[0].rates[0], frames[0].stored[1], frames[0].presses),
            (40.0, [3.0, 0.0, 0.0], [false, false])
        );
        assert_eq!((frames[1].stored[1], frames[1].presses), ([0.0, 10.5, 0.0], [false, true]));
        assert!(
            caption(&frames[0]).contains("around over node 1")
                && caption(&frames[1]).contains("asks node 4 to slow down")
        );
        let moves = animation(&frames);
        // The arrow of node 0 appears, and its cache fills; node 4's stay as they are.
        assert!(moves.contains(
            r#"attributeName="opacity" dur="0.2s" repeatCount="indefinite" calcMode="discrete" values="0.0;1.0""#
        ));
        assert!(moves.contains(r#"attributeName="height" dur="0.2s" repeatCount="indefinite" values="24.0;0.0""#));
        let still = strip(&frames, &[0.1, 0.2]);
        assert!(!still.contains("<animate") && still.matches("slow down</text>").count() == 4, "{still}");
    }
}
