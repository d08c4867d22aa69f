//! The paper's arithmetic: what moving the aggregate gains and costs, from rates and times alone.
//!
//! The primary path is good for `T_g` on the mean and then impaired for `T_b`. TCP gets `R_pg` on the good primary, `R_pb`
//! on the impaired one, and `R_b` on the backup. The controller leaves the primary `T_mb` after an impairment has begun, and
//! returns `T_mg` after it has ended. Equations (1) to (5) have the numbers of the paper: Gao and others, "Interactions
//! of Intelligent Route Control with TCP Congestion Control", sections 5 and 6. Our (6) has no number there (section
//! 4); the paper's (6) is its (5) for outages.

use sidestep_net::{Rate, Span};

use super::RouteControlRto;

/// The rates that TCP gets, in any one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// `R_pg`: on the primary while it is good.
    pub primary_good: f64,
    /// `R_pb`: on the primary while it is impaired.
    pub primary_bad: f64,
    /// `R_b`: on the backup.
    pub backup: f64,
}

/// The times of impairments and of their detection, in any one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// `T_g`: how long the primary is good, on the mean.
    pub good: f64,
    /// `T_b`: how long it is impaired, on the mean.
    pub bad: f64,
    /// `T_mg`: from the end of an impairment until the controller returns to the primary.
    pub to_primary: f64,
    /// `T_mb`: from its begin until the controller leaves the primary.
    pub to_backup: f64,
}

/// Equation (1): the throughput with ideal control, which moves at once.
pub fn ideal(rates: &Rates, times: &Times) -> f64 {
    (rates.primary_good * times.good + rates.backup * times.bad) / (times.good + times.bad)
}

/// Equation (2): the throughput with practical control, which moves after `T_mb` and `T_mg`.
pub fn practical(rates: &Rates, times: &Times) -> f64 {
    let bad_primary = times.to_backup.min(times.bad);
    let late = times.to_primary.min(times.good);
    let sum = rates.primary_good * (times.good - late)
        + rates.backup * (times.bad - bad_primary + late)
        + rates.primary_bad * bad_primary;
    sum / (times.good + times.bad)
}

/// Equation (3): whether practical control gets more than ideal control. It needs an impaired primary that gives more than
/// the backup: `(R_pb − R_b)·T_mb > (R_pg − R_b)·T_mg`.
pub fn practical_beats_ideal(rates: &Rates, times: &Times) -> bool {
    (rates.primary_bad - rates.backup) * times.to_backup > (rates.primary_good - rates.backup) * times.to_primary
}

/// Equation (4): the throughput with static routing, which never moves.
pub fn fixed(rates: &Rates, times: &Times) -> f64 {
    (rates.primary_good * times.good + rates.primary_bad * times.bad) / (times.good + times.bad)
}

/// Condition (5): whether static routing gets more than practical control, `(R_b − R_pb)/(R_pg − R_b) < T_mg/(T_b − T_mb)`.
/// A move has to win on the backup what the late return loses.
///
/// Multiplied out, so that it also holds where a denominator is zero or less: an impairment that is over before the
/// controller has left is never worth a move.
pub fn static_wins(rates: &Rates, times: &Times) -> bool {
    let gain = (rates.backup - rates.primary_bad) * (times.bad - times.to_backup).max(0.0);
    gain < (rates.primary_good - rates.backup) * times.to_primary
}

/// Equation (6): the time that TCP takes to fill a path after a move to more capacity, `RTT²·(C − R)/(L·N)`: each of `N`
/// connections grows by one packet of `L` bits in a round trip (section 4). The paper prints it with one `RTT`, which
/// counts round trips. Before that a throughput shows what TCP has not reached yet, and not what the path gives.
pub fn fill_time(rtt: Span, capacity: Rate, rate: Rate, packet_bits: f64, connections: f64) -> Span {
    let spare = capacity.bits_per_sec().saturating_sub(rate.bits_per_sec()) as f64;
    let round_trips = rtt.as_secs_f64() * spare / (packet_bits * connections.max(1.0));
    Span::from_nanos((round_trips * rtt.as_secs_f64() * 1e9).clamp(0.0, 1e18) as u64)
}

/// How many packets of a connection are overtaken at a move to less delay: `N_o = K·(OWD_b − OWD_p)`, with `K` packets a
/// second (section 3). From 3 on TCP takes them for lost (RFC 5681, section 3.2).
pub fn overtaken(packets_per_second: f64, from: Span, to: Span) -> f64 {
    packets_per_second * (from.as_secs_f64() - to.as_secs_f64()).max(0.0)
}

/// The retransmission timeout on a path whose round trip does not vary; `None` where none is considered. RFC 6298,
/// section 2, rule 2.4 rounds the sum up; the paper's section 3 speaks of the lesser of the two, which no TCP takes.
pub fn rto(rule: RouteControlRto, rtt: Span, min_rto: Span) -> Option<Span> {
    match rule {
        RouteControlRto::Off => None,
        RouteControlRto::Rfc => Some(rtt.max(min_rto)),
        RouteControlRto::Linux => Some(rtt + min_rto),
    }
}

/// The round trip beyond which a move from a path with round trip `rtt` makes timers fire: no acknowledgement comes for the
/// difference of the two round trips.
pub fn timeout_onset(rule: RouteControlRto, rtt: Span, min_rto: Span) -> Option<Span> {
    rto(rule, rtt, min_rto).map(|rto| rtt + rto)
}

/// The probability that none of `probes` probes meets a loss of share `loss`: ours, as if losses were independent.
pub fn misses(loss: f64, probes: f64) -> f64 {
    (1.0 - loss).powf(probes)
}

/// `T_mb` of a random loss, on the mean: the rest of the routing period, the timeout of the last probes, and one period for
/// each measurement that misses the loss. An outage is a loss of 1. Ours: the paper's section 5 names these times and
/// measures them.
pub fn time_to_backup(period: f64, timeout: f64, loss: f64, probes: f64) -> f64 {
    let missed = misses(loss, probes);
    if missed >= 1.0 {
        return f64::INFINITY;
    }
    period / 2.0 + timeout + period * missed / (1.0 - missed)
}

/// `T_mg` on the mean: the rest of the routing period, the timeout, and a period more for impairments that end within a
/// measurement, which still sees them. Ours, too.
pub fn time_to_primary(period: f64, measurement: f64, timeout: f64) -> f64 {
    period / 2.0 + measurement + timeout
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates { primary_good: 7.0, primary_bad: 0.0, backup: 5.0 };
    const TIMES: Times = Times { good: 100.0, bad: 50.0, to_primary: 1.0, to_backup: 0.5 };

    #[test]
    fn four_connections_fill_5_mbit_at_60_ms_in_0_375_s() {
        // The paper's example: 60 ms, 5 Mbit/s to fill, 4 flows, 1500 bytes.
        let time = fill_time(Span::from_millis(60), Rate::from_mbits(5), Rate::ZERO, 12_000.0, 4.0);
        assert_eq!(time, Span::from_millis(375));
    }

    #[test]
    fn timeouts_begin_beyond_240_ms_by_the_rfc_and_280_ms_in_linux() {
        let onset = |rule| timeout_onset(rule, Span::from_millis(40), Span::from_millis(200));
        assert_eq!(onset(RouteControlRto::Rfc), Some(Span::from_millis(240)));
        assert_eq!(onset(RouteControlRto::Linux), Some(Span::from_millis(280)));
        assert_eq!(onset(RouteControlRto::Off), None);
    }

    #[test]
    fn forty_probes_miss_a_loss_with_the_power_of_its_complement() {
        assert!((misses(0.02, 40.0) - 0.445_7).abs() < 1e-4 && (misses(0.1, 40.0) - 0.014_8).abs() < 1e-4);
        // One period more for each measurement that misses: q / (1 − q).
        assert!((time_to_backup(1.0, 0.0, 0.02, 40.0) - (0.5 + 0.445_7 / 0.554_3)).abs() < 1e-3);
        assert_eq!(time_to_backup(1.0, 0.5, 1.0, 40.0), 1.0);
        assert_eq!(time_to_backup(1.0, 0.5, 0.0, 40.0), f64::INFINITY);
    }

    #[test]
    fn condition_5_says_what_equations_2_and_4_compare() {
        for bad in [0.2, 0.5, 0.8, 1.0, 2.0, 20.0] {
            for primary_bad in [0.0, 2.0, 4.9, 5.5] {
                let (rates, times) = (Rates { primary_bad, ..RATES }, Times { bad, ..TIMES });
                let wins = fixed(&rates, &times) > practical(&rates, &times) + 1e-12;
                assert_eq!(static_wins(&rates, &times), wins, "{rates:?} {times:?}");
            }
        }
        // (5 − 0)/(7 − 5) = 2.5 = 1/(T_b − 0.5) at T_b = 0.9 s.
        assert!(
            static_wins(&RATES, &Times { bad: 0.89, ..TIMES }) && !static_wins(&RATES, &Times { bad: 0.91, ..TIMES })
        );
    }

    #[test]
    fn condition_3_says_what_equations_1_and_2_compare_and_forces_the_crossing_of_the_rates_to_the_right() {
        for primary_bad in [0.0, 4.0, 5.0, 6.0, 6.9, 7.0, 12.0] {
            let rates = Rates { primary_bad, ..RATES };
            let beats = practical(&rates, &TIMES) > ideal(&rates, &TIMES) + 1e-12;
            assert_eq!(practical_beats_ideal(&rates, &TIMES), beats, "{rates:?}");
            // Where practical control wins, the impaired primary gives more than the backup.
            assert!(!beats || rates.primary_bad > rates.backup);
        }
    }

    #[test]
    fn ideal_control_beats_static_routing_as_long_as_the_backup_gives_more_than_the_impaired_primary() {
        assert!(ideal(&RATES, &TIMES) > fixed(&RATES, &TIMES));
        assert_eq!(overtaken(100.0, Span::from_millis(100), Span::from_millis(70)), 3.0);
        assert_eq!(overtaken(100.0, Span::from_millis(70), Span::from_millis(100)), 0.0);
    }
}
