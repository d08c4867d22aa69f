//! A site with two egresses to the same far end, over wires of different delay; all gone when dropped.

use std::{
    net::{IpAddr, UdpSocket},
    process::Command,
    sync::mpsc,
    time::Duration,
};

use sidestep_net::{Channel, Queue, QueueLimit, Rate, Ratio, Span};
use sidestep_proto::stamp::{PORT, Reflector, ReflectorConfig};

use crate::{
    netns::{NetNs, set_sysctl},
    reflector::{Reflected, ReflectorSocket},
    tap::Tap,
    wire::{WireSpec, Wires},
};

/// Longer than anything should take on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// One-way delays of the two egresses.
pub const DELAYS: [Span; 2] = [Span::from_millis(5), Span::from_millis(20)];
/// The target behind both egresses.
pub const TARGETS: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
/// An address of the site's own, to which the far end's packets come by the second egress.
pub const OWN: [&str; 2] = ["198.51.100.1", "2001:db8:1::1"];

/// The network: `site` = two wires, `egress0` and `egress1` = `far`.
///
/// The site's own route is by `egress0`; marks 1 and 2 have tables that route by one egress each.
#[derive(Debug)]
pub struct Net {
    /// The site.
    pub site: NetNs,
    /// The far end.
    pub far: NetNs,
    _wires: Wires,
}

/// A wire without limits.
pub fn channel(delay: Span) -> Channel {
    let queue = Queue { limit: QueueLimit::Packets(1_000), ecn_threshold: None, red: None };
    Channel { rate: Rate::ZERO, delay, queue, loss: Ratio::ZERO, burst_loss: None, weight: 1 }
}

impl Net {
    /// Two wires of [`DELAYS`], without losses.
    pub fn lossless() -> Net {
        Self::with(DELAYS.map(channel), DELAYS.map(channel))
    }

    /// Two wires with these channels: to the far end, and from there.
    pub fn with(there: [Channel; 2], back: [Channel; 2]) -> Net {
        let (site, far) = (NetNs::create().unwrap(), NetNs::create().unwrap());
        let taps = |namespace: &NetNs| {
            let taps = || {
                for (name, value) in [
                    ("ipv6/conf/default/accept_dad", "0"),
                    ("ipv6/conf/all/forwarding", "1"),
                    ("ipv4/ip_forward", "1"),
                    ("ipv4/conf/all/rp_filter", "0"),
                    ("ipv4/conf/default/rp_filter", "0"),
                    ("ipv4/icmp_ratelimit", "0"),
                    ("ipv6/icmp/ratelimit", "0"),
                ] {
                    set_sysctl(name, value)?;
                }
                Ok([Tap::create("egress0", 500)?, Tap::create("egress1", 500)?])
            };
            namespace.run(taps).unwrap()
        };
        let ends = taps(&site).into_iter().zip(taps(&far));
        let channels = there.into_iter().zip(back);
        let specs = ends.zip(channels).map(|((a, b), (ab, ba))| WireSpec { a, b, ab, ba, mtu: 1_500 }).collect();
        let net = Net { site, far, _wires: Wires::start(specs, 1, 1, None).unwrap() };
        for (namespace, own) in [(&net.site, 1), (&net.far, 2)] {
            ip(namespace, "link set lo up");
            for egress in 0..2 {
                ip(namespace, &format!("link set egress{egress} up"));
                ip(namespace, &format!("address add 10.0.{egress}.{own}/24 dev egress{egress}"));
                ip(namespace, &format!("-6 address add fd00:0:0:{egress}::{own}/64 dev egress{egress} nodad"));
            }
        }
        for address in TARGETS {
            ip(&net.far, &format!("address add {address} dev lo{}", nodad(address)));
        }
        for address in OWN {
            ip(&net.site, &format!("address add {address} dev lo{}", nodad(address)));
        }
        ip(&net.far, "route add 198.51.100.1 via 10.0.1.1");
        ip(&net.far, "-6 route add 2001:db8:1::1 via fd00:0:0:1::1");
        net.route_by(0);
        for egress in 0..2 {
            let (mark, table) = (egress + 1, 100 + egress);
            ip(&net.site, &format!("route add default via 10.0.{egress}.2 table {table}"));
            ip(&net.site, &format!("-6 route add default via fd00:0:0:{egress}::2 table {table}"));
            for family in ["-4", "-6"] {
                ip(&net.site, &format!("{family} rule add fwmark {mark} table {table} priority 100"));
            }
        }
        net
    }

    /// Makes the site's own routes lead by an egress.
    pub fn route_by(&self, egress: usize) {
        ip(&self.site, &format!("route replace default via 10.0.{egress}.2"));
        ip(&self.site, &format!("-6 route replace default via fd00:0:0:{egress}::2"));
    }

    /// Makes the far end answer probes: echoes at port 7, and a reflector of STAMP at port 862.
    pub fn answer(&self) {
        for target in TARGETS {
            let echo = self.far.run(|| Ok(UdpSocket::bind((target, 7)).unwrap())).unwrap();
            // The threads wait for ever; they go with the test's process.
            std::thread::spawn(move || {
                let mut buffer = [0; 1500];
                while let Ok((length, from)) = echo.recv_from(&mut buffer) {
                    let _ = echo.send_to(&buffer[..length], from);
                }
            });
        }
        for any in ["0.0.0.0", "::"] {
            let address = (any.parse::<IpAddr>().unwrap(), PORT).into();
            let (far, (listens, listening)) = (self.far.run(NetNs::current).unwrap(), mpsc::channel());
            std::thread::spawn(move || {
                far.enter().unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut socket = ReflectorSocket::listen(address).unwrap();
                    let (mut reflector, mut counts) =
                        (Reflector::new(ReflectorConfig::default()), Reflected::default());
                    listens.send(()).unwrap();
                    while let Ok(()) = socket.readable().await {
                        socket.reflect(&mut reflector, 10, &mut counts).unwrap();
                        assert_eq!(counts.unsent, 0);
                    }
                });
            });
            listening.recv().unwrap();
        }
    }
}

/// An address is there at once, and not when no host has claimed it for a second.
fn nodad(address: &str) -> &str {
    if address.contains(':') { " nodad" } else { "" }
}

/// Runs `ip` with these words in a namespace.
pub fn ip(namespace: &NetNs, arguments: &str) -> String {
    namespace
        .run(|| {
            let output = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed");
            assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        })
        .unwrap()
}

/// An address of this text.
pub fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}
