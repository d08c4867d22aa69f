//! Reasons to doubt what was measured: one list, which the terminal, the page and `result.json` show alike.

use serde::{Deserialize, Serialize};
use sidestep_net::{ArcId, LinkState, Ratio, Span};
use sidestep_scenario::{
    Scenario,
    conditions::{ArcCondition, Conditions},
};

use crate::{Named, SystemResult, summary::seconds};

/// What kind of reason it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoubtKind {
    /// The machine did not keep up: packets were late that no link of the scenario delayed.
    LateMachine,
    /// Packets were lost that no link of the scenario lost.
    LostFrames,
    /// The system had nothing to choose from, or its choice could not help, so that the run shows nothing about it.
    CouldNotAct,
    /// Connections failed for reasons of the machine.
    FailedConnections,
    /// What the system promises did not hold.
    BrokenPromise,
}

/// A reason to doubt the measures of one system under one seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// Its kind.
    pub kind: DoubtKind,
    /// What was seen, as a sentence without its full stop.
    pub text: String,
}

/// A reason to doubt a run; an entry of `validity` in `result.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// Its kind.
    pub kind: DoubtKind,
    /// The system whose measures it concerns.
    pub system: String,
    /// What was seen; of several seeds what the first such showed, and in how many it was seen.
    pub text: String,
}

impl Doubt {
    /// A reason of this kind.
    pub fn new(kind: DoubtKind, text: impl Into<String>) -> Doubt {
        Doubt { kind, text: text.into() }
    }
}

/// The reasons to doubt each system, in the order of the systems; reasons of one kind under several seeds are one.
pub(crate) fn of(systems: &Named<SystemResult>) -> Vec<Validity> {
    let mut found = Vec::new();
    for (name, system) in systems.iter() {
        let seeds: &[SystemResult] = match &system.repeated {
            Some(repeated) if !repeated.each.is_empty() => &repeated.each,
            _ => std::slice::from_ref(system),
        };
        let mut kinds: Vec<DoubtKind> = seeds.iter().flat_map(|one| &one.validity).map(|doubt| doubt.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let of_kind = |one: &SystemResult| -> Vec<String> {
                one.validity.iter().filter(|doubt| doubt.kind == kind).map(|doubt| doubt.text.clone()).collect()
            };
            let texts: Vec<Vec<String>> = seeds.iter().map(of_kind).filter(|texts| !texts.is_empty()).collect();
            let among = match (texts.len(), seeds.len()) {
                (_, 1) => String::new(),
                (some, all) if some == all => format!(" (the first seed; so in all {all})"),
                (some, all) => format!(" (the first such seed; so in {some} of {all})"),
            };
            let first = shortened(texts.into_iter().next().unwrap_or_default());
            let entry = |text: String| Validity { kind, system: name.to_owned(), text: text + &among };
            found.extend(first.into_iter().map(entry));
        }
    }
    found
}

/// The texts, and of many of one kind the first and how many more there are: `result.json` has them all with their system.
fn shortened(mut texts: Vec<String>) -> Vec<String> {
    let more = texts.len().saturating_sub(1);
    if more >= MANY {
        texts.truncate(1);
        texts.iter_mut().for_each(|text| *text += &format!(" (and {more} more)"));
    }
    texts
}

/// If at least this number more of one kind follow, they are counted and not listed.
const MANY: usize = 3;

/// The probability of loss of a link that carries nothing.
const CERTAIN: Ratio = Ratio::from_ppb(1_000_000_000);

/// A path that answers take back to the node that decides, which nothing that is decided there changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnPath {
    /// The node that decides.
    pub site: String,
    /// From whom answers come.
    pub far: String,
    /// The arcs back, in their order.
    pub arcs: Vec<ArcId>,
    /// The arcs by which the site may send instead, by egress.
    pub egresses: Vec<Vec<ArcId>>,
}

/// Reports where a system that chooses its egress could not help, as all answers came back over one path and that was dead.
///
/// `moves` is how often the system moved. An arc counts as dead while it carries nothing and routing does not notice, or while
/// it is `down` and `routed` means that no routing protocol goes around it.
pub fn dead_returns(scenario: &Scenario, seed: u64, returns: &[ReturnPath], routed: bool, moves: u64) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    for back in returns {
        let (dead, first) = dead_for(scenario, seed, back, routed);
        let Some(arc) = first else { continue };
        let link = &scenario.topology.link(arc.link()).name;
        let moved = match moves {
            0 => "it never moved".to_owned(),
            moves => format!("moves ({moves} in all) could not help then"),
        };
        let ReturnPath { site, far, .. } = back;
        doubts.push(Doubt::new(
            DoubtKind::CouldNotAct,
            format!(
                "answers from `{far}` come back to `{site}` over `{link}` whatever egress `{site}` takes, and that \
                 direction was dead for {} while another egress was fine: {moved}",
                seconds(dead.as_secs_f64())
            ),
        ));
    }
    doubts
}

/// How long the path back was dead while there was an egress that was not, and the first dead arc.
fn dead_for(scenario: &Scenario, seed: u64, back: &ReturnPath, routed: bool) -> (Span, Option<ArcId>) {
    let mut conditions = Conditions::new(scenario, seed);
    let mut since: Option<(Span, ArcId)> = None;
    let (mut total, mut first) = (Span::ZERO, None);
    let duration = scenario.duration;
    loop {
        let at = conditions.next_at().filter(|at| *at < duration);
        let Some(now) = at else { break };
        if conditions.advance(now).is_none() {
            break;
        }
        let is_dead = |arc: &ArcId| {
            let ArcCondition { channel, state, .. } = conditions.arc(*arc);
            let unnoticed = !routed || !conditions.failed().contains(&arc.link());
            channel.loss >= CERTAIN || (state != LinkState::Up && unnoticed)
        };
        let dead = back.arcs.iter().find(|arc| is_dead(arc)).copied();
        let a_way_out = back.egresses.iter().any(|arcs| !arcs.iter().any(is_dead));
        let silent = dead.is_some() && a_way_out;
        match (since, silent) {
            (None, true) => since = dead.map(|arc| (now, arc)),
            (Some((from, arc)), false) => {
                total = total + (now - from);
                since = None;
                // Of changes at one instant, those between count for nothing.
                first = first.or((now > from).then_some(arc));
            }
            _ => {}
        }
    }
    if let Some((from, arc)) = since {
        total = total + (duration - from);
        first = first.or(Some(arc));
    }
    (total, first)
}

/// Reports for which pairs a system had a single path only, so that it could not do what it is for; `None` if each had a choice.
///
/// `ways` has for each pair of ends their names and how many paths the system had; `what` is what it chooses among.
pub fn single_ways(ways: &[(String, String, usize)], what: &str) -> Option<Doubt> {
    let single: Vec<&(String, String, usize)> = ways.iter().filter(|(_, _, count)| *count < 2).collect();
    let (from, to, count) = single.first()?;
    let many = match single.len() {
        1 => String::new(),
        more => format!(" (and so for {} more)", more - 1),
    };
    let has = if *count == 0 { format!("is no {what}") } else { format!("is one {what} only") };
    let act = if single.len() == ways.len() { "it could not act" } else { "there it could not act" };
    Some(Doubt::new(DoubtKind::CouldNotAct, format!("from `{from}` to `{to}` there {has}{many}: {act}")))
}

#[cfg(test)]
mod tests {
    use sidestep_scenario::builder::{Part, ScenarioBuilder, blackhole, down, up};

    use super::*;
    use crate::Repeated;

    /// Two paths of one link each; what comes back takes the first.
    fn doubts(events: &[Part], routed: bool, moves: u64) -> Vec<String> {
        let paths = ScenarioBuilder::new("10 s").parallel_paths(2).network("hops", 1);
        let scenario = events.iter().cloned().fold(paths, ScenarioBuilder::event).build();
        let between: Vec<ArcId> = scenario
            .topology
            .outgoing(scenario.topology.find("A").unwrap())
            .iter()
            .copied()
            .filter(|arc| scenario.topology.is_router(scenario.topology.head(*arc)))
            .collect();
        let [one, other] = between[..] else { panic!("{between:?}") };
        let (site, far) = ("A".to_owned(), "B".to_owned());
        let back = ReturnPath { site, far, arcs: vec![one.reversed()], egresses: vec![vec![one], vec![other]] };
        dead_returns(&scenario, 1, &[back], routed, moves).into_iter().map(|doubt| doubt.text).collect()
    }

    #[test]
    fn answers_that_come_back_over_a_dead_path_are_a_reason_to_doubt_however_often_the_system_moved() {
        let dead = [blackhole("4 s").path("path-1"), up("6 s").path("path-1")];
        let told = doubts(&dead, true, 2);
        assert_eq!(told.len(), 1, "{told:?}");
        for wanted in ["answers from `B`", "dead for 2.00 s", "moves (2 in all) could not help then"] {
            assert!(told[0].contains(wanted), "{wanted}: {told:?}");
        }
        assert!(
            doubts(&[blackhole("4 s").path("path-1")], true, 0)[0]
                .contains("6.00 s while another egress was fine: it never moved")
        );
        assert!(doubts(&[blackhole("4 s").path("path-2")], true, 1).is_empty(), "the way back is fine");
        assert!(doubts(&[], true, 1).is_empty());
    }

    #[test]
    fn routing_goes_around_a_link_without_a_carrier_where_there_is_routing() {
        let away = [down("4 s").path("path-1")];
        assert!(doubts(&away, true, 1).is_empty() && doubts(&away, false, 1).len() == 1);
    }

    #[test]
    fn where_both_egresses_are_dead_nothing_is_said_of_the_way_back() {
        let all = [blackhole("4 s").path("path-1"), blackhole("4 s").path("path-2")];
        assert!(doubts(&all, true, 0).is_empty());
    }

    #[test]
    fn a_single_way_is_named_with_its_ends_and_a_choice_is_not() {
        let way = |from: &str, count| (from.to_owned(), "s1".to_owned(), count);
        let told = |ways: &[(String, String, usize)]| single_ways(ways, "path").map(|doubt| doubt.text);
        assert_eq!(told(&[way("c1", 2)]), None);
        assert_eq!(told(&[way("c1", 1)]).unwrap(), "from `c1` to `s1` there is one path only: it could not act");
        assert_eq!(
            told(&[way("c1", 4), way("c2", 1), way("c3", 1)]).unwrap(),
            "from `c2` to `s1` there is one path only (and so for 1 more): there it could not act"
        );
        assert_eq!(told(&[way("c1", 0)]).unwrap(), "from `c1` to `s1` there is no path: it could not act");
    }

    #[test]
    fn reasons_of_one_kind_under_several_seeds_are_one_that_shows_in_how_many() {
        let with = |text: Option<&str>| SystemResult {
            validity: text.map(|text| Doubt::new(DoubtKind::LateMachine, text)).into_iter().collect(),
            goodput_mbps: 1.0,
            ..SystemResult::default()
        };
        let seeds = [with(None), with(Some("2 % late")), with(Some("3 % late"))];
        let mut systems = Named::default();
        systems.insert("tcp", SystemResult { repeated: Repeated::of(&seeds), ..with(None) });
        systems.insert("route-control", with(Some("4 % late")));
        let found = of(&systems);
        let texts: Vec<_> = found.iter().map(|one| (one.system.as_str(), one.text.as_str())).collect();
        assert_eq!(texts, [("tcp", "2 % late (the first such seed; so in 2 of 3)"), ("route-control", "4 % late")]);
        let many: Vec<String> = (1..=5).map(|number| format!("connection {number} failed")).collect();
        assert_eq!(shortened(many.clone()), ["connection 1 failed (and 4 more)"]);
        assert_eq!(shortened(many[..3].to_vec()), many[..3]);
        let json = serde_json::to_value(&found[1]).unwrap();
        assert_eq!(json, serde_json::json!({"kind": "late-machine", "system": "route-control", "text": "4 % late"}));
    }
}
