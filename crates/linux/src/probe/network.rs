//! Networks, tried in a namespace of their own.

use std::{io, net::Ipv6Addr};

use nix::sched::{CloneFlags, unshare};

use super::{
    Egress, Finding, Findings, Mask, TryFilter,
    egress::Egresses,
    machine::{present_with, sysctl},
    mptcp,
};
use crate::{
    bpf::MAX_SLOTS,
    capabilities::Privileges,
    error::{LinuxError, Result},
    marks::MarkUses,
    netlink::{Family, Interface, MAIN_TABLE, MarkRule, Netlink, NextHop, Route, SidAction, Target, block_on},
    netns::{NetNs, set_sysctl},
    nftables::{Draw, DrawTable, Share},
    sock_diag::SockDiag,
    tap::Tap,
    tun,
};

/// Everything that is tried here.
const IDS: [&str; 18] = [
    "network-namespaces",
    "ipv6",
    "policy-routing",
    "nf-tables",
    "seg6-inline",
    "seg6-end",
    "seg6-b6-encaps",
    "seg6-dt6",
    "seg6-enabled",
    "tc-bpf",
    "ecn",
    "mptcp",
    "mptcp-pm",
    "mptcp-id-0",
    "tap",
    "tun",
    "sock-destroy",
    "sock-diag",
];

/// A table, a rule and addresses for trials; they exist only in the trial's namespace.
const TABLE: u32 = 8301;
const SEGMENT: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 1, 0xe, 0, 0, 0, 0);
const NEIGHBOUR: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
/// A locally administered Ethernet address for trials.
const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Tries what this module can.
pub fn probe(
    privileges: &Privileges,
    filter: Option<fn() -> Result<TryFilter>>,
    masks: &[Mask],
    egresses: std::result::Result<&[Egress], &str>,
) -> Findings {
    // Read these in the user's namespace, before the trials enter one of their own.
    let settings = Settings::read();
    let egresses = Egresses::read(egresses);
    let marks = marks(masks);
    // In a user namespace no program can be loaded.
    let filter = match (privileges.without_bpf(), filter) {
        (Some(why), _) => Err(Finding::Untried(why)),
        (None, Some(load)) => load().map_err(|error| Finding::failed(&error)),
        (None, None) => Err(Finding::Untried("no program is tried".into())),
    };
    let mut findings = match namespace(privileges) {
        Ok(namespace) => {
            let tried = namespace.run(|| block_on(async |netlink| Ok(try_all(netlink, filter, &settings).await)));
            tried.unwrap_or_else(|error| vec![("ipv6", Finding::Missing(error.to_string()))])
        }
        Err(error) => vec![("network-namespaces", Finding::failed(&error))],
    };
    findings.push(("marks", marks));
    let kernel = findings.iter().position(|(id, _)| *id == "vrf").map(|place| findings.remove(place).1);
    findings.push(("vrf", egresses.vrf(kernel)));
    for id in IDS {
        if !findings.iter().any(|(found, _)| *found == id) {
            findings.push((id, Finding::Untried("needs a network namespace: root, or user namespaces".into())));
        }
    }
    findings
}

/// Whether rules of others leave bits of the mark alone, in the namespace that the process was started in.
fn marks(masks: &[Mask]) -> Finding {
    let uses = match block_on(MarkUses::read) {
        Ok(uses) => uses,
        Err(error) => return Finding::failed(&error),
    };
    let mut details = Vec::new();
    for Mask { bits, of } in masks {
        let slots = (bits >> bits.trailing_zeros().min(31)).min(MAX_SLOTS);
        let collisions = uses.collisions(*bits, slots);
        if let Some(first) = collisions.iter().find(|collision| collision.misroutes) {
            let free = uses.free_mask().map_or_else(String::new, |free| format!("; {free:#x} is free"));
            return Finding::Missing(format!("mark_mask {bits:#x}, {of}, meets {}{free}", first.with));
        }
        details.extend(collisions.iter().map(|collision| format!("{bits:#x}, {of}, meets {}", collision.with)));
    }
    details.extend(uses.unseen.iter().map(|what| format!("not read: {what}")));
    Finding::Present(details.join("; "))
}

/// A network namespace to try things in; without the right to make one, in a user namespace.
fn namespace(privileges: &Privileges) -> Result<NetNs> {
    if !privileges.has(Privileges::SYS_ADMIN) {
        unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| LinuxError::io("making a user namespace", error))?;
    }
    NetNs::create()
}

async fn try_all(netlink: &Netlink, filter: std::result::Result<TryFilter, Finding>, settings: &Settings) -> Findings {
    let mut findings = vec![
        ("network-namespaces", Finding::present()),
        ("ipv6", ipv6(netlink).await),
        ("policy-routing", policy_routing(netlink).await),
        ("nf-tables", nf_tables()),
        ("vrf", Finding::of(netlink.add_vrf("vrf", TABLE + 1).await)),
        ("seg6-enabled", setting("ipv6/conf/all/seg6_enabled", settings.seg6_enabled.as_deref())),
        ("ecn", setting("ipv4/tcp_ecn", settings.tcp_ecn.as_deref())),
        ("sock-destroy", Finding::of(SockDiag::open().and_then(|mut diag| diag.can_destroy()))),
        ("sock-diag", Finding::of(SockDiag::open().and_then(|mut diag| diag.tcp_sockets(&mut Vec::new()).map(drop)))),
    ];
    findings.extend(mptcp::probe(&settings.mptcp));
    let tap = Tap::create("tap", 10);
    findings.push(("tap", tap.as_ref().map_or_else(Finding::failed, |_| Finding::present())));
    findings.push(("tun", Finding::of(tun::try_device("tun"))));
    // Routes with SIDs need an interface other than the loopback. Only root may be allowed to open TAP devices.
    let made = match &tap {
        Ok(_) => Ok("tap"),
        Err(_) => netlink.add_veth("veth0", "veth1").await.map(|()| "veth0"),
    };
    let interface = match made {
        Ok(name) => up(netlink, name).await,
        Err(error) => Err(error),
    };
    match interface {
        Ok(interface) => {
            findings.extend(segment_routing(netlink, interface.index).await);
            let tc = filter.map_or_else(|finding| finding, |attach| Finding::of(attach(&interface)));
            findings.push(("tc-bpf", tc));
        }
        Err(error) => {
            for id in ["seg6-inline", "seg6-end", "seg6-b6-encaps", "seg6-dt6", "tc-bpf"] {
                findings.push((id, Finding::Untried(format!("needs a TAP or a veth device: {error}"))));
            }
        }
    }
    findings
}

async fn up(netlink: &Netlink, name: &str) -> Result<Interface> {
    let index = netlink.index_of(name).await?;
    netlink.bring_up(index, 1500, ADDRESS).await?;
    let found = netlink.interfaces().await?.into_iter().find(|interface| interface.index == index);
    found.ok_or_else(|| LinuxError::io("listing interfaces", io::Error::from_raw_os_error(libc::ENODEV)))
}

async fn ipv6(netlink: &Netlink) -> Finding {
    if let Err(error) = netlink.loopback_up().await {
        return Finding::failed(&error);
    }
    match std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => Finding::present(),
        Err(error) => {
            Finding::Missing(format!("{error}; IPv6 is disabled (ipv6.disable=1 on the kernel's command line?)"))
        }
    }
}

/// A rule like the agent's for each family, and a route in its table.
async fn policy_routing(netlink: &Netlink) -> Finding {
    for (family, destination) in [(Family::V6, "2001:db8::/32"), (Family::V4, "192.0.2.0/24")] {
        let rule = MarkRule { family, mark: 0x100, mask: 0xff00, table: TABLE, priority: 8300 };
        if let Err(error) = netlink.add_rule(rule).await {
            return Finding::failed(&error);
        }
        let Ok(destination) = destination.parse() else { continue };
        let route = Route { table: TABLE, destination, target: Target::Throw, mtu: None };
        if let Err(error) = netlink.add_route(&route).await {
            return Finding::failed(&error);
        }
    }
    Finding::present()
}

/// A table like the agent's.
fn nf_tables() -> Finding {
    let draw = |destination: &str| {
        let shares = [0x100, 0x200].map(|mark| Share { mark, weight: 1, sources: Vec::new(), unnamed: false }).to_vec();
        Some(Draw { destination: destination.parse().ok()?, shares })
    };
    let draws: Vec<_> = ["2001:db8::/32", "192.0.2.0/24"].into_iter().filter_map(draw).collect();
    Finding::of(DrawTable::open("sidestep-doctor", 0xff00).and_then(|mut table| table.replace(&draws)))
}

async fn segment_routing(netlink: &Netlink, interface: u32) -> Findings {
    let inserted = Target::Segments(vec![SEGMENT], NextHop { via: Some(NEIGHBOUR.into()), interface });
    let mut findings = vec![("seg6-inline", route(netlink, inserted).await)];
    let sid = |action| Target::Sid(action, interface);
    findings.push(("seg6-b6-encaps", route(netlink, sid(SidAction::EndB6Encaps(vec![SEGMENT, SEGMENT]))).await));
    findings.push(("seg6-dt6", route(netlink, sid(SidAction::EndDt6(MAIN_TABLE))).await));
    let mut end = route(netlink, sid(SidAction::End)).await;
    if end.is_present() {
        end = route(netlink, sid(SidAction::EndX(NEIGHBOUR))).await;
    }
    findings.push(("seg6-end", end));
    findings
}

async fn route(netlink: &Netlink, target: Target) -> Finding {
    let net = match ipnet::Ipv6Net::new(SEGMENT, 128) {
        Ok(net) => net,
        Err(error) => return Finding::Untried(error.to_string()),
    };
    Finding::of(netlink.add_route(&Route { table: TABLE, destination: net.into(), target, mtu: None }).await)
}

/// Settings of the namespace that the process was started in.
struct Settings {
    seg6_enabled: Option<String>,
    tcp_ecn: Option<String>,
    mptcp: mptcp::Settings,
}

impl Settings {
    fn read() -> Self {
        Settings {
            seg6_enabled: sysctl("ipv6/conf/all/seg6_enabled"),
            tcp_ecn: sysctl("ipv4/tcp_ecn"),
            mptcp: mptcp::Settings::read(),
        }
    }
}

/// Tries to set `name` to 1 in the namespace; `now` is the machine's own value.
fn setting(name: &str, now: Option<&str>) -> Finding {
    let tried = set_sysctl(name, "1");
    match (tried, sysctl(name).as_deref(), now) {
        (Ok(()), Some("1"), now) => present_with(name, now),
        (Ok(()), ..) => Finding::Missing("the setting does not take effect".into()),
        (Err(LinuxError::Refused { source, .. }), ..) if source.kind() == io::ErrorKind::NotFound => {
            Finding::Missing("the kernel has no such setting".into())
        }
        (Err(error), ..) => Finding::failed(&error),
    }
}
