//! The choice of one of n paths at an edge router (`include/policy/balance.h`), and the set of paths that both
//! edges must have alike.
//!
//! A [`PathSet`] is what an edge knows: its paths by identity and weight, in order, and how it chooses. The choice
//! depends on nothing else but the flow and the paths that are live. So both edges choose alike, and a flow's two
//! directions take the same path. [`PathSet::version`] is what edges compare to find out whether they agree.
//!
//! ```
//! use sidestep_balance::{ALL_LIVE, BalanceMode, Balanced, PathSet};
//! use sidestep_flow_hash::FlowKey;
//!
//! let paths = [11, 22, 33, 44].map(|id| Balanced { id, weight: 50_000_000 });
//! let set = PathSet::new(BalanceMode::Rendezvous, 7, 1, &paths)?;
//! let flow = FlowKey {
//!     source: "2001:db8::1".parse()?,
//!     destination: "2001:db8::2".parse()?,
//!     source_port: 40_000,
//!     destination_port: 443,
//!     protocol: 6,
//!     flow_label: 0,
//! };
//! let path = set.choose(ALL_LIVE, &flow);
//! assert_eq!(set.choose(ALL_LIVE, &flow.reversed()), path);
//!
//! // The flow leaves its path when that dies.
//! assert_ne!(set.choose(ALL_LIVE & !(1 << path), &flow), path);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod mode;

pub use mode::BalanceMode;
use sidestep_flow_hash::{FlowKey, RawKey};
use thiserror::Error;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The most paths of a set (`BALANCE_MAX_PATHS`).
pub const MAX_PATHS: usize = 32;

/// The set of live paths of an edge that does not know which are dead (`BALANCE_ALL`).
pub const ALL_LIVE: u32 = u32::MAX;

/// A path that an edge balances flows over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balanced {
    /// The path's identity: the same number at both edges.
    pub id: u32,
    /// Its weight relative to the others, usually the capacity; 0: no flows while another live path has a weight.
    pub weight: u64,
}

/// The paths between two edges, and how flows are spread over them: `struct balance_set`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSet {
    raw: RawSet,
}

/// What two edges compare: whether their sets of paths are the same, and whose is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Counts the changes of the set.
    pub generation: u64,
    /// A number for mode, seed, and the paths' order, identities and weights.
    pub digest: u64,
}

/// What the comparison of two edges' versions shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The sets are the same, whatever their generations.
    Same,
    /// This edge's set is older.
    Older,
    /// This edge's set is newer.
    Newer,
    /// The sets differ and claim to be of the same generation.
    Conflict,
}

/// Paths that make no set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BalanceError {
    /// There are no paths, or more than fit.
    #[error("an edge balances over 1 to {MAX_PATHS} paths, not over {0}")]
    PathCount(usize),
    /// Two paths have the same identity.
    #[error("the paths at positions {first} and {second} have the same identity {id}; give each its own")]
    Duplicate {
        /// The identity.
        id: u32,
        /// The first position, from 0.
        first: usize,
        /// The other position.
        second: usize,
    },
    /// No path has a weight in a mode that goes by weights.
    #[error("all paths have weight 0; give one path at least a weight above 0")]
    NoWeight,
}

impl PathSet {
    /// A set of paths in their order. `seed` is that of the flow hash; `generation` counts changes of the set.
    ///
    /// Weights beyond 32 bits are scaled down together, and none but 0 becomes 0.
    pub fn new(mode: BalanceMode, seed: u32, generation: u64, paths: &[Balanced]) -> Result<Self, BalanceError> {
        if paths.is_empty() || paths.len() > MAX_PATHS {
            return Err(BalanceError::PathCount(paths.len()));
        }
        for (second, path) in paths.iter().enumerate() {
            if let Some(first) = paths.iter().take(second).position(|other| other.id == path.id) {
                return Err(BalanceError::Duplicate { id: path.id, first, second });
            }
        }
        let greatest = paths.iter().map(|path| path.weight).max().unwrap_or(0);
        if greatest == 0 && mode == BalanceMode::Weighted {
            return Err(BalanceError::NoWeight);
        }
        let shift = 32_u32.saturating_sub(greatest.leading_zeros());
        let scaled = |weight: u64| if weight == 0 { 0 } else { (weight >> shift).max(1) as u32 };
        let mut array = [RawPath::default(); MAX_PATHS];
        for (slot, path) in array.iter_mut().zip(paths) {
            *slot = RawPath { id: path.id, weight: scaled(path.weight) };
        }
        let (mode, n) = (number(mode), paths.len() as u32);
        Ok(PathSet { raw: RawSet { generation, mode, seed, n, unused: 0, path: array } })
    }

    /// How many paths there are.
    pub fn count(&self) -> u32 {
        self.raw.n
    }

    /// The position of the flow's path; the same for both directions. Bit i of `live` means that the path at position i
    /// is not known to be dead; if none is live, all count as live. The flow label does not matter.
    pub fn choose(&self, live: u32, flow: &FlowKey) -> u32 {
        self.choose_by_hash(live, self.hash(flow))
    }

    /// The flow's hash under this set's seed; the same for both directions.
    pub fn hash(&self, flow: &FlowKey) -> u32 {
        let key = FlowKey { flow_label: 0, ..*flow }.to_raw();
        // SAFETY: both pointers come from references to the structs that C reads.
        unsafe { native_balance_hash(&self.raw, &key) }
    }

    /// The position of the path of a flow whose hash is known.
    #[inline]
    pub fn choose_by_hash(&self, live: u32, hash: u32) -> u32 {
        // SAFETY: the pointer comes from a reference; C reads no more than the array's entries.
        unsafe { native_balance_choose(&self.raw, live, hash) }
    }

    /// The live path after the one at position `last`, in turn.
    pub fn next(&self, live: u32, last: u32) -> u32 {
        // SAFETY: as in `choose_by_hash`.
        unsafe { native_balance_next(&self.raw, live, last) }
    }

    /// What the other edge has to compare with its own.
    pub fn version(&self) -> Version {
        // SAFETY: as in `choose_by_hash`.
        Version { generation: self.raw.generation, digest: unsafe { native_balance_digest(&self.raw) } }
    }

    /// The set as it lies in a BPF map.
    pub fn raw(&self) -> &RawSet {
        &self.raw
    }
}

/// The number that C knows a mode by (`enum balance_mode`).
fn number(mode: BalanceMode) -> u32 {
    match mode {
        BalanceMode::Modulo => 0,
        BalanceMode::Rendezvous => 1,
        BalanceMode::Weighted => 2,
    }
}

impl Version {
    /// How this edge's version stands beside the other edge's.
    pub fn compare(self, other: Version) -> Agreement {
        match self.generation.cmp(&other.generation) {
            _ if self.digest == other.digest => Agreement::Same,
            std::cmp::Ordering::Less => Agreement::Older,
            std::cmp::Ordering::Greater => Agreement::Newer,
            std::cmp::Ordering::Equal => Agreement::Conflict,
        }
    }
}

/// `struct balance_path`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct RawPath {
    /// The path's identity.
    pub id: u32,
    /// Its weight relative to the others.
    pub weight: u32,
}

/// `struct balance_set`: the paths of an edge and how it chooses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct RawSet {
    /// Counts the changes of the set.
    pub generation: u64,
    /// `enum balance_mode`.
    pub mode: u32,
    /// Seed of the flow hash.
    pub seed: u32,
    /// How many paths.
    pub n: u32,
    /// Zero.
    pub unused: u32,
    /// The paths in their order.
    pub path: [RawPath; MAX_PATHS],
}

/// `struct balance_call` of `balance_parity.bpf.c`: one choice, computed by the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct BalanceCall {
    /// The paths.
    pub set: RawSet,
    /// The flow.
    pub key: RawKey,
    /// The live paths.
    pub live: u32,
    /// The path whose successor is asked for.
    pub last: u32,
    /// The set's digest, written by the kernel.
    pub digest: u64,
    /// The flow's hash, written by the kernel.
    pub hash: u32,
    /// The flow's path, written by the kernel.
    pub chosen: u32,
    /// The path after `last`, written by the kernel.
    pub next: u32,
    /// Zero.
    pub unused: u32,
}

impl BalanceCall {
    /// The call with what the native build computes for it; any bytes are a call.
    pub fn answered(mut self) -> Self {
        // SAFETY: all pointers come from references to the structs that C reads; no value in them makes C read beyond.
        unsafe {
            self.hash = native_balance_hash(&self.set, &self.key);
            self.chosen = native_balance_choose(&self.set, self.live, self.hash);
            self.next = native_balance_next(&self.set, self.live, self.last);
            self.digest = native_balance_digest(&self.set);
        }
        self
    }
}

const _: () = assert!(size_of::<RawSet>() == 280 && size_of::<BalanceCall>() == 360, "differs from the C struct");

unsafe extern "C" {
    fn native_balance_hash(set: *const RawSet, key: *const RawKey) -> u32;
    fn native_balance_choose(set: *const RawSet, live: u32, hash: u32) -> u32;
    fn native_balance_next(set: *const RawSet, live: u32, last: u32) -> u32;
    fn native_balance_digest(set: *const RawSet) -> u64;
}
