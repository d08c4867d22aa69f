//! Fits tables and lines into the width of a terminal: whole columns and whole words go, numbers are never cut.

use ratatui::{
    layout::Constraint,
    style::{Modifier, Style},
    text::Line,
    widgets::{Row, Table},
};

/// A column of a table, and what may be done to it where room is short.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// The heading.
    pub name: &'a str,
    /// The heading where room is short.
    pub short: &'a str,
    /// Columns of the greatest rank go first.
    pub rank: u8,
    /// What is in it.
    pub kind: Kind,
}

/// What a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers, to the right; they are shown whole or not at all.
    Number,
    /// Text that is shown whole or not at all.
    Whole,
    /// Names and addresses, of which the middle may go down to this width.
    Name(usize),
}

/// What of a table is shown: the columns by their index and width, whether headings are short, and the space between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitted {
    columns: Vec<(usize, usize)>,
    short: bool,
    spacing: usize,
    /// How many columns are left out.
    pub hidden: usize,
}

/// Chooses the columns that fit into `room`; `cells` are those of the rows that are shown.
pub fn fit(columns: &[Column<'_>], cells: &[Vec<String>], room: usize) -> Fitted {
    let widest = |index: usize| cells.iter().filter_map(|row| row.get(index)).map(|cell| width(cell)).max();
    let natural = |index: usize, short: bool| -> usize {
        let Column { name, short: brief, .. } = columns[index];
        widest(index).unwrap_or_default().max(width(if short { brief } else { name }))
    };
    let least = |index: usize, short: bool| match columns[index].kind {
        Kind::Name(least) => {
            natural(index, short).min(least.max(width(if short { columns[index].short } else { columns[index].name })))
        }
        Kind::Number | Kind::Whole => natural(index, short),
    };
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let total = |kept: &[usize], short: bool, spacing: usize, of: &dyn Fn(usize, bool) -> usize| {
        kept.iter().map(|index| of(*index, short)).sum::<usize>() + spacing * kept.len().saturating_sub(1)
    };
    let short = total(&kept, false, 1, &natural) > room;
    while kept.len() > 1 && total(&kept, short, 1, &least) > room {
        let Some(place) = (0..kept.len()).max_by_key(|place| columns[kept[*place]].rank) else { break };
        kept.remove(place);
    }
    let mut left = room.saturating_sub(total(&kept, short, 1, &least));
    let mut by_rank = kept.clone();
    by_rank.sort_by_key(|index| columns[*index].rank);
    let mut widths: Vec<usize> = (0..columns.len()).map(|index| least(index, short)).collect();
    for index in by_rank {
        let more = natural(index, short).saturating_sub(widths[index]).min(left);
        widths[index] += more;
        left -= more;
    }
    let spacing = if left >= kept.len().saturating_sub(1) { 2 } else { 1 };
    let hidden = columns.len() - kept.len();
    // One column alone may be wider than the room.
    let shown = kept.into_iter().map(|index| (index, widths[index].min(room))).collect();
    Fitted { columns: shown, short, spacing, hidden }
}

impl Fitted {
    /// The table with these columns; `style` is that of a heading, by the column's index.
    pub fn table(
        &self,
        columns: &[Column<'_>],
        cells: &[Vec<String>],
        style: impl Fn(usize) -> Style,
    ) -> Table<'static> {
        let line = |text: String, index: usize| {
            let line = Line::from(text);
            if columns[index].kind == Kind::Number { line.right_aligned() } else { line }
        };
        let heading = |(index, width): &(usize, usize)| {
            let name = if self.short { columns[*index].short } else { columns[*index].name };
            line(shorten(name, *width), *index).style(style(*index))
        };
        let row = |cells: &Vec<String>| {
            let cell = |(index, width): &(usize, usize)| {
                let text = cells.get(*index).map_or("", String::as_str);
                line(shorten(text, *width), *index)
            };
            Row::new(self.columns.iter().map(cell).collect::<Vec<_>>())
        };
        let widths: Vec<Constraint> = self.columns.iter().map(|(_, width)| Constraint::Length(*width as u16)).collect();
        let header = Row::new(self.columns.iter().map(heading).collect::<Vec<_>>()).style(Modifier::REVERSED);
        let spacing = self.spacing as u16;
        Table::new(cells.iter().map(row).collect::<Vec<_>>(), widths).header(header).column_spacing(spacing)
    }
}

/// Lays parts out on lines of this width, at most `most` lines; no part is broken, and those that find no room are an ellipsis.
pub fn flow(parts: &[String], separator: &str, room: usize, most: usize) -> Vec<String> {
    let joined = |line: &[&str], part: &str| [line, &[part]].concat().join(separator);
    let mut lines: Vec<Vec<&str>> = Vec::new();
    let mut left = false;
    for part in parts {
        let has_room = lines.len() < most;
        match lines.last_mut() {
            Some(line) if width(&joined(line, part)) <= room => line.push(part),
            _ if has_room => lines.push(vec![part]),
            _ => left = true,
        }
    }
    if let Some(last) = lines.last_mut().filter(|_| left) {
        while last.len() > 1 && width(&joined(last, "…")) > room {
            last.pop();
        }
        last.push("…");
    }
    lines.iter().map(|line| shorten_words(&line.join(separator), room)).collect()
}

/// A sentence of at most this width: words that do not fit are an ellipsis.
fn shorten_words(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut short = String::new();
    for word in text.split_inclusive(' ') {
        if width(&short) + width(word.trim_end()) + 2 > room {
            break;
        }
        short.push_str(word);
    }
    short.push('…');
    short.chars().take(room).collect()
}

/// A name or an address of at most this width. What lies between its first and last words goes; a number stays whole.
pub fn shorten(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let words = words(text);
    // The last word of an address is its port or its length: it stays longest.
    let tail = |number: usize| words[words.len() - number..].concat();
    let head = |number: usize| words[..number].concat();
    let fits = |front: usize, back: usize| {
        front + back < words.len() && width(&head(front)) + width(&tail(back)) < room.max(1)
    };
    let (mut front, mut back) = (0, 0);
    while fits(front, back + 1) && back <= front {
        back += 1;
        while fits(front + 1, back) && front < back {
            front += 1;
        }
    }
    while fits(front + 1, back) {
        front += 1;
    }
    while fits(front, back + 1) {
        back += 1;
    }
    if front + back > 0 {
        return format!("{}…{}", head(front), tail(back));
    }
    // A word of letters may lose its end, and a number goes.
    let letters: String = text.chars().take_while(|c| !c.is_ascii_digit()).take(room.saturating_sub(1)).collect();
    if room == 0 { String::new() } else { format!("{letters}…") }
}

/// The runs of letters and digits, and the single characters between them.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut from = 0;
    for (at, c) in text.char_indices() {
        if !c.is_alphanumeric() {
            words.extend([&text[from..at], &text[at..at + c.len_utf8()]].into_iter().filter(|word| !word.is_empty()));
            from = at + c.len_utf8();
        }
    }
    words.extend(Some(&text[from..]).filter(|word| !word.is_empty()));
    words
}

/// How many cells a text takes; ours has no wide characters.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column<'_>; 4] = [
        Column { name: "address", short: "addr", rank: 0, kind: Kind::Name(12) },
        Column { name: "connections", short: "conns", rank: 1, kind: Kind::Number },
        Column { name: "when", short: "when", rank: 3, kind: Kind::Whole },
        Column { name: "path", short: "path", rank: 2, kind: Kind::Name(6) },
    ];

    fn cells() -> Vec<Vec<String>> {
        vec![["[2001:db8:1:2::7]:443", "123456", "rto, 1.2 s ago", "blue-12"].map(String::from).to_vec()]
    }

    #[test]
    fn all_is_shown_where_there_is_room_and_columns_go_by_their_rank_where_there_is_not() {
        let shown = |room| {
            let fitted = fit(&COLUMNS, &cells(), room);
            let total: usize = fitted.columns.iter().map(|(_, width)| width + fitted.spacing).sum();
            assert!(total <= room + fitted.spacing, "{room}: {fitted:?}");
            assert_eq!(fitted.hidden, 4 - fitted.columns.len());
            fitted.columns.iter().map(|(index, _)| *index).collect::<Vec<_>>()
        };
        assert_eq!(shown(200), [0, 1, 2, 3]);
        assert_eq!(shown(56), [0, 1, 2, 3]);
        assert_eq!(shown(41), [0, 1, 2, 3], "names give way first");
        assert_eq!(shown(40), [0, 1, 3]);
        assert_eq!(shown(26), [0, 1, 3]);
        assert_eq!(shown(25), [0, 1]);
        assert_eq!(shown(18), [0]);
        (0..200).for_each(|room| drop(shown(room)));
        assert!(fit(&COLUMNS, &cells(), 40).short && !fit(&COLUMNS, &cells(), 60).short);
    }

    #[test]
    fn the_middle_of_names_and_addresses_goes_and_numbers_stay_whole() {
        for (text, room, short) in [
            ("[2001:db8:1:2::7]:443", 21, "[2001:db8:1:2::7]:443"),
            ("[2001:db8:1:2::7]:443", 20, "[2001:db8:1…::7]:443"),
            ("[2001:db8:1:2::7]:443", 12, "[2001:…]:443"),
            ("2001:db8:aaaa::/48", 12, "2001:…::/48"),
            ("blue-12", 6, "…-12"),
            ("blue-12", 4, "…-12"),
            ("1234567", 6, "…"),
            ("northern", 5, "nort…"),
            ("northern", 1, "…"),
            ("northern", 0, ""),
        ] {
            let ours = shorten(text, room);
            assert!(ours.chars().count() <= room, "{text} in {room}: {ours}");
            assert_eq!(ours, short, "{text} in {room}");
        }
    }

    #[test]
    fn parts_flow_over_lines_and_none_is_broken() {
        let parts = ["3 connections", "paths to 1 destination", "90 s old"].map(String::from);
        assert_eq!(flow(&parts, ", ", 100, 2), ["3 connections, paths to 1 destination, 90 s old"]);
        assert_eq!(flow(&parts, ", ", 40, 2), ["3 connections, paths to 1 destination", "90 s old"]);
        assert_eq!(flow(&parts, ", ", 40, 1), ["3 connections, paths to 1 destination, …"]);
        assert_eq!(flow(&parts, ", ", 16, 3), ["3 connections", "paths to 1 …", "90 s old"]);
        assert_eq!(flow(&parts, ", ", 0, 1), [""]);
    }
}
