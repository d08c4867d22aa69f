//! The network between the controller and its daemons fails while these are started again: nothing changes, and all is well
//! when it works again.

use sidestep_linux::testing::root_or_skip;
use sidestep_pathchanger::daemon::program::ControllerState;

use crate::{
    controller::{controller_in, following},
    router::Router,
    support::{Flow, Lab, SOME, TABLE_BASE, eventually, mark, slot},
    takeover::Kept,
};

/// Two paths from A to B, and the controller's host `c` at A.
const NETWORK: &[(&str, &str, u32)] =
    &[("h", "A", 1), ("A", "M", 1), ("M", "B", 1), ("A", "N", 2), ("N", "B", 2), ("B", "s", 1), ("A", "c", 1)];

#[test]
fn daemons_that_are_started_again_in_a_partition_keep_all_and_find_the_controller_after_it() {
    if !root_or_skip("a partition") {
        return;
    }
    let (lab, kept) = (Lab::new(NETWORK), Kept::new());
    let pins = kept.pins(true);
    let endpoint = format!("http://[{}]:7000", lab.address("c"));
    let controller = controller_in(&lab, "c", &endpoint);
    let links = [("M", "M"), ("N", "N")];
    let router = Router::start(&lab, &endpoint, &links);
    let agent = following(&lab, &endpoint, Some(pins.clone()), |_| {});
    let table = |slot: u32| lab.ip("h", &format!("-6 route show table {}", TABLE_BASE + slot));
    eventually("two paths", || (!table(1).is_empty() && !table(2).is_empty()).then_some(()));
    let flow = Flow::start(lab.connect("h", "s"));
    flow.pass(SOME);
    // No signal moves an idle connection.
    let idle = lab.connect("h", "s").0;
    let bindings = || lab.ip("A", "-6 route show proto 83");
    let all = || (mark(&idle), table(1), table(2), lab.ip("h", "-6 rule show"), bindings());
    let before = all();
    assert!(slot(&idle) > 0 && !before.4.is_empty(), "{before:?}");
    let state = || pins.config().unwrap().controller();
    assert_eq!(state(), ControllerState::Connected);

    // Packets vanish, so that no end is notified of anything: connections stay open, and new ones get no answer.
    let part = |parted| [("A", "c"), ("c", "A")].iter().for_each(|(from, to)| lab.swallow(from, to, parted));
    part(true);
    agent.kill();
    router.kill();
    let router = Router::start(&lab, &endpoint, &links);
    let agent = following(&lab, &endpoint, Some(pins.clone()), |_| {});
    assert_eq!(state(), ControllerState::Away);
    flow.pass(SOME);
    assert_eq!(all(), before, "in the partition");
    let was = slot(&flow.sender);
    lab.swallow("A", ["M", "N"][was - 1], true);
    eventually("a move", || (slot(&flow.sender) == 3 - was).then_some(()));
    lab.swallow("A", ["M", "N"][was - 1], false);
    let fresh = lab.connect("h", "s").0;
    assert!(slot(&fresh) > 0, "new connections get a path");

    part(false);
    eventually("the controller", || (state() == ControllerState::Connected).then_some(()));
    flow.pass(SOME);
    assert_eq!(all(), before, "after it");
    agent.stop();
    assert_eq!((mark(&idle), pins.exist(), table(1)), (0, false, String::new()));
    drop((router, controller));
}
