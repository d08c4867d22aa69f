//! When a daemon compares the kernel's rules and routes with its own.

use std::time::Duration;

use sidestep_linux::netlink::{RoutingChange, RoutingWatch};
use tokio::time::{Instant, sleep_until};

use crate::AgentError;

/// How often to compare when nothing was reported. Changes of next-hop objects, for instance, are not.
const PERIOD: Duration = Duration::from_secs(30);
/// How long to wait after a report, so that the changes that come with it are mended together. It is far less than the
/// shortest timeout of TCP, so nothing fails meanwhile.
const SETTLE: Duration = Duration::from_millis(10);
/// Comparisons take at most one part in this number of the time, however fast changes come and however long the tables are.
const SHARE: u32 = 20;

/// The times of comparisons.
pub struct Audit {
    watch: RoutingWatch,
    due: Instant,
    /// Whether a report has brought the next comparison forward. Further reports then wait in the kernel.
    hurried: bool,
    /// No comparison comes before.
    rested: Instant,
}

impl Audit {
    /// Begins to listen in the calling thread's namespace.
    pub fn open() -> Result<Self, AgentError> {
        let now = Instant::now();
        Ok(Audit { watch: RoutingWatch::open()?, due: now + PERIOD, hurried: false, rested: now })
    }

    /// Waits until a comparison is due; a change that `concerns` brings it forward. Nothing is lost when it is dropped.
    pub async fn is_due(&mut self, concerns: impl Fn(&RoutingChange) -> bool) {
        if !self.hurried {
            tokio::select! {
                () = self.watch.changed(concerns) => {
                    self.hurried = true;
                    self.due = self.due.min((Instant::now() + SETTLE).max(self.rested));
                }
                () = sleep_until(self.due) => {}
            }
        }
        sleep_until(self.due).await;
    }

    /// Notes that a comparison was made, which took so long.
    pub fn done(&mut self, took: Duration) {
        let now = Instant::now();
        self.hurried = false;
        self.due = now + PERIOD;
        self.rested = now + took * SHARE;
    }
}
