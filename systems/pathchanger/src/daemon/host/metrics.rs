//! What the host daemon exports to Prometheus.

use std::collections::BTreeSet;

use ipnet::IpNet;
use sidestep_hostd::{
    Labels, Metric, Page,
    effect::{Effects, path_of},
    paths::{DestinationPaths, HostPath},
};
use sidestep_net::Span;

use super::{
    attachment::Reattached,
    mending::Mended,
    quality::{ByPath, PathQuality},
    stuck::Resets,
};
use crate::daemon::program::{ControllerState, HostCounters, MapUse, ProgramRuns};

const MOVES: Metric = Metric::counter("sidestep_agent_moves", "Moves of connections to another path, by the signal");
const WOULD_BE_MOVES: Metric = Metric::counter(
    "sidestep_agent_would_be_moves",
    "Moves that an agent started with --dry-run did not make, by the signal",
);
const STAYS: Metric = Metric::counter(
    "sidestep_agent_stays",
    "Signals that did not move a connection, by what kept it: it drew the same path again (drew_same), can use no other \
     (only_path), all others are dead (others_dead), a back-off (back_off), it takes more of them (too_few), the policy \
     (policy), no other path is known to give more (no_gain)",
);
const OPENED: Metric =
    Metric::counter("sidestep_agent_connections_opened", "Connections that got a path, by the side that opened them");
const UNTOUCHED: Metric = Metric::counter(
    "sidestep_agent_connections_untouched",
    "Connections left alone, as their destination has no paths",
);
const LEFT_ALONE: Metric = Metric::counter(
    "sidestep_agent_connections_left_alone",
    "Connections left alone although their destination has paths: of another network namespace (netns; to any \
     destination), bound to a device or in a VRF (device), with a mark that somebody else set (mark), with a source \
     address that no path takes (source)",
);
const CONNECTIONS: Metric = Metric::gauge(
    "sidestep_agent_connections",
    "Connections by destination prefix and path; would-be paths in a dry run",
);
const PATH_RATE: Metric = Metric::gauge(
    "sidestep_agent_path_rate_bits_per_second",
    "What the connections on a path deliver together: the sum of their last delivery rates",
);
const PATH_RTT: Metric = Metric::gauge(
    "sidestep_agent_path_rtt_seconds",
    "Mean of the smoothed round-trip times of the connections on a path",
);
const PATH_MIN_RTT: Metric =
    Metric::gauge("sidestep_agent_path_min_rtt_seconds", "Lowest round-trip time of the connections on a path");
const PATH_LOSS: Metric = Metric::gauge(
    "sidestep_agent_path_loss_ratio",
    "Share of the bytes sent that were sent again, of the open connections that are on a path now",
);
const PATH_DEAD: Metric = Metric::gauge(
    "sidestep_agent_path_dead",
    "Whether a path has failed and nothing has been delivered on it since, so that new connections take others",
);
const ERRORS: Metric = Metric::counter(
    "sidestep_agent_errors",
    "What went wrong: connections without memory (no_storage), moves that the kernel refused (mark_refused), \
     events that found no room in the ring (events_lost) or in the file of --events (records_lost), errors after which \
     the agent went on (fault)",
);
const MAP_ENTRIES: Metric =
    Metric::gauge("sidestep_agent_map_entries", "Entries of a BPF map; bytes that wait, of sidestep_events");
const MAP_CAPACITY: Metric = Metric::gauge("sidestep_agent_map_capacity", "Most entries of a BPF map, where limited");
const RUNS: Metric =
    Metric::counter("sidestep_agent_program_runs", "Runs of a BPF program, while the kernel counts them");
const RUN_SECONDS: Metric =
    Metric::counter("sidestep_agent_program_run_seconds", "Time that a BPF program ran, while the kernel counts it");
const RUNS_COUNTED: Metric =
    Metric::gauge("sidestep_agent_program_runs_counted", "Whether the kernel counts runs of programs");
const PATHS_AGE: Metric =
    Metric::gauge("sidestep_agent_paths_age_seconds", "Time since the paths came, from the controller or the file");
const DESTINATIONS: Metric = Metric::gauge("sidestep_agent_destinations", "Destination prefixes that have paths");
const PATHS_LEFT_OUT: Metric =
    Metric::gauge("sidestep_agent_paths_left_out", "Paths that came and cannot be used: no route, no room, or refused");
const REPLIES_DRAWN: Metric = Metric::gauge(
    "sidestep_agent_replies_drawn",
    "Whether SYN-ACKs and resets are drawn a path; else they take the default route",
);
const REPLIES_MENDED: Metric = Metric::counter(
    "sidestep_agent_replies_mended",
    "How often somebody else had changed or removed the table that draws paths of SYN-ACKs",
);
const MENDED: Metric = Metric::counter(
    "sidestep_agent_mended",
    "Rules and routes of the agent that others removed or changed, and that it put back",
);
const RESETS: Metric = Metric::counter(
    "sidestep_agent_resets",
    "Connections stuck on a dead path, with on_dead = \"reset\": ended (ended), would have been ended were this no dry run \
     (would_be), and those that the kernel refused to end (refused)",
);
const REATTACHED: Metric = Metric::counter(
    "sidestep_agent_reattached",
    "How often the program was attached to its control group anew: as that was made anew (group), or as others had detached \
     it (others)",
);
const COLLISIONS: Metric = Metric::gauge(
    "sidestep_agent_mark_collisions",
    "Rules of others that look at or change the agent's bits of the mark",
);
const RESTORED: Metric = Metric::gauge(
    "sidestep_agent_marks_restored",
    "Rules of others that restore the agent's bits of the mark, so that moved connections stay on their former path",
);
const OVERRIDDEN: Metric = Metric::gauge(
    "sidestep_agent_path_overridden",
    "Whether a rule or a route of others leads packets of the path elsewhere, all (1) or a part (0.5) of them",
);
const LEARNS: Metric = Metric::gauge(
    "sidestep_agent_learns",
    "Whether what connections see of paths is learnt: 0 while somebody removes rules or routes of the agent again and again, \
     or leads packets of a path elsewhere",
);
const CONTROLLER: Metric =
    Metric::gauge("sidestep_agent_controller_connected", "Whether the controller is reached; absent without one");
const ATTACHED: Metric = Metric::gauge("sidestep_agent_attached", "Whether the program acts on its control group");
const DRY_RUN: Metric = Metric::gauge("sidestep_agent_dry_run", "Whether the agent only records what it would do");

/// Every metric of the host daemon.
pub const HOST_METRICS: &[Metric] = &[
    MOVES,
    WOULD_BE_MOVES,
    STAYS,
    OPENED,
    UNTOUCHED,
    LEFT_ALONE,
    CONNECTIONS,
    PATH_RATE,
    PATH_RTT,
    PATH_MIN_RTT,
    PATH_LOSS,
    PATH_DEAD,
    ERRORS,
    MAP_ENTRIES,
    MAP_CAPACITY,
    RUNS,
    RUN_SECONDS,
    RUNS_COUNTED,
    PATHS_AGE,
    DESTINATIONS,
    PATHS_LEFT_OUT,
    REPLIES_DRAWN,
    REPLIES_MENDED,
    MENDED,
    RESETS,
    REATTACHED,
    COLLISIONS,
    RESTORED,
    OVERRIDDEN,
    LEARNS,
    CONTROLLER,
    ATTACHED,
    DRY_RUN,
];

/// What the metrics are made of.
pub(super) struct Reading<'a> {
    pub(super) dry_run: bool,
    pub(super) attached: bool,
    pub(super) controller: ControllerState,
    pub(super) paths_age: Span,
    pub(super) left_out: usize,
    pub(super) replies_drawn: bool,
    pub(super) replies_mended: u64,
    pub(super) mended: Mended,
    pub(super) resets: Resets,
    pub(super) reattached: Reattached,
    pub(super) collisions: usize,
    pub(super) effects: &'a Effects,
    pub(super) restored: usize,
    pub(super) learns: bool,
    pub(super) sets: &'a [DestinationPaths],
    pub(super) counters: HostCounters,
    pub(super) quality: ByPath<PathQuality>,
    /// The paths that have failed.
    pub(super) dead: BTreeSet<(IpNet, u32)>,
    pub(super) maps: Vec<MapUse>,
    pub(super) runs: Vec<ProgramRuns>,
    pub(super) runs_counted: bool,
    /// Errors that the agent has survived.
    pub(super) faults: u64,
}

impl Reading<'_> {
    /// The page that Prometheus gets.
    pub(super) fn page(&self) -> Page {
        let mut page = Page::default();
        let counters = &self.counters;
        let moved = || counters.moves().map(|(reason, n)| labelled(&[("reason", reason)], n as f64));
        // Both are always there, so that what asks for them gets an answer.
        page.each(MOVES, moved().map(|(labels, n)| (labels, if self.dry_run { 0.0 } else { n })));
        page.each(WOULD_BE_MOVES, moved().map(|(labels, n)| (labels, if self.dry_run { n } else { 0.0 })));
        page.each(STAYS, counters.stays().map(|(why, n)| labelled(&[("why", why)], n as f64)));
        let sides = [("here", counters.active), ("there", counters.passive)];
        page.each(OPENED, sides.map(|(side, n)| labelled(&[("by", side)], n as f64)));
        page.one(UNTOUCHED, counters.untouched as f64);
        let left_alone = [
            ("netns", counters.other_netns),
            ("device", counters.to_device),
            ("mark", counters.own_mark),
            ("source", counters.no_source),
        ];
        page.each(LEFT_ALONE, left_alone.map(|(why, n)| labelled(&[("why", why)], n as f64)));
        page.each(CONNECTIONS, self.by_path());
        self.add_quality(&mut page);
        let errors = counters.errors().into_iter().chain([("fault", self.faults)]);
        page.each(ERRORS, errors.map(|(kind, n)| labelled(&[("kind", kind)], n as f64)));
        page.each(MAP_ENTRIES, self.maps.iter().map(|map| labelled(&[("map", &map.name)], map.entries as f64)));
        let limited = self.maps.iter().filter_map(|map| Some((map, map.capacity?)));
        page.each(MAP_CAPACITY, limited.map(|(map, capacity)| labelled(&[("map", &map.name)], capacity as f64)));
        page.each(RUNS, self.runs.iter().map(|one| labelled(&[("program", &one.name)], one.runs as f64)));
        let time = |one: &ProgramRuns| labelled(&[("program", &one.name)], one.time.as_secs_f64());
        page.each(RUN_SECONDS, self.runs.iter().map(time));
        page.one(RUNS_COUNTED, self.runs_counted.into());
        page.one(PATHS_AGE, self.paths_age.as_secs_f64());
        page.one(DESTINATIONS, self.sets.iter().filter(|set| !set.paths.is_empty()).count() as f64);
        page.one(PATHS_LEFT_OUT, self.left_out as f64);
        page.one(REPLIES_DRAWN, self.replies_drawn.into());
        page.one(REPLIES_MENDED, self.replies_mended as f64);
        let mended = [("rule", self.mended.rules), ("route", self.mended.routes)];
        page.each(MENDED, mended.map(|(kind, n)| labelled(&[("kind", kind)], f64::from(n))));
        let resets =
            [("ended", self.resets.done), ("would_be", self.resets.would_be), ("refused", self.resets.refused)];
        page.each(RESETS, resets.map(|(outcome, n)| labelled(&[("outcome", outcome)], n as f64)));
        let reattached = [("group", self.reattached.group), ("others", self.reattached.others)];
        page.each(REATTACHED, reattached.map(|(why, n)| labelled(&[("why", why)], f64::from(n))));
        page.one(COLLISIONS, self.collisions as f64);
        page.one(RESTORED, self.restored as f64);
        page.each(OVERRIDDEN, self.overridden());
        page.one(LEARNS, self.learns.into());
        let connected = (self.controller != ControllerState::None).then_some(self.controller);
        page.each(CONTROLLER, connected.map(|state| (Labels::new(), (state == ControllerState::Connected).into())));
        page.one(ATTACHED, self.attached.into());
        page.one(DRY_RUN, self.dry_run.into());
        page
    }

    /// Whether packets of each path are led elsewhere.
    fn overridden(&self) -> Vec<(Labels, f64)> {
        let paths = self.sets.iter().flat_map(|set| set.paths.iter().map(move |path| (set.destination, path)));
        let sample = |(destination, path): (IpNet, &HostPath)| {
            let found = self.effects.of(&path_of(&path.name, destination));
            let value = found.map_or(0.0, |found| if found.part.is_none() { 1.0 } else { 0.5 });
            let (destination, id) = (destination.to_string(), format!("{:08x}", path.id));
            labelled(&[("destination", &destination), ("path", &id), ("name", &path.name)], value)
        };
        paths.map(sample).collect()
    }

    /// How each path does that has connections.
    fn add_quality(&self, page: &mut Page) {
        let sample = |(destination, path): (IpNet, &HostPath), value| {
            let (destination, id) = (destination.to_string(), format!("{:08x}", path.id));
            labelled(&[("destination", &destination), ("path", &id), ("name", &path.name)], value)
        };
        let paths = || self.sets.iter().flat_map(|set| set.paths.iter().map(move |path| (set.destination, path)));
        let each = |value: &dyn Fn(&PathQuality) -> Option<f64>| {
            let known = |path: (IpNet, &HostPath)| Some(sample(path, value(self.quality.get(&(path.0, path.1.id))?)?));
            paths().filter_map(known).collect::<Vec<_>>()
        };
        page.each(
            PATH_DEAD,
            paths().map(|path| sample(path, self.dead.contains(&(path.0, path.1.id)).into())).collect::<Vec<_>>(),
        );
        page.each(PATH_RATE, each(&|one| Some(one.rate.bits_per_sec() as f64)));
        page.each(PATH_RTT, each(&|one| one.rtt().map(Span::as_secs_f64)));
        page.each(PATH_MIN_RTT, each(&|one| one.min_rtt.map(Span::as_secs_f64)));
        page.each(PATH_LOSS, each(&PathQuality::loss));
    }

    /// How many connections there are on each path of each destination, with those that have none.
    fn by_path(&self) -> Vec<(Labels, f64)> {
        let paths = self.sets.iter().flat_map(|set| set.paths.iter().map(move |path| (set.destination, path)));
        let mut counts: ByPath<(&str, u64)> =
            paths.map(|(destination, path)| ((destination, path.id), (path.name.as_str(), 0))).collect();
        for (path, quality) in &self.quality {
            counts.entry(*path).or_insert(("", 0)).1 = quality.connections;
        }
        let sample = |((destination, path), (name, n)): ((IpNet, u32), (&str, u64))| {
            let (destination, path) = (destination.to_string(), format!("{path:08x}"));
            labelled(&[("destination", &destination), ("path", &path), ("name", name)], n as f64)
        };
        counts.into_iter().map(sample).collect()
    }
}

fn labelled(labels: &[(&'static str, &str)], value: f64) -> (Labels, f64) {
    (labels.iter().map(|(name, value)| (*name, (*value).to_string())).collect(), value)
}

#[cfg(test)]
mod tests {
    use sidestep_net::{Rate, Time};
    use sidestep_policy::{Reason, Stay};

    use super::*;
    use crate::daemon::{host::quality::Sockets, program::HostConnection};
    use sidestep_hostd::paths::PathRoute;

    fn set(prefix: &str, ids: &[u32]) -> DestinationPaths {
        let path = |id: &u32| HostPath {
            id: *id,
            slot: 1,
            name: format!("path \"{id}\""),
            route: PathRoute::PathId("fd01:0:1:b:0:1::".parse().unwrap()),
            capacity: Rate::from_mbits(100),
            usage: Rate::default(),
            rtt: Span::from_millis(8),
            mtu: None,
            sources: Vec::new(),
        };
        DestinationPaths { destination: prefix.parse().unwrap(), paths: ids.iter().map(path).collect() }
    }

    fn connection(remote: &str, path: u32) -> HostConnection {
        HostConnection {
            local: "[::1]:1".parse().unwrap(),
            remote: remote.parse().unwrap(),
            passive: false,
            path,
            opened: Some(Time::from_nanos(1)),
            decided: None,
            decisions: 0,
            moves: 0,
            signal: None,
            suppressed: 0,
        }
    }

    fn page(dry_run: bool) -> String {
        let sets = [set("fd02::/16", &[1, 2]), set("fd02:9::/32", &[1])];
        let mut counters = HostCounters { mark_refused: 4, ..HostCounters::default() };
        counters.moved[Reason::Ecn as usize] = 3;
        counters.stayed[Stay::OnlyPath as usize] = 9;
        let connections = ["[fd02:9::1]:1", "[fd02:9::2]:1", "[fd02:8::1]:1", "[fd03::1]:1"];
        let connections = connections.map(|remote| connection(remote, 1));
        let destinations = sets.iter().map(|set| set.destination).collect();
        let mut quality = Sockets::default().by_path(&connections, &destinations);
        let narrow = quality.entry(("fd02:9::/32".parse().unwrap(), 1)).or_default();
        narrow.rate = Rate::from_mbits(3);
        narrow.min_rtt = Some(Span::from_millis(8));
        let reading = Reading {
            dry_run,
            attached: true,
            controller: ControllerState::Away,
            paths_age: Span::from_millis(1_500),
            left_out: 1,
            replies_drawn: true,
            replies_mended: 2,
            mended: Mended { rules: 2, routes: 5 },
            resets: Resets { done: 4, would_be: 0, refused: 1 },
            reattached: Reattached { group: 1, others: 3 },
            collisions: 1,
            effects: &Effects::default(),
            restored: 3,
            learns: true,
            sets: &sets,
            counters,
            quality,
            dead: BTreeSet::from([("fd02::/16".parse().unwrap(), 2)]),
            maps: vec![MapUse { name: "sidestep_dests".into(), entries: 2, capacity: Some(4096) }],
            runs: Vec::new(),
            runs_counted: false,
            faults: 5,
        };
        reading.page().into_text().unwrap()
    }

    #[test]
    fn connections_count_where_the_longest_prefix_has_them() {
        let page = page(false);
        for line in [
            r#"sidestep_agent_connections{destination="fd02::/16",path="00000001",name="path \"1\""} 1.0"#,
            r#"sidestep_agent_connections{destination="fd02::/16",path="00000002",name="path \"2\""} 0.0"#,
            r#"sidestep_agent_connections{destination="fd02:9::/32",path="00000001",name="path \"1\""} 2.0"#,
            r#"sidestep_agent_moves_total{reason="ecn"} 3.0"#,
            r#"sidestep_agent_stays_total{why="only_path"} 9.0"#,
            r#"sidestep_agent_path_dead{destination="fd02::/16",path="00000001",name="path \"1\""} 0.0"#,
            r#"sidestep_agent_path_dead{destination="fd02::/16",path="00000002",name="path \"2\""} 1.0"#,
            r#"sidestep_agent_errors_total{kind="mark_refused"} 4.0"#,
            r#"sidestep_agent_errors_total{kind="fault"} 5.0"#,
            r#"sidestep_agent_map_capacity{map="sidestep_dests"} 4096.0"#,
            r#"sidestep_agent_path_rate_bits_per_second{destination="fd02:9::/32",path="00000001",name="path \"1\""} 3000000.0"#,
            r#"sidestep_agent_path_min_rtt_seconds{destination="fd02:9::/32",path="00000001",name="path \"1\""} 0.008"#,
            r#"sidestep_agent_mended_total{kind="route"} 5.0"#,
            r#"sidestep_agent_resets_total{outcome="ended"} 4.0"#,
            r#"sidestep_agent_resets_total{outcome="refused"} 1.0"#,
            r#"sidestep_agent_reattached_total{why="others"} 3.0"#,
            "sidestep_agent_controller_connected 0.0",
            "sidestep_agent_marks_restored 3.0",
            r#"sidestep_agent_path_overridden{destination="fd02::/16",path="00000002",name="path \"2\""} 0.0"#,
            "sidestep_agent_paths_age_seconds 1.5",
            "sidestep_agent_replies_drawn 1.0",
            "sidestep_agent_replies_mended_total 2.0",
        ] {
            assert!(page.lines().any(|there| there == line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn moves_of_a_dry_run_have_a_name_of_their_own() {
        let page = page(true);
        assert!(page.contains(r#"sidestep_agent_would_be_moves_total{reason="ecn"} 3.0"#), "{page}");
        assert!(page.contains(r#"sidestep_agent_moves_total{reason="ecn"} 0.0"#), "{page}");
    }

    #[test]
    fn every_metric_is_on_the_page() {
        let page = page(false);
        for metric in HOST_METRICS {
            assert!(page.contains(&format!("# TYPE {} ", metric.name)), "{}", metric.name);
        }
        assert_eq!(page.matches("# TYPE ").count(), HOST_METRICS.len());
    }
}
