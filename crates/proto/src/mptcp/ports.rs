//! The source ports that a host gives to the subflows of its connections.

use std::collections::BTreeMap;

use sidestep_net::NodeId;

use crate::mptcp::SourcePorts;

/// The ports that Linux gives to sockets by itself.
const FIRST: u16 = 32_768;
const COUNT: u32 = 60_999 - 32_768 + 1;

/// The source ports of one host: those in use, and where the next search begins.
#[derive(Clone, Debug, Default)]
pub struct HostPorts {
    /// A bit for each port.
    taken: Vec<u64>,
    /// By destination and its port: the distance from the first port at which Linux's `connect` looks next.
    next: BTreeMap<(NodeId, u16), u32>,
}

impl HostPorts {
    /// Draws the ports of a connection's `count` subflows, the first subflow's first, and takes them. There are fewer where
    /// the host has no more free.
    ///
    /// `random` gives random bits. A connection of MPTCP takes its first port as any connection does, and the others when
    /// its path manager binds a socket for each join:
    ///
    /// - [`SourcePorts::Random`]: each is any free port.
    /// - [`SourcePorts::Consecutive`]: the first is any, the others count up from it.
    /// - [`SourcePorts::Linux`]: `connect` takes even ports, and goes on a little above the last one to the same destination
    ///   (`__inet_hash_connect`). `bind` to port 0 takes any odd port (`inet_csk_find_open_port`). Each takes the other parity
    ///   only when its own is used up.
    pub fn take(
        &mut self,
        kind: SourcePorts,
        count: usize,
        to: (NodeId, u16),
        random: &mut impl FnMut() -> u32,
    ) -> Vec<u16> {
        let mut ports = Vec::with_capacity(count);
        for _ in 0..count {
            let port = match (kind, ports.last()) {
                (SourcePorts::Linux, None) => self.connect(to, random),
                (SourcePorts::Linux, Some(_)) => self.search((random() % COUNT) | 1, 2).or_else(|| self.search(0, 2)),
                (SourcePorts::Consecutive, Some(last)) => self.search(u32::from(last - FIRST) + 1, 1),
                (SourcePorts::Consecutive, None) | (SourcePorts::Random, _) => self.search(random() % COUNT, 1),
            };
            let Some(port) = port else { break };
            self.set(port, true);
            ports.push(port);
        }
        ports
    }

    /// Lets a port be taken again.
    pub fn release(&mut self, port: u16) {
        self.set(port, false);
    }

    fn set(&mut self, port: u16, taken: bool) {
        let index = usize::from(port.saturating_sub(FIRST));
        self.taken.resize(self.taken.len().max(index / 64 + 1), 0);
        let (word, bit) = (&mut self.taken[index / 64], 1 << (index % 64));
        *word = if taken { *word | bit } else { *word & !bit };
    }

    fn is_free(&self, port: u16) -> bool {
        let index = usize::from(port - FIRST);
        self.taken.get(index / 64).is_none_or(|word| word >> (index % 64) & 1 == 0)
    }

    /// The first free port from a distance on, in such steps, around the end.
    fn search(&self, from: u32, step: u32) -> Option<u16> {
        let mut ports = (0..COUNT / step).map(|steps| FIRST + ((from + steps * step) % COUNT) as u16);
        ports.find(|port| self.is_free(*port))
    }

    fn connect(&mut self, to: (NodeId, u16), random: &mut impl FnMut() -> u32) -> Option<u16> {
        let from = self.next.get(&to).copied().unwrap_or_else(|| (random() % COUNT) & !1);
        let port = self.search(from, 2).or_else(|| self.search(1, 2))?;
        // The kernel goes on by the steps that it took, and by at least a random number of them, so that ports are not
        // foreseen.
        let found = u32::from(port - FIRST) & !1;
        let steps = ((found + COUNT - from) % COUNT).max(random() % 8 * 2) + 2;
        self.next.insert(to, (from + steps) % COUNT);
        Some(port)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const TO: (NodeId, u16) = (NodeId(1), 7_000);

    /// The finaliser of SplitMix64, as a source of random bits.
    fn random(seed: u64) -> impl FnMut() -> u32 {
        let mut state = seed;
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mix = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            ((mix ^ (mix >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32) as u32
        }
    }

    /// The lines of the recording of this kind.
    fn recorded(kind: &str) -> Vec<Vec<u16>> {
        let lines = include_str!("../../tests/data/linux_ports.txt").lines();
        let of_kind = lines.filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
        of_kind.map(|line| line.split(' ').map(|port| port.parse().unwrap()).collect()).collect()
    }

    /// The first subflow's port of each connection.
    fn first_ports(lines: &[Vec<u16>]) -> Vec<u16> {
        lines.iter().map(|line| line[0]).collect()
    }

    /// How many ports lie in each quarter of the range.
    fn quarters(ports: &[u16]) -> [usize; 4] {
        let mut counts = [0; 4];
        for port in ports {
            counts[(u32::from(port - FIRST) * 4 / COUNT) as usize] += 1;
        }
        counts
    }

    /// What holds for the kernel's ports and for ours.
    fn check_linux(connections: &[Vec<u16>], connects: &[u16]) {
        for ports in connections {
            assert_eq!(ports.len(), 32);
            assert!(ports[0].is_multiple_of(2) && ports[1..].iter().all(|port| port % 2 == 1), "{ports:?}");
        }
        let joins: Vec<u16> = connections.iter().flat_map(|ports| &ports[1..]).copied().collect();
        // Of 248 ports 62 are expected in each quarter; a binomial's standard deviation is 6.8.
        assert!(quarters(&joins).iter().all(|count| (35..=89).contains(count)), "{:?}", quarters(&joins));
        let rises = joins.windows(2).filter(|pair| pair[1] > pair[0]).count();
        assert!((joins.len() * 2 / 5..joins.len() * 3 / 5).contains(&rises), "{rises} of {} rise", joins.len());
        // `connect` goes on by 2 to 16, and begins again at the end of the range.
        let steps: Vec<i32> = connects.windows(2).map(|pair| i32::from(pair[1]) - i32::from(pair[0])).collect();
        assert!(
            steps.iter().all(|step| step % 2 == 0 && (2..=16).contains(&step.rem_euclid(COUNT as i32))),
            "{steps:?}"
        );
        let mean = steps.iter().map(|step| step.rem_euclid(COUNT as i32)).sum::<i32>() as f64 / steps.len() as f64;
        assert!((7.0..11.0).contains(&mean), "{mean}");
    }

    #[test]
    fn linux_joins_have_odd_ports_and_the_first_subflow_an_even_one_in_the_kernel_and_here() {
        check_linux(&recorded("mptcp"), &recorded("connect")[0]);
        assert!(recorded("bind")[0].iter().all(|port| port % 2 == 1));
        for seed in 0..20 {
            let (mut host, mut random) = (HostPorts::default(), random(seed));
            let connections: Vec<_> = (0..8).map(|_| host.take(SourcePorts::Linux, 32, TO, &mut random)).collect();
            let connects: Vec<_> = (0..64).map(|_| host.take(SourcePorts::Linux, 1, TO, &mut random)).collect();
            check_linux(&connections, &first_ports(&connects));
        }
    }

    #[test]
    fn consecutive_ports_count_up_and_go_on_at_the_beginning_of_the_range() {
        let mut host = HostPorts::default();
        let ports = host.take(SourcePorts::Consecutive, 4, TO, &mut || COUNT - 2);
        assert_eq!(ports, [60_998, 60_999, 32_768, 32_769]);
        assert_eq!(host.take(SourcePorts::Consecutive, 2, TO, &mut || COUNT - 3), [60_997, 32_770]);
    }

    #[test]
    fn a_host_without_free_ports_gives_as_many_as_it_has() {
        for kind in [SourcePorts::Random, SourcePorts::Consecutive, SourcePorts::Linux] {
            let (mut host, mut random) = (HostPorts::default(), random(1));
            let mut ports = host.take(kind, 14_000, TO, &mut random);
            ports.extend(host.take(kind, 14_000, TO, &mut random));
            assert_eq!(host.take(kind, 1_000, TO, &mut random).len(), COUNT as usize - 28_000, "{kind:?}");
            host.release(ports[5]);
            assert_eq!(host.take(kind, 2, TO, &mut random), [ports[5]], "{kind:?}");
        }
    }

    proptest! {
        #[test]
        fn ports_of_a_host_are_in_the_range_all_different_and_the_same_from_the_same_seed(
            seed: u64,
            counts in prop::collection::vec(0usize..64, 1..20),
        ) {
            for kind in [SourcePorts::Random, SourcePorts::Consecutive, SourcePorts::Linux] {
                let draw = || {
                    let (mut host, mut random) = (HostPorts::default(), random(seed));
                    counts.iter().flat_map(|count| host.take(kind, *count, TO, &mut random)).collect::<Vec<u16>>()
                };
                let ports = draw();
                prop_assert_eq!(&ports, &draw());
                prop_assert_eq!(ports.len(), counts.iter().sum::<usize>());
                prop_assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
                prop_assert!(ports.iter().all(|port| (FIRST..=60_999).contains(port)));
            }
        }
    }
}
