//! `sidestep maxflow`.

use serde::Serialize;
use sidestep_advise::{AdviseError, Answer, BASES, Capacities, Question, Share, models, shares};
use sidestep_formats::Reading;
use sidestep_maxflow::FlowModel;
use sidestep_net::{NodeId, Ratio};
use sidestep_repro::{Curve, curves};

use super::{
    flows::{sampling, source},
    paths::routers,
    print_json, save,
    topo::{Loaded, load},
    until_signalled,
};
use crate::planning::{
    args::MaxFlowArgs,
    failure::{Failure, Outcome},
    progress::StepProgress,
};

/// What `maxflow` finds.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    topology: String,
    routers: usize,
    links: usize,
    /// How many routers the pairs are of.
    between: usize,
    capacities: String,
    sampling: String,
    seed: u32,
    /// Whether segments may end with an adjacency.
    adjacency: bool,
    interrupted: bool,
    /// How many linear programs were solved.
    programs: usize,
    /// The largest gap between a flow and its dual bound, as a share of the flow.
    largest_gap: f64,
    shares: Vec<Share>,
    reading: Reading,
}

/// Runs `sidestep maxflow`.
pub fn run(args: MaxFlowArgs) -> Outcome {
    let options = &args.topology;
    if options.merge_parallel {
        return Err(Failure::usage("the rates of parallel links add up: leave out --merge-parallel"));
    }
    let Loaded { graph, net, reading } = load(options)?;
    let net = if args.pairs.no_prune { net } else { net.pruned() };
    let nodes: Vec<NodeId> = routers(&graph, &net, &args.pairs)?.into_iter().map(NodeId).collect();
    let capacities = Capacities::new(&graph, &net, args.rates.default_rate)?;
    let models = models(&args.max_segments, args.adjacency);
    let kinds: Vec<FlowModel> = models.iter().map(|(_, model)| *model).collect();
    let rule = sampling(&args.sampling);
    let question = Question {
        network: &capacities.network,
        nodes: &nodes,
        sampling: rule,
        shares: &args.shares,
        draws: args.sampling.draws,
        seed: args.sampling.seed,
        models: &kinds,
    };
    let watch = StepProgress::new(until_signalled()?);
    let answer = question.answer(&watch).map_err(|error| AdviseError::flow(&graph, error))?;
    let report = Report {
        schema: 1,
        topology: graph.name.clone(),
        routers: net.node_count(),
        links: net.link_count(),
        between: nodes.len(),
        capacities: source(&capacities),
        sampling: rule.to_string(),
        seed: args.sampling.seed,
        adjacency: args.adjacency,
        interrupted: answer.interrupted,
        programs: answer.programs,
        largest_gap: answer.gap,
        shares: shares(&question, &models, &answer),
        reading,
    };
    let over = BASES.iter().position(|(name, _)| *name == args.over).unwrap_or(1);
    if let Some(path) = &args.svg {
        let segments = models.iter().position(|(name, _)| name == "sr").unwrap_or_default();
        save(path, &picture(&graph.name, &args.shares, &answer, segments, over)?)?;
    }
    if args.topology.json {
        print_json(&report)?;
    } else {
        print(&report, over);
    }
    if report.interrupted {
        return Err(Failure::run("interrupted; what was computed until then is printed"));
    }
    Ok(())
}

/// How gains are spread over the draws.
fn picture(name: &str, shares: &[Ratio], answer: &Answer, model: usize, over: usize) -> Result<String, Failure> {
    let curve = |(index, share): (usize, &Ratio)| Curve {
        label: format!("{share} of pairs"),
        values: answer.gains(index, model, over),
    };
    let drawn: Vec<Curve> = shares.iter().enumerate().map(curve).collect();
    let title = format!("{name}: maximum flow with segment routing over {}", BASES[over].0);
    Ok(curves(&title, "gain (%)", "draws", &drawn)?)
}

fn print(report: &Report, over: usize) {
    let Report { topology, routers, links, between, capacities, sampling, seed, .. } = report;
    println!("{topology}: {routers} routers, {links} links; pairs of {between} routers");
    println!("pairs            {sampling}; seed {seed}");
    println!("capacities       {capacities}");
    let may = if report.adjacency { "end with a node or an adjacency" } else { "end with a node" };
    println!("segments         {may}\n");
    let columns = |cell: &dyn Fn(&Share) -> String| {
        report.shares.iter().map(|share| format!(" {:>16}", cell(share))).collect::<String>()
    };
    println!("{:<18}{}", "share of pairs", columns(&|share| format!("{} %", share.share * 100.0)));
    println!("{:<18}{}", "pairs", columns(&|share| share.pairs.to_string()));
    println!("{:<18}{}", "draws", columns(&|share| share.draws.to_string()));
    let names = report.shares.first().map(|share| share.models.iter().map(|model| model.name.as_str()));
    let names: Vec<&str> = names.into_iter().flatten().collect();
    println!("flow, Mbit/s, mean of the draws");
    for (index, name) in names.iter().enumerate() {
        let cell =
            |share: &Share| share.models[index].flow_mbps.map_or("–".into(), |flow| format!("{:.1}", flow.mean));
        println!("  {name:<16}{}", columns(&cell));
    }
    println!("gain over {}, %, mean and 95 % confidence", BASES[over].0);
    for (index, name) in names.iter().enumerate().filter(|(index, _)| *index != over) {
        let cell = |share: &Share| {
            let gains = &share.models[index].gain_over;
            let gain = [gains.single_path, gains.ecmp, gains.multipath][over];
            gain.map_or("–".into(), |gain| format!("{:.1} ± {:.1}", gain.mean.mean, gain.mean.half_width()))
        };
        println!("  {name:<16}{}", columns(&cell));
    }
    println!("\n{} programs; no flow is further from its dual bound than {:.1e}", report.programs, report.largest_gap);
}
