//! What the kernel has counted in a network namespace since it was made.

use std::fs;

use crate::error::{LinuxError, Result};

const NETSTAT: &str = "/proc/thread-self/net/netstat";
const DEVICES: &str = "/proc/thread-self/net/dev";

/// TCP's extended counters of the calling thread's network namespace, by the kernel's names, such as `TCPLossProbes`.
///
/// Source: `TcpExt` of `/proc/net/netstat`; the kernel's `Documentation/networking/snmp_counter.rst` explains them.
pub fn tcp() -> Result<Vec<(String, u64)>> {
    let text = read(NETSTAT)?;
    Ok(extended(&text))
}

/// Packets that interfaces of the calling thread's network namespace were given to send, and dropped.
///
/// Of a TAP these are the packets for which its queue had no room.
pub fn dropped_in_sending() -> Result<u64> {
    Ok(dropped(&read(DEVICES)?))
}

/// Bytes that each interface of the calling thread's network namespace has sent since it was made, by its name.
pub fn sent() -> Result<Vec<(String, u64)>> {
    Ok(columns(&read(DEVICES)?, SENT).map(|(name, bytes)| (name.to_owned(), bytes)).collect())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|error| LinuxError::io(format!("reading {path}"), error))
}

/// The counters of the pair of lines that begin with `TcpExt:`: first names, then values.
fn extended(text: &str) -> Vec<(String, u64)> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return Vec::new() };
    // A counter of a limit may be negative, and counts nothing.
    let values = values.split_ascii_whitespace().map(|value| value.parse().unwrap_or(0));
    names.split_ascii_whitespace().map(str::to_owned).zip(values).collect()
}

/// Numbers of `/proc/net/dev` after the name of an interface, from zero on: bytes that it has sent, and packets that it was given to send
/// and dropped.
const SENT: usize = 8;
const DROPPED: usize = 11;

/// A number of each interface, with its name.
fn columns(text: &str, column: usize) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(move |line| {
        let (name, columns) = line.split_once(':')?;
        Some((name.trim(), columns.split_ascii_whitespace().nth(column)?.parse::<u64>().ok()?))
    })
}

/// The sum of what interfaces have dropped.
fn dropped(text: &str) -> u64 {
    columns(text, DROPPED).map(|(_, packets)| packets).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counters_have_the_names_of_the_line_before() {
        let text = "TcpExt: SyncookiesSent TCPLossProbes MaxConn\nTcpExt: 0 12 -1\nIpExt: InNoRoutes\nIpExt: 7\n";
        let expected = [("SyncookiesSent", 0), ("TCPLossProbes", 12), ("MaxConn", 0)];
        assert_eq!(extended(text), expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn drops_are_those_of_sending() {
        let text = "Inter-|   Receive      |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed\n\
                    \x20   lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  tap0:1 2 3 4 5 6 7 8 9 10 11 30 13 14 15 16\n";
        assert_eq!(dropped(text), 42);
    }

    #[test]
    fn this_kernel_has_the_counters() {
        let counters = tcp().unwrap();
        for name in ["TCPTimeouts", "TCPLossProbes", "TCPHystartTrainDetect", "TCPSpuriousRTOs", "TCPLostRetransmit"] {
            assert!(counters.iter().any(|(other, _)| other == name), "{name}");
        }
        dropped_in_sending().unwrap();
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(TcpExt: [a-z0-9 -]{0,40}\n|[ -~]{0,60}\n){0,6}") {
            extended(&text);
            dropped(&text);
        }
    }
}
