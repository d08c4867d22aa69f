//! Trials of egresses that passing traffic accuses: connections to the same far ends, by the accused egress and by another.

use std::{collections::BTreeMap, io, net::SocketAddr, time::Duration};

use nix::sys::socket::{setsockopt, sockopt};
use sidestep_hostd::AgentError;
use sidestep_linux::{monotonic_now, netlink::Family};
use sidestep_net::Time;
use tokio::{
    net::TcpSocket,
    task::{JoinError, JoinSet},
    time::timeout,
};

use super::{
    RouteControl,
    suspicion::{Finding, Suspicion},
};
use crate::Health;

/// How long a far end may take to answer: TCP asks again after one second and after three.
const PATIENCE: Duration = Duration::from_millis(3_500);

/// Suspicions by family and egress, and the trials under way.
#[derive(Debug, Default)]
pub(super) struct Trials {
    suspicions: BTreeMap<(Family, usize), Suspicion>,
    running: JoinSet<Outcome>,
}

/// What a trial has found.
#[derive(Debug)]
pub(super) struct Outcome {
    family: Family,
    accused: usize,
    other: usize,
    findings: Vec<Finding>,
}

/// Waits until a trial is over; never completes without one.
pub(super) async fn ended(trials: &mut Trials) -> Result<Outcome, JoinError> {
    match trials.running.join_next().await {
        Some(outcome) => outcome,
        None => std::future::pending().await,
    }
}

impl RouteControl {
    /// Takes what has passed an egress, and holds a trial if that accuses it.
    pub(super) fn suspect(
        &mut self,
        (family, egress): (Family, usize),
        now: Time,
        sample: &crate::daemon::passive::PassiveSample,
    ) -> Result<(), AgentError> {
        let suspicion = self.passing.trials.suspicions.entry((family, egress)).or_default();
        let acquitted = suspicion.take(now, sample);
        let wanted = suspicion.wants_trial(now);
        if acquitted {
            self.report_verdict((family, egress), now, true, "what passes it is answered again");
        }
        // One that is dead anyway needs no trial.
        let Some(since) = wanted.filter(|_| self.health(family, egress) != Some(Health::Dead)) else { return Ok(()) };
        let (Some(other), Some(passive)) = (self.comparison(family, egress), &self.passing.passive) else {
            return Ok(());
        };
        let silent = passive.silent(family, egress, since)?;
        let Some(suspicion) = self.passing.trials.suspicions.get_mut(&(family, egress)) else { return Ok(()) };
        let witnesses = suspicion.witnesses(silent);
        if witnesses.is_empty() {
            return Ok(());
        }
        suspicion.begin();
        self.hold(family, (egress, other), &witnesses);
        Ok(())
    }

    /// An egress that works, as far as is known, to compare another with.
    fn comparison(&self, family: Family, accused: usize) -> Option<usize> {
        let works = |egress: &usize| {
            let health = self.health(family, *egress);
            *egress != accused
                && self.why_unusable(*egress, family).is_none()
                && matches!(health, Some(Health::Fine | Health::Impaired | Health::Unknown))
        };
        (0..self.egresses.len()).find(works)
    }

    fn hold(&mut self, family: Family, (accused, other): (usize, usize), witnesses: &[SocketAddr]) {
        let marks = [accused, other].map(|egress| self.numbers().mark(egress));
        // The sockets are made here: another thread may be in another network namespace.
        let asked: Vec<_> = witnesses.iter().map(|far| (*far, marks.map(|mark| socket(*far, mark).ok()))).collect();
        tracing::debug!(egress = self.name(accused), other = self.name(other), ?witnesses, "a trial of an egress");
        self.passing.trials.running.spawn(async move {
            let each = asked.into_iter().map(|(far, [by_accused, by_other])| async move {
                let (by_accused, by_other) = tokio::join!(answers(by_accused, far), answers(by_other, far));
                Finding { far, by_accused, by_other }
            });
            Outcome { family, accused, other, findings: futures::future::join_all(each).await }
        });
    }

    /// A trial is over.
    pub(super) fn handle_outcome(&mut self, outcome: Result<Outcome, JoinError>) {
        // A trial does not panic, and only the code that forgets them all cancels it.
        let Ok(Outcome { family, accused, other, findings }) = outcome else { return };
        let now = monotonic_now();
        let Some(suspicion) = self.passing.trials.suspicions.get_mut(&(family, accused)) else { return };
        let Some(forwards) = suspicion.judge(now, &findings) else { return };
        let of = |found: fn(&Finding) -> bool| findings.iter().filter(|one| found(one)).count();
        let evidence = format!(
            "of {} far ends {} answer by it, and {} by {}",
            findings.len(),
            of(|one| one.by_accused),
            of(|one| one.by_other),
            self.name(other)
        );
        self.report_verdict((family, accused), now, forwards, &evidence);
    }

    /// Reports to the controller whether what passes an egress gets through, and logs why.
    fn report_verdict(&mut self, (family, egress): (Family, usize), now: Time, forwards: bool, evidence: &str) {
        let (name, of) = (self.name(egress).to_string(), family.to_string());
        if forwards {
            tracing::warn!(egress = name, family = of, "{name} forwards {family} again: {evidence}");
        } else {
            tracing::warn!(
                egress = name,
                family = of,
                "{name} forwards nothing of {family}, although its probes are answered: {evidence}"
            );
        }
        if let Some(side) = self.side_mut(family) {
            side.controller.handle_verdict(now, egress, forwards);
        }
        self.take_decision(family);
        self.log_health(family);
    }
}

/// A socket whose packets leave by the egress of a mark.
fn socket(far: SocketAddr, mark: u32) -> io::Result<TcpSocket> {
    let socket = if far.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    setsockopt(&socket, sockopt::Mark, &mark)?;
    // It ends by a reset, and nothing of it stays.
    socket.set_zero_linger()?;
    Ok(socket)
}

/// Whether a far end takes a connection. A reset may come from a device on the path, and is no answer.
async fn answers(socket: Option<TcpSocket>, far: SocketAddr) -> bool {
    let Some(socket) = socket else { return false };
    matches!(timeout(PATIENCE, socket.connect(far)).await, Ok(Ok(_)))
}
