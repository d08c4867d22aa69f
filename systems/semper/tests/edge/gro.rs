//! Packets that the kernel has merged (GRO) before they come to the program.

use std::{
    fs,
    io::{Read, Write},
    os::fd::AsRawFd,
    thread,
};

use nix::{
    libc,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};
use sidestep_linux::{netns::NetNs, testing::root_or_skip};

use crate::net::{Ip, Net, PATIENCE, config, eventually, tuple};

nix::ioctl_write_ptr_bad!(ethtool, libc::SIOCETHTOOL, libc::ifreq);

/// Commands of `linux/ethtool.h`.
pub const SET_TSO: u32 = 0x1f;
pub const SET_GSO: u32 = 0x24;
const SET_GRO: u32 = 0x2c;
const BYTES: usize = 4 << 20;

/// Turns an offload of the interface to or from the site on or off.
pub fn set(node: &NetNs, command: u32, on: bool) {
    let change = || {
        let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).unwrap();
        let mut value = [command, u32::from(on)];
        let mut name = [0; libc::IFNAMSIZ];
        name.iter_mut().zip(b"in").for_each(|(to, byte)| *to = *byte as libc::c_char);
        let data = value.as_mut_ptr().cast();
        let request = libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: data } };
        // SAFETY: the kernel reads the name and `struct ethtool_value`, both of which outlive the call.
        unsafe { ethtool(socket.as_raw_fd(), &request) }.unwrap();
        Ok(())
    };
    node.run(change).unwrap();
}

/// Packets that a node has sent by its interface `in`.
fn sent(node: &NetNs) -> u64 {
    let read = || {
        let devices = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let line = devices.lines().find_map(|line| line.trim().strip_prefix("in:")).unwrap();
        Ok(line.split_whitespace().nth(9).unwrap().parse().unwrap())
    };
    node.run(read).unwrap()
}

#[test]
fn packets_that_gro_has_merged_are_chosen_for_and_counted_once() {
    if !root_or_skip("GRO at an edge") {
        return;
    }
    let net = Net::new();
    // The sender's packets come one by one, as from a wire.
    for command in [SET_TSO, SET_GSO] {
        set(&net.a, command, false);
    }
    let _e1 = net.edge(&net.e1, &config(true, ""));
    let _e2 = net.edge(&net.e2, &config(false, ""));
    for version in [Ip::V4, Ip::V6] {
        let listener = net.listen(version);
        for merges in [false, true] {
            set(&net.e1, SET_GRO, merges);
            let (mut client, mut server) = net.connect(version, &listener);
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            let flow = tuple("tcp", client.local_addr().unwrap(), client.peer_addr().unwrap());
            let (status, wire, paths) = (net.status(&net.e1), sent(&net.a), net.sent(&net.e1));
            let reader = thread::spawn(move || server.read_exact(&mut vec![0; BYTES]).map(|()| server));
            client.write_all(&vec![7; BYTES]).unwrap();
            let _server = reader.join().unwrap().unwrap();
            let balanced = eventually("all packets", || {
                let (now, wire) = (net.status(&net.e1), sent(&net.a) - wire);
                let balanced = now.packets["balanced"] - status.packets["balanced"];
                (wire as usize > BYTES / 1500).then_some((balanced, wire))
            });
            println!("{version:?}, GRO {merges}: {} choices for {} packets of the wire", balanced.0, balanced.1);
            if merges {
                assert!(balanced.0 * 3 < balanced.1, "{balanced:?}");
            } else {
                // But for a few of neighbour discovery.
                assert!(balanced.0 <= balanced.1 && balanced.0 + 10 > balanced.1, "{balanced:?}");
            }
            let busiest = net.sent(&net.e1).iter().zip(&paths).map(|(now, before)| now - before).collect::<Vec<_>>();
            let named = status.place(&flow).unwrap().unwrap();
            assert!(busiest[named.position] as usize > BYTES, "{busiest:?}, not {named}");
            let slot = u32::from(status.destinations[usize::from(version == Ip::V6)].paths[named.position].slot);
            let carried =
                |status: &sidestep_semper::daemon::EdgeStatus| status.slots.get(&slot).map_or(0, |used| used.bytes);
            assert!(carried(&net.status(&net.e1)) - carried(&status) > BYTES as u64);
        }
    }
}
