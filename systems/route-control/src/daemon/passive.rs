//! Measurement of the traffic that passes the egresses of a site (`bpf/passive.bpf.c`).
//!
//! A program on the egress and one on the ingress of each egress's interface look at TCP headers and change nothing. All share
//! their maps: a connection may leave by one egress while its acknowledgements come in by another. [`Passive::sample`]
//! returns what has passed since the last sample. Of QUIC and other protocols only packets and bytes are seen.

use std::{
    io,
    net::{Ipv6Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
};

use libbpf_rs::{MapCore, MapFlags, Object, TC_EGRESS, TC_INGRESS, TcAttachPoint, TcHook, TcHookBuilder};
use sidestep_linux::{
    LinuxError, Result,
    bpf::{bytecode, failed, load, map, open, program},
    netlink::{Family, Filter, Interface, Netlink},
};
use sidestep_net::{Bytes, Span, Time};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Most egresses (`PASSIVE_EGRESSES`).
pub const MAX_EGRESSES: usize = 16;

/// Our filters' priority and handle, so that we find them again and leave those of others alone.
const PRIORITY: u32 = 82;
const HANDLE: u32 = 0x5357;
/// The programs by where they are.
const PROGRAMS: [(TcAttachPoint, &str); 2] = [(TC_EGRESS, "sidestep_out"), (TC_INGRESS, "sidestep_in")];

/// The programs, loaded, with their maps. Dropping this removes them from the interfaces to which it attached them.
#[derive(Debug)]
pub struct Passive {
    object: Object,
    /// The interfaces to which it attached the programs.
    interfaces: Vec<u32>,
    /// By family, as is what was counted by egress until the last sample.
    epochs: [u32; 2],
    last: [[Totals; MAX_EGRESSES]; 2],
}

/// What has passed an egress between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassiveSample {
    /// IP packets that left, as they are on the wire: a large one that the device cuts counts as its parts.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: Bytes,
    /// TCP segments with data among them.
    pub data_segments: u64,
    /// Of these, those of which the sequence number went back.
    pub retransmitted: u64,
    /// Bytes of TCP connections that left by this egress, and that the far ends have acknowledged now: the goodput.
    pub acked: Bytes,
    /// Bytes of TCP connections that came in by this egress, and that the site's hosts have acknowledged.
    pub received: Bytes,
    /// TCP connections that sent data, or of which data was acknowledged.
    pub connections: u32,
    /// Round trips from this edge to the far ends and back; `None` if none was measured.
    pub rtt: Option<PassiveRtt>,
    /// SYNs and segments with data that had left by this egress, and were sent again as nothing had answered them.
    pub repeated: u64,
    /// When a SYN or data that left by this egress was last answered, by [`monotonic_now`](sidestep_linux::monotonic_now); `None`: never.
    pub last_heard: Option<Time>,
    /// When data that left by this egress was last acknowledged, by [`monotonic_now`](sidestep_linux::monotonic_now), since the program was
    /// loaded; `None`: never.
    pub last_advance: Option<Time>,
}

/// Round trips by TCP timestamps, the time that receivers wait before they acknowledge included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassiveRtt {
    /// How many were measured.
    pub count: u64,
    /// Their mean.
    pub mean: Span,
    /// The shortest one.
    pub least: Span,
}

/// What processors have counted of an egress, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    packets: u64,
    bytes: u64,
    data: u64,
    retransmitted: u64,
    acked: u64,
    received: u64,
    connections: u64,
    rtts: u64,
    rtt_sum: u64,
    repeated: u64,
}

/// `struct passive_use`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable)]
struct RawUse {
    segments: u64,
    bytes: u64,
    data: u64,
    retransmitted: u64,
    acked: u64,
    received: u64,
    advanced: u64,
    connections: u64,
    rtts: u64,
    rtt_sum: u64,
    rtt_least: u64,
    rtt_epoch: u64,
    repeated: u64,
    heard: u64,
}

/// `struct passive_silent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable)]
struct RawSilent {
    address: [u32; 4],
    port: u32,
    place: u32,
}

/// `struct passive_interface`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Immutable, IntoBytes)]
struct RawInterface {
    egress: u32,
    l2: u32,
}

const _: () = assert!(size_of::<RawSilent>() == 24, "differs from the C struct");
const _: () = assert!(size_of::<RawUse>() == 112 && size_of::<RawInterface>() == 8, "differs from the C struct");

impl Passive {
    /// Makes the kernel verify and load the programs, with room for this number of connections; those of which nothing was seen
    /// for longest are forgotten.
    pub fn load(connections: u32) -> Result<Self> {
        let mut open = open("passive", bytecode!("passive"))?;
        for mut map in open.maps_mut() {
            if map.name() == "sidestep_seen" {
                let sized = map.set_max_entries(connections.max(1));
                sized.map_err(|error| failed("sizing the table of connections", &error))?;
            }
        }
        let object = load("passive", open)?;
        let passive =
            Passive { object, interfaces: Vec::new(), epochs: [1; 2], last: [[Totals::default(); MAX_EGRESSES]; 2] };
        Family::ALL.into_iter().try_for_each(|family| passive.set_epoch(family))?;
        Ok(passive)
    }

    /// Measures an interface as the egress with this number, below [`MAX_EGRESSES`]. What an earlier daemon left there is replaced.
    ///
    /// A filter of another program in that place is an error, and stays.
    pub async fn attach(&mut self, netlink: &Netlink, interface: &Interface, egress: usize) -> Result<()> {
        let what = || format!("measuring what passes {}", interface.name);
        let Some(egress) = u32::try_from(egress).ok().filter(|egress| (*egress as usize) < MAX_EGRESSES) else {
            let most = format!("there are at most {MAX_EGRESSES} egresses");
            return Err(LinuxError::io(what(), io::Error::new(io::ErrorKind::InvalidInput, most)));
        };
        let value = RawInterface { egress, l2: if interface.ethernet { 14 } else { 0 } };
        let key = interface.index.to_ne_bytes();
        let written = map(&self.object, "sidestep_egress")?.update(&key, value.as_bytes(), MapFlags::ANY);
        written.map_err(|error| failed(what(), &error))?;
        for (point, name) in PROGRAMS {
            let filters = filters(netlink, interface.index, point).await?;
            if let Some(other) = filters.iter().find(|filter| is_at(filter) && !filter.name.starts_with(name)) {
                let side = if point == TC_EGRESS { "egress" } else { "ingress" };
                let place = format!(
                    "the filter `{}` of somebody else has priority {PRIORITY} and handle {HANDLE:#x}: remove it, `tc filter show dev {} {side}`",
                    other.name, interface.name
                );
                return Err(LinuxError::io(what(), io::Error::other(place)));
            }
        }
        if !self.interfaces.contains(&interface.index) {
            self.interfaces.push(interface.index);
        }
        for (point, name) in PROGRAMS {
            let program = program(&self.object, name)?;
            let mut hook = hook_at(program.as_fd(), interface.index, point);
            hook.create().map_err(|error| failed(what(), &error))?;
            hook.attach().map_err(|error| failed(what(), &error))?;
        }
        Ok(())
    }

    /// Whether these very programs are on an interface.
    pub async fn is_attached(&self, netlink: &Netlink, interface: u32) -> Result<bool> {
        for (point, name) in PROGRAMS {
            let program = program(&self.object, name)?;
            let ours = libbpf_rs::Program::id_from_fd(program.as_fd());
            let ours = ours.map_err(|error| failed("looking at the passive measurement", &error))?;
            let filters = filters(netlink, interface, point).await?;
            if !filters.iter().any(|filter| is_at(filter) && filter.program == ours) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// No longer measures an interface; one that is gone is fine.
    pub fn detach(&mut self, interface: u32) {
        self.interfaces.retain(|index| *index != interface);
        detach(interface);
        // It may be gone already, and its number may become another interface's.
        if let Ok(map) = map(&self.object, "sidestep_egress") {
            let _ = map.delete(&interface.to_ne_bytes());
        }
    }

    /// What has passed each egress since the last sample, or since the programs were loaded; all [`MAX_EGRESSES`] by their numbers.
    pub fn sample(&mut self) -> Result<[PassiveSample; MAX_EGRESSES]> {
        let mut both = self.sample_family(Family::V4)?;
        let six = self.sample_family(Family::V6)?;
        both.iter_mut().zip(&six).for_each(|(sum, of)| sum.join(of));
        Ok(both)
    }

    /// The same of one family, since the last sample of that.
    pub fn sample_family(&mut self, family: Family) -> Result<[PassiveSample; MAX_EGRESSES]> {
        let mut samples = [PassiveSample::default(); MAX_EGRESSES];
        let uses = map(&self.object, "sidestep_use")?;
        let which = usize::from(family == Family::V6);
        let (Some(last), Some(epoch)) = (self.last.get_mut(which), self.epochs.get_mut(which)) else {
            return Ok(samples);
        };
        for (egress, (sample, last)) in samples.iter_mut().zip(last).enumerate() {
            let place = (which * MAX_EGRESSES + egress) as u32;
            let values = uses.lookup_percpu(&place.to_ne_bytes(), MapFlags::ANY);
            let values = values.map_err(|error| failed("reading what has passed", &error))?.unwrap_or_default();
            let raw = values.iter().filter_map(|value| RawUse::read_from_prefix(value).ok().map(|(raw, _)| raw));
            *sample = since(last, raw, *epoch);
        }
        *epoch = epoch.wrapping_add(1).max(1);
        self.set_epoch(family)?;
        Ok(samples)
    }

    /// The far ends towards which something of a family that had left by an egress was sent again after `since`, the latest first:
    /// at most 256 of all egresses are remembered. Whether the egress or the far end is to blame is not known.
    pub fn silent(&self, family: Family, egress: usize, since: Time) -> Result<Vec<SocketAddr>> {
        let silent = map(&self.object, "sidestep_silent")?;
        let place = (usize::from(family == Family::V6) * MAX_EGRESSES + egress) as u32;
        let mut found = Vec::new();
        for key in silent.keys() {
            let Some(raw) = RawSilent::read_from_bytes(&key).ok().filter(|raw| raw.place == place) else { continue };
            let value = silent.lookup(&key, MapFlags::ANY);
            let value = value.map_err(|error| failed("reading which far ends are silent", &error))?;
            let at = value.and_then(|value| Some(u64::from_ne_bytes(value.try_into().ok()?))).unwrap_or(0);
            if at <= since.as_nanos() {
                continue;
            }
            let words = raw.address.map(u128::from);
            let address = words.into_iter().fold(0, |address, word| address << 32 | word);
            let address = Ipv6Addr::from_bits(address).to_canonical();
            found.push((at, SocketAddr::new(address, raw.port as u16)));
        }
        found.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Ok(found.into_iter().map(|(_, far)| far).collect())
    }

    fn set_epoch(&self, family: Family) -> Result<()> {
        let which = usize::from(family == Family::V6);
        let epoch = self.epochs.get(which).copied().unwrap_or_default();
        let written = map(&self.object, "sidestep_epoch")?.update(
            &(which as u32).to_ne_bytes(),
            &epoch.to_ne_bytes(),
            MapFlags::ANY,
        );
        written.map_err(|error| failed("beginning a sample", &error))
    }
}

impl PassiveSample {
    /// Takes what else has passed.
    fn join(&mut self, other: &PassiveSample) {
        self.packets += other.packets;
        self.bytes = Bytes::new(self.bytes.get() + other.bytes.get());
        self.data_segments += other.data_segments;
        self.retransmitted += other.retransmitted;
        self.acked = Bytes::new(self.acked.get() + other.acked.get());
        self.received = Bytes::new(self.received.get() + other.received.get());
        self.connections = self.connections.saturating_add(other.connections);
        self.repeated += other.repeated;
        self.last_heard = self.last_heard.max(other.last_heard);
        self.last_advance = self.last_advance.max(other.last_advance);
        self.rtt = match (self.rtt, other.rtt) {
            (Some(one), Some(two)) => {
                let sum = u128::from(one.mean.as_nanos()) * u128::from(one.count)
                    + u128::from(two.mean.as_nanos()) * u128::from(two.count);
                let count = one.count + two.count;
                let mean = Span::from_nanos((sum / u128::from(count.max(1))) as u64);
                Some(PassiveRtt { count, mean, least: one.least.min(two.least) })
            }
            (one, two) => one.or(two),
        };
    }
}

impl Drop for Passive {
    fn drop(&mut self) {
        self.interfaces.iter().for_each(|interface| detach(*interface));
    }
}

/// Removes our filters from an interface, whichever process attached them; returns whether there were any. Those of others, and
/// the `clsact` qdisc, stay.
pub async fn remove(netlink: &Netlink, interface: u32) -> Result<bool> {
    let mut removed = false;
    for (point, name) in PROGRAMS {
        let filters = filters(netlink, interface, point).await?;
        if filters.iter().any(|filter| is_at(filter) && filter.name.starts_with(name)) {
            // Libbpf finds a filter by its place and wants no program for that.
            let gone = hook_at(io::stderr().as_fd(), interface, point).detach();
            let what = || format!("removing the passive measurement from interface {interface}");
            gone.map_err(|error| failed(what(), &error))?;
            removed = true;
        }
    }
    Ok(removed)
}

async fn filters(netlink: &Netlink, interface: u32, point: TcAttachPoint) -> Result<Vec<Filter>> {
    match point {
        TC_EGRESS => netlink.egress_filters(interface).await,
        _ => netlink.ingress_filters(interface).await,
    }
}

fn is_at(filter: &Filter) -> bool {
    (filter.priority, filter.handle) == (PRIORITY, HANDLE)
}

fn detach(interface: u32) {
    for (point, _) in PROGRAMS {
        if let Err(error) = hook_at(io::stderr().as_fd(), interface, point).detach() {
            // The interface may be gone, and the filter with it.
            tracing::debug!(%error, "removing the passive measurement");
        }
    }
}

fn hook_at(program: BorrowedFd<'_>, interface: u32, point: TcAttachPoint) -> TcHook {
    TcHookBuilder::new(program).ifindex(interface as i32).replace(true).handle(HANDLE).priority(PRIORITY).hook(point)
}

/// What processors have counted of an egress since `last`, which becomes what they have counted now.
fn since(last: &mut Totals, processors: impl Iterator<Item = RawUse>, epoch: u32) -> PassiveSample {
    let (mut now, mut least, mut advanced, mut heard) = (Totals::default(), None::<u64>, 0, 0);
    for raw in processors {
        now.packets += raw.segments;
        now.bytes += raw.bytes;
        now.data += raw.data;
        now.retransmitted += raw.retransmitted;
        now.acked += raw.acked;
        now.received += raw.received;
        now.connections += raw.connections;
        now.rtts += raw.rtts;
        now.rtt_sum += raw.rtt_sum;
        now.repeated += raw.repeated;
        heard = heard.max(raw.heard);
        advanced = advanced.max(raw.advanced);
        if raw.rtt_epoch == u64::from(epoch) {
            least = Some(least.map_or(raw.rtt_least, |least| least.min(raw.rtt_least)));
        }
    }
    let before = std::mem::replace(last, now);
    // A processor may count between two readings of its fields, but no field falls.
    let count = now.rtts.saturating_sub(before.rtts);
    let mean = now.rtt_sum.saturating_sub(before.rtt_sum).checked_div(count).map(Span::from_nanos);
    PassiveSample {
        packets: now.packets.saturating_sub(before.packets),
        bytes: Bytes::new(now.bytes.saturating_sub(before.bytes)),
        data_segments: now.data.saturating_sub(before.data),
        retransmitted: now.retransmitted.saturating_sub(before.retransmitted),
        acked: Bytes::new(now.acked.saturating_sub(before.acked)),
        received: Bytes::new(now.received.saturating_sub(before.received)),
        connections: u32::try_from(now.connections.saturating_sub(before.connections)).unwrap_or(u32::MAX),
        rtt: mean.map(|mean| PassiveRtt { count, mean, least: least.map_or(mean, Span::from_nanos).min(mean) }),
        repeated: now.repeated.saturating_sub(before.repeated),
        last_heard: (heard > 0).then(|| Time::from_nanos(heard)),
        last_advance: (advanced > 0).then(|| Time::from_nanos(advanced)),
    }
}
