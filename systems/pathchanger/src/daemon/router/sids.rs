//! The binding SIDs: makes the kernel have those that the controller named, and reports what it has.
//!
//! Their routes are local ones on the loopback interface, so that no link takes them along when it goes down.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use sidestep_api::Binding;
use sidestep_hostd::{
    AgentError,
    routing::{Domain, KernelRouting, Refusal, RouteKey, Routes},
};
use sidestep_linux::{
    LinuxError,
    netlink::{BindingSids, BoundSid, LOOPBACK, MAIN_TABLE, Netlink, Route, RoutingChange, SidAction, Target},
};
use sidestep_net::srv6;

/// The binding SIDs of this router, as they should be and as they are.
pub(super) struct Sids {
    kernel: BindingSids,
    /// Their routes.
    routing: KernelRouting,
    /// What the controller named last; `None` before it has answered, when all that is there stays.
    wanted: Option<BTreeMap<Ipv6Addr, BoundSid>>,
    /// What the kernel took, and should still have.
    installed: BTreeMap<Ipv6Addr, BoundSid>,
    /// What the kernel does not take, and why.
    refused: BTreeMap<Ipv6Addr, String>,
    /// Attempts that the kernel refused.
    refusals: u64,
    /// SIDs that another program removed or changed, and that were put back.
    put_back: u64,
}

/// How many binding SIDs there are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SidCounts {
    pub(super) in_kernel: usize,
    pub(super) wanted: usize,
    pub(super) refused: usize,
    pub(super) refusals: u64,
    pub(super) put_back: u64,
}

impl Sids {
    pub(super) fn open() -> Result<Self, AgentError> {
        Ok(Sids {
            kernel: BindingSids::open()?,
            routing: KernelRouting::new(domain()),
            wanted: None,
            installed: BTreeMap::new(),
            refused: BTreeMap::new(),
            refusals: 0,
            put_back: 0,
        })
    }

    /// Takes what the controller wants bound; [`reconcile`](Self::reconcile) installs it.
    pub(super) fn want(&mut self, bindings: &[Binding]) {
        let bound = |one: &Binding| (one.binding_sid, BoundSid { segments: one.segments.clone(), on_loopback: true });
        self.wanted = Some(bindings.iter().map(bound).collect());
    }

    /// What matters of them, in one line.
    pub(super) fn status(&self) -> String {
        let Some(wanted) = &self.wanted else { return "Path IDs stay as they were found".into() };
        let refused = match self.refused.len() {
            0 => String::new(),
            count => format!(", {count} refused by the kernel"),
        };
        format!("{} of {} Path IDs installed{refused}", self.installed.len(), wanted.len())
    }

    /// How many there are, as the kernel reports.
    pub(super) async fn count(&self) -> Result<SidCounts, AgentError> {
        Ok(SidCounts {
            in_kernel: ours(&self.kernel).await?.len(),
            wanted: self.wanted.as_ref().map_or(0, BTreeMap::len),
            refused: self.refused.len(),
            refusals: self.refusals,
            put_back: self.put_back,
        })
    }

    /// Whether a change of routes may be one of a SID. The echo of what is wanted is none.
    pub(super) fn concerns(&self, change: &RoutingChange) -> bool {
        self.routing.concerns(change)
    }

    /// Compares the kernel with what it should have; returns whether anything has to be put back or removed.
    pub(super) async fn compare(&mut self, netlink: &Netlink) -> Result<bool, AgentError> {
        let drift = self.routing.compare(netlink).await?;
        self.put_back += drift.routes as u64;
        if drift.routes > 0 {
            tracing::warn!(sids = drift.routes, "another program removed or changed SIDs; they are put back");
        }
        Ok(drift.is_any())
    }

    /// Whether the kernel has refused any, so that the request must be made again.
    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Makes the kernel have what is wanted. What it refuses is noted and tried again with the next call; the others are
    /// not affected.
    ///
    /// An error means that the kernel cannot be asked, or that the machine lacks what every SID needs.
    pub(super) async fn reconcile(&mut self, netlink: &Netlink) -> Result<(), AgentError> {
        self.kernel.renew()?;
        let wanted = match &self.wanted {
            Some(wanted) => wanted.clone(),
            // Before the controller has answered, what was found must stay.
            None => {
                let mut found = self.installed.clone();
                found.extend(ours(&self.kernel).await?);
                found
            }
        };
        self.routing.expect_routes(wanted.iter().map(|(sid, bound)| route(*sid, bound)));
        self.compare(netlink).await?;
        let mut result = Ok(());
        for (sid, bound) in &wanted {
            let route = route(*sid, bound);
            let place = (route.table, route.destination);
            match self.routing.install_routes(netlink, &Routes::from([(place, route)])).await {
                Ok(()) => {
                    if self.refused.remove(sid).is_some() {
                        tracing::info!(%sid, "the kernel takes this SID now");
                    }
                    self.installed.insert(*sid, bound.clone());
                }
                Err(Refusal { error, .. }) => {
                    self.installed.remove(sid);
                    self.refuse(*sid, &error);
                    if error.is_environment() {
                        result = Err(error.into());
                    }
                }
            }
        }
        self.installed.retain(|sid, bound| wanted.get(sid) == Some(bound));
        self.refused.retain(|sid, _| wanted.contains_key(sid));
        // Old ones last: a host that still uses one loses nothing before its successor is there.
        let is_wanted = |(_, destination): &RouteKey| match destination.addr() {
            IpAddr::V6(sid) => wanted.contains_key(&sid),
            IpAddr::V4(_) => false,
        };
        if let Err(error) = self.routing.prune(netlink, |_| true, is_wanted).await {
            tracing::warn!(%error, "a SID that is not wanted stays for now");
        }
        result
    }

    /// Notes a refusal; the log has it once.
    fn refuse(&mut self, sid: Ipv6Addr, error: &LinuxError) {
        self.refusals += 1;
        let reason = error.to_string();
        if self.refused.get(&sid) != Some(&reason) {
            tracing::warn!(%sid, reason, "the kernel refuses this SID; it is tried again");
            self.refused.insert(sid, reason);
        }
    }
}

/// Removes all binding SIDs of ours, whichever daemon installed them; returns how many there were.
pub(super) async fn remove_sids(netlink: &Netlink) -> Result<usize, AgentError> {
    Ok(domain().clear(netlink).await?)
}

/// The routes of binding SIDs, which nothing else of ours in the main table is.
fn domain() -> Domain {
    Domain::within_main(|destination| match destination.addr() {
        IpAddr::V6(sid) => destination.prefix_len() == 128 && srv6::is_binding_sid(sid),
        IpAddr::V4(_) => false,
    })
}

/// Those that the kernel has.
async fn ours(kernel: &BindingSids) -> Result<BTreeMap<Ipv6Addr, BoundSid>, LinuxError> {
    let mut present = kernel.read().await?;
    present.retain(|sid, _| srv6::is_binding_sid(*sid));
    Ok(present)
}

fn route(sid: Ipv6Addr, bound: &BoundSid) -> Route {
    let target = Target::Sid(SidAction::EndB6Encaps(bound.segments.clone()), LOOPBACK);
    Route { table: MAIN_TABLE, destination: IpAddr::from(sid).into(), target, mtu: None }
}

#[cfg(test)]
mod tests {
    use sidestep_linux::{
        netlink::{self, Interface},
        netns::NetNs,
        testing::root_or_skip,
    };
    use sidestep_net::PathId;

    use super::*;

    fn binding(number: u32, segments: usize) -> Binding {
        let path_id = PathId::new(number).unwrap();
        let binding_sid = srv6::binding_sid("fd01:0:1::/48".parse().unwrap(), number);
        Binding { path_id, binding_sid, segments: vec![Ipv6Addr::LOCALHOST; segments] }
    }

    /// Runs `test` in a namespace with a loopback interface, which is up if `up`.
    fn in_namespace(up: bool, test: impl AsyncFnOnce(&Netlink, Sids) + Send) {
        if !root_or_skip("binding SIDs") {
            return;
        }
        let inside = || {
            netlink::block_on(async |netlink| {
                if up {
                    netlink.loopback_up().await?;
                }
                test(netlink, Sids::open().unwrap()).await;
                Ok(())
            })
        };
        NetNs::create().unwrap().run(inside).unwrap();
    }

    /// In the kernel, refused, refusals and put back.
    async fn counts(sids: &Sids) -> (usize, usize, u64, u64) {
        let SidCounts { in_kernel, refused, refusals, put_back, .. } = sids.count().await.unwrap();
        (in_kernel, refused, refusals, put_back)
    }

    #[test]
    fn a_binding_that_the_kernel_refuses_takes_no_other_with_it_and_is_tried_again() {
        in_namespace(true, async |netlink, mut sids| {
            // No header has room for 200 segments.
            sids.want(&[binding(1, 2), binding(2, 200), binding(3, 2)]);
            sids.reconcile(netlink).await.unwrap();
            assert_eq!(counts(&sids).await, (2, 1, 1, 0));
            assert_eq!(sids.status(), "2 of 3 Path IDs installed, 1 refused by the kernel");
            sids.reconcile(netlink).await.unwrap();
            assert_eq!(counts(&sids).await, (2, 1, 2, 0));
            sids.want(&[binding(1, 2), binding(2, 3)]);
            sids.reconcile(netlink).await.unwrap();
            assert_eq!(counts(&sids).await, (2, 0, 2, 0));
            assert_eq!(sids.status(), "2 of 2 Path IDs installed");
        });
    }

    #[test]
    fn what_another_program_removes_or_changes_is_put_back_and_counted() {
        in_namespace(true, async |netlink, mut sids| {
            sids.want(&[binding(1, 2), binding(2, 2)]);
            sids.reconcile(netlink).await.unwrap();
            let sid = |number| binding(number, 2).binding_sid;
            netlink.delete_route(MAIN_TABLE, IpAddr::from(sid(1)).into()).await.unwrap();
            netlink.add_route(&route(sid(2), &BoundSid { segments: vec![sid(1)], on_loopback: true })).await.unwrap();
            assert_eq!(counts(&sids).await, (1, 0, 0, 0), "the metric says what the kernel has");
            sids.reconcile(netlink).await.unwrap();
            assert_eq!(counts(&sids).await, (2, 0, 0, 2));
            assert_eq!(sids.kernel.read().await.unwrap()[&sid(2)].segments.len(), 2);
        });
    }

    #[test]
    fn what_an_earlier_daemon_left_stays_until_the_controller_answers() {
        in_namespace(true, async |netlink, mut sids| {
            sids.want(&[binding(1, 2), binding(2, 2)]);
            sids.reconcile(netlink).await.unwrap();
            let mut next = Sids::open().unwrap();
            next.reconcile(netlink).await.unwrap();
            assert_eq!(next.status(), "Path IDs stay as they were found");
            netlink.delete_route(MAIN_TABLE, IpAddr::from(binding(1, 2).binding_sid).into()).await.unwrap();
            next.reconcile(netlink).await.unwrap();
            assert_eq!(counts(&next).await, (2, 0, 0, 1));
            next.want(&[binding(2, 2), binding(3, 2)]);
            next.reconcile(netlink).await.unwrap();
            assert_eq!(
                next.kernel.read().await.unwrap().into_keys().collect::<Vec<_>>(),
                [2, 3].map(|n| binding(n, 2).binding_sid)
            );
            assert_eq!(remove_sids(netlink).await.unwrap(), 2);
            assert_eq!(remove_sids(netlink).await.unwrap(), 0);
        });
    }

    #[test]
    fn without_its_loopback_interface_a_router_waits_for_it() {
        in_namespace(false, async |netlink, mut sids| {
            let is_down = |interfaces: Vec<Interface>| interfaces.iter().all(|interface| !interface.running);
            assert!(is_down(netlink.interfaces().await.unwrap()));
            sids.want(&[binding(1, 2)]);
            sids.reconcile(netlink).await.unwrap();
            assert_eq!(counts(&sids).await, (0, 1, 1, 0));
            netlink.loopback_up().await.unwrap();
            sids.reconcile(netlink).await.unwrap();
            assert_eq!(counts(&sids).await, (1, 0, 1, 0));
        });
    }
}
