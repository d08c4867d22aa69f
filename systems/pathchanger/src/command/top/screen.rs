//! What `sidestep top` draws, and what keys do to it.

use std::{cmp::Reverse, time::Instant};

use ratatui::{
    Frame,
    crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::{Line, Text},
    widgets::TableState,
};

use super::{
    super::{
        args::Sort,
        watch::{Connection, PathSeen, Seen},
    },
    fit::{Column, Kind, fit, flow},
};

/// The state of the screen.
pub struct Screen {
    seen: Option<Seen>,
    sort: Sort,
    reversed: bool,
    paused: bool,
    table: TableState,
    /// The time of the last look, and how many moves there were then.
    before: Option<(Instant, u64)>,
    /// Moves in a second, between the last two looks.
    rate: Option<f64>,
}

/// What must be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Go on.
    GoOn,
    /// End.
    Quit,
}

/// What keys do, in the last line.
const HELP: [&str; 5] = ["q quit", "s sort", "r reverse", "space pause", "↑↓ PgUp PgDn scroll"];
/// Most lines above the tables.
const HEAD: usize = 4;
/// The columns of paths: those of [`PathSeen::COLUMNS`], what they may lose, and in what order they go.
const PATHS: [Column<'static>; PathSeen::COLUMNS.len()] = [
    Column { name: "destination", short: "dest", rank: 5, kind: Kind::Name(16) },
    Column { name: "path", short: "path", rank: 0, kind: Kind::Name(12) },
    Column { name: "connections", short: "conns", rank: 1, kind: Kind::Number },
    Column { name: "Mbit/s", short: "Mbit/s", rank: 2, kind: Kind::Number },
    Column { name: "rtt ms", short: "rtt ms", rank: 3, kind: Kind::Number },
    Column { name: "lowest ms", short: "low ms", rank: 7, kind: Kind::Number },
    Column { name: "loss %", short: "loss %", rank: 4, kind: Kind::Number },
    Column { name: "their moves", short: "moves", rank: 6, kind: Kind::Number },
];
/// The columns of connections: those of [`Connection::COLUMNS`], likewise.
const CONNECTIONS: [Column<'static>; Connection::COLUMNS.len()] = [
    Column { name: "local", short: "local", rank: 9, kind: Kind::Name(21) },
    Column { name: "remote", short: "remote", rank: 0, kind: Kind::Name(21) },
    Column { name: "destination", short: "dest", rank: 10, kind: Kind::Name(16) },
    Column { name: "path", short: "path", rank: 1, kind: Kind::Name(12) },
    Column { name: "age", short: "age", rank: 8, kind: Kind::Number },
    Column { name: "Mbit/s", short: "Mbit/s", rank: 3, kind: Kind::Number },
    Column { name: "rtt ms", short: "rtt ms", rank: 5, kind: Kind::Number },
    Column { name: "loss %", short: "loss %", rank: 6, kind: Kind::Number },
    Column { name: "signals", short: "sigs", rank: 7, kind: Kind::Number },
    Column { name: "moves", short: "moves", rank: 2, kind: Kind::Number },
    Column { name: "last decision", short: "last", rank: 4, kind: Kind::Whole },
];
/// The order that each column of connections shows.
const SHOWS: [Option<Sort>; Connection::COLUMNS.len()] = [
    None,
    Some(Sort::Remote),
    None,
    Some(Sort::Path),
    Some(Sort::Age),
    None,
    None,
    None,
    Some(Sort::Signals),
    Some(Sort::Moves),
    Some(Sort::Last),
];
/// The order in which one key goes through them.
const SORTS: [Sort; 6] = [Sort::Moves, Sort::Signals, Sort::Last, Sort::Age, Sort::Path, Sort::Remote];

impl Screen {
    /// An empty screen.
    pub fn new(sort: Sort) -> Self {
        Screen {
            seen: None,
            sort,
            reversed: false,
            paused: false,
            table: TableState::default(),
            before: None,
            rate: None,
        }
    }

    /// Whether what is shown stays.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Shows what was seen at `now`; nothing if there is no agent.
    pub fn take(&mut self, seen: Option<Seen>, now: Instant) {
        let moves = seen.as_ref().map(|seen| seen.moves.values().sum::<u64>());
        self.rate = match (self.before, moves) {
            (Some((then, before)), Some(moves)) if now > then => {
                Some(moves.saturating_sub(before) as f64 / now.duration_since(then).as_secs_f64())
            }
            _ => None,
        };
        self.before = moves.map(|moves| (now, moves));
        self.seen = seen;
        self.arrange();
    }

    /// Does what a key asks for.
    pub fn key(&mut self, key: KeyEvent) -> Then {
        if key.kind == KeyEventKind::Release {
            return Then::GoOn;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Then::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Then::Quit,
            KeyCode::Char('s') => {
                let at = SORTS.iter().position(|sort| *sort == self.sort).unwrap_or(0);
                self.sort = SORTS.get(at + 1).copied().unwrap_or(Sort::Moves);
            }
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Up => self.scroll(-1),
            KeyCode::Down => self.scroll(1),
            KeyCode::PageUp => self.scroll(-10),
            KeyCode::PageDown => self.scroll(10),
            _ => {}
        }
        self.arrange();
        Then::GoOn
    }

    /// Draws it all.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let Some(seen) = &self.seen else {
            frame.render_widget(Line::from("no agent keeps its state here; waiting for one (q quits)"), frame.area());
            return;
        };
        let room = usize::from(frame.area().width);
        let mut head = flow(&seen.headline_parts(), ", ", room, HEAD - 1);
        head.extend(flow(&totals(seen, self.rate), ", ", room, HEAD - head.len()));
        // Paths have a third of the screen at most; the rest is for connections.
        let most = (frame.area().height / 3).max(2);
        let height = u16::try_from(seen.paths.len() + 1).unwrap_or(u16::MAX).min(most);
        let areas = [
            Constraint::Length(head.len() as u16),
            Constraint::Length(height),
            Constraint::Min(2),
            Constraint::Length(1),
        ];
        let [head_area, path_area, connection_area, foot] = Layout::vertical(areas).areas(frame.area());
        frame.render_widget(Text::from_iter(head), head_area);
        draw_paths(frame, path_area, &seen.paths);
        let hidden = draw_connections(frame, connection_area, seen, self.sort, self.table.offset());
        let more = (hidden > 0).then(|| format!("{hidden} more column{} if wider", if hidden == 1 { "" } else { "s" }));
        let [quit, keys @ ..] = HELP.map(String::from);
        let state = self.paused.then(|| "PAUSED".to_owned());
        let parts: Vec<String> = state.into_iter().chain([quit]).chain(more).chain(keys).collect();
        let parts = flow(&parts, "  ", room, 1);
        frame.render_widget(Text::from_iter(parts).style(Modifier::DIM), foot);
    }

    fn scroll(&mut self, rows: isize) {
        let last = self.seen.as_ref().map_or(0, |seen| seen.connections.len().saturating_sub(1));
        *self.table.offset_mut() = self.table.offset().saturating_add_signed(rows).min(last);
    }

    fn arrange(&mut self) {
        let Some(seen) = &mut self.seen else { return };
        let connections = &mut seen.connections;
        // A fixed order first, so that equal rows keep their places from look to look.
        connections.sort_by_key(|one| (one.remote, one.local));
        match self.sort {
            Sort::Moves => connections.sort_by_key(|one| Reverse(one.moves)),
            Sort::Signals => connections.sort_by_key(|one| Reverse(one.signals)),
            Sort::Last => connections.sort_by(|a, b| since_last(a).total_cmp(&since_last(b))),
            Sort::Age => connections.sort_by(|a, b| known_age(b).total_cmp(&known_age(a))),
            Sort::Path => connections.sort_by(|a, b| (a.destination, a.label()).cmp(&(b.destination, b.label()))),
            Sort::Remote => {}
        }
        if self.reversed {
            connections.reverse();
        }
        self.scroll(0);
    }
}

/// The age of a connection; those of unknown age come last.
fn known_age(one: &Connection) -> f64 {
    one.age_s.unwrap_or(f64::NEG_INFINITY)
}

fn since_last(one: &Connection) -> f64 {
    one.last.as_ref().map_or(f64::INFINITY, |last| last.age_s)
}

/// What happened to the connections, in parts.
fn totals(seen: &Seen, rate: Option<f64>) -> Vec<String> {
    let moved = seen.connections.iter().filter(|one| one.moves > 0).count();
    let signals: u64 = seen.connections.iter().map(|one| u64::from(one.signals)).sum();
    let all: u64 = seen.moves.values().sum();
    let reasons = seen.moves.iter().filter(|(_, n)| **n > 0).map(|(reason, n)| format!("{reason} {n}"));
    let mut parts =
        vec![format!("{moved} moved"), format!("{signals} signals"), format!("{all} moves since the start")];
    parts.extend(reasons);
    parts.extend(rate.map(|rate| format!("{rate:.1} moves a second")));
    parts
}

fn draw_paths(frame: &mut Frame<'_>, area: Rect, paths: &[PathSeen]) {
    let rows = usize::from(area.height.saturating_sub(1));
    let hidden = paths.len().saturating_sub(rows);
    let cells: Vec<Vec<String>> = paths.iter().take(rows).map(|path| path.cells().to_vec()).collect();
    let mut columns = PATHS;
    // The path's column is the last to go.
    let name = format!("path (+{hidden} more)");
    if hidden > 0 {
        (columns[1].name, columns[1].short) = (&name, &name);
    }
    let fitted = fit(&columns, &cells, area.width.into());
    frame.render_widget(fitted.table(&columns, &cells, |_| Style::new()), area);
}

/// Draws the connections from number `skip` on, and returns how many columns are left out.
fn draw_connections(frame: &mut Frame<'_>, area: Rect, seen: &Seen, sort: Sort, skip: usize) -> usize {
    let rows = usize::from(area.height.saturating_sub(1));
    // Only what fits is made: there may be thousands.
    let cells: Vec<Vec<String>> =
        seen.connections.iter().skip(skip).take(rows).map(|one| one.cells().to_vec()).collect();
    let shows = |index: usize| SHOWS[index] == Some(sort);
    let mut columns = CONNECTIONS;
    // What the rows are sorted by stays.
    columns.iter_mut().enumerate().filter(|(index, _)| shows(*index)).for_each(|(_, column)| column.rank = 0);
    let style = |index: usize| match shows(index) {
        true => Style::from(Modifier::BOLD | Modifier::UNDERLINED),
        false => Style::new(),
    };
    let fitted = fit(&columns, &cells, area.width.into());
    frame.render_widget(fitted.table(&columns, &cells, style), area);
    fitted.hidden
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use ratatui::{Terminal, backend::TestBackend};

    use super::*;
    use crate::command::watch::Last;

    fn connection(port: u16, path: &str, age_s: f64, moves: u32, last: Option<(&'static str, f64)>) -> Connection {
        Connection {
            local: format!("[fd02:0:1::1]:{port}").parse().unwrap(),
            remote: "[fd02:0:9::1]:443".parse().unwrap(),
            destination: Some("fd02:0:9::/64".parse().unwrap()),
            passive: false,
            path: path.into(),
            name: match path {
                "0000000a" => Some("blue".into()),
                "0000000b" => Some("green".into()),
                _ => None,
            },
            rate_mbps: Some(12.34),
            rtt_ms: Some(8.0),
            min_rtt_ms: None,
            loss: Some(0.012),
            retransmitted_bytes: Some(7),
            age_s: Some(age_s),
            signals: moves * 2,
            decisions: moves,
            moves,
            suppressed: moves,
            last: last.map(|(reason, age_s)| Last { reason, age_s }),
            last_signal: None,
        }
    }

    fn seen(connections: Vec<Connection>, ecn: u64) -> Seen {
        Seen {
            schema: 1,
            at_work: true,
            attached: Some(true),
            last_at_work_s: None,
            dry_run: false,
            controller: "away",
            paths_age_s: Some(90.0),
            destinations: vec!["fd02:0:9::/64".parse().unwrap()],
            left_alone: Vec::new(),
            mended: 0,
            overridden: Vec::new(),
            restored: Vec::new(),
            moves: BTreeMap::from([("ecn", ecn), ("rto", 0)]),
            stays: BTreeMap::new(),
            errors: BTreeMap::new(),
            notes: BTreeMap::new(),
            source_addresses: Vec::new(),
            paths: paths(&connections),
            learnt: Vec::new(),
            connections,
        }
    }

    /// A path for each that these connections are on.
    fn paths(connections: &[Connection]) -> Vec<PathSeen> {
        let mut names: Vec<_> = connections.iter().map(|one| (&one.path, &one.name)).collect();
        names.sort();
        names.dedup();
        let path = |(path, name): (&String, &Option<String>)| PathSeen {
            destination: Some("fd02:0:9::/64".parse().unwrap()),
            path: path.clone(),
            name: name.clone(),
            connections: connections.iter().filter(|one| one.path == *path).count() as u64,
            rate_mbps: Some(24.68),
            rtt_ms: Some(8.0),
            min_rtt_ms: Some(7.5),
            loss: Some(0.012),
            ..PathSeen::default()
        };
        names.into_iter().map(path).collect()
    }

    fn three() -> Vec<Connection> {
        vec![
            connection(1, "0000000a", 30.0, 1, Some(("ecn", 20.0))),
            connection(2, "0000000b", 50.0, 4, Some(("rto", 1.25))),
            connection(3, "0000000a", 40.0, 0, None),
        ]
    }

    /// The lines that are drawn on so small a terminal.
    fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_string();
        (0..height).map(line).collect()
    }

    fn press(screen: &mut Screen, code: KeyCode) -> Then {
        screen.key(KeyEvent::from(code))
    }

    /// The ports of the connections that are shown, from top to bottom.
    fn ports(screen: &mut Screen) -> String {
        let lines = drawn(screen, 160, 30);
        lines.iter().filter_map(|line| line.strip_prefix("[fd02:0:1::1]:")?.get(..1).map(str::to_owned)).collect()
    }

    #[test]
    fn totals_paths_and_connections_are_drawn() {
        let mut screen = Screen::new(Sort::Moves);
        let start = Instant::now();
        screen.take(Some(seen(three(), 3)), start);
        screen.take(Some(seen(three(), 8)), start + Duration::from_secs(2));
        let lines = drawn(&mut screen, 160, 12);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(lines[0], "3 connections, paths to 1 destination, 90 s old, controller away");
        assert_eq!(lines[1], "2 moved, 10 signals, 8 moves since the start, ecn 8, 2.5 moves a second");
        assert_eq!(words(&lines[2]), "destination path connections Mbit/s rtt ms lowest ms loss % their moves");
        assert_eq!(words(&lines[3]), "fd02:0:9::/64 blue 2 24.7 8.0 7.5 1.2 0");
        assert_eq!(words(&lines[4]), "fd02:0:9::/64 green 1 24.7 8.0 7.5 1.2 0");
        assert_eq!(
            words(&lines[5]),
            "local remote destination path age Mbit/s rtt ms loss % signals moves last decision"
        );
        let first = "[fd02:0:1::1]:2 [fd02:0:9::1]:443 fd02:0:9::/64 green 50 s 12.3 8.0 1.2 8 4 rto, 1.2 s ago";
        assert_eq!(words(&lines[6]), first);
        assert_eq!(words(&lines[8]), "[fd02:0:1::1]:3 [fd02:0:9::1]:443 fd02:0:9::/64 blue 40 s 12.3 8.0 1.2 0 0");
        assert_eq!(lines[11], HELP.join("  "));
    }

    /// Connections as a host with two providers has them: IPv4 and IPv6, long names and large numbers.
    fn mixed() -> Vec<Connection> {
        let mut all = three();
        all.push(Connection {
            local: "198.51.100.10:49152".parse().unwrap(),
            remote: "203.0.113.77:443".parse().unwrap(),
            destination: Some("0.0.0.0/0".parse().unwrap()),
            path: "0000000c".into(),
            name: Some("provider-green-backup-2".into()),
            rate_mbps: Some(1234.56),
            rtt_ms: Some(1640.25),
            signals: 123_456,
            ..connection(4, "0000000c", 86_400.0, 12_345, Some(("paths_changed", 119.0)))
        });
        all.push(Connection {
            local: "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535".parse().unwrap(),
            remote: "[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap(),
            destination: Some("2001:db8:1111:2222::/64".parse().unwrap()),
            loss: None,
            rate_mbps: None,
            age_s: None,
            ..connection(5, "0000000d", 1.0, 0, None)
        });
        all
    }

    fn at(width: u16) -> String {
        let mut screen = Screen::new(Sort::Moves);
        let start = Instant::now();
        screen.take(Some(seen(mixed(), 3)), start);
        screen.take(Some(seen(mixed(), 8)), start + Duration::from_secs(2));
        drawn(&mut screen, width, 20).join("\n")
    }

    #[test]
    fn the_screen_at_60_80_and_130_columns() {
        for width in [60, 80, 130] {
            let file = format!("{}/src/command/top/shots/{width}.txt", env!("CARGO_MANIFEST_DIR"));
            let shot = std::fs::read_to_string(&file).unwrap();
            assert_eq!(at(width), shot.trim_end(), "{file}\n{}", at(width));
        }
    }

    #[test]
    fn at_any_width_every_number_that_is_shown_is_whole_and_what_matters_most_is_there() {
        let whole: std::collections::BTreeSet<String> =
            at(400).split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect();
        for width in 30..=250 {
            let screen = at(width);
            assert!(screen.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}:\n{screen}");
            for word in
                screen.split(|c: char| !c.is_alphanumeric()).filter(|word| word.contains(|c: char| c.is_ascii_digit()))
            {
                // The note on columns that are hidden has a number of its own.
                assert!(whole.contains(word) || word.len() == 1, "{width}: `{word}` is cut\n{screen}");
            }
            for needed in ["]:443", "203.0.113.77:443", "]:65535", "green", "12345"] {
                assert!(screen.contains(needed), "{width}: no {needed}\n{screen}");
            }
            assert!(width < 80 || screen.contains("ago") && screen.contains("q quit"), "{width}:\n{screen}");
        }
    }

    #[test]
    fn the_column_that_the_rows_are_sorted_by_stays_on_a_narrow_screen() {
        for (sort, heading) in [(Sort::Age, "age"), (Sort::Signals, "sigs"), (Sort::Last, "last"), (Sort::Path, "path")]
        {
            let mut screen = Screen::new(sort);
            screen.take(Some(seen(mixed(), 0)), Instant::now());
            let lines = drawn(&mut screen, 50, 20);
            let header = lines.iter().find(|line| line.contains("remote")).unwrap();
            assert!(header.contains(heading), "{header}");
        }
    }

    #[test]
    fn keys_sort_reverse_pause_scroll_and_quit() {
        let mut screen = Screen::new(Sort::Moves);
        screen.take(Some(seen(three(), 0)), Instant::now());
        let mut orders = vec![ports(&mut screen)];
        for _ in 0..6 {
            press(&mut screen, KeyCode::Char('s'));
            orders.push(ports(&mut screen));
        }
        // Moves, signals, last decision, age, path, the other end, and moves again.
        assert_eq!(orders, ["213", "213", "213", "231", "132", "123", "213"]);
        press(&mut screen, KeyCode::Char('r'));
        assert_eq!(ports(&mut screen), "312");
        press(&mut screen, KeyCode::Down);
        assert_eq!(ports(&mut screen), "12");
        press(&mut screen, KeyCode::PageDown);
        assert_eq!(ports(&mut screen), "2", "the last one stays");
        press(&mut screen, KeyCode::PageUp);
        assert_eq!(ports(&mut screen), "312");
        press(&mut screen, KeyCode::Char(' '));
        assert!(screen.is_paused() && drawn(&mut screen, 160, 12)[11].starts_with("PAUSED  q quit"));
        assert_eq!(press(&mut screen, KeyCode::Char('x')), Then::GoOn);
        assert_eq!(press(&mut screen, KeyCode::Char('q')), Then::Quit);
        assert_eq!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Then::Quit);
    }

    #[test]
    fn many_paths_leave_room_and_no_size_is_too_small() {
        let mut screen = Screen::new(Sort::Path);
        let many = (0..40).map(|n| connection(n, &format!("{n:08x}"), 1.0, 0, None)).collect();
        screen.take(Some(seen(many, 0)), Instant::now());
        let lines = drawn(&mut screen, 160, 24);
        assert!(lines[2].contains(" path (+33 more) "), "{lines:#?}");
        assert!(lines[10].starts_with("local"), "{lines:#?}");
        for (width, height) in [(0, 0), (1, 1), (3, 2), (20, 4), (500, 200)] {
            drawn(&mut screen, width, height);
        }
        screen.take(None, Instant::now());
        assert!(drawn(&mut screen, 80, 5)[0].starts_with("no agent"));
        screen.take(Some(seen(three(), 9)), Instant::now());
        assert!(!drawn(&mut screen, 160, 12)[1].contains("a second"), "there is nothing to compare with");
    }
}
