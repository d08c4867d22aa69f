//! What the agent records, counts and logs of connections.

use sidestep_hostd::AgentError;

use super::{HostConfig, events::Recorder, summary::Summary};
use crate::daemon::program::{Events, HostCounters, HostProgram, MapUse, RunStats};

/// The program's events and counters, and where they go.
pub(super) struct Records {
    events: Events<'static>,
    pub(super) recorder: Recorder,
    summary: Summary,
    /// While we make the kernel count runs of programs.
    run_stats: Option<RunStats>,
}

impl Records {
    /// Begins to record what the program does.
    pub(super) fn new(recorder: Recorder, program: &HostProgram, config: &HostConfig) -> Result<Self, AgentError> {
        let sink = recorder.clone();
        Ok(Records {
            events: program.events(move |event| sink.write(&event))?,
            recorder,
            run_stats: run_stats(config),
            summary: Summary::new(program.counters()?),
        })
    }

    /// Waits until the program has recorded many events.
    pub(super) async fn ready(&self) -> Result<(), AgentError> {
        Ok(self.events.ready().await?)
    }

    /// Records the events that wait. A record that cannot be written is counted, and harms nothing else.
    pub(super) fn take(&self, program: &HostProgram) -> Result<(), AgentError> {
        let lost = self.recorder.take(&self.events)?;
        Ok(program.count_lost_records(lost)?)
    }

    /// Sums up from here on.
    pub(super) fn begin_summary(&mut self, counters: HostCounters) {
        self.summary = Summary::new(counters);
    }

    /// Logs what has happened, if it is time for a summary.
    pub(super) fn sum_up(&mut self, program: &HostProgram, dry_run: bool) -> Result<(), AgentError> {
        if self.summary.is_due() {
            self.summary.log(program.counters()?, dry_run);
        }
        Ok(())
    }

    /// How full the program's maps are, of which `stored` connections are in one.
    pub(super) fn maps(&self, program: &HostProgram, stored: u64) -> Vec<MapUse> {
        program.maps(stored, self.events.waiting())
    }

    /// Whether the kernel counts runs of programs.
    pub(super) fn are_runs_counted(&self) -> bool {
        self.run_stats.is_some() || RunStats::by_sysctl()
    }
}

/// Makes the kernel count runs of programs if that is wanted and allowed; moving connections does not depend on it.
fn run_stats(config: &HostConfig) -> Option<RunStats> {
    if !config.metrics.bpf_stats {
        return None;
    }
    let failed = |error| tracing::warn!(%error, "no runs are counted; it takes CAP_SYS_ADMIN, or `sysctl kernel.bpf_stats_enabled=1`");
    RunStats::enable().map_err(failed).ok()
}
