//! `sidestep topo`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sidestep_formats::{Mapping, Reading, print_graphml, print_repetita};
use sidestep_net::{Graph, Missing, Rate, Span, topology_file, usual_rate};
use sidestep_paths::analysis::{Net, NetOptions};
use sidestep_repro::{DataError, Set, topologies, topology_as};
use sidestep_results::{Look, draw};

use super::{print_json, save, say_reading};
use crate::planning::{
    args::{DataArgs, RateArgs, ReadArgs, Topo, TopologyArgs},
    failure::{Failure, Outcome},
};

/// Sizes of a topology.
#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    nodes: usize,
    links: usize,
    pruned: Size,
}

/// What is left after pruning.
#[derive(Debug, Serialize)]
struct Size {
    routers: usize,
    links: usize,
    /// Routers of degree 2.
    access: usize,
}

/// The output of `topo info`.
#[derive(Debug, Serialize)]
struct Info {
    schema: u32,
    #[serde(flatten)]
    sizes: Entry,
    /// Edges of the file, before directions are matched.
    edges: usize,
    loops: usize,
    /// Links beyond the first between the same two nodes.
    parallel: usize,
    /// Whether links weigh the same in both directions.
    symmetric: bool,
    /// Nodes with longitude and latitude.
    placed: usize,
    /// How many nodes there are of each degree.
    degrees: BTreeMap<usize, usize>,
    reading: Reading,
}

/// What `topo prune` leaves.
#[derive(Debug, Serialize)]
struct Remains {
    schema: u32,
    name: String,
    nodes: Vec<Remaining>,
    /// Links, by the places of their ends in `nodes`.
    links: Vec<[u32; 2]>,
    reading: Reading,
}

/// A node that is left after pruning.
#[derive(Debug, Serialize)]
struct Remaining {
    /// Its place in the file.
    index: usize,
    name: String,
    degree: usize,
}

/// Runs `sidestep topo …`.
pub fn run(topo: Topo) -> Outcome {
    match topo {
        Topo::List { set, data, json } => list(set, data.data.as_deref(), json),
        Topo::Info(options) => info(&options),
        Topo::Prune(options) => prune(&options),
        Topo::Convert { topology, file, rates, default_delay } => convert(&topology, &file, &rates, default_delay),
        Topo::Draw { topology, pruned, out } => picture(&topology, pruned, out),
    }
}

/// A topology that the user named, as it is and as a net.
#[derive(Debug)]
pub struct Loaded {
    /// As the file has it.
    pub graph: Graph,
    /// As the analysis takes it.
    pub net: Net,
    /// How it was read.
    pub reading: Reading,
}

/// The topology that the user named; prints how it was read.
pub fn load(options: &TopologyArgs) -> Result<Loaded, Failure> {
    let (graph, reading) = read(&options.data, &options.topology, &options.read)?;
    let TopologyArgs { merge_parallel, keep_loops, hops, .. } = *options;
    let net = Net::new(&graph, NetOptions { merge_parallel, keep_loops, hops })?;
    Ok(Loaded { graph, net, reading })
}

/// The topology of this name, with keys as the user maps them; prints how it was read.
pub fn read(data: &DataArgs, name: &str, options: &ReadArgs) -> Result<(Graph, Reading), Failure> {
    let mut mapping = Mapping::default();
    mapping.extend(options.map.iter().cloned());
    let (graph, reading) = topology_as(data.data.as_deref(), name, &mapping)?;
    say_reading(&graph, &reading);
    Ok((if options.part == "largest" { graph.largest_part() } else { graph }, reading))
}

fn list(set: Option<Set>, data: Option<&Path>, json: bool) -> Outcome {
    let graphs = match topologies(data, set.unwrap_or(Set::Repetita)) {
        // The Zoo is always at hand.
        Err(DataError::NoSet { .. }) if set.is_none() => topologies(data, Set::Zoo)?,
        graphs => graphs?,
    };
    let mut entries = Vec::new();
    for graph in graphs {
        entries.push(entry(&graph, &Net::new(&graph, NetOptions::default())?));
    }
    if json {
        return print_json(&entries);
    }
    println!(
        "{:<24} {:>7} {:>7}   pruned: {:>7} {:>7} {:>7}",
        "topology", "nodes", "links", "routers", "links", "access"
    );
    for Entry { name, nodes, links, pruned } in &entries {
        let Size { routers, links: left, access } = pruned;
        println!("{name:<24} {nodes:>7} {links:>7}           {routers:>7} {left:>7} {access:>7}");
    }
    let survive = entries.iter().filter(|entry| entry.pruned.routers > 0).count();
    println!("{} topologies; {survive} survive pruning", entries.len());
    Ok(())
}

fn entry(graph: &Graph, net: &Net) -> Entry {
    let pruned = net.pruned();
    let access = pruned.access().len();
    let pruned = Size { routers: pruned.node_count(), links: pruned.link_count(), access };
    Entry { name: graph.name.clone(), nodes: net.node_count(), links: net.link_count(), pruned }
}

fn info(options: &TopologyArgs) -> Outcome {
    let Loaded { graph, net, reading } = load(options)?;
    let mut degrees = BTreeMap::new();
    for node in 0..net.node_count() as u32 {
        *degrees.entry(net.degree(node)).or_default() += 1;
    }
    let all = Net::new(&graph, NetOptions { keep_loops: true, hops: true, merge_parallel: false })?;
    let simple = Net::new(&graph, NetOptions { keep_loops: true, hops: true, merge_parallel: true })?;
    let info = Info {
        schema: 1,
        sizes: entry(&graph, &net),
        edges: graph.edges.len(),
        loops: all.links().iter().filter(|[a, b]| a == b).count(),
        parallel: all.link_count() - simple.link_count(),
        symmetric: net.is_symmetric(),
        placed: graph.nodes.iter().filter(|node| node.position.is_some()).count(),
        degrees,
        reading,
    };
    if options.json {
        return print_json(&info);
    }
    let Entry { name, nodes, links, pruned } = &info.sizes;
    println!("{name}: {nodes} nodes, {links} links");
    println!("in the file      {} edges, {} loops, {} parallel links", info.edges, info.loops, info.parallel);
    println!(
        "weights          {}",
        if info.symmetric { "the same in both directions" } else { "not the same in both directions" }
    );
    println!("positions        of {} nodes", info.placed);
    let degrees: Vec<String> = info.degrees.iter().map(|(degree, nodes)| format!("{degree}: {nodes}")).collect();
    println!("nodes by degree  {}", degrees.join(", "));
    println!("after pruning    {} routers, {} links, {} access routers", pruned.routers, pruned.links, pruned.access);
    Ok(())
}

fn prune(options: &TopologyArgs) -> Outcome {
    let Loaded { graph, net, reading } = load(options)?;
    let net = net.pruned();
    let node = |node: u32| {
        let index = net.origin(node);
        let name = graph.nodes.get(index).map_or_else(String::new, |node| node.name.clone());
        Remaining { index, name, degree: net.degree(node) }
    };
    let nodes: Vec<Remaining> = (0..net.node_count() as u32).map(node).collect();
    let remains = Remains { schema: 1, name: graph.name.clone(), nodes, links: net.links().to_vec(), reading };
    if options.json {
        return print_json(&remains);
    }
    for [a, b] in &remains.links {
        let name = |node: u32| remains.nodes[node as usize].name.replace(char::is_control, "\u{fffd}");
        println!("{}\t{}", name(*a), name(*b));
    }
    Ok(())
}

/// Writes the topology in the format that the extension of the file names.
fn convert(options: &TopologyArgs, file: &Path, rates: &RateArgs, delay: Span) -> Outcome {
    let (mut graph, reading) = read(&options.data, &options.topology, &options.read)?;
    let extension = file.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    let format = extension.unwrap_or_default();
    // GraphML leaves out what it does not know; the others must have a value.
    let (mut no_rate, mut no_delay) = (0, 0);
    if format == "graph" || format == "graphml" {
        let unlimited = graph.edges.iter().find(|edge| edge.rate == Some(Rate::default()));
        let ends = unlimited.and_then(|edge| graph.nodes.get(edge.from).zip(graph.nodes.get(edge.to)));
        if let Some((from, to)) = ends {
            return Err(Failure::usage(format!(
                "the link of {} and {} is not limited (rate \"0\"), which .{format} cannot say; give it a rate, or write .toml",
                from.name, to.name
            )));
        }
    }
    let usual = || usual_rate(graph.edges.iter().filter_map(|edge| edge.rate));
    let rate = rates.default_rate.unwrap_or_else(usual);
    if format != "graphml" {
        (no_rate, no_delay) = graph.complete(&Missing { rate, delay });
    }
    let text =
        match format.as_str() {
            "toml" => topology_file::print(&graph.to_topology().map_err(|error| {
                Failure::usage(format!("{} does not fit into a topology file: {error}", graph.name))
            })?),
            "graph" => print_repetita(&graph),
            "graphml" => print_graphml(&graph),
            _ => {
                let message = "the file to write must end in .toml (ours), .graph (REPETITA) or .graphml";
                return Err(Failure::usage(format!("{}: {message}", file.display())));
            }
        };
    save(file, &text)?;
    let (nodes, edges) = (graph.nodes.len(), graph.edges.len());
    if options.json {
        return print_json(&serde_json::json!({
            "schema": 1, "name": graph.name, "format": format, "nodes": nodes, "edges": edges,
            "rates_assumed": no_rate, "delays_computed": no_delay, "file": file, "reading": reading,
        }));
    }
    println!("{}: {nodes} nodes, {edges} edges", file.display());
    if no_rate > 0 {
        println!("{no_rate} edges have no rate in the file: {rate} (--default-rate sets another)");
    }
    if no_delay > 0 {
        println!("{no_delay} edges have no delay in the file: light in fibre between their ends, or {delay}");
    }
    Ok(())
}

fn picture(options: &TopologyArgs, pruned: bool, out: Option<PathBuf>) -> Outcome {
    let Loaded { graph, net, reading } = load(options)?;
    let kept = net.pruned();
    let mut degree = vec![0; graph.nodes.len()];
    for node in 0..kept.node_count() as u32 {
        degree[kept.origin(node)] = kept.degree(node);
    }
    let shown = if pruned { &kept } else { &net };
    let links: Vec<[usize; 2]> = shown.links().iter().map(|ends| ends.map(|end| shown.origin(end))).collect();
    let nodes: Vec<usize> = (0..shown.node_count() as u32).map(|node| shown.origin(node)).collect();
    let look = Look { is_access: &|node| degree[node] == 2, heat: &|_| 0.0, tip: &|_| String::new(), key: None };
    let out = out.unwrap_or_else(|| format!("{}.svg", graph.name).into());
    save(&out, &draw(&graph, &nodes, &links, &look))?;
    if options.json {
        return print_json(&serde_json::json!({
            "schema": 1, "name": graph.name, "nodes": nodes.len(), "links": links.len(), "file": out, "reading": reading,
        }));
    }
    println!("{}", out.display());
    Ok(())
}
