//! MPTCP's schedulers, and what is done where one slow subflow blocks the receiver's window.

use super::*;

/// A connection over two paths of 10 Mbit/s, of which the second has this delay in each direction.
fn two_paths(scheduler: Scheduler, coupling: Coupling, delay: Span) -> (Lab, [(RouteId, RouteId); 2]) {
    let mut lab = Lab::with(parallel(2), subflows(coupling), coupling, scheduler);
    let link = lab.topology.find_link("A-B.2").unwrap();
    for arc in [link.0 * 2, link.0 * 2 + 1].map(sidestep_net::ArcId) {
        let channel = sidestep_net::Channel { delay, ..*lab.topology.channel(arc) };
        lab.world.network.set_channel(Time::ZERO, arc, &channel);
    }
    let routes = [lab.routes("c1", "s1", Some("A-B")), lab.routes("c1", "s1", Some("A-B.2"))];
    (lab, routes)
}

#[test]
fn the_scheduler_of_linux_fills_both_paths_with_uncoupled_subflows() {
    for (coupling, delay) in [(Coupling::Cubic, 5), (Coupling::Reno, 5), (Coupling::Cubic, 15)] {
        let (mut lab, routes) = two_paths(Scheduler::Linux, coupling, Span::from_millis(delay));
        let flow = lab.connection(&routes, None);
        let goodput = lab.goodput(&[flow], 5, 35)[0];
        assert!(goodput > 0.93 * 20.0 * 1408.0 / 1500.0, "{coupling:?}, {delay} ms: {goodput}");
        let subflows = [0, 1].map(|index| lab.world.sender(FlowId(flow.0 + index)).unwrap());
        // A subflow queues more than its window lets out.
        for sender in subflows {
            assert!(f64::from(sender.queued()) > sender.cwnd(), "{} {}", sender.queued(), sender.cwnd());
        }
    }
    let (mut lab, routes) = two_paths(Scheduler::Linux, Coupling::Cubic, Span::from_millis(5));
    let flow = lab.connection(&routes, Some(5_000_000));
    assert_eq!(lab.world.run_until(Time::ZERO + Span::from_secs(60)), Stopped::Finished(flow));
    assert_eq!(lab.world.acked_bytes(flow), 5_000_000);
}

#[test]
fn the_scheduler_of_linux_gives_bursts_to_the_subflow_whose_queue_ends_first() {
    let (mut lab, routes) = two_paths(Scheduler::Linux, Coupling::Reno, Span::from_millis(45));
    let flow = lab.connection(&routes, None);
    // The first subflow has answered, the second, five times as far, has not: all goes over the first.
    lab.world.run_until(Time::ZERO + Span::from_millis(60));
    let supplied = |lab: &Lab| [0, 1].map(|index| lab.world.sender(FlowId(flow.0 + index)).unwrap().supplied());
    let before = supplied(&lab);
    assert!(before[0] > 10 && before[1] == 0, "{before:?}");
    // Then the second, whose queue is empty, gets a part of what moves the receiver's window, which the first has filled: as much
    // as lasts it no longer than the first's queue lasts, which is five times as fast.
    let second = FlowId(flow.0 + 1);
    while lab.world.ready_at(second).is_none() {
        lab.world.run_until(lab.world.now() + Span::from_micros(50));
    }
    lab.world.run_until(lab.world.now() + Span::from_millis(40));
    let after = supplied(&lab);
    assert!(after[1] > 10 && (4..=6).contains(&((after[0] - before[0]) / after[1])), "{before:?}, {after:?}");
}

#[test]
fn a_slow_subflow_that_blocks_the_receive_window_is_relieved_and_slowed_down() {
    let goodput = |opportunistic_retransmission, penalisation| {
        let (mut lab, routes) = two_paths(Scheduler::MinRtt, Coupling::Lia, Span::from_millis(250));
        // Ten packets of the second path's bandwidth-delay product of 420; of the first path's 18.
        lab.mptcp.receive_buffer = 60;
        (lab.mptcp.opportunistic_retransmission, lab.mptcp.penalisation) = (opportunistic_retransmission, penalisation);
        let flow = lab.connection(&routes, None);
        (lab.goodput(&[flow], 5, 25)[0], lab.world.sender(FlowId(flow.0 + 1)).unwrap().cwnd())
    };
    let [plain, retransmitted, penalised, both] =
        [(false, false), (true, false), (false, true), (true, true)].map(|(again, slower)| goodput(again, slower));
    let what = format!("{plain:?}, {retransmitted:?}, {penalised:?}, {both:?}");
    // The first path alone carries 9.4 Mbit/s.
    assert!(plain.0 < 3.0 && retransmitted.0 > 2.0 * plain.0, "{what}");
    assert!(penalised.1 < 0.7 * plain.1 && both.0 > 1.1 * retransmitted.0, "{what}");
}
