//! Settings that may follow the network: `via` and `source`, each an address or prefix, or `auto`.

use std::{fmt, marker::PhantomData, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};
use sidestep_hostd::paths::Via;
use sidestep_linux::netlink::Family;

use super::EgressConfig;

/// Prefixes that a provider lets through as sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressSource {
    /// `auto`: those of the interface's addresses, and those that the provider has delegated, whatever they are now.
    Auto,
    /// This prefix.
    Prefix(IpNet),
}

/// The next hop that the file names for a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// None: the link leads to whatever is behind it.
    Link,
    /// That of the interface's default route.
    Auto,
    /// This address.
    Address(IpAddr),
}

impl EgressConfig {
    /// The next hop of a family; `None` if packets of that family do not leave by it. An address counts before `auto`.
    pub(super) fn hop(&self, family: Family) -> Option<Hop> {
        if self.via.is_empty() {
            return Some(Hop::Link);
        }
        let is_of = |via: &IpAddr| Family::of((*via).into()) == family;
        let address = self.hops().find(is_of).map(Hop::Address);
        address.or_else(|| self.via.contains(&Via::Auto).then_some(Hop::Auto))
    }

    /// The next hops that the file names by their addresses.
    pub fn hops(&self) -> impl Iterator<Item = IpAddr> {
        self.via.iter().filter_map(|via| if let Via::Address(address) = via { Some(*address) } else { None })
    }

    /// Whether packets of a family can leave by it: there is a next hop, or the link needs none.
    pub fn carries(&self, family: Family) -> bool {
        self.hop(family).is_some()
    }

    /// The prefixes that the file names as sources.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.source
            .iter()
            .filter_map(|source| if let EgressSource::Prefix(prefix) = source { Some(*prefix) } else { None })
    }

    /// Whether its sources follow the addresses of its interface.
    pub fn follows_sources(&self) -> bool {
        self.source.contains(&EgressSource::Auto)
    }

    /// Whether anything of it follows the routes and addresses of its interface.
    pub fn follows(&self) -> bool {
        self.via.contains(&Via::Auto) || self.follows_sources()
    }
}

impl FromStr for EgressSource {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(EgressSource::Auto);
        }
        let wrong = |_| format!("`{text}` is neither a prefix such as 2001:db8::/48 nor `auto`");
        text.parse().map(EgressSource::Prefix).map_err(wrong)
    }
}

impl fmt::Display for EgressSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EgressSource::Auto => f.write_str("auto"),
            EgressSource::Prefix(prefix) => prefix.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for EgressSource {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input)?.parse().map_err(de::Error::custom)
    }
}

/// Reads a list, or one value in the place of a list of one.
pub(super) fn one_or_more<'de, D, T>(input: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + FromStr<Err = String>,
{
    struct OneOrMore<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de> + FromStr<Err = String>> de::Visitor<'de> for OneOrMore<T> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list, or `auto`")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![text.parse().map_err(E::custom)?])
        }
        fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = list.next_element()? {
                all.push(one);
            }
            Ok(all)
        }
    }
    input.deserialize_any(OneOrMore(PhantomData))
}
