//! What the edge daemon exports to Prometheus.

use sidestep_hostd::{Labels, Metric, Page};

use super::hash_doubts::HashDoubt;
use super::peer::EdgeAgreement;
use super::status::{EdgeDestination, EdgePath, EdgeStatus};

const PACKETS: Metric = Metric::counter(
    "sidestep_edge_packets",
    "Packets from the site by what became of them; one that GRO has merged counts once",
);
const LIVE: Metric = Metric::gauge("sidestep_edge_path_live", "Whether flows are put on the path");
const SLOT: Metric = Metric::gauge("sidestep_edge_path_slot", "The path's mark slot, 0 where it has no route");
const SLOT_PACKETS: Metric = Metric::counter("sidestep_edge_slot_packets", "Packets by the mark slot that they got");
const SLOT_BYTES: Metric = Metric::counter("sidestep_edge_slot_bytes", "Bytes by the mark slot that packets got");
const GENERATION: Metric = Metric::gauge("sidestep_edge_generation", "The generation of the set of paths");
const DIGEST: Metric =
    Metric::gauge("sidestep_edge_digest", "1; the label is what the other edge must have for the same set of paths");
const ATTACHED: Metric = Metric::gauge("sidestep_edge_attached", "Whether the balancer is on the site's interface");
const FLOWS: Metric = Metric::gauge("sidestep_edge_flows", "Flows in the table of an edge that keeps one");
const PEER: Metric = Metric::gauge(
    "sidestep_edge_peer_agrees",
    "Whether the other edge has the same set of paths; 0 also while it is silent",
);
const PROBES: Metric = Metric::counter(
    "sidestep_edge_probes",
    "Rounds of probes by path and by what became of them; those that no path has answered are left out",
);
const RTT: Metric = Metric::gauge("sidestep_edge_probe_rtt_seconds", "The last round trip of a probe by the path");
const ANSWERS: Metric =
    Metric::gauge("sidestep_edge_target_answers", "Whether a target of the destination answers probes by any path");
const REFLECTED: Metric = Metric::counter("sidestep_edge_reflected", "Probes of the other edge that were answered");
const MENDED: Metric =
    Metric::counter("sidestep_edge_mended", "Rules, routes and filters that others removed and that were put back");
const OVERRIDDEN: Metric = Metric::gauge(
    "sidestep_edge_overridden",
    "Kinds of packets that do not leave as decided, as a rule or a route of others comes first",
);
const RESTORED: Metric =
    Metric::gauge("sidestep_edge_marks_restored", "Rules of others that restore its bits of the mark");
const IDLE: Metric = Metric::gauge(
    "sidestep_edge_idle_paths",
    "Live paths of the destination that get no flow although others get many: a router before this one chooses by the same hash",
);
const DRY_RUN: Metric = Metric::gauge("sidestep_edge_dry_run", "Whether packets are only counted");
const FAULTS: Metric = Metric::counter("sidestep_edge_faults", "Errors after which the daemon went on");

/// Every metric of the edge daemon.
pub const EDGE_METRICS: &[Metric] = &[
    PACKETS,
    LIVE,
    SLOT,
    SLOT_PACKETS,
    SLOT_BYTES,
    GENERATION,
    DIGEST,
    ATTACHED,
    FLOWS,
    PEER,
    PROBES,
    RTT,
    ANSWERS,
    REFLECTED,
    MENDED,
    OVERRIDDEN,
    RESTORED,
    IDLE,
    DRY_RUN,
    FAULTS,
];

/// The page that Prometheus gets.
pub(super) fn page(status: &EdgeStatus, faults: u64) -> Page {
    let mut page = Page::default();
    page.each(PACKETS, status.packets.iter().map(|(what, count)| (vec![("what", what.clone())], *count as f64)));
    let paths = || status.destinations.iter().flat_map(|set| set.paths.iter().map(move |path| (set, path)));
    let of = |(set, path): (&EdgeDestination, &EdgePath)| -> Labels {
        vec![("destination", set.prefix.to_string()), ("path", path.name.clone())]
    };
    page.each(LIVE, paths().map(|both| (of(both), both.1.live.into())));
    page.each(SLOT, paths().map(|both| (of(both), both.1.slot.into())));
    let slot = |slot: &u32| -> Labels { vec![("slot", slot.to_string())] };
    page.each(SLOT_PACKETS, status.slots.iter().map(|(number, used)| (slot(number), used.packets as f64)));
    page.each(SLOT_BYTES, status.slots.iter().map(|(number, used)| (slot(number), used.bytes as f64)));
    page.one(GENERATION, status.generation as f64);
    let digest = |set: &EdgeDestination| -> Labels {
        vec![("destination", set.prefix.to_string()), ("digest", set.digest.clone())]
    };
    page.each(DIGEST, status.destinations.iter().map(|set| (digest(set), 1.0)));
    let attached =
        |(name, is_on): (&String, &bool)| -> (Labels, f64) { (vec![("interface", name.clone())], (*is_on).into()) };
    page.each(ATTACHED, status.inside.iter().map(attached));
    page.each(FLOWS, status.flows.map(|flows| (Labels::new(), flows as f64)));
    page.each(PEER, status.peer.map(|peer| (Labels::new(), (peer == EdgeAgreement::Agrees).into())));
    let probed = || paths().filter_map(|both| Some((of(both), both.1.probes?)));
    page.each(
        PROBES,
        probed().flat_map(|(labels, probes)| {
            let counts = [("answered", probes.answered), ("lost", probes.lost), ("late", probes.late)];
            counts.map(|(what, count)| {
                (labels.iter().cloned().chain([("what", what.to_string())]).collect(), count as f64)
            })
        }),
    );
    page.each(RTT, probed().filter_map(|(labels, probes)| Some((labels, probes.rtt_ms? / 1e3))));
    let answers = |set: &EdgeDestination| Some((vec![("destination", set.prefix.to_string())], set.answers?.into()));
    page.each(ANSWERS, status.destinations.iter().filter_map(answers));
    page.each(REFLECTED, status.reflected.map(|count| (Labels::new(), count as f64)));
    page.one(MENDED, status.mended as f64);
    page.one(OVERRIDDEN, status.overridden.len() as f64);
    page.one(RESTORED, status.restored.len() as f64);
    let idle = |set: &EdgeDestination| {
        let of = |doubt: &HashDoubt| match doubt {
            HashDoubt::Idle { prefixes, idle, .. } if prefixes.contains(&set.prefix) => idle.len(),
            _ => 0,
        };
        let paths: usize = status.doubts.iter().map(of).sum();
        (vec![("destination", set.prefix.to_string())], paths as f64)
    };
    page.each(IDLE, status.destinations.iter().map(idle));
    page.one(DRY_RUN, status.dry_run.into());
    page.one(FAULTS, faults as f64);
    page
}
