//! `sidestep reflector`: it answers, ends at a signal, and reports what prevents its start.

use std::{
    cell::{Cell, RefCell},
    process::Command,
};

use nix::sys::signal::Signal;
use sidestep_linux::{
    netlink,
    netns::NetNs,
    prober::{Method, Prober, Reply, Spec},
};

use crate::common::{PROGRAM, Room, Running, root_or_skip};

/// The program in a namespace.
fn start(room: &Room, namespace: &NetNs, arguments: &[&str]) -> Running {
    let inside = || {
        let mut command = Command::new(PROGRAM);
        command.arg("reflector").args(arguments);
        Ok(room.start_command(command))
    };
    namespace.run(inside).unwrap()
}

#[test]
fn a_reflector_answers_until_a_signal_ends_it() {
    if !root_or_skip("a reflector in a namespace") {
        return;
    }
    let (room, namespace) = (Room::new(), NetNs::create().unwrap());
    namespace.run(|| netlink::block_on(async |netlink| netlink.loopback_up().await)).unwrap();
    let mut running = start(&room, &namespace, &["--clock", "ptp"]);
    running.wait_until_ready();
    let method = Method::Stamp { port: 862, clock: sidestep_route_control::reflector::StampClock::Ptp };
    let spec = Spec::new("::1".parse().unwrap(), method);
    let mut prober = namespace.run(|| Prober::open(&spec)).unwrap();
    prober.send().unwrap();
    let (prober, reply) = (RefCell::new(prober), Cell::new(None));
    running.wait_until("an answer", || {
        reply.set(prober.borrow_mut().receive().unwrap());
        reply.get().is_some()
    });
    let reply = reply.get();
    assert!(matches!(reply, Some(Reply::Answer(answer)) if answer.remote.is_some()), "{reply:?}");
    let second = start(&room, &namespace, &[]).wait();
    assert!(second.error(1).contains("somebody else listens there"), "{second:?}");
    running.signal(Signal::SIGTERM);
    running.wait().is_fine();
}

#[test]
fn wrong_options_of_a_reflector_and_missing_rights_are_reported_in_one_line() {
    let room = Room::new();
    for arguments in
        [["--listen", "nowhere"], ["--rate", "0"], ["--sessions", "1"], ["--expiry", "soon"], ["--clock", "sundial"]]
    {
        room.run(&[&["reflector"], &arguments[..]].concat()).complaint(2);
    }
    if !root_or_skip("giving up rights") {
        return;
    }
    let namespace = NetNs::create().unwrap();
    let inside = || {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all", PROGRAM, "reflector"]);
        Ok(room.start_command(command).wait())
    };
    let ended = namespace.run(inside).unwrap();
    assert!(ended.error(3).contains("CAP_NET_BIND_SERVICE"), "{ended:?}");
}
