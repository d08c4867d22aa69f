//! The sockets by which each egress probes each of its targets, and what is on its way.

use std::{collections::VecDeque, future::poll_fn, task::Poll};

use sidestep_linux::{
    LinuxError, monotonic_now,
    prober::{Method, Prober, Reply, Spec},
};
use sidestep_model::Time;
use sidestep_proto::{
    irc::Probe,
    stamp::{self, Clock, Directions},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{EgressConfig, ProbeKind, TargetConfig, kernel::Numbers};

/// Most probes of one socket that are waited for.
const MOST_WAITING: usize = 1_024;
/// The port of UDP's echo service (RFC 862).
const ECHO_PORT: u16 = 7;

/// The socket of one egress towards one target.
pub(super) struct Probing {
    pub(super) egress: usize,
    pub(super) target: u32,
    /// What a reflector of STAMP says of the probes so far.
    pub(super) lost: Option<Directions>,
    socket: AsyncFd<Prober>,
    /// Probes that are not answered, by their numbers: when they were sent, and what the controller calls them.
    waiting: VecDeque<(u32, Time, Probe)>,
}

impl Probing {
    /// Opens a socket that is bound to the egress's interface and carries its mark; in a dry run no rule knows the mark.
    pub(super) fn open(
        (egress, of): (usize, &EgressConfig),
        (number, target): (u32, &TargetConfig),
        numbers: Numbers,
    ) -> Result<Self, LinuxError> {
        let method = match target.kind {
            ProbeKind::Icmp => Method::Icmp,
            ProbeKind::Udp => Method::UdpEcho { port: target.port.unwrap_or(ECHO_PORT) },
            ProbeKind::Stamp => Method::Stamp { port: target.port.unwrap_or(stamp::PORT), clock: Clock::Ntp },
        };
        let mut spec = Spec::new(target.address, method);
        spec.device = Some(of.dev.clone());
        spec.mark = Some(numbers.mark(egress));
        let prober = Prober::open(&spec)?;
        // SAFETY: the prober owns its socket, and closes it when it is dropped with the `AsyncFd`.
        let registered = unsafe { AsyncFd::register_with_interest(prober, Interest::READABLE) };
        let socket = registered.map_err(|error| LinuxError::io("waiting for answers of probes", error))?;
        Ok(Probing { egress, target: number, lost: None, socket, waiting: VecDeque::new() })
    }

    /// Sends a probe; one that cannot be sent is lost.
    pub(super) fn send(&mut self, probe: Probe) -> Result<(), LinuxError> {
        let now = monotonic_now();
        let sequence = self.socket.get_mut().send()?;
        self.waiting.push_back((sequence, now, probe));
        if self.waiting.len() > MOST_WAITING {
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// The next answer that has come: when, and to which probe. It goes by the kernel's clock, so that our own delay does not
    /// count.
    pub(super) fn receive(&mut self) -> Result<Option<(Time, Probe)>, LinuxError> {
        while let Some(reply) = self.socket.get_mut().receive()? {
            // Whoever says that the target cannot be reached does not answer for it.
            let Reply::Answer(answer) = reply else { continue };
            self.lost = answer.remote.map(|remote| remote.lost).or(self.lost);
            let found = self.waiting.iter().position(|(sequence, ..)| *sequence == answer.sequence);
            if let Some((_, sent, probe)) = found.and_then(|place| self.waiting.remove(place)) {
                return Ok(Some((sent + answer.rtt, probe)));
            }
        }
        Ok(None)
    }
}

/// Waits until one of the sockets may have an answer; never completes without sockets. Its number comes back.
pub(super) async fn answered(all: &[Probing]) -> usize {
    poll_fn(|context| {
        for (number, one) in all.iter().enumerate() {
            if let Poll::Ready(Ok(mut guard)) = one.socket.poll_read_ready(context) {
                // Before it is read: what comes from now on is reported anew.
                guard.clear_ready();
                return Poll::Ready(number);
            }
        }
        Poll::Pending
    })
    .await
}
