//! Reports to the controller, which no caller waits for.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sidestep_api::{Reporter, UsageReport};
use sidestep_hostd::AgentError;
use tokio::{sync::watch, task::JoinHandle};

/// Sends the last report. One that is not sent yet when the next comes is left out.
pub(super) struct Reports {
    latest: watch::Sender<Option<UsageReport>>,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
}

/// What became of reports.
#[derive(Default)]
struct Counts {
    taken: AtomicU64,
    lost: AtomicU64,
}

impl Reports {
    /// Reports for the controller at `endpoint`; needs a Tokio runtime.
    pub(super) fn new(endpoint: &str) -> Result<Self, AgentError> {
        let mut reporter = Reporter::new(endpoint)?;
        let (latest, mut next) = watch::channel(None);
        let counts = Arc::new(Counts::default());
        let counted = counts.clone();
        let task = tokio::spawn(async move {
            while next.changed().await.is_ok() {
                let Some(report) = next.borrow_and_update().clone() else { continue };
                // The watcher reports when the controller is away; a report that is lost is followed by the next.
                match reporter.report(report).await {
                    Ok(()) => counted.taken.fetch_add(1, Ordering::Relaxed),
                    Err(error) => {
                        tracing::debug!(%error, "a report was lost");
                        counted.lost.fetch_add(1, Ordering::Relaxed)
                    }
                };
            }
        });
        Ok(Reports { latest, counts, task })
    }

    /// Sends a report, in the place of one that still waits.
    pub(super) fn send(&self, report: UsageReport) {
        self.latest.send_replace(Some(report));
    }

    /// How many the controller took.
    pub(super) fn taken(&self) -> u64 {
        self.counts.taken.load(Ordering::Relaxed)
    }

    /// How many were lost.
    pub(super) fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        self.task.abort();
    }
}
