//! Connections that ask and are answered: the client sends a request, the server answers and closes, and so does the client.
//!
//! A connection has two flows, whose numbers follow each other: packets of the first carry the request, the handshake
//! and ACKs of the request; those of the second carry the answer and ACKs of it. The first knows the routes and the timers: the client is
//! its [`Half::Sender`], the server its [`Half::Receiver`].

use sidestep_net::{Span, Time};
use sidestep_proto::{
    packet::{Flags, Kind, Packet},
    tcp::{Config, Sender, Socket, SocketEvents, State},
};

use super::{
    endpoint::Half,
    flows::{Flow, FlowId, FlowKind, FlowSpec, Sizes, acked_bytes, reusable, segments},
    network::{Network, RouteId},
    steering::{End, Event, Steering},
    tcp::reports_retransmits,
    world::World,
};

/// A connection that asks and is answered.
#[derive(Debug)]
pub(super) struct Exchange {
    client: Side,
    server: Side,
    /// Whether the client has all of the answer, or gave up.
    done: bool,
    over: bool,
}

/// What the program at an end does.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// The client, which is connected, writes its request.
    Ask,
    /// The server, which has read the request, writes its answer, and closes.
    Answer,
    /// The client, which has read all of that, closes.
    Close,
}

/// One end.
#[derive(Debug)]
struct Side {
    socket: Socket,
    /// What it sends: how many segments, and the payload of the last.
    count: u32,
    last_payload: u16,
}

impl Side {
    fn new(config: &Config, bytes: u64, mss: u16) -> Side {
        let (count, last_payload) = segments(Some(bytes), mss);
        Side { socket: Socket::new(config), count, last_payload }
    }

    /// Sends what may be sent; returns how many segments were sent again.
    fn transmit(&mut self, config: &Config, now: Time, wire: &mut Wire<'_>) -> u32 {
        let mut resent = 0;
        while let Some(transmit) = self.socket.poll_transmit(config, now) {
            let (seq, kind, flags) = (transmit.seq, transmit.kind, transmit.flags);
            let mut packet = Packet { sent: now.into(), seq, kind, flags, len: wire.sizes.header, ..Packet::default() };
            if kind == Kind::Syn {
                packet.len += wire.sizes.syn;
                resent += u32::from(self.socket.sender().is_linux() && self.socket.sender().backoff() > 0);
            } else {
                self.socket.acknowledge(config, &mut packet);
                packet.payload = match (seq + 1).cmp(&self.count) {
                    std::cmp::Ordering::Less => wire.mss,
                    std::cmp::Ordering::Equal => self.last_payload,
                    std::cmp::Ordering::Greater => 0,
                };
                packet.len += packet.payload;
                resent += u32::from(flags.has(Flags::RETRANSMIT));
            }
            wire.send(true, packet);
        }
        resent
    }

    /// Whether all that it has sent has arrived, and the other end's end has.
    fn is_over(&self) -> bool {
        matches!(self.socket.sender().state(), State::Finished | State::Failed)
    }
}

/// Where packets of one end go.
struct Wire<'a> {
    network: &'a mut Network,
    sizes: Sizes,
    now: Time,
    route: RouteId,
    /// The flow of its data, and of the other end's.
    own: u32,
    other: u32,
    mss: u16,
}

impl Wire<'_> {
    fn send(&mut self, data: bool, packet: Packet) {
        let flow = if data { self.own } else { self.other };
        self.network.inject(self.now.as_nanos(), self.route, Packet { flow, ..packet });
    }

    fn send_ack(&mut self, ack: Packet) {
        let len = self.sizes.ack(&ack);
        self.send(false, Packet { len, ..ack });
    }
}

impl<S: Steering> World<S> {
    /// Makes a connection whose client sends `request` bytes, to be answered with those of `spec`; it does nothing until it is
    /// [opened](Self::open).
    ///
    /// It is [finished](super::Stopped::Finished) when the client has the answer, and once more when it [is over](Self::is_over).
    pub fn add_request(&mut self, spec: FlowSpec, request: u64) -> FlowId {
        let config = &self.configs[usize::from(spec.tcp.0)];
        let exchange = Exchange {
            client: Side::new(config, request, spec.mss),
            server: Side::new(config, spec.bytes.unwrap_or_default(), spec.mss),
            done: false,
            over: false,
        };
        let (asking, answering) = (FlowKind::Asking, FlowKind::Answering);
        if let Some(index) = reusable(&mut self.free_exchanges, &self.network, 2) {
            let slot = self.flows[index as usize].slot;
            self.flows[index as usize] = Flow::new(spec, asking, slot);
            self.flows[index as usize + 1] = Flow::new(spec, answering, slot);
            self.exchanges[slot as usize] = exchange;
            return FlowId(index);
        }
        let slot = self.exchanges.len() as u32;
        self.exchanges.push(exchange);
        let first = self.push_flow(Flow::new(spec, asking, slot));
        self.push_flow(Flow::new(spec, answering, slot));
        first
    }

    /// The flow of the answers to what a flow asks; `None`: it does not ask.
    pub fn answers_of(&self, flow: FlowId) -> Option<FlowId> {
        let of = self.flows.get(flow.0 as usize)?;
        (of.kind == FlowKind::Asking).then_some(FlowId(flow.0 + 1))
    }

    /// Whether nothing of a flow that asks must be sent any more; true of those that do not ask.
    pub(super) fn is_exchange_over(&self, flow: FlowId) -> bool {
        self.exchange_of(flow).is_none_or(|(_, exchange)| exchange.over)
    }

    /// The client's or the server's half that sends.
    pub(super) fn sender_of_exchange(&self, flow: FlowId) -> Option<&Sender> {
        Some(self.socket_of_exchange(flow)?.sender())
    }

    /// The client's or the server's end.
    pub(super) fn socket_of_exchange(&self, flow: FlowId) -> Option<&Socket> {
        let (kind, exchange) = self.exchange_of(flow)?;
        let side = if kind == FlowKind::Asking { &exchange.client } else { &exchange.server };
        Some(&side.socket)
    }

    /// Application bytes of an answer that the client has.
    pub(super) fn answered_bytes(&self, flow: FlowId) -> u64 {
        let Some((_, exchange)) = self.exchange_of(flow) else { return 0 };
        let Side { count, last_payload, .. } = exchange.server;
        let received = exchange.client.socket.receiver().received().min(count);
        acked_bytes(received, self.flows[flow.0 as usize].mss, count - 1, last_payload)
    }

    fn exchange_of(&self, flow: FlowId) -> Option<(FlowKind, &Exchange)> {
        let of = self.flows.get(flow.0 as usize)?;
        Some((of.kind, self.exchanges.get(of.slot as usize).filter(|_| of.kind.is_exchange())?))
    }

    pub(super) fn open_request(&mut self, flow: u32) {
        let slot = self.flows[flow as usize].slot as usize;
        self.exchanges[slot].client.socket.open();
        self.pump_exchange(flow, Half::Sender);
    }

    pub(super) fn set_syn_timeout_of_exchange(&mut self, flow: u32, rto: Span, more_retries: u8) {
        let slot = self.flows[flow as usize].slot as usize;
        self.exchanges[slot].client.socket.set_syn_timeout(rto, more_retries);
    }

    /// Ends a connection: nothing of it is sent any more.
    pub(super) fn close_exchange(&mut self, flow: u32) {
        let of = &self.flows[flow as usize];
        let (config, slot) = (&self.configs[usize::from(of.tcp.0)], of.slot as usize);
        let Exchange { client, server, done, over } = &mut self.exchanges[slot];
        client.socket.close(config);
        server.socket.close(config);
        (*done, *over) = (true, true);
    }

    pub(super) fn deliver_to_exchange(&mut self, packet: &Packet) {
        let asks = self.flows[packet.flow as usize].kind == FlowKind::Asking;
        let first = packet.flow - u32::from(!asks);
        let carries = matches!(packet.kind, Kind::Data | Kind::Syn);
        let half = if asks == carries { Half::Receiver } else { Half::Sender };
        if self.is_exchange_over(FlowId(first)) {
            return;
        }
        if packet.kind == Kind::Syn {
            return self.answer_syn(first, packet);
        }
        let received = self.with_side(first, half, |side, _, _, _| side.socket.receiver().received());
        if packet.kind == Kind::Data && packet.seq < received {
            self.notify(first, half, Event::Duplicate);
        }
        let heard = self.with_side(first, half, |side, config, now, wire| {
            side.socket.handle_packet(config, now, packet, &mut |ack| wire.send_ack(ack))
        });
        self.note_heard(first, half, heard);
    }

    fn answer_syn(&mut self, first: u32, packet: &Packet) {
        let answer =
            self.with_side(first, Half::Receiver, |side, config, now, _| side.socket.handle_syn(config, now, packet));
        let Some(answer) = answer else { return };
        self.send_syn_ack(first, answer);
        self.pump_exchange(first, Half::Receiver);
    }

    /// Each SYN-ACK may take a route of its own.
    fn send_syn_ack(&mut self, first: u32, answer: Packet) {
        let to = self.steering.requested(self.now, FlowId(first));
        self.reroute(FlowId(first), to);
        self.with_side(first, Half::Receiver, |_, _, _, wire| wire.send_ack(answer));
    }

    pub(super) fn fire_exchange(&mut self, first: u32, half: Half) {
        let of = &mut self.flows[first as usize];
        match half {
            Half::Sender => of.sender_timer = Time::MAX,
            Half::Receiver => of.receiver_timer = Time::MAX,
        }
        if self.is_exchange_over(FlowId(first)) {
            return;
        }
        let mut again = None;
        let heard = self.with_side(first, half, |side, config, now, wire| {
            side.socket.handle_timeout(config, now, &mut |ack| match ack.kind {
                Kind::SynAck => again = Some(ack),
                _ => wire.send_ack(ack),
            })
        });
        again.into_iter().for_each(|answer| self.send_syn_ack(first, answer));
        self.note_heard(first, half, heard);
    }

    /// Does what an end does after it received something: it may be moved, and sends what it may.
    fn note_heard(&mut self, first: u32, half: Half, heard: SocketEvents) {
        if heard.accepted {
            self.notify(first, half, Event::Accepted);
        }
        if heard.signals.any() {
            if half == Half::Sender && (heard.signals.timeout() || heard.signals.syn_timeout()) {
                self.count_timeout(first);
            }
            self.notify(first, half, Event::Signals(heard.signals));
        }
        let work = self.work(first, half).filter(|_| self.is_awake(first, half));
        self.go_on(first, half, work);
    }

    /// The program at an end, which was late, does what there is to do by now.
    pub(super) fn go_on_with_exchange(&mut self, first: u32, half: Half) {
        if !self.is_exchange_over(FlowId(first)) {
            self.go_on(first, half, self.work(first, half));
        }
    }

    fn go_on(&mut self, first: u32, half: Half, work: Option<Work>) {
        work.into_iter().for_each(|work| self.run_program(first, work));
        self.pump_exchange(first, half);
        self.note_end(first);
    }

    /// What there is to do for the program at an end.
    fn work(&self, first: u32, half: Half) -> Option<Work> {
        let Exchange { client, server, done, .. } = &self.exchanges[self.flows[first as usize].slot as usize];
        let has_written = |side: &Side| side.socket.sender().supplied() > 0;
        let is_connected = || !matches!(client.socket.sender().state(), State::Closed | State::SynSent | State::Failed);
        match half {
            Half::Sender if !has_written(client) => is_connected().then_some(Work::Ask),
            Half::Sender => (!done && client.socket.receiver().is_complete()).then_some(Work::Close),
            Half::Receiver => {
                (!has_written(server) && server.socket.receiver().received() >= client.count).then_some(Work::Answer)
            }
        }
    }

    fn run_program(&mut self, first: u32, work: Work) {
        let slot = self.flows[first as usize].slot as usize;
        let Exchange { client, server, done, .. } = &mut self.exchanges[slot];
        match work {
            Work::Ask => client.socket.supply(client.count),
            Work::Answer => {
                server.socket.supply(server.count);
                self.pump_exchange(first, Half::Receiver);
                self.exchanges[slot].server.socket.shut_down();
            }
            Work::Close => {
                *done = true;
                client.socket.shut_down();
                self.finished.push_back(FlowId(first));
            }
        }
    }

    /// Sees whether the client gave up, and whether the connection is over.
    fn note_end(&mut self, first: u32) {
        let slot = self.flows[first as usize].slot as usize;
        let Exchange { client, server, done, over } = &mut self.exchanges[slot];
        let failed = client.socket.sender().state() == State::Failed;
        if !*over && (failed || client.is_over() && server.is_over()) {
            (*done, *over) = (true, true);
            self.finished.push_back(FlowId(first));
        }
    }

    /// Sends what an end may send, and sees when it wants to be woken.
    fn pump_exchange(&mut self, first: u32, half: Half) {
        let resent = self.with_side(first, half, |side, config, now, wire| {
            let resent = side.transmit(config, now, wire);
            if reports_retransmits(side.socket.sender()) { resent } else { 0 }
        });
        if resent > 0 {
            self.notify(first, half, Event::Retransmitted(resent));
        }
        let timeout = self.with_side(first, half, |side, _, _, _| side.socket.poll_timeout());
        let of = &mut self.flows[first as usize];
        let armed = if half == Half::Sender { &mut of.sender_timer } else { &mut of.receiver_timer };
        self.timers.arm(armed, timeout, first, half);
    }

    /// An end's program may move what that end sends.
    fn notify(&mut self, first: u32, half: Half, event: Event) {
        let Exchange { client, server, .. } = &self.exchanges[self.flows[first as usize].slot as usize];
        let socket = if half == Half::Sender { &client.socket } else { &server.socket };
        let (received, progress) = (socket.receiver().received(), socket.receiver().progress());
        let end = End { received, progress, ..End::of(half, socket.sender()) };
        let to = self.steering.happened(self.now, FlowId(first), end, event);
        self.reroute(FlowId(first), to);
    }

    fn with_side<R>(
        &mut self,
        first: u32,
        half: Half,
        act: impl FnOnce(&mut Side, &Config, Time, &mut Wire<'_>) -> R,
    ) -> R {
        let of = &self.flows[first as usize];
        let Exchange { client, server, .. } = &mut self.exchanges[of.slot as usize];
        let (side, route, own, other) = match half {
            Half::Sender => (client, of.forward, first, first + 1),
            Half::Receiver => (server, of.reverse, first + 1, first),
        };
        let (network, sizes, now, mss) = (&mut self.network, self.sizes, self.now, of.mss);
        let mut wire = Wire { network, sizes, now, route, own, other, mss };
        act(side, &self.configs[usize::from(of.tcp.0)], now, &mut wire)
    }
}
