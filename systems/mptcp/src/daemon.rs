//! The path manager for MPTCP: gives connections further subflows, as unmodified kernels leave to a program.
//!
//! `Manager` decides, without sockets and clocks; the rest of this room is its shell.

mod addresses;
mod config;
mod congestion;
mod connection;
mod host;
mod manager;
mod metrics;
pub mod needs;
mod ports;
mod state;
mod status;
mod tally;

use std::{ops::ControlFlow, path::PathBuf, time::Duration};

use sidestep_hostd::{
    AgentError, ControlSocket, Daemon, End, Handled, Listeners, Page, Scrapes, Shutdown,
    control::{self, Protocol, Request},
    inputs::{Input, Inputs},
};
use sidestep_linux::{
    LinuxError,
    mptcp::{EventSocket, ManagerSetting, Received, SubflowRequests, port_range, tcp_ends},
    netns::NetNsId,
    sock_diag::SockDiag,
};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

pub use self::{
    addresses::{AddressStatus, AddressesConfig, PathsOf},
    config::{
        DEFAULT_COUNT, LimitsConfig, MetricsTable, Mode as MptcpMode, MptcpPmConfig, PortChoice, PortsConfig,
        PrefixRule, WatchConfig, Wish,
    },
    congestion::{Choice as CongestionChoice, CongestionConfig, CongestionStatus, CoupledStatus, WindowStatus},
    metrics::MPTCP_PM_METRICS,
    ports::hash_of as subflow_hash,
    status::{ConnectionStatus, MptcpPmStatus},
};
use self::{
    congestion::Congestion,
    host::HostNetwork,
    manager::{Command, Manager},
    state::{State, StateFile},
    tally::Limit,
};

/// What the path manager needs to know.
#[derive(Clone, Debug)]
pub struct MptcpPmOptions {
    /// What connections get.
    pub config: MptcpPmConfig,
    /// Directory for what the next path manager should know, should this one be killed; `None`: nothing is kept.
    pub state: Option<PathBuf>,
    /// Whether to leave paths of new connections to programs (`net.mptcp.path_manager`), and to put back at the end what was
    /// before.
    pub set_sysctl: bool,
    /// Whether everything stays in place on a shutdown, for the next path manager to take over.
    pub keep: bool,
    /// Whether to decide only, and to make the kernel do nothing.
    pub dry_run: bool,
}

/// Runs the path manager of the calling thread's network namespace until `shutdown` completes; calls `ready` when it manages
/// connections.
///
/// Connections that exist are taken over, with what an earlier path manager left in the state directory. Whatever ends the
/// path manager, connections go on with the subflows that they have.
pub async fn run_mptcp_pm(
    options: MptcpPmOptions,
    configs: UnboundedReceiver<MptcpPmConfig>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = Shutdown>,
) -> Result<(), AgentError> {
    let listen = options.config.metrics.listen;
    let control = Some(ControlSocket::claim(NAME, "mptcp-pm", Protocol::Byte).await?);
    let path_manager = PathManager::start(options, Inputs::new(configs, SETTLE))?;
    let listeners = Listeners { scrapes: Scrapes::listen_if(listen).await?, control };
    sidestep_hostd::run(path_manager, listeners, ready, shutdown).await
}

/// The status of the path manager of the calling thread's network namespace; `None` if there is none.
pub async fn mptcp_pm_status() -> Result<Option<MptcpPmStatus>, AgentError> {
    let Some(text) = control::ask(NAME, Request::Status).await? else { return Ok(None) };
    let malformed =
        |error: serde_json::Error| LinuxError::io("reading the path manager's status", std::io::Error::from(error));
    Ok(Some(serde_json::from_str(&text).map_err(malformed)?))
}

/// Ends the path manager of the calling thread's network namespace, and puts back the sysctl that it, or a killed one, has
/// set. Returns whether there was anything.
pub async fn stop_mptcp_pm(state: Option<PathBuf>) -> Result<bool, AgentError> {
    let stopped = control::stop(NAME, Protocol::Byte).await?;
    let Some(directory) = state.filter(|directory| directory.exists()) else { return Ok(stopped) };
    let (file, left) = open_state(&directory, NetNsId::current()?.cookie)?;
    let put_back = left.setting_before();
    if let Some(before) = &put_back {
        put_back_setting(before)?;
    }
    file.remove();
    Ok(stopped || put_back.is_some())
}

/// The path manager's hold on the kernel.
struct PathManager {
    options: MptcpPmOptions,
    inputs: Inputs<(), MptcpPmConfig>,
    manager: Manager,
    events: EventSocket,
    requests: SubflowRequests,
    host: HostNetwork,
    congestion: Congestion,
    diag: SockDiag,
    next_list: Instant,
    list_took: Duration,
    setting: ManagerSetting,
    /// Who managed paths before.
    before: Option<ManagerSetting>,
    state: Option<StateFile>,
    namespace: u64,
    /// How often each limit was reached when that was last logged.
    logged: [u64; Limit::ALL.len()],
    log_after: Instant,
}

/// How long to wait after a change of an interface, so that the changes that come with it are handled together.
const SETTLE: Duration = Duration::from_millis(100);
/// The socket's name.
const NAME: &str = "sidestep-mptcp-pm";
/// Events that are read, and commands that are given, before others have their turn.
const BATCH: usize = 128;
/// Lists take at most one part in this number of the time, however many connections there are.
const SHARE: u32 = 20;
/// How often limits that are reached are logged.
const LOG: Duration = Duration::from_secs(60);

impl PathManager {
    fn start(options: MptcpPmOptions, inputs: Inputs<(), MptcpPmConfig>) -> Result<Self, AgentError> {
        let setting = ManagerSetting::current()?;
        if !ManagerSetting::is_mptcp_enabled() {
            tracing::warn!("MPTCP is switched off here: `sysctl -w net.mptcp.enabled=1`");
        }
        let namespace = NetNsId::current()?.cookie;
        let opened = options.state.as_deref().map(|directory| open_state(directory, namespace)).transpose()?;
        let (state, left) = opened.map_or((None, State::default()), |(file, left)| (Some(file), left));
        let mut manager = Manager::new(options.config.clone(), port_range(), seed());
        manager.remember(left.remembered());
        if options.dry_run {
            manager.set_dry_run();
        }
        Ok(PathManager {
            inputs,
            manager,
            events: EventSocket::open(options.config.watch.event_buffer.get() as usize)?,
            requests: SubflowRequests::open()?,
            host: HostNetwork::open()?,
            congestion: Congestion::default(),
            diag: SockDiag::open()?,
            next_list: Instant::now(),
            list_took: Duration::ZERO,
            before: left.setting_before(),
            setting,
            state,
            namespace,
            logged: [0; Limit::ALL.len()],
            log_after: Instant::now(),
            options,
        })
    }

    /// Leaves the paths of new connections to programs, and notes what was before.
    fn set_setting(&mut self) -> Result<(), AgentError> {
        if self.options.dry_run || self.setting.is_for_programs() {
            return Ok(());
        }
        let wanted = self.setting.for_programs();
        let text = format!("net.mptcp.{}={}", wanted.sysctl, wanted.value);
        if !self.options.set_sysctl {
            tracing::warn!(
                "new connections keep the kernel's path manager: `sysctl -w {text}` leaves them to this one"
            );
            return Ok(());
        }
        self.before = Some(self.setting.clone());
        self.write_state()?;
        wanted.set()?;
        tracing::info!("{text}; connections and listeners of before keep the kernel's path manager");
        self.setting = wanted;
        Ok(())
    }

    fn write_state(&mut self) -> Result<(), AgentError> {
        let (Some(file), Some(directory)) = (&mut self.state, &self.options.state) else { return Ok(()) };
        let connections = self.manager.to_remember().into_iter().map(|(token, known)| (token.0, known)).collect();
        let before = self.before.as_ref().map(|setting| (setting.sysctl.to_string(), setting.value.clone()));
        let state = State { namespace: self.namespace, before, connections };
        file.write(state).map_err(|source| unkept(directory, source))
    }

    /// Reads the kernel's list of subflows.
    fn list(&mut self) -> Result<(), AgentError> {
        let began = Instant::now();
        // After an error, also of another list, what is left in the socket is of no use.
        let listed = tcp_ends(&mut self.diag);
        if listed.is_err() {
            self.diag = SockDiag::open()?;
        }
        self.manager.handle_list(sidestep_linux::monotonic_now(), &listed?);
        self.list_took = began.elapsed();
        let interval = self.manager.config().watch.interval.to_std();
        self.next_list = Instant::now() + interval.max(self.list_took * SHARE);
        Ok(())
    }

    /// Reads events, and makes the kernel do what follows from them; both only for a while.
    fn turn(&mut self) -> Result<(), AgentError> {
        match self.events.read(BATCH)? {
            Received::Nothing => {}
            Received::Events(events) => {
                let now = sidestep_linux::monotonic_now();
                events.iter().for_each(|event| self.manager.handle_event(now, event));
            }
            Received::Overflow => {
                tracing::warn!("events of the kernel were lost: the list of all subflows takes their place");
                self.manager.handle_overflow();
                self.next_list = Instant::now();
            }
        }
        if self.next_list <= Instant::now() {
            self.list()?;
        }
        for _ in 0..BATCH {
            let now = sidestep_linux::monotonic_now();
            let Some(command) = self.manager.poll_transmit(now) else { break };
            if let Command::Create(subflow) = &command
                && self.manager.needs_route(subflow)
                && !self.host.leaves(subflow.local.ip(), subflow.remote.ip())
            {
                tracing::debug!(local = %subflow.local.ip(), remote = %subflow.remote.ip(), "no route by the address's interface");
                self.manager.handle_no_route(subflow);
                continue;
            }
            let result = match &command {
                _ if self.options.dry_run => {
                    tracing::info!(?command, "would do");
                    Ok(())
                }
                Command::Create(subflow) => self.requests.create(subflow),
                Command::Withdraw(token, number) => self.requests.withdraw(*token, *number),
                Command::Destroy(token, ends) => self.requests.destroy(*token, ends),
            };
            if let Err(refusal) = &result {
                tracing::debug!(%refusal, ?command, "refused");
            }
            self.manager.handle_result(now, &command, &result);
        }
        Ok(())
    }

    async fn read_addresses(&mut self) -> Result<(), AgentError> {
        self.host.read(&self.manager.config().addresses).await?;
        let usable = if self.manager.config().has_fullmesh() { self.host.usable() } else { Vec::new() };
        self.manager.handle_addresses(usable);
        self.manager.handle_present(self.host.present());
        Ok(())
    }

    /// Routes and rules have changed, or changes may have been missed.
    async fn handle_routes(&mut self) -> Result<(), AgentError> {
        self.read_addresses().await?;
        self.manager.handle_routes();
        Ok(())
    }

    /// When the list must be read again, or the manager wants to be woken.
    fn due(&self) -> Instant {
        let now = sidestep_linux::monotonic_now();
        let due = self.manager.poll_timeout().map(|at| Instant::now() + at.since(now).to_std());
        due.map_or(self.next_list, |due| due.min(self.next_list))
    }

    /// Reports which limits were reached since the last report.
    fn log_limits(&mut self) {
        if self.log_after > Instant::now() {
            return;
        }
        let counters = self.manager.counters();
        for (limit, logged) in Limit::ALL.iter().zip(&mut self.logged) {
            let reached = counters.limited.get(limit).copied().unwrap_or_default();
            if reached > *logged {
                let times = reached - *logged;
                tracing::warn!(limit = limit.as_str(), times, "a limit keeps connections from more subflows");
                self.log_after = Instant::now() + LOG;
                *logged = reached;
            }
        }
    }

    fn status_text(&self) -> String {
        // Elsewhere no connection begins subflows from other addresses than its own.
        let fullmesh = self.manager.config().has_fullmesh();
        let addresses = if fullmesh { self.host.status(self.manager.unroutable()) } else { Vec::new() };
        let congestion = self.congestion.status();
        let status = MptcpPmStatus::new(&self.manager, &self.setting, addresses, congestion, self.options.dry_run);
        serde_json::to_string(&status).unwrap_or_default()
    }
}

/// What reaches the path manager.
enum Event {
    Input(Input<(), MptcpPmConfig>),
    /// The kernel has events, or something is due; or the kernel cannot be asked.
    Turn(Result<(), AgentError>),
}

impl Daemon for PathManager {
    type Error = AgentError;
    type Event = Event;

    const INTERVAL: Duration = Duration::from_secs(1);

    async fn start(&mut self) -> Result<(), AgentError> {
        self.inputs.listen(None)?;
        self.read_addresses().await?;
        self.list()?;
        self.congestion.apply(&self.manager.config().congestion, self.options.dry_run)?;
        // Only a path manager that works takes connections from the kernel's.
        self.set_setting()
    }

    async fn next_event(&mut self) -> Option<Event> {
        let due = self.due();
        let PathManager { inputs, manager, events, .. } = self;
        let is_paused = inputs.is_paused();
        let (events, has_fullmesh) = (&*events, manager.config().has_fullmesh());
        let pause = async {
            if due <= Instant::now() {
                // Others have their turn between two batches.
                tokio::task::yield_now().await;
            } else {
                sleep_until(due).await;
            }
        };
        let turn = async {
            tokio::select! {
                ready = events.readable() => Ok(ready?),
                () = pause => Ok(()),
            }
        };
        tokio::select! {
            input = inputs.next(|_| has_fullmesh) => input.map(Event::Input),
            result = turn, if !is_paused => Some(Event::Turn(result)),
        }
    }

    async fn handle_event(&mut self, event: Event) -> Handled<AgentError> {
        match event {
            // No controller is followed.
            Event::Input(Input::Controller(_)) => Handled { result: Ok(()), reconciles: false },
            Event::Input(Input::Config(config)) => {
                self.manager.handle_config(*config, port_range());
                let coupled = self.congestion.apply(&self.manager.config().congestion, self.options.dry_run);
                let result = self.read_addresses().await.and(coupled);
                Handled { result, reconciles: true }
            }
            Event::Input(Input::Links) => {
                // What has come with it, such as a default route, is not compared in addition.
                let result = self.handle_routes().await;
                self.inputs.links_handled(result)
            }
            Event::Input(Input::Routing) => {
                let result = self.handle_routes().await;
                self.inputs.compared(result.map(|()| false))
            }
            Event::Turn(ready) => {
                let result = ready.and_then(|()| self.turn());
                self.inputs.own_handled(result)
            }
        }
    }

    async fn reconcile(&mut self) -> Result<(), AgentError> {
        Ok(())
    }

    async fn handle_timeout(&mut self) -> Result<ControlFlow<()>, AgentError> {
        self.inputs.resume();
        self.log_limits();
        if !self.options.dry_run {
            self.write_state()?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn status(&self) -> String {
        // This is asked for after each event.
        let (connections, limited) = self.manager.counts();
        let limited = if limited == 0 { String::new() } else { format!("; {limited} at a limit") };
        format!("{connections} connections with {} subflows{limited}", self.manager.subflows())
    }

    fn read_status(&mut self) -> Result<String, AgentError> {
        Ok(self.status_text())
    }

    async fn read_metrics(&mut self, faults: u64) -> Result<Page, AgentError> {
        Ok(metrics::page(&self.manager, &self.congestion.status(), self.list_took.as_secs_f64(), faults))
    }

    async fn stop(mut self, end: End) -> Result<(), AgentError> {
        let keeps = match end {
            End::Shutdown(Shutdown::Keep) | End::Failed => true,
            End::Shutdown(Shutdown::CleanUp) => self.options.keep,
            End::Finished => false,
        };
        if self.options.dry_run {
            return Ok(());
        }
        if keeps {
            return self.write_state();
        }
        if let Some(before) = self.before.take() {
            put_back_setting(&before)?;
        }
        if let Some(state) = &self.state {
            state.remove();
        }
        Ok(())
    }
}

fn open_state(directory: &std::path::Path, namespace: u64) -> Result<(StateFile, State), AgentError> {
    StateFile::open(directory, namespace).map_err(|source| unkept(directory, source))
}

fn unkept(directory: &std::path::Path, source: std::io::Error) -> AgentError {
    LinuxError::io(format!("keeping the state in {}", directory.display()), source).into()
}

/// Puts a setting back, unless another program has changed it meanwhile.
fn put_back_setting(before: &ManagerSetting) -> Result<(), AgentError> {
    if ManagerSetting::current()?.is_for_programs() {
        before.set()?;
    }
    Ok(())
}

/// Bits that differ from one path manager to the next.
fn seed() -> u64 {
    sidestep_linux::monotonic_now().as_nanos() ^ (u64::from(std::process::id()) << 32)
}
