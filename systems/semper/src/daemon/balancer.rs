//! The balancer of an edge router (`bpf/balance.bpf.c`): a path for each packet that comes from the site.
//!
//! The program is a tc filter on ingress, at a place of its own. It outlives the daemon: the kernel keeps it, and the maps
//! that it uses, until it is replaced or removed.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use ipnet::IpNet;
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, Object, ProgramInput, TC_INGRESS, TcHook, TcHookBuilder,
    query::{ProgInfoIter, ProgInfoQueryOptions},
};
use sidestep_balance as balance;
use sidestep_balance::{PathSet, RawSet};
use sidestep_flow_hash::FlowKey;
use sidestep_linux::{
    LinuxError, Result,
    bpf::{MAX_SLOTS, bytecode, each_entry, failed, load, map, open, per_cpu_sum, program, set_constants},
    netlink::{Filter, Interface, LOOPBACK, Netlink},
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Most paths of a destination.
pub const MAX_PATHS: usize = balance::MAX_PATHS;

const SLOTS: u32 = MAX_SLOTS + 1;
/// Our filters' priority, and the handle of each, so that we find them again and leave those of others alone.
const PRIORITY: u32 = 84;
const HANDLES: [(Side, u32); 3] = [(Side::Site, 0x5354), (Side::Paths, 0x5355), (Side::Rehash, 0x5356)];
/// How many hosts' turns are kept; those of the least recently used are forgotten.
const TURNS: u32 = 16_384;

/// How the program marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancerConfig {
    /// The bits of the mark that are ours.
    pub mark_mask: u32,
    /// Whether to count only.
    pub dry_run: bool,
    /// How many TCP flows the table holds; `None`: no table, every flow by its hash.
    pub flows: Option<u32>,
}

/// Where a filter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Where the site's packets come in: they get a path.
    Site,
    /// Where packets of paths arrive: the table learns by which.
    Paths,
    /// Where the site's packets come in for the kernel's own multipath routes: it hashes them itself.
    Rehash,
}

/// The paths to a destination as the program has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The paths and how flows are spread over them.
    pub set: PathSet,
    /// A bit for each path that is not known to be dead.
    pub live: u32,
    /// The mark slot of each path; 0 for one that has no route now.
    pub slots: Vec<u8>,
    /// The interface by which packets of each path arrive; 0 where it is not known.
    pub arrives: Vec<u32>,
}

/// Packets by what became of them. One that GRO has merged of several counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalancerCounts {
    /// Packets that got a path.
    pub balanced: u64,
    /// Packets to other destinations, of other protocols, or with a source route.
    pub left_alone: u64,
    /// Fragments among those balanced, which go by addresses alone.
    pub fragments: u64,
    /// ICMP errors among those balanced, which follow the flow that they quote.
    pub errors: u64,
    /// Packets whose path had no route: they took the router's own.
    pub unrouted: u64,
    /// Flows for which the table had no room: they go by their hash.
    pub table_full: u64,
}

/// What a slot has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotUse {
    /// Packets; one that GRO has merged counts once.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// `EDGE_FLOW_WORDS` of `bpf/edge.h`.
const FLOW_WORDS: usize = 4;
const FLOW_BITS: u32 = FLOW_WORDS as u32 * 64;

/// The program, loaded, with its maps.
#[derive(Debug)]
pub struct Balancer {
    object: Object,
}

impl Balancer {
    /// Makes the kernel verify and load the programs.
    pub fn load(config: &BalancerConfig) -> Result<Self> {
        let mut open = open("balance", bytecode!("balance"))?;
        let BalancerConfig { mark_mask, dry_run, flows } = *config;
        let constants = [mark_mask, mark_mask.trailing_zeros(), dry_run.into(), flows.is_some().into()];
        set_constants(&mut open, constants.as_bytes())?;
        for mut map in open.maps_mut() {
            let size = match map.name().to_string_lossy().as_ref() {
                "sidestep_flows" => flows.unwrap_or(1),
                "sidestep_turns" if flows.is_some() => TURNS,
                _ => continue,
            };
            map.set_max_entries(size).map_err(|error| failed("sizing the balancer's table", &error))?;
        }
        Ok(Balancer { object: load("balance", open)? })
    }

    /// Sets the paths to a destination; `None` leaves its packets alone, also within a wider destination that has paths.
    ///
    /// A packet meets the former paths or these, never a mixture.
    pub fn set_site(&self, destination: IpNet, site: Option<&Site>) -> Result<()> {
        let value = site.map_or_else(RawSite::new_zeroed, RawSite::of);
        let written =
            self.map("sidestep_sites")?.update(prefix(destination).as_bytes(), value.as_bytes(), MapFlags::ANY);
        written.map_err(|error| failed(format!("setting the paths to {destination}"), &error))
    }

    /// Removes a destination.
    pub fn remove_site(&self, destination: IpNet) -> Result<()> {
        let removed = self.map("sidestep_sites")?.delete(prefix(destination).as_bytes());
        removed.map_err(|error| failed(format!("removing the paths to {destination}"), &error))
    }

    /// Attaches the program to the ingress of an interface, in the place of one that an earlier daemon left.
    ///
    /// A filter of another program in that place is an error, and stays.
    pub async fn attach(&self, netlink: &Netlink, interface: &Interface, side: Side) -> Result<()> {
        let what = || format!("attaching the balancer to {}", interface.name);
        let filters = netlink.ingress_filters(interface.index).await?;
        if let Some(other) = filters.iter().find(|filter| is_at(filter, side) && !is_ours(filter)) {
            let place = format!(
                "the filter `{}` of somebody else has priority {PRIORITY} and handle {:#x}: remove it, `tc filter show dev {} ingress`",
                other.name, other.handle, interface.name
            );
            return Err(LinuxError::io(what(), io::Error::other(place)));
        }
        let program = program(&self.object, program_of(side))?;
        let mut hook = hook_at(program.as_fd(), interface.index, side);
        hook.create().map_err(|error| failed(what(), &error))?;
        hook.attach().map(drop).map_err(|error| failed(what(), &error))
    }

    /// Whether this very program is on the ingress of an interface.
    pub async fn is_attached(&self, netlink: &Netlink, interface: u32, side: Side) -> Result<bool> {
        let ours = self.program_id(side)?;
        let filters = netlink.ingress_filters(interface).await?;
        Ok(filters.iter().any(|filter| is_at(filter, side) && filter.program == ours))
    }

    /// What became of packets since the program was loaded.
    pub fn counts(&self) -> Result<BalancerCounts> {
        let map = self.map("sidestep_counts")?;
        let count = |index| per_cpu_sum(&map, index);
        Ok(BalancerCounts {
            balanced: count(0)?,
            left_alone: count(1)?,
            fragments: count(2)?,
            errors: count(3)?,
            unrouted: count(4)?,
            table_full: count(5)?,
        })
    }

    /// What each slot has carried since the program was loaded; slot 0 stands for the router's own route.
    pub fn uses(&self) -> Result<BTreeMap<u32, SlotUse>> {
        let map = self.map("sidestep_use")?;
        let mut uses = BTreeMap::new();
        for slot in 0..SLOTS {
            let values = map.lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY);
            let values = values.map_err(|error| failed("reading the balancer's counters", &error))?.unwrap_or_default();
            let mut sum = SlotUse::default();
            for value in values {
                let [packets, bytes] = <[u64; 2]>::read_from_prefix(&value).map(|(words, _)| words).unwrap_or_default();
                sum.packets += packets;
                sum.bytes += bytes;
            }
            if sum != SlotUse::default() {
                uses.insert(slot, sum);
            }
        }
        Ok(uses)
    }

    /// About how many flows each slot has had since [`forget_seen`](Self::forget_seen): exact to a tenth up to 200, and 1,420 at
    /// most, which then stands for more.
    pub fn seen(&self) -> Result<BTreeMap<u32, u32>> {
        let map = self.map("sidestep_seen")?;
        let mut seen = BTreeMap::new();
        for slot in 0..SLOTS {
            let values = map.lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY);
            let values = values.map_err(|error| failed("reading the balancer's flows", &error))?.unwrap_or_default();
            let mut bits = [0; FLOW_WORDS];
            for (words, _) in values.iter().filter_map(|value| <[u64; FLOW_WORDS]>::read_from_prefix(value).ok()) {
                bits.iter_mut().zip(words).for_each(|(all, word)| *all |= word);
            }
            let set: u32 = bits.iter().map(|word: &u64| word.count_ones()).sum();
            if set > 0 {
                seen.insert(slot, flows_of(set));
            }
        }
        Ok(seen)
    }

    /// Begins to note flows again.
    pub fn forget_seen(&self) -> Result<()> {
        let map = self.map("sidestep_seen")?;
        let processors = libbpf_rs::num_possible_cpus().map_err(|error| failed("counting processors", &error))?;
        let none = vec![vec![0; FLOW_WORDS * 8]; processors];
        for slot in 0..SLOTS {
            let cleared = map.update_percpu(&slot.to_ne_bytes(), &none, MapFlags::ANY);
            cleared.map_err(|error| failed("clearing the balancer's flows", &error))?;
        }
        Ok(())
    }

    /// How many flows the table has.
    pub fn flows(&self) -> Result<usize> {
        let mut flows = 0;
        each_entry(&self.map("sidestep_flows")?, |_, _| flows += 1)?;
        Ok(flows)
    }

    /// Forgets flows of which nothing was seen for `idle` seconds, or for `closing` seconds after their end; returns how many.
    pub fn forget_flows(&self, now: u32, idle: u32, closing: u32) -> Result<usize> {
        let map = self.map("sidestep_flows")?;
        let mut stale = Vec::new();
        each_entry(&map, |key, value| {
            let Ok(flow) = RawFlow::read_from_bytes(value) else { return };
            let age = now.saturating_sub(flow.seen);
            if age > idle || (flow.closing != 0 && age > closing) {
                stale.push(key.to_vec());
            }
        })?;
        Ok(stale.iter().filter(|key| map.delete(key).is_ok()).count())
    }

    /// Runs the program on a frame, as if it came from the site or by a path over the loopback interface, and returns its mark afterwards; for tests.
    pub fn run(&self, side: Side, frame: &mut [u8], mark: u32, repeat: u32) -> Result<(u32, std::time::Duration)> {
        let mut context = [0u32; 48]; // struct __sk_buff of the running kernel may be shorter, which is fine
        // Its `mark`, and its `ingress_ifindex`.
        for (place, value) in [(2, mark), (9, LOOPBACK)] {
            context.iter_mut().skip(place).take(1).for_each(|word| *word = value);
        }
        let mut out = context;
        let input = ProgramInput {
            data_in: Some(frame),
            context_in: Some(context.as_mut_bytes()),
            context_out: Some(out.as_mut_bytes()),
            repeat,
            ..ProgramInput::default()
        };
        let run = program(&self.object, program_of(side))?.test_run(input);
        let duration = run.map_err(|error| failed("running the balancer", &error))?.duration;
        Ok((out.get(2).copied().unwrap_or_default(), duration))
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        map(&self.object, name)
    }

    fn program_id(&self, side: Side) -> Result<u32> {
        let program = program(&self.object, program_of(side))?;
        libbpf_rs::Program::id_from_fd(program.as_fd()).map_err(|error| failed("looking at the balancer", &error))
    }
}

/// About how many flows have set `set` bits, by linear counting (Whang, Vander-Zanden and Taylor, 1990).
fn flows_of(set: u32) -> u32 {
    let all = f64::from(FLOW_BITS);
    // Where all are set, as if one were not.
    let unset = f64::from(FLOW_BITS.saturating_sub(set).max(1));
    (all * (all / unset).ln()).round() as u32
}

/// The seed of the hash by which the balancer on an interface of the site chooses, whichever process attached it; `None` if there
/// is none, or it has no paths.
pub async fn seed_in_place(netlink: &Netlink, interface: u32) -> Result<Option<u32>> {
    let what = || "reading the paths of an earlier edge daemon";
    let Some(sites) = map_in_place(netlink, interface, "sidestep_sites", what()).await? else { return Ok(None) };
    for key in sites.keys() {
        let value = sites.lookup(&key, MapFlags::ANY).map_err(|error| failed(what(), &error))?;
        let raw = value.and_then(|value| RawSite::read_from_bytes(&value).ok());
        // One without paths leaves its packets alone.
        if let Some(raw) = raw.filter(|raw| raw.set.n > 0) {
            return Ok(Some(raw.set.seed));
        }
    }
    Ok(None)
}

/// The mark slot that a table has for a flow: that of the balancer on an interface of the site, whichever process attached it;
/// `None` if it has none. Both directions of the flow have the same.
pub async fn slot_in_table(netlink: &Netlink, interface: u32, flow: &FlowKey) -> Result<Option<u32>> {
    let what = "reading the edge's table";
    let Some(table) = map_in_place(netlink, interface, "sidestep_flows", what).await? else { return Ok(None) };
    let found = table.lookup(flow.canonical().to_raw().as_bytes(), MapFlags::ANY);
    let found = found.map_err(|error| failed(what, &error))?;
    Ok(found.and_then(|value| RawFlow::read_from_bytes(&value).ok()).map(|flow| flow.slot))
}

/// A map of the balancer on an interface of the site, whichever process attached it.
async fn map_in_place(netlink: &Netlink, interface: u32, name: &str, what: &str) -> Result<Option<MapHandle>> {
    let filters = netlink.ingress_filters(interface).await?;
    let Some(ours) = filters.iter().find(|filter| is_at(filter, Side::Site) && is_ours(filter)) else {
        return Ok(None);
    };
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let program = ProgInfoIter::with_query_opts(options).find(|program| program.id == ours.program);
    for id in program.map(|program| program.map_ids).unwrap_or_default() {
        let map = MapHandle::from_map_id(id).map_err(|error| failed(what, &error))?;
        if map.name() == name {
            return Ok(Some(map));
        }
    }
    Ok(None)
}

/// Removes our filters from an interface, whichever process attached them; returns whether there were any. Those of others, and
/// the `clsact` qdisc, stay.
pub async fn remove(netlink: &Netlink, interface: u32) -> Result<bool> {
    remove_but(netlink, interface, |_| false).await
}

/// Removes our filters from an interface, whichever process attached them, but for those of the sides to `keep`; returns whether
/// there were any.
pub async fn remove_but(netlink: &Netlink, interface: u32, keep: impl Fn(Side) -> bool) -> Result<bool> {
    let filters = netlink.ingress_filters(interface).await?;
    let mut removed = false;
    for (side, _) in HANDLES.into_iter().filter(|(side, _)| !keep(*side)) {
        removed |= detach(&filters, interface, side)?;
    }
    Ok(removed)
}

/// Removes our filter of one side from an interface; one that is gone is fine.
pub async fn remove_side(netlink: &Netlink, interface: u32, side: Side) -> Result<()> {
    detach(&netlink.ingress_filters(interface).await?, interface, side).map(drop)
}

fn detach(filters: &[Filter], interface: u32, side: Side) -> Result<bool> {
    if !filters.iter().any(|filter| is_at(filter, side) && is_ours(filter)) {
        return Ok(false);
    }
    // Libbpf finds a filter by its place and wants no program for that.
    let gone = hook_at(io::stderr().as_fd(), interface, side).detach();
    gone.map_err(|error| failed(format!("removing the balancer from interface {interface}"), &error))?;
    Ok(true)
}

fn program_of(side: Side) -> &'static str {
    match side {
        Side::Site => "sidestep_edge",
        Side::Paths => "sidestep_learn",
        Side::Rehash => "sidestep_rehash",
    }
}

fn handle_of(side: Side) -> u32 {
    HANDLES.iter().find(|(other, _)| *other == side).map_or(0, |(_, handle)| *handle)
}

fn is_at(filter: &Filter, side: Side) -> bool {
    (filter.priority, filter.handle) == (PRIORITY, handle_of(side))
}

fn is_ours(filter: &Filter) -> bool {
    HANDLES.iter().any(|(side, _)| filter.name.starts_with(program_of(*side)))
}

fn hook_at(program: BorrowedFd<'_>, interface: u32, side: Side) -> TcHook {
    TcHookBuilder::new(program)
        .ifindex(interface as i32)
        .replace(true)
        .handle(handle_of(side))
        .priority(PRIORITY)
        .hook(TC_INGRESS)
}

/// A prefix as the program looks it up: IPv4 within `::ffff:0:0/96`.
fn prefix(net: IpNet) -> RawPrefix {
    match net.trunc() {
        IpNet::V4(net) => {
            RawPrefix { length: 96 + u32::from(net.prefix_len()), address: net.addr().to_ipv6_mapped().octets() }
        }
        IpNet::V6(net) => RawPrefix { length: net.prefix_len().into(), address: net.addr().octets() },
    }
}

/// `struct edge_prefix`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Immutable, IntoBytes)]
struct RawPrefix {
    length: u32,
    address: [u8; 16],
}

/// `struct edge_site`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes)]
struct RawSite {
    set: RawSet,
    live: u32,
    unused: u32,
    slot: [u8; MAX_PATHS],
    arrives: [u32; MAX_PATHS],
}

/// `struct edge_flow`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes)]
struct RawFlow {
    slot: u32,
    seen: u32,
    closing: u32,
    follows: u32,
}

const _: () = assert!(
    size_of::<RawPrefix>() == 20 && size_of::<RawSite>() == 448 && size_of::<RawFlow>() == 16,
    "differs from the C struct"
);

impl RawSite {
    fn of(site: &Site) -> Self {
        let mut raw = RawSite { set: *site.set.raw(), live: site.live, ..RawSite::new_zeroed() };
        raw.slot.iter_mut().zip(&site.slots).for_each(|(to, slot)| *to = *slot);
        raw.arrives.iter_mut().zip(&site.arrives).for_each(|(to, interface)| *to = *interface);
        raw
    }
}
