//! What the agents' records say about moves.

use std::{
    collections::BTreeMap,
    fs,
    net::{SocketAddr, SocketAddrV6},
    path::PathBuf,
};

use sidestep_agent::EventRecord;
use sidestep_model::Time;
use sidestep_results::Recorder;

use crate::{error::LabError, names::Names, traffic::Monotonic};

/// Moves by connection, seen from the end that moved it.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    by_ends: BTreeMap<(SocketAddrV6, SocketAddrV6), u64>,
}

/// Reads the agents' records, and tells `recorder` of each move since `epoch`.
pub fn read(files: &[PathBuf], epoch: Monotonic, recorder: &mut Recorder) -> Result<Moves, LabError> {
    let mut moves = Moves::default();
    for file in files {
        let text = fs::read_to_string(file).map_err(LabError::file(file))?;
        for line in text.lines() {
            let record: EventRecord = serde_json::from_str(line).map_err(|error| LabError::file(file)(error.into()))?;
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
    /// Moves that the end `local` made of its connection with `remote`.
    pub fn of(&self, local: SocketAddrV6, remote: SocketAddrV6) -> u64 {
        self.by_ends.get(&(local, remote)).copied().unwrap_or(0)
    }

    /// The same, by the connection's name.
    pub fn of_name(&self, connection: &str, names: &Names) -> u64 {
        let named = self.by_ends.iter().filter(|((local, remote), _)| names.connection(*local, *remote) == connection);
        named.map(|(_, moves)| moves).sum()
    }
}
