//! The kernel's own multipath routes in the place of the balancer: cheaper, and with less to choose from.
//!
//! With `fib_multipath_hash_policy=1` the kernel sorts addresses and ports before it hashes them, so both directions of a flow
//! have the same hash. Edges with the same `fib_multipath_hash_seed` and the same order of next hops choose alike. The kernel leaves
//! next hops that are dead, and spreads all flows again when it does.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::ControlFlow,
    path::PathBuf,
    time::Duration,
};

use sidestep_hostd::{
    AgentError, Daemon, End, Handled, Page, Tenure,
    effect::{Effects, OPTION, note},
    inputs::{Input, Inputs},
    paths::{self, Exceptions, Interfaces, PathRoute, Underlay},
    routing::{Drift, KernelRouting, Routes},
};
use sidestep_linux::{
    LinuxError,
    effect::Checker,
    netlink::{Family, MarkRule, Netlink, NextHop, Route, RoutingChange, Target},
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{EdgeConfig, EdgeOptions, effect::offloaded, kernel, metrics, settings, status};
use crate::daemon::balancer::{self, Balancer, BalancerConfig, Side};

/// What the kernel lacks where there is no such setting.
const NEEDS_SEED: &str =
    "it needs net.ipv4.fib_multipath_hash_seed (Linux 6.11 or later, with CONFIG_IP_ROUTE_MULTIPATH)";

/// How long to wait after a change of an interface, so that the changes that come with it are handled together.
const SETTLE: Duration = Duration::from_millis(10);

/// The daemon that keeps multipath routes.
pub(super) struct Offload {
    options: EdgeOptions,
    inputs: Inputs<(), EdgeConfig>,
    netlink: Netlink,
    /// Makes the kernel hash the site's packets itself, on the interfaces that are there.
    balancer: Balancer,
    attached: BTreeMap<String, u32>,
    /// Settings as they were before, to be put back.
    before: Vec<(PathBuf, String)>,
    routing: KernelRouting,
    /// Paths that have no next hop now.
    absent: usize,
    /// What paths depend on in the main table.
    underlay: Underlay,
    /// Whether packets leave by the paths that the kernel has drawn for them.
    effects: Effects,
    mended: u64,
    tenure: Tenure,
}

impl Offload {
    /// Sets the kernel's hash.
    pub(super) async fn start(
        options: EdgeOptions,
        configs: UnboundedReceiver<EdgeConfig>,
    ) -> Result<Self, AgentError> {
        paths::check_reserved(options.table_base, options.priority)?;
        options.config.check_offload().map_err(AgentError::Reserved)?;
        let netlink = Netlink::open()?;
        let domain = kernel::domain(options.table_base, options.priority);
        let inherited = !domain.keys(&netlink).await?.is_empty();
        if !options.dry_run {
            paths::check_tables(&netlink, options.table_base, inherited).await?;
        }
        let mut offload = Offload {
            inputs: Inputs::new(configs, SETTLE),
            netlink,
            balancer: Balancer::load(&BalancerConfig { mark_mask: 1, dry_run: true, flows: None })?,
            attached: BTreeMap::new(),
            before: Vec::new(),
            routing: KernelRouting::new(domain),
            absent: 0,
            underlay: Underlay::default(),
            effects: Effects::default(),
            mended: 0,
            tenure: Tenure::new(inherited),
            options,
        };
        offload.set_hash()?;
        Ok(offload)
    }

    fn set_hash(&mut self) -> Result<(), AgentError> {
        let seed = self.options.config.edge.seed.to_string();
        let wanted = [
            ("ipv4/fib_multipath_hash_seed", seed.as_str()),
            ("ipv4/fib_multipath_hash_policy", "1"),
            ("ipv6/fib_multipath_hash_policy", "1"),
        ];
        let mut changes = Vec::new();
        for (name, value) in wanted {
            let path = PathBuf::from("/proc/sys/net").join(name);
            let what = || format!("setting net.{}={value}", name.replace('/', "."));
            let Ok(now) = fs::read_to_string(&path) else {
                return Err(LinuxError::Missing { what: what(), needs: NEEDS_SEED }.into());
            };
            if now.trim() != value && !self.options.dry_run {
                changes.push((path, now, value, what()));
            }
        }
        // Only now: where one of them is missing, none is changed.
        for (path, now, value, what) in changes {
            // In the sandbox of a unit settings are read-only: then the administrator has to set them.
            if let Err(error) = fs::write(&path, value) {
                self.restore_hash();
                return Err(LinuxError::io(what, error).into());
            }
            self.before.push((path, now));
        }
        Ok(())
    }

    /// Puts the settings back that were changed.
    fn restore_hash(&mut self) {
        for (path, value) in self.before.drain(..) {
            if let Err(error) = fs::write(&path, value.trim()) {
                tracing::warn!(%error, path = %path.display(), "the setting is not what it was");
            }
        }
    }

    fn table(&self) -> u32 {
        *paths::tables(self.options.table_base).start()
    }

    /// Asks the kernel whether packets of the site leave by the paths of our route.
    async fn check_effect(&mut self) -> Result<(), AgentError> {
        let (netlink, numbers) = (&self.netlink, (self.options.table_base, self.options.priority));
        let all = async |checker: &Checker<'_>| offloaded(netlink, checker, numbers).await;
        self.effects.look(netlink, all, OPTION).await
    }

    fn rule(&self, family: Family) -> MarkRule {
        // A mask without bits: all packets that come in by the interface.
        MarkRule { family, mark: 0, mask: 0, table: self.table(), priority: self.options.priority }
    }

    /// The routes that the kernel should have: one for each destination, with the next hops in the order of the file. Those
    /// whose interface is down are left out: the kernel would refuse the whole route.
    async fn wanted(&mut self) -> Result<Routes, AgentError> {
        let links = self.netlink.interfaces().await?;
        let running: Vec<_> = links.into_iter().filter(|link| link.running).collect();
        let config = &self.options.config;
        let interfaces = Interfaces::read(&self.netlink, &running, &config.destinations).await?;
        let sets = paths::resolve_quietly(&config.destinations, &interfaces, &config.places);
        let all: usize = config.destinations.iter().map(|set| set.paths.len()).sum();
        let absent = all - sets.iter().map(|set| set.paths.len()).sum::<usize>();
        if absent > self.absent {
            tracing::warn!(
                absent,
                "paths whose interface is missing or down are left out: the other edge chooses otherwise until they are back"
            );
        }
        self.absent = absent;
        self.underlay.exceptions = Exceptions::find(&self.netlink, &sets).await?;
        let table = self.table();
        let mut routes = Routes::new();
        for set in &sets {
            let hop = |route: &PathRoute| match route {
                PathRoute::Via(via, interface) => Some(NextHop { via: Some(*via), interface: *interface }),
                PathRoute::OnLink(interface) => Some(NextHop { via: None, interface: *interface }),
                _ => None,
            };
            let hops: Vec<_> = set.paths.iter().filter_map(|path| hop(&path.route)).collect();
            if !hops.is_empty() {
                let route = Route { table, destination: set.destination, target: Target::Via(hops), mtu: None };
                routes.insert((table, set.destination), route);
            }
        }
        for inner in self.underlay.exceptions.sets(&sets) {
            let destination = inner.destination;
            routes.insert((table, destination), Route { table, destination, target: Target::Throw, mtu: None });
        }
        Ok(routes)
    }
}

impl Daemon for Offload {
    type Error = AgentError;
    type Event = Input<(), EdgeConfig>;

    const INTERVAL: Duration = Duration::from_secs(1);

    async fn start(&mut self) -> Result<(), AgentError> {
        self.inputs.listen(None)?;
        settings::warn_of_sysctls(&self.options.config);
        Ok(())
    }

    async fn next_event(&mut self) -> Option<Self::Event> {
        let Offload { inputs, routing, underlay, effects, .. } = self;
        let concerns = |change: &RoutingChange| {
            routing.concerns(change) || effects.concerns(change) || underlay.concerns(routing, change)
        };
        inputs.next(concerns).await
    }

    async fn handle_event(&mut self, event: Self::Event) -> Handled<AgentError> {
        match event {
            // No controller is followed.
            Input::Controller(_) => Handled { result: Ok(()), reconciles: false },
            Input::Config(config) => Handled { result: self.handle_config(*config).await, reconciles: true },
            Input::Links => {
                let result = self.handle_links().await;
                self.inputs.links_handled(result)
            }
            Input::Routing => {
                let differs = self.compare().await;
                self.inputs.compared(differs)
            }
        }
    }

    async fn reconcile(&mut self) -> Result<(), AgentError> {
        self.netlink.renew()?;
        let wanted = self.wanted().await?;
        if self.options.dry_run {
            self.tenure.begin();
            return Ok(());
        }
        self.routing.install_routes(&self.netlink, &wanted).await.map_err(|refusal| refusal.error)?;
        let families: BTreeSet<_> = wanted.keys().map(|(_, destination)| Family::of(*destination)).collect();
        let inside = &self.options.config.edge.inside;
        let of = |family: &Family| inside.iter().map(|input| self.rule(*family).for_input(input)).collect::<Vec<_>>();
        let rules: BTreeSet<_> = families.iter().flat_map(of).collect();
        self.routing.install_rules(&self.netlink, rules.iter().cloned()).await?;
        self.routing.prune(&self.netlink, |rule| rules.contains(rule), |key| wanted.contains_key(key)).await?;
        self.rehash().await?;
        self.tenure.begin();
        note(self.check_effect().await);
        Ok(())
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        self.netlink.renew()?;
        self.rehash().await?;
        Ok(ControlFlow::Continue(()))
    }

    fn status(&self) -> String {
        let absent = if self.absent > 0 {
            format!(", {} whose interface is missing or down", self.absent)
        } else {
            String::new()
        };
        format!(
            "next hops of {} destinations in the kernel's own routes{absent}",
            self.options.config.destinations.len()
        )
    }

    fn read_status(&mut self) -> Result<String, AgentError> {
        sidestep_hostd::status::to_json(&self.current_status()?)
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, AgentError> {
        Ok(metrics::page(&self.current_status()?, faults))
    }

    async fn stop(mut self, end: End) -> Result<(), AgentError> {
        if self.tenure.should_keep_state(end, self.options.keep) {
            return Ok(());
        }
        let removed = kernel::remove_all(&self.netlink, self.options.table_base, self.options.priority).await;
        self.restore_hash();
        removed.map(drop)
    }
}

impl Offload {
    async fn handle_config(&mut self, mut config: EdgeConfig) -> Result<(), AgentError> {
        if let Err(problem) = config.check_offload() {
            tracing::error!("the configuration stays what it was: {problem}");
            return Ok(());
        }
        if config.edge.seed != self.options.config.edge.seed {
            tracing::warn!("seed stays what it is until the edge is started again");
            config.edge.seed = self.options.config.edge.seed;
        }
        if config.metrics != self.options.config.metrics {
            tracing::warn!("[metrics] stays what it is until the edge is started again");
        }
        self.options.config = config;
        tracing::info!("the configuration was read again");
        self.handle_links().await
    }

    /// The kernel removes next hops together with their interfaces. Routes that it has as they should be are left alone.
    async fn handle_links(&mut self) -> Result<(), AgentError> {
        self.netlink.renew()?;
        self.routing.compare(&self.netlink).await?;
        Ok(())
    }

    async fn compare(&mut self) -> Result<bool, AgentError> {
        let drift = if self.options.dry_run { Drift::default() } else { self.routing.compare(&self.netlink).await? };
        drift.log();
        self.mended += drift.lost() as u64;
        let differs = drift.is_any() || self.underlay.has_changed(&self.netlink).await?;
        if !differs {
            note(self.check_effect().await);
        }
        Ok(differs)
    }

    /// Attaches the program where it is not. A packet that comes with a hash of its network card's, or of the socket that sent it on
    /// this machine, would keep that.
    async fn rehash(&mut self) -> Result<(), AgentError> {
        if self.options.dry_run {
            return Ok(());
        }
        let interfaces = self.netlink.interfaces().await?;
        let inside = &self.options.config.edge.inside;
        for name in inside {
            let Some(interface) = interfaces.iter().find(|interface| interface.name == *name) else { continue };
            let index = interface.index;
            let known = self.attached.get(name) == Some(&index);
            if known && self.balancer.is_attached(&self.netlink, index, Side::Rehash).await? {
                continue;
            }
            self.mended += u64::from(known);
            self.balancer.attach(&self.netlink, interface, Side::Rehash).await?;
            self.attached.insert(name.clone(), index);
        }
        let is_left =
            |name: &String| !self.tenure.is_at_work() || self.attached.contains_key(name) && !inside.contains(name);
        // What an earlier daemon left elsewhere, or a balancer that chose itself, and what an earlier configuration named.
        for interface in interfaces.iter().filter(|interface| is_left(&interface.name)) {
            let keep = |side| side == Side::Rehash && inside.contains(&interface.name);
            balancer::remove_but(&self.netlink, interface.index, keep).await?;
        }
        self.attached.retain(|name, _| inside.contains(name));
        Ok(())
    }

    fn current_status(&self) -> Result<status::EdgeStatus, AgentError> {
        let failed = |error: String| LinuxError::io("reading the status", std::io::Error::other(error));
        let mut status = status::EdgeStatus::of_config(&self.options.config).map_err(failed)?;
        status.offload = true;
        status.dry_run = self.options.dry_run;
        status.mended = self.mended;
        status.overridden = self.effects.found().cloned().collect();
        for (name, is_on) in &mut status.inside {
            *is_on = self.attached.contains_key(name);
        }
        Ok(status)
    }
}
