//! The program at egress that diverts packets into the process (`bpf/divert.bpf.c`).
//!
//! The programs are tc filters at places of their own. They outlive the process, and pass everything once its last
//! [beat](Filters::beat) is 100 ms ago.

#[cfg(test)]
mod tests;

use std::{io, os::fd::AsFd};

use libbpf_rs::{MapCore, MapFlags, Object, TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};
use sidestep_linux::{
    LinuxError, Result,
    bpf::{bytecode, failed, load, map, open, program},
    netlink::{Filter, Interface, Netlink},
};
use sidestep_net::Time;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{DivertCounts, Mode, PortEntry, state::Shared};

/// Our filters' priority; their handles are [`Place::handle`].
const PRIORITY: u32 = 85;
/// Bits of `port.flags`.
const UP: u32 = 1;
const TCP_ONLY: u32 = 2;
const EDGE: u32 = 4;
/// The length of an Ethernet header.
const ETHERNET: u32 = 14;

/// Where a filter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On egress of a managed interface.
    Divert,
    /// On ingress of an edge port's TUN device.
    Emit,
}

/// The programs, loaded, with their maps.
#[derive(Debug)]
pub struct Filters {
    object: Object,
    shared: Shared,
    programs: Programs,
}

/// The numbers of the programs that a process has loaded, which are no other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Programs([u32; 2]);

impl Filters {
    /// Makes the kernel verify and load the programs; they pass everything until the first [beat](Self::beat).
    pub fn load() -> Result<Self> {
        let object = load("divert", open("divert", bytecode!("divert"))?)?;
        let shared = Shared::map(map(&object, "sidestep_state")?.as_fd())?;
        let id = |place: Place| {
            let loaded = program(&object, place.program())?;
            libbpf_rs::Program::id_from_fd(loaded.as_fd()).map_err(|error| failed("looking at a program", &error))
        };
        let programs = Programs([id(Place::Divert)?, id(Place::Emit)?]);
        Ok(Filters { object, shared, programs })
    }

    /// Attaches the program to the egress of an interface, in the place of one that an earlier process left.
    ///
    /// A filter of another program in that place is an error, and stays.
    pub async fn attach(&self, netlink: &Netlink, interface: &Interface) -> Result<()> {
        self.attach_at(netlink, interface.index, &interface.name, Place::Divert).await
    }

    /// Makes what the process writes into the TUN device with this index leave by `interface`, without another hop of the kernel.
    /// The filter goes with the device.
    pub async fn attach_reinject(&self, netlink: &Netlink, tun: u32, interface: u32) -> Result<()> {
        let written = self.map("sidestep_edges")?.update(&tun.to_ne_bytes(), &interface.to_ne_bytes(), MapFlags::ANY);
        written.map_err(|error| failed(format!("naming the interface of TUN device {tun}"), &error))?;
        self.attach_at(netlink, tun, &format!("TUN device {tun}"), Place::Emit).await
    }

    /// How these very programs are known.
    pub fn programs(&self) -> Programs {
        self.programs
    }

    /// Sets what the program knows of an interface.
    pub fn set_port(&self, interface: u32, entry: &PortEntry) -> Result<()> {
        let what = || format!("setting the port of interface {interface}");
        let key = interface.to_ne_bytes();
        let counts = self.map("sidestep_counts")?;
        let none = counts.lookup_percpu(&key, MapFlags::ANY).map_err(|error| failed(what(), &error))?.is_none();
        if none {
            let processors = libbpf_rs::num_possible_cpus().map_err(|error| failed("counting processors", &error))?;
            let zeros = vec![vec![0; size_of::<RawCounts>()]; processors];
            counts.update_percpu(&key, &zeros, MapFlags::ANY).map_err(|error| failed(what(), &error))?;
        }
        let written = self.map("sidestep_ports")?.update(&key, RawPort::of(entry).as_bytes(), MapFlags::ANY);
        written.map_err(|error| failed(what(), &error))
    }

    /// Forgets an interface, whose packets then pass, and its counts, and a TUN device; what is not known is fine.
    pub fn remove_port(&self, interface: u32, tun: u32) -> Result<()> {
        for (name, key) in [("sidestep_ports", interface), ("sidestep_counts", interface), ("sidestep_edges", tun)] {
            match self.map(name)?.delete(&key.to_ne_bytes()) {
                Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                    return Err(failed(format!("forgetting the port of interface {interface}"), &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives a sign of life, which costs no system call; `now` is of `CLOCK_MONOTONIC`.
    pub fn beat(&self, now: Time) {
        self.shared.beat(now);
    }

    /// Gives no sign of life any more: everything passes at once.
    pub fn stop(&self) {
        self.shared.beat(Time::from_nanos(0));
    }

    /// Sets what becomes of packets while links are idle; without a system call.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.set_mode(mode);
    }

    /// What becomes of packets now; the program itself goes from [`Mode::PassIdle`] to [`Mode::Divert`].
    pub fn mode(&self) -> Mode {
        self.shared.mode()
    }

    /// What became of the packets of an interface since it was set first; all zero for one that is not known.
    pub fn counts(&self, interface: u32) -> Result<DivertCounts> {
        let values = self.map("sidestep_counts")?.lookup_percpu(&interface.to_ne_bytes(), MapFlags::ANY);
        let values = values.map_err(|error| failed("reading counts of packets", &error))?.unwrap_or_default();
        let mut sum = [0_u64; size_of::<RawCounts>() / 8];
        for (words, _) in values.iter().filter_map(|value| RawCounts::read_from_prefix(value).ok()) {
            sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
        }
        let [diverted, down, stale, own, other, oversize, not_tcp, idle, bytes] = sum;
        Ok(DivertCounts { diverted, down, stale, own, other, oversize, not_tcp, idle, bytes })
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        map(&self.object, name)
    }

    async fn attach_at(&self, netlink: &Netlink, interface: u32, name: &str, place: Place) -> Result<()> {
        let what = || format!("attaching {} to {name}", place.program());
        let filters = place.filters(netlink, interface).await?;
        if let Some(other) = filters.iter().find(|filter| place.is_at(filter) && !place.is_of(filter)) {
            let by = format!(
                "the filter `{}` of somebody else has priority {PRIORITY} and handle {:#x}: remove it, `tc filter show dev {name} {}`",
                other.name,
                other.handle,
                place.side()
            );
            return Err(LinuxError::InTheWay { what: what(), by });
        }
        let program = program(&self.object, place.program())?;
        let mut hook = place.hook(program.as_fd(), interface);
        hook.create().map_err(|error| failed(what(), &error))?;
        hook.attach().map(drop).map_err(|error| failed(what(), &error))
    }
}

impl Programs {
    /// Whether the program that diverts is on the egress of an interface.
    pub async fn divert(self, netlink: &Netlink, interface: u32) -> Result<bool> {
        self.is_at(netlink, interface, Place::Divert).await
    }

    /// Whether the program of an edge's TUN device is there.
    pub async fn emit(self, netlink: &Netlink, tun: u32) -> Result<bool> {
        self.is_at(netlink, tun, Place::Emit).await
    }

    async fn is_at(self, netlink: &Netlink, interface: u32, place: Place) -> Result<bool> {
        let Programs([divert, emit]) = self;
        let ours = if place == Place::Divert { divert } else { emit };
        let filters = place.filters(netlink, interface).await?;
        Ok(filters.iter().any(|filter| place.is_of(filter) && filter.program == ours))
    }
}

/// Removes our filters from the interface with this index, whichever process attached them; returns whether there were any.
/// Those of others, and the `clsact` qdisc, stay.
pub async fn remove(netlink: &Netlink, interface: u32) -> Result<bool> {
    let mut removed = false;
    for place in [Place::Divert, Place::Emit] {
        let filters = place.filters(netlink, interface).await?;
        if filters.iter().any(|filter| place.is_of(filter)) {
            // Libbpf finds a filter by its place and wants no program for that.
            let gone = place.hook(io::stderr().as_fd(), interface).detach();
            gone.map_err(|error| failed(format!("removing {} from interface {interface}", place.program()), &error))?;
            removed = true;
        }
    }
    Ok(removed)
}

/// Removes our filters from all interfaces, also those that killed processes have left; returns whether there were any.
pub async fn remove_all(netlink: &Netlink) -> Result<bool> {
    let mut removed = false;
    for interface in netlink.interfaces().await? {
        removed |= remove(netlink, interface.index).await?;
    }
    Ok(removed)
}

impl Place {
    fn program(self) -> &'static str {
        match self {
            Place::Divert => "sidestep_divert",
            Place::Emit => "sidestep_emit",
        }
    }

    fn handle(self) -> u32 {
        match self {
            Place::Divert => 0x5357,
            Place::Emit => 0x5358,
        }
    }

    fn side(self) -> &'static str {
        match self {
            Place::Divert => "egress",
            Place::Emit => "ingress",
        }
    }

    fn is_at(self, filter: &Filter) -> bool {
        (filter.priority, filter.handle) == (PRIORITY, self.handle())
    }

    fn is_of(self, filter: &Filter) -> bool {
        self.is_at(filter) && filter.name.starts_with(self.program())
    }

    async fn filters(self, netlink: &Netlink, interface: u32) -> Result<Vec<Filter>> {
        match self {
            Place::Divert => netlink.egress_filters(interface).await,
            Place::Emit => netlink.ingress_filters(interface).await,
        }
    }

    fn hook(self, program: std::os::fd::BorrowedFd<'_>, interface: u32) -> TcHook {
        let side = match self {
            Place::Divert => TC_EGRESS,
            Place::Emit => TC_INGRESS,
        };
        let mut builder = TcHookBuilder::new(program);
        builder.ifindex(interface as i32).replace(true).handle(self.handle()).priority(PRIORITY).hook(side)
    }
}

/// `struct counts`.
type RawCounts = [u64; 9];

/// `struct port`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Immutable, IntoBytes)]
struct RawPort {
    tun: u32,
    flags: u32,
    max_len: u32,
    l2_len: u32,
    rate_kbps: u64,
    free_at: u64,
}

const _: () = assert!(size_of::<RawPort>() == 32 && size_of::<RawCounts>() == 72, "differs from the C struct");

impl RawPort {
    fn of(entry: &PortEntry) -> Self {
        let &PortEntry { tun, up, edge, tcp_only, ethernet, max_len, rate } = entry;
        let flags = if up { UP } else { 0 } | if edge { EDGE } else { 0 } | if tcp_only { TCP_ONLY } else { 0 };
        let l2_len = if ethernet { ETHERNET } else { 0 };
        RawPort { tun, flags, max_len, l2_len, rate_kbps: rate.bits_per_sec().div_ceil(1_000), free_at: 0 }
    }
}
