//! What the log shows of moves: each at the level `debug`, and a summary now and then at `info`.

use std::time::{Duration, Instant};

use sidestep_policy::{Reason, Stay};

use crate::daemon::program::{Event, EventKind, HostCounters};

/// How often to sum up.
const INTERVAL: Duration = Duration::from_secs(60);

/// What had been counted at the last summary, and when that was.
#[derive(Debug)]
pub(super) struct Summary {
    before: HostCounters,
    at: Instant,
}

impl Summary {
    /// Begins with what was counted so far.
    pub(super) fn new(counters: HostCounters) -> Self {
        Summary { before: counters, at: Instant::now() }
    }

    /// Whether the next summary is due.
    pub(super) fn is_due(&self) -> bool {
        self.at.elapsed() >= INTERVAL
    }

    /// Logs what has happened since the last summary; nothing if nothing has.
    pub(super) fn log(&mut self, now: HostCounters, dry_run: bool) {
        let Summary { before, .. } = std::mem::replace(self, Summary::new(now));
        let moved = |reason: Reason| {
            let count = |counters: &HostCounters| counters.moved.get(reason as usize).copied().unwrap_or(0);
            count(&now).saturating_sub(count(&before))
        };
        let moves: u64 = Reason::ALL.map(moved).iter().sum();
        let total = |counters: &HostCounters| counters.stayed.iter().sum::<u64>();
        let stays = total(&now).saturating_sub(total(&before));
        if moves > 0 {
            tracing::info!(
                moves,
                ecn = moved(Reason::Ecn),
                retransmit = moved(Reason::Retransmit),
                rto = moved(Reason::Rto),
                syn_timeout = moved(Reason::SynTimeout),
                ack_loss = moved(Reason::AckLoss),
                standing_queue = moved(Reason::StandingQueue),
                crowded = moved(Reason::Crowded),
                paths_changed = moved(Reason::PathsChanged),
                stays,
                dry_run,
                "connections moved in the last minute"
            );
        }
        if now.errors() != before.errors() {
            tracing::warn!(
                no_storage = now.no_storage,
                mark_refused = now.mark_refused,
                events_lost = now.events_lost,
                records_lost = now.records_lost,
                "not all went well; counted since the program was loaded"
            );
        }
    }
}

/// Whether [`log_event`] logs anything.
pub(super) fn logs_events() -> bool {
    tracing::enabled!(tracing::Level::DEBUG)
}

/// Logs what happened to one connection.
pub(super) fn log_event(event: &Event, from: Option<&String>, to: Option<&String>) {
    if !logs_events() {
        return;
    }
    let (local, remote) = (event.local, event.remote);
    // A path that has just gone has no name any more.
    let name = |name: Option<&String>, id: u32| name.cloned().unwrap_or_else(|| format!("{id:08x}"));
    let (from, to) = (name(from, event.from), name(to, event.to));
    match event.kind {
        EventKind::Opened => tracing::trace!(%local, %remote, path = to, "opened"),
        EventKind::Decided(reason) if event.from == event.to => {
            let why = event.stay.map(Stay::as_str);
            tracing::trace!(%local, %remote, reason = reason.as_str(), path = to, why, "stayed");
        }
        EventKind::Decided(reason) => {
            tracing::debug!(%local, %remote, reason = reason.as_str(), from, to, "moved");
        }
    }
}
