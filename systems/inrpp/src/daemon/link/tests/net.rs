//! `h1` – `r1` – `r2` – `h2`: two hosts, and two routers between them. All gone when dropped.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use sidestep_linux::{
    Result, monotonic_now, netlink,
    netns::{NetNs, set_sysctl},
    testing::{cable, eventually, ip},
    tun::Tun,
};
use sidestep_net::Rate;

use super::hop::{Hop, Watch};
use crate::daemon::{
    divert::{Filters, PortEntry},
    link::{Ends, EthernetLink, Link, TcpLink, UdpLink},
};

/// The MTU between routers, and the longest packet that they take.
pub const MTU: u32 = 1_600;
pub const MAX_LEN: u32 = 1_520;

pub struct Net {
    pub h1: NetNs,
    pub r1: NetNs,
    pub r2: NetNs,
    pub h2: NetNs,
}

/// How the routers are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    UdpV4,
    UdpV6,
    UdpLinkLocal,
    Ethernet,
    Tcp,
}

/// A forwarding loop on a thread.
pub struct Running {
    pub watch: Arc<Watch>,
    thread: Option<JoinHandle<Hop>>,
}

impl Net {
    pub fn new() -> Net {
        let [h1, r1, r2, h2] = [(); 4].map(|()| NetNs::create().unwrap());
        let net = Net { h1, r1, r2, h2 };
        for node in [&net.h1, &net.r1, &net.r2, &net.h2] {
            let sysctls =
                [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1"), ("ipv6/conf/default/accept_dad", "0")];
            let set = || sysctls.iter().try_for_each(|(name, value)| set_sysctl(name, value));
            node.run(set).unwrap();
            ip(node, "link set lo up");
        }
        cable((&net.h1, "host"), (&net.r1, "edge"), "10.1.0", "fd01:0:0:1");
        cable((&net.h2, "host"), (&net.r2, "edge"), "10.2.0", "fd02:0:0:2");
        cable((&net.r1, "core"), (&net.r2, "core"), "10.9.0", "fd09:0:0:9");
        for node in [&net.r1, &net.r2] {
            ip(node, &format!("link set core mtu {MTU}"));
        }
        ip(&net.h1, "route add default via 10.1.0.2");
        ip(&net.h1, "-6 route add default via fd01:0:0:1::2");
        ip(&net.h2, "route add default via 10.2.0.2");
        ip(&net.h2, "-6 route add default via fd02:0:0:2::2");
        ip(&net.r1, "route add 10.2.0.0/16 via 10.9.0.2");
        ip(&net.r1, "-6 route add fd02::/16 via fd09:0:0:9::2");
        ip(&net.r2, "route add 10.1.0.0/16 via 10.9.0.1");
        ip(&net.r2, "-6 route add fd01::/16 via fd09:0:0:9::1");
        net
    }

    /// Makes a router of `r1` (0) or `r2` (1).
    pub fn hop(&self, which: usize, kind: Kind, burst: usize) -> Hop {
        let node = [&self.r1, &self.r2][which];
        let link_local = [&self.r1, &self.r2].map(|node| link_local(node, "core"));
        // A process that another test has just forked may hold descriptors for a moment.
        let absent = || ["inrpp-core", "inrpp-edge"].iter().all(|name| nix::net::if_::if_nametoindex(*name).is_err());
        let make = || {
            eventually("the end of the last devices", Duration::from_secs(10), || absent().then_some(()));
            let (core, edge) = (Tun::create("inrpp-core", MTU, 1_000)?, Tun::create("inrpp-edge", 1_500, 1_000)?);
            let divert = Filters::load()?;
            netlink::block_on(async |netlink| {
                for interface in netlink.interfaces().await? {
                    let tun = match interface.name.as_str() {
                        "core" => core.index(),
                        "edge" => edge.index(),
                        _ => continue,
                    };
                    divert.set_port(interface.index, &entry(tun))?;
                    divert.attach(netlink, &interface).await?;
                    if interface.name == "edge" {
                        divert.attach_reinject(netlink, tun, interface.index).await?;
                    }
                }
                Ok(())
            })?;
            let link = link(which, kind, &link_local)?;
            Ok(Hop { divert, core, edge, link, burst })
        };
        node.run(make).unwrap()
    }

    /// Forwards on a thread in the router's namespace.
    pub fn start(&self, which: usize, hop: Hop) -> Running {
        let namespace = [&self.r1, &self.r2][which].run(NetNs::current).unwrap();
        let watch = Arc::new(Watch::default());
        let seen = Arc::clone(&watch);
        let work = move || {
            namespace.enter().unwrap();
            hop.run(&seen)
        };
        Running { watch, thread: Some(thread::spawn(work)) }
    }

    pub fn index(&self, node: &NetNs, name: &str) -> u32 {
        node.run(|| netlink::block_on(async |netlink| netlink.index_of(name).await)).unwrap()
    }

    /// Sends so many bytes from `h1` to `h2` over TCP, and checks that they arrive.
    pub fn transfer(&self, to: IpAddr, bytes: usize) {
        let listener = self.h2.run(|| Ok(TcpListener::bind((to, 5001)).unwrap())).unwrap();
        let sender = self.connect(to);
        let (mut receiver, _) = listener.accept().unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let writer = thread::spawn(move || {
            let mut sender = sender;
            let block: Vec<u8> = (0..251_u8).cycle().take(251 * 256).collect();
            let mut left = bytes;
            while left > 0 {
                let now = left.min(block.len());
                sender.write_all(&block[..now]).unwrap();
                left -= now;
            }
        });
        let (mut buffer, mut total) = (vec![0; 1 << 18], 0_usize);
        loop {
            let read = receiver.read(&mut buffer).unwrap();
            if read == 0 {
                break;
            }
            let right = buffer[..read].iter().enumerate().all(|(at, byte)| usize::from(*byte) == (total + at) % 251);
            assert!(right, "the bytes that were sent, around {total}");
            total += read;
        }
        writer.join().unwrap();
        assert_eq!(total, bytes);
    }

    /// A TCP connection from `h1`.
    pub fn connect(&self, to: IpAddr) -> TcpStream {
        let patience = Duration::from_secs(10);
        self.h1.run(|| Ok(TcpStream::connect_timeout(&SocketAddr::new(to, 5001), patience).unwrap())).unwrap()
    }

    /// Two sockets that can send each other datagrams.
    pub fn udp(&self, from: IpAddr, to: IpAddr) -> (UdpSocket, UdpSocket) {
        let open = |node: &NetNs, address: IpAddr, port: u16| {
            let socket = node.run(|| Ok(UdpSocket::bind((address, port)).unwrap())).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket
        };
        let (near, far) = (open(&self.h1, from, 6_001), open(&self.h2, to, 6_002));
        near.connect(SocketAddr::new(to, 6_002)).unwrap();
        far.connect(SocketAddr::new(from, 6_001)).unwrap();
        (near, far)
    }
}

impl Running {
    /// Stops the loop; the devices stay as long as what is returned.
    pub fn stop(mut self) -> Hop {
        self.watch.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.watch.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

pub fn entry(tun: u32) -> PortEntry {
    let rate = Rate::from_mbits(100);
    PortEntry { tun, up: true, edge: true, tcp_only: false, ethernet: true, max_len: MAX_LEN, rate }
}

fn link(which: usize, kind: Kind, link_local: &[SocketAddr; 2]) -> Result<Link> {
    let (own, other) = (which + 1, 2 - which);
    let v4 = |last: usize| format!("10.9.0.{last}:7471").parse().unwrap();
    let v6 = |last: usize| format!("[fd09:0:0:9::{last}]:7471").parse().unwrap();
    let interface = Some("core".to_string());
    Ok(match kind {
        Kind::UdpV4 => Link::Udp(UdpLink::open(&Ends { local: v4(own), remote: v4(other), interface: None })?),
        Kind::UdpV6 => Link::Udp(UdpLink::open(&Ends { local: v6(own), remote: v6(other), interface })?),
        Kind::UdpLinkLocal => {
            let mut remote = link_local[1 - which];
            // The scope is the index of our interface.
            if let (SocketAddr::V6(remote), SocketAddr::V6(local)) = (&mut remote, link_local[which]) {
                remote.set_scope_id(local.scope_id());
            }
            Link::Udp(UdpLink::open(&Ends { local: link_local[which], remote, interface })?)
        }
        Kind::Ethernet => Link::Ethernet(EthernetLink::open("core", None, None)?),
        Kind::Tcp => {
            let ends = Ends { local: v6(own), remote: v6(other), interface };
            Link::Tcp(TcpLink::open(&ends, which == 0, None, monotonic_now())?)
        }
    })
}

/// The link-local address of an interface, and the default port.
fn link_local(node: &NetNs, name: &str) -> SocketAddr {
    let text = ip(node, &format!("-6 -o addr show dev {name} scope link"));
    let address = text.split("inet6 ").nth(1).and_then(|rest| rest.split('/').next()).expect("a link-local address");
    let scope = text.split(':').next().and_then(|index| index.trim().parse().ok()).expect("an index");
    SocketAddr::V6(std::net::SocketAddrV6::new(address.parse().unwrap(), 7471, 0, scope))
}
