//! What a file says that is in order as a text, and cannot be meant.

use std::net::IpAddr;

use ipnet::IpNet;

use super::RouteControlConfig;

/// Prefixes for examples, which no network routes (RFC 5737, RFC 3849, RFC 9637).
const DOCUMENTATION: [([u8; 16], u8, bool); 5] = [
    ([192, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 24, true),
    ([198, 51, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 24, true),
    ([203, 0, 113, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 24, true),
    ([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 32, false),
    ([0x3f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 20, false),
];

/// Whether an address is one for examples in documents, which no host has.
pub fn is_documentation(address: IpAddr) -> bool {
    DOCUMENTATION.iter().any(|(bytes, length, is_four)| {
        let around = match (is_four, bytes) {
            (true, [a, b, c, d, ..]) => IpAddr::from([*a, *b, *c, *d]),
            _ => IpAddr::from(*bytes),
        };
        IpNet::new(around, *length).is_ok_and(|prefix| prefix.contains(&address))
    })
}

impl RouteControlConfig {
    /// What is in order as far as the file goes, and can hardly be meant; a line each.
    pub fn doubts(&self) -> Vec<String> {
        let targets = self.targets.iter().map(|target| (target.address, "the target".to_string()));
        let hops = self
            .egresses
            .iter()
            .flat_map(|egress| egress.hops().map(move |hop| (hop, format!("the next hop of `{}`,", egress.name))));
        let examples = targets.chain(hops).filter(|(address, _)| is_documentation(*address));
        examples
            .map(|(address, what)| {
                format!("{what} {address} is an address for documentation, which no host has: write a real one")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_for_documentation_are_those_of_the_five_prefixes() {
        for address in ["192.0.2.255", "198.51.100.0", "203.0.113.7", "2001:db8:ffff::1", "3fff:fff::1"] {
            assert!(is_documentation(address.parse().unwrap()), "{address}");
        }
        for address in ["192.0.3.1", "198.51.101.0", "203.0.112.7", "2001:db9::1", "3fff:1000::1", "9.9.9.9"] {
            assert!(!is_documentation(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn examples_that_were_left_in_a_file_are_named() {
        let text = "[route_control]\ndestinations = [\"0.0.0.0/0\"]\n\
                    [[egress]]\nname = \"a\"\ndev = \"a0\"\nvia = [\"192.0.2.1\"]\n\
                    [[egress]]\nname = \"b\"\ndev = \"b0\"\nvia = \"auto\"\n\
                    [[target]]\naddress = \"198.51.100.1\"\n[[target]]\naddress = \"9.9.9.9\"\n";
        let doubts = RouteControlConfig::parse(text).unwrap().doubts();
        let expected = [
            "the target 198.51.100.1 is an address for documentation, which no host has: write a real one",
            "the next hop of `a`, 192.0.2.1 is an address for documentation, which no host has: write a real one",
        ];
        assert_eq!(doubts, expected);
    }
}
