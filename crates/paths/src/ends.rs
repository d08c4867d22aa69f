//! Where the paths of a set begin and end.

use sidestep_net::{ArcId, NodeId, Topology};

/// An access router of a host, and the IGP weights of the link between the two.
///
/// Weights matter only where a host has several access routers, so the least of them is subtracted from all. Hosts that
/// offer the same choice then are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// The router.
    pub router: NodeId,
    /// Weight from the host to the router, above the host's least.
    pub up: u64,
    /// Weight from the router to the host, above the host's least.
    pub down: u64,
}

/// The routers where the paths of a set may begin, and those where they may end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ends {
    /// The access routers of the source, in the order in which equally good ones are preferred.
    pub ingresses: Vec<Access>,
    /// The access routers of the destination, in the order in which equally good ones are preferred.
    pub egresses: Vec<Access>,
}

impl Access {
    /// The only access router of a host.
    pub fn only(router: NodeId) -> Self {
        Access { router, up: 0, down: 0 }
    }

    /// The access routers of a host in the order of its links; the first link counts where several lead to one router.
    pub fn of_host(topo: &Topology, host: NodeId) -> Vec<Access> {
        let arcs = access_arcs(topo, host);
        let weight = |arc: ArcId| topo.channel(arc).weight;
        let least_up = arcs.iter().map(|arc| weight(*arc)).min().unwrap_or(0);
        let least_down = arcs.iter().map(|arc| weight(arc.reversed())).min().unwrap_or(0);
        let access = |arc: &ArcId| Access {
            router: topo.head(*arc),
            up: weight(*arc) - least_up,
            down: weight(arc.reversed()) - least_down,
        };
        arcs.iter().map(access).collect()
    }
}

/// The arcs from a host to its access routers, the first to each, in the order of its links; none of a router.
pub fn access_arcs(topo: &Topology, host: NodeId) -> Vec<ArcId> {
    let mut arcs: Vec<ArcId> = Vec::new();
    for arc in topo.outgoing(host) {
        let router = topo.head(*arc);
        let is_known = arcs.iter().any(|known| topo.head(*known) == router);
        if !topo.is_router(host) && topo.is_router(router) && !is_known {
            arcs.push(*arc);
        }
    }
    arcs
}

impl Ends {
    /// One router at either end.
    pub fn pair(from: NodeId, to: NodeId) -> Self {
        Ends { ingresses: vec![Access::only(from)], egresses: vec![Access::only(to)] }
    }
}
