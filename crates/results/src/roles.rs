//! Which system of a run is the baseline, and which one a reader is advised to use.

use crate::{RunResult, SystemResult};

/// Systems of ours with all settings at their defaults: of several in a run, the first is the one that is recommended.
const RECOMMENDED: [&str; 5] = ["pathchanger", "route-control", "semper", "inrpp", "mptcp"];

/// The system that the others are compared with: what the network does where no system decides.
pub(crate) fn baseline(run: &RunResult) -> Option<(&str, &SystemResult)> {
    let is_none = |name: &str| name.starts_with("route-control:") && has(name, "mode", &["none"]);
    let find = |wanted: &dyn Fn(&str) -> bool| run.systems.iter().find(|(name, _)| wanted(name));
    find(&|name| name == "tcp").or_else(|| find(&is_none)).or_else(|| find(&|name| name == "ecmp"))
}

/// The system that a reader is advised to use: neither the baseline, nor dice, nor one that knows what no real system can know.
///
/// One of ours with its defaults, or else the only one that is left; `None` where several are, or none.
pub(crate) fn recommended(run: &RunResult) -> Option<(&str, &SystemResult)> {
    let baseline = baseline(run).map(|(name, _)| name);
    let left: Vec<(&str, &SystemResult)> =
        run.systems.iter().filter(|(name, _)| Some(*name) != baseline && is_candidate(name)).collect();
    let default = RECOMMENDED.iter().find_map(|ours| left.iter().find(|(name, _)| name == ours));
    match (default, &left[..]) {
        (Some(default), _) => Some(*default),
        (None, [only]) => Some(*only),
        (None, _) => None,
    }
}

/// Whether a system is one that could be advised.
fn is_candidate(name: &str) -> bool {
    let base = name.split(':').next().unwrap_or(name);
    base != "random" && !has(name, "policy", &["random", "static"]) && !has(name, "mode", &["ideal", "none"])
}

/// Whether a system's parameter has one of these values.
fn has(system: &str, parameter: &str, values: &[&str]) -> bool {
    let parameters = system.split_once(':').map_or("", |(_, parameters)| parameters);
    let mut pairs = parameters.split(',').filter_map(|pair| pair.split_once('='));
    pairs.any(|(name, value)| name == parameter && values.contains(&value))
}
