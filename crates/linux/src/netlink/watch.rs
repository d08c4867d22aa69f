//! What the kernel reports of changes: interfaces and addresses, and apart from them rules and routes.

use std::{fmt, future::poll_fn, time::Duration};

use futures::{StreamExt, channel::mpsc::UnboundedReceiver};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{RouteNetlinkMessage, rule::RuleMessage};
use netlink_sys::{AsyncSocket, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE};
use rtnetlink::MulticastGroup;
use tokio::task::JoinHandle;

use super::{
    PresentRoute, Rule, rules,
    uplinks::{is_foreign_default, is_of_delegation},
};
use crate::error::{LinuxError, Result};

/// Reports interfaces, their addresses, and default routes that come, go, or change.
#[derive(Debug)]
pub struct LinkWatch {
    messages: UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>,
    connection: JoinHandle<()>,
}

/// A change of the rules or the routes of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutingChange {
    /// A rule came or went.
    Rule {
        /// The rule.
        rule: Rule,
        /// Whether it is there now.
        added: bool,
    },
    /// A route came, took the place of another, or went.
    Route {
        /// The route, as it is now or was last.
        route: PresentRoute,
        /// Whether it is there now.
        added: bool,
    },
    /// More changed than the kernel kept for us: anything may be different.
    Unknown,
}

/// Reports rules and routes that come, go, or change.
///
/// The kernel keeps as many reports as the socket's buffer holds. A process that does not read them in time gets
/// [`RoutingChange::Unknown`], so that no flood of changes takes more memory than that.
pub struct RoutingWatch {
    socket: TokioSocket,
    buffer: Vec<u8>,
}

/// How many reports to read before other tasks have their turn.
const BATCH: usize = 64;
/// More reports than a socket's buffer holds.
const MAX_KEPT: usize = 100_000;
/// The longest report: the kernel makes each of them fit into a page or two.
const LONGEST: usize = 32 << 10;

/// How long to wait before a socket that cannot be opened is tried again.
const PAUSE: Duration = Duration::from_secs(1);

impl LinkWatch {
    /// Listens in the calling thread's namespace; needs a Tokio runtime.
    pub fn open() -> Result<Self> {
        let opened = rtnetlink::new_multicast_connection(&[
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ]);
        let (connection, _, messages) =
            opened.map_err(|error| LinuxError::io("listening for changes of interfaces", error))?;
        Ok(LinkWatch { messages, connection: tokio::spawn(connection) })
    }

    /// Waits for a change; takes those that have already come with it together. Nothing is lost when it is dropped.
    pub async fn changed(&mut self) {
        loop {
            match self.messages.next().await {
                Some((message, _)) if matters(&message.payload) => break,
                Some(_) => {}
                // The socket failed: with too many changes at once, the kernel has no room for them. What they were is not
                // known, so there was one.
                None => {
                    match LinkWatch::open() {
                        Ok(watch) => *self = watch,
                        Err(error) => {
                            tracing::debug!(%error, "changes of interfaces are not heard");
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                    break;
                }
            }
        }
        while self.messages.try_recv().is_ok() {}
    }
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Whether a message reports a link, an address, a default route of any table, or a delegated prefix. Other routes come and go
/// all the time, ours too.
fn matters(message: &NetlinkPayload<RouteNetlinkMessage>) -> bool {
    match message {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route)) => {
            is_foreign_default(route) || is_of_delegation(route)
        }
        _ => true,
    }
}

impl fmt::Debug for RoutingWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutingWatch").finish_non_exhaustive()
    }
}

impl RoutingWatch {
    /// Listens in the calling thread's namespace; needs a Tokio runtime.
    pub fn open() -> Result<Self> {
        let failed = |error| LinuxError::io("listening for changes of rules and routes", error);
        let mut socket = TokioSocket::new(NETLINK_ROUTE).map_err(failed)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0)).map_err(failed)?;
        for group in
            [MulticastGroup::Ipv4Rule, MulticastGroup::Ipv6Rule, MulticastGroup::Ipv4Route, MulticastGroup::Ipv6Route]
        {
            socket.socket_ref().add_membership(group as u32).map_err(failed)?;
        }
        Ok(RoutingWatch { socket, buffer: Vec::with_capacity(LONGEST) })
    }

    /// Waits for a change that `concerns`, and passes over the others. Nothing is lost when it is dropped.
    pub async fn changed(&mut self, concerns: impl Fn(&RoutingChange) -> bool) {
        for read in 1_usize.. {
            if read.is_multiple_of(BATCH) {
                tokio::task::yield_now().await;
            }
            if self.next_change().await.is_some_and(|change| concerns(&change)) {
                return;
            }
        }
    }

    /// The next report; `None` if it is of something else.
    async fn next_change(&mut self) -> Option<RoutingChange> {
        let RoutingWatch { socket, buffer } = self;
        buffer.clear();
        if poll_fn(|context| socket.poll_recv(context, buffer)).await.is_ok() {
            return read_change(buffer);
        }
        // Reports are lost when the kernel's buffer is full (ENOBUFS), and all further ones too until it is empty, without
        // another error. So empty it before the caller looks at the tables.
        for _ in 0..MAX_KEPT {
            buffer.clear();
            if socket.socket_ref().recv(buffer, libc::MSG_DONTWAIT).is_err() {
                break;
            }
        }
        Some(RoutingChange::Unknown)
    }
}

pub(super) fn read_change(bytes: &[u8]) -> Option<RoutingChange> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).ok()?;
    let NetlinkPayload::InnerMessage(message) = message.payload else { return None };
    let route = |route, added| Some(RoutingChange::Route { route: PresentRoute::read(route)?, added });
    let rule = |message: &RuleMessage, added| Some(RoutingChange::Rule { rule: rules::read(message), added });
    match message {
        RouteNetlinkMessage::NewRoute(message) => route(message, true),
        RouteNetlinkMessage::DelRoute(message) => route(message, false),
        RouteNetlinkMessage::NewRule(message) => rule(&message, true),
        RouteNetlinkMessage::DelRule(message) => rule(&message, false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NetlinkHeader;
    use proptest::prelude::*;
    use tokio::time::timeout;

    use super::{super::Netlink, *};
    use crate::{netns::NetNs, testing::root_or_skip};

    #[test]
    fn a_watch_reports_that_its_socket_has_failed_and_then_the_next_change() {
        if !root_or_skip("watching interfaces") {
            return;
        }
        let watch = async {
            let mut watch = LinkWatch::open().unwrap();
            watch.connection.abort();
            let patience = Duration::from_secs(5);
            timeout(patience, watch.changed()).await.unwrap();
            Netlink::open().unwrap().loopback_up().await.unwrap();
            timeout(patience, watch.changed()).await.unwrap();
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let inside = || {
            runtime.block_on(watch);
            Ok(())
        };
        NetNs::create().unwrap().run(inside).unwrap();
    }

    proptest! {
        #[test]
        fn no_message_makes_a_reader_panic(
            kind in prop::sample::select(vec![16u16, 17, 20, 21, 24, 25, 32, 33]),
            body in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut header = NetlinkHeader::default();
            header.message_type = kind;
            header.length = 16 + body.len() as u32;
            let mut bytes = vec![0; 16];
            netlink_packet_core::Emitable::emit(&header, &mut bytes);
            bytes.extend(body);
            crate::fuzzing::read_routing(&bytes);
        }

        #[test]
        fn no_damage_to_a_route_makes_a_reader_panic(
            damage in prop::collection::vec((0usize..200, any::<u8>()), 0..4),
            length in 0usize..=200,
        ) {
            let route = super::super::Route {
                table: 8301,
                destination: "2001:db8::/32".parse().unwrap(),
                target: super::super::Target::Segments(
                    vec!["fd01::1".parse().unwrap()],
                    super::super::NextHop { via: Some("fe80::1".parse().unwrap()), interface: 3 },
                ),
                mtu: Some(1400),
            };
            let message = RouteNetlinkMessage::NewRoute(super::super::message_of(&route));
            let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
            message.finalize();
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            for (place, value) in damage {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = value;
                }
            }
            bytes.truncate(length);
            crate::fuzzing::read_routing(&bytes);
        }
    }
}
