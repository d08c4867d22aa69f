//! Addresses of interfaces, and which of them the kernel chooses for a source.

use std::net::IpAddr;

use futures::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::{
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
    route::RouteAttribute,
};
use rtnetlink::RouteMessageBuilder;

use super::{Netlink, read_address, refused};
use crate::error::Result;

/// An address of an interface, of global scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceAddress {
    /// The interface's index.
    pub interface: u32,
    /// The address, and the length of its prefix.
    pub address: IpNet,
    /// Whether the kernel chooses it for a source only where there is no other (RFC 4862, section 5.5.4).
    pub deprecated: bool,
}

impl Netlink {
    /// The addresses of global scope of all interfaces.
    pub async fn addresses(&self) -> Result<Vec<InterfaceAddress>> {
        let all = self.socket.handle.address().get().execute().try_collect::<Vec<_>>().await;
        let all = self.socket.answered(all).map_err(|e| refused("listing addresses", e))?;
        Ok(all.iter().filter_map(read_interface_address).collect())
    }

    /// The source address that the kernel would choose now for a packet without a mark to `destination`; `None` where it
    /// has no route.
    pub async fn source_towards(&self, destination: IpAddr) -> Result<Option<IpAddr>> {
        let bits = if destination.is_ipv4() { 32 } else { 128 };
        let Ok(query) = RouteMessageBuilder::<IpAddr>::new().destination_prefix(destination, bits) else {
            return Ok(None);
        };
        let answer = self.socket.handle.route().get(query.build()).execute().try_next().await;
        let what = || format!("looking up the source address towards {destination}");
        let answer = match self.socket.answered(answer).map_err(|e| refused(what(), e)) {
            Err(error) if error.is_answer() => None,
            answer => answer?,
        };
        Ok(answer.iter().flat_map(|answer| &answer.attributes).find_map(|attribute| match attribute {
            RouteAttribute::PrefSource(address) => read_address(address),
            _ => None,
        }))
    }
}

pub(super) fn read_interface_address(message: &AddressMessage) -> Option<InterfaceAddress> {
    if message.header.scope != AddressScope::Universe {
        return None;
    }
    let (mut address, mut local) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(found) => address = Some(*found),
            // On a link between two hosts the other attribute is the peer's address.
            AddressAttribute::Local(found) => local = Some(*found),
            _ => {}
        }
    }
    let address = IpNet::new(local.or(address)?, message.header.prefix_len).ok()?;
    Some(InterfaceAddress {
        interface: message.header.index,
        address,
        deprecated: flags(message).contains(AddressFlags::Deprecated),
    })
}

pub(super) fn flags(message: &AddressMessage) -> AddressFlags {
    let flags = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    flags.unwrap_or(AddressFlags::empty())
}
