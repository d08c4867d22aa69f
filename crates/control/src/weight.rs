//! The usage of a path, and its initial weight.

use sidestep_net::{ArcId, InitialName, Rate, Topology};

/// The usage of a path: its capacity less the bandwidth that is available on it.
///
/// The available bandwidth is the least, over the arcs, of an arc's rate less its usage. So a fast arc that is nearly
/// full counts, even if a slower arc sets the capacity. If no arc is limited, there is no capacity, and the usage is
/// that of the busiest arc.
pub fn path_usage(topology: &Topology, arcs: &[ArcId], usage: impl Fn(ArcId) -> Rate) -> Rate {
    let usage = |arc: &ArcId| usage(*arc).bits_per_sec();
    let limit = |arc: &ArcId| Some(topology.channel(*arc).rate.bits_per_sec()).filter(|limit| *limit != 0);
    let available = arcs.iter().filter_map(|arc| Some(limit(arc)?.saturating_sub(usage(arc)))).min();
    let capacity = arcs.iter().filter_map(limit).min();
    let used = match (capacity, available) {
        (Some(capacity), Some(available)) => capacity.saturating_sub(available),
        _ => arcs.iter().map(usage).max().unwrap_or(0),
    };
    Rate::from_bits_per_sec(used)
}

/// What is not in use of a path's capacity.
pub fn room(capacity: Rate, usage: Rate) -> Rate {
    Rate::from_bits_per_sec(capacity.bits_per_sec().saturating_sub(usage.bits_per_sec()))
}

/// The weight that a host gives a path before it has learnt anything: 1 for each path, or kbit/s.
///
/// What is available is at least a twentieth of the capacity: measurements are up to a second old, and a path that no
/// connection tries could never be observed to have recovered.
pub fn initial_weight(initial: InitialName, capacity: Rate, usage: Rate) -> u32 {
    let rate = match initial {
        InitialName::Even => return 1,
        InitialName::Capacity => capacity.bits_per_sec(),
        InitialName::Available => room(capacity, usage).bits_per_sec().max(capacity.bits_per_sec() / 20),
    };
    u32::try_from(rate / 1_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_weighs_what_is_left_of_it_and_never_less_than_a_twentieth() {
        let available = InitialName::Available;
        let weight = |used| initial_weight(available, Rate::from_mbits(100), Rate::from_mbits(used));
        assert_eq!([0, 40, 95, 100, 200].map(weight), [100_000, 60_000, 5_000, 5_000, 5_000]);
        assert_eq!(initial_weight(available, Rate::default(), Rate::from_mbits(1)), 0);
        assert_eq!(initial_weight(available, Rate::from_bits_per_sec(u64::MAX), Rate::default()), u32::MAX);
        assert_eq!(initial_weight(InitialName::Capacity, Rate::from_mbits(100), Rate::from_mbits(95)), 100_000);
        assert_eq!(initial_weight(InitialName::Even, Rate::from_mbits(100), Rate::from_mbits(95)), 1);
    }
}
