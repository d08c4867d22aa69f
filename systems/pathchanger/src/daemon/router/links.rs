//! The links of the router: which interface each of them has now, what it has sent, and the program for ECN on it.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_api::LinkCounter;
use sidestep_hostd::AgentError;
use sidestep_linux::{
    monotonic_now,
    netlink::{Interface, Netlink},
};

use crate::daemon::ecn_decap::EcnDecap;

/// The configured links, by name.
pub(super) struct Links {
    links: BTreeMap<String, Link>,
    /// `None` if congestion marks should not be copied.
    ecn: Option<EcnDecap>,
    /// Links that were down when last looked at.
    down: BTreeSet<String>,
}

/// A link of this router.
struct Link {
    /// The name of its interface.
    name: String,
    /// Its interface when last looked at; `None` while there is none.
    interface: Option<Interface>,
    /// Bytes sent when last looked at.
    sent: u64,
    /// The index of the interface that has the program for ECN.
    has_ecn: Option<u32>,
    /// Whether the log shows that the program cannot be attached.
    complained: bool,
}

/// What the metrics show of a link.
#[derive(Clone, Debug)]
pub(super) struct LinkReading {
    pub(super) link: String,
    pub(super) sent: u64,
    pub(super) up: bool,
}

impl Links {
    /// The links with these interfaces, by name; none has been looked at.
    pub(super) fn new(configured: &BTreeMap<String, String>, ecn: bool) -> Self {
        let link =
            |name: &String| Link { name: name.clone(), interface: None, sent: 0, has_ecn: None, complained: false };
        let links = configured.iter().map(|(link_name, name)| (link_name.clone(), link(name))).collect();
        Links { links, ecn: ecn.then(EcnDecap::default), down: BTreeSet::new() }
    }

    /// What is reported of each link; one without an interface is down.
    pub(super) fn counters(&self) -> Vec<LinkCounter> {
        let counter = |(link, state): (&String, &Link)| LinkCounter {
            link: link.clone(),
            tx_bytes: state.sent,
            down: !state.is_up(),
        };
        self.links.iter().map(counter).collect()
    }

    /// Links that are down.
    pub(super) fn down(&self) -> &BTreeSet<String> {
        &self.down
    }

    /// What the kernel reports of each link now.
    pub(super) async fn readings(&self, netlink: &Netlink) -> Result<Vec<LinkReading>, AgentError> {
        let interfaces = netlink.interfaces().await?;
        let reading = |(link, state): (&String, &Link)| {
            let interface = interfaces.iter().find(|interface| interface.name == state.name);
            LinkReading {
                link: link.clone(),
                sent: interface.map_or(state.sent, |interface| interface.tx_bytes),
                up: interface.is_some_and(|interface| interface.running),
            }
        };
        Ok(self.links.iter().map(reading).collect())
    }

    /// How many marks the program has copied.
    pub(super) fn marks(&self) -> Result<u64, AgentError> {
        Ok(self.ecn.as_ref().map(EcnDecap::copied).transpose()?.unwrap_or(0))
    }

    /// Leaves the program on the interfaces for the next daemon.
    pub(super) fn leave(self) {
        if let Some(ecn) = self.ecn {
            ecn.leave();
        }
    }

    /// Looks for the interfaces again. One that has come, or come back with another index, gets the program for ECN.
    ///
    /// An error means that the kernel cannot be asked, or that the machine lacks what the program needs.
    pub(super) async fn refresh(&mut self, netlink: &Netlink) -> Result<(), AgentError> {
        let interfaces = netlink.interfaces().await?;
        let mut result = Ok(());
        for (link, state) in &mut self.links {
            state.interface = interfaces.iter().find(|interface| interface.name == state.name).cloned();
            let Some(interface) = &state.interface else {
                state.has_ecn = None;
                continue;
            };
            state.sent = interface.tx_bytes;
            let Some(ecn) = self.ecn.as_mut().filter(|_| state.has_ecn != Some(interface.index)) else { continue };
            match ecn.add(interface) {
                Ok(()) => (state.has_ecn, state.complained) = (Some(interface.index), false),
                Err(error) => {
                    if !std::mem::replace(&mut state.complained, true) {
                        tracing::warn!(%error, link, "congestion marks are lost in decapsulation on this link for now");
                    }
                    if error.is_environment() {
                        result = Err(error.into());
                    }
                }
            }
        }
        let down = self.links.iter().filter(|(_, state)| !state.is_up()).map(|(link, _)| link.clone()).collect();
        if down != self.down {
            let absent = self.links.values().filter(|state| state.interface.is_none());
            let absent: Vec<&str> = absent.map(|state| state.name.as_str()).collect();
            tracing::info!(at_ns = monotonic_now().as_nanos(), ?down, ?absent, "links that are down");
            self.down = down;
        }
        result
    }
}

impl Link {
    fn is_up(&self) -> bool {
        self.interface.as_ref().is_some_and(|interface| interface.running)
    }
}
