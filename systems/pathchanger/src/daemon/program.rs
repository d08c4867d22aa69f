//! The path changer's program (`bpf/host.bpf.c`) and what is exchanged with it (`host.h` beside it).

mod counters;
mod hash;
mod layout;
mod load;
mod names;
mod pins;
mod runs;
mod slots;
mod sockets;
mod sources;
mod ways;
mod weights;

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use ipnet::IpNet;
use libbpf_rs::{Link, MapCore, MapFlags, Object, RingBuffer, RingBufferBuilder};
use nix::fcntl::Flock;
use sidestep_linux::{
    LinuxError, Result,
    bpf::{bytecode, failed, failed_attach, keys, load, map, open, program},
    netns::NetNsId,
};
use sidestep_net::Time;
use sidestep_policy::{Reason, Stay, raw};
use tokio::io::{Interest, unix::AsyncFd};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use self::sources::Sources;
pub use self::{
    counters::HostCounters,
    layout::Superseded,
    load::{MapUse, ProgramRuns, RunStats},
    names::Names,
    pins::{Holder, Pins},
    slots::SlotPath,
    sockets::{HostConnection, Signal},
    sources::{MAX_SOURCES, PathSources, PathsFrom, SourcesByPath},
    ways::{Way, Ways},
    weights::Learnt,
};

/// The path changer's program, loaded. It acts while attached, and detaches when dropped, unless [`Pins`] keep it.
///
/// When it is gone, connections that it moved keep their marks and therefore their paths.
#[derive(Debug)]
pub struct HostProgram {
    object: Object,
    /// The links of the programs at work; empty before they are attached.
    links: Vec<Link>,
    /// The generation of the paths to each destination, and since when they have it, in nanoseconds.
    changed: BTreeMap<IpNet, (u32, u64)>,
    /// The source addresses of paths, for those that are set from now on.
    sources: Sources,
    /// The number by which hosts begin on different paths, and whether they do, for destinations that are set from now on.
    host_number: u32,
    spreads: bool,
    pins: Option<Pins>,
    /// Whether the pins are new, and go when the program is dropped: nothing depends on them yet.
    provisional: bool,
    superseded: Option<Superseded>,
    /// As long as this lock lives, no other agent works with the pins.
    lock: Option<Flock<File>>,
}

/// `struct host_config`: the program's settings, and what others need to know of the agent.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub struct HostConfig {
    /// The policy's settings.
    pub policy: raw::Config,
    /// The bits of the mark that are ours; they are contiguous.
    pub mark_mask: u32,
    /// Position of the lowest bit of `mark_mask`.
    pub mark_shift: u32,
    /// The path of slot k is in table `table_base + k`, up to [`MAX_SLOTS`](sidestep_linux::bpf::MAX_SLOTS). The program ignores it; a cleanup needs it.
    pub table_base: u32,
    /// Priority of the rules. The program ignores it; a cleanup needs it.
    pub priority: u32,
    /// 1 if the program only decides, counts and reports, and leaves marks alone; else 0.
    pub dry_run: u32,
    /// 1 if the program writes events because a process records them; else 0.
    pub events: u32,
    /// Inode of the agent's network namespace, by which its processes are found.
    pub netns_inode: u32,
    /// A [`ControllerState`]. The program ignores it; `sidestep agent status` shows it.
    pub controller: u32,
    /// When the paths came, by `CLOCK_MONOTONIC` in nanoseconds. The program ignores it; `sidestep agent status` shows it.
    pub paths_ns: u64,
    /// Cookie of the agent's network namespace, the only one in which the marks mean anything: sockets of others are left
    /// alone.
    pub netns_cookie: u64,
    /// How many rules and routes the agent has put back. The program ignores it; `sidestep agent status` shows it.
    pub mended: u32,
    /// How many connections the agent has ended because they were stuck on a dead path. The program ignores it; `sidestep
    /// agent status` shows it.
    pub resets: u32,
}

/// An agent's connection to its controller, in the order of `enum host_controller`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerState {
    /// The agent works without a controller.
    None,
    /// The controller sends updates.
    Connected,
    /// The agent cannot reach the controller, and goes on with the last paths.
    Away,
}

impl HostConfig {
    /// The settings that marks, rules and routes depend on: an agent with other values cannot take them over.
    pub fn place(&self) -> [u32; 5] {
        [self.mark_mask, self.mark_shift, self.table_base, self.priority, self.dry_run]
    }

    /// The network namespace of the agent's rules and routes; `None` if it was not noted.
    pub fn netns(&self) -> Option<NetNsId> {
        (self.netns_cookie != 0).then_some(NetNsId { cookie: self.netns_cookie, inode: self.netns_inode })
    }

    /// Reads the content of a map; `None` before it was written.
    fn read(bytes: &[u8]) -> Option<HostConfig> {
        HostConfig::read_from_bytes(bytes).ok().filter(|config| config.mark_mask != 0)
    }

    /// The agent's connection to its controller.
    pub fn controller(&self) -> ControllerState {
        match self.controller {
            1 => ControllerState::Connected,
            2 => ControllerState::Away,
            _ => ControllerState::None,
        }
    }
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The connection got its first path.
    Opened,
    /// The policy drew a path for this reason, or none as there is no other. If `from` equals `to`, the connection stayed on
    /// its path.
    Decided(Reason),
}

/// A record of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened, by `CLOCK_MONOTONIC`.
    pub at: Time,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// What happened.
    pub kind: EventKind,
    /// Whether the other end opened the connection.
    pub passive: bool,
    /// Path ID before; zero when opened.
    pub from: u32,
    /// Path ID after.
    pub to: u32,
    /// What kept it on its path, if something did.
    pub stay: Option<Stay>,
}

/// The program's events.
#[derive(Debug)]
pub struct Events<'a> {
    ring: RingBuffer<'a>,
    ready: AsyncFd<OwnedFd>,
}

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct HostPrefix {
    len: u32,
    family: u32,
    addr: [u8; 16],
}

const _: () = assert!(size_of::<HostConfig>() == size_of::<raw::Config>() + 56);
const _: () = assert!(size_of::<HostPrefix>() == 24);

/// Bytes of `struct host_event`.
const EVENT_LEN: usize = 56;
/// How many bits of a key come before the address.
const FAMILY_BITS: u32 = 32;
impl HostProgram {
    /// Loads the program into the kernel, which verifies it. With `pins` it takes over what an earlier program left there.
    ///
    /// New pins go when the program is dropped, until [`keep_state`](Self::keep_state) makes them stay. What was there
    /// before stays whatever fails, unless it is of another layout.
    pub fn load(pins: Option<Pins>) -> Result<Self> {
        let Some(pins) = pins else {
            return Ok(HostProgram::of(load("host", open("host", bytecode!("host"))?)?));
        };
        pins.make()?;
        let mut lock = pins.lock()?;
        let superseded = HostProgram::supersede(&pins)?;
        if superseded.is_some() {
            // The directory may be a new one. If it is the same, our own lock would be in the way.
            drop(lock);
            pins.make()?;
            lock = pins.lock()?;
        }
        let provisional = !pins.exist();
        let opened = open_pinned(&pins).and_then(|object| {
            layout::keep_release(&object, &pins.directory)?;
            Ok(object)
        });
        match opened {
            Ok(object) => {
                let mut program = HostProgram::of(object);
                (program.pins, program.lock) = (Some(pins), Some(lock));
                (program.provisional, program.superseded) = (provisional, superseded);
                Ok(program)
            }
            // The directory may be new.
            Err(error) if provisional => pins.remove().and(Err(error)),
            Err(error) => Err(error),
        }
    }

    /// A program that is not kept and that acts on nothing.
    fn of(object: Object) -> Self {
        HostProgram {
            object,
            links: Vec::new(),
            changed: BTreeMap::new(),
            sources: Sources::default(),
            host_number: 0,
            spreads: false,
            pins: None,
            provisional: false,
            superseded: None,
            lock: None,
        }
    }

    /// What became of the state that an agent of another version had left, if one had.
    pub fn superseded(&self) -> Option<Superseded> {
        self.superseded
    }

    /// From now on the pins stay when the program is dropped.
    pub fn keep_state(&mut self) {
        self.provisional = false;
    }

    /// Whether the pins were removed, to make the agent end.
    ///
    /// The directory that was locked counts, not its path: that a mount is gone or covered is no request to end.
    pub fn is_asked_to_end(&self) -> bool {
        self.lock.as_ref().is_some_and(|directory| pins::is_empty(directory))
    }

    /// Opens what an agent keeps in `pins`, to read it while the agent works or after it was killed; `None` if there is
    /// nothing.
    pub fn look(pins: &Pins) -> Result<Option<Self>> {
        if !pins.exist() {
            return Ok(None);
        }
        if !layout::fits(pins)? {
            let what = format!("reading what the agent keeps in {}", pins.directory.display());
            let other = "it is an agent of another version; ask with the program of its version";
            return Err(LinuxError::io(what, io::Error::other(other)));
        }
        let mut program = HostProgram::of(open_pinned(pins)?);
        program.pins = Some(pins.clone());
        Ok(Some(program))
    }

    /// Sets the configuration; connections follow it from their next signal on.
    pub fn configure(&mut self, config: &HostConfig) -> Result<()> {
        self.note_layout(config)?;
        self.spreads = config.policy.gain_guard == 1;
        let written =
            map(&self.object, "sidestep_config")?.update(&0u32.to_ne_bytes(), config.as_bytes(), MapFlags::ANY);
        written.map_err(|error| failed("configuring the path changer", &error))
    }

    /// Lets the programs act on the sockets of the processes in `cgroup` and below.
    pub fn attach(&mut self, cgroup: &Path) -> Result<()> {
        let what = || format!("attaching the path changer to {}", sidestep_linux::cgroup::shown(cgroup));
        let directory = File::open(cgroup).map_err(|error| LinuxError::file(what(), cgroup, error))?;
        // Former links go last: a socket that connects meanwhile is known, or left alone.
        let mut links = Vec::with_capacity(pins::LINKS.len());
        for (pin, name) in pins::LINKS {
            let program = program(&self.object, name)?;
            let left = self.pins.as_ref().map(|pins| pins.link(pin, cgroup)).transpose()?.flatten();
            let mut link = match left {
                Some(mut link) => {
                    Pins::replace(&mut link, &program)?;
                    link
                }
                None => {
                    let attached = program.attach_cgroup(directory.as_raw_fd());
                    attached.map_err(|error| failed_attach(what(), cgroup, &error))?
                }
            };
            if let Some(pins) = &self.pins {
                pins.keep(pin, &mut link)?;
            }
            links.push(link);
        }
        self.links = links;
        Ok(())
    }

    /// Whether the programs act on `cgroup`. A control group that was removed and made again is a different one.
    pub fn is_attached(&self, cgroup: &Path) -> bool {
        self.links.len() == pins::LINKS.len() && self.links.iter().all(|link| pins::is_attached(link, cgroup))
    }

    /// Removes everything: the programs act no longer, and connections get the marks back that they had before.
    pub fn remove(mut self) -> Result<()> {
        if let Some(pins) = &self.pins {
            // A link's file is the last holder of the link.
            pins.remove()?;
        }
        self.links.clear();
        self.leave_connections()
    }

    /// The configuration that was set last; `None` before any.
    pub fn config(&self) -> Result<Option<HostConfig>> {
        let read = map(&self.object, "sidestep_config")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let bytes = read.map_err(|error| failed("reading the path changer's configuration", &error))?;
        Ok(bytes.and_then(|bytes| HostConfig::read(&bytes)))
    }

    /// The destinations that have paths.
    pub fn destinations(&self) -> Result<Vec<IpNet>> {
        let keys = keys(&map(&self.object, "sidestep_dests")?)?;
        Ok(keys.iter().filter_map(|key| read_prefix(key)).collect())
    }

    /// Removes the paths to `destination`; connections to it stay on their paths.
    pub fn remove_paths(&mut self, destination: IpNet) -> Result<()> {
        let key = HostPrefix::from(destination);
        let removed = map(&self.object, "sidestep_dests")?.delete(key.as_bytes());
        removed.map_err(|error| failed(format!("removing the paths to {destination}"), &error))?;
        self.forget_weights(destination)
    }

    /// Hands each event to `each`, when the returned stream is consumed; needs a Tokio runtime.
    pub fn events<'a>(&self, mut each: impl FnMut(Event) + 'a) -> Result<Events<'a>> {
        let map = map(&self.object, "sidestep_events")?;
        let mut builder = RingBufferBuilder::new();
        let added = builder.add(&map, move |bytes| {
            if let Some(event) = read_event(bytes) {
                each(event);
            }
            0
        });
        added.map_err(|error| failed("opening the event buffer", &error))?;
        let ring = builder.build().map_err(|error| failed("opening the event buffer", &error))?;
        // SAFETY: libbpf keeps the descriptor open as long as `ring` lives, which is beyond this call.
        let ready = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) }.try_clone_to_owned();
        let ready = ready.map_err(|error| LinuxError::io("opening the event buffer", error))?;
        // SAFETY: the descriptor is owned by the `AsyncFd` from here on and never replaced.
        let ready = unsafe { AsyncFd::register_with_interest(ready, Interest::READABLE) };
        let ready = ready.map_err(|error| LinuxError::io("opening the event buffer", io::Error::from(error)))?;
        Ok(Events { ring, ready })
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        if let Some(pins) = self.pins.as_ref().filter(|_| self.provisional)
            && let Err(error) = pins.remove()
        {
            tracing::warn!(%error, "an unused state is left");
        }
    }
}

/// The names of the program's maps, which are those of their pins.
fn map_names() -> Result<Vec<String>> {
    let open = open("host", bytecode!("host"))?;
    Ok(open.maps().map(|map| map.name().to_string_lossy().into_owned()).collect())
}

fn open_pinned(pins: &Pins) -> Result<Object> {
    let mut open = open("host", bytecode!("host"))?;
    pins.apply(&mut open)?;
    load("host", open)
}

impl Events<'_> {
    /// Waits until the program wakes us because many events wait. It loses nothing when it is dropped.
    pub async fn ready(&self) -> Result<()> {
        let mut guard = self
            .ready
            .readable()
            .await
            .map_err(|error| LinuxError::io("waiting for the path changer's events", error))?;
        guard.clear_ready();
        Ok(())
    }

    /// Hands over the events that wait, without waiting for more.
    pub fn consume(&self) -> Result<()> {
        self.ring.consume().map_err(|error| failed("reading the path changer's events", &error))
    }
}

impl From<IpNet> for HostPrefix {
    fn from(net: IpNet) -> Self {
        let mut addr = [0; 16];
        let family = match net.network() {
            IpAddr::V4(address) => {
                addr[..4].copy_from_slice(&address.octets());
                4
            }
            IpAddr::V6(address) => {
                addr = address.octets();
                6
            }
        };
        HostPrefix { len: FAMILY_BITS + u32::from(net.prefix_len()), family, addr }
    }
}

/// Reads `struct host_prefix`; `None` if it is not one.
fn read_prefix(key: &[u8]) -> Option<IpNet> {
    let word = |at: usize| Some(u32::from_ne_bytes(key.get(at..at + 4)?.try_into().ok()?));
    let bytes = <[u8; 16]>::try_from(key.get(8..24)?).ok()?;
    let address = match word(4)? {
        4 => IpAddr::from(<[u8; 4]>::try_from(&bytes[..4]).ok()?),
        6 => IpAddr::from(bytes),
        _ => return None,
    };
    // The kernel compares no bits beyond the length, so they may be anything.
    Some(IpNet::new(address, u8::try_from(word(0)?.checked_sub(FAMILY_BITS)?).ok()?).ok()?.trunc())
}

/// An end of a connection, whose address the program writes as one of IPv6.
fn end(address: [u8; 16], port: u16) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port)
}

/// Reads `struct host_event`; `None` if it is not one.
fn read_event(bytes: &[u8]) -> Option<Event> {
    let bytes: &[u8; EVENT_LEN] = bytes.get(..EVENT_LEN)?.try_into().ok()?;
    let u16_at = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let u32_at = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let address = |at: usize| <[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap_or_default();
    let kind = match bytes[44] {
        0 => EventKind::Opened,
        1 => EventKind::Decided(*Reason::ALL.get(usize::from(bytes[45]))?),
        _ => return None,
    };
    Some(Event {
        at: Time::from_nanos(u64::from(u32_at(0)) | u64::from(u32_at(4)) << 32),
        local: end(address(8), u16_at(40)),
        remote: end(address(24), u16_at(42)),
        kind,
        passive: bytes[46] != 0,
        from: u32_at(48),
        to: u32_at(52),
        stay: Stay::from_raw(bytes[47].into()),
    })
}

/// Hands bytes to everything that reads what lies in pinned maps: for property tests and fuzz targets.
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing {
    use super::*;

    /// Reads bytes as a key or a value of each pinned map, as an event, and as what the iterators over sockets write.
    ///
    /// # Panics
    /// Panics if what was read is not what must be known of it.
    pub fn read_pins(bytes: &[u8]) {
        if let Some(net) = read_prefix(bytes) {
            assert_eq!(read_prefix(HostPrefix::from(net).as_bytes()), Some(net));
        }
        assert!(!names::read_name(bytes).chars().any(char::is_control));
        if let Some(config) = HostConfig::read(bytes) {
            let _ = (config.place(), config.netns(), config.controller());
        }
        let _ = (read_event(bytes), slots::read_marked(bytes), sockets::read_status(bytes));
        slots::fuzzing::read(bytes);
        weights::fuzzing::read(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_the_kernel_writes_them() {
        let mut bytes = [0u8; EVENT_LEN];
        bytes[..8].copy_from_slice(&77u64.to_ne_bytes());
        bytes[8..24].copy_from_slice(&"fd02:0:1::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes[40..42].copy_from_slice(&5201u16.to_ne_bytes());
        bytes[44] = 1;
        bytes[45] = 3;
        bytes[47] = 2;
        bytes[48..52].copy_from_slice(&5u32.to_ne_bytes());
        bytes[52..56].copy_from_slice(&6u32.to_ne_bytes());
        let event = read_event(&bytes).unwrap();
        assert_eq!(event.at, Time::from_nanos(77));
        assert_eq!(event.local, "[fd02:0:1::1]:5201".parse().unwrap());
        assert_eq!((event.kind, event.from, event.to), (EventKind::Decided(Reason::Rto), 5, 6));
        assert_eq!(event.stay, Some(Stay::OnlyPath));
    }

    #[test]
    fn a_prefix_of_either_family_is_read_back_from_its_key() {
        for net in ["2001:db8::/32", "::/0", "10.9.0.0/16", "0.0.0.0/0", "10.9.8.7/32"] {
            let net: IpNet = net.parse().unwrap();
            assert_eq!(read_prefix(HostPrefix::from(net).as_bytes()), Some(net));
        }
        let mut odd = HostPrefix::from("10.9.0.0/16".parse::<IpNet>().unwrap());
        odd.addr[3] = 1;
        assert_eq!(read_prefix(odd.as_bytes()), Some("10.9.0.0/16".parse().unwrap()), "host bits");
        let key = HostPrefix { len: 32 + 33, family: 4, addr: [0; 16] };
        assert_eq!(read_prefix(key.as_bytes()), None);
        assert_eq!(read_prefix(HostPrefix { len: 31, ..key }.as_bytes()), None);
        assert_eq!(read_prefix(HostPrefix { family: 5, ..key }.as_bytes()), None);
    }

    #[test]
    fn addresses_of_ipv4_are_shown_as_such() {
        let mapped = std::net::Ipv4Addr::new(10, 9, 8, 7).to_ipv6_mapped().octets();
        assert_eq!(end(mapped, 443), "10.9.8.7:443".parse().unwrap());
    }

    #[test]
    fn records_that_are_not_events_are_refused() {
        assert_eq!(read_event(&[0; EVENT_LEN - 1]), None);
        let mut bytes = [0u8; EVENT_LEN];
        bytes[44] = 1;
        bytes[45] = 200;
        assert_eq!(read_event(&bytes), None);
        bytes[44] = 9;
        assert_eq!(read_event(&bytes), None);
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_lies_in_a_pinned_map_makes_a_reader_panic(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..2_000),
        ) {
            fuzzing::read_pins(&bytes);
        }
    }
}
