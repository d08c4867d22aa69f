//! In-Network Resource Pooling: routers cache, send around links and press back; hosts send at full speed until signalled
//! to slow down.

mod custody;
mod host;
mod limited;
mod router;

use std::{collections::BTreeSet, sync::Arc};

use custody::Network;
use host::{Ends, HostNode, HostSettings, Links};
use limited::LimitedEnds;
use router::RouterNode;
use sidestep_engine::{Behaviour, Sizes};
use sidestep_net::{ArcId, LinkId, Span, Topology, pattern};
use sidestep_proto::{
    packet::Packet,
    tcp::{self, Algorithm, Profile},
};
use sidestep_scenario::SystemInfo;
use sidestep_sim::{
    SimError,
    system::{Context, EndpointOf, MakeBehaviour, MakeEndpoint, Setup, System, Transport},
};

use crate::{
    AckFields, Backpressure, Credit, Hosts, InrppSettings, Nonce, Nonces, Notice, Notification, Notifications, Preset,
};

/// What INRPP adds to every packet: two nonces, and a notification with its MAC, 4 bytes each.
const HEADER: u16 = 16;

/// In-Network Resource Pooling.
#[derive(Clone, Copy, Debug)]
pub struct Inrpp;

impl System for Inrpp {
    fn info(&self) -> SystemInfo {
        crate::INRPP
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        setup(context)
    }
}

fn setup(context: &Context<'_>) -> Result<Setup, SimError> {
    context.needs_two_way_links()?;
    let settings: InrppSettings = context.settings()?;
    let mut settings = settings;
    if settings.preset == Preset::Ns3 {
        settings.credit = Credit::RoundRobin;
    }
    let config = settings.config();
    let topology = &context.scenario.topology;
    let borders = borders(topology, &settings).map_err(|problem| context.bad_value("borders", problem))?;
    let (mut probed, mut unkept) = (BTreeSet::new(), None);
    for node in topology.node_ids().filter(|node| topology.is_router(*node)) {
        let router = RouterNode::new(topology, node, config, &settings, &borders, None)
            .map_err(|problem| context.refuse(format_args!("router `{}`, {problem}", topology.node(node).name)))?;
        probed.extend(router.probed());
        unkept = unkept.max(router.unkept());
    }
    let slow = slow_probes(topology, settings.probe_interval, &probed);
    let unkept = unkept.map(|(bytes, arc)| {
        let (from, to) = (&topology.node(topology.tail(arc)).name, &topology.node(topology.head(arc)).name);
        format!("`high` leaves less of the cache than detours of neighbours may bring ({bytes} from {from} to {to}): caches may drop packets; \"auto\" leaves enough")
    });
    let notes = slow.into_iter().chain(unkept).collect();
    let base = Setup::tcp(context)?;
    let mut tcp = tcp::Config { algorithm: Algorithm::Unreduced, ecn: false, sack: false, ..base.tcp };
    if settings.preset == Preset::Ns3 {
        tcp.ack_every = 1;
    }
    let of_hosts = HostSettings {
        tcp,
        expiry: config.expiry,
        after_timeout: settings.rto,
        obedient: settings.obedient,
        echo: settings.notifications == Notifications::Data,
    };
    let routers = format!("{:?}", InrppSettings { obedient: true, ..settings.clone() });
    // Limits ride on the ACKs that pass the routers of the data.
    let (ecmp, backwards) = (settings.ecmp, settings.backpressure == Backpressure::Limits);
    let links = Arc::new(Links::new(topology));
    let of_flows = links.clone();
    let custody = Network::of(context.scenario, &settings);
    let own = |make: Arc<EndpointOf>| Transport::Own(MakeEndpoint(make));
    let shim = settings.shim.get() as u16;
    let (transport, tcp, header) = match (settings.backpressure, settings.hosts) {
        (_, Hosts::Unmodified) => (Transport::Tcp, base.tcp, 0),
        (Backpressure::Limits, Hosts::Push) => {
            // What detours reorder is no loss to Linux's detection, whatever TCP the other flows have.
            let tcp = tcp::Config { profile: Profile::Linux, sack: true, ecn: false, idle_restart: false, ..base.tcp };
            let tcp = tcp::Config { algorithm: Algorithm::Unreduced, ..tcp };
            (own(Arc::new(move |spec, arc| Box::new(LimitedEnds::new(spec, tcp, arc, of_flows.clone())))), tcp, 0)
        }
        (Backpressure::Notices, Hosts::Push) => {
            (own(Arc::new(move |spec, arc| Box::new(Ends::new(spec, &of_hosts, arc, of_flows.clone())))), tcp, HEADER)
        }
    };
    let behaviour = MakeBehaviour(Arc::new(move |topology, node| -> Option<Box<dyn Behaviour>> {
        if topology.is_router(node) {
            Some(Box::new(RouterNode::new(topology, node, config, &settings, &borders, custody.as_ref()).ok()?))
        } else {
            Some(Box::new(HostNode(links.clone())))
        }
    }));
    let headers = base.headers + header + shim;
    let behaviour = Some(behaviour);
    Ok(Setup { transport, tcp, headers, behaviour, routers, ecmp, backwards, notes, ..base })
}

/// The links that are borders.
fn borders(topology: &Topology, settings: &InrppSettings) -> Result<BTreeSet<LinkId>, String> {
    let mut links = BTreeSet::new();
    for name in &settings.borders {
        let found = topology.link_ids().filter(|link| pattern::matches(name, &topology.link(*link).name));
        let before = links.len();
        links.extend(found);
        if links.len() == before {
            return Err(format!("there is no link `{name}`"));
        }
    }
    Ok(links)
}

/// A warning where answers to probes take longer than T_p: rates of detours then follow what was a probe ago.
fn slow_probes(topology: &Topology, interval: Span, probed: &BTreeSet<ArcId>) -> Option<String> {
    let round_trip = |arc: &ArcId| {
        let there = topology.channel(*arc).delay.as_nanos();
        Span::from_nanos(there + topology.channel(arc.reversed()).delay.as_nanos())
    };
    let slow: Vec<&ArcId> = probed.iter().filter(|arc| round_trip(arc) >= interval).collect();
    let worst = *slow.iter().max_by_key(|arc| round_trip(arc))?;
    let name = |node| &topology.node(node).name;
    let (from, to) = (name(topology.tail(*worst)), name(topology.head(*worst)));
    Some(format!(
        "T_p ({interval}) should exceed the round trip of a probe; on {} of {} links that are probed it does not ({from} to {to} takes {})",
        slow.len(),
        probed.len(),
        round_trip(worst)
    ))
}

/// Bytes of headers of INRPP's packets.
fn sizes() -> Sizes {
    let sizes = Sizes::default();
    Sizes { header: sizes.header + HEADER, ..sizes }
}

/// The nonces that a packet carries: in the fields that are RCP's.
fn nonces_of(packet: &Packet) -> Nonces {
    let mut nonces = Nonces::default();
    for nonce in [packet.rtt, packet.rate] {
        if nonce != 0 {
            nonces.push(Nonce(nonce));
        }
    }
    nonces
}

fn with_nonces(packet: Packet, nonces: Nonces) -> Packet {
    let mut all = nonces.iter().map(|nonce| nonce.0);
    Packet { rate: all.next().unwrap_or(0), rtt: all.next().unwrap_or(0), ..packet }
}

/// What an ACK carries in addition: the notification lies where SACK blocks would be, which INRPP does not use.
fn read_fields(packet: &Packet) -> AckFields {
    let [(notice, _), (high, low), _] = packet.sack;
    let nonce = Nonce(u32::from(high) << 16 | u32::from(low));
    let notice = match notice {
        1 => Some(Notice::SlowDown),
        2 => Some(Notice::Cancel),
        _ => None,
    };
    let notification = notice.map(|notice| Notification { notice, nonce, mac: packet.data_seq });
    AckFields { notification, nonces: nonces_of(packet) }
}

fn with_fields(packet: Packet, fields: &AckFields) -> Packet {
    let (notice, nonce, mac) = match fields.notification {
        Some(Notification { notice: Notice::SlowDown, nonce, mac }) => (1, nonce.0, mac),
        Some(Notification { notice: Notice::Cancel, nonce, mac }) => (2, nonce.0, mac),
        None => (0, 0, 0),
    };
    let sack = [(notice, 0), ((nonce >> 16) as u16, nonce as u16), (0, 0)];
    with_nonces(Packet { sack, data_seq: mac, ..packet }, fields.nonces)
}
