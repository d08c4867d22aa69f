//! What the agents' records show about moves and about changes of paths.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path};

use sidestep_lab::{LabError, Made, Moves, traffic::Monotonic};
use sidestep_net::{Span, Time};
use sidestep_results::{PathUpdates, Recorder};
use sidestep_scenario::Change;

use crate::daemon::EventLine;

/// How many agents changed their paths after an event of links, and how long the last of them took.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Updated {
    agents: usize,
    last: Span,
}

/// Each change of an agent's paths: the agent's record, and the time.
#[derive(Clone, Debug, Default)]
struct Updates<'a> {
    paths: Vec<(&'a Path, Monotonic)>,
}

/// Reads the agents' records, and reports each move to `recorder`, with its time since `epoch`, and how long the agents took to
/// change their paths after each event of a link.
pub fn read<'a>(
    files: impl Iterator<Item = &'a Path>,
    epoch: Monotonic,
    made: &[Made],
    recorder: &mut Recorder,
) -> Result<Moves, LabError> {
    let mut moves = Moves::default();
    let mut updates = Updates::default();
    for file in files {
        let text = fs::read_to_string(file).map_err(LabError::file(file))?;
        for line in text.lines() {
            let line = serde_json::from_str(line).map_err(|error| LabError::file(file)(error.into()))?;
            let record = match line {
                EventLine::Connection(record) => record,
                EventLine::Paths(paths) => {
                    updates.paths.push((file, Monotonic::from_nanos(paths.at_ns)));
                    continue;
                }
            };
            if record.kind != "moved" {
                continue;
            }
            let at = Time::ZERO + Monotonic::from_nanos(record.at_ns).since(epoch);
            recorder.moved(at, record.reason.as_deref().unwrap_or("unknown"));
            // The lab's nodes have addresses of IPv6 only.
            if let (SocketAddr::V6(local), SocketAddr::V6(remote)) = (record.local, record.remote) {
                moves.count(local, remote);
            }
        }
    }
    updates.report(made, recorder);
    Ok(moves)
}

impl Updates<'_> {
    /// Reports to `recorder` how long the agents took to change their paths after each link that went down or came up.
    fn report(&self, made: &[Made], recorder: &mut Recorder) {
        let changes = made.iter().filter(|made| matches!(made.change, Change::Down | Change::Up));
        let changes: Vec<_> = changes.collect();
        for (index, made) in changes.iter().enumerate() {
            let next = changes.get(index + 1).map(|next| next.at);
            if let Some(Updated { agents, last }) = self.updated(made.at, next) {
                recorder.updated(PathUpdates {
                    at_s: made.since_start.as_secs_f64(),
                    change: if made.change == Change::Down { "down" } else { "up" }.into(),
                    agents: agents as u64,
                    last_s: last.as_secs_f64(),
                });
            }
        }
    }

    /// Sums up each agent's first change of paths from one instant until another; `None` if no agent changed its paths.
    fn updated(&self, from: Monotonic, to: Option<Monotonic>) -> Option<Updated> {
        let mut first: BTreeMap<&Path, Span> = BTreeMap::new();
        let within = self.paths.iter().filter(|(_, at)| *at >= from && to.is_none_or(|to| *at < to));
        for (agent, at) in within {
            let after = at.since(from);
            first.entry(agent).and_modify(|least| *least = (*least).min(after)).or_insert(after);
        }
        Some(Updated { agents: first.len(), last: first.into_values().max()? })
    }
}
