//! The condition for no loss: whether the margin of a cache covers what can arrive until those before it have slowed down.
//!
//! A flow goes on as if no router had pressed back until an ACK of it has passed the cache with a *slow down*, and that has
//! reached those before. Over an input of capacity C so long after the ACK as two delays take, at most C · (2 · delay + time
//! until the ACK) arrives: less where the router before has so much neither stored nor from its own inputs. The delays and
//! capacities are those of the topology; how long ACKs take, and wait for their links, is measured, flows that begin meanwhile
//! included. That bound holds only where the router before has its packets from hosts. It gates what it has stored, and what
//! names the interface that presses back. What routers further up have stored names nothing, and passes it whenever it comes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use sidestep_net::{ArcId, Bytes, Rate, Ratio, Span, Time};
use sidestep_scenario::{Flow, Scenario};

use crate::{AckProcessing, AfterTimeout, Backpressure, CustodyMeasures, InrppSettings, Notifications, State};

/// What every cache of a run may ask of the others. A simulation runs in one thread; the atomic numbers only let its nodes
/// share them.
#[derive(Debug)]
pub(super) struct Network {
    arcs: Vec<Link>,
    expiry: Span,
    /// How long packets still come over a detour after the interface behind it has left push.
    detours: Span,
    /// Whether ACKs have come back where their data did not go: then *slow down*s do not reach those who are meant.
    astray: AtomicBool,
}

#[derive(Debug)]
struct Link {
    rate: Rate,
    delay: Span,
    /// Whether a host sends by it.
    is_access: bool,
    /// Bytes in the cache before it now.
    held: AtomicU64,
    /// The longest that an ACK which names an interface that presses back has waited for it, in nanoseconds.
    waits: AtomicU64,
}

/// Packets that leave for credits which were kept.
const CREDITS: u64 = 64;
const PERMITS: u64 = 4;
const PACKET: u64 = 1_500;
/// Longer than what ACKs have let go is in flight.
const RECENT: Span = Span::from_millis(500);

impl Network {
    /// What the condition follows from; `None` where it does not apply: ACKs may get lost or take other routes than *slow down*s
    /// need, or hosts do not obey.
    pub(super) fn of(scenario: &Scenario, settings: &InrppSettings) -> Option<Arc<Network>> {
        let topology = &scenario.topology;
        let all = || (0..topology.arc_count() as u32).map(ArcId);
        let lossless = scenario.events.is_empty()
            && scenario.impairments.is_empty()
            && all().all(|arc| topology.channel(arc).loss == Ratio::ZERO && topology.channel(arc).burst_loss.is_none());
        let ignores = |flow: &Flow| {
            let own = flow.transport().and_then(|transport| transport.system.as_ref());
            own.is_some_and(|spec| spec.name == crate::INRPP.name && !spec.params.is_empty())
        };
        let as_the_figure = settings.ack_processing == AckProcessing::Figure
            && settings.notifications == Notifications::Acks
            && settings.rto == AfterTimeout::Resend
            && settings.obedient
            && settings.backpressure == Backpressure::Notices;
        if !lossless || !as_the_figure || scenario.flows.iter().any(ignores) {
            return None;
        }
        let link = |arc| {
            let (own, tail, head) = (topology.channel(arc), topology.tail(arc), topology.head(arc));
            let mut link = Link {
                rate: own.rate,
                delay: own.delay,
                is_access: !topology.is_router(tail),
                held: AtomicU64::new(0),
                waits: AtomicU64::new(0),
            };
            if !settings.detours || link.is_access || !topology.is_router(head) {
                return link;
            }
            // What goes around it comes to its end as well.
            for first in topology.outgoing(tail) {
                let over = topology.head(*first);
                let second = topology.outgoing(over).iter().find(|second| topology.head(**second) == head);
                let Some(second) = second.filter(|_| over != head && topology.is_router(over)) else { continue };
                let (first, second) = (topology.channel(*first), topology.channel(*second));
                let around = first.rate.min(second.rate).bits_per_sec();
                link.rate = Rate::from_bits_per_sec(link.rate.bits_per_sec().saturating_add(around));
                link.delay = link.delay.max(first.delay + second.delay + settings.buffer);
            }
            link
        };
        // A probe, its answer and the packets wait in a buffer each.
        let detours =
            settings.decision_interval + settings.probe_interval + settings.buffer + settings.buffer + settings.buffer;
        Some(Arc::new(Network {
            arcs: all().map(link).collect(),
            expiry: settings.expiry,
            detours,
            astray: AtomicBool::new(false),
        }))
    }

    fn link(&self, arc: ArcId) -> Option<&Link> {
        self.arcs.get(arc.index())
    }
}

impl Link {
    /// What comes over it at most in a time.
    fn carries(&self, span: Span) -> u64 {
        if self.rate == Rate::default() { u64::MAX } else { self.rate.bytes_in(span).get() }
    }
}

/// A cache, and what has come to it since it presses back.
#[derive(Debug)]
pub(super) struct Custody {
    network: Arc<Network>,
    arc: ArcId,
    /// S_high, and the room above it.
    high: Bytes,
    margin: Bytes,
    /// When flows last received *slow down*, while the cache presses back.
    told: BTreeMap<u64, Time>,
    /// The flows of which packets have come since.
    counted: BTreeSet<u64>,
    burst: Option<Burst>,
    /// Bytes for which ACKs have gone on while it presses back, less those that have left.
    surplus: i64,
    /// What it held and had dropped when that was last looked at, and what has come since.
    level: i64,
    /// The flows that have come, and the last of them.
    flows: BTreeSet<u64>,
    last: Option<u64>,
    /// When ACKs have gone on of late.
    recent: VecDeque<Time>,
    /// Whether it has ever pressed back, and the most that the margin should have held.
    pressed: bool,
    needed: u64,
}

/// A time in which flows come that have not received a *slow down*.
#[derive(Debug)]
struct Burst {
    since: Time,
    /// What the cache held above S_high when it began.
    excess: u64,
    untold: BTreeSet<u64>,
    /// When the last packet came.
    seen: Time,
    /// When the last of them was notified; `None`: some are not.
    ended: Option<Time>,
    inputs: BTreeMap<ArcId, Input>,
    /// What ACKs have let go that came since, less what has left since: as it was when the burst began, and the most.
    base: i64,
    most: i64,
    /// What ACKs had let go that was in flight.
    pending: u64,
}

/// An arc over which such flows come.
#[derive(Debug, Default)]
struct Input {
    /// The paths from here to the cache, each with this arc first: an ACK takes them back.
    paths: BTreeSet<Vec<ArcId>>,
    /// How long a detour that ends by itself still brings packets.
    lasts: Span,
    /// What the cache before it held when the first came.
    held: u64,
    /// The arcs before it.
    before: BTreeSet<ArcId>,
    /// Whether it is a detour's, which ends by itself.
    is_detour: bool,
    /// Whether it leads to the cache itself.
    is_last: bool,
}

/// A data packet that comes to a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) flow: u64,
    pub(super) len: u32,
    /// Whether a timeout has sent it.
    pub(super) again: bool,
}

/// A data packet that comes to a cache which presses back, of a flow that has to be accounted for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'a> {
    pub(super) flow: u64,
    /// The arc of its detour, if it comes over one.
    pub(super) detour: Option<ArcId>,
    /// The arcs that it has come over, as its route has them.
    pub(super) before: &'a [ArcId],
}

/// What a cache holds, and how many packets it has dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) held: Bytes,
    pub(super) dropped: u64,
}

impl Custody {
    pub(super) fn new(network: Arc<Network>, arc: ArcId, high: Bytes, room: Bytes) -> Custody {
        let margin = room - high;
        Custody {
            network,
            arc,
            high,
            margin,
            told: BTreeMap::new(),
            counted: BTreeSet::new(),
            burst: None,
            surplus: 0,
            level: 0,
            flows: BTreeSet::new(),
            last: None,
            recent: VecDeque::new(),
            pressed: false,
            needed: 0,
        }
    }

    /// Notes what the cache holds.
    pub(super) fn holds(&self, held: Bytes) {
        if let Some(link) = self.network.link(self.arc) {
            link.held.store(held.get(), Ordering::Relaxed);
        }
    }

    /// A data packet has come, after which the cache holds so much. Whether it has to be [accounted for](Self::arrives).
    pub(super) fn sees(&mut self, now: Time, state: State, packet: Seen, level: Level) -> bool {
        let Seen { flow, len, again } = packet;
        if self.last.replace(flow) != Some(flow) {
            self.flows.insert(flow);
        }
        self.level += i64::from(len);
        if again {
            // A timeout sends without an ACK.
            self.surplus += i64::from(len);
        }
        self.leaves(level);
        if let Some(burst) = &mut self.burst {
            burst.seen = now;
        }
        let is_counted = match &self.burst {
            Some(burst) if !self.is_told(now, flow) => burst.untold.contains(&flow),
            _ => self.is_told(now, flow) && self.counted.contains(&flow),
        };
        state == State::Backpressure && !is_counted
    }

    /// Whether a flow has received *slow down*, so that it does still.
    fn is_told(&self, now: Time, flow: u64) -> bool {
        self.told.get(&flow).is_some_and(|at| now.since(*at) < self.network.expiry)
    }

    /// A packet has come while the cache presses back and holds so much.
    pub(super) fn arrives(&mut self, now: Time, arrival: &Arrival<'_>, held: Bytes) {
        self.pressed = true;
        let is_told = self.is_told(now, arrival.flow);
        self.counted.insert(arrival.flow);
        let goes_on = self.burst.as_ref().is_some_and(|burst| burst.goes_on(&self.network, now));
        if !goes_on {
            self.close();
        }
        let burst = self.burst.get_or_insert_with(|| Burst {
            since: now,
            seen: now,
            excess: (held - self.high).get(),
            untold: BTreeSet::new(),
            ended: None,
            inputs: BTreeMap::new(),
            base: self.surplus,
            most: self.surplus,
            pending: self.recent.len() as u64 * PACKET,
        });
        match arrival.detour {
            Some(arc) => {
                let link = self.network.link(arc);
                let lasts = link.map_or(Span::default(), |link| link.delay + link.delay) + self.network.detours;
                burst.inputs.entry(arc).or_insert(Input { lasts, is_detour: true, is_last: true, ..Input::default() });
                if burst.untold.is_empty() {
                    burst.ended = Some(now);
                }
            }
            None => {
                if !is_told {
                    burst.ended = None;
                    burst.untold.insert(arrival.flow);
                } else if burst.untold.is_empty() {
                    // What it sent before comes still.
                    burst.ended = Some(now);
                }
                burst.comes(&self.network, arrival.before);
            }
        }
    }

    /// Notes what has left since this was called last.
    fn leaves(&mut self, level: Level) {
        let level = level.held.get() as i64 + (level.dropped * PACKET) as i64;
        self.surplus -= self.level - level;
        self.level = level;
        if let Some(burst) = &mut self.burst {
            burst.most = burst.most.max(self.surplus);
        }
    }

    /// An ACK has come back over the link behind the cache.
    pub(super) fn handle_ack(&self, flow: u64) {
        if !self.flows.contains(&flow) {
            self.network.astray.store(true, Ordering::Relaxed);
        }
    }

    /// An ACK that names an interface which presses back waits for so long for its link.
    pub(super) fn waits(&self, back: ArcId, wait: Span) {
        if let Some(link) = self.network.link(back) {
            link.waits.fetch_max(wait.as_nanos(), Ordering::Relaxed);
        }
    }

    /// An ACK with *slow down* goes to those before the cache.
    pub(super) fn count_notification(&mut self, now: Time, flow: u64, level: Level) {
        self.pressed = true;
        self.surplus += PACKET as i64;
        self.leaves(level);
        self.recent.push_back(now);
        while self.recent.front().is_some_and(|at| now.since(*at) > RECENT) {
            self.recent.pop_front();
        }
        self.told.insert(flow, now);
        if let Some(burst) = &mut self.burst
            && burst.untold.remove(&flow)
            && burst.untold.is_empty()
        {
            burst.ended = Some(now);
        }
    }

    /// The cache presses back no more.
    pub(super) fn ends(&mut self) {
        self.close();
        self.told.clear();
        self.counted.clear();
        self.recent.clear();
    }

    /// Adds up what may have come in the burst that is over.
    fn close(&mut self) {
        if let Some(burst) = self.burst.take() {
            self.needed = self.needed.max(burst.needs(&self.network));
        }
    }

    /// Whether the margin has covered what could come, as far as the run has gone, and packets that the cache has dropped; `None`
    /// where ACKs do not come back on the path of the data.
    pub(super) fn report(&self, dropped: u64) -> Option<CustodyMeasures> {
        if self.network.astray.load(Ordering::Relaxed) {
            return None;
        }
        let open = self.burst.as_ref().map_or(0, |burst| burst.needs(&self.network));
        let needed = self.needed.max(open);
        let covered = needed <= self.margin.get();
        Some(CustodyMeasures {
            pressed: u64::from(self.pressed),
            covered: u64::from(self.pressed && covered),
            dropped: if covered { dropped } else { 0 },
            needed_bytes: needed,
        })
    }
}

impl Input {
    /// How long an ACK takes until it acts at the arc's beginning, and what was in flight then takes to the cache. The ACK's
    /// wait is the longest that there has been yet: the first ACKs to carry *slow down* may find their link free, and those that
    /// follow wait behind data.
    fn reaction(&self, network: &Network) -> Span {
        let over = |arc: &ArcId| {
            let back = network.link(arc.reversed());
            let wait = back.map_or(0, |back| back.waits.load(Ordering::Relaxed));
            network.link(*arc).map_or(Span::default(), |link| link.delay + link.delay) + Span::from_nanos(wait)
        };
        let along = |way: &Vec<ArcId>| way.iter().fold(Span::default(), |sum, arc| sum + over(arc));
        self.paths.iter().map(along).max().unwrap_or_default() + self.lasts
    }
}

impl Burst {
    /// Whether flows are not notified yet, or what was sent before the last one was still comes.
    fn goes_on(&self, network: &Network, now: Time) -> bool {
        let Some(ended) = self.ended else { return true };
        self.inputs.values().any(|input| now.since(ended) < input.reaction(network))
    }

    /// A flow comes over these arcs, the last of which leads to the cache.
    fn comes(&mut self, network: &Network, arcs: &[ArcId]) {
        let mut after = None;
        for (at, arc) in arcs.iter().enumerate().rev() {
            let Some(link) = network.link(*arc) else { return };
            let held = link.held.load(Ordering::Relaxed);
            let new = || Input { held, is_last: after.is_none(), ..Input::default() };
            let input = self.inputs.entry(*arc).or_insert_with(new);
            let path = arcs.get(at..).unwrap_or_default();
            if !input.paths.contains(path) {
                input.paths.insert(path.to_vec());
            }
            if let Some(of) = after.and_then(|after| self.inputs.get_mut(&after)) {
                of.before.insert(*arc);
            }
            after = Some(*arc);
        }
    }

    /// What may have come, and what the cache held already.
    fn needs(&self, network: &Network) -> u64 {
        let untold = self.ended.unwrap_or(self.seen).since(self.since);
        let inputs = self.inputs.iter().filter(|(_, input)| input.is_last);
        let arrives = inputs.fold(0u64, |sum, (arc, input)| {
            let time = if input.is_detour { Span::default() } else { untold };
            // The packet with which the time begins is one more.
            let kept = if input.before.is_empty() { PERMITS } else { CREDITS };
            sum.saturating_add(self.over(network, *arc, time, 0)).saturating_add((kept + 1) * PACKET)
        });
        // ACKs may come faster than packets leave. A packet fits in whole or not at all.
        let surplus = u64::try_from(self.most - self.base).unwrap_or(0);
        [surplus, self.pending, PACKET]
            .iter()
            .fold(self.excess.saturating_add(arrives), |sum, more| sum.saturating_add(*more))
    }

    /// What comes over an arc at most: no more than there is before it. The last router before the cache gates what it has
    /// stored, and what names the nonce. So if all that it sends comes to it from hosts, no more comes than the arc carries
    /// until these are notified; what was stored further up names nothing, and passes that router whenever it comes.
    fn over(&self, network: &Network, arc: ArcId, untold: Span, depth: usize) -> u64 {
        let (Some(link), Some(input)) = (network.link(arc), self.inputs.get(&arc)) else { return 0 };
        let carried = |reaction| link.carries(untold + reaction);
        if link.is_access || input.is_detour || input.before.is_empty() || depth > 64 {
            return carried(input.reaction(network));
        }
        let sent =
            input.before.iter().fold(0u64, |sum, arc| sum.saturating_add(self.over(network, *arc, untold, depth + 1)));
        let before = sent.saturating_add(input.held);
        let is_host = |arc: &ArcId| network.link(*arc).is_some_and(|link| link.is_access);
        if depth > 0 || !input.before.iter().all(is_host) {
            return before;
        }
        let senders = input.before.iter().filter_map(|arc| self.inputs.get(arc));
        carried(senders.map(|input| input.reaction(network)).max().unwrap_or_default()).min(before)
    }
}
