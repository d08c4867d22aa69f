//! What connections learn together.

use std::sync::atomic::{AtomicU64, Ordering};

use sidestep_net::{Span, Time};

use crate::raw::{self, MAX_PATHS, SHARED_WORDS};

/// What all connections of a host to one destination have learnt of its paths, without locks.
///
/// Each connection adds what its path has earned, and draws by what all have learnt. At first nothing is learnt.
#[derive(Debug, Default)]
pub struct Shared(raw::Shared);

/// What connections have learnt of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathLearnt {
    /// What its initial weight is multiplied by, compared with the best path's, which has 1.
    pub factor: f64,
    /// The time that a short transfer's first segments take on it, where that is measured: the policy `delay-weighted` does.
    pub delay: Option<Span>,
    /// Whether no connection takes it, as it failed, or as an answer to a SYN is late.
    pub dead: bool,
    /// Since when nothing has been delivered on it, where it failed: the last delivery before, or the failure if there was none.
    pub failed: Option<Time>,
    /// Whether something was delivered on it since it last failed, if it ever did.
    pub delivers: bool,
    /// Whether a connection failed on it that has no other path, so that none but the agent tries it.
    pub stranded: bool,
    /// Whether no SYN-ACK takes it: it is dead, or acknowledgements were lost on it. It is not measured that these arrive again,
    /// and one that is lost costs a retransmission, where a SYN-ACK costs a second. So they return first.
    pub unanswered: bool,
}

/// What a draw goes by (`quality.h`).
struct Known {
    /// The time that a short transfer takes on the empty path in nanoseconds; `None`: its round trip is not known.
    base: Option<u64>,
    added: u64,
    measured: bool,
    dead: bool,
    failed: Option<Time>,
    delivers: bool,
    stranded: bool,
    unanswered: bool,
}

/// Where the first draws of the host with this number begin among `paths`, which is never zero: that stands for a random place.
///
/// Hosts whose numbers follow each other begin on one path after the other. Within the middle half of a path's share, so that
/// what is added to a draw by chance does not carry it over an edge, the rest of the number decides: by its radical inverse
/// (van der Corput, 1935), which spreads it evenly too.
fn first_draw(host: u32, paths: usize) -> u64 {
    let base = paths.clamp(2, MAX_PATHS) as u64;
    let share = (1_u64 << 32) / base;
    let (mut rest, mut unit, mut inside) = (u64::from(host) / base, share / 2, 0);
    while rest > 0 && unit > 0 {
        unit /= base;
        inside += rest % base * unit;
        rest /= base;
    }
    (u64::from(host) % base * share + share / 4 + inside) | (1 << 32)
}

/// After acknowledgements were lost on a path, SYN-ACKs wait for this multiple of the time of those.
const REPLY_HOLDS: u64 = 4;

impl Known {
    fn of(path: &raw::Path, quality: &raw::Quality, now: Time) -> Self {
        let now = now.as_nanos();
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let (base, dead) = (raw::base(path, quality, now), raw::dead(quality, now));
        let wait = load(&quality.hold_ns).saturating_mul(REPLY_HOLDS);
        let failed = load(&quality.failed_ns);
        let waits = failed > load(&quality.delivered_ns) && now.saturating_sub(failed) < wait;
        Known {
            base: (base > 0).then_some(base),
            added: raw::added(quality, now),
            measured: load(&quality.lowest_ns) > 0,
            dead,
            failed: raw::down(quality, now).then(|| match load(&quality.delivered_ns) {
                0 => Time::from_nanos(failed),
                delivered => Time::from_nanos(delivered),
            }),
            delivers: load(&quality.delivered_ns) > failed,
            stranded: load(&quality.stranded) == 1 && failed > load(&quality.delivered_ns),
            unanswered: dead || waits && load(&quality.unproven) == 1,
        }
    }
}

impl Shared {
    /// A table of the host with this number, which has learnt nothing of its `paths`. Hosts whose numbers follow each other begin
    /// on one path after the other, so that what they open at once spreads evenly.
    pub fn of_host(number: u32, paths: usize) -> Self {
        let shared = raw::Shared::default();
        shared.sequence.store(first_draw(number, paths), Ordering::Relaxed);
        Shared(shared)
    }

    /// A table with the values of the kernel's map: logarithms (base 2, Q32) of which only differences mean anything.
    pub fn from_gains(gains: [u64; MAX_PATHS]) -> Self {
        Shared(raw::Shared { log_gain: gains.map(AtomicU64::new), ..raw::Shared::default() })
    }

    /// The table's present values: logarithms (base 2, Q32) of which only differences mean anything.
    pub fn gains(&self) -> [u64; MAX_PATHS] {
        self.0.log_gain.each_ref().map(|gain| gain.load(Ordering::Relaxed))
    }

    /// A table with the words of C's `struct pc_shared`.
    pub fn from_words(words: [u64; SHARED_WORDS]) -> Self {
        let mut words = words.into_iter().map(AtomicU64::new);
        let mut next = || words.next().unwrap_or_default();
        let log_gain = std::array::from_fn(|_| next());
        let quality = std::array::from_fn(|_| raw::Quality {
            added_ns: next(),
            updated_ns: next(),
            lowest_ns: next(),
            delivered_ns: next(),
            failed_ns: next(),
            hold_ns: next(),
            unproven: next(),
            asked_ns: next(),
            slow_ns: next(),
            slow_at_ns: next(),
            stranded: next(),
            rate: next(),
            rate_ns: next(),
        });
        let sequence = next();
        let draws = raw::Draws { until_ns: next(), sum: std::array::from_fn(|_| next()) };
        Shared(raw::Shared { log_gain, quality, sequence, draws })
    }

    /// The words of C's `struct pc_shared`.
    pub fn words(&self) -> [u64; SHARED_WORDS] {
        let quality = self.0.quality.iter().flat_map(raw::Quality::words);
        let draws = &self.0.draws;
        let draws = [&self.0.sequence, &draws.until_ns].into_iter().chain(&draws.sum);
        let mut words = self.0.log_gain.iter().chain(quality).chain(draws);
        std::array::from_fn(|_| words.next().map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    /// The table for other paths: `places` gives for each of them where it is in this one. A new path begins with the best
    /// gain of those that stay, and with nothing measured.
    pub fn rearranged(&self, places: &[Option<usize>]) -> Self {
        let words = self.words();
        let gain = |place: &usize| words.get(*place).copied().filter(|_| *place < MAX_PATHS);
        let known: Vec<u64> = places.iter().flatten().filter_map(gain).collect();
        // Only differences mean anything, and the numbers wrap.
        let first = known.first().copied().unwrap_or(0);
        let best = known.iter().map(|gain| gain.wrapping_sub(first) as i64).max().unwrap_or(0);
        let next = Shared::default();
        let slots = next.0.log_gain.iter().zip(&next.0.quality).zip(places);
        for ((log_gain, quality), place) in slots {
            let from = place.as_ref().and_then(|place| Some((gain(place)?, self.0.quality.get(*place)?)));
            let learnt = from.map_or(first.wrapping_add(best as u64), |(gain, _)| gain);
            log_gain.store(learnt, Ordering::Relaxed);
            let measured = from.map(|(_, quality)| quality.words()).into_iter().flatten();
            for (to, from) in quality.words().into_iter().zip(measured) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        next
    }

    /// What was learnt of each of `paths`, by the policy that `config` has.
    pub fn learnt(&self, config: &raw::Config, paths: &[raw::Path], now: Time) -> Vec<PathLearnt> {
        if config.policy != raw::DELAY_WEIGHTED {
            let learnt = |factor| PathLearnt { factor, ..PathLearnt::default() };
            return self.factors(paths.len()).into_iter().map(learnt).collect();
        }
        let known = paths.iter().zip(&self.0.quality).map(|(path, quality)| Known::of(path, quality, now));
        let known: Vec<_> = known.collect();
        let best = known.iter().filter_map(|one| one.base).min().unwrap_or(1);
        let delay = |one: &Known| one.base.unwrap_or(best).saturating_add(one.added);
        // Where all are dead, all may be drawn.
        let any_alive = known.iter().any(|one| !one.dead);
        let drawn = known.iter().filter(|one| !(any_alive && one.dead));
        let least = drawn.map(delay).min().unwrap_or(best) as f64;
        // The weight of `quality.h`, without the initial one.
        let weight = |one: &Known| {
            let longer = (least / one.base.unwrap_or(best).max(1) as f64).min(1.0);
            (best as f64 / delay(one).max(1) as f64 * longer).powi(2)
        };
        let greatest = known.iter().map(weight).fold(f64::MIN_POSITIVE, f64::max);
        let learnt = |one: &Known| PathLearnt {
            factor: weight(one) / greatest,
            delay: one.measured.then(|| Span::from_nanos(delay(one))),
            dead: one.dead,
            failed: one.failed,
            delivers: one.delivers,
            stranded: one.stranded,
            unanswered: one.unanswered,
        };
        known.iter().map(learnt).collect()
    }

    /// Notes that a trial of the path at this place delivered something, or failed once more, so that no connection tries it
    /// soon.
    pub fn note_trial(&self, place: usize, delivered: bool, now: Time) {
        let Some(quality) = self.0.quality.get(place) else { return };
        let what = if delivered { &quality.delivered_ns } else { &quality.failed_ns };
        what.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// The factor by which learning has lowered the weight of each of the first `n` paths, compared with the best one: 1
    /// for the best, down to about a thousandth.
    pub fn factors(&self, n: usize) -> Vec<f64> {
        let equal = [raw::Path { weight: 1, ..raw::Path::default() }; MAX_PATHS];
        let n = n.min(MAX_PATHS);
        let weights = raw::weigh(&equal, n as u32, &self.0).log_weight;
        weights.into_iter().take(n).map(|log| (log as f64 / 2_f64.powi(32)).exp2()).collect()
    }

    pub(crate) fn raw(&self) -> &raw::Shared {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicI64, thread};

    use proptest::prelude::*;
    use rand_core::Rng;
    use rand_pcg::Pcg32;

    use super::*;

    /// What a path may fall behind the best, Q32.
    const DEPTH: i64 = 10 << 32;
    /// More than any step of EXP3-IX: twice log2(e).
    const LARGEST: i64 = 3 << 32;
    const THREADS: u64 = 4;

    fn equal() -> [raw::Path; MAX_PATHS] {
        [raw::Path::default(); MAX_PATHS]
    }

    /// By how much each path is above the first.
    fn leads(shared: &Shared, n: u32) -> Vec<i64> {
        let gains = shared.gains();
        gains[..n as usize].iter().map(|gain| gain.wrapping_sub(gains[0]) as i64).collect()
    }

    fn spread(shared: &Shared, n: u32) -> i64 {
        let leads = leads(shared, n);
        leads.iter().max().unwrap() - leads.iter().min().unwrap()
    }

    /// Fails unless probabilities by these weights are positive and add up to one.
    fn hold_together(weights: &raw::Exp3, n: u32, gamma_q16: u32) {
        let probabilities: Vec<_> = (0..n).map(|path| raw::exp3_probability(weights, n, gamma_q16, path)).collect();
        assert_eq!(probabilities.iter().sum::<u64>(), 1 << 32, "{weights:?}");
        assert!(probabilities.iter().all(|p| *p > 0), "{probabilities:?} of {weights:?}");
    }

    /// Several threads make steps of up to `largest` at once, and check by `see` what they read, and how many steps began
    /// meanwhile; returns the sum of the steps of each path.
    fn at_once(
        shared: &Shared,
        n: u32,
        seed: u64,
        largest: i64,
        see: impl Fn(&raw::Exp3, i64) + Sync,
    ) -> [u64; MAX_PATHS] {
        let begun = AtomicI64::new(0);
        let walk = |number: u64| {
            let mut random = Pcg32::new(seed, number);
            let mut sums = [0_u64; MAX_PATHS];
            for _ in 0..500 {
                let path = random.next_u32() % n;
                let step = (random.next_u64() % (2 * largest as u64)) as i64 - largest;
                begun.fetch_add(1, Ordering::SeqCst);
                raw::shared_add(shared.raw(), n, path, step);
                sums[path as usize] = sums[path as usize].wrapping_add(step as u64);
                let before = begun.load(Ordering::SeqCst);
                let weights = raw::weigh(&equal(), n, shared.raw());
                see(&weights, begun.load(Ordering::SeqCst) - before);
            }
            sums
        };
        let sums: Vec<_> = thread::scope(|scope| {
            let walk = &walk;
            let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || walk(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        std::array::from_fn(|path| sums.iter().fold(0, |sum: u64, of| sum.wrapping_add(of[path])))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn no_step_is_lost_as_long_as_none_falls_behind(n in 1..=16_u32, seed in any::<u64>(), from in any::<u64>()) {
            let shared = Shared::from_gains([from; MAX_PATHS]);
            let sums = at_once(&shared, n, seed, DEPTH / (4 * 500 * THREADS as i64), |weights, _| hold_together(weights, n, 0));
            let expected = sums.map(|sum| from.wrapping_add(sum));
            prop_assert_eq!(shared.gains(), expected);
        }

        #[test]
        fn weights_stay_positive_and_probabilities_add_up_whatever_many_do_at_once(
            n in 2..=16_u32, seed in any::<u64>(), from in any::<u64>(), gamma_q16 in 1..=65_536_u32,
        ) {
            let shared = Shared::from_gains([from; MAX_PATHS]);
            at_once(&shared, n, seed, LARGEST, |weights, meanwhile| {
                hold_together(weights, n, gamma_q16);
                // A path may be behind by the depth and by the steps of others that are in progress; and a reader that
                // had to wait for its processor in the middle meets paths of two times.
                let least = weights.log_weight[..n as usize].iter().min().copied().unwrap_or(0);
                assert!(least >= -(DEPTH + (2 * THREADS as i64 + meanwhile) * LARGEST), "{least}");
            });
            // The last step lifts those that were left behind.
            raw::shared_add(shared.raw(), n, 0, 0);
            prop_assert!(spread(&shared, n) <= DEPTH);
        }

        #[test]
        fn a_table_of_anything_makes_probabilities_and_is_brought_into_bounds(
            gains in prop::array::uniform16(any::<u64>()), n in 1..=16_u32,
        ) {
            let shared = Shared::from_gains(gains);
            for _ in 0..200 {
                let weights = raw::weigh(&equal(), n, shared.raw());
                let sum: u64 = (0..n).map(|path| raw::exp3_probability(&weights, n, 1, path)).sum();
                prop_assert_eq!(sum, 1 << 32);
                raw::shared_add(shared.raw(), n, 0, 0);
            }
            prop_assert!(spread(&shared, n) <= DEPTH);
            prop_assert_eq!(&shared.gains()[n as usize..], &gains[n as usize..], "what is not there is left alone");
        }

        #[test]
        fn numbers_that_wrap_change_nothing(
            steps in prop::collection::vec((0..16_u32, -LARGEST..LARGEST), 1..300), from in any::<u64>(), n in 1..=16_u32,
        ) {
            let (one, other) = (Shared::default(), Shared::from_gains([from; MAX_PATHS]));
            for (path, step) in steps {
                raw::shared_add(one.raw(), n, path % n, step);
                raw::shared_add(other.raw(), n, path % n, step);
            }
            prop_assert_eq!(leads(&one, n), leads(&other, n));
            prop_assert_eq!(raw::weigh(&equal(), n, one.raw()), raw::weigh(&equal(), n, other.raw()));
        }
    }

    #[test]
    fn two_processors_at_one_number_lose_no_step() {
        const STEPS: i64 = 2_000_000;
        let shared = Shared::default();
        let start = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    (0..STEPS).for_each(|_| raw::shared_add(shared.raw(), 1, 0, 1));
                });
            }
        });
        assert_eq!(shared.gains()[0], 2 * STEPS as u64);
    }

    #[test]
    fn what_was_learnt_multiplies_the_initial_weights() {
        let mut paths = equal();
        (paths[0].weight, paths[1].weight) = (1, 4);
        let shared = Shared::default();
        raw::shared_add(shared.raw(), 2, 0, 3 << 32);
        assert_eq!(raw::weigh(&paths, 2, shared.raw()).log_weight[..2], [0, -1 << 32]);
        assert_eq!(shared.factors(2), [1.0, 0.125]);
        raw::shared_add(shared.raw(), 2, 1, -(2 << 32));
        assert_eq!(shared.factors(2), [1.0, 1.0 / 32.0]);
        raw::shared_add(shared.raw(), 2, 1, -(20 << 32));
        assert_eq!(shared.factors(2), [1.0, 1.0 / 1024.0], "no further");
    }
}
