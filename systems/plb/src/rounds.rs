//! Protective Load Balancing, as Linux has it (`net/ipv4/tcp_plb.c`).

use sidestep_net::{Span, Time};
use sidestep_policy::PlbSettings;

/// The state of one connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    settings: PlbSettings,
    congested_rounds: u32,
    pause_until: Time,
    delivered: u32,
    delivered_ce: u32,
}

impl Rounds {
    /// Nothing has happened yet.
    pub fn new(settings: PlbSettings) -> Rounds {
        Rounds { settings, congested_rounds: 0, pause_until: Time::ZERO, delivered: 0, delivered_ce: 0 }
    }

    /// A round trip has ended; the counters are cumulative. Returns whether the connection gets a new label.
    pub fn handle_round(&mut self, now: Time, delivered: u32, delivered_ce: u32, idle: bool) -> bool {
        let acked = delivered.wrapping_sub(self.delivered);
        let marked = delivered_ce.wrapping_sub(self.delivered_ce);
        (self.delivered, self.delivered_ce) = (delivered, delivered_ce);
        if acked == 0 {
            return false;
        }
        if f64::from(marked) < self.settings.cong_thresh.as_f64() * f64::from(acked) {
            self.congested_rounds = 0;
        } else if self.congested_rounds < self.settings.rehash_rounds {
            self.congested_rounds += 1;
        }
        let enough = |rounds: u32| rounds > 0 && self.congested_rounds >= rounds;
        let due = enough(self.settings.rehash_rounds) || idle && enough(self.settings.idle_rehash_rounds);
        if !due || now < self.pause_until {
            return false;
        }
        self.congested_rounds = 0;
        true
    }

    /// The retransmission timer fired; `random` is 32 uniform bits.
    pub fn handle_timeout(&mut self, now: Time, random: u32) {
        let pause = self.settings.suspend_rto.as_nanos();
        let more = ((u128::from(pause) * u128::from(random)) >> 32) as u64;
        self.pause_until = now + Span::from_nanos(pause + more);
        self.congested_rounds = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sidestep_net::{Bytes, Ratio};
    use sidestep_policy::{Connection, Path, Round};
    use sidestep_policy::{PolicyName, PolicySettings};

    use super::*;

    /// Rounds of ten segments each, of which `marks` are marked; returns after which of them there was a new label.
    fn labels(plb: &mut Rounds, marks: &[u32], idle: bool) -> Vec<usize> {
        let (mut delivered, mut delivered_ce) = (plb.delivered, plb.delivered_ce);
        let mut found = Vec::new();
        for (round, marks) in marks.iter().enumerate() {
            (delivered, delivered_ce) = (delivered + 10, delivered_ce + marks);
            if plb.handle_round(Time::ZERO, delivered, delivered_ce, idle) {
                found.push(round);
            }
        }
        found
    }

    #[test]
    fn a_busy_connection_is_moved_after_twelve_congested_rounds_in_a_row() {
        let mut plb = Rounds::new(PlbSettings::default());
        assert_eq!(labels(&mut plb, &[5; 30], false), [11, 23]);
        let mut marks = [10; 20];
        marks[8] = 4;
        assert_eq!(labels(&mut Rounds::new(PlbSettings::default()), &marks, false), [0; 0]);
    }

    #[test]
    fn an_idle_connection_is_moved_after_three() {
        assert_eq!(labels(&mut Rounds::new(PlbSettings::default()), &[5; 7], true), [2, 5]);
    }

    #[test]
    fn after_a_timeout_it_stays_for_one_to_two_minutes() {
        for (random, seconds) in [(0, 60), (u32::MAX / 2, 89), (u32::MAX, 119)] {
            let mut plb = Rounds::new(PlbSettings::default());
            plb.handle_timeout(Time::ZERO, random);
            assert_eq!(plb.pause_until.as_nanos() / 1_000_000_000, seconds);
            assert_eq!(labels(&mut plb, &[10; 40], false), [0; 0]);
        }
    }

    /// The second number that the C policy makes of its random bits, for the pause (`pc_remix`).
    fn remix(random: u32) -> u32 {
        let mut random = random ^ 0x9e37_79b9;
        random = (random ^ (random >> 16)).wrapping_mul(0x85eb_ca6b);
        random = (random ^ (random >> 13)).wrapping_mul(0xc2b2_ae35);
        random ^ (random >> 16)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_policy_of_that_name_moves_when_linux_would_rehash(
            paths in 2..=16_u32,
            thresh in 0..=16_u32,
            rounds in (0..5_u32, 0..8_u32),
            pause in 0..1_u64 << 40,
            events in prop::collection::vec((0..40_u8, 0..1_u64 << 36, 0..20_u32, 0..20_u32, 0..2_u32, any::<u32>()), 400),
        ) {
            let config = PlbSettings {
                cong_thresh: Ratio::from_ppb(thresh * 62_500_000),
                idle_rehash_rounds: rounds.0,
                rehash_rounds: rounds.1,
                suspend_rto: Span::from_nanos(pause),
            };
            let settings = PolicySettings {
                policy: PolicyName::Plb,
                ce_share: Ratio::from_ppb(thresh * 62_500_000),
                plb_idle_rounds: rounds.0,
                plb_rounds: rounds.1,
                plb_pause: config.suspend_rto,
                ..PolicySettings::default()
            };
            let path = |id| Path { id, weight: 1, bdp: Bytes::new(10_000), rtt: Span::from_millis(1), room: None };
            let paths: Vec<_> = (0..paths).map(path).collect();
            let mut policy = Connection::open(&settings, &paths, Time::ZERO, 0)?;
            let mut plb = Rounds::new(config);
            let mut round = Round { mss: 1_000, cwnd: Bytes::new(10_000), ..Round::default() };
            for (kind, time, delivered, marked, in_flight, random) in events {
                // Times below a minute and long pauses alike; one timeout in forty signals.
                round.now += Span::from_nanos(time);
                round.in_flight = in_flight;
                let before = policy.path();
                if kind == 0 {
                    plb.handle_timeout(round.now, remix(random));
                    prop_assert!(policy.handle_timeout(round, false, random).moved);
                } else {
                    round.delivered += delivered;
                    round.delivered_ce += marked.min(delivered);
                    let (all, ce) = (round.delivered, round.delivered_ce);
                    let rehash = plb.handle_round(round.now, all, ce, in_flight == 0);
                    prop_assert_eq!(policy.handle_round(round, random).moved, rehash);
                    prop_assert_eq!(policy.path() != before, rehash);
                }
                prop_assert_eq!(policy.raw().plb_rounds, plb.congested_rounds);
                prop_assert_eq!(policy.raw().plb_pause_ns, plb.pause_until.as_nanos());
            }
        }
    }
}
