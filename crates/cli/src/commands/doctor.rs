//! `sidestep doctor`: what this machine's kernel can do for us.

use std::{collections::BTreeSet, path::Path};

use comfy_table::{Table, presets};
use serde::{Serialize, Serializer};
use sidestep_command::{ConfigFile, Examination, Failure, Outcome, Seen, print_json, read};
use sidestep_linux::probe::{Feature, Finding, Part, Probed, Report, Trial, probe};
use sidestep_systems::commands;

/// What is asked of each system.
type Systems = [Box<dyn Examination>];

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    schema: u32,
    kernel: &'a str,
    /// Whether each part has all that it requires.
    #[serde(serialize_with = "by_name")]
    ready: Vec<(&'static str, bool)>,
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

/// Runs `sidestep doctor`, for the system whose configuration file this is, if any, and the daemons that are at work; for programs
/// that belong to this control group.
pub fn run(file: Option<&Path>, cgroup: Option<&Path>, json: bool) -> Outcome {
    let systems = commands().examinations();
    let whose = whose(&systems, file)?;
    // Before the trials, which may enter another namespace.
    let mut seen = look(&systems, file.zip(whose.map(|(system, _)| system)))?;
    let mut said = BTreeSet::new();
    seen.obstacles.retain(|line| said.insert(line.clone()));
    let report = try_all(&systems, &seen, cgroup);
    let parts = parts(&systems);
    if json {
        print_json(&shown(&report, &parts, &[seen.obstacles, seen.doubts].concat()))?;
    } else {
        // What does not work now comes before what the machine can do.
        seen.obstacles.iter().for_each(|obstacle| println!("warning: {obstacle}\n"));
        print!("{}", page(&report, &parts, &seen.doubts));
    }
    let Some((_, ConfigFile { part, who, .. })) = whose else { return Ok(()) };
    let lacking: Vec<_> = report.lacking(&part).map(|probed| probed.feature.name).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Failure::environment(format!("{who} cannot be seen to work here for want of: {}", lacking.join("; "))))
}

/// What the help says of the configuration file.
pub fn config_help() -> String {
    let systems = commands().examinations();
    let of = |ConfigFile { who, tried, .. }: ConfigFile| format!("of {who}: {tried}");
    let clauses: Vec<_> = systems.iter().filter_map(|system| system.config_file()).map(of).collect();
    format!("A configuration {}", clauses.join("; or "))
}

/// The system whose file this is, by its position; without a file the one whose work is looked at then.
fn whose(systems: &Systems, file: Option<&Path>) -> Result<Option<(usize, ConfigFile)>, Failure> {
    let files: Vec<_> =
        systems.iter().enumerate().filter_map(|(at, system)| Some((at, system.config_file()?))).collect();
    let text = file.map(read).transpose()?;
    let is_its = |of: &ConfigFile| text.as_deref().is_some_and(|text| of.recognise.is_some_and(|is_one| is_one(text)));
    let found = files.iter().find(|(_, of)| is_its(of)).or_else(|| files.iter().find(|(_, of)| of.recognise.is_none()));
    Ok(found.copied())
}

/// What all systems see, of which the one at this position gets the file.
fn look(systems: &Systems, config: Option<(&Path, usize)>) -> Result<Seen, Failure> {
    systems.iter().enumerate().try_fold(Seen::default(), |seen, (at, system)| {
        let file = config.filter(|(_, of)| *of == at).map(|(file, _)| file);
        Ok(seen.and(system.look(file)?))
    })
}

fn try_all(systems: &Systems, seen: &Seen, cgroup: Option<&Path>) -> Report {
    let probed = |(feature, finding): (&Feature, Finding)| Probed { feature: *feature, finding };
    let own = systems.iter().flat_map(|system| system.features().iter().zip(system.try_programs(cgroup)).map(probed));
    let trial = Trial {
        own: own.collect(),
        filter: systems.iter().find_map(|system| system.filter()),
        masks: &seen.masks,
        ..Trial::default()
    };
    probe(match (seen.egresses.is_empty(), seen.no_egresses) {
        (true, None) => trial,
        (true, Some(why)) => Trial { egresses: Err(why), ..trial },
        (false, _) => Trial { egresses: Ok(&seen.egresses), ..trial },
    })
}

/// Who may run here, in the order in which they are shown.
fn parts(systems: &Systems) -> Vec<Part> {
    systems.iter().flat_map(|system| system.parts()).copied().collect()
}

fn shown<'a>(report: &'a Report, parts: &[Part], warnings: &'a [String]) -> Shown<'a> {
    let ready = parts.iter().map(|part| (part.name, report.lacking(part).next().is_none())).collect();
    let features = report.features.iter().map(|probed| shown_feature(probed, parts)).collect();
    Shown { schema: 1, kernel: &report.kernel, ready, warnings, features }
}

fn by_name<S: Serializer>(ready: &[(&'static str, bool)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(ready.iter().copied())
}

fn shown_feature<'a>(probed: &'a Probed, parts: &[Part]) -> ShownFeature<'a> {
    let Probed { feature, finding } = probed;
    let (state, detail) = words(finding);
    ShownFeature {
        id: feature.id,
        name: feature.name,
        state,
        detail,
        since: feature.since,
        required_by: users(parts, |part| part.requires(feature.id)),
        useful_to: users(parts, |part| part.uses(feature.id)),
        without: feature.without(parts),
    }
}

/// The report for people: a table, then what does not work with its reason and its price, what else is
/// doubtful, then who can work.
fn page(report: &Report, parts: &[Part], warnings: &[String]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["feature", "since Linux", "needed by", "found", ""]);
    for probed in &report.features {
        let (state, detail) = words(&probed.finding);
        let id = probed.feature.id;
        let needed = users(parts, |part| part.requires(id)).into_iter().map(String::from);
        let needed = needed.chain(users(parts, |part| part.uses(id)).into_iter().map(|user| format!("({user})")));
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
        page += &format!("\n{state}: {}: {detail}\n  without: {}\n", feature.name, feature.without(parts));
    }
    for warning in warnings {
        page += &format!("\nwarning: {warning}\n");
    }
    page += "\n";
    for part in parts {
        let lacking = report.lacking(part).count();
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

fn users(parts: &[Part], needs: impl Fn(&Part) -> bool) -> Vec<&'static str> {
    parts.iter().filter(|part| needs(part)).map(|part| part.name).collect()
}

#[cfg(test)]
mod tests {
    use sidestep_linux::probe;

    use super::*;

    fn parts() -> Vec<Part> {
        super::parts(&commands().examinations())
    }

    fn features() -> Vec<Feature> {
        let systems = commands().examinations();
        let own: Vec<_> = systems.iter().flat_map(|system| system.features()).copied().collect();
        probe::features(&own)
    }

    /// A report in which only `broken` does not work.
    fn report(broken: &str) -> Report {
        let finding = |id: &str| {
            if id == broken { Finding::Missing("no such thing".into()) } else { Finding::Present(String::new()) }
        };
        let probed = |feature: Feature| Probed { finding: finding(feature.id), feature };
        Report { kernel: "6.1.0".into(), features: features().into_iter().map(probed).collect() }
    }

    #[test]
    fn what_is_missing_is_shown_with_its_reason_and_its_price() {
        let page = page(&report("tap"), &parts(), &["a path is odd".into()]);
        assert!(page.contains("\nmissing: TAP devices: no such thing\n  without: no wires, hence no lab\n"), "{page}");
        assert!(page.contains("\nwarning: a path is odd\n\nagent "), "{page}");
        assert!(
            page.ends_with(
                "\nagent         can work here\nrouter        can work here\nlab           lacks 1 of the above\n\
                 mptcp-pm      can work here\nedge          can work here\nroute-control can work here\n\
                 inrpp         can work here\n"
            ),
            "{page}"
        );
    }

    #[test]
    fn parts_need_features_that_are_tried_and_each_feature_says_what_is_lost_without_it() {
        let (features, parts) = (features(), parts());
        let known: BTreeSet<_> = features.iter().map(|feature| feature.id).collect();
        assert_eq!(known.len(), features.len());
        for part in &parts {
            let said = part.without.iter().map(|(id, _)| id);
            let needed = part.required.iter().chain(part.useful);
            assert!(said.chain(needed.clone()).all(|id| known.contains(id)), "{}", part.name);
            assert_eq!(needed.clone().collect::<BTreeSet<_>>().len(), needed.count(), "{}", part.name);
        }
        for feature in features {
            let sayings = parts.iter().flat_map(|part| part.without).filter(|(id, _)| *id == feature.id).count();
            assert_eq!(sayings, usize::from(feature.without.is_empty()), "{}", feature.id);
        }
    }

    #[test]
    fn every_feature_is_documented_with_its_kernel() {
        let rows: Vec<_> =
            include_str!("../../../../docs/operations.md").lines().filter(|l| l.starts_with("| `")).collect();
        for feature in features().iter().filter(|feature| feature.id != "root") {
            let row = rows.iter().find(|row| row.contains(&format!("`{}`", feature.id)));
            assert!(row.is_some_and(|row| row.contains(feature.since)), "{} since {}", feature.id, feature.since);
        }
    }

    #[test]
    fn in_json_a_part_is_ready_when_it_has_what_it_requires() {
        let ready = |broken| {
            let report = report(broken);
            let value = serde_json::to_value(shown(&report, &parts(), &[])).unwrap();
            assert_eq!(value["schema"], 1);
            assert_eq!(value["features"].as_array().unwrap().len(), report.features.len());
            let ready = parts().iter().map(|part| value["ready"][part.name].as_bool().unwrap()).collect::<Vec<_>>();
            <[bool; 7]>::try_from(ready).unwrap()
        };
        assert_eq!(ready("nothing"), [true; 7]);
        assert_eq!(ready("tap"), [true, true, false, true, true, true, true]);
        assert_eq!(ready("seg6-inline"), [true, true, false, true, true, true, true]);
        assert_eq!(ready("seg6-b6-encaps"), [true, false, false, true, true, true, true]);
        assert_eq!(ready("sk-storage"), [false, true, false, true, true, true, true]);
        assert_eq!(ready("mptcp-pm"), [true, true, true, false, true, true, true]);
        assert_eq!(ready("cgroup-attach"), [false, true, true, true, true, true, true]);
        assert_eq!(ready("balancer"), [true, true, true, true, false, true, true]);
        assert_eq!(ready("forwarding"), [true; 7]);
        assert_eq!(ready("mptcp-id-0"), [true; 7]);
        assert_eq!(ready("net-admin"), [true, true, true, false, true, false, true]);
        assert_eq!(ready("tun"), [true, true, true, true, true, true, false]);
        assert_eq!(ready("divert"), [true, true, true, true, true, true, false]);
        for useful in ["vrf", "path-mtu", "reverse-path", "sock-destroy"] {
            assert_eq!(ready(useful), [true; 7], "{useful}");
        }
    }

    #[test]
    fn a_file_is_that_of_the_system_that_recognises_it_else_that_of_the_one_that_is_asked_without_a_file() {
        let systems = commands().examinations();
        let folder = tempfile::tempdir().unwrap();
        let part = |text: Option<&str>| {
            let file = text.map(|text| {
                let file = folder.path().join("file.toml");
                std::fs::write(&file, text).unwrap();
                file
            });
            let (at, of) = whose(&systems, file.as_deref()).unwrap().unwrap();
            assert!(systems[at].parts().contains(&of.part));
            of.part.name
        };
        assert_eq!(part(None), "agent");
        assert_eq!(part(Some("[[destination]]\n")), "agent");
        assert_eq!(part(Some("anything")), "agent");
        assert_eq!(part(Some("[route_control]\n")), "route-control");
        assert!(whose(&systems, Some(&folder.path().join("absent"))).is_err());
    }

    #[test]
    fn the_file_goes_to_its_system_alone_and_all_others_are_asked_nevertheless() {
        struct Other(&'static str);

        impl Examination for Other {
            fn parts(&self) -> &[Part] {
                &[]
            }

            fn look(&self, config: Option<&Path>) -> Result<Seen, Failure> {
                let doubt = format!("{} with {config:?}", self.0);
                Ok(Seen { doubts: vec![doubt], no_egresses: Some(self.0), ..Seen::default() })
            }
        }

        let systems: [Box<dyn Examination>; 2] = [Box::new(Other("one")), Box::new(Other("another"))];
        let seen = look(&systems, Some((Path::new("f"), 1))).unwrap();
        assert_eq!(seen.doubts, ["one with None", "another with Some(\"f\")"]);
        assert_eq!(seen.no_egresses, Some("one"));
    }
}
