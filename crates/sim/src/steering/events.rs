//! What moves flows when something happens: the programs of both ends, each what its end sends.

use rand_core::Rng;
use sidestep_engine::{End, Event, FlowId, Half, Move};
use sidestep_net::{Span, Time};
use sidestep_policy::Round;
use sidestep_proto::tcp::Signals;

use super::{Acceptor, By, Counts, Steer, read};

impl Steer {
    /// The policy decides.
    pub(super) fn decide(&mut self, now: Time, flow: FlowId, end: End<'_>, event: Event) -> Move {
        let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) else { return Move::default() };
        let mss = steered.mss;
        let By::Policy { data, acks } = &mut steered.by else { return Move::default() };
        let chosen = match (end.half, acks) {
            (Half::Sender, _) => data,
            (Half::Receiver, Some(Acceptor::Accepted(chosen))) => chosen,
            (Half::Receiver, _) => return Move::default(),
        };
        let random = self.random.get_mut(chosen.node.index()).map_or(0, Rng::next_u32);
        let connection = &mut chosen.connection;
        let sent = end.sender.map_or(Round { now, ..Round::default() }, |sender| read(now, sender, mss));
        let round = Round { received: end.received, srtt: end.srtt.unwrap_or_default(), ..sent };
        let decision = match event {
            Event::Signals(signals) if is_timeout(signals) => {
                connection.handle_timeout(round, signals.syn_timeout(), random)
            }
            // The end of the handshake is that of a round trip.
            Event::Signals(signals) if signals.round_ended() || signals.established() => {
                connection.handle_round(round, random)
            }
            Event::Retransmitted(segments) => connection.handle_retransmit(round, segments, random),
            Event::Duplicate => connection.handle_duplicate(round, quiet(now, end), random),
            Event::Accepted | Event::Signals(_) => return Move::default(),
        };
        let of_acks = end.half == Half::Receiver;
        if let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) {
            // Moves of both ends are the connection's.
            steered.moves += u32::from(of_acks && decision.moved);
        }
        self.decided(now, flow, decision, of_acks)
    }

    /// Linux gives a new label, or does not.
    pub(super) fn label(&mut self, now: Time, flow: FlowId, end: End<'_>, event: Event) -> Move {
        let Some((steered, random)) = self.steered(flow) else { return Move::default() };
        let By::Label { client, server, .. } = &mut steered.by else { return Move::default() };
        let of_acks = end.half == Half::Receiver;
        let Counts { rule, duplicates, .. } = if of_acks { server } else { client };
        let reason = match event {
            Event::Signals(signals) if is_timeout(signals) => {
                if let Some(rule) = rule {
                    rule.handle_timeout(now, random.rotate_left(16));
                }
                if signals.syn_timeout() { "syn_timeout" } else { "rto" }
            }
            Event::Signals(signals) if signals.round_ended() => {
                let Some(rule) = rule else { return Move::default() };
                let Some(sender) = end.sender else { return Move::default() };
                if !rule.handle_round(now, sender.delivered(), sender.delivered_ce(), sender.in_flight() == 0) {
                    return Move::default();
                }
                rule.reason()
            }
            Event::Duplicate => {
                *duplicates += 1;
                // Linux (tcp_rcv_spurious_retrans): one may be a spurious retransmission, more mean that the ACKs do not
                // arrive.
                if *duplicates < 2 {
                    return Move::default();
                }
                *duplicates = 0;
                "duplicates"
            }
            _ => return Move::default(),
        };
        self.relabel(now, flow, random, reason, of_acks)
    }

    /// The path of a flow's answers, by its index; `None` if no policy moves them.
    pub fn path_of_answers(&self, flow: FlowId) -> Option<usize> {
        match &self.flows.get(flow.0 as usize)?.as_ref()?.by {
            By::Policy { acks: Some(Acceptor::Accepted(chosen)), .. } => Some(chosen.connection.path()),
            _ => None,
        }
    }
}

fn is_timeout(signals: Signals) -> bool {
    signals.timeout() || signals.syn_timeout()
}

/// How long an end has received nothing new.
fn quiet(now: Time, end: End<'_>) -> Span {
    end.progress.map_or(Span::ZERO, |at| now.since(at))
}
