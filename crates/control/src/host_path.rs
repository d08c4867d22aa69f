//! The properties of a path between two hosts.

use std::{iter, sync::Arc};

use sidestep_net::{ArcId, NodeId, Span, Topology, srv6};

use crate::RouterPath;

/// The bytes that a host's own segment list, of a Path ID and the destination, adds to its packets.
pub const HOST_SRH: u16 = srv6::srh_len(2) as u16;

/// A path between two hosts: a path between their access routers, and the links to these routers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// The path between access routers.
    pub path: Arc<RouterPath>,
    /// The arc from the source to the path's first router.
    pub up: ArcId,
    /// The arc from the path's egress router to the destination.
    pub down: ArcId,
    /// Propagation delay from the source to the destination.
    pub delay: Span,
    /// Propagation delay to the destination by this path, and back by the IGP.
    pub rtt: Span,
    /// The largest packet that the source may send on it, its own segment list included.
    pub mtu: u32,
    /// The largest packet that the source may send on it without any segments, if the path needs none; `None` if it
    /// needs them. A source that can do without them does.
    pub plain_mtu: Option<u32>,
}

impl HostPath {
    /// Completes a path by the links of two hosts; `sources` and `destinations` are the arcs from these to their access
    /// routers. `None` where the path does not lead from one to the other.
    pub fn new(topology: &Topology, sources: &[ArcId], destinations: &[ArcId], path: &Arc<RouterPath>) -> Option<Self> {
        let arc = |arcs: &[ArcId], router: NodeId| arcs.iter().copied().find(|arc| topology.head(*arc) == router);
        let (up, egress) = (arc(sources, path.ingress)?, arc(destinations, path.egress)?);
        let (first, last) = (arc(destinations, path.back.0)?, arc(sources, path.back.1)?);
        let delay_of = |arc: ArcId| topology.channel(arc).delay;
        let delay = delay_of(up) + path.delay + delay_of(egress.reversed());
        let back = delay_of(first) + path.delay_back + delay_of(last.reversed());
        let mtu = |arc: ArcId| topology.link(arc.link()).mtu;
        let edge = mtu(up).min(mtu(egress));
        let (mtu, plain_mtu) = (path.mtu.min(edge), path.plain_mtu.map(|mtu| mtu.min(edge)));
        Some(HostPath { path: path.clone(), up, down: egress.reversed(), delay, rtt: delay + back, mtu, plain_mtu })
    }

    /// Its arcs from host to host, each with the bytes that segment lists and outer headers add to packets there.
    pub fn arcs(&self) -> impl Iterator<Item = (ArcId, u16)> {
        // A list has at most 32 segments, so this fits.
        let outer = srv6::encap_len(self.path.segments.len()) as u16;
        let (own, outer) = if self.plain_mtu.is_some() { (0, 0) } else { (HOST_SRH, outer) };
        let core = self.path.arcs.iter().map(move |arc| (*arc, own + outer));
        iter::once((self.up, own)).chain(core).chain(iter::once((self.down, own)))
    }

    /// The largest packet that the source's TCP may make for it: the source's own segment list, if any, must fit, too.
    pub fn room(&self) -> u32 {
        self.plain_mtu.unwrap_or_else(|| self.mtu.saturating_sub(HOST_SRH.into()))
    }
}
