//! The sockets by which each egress probes each of its targets, and what is in flight.

use std::{collections::VecDeque, future::poll_fn, io, task::Poll};

use sidestep_linux::{
    LinuxError, monotonic_now,
    netlink::Family,
    prober::{Method, Prober, Reply, Spec},
};
use sidestep_net::Time;
use sidestep_proto::stamp::{self, Clock, Directions};
use tokio::io::{Interest, unix::AsyncFd};

use super::{EgressConfig, ProbeKind, TargetConfig, kernel::Numbers, ways::Way};
use crate::Probe;

/// Most probes of one socket that are waited for.
const MAX_WAITING: usize = 1_024;
/// The port of UDP's echo service (RFC 862).
const ECHO_PORT: u16 = 7;
/// This number of probes in a row that could not be sent is no accident.
const FEW: u32 = 3;

/// What one egress sends to one target.
///
/// The socket belongs to an address and an interface. Where these change, or the kernel refuses a probe, it is opened again
/// for the next one.
pub(super) struct Probing {
    pub(super) egress: usize,
    pub(super) target: u32,
    pub(super) family: Family,
    /// What a reflector of STAMP reports of the probes so far.
    pub(super) lost: Option<Directions>,
    /// How to open the socket; or why it is of no use to try.
    spec: Result<(Spec, u32), String>,
    socket: Option<AsyncFd<Prober>>,
    /// Probes that are not answered, by their numbers: when they were sent, and what the controller calls them.
    waiting: VecDeque<(u32, Time, Probe)>,
    /// How many probes in a row could not be sent, and why the last one could not.
    failures: u32,
    cause: String,
}

/// What became of a probe that was due.
pub(super) enum Sent {
    /// It has left, or a full queue has dropped it as it drops other packets.
    Left,
    /// The host could not send it, which shows nothing of the path.
    Refused,
}

impl Probing {
    /// A place for the probes of a target by an egress, without a socket yet.
    pub(super) fn new(egress: usize, target: u32, family: Family) -> Self {
        Probing {
            egress,
            target,
            family,
            lost: None,
            spec: Err(String::new()),
            socket: None,
            waiting: VecDeque::new(),
            failures: 0,
            cause: String::new(),
        }
    }

    /// Probes leave so from now on: by the interface with this index, or not at all. Those in flight by another socket come
    /// back: they show nothing, as their answers cannot be taken any more.
    pub(super) fn follow(&mut self, spec: Result<(Spec, u32), String>) -> Vec<Probe> {
        if self.spec == spec {
            return Vec::new();
        }
        if let Err(why) = &spec {
            self.cause.clone_from(why);
        }
        self.spec = spec;
        self.failures = 0;
        self.lost = None;
        self.socket = None;
        self.waiting.drain(..).map(|(.., probe)| probe).collect()
    }

    /// Opens a socket, if there is none and one can be had.
    pub(super) fn open(&mut self) -> Result<(), LinuxError> {
        if let (None, Ok((spec, _))) = (&self.socket, &self.spec) {
            let opened = Prober::open(spec).and_then(|prober| {
                // SAFETY: the prober owns its socket, and closes it when it is dropped with the `AsyncFd`.
                let registered = unsafe { AsyncFd::register_with_interest(prober, Interest::READABLE) };
                registered.map_err(|error| LinuxError::io("waiting for answers of probes", error))
            });
            match opened {
                Ok(socket) => self.socket = Some(socket),
                Err(error) => {
                    self.fail(&error);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Sends a probe.
    pub(super) fn send(&mut self, probe: Probe) -> Sent {
        if let Err(why) = &self.spec {
            (self.failures, self.cause) = (self.failures.saturating_add(1), why.clone());
            return Sent::Refused;
        }
        // The code that opens it notes a failure.
        let _ = self.open();
        let Some(socket) = &mut self.socket else { return Sent::Refused };
        let now = monotonic_now();
        match socket.get_mut().send() {
            Ok(sequence) => {
                self.failures = 0;
                self.waiting.push_back((sequence, now, probe));
                if self.waiting.len() > MAX_WAITING {
                    self.waiting.pop_front();
                }
                Sent::Left
            }
            // A queue without room is a loss like others.
            Err(error) if !error.is_answer() => Sent::Left,
            Err(error) => {
                self.fail(&error);
                self.socket = None;
                Sent::Refused
            }
        }
    }

    /// Probes whose answers cannot come any more, as their socket was closed.
    pub(super) fn given_up(&mut self) -> Vec<Probe> {
        if self.socket.is_some() { Vec::new() } else { self.waiting.drain(..).map(|(.., probe)| probe).collect() }
    }

    /// Why probes cannot be sent; `None` if they can, or have not been for a moment only.
    pub(super) fn why_not(&self) -> Option<&str> {
        (self.spec.is_err() || self.failures >= FEW).then_some(self.cause.as_str())
    }

    /// The next answer that has come: when, and to which probe. It goes by the kernel's clock, so that our own delay does not
    /// count.
    pub(super) fn receive(&mut self) -> Result<Option<(Time, Probe)>, LinuxError> {
        let Some(socket) = &mut self.socket else { return Ok(None) };
        while let Some(reply) = socket.get_mut().receive()? {
            // A host that reports the target as unreachable does not answer for it.
            let Reply::Answer(answer) = reply else { continue };
            self.lost = answer.remote.map(|remote| remote.lost).or(self.lost);
            let found = self.waiting.iter().position(|(sequence, ..)| *sequence == answer.sequence);
            if let Some((_, sent, probe)) = found.and_then(|place| self.waiting.remove(place)) {
                return Ok(Some((sent + answer.rtt, probe)));
            }
        }
        Ok(None)
    }

    fn fail(&mut self, error: &LinuxError) {
        self.failures = self.failures.saturating_add(1);
        self.cause = explained(error);
    }
}

/// How a socket is opened: probes leave by the egress's interface, from its address there, with the egress's mark; in a dry run no rule
/// knows the mark. Answers may come in by any interface: those to a site's own addresses come back as the providers have it.
pub(super) fn spec((egress, of): (usize, &EgressConfig), target: &TargetConfig, way: Way, numbers: Numbers) -> Spec {
    let method = match target.kind {
        ProbeKind::Icmp => Method::Icmp,
        ProbeKind::Udp => Method::UdpEcho { port: target.port.unwrap_or(ECHO_PORT) },
        ProbeKind::Stamp => Method::Stamp { port: target.port.unwrap_or(stamp::PORT), clock: Clock::Ntp },
    };
    let mut spec = Spec::new(target.address, method);
    spec.device = Some(of.dev.clone());
    spec.any_return = true;
    spec.mark = Some(numbers.mark(egress));
    spec.source = way.source;
    spec
}

/// What an error of the kernel means for who looks for the cause.
fn explained(error: &LinuxError) -> String {
    let number = match error {
        LinuxError::Refused { source, .. } => source.raw_os_error(),
        _ => None,
    };
    let meaning = match number {
        Some(libc::EPERM) => "a firewall of this host drops what it sends",
        Some(libc::EACCES) => "a route or a rule of this host prohibits it",
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => "no route leads there",
        Some(libc::EADDRNOTAVAIL | libc::EINVAL) => "the address that it is sent from is not there",
        Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => "the interface is down or gone",
        Some(libc::EMFILE | libc::ENFILE) => "there are too many open files",
        _ => return error.to_string(),
    };
    let source = number.map_or_else(io::Error::last_os_error, io::Error::from_raw_os_error);
    format!("{meaning} ({source})")
}

/// Waits until one of the sockets may have an answer; never completes without sockets. Its number comes back.
pub(super) async fn answered(all: &[Probing]) -> usize {
    poll_fn(|context| {
        for (number, socket) in all.iter().enumerate().filter_map(|(number, one)| Some((number, one.socket.as_ref()?)))
        {
            if let Poll::Ready(Ok(mut guard)) = socket.poll_read_ready(context) {
                // Before it is read: what comes from now on is reported again.
                guard.clear_ready();
                return Poll::Ready(number);
            }
        }
        Poll::Pending
    })
    .await
}
