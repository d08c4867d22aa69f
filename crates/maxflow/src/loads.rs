//! What demands put on arcs where routers forward along shortest paths, before and after failures.

use sidestep_net::NodeId;

use super::{
    network::{FlowError, FlowNetwork},
    tree::Tree,
};

/// What a node sends to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowDemand {
    /// The node that sends.
    pub from: NodeId,
    /// The node that receives.
    pub to: NodeId,
    /// How much, above zero and finite, in the unit of the capacities.
    pub rate: f64,
}

/// What demands put on arcs.
#[derive(Clone, Debug, PartialEq)]
pub struct Loads {
    /// By arc, if each demand takes one shortest path: of equal ones that of the lowest arcs.
    pub single: Vec<f64>,
    /// By arc, if each router splits evenly over the arcs of its shortest paths (ECMP).
    pub ecmp: Vec<f64>,
    /// The demands that have no path.
    pub disconnected: f64,
}

/// Demands that the IGP forwards.
pub struct Forwarding<'a> {
    network: &'a FlowNetwork,
    towards: Vec<Destination>,
}

/// A node, the shortest paths to it, and which node sends to it at which rate.
struct Destination {
    node: usize,
    tree: Tree,
    sent: Vec<(usize, f64)>,
}

impl<'a> Forwarding<'a> {
    /// Computes the shortest paths of demands. Fails on demands between equal or unknown nodes, and on rates that are not
    /// above zero and finite.
    pub fn new(network: &'a FlowNetwork, demands: &[FlowDemand]) -> Result<Self, FlowError> {
        let mut sent: Vec<Vec<(usize, f64)>> = vec![Vec::new(); network.node_count()];
        for demand in checked(network, demands)? {
            sent[demand.to.index()].push((demand.from.index(), demand.rate));
        }
        let some = sent.into_iter().enumerate().filter(|(_, sent)| !sent.is_empty());
        let towards = some.map(|(node, sent)| Destination { node, tree: Tree::new(network, node), sent }).collect();
        Ok(Forwarding { network, towards })
    }

    /// The loads.
    pub fn loads(&self) -> Loads {
        self.loads_without(&[])
    }

    /// The loads after the IGP has converged on the failure of these arcs.
    pub fn loads_without(&self, failed: &[u32]) -> Loads {
        let arcs = self.network.arcs().len();
        let mut loads = Loads { single: vec![0.0; arcs], ecmp: vec![0.0; arcs], disconnected: 0.0 };
        let mut rates = vec![0.0; self.network.node_count()];
        for Destination { node, tree, sent } in &self.towards {
            let changed = failed.iter().any(|arc| tree.uses(self.network, *arc));
            let after = changed.then(|| Tree::without(self.network, *node, failed));
            let tree = after.as_ref().unwrap_or(tree);
            for (one, loads) in [(true, &mut loads.single), (false, &mut loads.ecmp)] {
                for (from, rate) in sent.iter().filter(|(from, _)| tree.reaches(*from)) {
                    rates[*from] += rate;
                }
                tree.forward(self.network, one, &mut rates, loads);
                rates[*node] = 0.0;
            }
            loads.disconnected +=
                sent.iter().filter(|(from, _)| !tree.reaches(*from)).fold(0.0, |sum, (_, rate)| sum + rate);
        }
        loads
    }
}

/// The demands by their ends, those of a pair added up.
pub(super) fn checked(network: &FlowNetwork, demands: &[FlowDemand]) -> Result<Vec<FlowDemand>, FlowError> {
    for demand in demands {
        network.check(demand.from)?;
        network.check(demand.to)?;
        if demand.from == demand.to {
            return Err(FlowError::Pair { node: demand.from });
        }
        // Written so that NaN fails.
        if !(demand.rate > 0.0 && demand.rate.is_finite()) {
            return Err(FlowError::Rate { rate: demand.rate });
        }
    }
    let mut demands = demands.to_vec();
    demands.sort_by_key(|demand| (demand.from, demand.to));
    demands.dedup_by(|next, one| {
        let same = (next.from, next.to) == (one.from, one.to);
        if same {
            one.rate += next.rate;
        }
        same
    });
    Ok(demands)
}
