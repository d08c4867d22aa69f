//! Where a plot writes what happens in a run.

use super::{LEFT, RIGHT, TOP, shorten};
use crate::{Scene, tooltip::Tooltips};

/// The width of a letter in pixels.
const LETTER: i32 = 7;
/// The least number of letters of a label, if it is written at all.
const FEWEST: i32 = 28;
/// Where labels end.
const END: i32 = RIGHT + 150;
/// How near an event's line the pointer shows what happens, in pixels.
const REACH: i32 = 3;

/// An event in the picture.
pub(super) struct Mark<'a> {
    /// When it happens, in seconds.
    at: f64,
    /// What it does.
    text: &'a str,
    /// The column of its line.
    pub(super) x: i32,
    /// Where its label begins, and as much of the text as fits; `None` where there is no room.
    pub(super) label: Option<(i32, String)>,
}

/// The events up to `end` seconds; `column` is where an instant stands. A label has the room up to the next line.
pub(super) fn marks(scene: &Scene, end: f64, column: impl Fn(f64) -> i32) -> Vec<Mark<'_>> {
    let shown: Vec<&(f64, String)> = scene.events.iter().filter(|(at, _)| *at <= end).collect();
    let mut free = LEFT;
    let mut marks = Vec::new();
    for (number, (at, text)) in shown.iter().enumerate() {
        let x = column(*at);
        let next = shown.get(number + 1).map_or(END, |(at, _)| column(*at));
        let most = ((next - x) / LETTER - 1).max(FEWEST);
        let text_shown = shorten(text, usize::try_from(most).unwrap_or_default());
        let width = LETTER * text_shown.chars().count() as i32;
        let left = x.min(END - width);
        let label = (left >= free).then_some((left, text_shown));
        if label.is_some() {
            free = left + width + LETTER;
        }
        marks.push(Mark { at: *at, text, x, label });
    }
    marks
}

/// Each event's line and label show the whole of it.
pub(super) fn add_tooltips(tooltips: &mut Tooltips, marks: &[Mark<'_>], bottom: i32) {
    for Mark { at, text, x, label } in marks {
        let says = format!("{at:.2} s\n{}", text.replace(", ", "\n"));
        tooltips.add([x - REACH, TOP - 4].map(f64::from), [2 * REACH, bottom - TOP + 4].map(f64::from), &says);
        if let Some((left, shown)) = label {
            let width = LETTER * shown.chars().count() as i32;
            tooltips.add([*left, TOP - 19].map(f64::from), [width, 15].map(f64::from), &says);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(events: &[(f64, &str)]) -> Scene {
        let events = events.iter().map(|(at, text)| (*at, (*text).to_owned())).collect();
        Scene { events, ..Scene::default() }
    }

    /// A run of 20 s.
    fn column(at: f64) -> i32 {
        LEFT + (at / 20.0 * f64::from(RIGHT - LEFT)) as i32
    }

    const LONG: &str = "Kansas-Indianapolis down, Denver-Kansas down, Houston-Kansas down, Atlanta-Houston down";

    #[test]
    fn a_label_is_cut_only_where_it_does_not_fit() {
        let labels = |events: &[(f64, &str)]| -> Vec<Option<String>> {
            let scene = scene(events);
            let marks = marks(&scene, 20.0, column);
            marks.into_iter().map(|mark| mark.label.map(|(_, text)| text)).collect()
        };
        assert_eq!(labels(&[(1.0, LONG)]), [Some(LONG.to_owned())]);
        let two = labels(&[(1.0, LONG), (11.0, LONG)]);
        let lengths: Vec<usize> = two.iter().flatten().map(|text| text.chars().count()).collect();
        assert!(two.iter().flatten().all(|text| text.ends_with('…')), "{two:?}");
        assert!(lengths.len() == 2 && lengths[0] > 40 && lengths[1] > 60, "{two:?}");
        // Too near each other: the first has its least, the second no room, the third is beyond.
        let near = labels(&[(1.0, LONG), (1.5, "p1 up"), (18.0, "p1 down")]);
        assert_eq!(near.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(near[0].as_ref().unwrap().chars().count(), FEWEST as usize);
        assert_eq!(labels(&[(21.0, "after the end")]), []);
    }

    #[test]
    fn labels_neither_overlap_nor_leave_the_picture() {
        let scene = scene(&[(1.0, LONG), (3.0, LONG), (9.0, LONG), (15.0, "p1 up"), (19.9, LONG), (20.0, LONG)]);
        let mut free = LEFT;
        for (left, text) in marks(&scene, 20.0, column).into_iter().filter_map(|mark| mark.label) {
            assert!(left >= free, "{text}");
            free = left + LETTER * text.chars().count() as i32;
        }
        assert!(free <= END);
    }

    #[test]
    fn an_event_tells_all_of_it_on_its_line_though_it_has_no_label() {
        let scene = scene(&[(1.0, LONG), (1.5, "<p1> up")]);
        let mut tooltips = Tooltips::default();
        add_tooltips(&mut tooltips, &marks(&scene, 20.0, column), 500);
        let told = tooltips.over("<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>");
        assert_eq!(told.matches("<title>1.00 s\nKansas-Indianapolis down\nDenver-Kansas down\n").count(), 2, "{told}");
        assert_eq!(told.matches("<title>1.50 s\n&lt;p1&gt; up</title>").count(), 1, "{told}");
    }
}
