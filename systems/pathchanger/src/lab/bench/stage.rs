//! Two namespaces with two links, a control group for the traffic, and the agent.

use std::{
    fs::{self, File},
    io::Write,
    net::Ipv6Addr,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::Command,
};

use ipnet::{IpNet, Ipv6Net};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use sidestep_lab::{LabDir, LabError, Place, Process, stop_all};
use sidestep_linux::{
    LinuxError,
    bpf::idle::IdlePrograms,
    cgroup::{self, Cgroup},
    netlink::{self, MAIN_TABLE, Netlink, NextHop, Route, Target},
    netns::{NetNs, set_sysctl},
};

use crate::daemon::program::Pins;

/// Where the server listens.
pub const SERVER: Ipv6Addr = Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 1);
const CLIENT: Ipv6Addr = Ipv6Addr::new(0xfd00, 8, 0, 0, 0, 0, 0, 1);
/// Of the client's and of the server's prefix.
const PREFIX_LEN: u8 = 64;
/// The server's port.
pub const PORT: u16 = 5001;
/// Number of links, each of which is a path.
const LINKS: u16 = 2;
const MTU: u32 = 1_500;

/// Rates of two paths that are drawn equally often.
pub const ALIKE: [&str; 2] = ["1 Gbit/s", "1 Gbit/s"];
/// Rates of two paths of which only the first is drawn.
pub const FIRST: [&str; 2] = ["1 Tbit/s", "1 kbit/s"];

/// The namespaces, control groups and directories of a benchmark; removed when dropped.
#[derive(Debug)]
pub struct Stage {
    /// Membership in the control group whose sockets the agent may move. It is dropped first, because the group is
    /// destroyed with all processes in it.
    _inside: Inside,
    _mount: Mount,
    /// The client's namespace, where the agent runs.
    pub host: NetNs,
    /// The server's namespace.
    pub server: NetNs,
    program: PathBuf,
    traffic: Cgroup,
    daemons: Cgroup,
    site: LabDir,
}

/// A process of the benchmark.
#[derive(Debug)]
pub struct Daemon(Process);

impl Stage {
    /// Builds the stage, and puts this process into its control group for traffic until the stage is dropped.
    pub fn build(program: PathBuf) -> Result<Self, LabError> {
        let site = LabDir::create()?;
        let (host, server) = (NetNs::create()?, NetNs::create()?);
        connect(&host, &server)?;
        let (traffic, daemons) = (site.cgroup().child("traffic")?, site.cgroup().child("daemons")?);
        let mount = Mount::bpf(&site.directory().join("bpf"))?;
        let inside = Inside::join(&traffic)?;
        Ok(Stage { _inside: inside, _mount: mount, host, server, program, traffic, daemons, site })
    }

    /// Starts the agent with two paths of these rates to the server, and waits until it is ready.
    pub fn agent(&self, rates: [&str; 2], state: Option<&Path>) -> Result<Daemon, LabError> {
        self.agent_for(&self.traffic, rates, state)
    }

    /// Starts an agent that acts on no connection of the benchmark: they meet its rules, routes and table, and none of its
    /// programs.
    pub fn agent_beside(&self, rates: [&str; 2]) -> Result<Daemon, LabError> {
        self.agent_for(&self.daemons, rates, None)
    }

    fn agent_for(&self, group: &Cgroup, rates: [&str; 2], state: Option<&Path>) -> Result<Daemon, LabError> {
        let mut config = "[pathchanger]\ngamma = 1e-5\n[[destination]]\n".to_string();
        config += &format!("prefix = \"{}\"\n", prefix_of(SERVER));
        // The server takes packets from any address over any link.
        for (link, rate) in (0..LINKS).zip(rates) {
            let via = address(link, 2);
            config += &format!(
                "[[destination.path]]\nvia = \"{via}\"\ndev = \"{}\"\nrate = \"{rate}\"\nrtt = \"1 ms\"\n\
                 sources = [\"::/0\"]\n",
                name(link)
            );
        }
        let file = self.site.directory().join("agent.toml");
        fs::write(&file, config).map_err(LabError::file(&file))?;
        let mut command = Command::new(&self.program);
        command.arg("agent").arg("--config").arg(&file).arg("--cgroup").arg(group.path());
        match state {
            Some(state) => command.arg("--state").arg(state),
            None => command.arg("--no-state"),
        };
        let mut process = Process::start("agent", command, &self.place())?;
        process.wait_ready(&|| false)?;
        Ok(Daemon(process))
    }

    /// Makes the kernel call programs that do nothing wherever it would call the agent's.
    pub fn idle(&self) -> Result<IdlePrograms, LabError> {
        Ok(IdlePrograms::attach(self.traffic.path())?)
    }

    /// Starts a server that accepts whatever comes.
    pub fn sink(&self) -> Result<Daemon, LabError> {
        let mut command = Command::new(&self.program);
        command.args(["traffic", "sink", "--listen", &format!("[{SERVER}]:{PORT}")]);
        let mut process = Process::start("sink", command, &Place { node: Some(&self.server), ..self.place() })?;
        process.wait_ready(&|| false)?;
        Ok(Daemon(process))
    }

    /// The directory for the agent's state.
    pub fn state(&self) -> &Path {
        &self._mount.state
    }

    /// The BPF objects that the agent pins in the directory of its state.
    pub fn pins(&self) -> Pins {
        Pins { directory: self.state().into(), program: false }
    }

    /// Runs `sidestep` with these arguments in the client's namespace, and returns what it prints.
    pub fn ask(&self, arguments: &[&str]) -> Result<String, LabError> {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--state").arg(self.state());
        let mut process = Process::start("question", command, &self.place())?;
        while !process.has_ended() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        match process.status() {
            Some(status) if status.success() => process.output(),
            _ => Err(process.failure("failed")),
        }
    }

    /// Makes the server drop everything that the client sends over the first link.
    pub fn fail_first(&self) -> Result<(), LabError> {
        let fail = || {
            netlink::block_on(async |netlink| {
                let index = netlink.index_of(&name(0)).await?;
                // The client's frames carry the old MAC address, so the server drops them.
                netlink.bring_up(index, MTU, mac(0, 7)).await
            })
        };
        Ok(self.server.run(fail)?)
    }

    fn place(&self) -> Place<'_> {
        Place { node: Some(&self.host), cgroup: &self.daemons, logs: self.site.directory() }
    }
}

impl Daemon {
    /// Ends the process; an error if it ends with a failure.
    pub fn stop(mut self) -> Result<(), LabError> {
        stop_all(std::slice::from_mut(&mut self.0));
        match self.0.status() {
            Some(status) if status.success() => Ok(()),
            _ => Err(self.0.failure("did not end well")),
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}

/// Keeps this process, and the sockets that it makes, in another control group until dropped.
#[derive(Debug)]
struct Inside {
    back: File,
}

impl Inside {
    fn join(group: &Cgroup) -> Result<Self, LabError> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(LabError::file("/proc/self/cgroup"))?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let back = Cgroup::at(cgroup::mount_point()?.join(own)).open_procs()?;
        group.open_procs()?.write_all(b"0").map_err(LabError::file(group.path()))?;
        Ok(Inside { back })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Err(error) = self.back.write_all(b"0") {
            tracing::error!(%error, "this process cannot go back to its control group, and ends with the benchmark's");
        }
    }
}

/// A BPF file system that only this thread and what it starts can see.
#[derive(Debug)]
struct Mount {
    directory: PathBuf,
    state: PathBuf,
}

impl Mount {
    fn bpf(directory: &Path) -> Result<Self, LabError> {
        fs::create_dir(directory).map_err(LabError::file(directory))?;
        let failed = |errno: nix::Error| LinuxError::io("mounting a BPF file system", errno);
        unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).map_err(failed)?;
        mount(Some("bpf"), directory, Some("bpf"), MsFlags::empty(), None::<&str>).map_err(failed)?;
        Ok(Mount { directory: directory.into(), state: directory.join("agent") })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = umount2(&self.directory, MntFlags::MNT_DETACH);
    }
}

fn prefix_of(address: Ipv6Addr) -> Ipv6Net {
    Ipv6Net::new_assert(address, PREFIX_LEN).trunc()
}

fn name(link: u16) -> String {
    format!("link{link}")
}

/// The address of one end of a link; the client's end is 1, the server's is 2.
fn address(link: u16, end: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x10 + link, 0, 0, 0, 0, 0, end)
}

fn mac(link: u16, end: u8) -> [u8; 6] {
    [2, 0, 0, 0, link as u8, end]
}

fn connect(host: &NetNs, server: &NetNs) -> Result<(), LabError> {
    for namespace in [host, server] {
        namespace.run(|| {
            set_sysctl("ipv6/conf/default/accept_dad", "0")?;
            set_sysctl("ipv6/conf/default/router_solicitations", "0")?;
            set_sysctl("ipv4/tcp_no_metrics_save", "1")?;
            netlink::block_on(async |netlink| netlink.loopback_up().await)
        })?;
    }
    host.run(|| {
        netlink::block_on(async |netlink| {
            for link in 0..LINKS {
                netlink.add_veth(&name(link), "peer").await?;
                let peer = netlink.index_of("peer").await?;
                netlink.move_to(peer, &name(link), server.as_fd()).await?;
            }
            Ok(())
        })
    })?;
    host.run(|| netlink::block_on(async |netlink| configure(netlink, 1, CLIENT, SERVER).await))?;
    server.run(|| netlink::block_on(async |netlink| configure(netlink, 2, SERVER, CLIENT).await))?;
    Ok(())
}

/// Configures one end of all links, and the route to the other end's prefix over the first link. A route to the other end
/// alone would count more than the paths.
async fn configure(netlink: &Netlink, end: u8, own: Ipv6Addr, other: Ipv6Addr) -> sidestep_linux::Result<()> {
    let peer = 3 - end;
    netlink.add_address(1, own, 128).await?;
    for link in 0..LINKS {
        let index = netlink.index_of(&name(link)).await?;
        netlink.bring_up(index, MTU, mac(link, end)).await?;
        netlink.add_address(index, address(link, end.into()), 64).await?;
        netlink.add_neighbour(index, address(link, peer.into()), mac(link, peer)).await?;
    }
    let interface = netlink.index_of(&name(0)).await?;
    let hop = NextHop { via: Some(address(0, peer.into()).into()), interface };
    let destination = IpNet::from(prefix_of(other));
    netlink.add_route(&Route { table: MAIN_TABLE, destination, target: Target::Via(vec![hop]), mtu: None }).await
}
