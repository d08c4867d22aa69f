//! Destinations within those that have paths, to which connections are left alone.
//!
//! A prefix such as `::/0` covers subnets that the host is connected to, and whatever else its main table has routes to.
//! A path through a provider does not lead there. So each route of the main table that is more specific than the prefix
//! with paths around it wins, as it would without the agent. It becomes a destination without paths: the program leaves
//! its connections alone, and the tables of paths throw its packets back to the main table. On a host the same holds for
//! its own addresses, and for what is on a link only.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use sidestep_linux::netlink::{InnerRoute, MAIN_TABLE, Netlink};

use super::{destination::DestinationPaths, file::StaticDestination, local::Local};
use crate::AgentError;

/// Most routes of the main table that are heeded. The program's map has room for 4,096 destinations.
const MAX: usize = 1024;

/// What the main table has within the destinations.
#[derive(Debug, Default)]
pub struct Exceptions {
    /// The destinations that were looked at.
    around: Vec<IpNet>,
    /// The routes that were found within them.
    inner: Vec<InnerRoute>,
    /// What is this host's own; of a router nothing is.
    local: Option<Local>,
}

impl Exceptions {
    /// Looks within the destinations of `sets`.
    pub async fn find(netlink: &Netlink, sets: &[DestinationPaths]) -> Result<Self, AgentError> {
        let around: Vec<_> = sets.iter().map(|set| set.destination.trunc()).collect();
        let inner = netlink.inner_routes(&around).await?;
        if inner.len() > MAX {
            tracing::warn!(
                routes = inner.len(),
                most = MAX,
                "the main table has too many routes within destinations with paths: only connected subnets are left alone"
            );
        }
        Ok(Exceptions { around, inner, local: None })
    }

    /// The same on a host, whose own addresses are left alone as well.
    pub async fn find_on_host(netlink: &Netlink, sets: &[DestinationPaths]) -> Result<Self, AgentError> {
        let found = Exceptions::find(netlink, sets).await?;
        Ok(Exceptions { local: Some(Local::read(netlink).await?), ..found })
    }

    /// Whether a destination is nothing but this host's own, or on a link only.
    pub fn is_local(&self, destination: IpNet) -> bool {
        self.local.as_ref().is_some_and(|local| local.covers(destination))
    }

    /// Whether the main table has other routes there than when it was looked at, or the host other addresses.
    pub async fn changed(&self, netlink: &Netlink) -> Result<bool, AgentError> {
        let is_other = match &self.local {
            Some(local) => Local::read(netlink).await? != *local,
            None => false,
        };
        Ok(is_other || netlink.inner_routes(&self.around).await? != self.inner)
    }

    /// Whether a route of `table` that came or went is one more within the destinations, or one less.
    pub fn differ_by(&self, table: u32, destination: IpNet, added: bool) -> bool {
        if self.local.as_ref().is_some_and(|local| local.differs_by(table, destination, added)) {
            return true;
        }
        let is_known = self.inner.binary_search_by_key(&destination, |route| route.destination).is_ok();
        table == MAIN_TABLE && is_known != added && self.around.iter().any(|net| is_within(destination, *net))
    }

    /// The routes that win over paths: those around which the nearest of `sets` has paths.
    pub fn winning<'a>(&'a self, sets: &'a [DestinationPaths]) -> impl Iterator<Item = &'a InnerRoute> {
        let has_paths =
            |route: &&InnerRoute| surroundings(sets, route.destination).is_some_and(|around| !around.paths.is_empty());
        heeded(&self.inner).filter(has_paths).take(MAX)
    }

    /// The same as destinations without paths.
    pub fn sets(&self, sets: &[DestinationPaths]) -> Vec<DestinationPaths> {
        let mut destinations: BTreeSet<IpNet> = self.winning(sets).map(|route| route.destination).collect();
        if let Some(local) = &self.local {
            let with_paths = sets.iter().filter(|set| !set.paths.is_empty());
            let around: Vec<_> = with_paths.map(|set| set.destination).collect();
            destinations.extend(local.within(&around, &destinations));
        }
        // What the file has by name is there already.
        destinations.retain(|net| sets.iter().all(|set| set.destination.trunc() != *net));
        destinations.into_iter().map(|destination| DestinationPaths { destination, paths: Vec::new() }).collect()
    }
}

/// Those of these routes that win: all, or if that is too many those to connected subnets.
fn heeded(inner: &[InnerRoute]) -> impl Iterator<Item = &InnerRoute> {
    let all = inner.len() <= MAX;
    inner.iter().filter(move |route| all || route.connected)
}

/// Whether `net` contains `inner` and more.
fn is_within(inner: IpNet, net: IpNet) -> bool {
    net.prefix_len() < inner.prefix_len() && net.contains(&inner.network())
}

/// The longest destination of `sets` that contains `inner` and more.
pub fn surroundings(sets: &[DestinationPaths], inner: IpNet) -> Option<&DestinationPaths> {
    let around = sets.iter().filter(|set| is_within(inner, set.destination));
    around.max_by_key(|set| set.destination.prefix_len())
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
    let mut inner = netlink.inner_routes(&around).await?;
    let local = Local::read(&netlink).await?;
    let others = inner.iter().map(|route| route.destination).collect();
    let own = local.within(&around, &others).into_iter();
    inner.extend(own.map(|destination| InnerRoute { destination, connected: true, interface: None }));
    let mut captured = captured_of(destinations, &inner);
    for one in captured.iter_mut().filter(|one| local.covers(one.destination)) {
        one.paths = 0;
    }
    Ok(captured)
}

fn captured_of(destinations: &[StaticDestination], inner: &[InnerRoute]) -> Vec<Captured> {
    let around = || destinations.iter().map(|destination| destination.prefix.trunc());
    let nearest = |route: &InnerRoute| {
        around().filter(|net| is_within(route.destination, *net)).max_by_key(|net| net.prefix_len())
    };
    let mut left_alone: BTreeMap<IpNet, Vec<InnerRoute>> = BTreeMap::new();
    let has_paths = |net: IpNet| destinations.iter().any(|of| of.prefix.trunc() == net && !of.paths.is_empty());
    let winning = heeded(inner).filter_map(|route| Some((nearest(route).filter(|net| has_paths(*net))?, route)));
    for (destination, route) in winning.take(MAX) {
        left_alone.entry(destination).or_default().push(*route);
    }
    let one = |(destination, paths)| {
        let left_alone = left_alone.remove(&destination).unwrap_or_default();
        Captured { destination, paths, left_alone }
    };
    around().zip(destinations.iter().map(|destination| destination.paths.len())).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_routes_only_connected_subnets_are_left_alone() {
        let text = "[[destination]]\nprefix = \"::/0\"\npath = [{ plain = true }]\n\
                    [[destination]]\nprefix = \"2001:db8::/32\"\npath = []\n";
        let document = sidestep_net::document::Document::parse(text).unwrap();
        let tables = document.tables(document.root(), "destination").unwrap();
        let destinations: Vec<StaticDestination> =
            tables.iter().map(|table| document.read(table, &[]).unwrap()).collect();
        let route = |n: usize, connected| InnerRoute {
            destination: format!("fd00:{n:x}::/32").parse().unwrap(),
            connected,
            interface: None,
        };
        let inside = InnerRoute { destination: "2001:db8:1::/48".parse().unwrap(), connected: true, interface: None };
        let mut inner = vec![inside, route(1, true)];
        inner.extend((2..MAX).map(|n| route(n, false)));
        let left_alone = |inner: &[InnerRoute]| {
            captured_of(&destinations, inner).iter().map(|one| one.left_alone.len()).collect::<Vec<_>>()
        };
        assert_eq!(left_alone(&inner), [MAX - 1, 0]);
        inner.push(route(MAX, false));
        assert_eq!(left_alone(&inner), [1, 0], "as the agent does");
    }
}
