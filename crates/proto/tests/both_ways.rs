//! Two sockets that ask and answer, 10 ms apart, over a network that loses what a script lists.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sidestep_net::{Span, Time};
use sidestep_proto::{
    packet::{Flags, Kind, Packet},
    tcp::{Config, Profile, Socket, State},
};

/// One of the two ends, and what it sends.
struct Side {
    socket: Socket,
    count: u32,
}

struct Exchange {
    config: Config,
    now: Time,
    /// The client, and the server.
    sides: [Side; 2],
    /// By the time of arrival and a number: for whom, whether it is of the direction that this end receives in, and it.
    wire: BTreeMap<(Time, u32), (usize, Packet)>,
    carried: u32,
    lost: Vec<bool>,
    /// What was sent, by the client or by the server.
    sent: Vec<(u64, usize, Kind, u32)>,
    done: Option<Time>,
}

fn linux() -> Config {
    Config { profile: Profile::Linux, quick_acks: 16, ecn: true, ..Config::rfc() }
}

impl Exchange {
    fn new(config: Config, request: u32, answer: u32, lost: &[bool]) -> Exchange {
        let side = |count| Side { socket: Socket::new(&config), count };
        let sides = [side(request), side(answer)];
        let (wire, lost) = (BTreeMap::new(), lost.to_vec());
        // A time of zero would stand for none.
        let now = Time::from_nanos(1);
        Exchange { config, now, sides, wire, carried: 0, lost, sent: Vec::new(), done: None }
    }

    fn send(&mut self, from: usize, packet: Packet) {
        self.sent.push((self.now.as_nanos() / 1_000_000, from, packet.kind, packet.seq));
        if !self.lost.get(self.carried as usize).copied().unwrap_or(false) {
            self.wire.insert((self.now + Span::from_millis(10), self.carried), (1 - from, packet));
        }
        self.carried += 1;
    }

    /// Sends what an end may send.
    fn pump(&mut self, of: usize) {
        while let Some(transmit) = self.sides[of].socket.poll_transmit(&self.config, self.now) {
            let (seq, kind, flags) = (transmit.seq, transmit.kind, transmit.flags);
            let mut packet = Packet { sent: self.now.into(), seq, kind, flags, ..Packet::default() };
            if kind == Kind::Data {
                self.sides[of].socket.acknowledge(&self.config, &mut packet);
            }
            self.send(of, packet);
        }
    }

    fn handle(&mut self, to: usize, packet: &Packet) {
        let mut replies = Vec::new();
        let Side { socket, .. } = &mut self.sides[to];
        let mut established = false;
        if packet.kind == Kind::Syn {
            replies.extend(socket.handle_syn(&self.config, self.now, packet));
        } else {
            let heard = socket.handle_packet(&self.config, self.now, packet, &mut |ack| replies.push(ack));
            established = heard.signals.established();
        }
        replies.into_iter().for_each(|reply| self.send(to, reply));
        let received = self.sides[to].socket.receiver().received();
        if to == 0 && established {
            let count = self.sides[0].count;
            self.sides[0].socket.supply(count);
        }
        if to == 1 && self.sides[1].socket.sender().supplied() == 0 && received >= self.sides[0].count {
            let count = self.sides[1].count;
            self.sides[1].socket.supply(count);
            self.pump(1);
            self.sides[1].socket.shut_down();
        }
        if to == 0 && self.done.is_none() && self.sides[0].socket.receiver().is_complete() {
            self.done = Some(self.now);
            self.sides[0].socket.shut_down();
        }
        self.pump(to);
    }

    /// Runs until nothing happens any more, or for this long.
    fn run(mut self, seconds: u64) -> Exchange {
        self.sides[0].socket.open();
        self.pump(0);
        let end = Time::ZERO + Span::from_secs(seconds);
        loop {
            let arrives = self.wire.keys().next().copied();
            let timer = (0..2).filter_map(|of| Some((self.sides[of].socket.poll_timeout()?, of))).min();
            let next = [arrives.map(|(at, _)| at), timer.map(|(at, _)| at)].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else { return self };
            self.now = self.now.max(next);
            match arrives.filter(|(at, _)| *at == next) {
                Some(key) => {
                    let (to, packet) = self.wire.remove(&key).unwrap();
                    self.handle(to, &packet);
                }
                None => {
                    let of = timer.unwrap().1;
                    let mut replies = Vec::new();
                    self.sides[of].socket.handle_timeout(&self.config, self.now, &mut |ack| replies.push(ack));
                    replies.into_iter().for_each(|reply| self.send(of, reply));
                    self.pump(of);
                }
            }
        }
    }

    fn of(&self, who: usize, kind: Kind) -> Vec<(u64, u32)> {
        let of = self.sent.iter().filter(|(_, from, of, _)| (*from, *of) == (who, kind));
        of.map(|(ms, _, _, seq)| (*ms, *seq)).collect()
    }

    fn is_over(&self) -> bool {
        self.sides.iter().all(|side| side.socket.sender().state() == State::Finished)
    }
}

#[test]
fn an_answer_takes_two_round_trips_and_is_acknowledged_and_closed_by_both() {
    let run = Exchange::new(linux(), 1, 3, &[]).run(10);
    assert_eq!((run.of(0, Kind::Syn), run.of(1, Kind::SynAck)), (vec![(0, 0)], vec![(10, 0)]));
    // The ACK of the handshake, and those of the answer.
    assert_eq!(run.of(0, Kind::Ack), [(20, 0), (40, 1), (40, 2), (40, 3)]);
    // The request, and the client's FIN when it has all, which acknowledges that of the server.
    assert_eq!(run.of(0, Kind::Data), [(20, 0), (40, 1)]);
    assert_eq!(run.of(1, Kind::Data), [(30, 0), (30, 1), (30, 2), (30, 3)]);
    assert_eq!(run.of(1, Kind::Ack), [(30, 1), (50, 2)]);
    assert_eq!(run.done, Some(Time::from_nanos(1) + Span::from_millis(40)));
    assert!(run.is_over());
}

#[test]
fn the_server_has_the_round_trip_of_the_handshake_and_the_client_too() {
    let run = Exchange::new(linux(), 1, 30, &[]).run(10);
    // To the nanoseconds that Linux's estimator loses by rounding.
    let micros = run.sides.map(|side| side.socket.sender().srtt().map(|srtt| (srtt.as_nanos() + 500) / 1_000));
    assert_eq!(micros, [Some(20_000); 2]);
}

#[test]
fn a_fin_goes_with_the_last_segment_if_that_waits_for_the_window() {
    let run = Exchange::new(linux(), 1, 13, &[]).run(10);
    let sent = run.of(1, Kind::Data);
    assert_eq!((sent.len(), sent.last()), (13, Some(&(50, 12))), "no segment of its own for the FIN");
    assert!(run.is_over());
}

#[test]
fn an_answer_acknowledges_the_request_whose_ack_was_lost() {
    // SYN, SYN-ACK, ACK, request; then the ACK of that.
    let run = Exchange::new(linux(), 1, 2, &[false, false, false, false, true]).run(10);
    assert_eq!(run.of(0, Kind::Data), [(20, 0), (40, 1)], "the request is sent once");
    assert!(run.is_over());
}

#[test]
fn a_server_is_established_by_the_request_if_the_ack_before_it_is_lost() {
    let run = Exchange::new(linux(), 1, 2, &[false, false, true]).run(10);
    assert_eq!(run.done, Some(Time::from_nanos(1) + Span::from_millis(40)));
}

#[test]
fn a_lost_request_is_sent_again_by_the_clients_timer() {
    let run = Exchange::new(Config { hz: 0, ..linux() }, 1, 2, &[false, false, false, true]).run(10);
    // A tail loss probe: after two round trips and 200 ms, but no later than a timeout of one and 200 ms.
    assert_eq!(run.of(0, Kind::Data)[..2], [(20, 0), (240, 0)]);
    assert!(run.is_over());
}

#[test]
fn a_packet_without_data_is_not_ecn_capable() {
    let mut socket = Socket::new(&linux());
    let config = linux();
    let now = Time::ZERO + Span::from_millis(1);
    let syn = Packet { kind: Kind::Syn, flags: Flags::ECE.with(Flags::CWR), ..Packet::default() };
    socket.handle_syn(&config, now, &syn).unwrap();
    let ack = Packet { kind: Kind::Ack, window: 100, ..Packet::default() };
    assert!(socket.handle_packet(&config, now, &ack, &mut |_| ()).accepted);
    socket.supply(1);
    let data = socket.poll_transmit(&config, now).unwrap();
    assert_eq!(socket.poll_transmit(&config, now), None);
    socket.shut_down();
    let fin = socket.poll_transmit(&config, now).unwrap();
    assert_eq!([data, fin].map(|one| one.flags.has(Flags::ECT)), [true, false]);
    assert!(fin.flags.has(Flags::FIN) && socket.is_bare_fin(fin.seq) && !data.flags.has(Flags::FIN));
}

proptest! {
    #[test]
    fn whatever_is_lost_at_first_both_directions_arrive_whole(
        (request, answer) in (1u32..30, 1u32..60),
        lost in prop::collection::vec(prop::bool::weighted(0.3), 0..60),
        rfc in any::<bool>(),
    ) {
        let profile = if rfc { Profile::Rfc } else { Profile::Linux };
        let run = Exchange::new(Config { profile, ..linux() }, request, answer, &lost).run(4_000);
        let [client, server] = &run.sides;
        // Unless all SYNs were lost.
        if client.socket.sender().state() != State::Failed {
            prop_assert!(run.done.is_some() && run.is_over(), "{:?}", run.sent);
            prop_assert!(server.socket.receiver().received() >= request);
            prop_assert!(client.socket.receiver().received() >= answer);
        }
    }
}
