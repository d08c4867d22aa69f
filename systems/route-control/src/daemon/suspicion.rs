//! Passing traffic accuses an egress, and a trial finds out who is right.
//!
//! Probes may be answered by a device at the egress, such as a captive portal, while nothing is forwarded. So an egress is
//! suspected for a family when TCP sends again and again by it, and nothing that left by it has been answered meanwhile.
//! Many causes look like that: one dead server, a scan of empty addresses, an outage beyond all egresses. The trial
//! distinguishes them: it connects to the same far ends by the accused egress and by another one at the same time. If some
//! answer by the other, and none by the accused, the accused forwards nothing. A far end that answers by neither shows
//! nothing of the egress.
//!
//! An egress that was found guilty carries no traffic any more that could acquit it, so the trial is repeated with the far ends that
//! have answered, ever more rarely. If none of them answers by any egress any more, it is released after a while: the next traffic
//! accuses it again if it is still guilty.

use std::net::SocketAddr;

use sidestep_net::{Span, Time};

use crate::daemon::passive::PassiveSample;

/// This number of retransmissions without any answer makes an egress suspect.
const ENOUGH: u64 = 3;
/// For at least so long nothing was answered.
const SILENCE: Span = Span::from_secs(1);
/// Between two trials that found nothing, at first and at most.
const WAITS: (Span, Span) = (Span::from_secs(5), Span::from_secs(60));
/// Between two trials of an egress that was found guilty, at first and at most.
const RETRIALS: (Span, Span) = (Span::from_secs(5), Span::from_secs(300));
/// An egress whose witnesses have all fallen silent is released after this number of trials.
const MAX_SILENT: u32 = 6;
/// Far ends that are asked in a trial.
pub(super) const WITNESSES: usize = 3;

/// What passing traffic of one family shows against one egress.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspicion {
    /// Transmissions again since something was answered last, and since when.
    repeated: u64,
    since: Option<Time>,
    /// The far ends that answered by another egress, if it was found guilty.
    guilty: Option<Vec<SocketAddr>>,
    is_tried: bool,
    /// No trial before, and how long to wait after it.
    next: Time,
    wait: Option<Span>,
    /// Trials in a row in which no witness answered by any egress.
    silent: u32,
}

/// What a trial has found of one far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) far: SocketAddr,
    /// Whether it answered by the accused egress, and by the other one.
    pub(super) by_accused: bool,
    pub(super) by_other: bool,
}

impl Suspicion {
    /// Takes what has passed since the last time; returns whether the egress is acquitted by it.
    pub(super) fn take(&mut self, now: Time, sample: &PassiveSample) -> bool {
        if sample.last_heard.is_some_and(|heard| self.since.is_some_and(|since| heard > since)) {
            let was_guilty = self.guilty.is_some();
            // A trial under way ends first.
            *self = Suspicion { is_tried: self.is_tried, ..Suspicion::default() };
            return was_guilty;
        }
        self.repeated += sample.repeated;
        if self.repeated > 0 && self.since.is_none() {
            self.since = Some(now);
        }
        false
    }

    /// Since when far ends have been silent, if a trial is due.
    pub(super) fn wants_trial(&self, now: Time) -> Option<Time> {
        let since = self.since.filter(|_| !self.is_tried && now >= self.next)?;
        let suspect = self.repeated >= ENOUGH && now >= since + SILENCE;
        (suspect || self.guilty.is_some()).then_some(since)
    }

    /// Whom to ask: those who answered before, or those who are silent now.
    pub(super) fn witnesses(&self, silent: Vec<SocketAddr>) -> Vec<SocketAddr> {
        if let Some(witnesses) = &self.guilty {
            return witnesses.clone();
        }
        let mut chosen: Vec<SocketAddr> = Vec::new();
        // Different hosts first.
        for far in &silent {
            if chosen.len() < WITNESSES && !chosen.iter().any(|one| one.ip() == far.ip()) {
                chosen.push(*far);
            }
        }
        chosen
    }

    /// A trial has begun.
    pub(super) fn begin(&mut self) {
        self.is_tried = true;
    }

    /// The trial could not be held, or has found this; returns whether the egress forwards, if that is news.
    pub(super) fn judge(&mut self, now: Time, findings: &[Finding]) -> Option<bool> {
        self.is_tried = false;
        let was_guilty = self.guilty.is_some();
        if findings.iter().any(|one| one.by_accused) {
            let (wait, most) = (self.wait, WAITS.1);
            *self = Suspicion::default();
            // It works, and something makes it look otherwise.
            self.postpone(now, wait.filter(|_| !was_guilty), (WAITS.0, most));
            return was_guilty.then_some(true);
        }
        let answered: Vec<SocketAddr> = findings.iter().filter(|one| one.by_other).map(|one| one.far).collect();
        if !was_guilty {
            if answered.is_empty() {
                self.postpone(now, self.wait, WAITS);
                return None;
            }
            self.guilty = Some(answered);
            self.postpone(now, None, RETRIALS);
            return Some(false);
        }
        self.silent = if answered.is_empty() { self.silent + 1 } else { 0 };
        if self.silent >= MAX_SILENT {
            *self = Suspicion::default();
            return Some(true);
        }
        self.postpone(now, self.wait, RETRIALS);
        None
    }

    /// Makes the next trial wait, twice as long as the last one did.
    fn postpone(&mut self, now: Time, before: Option<Span>, (first, most): (Span, Span)) {
        let wait = before.map_or(first, |before| (before * 2).min(most));
        self.wait = Some(wait);
        self.next = now + wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_nanos((seconds * 1e9) as u64)
    }

    fn repeats(repeated: u64) -> PassiveSample {
        PassiveSample { repeated, ..PassiveSample::default() }
    }

    fn far(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 2, 0, last], 443))
    }

    fn finding(last: u8, by_accused: bool, by_other: bool) -> Finding {
        Finding { far: far(last), by_accused, by_other }
    }

    /// An egress that was accused at 10 s and found guilty at 14 s.
    fn guilty() -> Suspicion {
        let mut suspicion = Suspicion::default();
        suspicion.take(at(10.0), &repeats(4));
        suspicion.begin();
        assert_eq!(suspicion.judge(at(14.0), &[finding(1, false, true), finding(2, false, false)]), Some(false));
        suspicion
    }

    #[test]
    fn transmissions_again_without_any_answer_ask_for_a_trial_and_one_answer_ends_the_suspicion() {
        let mut suspicion = Suspicion::default();
        suspicion.take(at(1.0), &repeats(2));
        assert_eq!(suspicion.wants_trial(at(5.0)), None, "too few");
        suspicion.take(at(5.0), &repeats(1));
        assert_eq!(suspicion.wants_trial(at(5.0)), Some(at(1.0)));
        let heard = PassiveSample { last_heard: Some(at(5.5)), repeated: 7, ..PassiveSample::default() };
        assert!(!suspicion.take(at(6.0), &heard), "it was not guilty");
        assert_eq!(suspicion.wants_trial(at(60.0)), None);
    }

    #[test]
    fn a_far_end_that_answers_by_no_egress_convicts_none_and_trials_become_rare() {
        let mut suspicion = Suspicion::default();
        let (mut now, mut trials) = (0.0, 0);
        while now < 600.0 {
            suspicion.take(at(now), &repeats(1));
            if suspicion.wants_trial(at(now)).is_some() {
                suspicion.begin();
                assert_eq!(suspicion.judge(at(now), &[finding(1, false, false)]), None);
                trials += 1;
            }
            now += 1.0;
        }
        // After 5, 10, 20, 40 and then each 60 s.
        assert!((12..=14).contains(&trials), "{trials}");
    }

    #[test]
    fn an_egress_that_is_guilty_is_asked_again_by_its_witnesses_and_acquitted_when_one_answers() {
        let mut suspicion = guilty();
        assert_eq!(suspicion.wants_trial(at(18.9)), None);
        assert!(suspicion.wants_trial(at(19.0)).is_some());
        assert_eq!(suspicion.witnesses(vec![far(9)]), [far(1)], "the one that answered");
        suspicion.begin();
        assert_eq!(suspicion.judge(at(22.0), &[finding(1, false, true)]), None);
        assert!(
            suspicion.wants_trial(at(31.9)).is_none() && suspicion.wants_trial(at(32.0)).is_some(),
            "twice as long"
        );
        suspicion.begin();
        assert_eq!(suspicion.judge(at(35.0), &[finding(1, true, true)]), Some(true));
    }

    #[test]
    fn an_egress_whose_witnesses_have_died_is_released_after_a_while_and_traffic_that_is_answered_releases_at_once() {
        let mut suspicion = guilty();
        let mut judge = || suspicion.judge(at(100.0), &[finding(1, false, false)]);
        for _ in 1..MAX_SILENT {
            assert_eq!(judge(), None);
        }
        assert_eq!(judge(), Some(true));
        let mut suspicion = guilty();
        assert!(suspicion.take(at(20.0), &PassiveSample { last_heard: Some(at(19.0)), ..PassiveSample::default() }));
        assert_eq!(suspicion.wants_trial(at(1e6)), None);
    }

    #[test]
    fn witnesses_are_different_hosts_and_three_at_most() {
        let silent = vec![far(1), SocketAddr::from(([10, 2, 0, 1], 80)), far(2), far(3), far(4)];
        assert_eq!(Suspicion::default().witnesses(silent), [far(1), far(2), far(3)]);
    }
}
