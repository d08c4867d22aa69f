//! The address plan: how SIDs follow from a router's locator, and addresses from a node's number.
//!
//! A locator is a /48. The next 16 bits are the function (RFC 8986, section 3.1), the rest its argument:
//! `e` End, `d6` End.DT6, `a` End.X (argument: link number), `b` the binding SID of a Path ID.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::{LinkId, NodeId, Topology};

/// Length of a router's locator in bits.
pub const LOCATOR_BITS: u8 = 48;
/// Length of a host's prefix in bits, where the plan assigns it.
pub const PREFIX_BITS: u8 = 64;
/// Bytes of an IPv6 header.
pub const IPV6_HEADER: u32 = 40;

const END: u16 = 0xe;
const END_DT6: u16 = 0xd6;
const END_X: u16 = 0xa;
const BINDING: u16 = 0xb;

/// Bytes of a segment routing header with `segments` SIDs (RFC 8754, section 2).
pub const fn srh_len(segments: usize) -> u32 {
    8 + 16 * segments as u32
}

/// Bytes that `End.B6.Encaps` or `H.Encaps` adds for `segments` SIDs: an outer header and an SRH.
pub const fn encap_len(segments: usize) -> u32 {
    IPV6_HEADER + srh_len(segments)
}

/// The SID that continues along the next segment (`End`).
pub fn end_sid(locator: Ipv6Net) -> Ipv6Addr {
    sid(locator, END, 0)
}

/// The SID that decapsulates and looks the inner destination up (`End.DT6`).
pub fn decap_sid(locator: Ipv6Net) -> Ipv6Addr {
    sid(locator, END_DT6, 0)
}

/// The SID that leaves through one link (`End.X`), however the IGP would go.
pub fn adjacency_sid(locator: Ipv6Net, link: LinkId) -> Ipv6Addr {
    sid(locator, END_X, link.0)
}

/// The binding SID of a Path ID at its access router (`End.B6.Encaps`).
pub fn binding_sid(locator: Ipv6Net, path_id: u32) -> Ipv6Addr {
    sid(locator, BINDING, path_id)
}

/// Whether `address` has the form of a [`binding_sid`], of whichever router.
pub fn is_binding_sid(address: Ipv6Addr) -> bool {
    address.segments()[3] == BINDING
}

/// The address of the router itself.
pub fn router_address(locator: Ipv6Net) -> Ipv6Addr {
    Ipv6Addr::from_bits(locator.network().to_bits() | 1)
}

/// The address of the host that owns `prefix`.
pub fn host_address(prefix: Ipv6Net) -> Ipv6Addr {
    Ipv6Addr::from_bits(prefix.network().to_bits() | 1)
}

/// The locator that the plan gives to a router: `fd01:0:<number>::/48`.
pub fn default_locator(node: NodeId) -> Ipv6Net {
    plan(0xfd01, node, LOCATOR_BITS)
}

/// The prefix that the plan gives to a host: `fd02:0:<number>::/64`.
pub fn default_prefix(node: NodeId) -> Ipv6Net {
    plan(0xfd02, node, PREFIX_BITS)
}

/// Gives every router without a locator, and every host without a prefix, the plan's.
pub fn assign_addresses(topology: &mut Topology) {
    for id in topology.node_ids() {
        let router = topology.is_router(id);
        let node = topology.node_mut(id);
        if router {
            node.locator.get_or_insert(default_locator(id));
        } else {
            node.prefix.get_or_insert(default_prefix(id));
        }
    }
}

fn plan(top: u16, node: NodeId, bits: u8) -> Ipv6Net {
    // Node ids are below 65,000 (`Topology` refuses more), so the number fits 16 bits.
    let number = (node.0 + 1) as u16;
    Ipv6Net::new_assert(Ipv6Addr::new(top, 0, number, 0, 0, 0, 0, 0), bits)
}

fn sid(locator: Ipv6Net, function: u16, argument: u32) -> Ipv6Addr {
    let tail = (u128::from(function) << 64) | (u128::from(argument) << 32);
    Ipv6Addr::from_bits(locator.network().to_bits() | tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sids_follow_from_the_locator() {
        let locator = default_locator(NodeId(4));
        assert_eq!(locator.to_string(), "fd01:0:5::/48");
        assert_eq!(end_sid(locator).to_string(), "fd01:0:5:e::");
        assert_eq!(decap_sid(locator).to_string(), "fd01:0:5:d6::");
        assert_eq!(adjacency_sid(locator, LinkId(7)).to_string(), "fd01:0:5:a:0:7::");
        assert_eq!(binding_sid(locator, 0x1234_5678).to_string(), "fd01:0:5:b:1234:5678::");
        assert!(is_binding_sid(binding_sid(locator, 7)) && !is_binding_sid(end_sid(locator)));
        assert_eq!(host_address(default_prefix(NodeId(0))).to_string(), "fd02:0:1::1");
        assert_eq!(encap_len(2), 80);
    }
}
