//! The rates of links over a run, as events change them: what a share of a link is a share of.

use std::collections::{BTreeMap, VecDeque};

use sidestep_net::{ArcId, Rate, Span, Time};
use sidestep_scenario::{Scenario, conditions::Conditions};

/// The present rate of each arc, and how rates change from now on.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    rates: Vec<Rate>,
    changes: VecDeque<(Time, usize, Rate)>,
}

/// What the arcs can send in an interval, in bits.
pub(super) struct Rooms<'a> {
    rates: &'a [Rate],
    seconds: f64,
    /// Of those whose rate changes in it; `None`: it is not limited at some time.
    changed: BTreeMap<usize, Option<f64>>,
}

impl Rates {
    /// As they are when `scenario` begins. A link that is down keeps its rate: it could be used.
    pub(super) fn of(scenario: &Scenario) -> Rates {
        let topology = &scenario.topology;
        let first: Vec<Rate> = (0..topology.arc_count() as u32).map(|arc| topology.channel(ArcId(arc)).rate).collect();
        let (mut rates, mut changes) = (first.clone(), VecDeque::new());
        if scenario.events.is_empty() {
            return Rates { rates, changes };
        }
        // Impairments change no rate, so that these are the same under each seed.
        let mut conditions = Conditions::new(scenario, scenario.seed);
        while let Some(step) = conditions.next_at().and_then(|at| conditions.advance(at)) {
            for one in step.arcs {
                let Some(rate) = rates.get_mut(one.arc.index()).filter(|rate| **rate != one.channel.rate) else {
                    continue;
                };
                *rate = one.channel.rate;
                changes.push_back((Time::ZERO + step.at, one.arc.index(), *rate));
            }
        }
        Rates { rates: first, changes }
    }

    /// Goes on from `last` to `now`; returns what the arcs can send between.
    pub(super) fn advance(&mut self, last: Time, now: Time) -> Rooms<'_> {
        let mut parts: BTreeMap<usize, (Time, Option<f64>)> = BTreeMap::new();
        while let Some((at, arc, rate)) = self.next_before(now) {
            let (since, room) = parts.entry(arc).or_insert((last, Some(0.0)));
            *room = sum(*room, self.rates[arc], at.since(*since));
            (*since, self.rates[arc]) = (at, rate);
        }
        let changed = parts.into_iter().map(|(arc, (since, room))| (arc, sum(room, self.rates[arc], now.since(since))));
        Rooms { changed: changed.collect(), rates: &self.rates, seconds: now.since(last).as_secs_f64() }
    }

    /// Takes the next change before `end`.
    fn next_before(&mut self, end: Time) -> Option<(Time, usize, Rate)> {
        self.changes.front().is_some_and(|(at, ..)| *at < end).then(|| self.changes.pop_front()).flatten()
    }

    /// The lowest rate of these arcs, on the mean from `from` to `to` after the start, as far as one is limited; zero if none is.
    pub(super) fn lowest(mut self, arcs: &[usize], from: Span, to: Span) -> Rate {
        let lowest = |rates: &[Rate]| {
            let rates = arcs.iter().filter_map(|arc| rates.get(*arc)).filter(|rate| rate.bits_per_sec() > 0);
            rates.min().copied().unwrap_or_default()
        };
        let (from, to) = (Time::ZERO + from, Time::ZERO + to);
        let (mut since, mut now) = (from, lowest(&self.rates));
        let (mut bits, mut seconds, mut same) = (0.0, 0.0, true);
        while let Some((at, arc, rate)) = self.next_before(to) {
            self.rates[arc] = rate;
            let (next, at) = (lowest(&self.rates), at.max(from));
            if next == now {
                continue;
            }
            if now != Rate::default() {
                bits += now.bits_per_sec() as f64 * at.since(since).as_secs_f64();
                seconds += at.since(since).as_secs_f64();
            }
            same &= at == from;
            (since, now) = (at, next);
        }
        if same {
            return now;
        }
        if now != Rate::default() {
            bits += now.bits_per_sec() as f64 * to.since(since).as_secs_f64();
            seconds += to.since(since).as_secs_f64();
        }
        if seconds > 0.0 { Rate::from_bits_per_sec((bits / seconds).round() as u64) } else { Rate::default() }
    }
}

impl Rooms<'_> {
    /// What an arc can send; `None` where that is not limited.
    pub(super) fn of(&self, arc: usize) -> Option<f64> {
        let whole = || self.rates.get(arc).map(|rate| rate.bits_per_sec() as f64 * self.seconds);
        let room = self.changed.get(&arc).copied().unwrap_or_else(whole);
        room.filter(|room| *room > 0.0)
    }
}

/// A room, and what `rate` adds in `span`; `None` where either is not limited.
fn sum(room: Option<f64>, rate: Rate, span: Span) -> Option<f64> {
    let more = rate.bits_per_sec() as f64 * span.as_secs_f64();
    room.filter(|_| more > 0.0 || span == Span::ZERO).map(|room| room + more)
}

#[cfg(test)]
mod tests {
    use sidestep_scenario::builder::{Part, ScenarioBuilder, down, part};

    use super::*;

    /// Of 10 Mbit/s from `A` over `m1` to `B`, with these events.
    fn rates<const N: usize>(events: [Part; N]) -> (Rates, [usize; 2]) {
        let network = ScenarioBuilder::new("10 s").set("warmup", "2 s").parallel_paths(2).network("hops", 2);
        let scenario = events.into_iter().fold(network.network("rate", "10 Mbit/s"), ScenarioBuilder::event).build();
        let arc = |name: &str| scenario.topology.find_link(name).unwrap().arc(sidestep_net::Direction::AToB).index();
        (Rates::of(&scenario), [arc("A-m1"), arc("m1-B")])
    }

    fn rate(at: &str, rate: &str, link: &str) -> Part {
        part([("at", at), ("action", "rate"), ("rate", rate)]).link(link)
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn a_room_is_what_each_rate_adds_while_it_holds() {
        let (mut rates, [first, second]) =
            rates([rate("1 s", "2 Mbit/s", "A-m1"), rate("1.5 s", "4 Mbit/s", "A-m1"), rate("4 s", "0", "A-m1")]);
        let mut room = |from, to| {
            let rooms = rates.advance(at(from), at(to));
            [first, second].map(|arc| rooms.of(arc))
        };
        assert_eq!(room(0, 1), [Some(10e6), Some(10e6)]);
        assert_eq!(room(1, 3), [Some(1e6 + 6e6), Some(20e6)]);
        assert_eq!(room(3, 4), [Some(4e6), Some(10e6)]);
        assert_eq!(room(4, 6), [None, Some(20e6)], "not limited any more");
    }

    #[test]
    fn the_lowest_rate_is_a_mean_over_the_measured_part_and_an_outage_leaves_it() {
        let lowest = |events: Vec<Part>| {
            let network = ScenarioBuilder::new("10 s").set("warmup", "2 s").parallel_paths(2).network("hops", 2);
            let scenario =
                events.into_iter().fold(network.network("rate", "10 Mbit/s"), ScenarioBuilder::event).build();
            let paths = crate::reported_paths(&scenario);
            paths.iter().map(|(_, rate)| rate.as_mbits()).collect::<Vec<_>>()
        };
        assert_eq!(lowest(vec![]), [10.0, 10.0]);
        assert_eq!(lowest(vec![rate("1 s", "2 Mbit/s", "m1-B"), down("5 s").link("A-m1")]), [2.0, 10.0]);
        assert_eq!(lowest(vec![rate("4 s", "2 Mbit/s", "m1-B")]), [2.5 + 1.5, 10.0]);
        // It is the other link's while that is lower.
        assert_eq!(lowest(vec![rate("4 s", "90 Mbit/s", "m1-B"), rate("6 s", "4 Mbit/s", "A-m1")]), [7.0, 10.0]);
    }
}
