//! What moves connections that ask and are answered: the programs of both ends, each what its end sends.

use rand_core::Rng;
use sidestep_model::Time;
use sidestep_policy::Round;
use sidestep_proto::tcp::{Signals, Socket};

use super::{Accepting, By, Steer, read};
use crate::engine::{Event, FlowId, Half, Move};

impl Steer {
    /// What one end of a connection is to do about an event.
    pub(super) fn happened_to(&mut self, now: Time, flow: FlowId, end: Half, socket: &Socket, event: Event) -> Move {
        let Some(Some(steered)) = self.flows.get(flow.0 as usize) else { return Move::default() };
        match &steered.by {
            By::Policy { .. } if event == Event::Accepted => self.accepted(now, flow),
            By::Policy { .. } => self.decide(now, flow, end, socket, event),
            By::Label { .. } => self.label(now, flow, end, socket, event),
            By::Nothing | By::Closing(..) => Move::default(),
        }
    }

    fn decide(&mut self, now: Time, flow: FlowId, end: Half, socket: &Socket, event: Event) -> Move {
        let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) else { return Move::default() };
        let mss = steered.mss;
        let By::Policy { data, acks } = &mut steered.by else { return Move::default() };
        let chosen = match (end, acks) {
            (Half::Sender, _) => data,
            (Half::Receiver, Some(Accepting::Accepted(chosen, _))) => chosen,
            (Half::Receiver, _) => return Move::default(),
        };
        let random = self.random.get_mut(chosen.node.index()).map_or(0, Rng::next_u32);
        let connection = &mut chosen.connection;
        let round = Round { received: socket.receiver().received(), ..read(now, socket.sender(), mss) };
        let decision = match event {
            Event::Signals(signals) if is_timeout(signals) => {
                connection.handle_timeout(round, signals.syn_timeout(), random)
            }
            // The end of the handshake is that of a round trip.
            Event::Signals(signals) if signals.round_ended() || signals.established() => {
                connection.handle_round(round, random)
            }
            Event::Retransmitted(segments) => connection.handle_retransmit(round, segments, random),
            Event::Duplicate => connection.handle_duplicate(round, now.since(socket.receiver().progress()), random),
            Event::Accepted | Event::Signals(_) => return Move::default(),
        };
        let of_acks = end == Half::Receiver;
        if let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize) {
            // Moves of both ends are the connection's.
            steered.moves += u32::from(of_acks && decision.moved);
        }
        self.decided(now, flow, decision, of_acks)
    }

    fn label(&mut self, now: Time, flow: FlowId, end: Half, socket: &Socket, event: Event) -> Move {
        let Some((steered, random)) = self.steered(flow) else { return Move::default() };
        let By::Label { plb, duplicates, server, .. } = &mut steered.by else { return Move::default() };
        let of_acks = end == Half::Receiver;
        let (plb, duplicates) = if of_acks { (&mut server.plb, &mut server.duplicates) } else { (plb, duplicates) };
        let reason = match event {
            Event::Signals(signals) if is_timeout(signals) => {
                if let Some((knobs, plb)) = plb {
                    plb.handle_timeout(knobs, now, random.rotate_left(16));
                }
                if signals.syn_timeout() { "syn_timeout" } else { "rto" }
            }
            Event::Signals(signals) if signals.round_ended() => {
                let Some((knobs, plb)) = plb else { return Move::default() };
                let sender = socket.sender();
                if !plb.handle_round(knobs, now, sender.delivered(), sender.delivered_ce(), sender.in_flight() == 0) {
                    return Move::default();
                }
                "plb"
            }
            Event::Duplicate => {
                *duplicates += 1;
                // As of a connection in one direction.
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

    /// A flow that asks has ended: so has the connection to the server's program.
    pub fn end_answers(&mut self, flow: FlowId, round: Round) {
        if let Some(Some(steered)) = self.flows.get_mut(flow.0 as usize)
            && let By::Policy { acks: Some(Accepting::Accepted(chosen, _)), .. } = &mut steered.by
        {
            chosen.connection.close(round);
        }
    }

    /// The path of a flow's answers, by its index; `None` if the path changer does not move them.
    pub fn path_of_answers(&self, flow: FlowId) -> Option<usize> {
        match &self.flows.get(flow.0 as usize)?.as_ref()?.by {
            By::Policy { acks: Some(Accepting::Accepted(chosen, _)), .. } => Some(chosen.connection.path()),
            _ => None,
        }
    }
}

fn is_timeout(signals: Signals) -> bool {
    signals.timeout() || signals.syn_timeout()
}
