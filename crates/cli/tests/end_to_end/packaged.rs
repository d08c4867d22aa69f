//! What a package installs beside the program, and how its units call it.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;
use sidestep_hostd::Metric;
use yaml_rust2::{Yaml, YamlLoader};

use crate::common::Room;

#[test]
fn completions_are_what_their_shells_understand() {
    let room = Room::new();
    for (shell, mark) in
        [("bash", "complete -F _sidestep"), ("zsh", "#compdef sidestep"), ("fish", "complete -c sidestep")]
    {
        let ended = room.run(&["completions", shell]);
        ended.is_fine();
        assert!(ended.stdout.contains(mark), "{shell}");
        assert!(ended.stdout.contains("rule-priority"), "{shell}");
    }
    let script = room.write("bash", &room.run(&["completions", "bash"]).stdout);
    let ask = format!(
        "source {script}; COMP_WORDS=(sidestep doc); COMP_CWORD=1; _sidestep sidestep doc sidestep; echo ${{COMPREPLY[*]}}"
    );
    let answer = Command::new("bash").args(["-c", &ask]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "doctor", "{answer:?}");
    room.run(&["completions", "tcsh"]).complaint(2);
}

#[test]
fn every_command_that_is_shown_has_a_manual_page() {
    let room = Room::new();
    room.run(&["man", "pages"]).is_fine();
    let pages = room.path("pages");
    let shown = [
        "sidestep",
        "sidestep-agent",
        "sidestep-edge-balance",
        "sidestep-edge-route-control",
        "sidestep-lab-run",
        "sidestep-doctor",
        "sidestep-inrpp",
        "sidestep-mptcp-pm",
        "sidestep-reflector",
    ];
    for page in shown {
        let text = fs::read_to_string(pages.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    assert!(!pages.join("sidestep-traffic.1").exists());
    let taken = room.write("file", "");
    assert!(room.run(&["man", &taken]).error(1).starts_with(&format!("{taken}: ")));
}

#[test]
fn the_dashboard_and_the_documentation_name_the_metrics_that_are_exported() {
    let exported = exported();
    let dashboard: Value = serde_json::from_str(include_str!("../../../../packaging/grafana/sidestep.json")).unwrap();
    let mut asked = BTreeSet::new();
    collect_metrics(&dashboard["panels"], &mut asked);
    assert!(asked.len() > 10, "{asked:?}");
    assert_eq!(asked.difference(&exported).collect::<Vec<_>>(), [""; 0], "the dashboard asks for what is not there");
    assert_eq!(exported.difference(&asked).collect::<Vec<_>>(), [""; 0], "the dashboard does not show");
    let documented = |page: &str| -> BTreeSet<String> {
        let rows = page.lines().filter(|line| line.starts_with("| `sidestep_"));
        rows.flat_map(|line| words(line.split('|').nth(1).unwrap()).collect::<Vec<_>>()).collect()
    };
    let path_managers = documented(include_str!("../../../../docs/mptcp-pm.md"));
    assert_eq!(path_managers, names(sidestep_mptcp::daemon::MPTCP_PM_METRICS));
    let reflectors = documented(include_str!("../../../../docs/probes.md"));
    assert_eq!(reflectors, names(sidestep_route_control::reflector::REFLECTOR_METRICS));
    let inrpp_routers = documented(include_str!("../../../../docs/inrpp-router.md"));
    assert_eq!(inrpp_routers, names(sidestep_inrpp::daemon::INRPP_METRICS));
    let others = documented(include_str!("../../../../docs/operations.md"));
    let elsewhere = path_managers.iter().chain(&reflectors).chain(&inrpp_routers).cloned().collect();
    assert_eq!(others, exported.difference(&elsewhere).cloned().collect());
}

/// What all daemons export.
fn exported() -> BTreeSet<String> {
    let daemons = [
        sidestep_pathchanger::daemon::HOST_METRICS,
        sidestep_pathchanger::daemon::ROUTER_METRICS,
        sidestep_semper::daemon::EDGE_METRICS,
        sidestep_route_control::daemon::ROUTE_CONTROL_METRICS,
        sidestep_mptcp::daemon::MPTCP_PM_METRICS,
        sidestep_route_control::reflector::REFLECTOR_METRICS,
        sidestep_inrpp::daemon::INRPP_METRICS,
        sidestep_controller::CONTROLLER_METRICS,
    ];
    names(&daemons.concat())
}

fn names(metrics: &[Metric]) -> BTreeSet<String> {
    metrics.iter().map(|metric| metric.exported_name()).collect()
}

/// The text under `key` of a table.
fn text<'a>(table: &'a Yaml, key: &str) -> &'a str {
    table[key].as_str().unwrap_or_else(|| panic!("{key} of {table:?}"))
}

#[test]
fn alert_rules_are_what_prometheus_reads_and_ask_for_metrics_that_are_exported() {
    let exported = exported();
    let file = YamlLoader::load_from_str(include_str!("../../../../packaging/prometheus/alerts.yaml")).unwrap();
    let groups = file[0]["groups"].as_vec().unwrap();
    let rules: Vec<&Yaml> = groups.iter().flat_map(|group| group["rules"].as_vec().unwrap()).collect();
    let keys = ["alert", "expr", "for", "labels", "annotations"];
    let mut names = BTreeSet::new();
    for rule in &rules {
        assert!(names.insert(text(rule, "alert")), "{rule:?} is there twice");
        assert!(rule.as_hash().unwrap().keys().all(|key| keys.contains(&key.as_str().unwrap())), "{rule:?}");
        let asked: BTreeSet<String> = words(text(rule, "expr")).collect();
        assert!(!asked.is_empty() && asked.is_subset(&exported), "{asked:?}");
        for (open, close) in [('(', ')'), ('{', '}'), ('[', ']'), ('"', '"')] {
            let count = |bracket| text(rule, "expr").matches(bracket).count();
            assert!(count(open) == count(close) && (open != close || count(open) % 2 == 0), "{rule:?}");
        }
        let wait =
            rule["for"].as_str().map(|wait| wait.strip_suffix('m').and_then(|minutes| minutes.parse::<u32>().ok()));
        assert_ne!(wait, Some(None), "{rule:?}");
        assert!(["critical", "warning", "info"].contains(&text(&rule["labels"], "severity")), "{rule:?}");
        let summary = text(&rule["annotations"], "summary");
        assert_eq!(summary.matches("{{").count(), summary.matches("}}").count(), "{summary}");
    }
    assert!(names.len() > 8, "{names:?}");
}

/// The metrics in the queries of a dashboard's panels.
fn collect_metrics(panels: &Value, found: &mut BTreeSet<String>) {
    match panels {
        Value::Array(items) => items.iter().for_each(|item| collect_metrics(item, found)),
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).into_iter().flat_map(words));
            fields.values().for_each(|field| collect_metrics(field, found));
        }
        _ => {}
    }
}

/// The names of ours in a text.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("sidestep_")).map(str::to_owned)
}

#[test]
fn a_configuration_is_checked_without_privilege_and_without_effect() {
    let room = Room::new();
    let fine = room.write("fine.toml", include_str!("../../../../packaging/agent.toml"));
    let ended = room.run(&["agent", "--check", "--config", &fine, "--controller", "unix:/none"]);
    ended.is_fine();
    assert_eq!(ended.stdout, "in order: 0 destinations with 0 paths\n");
    // Without a controller the agent would have nothing to do.
    let alone = room.run(&["agent", "--check", "--config", &fine]);
    assert!(alone.complaint(2).starts_with(&format!("{fine}:1:1: there is nothing to do")), "{alone:?}");
    // What the example suggests must be in order as well.
    let suggested: String = include_str!("../../../../packaging/agent.toml")
        .lines()
        .map(|line| line.strip_prefix("#:").unwrap_or(line).to_string() + "\n")
        .collect();
    // Providers whose sources are not named are taken to be those of the interfaces, which a warning reports.
    let assuming: String =
        suggested.lines().filter(|line| !line.starts_with("sources")).map(|line| line.to_string() + "\n").collect();
    // Nor are those that are named addresses of this machine.
    for (text, doubt) in [(suggested, "not_here"), (assuming, "assumed")] {
        let file = room.write("suggested.toml", &text);
        let ended = room.run(&["agent", "--check", "--json", "--config", &file]);
        ended.is_fine();
        let counted: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let counts = ["schema", "destinations", "paths"].map(|key| counted[key].as_u64());
        assert_eq!(counts, [Some(1), Some(1), Some(2)]);
        let doubts = counted["doubtful_sources"].as_array().unwrap();
        let is_it = |one: &serde_json::Value| one["kind"] == doubt && one["destination"] == "2001:db8:5::/48";
        assert!(doubts.iter().any(is_it), "{counted:#}");
        let said = room.run(&["agent", "--check", "--config", &file]).stdout;
        assert_eq!(said.contains("warning: a path to"), doubt == "assumed", "{said}");
        assert_eq!(said.contains("warning: no address of this host"), doubt == "not_here", "{said}");
    }

    let wrong = room.write("wrong.toml", "[pathchanger]\ngama = 1\n");
    let ended = room.run(&["agent", "--check", "--config", &wrong]);
    assert!(ended.complaint(2).starts_with(&format!("{wrong}:2:1: ")), "{ended:?}");
    fs::write(room.path("binary.toml"), b"[pathchanger]\ngamma = \xff\n").unwrap();
    let binary = room.path("binary.toml").display().to_string();
    let ended = room.run(&["agent", "--check", "--config", &binary]);
    assert!(ended.complaint(2).starts_with(&format!("{binary}:2:9: this is not UTF-8 text")), "{ended:?}");
    let nothing = room.run(&["agent", "--check"]);
    nothing.complaint(2);
    assert!(nothing.stderr.contains("--config <FILE>"), "{nothing:?}");
}
