//! A network namespace to ask in, and what iproute2 prints of it.

use std::{net::Ipv6Addr, process::Command};

use sidestep_linux::{
    Result,
    netlink::{self, Netlink, NextHop, Route, Target},
    netns::{NetNs, set_sysctl},
    tap::Tap,
    testing::root_or_skip,
};

pub const TABLE: u32 = 8301;

/// Runs `test` in a namespace with one interface `eth`, which has the address `fd00:ee::1/64`.
pub fn in_node(what: &str, test: impl AsyncFnOnce(&Netlink, u32) -> Result<()> + Send) {
    if !root_or_skip(what) {
        return;
    }
    let inside = || {
        set_sysctl("ipv6/conf/default/accept_dad", "0")?;
        let _tap = Tap::create("eth", 10)?;
        netlink::block_on(async |netlink| {
            let interface = netlink.index_of("eth").await?;
            netlink.bring_up(interface, 1500, [2, 0, 0, 0, 0, 1]).await?;
            netlink.add_address(interface, ip("fd00:ee::1"), 64).await?;
            test(netlink, interface).await
        })
    };
    NetNs::create().unwrap().run(inside).unwrap();
}

pub fn route(destination: &str, target: Target) -> Route {
    Route { table: TABLE, destination: destination.parse().unwrap(), target, mtu: None }
}

pub fn hop(via: &str, interface: u32) -> NextHop {
    NextHop { via: Some(via.parse().unwrap()), interface }
}

pub fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

pub fn routes(table: u32) -> String {
    ip_command(&format!("-6 route show table {table}"))
}

/// What iproute2 prints, in one line.
pub fn ip_command(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}
