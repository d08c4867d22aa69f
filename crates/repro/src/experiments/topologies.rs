//! What the experiments on published topologies have in common.

use sidestep_net::Graph;
use sidestep_paths::analysis::{Net, NetOptions};

use crate::{Context, Paper, ReproError, Row, Rule, weighted};

/// A pruned topology of the Topology Zoo.
pub(super) struct Pruned {
    pub(super) name: String,
    pub(super) net: Net,
    /// The topology before it was pruned.
    pub(super) graph: Graph,
}

/// The REPETITA graphs that survive pruning, or the Topology Zoo's; the context notes that.
pub(super) fn pruned(context: &mut Context<'_>) -> Result<Vec<Pruned>, ReproError> {
    let (graphs, note) = weighted(context.data.as_deref())?;
    context.note(note);
    survive(graphs)
}

/// Those of the graphs that survive pruning.
pub(super) fn survive(graphs: Vec<Graph>) -> Result<Vec<Pruned>, ReproError> {
    let mut all = Vec::new();
    for graph in graphs {
        let net = Net::new(&graph, NetOptions::default())?.pruned();
        if net.node_count() > 0 {
            all.push(Pruned { name: graph.name.clone(), net, graph });
        }
    }
    Ok(all)
}

/// The row that compares the number of topologies with the paper's. One experiment has it, since it is one fact.
pub(super) fn survivors(all: &[Pruned]) -> Row {
    Row::single(SURVIVORS, "", Paper::Number(233.0), all.len() as f64, Rule::Within(0.0))
}

/// The same number for the reader of another experiment on these topologies.
pub(super) fn counted(all: &[Pruned]) -> Row {
    let rule = Rule::Unjudged("tpc-fig6a has the verdict, once for all");
    Row::single(SURVIVORS, "", Paper::Number(233.0), all.len() as f64, rule)
}

const SURVIVORS: &str = "topologies after pruning";

/// The row of a quantity that the paper shows without its number.
pub(super) fn unsaid(quantity: impl Into<String>, unit: &str, ours: f64) -> Row {
    Row::single(quantity, unit, Paper::None, ours, Rule::NoPaperValue)
}

/// The nearest-rank quantile: the smallest value that this share of the values do not exceed.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize - 1;
    sorted.get(rank).copied().unwrap_or(f64::NAN)
}

/// The mean of the values.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// A table of numbers with a name before each line, as CSV text; names have no commas or quotes.
pub(super) fn csv(head: &[&str], lines: impl IntoIterator<Item = (String, Vec<f64>)>) -> String {
    let mut text = head.join(",") + "\n";
    for (name, numbers) in lines {
        text.push_str(&name.replace([',', '"', '\n', '\r'], " "));
        numbers.iter().for_each(|number| text.push_str(&format!(",{number}")));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!([0.0, 0.25, 0.5, 0.51, 1.0].map(|share| quantile(&values, share)), [1.0, 1.0, 2.0, 3.0, 4.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn no_name_breaks_a_table() {
        assert_eq!(csv(&["a", "b"], [("x,\"y".into(), vec![1.5, 2.0])]), "a,b\nx  y,1.5,2\n");
    }
}
