//! What a daemon tells the service manager that started it, by the protocol of `sd_notify(3)`.
//!
//! A daemon's loop owns a [`Supervisor`]. It says when the daemon is [`ready`](Supervisor::ready), in one line
//! [what matters](Supervisor::status) now, and that it is [`stopping`](Supervisor::stopping). Whenever a ping is
//! [`due`](Supervisor::due), the loop [`ping`](Supervisor::ping)s, and so shows that it turns: a daemon that hangs is
//! started again. Without a service manager all of that does nothing.
//!
//! ```
//! use sidestep_service::Supervisor;
//!
//! let mut supervisor = Supervisor::from_env();
//! supervisor.ready();
//! supervisor.status("2 of 2 Path IDs installed");
//! ```

use std::time::Duration;

use sd_notify::{NotifyState, notify, watchdog_enabled};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Pings for each time that the service manager waits for one.
const PINGS: u32 = 3;

/// The service manager, or nobody.
#[derive(Debug)]
pub struct Supervisor {
    /// How often it wants to be pinged; `None` if it does not.
    period: Option<Duration>,
    pings: Option<Interval>,
    status: String,
}

impl Supervisor {
    /// The service manager that the environment names.
    pub fn from_env() -> Self {
        Supervisor { period: watchdog_enabled().map(|patience| patience / PINGS), pings: None, status: String::new() }
    }

    /// Says that the daemon does its work.
    pub fn ready(&self) {
        tell(NotifyState::Ready);
    }

    /// Says that the daemon ends.
    pub fn stopping(&self) {
        tell(NotifyState::Stopping);
    }

    /// Says what matters now, in one line; the same again is not said twice.
    pub fn status(&mut self, status: &str) {
        if self.status != status {
            // A line break would end the message.
            status.replace(['\n', '\r'], " ").clone_into(&mut self.status);
            tell(NotifyState::Status(&self.status));
        }
    }

    /// Waits until a ping is due; for ever where nobody waits for any. Needs a Tokio runtime.
    pub async fn due(&mut self) {
        let Some(period) = self.period.filter(|period| !period.is_zero()) else { return std::future::pending().await };
        let pings = self.pings.get_or_insert_with(|| {
            let mut pings = interval(period);
            pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
            pings
        });
        pings.tick().await;
    }

    /// Shows that the daemon's loop turns.
    pub fn ping(&self) {
        tell(NotifyState::Watchdog);
    }
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = notify(&[state]) {
        tracing::debug!(%error, "the service manager does not listen");
    }
}
