//! Addresses of the host that come and go, and routes that do.

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A connection from 10.0.0.1 with subflows from there and from 10.1.0.1, both of which are there.
fn with_two() -> Kernel {
    let mut kernel = kernel("[subflows]\nmode = \"fullmesh\"\n");
    kernel.are_there(&["10.0.0.1", "10.1.0.1"]);
    kernel.establish(1, first(1));
    assert_eq!(kernel.sources(), ["10.0.0.1", "10.1.0.1"]);
    kernel
}

impl Kernel {
    fn are_there(&mut self, addresses: &[&str]) {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| address(text)).collect();
        self.manager.handle_addresses(addresses.clone());
        self.manager.handle_present(addresses.into_iter().collect());
        self.run();
    }

    fn sources(&self) -> Vec<String> {
        let sources: BTreeSet<IpAddr> = self.subflows[&Token(1)].keys().map(|ends| ends.local.ip()).collect();
        sources.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn subflows_of_an_address_that_goes_are_ended_at_once_and_made_again_when_it_returns() {
    let mut kernel = with_two();
    kernel.are_there(&["10.0.0.1"]);
    assert_eq!(kernel.sources(), ["10.0.0.1"]);
    assert_eq!((kernel.destroyed.len(), kernel.withdrawn.clone()), (1, vec![3]));
    kernel.pass(60_000);
    kernel.list();
    assert_eq!((kernel.created.len(), kernel.destroyed.len(), kernel.withdrawn.len()), (1, 1, 1), "nothing more");
    kernel.are_there(&["10.0.0.1", "10.1.0.1"]);
    assert_eq!(kernel.sources(), ["10.0.0.1", "10.1.0.1"]);
    assert_eq!(kernel.manager.counters().withdrawn, 1);
    // And it may go again.
    kernel.are_there(&["10.0.0.1"]);
    assert_eq!((kernel.sources(), kernel.withdrawn.len()), (vec!["10.0.0.1".into()], 2));
}

#[test]
fn the_first_subflow_is_ended_too_when_its_address_goes_and_the_other_end_is_notified_by_its_number() {
    let mut kernel = with_two();
    kernel.are_there(&["10.1.0.1"]);
    assert_eq!((kernel.sources(), kernel.withdrawn.clone()), (vec!["10.1.0.1".into()], vec![0]));
    kernel.pass(60_000);
    assert_eq!(kernel.sources(), ["10.1.0.1"], "none is tried from an address that is gone");
    kernel.are_there(&["10.0.0.1", "10.1.0.1"]);
    assert_eq!(kernel.sources(), ["10.0.0.1", "10.1.0.1"]);
}

#[test]
fn the_last_subflow_of_a_connection_is_ended_only_when_another_one_works() {
    let mut kernel = kernel("[subflows]\nmode = \"fullmesh\"\n");
    kernel.are_there(&["10.0.0.1"]);
    kernel.establish(1, first(1));
    kernel.are_there(&[]);
    assert_eq!((kernel.sources(), kernel.destroyed.len()), (vec!["10.0.0.1".into()], 0), "its address may return");
    kernel.are_there(&["10.2.0.1"]);
    assert_eq!((kernel.sources(), kernel.withdrawn.clone()), (vec!["10.2.0.1".into()], vec![0]));
}

#[test]
fn between_two_addresses_nothing_is_ended_and_nothing_tried_while_the_own_one_is_gone() {
    let mut kernel = kernel("[subflows]\ncount = 4\n");
    kernel.are_there(&["10.0.0.1", "10.1.0.1"]);
    kernel.establish(1, first(1));
    assert_eq!(kernel.count(1), 4);
    kernel.are_there(&["10.1.0.1"]);
    assert_eq!((kernel.count(1), kernel.destroyed.len()), (4, 0));
    let lost = *kernel.subflows[&Token(1)].keys().last().unwrap();
    kernel.subflows.get_mut(&Token(1)).unwrap().remove(&lost);
    kernel.event(1, MptcpChange::SubflowClosed { ends: lost, error: 0 });
    kernel.pass(60_000);
    assert_eq!(kernel.count(1), 3, "from an address that is gone none is begun");
    kernel.are_there(&["10.0.0.1", "10.1.0.1"]);
    kernel.pass(1_000);
    assert_eq!(kernel.count(1), 4);
}

#[test]
fn an_address_of_which_nothing_was_seen_is_not_taken_for_gone() {
    // Such as one of a whole prefix that is local, or of a transparent proxy.
    let mut kernel = kernel("[subflows]\nmode = \"fullmesh\"\n");
    kernel.are_there(&["10.1.0.1", "10.2.0.1"]);
    kernel.establish(1, first(1));
    kernel.are_there(&["10.1.0.1"]);
    assert_eq!(kernel.sources(), ["10.0.0.1", "10.1.0.1"]);
}

#[test]
fn a_pair_without_a_route_is_left_alone_until_routes_change_and_keeps_nothing_back() {
    let mut kernel = kernel("[subflows]\nmode = \"fullmesh\"\n");
    kernel.unrouted = Some(address("10.1.0.1"));
    kernel.are_there(&["10.0.0.1", "10.1.0.1", "10.2.0.1"]);
    kernel.establish(1, first(1));
    assert_eq!(kernel.sources(), ["10.0.0.1", "10.2.0.1"]);
    kernel.unrouted = None;
    kernel.pass(60_000);
    assert_eq!(kernel.sources(), ["10.0.0.1", "10.2.0.1"], "it is not asked for again and again");
    assert_eq!(kernel.manager.unroutable().count(), 1);
    kernel.manager.handle_routes();
    kernel.run();
    assert_eq!(kernel.sources(), ["10.0.0.1", "10.1.0.1", "10.2.0.1"], "at once");
}

#[test]
fn an_address_that_comes_is_tried_at_once_however_long_others_have_failed() {
    let mut kernel = kernel("[subflows]\nmode = \"fullmesh\"\n");
    kernel.unreachable = Some(address("10.1.0.1"));
    kernel.are_there(&["10.0.0.1", "10.1.0.1"]);
    kernel.establish(1, first(1));
    kernel.pass(600_000);
    kernel.are_there(&["10.0.0.1", "10.1.0.1", "10.2.0.1"]);
    kernel.pass(2_000);
    assert_eq!(kernel.sources(), ["10.0.0.1", "10.2.0.1"]);
}
