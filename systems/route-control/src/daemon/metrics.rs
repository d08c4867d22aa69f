//! What the route controller exports to Prometheus.

use sidestep_hostd::{Labels, Metric, Page};

use super::{
    WayStatus,
    status::{EgressStatus, FamilyEgress, FamilyStatus, RouteControlStatus},
};

const ACTIVE: Metric = Metric::gauge("sidestep_route_control_active", "Whether packets of the family take this egress");
const USABLE: Metric =
    Metric::gauge("sidestep_route_control_usable", "Whether packets of the family can leave by the egress");
const HEALTH: Metric = Metric::gauge(
    "sidestep_route_control_health",
    "1 for the state of the egress for the family: unknown, fine, impaired, dead or unprobed",
);
const UNPROBED: Metric = Metric::gauge(
    "sidestep_route_control_unprobed",
    "Whether the host cannot send probes of a family by the egress, so that nothing is known of it",
);
const LOSS: Metric = Metric::gauge(
    "sidestep_route_control_loss_ratio",
    "Share of the probes that were lost, averaged over measurements",
);
const RTT: Metric =
    Metric::gauge("sidestep_route_control_rtt_seconds", "Mean round trip of the last measurement's probes");
const PREDICTED: Metric = Metric::gauge(
    "sidestep_route_control_predicted_bits_per_second",
    "Throughput that TCP is predicted to get by the egress",
);
const GOODPUT: Metric = Metric::gauge(
    "sidestep_route_control_goodput_bits_per_second",
    "What TCP got by the egress since the decision before, where passing traffic is measured",
);
const RETRANSMITTED: Metric = Metric::gauge(
    "sidestep_route_control_retransmitted_ratio",
    "Share of TCP's segments with data by the egress that were sent again",
);
const TRAFFIC_RTT: Metric = Metric::gauge(
    "sidestep_route_control_traffic_rtt_seconds",
    "Mean round trip of TCP by the egress, to the far ends and back",
);
const UTILISATION: Metric = Metric::gauge(
    "sidestep_route_control_utilisation_ratio",
    "What the egress's interface sent in the last periods as a share of its capacity, where load decides",
);
const SHARE: Metric =
    Metric::gauge("sidestep_route_control_share_ratio", "Share of the flows that take the egress, where load decides");
const PENALTY: Metric = Metric::gauge("sidestep_route_control_penalty", "What flaps have earned the egress");
const TARGET: Metric = Metric::gauge(
    "sidestep_route_control_target_lost_ratio",
    "Share of the last measurement's probes to a target that were lost, by egress",
);
const MOVES: Metric = Metric::counter("sidestep_route_control_moves", "Moves by family and reason");
const DECISIONS: Metric = Metric::counter("sidestep_route_control_decisions", "Decisions, those to stay included");
const REFUSED: Metric =
    Metric::counter("sidestep_route_control_refused_probes", "Probes that the kernel refused to send");
const MENDED: Metric =
    Metric::counter("sidestep_route_control_mended", "Rules and routes that others removed and that were put back");
const OVERRIDDEN: Metric = Metric::gauge(
    "sidestep_route_control_overridden",
    "Kinds of packets that do not leave as decided, as a rule or a route of others comes first",
);
const RESTORED: Metric =
    Metric::gauge("sidestep_route_control_marks_restored", "Rules of others that restore its bits of the mark");
const DRY_RUN: Metric = Metric::gauge("sidestep_route_control_dry_run", "Whether it decides only, and changes nothing");
const FAULTS: Metric = Metric::counter("sidestep_route_control_faults", "Errors after which the daemon went on");

/// Every metric of the route controller.
pub const ROUTE_CONTROL_METRICS: &[Metric] = &[
    ACTIVE,
    USABLE,
    HEALTH,
    UNPROBED,
    LOSS,
    RTT,
    PREDICTED,
    GOODPUT,
    RETRANSMITTED,
    TRAFFIC_RTT,
    UTILISATION,
    SHARE,
    PENALTY,
    TARGET,
    MOVES,
    DECISIONS,
    REFUSED,
    MENDED,
    OVERRIDDEN,
    RESTORED,
    DRY_RUN,
    FAULTS,
];

/// The page that Prometheus gets.
pub(super) fn page(status: &RouteControlStatus, faults: u64) -> Page {
    let mut page = Page::default();
    let families = || status.families.iter();
    let all = || families().flat_map(|family| family.egresses.iter().map(move |one| (family, one)));
    let probed = || all().filter(|(family, _)| family.probed);
    let of = |(family, one): (&FamilyStatus, &FamilyEgress)| -> Labels {
        vec![("egress", one.name.clone()), ("family", family.family.clone())]
    };
    let steered = || all().filter(|(family, _)| !family.destinations.is_empty());
    page.each(ACTIVE, steered().map(|one| (of(one), (one.1.name == one.0.active).into())));
    page.each(USABLE, all().map(|one| (of(one), one.1.unusable.is_none().into())));
    let health = |one: (&FamilyStatus, &FamilyEgress)| -> Labels {
        of(one).into_iter().chain([("health", one.1.seen.health.clone())]).collect()
    };
    page.each(HEALTH, probed().map(|one| (health(one), 1.0)));
    let ways = || status.egresses.iter().flat_map(|one| one.ways.iter().map(move |way| (one, way)));
    let family = |one: &EgressStatus, way: &WayStatus| -> Labels {
        vec![("egress", one.name.clone()), ("family", way.family.clone())]
    };
    page.each(UNPROBED, ways().map(|(one, way)| (family(one, way), way.unprobed.is_some().into())));
    page.each(LOSS, probed().map(|one| (of(one), one.1.seen.loss)));
    page.each(RTT, probed().filter_map(|one| Some((of(one), one.1.seen.rtt_ms? / 1e3))));
    page.each(PREDICTED, probed().filter_map(|one| Some((of(one), one.1.seen.predicted_mbps? * 1e6))));
    let passed = || probed().filter_map(|one| Some((of(one), one.1.seen.passed.as_ref()?)));
    page.each(GOODPUT, passed().map(|(of, passed)| (of, passed.goodput_mbps * 1e6)));
    let again = passed().filter(|(_, passed)| passed.segments > 0);
    page.each(
        RETRANSMITTED,
        again.map(|(of, passed)| (of, f64::from(passed.retransmitted) / f64::from(passed.segments))),
    );
    page.each(TRAFFIC_RTT, passed().filter_map(|(of, passed)| Some((of, passed.rtt_ms? / 1e3))));
    page.each(UTILISATION, probed().filter_map(|one| Some((of(one), one.1.seen.utilisation?))));
    page.each(SHARE, probed().filter_map(|one| Some((of(one), one.1.seen.share?))));
    page.each(PENALTY, probed().map(|one| (of(one), one.1.penalty)));
    let targets =
        status.egresses.iter().flat_map(|one: &EgressStatus| one.targets.iter().map(move |target| (one, target)));
    let lost = targets.filter(|(_, target)| target.sent > 0).map(|(one, target)| {
        let labels = vec![("egress", one.name.clone()), ("target", target.address.to_string())];
        (labels, f64::from(target.lost) / f64::from(target.sent))
    });
    page.each(TARGET, lost);
    let moves = families().flat_map(|family| family.moved.iter().map(move |moved| (family, moved)));
    page.each(
        MOVES,
        moves.map(|(family, (reason, count))| {
            (vec![("family", family.family.clone()), ("reason", reason.clone())], *count as f64)
        }),
    );
    page.one(DECISIONS, status.decided as f64);
    page.one(REFUSED, status.refused_probes as f64);
    page.one(MENDED, status.mended as f64);
    page.one(OVERRIDDEN, status.overridden.len() as f64);
    page.one(RESTORED, status.restored.len() as f64);
    page.one(DRY_RUN, status.dry_run.into());
    page.one(FAULTS, faults as f64);
    page
}
