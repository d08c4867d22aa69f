//! Advice in sentences.

use sidestep_results::Estimate;

use crate::{Advice, Between, Limits, Paths};

impl Advice {
    /// The routers between which the pairs are, in words.
    pub fn between(&self) -> String {
        let routers = self.asked;
        match self.between {
            Between::Access => format!("{routers} access routers (those with two links)"),
            Between::Pruned => format!("all {routers} routers, as no two of them are access routers with two links"),
            Between::All => format!("all {routers} routers, as no part of this network has a second path"),
        }
    }

    /// Share of the pairs with two or more paths, in percent.
    pub fn diverse(&self, paths: &Paths) -> f64 {
        let two_or_more: u64 = paths.pairs.iter().skip(2).sum();
        100.0 * two_or_more as f64 / self.pairs.max(1) as f64
    }

    /// The advice in a sentence or two.
    pub fn headline(&self) -> String {
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

    /// The segment limits and the rule by which they were chosen, in words.
    pub fn limit_notes(&self) -> String {
        if self.diverse(&self.most) == 0.0 {
            return "none, as no pair has a second path.".into();
        }
        let Limits { node_segments, with_adjacency, .. } = self.limit;
        format!("{with_adjacency} with adjacency segments, {node_segments} with node segments alone: {}.", self.rule)
    }

    /// The size of the network and of its tails, in words.
    pub fn size(&self) -> String {
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
    pub fn flow_notes(&self) -> String {
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
