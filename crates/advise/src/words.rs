//! Advice in sentences.

use crate::{Advice, Between, Ended, Flow, Gained, Limits, Paths};

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
        let gain = self.flow.as_ref().and_then(|flow| Some(flow.headline(&flow.gain_at_limit?)));
        format!("{limit} {segments} enough: {second:.0} % of the pairs have a second path{}.", gain.unwrap_or_default())
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
        let segments = format!("{} segment{}", self.limit.advised, plural(self.limit.advised));
        let notes = |gain: &Option<Gained>| gain.as_ref().map_or("none measured".into(), |gain| flow.spread(gain));
        let rests = match flow.ended {
            Ended::All => format!("These are all {} there are", flow.basis()),
            _ => {
                let pairs = format!("{} of the {} pairs", flow.different_pairs, flow.of_pairs);
                format!("They rest on {}, among which are {pairs}", flow.basis())
            }
        };
        let narrow = match flow.why_wide() {
            Some(why) => format!(" The interval is not narrow, {why}."),
            None => String::new(),
        };
        format!(
            "{} with {segments}; {} with any number. {rests}.{narrow} Rates: {}.",
            notes(&flow.gain_at_limit),
            notes(&flow.gain),
            flow.capacities
        )
    }
}

impl Flow {
    /// What moving adds, and what that number rests on; it goes on with a sentence.
    fn headline(&self, gain: &Gained) -> String {
        let sure = match gain.median_ci95 {
            _ if self.ended == Ended::All => "",
            Some([low, _]) if low > 0.0 => "",
            _ => "perhaps ",
        };
        let carry = match format!("{:.0}", gain.median).as_str() {
            "0" | "-0" => ", but carry no more than ECMP".to_owned(),
            percent => format!(", and carry {sure}{percent} % more than ECMP"),
        };
        let interval = match (self.ended, gain.median_ci95) {
            (Ended::All, _) => range(gain),
            (_, Some([low, high])) => format!("95 % interval {low:.0} to {high:.0} %"),
            _ => "too few for an interval".to_owned(),
        };
        let all = if self.ended == Ended::All { "all " } else { "" };
        let mean = match gain.half_from {
            // A mean that a few draws make shows little about the others.
            Some(few) if gain.mean.mean > 2.0 * gain.median + 5.0 => {
                let some = if few == 1 { "one of them".to_owned() } else { format!("{few} of them") };
                format!("; half of the mean, {:.0} %, comes from {some}", gain.mean.mean)
            }
            _ => String::new(),
        };
        let wide = self.why_wide().map_or(String::new(), |why| format!("; not narrow, {why}"));
        format!(
            "{carry} when {} % of the pairs are heavy: the median of {all}{}, {interval}{mean}{wide}",
            self.share * 100.0,
            self.basis()
        )
    }

    /// What was computed, in words: how many draws, of how many pairs.
    fn basis(&self) -> String {
        let (draws, heavy) = (self.draws, self.heavy_pairs);
        let of = format!("{heavy} of {} pair{}", self.of_pairs, plural(self.of_pairs));
        match self.ended {
            Ended::All => format!("{draws} choice{} of {of}", plural(draws)),
            _ => format!("{draws} draw{} of {of}", plural(draws)),
        }
    }

    /// How a gain is spread over the draws.
    fn spread(&self, gain: &Gained) -> String {
        let interval = match gain.median_ci95 {
            Some([low, high]) => format!("95 % interval {low:+.1} to {high:+.1} %, "),
            None => String::new(),
        };
        let mean = match self.ended {
            Ended::All => format!("{:+.1} %", gain.mean.mean),
            _ => format!("{:+.1} ± {:.1} %", gain.mean.mean, gain.mean.half_width()),
        };
        format!("{:+.1} % ({interval}{}, mean {mean})", gain.median, range(gain))
    }

    /// Why the interval is not narrow; `None` if it is.
    fn why_wide(&self) -> Option<String> {
        let often = self.draws;
        (!self.narrow && self.gain_at_limit.is_some()).then(|| match self.ended {
            Ended::Time => format!("as the time was over after {often} draws (--max-time)"),
            Ended::Interrupted => format!("as it was interrupted after {often} draws"),
            _ => format!("as the draws differ and no more than {often} were made (--max-draws)"),
        })
    }
}

/// The smallest and the largest gain, in words.
fn range(gain: &Gained) -> String {
    let [least, most] = gain.range;
    format!("from {least:.0} to {most:.0} %")
}

fn plural(number: usize) -> &'static str {
    if number == 1 { "" } else { "s" }
}
