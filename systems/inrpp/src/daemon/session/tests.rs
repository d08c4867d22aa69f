use proptest::{collection::vec, prelude::*};

use super::*;
use crate::daemon::message::{About, Neighbour};

const KEY: Option<Key> = Some(Key([3, 4]));
const PLAIN: Flags = Flags { partial: false, detoured: false, disturbed: false };

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn ends(key: Option<Key>) -> [Session; 2] {
    [Session::new("a", Some("b"), key, 11), Session::new("b", Some("a"), key, 22)]
}

/// Sends hellos to and fro, without loss, until nobody has to answer.
fn shake(now: Time, [a, b]: &mut [Session; 2]) {
    let about = About::default();
    let mut answer = b.handle_hello(now, &a.hello(&about)).unwrap().answer;
    for turn in 0..6 {
        if !answer {
            return;
        }
        let now = Time::from_nanos(now.as_nanos() + turn * 10_000_000);
        let (from, to) = if turn % 2 == 0 { (&mut *b, &mut *a) } else { (&mut *a, &mut *b) };
        answer = to.handle_hello(now, &from.hello(&about)).unwrap().answer;
    }
    panic!("they answer each other for ever");
}

fn connected(key: Option<Key>) -> [Session; 2] {
    let mut ends = ends(key);
    shake(at(0), &mut ends);
    assert!(ends.iter().all(|end| end.neighbour().is_some()));
    ends
}

fn sealed(from: &mut Session, packet: &[u8]) -> Vec<u8> {
    let mut shim = [0; Shim::LEN];
    assert!(from.seal(Kind::Data, PLAIN, None, &[packet], &mut shim));
    [&shim[..], packet].concat()
}

fn open(to: &mut Session, datagram: &[u8]) -> Result<(), Refused> {
    let (shim, packet) = Shim::read(datagram).ok_or(Refused::Malformed)?;
    to.open(&shim, packet)
}

#[test]
fn two_neighbours_come_to_a_session_in_three_hellos() {
    for key in [None, KEY] {
        let [mut a, mut b] = ends(key);
        let about = About { rate: 7, ..About::default() };
        let seen = b.handle_hello(at(0), &a.hello(&about)).unwrap();
        assert_eq!((seen.fresh, seen.began, seen.answer, seen.hello.about.rate), (false, false, true, 7));
        let seen = a.handle_hello(at(3), &b.hello(&about)).unwrap();
        assert_eq!((seen.fresh, seen.began, seen.answer), (true, true, true));
        let seen = b.handle_hello(at(10), &a.hello(&about)).unwrap();
        assert_eq!((seen.fresh, seen.began, seen.answer), (true, true, true));
        let seen = a.handle_hello(at(13), &b.hello(&about)).unwrap();
        assert_eq!((seen.fresh, seen.began, seen.answer, seen.advances), (true, false, false, true));
        assert_eq!([a.neighbour(), b.neighbour()], [Some(id_of("b")), Some(id_of("a"))]);
        let packet = sealed(&mut a, b"packet");
        assert_eq!([open(&mut b, &packet), open(&mut b, &packet)], [Ok(()), Err(Refused::Replayed)]);
        assert_eq!(open(&mut b, &sealed(&mut a, &[7; 1500])), Ok(()));
        assert_eq!(open(&mut a, &sealed(&mut b, b"")), Ok(()));
        assert_eq!(b.counts(), Counts { replayed: 1, ..Counts::default() });
    }
}

#[test]
fn what_a_router_has_sent_itself_is_refused() {
    for key in [None, KEY] {
        let [mut a, _] = connected(key);
        let hello = a.hello(&About::default());
        assert_eq!(a.handle_hello(at(50), &hello), Err(Refused::Reflected));
        let packet = sealed(&mut a, b"packet");
        let refused = if key.is_some() { Refused::Forged } else { Refused::NoSession };
        assert_eq!(open(&mut a, &packet), Err(refused));
    }
}

#[test]
fn other_keys_and_names_are_refused() {
    let [mut a, mut b] = connected(KEY);
    for key in [None, Some(Key([3, 5]))] {
        let mut other = Session::new("b", None, key, 33);
        assert_eq!(a.handle_hello(at(50), &other.hello(&About::default())), Err(Refused::Forged));
    }
    let mut other = Session::new("c", None, KEY, 33);
    assert_eq!(a.handle_hello(at(50), &other.hello(&About::default())), Err(Refused::Unexpected));
    assert_eq!(a.handle_hello(at(50), &[0x11; 30]), Err(Refused::Malformed));
    assert_eq!(open(&mut other, &sealed(&mut b, b"packet")), Err(Refused::NoSession));
    assert!(!other.seal(Kind::Data, PLAIN, None, &[b"packet"], &mut [0; Shim::LEN]));
    assert_eq!(a.counts(), Counts { forged: 2, unexpected: 1, malformed: 1, ..Counts::default() });
    assert_eq!(open(&mut a, &sealed(&mut b, b"packet")), Ok(()));
}

#[test]
fn what_was_in_flight_when_a_router_began_anew_is_refused() {
    for key in [None, KEY] {
        let mut ends = connected(key);
        for _ in 0..10_000 {
            sealed(&mut ends[0], b"packet");
        }
        let late = sealed(&mut ends[0], b"packet");
        ends[0] = Session::new("a", Some("b"), key, 33);
        shake(at(100), &mut ends);
        let refused = if key.is_some() { Refused::Forged } else { Refused::NoSession };
        let [a, b] = &mut ends;
        assert_eq!(open(b, &late), Err(refused));
        assert_eq!(open(b, &sealed(a, b"packet")), Ok(()));
    }
}

#[test]
fn a_hello_of_an_old_session_that_was_held_back_does_not_bring_it_again() {
    let mut ends = connected(KEY);
    let held = ends[0].hello(&About::default());
    ends[0] = Session::new("a", Some("b"), KEY, 33);
    shake(at(100), &mut ends);
    let seen = ends[1].handle_hello(at(200), &held).unwrap();
    assert_eq!((seen.fresh, seen.began, seen.hello.echo), (false, false, 22));
    // It is answered once, and the hello after that is for the session again.
    let answer = ends[1].hello(&About::default());
    assert!(!ends[0].handle_hello(at(200), &answer).unwrap().fresh);
    let next = ends[1].hello(&About::default());
    assert!(ends[0].handle_hello(at(201), &next).unwrap().fresh);
    let [a, b] = &mut ends;
    assert_eq!(open(b, &sealed(a, b"packet")), Ok(()));
}

#[test]
fn hellos_are_answered_once_in_ten_milliseconds() {
    let [_, mut b] = ends(KEY);
    let answers = (0..1000u64).filter(|number| {
        let hello = Session::new("a", None, KEY, 100 + number).hello(&About::default());
        b.handle_hello(Time::from_nanos(number * 100_000), &hello).unwrap().answer
    });
    assert_eq!(answers.count(), 10);
}

#[test]
fn a_hello_that_came_before_its_session_is_not_fresh_when_it_comes_again() {
    let about = About::default();
    let [mut a, mut old] = connected(KEY);
    let mut b = Session::new("b", Some("a"), KEY, 33);
    let early = a.hello(&about);
    a.handle_hello(at(40), &old.hello(&about)).unwrap();
    let later = a.hello(&about);
    b.handle_hello(at(60), &later).unwrap();
    let first = b.hello(&about);
    b.handle_hello(at(61), &early).unwrap();
    let second = b.hello(&about);
    assert!(!a.handle_hello(at(62), &second).unwrap().fresh);
    assert!(a.handle_hello(at(63), &first).unwrap().began);
    assert!(!a.handle_hello(at(64), &second).unwrap().fresh);
}

#[test]
fn a_hello_that_is_not_answered_at_once_is_echoed_by_the_next() {
    let [mut a, mut b] = ends(KEY);
    let about = About::default();
    assert!(b.handle_hello(at(0), &a.hello(&about)).unwrap().answer);
    b.hello(&about);
    let mut a = Session::new("a", Some("b"), KEY, 33);
    assert!(!b.handle_hello(at(9), &a.hello(&about)).unwrap().answer);
    assert!(a.handle_hello(at(100), &b.hello(&about)).unwrap().began);
}

#[test]
fn a_packet_does_not_come_again_when_the_low_bits_of_its_sequence_number_do() {
    let [mut a, b] = connected(KEY);
    let old = sealed(&mut a, b"packet");
    let mut saved = b.export();
    saved.neighbour.as_mut().unwrap().highest += 1 << 32;
    let mut b = Session::from_saved("b", Some("a"), KEY, &saved).unwrap();
    assert_eq!(open(&mut b, &old), Err(Refused::Forged));
    let mut saved = a.export();
    saved.sequence += (1 << 32) - (1 << 20);
    let mut a = Session::from_saved("a", Some("b"), KEY, &saved).unwrap();
    assert_eq!(open(&mut b, &sealed(&mut a, b"packet")), Ok(()));
}

#[test]
fn a_neighbour_that_receives_us_no_more_is_seen_by_its_echo() {
    let mut ends = connected(KEY);
    let mut advances = |reaches: bool, now: Time| {
        let ours = ends[0].hello(&About::default());
        if reaches {
            ends[1].handle_hello(now, &ours).unwrap();
        }
        let from_b = ends[1].hello(&About::default());
        let seen = ends[0].handle_hello(now, &from_b).unwrap();
        assert!(seen.fresh);
        seen.advances
    };
    assert!(advances(true, at(100)));
    assert!((2..200).all(|hello| !advances(false, at(100 * hello))));
    assert!(advances(true, at(20_000)) && advances(true, at(20_100)) && !advances(false, at(20_200)));
}

#[test]
fn neighbours_beyond_the_mtu_are_left_out() {
    for (mtu, count) in [(0, 30), (1500, 107), (9000, 255)] {
        let neighbours = vec![Neighbour { id: RouterId(1), rate: 2 }; 300];
        let name = "n".repeat(63);
        let mut a = Session::new(&name, None, KEY, 1);
        let hello = a.hello(&About { mtu, neighbours, ..About::default() });
        assert!(hello.len() + 64 <= usize::from(mtu.max(576)), "{mtu}");
        let [_, mut b] = [(); 2].map(|()| Session::new("b", None, KEY, 2));
        assert_eq!(b.handle_hello(at(0), &hello).unwrap().hello.about.neighbours.len(), count);
    }
}

#[test]
fn a_successor_goes_on_with_the_session() {
    for key in [None, KEY] {
        let [mut a, mut b] = connected(key);
        let (old, late) = (sealed(&mut b, b"packet"), sealed(&mut a, b"packet"));
        assert_eq!(open(&mut a, &old), Ok(()));
        let text = serde_json::to_string(&a.export()).unwrap();
        let saved: SavedSession = serde_json::from_str(&text).unwrap();
        let mut a = Session::from_saved("a", Some("b"), key, &saved).unwrap();
        assert_eq!(open(&mut a, &old), Err(Refused::Replayed));
        assert_eq!(open(&mut a, &sealed(&mut b, b"packet")), Ok(()));
        assert_eq!([open(&mut b, &late), open(&mut b, &sealed(&mut a, b"packet"))], [Ok(()); 2]);
        let seen = b.handle_hello(at(50), &a.hello(&About::default())).unwrap();
        assert!(seen.fresh && !seen.began);
        let seen = a.handle_hello(at(60), &b.hello(&About::default())).unwrap();
        assert!(seen.fresh && !seen.began);
        assert!(Session::from_saved("a", Some("c"), key, &saved).is_none());
        assert!(Session::from_saved("a", Some("b"), Some(Key([0; 2])), &saved).is_none());
        let full = SavedSession { sequence: u64::MAX, ..saved };
        assert!(Session::from_saved("a", Some("b"), key, &full).is_none());
    }
}

/// What happens between two routers and one who sees and sends all.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// This end sends a hello, which arrives now if it is not lost.
    Hello {
        from: usize,
        lost: bool,
    },
    /// A datagram of the past arrives, for the first time or not.
    Replay(prop::sample::Index),
    /// This end begins anew.
    Restart(usize),
    /// This end is taken over.
    Takeover(usize),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..2usize, prop::bool::weighted(0.4)).prop_map(|(from, lost)| Event::Hello { from, lost }),
        8 => any::<prop::sample::Index>().prop_map(Event::Replay),
        1 => (0..2usize).prop_map(Event::Restart),
        1 => (0..2usize).prop_map(Event::Takeover),
        4 => (0..30u64).prop_map(Event::Wait),
    ]
}

/// A hello that was sent.
struct Sent {
    to: usize,
    datagram: Vec<u8>,
    /// By which session of its sender, and to which ones of its receiver it came.
    by: u64,
    came_to: Vec<u64>,
}

/// Two routers that begin anew at times, whose sessions have the numbers 2, 4, 6… and 3, 5, 7….
struct World {
    key: Option<Key>,
    now: u64,
    ends: [Session; 2],
    numbers: [u64; 2],
    sent: Vec<Sent>,
    /// The latest session of the other end that each end has accepted since it began.
    accepted: [u64; 2],
}

impl World {
    fn new(key: Option<Key>) -> World {
        let numbers = [2, 3];
        let ends = [0, 1].map(|end| World::begun(end, key, numbers[end]));
        World { key, now: 0, ends, numbers, sent: Vec::new(), accepted: [0; 2] }
    }

    fn begun(end: usize, key: Option<Key>, number: u64) -> Session {
        Session::new(["a", "b"][end], Some(["b", "a"][end]), key, number)
    }

    /// Returns whether the hello has to be answered.
    fn hello(&mut self, from: usize, lost: bool) -> bool {
        let datagram = self.ends[from].hello(&About::default());
        self.sent.push(Sent { to: 1 - from, datagram, by: self.numbers[from], came_to: Vec::new() });
        !lost && self.arrive(self.sent.len() - 1)
    }

    fn arrive(&mut self, which: usize) -> bool {
        let sent = &mut self.sent[which];
        let (to, is_new) = (sent.to, !sent.came_to.contains(&self.numbers[sent.to]));
        let Ok(seen) = self.ends[to].handle_hello(at(self.now), &sent.datagram) else {
            return false;
        };
        sent.came_to.push(self.numbers[to]);
        if seen.fresh {
            assert!(is_new, "a replay is fresh");
            assert!(sent.by >= self.accepted[to], "an earlier session comes again");
            assert!(seen.began == (sent.by > self.accepted[to]), "a session begins once");
            self.accepted[to] = sent.by;
        }
        seen.answer
    }

    /// A hello arrives, and all answers.
    fn exchange(&mut self, from: usize) {
        let mut from = from;
        while self.hello(from, false) {
            from = 1 - from;
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Hello { from, lost } => _ = self.hello(from, lost),
            Event::Replay(index) if !self.sent.is_empty() => _ = self.arrive(index.index(self.sent.len())),
            Event::Replay(_) => {}
            Event::Restart(end) => {
                self.numbers[end] += 2;
                self.ends[end] = World::begun(end, self.key, self.numbers[end]);
                self.accepted[end] = 0;
            }
            Event::Takeover(end) => {
                let (saved, [name, other]) = (self.ends[end].export(), [["a", "b"], ["b", "a"]][end]);
                self.ends[end] = Session::from_saved(name, Some(other), self.key, &saved).unwrap();
            }
            Event::Wait(millis) => self.now += millis,
        }
    }
}

proptest! {
    #[test]
    fn hellos_lost_late_and_replayed_never_bring_an_old_session_and_always_a_new_one(
        events in vec(event(), 0..60), replays in vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let mut world = World::new(KEY);
        for event in events {
            world.handle(event);
        }
        // From now on the link carries all, and somebody replays.
        for round in 0..8 {
            for (replay, from) in replays.iter().zip([0, 1].into_iter().cycle()).skip(round).step_by(8) {
                world.handle(Event::Replay(*replay));
                world.now += 1;
                if round < 4 {
                    world.exchange(from);
                }
            }
            world.now += 100;
            world.exchange(round % 2);
        }
        prop_assert_eq!(world.accepted, [world.numbers[1], world.numbers[0]]);
        let [a, b] = &mut world.ends;
        prop_assert_eq!(open(b, &sealed(a, b"packet")), Ok(()));
        prop_assert_eq!(open(a, &sealed(b, b"packet")), Ok(()));
    }

    #[test]
    fn no_bit_that_is_covered_can_be_changed(
        packet in vec(any::<u8>(), 0..100), cuts in vec(any::<prop::sample::Index>(), 0..4), bit in 0..8u32,
        which in any::<prop::sample::Index>(), flags in any::<[bool; 3]>(), next in any::<u32>(), kind in 0..3usize,
    ) {
        let [mut a, mut b] = connected(KEY);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(packet.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(packet.len());
        let mut begin = 0;
        let parts: Vec<_> = cuts.iter().map(|cut| &packet[std::mem::replace(&mut begin, *cut)..*cut]).collect();
        let [partial, detoured, disturbed] = flags;
        let (mut shim, next) = ([0; Shim::LEN], (next != 0).then_some(RouterId(next)));
        let kind = [Kind::Data, Kind::Probe, Kind::Grant][kind];
        let flags = Flags { partial, detoured, disturbed };
        prop_assert!(a.seal(kind, flags, next, &parts, &mut shim));
        let datagram = [&shim[..], &packet].concat();
        let mut changed = datagram.clone();
        changed[which.index(datagram.len().min(Shim::LEN + COVERED))] ^= 1 << bit;
        prop_assert!(open(&mut b, &changed).is_err());
        prop_assert!(open(&mut b, &[&datagram[..], &[0]].concat()).is_err());
        prop_assert!(packet.is_empty() || open(&mut b, &datagram[..datagram.len() - 1]).is_err());
        prop_assert_eq!(open(&mut b, &datagram), Ok(()));
    }

    #[test]
    fn no_bit_of_a_hello_can_be_changed(which in any::<prop::sample::Index>(), bit in 0..8u32, rate in any::<u64>()) {
        let [mut a, mut b] = ends(KEY);
        let neighbours = vec![Neighbour { id: RouterId(5), rate }];
        let mut hello = a.hello(&About { rate, neighbours, ..About::default() });
        let which = which.index(hello.len());
        hello[which] ^= 1 << bit;
        prop_assert!(b.handle_hello(at(0), &hello).is_err());
        hello[which] ^= 1 << bit;
        prop_assert!(b.handle_hello(at(0), &hello).is_ok());
    }

    #[test]
    fn packets_lost_late_and_replayed_arrive_once(
        order in vec((0..5000usize, any::<bool>()), 1..300), is_open in any::<bool>(),
    ) {
        let [mut a, mut b] = connected(if is_open { None } else { KEY });
        let mut sent = Vec::new();
        let (mut came, mut highest) = (std::collections::BTreeSet::new(), 0);
        for (back, is_next) in order {
            for _ in 0..if is_next { 50 } else { 0 } {
                sent.push(sealed(&mut a, b"packet"));
            }
            let Some(which) = sent.len().checked_sub(1).map(|last| last.saturating_sub(back)) else { continue };
            let is_new = highest - which.min(highest) < 4096 && came.insert(which);
            highest = highest.max(which);
            prop_assert_eq!(open(&mut b, &sent[which]), if is_new { Ok(()) } else { Err(Refused::Replayed) });
        }
    }
}
