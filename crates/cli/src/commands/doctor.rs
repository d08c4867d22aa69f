//! `sidestep doctor`: what this machine's kernel can do for us.

use std::path::Path;

use comfy_table::{Table, presets};
use serde::Serialize;
use sidestep_hostd::{MetricsConfig, restored_marks};
use sidestep_linux::{
    netlink::{DefaultRoute, Interface, Netlink, block_on},
    probe::{Egress, Finding, Mask, Need, Part, Probed, Report, probe},
};
use sidestep_pathchanger::daemon::{HostConfig, cannot_reset, doubtful_sources, masks_at_work, overrides_at_work};
use sidestep_policy::PathchangerSettings;
use sidestep_route_control::daemon::{EgressStatus, RouteControlConfig, route_control_status};
use sidestep_semper::daemon::edge_status;

use super::{daemons::read_config, edge::read_route_control, obstacles::obstacles, print_json, read, runtime};
use crate::failure::{Failure, Outcome};

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    schema: u32,
    kernel: &'a str,
    ready: Ready,
    warnings: &'a [String],
    features: Vec<ShownFeature<'a>>,
}

/// Whether each part has all that it requires.
#[derive(Debug, Serialize)]
struct Ready {
    agent: bool,
    router: bool,
    lab: bool,
    #[serde(rename = "mptcp-pm")]
    path_manager: bool,
    edge: bool,
    #[serde(rename = "route-control")]
    route_control: bool,
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
        Some(true) => Part::RouteControl,
        _ => Part::Agent,
    };
    let of = |other| file.filter(|_| part == other);
    let host = of(Part::Agent).map(|file| read_config(file, &MetricsConfig::default(), true)).transpose()?;
    let masks = masks(file.zip(host.as_ref()))?;
    // Before the trials, which may enter another namespace.
    let lacking = host.as_ref().and_then(|config| cannot_reset(&config.agent));
    let doubts =
        host.map(|config| runtime()?.block_on(doubtful_sources(&config)).map_err(Failure::from)).transpose()?;
    let mut doubts: Vec<_> = doubts.iter().flatten().map(ToString::to_string).chain(lacking).collect();
    // A user who may not ask the edge daemon does not see its doubts.
    doubts.extend(edge_status().ok().flatten().iter().flat_map(|edge| edge.doubts.iter().map(ToString::to_string)));
    let obstacles = obstacles_here(&masks);
    let egresses = match of(Part::RouteControl) {
        Some(file) => read_route_control(file)?.probed(),
        None => egresses_here()?,
    };
    let report = probe(&masks, &egresses, cgroup);
    if json {
        print_json(&shown(&report, &[obstacles, doubts].concat()))?;
    } else {
        // What does not work now comes before what the machine can do.
        obstacles.iter().for_each(|obstacle| println!("warning: {obstacle}\n"));
        print!("{}", page(&report, &doubts));
    }
    let lacking: Vec<_> = report.lacking(part).map(|probed| probed.feature.name).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let who = if part == Part::RouteControl { "route control" } else { "the agent" };
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
            masks.push(Mask { bits: PathchangerSettings::default().mark_mask, of: "the default".into() });
        }
        None => {}
    }
    Ok(masks)
}

fn shown<'a>(report: &'a Report, warnings: &'a [String]) -> Shown<'a> {
    let is_ready = |part| report.lacking(part).next().is_none();
    let ready = Ready {
        agent: is_ready(Part::Agent),
        router: is_ready(Part::Router),
        lab: is_ready(Part::Lab),
        path_manager: is_ready(Part::PathManager),
        edge: is_ready(Part::Edge),
        route_control: is_ready(Part::RouteControl),
    };
    let features = report.features.iter().map(shown_feature).collect();
    Shown { schema: 1, kernel: &report.kernel, ready, warnings, features }
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
        required_by: users(probed, Need::Required),
        useful_to: users(probed, Need::Useful),
        without: feature.without,
    }
}

/// The report for people: a table, then what does not work with its reason and its price, what else is
/// doubtful, then who can work.
fn page(report: &Report, warnings: &[String]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["feature", "since Linux", "needed by", "found", ""]);
    for probed in &report.features {
        let (state, detail) = words(&probed.finding);
        let needed = users(probed, Need::Required).into_iter().map(String::from);
        let needed = needed.chain(users(probed, Need::Useful).into_iter().map(|user| format!("({user})")));
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
        page += &format!("\n{state}: {}: {detail}\n  without: {}\n", feature.name, feature.without);
    }
    for warning in warnings {
        page += &format!("\nwarning: {warning}\n");
    }
    page += "\n";
    for part in Part::ALL {
        let lacking = report.lacking(part).count();
        let verdict = if lacking == 0 { "can work here".to_string() } else { format!("lacks {lacking} of the above") };
        page += &format!("{:<13} {verdict}\n", part.name());
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

fn users(probed: &Probed, need: Need) -> Vec<&'static str> {
    Part::ALL.into_iter().filter(|part| probed.feature.need(*part) == need).map(Part::name).collect()
}

#[cfg(test)]
mod tests {
    use sidestep_linux::probe::FEATURES;

    use super::*;

    /// A report in which only `broken` does not work.
    fn report(broken: &str) -> Report {
        let finding = |id: &str| {
            if id == broken { Finding::Missing("no such thing".into()) } else { Finding::Present(String::new()) }
        };
        let probed = |feature: &'static _| Probed { feature, finding: finding(feature.id) };
        Report { kernel: "6.1.0".into(), features: FEATURES.iter().map(probed).collect() }
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
    fn every_feature_is_documented_with_its_kernel() {
        let rows: Vec<_> =
            include_str!("../../../../docs/operations.md").lines().filter(|l| l.starts_with("| `")).collect();
        for feature in FEATURES.iter().filter(|feature| feature.id != "root") {
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
            assert_eq!(value["features"].as_array().unwrap().len(), FEATURES.len());
            Part::ALL.map(|part| value["ready"][part.name()].as_bool().unwrap())
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
