//! Impairments: links that are bad at random times.

use rand_core::SeedableRng;
use rand_pcg::Pcg32;
use serde::{Deserialize, Serialize};
use sidestep_net::{LinkId, Ratio, Span};

use super::EventDirection;
use crate::workload;

/// A random process on links: good and bad periods in turn, different for each seed and the same for each system.
///
/// Each link has a process of its own. Both directions of a link are bad at the same time, as far as they are impaired;
/// two impairments, one for each direction, are independent.
#[derive(Clone, Debug, PartialEq)]
pub struct Impairment {
    /// The impaired links.
    pub links: Vec<LinkId>,
    /// The impaired directions.
    pub direction: EventDirection,
    /// Mean length of a good period.
    pub good: Span,
    /// Mean length of a bad period.
    pub bad: Span,
    /// How the lengths vary.
    pub distribution: Periods,
    /// What a bad period does.
    pub effect: Effect,
    /// When the first good period begins.
    pub start: Span,
    /// When the process ends, and the link is good; `None`: with the run.
    pub stop: Option<Span>,
}

/// How the lengths of periods vary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Periods {
    /// Lengths are exponential, each independent of all others.
    #[default]
    Exponential,
    /// Each period has its mean length.
    Fixed,
}

/// What an impairment does to a link in a bad period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The link swallows every packet that arrives, and routers do not notice.
    Outage,
    /// The link loses packets at random with this probability.
    Loss(Ratio),
}

/// A change between a good and a bad period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Time since the start of the run.
    pub at: Span,
    /// Whether a bad period begins; else a good one.
    pub bad: bool,
}

/// Streams of random numbers of impairments count from here, beyond those of [flows](super::FLOW_STREAMS).
const IMPAIRMENT_STREAMS: u64 = 1 << 41;

impl Impairment {
    /// The changes of one of its links in the order of time, from a bad period's begin to a good one's in turn.
    ///
    /// They follow from `number` (the impairment's position in the scenario), the link and the run's seed alone. None
    /// is at or after the end of the run, `duration`; at `stop` a bad period ends.
    pub fn transitions(
        &self,
        number: usize,
        link: LinkId,
        seed: u64,
        duration: Span,
    ) -> impl Iterator<Item = Transition> + use<> {
        // Link numbers have 16 bits.
        let stream = IMPAIRMENT_STREAMS + ((number as u64) << 16) + u64::from(link.0);
        // An odd constant spreads neighbouring streams over the seed space (Knuth's multiplicative hash).
        let mut random = Pcg32::seed_from_u64(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (good, bad, distribution) = (self.good, self.bad, self.distribution);
        let stop = self.stop.map_or(duration, |stop| stop.min(duration));
        let mut begin = Transition { at: self.start, bad: false };
        std::iter::from_fn(move || {
            if begin.at >= stop {
                return None;
            }
            let mean = if begin.bad { bad } else { good };
            let length = match distribution {
                Periods::Exponential => workload::exponential(mean, &mut random),
                Periods::Fixed => mean,
            };
            let next = Transition { at: begin.at + length, bad: !begin.bad };
            let was_bad = std::mem::replace(&mut begin, next).bad;
            match next.at < stop {
                true => Some(next),
                false => Some(Transition { at: stop, bad: false }).filter(|end| was_bad && end.at < duration),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn impairment(good: Span, bad: Span) -> Impairment {
        Impairment {
            links: vec![LinkId(0)],
            direction: EventDirection::Both,
            good,
            bad,
            distribution: Periods::Exponential,
            effect: Effect::Outage,
            start: Span::ZERO,
            stop: None,
        }
    }

    /// The time that a link is bad.
    fn bad_time(transitions: &[Transition], duration: Span) -> Span {
        let ends = transitions.iter().skip(1).map(|next| next.at).chain([duration]);
        transitions.iter().zip(ends).filter(|(one, _)| one.bad).fold(Span::ZERO, |sum, (one, end)| sum + (end - one.at))
    }

    #[test]
    fn a_link_is_bad_for_its_share_of_the_time_in_periods_of_their_mean() {
        let (good, bad) = (Span::from_secs(10), Span::from_millis(200));
        let duration = Span::from_secs(1_000_000);
        let all: Vec<Transition> = impairment(good, bad).transitions(3, LinkId(7), 1, duration).collect();
        let bad_time = bad_time(&all, duration).as_secs_f64();
        let share = 0.2 / 10.2;
        assert!((bad_time / 1e6 / share - 1.0).abs() < 0.02, "{bad_time} s");
        let periods = all.iter().filter(|one| one.bad).count() as f64;
        assert!(
            (bad_time / periods / 0.2 - 1.0).abs() < 0.02 && (1e6 / periods / 10.2 - 1.0).abs() < 0.02,
            "{periods}"
        );
        // A share of e^-2 of exponential periods is longer than twice the mean.
        let long = all.windows(2).filter(|two| !two[0].bad && two[1].at - two[0].at > Span::from_secs(20)).count();
        assert!((long as f64 / periods - 0.1353).abs() < 0.01, "{long} of {periods}");
    }

    #[test]
    fn fixed_periods_are_as_long_as_they_are_set_within_start_and_stop() {
        let fixed = Impairment {
            distribution: Periods::Fixed,
            start: Span::from_secs(1),
            stop: Some(Span::from_millis(5_500)),
            ..impairment(Span::from_secs(2), Span::from_secs(1))
        };
        let all: Vec<_> = fixed.transitions(0, LinkId(0), 1, Span::from_secs(60)).collect();
        let at = |millis, bad| Transition { at: Span::from_millis(millis), bad };
        assert_eq!(all, [at(3_000, true), at(4_000, false)]);
        let cut = Impairment { stop: Some(Span::from_millis(3_500)), ..fixed };
        let all: Vec<_> = cut.transitions(0, LinkId(0), 1, Span::from_secs(60)).collect();
        assert_eq!(all, [at(3_000, true), at(3_500, false)]);
    }

    #[test]
    fn links_impairments_and_seeds_are_independent_of_each_other() {
        let duration = Span::from_secs(10_000);
        let one = impairment(Span::from_secs(1), Span::from_secs(1));
        let is_bad = |number, link, seed| -> Vec<bool> {
            let all: Vec<_> = one.transitions(number, LinkId(link), seed, duration).collect();
            let at = |second| all.iter().rev().find(|change| change.at <= Span::from_secs(second));
            (0..10_000).step_by(5).map(|second| at(second).is_some_and(|change| change.bad)).collect()
        };
        let first = is_bad(0, 0, 1);
        assert_eq!(first, is_bad(0, 0, 1));
        for other in [is_bad(0, 1, 1), is_bad(1, 0, 1), is_bad(0, 0, 2)] {
            // Two fair coins agree half of the time; 2000 throws are within 4.5 standard deviations of that.
            let agree = first.iter().zip(&other).filter(|(one, other)| one == other).count();
            assert!((900..=1_100).contains(&agree), "{agree} of 2000");
        }
    }

    proptest! {
        #[test]
        fn changes_alternate_and_stay_within_the_process(
            good in 1_u64..1 << 30, bad in 1_u64..1 << 30, start in 0_u64..1 << 33, length in option(), fixed in any::<bool>(), seed in any::<u64>(),
        ) {
            let duration = Span::from_nanos(1 << 34);
            let (start, stop) = (Span::from_nanos(start), length.map(|length| Span::from_nanos(start + length)));
            let distribution = if fixed { Periods::Fixed } else { Periods::Exponential };
            let process = Impairment { start, stop, distribution, ..impairment(Span::from_nanos(good), Span::from_nanos(bad)) };
            let all: Vec<Transition> = process.transitions(0, LinkId(0), seed, duration).take(10_000).collect();
            prop_assert!(all.is_sorted_by_key(|one| one.at));
            prop_assert!(all.iter().enumerate().all(|(index, one)| one.bad == (index % 2 == 0)));
            prop_assert!(all.iter().all(|one| one.at >= start && one.at < duration && one.at <= stop.unwrap_or(duration)));
            if stop.is_some() && all.len() < 10_000 {
                prop_assert!(all.last().is_none_or(|last| !last.bad) || stop >= Some(duration));
            }
        }
    }

    fn option() -> impl Strategy<Value = Option<u64>> {
        proptest::option::of(1_u64..1 << 34)
    }
}
