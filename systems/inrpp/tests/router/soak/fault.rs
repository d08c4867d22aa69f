//! What happens to the routers, and what ends it.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::{linux::net::SocketAddrExt, unix::net::UnixStream},
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use sidestep_linux::{netns::NetNs, testing::try_ip};

use super::{LARGE, Random, SMALL, World, wire};
use crate::net::{LINKS, NAMES, block, eventually, ip};

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process is killed, and another one starts.
    Killed,
    /// A process stands, and goes on.
    Stopped,
    /// A process is asked to end, and another one starts.
    Ended,
    /// Another process takes over.
    TakenOver,
    /// A process that wants to take over dies at some instant.
    SuccessorDies,
    /// A link is set down, and up again.
    LinkDown,
    /// A link drops all, in one direction or both.
    LinkSilent,
    /// Both links of the router of the detour drop all.
    DetourSilent,
    /// A link goes down and up ten times.
    Flaps,
    /// A router has the wrong key, and then the right one.
    WrongKey,
    /// What a neighbour has sent comes again.
    Replayed,
    /// What a neighbour has sent comes changed.
    Forged,
    /// Anything comes.
    Garbage,
    /// A process starts again in a time namespace whose clock is another.
    OtherClock,
    /// Caches become too small, and 200 connections begin at once.
    FullCache,
    /// Another program removes filters.
    FiltersRemoved,
    /// Another program deletes a device of the router's.
    DeviceDeleted,
    /// Another program sets a device of the router's down.
    DeviceDown,
    /// An interface is deleted, and made again.
    InterfaceRemade,
    /// The MTU of a link is another for a while.
    MtuChanged,
    /// A process gets no more memory.
    MemoryShort,
    /// A neighbour is taken out of the file, and put back.
    NeighbourRemoved,
    /// Packets stay in the kernel while nothing waits, or not any more.
    IdleChanged,
}

impl Fault {
    pub const ALL: [Fault; 23] = [
        Fault::Killed,
        Fault::Stopped,
        Fault::Ended,
        Fault::TakenOver,
        Fault::SuccessorDies,
        Fault::LinkDown,
        Fault::LinkSilent,
        Fault::DetourSilent,
        Fault::Flaps,
        Fault::WrongKey,
        Fault::Replayed,
        Fault::Forged,
        Fault::Garbage,
        Fault::OtherClock,
        Fault::FullCache,
        Fault::FiltersRemoved,
        Fault::DeviceDeleted,
        Fault::DeviceDown,
        Fault::InterfaceRemade,
        Fault::MtuChanged,
        Fault::MemoryShort,
        Fault::NeighbourRemoved,
        Fault::IdleChanged,
    ];
}

impl World {
    /// Has a fault happen, and whatever ends it; returns to whom.
    pub fn suffer(&mut self, fault: Fault) -> String {
        let (at, link) = (self.random.below(3) as usize, self.random.below(3) as usize);
        let of_link = format!("{}-{}", NAMES[LINKS[link].0], NAMES[LINKS[link].1]);
        match fault {
            Fault::Killed | Fault::Ended | Fault::OtherClock => self.restart(fault, at),
            Fault::Stopped => {
                self.routers[at].signal(Signal::SIGSTOP);
                self.pause(800);
                self.routers[at].signal(Signal::SIGCONT);
            }
            Fault::TakenOver => self.routers[at] = self.net.take_over(self.net.nodes()[at], &mut self.routers[at]),
            Fault::SuccessorDies => self.successor_dies(at),
            Fault::WrongKey => self.wrong_key(at),
            Fault::FullCache => self.full_cache(),
            Fault::MemoryShort => self.memory_short(at),
            Fault::FiltersRemoved | Fault::DeviceDeleted | Fault::DeviceDown => return self.meddle(fault, at),
            Fault::NeighbourRemoved => self.remove_neighbour(at),
            Fault::IdleChanged => {
                self.idle = if self.idle == "pass" { "divert" } else { "pass" };
                self.reload_all();
                return self.idle.into();
            }
            _ => {
                self.break_link(fault, link);
                return of_link;
            }
        }
        NAMES[at].into()
    }

    fn break_link(&mut self, fault: Fault, link: usize) {
        match fault {
            Fault::LinkDown => {
                self.set_link(link, "down");
                self.pause(1_000);
                self.set_link(link, "up");
                self.readdress(link);
            }
            Fault::Flaps => {
                for _ in 0..10 {
                    self.set_link(link, "down");
                    self.pause(50);
                    self.set_link(link, "up");
                    self.pause(50);
                }
                self.readdress(link);
            }
            Fault::LinkSilent => {
                let sides = self.random.below(3);
                self.silence(&[(link, sides != 0, sides != 1)]);
            }
            Fault::DetourSilent => self.silence(&[(1, true, true), (2, true, true)]),
            Fault::Replayed | Fault::Forged | Fault::Garbage => self.inject(fault, link),
            Fault::InterfaceRemade => {
                let (near, far, ..) = LINKS[link];
                ip(self.net.nodes()[near], &format!("link del to-{}", NAMES[far]));
                self.pause(1_200);
                self.net.lay(LINKS[link]);
                self.readdress(link);
            }
            _ => {
                let mtu = [1_300, 1_400, 4_000][self.random.below(3) as usize];
                for mtu in [mtu, 1_500] {
                    for (node, interface) in self.ends(link) {
                        ip(node, &format!("link set {interface} mtu {mtu}"));
                    }
                    self.pause(2_500);
                }
            }
        }
    }

    fn pause(&mut self, limit: u32) {
        thread::sleep(Duration::from_millis(self.random.below(limit).into()));
    }

    /// Both ends of a link.
    fn ends(&self, link: usize) -> [(&NetNs, String); 2] {
        let (near, far, ..) = LINKS[link];
        let nodes = self.net.nodes();
        [(nodes[near], format!("to-{}", NAMES[far])), (nodes[far], format!("to-{}", NAMES[near]))]
    }

    fn set_link(&mut self, link: usize, state: &str) {
        let (node, interface) = &self.ends(link)[0];
        ip(node, &format!("link set {interface} {state}"));
    }

    /// Ends drop what comes, for a while.
    fn silence(&mut self, links: &[(usize, bool, bool)]) {
        let mut cut = Vec::new();
        for (link, near, far) in links {
            cut.extend(self.ends(*link).into_iter().zip([*near, *far]).filter(|(_, cuts)| *cuts).map(|(end, _)| end));
        }
        let nft = |node: &NetNs, text: String| {
            let run = || Ok(std::process::Command::new("nft").arg(&text).output().expect("nftables is installed"));
            let output = node.run(run).unwrap();
            assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
        };
        for (node, interface) in &cut {
            nft(
                node,
                format!(
                    "add table netdev {interface}; add chain netdev {interface} cut {{ type filter hook ingress device \"{interface}\" priority -500; policy drop; }}"
                ),
            );
        }
        let millis = self.random.below(1_200);
        thread::sleep(Duration::from_millis(millis.into()));
        let (mut links, all) = (links.to_vec(), self);
        links.dedup();
        for (link, near, far) in links {
            for ((node, interface), _) in all.ends(link).into_iter().zip([near, far]).filter(|(_, cuts)| *cuts) {
                nft(node, format!("delete table netdev {interface}"));
            }
        }
    }

    fn restart(&mut self, fault: Fault, at: usize) {
        let mut wrapper = "";
        match fault {
            Fault::Killed => self.routers[at].kill(),
            Fault::Ended => self.routers[at].end(),
            _ => {
                wrapper = ["unshare --time --monotonic 100000", "unshare --time --monotonic -100"]
                    [self.random.below(2) as usize];
                self.routers[at].kill();
            }
        }
        self.pause(400);
        self.routers[at] = self.start(at, wrapper);
        // The kernel routes nothing over `c`.
        if fault == Fault::OtherClock && at != 2 {
            eventually("packets are diverted in a time namespace", || {
                let status = self.net.status(self.net.nodes()[at]);
                status.is_some_and(|status| {
                    self.idle == "pass" || status.ports.iter().any(|port| port.passed.diverted > 0)
                })
            });
            // The kernel forwards without it, whatever its clock was.
            self.routers[at].kill();
            thread::sleep(Duration::from_millis(150));
            drop(self.net.connection(true));
            self.routers[at] = self.start(at, wrapper);
        }
    }

    /// A successor is killed at some instant, or breaks off while it is handed all.
    fn successor_dies(&mut self, at: usize) {
        let node = self.net.nodes()[at];
        if self.random.below(2) == 0 {
            let address = std::os::unix::net::SocketAddr::from_abstract_name("sidestep-inrpp/takeover").unwrap();
            let mut stream = node.run(|| Ok(UnixStream::connect_addr(&address).unwrap())).unwrap();
            let mut some = vec![0; [1, 24, 25, 2_000][self.random.below(4) as usize]];
            stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let _ = stream.read_exact(&mut some);
            self.pause(200);
            return;
        }
        let config = self.routers[at].config.clone();
        let mut successor = self.net.start_with(node, &config, &[("TAKEOVER", "1")], "");
        self.pause(200);
        successor.kill();
        // The one before has ended if the successor has worked.
        thread::sleep(Duration::from_millis(500));
        if self.routers[at].child.try_wait().unwrap().is_some() {
            self.routers[at] = self.start(at, "");
        }
    }

    fn reload(&self, at: usize) {
        self.write_config(at);
        self.routers[at].signal(Signal::SIGHUP);
    }

    fn reload_all(&self) {
        (0..3).for_each(|at| self.reload(at));
    }

    fn wrong_key(&mut self, at: usize) {
        let restarts = self.random.below(2) == 0;
        for wrong in ["dead", ""] {
            self.set_key(at, wrong);
            if restarts {
                self.routers[at].kill();
                self.routers[at] = self.start(at, "");
            } else {
                self.reload(at);
            }
            self.pause(1_000);
        }
    }

    fn full_cache(&mut self) {
        self.cache = SMALL;
        self.reload_all();
        let small = || {
            self.net.nodes().into_iter().all(|node| {
                self.net.status(node).is_some_and(|status| status.ports.iter().any(|port| port.cache_room == 60_000))
            })
        };
        eventually("caches are small", small);
        let mut connections: Vec<_> = (0..200).map(|index| self.net.connection(index % 2 == 0)).collect();
        let bytes = block(0, 20_000);
        for (index, (client, server)) in connections.iter_mut().enumerate() {
            if index % 4 < 2 { client.write_all(&bytes) } else { server.write_all(&bytes) }.unwrap();
        }
        for (index, (client, server)) in connections.iter_mut().enumerate() {
            let mut got = vec![0; bytes.len()];
            let arrived = if index % 4 < 2 { server.read_exact(&mut got) } else { client.read_exact(&mut got) };
            if let Err(error) = arrived {
                let sockets = |node: &NetNs| {
                    node.run(|| Ok(std::process::Command::new("ss").arg("-tino").output().unwrap())).unwrap()
                };
                for node in [&self.net.h1, &self.net.h2] {
                    println!("{}", String::from_utf8_lossy(&sockets(node).stdout));
                }
                println!("{:?}", self.net.nodes().map(|node| self.net.status(node)));
                panic!("connection {index}: {error}");
            }
            assert!(got == bytes, "a byte differs");
        }
        self.cache = LARGE;
        self.reload_all();
    }

    fn memory_short(&mut self, at: usize) {
        let pid = self.routers[at].child.id();
        let size = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        let pages: u64 = size.split(' ').next().unwrap().parse().unwrap();
        let limit = |value: u64| {
            let limit = libc::rlimit { rlim_cur: value, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: the kernel reads one limit, which outlives the call.
            unsafe { libc::prlimit(pid as i32, libc::RLIMIT_AS, &raw const limit, std::ptr::null_mut()) };
        };
        limit(pages * 4_096 + 256 * u64::from(self.random.below(4)) * 1_024);
        self.pause(1_000);
        limit(libc::RLIM_INFINITY);
        // Without memory it may end, as if it were killed.
        if self.routers[at].child.try_wait().unwrap().is_some() {
            self.routers[at] = self.start(at, "");
        }
    }

    /// Another program removes what the router has made, which is made again.
    fn meddle(&mut self, fault: Fault, at: usize) -> String {
        let interfaces = [["to-b", "to-c", "h1"], ["to-a", "to-c", "h2"], ["to-a", "to-b", "to-b"]][at];
        let (node, interface) = (self.net.nodes()[at], interfaces[self.random.below(3) as usize]);
        let done = match fault {
            Fault::FiltersRemoved => try_ip(node, &format!("tc filter del dev {interface} egress")),
            Fault::DeviceDeleted => try_ip(node, &format!("link del inrpp-{interface}")),
            _ => try_ip(node, &format!("link set inrpp-{interface} down")),
        };
        assert!(done.is_some(), "{interface}");
        eventually("what was removed is made again", || match fault {
            Fault::FiltersRemoved => {
                ip(node, &format!("tc filter show dev {interface} egress")).contains("sidestep_divert")
            }
            Fault::DeviceDeleted => ip(node, "-o link").contains(&format!("inrpp-{interface}:")),
            _ => ip(node, &format!("-o link show inrpp-{interface}")).contains(",UP"),
        });
        format!("{interface} of {}", NAMES[at])
    }

    fn remove_neighbour(&mut self, at: usize) {
        self.write_config(at);
        let path = self.routers[at].config.clone();
        let text = fs::read_to_string(&path).unwrap();
        let (head, rest) = text.split_once("[[neighbour]]").unwrap();
        let kept = &rest[rest.find("[[").unwrap()..];
        fs::write(&path, format!("{head}{kept}")).unwrap();
        self.routers[at].signal(Signal::SIGHUP);
        self.pause(800);
        self.reload(at);
    }

    /// What was on a link comes once more, as it was or changed, or anything comes.
    fn inject(&mut self, fault: Fault, link: usize) {
        let mut random = Random(self.random.below(u32::MAX).into());
        let mut below = |limit| random.below(limit);
        let [(near, near_interface), (far, far_interface)] = self.ends(link);
        let frames = wire::record(far, &far_interface, Duration::from_millis(120));
        let injected = frames.into_iter().map(|frame| match fault {
            Fault::Replayed => frame,
            Fault::Forged => wire::changed(frame, &mut below),
            _ => wire::garbage(frame, &mut below),
        });
        let injected: Vec<Vec<u8>> = injected.collect();
        wire::send(near, &near_interface, &injected);
        if fault == Fault::Garbage {
            // To the one that listens, by a stranger and from the neighbour's address.
            let to: SocketAddr = format!("{}.1:7471", LINKS[link].2).parse().unwrap();
            for node in [far, &self.net.h1] {
                let connect = || TcpStream::connect_timeout(&to, Duration::from_millis(200));
                if let Ok(mut stream) = node.run(|| Ok(connect())).unwrap() {
                    let _ = stream.write_all(&[0xff; 4_000]);
                }
            }
        }
    }
}
