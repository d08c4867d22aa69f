//! Chaos: processes, links, interfaces and devices fail at random under traffic. No connection is lost, and nothing is left.
//!
//! A few faults with every test run; `make soak-inrpp` takes 500. `SIDESTEP_SOAK_FAULTS` sets how many, `SIDESTEP_SOAK_SEED`
//! which, and `SIDESTEP_SOAK_ONLY` names kinds, with commas between.

mod fault;
mod load;
mod wire;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    thread,
    time::{Duration, Instant},
};

use sidestep_inrpp::daemon::stop_inrpp;
use sidestep_linux::testing::{root_or_skip, try_ip};

use self::{fault::Fault, load::Load};
use crate::net::{LINKS, NAMES, Net, Over, Router, eventually, ip};

/// Faults of a run with the other tests.
const FEW: u32 = 12;
/// Within this time every connection goes on, and all is mended.
const MENDED: Duration = Duration::from_secs(10);
/// A cache that 200 connections fill.
const SMALL: &str = "60 kB";
const LARGE: &str = "4 MB";
/// States of TCP in which no process has a socket, as the kernel prints them.
const CLOSING: [&str; 6] = [" 04 ", " 05 ", " 06 ", " 07 ", " 09 ", " 0B "];

/// Numbers that look random, the same for the same seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % u64::from(limit.max(1))) as u32
    }
}

/// The network and its daemons.
struct World {
    net: Net,
    routers: Vec<Router>,
    random: Random,
    /// How each link is made.
    over: [Over; 3],
    /// What is in the routers' files now.
    cache: &'static str,
    idle: &'static str,
    /// By router: packets that were dropped when it was looked at last.
    dropped: [u64; 3],
}

#[test]
fn no_connection_is_lost_whatever_happens_to_routers_links_and_devices() {
    if !root_or_skip("the soak") {
        return;
    }
    let number = |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (faults, seed) = (number("SIDESTEP_SOAK_FAULTS", FEW), number("SIDESTEP_SOAK_SEED", 1));
    println!("{faults} faults, SIDESTEP_SOAK_SEED={seed}");
    let mut world = World::new(seed.into());
    let mut load = Load::start(&world.net);
    let only = std::env::var("SIDESTEP_SOAK_ONLY").unwrap_or_default();
    let is_wanted = |fault: &Fault| only.is_empty() || only.split(',').any(|name| name == format!("{fault:?}"));
    let mut order: Vec<Fault> = Fault::ALL.into_iter().filter(is_wanted).collect();
    let mut longest = Duration::ZERO;
    for step in 0..faults {
        if (step as usize).is_multiple_of(order.len()) {
            for at in (1..order.len()).rev() {
                order.swap(at, world.random.below(at as u32 + 1) as usize);
            }
        }
        let fault = order[step as usize % order.len()];
        let began = Instant::now();
        let what = world.suffer(fault);
        let ended = Instant::now();
        load.goes_on(&format!("seed {seed}, step {step}: {fault:?} {what}"), MENDED);
        world.is_mended(&what);
        let took = ended.elapsed();
        println!("{step}: {fault:?} {what}: {:?}, mended after {took:?}", ended - began);
        longest = longest.max(took);
        world.look_for_drops(fault, &what);
        if step % 5 == 0 {
            world.net.transfer(200_000, step % 2 == 0, step % 4 == 0);
        }
        thread::sleep(Duration::from_millis(world.random.below(200).into()));
    }
    let report = load.end();
    println!("{faults} faults, seed {seed}: {report}; longest until all was mended {longest:?}");
    world.end();
}

impl World {
    fn new(seed: u64) -> World {
        let net = Net::new(100);
        let over = match seed % 3 {
            0 => [Over::Udp, Over::Udp, Over::Tcp],
            1 => [Over::Udp, Over::Ethernet, Over::Udp],
            _ => [Over::Ethernet, Over::Udp, Over::Ethernet],
        };
        let mut world = World {
            net,
            routers: Vec::new(),
            random: Random(seed),
            over,
            cache: LARGE,
            idle: "divert",
            dropped: [0; 3],
        };
        world.add_second_routes();
        for at in 0..3 {
            world.set_key(at, "");
            world.write_config(at);
            let router = world.start(at, "");
            world.routers.push(router);
        }
        world.is_mended("the start");
        world
    }

    /// Routes over `c`, which the kernel takes where the link between `a` and `b` is gone.
    fn add_second_routes(&self) {
        let net = &self.net;
        for (node, route) in [
            (&net.a, "route replace 10.2.0.0/16 via 10.9.2.2 metric 2000"),
            (&net.a, "-6 route replace fd02::/16 via fd09:0:0:2::2 metric 2000"),
            (&net.b, "route replace 10.1.0.0/16 via 10.9.3.1 metric 2000"),
            (&net.b, "-6 route replace fd01::/16 via fd09:0:0:3::1 metric 2000"),
            (&net.c, "route replace 10.1.0.0/16 via 10.9.2.1"),
            (&net.c, "route replace 10.2.0.0/16 via 10.9.3.2"),
            (&net.c, "-6 route replace fd01::/16 via fd09:0:0:2::1"),
            (&net.c, "-6 route replace fd02::/16 via fd09:0:0:3::2"),
        ] {
            ip(node, route);
        }
    }

    /// The addresses and routes of a link that was down.
    fn readdress(&self, link: usize) {
        let (near, far, v4, v6) = LINKS[link];
        for (at, peer, last) in [(near, far, 1), (far, near, 2)] {
            let (node, name) = (self.net.nodes()[at], format!("to-{}", NAMES[peer]));
            ip(node, &format!("addr replace {v4}.{last}/24 dev {name}"));
            ip(node, &format!("-6 addr replace {v6}::{last}/64 dev {name} nodad"));
        }
        self.net.add_routes();
        self.add_second_routes();
    }

    /// Gives a router the key of its links, or with `wrong` another.
    fn set_key(&self, at: usize, wrong: &str) {
        let file = self.net.files.path().join(format!("{}.key", NAMES[at]));
        let key = format!("{wrong}0123456789abcdef0123456789abcdef");
        fs::write(&file, &key[..32]).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Writes the file of a router, by whose settings its daemon goes once it reads it.
    fn write_config(&self, at: usize) {
        let name = NAMES[at];
        let mut text = String::new();
        for (index, part) in
            self.net.config(name, Over::Udp, &format!("idle = {:?}", self.idle)).split("[[").enumerate()
        {
            let part = if index == 0 { part.replace(LARGE, self.cache) } else { format!("[[{part}") };
            text += &self.with_link(at, part);
        }
        let key = self.net.files.path().join(format!("{name}.key"));
        let text = text.replace("key_file = \"none\"", &format!("key_file = {key:?}"));
        fs::write(self.net.files.path().join(format!("{name}.toml")), text).unwrap();
    }

    /// The table of a neighbour, with how the link to it is made.
    fn with_link(&self, at: usize, table: String) -> String {
        let is_of = |(near, far, ..): &(usize, usize, &str, &str)| {
            [(near, far), (far, near)]
                .iter()
                .any(|(own, peer)| **own == at && table.contains(&format!("interface = \"to-{}\"", NAMES[**peer])))
        };
        let Some(link) = LINKS.iter().position(is_of) else { return table };
        let like = self.net.config(NAMES[at], self.over[link], "");
        let interface = table.lines().find(|line| line.starts_with("interface")).unwrap();
        let found = like.split("[[").find(|part| part.contains(interface)).unwrap();
        format!("[[{found}")
    }

    fn start(&self, at: usize, wrapper: &str) -> Router {
        let config = self.net.files.path().join(format!("{}.toml", NAMES[at]));
        self.net.start_with(self.net.nodes()[at], &config, &[], wrapper)
    }

    /// Every router works, and its neighbours answer.
    fn is_mended(&self, after: &str) {
        for node in self.net.nodes() {
            eventually(&format!("neighbours answer after {after}"), || self.is_whole(node));
        }
    }

    fn is_whole(&self, node: &sidestep_linux::netns::NetNs) -> bool {
        use sidestep_inrpp::daemon::PortState;
        self.net.status(node).is_some_and(|status| {
            let wanted = if std::ptr::eq(node, &self.net.c) { 2 } else { 3 };
            let alive = |state: PortState| matches!(state, PortState::Alive | PortState::Edge);
            status.ports.len() == wanted && status.ports.iter().all(|port| alive(port.state))
        })
    }

    /// Caches that are not too small have dropped nothing.
    fn look_for_drops(&mut self, fault: Fault, what: &str) {
        for (at, node) in self.net.nodes().into_iter().enumerate() {
            let status = self.net.status(node).unwrap();
            let dropped = status.ports.iter().map(|port| port.dropped).sum();
            let before = std::mem::replace(&mut self.dropped[at], dropped);
            assert!(dropped <= before || fault == Fault::FullCache, "{fault:?} {what}: {status:?}");
        }
    }

    /// One router is killed, and all that any has left is removed as an operator would.
    fn end(mut self) {
        self.routers[1].kill();
        for (at, node) in self.net.nodes().into_iter().enumerate() {
            let stop = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                Ok(runtime.block_on(stop_inrpp()).unwrap())
            };
            assert!(node.run(stop).unwrap(), "there was something");
            assert!(!node.run(stop).unwrap(), "something was left");
            if at != 1 {
                assert!(self.routers[at].child.wait().unwrap().success());
            }
            let links = ip(node, "-o link");
            assert!(!links.contains("inrpp"), "{links}");
            for link in links.lines().filter_map(|line| line.split([':', '@']).nth(1)) {
                for side in ["egress", "ingress"] {
                    let filters = try_ip(node, &format!("tc filter show dev {} {side}", link.trim()));
                    assert_eq!(filters.unwrap_or_default(), "", "{link}");
                }
            }
            let of = |file: &str| {
                node.run(|| Ok(fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap())).unwrap()
            };
            assert!(!of("unix").contains("sidestep-inrpp"), "{}", of("unix"));
            // What TCP closes is the kernel's, and nobody's.
            let is_ours = |line: &str| line.contains(":1D2F") || line.contains(" 88b5");
            for sockets in ["udp", "tcp", "packet"].map(of) {
                let is_left = |line: &str| is_ours(line) && !CLOSING.iter().any(|state| line.contains(state));
                assert!(!sockets.lines().any(is_left), "{sockets}");
            }
        }
    }
}
