//! The neighbours of a router, and the links to them.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use serde::{Deserialize, Deserializer, de::Error as _};
use sidestep_net::Rate;

/// A router at the other end of a link: `[[neighbour]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourConfig {
    /// What its hellos say.
    pub name: String,
    /// The link's interface.
    pub interface: String,
    /// The capacity of the link.
    pub rate: LinkRate,
    /// How datagrams go to it.
    pub link: Link,
    /// The file of the key that both ends share; `None`: anyone on the link is believed.
    pub key_file: Option<PathBuf>,
    /// Whether no detour leads around the link, or over it.
    pub border: bool,
}

/// The capacity of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRate {
    /// What the interface says, and less while the neighbour receives less.
    Auto,
    /// This.
    Fixed(Rate),
}

/// How datagrams go to a neighbour. An address of one link (`fe80::…`) is on the neighbour's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// By UDP.
    Udp {
        /// This end; `None`: as the kernel chooses, at [`DEFAULT_PORT`].
        local: Option<SocketAddr>,
        /// The other end.
        remote: SocketAddr,
    },
    /// In frames of Ethernet.
    Ethernet {
        /// The other end's address; `None`: all, until the neighbour has sent something.
        remote: Option<[u8; 6]>,
    },
    /// By one TCP connection.
    Tcp {
        /// This end: where it listens, or the address that it connects from.
        local: Option<SocketAddr>,
        /// The other end; where this one listens, only the address counts.
        remote: SocketAddr,
        /// Whether this end accepts the connection.
        listen: bool,
    },
}

/// The port of UDP and TCP where an address has none.
pub const DEFAULT_PORT: u16 = 7471;

/// A neighbour as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NeighbourTable {
    pub(super) name: String,
    pub(super) interface: String,
    rate: Option<LinkRate>,
    #[serde(default)]
    link: LinkKind,
    local: Option<String>,
    remote: Option<String>,
    listen: Option<bool>,
    key_file: Option<String>,
    #[serde(default)]
    border: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LinkKind {
    #[default]
    Udp,
    Ethernet,
    Tcp,
}

/// A key, and what is wrong with its value.
type Mistake = (&'static str, String);

impl NeighbourTable {
    /// The neighbour that is meant; an error has the key that is wrong.
    pub(super) fn check(self) -> Result<NeighbourConfig, Mistake> {
        let (link, key_file) = (self.link()?, self.key_file()?);
        let rate = self.rate.ok_or_else(|| {
            ("", "give the link's capacity: `rate = \"1 Gbit/s\"`, or \"auto\" for what the interface says".to_string())
        })?;
        if rate == LinkRate::Fixed(Rate::ZERO) {
            return Err(("rate", "must be above zero".into()));
        }
        Ok(NeighbourConfig { name: self.name, interface: self.interface, rate, link, key_file, border: self.border })
    }

    fn link(&self) -> Result<Link, Mistake> {
        if self.listen.is_some() && self.link != LinkKind::Tcp {
            return Err(("listen", "`listen` belongs to `link = \"tcp\"`: remove it".into()));
        }
        if self.link == LinkKind::Ethernet {
            if self.local.is_some() {
                return Err(("local", "`local` means nothing to `link = \"ethernet\"`: remove it".into()));
            }
            let remote = self.remote.as_deref().map(read_ethernet).transpose();
            return Ok(Link::Ethernet { remote: remote.map_err(|message| ("remote", message))? });
        }
        let missing = || ("", "a link over UDP or TCP needs `remote`: the neighbour's address".to_string());
        let remote = self.remote.as_deref().ok_or_else(missing)?;
        let remote = read_end(remote).map_err(|message| ("remote", message))?;
        let local = self.local.as_deref().map(read_end).transpose().map_err(|message| ("local", message))?;
        if local.is_some_and(|local| local.is_ipv4() != remote.is_ipv4()) {
            return Err(("local", "`local` and `remote` must be of the same family".into()));
        }
        if local == Some(remote) {
            return Err(("local", "`local` and `remote` are the same; one of them is the neighbour's".into()));
        }
        if self.link == LinkKind::Udp {
            return Ok(Link::Udp { local, remote });
        }
        let listen = self.listen.ok_or_else(|| {
            ("", "say which end accepts the connection: `listen = true` here, and `false` there, or the reverse".into())
        })?;
        Ok(Link::Tcp { local, remote, listen })
    }

    fn key_file(&self) -> Result<Option<PathBuf>, Mistake> {
        match self.key_file.as_deref() {
            None => Err((
                "",
                "name the file of the key that both ends share: `key_file = \"/etc/sidestep/inrpp/NAME.key\"` \
                              (`sidestep inrpp key` makes one), or `key_file = \"none\"` to believe anyone on the link"
                    .into(),
            )),
            Some("none") => Ok(None),
            Some(path) if path.starts_with('/') => Ok(Some(path.into())),
            Some(_) => Err(("key_file", "write the whole path, from `/` on, or \"none\"".into())),
        }
    }
}

impl<'de> Deserialize<'de> for LinkRate {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        match String::deserialize(input)?.as_str() {
            "auto" => Ok(LinkRate::Auto),
            rate => rate.parse().map(LinkRate::Fixed).map_err(|error| D::Error::custom(format!("{error}, or `auto`"))),
        }
    }
}

/// Reads an address with or without a port.
fn read_end(text: &str) -> Result<SocketAddr, String> {
    if let Some((_, zone)) = text.split_once('%') {
        let zone = zone.split(']').next().unwrap_or_default();
        return Err(format!("leave out `%{zone}`: an address of one link is on the neighbour's interface"));
    }
    let plain = || text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DEFAULT_PORT));
    let end: SocketAddr = text.parse().or_else(|_| plain()).map_err(|_| {
        format!("`{text}` is no address, such as fd00::2, 10.0.0.2 or, with a port, [fd00::2]:{DEFAULT_PORT}")
    })?;
    if end.port() == 0 {
        return Err("the port must be above 0".into());
    }
    let address = end.ip();
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || is_broadcast {
        return Err(format!("`{address}` is not the address of one router"));
    }
    Ok(end)
}

/// Reads an address of Ethernet, that of one station.
fn read_ethernet(text: &str) -> Result<[u8; 6], String> {
    let refused = || format!("`{text}` is no Ethernet address of one neighbour, such as 02:00:00:00:00:01");
    let mut address = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut address {
        let part = parts.next().filter(|part| part.len() == 2 && !part.starts_with('+')).ok_or_else(refused)?;
        *byte = u8::from_str_radix(part, 16).map_err(|_| refused())?;
    }
    let is_group = address.first().is_some_and(|byte| byte & 1 != 0);
    if parts.next().is_some() || is_group || address == [0; 6] { Err(refused()) } else { Ok(address) }
}
