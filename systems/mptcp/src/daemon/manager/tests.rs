//! The path manager at a kernel that is made up: what it begins, ends and leaves alone.

mod hosts;
mod kernel;

use std::collections::BTreeSet;

use proptest::prelude::*;
use sidestep_linux::{
    mptcp::{Subflow, TcpEnds},
    sock_diag::TcpState,
};

use self::kernel::{Kernel, RANGE, first, kernel, subflow};
use super::*;

#[test]
fn a_connection_gets_its_subflows_when_it_is_established_and_no_more() {
    let mut kernel = kernel("");
    kernel.establish(1, first(1));
    assert_eq!(kernel.count(1), 32);
    assert!(kernel.created.iter().all(|new| new.local.port() == 0 && new.local_id == 0 && new.remote_id == 0));
    kernel.list();
    kernel.pass(100_000);
    kernel.list();
    assert_eq!((kernel.count(1), kernel.created.len()), (32, 31));
    assert_eq!(kernel.manager.counters().completed.0, 1);
}

#[test]
fn connections_that_the_other_end_opened_and_those_of_accept_only_get_none() {
    let mut kernel = kernel("[[rule]]\nprefix = \"10.0.0.2/32\"\nmode = \"accept-only\"\n");
    kernel.establish(1, first(1));
    let elsewhere = Ends { remote: "10.0.0.3:80".parse().unwrap(), ..first(2).ends };
    kernel.establish(2, FirstSubflow { ends: elsewhere, accepted: true, ..first(2) });
    kernel.establish(3, FirstSubflow { ends: elsewhere, ..first(2) });
    assert_eq!((kernel.count(1), kernel.count(2), kernel.count(3)), (1, 1, 32));
}

#[test]
fn a_subflow_that_dies_is_restored_and_none_when_the_connection_ends() {
    let mut kernel = kernel("");
    kernel.establish(1, first(1));
    kernel.pass(20_000);
    let victim = kernel.further(1);
    kernel.kill(1, victim);
    assert_eq!(kernel.count(1), 31, "all of a connection end when it does, so wait");
    kernel.pass(250);
    assert_eq!(kernel.count(1), 32);
    let begun = kernel.created.len();
    for ends in kernel.subflows[&Token(1)].keys().copied().collect::<Vec<_>>() {
        kernel.kill(1, ends);
    }
    kernel.event(1, MptcpChange::Closed);
    kernel.subflows.clear();
    kernel.pass(10_000);
    assert_eq!(kernel.created.len(), begun);
    assert_eq!((kernel.manager.connections().count(), kernel.manager.subflows()), (0, 0));
}

#[test]
fn a_subflow_that_times_out_is_ended_and_replaced_while_another_works() {
    let mut kernel = kernel("[subflows]\ncount = 4\n");
    kernel.establish(1, first(1));
    let victim = kernel.further(1);
    kernel.subflows.get_mut(&Token(1)).unwrap().get_mut(&victim).unwrap().timeouts = 3;
    kernel.list();
    assert_eq!(kernel.destroyed, [victim]);
    assert_eq!(kernel.count(1), 4);
    // The first is left to the kernel, and another takes its place.
    kernel.subflows.get_mut(&Token(1)).unwrap().get_mut(&first(1).ends).unwrap().timeouts = 9;
    kernel.list();
    assert_eq!((kernel.count(1), kernel.destroyed.len()), (5, 1));
    kernel.list();
    assert_eq!(kernel.count(1), 5);
}

#[test]
fn if_all_subflows_time_out_none_is_ended_and_one_more_is_tried() {
    let mut kernel = kernel("[subflows]\ncount = 4\n");
    kernel.establish(1, first(1));
    for subflow in kernel.subflows.get_mut(&Token(1)).unwrap().values_mut() {
        subflow.timeouts = 5;
    }
    kernel.list();
    assert_eq!((kernel.count(1), kernel.destroyed.len()), (8, 0), "a new one works, so all are replaced");
    kernel.list();
    assert_eq!((kernel.count(1), kernel.destroyed.len()), (5, 3));
}

#[test]
fn an_end_that_forbids_its_first_address_gets_subflows_at_those_that_it_announces() {
    let mut kernel = kernel("[subflows]\ncount = 4\n");
    kernel.establish(1, FirstSubflow { denies_first_address: true, ..first(1) });
    assert_eq!(kernel.count(1), 1);
    kernel.event(1, MptcpChange::Announced { id: 5, address: "10.0.0.9".parse().unwrap(), port: None });
    kernel.run();
    assert_eq!(kernel.count(1), 4);
    let places: BTreeSet<_> = kernel.created.iter().map(|new| (new.remote.to_string(), new.remote_id)).collect();
    assert_eq!(places, [("10.0.0.9:80".to_string(), 5)].into());
}

#[test]
fn fullmesh_has_one_subflow_between_each_pair_of_addresses_of_one_family() {
    let mut kernel = kernel("[subflows]\nmode = \"fullmesh\"\n");
    let addresses = ["10.0.0.1", "10.1.0.1", "fd00::1"].map(|address| address.parse().unwrap());
    kernel.manager.handle_addresses(addresses.to_vec());
    kernel.establish(1, first(1));
    assert_eq!(kernel.count(1), 2);
    kernel.event(1, MptcpChange::Announced { id: 2, address: "10.1.0.2".parse().unwrap(), port: Some(81) });
    kernel.run();
    let pairs: BTreeSet<_> = kernel.subflows[&Token(1)].keys().map(|ends| (ends.local.ip(), ends.remote)).collect();
    assert_eq!((kernel.count(1), pairs.len()), (4, 4));
    assert!(kernel.created.iter().all(|new| (new.local_id == 0) == (new.local.ip() == addresses[0])));
}

#[test]
fn an_address_without_a_route_does_not_keep_the_others_back() {
    let mut kernel = kernel("[subflows]\nmode = \"fullmesh\"\n");
    let addresses = [1, 2, 3, 4].map(|n| IpAddr::from([10, n, 0, 1]));
    kernel.manager.handle_addresses(addresses.to_vec());
    kernel.unreachable = Some(addresses[0]);
    kernel.establish(1, first(1));
    kernel.pass(5_000);
    assert_eq!(kernel.count(1), 4);
    kernel.unreachable = None;
    kernel.pass(60_000);
    assert_eq!(kernel.count(1), 5);
}

#[test]
fn an_address_keeps_its_number_when_others_come_and_go() {
    let mut kernel = kernel("[subflows]\nmode = \"fullmesh\"\n");
    let address = |a: u8, b: u8| IpAddr::from([10, a, b, 1]);
    kernel.manager.handle_addresses(vec![address(1, 0), address(3, 0)]);
    kernel.establish(1, first(1));
    kernel.manager.handle_addresses(vec![address(2, 0), address(3, 0)]);
    kernel.establish(2, first(2));
    let number = |new: &NewSubflow| (new.local.ip(), new.local_id);
    let numbers: BTreeSet<_> = kernel.created.iter().map(number).collect();
    assert_eq!(numbers, [(address(1, 0), 2), (address(2, 0), 4), (address(3, 0), 3)].into());
    // Hosts with addresses for a day each need numbers of those that are gone.
    for a in 10..100 {
        kernel.manager.handle_addresses((0..=3).map(|b| address(a, b)).chain([address(3, 0)]).collect());
    }
    kernel.created.clear();
    kernel.establish(3, first(3));
    let numbers: BTreeMap<_, _> = kernel.created.iter().map(number).collect();
    assert_eq!((numbers.len(), numbers[&address(3, 0)]), (5, 3));
    assert_eq!(numbers.values().collect::<BTreeSet<_>>().len(), 5);
}

#[test]
fn a_lazy_connection_gets_subflows_when_it_has_carried_enough() {
    let mut kernel = kernel("[subflows]\nafter = \"100 kB\"\n");
    kernel.establish(1, first(1));
    kernel.list();
    assert_eq!(kernel.count(1), 1);
    kernel.subflows.get_mut(&Token(1)).unwrap().get_mut(&first(1).ends).unwrap().bytes = 100_000;
    kernel.list();
    assert_eq!(kernel.count(1), 32);
}

#[test]
fn limits_are_shared_in_turn_counted_once_and_free_room_is_used() {
    let mut kernel = kernel("[subflows]\nlimit = 50\n[[rule]]\nprefix = \"10.9.0.0/16\"\nlimit_per_host = 3\n");
    for token in 1..=10 {
        kernel.open(token, first(token));
    }
    for token in 1..=10 {
        kernel.event(token, MptcpChange::Established(first(token)));
    }
    kernel.run();
    assert!((1..=10).all(|token| kernel.count(token) == 5), "in turn");
    for _ in 0..5 {
        kernel.list();
    }
    assert_eq!(kernel.manager.counters().limited, [(Limit::Rule, 10)].into());
    kernel.subflows.remove(&Token(1));
    kernel.event(1, MptcpChange::Closed);
    kernel.list();
    assert_eq!((2..=10).map(|token| kernel.count(token)).sum::<usize>(), 50);
    let other = FirstSubflow { ends: Ends { remote: "10.9.0.1:80".parse().unwrap(), ..first(20).ends }, ..first(20) };
    kernel.establish(20, other);
    assert_eq!(kernel.count(20), 3);
    assert_eq!(kernel.manager.counters().limited[&Limit::Host], 1);
}

#[test]
fn a_thousand_connections_stop_at_the_share_of_ports_without_an_error() {
    let mut kernel = kernel("[ports]\nshare = \"90 %\"\n");
    for token in 1..=1_000 {
        kernel.open(token, first(token));
        kernel.event(token, MptcpChange::Established(first(token)));
    }
    kernel.run();
    let most = (28_232.0 * 0.9) as usize;
    assert_eq!(kernel.created.len(), most);
    let each: Vec<usize> = (1..=1_000).map(|token| kernel.count(token)).collect();
    assert!(each.iter().all(|count| (26..=27).contains(count)), "{each:?}");
    let counters = kernel.manager.counters();
    assert_eq!((&counters.limited, counters.refusals.len()), (&[(Limit::Ports, 1_000)].into(), 0));
}

#[test]
fn a_connection_that_was_listed_before_its_other_end_answered_takes_one_port() {
    let mut kernel = kernel("[ports]\nshare = \"50 %\"\n");
    let config = kernel.manager.config().clone();
    kernel.manager.handle_config(config, (20_000, 20_009));
    let early = TcpEnds { ends: first(1).ends, state: TcpState::SynSent, subflow: None };
    kernel.manager.handle_list(kernel.now, &[early]);
    kernel.establish(1, first(1));
    assert_eq!(kernel.count(1), 5, "half of ten ports");
}

#[test]
fn no_free_port_is_asked_for_rarely() {
    let mut kernel = kernel("");
    kernel.refuses = Some((libc::EADDRINUSE, "", 5));
    for token in 1..=100 {
        kernel.establish(token, first(token));
    }
    for _ in 0..120 {
        kernel.now += Span::from_secs(1);
        kernel.list();
    }
    let refusals = kernel.manager.counters().refusals[&RefusalKind::NoPort];
    assert!(refusals < 20, "{refusals} in two minutes");
    kernel.refuses = None;
    kernel.pass(61_000);
    kernel.list();
    assert!((1..=100).all(|token| kernel.count(token) == 32));
}

#[test]
fn a_limit_lasts_while_its_connection_waits_and_is_counted_once() {
    let mut kernel = kernel("");
    kernel.refuses = Some((libc::EADDRINUSE, "", 5));
    kernel.establish(1, first(1));
    for _ in 0..100 {
        assert_eq!(kernel.manager.counts(), (1, 1));
        assert_eq!(kernel.manager.connections().next().unwrap().1.limited, Some(Limit::Ports));
        kernel.pass(1_000);
        kernel.list();
    }
    assert_eq!(kernel.manager.counters().limited, [(Limit::Ports, 1)].into());
    kernel.refuses = None;
    kernel.pass(61_000);
    assert_eq!((kernel.count(1), kernel.manager.counts()), (32, (1, 0)));
}

#[test]
fn a_drawn_port_that_is_refused_again_and_again_is_asked_for_rarely() {
    let mut kernel = kernel("[ports]\nchoice = \"stratified\"\n");
    kernel.refuses = Some((libc::EADDRINUSE, "", 1));
    kernel.establish(1, first(1));
    kernel.pass(60_000);
    let refusals = kernel.manager.counters().refusals[&RefusalKind::NoPort];
    assert!((10..20).contains(&refusals), "{refusals} in a minute");
    kernel.refuses = None;
    kernel.pass(10_000);
    assert_eq!(kernel.count(1), 32);
}

#[test]
fn numbers_that_an_earlier_path_manager_gave_out_are_soon_passed() {
    let mut kernel = kernel("[ports]\nchoice = \"stratified\"\n");
    kernel.taken = (1..=31).collect();
    kernel.establish(1, first(1));
    kernel.pass(2_000);
    assert_eq!(kernel.count(1), 32);
}

#[test]
fn an_other_end_that_takes_two_is_not_pestered() {
    let mut kernel = kernel("");
    kernel.peer_limit = 3;
    kernel.establish(1, first(1));
    assert_eq!((kernel.count(1), kernel.created.len()), (3, 3));
    for _ in 0..600 {
        kernel.now += Span::from_secs(1);
        kernel.list();
    }
    let tried = kernel.created.len() - 3;
    assert!((5..=12).contains(&tried), "{tried} in ten minutes");
    kernel.peer_limit = usize::MAX;
    kernel.pass(300_000);
    assert_eq!(kernel.count(1), 32);
}

#[test]
fn an_other_end_that_answers_before_it_refuses_is_not_pestered_either() {
    let mut kernel = kernel("");
    (kernel.peer_limit, kernel.peer_answers) = (3, true);
    kernel.establish(1, first(1));
    assert_eq!((kernel.count(1), kernel.created.len()), (3, 31));
    for _ in 0..600 {
        kernel.now += Span::from_secs(1);
        kernel.list();
    }
    let tried = kernel.created.len() - 31;
    assert!((5..=12).contains(&tried), "{tried} in ten minutes");
    kernel.peer_limit = usize::MAX;
    kernel.pass(300_000);
    assert_eq!(kernel.count(1), 32);
}

#[test]
fn joins_that_failed_are_not_repeated_at_once_although_a_list_comes_before_the_news() {
    let mut kernel = kernel("");
    kernel.open(1, first(1));
    kernel.event(1, MptcpChange::Established(first(1)));
    let begin = |kernel: &mut Kernel| {
        let mut begun = 0;
        while let Some(command) = kernel.manager.poll_transmit(kernel.now) {
            kernel.manager.handle_result(kernel.now, &command, &Ok(()));
            begun += 1;
        }
        begun
    };
    assert_eq!(begin(&mut kernel), 31);
    let left = TcpEnds { ends: first(1).ends, state: TcpState::Established, subflow: Some(subflow(Token(1), true)) };
    kernel.manager.handle_list(kernel.now, &[left]);
    assert_eq!(begin(&mut kernel), 0);
    kernel.now += Span::from_millis(1_100);
    assert_eq!(begin(&mut kernel), 1);
}

#[test]
fn what_the_kernel_refuses_is_understood() {
    let mut old = kernel("");
    old.refuses = Some((libc::EINVAL, "missing local addr id", 0));
    old.establish(1, first(1));
    old.refuses = None;
    old.pass(2_000);
    assert!(old.count(1) == 32 && old.created.iter().all(|new| new.local_id == 1), "Linux before 6.6");

    let mut foreign = kernel("");
    foreign.refuses = Some((libc::EINVAL, "invalid request; userspace PM not selected", 0));
    foreign.establish(1, first(1));
    foreign.pass(100_000);
    assert_eq!(foreign.manager.counters().refusals[&RefusalKind::KernelManager], 1, "it is left alone");

    let mut early = kernel("");
    early.refuses = Some((libc::ENOTCONN, "", 0));
    early.establish(1, first(1));
    early.pass(100);
    early.refuses = None;
    early.pass(10_000);
    assert_eq!(early.count(1), 32);
}

#[test]
fn after_an_overflow_or_a_restart_a_list_shows_all() {
    let mut before = kernel("[subflows]\ncount = 4\n");
    before.establish(1, first(1));
    before.establish(2, FirstSubflow { denies_first_address: true, ..first(2) });
    let mut after = Kernel { manager: Manager::new(before.manager.config().clone(), RANGE, 2), ..kernel("") };
    after.manager.remember(before.manager.to_remember());
    after.subflows = before.subflows;
    let victim = after.further(1);
    after.subflows.get_mut(&Token(1)).unwrap().remove(&victim);
    let unfinished = Subflow { fully_established: false, ..subflow(Token(3), true) };
    after.subflows.insert(Token(3), [(first(3).ends, unfinished)].into());
    after.list();
    assert_eq!((after.count(1), after.count(2), after.count(3)), (4, 1, 1));
    // The event of its establishment and those of others' ends were lost.
    after.subflows.get_mut(&Token(3)).unwrap().insert(first(3).ends, subflow(Token(3), true));
    after.subflows.remove(&Token(1));
    after.manager.handle_overflow();
    after.list();
    assert_eq!(after.count(3), 4);
    after.now += Span::from_secs(71);
    after.list();
    let known: Vec<Token> = after.manager.connections().map(|(token, ..)| token).collect();
    assert_eq!(known, [Token(2), Token(3)]);
}

#[test]
fn a_connection_whose_end_was_not_reported_is_forgotten() {
    let mut kernel = kernel("");
    kernel.establish(1, first(1));
    kernel.establish(2, first(2));
    kernel.establish(3, FirstSubflow { accepted: true, ..first(3) });
    // Those of the first wait for a FIN, and then all are gone.
    let closing = |(ends, subflow): (&Ends, &Subflow)| TcpEnds {
        ends: *ends,
        state: TcpState::FinWait2,
        subflow: Some(*subflow),
    };
    let listed: Vec<TcpEnds> = kernel.subflows[&Token(1)].iter().map(closing).collect();
    kernel.manager.handle_list(kernel.now, &listed);
    kernel.subflows.clear();
    kernel.list();
    let known = |kernel: &Kernel| kernel.manager.connections().map(|(token, ..)| token.0).collect::<Vec<_>>();
    assert_eq!(known(&kernel), [2], "of the second, the kernel may wait for a new subflow");
    kernel.pass(1_500);
    assert!(known(&kernel).is_empty(), "it was asked for one, and does not know the connection");
    assert_eq!(kernel.manager.subflows(), 0);
}

#[test]
fn stratified_ports_are_explicit_and_each_has_a_number_of_its_own() {
    let mut kernel = kernel("[ports]\nchoice = \"stratified\"\nseed = 7\n");
    kernel.establish(1, first(1));
    assert_eq!(kernel.count(1), 32);
    let ids: BTreeSet<u8> = kernel.created.iter().map(|new| new.local_id).collect();
    let ports: BTreeSet<u16> = kernel.created.iter().map(|new| new.local.port()).collect();
    assert_eq!((ids.len(), ports.len()), (31, 31));
    let paths: BTreeSet<u32> = kernel.subflows[&Token(1)]
        .keys()
        .map(|ends| sidestep_flow_hash::pick(super::super::ports::hash_of(ends, 7), 8))
        .collect();
    assert_eq!(paths.len(), 8);
}

#[test]
fn a_dry_run_begins_each_subflow_once() {
    let mut kernel = kernel("[subflows]\ncount = 4\n");
    kernel.manager.set_dry_run();
    kernel.open(1, first(1));
    kernel.event(1, MptcpChange::Established(first(1)));
    for _ in 0..3 {
        while let Some(command) = kernel.manager.poll_transmit(kernel.now) {
            kernel.manager.handle_result(kernel.now, &command, &Ok(()));
        }
        let listed =
            [TcpEnds { ends: first(1).ends, state: TcpState::Established, subflow: Some(subflow(Token(1), true)) }];
        kernel.manager.handle_list(kernel.now, &listed);
    }
    assert_eq!(kernel.manager.counters().begun, 3);
}

/// What can happen to a path manager.
#[derive(Clone, Debug)]
enum Step {
    Event(u32, u8, u16),
    List(Vec<(u32, u16, bool, u8)>),
    Pass(u64),
    Refuse(i32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..4u32, 0..7u8, 0..6u16).prop_map(|(token, what, port)| Step::Event(token, what, port)),
        prop::collection::vec((1..4u32, 0..6u16, any::<bool>(), 0..6u8), 0..6).prop_map(Step::List),
        (0..100_000u64).prop_map(Step::Pass),
        prop::sample::select(vec![0, libc::ENOTCONN, libc::EADDRINUSE, libc::EINVAL, libc::EPERM])
            .prop_map(Step::Refuse),
    ]
}

proptest! {
    /// Whatever the kernel reports, in whatever order: nothing panics, nothing grows without bounds, nothing loops, and no
    /// connection is asked to have more than twice its subflows.
    #[test]
    fn no_order_of_events_confuses_it(steps in prop::collection::vec(step(), 0..60)) {
        let mut manager = Manager::new(MptcpPmConfig::parse("[subflows]\ncount = 4\n").unwrap(), RANGE, 3);
        let (mut now, mut refusal) = (Time::ZERO, 0);
        for step in steps {
            match step {
                Step::Event(token, what, port) => {
                    let begun = first(u32::from(port));
                    let ends = begun.ends;
                    let what = match what {
                        0 => MptcpChange::Created(begun),
                        1 => MptcpChange::Established(begun),
                        2 => MptcpChange::Closed,
                        3 => MptcpChange::SubflowEstablished(ends),
                        4 => MptcpChange::SubflowClosed { ends, error: 0 },
                        5 => MptcpChange::Announced { id: port as u8, address: ends.remote.ip(), port: Some(port) },
                        _ => MptcpChange::Removed { id: port as u8 },
                    };
                    manager.handle_event(now, &MptcpEvent { token: Token(token), what });
                }
                Step::List(entries) => {
                    let entry = |(token, port, is_first, timeouts): (u32, u16, bool, u8)| TcpEnds {
                        ends: first(u32::from(port)).ends,
                        state: if timeouts == 5 { TcpState::SynSent } else { TcpState::Established },
                        subflow: Some(Subflow { timeouts, ..subflow(Token(token), is_first) }),
                    };
                    let list: Vec<TcpEnds> = entries.into_iter().map(entry).collect();
                    manager.handle_list(now, &list);
                }
                Step::Pass(millis) => now += Span::from_millis(millis),
                Step::Refuse(errno) => refusal = errno,
            }
            let mut commands = 0;
            while let Some(command) = manager.poll_transmit(now) {
                let result = if refusal == 0 { Ok(()) } else { Err(Refusal::new(refusal, String::new())) };
                manager.handle_result(now, &command, &result);
                commands += 1;
                prop_assert!(commands < 200);
            }
            for (_, connection, _) in manager.connections() {
                prop_assert!(connection.ready() + connection.joining() <= 16);
            }
            let total: u32 = manager.connections().map(|(_, connection, _)| connection.ready() + connection.joining()).sum();
            prop_assert_eq!(total, manager.subflows());
        }
    }
}
