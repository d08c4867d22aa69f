//! What the router daemon exports to Prometheus.

use sidestep_metrics::{Labels, Metric, Page};

const CONTROLLER: Metric = Metric::gauge("sidestep_router_controller_connected", "Whether the controller is reached");
const PATH_IDS: Metric = Metric::gauge("sidestep_router_path_ids", "Path IDs that are installed");
const REPORTS: Metric = Metric::counter(
    "sidestep_router_reports",
    "Reports of usage, by whether the controller took them (taken) or not (lost)",
);
const SENT: Metric = Metric::counter("sidestep_router_link_sent_bytes", "Bytes that the interface of a link has sent");
const MARKS: Metric =
    Metric::counter("sidestep_router_marks_copied", "Congestion marks copied inward before decapsulation");
const FAULTS: Metric = Metric::counter("sidestep_router_faults", "Errors after which the daemon went on");

/// Every metric of the router daemon.
pub const ROUTER_METRICS: &[Metric] = &[CONTROLLER, PATH_IDS, REPORTS, SENT, MARKS, FAULTS];

/// What the metrics are made of.
#[derive(Clone, Debug, Default)]
pub(super) struct RouterReading {
    pub(super) connected: bool,
    pub(super) taken: u64,
    pub(super) lost: u64,
    pub(super) path_ids: usize,
    /// Bytes sent by link.
    pub(super) sent: Vec<(String, u64)>,
    pub(super) marks: u64,
    /// Errors that the daemon has survived.
    pub(super) faults: u64,
}

impl RouterReading {
    /// The page that Prometheus gets.
    pub(super) fn page(self) -> Page {
        let mut page = Page::default();
        page.one(CONTROLLER, self.connected.into());
        page.one(PATH_IDS, self.path_ids as f64);
        let reports = [("taken", self.taken), ("lost", self.lost)];
        page.each(REPORTS, reports.map(|(result, n)| (vec![("result", result.to_string())], n as f64)));
        let sent = |(link, bytes): (String, u64)| -> (Labels, f64) { (vec![("link", link)], bytes as f64) };
        page.each(SENT, self.sent.into_iter().map(sent));
        page.one(MARKS, self.marks as f64);
        page.one(FAULTS, self.faults as f64);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_of_a_router_is_on_its_page() {
        let reading = RouterReading { lost: 2, sent: vec![("A-m1".into(), 7)], ..RouterReading::default() };
        let page = reading.page().into_text().unwrap();
        for metric in ROUTER_METRICS {
            assert!(page.contains(&format!("# TYPE {} ", metric.name)), "{}", metric.name);
        }
        assert_eq!(page.matches("# TYPE ").count(), ROUTER_METRICS.len());
        assert!(page.contains("sidestep_router_reports_total{result=\"lost\"} 2.0\n"), "{page}");
        assert!(page.contains("sidestep_router_link_sent_bytes_total{link=\"A-m1\"} 7.0\n"), "{page}");
    }
}
