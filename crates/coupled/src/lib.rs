//! Coupled congestion control of MPTCP (`include/policy/coupled.h`): LIA, OLIA and BALIA, by which the windows of a connection's
//! subflows grow together.
//!
//! The kernel's programs and the simulator call the same functions. A subflow adds up [`Sums`] over all subflows about once in a
//! round trip; its growth for each acknowledged segment, and the share of its window that a loss leaves, follow from these.
//!
//! ```
//! use sidestep_coupled::{Algorithm, Path, Sums, grown};
//!
//! let path = Path { window: 14_480, between_losses: 1_000_000, rtt: 20_000, mss: 1_448 };
//! let sums = Sums::of([path, path]);
//! // Two like subflows of ten segments: LIA grows each by a segment for 40 that are acknowledged, Reno for 10.
//! let growth = sums.growth(Algorithm::Lia, &path);
//! let mut credit = 0;
//! assert_eq!(grown(&mut credit, growth, 39), 0);
//! assert_eq!(grown(&mut credit, growth, 2), 1);
//! ```

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// How the windows of subflows are coupled (`enum coupled_algorithm`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// LIA (RFC 6356).
    Lia,
    /// OLIA (Khalili and others, "MPTCP is not Pareto-optimal", IEEE/ACM Transactions on Networking 21(5), 2013).
    Olia,
    /// BALIA (Peng and others, "Multipath TCP: analysis, design, and implementation", the same, 24(1), 2016).
    Balia,
}

/// `struct coupled_path`: a subflow, as coupling sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Path {
    /// Congestion window in bytes.
    pub window: u64,
    /// Bytes acknowledged since the last loss, or between the two before, whichever is more.
    pub between_losses: u64,
    /// Smoothed round-trip time in microseconds.
    pub rtt: u32,
    /// Bytes of a segment.
    pub mss: u32,
}

/// `struct coupled_sums`: what coupling needs of all subflows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct Sums {
    rate: u64,
    fastest: u64,
    keen_rate: u64,
    longest: u64,
    widest: u64,
    keen_rtt: u32,
    longest_rtt: u32,
    count: u16,
    widest_of: u16,
    best_of: u16,
    both: u16,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 3] = [Algorithm::Lia, Algorithm::Olia, Algorithm::Balia];

    /// Its name in lower case, also the kernel's for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::Lia => "lia",
            Algorithm::Olia => "olia",
            Algorithm::Balia => "balia",
        }
    }

    /// The number that C knows it by.
    pub fn number(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Algorithm {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is none of lia, olia and balia"))
    }
}

impl Sums {
    /// Those of these subflows.
    pub fn of(paths: impl IntoIterator<Item = Path>) -> Self {
        let mut sums = Sums::default();
        paths.into_iter().for_each(|path| sums.add(&path));
        sums
    }

    /// Adds a subflow.
    #[inline]
    pub fn add(&mut self, path: &Path) {
        // SAFETY: both pointers come from references to the structs that C reads and writes.
        unsafe { native_coupled_add(self, path) }
    }

    /// How many subflows were added.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// By how much of a segment the window of `path` grows for each segment acknowledged in congestion avoidance, times 2³²;
    /// with OLIA it may shrink.
    #[inline]
    pub fn growth(&self, algorithm: Algorithm, path: &Path) -> i64 {
        // SAFETY: both pointers come from references to the structs that C reads.
        unsafe { native_coupled_growth(algorithm.number(), self, path) }
    }

    /// The share of the window of `path` that a loss leaves, times 2¹⁶.
    #[inline]
    pub fn kept(&self, algorithm: Algorithm, path: &Path) -> u32 {
        // SAFETY: as in `growth`.
        unsafe { native_coupled_kept(algorithm.number(), self, path) }
    }
}

/// LIA's α (RFC 6356, section 3, equation 2): how keen the subflows are together, where one TCP on the best path is 1; `None` if none
/// of them has a window and a round-trip time.
pub fn alpha(paths: &[Path]) -> Option<f64> {
    let (mut total, mut rate, mut best) = (0.0, 0.0, 0.0f64);
    for path in paths.iter().filter(|path| path.rtt > 0) {
        let (window, rtt) = (path.window as f64, f64::from(path.rtt));
        total += window;
        rate += window / rtt;
        best = best.max(window / (rtt * rtt));
    }
    (rate > 0.0).then(|| total * best / (rate * rate))
}

/// Takes the growth for `acked` segments, and returns by how many whole segments the window changes. The rest stays in `credit`,
/// which a loss sets to 0.
#[inline]
pub fn grown(credit: &mut i64, growth: i64, acked: u32) -> i32 {
    // SAFETY: the pointer comes from a reference.
    unsafe { native_coupled_grown(credit, growth, acked) }
}

/// `struct coupled_call` of `coupled_parity.bpf.c`: one computation, made by the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
pub struct CoupledCall {
    /// What was added up before.
    pub sums: Sums,
    /// The subflow that is added, and for which the rest is computed.
    pub path: Path,
    /// The credit; the kernel writes it.
    pub credit: i64,
    /// The growth, written by the kernel.
    pub growth: i64,
    /// `enum coupled_algorithm`.
    pub algorithm: u32,
    /// Segments acknowledged.
    pub acked: u32,
    /// The share that a loss leaves, written by the kernel.
    pub kept: u32,
    /// By how many segments the window changes, written by the kernel.
    pub grown: i32,
}

impl CoupledCall {
    /// The call with what the native build computes for it; any bytes are a call.
    pub fn answered(mut self) -> Self {
        // SAFETY: all pointers come from references to the structs that C reads and writes.
        unsafe {
            native_coupled_add(&mut self.sums, &self.path);
            self.growth = native_coupled_growth(self.algorithm, &self.sums, &self.path);
            self.kept = native_coupled_kept(self.algorithm, &self.sums, &self.path);
            self.grown = native_coupled_grown(&mut self.credit, self.growth, self.acked);
        }
        self
    }
}

const _: () = assert!(size_of::<Path>() == 24 && size_of::<Sums>() == 56, "differs from the C struct");
const _: () = assert!(size_of::<CoupledCall>() == 112, "differs from the C struct");

unsafe extern "C" {
    fn native_coupled_add(sums: *mut Sums, path: *const Path);
    fn native_coupled_growth(algorithm: u32, sums: *const Sums, path: *const Path) -> i64;
    fn native_coupled_kept(algorithm: u32, sums: *const Sums, path: *const Path) -> u32;
    fn native_coupled_grown(credit: *mut i64, growth: i64, acked: u32) -> i32;
}
