//! `sidestep advise`: is there anything to gain in this network, and what does it take?

mod page;

use std::path::PathBuf;

use serde::Serialize;
use sidestep_maxflow::FlowModel;
use sidestep_model::{Graph, NodeId};
use sidestep_paths::analysis::{Counts, Net, Reliance, Remove, SegmentOptions, Survey, parts, reliance};
use sidestep_repro::Watch;
use sidestep_results::Estimate;

use super::{
    flows::{Capacities, Question, refused, sampling},
    print_json, save,
    topo::load,
    until_signalled,
};
use crate::{
    failure::{Failure, Outcome},
    planning::{args::AdviseArgs, progress::StepProgress},
};

/// Limits of segments from 1 to this are looked at; it stands for any number.
const MOST_SEGMENTS: usize = 10;
/// A limit is enough if it gives this share of what [`MOST_SEGMENTS`] give beyond one segment.
const ENOUGH: f64 = 0.95;
/// How many links are listed.
const LISTED: usize = 10;

/// What an operator is told.
#[derive(Debug, Serialize)]
struct Advice {
    schema: u32,
    topology: String,
    nodes: usize,
    links: usize,
    /// What is left of them, of which the advice is.
    routers: usize,
    router_links: usize,
    /// Parts that no link joins.
    parts: usize,
    /// Which routers the pairs are of, and how many there are.
    between: Between,
    asked: usize,
    pairs: u64,
    /// Pairs by how many link-disjoint paths there are at all.
    most: Paths,
    /// By limit from 1 segment on, what segment lists can force.
    node_segments: Vec<Paths>,
    with_adjacency: Vec<Paths>,
    /// The smallest limits that are enough.
    limit: Limits,
    rule: String,
    /// Whether the limit advised is that of node segments alone.
    no_adjacency: bool,
    flow: Option<Flow>,
    /// Why there is none.
    no_flow: Option<String>,
    /// How many links take all diversity from a pair, or its last path.
    links_relied_on: usize,
    /// All links, those first on which most pairs rely.
    reliance: Vec<Relied>,
    interrupted: bool,
    page: PathBuf,
}

/// Which routers were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Between {
    /// Those of degree 2 after pruning.
    Access,
    /// All that pruning leaves, as there are no two access routers.
    Pruned,
    /// All, as pruning leaves none.
    All,
}

/// Pairs by number of paths.
#[derive(Clone, Debug, Serialize)]
struct Paths {
    mean: f64,
    /// From none on.
    pairs: Vec<u64>,
}

/// The smallest limits that are enough.
#[derive(Clone, Copy, Debug, Serialize)]
struct Limits {
    node_segments: usize,
    with_adjacency: usize,
    /// What to buy hardware for.
    advised: usize,
}

/// What segment routing adds to the maximum flow.
#[derive(Clone, Debug, Serialize)]
struct Flow {
    share: f64,
    heavy_pairs: usize,
    draws: usize,
    capacities: String,
    /// Over ECMP, in percent, with so many segments as advised, and with any number.
    gain_at_limit: Option<Estimate>,
    gain: Option<Estimate>,
    largest_gap: f64,
}

/// A link, and who relies on it.
#[derive(Clone, Debug, Serialize)]
struct Relied {
    ends: [String; 2],
    /// Pairs that have one path left when it fails, and had more.
    exposed: u64,
    /// Those of which neither router is an end of the link.
    in_transit: u64,
    /// Pairs that have none left.
    cut: u64,
    /// Its place among the net's links.
    #[serde(skip)]
    link: usize,
}

/// What is advised about.
struct Subject {
    graph: Graph,
    whole: Net,
    net: Net,
    between: Between,
    nodes: Vec<u32>,
}

/// Runs `sidestep advise`.
pub fn run(args: AdviseArgs) -> Outcome {
    if args.topology.merge_parallel || args.topology.keep_loops {
        return Err(Failure::usage("parallel links are ways of their own, and loops are none: leave the option out"));
    }
    let subject = Subject::read(&args)?;
    let name = &subject.graph.name;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from("out/advise").join(format!("{name}.html")));
    let watch = StepProgress::new(until_signalled()?);
    let advice = advise(&args, &subject, out, &watch)?;
    if let Some(folder) = advice.page.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Failure::run(format!("{}: {error}", folder.display())))?;
    }
    save(&advice.page, &page::page(&advice, &subject, &super::command_line()))?;
    if args.topology.json {
        print_json(&advice)?;
    } else {
        print(&advice);
    }
    match advice.interrupted {
        true => Err(Failure::run("interrupted; the advice is of what was computed until then")),
        false => Ok(()),
    }
}

impl Subject {
    /// The topology without its tails, and its access routers; or else what comes next to them.
    fn read(args: &AdviseArgs) -> Result<Self, Failure> {
        let (graph, whole) = load(&args.topology)?;
        let pruned = whole.pruned();
        let access = pruned.access();
        let all = |net: &Net| (0..net.node_count() as u32).collect::<Vec<u32>>();
        let (net, between, nodes) = if access.len() >= 2 {
            (pruned, Between::Access, access)
        } else if pruned.node_count() >= 2 {
            let nodes = all(&pruned);
            (pruned, Between::Pruned, nodes)
        } else {
            (whole.clone(), Between::All, all(&whole))
        };
        if nodes.len() < 2 {
            return Err(Failure::usage(format!("{} has no two routers, so there is nothing to advise", graph.name)));
        }
        Ok(Subject { graph, whole, net, between, nodes })
    }

    fn name(&self, node: u32) -> &str {
        self.graph.nodes.get(self.net.origin(node)).map_or("", |node| node.name.as_str())
    }
}

fn advise(args: &AdviseArgs, subject: &Subject, page: PathBuf, watch: &StepProgress) -> Result<Advice, Failure> {
    let Subject { graph, whole, net, nodes, .. } = subject;
    watch.begins("disjoint paths", 3 * nodes.len());
    let go_on = || {
        watch.step();
        !watch.stopped()
    };
    let survey = Survey::new(net)?.watched(&go_on);
    let most = Paths::of(&survey.most(nodes));
    // As routers forward: with ECMP, a segment forces a path only where no other is as short.
    let by_limit = |adjacency| {
        let options = SegmentOptions { remove: Remove::Forward, unique: true, adjacency };
        survey.segmented(nodes, MOST_SEGMENTS, options).iter().map(Paths::of).collect::<Vec<_>>()
    };
    let (node_segments, with_adjacency) = (by_limit(false), by_limit(true));
    watch.ends();
    let (with_nodes, with_both) = (enough(&node_segments), enough(&with_adjacency));
    let advised = if args.no_adjacency { with_nodes } else { with_both };
    let limit = Limits { node_segments: with_nodes, with_adjacency: with_both, advised };
    watch.begins("links", net.link_count());
    let reliance = relied(subject, reliance(net, nodes, go_on));
    watch.ends();
    let flow = flow(args, subject, advised, watch);
    let (flow, no_flow) = match flow {
        Ok(flow) => (Some(flow), None),
        Err(failure) => (None, Some(failure.to_string())),
    };
    Ok(Advice {
        schema: 1,
        topology: graph.name.clone(),
        nodes: whole.node_count(),
        links: whole.link_count(),
        routers: net.node_count(),
        router_links: net.link_count(),
        parts: parts(net),
        between: subject.between,
        asked: nodes.len(),
        pairs: most.pairs.iter().sum(),
        most,
        node_segments,
        with_adjacency,
        limit,
        rule: format!(
            "the fewest segments that give {:.0} % of the disjoint paths that {MOST_SEGMENTS} segments add to those of one",
            ENOUGH * 100.0
        ),
        no_adjacency: args.no_adjacency,
        flow,
        no_flow,
        links_relied_on: reliance.iter().filter(|link| link.exposed + link.cut > 0).count(),
        reliance,
        interrupted: watch.stopped(),
        page,
    })
}

impl Paths {
    fn of(counts: &Counts) -> Paths {
        Paths { mean: counts.mean().unwrap_or(0.0), pairs: counts.pairs.clone() }
    }
}

/// The smallest limit that is enough.
fn enough(by_limit: &[Paths]) -> usize {
    let (Some(first), Some(last)) = (by_limit.first(), by_limit.last()) else { return 1 };
    let wanted = first.mean + ENOUGH * (last.mean - first.mean);
    by_limit.iter().position(|paths| paths.mean >= wanted).unwrap_or_default() + 1
}

/// The links by how many pairs rely on them.
fn relied(subject: &Subject, found: Vec<Reliance>) -> Vec<Relied> {
    let relied = |(link, found): (usize, Reliance)| {
        let ends = subject.net.links()[link].map(|end| subject.name(end).to_owned());
        Relied { ends, exposed: found.exposed, in_transit: found.in_transit, cut: found.cut, link }
    };
    let mut all: Vec<Relied> = found.into_iter().enumerate().map(relied).collect();
    all.sort_by_key(|one| std::cmp::Reverse((one.cut, one.exposed, one.in_transit)));
    all
}

fn flow(args: &AdviseArgs, subject: &Subject, limit: usize, watch: &StepProgress) -> Result<Flow, Failure> {
    let Subject { graph, net, nodes, .. } = subject;
    let Capacities { network, source } = Capacities::new(graph, net, &args.rates)?;
    let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
    let adjacency = !args.no_adjacency;
    let segments = [Some(limit), None].map(|limit| FlowModel::Segments { limit, adjacency });
    let question = Question {
        network: &network,
        nodes: &nodes,
        sampling: sampling(&args.sampling),
        shares: &[args.share],
        draws: args.sampling.draws,
        seed: args.sampling.seed,
        models: &[FlowModel::Ecmp, segments[0], segments[1]],
    };
    let answer = question.answer(watch).map_err(|error| refused(&graph.name, &error))?;
    Ok(Flow {
        share: args.share.as_f64(),
        heavy_pairs: question.pairs(args.share),
        draws: answer.gains(0, 2, 0).len(),
        capacities: source,
        gain_at_limit: Estimate::of(&answer.gains(0, 1, 0)),
        gain: Estimate::of(&answer.gains(0, 2, 0)),
        largest_gap: answer.gap,
    })
}

impl Advice {
    /// Which routers the pairs are of, in words.
    fn between(&self) -> String {
        let routers = self.asked;
        match self.between {
            Between::Access => format!("{routers} access routers (those with two links)"),
            Between::Pruned => format!("all {routers} routers, as no two of them are access routers with two links"),
            Between::All => format!("all {routers} routers, as no part of this network has a second way"),
        }
    }

    /// Share of the pairs with two or more paths, in percent.
    fn diverse(&self, paths: &Paths) -> f64 {
        let two_or_more: u64 = paths.pairs.iter().skip(2).sum();
        100.0 * two_or_more as f64 / self.pairs.max(1) as f64
    }

    /// The advice in a sentence or two.
    fn headline(&self) -> String {
        if self.diverse(&self.most) == 0.0 {
            return "No pair has a second path: there is nowhere to move traffic to.".into();
        }
        let limit = self.limit.advised;
        let segments = if limit == 1 { "segment is" } else { "segments are" };
        let by_limit = if self.no_adjacency { &self.node_segments } else { &self.with_adjacency };
        let second = by_limit.get(limit - 1).map_or(0.0, |paths| self.diverse(paths));
        let gain = self.flow.as_ref().and_then(|flow| Some((flow.gain_at_limit?, flow.share)));
        let gain = gain.map_or(String::new(), |(gain, share)| {
            let sure = if gain.ci95[0] > 0.0 { "" } else { "perhaps " };
            format!(
                ", and carry {sure}{:.0} % more than ECMP when {} % of the pairs are heavy",
                gain.mean,
                share * 100.0
            )
        });
        format!("{limit} {segments} enough: {second:.0} % of the pairs have a second path{gain}.")
    }

    /// How the segment limit is to be read.
    fn limit_notes(&self) -> String {
        if self.diverse(&self.most) == 0.0 {
            return "none, as no pair has a second path.".into();
        }
        let Limits { node_segments, with_adjacency, .. } = self.limit;
        format!("{with_adjacency} with adjacency segments, {node_segments} with node segments alone: {}.", self.rule)
    }

    /// What the network is made of.
    fn size(&self) -> String {
        let left = match (self.nodes - self.routers, self.links - self.router_links) {
            (0, 0) => String::new(),
            (nodes, links) => format!(
                " Tails of {nodes} nodes and {links} links hang on by one link; without them {} and {} are left.",
                self.routers, self.router_links
            ),
        };
        let parts = match self.parts {
            0 | 1 => String::new(),
            parts => format!(" They are {parts} parts that no link joins, and pairs across have no path."),
        };
        format!("{} nodes and {} links.{left}{parts}", self.nodes, self.links)
    }

    /// The gain in words.
    fn flow_notes(&self) -> String {
        let Some(flow) = &self.flow else {
            return self.no_flow.clone().unwrap_or_default();
        };
        let percent = |gain: Option<Estimate>| {
            gain.map_or("none measured".into(), |gain| format!("{:+.1} ± {:.1} %", gain.mean, gain.half_width()))
        };
        format!(
            "{} with {} segment{}, {} with any number (mean and 95 % confidence of {} draws of {} pair{}). Rates: {}.",
            percent(flow.gain_at_limit),
            self.limit.advised,
            if self.limit.advised == 1 { "" } else { "s" },
            percent(flow.gain),
            flow.draws,
            flow.heavy_pairs,
            if flow.heavy_pairs == 1 { "" } else { "s" },
            flow.capacities
        )
    }
}

fn print(advice: &Advice) {
    let plain = |text: &str| text.replace(char::is_control, "\u{fffd}");
    println!("{}: {}", plain(&advice.topology), advice.headline());
    println!("\n{}", advice.size());
    println!("{} pairs of {}\n", advice.pairs, advice.between());
    println!("{:<28} {:>6} {:>14}   pairs with so many paths", "disjoint paths", "mean", "two or more");
    let line = |name: &str, paths: &Paths| {
        let pairs = paths.pairs.iter().enumerate().filter(|(_, pairs)| **pairs > 0);
        let pairs: Vec<String> = pairs.map(|(paths, pairs)| format!("{paths}: {pairs}")).collect();
        println!("{name:<28} {:>6.3} {:>12.1} %   {}", paths.mean, advice.diverse(paths), pairs.join(", "));
    };
    for (kind, limits) in [("node segments", &advice.node_segments), ("with adjacencies", &advice.with_adjacency)] {
        for (limit, paths) in (1..).zip(limits).take(shown(limits)) {
            line(&format!("{kind}, at most {limit}"), paths);
        }
    }
    line("as many as there are", &advice.most);
    println!("\nsegments worth buying  {}", advice.limit_notes());
    println!("gain in maximum flow   {}", advice.flow_notes());
    println!(
        "\n{} of {} links take all diversity, or the last path, from a pair when they fail",
        advice.links_relied_on, advice.router_links
    );
    for link in advice.reliance.iter().take(LISTED).filter(|link| link.exposed + link.cut > 0) {
        let [a, b] = [&link.ends[0], &link.ends[1]].map(|end| plain(end));
        let cut = if link.cut > 0 { format!(", {} pairs cut off", link.cut) } else { String::new() };
        println!("  {a} – {b}: {} pairs left with one path, {} of them in transit{cut}", link.exposed, link.in_transit);
    }
    println!("\nPage with map: {}", advice.page.display());
}

/// How many limits are shown: up to the one after which nothing changes.
fn shown(limits: &[Paths]) -> usize {
    let last = limits.last().map_or(0.0, |paths| paths.mean);
    limits.iter().position(|paths| paths.mean >= last).map_or(limits.len(), |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(means: &[f64]) -> Vec<Paths> {
        means.iter().map(|mean| Paths { mean: *mean, pairs: Vec::new() }).collect()
    }

    #[test]
    fn the_limit_advised_is_the_smallest_that_gives_nearly_all_there_is_to_give() {
        assert_eq!(enough(&limits(&[1.0, 1.5, 1.94, 1.96, 2.0])), 4);
        assert_eq!(enough(&limits(&[1.0, 1.0, 1.0])), 1);
        assert_eq!(enough(&limits(&[])), 1);
        assert_eq!(shown(&limits(&[1.0, 1.5, 2.0, 2.0])), 3);
    }
}
