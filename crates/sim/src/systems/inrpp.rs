//! In-Network Resource Pooling: routers cache, send around links and press back; hosts send at full speed until they are told
//! to slow down.

mod host;
mod router;

use std::sync::Arc;

use sidestep_model::scenario::Settings;
use sidestep_proto::{
    inrpp::{self, AckFields, Nonce, Nonces, Notice, Notification},
    packet::Packet,
    tcp::{self, Algorithm},
};

use crate::{
    SimError,
    engine::{Behaviour, Sizes},
    system::{Context, MakeBehaviour, MakeEndpoint, System, Transport},
};
use host::{Ends, HostNode, Links};
use router::RouterNode;

/// What INRPP adds to every packet: two nonces, and a notification with its MAC, 4 bytes each.
const HEADER: u16 = 16;

pub(super) fn system(context: &Context<'_>) -> Result<System, SimError> {
    let Settings::Inrpp(knobs) = &context.settings else { return Err(context.not_here()) };
    let knobs = *knobs;
    let config = inrpp::Config {
        probe_interval: knobs.probe_interval,
        decision_interval: knobs.decision_interval,
        alpha: knobs.alpha,
        expiry: knobs.expiry,
        ack_processing: knobs.ack_processing,
        credit: knobs.credit,
    };
    let topology = &context.scenario.topology;
    for node in topology.node_ids().filter(|node| topology.is_router(*node)) {
        RouterNode::new(topology, node, config, &knobs).map_err(|problem| SimError::Router {
            system: context.spec.clone(),
            router: topology.node(node).name.clone(),
            problem,
        })?;
    }
    let base = System::tcp(context)?;
    let tcp = tcp::Config { algorithm: Algorithm::Unreduced, ecn: false, sack: false, ..base.tcp };
    let links = Arc::new(Links::new(topology));
    let of_flows = links.clone();
    let make =
        MakeEndpoint(Arc::new(move |spec, arc| Box::new(Ends::new(spec, tcp, config.expiry, arc, of_flows.clone()))));
    let behaviour = MakeBehaviour(Arc::new(move |topology, node| -> Option<Box<dyn Behaviour>> {
        if topology.is_router(node) {
            Some(Box::new(RouterNode::new(topology, node, config, &knobs).ok()?))
        } else {
            Some(Box::new(HostNode(links.clone())))
        }
    }));
    let headers = base.headers + HEADER;
    Ok(System { transport: Transport::Own(make), tcp, headers, behaviour: Some(behaviour), ..base })
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

/// What an ACK carries besides: the notification lies where SACK blocks would be, which INRPP does not use.
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
