//! The state machine of one connection.

use std::{fmt, sync::Arc};

use sidestep_net::{Bytes, Rate, Span, Time};

use crate::PolicySettings;
use crate::{
    config::{Path, PolicyError, raw_paths},
    raw::{self, MAX_PATHS},
    shared::Shared,
};

/// The path changer of one TCP connection.
///
/// `random` is 32 uniform bits, fresh for each call.
#[derive(Clone, Debug)]
pub struct Connection {
    config: raw::Config,
    paths: [raw::Path; MAX_PATHS],
    shared: Option<Arc<Shared>>,
    conn: raw::Conn,
    began: Began,
}

/// How a connection began, as far as that still matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Began {
    /// It has a state.
    WithState,
    /// It has a path, which on Linux its mark shows, and no state until the first signal that matters. The time is that
    /// of its first round; [`Time::MAX`]: it had none.
    ByMark(Time),
}

/// What is read of the socket with every signal; the counters are cumulative and may wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// The time.
    pub now: Time,
    /// The congestion window.
    pub cwnd: Bytes,
    /// The smoothed round-trip time; zero: none yet.
    pub srtt: Span,
    /// Bytes of a segment.
    pub mss: u32,
    /// Segments sent and not acknowledged.
    pub in_flight: u32,
    /// Packets delivered.
    pub delivered: u32,
    /// Packets delivered with a CE mark.
    pub delivered_ce: u32,
    /// Where the data received in order ends.
    pub received: u32,
}

/// Linux's `TCP_RTO_MIN`.
const RTO_MIN: Span = Span::from_millis(200);

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Index of the path to use from now on.
    pub path: usize,
    /// The signal that was observed, even if the back-off had it ignored.
    pub reason: Option<Reason>,
    /// Whether the path is another than before.
    pub moved: bool,
    /// Whether a path was drawn, perhaps the same.
    pub decided: bool,
    /// Why the signal did not move the connection; `None`: it did, or there was none.
    pub stay: Option<Stay>,
}

/// When the SYN of a connection is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynTimeout {
    /// The first timeout.
    pub rto: Span,
    /// How many more times it is sent, so that the connection is not given up before it would have been.
    pub more_retries: u8,
}

/// Why a path was drawn: the kinds of signal, and one that is none; in the order of C's `enum pc_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// No signal: the agent or the controller changed the paths.
    PathsChanged,
    /// Rounds with a large share of CE marks.
    Ecn,
    /// A burst of fast retransmits.
    Retransmit,
    /// A retransmission timeout.
    Rto,
    /// A retransmission timeout of the SYN.
    SynTimeout,
    /// Data that came again, as the acknowledgements of it are lost.
    AckLoss,
    /// Rounds with a queue that other paths do not have.
    StandingQueue,
    /// Less of a full path than another path gives.
    Crowded,
}

/// Why a signal did not move a connection, in the order of C's `enum pc_stay` without its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stay {
    /// The path that it was on was drawn again.
    DrewSame,
    /// It can use no other path: its source address fits none, or there is none.
    OnlyPath,
    /// All other paths that it can use are dead.
    OthersDead,
    /// The signal came within the back-off.
    BackOff,
    /// It takes more signals of this kind.
    TooFew,
    /// The policy does not move connections for such a signal.
    ByPolicy,
    /// No other path is known to give more.
    NoGain,
}

impl Connection {
    /// A new connection over `paths` that learns for itself. It begins on [`Self::path`]: the first by the static policy,
    /// else one that is drawn.
    pub fn open(settings: &PolicySettings, paths: &[Path], now: Time, random: u32) -> Result<Self, PolicyError> {
        Self::open_among(settings, paths, None, now, random)
    }

    /// A new connection over `paths` that shares what it learns, if `settings` ask for it, with all connections that have the
    /// table `shared`: those of a host to one destination.
    pub fn open_among(
        settings: &PolicySettings,
        paths: &[Path],
        shared: Option<Arc<Shared>>,
        now: Time,
        random: u32,
    ) -> Result<Self, PolicyError> {
        let config = raw::Config::try_from(settings)?;
        let (paths, n) = raw_paths(paths)?;
        let conn = raw::open(&config, &paths, n, table(&shared), now.as_nanos(), random);
        Ok(Connection { config, paths, shared, conn, began: Began::WithState })
    }

    /// A new connection as the program in TCP begins it: without a state, where the policy allows that, until the first
    /// signal that matters. What happened before is then not known any more.
    pub fn begin(
        settings: &PolicySettings,
        paths: &[Path],
        shared: Option<Arc<Shared>>,
        now: Time,
        random: u32,
    ) -> Result<Self, PolicyError> {
        let config = raw::Config::try_from(settings)?;
        if !raw::stateless(&config, table(&shared)) {
            return Self::open_among(settings, paths, shared, now, random);
        }
        let (paths, n) = raw_paths(paths)?;
        let current = raw::first(&config, &paths, n, table(&shared), now.as_nanos(), random);
        let conn = raw::Conn { n_paths: n, current, ..raw::Conn::default() };
        Ok(Connection { config, paths, shared, conn, began: Began::ByMark(Time::MAX) })
    }

    /// Sees to it that the connection has a state, now that there is a signal.
    fn resume(&mut self, round: &raw::Round, random: u32) {
        let Began::ByMark(began) = self.began else { return };
        // Linux's program takes the time when the kernel began to tune the receive buffer.
        let began = began.min(Time::from_nanos(round.now_ns)).as_nanos();
        let (n, allowed, current) = (self.conn.n_paths, self.conn.allowed, self.conn.current);
        let (config, paths, shared) = (&self.config, &self.paths, table(&self.shared));
        // The signal takes these bits too: as others they are as random.
        let random = random.wrapping_mul(0x9e37_79b1).rotate_left(16);
        self.conn = raw::resume(config, paths, n, allowed, shared, round, began, random, current);
        self.began = Began::WithState;
    }

    /// The SYN of the connection, which was just opened, is about to leave. Not for a connection that was accepted.
    pub fn connect(&self) {
        raw::connect(&self.conn, &self.config, table(&self.shared));
    }

    /// From now on the connection moves among these paths only, a bit for each index: those that take its source address.
    pub fn restrict(&mut self, allowed: u32) {
        self.conn.allowed = allowed;
    }

    /// When the SYN, which leaves now, must be sent again if no answer comes, and how many times more it is sent than
    /// otherwise; `None`: as TCP does by itself, because the path's round trip has not been measured.
    pub fn syn_timeout(&self, now: Time) -> Option<SynTimeout> {
        let rto = raw::syn_rto(&self.config, table(&self.shared), self.conn.current, now.as_nanos());
        let more_retries = raw::syn_retries(rto) as u8;
        (rto > 0).then(|| SynTimeout { rto: Span::from_nanos(rto), more_retries })
    }

    /// The controller reports what is not in use of each path.
    pub fn set_rooms(&mut self, rooms: impl Iterator<Item = Rate>) {
        for (path, room) in self.paths.iter_mut().zip(rooms) {
            path.room = room.bits_per_sec() / 8;
        }
    }

    /// The path set has changed: the connection learns again, and stays on its path if `paths` still has it, by its id. Else
    /// it takes one drawn, as a new connection does.
    ///
    /// Returns whether its path is another one. Without any path in `paths` it fails, and nothing changes.
    pub fn handle_paths(
        &mut self,
        paths: &[Path],
        shared: Option<Arc<Shared>>,
        now: Time,
        random: u32,
    ) -> Result<bool, PolicyError> {
        let before = self.path_id();
        let (raw, n) = raw_paths(paths)?;
        let kept = paths.iter().position(|path| path.id == before);
        if let Began::ByMark(_) = self.began {
            let drawn = || raw::first(&self.config, &raw, n, table(&shared), now.as_nanos(), random);
            let current = kept.map_or_else(drawn, |index| index as u32);
            self.conn = raw::Conn { n_paths: n, current, ..raw::Conn::default() };
            (self.paths, self.shared) = (raw, shared);
            return Ok(self.path_id() != before);
        }
        let kept = kept.map_or(MAX_PATHS as u32, |index| index as u32);
        raw::open_again(&mut self.conn, &self.config, &raw, n, table(&shared), kept, now.as_nanos(), random);
        (self.paths, self.shared) = (raw, shared);
        Ok(self.path_id() != before)
    }

    /// The id of the path in use.
    pub fn path_id(&self) -> u32 {
        self.paths.get(self.path()).map_or(0, |path| path.id)
    }

    /// The ids of the paths that the connection chooses from, in their order.
    pub fn path_ids(&self) -> impl Iterator<Item = u32> {
        self.paths.iter().take(self.conn.n_paths as usize).map(|path| path.id)
    }

    /// Handles the end of a round trip.
    pub fn handle_round(&mut self, round: Round, random: u32) -> Decision {
        let raw = round.to_raw();
        if let Began::ByMark(began) = self.began {
            self.began = Began::ByMark(began.min(round.now));
            let (config, paths, shared) = (&self.config, &self.paths, table(&self.shared));
            if raw::uneventful(config, paths, shared, self.conn.current, &raw) {
                return Decision { path: self.path(), reason: None, moved: false, decided: false, stay: None };
            }
        }
        self.resume(&raw, random);
        raw::round(&mut self.conn, &self.config, &self.paths, table(&self.shared), &raw, random).into()
    }

    /// Handles the retransmission of `segs` segments, not after a timeout.
    pub fn handle_retransmit(&mut self, round: Round, segs: u32, random: u32) -> Decision {
        let raw = round.to_raw();
        self.resume(&raw, random);
        raw::retransmit(&mut self.conn, &self.config, &self.paths, table(&self.shared), &raw, segs, random).into()
    }

    /// Handles a retransmission timeout, of the SYN if `syn`.
    pub fn handle_timeout(&mut self, round: Round, syn: bool, random: u32) -> Decision {
        let raw = round.to_raw();
        self.resume(&raw, random);
        raw::timeout(&mut self.conn, &self.config, &self.paths, table(&self.shared), &raw, syn, random).into()
    }

    /// The connection has ended: what its path has earned goes into the table that it shares with others.
    pub fn close(&mut self, round: Round) {
        if self.began != Began::WithState {
            return;
        }
        raw::close(&mut self.conn, &self.config, &self.paths, table(&self.shared), &round.to_raw());
    }

    /// Handles data that came again, `quiet` after new data last came.
    ///
    /// The RTO that `quiet` is compared with is made of `round.srtt`: the receiver's own, as in the kernel.
    pub fn handle_duplicate(&mut self, round: Round, quiet: Span, random: u32) -> Decision {
        let round = round.to_raw();
        self.resume(&round, random);
        let rto = round.rto_ns.max(RTO_MIN.as_nanos());
        let quiet_q16 = u32::try_from(quiet.as_nanos().saturating_mul(65_536) / rto).unwrap_or(u32::MAX);
        raw::duplicate(&mut self.conn, &self.config, &self.paths, table(&self.shared), &round, quiet_q16, random).into()
    }

    /// Index of the path in use.
    pub fn path(&self) -> usize {
        self.conn.current as usize
    }

    /// The state as it lies in the kernel, with its counters.
    pub fn raw(&self) -> &raw::Conn {
        &self.conn
    }
}

fn table(shared: &Option<Arc<Shared>>) -> Option<&raw::Shared> {
    shared.as_ref().map(|table| table.raw())
}

impl Round {
    /// The values as the kernel's program reads them: the RTO is the smoothed round-trip time plus Linux's least
    /// variation.
    pub fn to_raw(&self) -> raw::Round {
        let rto = if self.srtt == Span::ZERO { Span::ZERO } else { self.srtt + RTO_MIN };
        raw::Round {
            now_ns: self.now.as_nanos(),
            cwnd_bytes: self.cwnd.get(),
            srtt_ns: self.srtt.as_nanos(),
            rto_ns: rto.as_nanos(),
            delivered: self.delivered,
            delivered_ce: self.delivered_ce,
            mss: self.mss,
            in_flight: self.in_flight,
            received: self.received,
            unused: 0,
        }
    }
}

impl Reason {
    /// Every reason, at the index that is its number in C.
    pub const ALL: [Reason; 8] = [
        Reason::PathsChanged,
        Reason::Ecn,
        Reason::Retransmit,
        Reason::Rto,
        Reason::SynTimeout,
        Reason::AckLoss,
        Reason::StandingQueue,
        Reason::Crowded,
    ];

    /// The name in results and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::PathsChanged => "paths_changed",
            Reason::Ecn => "ecn",
            Reason::Retransmit => "retransmit",
            Reason::Rto => "rto",
            Reason::SynTimeout => "syn_timeout",
            Reason::AckLoss => "ack_loss",
            Reason::StandingQueue => "standing_queue",
            Reason::Crowded => "crowded",
        }
    }
}

impl Stay {
    /// Every reason to stay; C's number is one more than the index.
    pub const ALL: [Stay; 7] =
        [Stay::DrewSame, Stay::OnlyPath, Stay::OthersDead, Stay::BackOff, Stay::TooFew, Stay::ByPolicy, Stay::NoGain];

    /// The one with this number in C; `None` for zero, which is none, and for others.
    pub fn from_raw(number: u32) -> Option<Self> {
        Stay::ALL.get((number as usize).checked_sub(1)?).copied()
    }

    /// The name in records and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Stay::DrewSame => "drew_same",
            Stay::OnlyPath => "only_path",
            Stay::OthersDead => "others_dead",
            Stay::BackOff => "back_off",
            Stay::TooFew => "too_few",
            Stay::ByPolicy => "policy",
            Stay::NoGain => "no_gain",
        }
    }
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<raw::Decision> for Decision {
    fn from(raw: raw::Decision) -> Self {
        Decision {
            path: raw.path as usize,
            // The state machine never learns that paths changed: its zero means that there was no signal.
            reason: Reason::ALL.get(raw.reason as usize).copied().filter(|reason| *reason != Reason::PathsChanged),
            moved: raw.moved != 0,
            decided: raw.decided != 0,
            stay: Stay::from_raw(raw.stay),
        }
    }
}
