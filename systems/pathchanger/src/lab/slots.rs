//! The path that each slot of a host's marks stands for. The host's agent records the slots whenever its paths change.

use std::{
    fs::File,
    io::{ErrorKind, Read, Seek, SeekFrom},
    net::{IpAddr, Ipv6Addr},
    path::{Path, PathBuf},
};

use sidestep_lab::LabError;

use crate::daemon::{EventLine, SetRecord};

/// The record of the agent on the host of this name.
pub fn events_file(logs: &Path, host: &str) -> PathBuf {
    logs.join(format!("events-{host}.jsonl"))
}

/// The slots of one host, as its agent last recorded them.
///
/// A path keeps its slot, but a slot whose path is gone is given to another, so a slot alone does not identify a path.
#[derive(Debug)]
pub struct Slots {
    file: PathBuf,
    /// How much of the file was read.
    read: u64,
    /// The beginning of a line whose end is not written yet.
    begun: String,
    sets: Vec<SetRecord>,
}

impl Slots {
    /// The slots that `file` records. A host without an agent has no file.
    pub fn new(file: PathBuf) -> Self {
        Slots { file, read: 0, begun: String::new(), sets: Vec::new() }
    }

    /// The record.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads what was recorded since the last time.
    pub fn catch_up(&mut self) -> Result<(), LabError> {
        let failed = LabError::file(&self.file);
        let mut file = match File::open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let seek = file.seek(SeekFrom::Start(self.read));
        match seek.and_then(|_| file.read_to_string(&mut self.begun)) {
            Ok(count) => self.read += count as u64,
            Err(error) => return Err(failed(error)),
        }
        let Some(end) = self.begun.rfind('\n') else { return Ok(()) };
        let rest = self.begun.split_off(end + 1);
        for line in std::mem::replace(&mut self.begun, rest).lines() {
            let line = serde_json::from_str(line).map_err(|error| LabError::file(&self.file)(error.into()))?;
            if let EventLine::Paths(paths) = line {
                self.sets = paths.sets;
            }
        }
        Ok(())
    }

    /// The name of the path to `remote` that `slot` stands for now; `None` for slot zero, the default route.
    pub fn path(&self, remote: Ipv6Addr, slot: u32) -> Option<&str> {
        let sets = self.sets.iter().filter(|set| set.destination.contains(&IpAddr::V6(remote)));
        let set = sets.max_by_key(|set| set.destination.prefix_len())?;
        set.paths.iter().find(|path| path.slot == slot).map(|path| path.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Write};

    use crate::daemon::{PathRecord, PathsRecord};
    use sidestep_net::Time;

    use super::*;

    fn append(file: &Path, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// A line that reports that these paths, by id and slot, lead to `fd02:0:9::/64`.
    fn line(ids: &[(u32, u32)]) -> String {
        let path = |(id, slot): &(u32, u32)| PathRecord { id: *id, name: format!("A>B#{id:08x}"), slot: *slot };
        let paths = ids.iter().map(path).collect();
        let set = SetRecord { destination: "fd02:0:9::/64".parse().unwrap(), paths };
        serde_json::to_string(&PathsRecord::new(Time::ZERO, Time::ZERO, vec![set])).unwrap() + "\n"
    }

    #[test]
    fn a_path_keeps_its_name_when_it_gets_another_slot() {
        let directory = tempfile::tempdir().unwrap();
        let file = events_file(directory.path(), "c1");
        let remote: Ipv6Addr = "fd02:0:9::1".parse().unwrap();
        let mut slots = Slots::new(file.clone());
        slots.catch_up().unwrap();
        assert_eq!(slots.path(remote, 1), None, "the agent has not said anything");

        append(&file, &line(&[(7, 1), (8, 2), (9, 3)]));
        slots.catch_up().unwrap();
        assert_eq!(
            [0, 1, 2, 3, 4].map(|slot| slots.path(remote, slot)),
            [None, Some("A>B#00000007"), Some("A>B#00000008"), Some("A>B#00000009"), None]
        );
        assert_eq!(slots.path("fd02:0:8::1".parse().unwrap(), 1), None);

        // Path 8 goes down while other things happen; the line comes in two parts.
        let (first, second) = (line(&[(7, 1), (9, 2)]), line(&[(9, 1)]));
        append(&file, &first[..20]);
        slots.catch_up().unwrap();
        assert_eq!(slots.path(remote, 2), Some("A>B#00000008"));
        append(&file, &first[20..]);
        slots.catch_up().unwrap();
        assert_eq!(slots.path(remote, 2), Some("A>B#00000009"));
        append(&file, &second);
        slots.catch_up().unwrap();
        assert_eq!(slots.path(remote, 1), Some("A>B#00000009"));
        append(&file, "no record\n");
        assert!(slots.catch_up().unwrap_err().to_string().contains("events-c1.jsonl"));
    }
}
