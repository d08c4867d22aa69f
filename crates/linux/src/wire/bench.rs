//! How many frames the wires carry per second of CPU time.

use std::{
    net::Ipv6Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use ipnet::Ipv6Net;
use sidestep_net::{Channel, Queue, QueueLimit, Rate, Ratio, Span};

use super::{
    WireSpec, WireStats, Wires,
    port::{Port, ipv6_frame},
};
use crate::{
    bpf::arrivals::Arrivals,
    error::{LinuxError, Result},
    netlink::{self, NextHop, Route, Target},
    netns::{NetNs, set_sysctl},
    tap::Tap,
};

/// What becomes of the frames that a wire delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The kernel drops them: the cost of the wires alone.
    Discard,
    /// The kernel routes frames of every second wire into the next one, so a router's cost is included.
    Forward,
}

/// What a benchmark of the wires measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchReport {
    /// Frames delivered by all wires.
    pub frames: u64,
    /// Time that it took.
    pub wall: Span,
    /// CPU time of the wires' threads in it, the kernel's work for each frame included.
    pub cpu: Span,
}

/// Bytes of the packets sent.
const PACKET: usize = 1_500;
const MTU: u32 = 1_500;
/// Frames sent into one wire before the next has its turn.
const BURST: usize = 32;
const WARM_UP: Duration = Duration::from_millis(200);
/// The TAPs' own queues.
const TAP_QUEUE: u32 = 500;
const MAIN_TABLE: u32 = 254;

impl BenchReport {
    /// Frames delivered per second of the wires' CPU time.
    pub fn frames_per_cpu_second(&self) -> f64 {
        self.frames as f64 / self.cpu.as_secs_f64().max(1e-9)
    }

    /// Frames delivered per second.
    pub fn frames_per_second(&self) -> f64 {
        self.frames as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// Sends packets of 1500 bytes through `wires` wires of 1 Gbit/s and 1 ms between two namespaces, as fast as the wires take
/// them, and measures for `seconds` how many frames `threads` threads of wires carry.
///
/// # Errors
/// Without root, TAPs, or Linux 5.11.
pub fn bench(wires: usize, seconds: f64, threads: usize, load: Load) -> Result<BenchReport> {
    let (near, far) = (NetNs::create()?, NetNs::create()?);
    let arrivals = Arc::new(Arrivals::load()?);
    let near_ends = near.run(|| quiet_ends(wires, &arrivals))?;
    let far_ends = far.run(|| match load {
        Load::Discard => quiet_ends(wires, &arrivals),
        Load::Forward => forwarding_ends(wires, &arrivals),
    })?;
    let specs = near_ends.taps.into_iter().zip(far_ends.taps);
    let specs = specs.map(|(a, b)| WireSpec { a, b, ab: channel(), ba: channel(), mtu: MTU }).collect();
    let wires = Wires::start(specs, 1, threads, Some(&arrivals))?;
    let done = AtomicBool::new(false);
    let fed = match load {
        Load::Discard => 1,
        Load::Forward => 2,
    };
    let ports: Vec<_> = near_ends.ports.into_iter().enumerate().step_by(fed).collect();
    let (before, after) = thread::scope(|scope| {
        scope.spawn(|| feed(&ports, &done));
        thread::sleep(WARM_UP);
        let before = wires.handle().stats();
        thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default());
        let after = wires.handle().stats();
        done.store(true, Ordering::Relaxed);
        (before, after)
    });
    wires.stop();
    let stopped = |error| LinuxError::io("measuring the wires", std::io::Error::other(error));
    Ok(difference(&before.map_err(stopped)?, &after.map_err(stopped)?))
}

/// One end of every wire.
struct Ends {
    taps: Vec<Tap>,
    ports: Vec<Port>,
}

/// Ends in the calling thread's namespace, which neither sends nor answers anything.
fn quiet_ends(wires: usize, arrivals: &Arrivals) -> Result<Ends> {
    set_sysctl("ipv6/conf/default/disable_ipv6", "1")?;
    let mut ends = Ends { taps: Vec::new(), ports: Vec::new() };
    for wire in 0..wires {
        let (tap, index) = end(wire, arrivals)?;
        ends.taps.push(tap);
        ends.ports.push(Port::open(index)?);
    }
    Ok(ends)
}

/// Ends in the calling thread's namespace, which sends what comes through wire 2k back through wire 2k + 1.
fn forwarding_ends(wires: usize, arrivals: &Arrivals) -> Result<Ends> {
    set_sysctl("ipv6/conf/default/accept_dad", "0")?;
    set_sysctl("ipv6/conf/all/forwarding", "1")?;
    let mut ends = Ends { taps: Vec::new(), ports: Vec::new() };
    for wire in 0..wires {
        let (tap, interface) = end(wire, arrivals)?;
        ends.taps.push(tap);
        let Some(fed) = wire.checked_sub(1).filter(|fed| fed.is_multiple_of(2)) else { continue };
        let destination = Ipv6Net::from(destination(fed));
        let target = Target::Via(vec![NextHop { via: None, interface }]);
        netlink::block_on(async |netlink| {
            netlink.add_route(&Route { table: MAIN_TABLE, destination: destination.into(), target, mtu: None }).await?;
            netlink.add_neighbour(interface, destination.addr(), mac(wire)).await
        })?;
    }
    Ok(ends)
}

/// A TAP that is up, and its interface's index.
fn end(wire: usize, arrivals: &Arrivals) -> Result<(Tap, u32)> {
    let tap = Tap::create(&format!("bench{wire}"), TAP_QUEUE)?;
    let index = netlink::block_on(async |netlink| {
        let index = netlink.index_of(tap.name()).await?;
        netlink.bring_up(index, MTU, mac(wire)).await?;
        Ok(index)
    })?;
    arrivals.attach(index)?;
    Ok((tap, index))
}

/// Sends through the ports, numbered as their wires, until `done`.
fn feed(ports: &[(usize, Port)], done: &AtomicBool) {
    // The sender gets the wires' priority, so that they need not wait for frames on a busy machine.
    crate::hurry();
    let frames: Vec<_> = ports.iter().map(|(wire, _)| ipv6_frame(mac(*wire), destination(*wire), PACKET, 0)).collect();
    while !done.load(Ordering::Relaxed) {
        for ((_, port), frame) in ports.iter().zip(&frames) {
            // A TAP whose queue is full takes no more in this turn.
            let _ = (0..BURST).all(|_| port.send(frame));
        }
    }
}

fn difference(before: &WireStats, after: &WireStats) -> BenchReport {
    BenchReport {
        frames: after.lateness.frames() - before.lateness.frames(),
        wall: after.at.since(before.at),
        cpu: after.cpu - before.cpu,
    }
}

fn channel() -> Channel {
    let queue = Queue { limit: QueueLimit::Packets(1_000), ecn_threshold: None, red: None };
    Channel {
        rate: Rate::from_mbits(1_000),
        delay: Span::from_millis(1),
        queue,
        loss: Ratio::ZERO,
        burst_loss: None,
        weight: 1,
    }
}

/// The hardware address of both ends of a wire.
fn mac(wire: usize) -> [u8; 6] {
    [2, 0, 0, 0, (wire >> 8) as u8, wire as u8]
}

fn destination(wire: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, wire as u16, 0, 0, 0, 0, 0, 1)
}
