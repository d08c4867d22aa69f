//! Limits: how far an interface lets each flow come, so that its cache has room for all that may.

use sidestep_net::{Bytes, Span, Time};

use super::{Cache, Flow, NONE, may_leave};
use crate::LimitFields;

/// Packets of a flow for which there is always room, so that none waits for ever: its ACKs, of every second packet, bring
/// new limits.
const MIN_PACKETS: u64 = 2;
/// A flow begins with this part of the free room at most, so that flows which begin together all find some. So much of the
/// whole is for the least that flows have.
const PART: u64 = 8;
/// The length of a packet, as long as none has come.
const PACKET: u32 = 1_500;

/// What an interface lets come of a flow. Ends are packets from the flow's first on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    /// The end of what has come.
    seen: u32,
    /// How far it may come; zero: no ACK of it has passed.
    limit: u32,
    /// Bytes from `seen` to `limit`.
    promised: u64,
    /// The end of what has arrived at the receiver.
    acked: u32,
    /// The limit that was advertised last, by an ACK or a window update: the lesser of ours and the next router's.
    advertised: u32,
    /// [`LimitFields::back`] of its last ACK.
    back: u32,
    /// Its longest packet.
    len: u32,
    /// When a packet or an ACK of it came last, and when an ACK.
    touched: Time,
    acked_at: Time,
}

impl Cache {
    /// A packet of a flow has come, of `len` bytes; returns whether it may leave, and whether those of its flow that wait
    /// must go first.
    pub(crate) fn arrives(&mut self, now: Time, key: u64, end: u32, len: u32) -> (bool, bool) {
        let at = self.flow(now, key);
        self.last = at;
        let flow = &mut self.flows[at as usize];
        let limits = &mut flow.limits;
        (limits.seen, limits.len, limits.touched) = (limits.seen.max(end), limits.len.max(len), now);
        limits.count(&mut self.promised);
        (end <= flow.next, flow.first != NONE && may_leave(flow, &self.packets))
    }

    /// An ACK of a flow has come back, whose `limit` is how far the next router lets the flow come. Returns
    /// how far it may come to here, where all flows have `high` bytes together.
    ///
    /// Each has an equal part of them, for what is stored and what may come. So none has to be dropped, whatever delays are.
    /// A flow whose data come by another way than its ACKs has no limit here.
    pub(crate) fn limit(&mut self, now: Time, key: u64, ack: &LimitFields, high: Bytes) -> u32 {
        let LimitFields { acked, limit: next, back, .. } = *ack;
        let at = self.flow(now, key);
        if acked > self.flows[at as usize].limits.seen {
            self.unlimit(at);
            return u32::MAX;
        }
        let flow = &mut self.flows[at as usize];
        let (could, has_packets) = (may_leave(flow, &self.packets), flow.first != NONE);
        // None is known before the first ACK, and none is taken back.
        flow.next = if flow.limits.limit == 0 { next } else { flow.next.max(next) };
        self.limited += u32::from(flow.limits.limit == 0);
        (flow.limits.touched, flow.limits.acked_at, flow.served) = (now, now, now);
        self.high = high;
        let (limit, part) = self.allowed(at);
        self.worth = part * u64::from(PACKET) / PART * (PART - 1);
        let flow = &mut self.flows[at as usize];
        flow.limits.limit = limit;
        flow.limits.count(&mut self.promised);
        (flow.limits.acked, flow.limits.advertised, flow.limits.back) = (acked, limit.min(flow.next), back);
        if has_packets {
            self.refile(at, could);
        }
        limit
    }

    /// How far a flow may come, and its part in packets.
    fn allowed(&self, at: u32) -> (u32, u64) {
        let Flow { limits, bytes, .. } = self.flows[at as usize];
        let len = u64::from(limits.len.max(PACKET));
        let usable = self.high.get() - self.high.get() / PART;
        let free = usable.saturating_sub(self.bytes + self.promised) / len;
        let free = free.div_ceil(if limits.seen == 0 { PART } else { 2 });
        let part = usable / u64::from(self.limited.max(1));
        let least = MIN_PACKETS.saturating_sub(bytes / len);
        let reach = limits.limit.max(limits.seen).saturating_add(free as u32);
        let wanted = limits.seen.saturating_add((part.saturating_sub(bytes) / len) as u32).min(reach);
        (limits.limit.max(wanted).max(limits.seen.saturating_add(least as u32)), part / len)
    }

    /// The packet that has [come](Self::arrives) last passes the cache.
    pub(crate) fn passes(&mut self) {
        self.note_room(self.last);
    }

    /// A packet of a flow has left: if much more may come than was advertised, a window update is to be sent.
    ///
    /// The ACKs of a burst are a burst. Packets leave between two bursts, and without an update a round trip would pass before
    /// the sender learns of it.
    pub(super) fn note_room(&mut self, at: u32) {
        let flow = &self.flows[at as usize];
        if flow.limits.limit == 0 || flow.bytes + flow.limits.promised >= self.worth {
            return;
        }
        let Flow { limits, next, key, .. } = *flow;
        let (limit, part) = self.allowed(at);
        let more = limit.min(next).saturating_sub(limits.advertised);
        if u64::from(more) < (part / PART).max(MIN_PACKETS) {
            return;
        }
        let flow = &mut self.flows[at as usize];
        (flow.limits.limit, flow.limits.advertised) = (limit, limit.min(next));
        flow.limits.count(&mut self.promised);
        let Limits { acked, back, advertised, .. } = flow.limits;
        self.updates.push((key, LimitFields { acked, limit: advertised, back, ..LimitFields::default() }));
    }

    /// Takes a window update that is to be sent, with its flow.
    pub(crate) fn take_update(&mut self) -> Option<(u64, LimitFields)> {
        self.updates.pop()
    }

    /// All of a flow has arrived, or nothing of it has come for long.
    pub(crate) fn end(&mut self, key: u64) {
        if let Some(at) = self.by_key.get(&key).copied() {
            self.unlimit(at);
        }
    }

    /// Ends the flows of which nothing has come for so long.
    pub(crate) fn end_idle(&mut self, now: Time, idle: Span) {
        for at in 0..self.flows.len() as u32 {
            let Flow { first, limits, .. } = self.flows[at as usize];
            if !limits.is_none() && first == NONE && now.since(limits.touched) >= idle {
                self.unlimit(at);
            }
        }
    }

    /// Ends the flows that wait for room at the next router, and of which no ACK has passed for so long: their ACKs take another way,
    /// and nobody would let them go on.
    pub(crate) fn end_held(&mut self, now: Time, patience: Span) {
        for at in 0..self.flows.len() as u32 {
            let Flow { first, limits, .. } = self.flows[at as usize];
            if limits.limit > 0 && first != NONE && !self.may_leave(at) && now.since(limits.acked_at) >= patience {
                self.unlimit(at);
            }
        }
    }

    /// Ends the flows of which nothing waits.
    pub(crate) fn end_all(&mut self) {
        self.end_idle(Time::MAX, Span::ZERO);
    }

    /// Bytes that it holds, and that flows may send to it.
    pub(crate) fn committed(&self) -> Bytes {
        Bytes::new(self.bytes + self.promised)
    }

    /// Whether it knows flows that may be idle.
    pub(crate) fn knows_flows(&self) -> bool {
        !self.by_key.is_empty()
    }

    fn unlimit(&mut self, at: u32) {
        let could = self.may_leave(at);
        let flow = &mut self.flows[at as usize];
        self.limited -= u32::from(flow.limits.limit > 0);
        self.promised -= flow.limits.promised;
        (flow.next, flow.limits) = (u32::MAX, Limits::default());
        if flow.first == NONE {
            self.forget(at);
        } else {
            self.refile(at, could);
        }
    }
}

impl Limits {
    /// Whether nothing has come, and may come.
    pub(super) fn is_none(&self) -> bool {
        self.seen == 0 && self.limit == 0
    }

    /// Brings the sum of what is promised up to date.
    fn count(&mut self, promised: &mut u64) {
        let now = u64::from(self.limit.saturating_sub(self.seen)) * u64::from(self.len.max(PACKET));
        *promised = *promised - self.promised + now;
        self.promised = now;
    }
}
