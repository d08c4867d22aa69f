//! Values that are probably not what the file means.

use std::collections::BTreeMap;

use sidestep_net::{Graph, GraphEdge, great_circle_delay};

use super::reading::{Reading, Taken};

/// Fewer values than this show nothing.
const MIN_VALUES: usize = 3;

/// Says how delays follow where the file has none and which links have one direction, and warns of what cannot be.
pub(super) fn complete(reading: &mut Reading, graph: &Graph) {
    let edges: Vec<&GraphEdge> = graph.edges.iter().filter(|edge| edge.from != edge.to).collect();
    let light = |edge: &GraphEdge| {
        let position = |node: usize| graph.nodes.get(node)?.position;
        great_circle_delay(position(edge.from)?, position(edge.to)?)
    };
    let computed = graph.edges.iter().filter(|edge| edge.delay.is_none() && light(edge).is_some()).count();
    for taken in &mut reading.taken {
        if taken.kind == "delays" && computed > 0 {
            taken.rest = Some(format!("from positions, {computed} of {}", graph.edges.len()));
        }
        if taken.kind == "weights" && taken.known < taken.of {
            taken.rest = Some(if taken.known == 0 { "1 each".into() } else { "1 for each other".into() });
        }
    }
    let links = graph.links();
    let one_way = links.iter().filter(|link| !link.is_two_way()).count();
    if one_way > 0 {
        let rest = format!("{one_way} of {} links have one direction only", links.len());
        match reading.taken.iter_mut().find(|taken| taken.kind == "directions") {
            Some(taken) => taken.rest = Some(taken.rest.take().map_or(rest.clone(), |said| format!("{said}; {rest}"))),
            None => reading.taken.push(Taken { rest: Some(rest), ..Taken::of("directions", None, links.len()) }),
        }
    }
    let key = |kind: &str| {
        let taken = reading.taken.iter().find(|taken| taken.kind == kind);
        taken.and_then(|taken| taken.key.clone()).unwrap_or_else(|| "of the file".into())
    };
    let mut warnings = Vec::new();
    let delays: Vec<f64> = edges.iter().filter_map(|edge| Some(edge.delay?.as_nanos() as f64 / 1e3)).collect();
    let rates: Vec<f64> = edges.iter().filter_map(|edge| Some(edge.rate?.as_mbits())).collect();
    // By edge with both: its delay over that of light in fibre.
    let ratio = |edge: &&GraphEdge| {
        let light = light(edge)?.as_nanos() as f64;
        (light > 1e4).then_some(edge.delay?.as_nanos() as f64 / light)
    };
    let ratios: Vec<f64> = edges.iter().filter_map(ratio).collect();
    if let Some(typical) = median(&ratios).filter(|_| ratios.len() >= MIN_VALUES) {
        let (delays, hint) = (key("delays"), "; --map names another unit");
        if typical < 0.5 {
            let times = 1.0 / typical;
            let impossible = ratios.iter().filter(|ratio| **ratio < 0.6).count();
            warnings.push(format!(
                "delays, key {delays}: {impossible} of {} are less than light takes, and the median is 1/{times:.0} of it in fibre{hint}",
                ratios.len()
            ));
        } else if typical > 100.0 {
            warnings.push(format!(
                "delays, key {delays}: the median is {typical:.0} times what light takes in fibre{hint}"
            ));
        }
    } else if let Some(typical) = median(&delays).filter(|_| delays.len() >= MIN_VALUES)
        && typical > 0.0
        && !(20.0..=1e6).contains(&typical)
    {
        let km = typical / 5.0;
        warnings.push(format!(
            "delays, key {}: the median is {typical:.0} µs, {km:.0} km of fibre; --map names another unit",
            key("delays")
        ));
    }
    if let Some(typical) = median(&rates).filter(|_| rates.len() >= MIN_VALUES)
        && !(0.1..=1e8).contains(&typical)
    {
        warnings.push(format!("rates, key {}: the median is {typical} Mbit/s; --map names another unit", key("rates")));
    }
    for (kind, values) in [("delays", &delays), ("rates", &rates)] {
        let first = values.first().copied().unwrap_or_default();
        if values.len() > MIN_VALUES && values.iter().all(|value| *value == first) {
            warnings.push(format!("{kind}, key {}: all {} are the same", key(kind), values.len()));
        }
    }
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    graph.parts().into_iter().for_each(|part| *sizes.entry(part).or_default() += 1);
    if sizes.len() > 1 {
        let largest = sizes.values().max().copied().unwrap_or_default();
        warnings.push(format!(
            "the network is in {} parts that no link joins; --part largest, or `part = \"largest\"` in a scenario's \
             [topology], takes that of {largest} of {} nodes",
            sizes.len(),
            graph.nodes.len()
        ));
    }
    reading.warnings.extend(warnings);
}

/// The middle value; `None` of none.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
