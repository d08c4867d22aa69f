//! Destinations within those that have paths, to which connections are left alone.
//!
//! A prefix such as `::/0` covers subnets that the host is connected to, and whatever else its main table has routes to.
//! A path through a provider does not lead there. So each route of the main table that is more specific than the prefix
//! with paths around it wins, as it would without the agent. It becomes a destination without paths: the program leaves
//! its connections alone, and the tables of paths throw its packets back to the main table.

use ipnet::IpNet;
use sidestep_linux::netlink::{InnerRoute, MAIN_TABLE, Netlink};

use super::{file::StaticDestination, routes::DestinationPaths};
use crate::AgentError;

/// Most routes of the main table that are heeded. The program's map has room for 4,096 destinations.
const MOST: usize = 1024;

/// What the main table has within the destinations.
#[derive(Debug, Default)]
pub(crate) struct Exceptions {
    /// The destinations that were looked at.
    around: Vec<IpNet>,
    /// The routes that were found within them.
    inner: Vec<InnerRoute>,
}

impl Exceptions {
    /// Looks within the destinations of `sets`.
    pub(crate) async fn find(netlink: &Netlink, sets: &[DestinationPaths]) -> Result<Self, AgentError> {
        let around: Vec<_> = sets.iter().map(|set| set.destination.trunc()).collect();
        let inner = netlink.inner_routes(&around).await?;
        if inner.len() > MOST {
            tracing::warn!(
                routes = inner.len(),
                most = MOST,
                "the main table has too many routes within destinations with paths: only connected subnets are left alone"
            );
        }
        Ok(Exceptions { around, inner })
    }

    /// Whether the main table has other routes there than when it was looked at.
    pub(crate) async fn changed(&self, netlink: &Netlink) -> Result<bool, AgentError> {
        Ok(netlink.inner_routes(&self.around).await? != self.inner)
    }

    /// Whether a route of `table` that came or went is one more within the destinations, or one less.
    pub(crate) fn differ_by(&self, table: u32, destination: IpNet, added: bool) -> bool {
        let is_within = |net: &IpNet| net.prefix_len() < destination.prefix_len() && net.contains(&destination);
        let is_known = self.inner.binary_search_by_key(&destination, |route| route.destination).is_ok();
        table == MAIN_TABLE && is_known != added && self.around.iter().any(is_within)
    }

    /// The routes that win over paths: those around which the nearest of `sets` has paths.
    pub(crate) fn winning<'a>(&'a self, sets: &'a [DestinationPaths]) -> impl Iterator<Item = &'a InnerRoute> {
        let all = self.inner.len() <= MOST;
        let has_paths =
            |route: &&InnerRoute| surroundings(sets, route.destination).is_some_and(|around| !around.paths.is_empty());
        self.inner.iter().filter(move |route| all || route.connected).filter(has_paths).take(MOST)
    }

    /// The same as destinations without paths.
    pub(crate) fn sets(&self, sets: &[DestinationPaths]) -> Vec<DestinationPaths> {
        let left_alone = |route: &InnerRoute| DestinationPaths { destination: route.destination, paths: Vec::new() };
        self.winning(sets).map(left_alone).collect()
    }
}

/// The longest destination of `sets` that contains `inner` and more.
pub(crate) fn surroundings(sets: &[DestinationPaths], inner: IpNet) -> Option<&DestinationPaths> {
    let contains = |set: &&DestinationPaths| {
        set.destination.prefix_len() < inner.prefix_len() && set.destination.contains(&inner.network())
    };
    sets.iter().filter(contains).max_by_key(|set| set.destination.prefix_len())
}

/// What each destination of a configuration captures of this host's connections, and what not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The destination.
    pub destination: IpNet,
    /// How many paths it has; without any, its connections are left alone.
    pub paths: usize,
    /// More specific routes of the main table within it, whose connections are left alone.
    pub left_alone: Vec<InnerRoute>,
}

/// What destinations of a configuration capture on this machine as it is now; needs no privilege, but a Tokio runtime.
pub async fn captured(destinations: &[StaticDestination]) -> Result<Vec<Captured>, AgentError> {
    let netlink = Netlink::open()?;
    let around: Vec<_> = destinations.iter().map(|destination| destination.prefix.trunc()).collect();
    let inner = netlink.inner_routes(&around).await?;
    let nearest = |route: &InnerRoute| {
        let contains =
            |net: &&IpNet| net.prefix_len() < route.destination.prefix_len() && net.contains(&route.destination);
        around.iter().filter(contains).max_by_key(|net| net.prefix_len()).copied()
    };
    let one = |(destination, paths): (IpNet, usize)| {
        let within = inner.iter().filter(|route| paths > 0 && nearest(route) == Some(destination));
        Captured { destination, paths, left_alone: within.copied().collect() }
    };
    Ok(around.iter().copied().zip(destinations.iter().map(|destination| destination.paths.len())).map(one).collect())
}
