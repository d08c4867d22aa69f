//! Several targets behind the egresses, and which of them count.
//!
//! Probes of an egress go to its targets in turn. A target that answers by no egress is down itself, and shows nothing of any
//! path. Of the others the best count, as many as the quorum is: a target that is filtered or dead behind one egress is outvoted,
//! while a path that loses packets loses those to every target. Any other target counts, too, unless it loses so much more than these
//! that chance does not explain it: the best alone would show much less than is lost at random.

use sidestep_net::Span;

use super::measure::{Losses, Measurement};

/// The targets that each egress can probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// By egress: the numbers of its targets, in the order in which they are probed.
    pub of: Vec<Vec<u32>>,
    /// This number of targets must be reachable; if fewer are up at all, those. More may count.
    pub quorum: u32,
}

/// What the last measurement of an egress shows of one of its targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetReport {
    /// The target's number.
    pub target: u32,
    /// Probes that were sent to it.
    pub sent: u32,
    /// Probes that were lost.
    pub lost: u32,
    /// The mean round trip of the others.
    pub rtt: Option<Span>,
    /// Whether it counts: it is up, and among the best or not much worse than these.
    pub counts: bool,
}

impl Targets {
    /// The target of a probe, by its egress and its number in the measurement.
    pub fn target(&self, egress: usize, number: u32) -> Option<u32> {
        let list = self.of.get(egress)?;
        let length = u32::try_from(list.len()).ok()?;
        list.get(number.checked_rem(length)? as usize).copied()
    }

    /// Whether an egress has targets; one without any is not probed, and nothing is known of it.
    pub(super) fn has(&self, egress: usize) -> bool {
        self.of.get(egress).is_some_and(|list| !list.is_empty())
    }

    /// What the measurements of all egresses in one period show of each target.
    pub(super) fn judge(&self, measurements: &[&Measurement]) -> Vec<Vec<TargetReport>> {
        let report = |egress: usize, target: u32, measurement: &Measurement| {
            let summary = measurement.summary(|number| self.target(egress, number) == Some(target));
            TargetReport {
                target,
                sent: summary.sent,
                lost: summary.lost,
                rtt: summary.delays.map(|(rtt, _)| rtt),
                counts: false,
            }
        };
        let mut reports: Vec<Vec<TargetReport>> = measurements
            .iter()
            .zip(&self.of)
            .enumerate()
            .map(|(egress, (measurement, targets))| {
                targets.iter().map(|target| report(egress, *target, measurement)).collect()
            })
            .collect();
        let mut up: Vec<u32> =
            reports.iter().flatten().filter(|one| one.lost < one.sent).map(|one| one.target).collect();
        up.sort_unstable();
        up.dedup();
        for of_egress in &mut reports {
            count(of_egress, &up, self.quorum);
        }
        reports
    }
}

/// A target is outvoted that loses by this number of standard errors more than the better ones. Our choice: chance outvotes
/// one in forty, which costs some probes; to keep a target that loses by itself costs a move.
const OUTVOTED: f64 = 2.0;

/// Marks the targets of an egress that count, where `up` are those that answer by some egress.
fn count(reports: &mut [TargetReport], up: &[u32], quorum: u32) {
    let mut candidates: Vec<&mut TargetReport> =
        reports.iter_mut().filter(|one| one.sent > 0 && up.binary_search(&one.target).is_ok()).collect();
    if candidates.is_empty() {
        // No target answers at all: what cannot be distinguished from dead paths counts as that.
        reports.iter_mut().for_each(|one| one.counts = true);
        return;
    }
    let share = |one: &TargetReport| f64::from(one.lost) / f64::from(one.sent);
    candidates.sort_by(|one, other| share(one).total_cmp(&share(other)));
    let (mut best, mut votes) = (Losses::default(), quorum.max(1));
    for one in candidates {
        let mut losses = Losses::default();
        losses.add(one.sent, one.lost, 1);
        one.counts = votes > 0 || one.lost < one.sent && losses.differs(&best) < OUTVOTED;
        if one.counts {
            best.join(&losses);
        }
        votes = votes.saturating_sub(1);
    }
}
