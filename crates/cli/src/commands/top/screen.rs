//! What `sidestep top` draws, and what keys do to it.

use std::{cmp::Reverse, time::Instant};

use ratatui::{
    Frame,
    crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Row, Table, TableState},
};

use crate::{
    args::Sort,
    commands::watch::{Connection, PathSeen, Seen},
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

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Go on.
    GoOn,
    /// End.
    Quit,
}

/// What keys do, in the last line.
const HELP: &str = "q quit  s sort  r reverse  space pause  ↑↓ PgUp PgDn scroll";
/// How wide each of [`Connection::COLUMNS`] is, and the order that it shows.
const WIDTHS: [(Constraint, Option<Sort>); Connection::COLUMNS.len()] = [
    (Constraint::Fill(3), None),
    (Constraint::Fill(3), Some(Sort::Remote)),
    (Constraint::Fill(2), None),
    (Constraint::Length(10), Some(Sort::Path)),
    (Constraint::Length(7), Some(Sort::Age)),
    (Constraint::Length(7), None),
    (Constraint::Length(7), None),
    (Constraint::Length(6), None),
    (Constraint::Length(8), Some(Sort::Signals)),
    (Constraint::Length(6), Some(Sort::Moves)),
    (Constraint::Length(24), Some(Sort::Last)),
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
        let paths = &seen.paths;
        // Paths have a third of the screen at most; the rest is for connections.
        let most = (frame.area().height / 3).max(2);
        let height = u16::try_from(paths.len() + 1).unwrap_or(u16::MAX).min(most);
        let areas = [Constraint::Length(2), Constraint::Length(height), Constraint::Min(2), Constraint::Length(1)];
        let [head, path_area, connection_area, foot] = Layout::vertical(areas).areas(frame.area());
        let [first, second] = Layout::vertical([Constraint::Length(1); 2]).areas(head);
        frame.render_widget(Line::from(seen.headline()), first);
        frame.render_widget(Line::from(totals(seen, self.rate)), second);
        draw_paths(frame, path_area, paths);
        let state = if self.paused { format!("{HELP}   PAUSED") } else { HELP.to_string() };
        frame.render_widget(Line::from(state).style(Modifier::DIM), foot);
        draw_connections(frame, connection_area, seen, self.sort, &mut self.table);
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

fn totals(seen: &Seen, rate: Option<f64>) -> String {
    let moved = seen.connections.iter().filter(|one| one.moves > 0).count();
    let signals: u64 = seen.connections.iter().map(|one| u64::from(one.signals)).sum();
    let all: u64 = seen.moves.values().sum();
    let reasons: Vec<_> =
        seen.moves.iter().filter(|(_, n)| **n > 0).map(|(reason, n)| format!("{reason} {n}")).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    let rate = rate.map(|rate| format!(", {rate:.1} a second")).unwrap_or_default();
    format!("{moved} moved, {signals} signals; {all} moves since the start{reasons}{rate}")
}

fn draw_paths(frame: &mut Frame<'_>, area: Rect, paths: &[PathSeen]) {
    let hidden = (paths.len() + 1).saturating_sub(area.height.into());
    let [first, others @ ..] = PathSeen::COLUMNS.map(String::from);
    let first = if hidden > 0 { format!("{first} (+{hidden} more)") } else { first };
    let widths = [44, 16, 12, 9, 8, 10, 7, 14].map(Constraint::Length);
    let header = Row::new([first].into_iter().chain(others)).style(Modifier::REVERSED);
    frame.render_widget(Table::new(paths.iter().map(|path| Row::new(path.cells())), widths).header(header), area);
}

fn draw_connections(frame: &mut Frame<'_>, area: Rect, seen: &Seen, sort: Sort, state: &mut TableState) {
    let title = |(name, (_, by)): (&'static str, (Constraint, Option<Sort>))| {
        let style = if by == Some(sort) { Modifier::BOLD | Modifier::UNDERLINED } else { Modifier::empty() };
        Line::from(name).style(Style::from(style))
    };
    // Only what fits is made: there may be thousands.
    let skip = state.offset();
    let rows = seen.connections.iter().skip(skip).take(area.height.into()).map(|one| Row::new(one.cells()));
    let header = Row::new(Connection::COLUMNS.into_iter().zip(WIDTHS).map(title)).style(Modifier::REVERSED);
    frame.render_widget(Table::new(rows, WIDTHS.map(|(width, _)| width)).header(header), area);
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use ratatui::{Terminal, backend::TestBackend};

    use super::*;
    use crate::commands::watch::Last;

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
            last_at_work_s: None,
            dry_run: false,
            controller: "away",
            paths_age_s: Some(90.0),
            destinations: vec!["fd02:0:9::/64".parse().unwrap()],
            left_alone: Vec::new(),
            mended: 0,
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
        assert_eq!(lines[1], "2 moved, 10 signals; 8 moves since the start (ecn 8), 2.5 a second");
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
        assert_eq!(lines[11], HELP);
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
        assert!(screen.is_paused() && drawn(&mut screen, 160, 12)[11].ends_with("PAUSED"));
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
        assert!(lines[2].starts_with("destination (+33 more)"), "{lines:#?}");
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
