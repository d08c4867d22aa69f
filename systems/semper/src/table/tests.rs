use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sidestep_net::{Span, Time};

use super::*;

/// Paths 0..n, those alive that are in the set.
struct Paths {
    n: u32,
    live: u32,
}

impl Choices for Paths {
    fn by_hash(&self, hash: u32) -> Option<u32> {
        (hash..hash + self.n).map(|path| path % self.n).find(|path| self.is_live(*path))
    }

    fn after(&self, path: u32) -> Option<u32> {
        self.by_hash(path + 1)
    }

    fn is_live(&self, path: u32) -> bool {
        path < self.n && self.live >> path & 1 == 1
    }
}

const FOUR: Paths = Paths { n: 4, live: 0b1111 };
const CONFIG: Config = Config { capacity: 1_000, idle: Span::from_secs(60), linger: Span::from_secs(2) };

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

fn table() -> Table<u32, u32> {
    Table::new(CONFIG)
}

#[test]
fn a_host_with_as_many_subflows_as_paths_uses_each_path_once() {
    let mut table = table();
    for host in 0..10 {
        let open = |subflow: u32| {
            // Only the first one's hash matters.
            let hash = if subflow == 0 { host * 7 } else { 0 };
            table.handle_outbound(at(0), host * 4 + subflow, host, hash, Marks::SYN, &FOUR).unwrap()
        };
        let taken: Vec<u32> = (0..4).map(open).collect();
        assert_eq!(taken, (0..4).map(|turn| (host * 7 + turn) % 4).collect::<Vec<_>>());
    }
}

#[test]
fn both_edges_use_one_path_for_a_subflow_though_their_turns_differ() {
    let (mut near, mut far) = (table(), table());
    for subflow in 0..100 {
        let host = subflow % 7;
        let there = near.handle_outbound(at(1), subflow, host, subflow * 13, Marks::SYN, &FOUR).unwrap();
        far.handle_inbound(at(1), subflow, there, Marks::SYN);
        let back = far.handle_outbound(at(1), subflow, 1_000, subflow * 13, Marks::NONE, &FOUR).unwrap();
        assert_eq!(there, back);
        near.handle_inbound(at(1), subflow, back, Marks::NONE);
        assert_eq!(near.handle_outbound(at(2), subflow, host, subflow * 13, Marks::NONE, &FOUR), Some(there));
    }
    assert_eq!((near.counters().assigned, far.counters().learnt), (100, 100));
}

#[test]
fn a_full_table_falls_back_to_the_hash_and_keeps_every_live_subflow() {
    let mut table = Table::new(Config { capacity: 3, ..CONFIG });
    let mut open = |subflow: u32| table.handle_outbound(at(0), subflow, 1, 2, Marks::SYN, &FOUR);
    assert_eq!([0, 1, 2].map(&mut open), [Some(2), Some(3), Some(0)]);
    assert_eq!([3, 4, 5].map(&mut open), [Some(2); 3], "the hash's path");
    assert_eq!([0, 1, 2].map(&mut open), [Some(2), Some(3), Some(0)], "those of before");
    table.handle_inbound(at(0), 9, 1, Marks::SYN);
    assert_eq!((table.len(), table.counters().overflowed), (3, 4));
    // Room comes with the end of one only.
    table.handle_outbound(at(1), 1, 1, 2, Marks::RST, &FOUR);
    table.handle_timeout(at(3));
    assert_eq!(table.handle_outbound(at(3), 3, 1, 2, Marks::NONE, &FOUR), Some(1), "in turn");
}

#[test]
fn entries_end_after_both_fins_after_a_rst_and_when_nothing_is_seen() {
    let mut table = table();
    for subflow in 0..4 {
        table.handle_outbound(at(0), subflow, subflow, 0, Marks::SYN, &FOUR);
    }
    table.handle_outbound(at(10), 0, 0, 0, Marks::FIN, &FOUR);
    table.handle_outbound(at(10), 1, 1, 0, Marks::FIN, &FOUR);
    table.handle_inbound(at(11), 1, 0, Marks::FIN);
    table.handle_inbound(at(10), 2, 0, Marks::RST);
    let mut left = |now| {
        table.handle_timeout(at(now));
        table.len()
    };
    assert_eq!([11, 12, 13, 59, 60, 69, 70].map(&mut left), [4, 3, 2, 2, 1, 1, 0]);
    let Counters { idle, ended, .. } = table.counters();
    assert_eq!((idle, ended), (2, 2));
    assert_eq!(table.poll_timeout(), None);
    // The hosts are forgotten, too: the next subflow is a first one.
    assert_eq!(table.handle_outbound(at(80), 9, 2, 3, Marks::SYN, &FOUR), Some(3));
}

#[test]
fn a_subflow_that_takes_the_ports_of_an_ended_one_is_a_new_one() {
    let mut table = table();
    let mut outbound = |now, marks| table.handle_outbound(at(now), 1, 1, 1, marks, &FOUR);
    outbound(0, Marks::SYN);
    outbound(1, Marks::RST);
    assert_eq!(outbound(1, Marks::NONE), Some(1), "late packets keep its path");
    outbound(2, Marks::SYN);
    table.handle_timeout(at(61));
    assert_eq!(table.len(), 1, "the first one's notices do not end the second");
    table.handle_timeout(at(62));
    assert!(table.is_empty());
}

#[test]
fn subflows_leave_a_dead_path_in_turn_and_return_when_it_lives_again() {
    let (mut near, mut far) = (table(), table());
    for subflow in 0..8 {
        let path = near.handle_outbound(at(0), subflow, 1, 0, Marks::SYN, &FOUR).unwrap();
        far.handle_inbound(at(0), subflow, path, Marks::SYN);
    }
    let without_2 = Paths { n: 4, live: 0b1011 };
    let mut round = |now: u64, paths: &Paths| -> Vec<u32> {
        let one = |subflow: u32| {
            let path = near.handle_outbound(at(now), subflow, 1, 0, Marks::NONE, paths).unwrap();
            far.handle_inbound(at(now), subflow, path, Marks::NONE);
            assert_eq!(far.handle_outbound(at(now), subflow, 1_000, 0, Marks::NONE, paths), Some(path));
            path
        };
        (0..8).map(one).collect()
    };
    assert_eq!(round(1, &FOUR), [0, 1, 2, 3, 0, 1, 2, 3]);
    // The last turn was path 3's.
    assert_eq!(round(2, &without_2), [0, 1, 0, 3, 0, 1, 1, 3]);
    assert_eq!(round(3, &without_2), [0, 1, 0, 3, 0, 1, 1, 3]);
    assert_eq!(round(4, &FOUR), [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn ports_that_are_used_again_and_again_leave_nothing_behind() {
    let mut table = table();
    for second in 0..1_000 {
        table.handle_timeout(at(second));
        table.handle_outbound(at(second), 1, 1, 1, Marks::SYN, &FOUR);
        table.handle_outbound(at(second), 1, 1, 1, Marks::RST, &FOUR);
        // A notice of each of the last minute's, and one of its end.
        assert!(table.len() == 1 && table.agenda.len() < 100, "{}", table.agenda.len());
    }
}

proptest! {
    /// Against a list that is searched from end to end.
    #[test]
    fn the_table_does_what_a_list_does(
        steps in prop::collection::vec((0..12_u32, 0..3_u32, any::<u8>(), 0..20_u64, 0..6_u8), 1..300),
        capacity in 1..10_usize,
    ) {
        let config = Config { capacity, idle: Span::from_secs(30), linger: Span::from_secs(2) };
        let mut table = Table::new(config);
        let mut list: Vec<Listed> = Vec::new();
        let mut turns: BTreeMap<u32, u32> = BTreeMap::new();
        let mut now = 0;
        for (key, host, hash, wait, kind) in steps {
            now += wait;
            table.handle_timeout(at(now));
            list.retain(|one| one.over.map_or(one.seen + 30, |over| over + 2) > now);
            let hosts: BTreeSet<u32> = list.iter().filter_map(|one| one.host).collect();
            turns.retain(|host, _| hosts.contains(host));
            prop_assert_eq!((table.len(), table.hosts.len()), (list.len(), turns.len()));

            let (outbound, hash) = (kind % 2 == 0, u32::from(hash));
            let marks = [Marks::SYN, Marks::NONE, Marks::FIN, Marks::RST][usize::from(hash as u8 % 4)];
            if marks.syn {
                list.retain(|one| one.key != key || one.over.is_none());
                let hosts: BTreeSet<u32> = list.iter().filter_map(|one| one.host).collect();
                turns.retain(|host, _| hosts.contains(host));
            }
            let full = list.len() >= capacity;
            let known = list.iter_mut().find(|one| one.key == key);
            let expected = match known {
                Some(one) => {
                    if !outbound && one.host.is_none() {
                        one.path = hash % 4;
                    }
                    one.note(now, marks, outbound);
                    one.path
                }
                None if full => hash % 4,
                None => {
                    let path = match turns.get(&host) {
                        Some(last) if outbound => (last + 1) % 4,
                        _ => hash % 4,
                    };
                    if outbound {
                        turns.insert(host, path);
                    }
                    let host = outbound.then_some(host);
                    let mut one = Listed { key, host, path, seen: now, over: None, fins: [false; 2] };
                    one.note(now, marks, outbound);
                    list.push(one);
                    path
                }
            };
            if outbound {
                prop_assert_eq!(table.handle_outbound(at(now), key, host, hash, marks, &FOUR), Some(expected));
            } else {
                table.handle_inbound(at(now), key, hash % 4, marks);
            }
            prop_assert!(table.len() <= capacity);
        }
    }
}

/// A subflow as the slow reference knows it.
struct Listed {
    key: u32,
    host: Option<u32>,
    path: u32,
    seen: u64,
    over: Option<u64>,
    fins: [bool; 2],
}

impl Listed {
    fn note(&mut self, now: u64, marks: Marks, outbound: bool) {
        self.seen = now;
        self.fins[usize::from(outbound)] |= marks.fin;
        if self.over.is_none() && (marks.rst || self.fins == [true; 2]) {
            self.over = Some(now);
        }
    }
}
