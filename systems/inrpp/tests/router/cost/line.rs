//! Two hosts and two routers in a line, over links that are not shaped; all gone when dropped.
//!
//! ```text
//! h1 ── r1 ══ r2 ── h2
//! ```

use std::{
    fs,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    time::Duration,
};

use nix::libc;
use sidestep_inrpp::daemon::{InrppStatus, PortState, inrpp_status};
use sidestep_linux::{
    netns::{NetNs, set_sysctl},
    testing::{cable, ip},
};

use crate::net::{Over, Router, eventually, start_daemon};

/// `SIOCETHTOOL` and what is asked by it (linux/sockios.h, linux/ethtool.h).
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const NAME: usize = 32;

pub struct Line {
    pub h1: NetNs,
    pub r1: NetNs,
    pub r2: NetNs,
    pub h2: NetNs,
    files: tempfile::TempDir,
}

/// How the routers are configured.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub over: Over,
    pub key: bool,
    pub rate: &'static str,
    /// More lines of `[inrpp]`.
    pub more: &'static str,
}

impl Line {
    pub fn new() -> Line {
        let [h1, r1, r2, h2] = [(); 4].map(|()| NetNs::create().unwrap());
        let line = Line { h1, r1, r2, h2, files: tempfile::tempdir().unwrap() };
        for node in [&line.h1, &line.r1, &line.r2, &line.h2] {
            // Ten thousand connections, and their ports.
            let settings = [
                ("ipv6/conf/default/accept_dad", "0"),
                ("ipv4/conf/all/rp_filter", "0"),
                ("ipv4/conf/default/rp_filter", "0"),
                ("ipv4/ip_local_port_range", "1024 65000"),
                ("ipv4/tcp_max_syn_backlog", "16384"),
                ("core/somaxconn", "16384"),
            ];
            node.run(|| settings.iter().try_for_each(|(name, value)| set_sysctl(name, value))).unwrap();
        }
        for router in [&line.r1, &line.r2] {
            router.run(|| set_sysctl("ipv6/conf/all/forwarding", "1")).unwrap();
        }
        cable((&line.h1, "out"), (&line.r1, "h1"), "10.1.0", "fd01:0:0:1");
        cable((&line.r2, "h2"), (&line.h2, "out"), "10.2.0", "fd02:0:0:2");
        cable((&line.r1, "to-r2"), (&line.r2, "to-r1"), "10.9.1", "fd09:0:0:1");
        ip(&line.h1, "-6 route add default via fd01:0:0:1::2");
        ip(&line.h2, "-6 route add default via fd02:0:0:2::1");
        ip(&line.r1, "-6 route add fd02::/16 via fd09:0:0:1::2");
        ip(&line.r2, "-6 route add fd01::/16 via fd09:0:0:1::1");
        line
    }

    /// The daemons of both routers, when each answers the other.
    pub fn routers(&self, setup: Setup) -> [Router; 2] {
        let ends = [("r1", &self.r1, 1), ("r2", &self.r2, 2)];
        let routers = ends.map(|(name, node, end)| {
            let path = self.files.path().join(format!("{name}.toml"));
            fs::write(&path, self.config(setup, end)).unwrap();
            start_daemon(node, &path, &[], "")
        });
        for node in [&self.r1, &self.r2] {
            eventually("neighbours answer", || {
                self.status(node).is_some_and(|status| status.ports.iter().any(|port| port.state == PortState::Alive))
            });
        }
        routers
    }

    fn config(&self, Setup { over, key, rate, more }: Setup, end: usize) -> String {
        let (own, other) = (format!("fd09:0:0:1::{end}"), format!("fd09:0:0:1::{}", 3 - end));
        let link = match over {
            Over::Udp => format!("link = \"udp\"\nlocal = \"{own}\"\nremote = \"{other}\"\n"),
            Over::Ethernet => "link = \"ethernet\"\n".into(),
            Over::Tcp => format!("link = \"tcp\"\nlocal = \"{own}\"\nremote = \"{other}\"\nlisten = {}\n", end == 1),
        };
        let file = self.files.path().join("key");
        fs::write(&file, "0123456789abcdef0123456789abcdef").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let file = if key { format!("{file:?}") } else { "\"none\"".into() };
        let neighbour = 3 - end;
        format!(
            "[inrpp]\nname = \"r{end}\"\n{more}\n[[neighbour]]\nname = \"r{neighbour}\"\n\
             interface = \"to-r{neighbour}\"\nrate = \"{rate}\"\n{link}key_file = {file}\n[[edge]]\ninterface = \"h{end}\"\n"
        )
    }

    pub fn status(&self, node: &NetNs) -> Option<InrppStatus> {
        node.run(|| Ok(inrpp_status().ok().flatten())).unwrap()
    }
}

/// Switches features of an interface on or off, as `ethtool --features` does, by the kernel's names of them.
pub fn set_features(node: &NetNs, interface: &str, names: &[&str], on: bool) {
    node.run(|| {
        let known = features(interface);
        // Of each block of 32 features: which are meant, and which of them are on.
        let mut request = vec![ETHTOOL_SFEATURES, known.len().div_ceil(32) as u32];
        request.resize(2 + 2 * known.len().div_ceil(32), 0);
        for name in names {
            let bit = known.iter().position(|known| known == name).expect("a feature of the kernel");
            request[2 + bit / 32 * 2] |= 1 << (bit % 32);
            request[3 + bit / 32 * 2] |= u32::from(on) << (bit % 32);
        }
        ethtool(interface, &mut request);
        Ok(())
    })
    .unwrap();
}

/// The names of the kernel's features of interfaces.
fn features(interface: &str) -> Vec<String> {
    let mut sizes = [ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0, 0];
    ethtool(interface, &mut sizes);
    let count = sizes[4] as usize;
    let mut strings = vec![0; 3 + count * NAME / 4];
    strings[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
    ethtool(interface, &mut strings);
    let bytes: Vec<u8> = strings[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = |bytes: &[u8]| bytes.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
    bytes.chunks(NAME).map(name).collect()
}

fn ethtool(interface: &str, words: &mut [u32]) {
    let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
    // SAFETY: `ifreq` is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request points to words that say how many they are, and outlive the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    assert!(done >= 0, "ethtool {:#x} of {interface}: {}", words[0], std::io::Error::last_os_error());
}

/// What a process has used: processor time in all its threads, and memory.
pub fn cpu_of(router: &Router) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", router.child.id())).unwrap();
    let times = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap());
    Duration::from_nanos(times.map(|text| text.split(' ').next().unwrap().parse::<u64>().unwrap()).sum())
}

/// Bytes of memory that a process has now.
pub fn memory_of(router: &Router) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", router.child.id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// The time that all processors have worked, of all processes and interrupts of the machine.
pub fn cpu_of_all() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let ticks: Vec<u64> =
        text.lines().next().unwrap().split_whitespace().skip(1).map(|ticks| ticks.parse().unwrap()).collect();
    // User, nice, system; interrupts; what other machines took is none of ours.
    Duration::from_millis(10 * (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]))
}
