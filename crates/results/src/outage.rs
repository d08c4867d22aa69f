//! Retransmission timeouts, and how long it took a connection to deliver again.

use serde::{Deserialize, Serialize};
use sidestep_engine::Outage;
use sidestep_net::Time;

use crate::measures;

/// How a system's connections came through their outages.
///
/// Times are from the first timeout to the next acknowledged byte, in units of the retransmission timeout that the
/// connection had at the first. The second timeout comes at 2, the third at 6, as TCP doubles it each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Outages after which data was acknowledged again.
    pub delivered: u64,
    /// Outages that lasted for two timeouts at least, and until the connection, or the run, ended.
    pub stalled: u64,
    /// Median time of those that ended, nearest rank.
    pub median_rtos: Option<f64>,
    /// 95th percentile, nearest rank.
    pub p95_rtos: Option<f64>,
    /// The longest.
    pub max_rtos: Option<f64>,
    /// Those that ended before their third timeout.
    pub before_third_timeout: u64,
}

/// The recovery from these outages, each with the time when its connection was last observed; `None` of no outages.
pub(crate) fn recovery(outages: &[(Outage, Time)]) -> Option<Recovery> {
    let over = |(outage, end): &(Outage, Time)| outage.until.map(|_| outage.rtos(*end));
    let mut times: Vec<f64> = outages.iter().filter_map(over).collect();
    times.sort_by(f64::total_cmp);
    let stalled = outages.iter().filter(|(outage, end)| outage.until.is_none() && outage.rtos(*end) >= 2.0).count();
    let early = outages.iter().filter(|(outage, _)| outage.until.is_some() && outage.timeouts < 3).count();
    (!times.is_empty() || stalled > 0).then(|| Recovery {
        delivered: times.len() as u64,
        stalled: stalled as u64,
        median_rtos: measures::percentile(&times, 50),
        p95_rtos: measures::percentile(&times, 95),
        max_rtos: times.last().copied(),
        before_third_timeout: early as u64,
    })
}

#[cfg(test)]
mod tests {
    use sidestep_net::Span;

    use super::*;

    /// With an RTO of 200 ms, from second 1 on.
    fn outage(rtos: Option<f64>, timeouts: u32) -> (Outage, Time) {
        let at = Time::ZERO + Span::from_secs(1);
        let until = rtos.map(|rtos| at + Span::from_nanos((rtos * 200e6) as u64));
        (Outage { at, rto: Span::from_millis(200), until, timeouts }, at + Span::from_secs(10))
    }

    #[test]
    fn recovery_is_reported_in_the_timeouts_of_each_connection() {
        let outages = [outage(Some(0.5), 1), outage(Some(2.25), 2), outage(Some(6.5), 3), outage(None, 6)];
        let recovery = recovery(&outages).unwrap();
        assert_eq!((recovery.delivered, recovery.stalled, recovery.before_third_timeout), (3, 1, 2));
        assert_eq!((recovery.median_rtos, recovery.p95_rtos, recovery.max_rtos), (Some(2.25), Some(6.5), Some(6.5)));
    }

    #[test]
    fn an_outage_that_the_end_of_the_run_cut_short_proves_nothing() {
        let (cut, _) = outage(None, 1);
        assert_eq!(recovery(&[(cut, cut.at + Span::from_millis(399))]), None);
        assert_eq!(recovery(&[(cut, cut.at + Span::from_millis(401))]).map(|recovery| recovery.stalled), Some(1));
    }
}
