//! Explicit paths and the segments that force them.

use sidestep_net::{ArcId, NodeId, Rate, Span, Topology};

/// One instruction of a segment list (RFC 8986, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Segment {
    /// By the IGP to this router (`End`, or `End.DT6` where the list ends).
    Node(NodeId),
    /// By the IGP to this arc's tail, then over the arc (`End.X` of the tail).
    Adjacency(ArcId),
}

/// What a segment list may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRules {
    /// Most segments in a list, the closing `Node(egress router)` included; 1 leaves only unique shortest paths.
    pub max_segments: usize,
    /// Whether adjacency segments may be used.
    pub adjacency: bool,
}

/// An explicit path and the segment list that forces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The arcs in the order in which a packet crosses them.
    pub arcs: Vec<ArcId>,
    /// The list that forces exactly these arcs; ends with the path's last router.
    pub segments: Vec<Segment>,
}

impl Route {
    /// Sum of the IGP weights.
    pub fn cost(&self, topo: &Topology) -> u64 {
        self.arcs.iter().map(|arc| topo.channel(*arc).weight).sum()
    }

    /// The lowest rate on the path; zero means that no arc limits it.
    pub fn bottleneck(&self, topo: &Topology) -> Rate {
        let rates = self.arcs.iter().map(|arc| topo.channel(*arc).rate);
        rates.filter(|rate| *rate != Rate::default()).min().unwrap_or_default()
    }

    /// The one-way propagation delay from end to end.
    pub fn delay(&self, topo: &Topology) -> Span {
        self.arcs.iter().fold(Span::ZERO, |sum, arc| sum + topo.channel(*arc).delay)
    }

    /// The largest IP packet in bytes, encapsulation included, that every link carries; `u32::MAX` on no links.
    pub fn mtu(&self, topo: &Topology) -> u32 {
        self.arcs.iter().map(|arc| topo.link(arc.link()).mtu).min().unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use sidestep_net::NodeKind;

    use super::*;
    use crate::brute_force::{build, network};

    #[test]
    fn a_route_adds_up_costs_and_delays_and_takes_the_lowest_rate() {
        // The helper's links have as many milliseconds of delay as weight, and 1500 bytes of MTU.
        let links = [((0, 1, 2, 9), [7, 1]), ((2, 1, 9, 3), [1, 5]), ((2, 3, 4, 9), [0, 1])];
        let topo = build(&[NodeKind::Router; 4], &links);
        let route = Route { arcs: vec![ArcId(0), ArcId(3), ArcId(4)], segments: vec![] };
        assert_eq!(route.cost(&topo), 9);
        assert_eq!(route.delay(&topo), Span::from_millis(9));
        assert_eq!(route.bottleneck(&topo), Rate::from_bits_per_sec(5));
        assert_eq!(route.mtu(&topo), 1500);
    }

    #[test]
    fn a_route_that_nothing_limits_has_the_rate_that_means_so() {
        let topo = network(2, &[(0, 1, 1, 1)]);
        let route = Route { arcs: vec![ArcId(0)], segments: vec![] };
        assert_eq!(route.bottleneck(&topo), Rate::default());
    }
}
