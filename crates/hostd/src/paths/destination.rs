//! The paths to a destination, from the controller or the file.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use ipnet::IpNet;
use sidestep_api::PathUpdate;
use sidestep_linux::netlink::NextHop;
use sidestep_net::{Rate, Span, srv6};

/// The slot of each path, by destination and Path ID.
pub type Slots = BTreeMap<IpNet, BTreeMap<u32, u32>>;

/// How packets are put on a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRoute {
    /// By an SRv6 segment list of our own, first segment first. Packets of IPv4 go inside an IPv6 header: the last segment
    /// decapsulates them.
    Segments(Vec<Ipv6Addr>),
    /// By an SRv6 segment list inside an outer header, first segment first; the last segment decapsulates.
    Encaps(Vec<Ipv6Addr>),
    /// By a Path ID: the binding SID of an access router.
    PathId(Ipv6Addr),
    /// By the access router that has this SID, without any segments: its own routes lead along the path.
    AccessRouter(Ipv6Addr),
    /// By the host's other routing tables, as if there were no agent.
    Default,
    /// By a next hop, for hosts with several providers; with the interface's index.
    Via(IpAddr, u32),
    /// By an interface that needs no next hop, such as a tunnel's; its index.
    OnLink(u32),
}

/// One path of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// Its Path ID, which names it in events; unique among the paths of a destination.
    pub id: u32,
    /// The mark slot that leads along it; zero as long as it has none.
    pub slot: u32,
    /// Name for people.
    pub name: String,
    /// How packets are put on it.
    pub route: PathRoute,
    /// Bandwidth of its narrowest link; zero if unknown.
    pub capacity: Rate,
    /// How much of the capacity is in use; zero if unknown.
    pub usage: Rate,
    /// Round-trip propagation time.
    pub rtt: Span,
    /// Largest packet in bytes, where less than the interface's.
    pub mtu: Option<u32>,
    /// Prefixes of the source addresses that it takes, as the file names them.
    pub sources: Vec<IpNet>,
}

/// The paths to one destination prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationPaths {
    /// The prefix.
    pub destination: IpNet,
    /// The paths.
    pub paths: Vec<HostPath>,
}

impl DestinationPaths {
    /// The sets of a controller's update.
    pub fn from_update(update: &PathUpdate) -> Vec<DestinationPaths> {
        let path = |path: &sidestep_api::Path| HostPath {
            id: path.id.get(),
            slot: 0,
            name: path.name.clone(),
            route: match path.plain_mtu {
                Some(_) => PathRoute::AccessRouter(path.binding_sid),
                None => PathRoute::PathId(path.binding_sid),
            },
            capacity: path.capacity,
            usage: path.usage,
            rtt: path.rtt,
            mtu: path.plain_mtu.or(Some(path.route_mtu)),
            sources: Vec::new(),
        };
        let set = |set: &sidestep_api::PathSet| DestinationPaths {
            destination: set.destination.into(),
            paths: set.paths.iter().map(path).collect(),
        };
        update.sets.iter().map(set).collect()
    }

    /// The largest packet that all paths with segments carry in addition to their list; `None` if nothing is known of any.
    ///
    /// A connection that moves to them from a path without segments has packets of its former size queued. Those would be
    /// lost, so paths without segments carry no larger ones.
    pub(super) fn narrowest(&self) -> Option<u32> {
        let with_segments = self.paths.iter().filter(|path| path.srh() > 0);
        with_segments.filter_map(|path| Some(path.mtu?.saturating_sub(path.srh()))).min()
    }

    /// The paths that have a slot in `slots`, with it.
    pub fn placed(&self, slots: &Slots) -> DestinationPaths {
        let own = slots.get(&self.destination);
        let slot = |path: &HostPath| own.and_then(|own| own.get(&path.id)).copied();
        let paths = self.paths.iter().filter_map(|path| Some(HostPath { slot: slot(path)?, ..path.clone() }));
        DestinationPaths { destination: self.destination, paths: paths.collect() }
    }

    /// The slot of each path, by its id.
    pub fn slots(&self) -> BTreeMap<u32, u32> {
        self.paths.iter().map(|path| (path.id, path.slot)).collect()
    }
}

impl HostPath {
    /// The interface of its next hop, if the file names that.
    pub fn next_hop_interface(&self) -> Option<u32> {
        match self.route {
            PathRoute::Via(_, interface) | PathRoute::OnLink(interface) => Some(interface),
            _ => None,
        }
    }

    /// Bytes of the list that the host adds to each packet; IPv4 is put inside IPv6, and has no list of this kind.
    pub(super) fn srh(&self) -> u32 {
        // The list also has the destination.
        let len = |segments: usize| srv6::srh_len(segments + 1);
        match &self.route {
            PathRoute::Segments(segments) => len(segments.len()),
            PathRoute::PathId(_) => len(1),
            // The kernel takes the room for an outer header from the route's MTU itself.
            PathRoute::Encaps(_)
            | PathRoute::AccessRouter(_)
            | PathRoute::Default
            | PathRoute::Via(..)
            | PathRoute::OnLink(_) => 0,
        }
    }

    /// Whether there is a route to its first segment.
    pub fn is_reachable(&self, hops: &BTreeMap<Ipv6Addr, NextHop>) -> bool {
        self.first_hop().is_none_or(|first| hops.contains_key(&first))
    }

    /// The SID whose route decides through which interface packets leave the host; `None` where no SID does.
    pub fn first_hop(&self) -> Option<Ipv6Addr> {
        match &self.route {
            PathRoute::Segments(segments) | PathRoute::Encaps(segments) => segments.first().copied(),
            PathRoute::PathId(sid) | PathRoute::AccessRouter(sid) => Some(*sid),
            PathRoute::Via(..) | PathRoute::OnLink(_) | PathRoute::Default => None,
        }
    }
}
