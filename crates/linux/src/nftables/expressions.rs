//! What rules do: expressions of nf_tables, of which each works on one register.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, Expressions, Immediate, Lookup, Meta, MetaKey, Operator, Payload, Register, Verdict,
    VerdictAttribute,
};

use crate::netlink::Family;

/// The name with which the kernel numbers anonymous maps.
pub const ANONYMOUS: &str = "__map%d";
pub const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// Offset of the flags in a TCP header.
const TCP_FLAGS: u32 = 13;
pub const IPPROTO_TCP: u8 = 6;
pub const IPPROTO_UDP: u8 = 17;
/// Bytes of both ports, with which the headers of TCP and UDP begin.
const PORTS: u32 = 4;
/// The only register that is needed, and its number.
pub const REGISTER: Register = Register::Reg1;
pub const REGISTER_NUMBER: u32 = 1;

// The attributes of the expression `hash`, whose default is Jenkins' hash.
const HASH_FROM: u16 = 1;
const HASH_INTO: u16 = 2;
const HASH_LENGTH: u16 = 3;
const HASH_MODULUS: u16 = 4;
const HASH_SEED: u16 = 5;
/// `nft` shows keys of maps by these types.
const TYPE_IPV4: u32 = 7;
const TYPE_IPV6: u32 = 8;

pub type Rule = Vec<Expressions>;

/// Whether a packet is of a family.
pub fn is_of(family: Family) -> Rule {
    vec![load(MetaKey::Nfproto), compare(Operator::Equal, vec![family.protocol()])]
}

/// Whether a packet of a family has a source in a prefix.
pub fn is_from(of: Family, source: IpNet) -> Rule {
    vec![
        payload(NETWORK_HEADER, of.source_offset(), of.len()),
        masked(&of.bytes(of.mask(source.prefix_len()))),
        compare(Operator::Equal, of.bytes(of.first(source))),
    ]
}

/// Whether a packet is of TCP, or of UDP.
pub fn is_protocol(protocol: u8) -> Rule {
    vec![load(MetaKey::L4Proto), compare(Operator::Equal, vec![protocol])]
}

/// Goes where the map with this number leads for the hash of addresses and ports, of `buckets`.
pub fn by_hash(of: Family, buckets: u32, seed: u32, map: u32) -> Rule {
    let addresses = 2 * of.len();
    let place = [Payload::Base(TRANSPORT_HEADER), Payload::Offset(0), Payload::Len(PORTS)];
    // Right behind the addresses.
    let register = Payload::DestinationRegister(Register::from(u32::from(Register::Reg32_00) + addresses / 4));
    let hash = [
        (HASH_FROM, REGISTER_NUMBER),
        (HASH_INTO, REGISTER_NUMBER),
        (HASH_LENGTH, addresses + PORTS),
        (HASH_MODULUS, buckets),
        (HASH_SEED, seed),
    ];
    vec![
        payload(NETWORK_HEADER, of.source_offset(), addresses),
        Expressions::Payload([vec![register], place.to_vec()].concat()),
        other("hash", &hash),
        lookup(map),
    ]
}

/// What of packets and rules differs between IPv4 and IPv6. Addresses are numbers of 128 bits here; of IPv4, the lower 32
/// of them.
pub trait Layout: Copy {
    /// NFPROTO_IPV4 and NFPROTO_IPV6.
    fn protocol(self) -> u8;
    fn key_type(self) -> u32;
    /// Bytes of an address.
    fn len(self) -> u32;
    fn source_offset(self) -> u32;
    fn bytes(self, address: u128) -> Vec<u8>;

    fn destination_offset(self) -> u32 {
        self.source_offset() + self.len()
    }

    fn bits(self) -> u32 {
        self.len() * 8
    }

    fn greatest(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    fn mask(self, prefix_len: u8) -> u128 {
        let host = self.bits().saturating_sub(prefix_len.into());
        self.greatest() & u128::MAX.checked_shl(host).unwrap_or(0)
    }

    fn first(self, net: IpNet) -> u128 {
        match net {
            IpNet::V4(net) => u32::from(net.network()).into(),
            IpNet::V6(net) => net.network().into(),
        }
    }

    fn last(self, net: IpNet) -> u128 {
        self.first(net) | !self.mask(net.prefix_len()) & self.greatest()
    }
}

impl Layout for Family {
    fn protocol(self) -> u8 {
        match self {
            Family::V4 => 2,
            Family::V6 => 10,
        }
    }

    fn key_type(self) -> u32 {
        match self {
            Family::V4 => TYPE_IPV4,
            Family::V6 => TYPE_IPV6,
        }
    }

    fn len(self) -> u32 {
        match self {
            Family::V4 => 4,
            Family::V6 => 16,
        }
    }

    fn source_offset(self) -> u32 {
        match self {
            Family::V4 => 12,
            Family::V6 => 8,
        }
    }

    fn bytes(self, address: u128) -> Vec<u8> {
        match self {
            Family::V4 => Ipv4Addr::from(address as u32).octets().to_vec(),
            Family::V6 => Ipv6Addr::from(address).octets().to_vec(),
        }
    }
}

pub fn tcp_flags() -> Expressions {
    payload(TRANSPORT_HEADER, TCP_FLAGS, 1)
}

pub fn load(key: MetaKey) -> Expressions {
    Expressions::Meta(vec![Meta::DestinationRegister(REGISTER), Meta::Key(key)])
}

pub fn payload(base: u32, offset: u32, len: u32) -> Expressions {
    let place = [Payload::Base(base), Payload::Offset(offset), Payload::Len(len)];
    Expressions::Payload([vec![Payload::DestinationRegister(REGISTER)], place.to_vec()].concat())
}

pub fn masked(mask: &[u8]) -> Expressions {
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(REGISTER),
        Bitwise::DestinationRegister(REGISTER),
        Bitwise::Length(mask.len() as u32),
        Bitwise::Mask(DataAttribute::Value(mask.to_vec())),
        Bitwise::Xor(DataAttribute::Value(vec![0; mask.len()])),
    ])
}

pub fn compare(operator: Operator, data: Vec<u8>) -> Expressions {
    Expressions::Cmp(vec![Cmp::SourceRegister(REGISTER), Cmp::Op(operator), Cmp::Data(DataAttribute::Value(data))])
}

/// An expression that the library does not know, with the numbers that are its attributes.
pub fn other(name: &str, values: &[(u16, u32)]) -> Expressions {
    let attributes = values.iter().map(|(kind, value)| DefaultNla::new(*kind, value.to_be_bytes().to_vec()));
    Expressions::Other { expression_type: name.into(), attributes: attributes.collect() }
}

/// Goes where the map with this number leads; where it leads nowhere, the rule does not match.
pub fn lookup(id: u32) -> Expressions {
    Expressions::Lookup(vec![
        Lookup::Set(ANONYMOUS.into()),
        Lookup::SourceRegister(REGISTER),
        Lookup::DestinationRegister(Register::Verdict),
        Lookup::SetId(id),
    ])
}

pub fn jump(code: Verdict, chain: Option<String>) -> Expressions {
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(verdict(code, chain)),
    ])
}

/// Ends a chain.
pub fn leave() -> Rule {
    vec![jump(Verdict::Return, None)]
}

pub fn verdict(code: Verdict, chain: Option<String>) -> DataAttribute {
    let chain = chain.map(VerdictAttribute::Chain);
    DataAttribute::Verdict([VerdictAttribute::Code(code)].into_iter().chain(chain).collect())
}
