//! Userspace wires: links between TAP interfaces with rate, delay, queue, marks, losses and outages.
//!
//! Linux's own means for this (netem, RED, fq) are modules that a kernel need not have, while nearly every kernel has TAPs.
//! So the lab's links follow the same [`LinkModel`](sidestep_proto::link::LinkModel) as the simulator's.
//! A frame costs two system calls. The second one runs the kernel's whole receive path on the wire's thread, and also
//! forwards into the next TAP. TAPs with NAPI (`IFF_NAPI`) carried 10 to 20 % less.
//!
//! A thread is some ten microseconds late, and now and then milliseconds. With [`Arrivals`] that does not add up: a frame
//! arrives at a link when it was sent, not when it is read, and what a router forwards while it is handed a late frame counts as
//! sent when that was due.

pub mod bench;
mod direction;
mod ecn;
mod frames;
mod lateness;
mod port;
mod thread_stats;
mod worker;

use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Instant,
};

use sidestep_net::{ArcId, Bytes, Channel, Direction, Histogram, LinkId, Span, Time};
use sidestep_proto::link::{Counters, LinkState};
use thiserror::Error;

pub use self::lateness::Lateness;
use self::{
    direction::WireDirection,
    worker::{Command, Mailbox, Worker},
};
use crate::{
    bpf::arrivals::{Arrivals, THREADS},
    error::{LinuxError, Result},
    tap::Tap,
};

/// What a wire is made of.
#[derive(Debug)]
pub struct WireSpec {
    /// One end.
    pub a: Tap,
    /// The other end.
    pub b: Tap,
    /// From `a` to `b`.
    pub ab: Channel,
    /// From `b` to `a`.
    pub ba: Channel,
    /// Largest IP packet that it carries, in bytes.
    pub mtu: u32,
}

/// Wires that run, on threads of their own, until stopped or dropped.
#[derive(Debug)]
pub struct Wires {
    handle: WireHandle,
    threads: Vec<JoinHandle<WireStats>>,
}

/// Observes and changes running wires.
#[derive(Clone, Debug)]
pub struct WireHandle {
    workers: Arc<[Mailbox]>,
    wires: usize,
    wires_per_worker: usize,
}

/// What all wires have done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireStats {
    /// When this was measured, since the start.
    pub at: Time,
    /// Each direction; an [`ArcId`] indexes this.
    pub arcs: Vec<ArcStats>,
    /// How late frames were delivered.
    pub lateness: Lateness,
    /// What the threads took for what they do.
    pub times: Times,
    /// How many threads there are.
    pub threads: u32,
    /// When a thread that slept could have delivered a frame, and how much later it awoke, where that was no stall: of many
    /// an even share, in the order of threads and times.
    pub wakes: Vec<Wait>,
    /// When the threads were kept from their processors for half a millisecond or more, in the order of threads and times.
    pub stalls: Vec<Wait>,
    /// CPU time that the wires' threads took.
    pub cpu: Span,
}

/// A thread of the wires that could have gone on, and did not at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Which thread.
    pub thread: u32,
    /// From when on, since the start.
    pub at: Time,
    /// For how long.
    pub length: Span,
}

/// What the wires' threads took for what they do, where it was no [stall](WireStats::stalls).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// To take a frame from a TAP.
    pub reads: Histogram,
    /// To hand a frame to a TAP, which runs the kernel's receive path.
    pub writes: Histogram,
}

/// What one direction of a wire has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArcStats {
    /// The link's own counters, of IP packets.
    pub counters: Counters,
    /// Packets in the queue now.
    pub queue_packets: u32,
    /// Bytes in the queue now.
    pub queue_bytes: Bytes,
    /// Frames other than IP, such as ARP, which are delayed only.
    pub passed: u64,
    /// Frames dropped because they exceed the link's mtu.
    pub oversized: u64,
    /// Frames dropped because the wire's memory was full: with a rate, a sign that the machine does not keep up.
    pub overruns: u64,
    /// Frames that the far interface refused because it was down or gone.
    pub write_errors: u64,
    /// Frames delivered more than 1 ms after they were due.
    pub late: u64,
    /// How late the latest frame was.
    pub max_late: Span,
}

/// Why a wire cannot be observed or changed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// No wire has this number.
    #[error("there is no wire {}", .0.link().0)]
    Unknown(ArcId),
    /// The wires no longer run.
    #[error("the wires have been stopped")]
    Stopped,
}

impl Times {
    fn merge(&mut self, other: &Times) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
    }
}

impl Wires {
    /// Runs the wires, the i-th as [`LinkId`] `i`, on `threads` threads (at least one, at most [`THREADS`]); random losses
    /// follow from `seed`. With `arrivals`, which all TAPs then have, a frame arrives when it was sent, and otherwise when
    /// it is read.
    ///
    /// Neighbouring wires share a thread. More than one thread pays off when one is busy all the time.
    pub fn start(specs: Vec<WireSpec>, seed: u64, threads: usize, arrivals: Option<&Arc<Arrivals>>) -> Result<Self> {
        let wires = specs.len();
        let wires_per_worker = wires.div_ceil(threads.clamp(1, THREADS)).max(1);
        let started = Instant::now();
        let mut directions = specs.into_iter().enumerate().map(|(link, spec)| both(LinkId(link as u32), spec, seed));
        let mut ready = Vec::new();
        for number in 0..wires.div_ceil(wires_per_worker) {
            let share = directions.by_ref().take(wires_per_worker).flatten().collect();
            ready.push(Worker::new(share, started, arrivals.map(|arrivals| (Arc::clone(arrivals), number)))?);
        }
        let (workers, mailboxes): (Vec<_>, Vec<_>) = ready.into_iter().unzip();
        let handle = WireHandle { workers: mailboxes.into(), wires, wires_per_worker };
        // Made before the threads: if one cannot be started, dropping this stops those that run.
        let mut running = Wires { handle, threads: Vec::new() };
        for worker in workers {
            let thread = thread::Builder::new().name("wires".into()).spawn(|| worker.run());
            running.threads.push(thread.map_err(|error| LinuxError::io("starting a thread for the wires", error))?);
        }
        Ok(running)
    }

    /// Observes and changes the wires while they run.
    pub fn handle(&self) -> WireHandle {
        self.handle.clone()
    }

    /// Stops the wires, which drops what they hold and removes their interfaces; returns what they have done.
    pub fn stop(mut self) -> WireStats {
        self.join()
    }

    fn join(&mut self) -> WireStats {
        for worker in self.handle.workers.iter() {
            worker.send(Command::Stop);
        }
        let ended = self.threads.drain(..).filter_map(|thread| {
            thread.join().inspect_err(|_| tracing::error!("a thread of the wires has panicked")).ok()
        });
        merge(ended)
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        self.join();
    }
}

impl WireHandle {
    /// Changes whether a direction carries frames.
    pub fn set_state(&self, arc: ArcId, state: LinkState) -> std::result::Result<(), WireError> {
        self.send(arc, |index| Command::SetState(index, state))
    }

    /// Sets whether both ends of a wire have a carrier.
    pub fn set_carrier(&self, link: LinkId, carrier: bool) -> std::result::Result<(), WireError> {
        for direction in [Direction::AToB, Direction::BToA] {
            self.send(link.arc(direction), |index| Command::SetCarrier(index, carrier))?;
        }
        Ok(())
    }

    /// Changes rate, delay, queue and loss of a direction for the frames to come.
    pub fn set_channel(&self, arc: ArcId, channel: Channel) -> std::result::Result<(), WireError> {
        self.send(arc, |index| Command::SetChannel(index, channel))
    }

    /// What the wires have done, and hold, at this moment.
    ///
    /// Each thread answers between two rounds. The wires pay for statistics only when asked: with some 20 KB, and
    /// 24 bytes for each wait that is kept.
    pub fn stats(&self) -> std::result::Result<WireStats, WireError> {
        self.ask(Command::Stats).map(merge)
    }

    /// What each direction has done, and holds, at this moment: [`WireStats::arcs`] alone, for those who ask often.
    pub fn arcs(&self) -> std::result::Result<Vec<ArcStats>, WireError> {
        self.ask(Command::Arcs).map(|shares| shares.concat())
    }

    /// What each thread answers.
    fn ask<T>(&self, command: fn(mpsc::Sender<T>) -> Command) -> std::result::Result<Vec<T>, WireError> {
        let mut answers = Vec::with_capacity(self.workers.len());
        for worker in self.workers.iter() {
            let (reply, answer) = mpsc::channel();
            if !worker.send(command(reply)) {
                return Err(WireError::Stopped);
            }
            answers.push(answer);
        }
        answers.iter().map(|answer| answer.recv().map_err(|_| WireError::Stopped)).collect()
    }

    fn send(&self, arc: ArcId, command: impl FnOnce(usize) -> Command) -> std::result::Result<(), WireError> {
        let link = arc.link().index();
        if link >= self.wires {
            return Err(WireError::Unknown(arc));
        }
        let worker = link / self.wires_per_worker;
        let index = arc.index() - worker * self.wires_per_worker * 2;
        let sent = self.workers.get(worker).is_some_and(|worker| worker.send(command(index)));
        if sent { Ok(()) } else { Err(WireError::Stopped) }
    }
}

/// A wire's two directions, in the order of their [`ArcId`]s.
fn both(link: LinkId, spec: WireSpec, seed: u64) -> [WireDirection; 2] {
    let (a, b) = (Arc::new(spec.a), Arc::new(spec.b));
    let stream = |direction| u64::from(link.arc(direction).0);
    [
        WireDirection::new(Arc::clone(&a), Arc::clone(&b), &spec.ab, spec.mtu, seed, stream(Direction::AToB)),
        WireDirection::new(b, a, &spec.ba, spec.mtu, seed, stream(Direction::BToA)),
    ]
}

/// The threads' shares as one.
fn merge(shares: impl IntoIterator<Item = WireStats>) -> WireStats {
    let mut all = WireStats::default();
    for share in shares {
        all.at = all.at.max(share.at);
        all.arcs.extend(share.arcs);
        all.lateness.merge(&share.lateness);
        all.times.merge(&share.times);
        let thread = all.threads;
        let numbered = |wait: Wait| Wait { thread: thread + wait.thread, ..wait };
        all.wakes.extend(share.wakes.into_iter().map(numbered));
        all.stalls.extend(share.stalls.into_iter().map(numbered));
        all.threads += share.threads;
        all.cpu = all.cpu + share.cpu;
    }
    all
}

#[cfg(test)]
mod tests;
