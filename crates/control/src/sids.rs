//! The SIDs of a path.

use std::{collections::BTreeMap, net::Ipv6Addr};

use ipnet::Ipv6Net;
use sidestep_net::{NodeId, Topology, srv6};
use sidestep_paths::Segment;
use thiserror::Error;

use crate::RouterPath;

/// The locators of all routers of a network, checked.
#[derive(Clone, Debug)]
pub struct Locators(BTreeMap<NodeId, Ipv6Net>);

/// A router whose SIDs cannot be made.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LocatorError {
    /// A router without a locator.
    #[error("router `{0}` has no SRv6 locator")]
    Missing(String),
    /// A locator that is too long for the address plan.
    #[error("the locator {locator} of router `{router}` is not a /{}", srv6::LOCATOR_BITS)]
    BadLength {
        /// The router.
        router: String,
        /// Its locator.
        locator: Ipv6Net,
    },
}

impl Locators {
    /// The locators of this network.
    pub fn new(topology: &Topology) -> Result<Self, LocatorError> {
        let routers = topology.node_ids().filter(|node| topology.is_router(*node));
        let locator = |id| {
            let node = topology.node(id);
            let locator = node.locator.ok_or_else(|| LocatorError::Missing(node.name.clone()))?;
            if locator.prefix_len() != srv6::LOCATOR_BITS {
                return Err(LocatorError::BadLength { router: node.name.clone(), locator });
            }
            Ok((id, locator))
        };
        Ok(Locators(routers.map(locator).collect::<Result<_, _>>()?))
    }

    /// The SID at the path's first router that stands for the path; `None` for a path of another network.
    pub fn binding_sid(&self, path: &RouterPath) -> Option<Ipv6Addr> {
        Some(srv6::binding_sid(*self.0.get(&path.ingress)?, path.id.get()))
    }

    /// The SIDs that force the path, in the order of travel; the last decapsulates (`End.DT6`). `None` for a path of
    /// another network.
    pub fn segments(&self, topology: &Topology, path: &RouterPath) -> Option<Vec<Ipv6Addr>> {
        let last = path.segments.len().checked_sub(1)?;
        let sid = |(index, segment): (usize, &Segment)| {
            Some(match segment {
                Segment::Node(node) if index == last => srv6::decap_sid(*self.0.get(node)?),
                Segment::Node(node) => srv6::end_sid(*self.0.get(node)?),
                Segment::Adjacency(arc) => srv6::adjacency_sid(*self.0.get(&topology.tail(*arc))?, arc.link()),
            })
        };
        path.segments.iter().enumerate().map(sid).collect()
    }
}
