//! What the path manager exports to Prometheus.

use std::collections::BTreeMap;

use sidestep_coupled::Algorithm;
use sidestep_hostd::{Metric, Page};
use sidestep_linux::mptcp::RefusalKind;

use super::{
    congestion::{CongestionStatus, Coupled},
    manager::Manager,
    tally::Limit,
};

const CONNECTIONS: Metric =
    Metric::gauge("sidestep_mptcp_connections", "MPTCP connections that are managed, by who opened them (here, there)");
const SUBFLOWS: Metric =
    Metric::gauge("sidestep_mptcp_subflows", "Subflows of these connections, by state (established, joining)");
const MISSING: Metric = Metric::gauge(
    "sidestep_mptcp_connections_limited",
    "Connections that a limit keeps from more subflows now, by the limit",
);
const LIMITED: Metric =
    Metric::counter("sidestep_mptcp_limits", "How often a limit began to keep a connection from more subflows");
const BEGUN: Metric = Metric::counter("sidestep_mptcp_subflows_begun", "Subflows that the kernel was asked for");
const JOINED: Metric =
    Metric::counter("sidestep_mptcp_subflows_joined", "Further subflows that were established, at either end");
const LOST: Metric =
    Metric::counter("sidestep_mptcp_subflows_lost", "Subflows that ended, or were never established, without us");
const ENDED: Metric =
    Metric::counter("sidestep_mptcp_subflows_ended", "Subflows that were ended: dead, or their address gone");
const WITHDRAWN: Metric = Metric::counter(
    "sidestep_mptcp_addresses_withdrawn",
    "Addresses that the other end of a connection was told are gone",
);
const REFUSED: Metric = Metric::counter("sidestep_mptcp_refusals", "Refusals of the kernel, by their meaning");
const UNMANAGED: Metric =
    Metric::counter("sidestep_mptcp_connections_unmanaged", "Connections left alone because there were too many");
const OVERFLOWS: Metric =
    Metric::counter("sidestep_mptcp_event_overflows", "Times that events of the kernel were lost");
const COMPLETED: Metric =
    Metric::counter("sidestep_mptcp_connections_completed", "Connections that got all of their subflows");
const TOOK: Metric = Metric::counter(
    "sidestep_mptcp_completion_seconds",
    "Sum of the times from the establishment of these connections to that of their last subflow",
);
const LONGEST: Metric =
    Metric::gauge("sidestep_mptcp_completion_longest_seconds", "The longest of these times since the start");
const LIST: Metric = Metric::gauge("sidestep_mptcp_list_seconds", "Time that the last list of all subflows took");
const GIVEN: Metric = Metric::counter(
    "sidestep_mptcp_congestion_subflows",
    "Subflows by what became of the coupled congestion control (given, chosen by their program, refused), and connections that fell back",
);
const COUPLED: Metric =
    Metric::gauge("sidestep_mptcp_coupled_subflows", "Subflows whose windows are coupled, by the algorithm");
const WINDOWS: Metric =
    Metric::gauge("sidestep_mptcp_coupled_window_bytes", "Sum of the congestion windows of these subflows");
const ACKED: Metric =
    Metric::gauge("sidestep_mptcp_coupled_acked_bytes", "Bytes acknowledged on those of these subflows that exist");
const ALPHA: Metric = Metric::gauge(
    "sidestep_mptcp_coupled_alpha",
    "Mean of LIA's alpha over the connections of these subflows (RFC 6356): a TCP on the best path is 1",
);
const FAULTS: Metric = Metric::counter("sidestep_mptcp_faults", "Errors after which the path manager went on");

/// Every metric of the path manager.
pub const MPTCP_PM_METRICS: &[Metric] = &[
    CONNECTIONS,
    SUBFLOWS,
    MISSING,
    LIMITED,
    BEGUN,
    JOINED,
    LOST,
    ENDED,
    WITHDRAWN,
    REFUSED,
    UNMANAGED,
    OVERFLOWS,
    COMPLETED,
    TOOK,
    LONGEST,
    LIST,
    GIVEN,
    COUPLED,
    WINDOWS,
    ACKED,
    ALPHA,
    FAULTS,
];

/// The page that Prometheus gets.
pub(super) fn page(manager: &Manager, congestion: &CongestionStatus, list_seconds: f64, faults: u64) -> Page {
    let mut page = Page::default();
    let (mut here, mut there, mut established, mut joining) = (0, 0, 0, 0);
    let mut limited: BTreeMap<Limit, u32> = BTreeMap::new();
    for (_, connection, _) in manager.connections() {
        *(if connection.first.accepted { &mut there } else { &mut here }) += 1;
        established += connection.ready();
        joining += connection.joining();
        if let Some(limit) = connection.limited {
            *limited.entry(limit).or_default() += 1;
        }
    }
    let counters = manager.counters();
    let label = |key, value: &str| vec![(key, value.to_string())];
    page.each(CONNECTIONS, [("here", here), ("there", there)].map(|(by, n)| (label("opened", by), f64::from(n))));
    let states = [("established", established), ("joining", joining)];
    page.each(SUBFLOWS, states.map(|(state, n)| (label("state", state), f64::from(n))));
    let now = |limit: &Limit| f64::from(limited.get(limit).copied().unwrap_or_default());
    page.each(MISSING, Limit::ALL.map(|limit| (label("limit", limit.as_str()), now(&limit))));
    let ever = |limit: &Limit| counters.limited.get(limit).copied().unwrap_or_default() as f64;
    page.each(LIMITED, Limit::ALL.map(|limit| (label("limit", limit.as_str()), ever(&limit))));
    for (metric, value) in [
        (BEGUN, counters.begun),
        (JOINED, counters.joined),
        (LOST, counters.lost),
        (ENDED, counters.ended),
        (WITHDRAWN, counters.withdrawn),
        (UNMANAGED, counters.unmanaged),
        (OVERFLOWS, counters.overflows),
        (COMPLETED, counters.completed.0),
        (FAULTS, faults),
    ] {
        page.one(metric, value as f64);
    }
    page.one(TOOK, counters.completed.1.as_secs_f64());
    page.one(LONGEST, counters.completed.2.as_secs_f64());
    page.one(LIST, list_seconds);
    let refusals = RefusalKind::ALL.map(|kind| (kind, counters.refusals.get(&kind).copied().unwrap_or_default()));
    page.each(REFUSED, refusals.map(|(kind, n)| (label("reason", kind.as_str()), n as f64)));
    let CongestionStatus { given, chosen, refused, fallbacks, .. } = congestion;
    let became = [("given", given), ("chosen", chosen), ("refused", refused), ("fallback", fallbacks)];
    page.each(GIVEN, became.map(|(what, n)| (label("became", what), *n as f64)));
    let coupled = Algorithm::ALL.map(|algorithm| (algorithm, Coupled::of(manager, algorithm)));
    let by = |of: fn(&Coupled) -> f64| coupled.each_ref().map(|(by, sum)| (label("algorithm", by.as_str()), of(sum)));
    page.each(COUPLED, by(|sum| f64::from(sum.subflows)));
    page.each(WINDOWS, by(|sum| sum.windows as f64));
    page.each(ACKED, by(|sum| sum.acked as f64));
    page.each(ALPHA, by(Coupled::alpha));
    page
}

#[cfg(test)]
mod tests {
    use super::{super::config::MptcpPmConfig, *};

    #[test]
    fn every_metric_of_the_path_manager_is_on_its_page() {
        let manager = Manager::new(MptcpPmConfig::default(), (32_768, 60_999), 1);
        let page = page(&manager, &CongestionStatus::default(), 0.5, 3).into_text().unwrap();
        for metric in MPTCP_PM_METRICS {
            assert!(page.contains(&format!("# TYPE {} ", metric.name)), "{}", metric.name);
        }
        assert_eq!(page.matches("# TYPE ").count(), MPTCP_PM_METRICS.len());
        assert!(page.contains("sidestep_mptcp_faults_total 3.0\n"), "{page}");
        assert!(page.contains("sidestep_mptcp_refusals_total{reason=\"no-port\"} 0.0\n"), "{page}");
    }
}
