//! What `sidestep topo`, `paths`, `maxflow` and `advise` take.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sidestep_formats::{DemandUnit, Mapping};
use sidestep_maxflow::{Pairs, Rounding};
use sidestep_net::{Rate, Ratio, Span};
use sidestep_paths::analysis::Remove;
use sidestep_repro::Set;

use super::one_of;

/// Where the published topologies are.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// Directory with `repetita/`, `zoo/` and `rocketfuel/` [default: ../shared/data of a checkout]
    #[arg(long, value_name = "DIR", env = "SIDESTEP_DATA")]
    pub data: Option<PathBuf>,
}

/// How a topology's file is read.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// What a key of the file means, such as capacity=rate:Gbit/s, length=delay:km or metric=weight; may be repeated
    #[arg(long, value_name = "KEY=ROLE[:UNIT]")]
    pub map: Vec<Mapping>,
    /// Which part of a network to take that no link joins: all, or largest
    #[arg(long, value_name = "PART", default_value = "all", value_parser = ["all", "largest"])]
    pub part: String,
}

/// A topology, and how it is read.
#[derive(Debug, Args)]
pub struct TopologyArgs {
    /// A file (.graphml, .xml, .gml, .json, .csv, .txt, .graph, .cch, .intra, .brite, .clab.yml, .toml), or a published topology
    /// such as Cogentco, zoo/Abilene or 1221
    pub topology: String,
    /// Where the published topologies are
    #[command(flatten)]
    pub data: DataArgs,
    /// How its file is read
    #[command(flatten)]
    pub read: ReadArgs,
    /// Take parallel links for one
    #[arg(long)]
    pub merge_parallel: bool,
    /// Keep links from a node to itself
    #[arg(long)]
    pub keep_loops: bool,
    /// Count hops instead of adding up the file's weights
    #[arg(long)]
    pub hops: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `sidestep topo`.
#[derive(Debug, Subcommand)]
pub enum Topo {
    /// List the published topologies that are at hand, with their sizes before and after pruning
    List {
        /// Which set [default: repetita if it is at hand, or else zoo, which is shipped]
        #[arg(long, value_name = "SET", value_parser = one_of(Set::ALL.map(|set| (set.folder(), set))))]
        set: Option<Set>,
        /// Where the published topologies are
        #[command(flatten)]
        data: DataArgs,
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Nodes, links and degrees of a topology, before and after pruning
    Info(TopologyArgs),
    /// The links that remain when nodes of degree below 2 are removed until there are none
    Prune(TopologyArgs),
    /// Write a topology in another format, which the extension of FILE names: .toml, .graph or .graphml
    Convert {
        /// Which
        #[command(flatten)]
        topology: TopologyArgs,
        /// The file
        file: PathBuf,
        /// What links carry
        #[command(flatten)]
        rates: RateArgs,
        /// Delay of links for which neither the file nor the positions of their ends have one
        #[arg(long, value_name = "DELAY", default_value = "1 ms")]
        default_delay: Span,
    },
    /// Draw a topology as SVG: by longitude and latitude where it has them, else as links pull it together
    Draw {
        /// Which
        #[command(flatten)]
        topology: TopologyArgs,
        /// Draw what remains after pruning
        #[arg(long)]
        pruned: bool,
        /// The picture [default: NAME.svg]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// `sidestep paths`.
#[derive(Debug, Subcommand)]
pub enum Paths {
    /// How many disjoint paths pairs of routers have: the most there are, by links and by nodes, and what Dijkstra
    /// finds
    Disjoint {
        /// Which topology
        #[command(flatten)]
        topology: TopologyArgs,
        /// Which pairs
        #[command(flatten)]
        pairs: PairArgs,
        /// What a path of iterated Dijkstra takes from those after it: links, or links in its direction
        #[arg(long, value_name = "WHAT", default_value = "both", value_parser = one_of(REMOVALS))]
        remove: Remove,
        /// Draw the distribution
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
    /// How many link-disjoint paths can be forced by segment lists, by limit of segments
    Segments {
        /// Which topology
        #[command(flatten)]
        topology: TopologyArgs,
        /// Which pairs
        #[command(flatten)]
        pairs: PairArgs,
        /// Limits from 1 to this
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=64))]
        max_segments: u8,
        /// What a path takes from those after it: links, or links in its direction
        #[arg(long, value_name = "WHAT", default_value = "forward", value_parser = one_of(REMOVALS))]
        remove: Remove,
        /// Force only shortest paths without an equal, as routers with ECMP do
        #[arg(long)]
        unique: bool,
        /// Let segments end with an adjacency (End.X)
        #[arg(long)]
        adjacency: bool,
        /// Draw the distribution
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
    /// The paths between two routers that have no link, router or shared risk in common, and what forces them
    Between(BetweenArgs),
    /// How many links have a detour, over one node or over two
    Detours {
        /// Which topology
        #[command(flatten)]
        topology: TopologyArgs,
        /// Draw the distribution
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
}

/// `sidestep paths between`.
#[derive(Debug, Args)]
pub struct BetweenArgs {
    /// A file (.graphml, .xml, .gml, .json, .csv, .txt, .graph, .cch, .intra, .brite, .clab.yml, .toml), or a published topology
    /// such as Cogentco, zoo/Abilene or 1221
    pub topology: String,
    /// Where paths begin
    pub from: String,
    /// Where they end
    pub to: String,
    /// Where the published topologies are
    #[command(flatten)]
    pub data: DataArgs,
    /// How its file is read
    #[command(flatten)]
    pub read: ReadArgs,
    /// What no two paths may have in common: links, nodes between their ends, or risks (links and `srlg` of links)
    #[arg(long, value_name = "WHAT", default_value = "links", value_parser = ["links", "nodes", "risks"])]
    pub apart: String,
    /// Most segments in a list, that of the egress router included
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub max_segments: u8,
    /// Most paths
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub max_paths: u8,
    /// Do not use adjacency segments (End.X)
    #[arg(long)]
    pub no_adjacency: bool,
    /// Print the paths as JSON
    #[arg(long)]
    pub json: bool,
}

/// Which pairs of routers are looked at.
#[derive(Debug, Args)]
pub struct PairArgs {
    /// Do not prune the topology
    #[arg(long)]
    pub no_prune: bool,
    /// Between which routers: access (degree 2), or all
    #[arg(long, value_name = "ROUTERS", default_value = "access", value_parser = ["access", "all"])]
    pub between: String,
}

/// `sidestep maxflow`.
#[derive(Debug, Args)]
pub struct MaxFlowArgs {
    /// Which topology
    #[command(flatten)]
    pub topology: TopologyArgs,
    /// Which pairs
    #[command(flatten)]
    pub pairs: PairArgs,
    /// Which share of the pairs has endless demand; several with commas between them
    #[arg(long = "share", value_name = "SHARE", value_delimiter = ',', default_value = "1%,2%,5%,10%,20%,50%")]
    pub shares: Vec<Ratio>,
    /// How pairs are drawn
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Also with at most this number of segments; several numbers with commas between them
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4",
        value_parser = clap::value_parser!(u8).range(1..=64))]
    pub max_segments: Vec<u8>,
    /// Let segments end with an adjacency (End.X); without a limit, segment routing then reaches the bound
    #[arg(long)]
    pub adjacency: bool,
    /// What gains are printed and drawn over: single-path, ecmp or multipath, all without segment routing
    #[arg(long, value_name = "MODEL", default_value = "ecmp", value_parser = ["single-path", "ecmp", "multipath"])]
    pub over: String,
    /// What links carry
    #[command(flatten)]
    pub rates: RateArgs,
    /// Draw how the gains of unlimited segment routing are spread
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// `sidestep advise`.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// Which topology
    #[command(flatten)]
    pub topology: TopologyArgs,
    /// Which share of the pairs has endless demand
    #[arg(long, value_name = "SHARE", default_value = "10%")]
    pub share: Ratio,
    /// How pairs are drawn
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Draw pairs at most this often to make the interval of the gain narrow: within a tenth of the median, or 5 points
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_draws: u32,
    /// Begin no further draws for the interval after this time; a result that time cut short is repeated by --max-draws
    #[arg(long, value_name = "TIME", default_value = "1 min")]
    pub max_time: Span,
    /// What links carry
    #[command(flatten)]
    pub rates: RateArgs,
    /// Advise for hardware without adjacency segments (End.X)
    #[arg(long)]
    pub no_adjacency: bool,
    /// The page with the map [default: out/advise/NAME.html]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Whose demands to advise on instead
    #[command(flatten)]
    pub demands: DemandArgs,
}

/// Demands between routers.
#[derive(Debug, Args)]
pub struct DemandArgs {
    /// Traffic matrix (.demands, SNDlib's .xml or .txt, .csv, .json), a directory of them, or gravity:TOTAL or uniform:TOTAL
    /// by --seed; may be repeated: a series
    #[arg(long, value_name = "FILE")]
    pub demands: Vec<String>,
    /// Unit of demands without one, such as kbit/s [default: the format's, or Mbit/s]
    #[arg(long, value_name = "UNIT", requires = "demands")]
    pub demand_unit: Option<DemandUnit>,
    /// Most node segments in a list over which demands are spread
    #[arg(long, value_name = "N", default_value_t = 2, requires = "demands", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub max_segments: u8,
}

/// How pairs with heavy hitters are drawn.
#[derive(Debug, Args)]
pub struct SamplingArgs {
    /// How often pairs are drawn
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub draws: u32,
    /// From which the draws follow
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u32,
    /// What the share is of: ordered pairs, or unordered ones that send in one direction or in both
    #[arg(long, value_name = "PAIRS", default_value = "one-way", value_parser = one_of(SAMPLINGS))]
    pub sampling: Pairs,
    /// How the share becomes a number of pairs: up, down or to the nearest (at least one), or down even to none
    #[arg(long, value_name = "HOW", default_value = "ceil", value_parser = one_of(ROUNDINGS))]
    pub rounding: Rounding,
}

/// What links carry.
#[derive(Debug, Args)]
pub struct RateArgs {
    /// Rate of links for which the file has none, such as "10 Gbit/s" [default: the others' median, or 1 Gbit/s]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub default_rate: Option<Rate>,
}

const REMOVALS: [(&str, Remove); 2] = [("both", Remove::Both), ("forward", Remove::Forward)];
const SAMPLINGS: [(&str, Pairs); 3] =
    [("ordered", Pairs::Ordered), ("one-way", Pairs::OneWay), ("both-ways", Pairs::BothWays)];
const ROUNDINGS: [(&str, Rounding); 4] = [
    ("ceil", Rounding::Ceil),
    ("floor", Rounding::Floor),
    ("nearest", Rounding::Nearest),
    ("floor-or-none", Rounding::FloorOrNone),
];

fn parse_rate(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>() {
        Ok(rate) if rate == Rate::default() => Err("must be above zero".into()),
        other => other.map_err(|error| error.to_string()),
    }
}
