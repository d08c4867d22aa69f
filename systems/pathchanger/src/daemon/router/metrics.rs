//! What the router daemon exports to Prometheus.

use sidestep_hostd::{Labels, Metric, Page};

use super::{links::LinkReading, sids::SidCounts};

const CONTROLLER: Metric = Metric::gauge("sidestep_router_controller_connected", "Whether the controller is reached");
const PATH_IDS: Metric = Metric::gauge("sidestep_router_path_ids", "Path IDs that the kernel has");
const WANTED: Metric = Metric::gauge("sidestep_router_path_ids_wanted", "Path IDs that the controller wants installed");
const REFUSED: Metric =
    Metric::gauge("sidestep_router_path_ids_refused", "Path IDs that the kernel refused at the last attempt");
const REFUSALS: Metric =
    Metric::counter("sidestep_router_refusals", "Attempts to install a Path ID that the kernel refused");
const PUT_BACK: Metric =
    Metric::counter("sidestep_router_path_ids_put_back", "Path IDs that somebody else removed and that were put back");
const REPORTS: Metric = Metric::counter(
    "sidestep_router_reports",
    "Reports of usage, by whether the controller took them (taken) or not (lost)",
);
const UP: Metric = Metric::gauge("sidestep_router_link_up", "Whether the interface of a link is there and carries");
const SENT: Metric = Metric::counter("sidestep_router_link_sent_bytes", "Bytes that the interface of a link has sent");
const MARKS: Metric =
    Metric::counter("sidestep_router_marks_copied", "Congestion marks copied inward before decapsulation");
const FAULTS: Metric = Metric::counter("sidestep_router_faults", "Errors after which the daemon went on");

/// Every metric of the router daemon.
pub const ROUTER_METRICS: &[Metric] =
    &[CONTROLLER, PATH_IDS, WANTED, REFUSED, REFUSALS, PUT_BACK, REPORTS, UP, SENT, MARKS, FAULTS];

/// What the metrics are made of.
#[derive(Clone, Debug, Default)]
pub(super) struct RouterReading {
    pub(super) connected: bool,
    pub(super) taken: u64,
    pub(super) lost: u64,
    pub(super) sids: SidCounts,
    pub(super) links: Vec<LinkReading>,
    pub(super) marks: u64,
    /// Errors that the daemon has survived.
    pub(super) faults: u64,
}

impl RouterReading {
    /// The page that Prometheus gets.
    pub(super) fn page(self) -> Page {
        let mut page = Page::default();
        page.one(CONTROLLER, self.connected.into());
        page.one(PATH_IDS, self.sids.in_kernel as f64);
        page.one(WANTED, self.sids.wanted as f64);
        page.one(REFUSED, self.sids.refused as f64);
        page.one(REFUSALS, self.sids.refusals as f64);
        page.one(PUT_BACK, self.sids.put_back as f64);
        let reports = [("taken", self.taken), ("lost", self.lost)];
        page.each(REPORTS, reports.map(|(result, n)| (vec![("result", result.to_string())], n as f64)));
        let of = |link: &LinkReading| -> Labels { vec![("link", link.link.clone())] };
        page.each(UP, self.links.iter().map(|link| (of(link), link.up.into())));
        page.each(SENT, self.links.iter().map(|link| (of(link), link.sent as f64)));
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
        let links = vec![LinkReading { link: "A-m1".into(), sent: 7, up: true }];
        let reading = RouterReading { lost: 2, links, ..RouterReading::default() };
        let page = reading.page().into_text().unwrap();
        for metric in ROUTER_METRICS {
            assert!(page.contains(&format!("# TYPE {} ", metric.name)), "{}", metric.name);
        }
        assert_eq!(page.matches("# TYPE ").count(), ROUTER_METRICS.len());
        assert!(page.contains("sidestep_router_reports_total{result=\"lost\"} 2.0\n"), "{page}");
        assert!(page.contains("sidestep_router_link_sent_bytes_total{link=\"A-m1\"} 7.0\n"), "{page}");
        assert!(page.contains("sidestep_router_link_up{link=\"A-m1\"} 1.0\n"), "{page}");
    }
}
