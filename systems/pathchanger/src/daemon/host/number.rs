//! The number of a host, by which hosts spread over paths what they open at once.

use std::net::IpAddr;

use sidestep_linux::netlink::InterfaceAddress;

/// The number of the host with these addresses: the sum of the parts of one, so that hosts whose addresses follow each other
/// in any part have numbers that do.
pub(super) fn host_number(addresses: &[InterfaceAddress]) -> u32 {
    let first = |is_ipv6| addresses.iter().map(|one| one.address.addr()).find(|address| address.is_ipv6() == is_ipv6);
    match first(true).or_else(|| first(false)) {
        Some(IpAddr::V6(address)) => address.segments().map(u32::from).iter().sum(),
        Some(IpAddr::V4(address)) => address.octets().map(u32::from).iter().sum(),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(addresses: &[&str]) -> u32 {
        let one = |text: &&str| InterfaceAddress { interface: 2, address: text.parse().unwrap(), deprecated: false };
        host_number(&addresses.iter().map(one).collect::<Vec<_>>())
    }

    #[test]
    fn hosts_whose_addresses_follow_each_other_have_numbers_that_do() {
        for (one, next) in [
            ("2001:db8::17/64", "2001:db8::18/64"),
            ("fd02:0:7::1/64", "fd02:0:8::1/64"),
            ("10.0.0.7/24", "10.0.0.8/24"),
            ("10.0.7.1/24", "10.0.8.1/24"),
        ] {
            assert_eq!(number(&[one]) + 1, number(&[next]), "{one}");
        }
        assert_eq!(number(&["10.0.0.7/24", "fd02::2/64"]), number(&["fd02::2/64"]), "IPv6 comes first");
        assert_eq!(number(&[]), 0);
    }
}
