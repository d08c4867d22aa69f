//! What the agents' records say about moves.

use std::{
    collections::BTreeMap,
    fs,
    net::{SocketAddr, SocketAddrV6},
    path::PathBuf,
};

use sidestep_agent::EventLine;
use sidestep_net::{Span, Time};
use sidestep_results::{PathUpdates, Recorder};
use sidestep_scenario::Change;

use crate::{error::LabError, names::Names, timeline::Made, traffic::Monotonic};

/// How many agents changed their paths after an event of links, and how long the last of them took.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Updated {
    agents: usize,
    last: Span,
}

/// Moves by connection, seen from the end that moved it.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    by_ends: BTreeMap<(SocketAddrV6, SocketAddrV6), u64>,
    /// Each change of an agent's paths: the agent's record, and the time.
    paths: Vec<(PathBuf, Monotonic)>,
}

/// Reads the agents' records, and reports each move to `recorder`, with its time since `epoch`.
pub fn read(files: &[PathBuf], epoch: Monotonic, recorder: &mut Recorder) -> Result<Moves, LabError> {
    let mut moves = Moves::default();
    for file in files {
        let text = fs::read_to_string(file).map_err(LabError::file(file))?;
        for line in text.lines() {
            let line = serde_json::from_str(line).map_err(|error| LabError::file(file)(error.into()))?;
            let record = match line {
                EventLine::Connection(record) => record,
                EventLine::Paths(paths) => {
                    moves.paths.push((file.clone(), Monotonic::from_nanos(paths.at_ns)));
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
                *moves.by_ends.entry((local, remote)).or_default() += 1;
            }
        }
    }
    Ok(moves)
}

impl Moves {
    /// Reports to `recorder` how long the agents took to change their paths after each link that went down or came up.
    pub fn report_updates(&self, made: &[Made], recorder: &mut Recorder) {
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
        let mut first: BTreeMap<&PathBuf, Span> = BTreeMap::new();
        let within = self.paths.iter().filter(|(_, at)| *at >= from && to.is_none_or(|to| *at < to));
        for (agent, at) in within {
            let after = at.since(from);
            first.entry(agent).and_modify(|least| *least = (*least).min(after)).or_insert(after);
        }
        Some(Updated { agents: first.len(), last: first.into_values().max()? })
    }

    /// Number of moves that the end `local` made of its connection with `remote`.
    pub fn of(&self, local: SocketAddrV6, remote: SocketAddrV6) -> u64 {
        self.by_ends.get(&(local, remote)).copied().unwrap_or(0)
    }

    /// Number of moves of the connection of this name, made by the end that the name has first.
    pub fn of_name(&self, connection: &str, names: &Names) -> u64 {
        let named = self.by_ends.iter().filter(|((local, remote), _)| names.connection(*local, *remote) == connection);
        named.map(|(_, moves)| moves).sum()
    }
}
