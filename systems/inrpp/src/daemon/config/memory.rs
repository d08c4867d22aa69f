//! The memory that caches take, and what the machine has.

use std::{fs, path::Path};

use sidestep_net::{Bytes, Rate};

use super::{InrppConfig, LinkRate};

/// What a known connection takes, with what the core keeps of its two directions.
const CONNECTION: u64 = 1_024;
/// What the process takes beside caches and connections.
const PROCESS: u64 = 32 << 20;
const MEGABYTE: u64 = 1_000_000;
/// What a link is taken for whose rate only its interface knows.
const FASTEST: Rate = Rate::from_mbits(10_000);

impl InrppConfig {
    /// The memory that the router takes at most, in whole megabytes: full caches, and as many connections as it may know.
    pub fn memory(&self) -> Bytes {
        let caches = self.settings.cache.get().saturating_mul(self.caches() as u64);
        let rates = self.neighbours.iter().map(|neighbour| match neighbour.rate {
            LinkRate::Fixed(rate) => rate,
            LinkRate::Auto => FASTEST,
        });
        let rates = rates.chain(self.edges.iter().filter_map(|edge| edge.rate));
        let others: u64 = rates.map(|rate| rate.bytes_in(self.settings.tcp_buffer).get()).fold(0, u64::saturating_add);
        let connections = u64::from(self.settings.flows) * CONNECTION;
        let all = caches.saturating_add(others).saturating_add(connections + PROCESS);
        Bytes::new(all.div_ceil(MEGABYTE).saturating_mul(MEGABYTE))
    }
}

/// Reports whether the machine has the memory that a router takes; where nobody knows how much is free, it has.
pub fn check_memory(config: &InrppConfig, free: Option<Bytes>) -> Result<(), String> {
    let (needed, caches) = (config.memory(), config.caches());
    match free {
        Some(free) if free < needed => Err(format!(
            "{caches} caches of {} and {} connections take {needed}, and {free} of memory are free: lower `cache` or \
             `flows` in [inrpp], or raise MemoryMax= of the unit",
            config.settings.cache, config.settings.flows,
        )),
        _ => Ok(()),
    }
}

/// In whole megabytes what the machine, and the control groups of this process, let it take, with what it has already; `None` if that
/// cannot be read.
pub fn free_memory() -> Option<Bytes> {
    let machine = sidestep_linux::available_memory_bytes();
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| left_in_groups(&text));
    let free = machine.into_iter().chain(group).min()?;
    let own = fs::read_to_string("/proc/self/status").ok().and_then(|text| resident(&text)).unwrap_or(0);
    Some(Bytes::new((free + own) / MEGABYTE * MEGABYTE))
}

/// VmRSS of `/proc/PID/status`.
fn resident(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// The least that is left in the process's control group and those around it.
fn left_in_groups(text: &str) -> Option<u64> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let group = root.join(path);
    let within = group.ancestors().take_while(|group| group.starts_with(root));
    let left = |group: &Path| {
        let read = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
        // Without a limit it reads `max`.
        Some(read("memory.max")?.saturating_sub(read("memory.current")?))
    };
    within.filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_process_has_is_free_for_it() {
        assert_eq!(resident("Name:\tinrpp\nVmRSS:\t    8192 kB\nThreads:\t2\n"), Some(8 << 20));
        assert_eq!(["", "VmRSS:\tmany kB\n", "VmRSS:\t18446744073709551615 kB\n"].map(resident), [None; 3]);
    }

    #[test]
    fn a_router_that_takes_more_than_is_free_is_refused() {
        let file = "[inrpp]\ncache = \"1 GB\"\nflows = 1000\n[[edge]]\ninterface = \"a\"\nrate = \"1 Gbit/s\"\n\
                    [[edge]]\ninterface = \"b\"\n";
        let config = InrppConfig::parse(file).unwrap();
        let needed = config.memory();
        assert!((1_000_000_000..1_200_000_000).contains(&needed.get()), "{needed}");
        assert_eq!(check_memory(&config, None), Ok(()));
        assert_eq!(check_memory(&config, Some(needed)), Ok(()));
        let error = check_memory(&config, Some(Bytes::new(900_000_000))).unwrap_err();
        assert!(error.contains("1 caches of 1 GB") && error.contains("lower `cache`"), "{error}");
    }

    #[test]
    fn the_machine_has_some_memory() {
        assert!(free_memory().is_some_and(|free| free > Bytes::new(1 << 20)));
    }

    proptest! {
        #[test]
        fn any_text_of_the_kernel_is_read_or_not(text in "\\PC{0,100}") {
            let _ = left_in_groups(&format!("0::/{text}"));
        }
    }
}
