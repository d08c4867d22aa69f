//! Load: which egress each flow takes once the flows together are too much for one.
//!
//! Flows are hashed into [`BUCKETS`] buckets. As long as the egress in use has room, it has all of them. When the utilisation of an
//! egress reaches a threshold, some of its buckets go to the egress with the lowest utilisation: as many as would make both
//! utilisations equal, so that shares are in proportion to capacity. A move that neither relieves the full egress nor makes all carry more
//! is undone: the capacity may be shared with others. When all flows together would leave room at the egress in use, it gets all buckets
//! back.
//!
//! What keeps sites from chasing each other are two thresholds, a bound on what moves at once, and waits. These are random, after Gao,
//! Dovrolis and Zegura, "Avoiding Oscillations due to Intelligent Route Control Systems", INFOCOM 2006, the paper's reference 4, and
//! double with each move that is undone, takes back the one before, or leaves an egress that fails.

use sidestep_net::{Bytes, Rate, Span, Time};

use super::{Reason, RouteControlSettings, Shift};

/// Buckets of flows; each has one egress. Our choice: shares are exact to 2 %.
pub const BUCKETS: usize = 64;
/// Waits are at most this number of times longer than they were first. Our choice: with `load_wait`'s default, up to a minute and a half.
const MAX_BACKOFF: u32 = 16;
/// After this number of the longest waits without a move the next one is the first again. Our choice.
const LONG: u32 = 8;
/// Buckets had no flows if the egress that got them carries no more than this share of the full one's rate in addition. Our choice.
const EMPTY: f64 = 0.05;
/// The weight of a routing period in the utilisation that is reported. Our choice: the last four or so count.
const GAIN: f64 = 0.25;

/// The buckets, and what is known of the load of the egresses.
#[derive(Clone, Debug)]
pub(super) struct Load {
    high: f64,
    low: f64,
    /// Seconds.
    wait: f64,
    /// The most buckets of one move.
    step: usize,
    egresses: Vec<Carried>,
    owners: [usize; BUCKETS],
    /// The egress in use.
    home: usize,
    /// Until when sent bytes are known.
    known: Time,
    /// What is sent before shows how the last move began, and does not count.
    settled: Time,
    /// Seconds of which sent bytes count.
    counted: f64,
    /// Seconds after which they decide; `None`: not drawn yet.
    enough: Option<f64>,
    last: Option<(Time, usize, usize)>,
    backoff: u32,
    /// The last move, until it is known what it brought.
    trial: Option<Trial>,
    /// Whether flows that are there already move, so that the next seconds show what a move has brought.
    moves_all: bool,
    /// By which share what is carried must change to count as a change.
    margin: f64,
    /// How much more moves than levels, as moves before had no flows.
    effort: f64,
    /// From where on the next move chooses buckets, if that is not drawn.
    again: Option<usize>,
    /// So many buckets from there were too many.
    bound: Option<usize>,
}

/// What was there before a move.
#[derive(Clone, Debug)]
struct Trial {
    shift: Shift,
    owners: [usize; BUCKETS],
    /// From where on buckets were chosen.
    first: usize,
    count: usize,
    /// Whether these were the most that may move.
    most: bool,
    /// Bits per second of each egress.
    before: Vec<f64>,
}

/// What an egress carries.
#[derive(Clone, Copy, Debug)]
struct Carried {
    /// Bits per second; zero: it is not known, or the egress takes no share.
    capacity: f64,
    /// Bits in the seconds that count.
    bits: f64,
    utilisation: f64,
}

/// What a move that is undone has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing: its buckets had no flows.
    None,
    /// The flows that moved are no better off, or worse.
    Harmful,
}

impl Load {
    /// All flows take the first egress; `None` if the settings have no threshold.
    pub(super) fn new(settings: &RouteControlSettings, capacities: &[Rate], now: Time) -> Option<Load> {
        let high = settings.load.as_f64();
        let carried = |rate: &Rate| Carried { capacity: rate.bits_per_sec() as f64, bits: 0.0, utilisation: 0.0 };
        (high > 0.0).then(|| Load {
            high,
            low: settings.load_end.as_f64(),
            wait: settings.load_wait.as_secs_f64(),
            step: ((settings.load_step.as_f64() * BUCKETS as f64) as usize).max(1),
            egresses: capacities.iter().map(carried).collect(),
            owners: [0; BUCKETS],
            home: 0,
            known: now,
            settled: now,
            counted: 0.0,
            enough: None,
            last: None,
            backoff: 1,
            trial: None,
            moves_all: true,
            margin: settings.margin.as_f64(),
            effort: 1.0,
            again: None,
            bound: None,
        })
    }

    /// An egress that gets no share, whatever its capacity.
    pub(super) fn exclude(&mut self, egress: usize) {
        if let Some(of) = self.egresses.get_mut(egress) {
            of.capacity = 0.0;
        }
    }

    /// Only flows that begin take another egress.
    pub(super) fn move_new_only(&mut self) {
        self.moves_all = false;
    }

    /// The egress of a bucket.
    pub(super) fn owner(&self, bucket: usize) -> usize {
        self.owners.get(bucket % BUCKETS).copied().unwrap_or(self.home)
    }

    /// The share of the buckets that an egress has.
    pub(super) fn share(&self, egress: usize) -> f64 {
        self.owned(egress) as f64 / BUCKETS as f64
    }

    /// The recent utilisation of an egress; `None` if its capacity is not known, or it takes no share.
    pub(super) fn utilisation(&self, egress: usize) -> Option<f64> {
        self.egresses.get(egress).filter(|of| of.capacity > 0.0).map(|of| of.utilisation)
    }

    /// Whether an egress carries so much that it may lose packets for that, or flows have just come there.
    pub(super) fn is_loaded(&self, now: Time, egress: usize) -> bool {
        let lately = |at: Time| now.since(at).as_secs_f64() < 2.0 * self.wait;
        let has_new = self.last.is_some_and(|(at, _, to)| to == egress && lately(at));
        has_new || self.utilisation(egress).is_some_and(|utilisation| utilisation >= self.low)
    }

    /// Whether some flows take another egress than the one in use.
    pub(super) fn is_spread(&self) -> bool {
        self.owners.iter().any(|owner| *owner != self.home)
    }

    fn owned(&self, egress: usize) -> usize {
        self.owners.iter().filter(|owner| **owner == egress).count()
    }

    /// What each egress has sent since the last time.
    pub(super) fn note_sent(&mut self, now: Time, sent: &[Bytes]) {
        let begin = std::mem::replace(&mut self.known, now);
        let seconds = now.since(begin).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let counts = begin >= self.settled;
        self.counted += if counts { seconds } else { 0.0 };
        for (of, sent) in self.egresses.iter_mut().zip(sent) {
            let bits = sent.get() as f64 * 8.0;
            of.bits += if counts { bits } else { 0.0 };
            if of.capacity > 0.0 {
                of.utilisation += GAIN * (bits / seconds / of.capacity - of.utilisation);
            }
        }
    }

    /// The egress in use is `home` now, and flows stay on another egress only if it `keeps` them. Returns an egress other than the one
    /// in use that has lost its flows so, and their share of all.
    pub(super) fn follow(&mut self, now: Time, home: usize, keeps: impl Fn(usize) -> bool) -> Option<(usize, f64)> {
        let before = std::mem::replace(&mut self.home, home);
        let left = (0..self.egresses.len())
            .find(|egress| ![home, before].contains(egress) && self.owned(*egress) > 0 && !keeps(*egress))
            .map(|egress| (egress, self.share(egress)));
        for owner in self.owners.iter_mut().filter(|owner| **owner == before || !keeps(**owner)) {
            *owner = home;
        }
        if left.is_some() {
            self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        }
        if before != home || left.is_some() {
            (self.trial, self.again, self.bound, self.effort) = (None, None, None, 1.0);
            self.rest(now, 0);
        }
        left
    }

    /// Moves buckets if what was sent in long enough a time asks for it, at most from one egress to one other. `random` lengthens
    /// the waits.
    pub(super) fn decide(&mut self, now: Time, takes: impl Fn(usize) -> bool, random: u32) -> Option<Shift> {
        let enough = *self.enough.get_or_insert(self.wait * (1.0 + share_of(random)));
        if self.counted <= 0.0 || self.counted < enough {
            return None;
        }
        let rate = |of: &Carried| of.bits / self.counted;
        let rates: Vec<f64> = self.egresses.iter().map(rate).collect();
        self.begin_window();
        let undone = self.undo(now, &rates);
        let shift = match undone {
            Some((shift, Outcome::Harmful)) => {
                self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
                self.rest(now, random);
                return Some(shift);
            }
            _ => self.back(now, &rates).or_else(|| self.level(now, &rates, takes, random)),
        };
        let Some(shift) = shift else { return undone.map(|(shift, _)| shift) };
        let reverses = self.last.is_some_and(|(_, from, to)| (to, from) == (shift.from, shift.to));
        let long = self.wait * f64::from(LONG * self.backoff);
        let quiet = self.last.is_none_or(|(at, ..)| now.since(at).as_secs_f64() > long);
        self.backoff = match (quiet, reverses) {
            (true, _) => 1,
            (false, true) => (self.backoff * 2).min(MAX_BACKOFF),
            (false, false) => self.backoff,
        };
        self.last = Some((now, shift.from, shift.to));
        self.rest(now, random);
        Some(shift)
    }

    /// Judges the last move: its flows return if that brought nothing.
    fn undo(&mut self, now: Time, rates: &[f64]) -> Option<(Shift, Outcome)> {
        let Trial { shift, owners, first, count, most, before } = self.trial.take()?;
        let of = |egress: usize| Some((*before.get(egress)?, *rates.get(egress)?));
        let ((full, left), (empty, taken)) = (of(shift.from)?, of(shift.to)?);
        let (all, carried) = (before.iter().sum::<f64>(), rates.iter().sum::<f64>());
        let capacity = self.egresses.get(shift.from)?.capacity;
        let relieved = left < self.high * capacity || left < full * (1.0 - self.margin);
        let gained = carried >= all * (1.0 + self.margin);
        let lost = carried < all * (1.0 - self.margin);
        if !lost && (relieved || gained) {
            (self.effort, self.bound) = (1.0, None);
            return None;
        }
        let was_empty = !lost && taken - empty < full * EMPTY;
        if was_empty && most && self.owned(shift.from) > 0 {
            // No flows were in the buckets, and no more may move at once: others are next.
            return None;
        }
        self.owners = owners;
        let back = Shift { at: now, from: shift.to, to: shift.from, share: shift.share, reason: Reason::LoadUndone };
        let grows = was_empty && !most && self.bound.is_none_or(|bound| 2 * count < bound);
        // Where no flows were in the buckets, more of them may have some; where all were, half may be right.
        (self.effort, self.again) = match (grows, lost) {
            (true, _) => (self.effort * 2.0, Some(first)),
            (false, true) => ((self.effort / 2.0).max(1.0 / BUCKETS as f64), Some(first)),
            (false, false) => (1.0, None),
        };
        self.bound = if lost { Some(count) } else { self.bound.filter(|_| grows) };
        let outcome = if grows { Outcome::None } else { Outcome::Harmful };
        Some((back, outcome))
    }

    /// All flows return to the egress in use, as it has room for them.
    fn back(&mut self, now: Time, rates: &[f64]) -> Option<Shift> {
        let capacity = self.egresses.get(self.home)?.capacity;
        if !self.is_spread() || rates.iter().sum::<f64>() >= self.low * capacity {
            return None;
        }
        let others = (0..self.egresses.len()).filter(|egress| *egress != self.home);
        let from = others.max_by_key(|egress| self.owned(*egress))?;
        let share = 1.0 - self.share(self.home);
        self.owners = [self.home; BUCKETS];
        Some(Shift { at: now, from, to: self.home, share, reason: Reason::LoadOver })
    }

    /// Some flows of the fullest egress go to the emptiest, so that both are equally full.
    fn level(&mut self, now: Time, rates: &[f64], takes: impl Fn(usize) -> bool, random: u32) -> Option<Shift> {
        let known = self.egresses.iter().zip(rates).enumerate().filter(|(_, (of, _))| of.capacity > 0.0);
        let all: Vec<(usize, f64, f64)> =
            known.map(|(egress, (of, rate))| (egress, rate / of.capacity, of.capacity)).collect();
        let full = all.iter().filter(|(egress, utilisation, _)| *utilisation >= self.high && self.owned(*egress) > 0);
        let (from, utilisation, capacity) = *full.max_by(|one, other| one.1.total_cmp(&other.1))?;
        let room = all.iter().filter(|(egress, utilisation, _)| *utilisation < self.low && takes(*egress));
        let (to, lower, room) = *room.min_by(|one, other| one.1.total_cmp(&other.1))?;
        let level = (utilisation * capacity + lower * room) / (capacity + room);
        let share = 1.0 - level / utilisation;
        let most = self.owned(from).min(self.step);
        let count = ((share * self.effort * self.owned(from) as f64).ceil() as usize).clamp(1, most.max(1));
        // Buckets without flows must not be tried again and again.
        let first = self.again.take().unwrap_or(random as usize % BUCKETS);
        let owners = self.owners;
        let (before, after) = self.owners.split_at_mut(first);
        let chosen = after.iter_mut().chain(before).filter(|owner| **owner == from).take(count);
        let moved = chosen.map(|owner| *owner = to).count();
        let shift = Shift { at: now, from, to, share: moved as f64 / BUCKETS as f64, reason: Reason::Load };
        self.trial =
            self.moves_all.then(|| Trial { shift, owners, first, count, most: count == most, before: rates.to_vec() });
        Some(shift)
    }

    /// What is sent counts only after a wait: TCP has to fill the path that it was moved to.
    fn rest(&mut self, now: Time, random: u32) {
        let seconds = self.wait * (1.0 + share_of(random)) * f64::from(self.backoff);
        self.settled = now + Span::from_nanos((seconds * 1e9) as u64);
        self.begin_window();
    }

    fn begin_window(&mut self) {
        (self.counted, self.enough) = (0.0, None);
        self.egresses.iter_mut().for_each(|of| of.bits = 0.0);
    }
}

/// A random number between 0 and 1.
fn share_of(random: u32) -> f64 {
    f64::from(random) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
