use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{half::WindowUpdate, *};

const CLIENT: u32 = u32::MAX - 1_000;
const SERVER: u32 = 77;

fn flow(key: u64, reversed: bool) -> Flow {
    Flow { key, reversed }
}

fn options(scale: Option<u8>) -> SynOptions {
    SynOptions { scale, mss: Some(1_460), is_multipath: false, timestamps: true }
}

fn tcp(flags: u8, sequence: u32, acknowledgement: u32) -> TcpFields {
    TcpFields { sequence, acknowledgement, flags, window: 1_000, payload: 0 }
}

/// The handshake of the client, whose packets are not reversed, and the server.
fn open(table: &mut Connections, now: Time, key: u64, scales: [Option<u8>; 2]) -> Option<Seen> {
    table.note(now, flow(key, false), &tcp(SYN, CLIENT, 0), Some(&options(scales[0])))?;
    let answer = tcp(SYN | ACK, SERVER, CLIENT.wrapping_add(1));
    table.note(now, flow(key, true), &answer, Some(&options(scales[1])))?;
    table.note(now, flow(key, false), &tcp(ACK, CLIENT.wrapping_add(1), SERVER + 1), None)
}

fn half(table: &mut Connections, key: u64, reversed: bool) -> Half {
    let at = table.by_key(key).unwrap();
    *table.half(at, reversed).unwrap()
}

/// What passes in the test of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Syn,
    SynAck,
    Ack,
    Data,
    Reset,
    Sweep,
}

/// A connection of the reference: its state, when that was filed, and the number of that filing.
#[derive(Clone, Copy, Debug)]
struct Slow {
    state: State,
    used: Time,
    order: u64,
    /// What the client has sent: anything, a SYN, data; whether the server has answered the SYN, and the client that.
    sent: bool,
    syn: bool,
    data: bool,
    syn_ack: bool,
    opened: bool,
}

/// A table that is searched for the one to put out.
#[derive(Debug, Default)]
struct Reference {
    map: BTreeMap<u64, Slow>,
    order: u64,
    refused: u64,
}

impl Reference {
    fn expired(&self, now: Time, of: [(State, Span); 3]) -> Option<u64> {
        of.into_iter().find_map(|(state, span)| {
            let oldest = self.map.iter().filter(|(_, of)| of.state == state).min_by_key(|(_, of)| of.order);
            oldest.filter(|(_, of)| now.since(of.used) > span).map(|(key, _)| *key)
        })
    }

    fn note(&mut self, now: Time, max: usize, key: u64, event: Event) -> bool {
        let is_reset = matches!(event, Event::Reset);
        if !self.map.contains_key(&key) {
            if is_reset {
                return false;
            }
            if self.map.len() >= max {
                let Some(old) =
                    self.expired(now, [(State::Ended, ENDED), (State::HalfOpen, HALF_OPEN), (State::Open, SPARE)])
                else {
                    self.refused += 1;
                    return false;
                };
                self.map.remove(&old);
            }
            self.order += 1;
            let (state, used, order) = (State::HalfOpen, now, self.order);
            let new = Slow { state, used, order, sent: false, syn: false, data: false, syn_ack: false, opened: false };
            self.map.insert(key, new);
            self.push_out(max);
        }
        let of = self.map.get_mut(&key).unwrap();
        let (is_over, was_new) = (of.state == State::Ended || now.since(of.used) > SPARE, !of.data);
        match event {
            Event::Syn if !of.syn && (is_over || of.state == State::HalfOpen) => {
                (of.syn_ack, of.opened) = (of.syn_ack && of.state == State::HalfOpen, false);
                (of.sent, of.syn, of.data) = (true, true, false);
                self.settle(now, key, State::HalfOpen);
            }
            Event::SynAck if of.state != State::Ended => of.syn_ack = true,
            Event::Ack | Event::Data => {
                (of.sent, of.data, of.opened) = (true, of.data || event == Event::Data, of.opened || of.syn_ack);
                // After its RST it ends no more if its sender goes on.
                if of.state != State::Ended || of.data && was_new {
                    let state = if of.opened { State::Open } else { State::HalfOpen };
                    self.settle(now, key, state);
                }
            }
            // Believed if something of its sender has passed.
            Event::Reset if of.sent => self.settle(now, key, State::Ended),
            _ => {}
        }
        let of = self.map[&key];
        if of.state != State::Ended && now.since(of.used) >= GRAIN {
            self.file(now, key, of.state);
        }
        self.push_out(max);
        true
    }

    fn settle(&mut self, now: Time, key: u64, state: State) {
        if self.map[&key].state != state {
            self.file(now, key, state);
        }
    }

    fn file(&mut self, now: Time, key: u64, state: State) {
        self.order += 1;
        let of = self.map.get_mut(&key).unwrap();
        (of.state, of.used, of.order) = (state, now, self.order);
    }

    fn push_out(&mut self, max: usize) {
        let half_open = self.map.iter().filter(|(_, of)| of.state == State::HalfOpen);
        let oldest = half_open.clone().min_by_key(|(_, of)| of.order).map(|(key, _)| *key);
        if half_open.count() > (max / 4).max(1) {
            self.map.remove(&oldest.unwrap());
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Syn), 3 => Just(Event::SynAck), 3 => Just(Event::Ack), 2 => Just(Event::Data),
        1 => Just(Event::Reset), 1 => Just(Event::Sweep),
    ]
}

/// Lets an event pass through the table; returns whether the packet has found a place.
fn pass(table: &mut Connections, now: Time, key: u64, event: Event) -> bool {
    let (to_server, to_client) = (flow(key, false), flow(key, true));
    let acks = tcp(ACK, CLIENT.wrapping_add(1), SERVER + 1);
    match event {
        Event::Syn => table.note(now, to_server, &tcp(SYN, CLIENT, 0), Some(&options(Some(7)))),
        Event::SynAck => {
            table.note(now, to_client, &tcp(SYN | ACK, SERVER, CLIENT.wrapping_add(1)), Some(&options(Some(9))))
        }
        Event::Ack => table.note(now, to_server, &acks, None),
        Event::Data => table.note(now, to_server, &TcpFields { payload: 100, ..acks }, None),
        Event::Reset => table.note(now, to_server, &tcp(RST, CLIENT.wrapping_add(1), 0), None),
        Event::Sweep => {
            table.sweep(now);
            None
        }
    }
    .is_some()
}

proptest! {
    /// The table has the connections that the slow one has, in the same states, and never more than it may.
    #[test]
    fn the_table_has_what_the_slow_one_has(
        max in 1usize..9,
        events in proptest::collection::vec((0u64..12, event(), prop_oneof![4 => 0u64..1_200, 1 => 0u64..70_000]), 0..200),
    ) {
        let (mut table, mut slow, mut now) = (Connections::new(max), Reference::default(), Time::ZERO);
        for (key, event, pause) in events {
            now += Span::from_millis(pause);
            let found = pass(&mut table, now, key * 2, event);
            if let Event::Sweep = event {
                let over = [(State::Ended, ENDED), (State::HalfOpen, HALF_OPEN), (State::Open, IDLE)];
                while let Some(old) = slow.expired(now, over) {
                    slow.map.remove(&old);
                }
            } else {
                prop_assert_eq!(slow.note(now, max, key * 2, event), found, "{:?}", event);
            }
            let states: BTreeMap<u64, State> = table.entries.iter()
                .filter_map(|entry| entry.state.map(|state| (entry.connection.key, state))).collect();
            prop_assert_eq!(&states, &slow.map.iter().map(|(key, of)| (*key, of.state)).collect());
            prop_assert!(states.keys().all(|key| table.by_key(*key).is_some()) && table.by_key.len() == states.len());
            prop_assert!(table.len() <= max && table.half_open() <= (max / 4).max(1));
            prop_assert_eq!((table.counts().refused, table.len()), (slow.refused, slow.map.len()));
        }
    }

    /// Positions are the true ones over many wraps of the numbers, for segments and ACKs that are old, lost, or ahead.
    #[test]
    fn positions_are_true_over_wraps(
        first in any::<u32>(), reversed in any::<bool>(),
        steps in proptest::collection::vec((0u32..1 << 29, 0u32..1 << 28, 0u32..70_000), 1..100),
    ) {
        let mut table = Connections::new(4);
        let (mut end, mut acked) = (0u64, 0u64);
        table.note(Time::ZERO, flow(2, reversed), &tcp(SYN, first, 0), Some(&options(Some(14))));
        let answer = tcp(SYN | ACK, 5, first.wrapping_add(1));
        table.note(Time::ZERO, flow(2, !reversed), &answer, Some(&options(Some(14))));
        let number = |position: u64| first.wrapping_add(1).wrapping_add(position as u32);
        for (ahead, back, payload) in steps {
            for is_ahead in [true, false] {
                let start = if is_ahead { end + u64::from(ahead) } else { end.saturating_sub(u64::from(back)) };
                let data = TcpFields { payload, ..tcp(ACK, number(start), 6) };
                let seen = table.note(Time::ZERO, flow(2, reversed), &data, None).unwrap();
                prop_assert_eq!((seen.start, seen.end, seen.passed), (start, start + u64::from(payload), end));
                end = end.max(seen.end);
                let ack = end.saturating_sub(u64::from(back) / 3);
                let seen = table.note(Time::ZERO, flow(2, !reversed), &tcp(ACK, 6, number(ack)), None).unwrap();
                prop_assert_eq!(seen.is_newest_ack, ack >= acked);
                acked = acked.max(ack);
            }
            let half = half(&mut table, 2, reversed);
            prop_assert_eq!((half.end(), half.acked()), (end, acked));
            prop_assert_eq!(table.counts().strays, 0);
        }
    }

    /// A window is never above what the receiver has advertised, nor below a segment unless that is; and the router before
    /// reads from it the limit that was written, or what the receiver has said.
    #[test]
    fn windows_say_what_limits_are(
        scale in 0u8..15, unit in MIN_UNIT..9_000, acked in 0u64..1 << 40, window: u16, ahead in prop_oneof![0u32..4, 0u32..100_000],
    ) {
        let position = acked as u32;
        let half = Half { first: Some(9), scale: Some(scale), unit, end: acked, acked, ..Half::default() };
        let ack = TcpFields { window, ..tcp(ACK, 1, position.wrapping_add(10)) };
        let limit = half.acked_units() + ahead;
        let said = half.limit_of(&ack);
        let written = half.window_for(&ack, limit);
        let field = written.unwrap_or(window);
        prop_assert!(field <= window && written != Some(window));
        prop_assert!(field == window || u64::from(field) << scale >= u64::from(unit));
        let bytes = u64::from(field) << scale;
        let most = (u64::from(limit) * u64::from(unit)).saturating_sub(acked).max(u64::from(unit) + (1 << scale));
        prop_assert!(bytes <= most, "{} of {}", bytes, most);
        let read = half.limit_of(&TcpFields { window: field, ..ack });
        prop_assert!(read <= said);
        // A scale that is coarser than segments rounds limits down.
        let lost = (1u32 << scale) / unit;
        let least = half.data_end(acked + u64::from(unit)).min(said);
        prop_assert!(read <= limit.max(half.data_end(acked + u64::from(unit) + (1 << scale))));
        prop_assert!(read >= limit.min(said).saturating_sub(lost).max(least), "{} of {} and {}", read, limit, said);
        let mut half = half;
        half.note_ack(&ack);
        let acknowledgement = position.wrapping_add(10);
        prop_assert_eq!(half.update(limit), Some(WindowUpdate { acknowledgement, window: field }));
    }

    /// Whatever passes, nothing breaks, positions only grow, and what is exported can be imported.
    #[test]
    fn any_packets_pass(
        packets in proptest::collection::vec((
            0u64..3, any::<bool>(), any::<u8>(), any::<u32>(), any::<u32>(), any::<u16>(), 0u32..70_000,
            proptest::option::of((any::<Option<u8>>(), any::<Option<u16>>(), any::<bool>())), 0u64..100,
        ), 0..100),
        limit: u32,
    ) {
        let (mut table, mut now) = (Connections::new(2), Time::ZERO);
        for (key, reversed, flags, sequence, acknowledgement, window, payload, syn, pause) in packets {
            now += Span::from_secs(pause);
            let tcp = TcpFields { sequence, acknowledgement, flags, window, payload };
            let syn = syn.map(|(scale, mss, timestamps)| SynOptions { scale, mss, is_multipath: false, timestamps });
            let Some(seen) = table.note(now, flow(key * 2, reversed), &tcp, syn.as_ref()) else { continue };
            prop_assert!(seen.start <= seen.end);
            for reversed in [false, true] {
                let half = *table.half(seen.at, reversed).unwrap();
                prop_assert!(half.window_for(&tcp, limit).is_none_or(|window| window < tcp.window));
                half.limit_of(&tcp);
                half.update(limit);
                prop_assert!(half.acked_units() <= half.data_end(half.acked()));
            }
            table.sweep(now);
        }
        let rows: Vec<Row> = table.export().collect();
        let mut next = Connections::new(2);
        prop_assert!(rows.iter().all(|row| next.import(now, row)));
        prop_assert_eq!(next.export().collect::<Vec<_>>(), rows);
    }
}

#[test]
fn scales_hold_if_both_syns_have_one() {
    for (scales, found) in [
        ([Some(7), Some(9)], [Some(9), Some(7)]),
        ([Some(7), None], [Some(0); 2]),
        ([None, Some(9)], [Some(0); 2]),
        ([None, None], [Some(0); 2]),
        ([Some(200), Some(0)], [Some(0), Some(14)]),
    ] {
        let mut table = Connections::new(8);
        open(&mut table, Time::ZERO, 2, scales);
        let halves = [half(&mut table, 2, false), half(&mut table, 2, true)];
        assert_eq!(halves.map(|half| half.scale()), found, "{scales:?}");
        assert_eq!((halves.map(|half| half.unit()), table.counts().unscaled), ([1_448; 2], 0));
    }
}

#[test]
fn windows_of_a_syn_ack_are_not_scaled_and_those_without_scale_are_left_alone() {
    let mut table = Connections::new(8);
    open(&mut table, Time::ZERO, 2, [Some(7), Some(9)]);
    let data = half(&mut table, 2, false);
    let answer = TcpFields { window: 64_000, ..tcp(SYN | ACK, SERVER, CLIENT.wrapping_add(1)) };
    assert_eq!((data.limit_of(&answer), data.window_for(&answer, 10)), (45, Some(14_480)));
    let ack = TcpFields { flags: ACK, ..answer };
    assert_eq!((data.limit_of(&ack), data.window_for(&ack, 10)), (22_630, Some(28)));
    // Seen in the middle.
    table.note(Time::ZERO, flow(4, false), &TcpFields { payload: 100, ..tcp(ACK, 1_000, 2_000) }, None);
    table.note(Time::ZERO, flow(4, true), &tcp(ACK, 2_000, 1_100), None);
    let data = half(&mut table, 4, false);
    assert_eq!((data.end(), data.acked(), data.scale()), (100, 100, None));
    let ack = tcp(ACK, 2_000, 1_100);
    assert_eq!((data.limit_of(&ack), data.window_for(&ack, 1), data.update(1)), (u32::MAX, None, None));
    assert_eq!(table.counts().unscaled, 1);
}

#[test]
fn a_connection_ends_when_both_fins_are_acknowledged() {
    let mut table = Connections::new(8);
    open(&mut table, Time::ZERO, 2, [Some(7); 2]);
    let (client, server) = (CLIENT.wrapping_add(1), SERVER + 1);
    let data = TcpFields { payload: 500, ..tcp(ACK | FIN, client, server) };
    assert_eq!(table.note(Time::ZERO, flow(2, false), &data, None).unwrap().end, 500);
    table.note(Time::ZERO, flow(2, true), &tcp(ACK | FIN, server, client.wrapping_add(501)), None);
    let halves = [half(&mut table, 2, false), half(&mut table, 2, true)];
    assert_eq!(halves.map(|half| half.is_done()), [true, false]);
    assert_eq!((halves[0].acked(), halves[0].acked_units()), (500, 0));
    let last = table.note(Time::ZERO, flow(2, false), &tcp(ACK, client.wrapping_add(501), server + 1), None).unwrap();
    assert_eq!((last.end, half(&mut table, 2, true).is_done()), (500, true));
    table.sweep(Time::ZERO + Span::from_secs(1));
    assert_eq!(table.len(), 1, "for ACKs that come late");
    table.sweep(Time::ZERO + Span::from_millis(1_001));
    assert!(table.is_empty());
}

#[test]
fn ports_are_used_again_once_a_connection_is_over_or_its_end_agrees() {
    let mut table = Connections::new(8);
    open(&mut table, Time::ZERO, 2, [Some(7); 2]);
    let (syn, answer) = (tcp(SYN, 5, 0), tcp(SYN | ACK, 9, 6));
    let now = Time::ZERO + Span::from_secs(2);
    table.note(now, flow(2, false), &syn, Some(&options(Some(3))));
    assert_eq!(half(&mut table, 2, true).scale(), Some(7), "a guess does not change a connection that works");
    // A SYN-ACK to something else.
    table.note(now, flow(2, true), &tcp(SYN | ACK, 9, 7), Some(&options(Some(4))));
    assert_eq!((half(&mut table, 2, true).scale(), table.half_open()), (Some(7), 0));
    table.note(now, flow(2, true), &answer, Some(&options(Some(4))));
    assert_eq!([false, true].map(|of| half(&mut table, 2, of).scale()), [Some(4), Some(3)]);
    let seen = table.note(now, flow(2, false), &TcpFields { payload: 8, ..tcp(ACK, 6, 10) }, None).unwrap();
    assert_eq!((seen.start, seen.end, seen.begins), (0, 8, true));
    // Idle, and its own SYN sent again does nothing.
    let later = now + Span::from_secs(62);
    table.note(later, flow(2, false), &syn, Some(&options(Some(3))));
    assert_eq!((half(&mut table, 2, false).end(), table.half_open()), (8, 0));
    let later = later + Span::from_secs(62);
    table.note(later, flow(2, false), &tcp(SYN, 50, 0), Some(&options(Some(1))));
    assert_eq!((half(&mut table, 2, false).end(), table.half_open()), (0, 1));
}

#[test]
fn a_reset_that_is_not_believed_ends_nothing() {
    let mut table = Connections::new(8);
    open(&mut table, Time::ZERO, 2, [Some(7); 2]);
    table.note(Time::ZERO, flow(2, true), &tcp(RST, SERVER + (1 << 28), 0), None);
    assert!(!half(&mut table, 2, true).is_done());
    table.note(Time::ZERO, flow(2, true), &tcp(RST, SERVER + 1, 0), None);
    assert!(half(&mut table, 2, false).is_done() && half(&mut table, 2, true).is_done());
    let client = TcpFields { payload: 10, ..tcp(ACK, CLIENT.wrapping_add(1), SERVER + 1) };
    table.note(Time::ZERO, flow(2, false), &client, None);
    assert!(half(&mut table, 2, false).is_done(), "what was under way");
    table.note(Time::ZERO, flow(2, true), &TcpFields { payload: 10, ..tcp(ACK, SERVER + 1, 0) }, None);
    assert!(!half(&mut table, 2, false).is_done(), "it goes on");
    let unknown = table.note(Time::ZERO, flow(4, true), &tcp(RST | ACK, 0, 1), None);
    assert_eq!((unknown, table.len()), (None, 1));
}

#[test]
fn a_connection_that_was_elsewhere_is_followed_again() {
    let mut table = Connections::new(8);
    open(&mut table, Time::ZERO, 2, [Some(7); 2]);
    let far = CLIENT.wrapping_add(2 << 30);
    let data = |at: u32| TcpFields { payload: 10, ..tcp(ACK, far.wrapping_add(at), SERVER + 1) };
    let ends = [0, 10, 20, 30].map(|at| table.note(Time::ZERO, flow(2, false), &data(at), None).unwrap().end);
    assert_eq!(ends, [0, 0, (2 << 30) + 29, (2 << 30) + 39]);
    assert_eq!((table.counts().strays, half(&mut table, 2, false).scale()), (2, Some(7)));
}

#[test]
fn a_flood_takes_a_quarter_of_the_places_and_pushes_out_itself() {
    let mut table = Connections::new(100);
    let mut now = Time::ZERO;
    for key in 0..60 {
        open(&mut table, now, key * 2, [Some(7); 2]);
    }
    for key in 1_000..100_000 {
        now += Span::from_micros(100);
        // Their servers answer.
        pass(&mut table, now, key * 2, Event::Syn);
        pass(&mut table, now, key * 2, Event::SynAck);
        if key % 1_000 == 0 {
            (0..60).for_each(|key| assert!(pass(&mut table, now, key * 2, Event::Data)));
        }
    }
    assert_eq!((table.len(), table.half_open(), table.counts().refused), (85, 25, 0));
    open(&mut table, now, 500, [Some(7); 2]);
    assert_eq!(table.len() - table.half_open(), 61, "a handshake in the middle of it is completed");
    table.sweep(now + Span::from_secs(11));
    assert_eq!((table.len(), table.half_open()), (61, 0));
}

#[test]
fn a_full_table_refuses_until_one_has_been_idle_for_a_minute() {
    let mut table = Connections::new(4);
    let mut now = Time::ZERO;
    for key in 0..4 {
        assert!(open(&mut table, now, key * 2, [Some(7); 2]).is_some());
    }
    now += Span::from_secs(59);
    assert!(!pass(&mut table, now, 100, Event::Syn) && pass(&mut table, now, 0, Event::Data));
    now += Span::from_secs(2);
    assert!(pass(&mut table, now, 100, Event::Syn));
    assert_eq!((table.by_key(2), table.len(), table.counts().refused), (None, 4, 1));
    assert!(table.by_key(0).is_some());
}

#[test]
fn multipath_connections_are_counted_and_marked() {
    let mut table = Connections::new(4);
    let syn = SynOptions { is_multipath: true, ..options(Some(7)) };
    let seen = table.note(Time::ZERO, flow(2, false), &tcp(SYN, 1, 0), Some(&syn)).unwrap();
    assert_eq!((seen.is_multipath, table.counts().multipath), (true, 1));
    let seen = table.note(Time::ZERO, flow(2, true), &tcp(SYN | ACK, 1, 2), Some(&options(Some(7)))).unwrap();
    assert_eq!((seen.is_multipath, table.counts().multipath), (true, 1));
    assert_eq!(of_flow_number(flow_number(2, true)), flow(2, true));
}

#[test]
fn rows_that_no_router_writes_are_refused() {
    let mut table = Connections::new(4);
    open(&mut table, Time::ZERO, 2, [Some(7); 2]);
    let row = table.export().next().unwrap();
    let mut next = Connections::new(4);
    let broken = |change: fn(&mut Row)| {
        let mut row = row.clone();
        change(&mut row);
        row
    };
    for row in [
        broken(|row| row.key = 3),
        broken(|row| row.halves[0].scale = Some(15)),
        broken(|row| row.halves[1].unit = 0),
        broken(|row| row.halves[0].end = u64::MAX),
    ] {
        assert!(!next.import(Time::ZERO, &row), "{row:?}");
    }
    assert!(next.import(Time::ZERO, &row) && !next.import(Time::ZERO, &row));
}

/// Run by hand, with `--release --nocapture --ignored`.
#[test]
#[ignore = "measures"]
fn the_table_is_fast() {
    for count in [1_000u64, 100_000] {
        let mut table = Connections::new(1 << 20);
        let key = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !1;
        for at in 0..count {
            open(&mut table, Time::ZERO, key(at), [Some(7); 2]);
        }
        let begin = std::time::Instant::now();
        for step in 0..10_000_000 / count {
            let at = CLIENT.wrapping_add(1 + 100 * step as u32);
            for of in 0..count {
                let data = TcpFields { payload: 100, ..tcp(ACK, at, SERVER + 1) };
                std::hint::black_box(table.note(Time::ZERO, flow(key(of), false), &data, None));
            }
        }
        let nanos = begin.elapsed().as_nanos() / 10_000_000;
        println!("{count} connections: {nanos} ns a packet, {} bytes each", table.memory() as u64 / count);
    }
}
