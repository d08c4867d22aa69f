//! Packets at a constant rate, without congestion control.

use std::{
    io::ErrorKind,
    net::{Ipv6Addr, SocketAddrV6, UdpSocket},
};

use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use rand_pcg::Pcg32;
use sidestep_net::{Rate, Span, Time};
use sidestep_scenario::workload;

use super::{Monotonic, TrafficError, bytes::ZEROS, system};

/// Headers of IPv6 and UDP in bytes, which a packet's length includes.
pub const HEADERS: u16 = 48;

/// A stream of packets: the parameters of [`workload::constant_rate`], and the destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CbrOptions {
    /// Where the packets go.
    pub to: SocketAddrV6,
    /// IP bytes a second, while it sends.
    pub rate: Rate,
    /// Length of an IP packet in bytes, at least [`HEADERS`].
    pub packet: u16,
    /// How long it sends, and how long it pauses; `None`: it always sends.
    pub bursts: Option<(Span, Span)>,
    /// Whether the times of `bursts` are means of exponential distributions.
    pub random: bool,
    /// When the lab's run starts.
    pub epoch: Monotonic,
    /// When the first packet leaves, counted from the epoch.
    pub start: Span,
    /// When the stream ends, counted from the epoch.
    pub stop: Span,
    /// Seed of the stream's random numbers.
    pub seed: u64,
    /// Stream of random numbers of the flow.
    pub stream: u64,
}

/// Sends the packets of a stream at their times, and returns how many the kernel took.
pub fn cbr(options: &CbrOptions) -> Result<u64, TrafficError> {
    let length = options.packet.checked_sub(HEADERS).map(usize::from).and_then(|length| ZEROS.get(..length));
    let payload = length.ok_or_else(|| TrafficError::Options(format!("a packet has at least {HEADERS} bytes")))?;
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).map_err(system("bind"))?;
    socket.connect(options.to).map_err(system("connect"))?;
    let at = |since_start| Time::ZERO + since_start;
    let random = options.random.then(|| Pcg32::new(options.seed, options.stream));
    let packets = workload::constant_rate(
        options.rate,
        options.packet,
        options.bursts,
        (at(options.start), at(options.stop)),
        random,
    );
    let mut sent = 0;
    for due in packets {
        sleep_until(options.epoch + due.since(Time::ZERO))?;
        match socket.send(payload) {
            Ok(_) => sent += 1,
            // The interface has no room, or is down: the packet counts as lost in the network.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) || error.kind() == ErrorKind::NetworkDown => {}
            Err(error) if matches!(error.kind(), ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => {}
            // Reported by ICMP about an earlier packet.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(system("send")(error)),
        }
    }
    Ok(sent)
}

fn sleep_until(instant: Monotonic) -> Result<(), TrafficError> {
    let nanos = instant.as_nanos();
    while Monotonic::now()? < instant {
        let at = nix::sys::time::TimeSpec::new((nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as i64);
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(system("clock_nanosleep")(errno)),
        }
    }
    Ok(())
}
