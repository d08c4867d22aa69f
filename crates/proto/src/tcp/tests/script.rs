//! A network between one sender and one receiver, 10 ms in each direction, that loses and marks what a script lists.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_net::{Span, Time};

use crate::{
    packet::{Flags, Kind, Packet},
    tcp::{Config, Receiver, ReceiverTimeout, Sender, SenderTimeout},
};

pub(super) struct Script {
    pub(super) config: Config,
    pub(super) sender: Sender,
    receiver: Receiver,
    now: Time,
    one_way: Span,
    /// Packets by the time of their arrival, and by their number.
    wire: BTreeMap<(Time, u64), Packet>,
    carried: u64,
    lost: BTreeSet<(u32, u32)>,
    lost_acks: BTreeSet<u32>,
    marked: BTreeSet<u32>,
    mark_every: Option<u32>,
    /// By segment, how often it was sent.
    transmissions: BTreeMap<u32, u32>,
    /// By segment, how often it was lost.
    losses: BTreeMap<u32, u32>,
    syns_to_lose: u32,
    audited: bool,
    opened: bool,
    pub(super) sent: Vec<Sent>,
    acks: Vec<u64>,
    acks_sent: u32,
    acks_lost: u32,
    timeouts: u32,
    fired: Vec<&'static str>,
    recoveries: u32,
    pub(super) reductions: u32,
    pub(super) before_reduction: f64,
    pub(super) answered: bool,
    finished: Option<Time>,
}

/// A timer that is due, and whose it is.
#[derive(Clone, Copy)]
enum Timeout {
    Sender(SenderTimeout),
    Receiver(ReceiverTimeout),
}

/// A packet that the sender sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) ms: u64,
    pub(super) what: String,
}

pub(super) struct Run {
    pub(super) sent: Vec<Sent>,
    /// When ACKs were sent, in ms.
    pub(super) acks: Vec<u64>,
    pub(super) finished_ms: Option<u64>,
    pub(super) received: u32,
    pub(super) timeouts: u32,
    /// What each timer that fired was for.
    pub(super) fired: Vec<&'static str>,
    pub(super) recoveries: u32,
    pub(super) lost_acks: u32,
    /// By segment, how often it was sent, and how often it was lost.
    pub(super) transmissions: BTreeMap<u32, u32>,
    pub(super) losses: BTreeMap<u32, u32>,
}

pub(super) fn sent(list: &[(u64, &str)]) -> Vec<Sent> {
    list.iter().map(|(ms, what)| Sent { ms: *ms, what: (*what).into() }).collect()
}

impl Run {
    /// Segments that were sent again, and when in ms.
    pub(super) fn again(&self) -> Vec<(u32, u64)> {
        let again = self.sent.iter().filter_map(|one| Some((one.what.strip_suffix(" again")?, one.ms)));
        again.map(|(seq, ms)| (seq.parse().unwrap(), ms)).collect()
    }
}

impl Script {
    /// A connection that sends `segments` segments.
    pub(super) fn new(config: Config, segments: u32) -> Self {
        let mut sender = Sender::new(&config);
        sender.supply(segments);
        sender.finish();
        Script {
            sender,
            receiver: Receiver::new(&config),
            config,
            now: Time::ZERO,
            one_way: Span::from_millis(10),
            wire: BTreeMap::new(),
            carried: 0,
            lost: BTreeSet::new(),
            lost_acks: BTreeSet::new(),
            marked: BTreeSet::new(),
            mark_every: None,
            transmissions: BTreeMap::new(),
            losses: BTreeMap::new(),
            syns_to_lose: 0,
            audited: false,
            opened: false,
            sent: Vec::new(),
            acks: Vec::new(),
            acks_sent: 0,
            acks_lost: 0,
            timeouts: 0,
            fired: Vec::new(),
            recoveries: 0,
            reductions: 0,
            before_reduction: 0.0,
            answered: false,
            finished: None,
        }
    }

    /// The sender never signals that it is done.
    pub(super) fn endless(mut self) -> Self {
        self.sender = Sender::new(&self.config);
        self
    }

    /// Loses the `nth` transmission of a segment.
    pub(super) fn lose(mut self, seq: u32, nth: u32) -> Self {
        self.lost.insert((seq, nth));
        self
    }

    pub(super) fn lose_syns(mut self, count: u32) -> Self {
        self.syns_to_lose = count;
        self
    }

    pub(super) fn syn_timeout(mut self, rto: Span, more_retries: u8) -> Self {
        self.sender.set_syn_timeout(rto, more_retries);
        self
    }

    pub(super) fn lose_acks(mut self, numbers: BTreeSet<u32>) -> Self {
        self.lost_acks = numbers;
        self
    }

    /// Marks the first transmission of a segment.
    pub(super) fn mark(mut self, seq: u32) -> Self {
        self.marked.insert(seq);
        self
    }

    /// Marks one segment of every `every`.
    pub(super) fn mark_share(mut self, every: u32) -> Self {
        self.mark_every = Some(every);
        self
    }

    /// Bounds what is in flight.
    pub(super) fn window(mut self, segments: u32) -> Self {
        self.config.receive_window = segments;
        self
    }

    /// Checks the scoreboard's counts after each event.
    pub(super) fn audited(mut self) -> Self {
        self.audited = true;
        self
    }

    /// From now on packets take `one_way` milliseconds in each direction.
    pub(super) fn slow_down(&mut self, one_way: u64) {
        self.one_way = Span::from_millis(one_way);
    }

    pub(super) fn now_ms(&self) -> u64 {
        ms(self.now)
    }

    pub(super) fn run(&mut self) -> Run {
        self.run_until(10_000_000)
    }

    /// Runs until nothing happens any more, or until a time in ms.
    pub(super) fn run_until(&mut self, end: u64) -> Run {
        let end = Time::ZERO + Span::from_millis(end);
        if !self.opened {
            self.opened = true;
            self.sender.open();
        }
        self.pump();
        loop {
            let arrival = self.wire.first_key_value().map_or(Time::MAX, |((at, _), _)| *at);
            let timeout = self.next_timeout();
            let timer = timeout.map_or(Time::MAX, |(due, _)| due);
            let next = arrival.min(timer);
            if next > end || next == Time::MAX {
                break;
            }
            self.now = self.now.max(next);
            match timeout {
                Some((due, timeout)) if due < arrival => self.fire(timeout),
                _ => {
                    let Some((_, packet)) = self.wire.pop_first() else { break };
                    self.arrive(&packet);
                }
            }
            self.pump();
            if self.audited
                && self.config.sack
                && let Some((counts, recounted)) = self.sender.audit()
            {
                assert_eq!(counts, recounted);
            }
        }
        if end < Time::ZERO + Span::from_millis(10_000_000) {
            self.now = self.now.max(end);
        }
        Run {
            sent: self.sent.clone(),
            acks: self.acks.clone(),
            finished_ms: self.finished.map(ms),
            received: self.receiver.received(),
            timeouts: self.timeouts,
            fired: self.fired.clone(),
            recoveries: self.recoveries,
            lost_acks: self.acks_lost,
            transmissions: self.transmissions.clone(),
            losses: self.losses.clone(),
        }
    }

    fn arrive(&mut self, packet: &Packet) {
        match packet.kind {
            Kind::Syn => {
                let reply = self.receiver.handle_syn(&self.config, self.now, packet);
                reply.into_iter().for_each(|reply| self.carry(reply));
            }
            Kind::Data => {
                let mut replies = Vec::new();
                self.receiver.handle_data(&self.config, self.now, packet, &mut |ack| replies.push(ack));
                replies.into_iter().for_each(|ack| self.acknowledge(ack));
            }
            _ => {
                let before = self.sender.cwnd();
                let acked = self.sender.handle_ack(&self.config, self.now, packet);
                self.recoveries += u32::from(acked.signals.entered_recovery());
                if acked.signals.reduced() {
                    self.reductions += 1;
                    self.before_reduction = before;
                }
                if acked.signals.finished() {
                    self.finished = Some(self.now);
                }
            }
        }
    }

    /// The earliest timeout, and whose it is.
    fn next_timeout(&self) -> Option<(Time, Timeout)> {
        let receiver = self.receiver.next_timeout().map(|(due, timeout)| (due, Timeout::Receiver(timeout)));
        let sender = self.sender.next_timeout().map(|(due, timeout)| (due, Timeout::Sender(timeout)));
        receiver.into_iter().chain(sender).min_by_key(|(due, _)| *due)
    }

    fn fire(&mut self, timeout: Timeout) {
        match timeout {
            Timeout::Receiver(timeout) => {
                self.fired.push(timeout.as_str());
                if let Some(ack) = self.receiver.handle_timeout(&self.config, self.now) {
                    self.acknowledge(ack);
                }
            }
            Timeout::Sender(timeout) => {
                self.fired.push(timeout.as_str());
                let signals = self.sender.handle_timeout(&self.config, self.now);
                self.timeouts += u32::from(signals.timeout() || signals.syn_timeout() && !signals.finished());
                if signals.finished() {
                    self.finished = Some(self.now);
                }
            }
        }
    }

    fn acknowledge(&mut self, ack: Packet) {
        self.acks.push(ms(self.now));
        self.acks_sent += 1;
        if self.lost_acks.contains(&(self.acks_sent - 1)) {
            self.acks_lost += 1;
            return;
        }
        self.carry(ack);
    }

    fn pump(&mut self) {
        while let Some(transmit) = self.sender.poll_transmit(&self.config, self.now) {
            let again = if transmit.flags.has(Flags::RETRANSMIT) { " again" } else { "" };
            let what = if transmit.kind == Kind::Syn { "syn".into() } else { format!("{}{again}", transmit.seq) };
            self.sent.push(Sent { ms: ms(self.now), what });
            let mut packet = Packet {
                kind: transmit.kind,
                seq: transmit.seq,
                flags: transmit.flags,
                sent: self.now.into(),
                ..Packet::default()
            };
            if transmit.kind == Kind::Syn {
                if self.syns_to_lose > 0 {
                    self.syns_to_lose -= 1;
                    continue;
                }
                self.carry(packet);
                continue;
            }
            self.answered |= transmit.flags.has(Flags::CWR);
            let nth = self.transmissions.entry(transmit.seq).or_default();
            *nth += 1;
            if self.lost.contains(&(transmit.seq, *nth)) {
                *self.losses.entry(transmit.seq).or_default() += 1;
                continue;
            }
            let mark = self.marked.contains(&transmit.seq) && *nth == 1
                || self.mark_every.is_some_and(|every| transmit.seq % every == 0);
            packet.flags = packet.flags.with(Flags::when(mark && transmit.flags.has(Flags::ECT), Flags::CE));
            self.carry(packet);
        }
    }

    fn carry(&mut self, packet: Packet) {
        self.carried += 1;
        self.wire.insert((self.now + self.one_way, self.carried), packet);
    }
}

fn ms(time: Time) -> u64 {
    // The SYN's time is a nanosecond, as zero means none: round trips are short by that.
    (time.as_nanos() + 500_000) / 1_000_000
}
