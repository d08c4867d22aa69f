//! `sidestep advise`: is there anything to gain in this network, and what does it take?

mod demands;
mod page;

use std::path::{Path, PathBuf};

use serde::Serialize;
use sidestep_advise::{Advice, Options, Paths, Subject, advise};
use sidestep_formats::Reading;

use super::{
    flows::{sampling, source},
    print_json, save,
    topo::{Loaded, load},
    until_signalled,
};
use crate::planning::{
    args::AdviseArgs,
    failure::{Failure, Outcome},
    progress::StepProgress,
};

/// How many links are listed.
const LISTED: usize = 10;

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    advice: &'a Advice,
    page: &'a Path,
    reading: &'a Reading,
}

/// Runs `sidestep advise`.
pub fn run(args: AdviseArgs) -> Outcome {
    if args.topology.merge_parallel || args.topology.keep_loops {
        return Err(Failure::usage("parallel links are paths of their own, and loops are none: leave the option out"));
    }
    let Loaded { graph, net: whole, reading } = load(&args.topology)?;
    if !args.demands.demands.is_empty() {
        return demands::run(&args, &graph, &whole, &reading);
    }
    let subject = Subject::new(graph, whole)?;
    let name = &subject.graph.name;
    let page = args.out.clone().unwrap_or_else(|| PathBuf::from("out/advise").join(format!("{name}.html")));
    let watch = StepProgress::new(until_signalled()?).until(args.max_time.to_std());
    let options = Options {
        no_adjacency: args.no_adjacency,
        share: args.share,
        sampling: sampling(&args.sampling),
        draws: args.sampling.draws,
        max_draws: args.max_draws,
        seed: args.sampling.seed,
        default_rate: args.rates.default_rate,
        say_capacities: source,
    };
    let advice = advise(&subject, &options, &watch)?;
    if let Some(folder) = page.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Failure::run(format!("{}: {error}", folder.display())))?;
    }
    save(&page, &page::page(&advice, &subject, &super::command_line()))?;
    if args.topology.json {
        print_json(&Report { advice: &advice, page: &page, reading: &reading })?;
    } else {
        print(&advice, &page);
    }
    match advice.interrupted {
        true => Err(Failure::run("interrupted; the advice is of what was computed until then")),
        false => Ok(()),
    }
}

fn print(advice: &Advice, page: &Path) {
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
    let relied = || advice.reliance.iter().filter(|link| link.exposed + link.cut > 0);
    for link in relied().take(LISTED) {
        let [a, b] = [&link.ends[0], &link.ends[1]].map(|end| plain(end));
        let cut = if link.cut > 0 { format!(", {} pairs cut off", link.cut) } else { String::new() };
        println!("  {a} – {b}: {} pairs left with one path, {} of them in transit{cut}", link.exposed, link.in_transit);
    }
    if let Some(left) = left_out(relied().count()) {
        println!("  {left}; --json has all");
    }
    println!("\nPage with map: {}", page.display());
}

/// What a list of `count` links leaves out, if anything.
fn left_out(count: usize) -> Option<String> {
    let left = count.checked_sub(LISTED).filter(|left| *left > 0)?;
    Some(format!("and {left} more link{}", if left == 1 { "" } else { "s" }))
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
    fn a_list_shows_what_it_leaves_out() {
        assert_eq!([0, 9, 10].map(left_out), [None, None, None]);
        assert_eq!(left_out(11).unwrap(), "and 1 more link");
        assert_eq!(left_out(13).unwrap(), "and 3 more links");
    }

    #[test]
    fn limits_are_shown_up_to_the_one_after_which_nothing_changes() {
        assert_eq!(shown(&limits(&[1.0, 1.5, 2.0, 2.0])), 3);
    }
}
