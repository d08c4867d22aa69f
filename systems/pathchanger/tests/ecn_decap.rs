//! Congestion marks on the outer header of a packet that a router decapsulates (`End.DT6`), with our program and
//! without: the kernel alone loses them.

#![expect(clippy::disallowed_methods, reason = "tests of the kernel have a clock and threads")]

use std::{
    net::{IpAddr, Ipv6Addr},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use nix::unistd::{read, write};
use sidestep_linux::{
    Result,
    netlink::{self, MAIN_TABLE, Netlink, NextHop, Route, SidAction, Target},
    netns::{NetNs, set_sysctl},
    tap::Tap,
    testing::root_or_skip,
};
use sidestep_pathchanger::daemon::ecn_decap::EcnDecap;

const NOT_ECT: u8 = 0b00;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

const SID: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 1, 0xd6, 0, 0, 0, 0);
const HOST: Ipv6Addr = Ipv6Addr::new(0xfd02, 0, 9, 0, 0, 0, 0, 1);
const SOURCE: Ipv6Addr = Ipv6Addr::new(0xfd02, 0, 8, 0, 0, 0, 0, 1);
const NEIGHBOUR: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEIGHBOUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

const ETHERNET: usize = 14;
const NEXT_IPV6: u8 = 41;
const NEXT_ROUTING: u8 = 43;
const NO_NEXT: u8 = 59;

/// What a packet looks like on arrival at the router.
#[derive(Clone, Copy)]
struct Packet {
    outer: u8,
    inner: u8,
    /// Whether the outer header is followed by a segment routing header.
    srh: bool,
}

#[test]
fn without_the_program_a_mark_on_the_outer_header_is_lost() {
    if root_or_skip("decapsulation") {
        assert_eq!(decapsulated(false, Packet { outer: CE, inner: ECT_0, srh: true }), ECT_0);
    }
}

#[test]
fn with_the_program_a_mark_is_copied_inward_with_and_without_an_srh() {
    if root_or_skip("decapsulation") {
        for srh in [true, false] {
            assert_eq!(decapsulated(true, Packet { outer: CE, inner: ECT_0, srh }), CE, "srh: {srh}");
        }
    }
}

#[test]
fn the_program_marks_nothing_that_was_not_marked_or_would_not_be_understood() {
    if root_or_skip("decapsulation") {
        assert_eq!(decapsulated(true, Packet { outer: ECT_0, inner: ECT_0, srh: true }), ECT_0);
        assert_eq!(decapsulated(true, Packet { outer: CE, inner: NOT_ECT, srh: true }), NOT_ECT);
    }
}

/// The ECN bits with which `packet` leaves a router that decapsulates it.
fn decapsulated(with_program: bool, packet: Packet) -> u8 {
    let pass = || {
        for (name, value) in [
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv6/conf/all/seg6_enabled", "1"),
            ("ipv6/conf/default/seg6_enabled", "1"),
            ("ipv6/conf/default/accept_dad", "0"),
        ] {
            set_sysctl(name, value)?;
        }
        let (inside, outside) = (Tap::create("inside", 10)?, Tap::create("outside", 10)?);
        let interfaces = netlink::block_on(async |netlink| {
            configure(netlink).await?;
            netlink.interfaces().await
        })?;
        let entrance: Vec<_> = interfaces.into_iter().filter(|interface| interface.name == "inside").collect();
        let program = if with_program { Some(EcnDecap::attach(&entrance)?) } else { None };
        write(inside.as_fd(), &packet.frame()).unwrap();
        let ecn = ecn_of_next(&outside);
        if let Some(program) = program {
            let copied = u64::from(packet.outer == CE && packet.inner == ECT_0);
            assert_eq!(program.copied()?, copied);
        }
        Ok(ecn)
    };
    NetNs::create().and_then(|router| router.run(pass)).unwrap()
}

async fn configure(netlink: &Netlink) -> Result<()> {
    let (inside, outside) = (netlink.index_of("inside").await?, netlink.index_of("outside").await?);
    netlink.bring_up(inside, 1700, MAC).await?;
    netlink.bring_up(outside, 1500, MAC).await?;
    netlink.add_neighbour(outside, NEIGHBOUR, NEIGHBOUR_MAC).await?;
    let towards_host = Target::Via(vec![NextHop { via: Some(NEIGHBOUR.into()), interface: outside }]);
    let decapsulate = Target::Sid(SidAction::EndDt6(MAIN_TABLE), inside);
    for (destination, target) in [(HOST, towards_host), (SID, decapsulate)] {
        netlink
            .add_route(&Route { table: MAIN_TABLE, destination: IpAddr::from(destination).into(), target, mtu: None })
            .await?;
    }
    Ok(())
}

/// The ECN bits of the next packet to the host; others are the kernel's own.
fn ecn_of_next(outside: &Tap) -> u8 {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut frame = [0; 2048];
    while Instant::now() < deadline {
        match read(outside.as_fd(), &mut frame) {
            Ok(length) if length >= ETHERNET + 40 && frame[ETHERNET + 24..ETHERNET + 40] == HOST.octets() => {
                return frame[ETHERNET + 1] >> 4 & 0b11;
            }
            Ok(_) => {}
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    panic!("the router forwarded nothing");
}

impl Packet {
    fn frame(self) -> Vec<u8> {
        let inner = ipv6_header(self.inner, NO_NEXT, 0, HOST);
        // RFC 8754, section 2: next header, length in 8 bytes less one, type 4, no segments left, the only one is 0.
        let srh = [&[NEXT_IPV6, 2, 4, 0, 0, 0, 0, 0], &SID.octets()[..]].concat();
        let (next, payload) = if self.srh { (NEXT_ROUTING, [srh, inner].concat()) } else { (NEXT_IPV6, inner) };
        let outer = ipv6_header(self.outer, next, payload.len() as u16, SID);
        [&MAC[..], &NEIGHBOUR_MAC, &[0x86, 0xdd], &outer, &payload].concat()
    }
}

fn ipv6_header(ecn: u8, next: u8, payload: u16, destination: Ipv6Addr) -> Vec<u8> {
    let [high, low] = payload.to_be_bytes();
    let start = [0x60, ecn << 4, 0, 0, high, low, next, 64];
    [&start[..], &SOURCE.octets(), &destination.octets()].concat()
}
