//! Families of flows for tests of how evenly hashes spread them, and the test.

use std::net::{Ipv4Addr, Ipv6Addr};

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_flow_hash::FlowKey;

/// Flows of each family in the tests of evenness.
pub const FLOWS: u32 = 32_000;

/// Standard deviations from what is expected of even choices; one in 150,000 is as far off by chance.
pub const FAR: f64 = 4.5;

/// Flows as experiments and operators number them.
pub fn families() -> Vec<(&'static str, Vec<FlowKey>)> {
    let mut random = Pcg32::new(2, 1);
    let base = FlowKey {
        source: Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped(),
        destination: Ipv4Addr::new(10, 1, 0, 1).to_ipv6_mapped(),
        source_port: 32_768,
        destination_port: 443,
        protocol: 6,
        flow_label: 0,
    };
    let next = |address: Ipv6Addr, by: u32| Ipv6Addr::from_bits(address.to_bits() + u128::from(by));
    let recorded = linux_ports();
    let family = |make: &mut dyn FnMut(u32) -> FlowKey| (0..FLOWS).map(make).collect::<Vec<_>>();
    vec![
        ("random flows", family(&mut |_| any_key(&mut random))),
        ("consecutive ports", family(&mut |index| FlowKey { source_port: 32_768 + index as u16, ..base })),
        ("even ports", family(&mut |index| FlowKey { source_port: 2 * index as u16, ..base })),
        ("odd ports", family(&mut |index| FlowKey { source_port: 2 * index as u16 + 1, ..base })),
        ("consecutive sources", family(&mut |index| FlowKey { source: next(base.source, index), ..base })),
        ("sources 256 apart", family(&mut |index| FlowKey { source: next(base.source, 256 * index), ..base })),
        (
            "consecutive pairs of addresses",
            family(&mut |index| {
                let (source, destination) = (next(base.source, index), next(base.destination, index));
                FlowKey { source, destination, ..base }
            }),
        ),
        ("32 consecutive ports of each host", {
            family(&mut |index| {
                let base_port = 32_768 + (index / 32 * 7_919 % 28_000) as u16;
                FlowKey { source: next(base.source, index / 32), source_port: base_port + (index % 32) as u16, ..base }
            })
        }),
        ("32 ports of each host, as Linux gives them", {
            family(&mut |index| {
                let lines: &[Vec<u16>] = &recorded;
                let ports = &lines[index as usize / 32 % lines.len()];
                FlowKey { source: next(base.source, index / 32), source_port: ports[index as usize % 32], ..base }
            })
        }),
        ("consecutive flow labels", family(&mut |index| FlowKey { flow_label: index, ..base })),
    ]
}

/// The source ports of MPTCP connections on Linux, 32 of each.
fn linux_ports() -> Vec<Vec<u16>> {
    let lines = include_str!("../../../proto/tests/data/linux_ports.txt").lines();
    let ports = |line: &str| line.split_whitespace().map(|port| port.parse().unwrap()).collect::<Vec<u16>>();
    let lines: Vec<Vec<u16>> = lines.filter_map(|line| line.strip_prefix("mptcp")).map(ports).collect();
    assert!(lines.len() >= 4 && lines.iter().all(|ports| ports.len() == 32));
    lines
}

/// Any flow at all.
pub fn any_key(random: &mut Pcg32) -> FlowKey {
    let mut address = || Ipv6Addr::from_bits(u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()));
    let [source, destination] = [address(), address()];
    let ports = random.next_u32();
    FlowKey {
        source,
        destination,
        source_port: ports as u16,
        destination_port: (ports >> 16) as u16,
        protocol: random.next_u32() as u8,
        flow_label: random.next_u32() >> 12,
    }
}

/// Chi-square of counts that should be even, in standard deviations of the normal distribution (Wilson and Hilferty).
pub fn deviation(counts: &[u32]) -> f64 {
    let expected = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
    let square: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    let variance = 2.0 / (9.0 * freedom);
    ((square / freedom).cbrt() - (1.0 - variance)) / variance.sqrt()
}
