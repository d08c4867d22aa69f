//! `sidestep doctor`: what this machine's kernel can do for us.

use std::path::Path;

use comfy_table::{Table, presets};
use serde::{Serialize, Serializer};
use sidestep_command::{Failure, Outcome, obstacles, print_json, read, runtime};
use sidestep_hostd::{MetricsConfig, restored_marks};
use sidestep_linux::{
    netlink::{DefaultRoute, Interface, Netlink, block_on},
    probe::{Egress, Feature, Finding, Mask, Part, Probed, Report, Trial, probe},
};
use sidestep_mptcp::daemon::needs::PATH_MANAGER;
use sidestep_pathchanger::{
    command::read_config,
    daemon::{
        HostConfig, cannot_reset, doubtful_sources, masks_at_work,
        needs::{self as pathchanger, AGENT, ROUTER},
        overrides_at_work,
    },
};
use sidestep_policy::PolicySettings;
use sidestep_route_control::{
    command::read_config as read_route_control,
    daemon::{EgressStatus, RouteControlConfig, needs::ROUTE_CONTROL, route_control_status},
};
use sidestep_semper::daemon::{
    edge_status,
    needs::{self as semper, EDGE},
};

/// Who may run here, in the order in which they are shown.
const PARTS: [Part; 6] = [AGENT, ROUTER, LAB, PATH_MANAGER, EDGE, ROUTE_CONTROL];

/// The lab, which runs all of them.
const LAB: Part = Part {
    name: "lab",
    required: &[
        "capabilities",
        "perfmon",
        "root",
        "cgroup2",
        "btf",
        "sock-ops",
        "sk-storage",
        "ring-buffer",
        "lpm-trie",
        "path-changer",
        "network-namespaces",
        "ipv6",
        "policy-routing",
        "seg6-inline",
        "seg6-end",
        "seg6-b6-encaps",
        "seg6-dt6",
        "seg6-enabled",
        "tc-bpf",
        "ecn",
        "tap",
        "sock-diag",
    ],
    useful: &["nf-tables", "congestion-control", "mptcp", "mptcp-pm"],
    without: &[
        ("root", "no lab: it makes namespaces, devices and control groups"),
        ("network-namespaces", "no lab"),
        ("congestion-control", "scenarios that name another one do not run"),
        ("tap", "no wires, hence no lab"),
    ],
};

const NO_EGRESSES: &str = "no two egresses are known here: give a route controller's file (--config FILE)";

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    schema: u32,
    kernel: &'a str,
    /// Whether each part has all that it requires.
    #[serde(serialize_with = "by_name")]
    ready: [(&'static str, bool); PARTS.len()],
    warnings: &'a [String],
    features: Vec<ShownFeature<'a>>,
}

#[derive(Debug, Serialize)]
struct ShownFeature<'a> {
    id: &'a str,
    name: &'a str,
    state: &'a str,
    detail: &'a str,
    since: &'a str,
    required_by: Vec<&'a str>,
    useful_to: Vec<&'a str>,
    without: &'a str,
}

/// Runs `sidestep doctor`, for an agent or a route controller with this configuration file, if any, and those that are at work;
/// for an agent with this control group.
pub fn run(file: Option<&Path>, cgroup: Option<&Path>, json: bool) -> Outcome {
    let is_route_control = |file: &Path| Ok::<_, Failure>(RouteControlConfig::is_one(&read(file)?));
    let part = match file.map(is_route_control).transpose()? {
        Some(true) => ROUTE_CONTROL,
        _ => AGENT,
    };
    let of = |other| file.filter(|_| part == other);
    let host = of(AGENT).map(|file| read_config(file, &MetricsConfig::default(), true)).transpose()?;
    let masks = masks(file.zip(host.as_ref()))?;
    // Before the trials, which may enter another namespace.
    let lacking = host.as_ref().and_then(|config| cannot_reset(&config.agent));
    let doubts =
        host.map(|config| runtime()?.block_on(doubtful_sources(&config)).map_err(Failure::from)).transpose()?;
    let mut doubts: Vec<_> = doubts.iter().flatten().map(ToString::to_string).chain(lacking).collect();
    // A user who may not ask the edge daemon does not see its doubts.
    doubts.extend(edge_status().ok().flatten().iter().flat_map(|edge| edge.doubts.iter().map(ToString::to_string)));
    let obstacles = obstacles_here(&masks);
    let egresses = match of(ROUTE_CONTROL) {
        Some(file) => read_route_control(file)?.probed(),
        None => egresses_here()?,
    };
    let egresses = if egresses.is_empty() { Err(NO_EGRESSES) } else { Ok(egresses.as_slice()) };
    let found = pathchanger::try_program(cgroup).into_iter().chain(semper::try_program());
    let own = own_features().into_iter().zip(found).map(|(feature, finding)| Probed { feature, finding }).collect();
    let report = probe(Trial { own, filter: Some(pathchanger::load_filter), masks: &masks, egresses });
    if json {
        print_json(&shown(&report, &[obstacles, doubts].concat()))?;
    } else {
        // What does not work now comes before what the machine can do.
        obstacles.iter().for_each(|obstacle| println!("warning: {obstacle}\n"));
        print!("{}", page(&report, &doubts));
    }
    let lacking: Vec<_> = report.lacking(&part).map(|probed| probed.feature.name).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let who = if part == ROUTE_CONTROL { "route control" } else { "the agent" };
    Err(Failure::environment(format!("{who} cannot be seen to work here for want of: {}", lacking.join("; "))))
}

/// What of others keeps the daemons at work here from having an effect, and firewalls that would undo an agent's moves.
fn obstacles_here(masks: &[Mask]) -> Vec<String> {
    let mut found: Vec<_> = masks.iter().flat_map(|mask| obstacles(&[], &restored_marks(mask.bits))).collect();
    // A user who may not ask sees what else is there.
    let asked =
        runtime().and_then(|runtime| Ok(runtime.block_on(async { overrides_at_work(&Netlink::open()?).await })?));
    found.extend(obstacles(&asked.unwrap_or_default(), &[]));
    if let Ok(Some(status)) = edge_status() {
        found.extend(obstacles(&status.overridden, &status.restored));
    }
    if let Ok(Some(status)) = route_control_status() {
        found.extend(obstacles(&status.overridden, &status.restored));
    }
    let mut said = std::collections::BTreeSet::new();
    found.retain(|line| said.insert(line.clone()));
    found
}

/// The egresses of the route controller at work here; without one the interfaces of the default routes, if there are two.
fn egresses_here() -> Result<Vec<Egress>, Failure> {
    // A user who may not ask the daemon sees the egresses of the routes.
    if let Ok(Some(status)) = route_control_status() {
        return Ok(status.egresses.iter().map(egress_at_work).collect());
    }
    let read = async |netlink: &Netlink| Ok((netlink.default_routes().await?, netlink.interfaces().await?));
    let (routes, links) = block_on(read).unwrap_or_default();
    Ok(egresses_of(&routes, &links))
}

fn egress_at_work(egress: &EgressStatus) -> Egress {
    let targets = egress.targets.iter().map(|target| target.address).collect();
    Egress { name: egress.name.clone(), dev: egress.dev.clone(), mark: egress.mark, targets }
}

fn egresses_of(routes: &[DefaultRoute], links: &[Interface]) -> Vec<Egress> {
    let egress = |link: &Interface| {
        let hops = routes.iter().map(|route| route.hop).filter(|hop| hop.interface == link.index);
        let targets: Vec<_> = hops.clone().filter_map(|hop| hop.via).collect();
        hops.clone().next()?;
        Some(Egress { name: link.name.clone(), dev: link.name.clone(), mark: None, targets })
    };
    let egresses: Vec<_> = links.iter().filter_map(egress).collect();
    if egresses.len() < 2 { Vec::new() } else { egresses }
}

/// The bits of the mark that agents use here, or will use: those at work, and one with this configuration.
fn masks(config: Option<(&Path, &HostConfig)>) -> Result<Vec<Mask>, Failure> {
    let at_work = |(process, bits)| Mask { bits, of: format!("of the agent at work (process {process})") };
    let mut masks: Vec<_> = masks_at_work()?.into_iter().map(at_work).collect();
    match config {
        Some((file, config)) => masks.push(Mask { bits: config.agent.mark_mask, of: format!("of {}", file.display()) }),
        None if masks.is_empty() => {
            masks.push(Mask { bits: PolicySettings::default().mark_mask, of: "the default".into() });
        }
        None => {}
    }
    Ok(masks)
}

fn shown<'a>(report: &'a Report, warnings: &'a [String]) -> Shown<'a> {
    let ready = PARTS.map(|part| (part.name, report.lacking(&part).next().is_none()));
    let features = report.features.iter().map(shown_feature).collect();
    Shown { schema: 1, kernel: &report.kernel, ready, warnings, features }
}

fn by_name<S: Serializer>(ready: &[(&'static str, bool)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(ready.iter().copied())
}

fn shown_feature(probed: &Probed) -> ShownFeature<'_> {
    let Probed { feature, finding } = probed;
    let (state, detail) = words(finding);
    ShownFeature {
        id: feature.id,
        name: feature.name,
        state,
        detail,
        since: feature.since,
        required_by: users(|part| part.requires(feature.id)),
        useful_to: users(|part| part.uses(feature.id)),
        without: feature.without(&PARTS),
    }
}

/// The report for people: a table, then what does not work with its reason and its price, what else is
/// doubtful, then who can work.
fn page(report: &Report, warnings: &[String]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["feature", "since Linux", "needed by", "found", ""]);
    for probed in &report.features {
        let (state, detail) = words(&probed.finding);
        let id = probed.feature.id;
        let needed = users(|part| part.requires(id)).into_iter().map(String::from);
        let needed = needed.chain(users(|part| part.uses(id)).into_iter().map(|user| format!("({user})")));
        // The reasons of the others are long, and follow below.
        let detail = if probed.finding.is_present() { detail } else { "" };
        table.add_row([
            probed.feature.name,
            probed.feature.since,
            &needed.collect::<Vec<_>>().join(" "),
            state,
            detail,
        ]);
    }
    let mut page = format!("Linux {}; in parentheses: who does less without\n\n{}\n", report.kernel, table.trim_fmt());
    for probed in report.features.iter().filter(|probed| !probed.finding.is_present()) {
        let (state, detail) = words(&probed.finding);
        let feature = probed.feature;
        page += &format!("\n{state}: {}: {detail}\n  without: {}\n", feature.name, feature.without(&PARTS));
    }
    for warning in warnings {
        page += &format!("\nwarning: {warning}\n");
    }
    page += "\n";
    for part in PARTS {
        let lacking = report.lacking(&part).count();
        let verdict = if lacking == 0 { "can work here".to_string() } else { format!("lacks {lacking} of the above") };
        page += &format!("{:<13} {verdict}\n", part.name);
    }
    page
}

fn words(finding: &Finding) -> (&'static str, &str) {
    match finding {
        Finding::Present(detail) => ("present", detail),
        Finding::Missing(why) => ("missing", why),
        Finding::Untried(why) => ("not tried", why),
    }
}

fn users(needs: impl Fn(&Part) -> bool) -> Vec<&'static str> {
    PARTS.iter().filter(|part| needs(part)).map(|part| part.name).collect()
}

/// What is tried of the systems' own programs.
fn own_features() -> Vec<Feature> {
    [&pathchanger::FEATURES[..], &semper::FEATURES].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sidestep_linux::probe::features;

    use super::*;

    /// A report in which only `broken` does not work.
    fn report(broken: &str) -> Report {
        let finding = |id: &str| {
            if id == broken { Finding::Missing("no such thing".into()) } else { Finding::Present(String::new()) }
        };
        let probed = |feature: Feature| Probed { finding: finding(feature.id), feature };
        Report { kernel: "6.1.0".into(), features: features(&own_features()).into_iter().map(probed).collect() }
    }

    #[test]
    fn what_is_missing_is_shown_with_its_reason_and_its_price() {
        let page = page(&report("tap"), &["a path is odd".into()]);
        assert!(page.contains("\nmissing: TAP devices: no such thing\n  without: no wires, hence no lab\n"), "{page}");
        assert!(page.contains("\nwarning: a path is odd\n\nagent "), "{page}");
        assert!(
            page.ends_with(
                "\nagent         can work here\nrouter        can work here\nlab           lacks 1 of the above\n\
                 mptcp-pm      can work here\nedge          can work here\nroute-control can work here\n"
            ),
            "{page}"
        );
    }

    #[test]
    fn parts_need_features_that_are_tried_and_each_feature_says_what_is_lost_without_it() {
        let features = features(&own_features());
        let known: BTreeSet<_> = features.iter().map(|feature| feature.id).collect();
        assert_eq!(known.len(), features.len());
        for part in PARTS {
            let said = part.without.iter().map(|(id, _)| id);
            let needed = part.required.iter().chain(part.useful);
            assert!(said.chain(needed.clone()).all(|id| known.contains(id)), "{}", part.name);
            assert_eq!(needed.clone().collect::<BTreeSet<_>>().len(), needed.count(), "{}", part.name);
        }
        for feature in features {
            let sayings = PARTS.iter().flat_map(|part| part.without).filter(|(id, _)| *id == feature.id).count();
            assert_eq!(sayings, usize::from(feature.without.is_empty()), "{}", feature.id);
        }
    }

    #[test]
    fn every_feature_is_documented_with_its_kernel() {
        let rows: Vec<_> =
            include_str!("../../../../docs/operations.md").lines().filter(|l| l.starts_with("| `")).collect();
        for feature in features(&own_features()).iter().filter(|feature| feature.id != "root") {
            let row = rows.iter().find(|row| row.contains(&format!("`{}`", feature.id)));
            assert!(row.is_some_and(|row| row.contains(feature.since)), "{} since {}", feature.id, feature.since);
        }
    }

    #[test]
    fn in_json_a_part_is_ready_when_it_has_what_it_requires() {
        let ready = |broken| {
            let report = report(broken);
            let value = serde_json::to_value(shown(&report, &[])).unwrap();
            assert_eq!(value["schema"], 1);
            assert_eq!(value["features"].as_array().unwrap().len(), report.features.len());
            PARTS.map(|part| value["ready"][part.name].as_bool().unwrap())
        };
        assert_eq!(ready("nothing"), [true; 6]);
        assert_eq!(ready("tap"), [true, true, false, true, true, true]);
        assert_eq!(ready("seg6-inline"), [true, true, false, true, true, true]);
        assert_eq!(ready("seg6-b6-encaps"), [true, false, false, true, true, true]);
        assert_eq!(ready("sk-storage"), [false, true, false, true, true, true]);
        assert_eq!(ready("mptcp-pm"), [true, true, true, false, true, true]);
        assert_eq!(ready("cgroup-attach"), [false, true, true, true, true, true]);
        assert_eq!(ready("balancer"), [true, true, true, true, false, true]);
        assert_eq!(ready("forwarding"), [true; 6]);
        assert_eq!(ready("mptcp-id-0"), [true; 6]);
        assert_eq!(ready("net-admin"), [true, true, true, false, true, false]);
        for useful in ["vrf", "path-mtu", "reverse-path", "sock-destroy"] {
            assert_eq!(ready(useful), [true; 6], "{useful}");
        }
    }
}
