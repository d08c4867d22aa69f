//! The records of single seeds of a repeated run, on disk until all can be put together in the order of the seeds.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use crate::{
    Records, WriteError,
    record::{FLOW_COLUMNS, SAMPLE_COLUMNS, SUBFLOW_COLUMNS},
    whole::io_error,
    writer::{FLOWS, SERIES, SUBFLOWS},
};

/// The directory below that of the results.
const DIRECTORY: &str = ".seeds";
/// What the name of a file ends with that is being written.
const UNFINISHED: &str = ".unfinished";

/// Files of one system and seed each: no more is open than what is written to, however many seeds there are.
#[derive(Debug)]
pub struct Parts {
    dir: PathBuf,
}

impl Parts {
    /// Parts of a new run in `out`; those of an earlier run are removed.
    pub fn create(out: &Path) -> Result<Parts, WriteError> {
        let parts = Parts { dir: out.join(DIRECTORY) };
        parts.clear()?;
        fs::create_dir_all(&parts.dir).map_err(io_error("make", &parts.dir))?;
        Ok(parts)
    }

    /// Parts of a run in `out` that goes on; `done` are the systems and seeds that it has. What has no part yet is taken from the
    /// files that the earlier run has put together.
    pub fn resume(out: &Path, done: &BTreeSet<(String, u64)>) -> Result<Parts, WriteError> {
        let parts = Parts { dir: out.join(DIRECTORY) };
        fs::create_dir_all(&parts.dir).map_err(io_error("make", &parts.dir))?;
        let lacking = done.iter().filter(|(system, seed)| !parts.has(system, *seed));
        let lacking: BTreeSet<(String, u64)> = lacking.cloned().collect();
        // Samples come last: a system and seed with samples has all.
        let kinds = [(FLOWS, &FLOW_COLUMNS[..]), (SUBFLOWS, &SUBFLOW_COLUMNS), (SERIES, &SAMPLE_COLUMNS)];
        for (name, columns) in kinds {
            parts.split(&out.join(name), name, columns, &lacking)?;
        }
        Ok(parts)
    }

    /// Whether the records of a system and seed are there; what was interrupted is not in the log of seeds.
    pub fn has(&self, system: &str, seed: u64) -> bool {
        self.path(system, seed, SERIES).exists()
    }

    /// Begins the records of a system and seed.
    pub fn begin(&self, system: &str, seed: u64) -> Result<Records, WriteError> {
        Records::part([FLOWS, SERIES, SUBFLOWS].map(|name| self.path(system, seed, name)), seed)
    }

    /// The file of a system and seed that belongs into the one of this name.
    pub(crate) fn path(&self, system: &str, seed: u64, name: &str) -> PathBuf {
        // Names of systems are longer than those of files may be.
        let hash = system
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        self.dir.join(format!("{seed}-{hash:016x}-{name}"))
    }

    /// Removes all parts.
    pub fn clear(&self) -> Result<(), WriteError> {
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &self.dir)(error)),
            _ => Ok(()),
        }
    }

    /// Takes the rows of these systems and seeds out of a file; one with other columns has none.
    fn split(
        &self,
        from: &Path,
        name: &str,
        columns: &[&str],
        wanted: &BTreeSet<(String, u64)>,
    ) -> Result<(), WriteError> {
        if wanted.is_empty() || !from.exists() {
            return Ok(());
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| WriteError::Csv { path, source }
        };
        let mut reader = csv::Reader::from_path(from).map_err(failed(from))?;
        if reader.byte_headers().map_err(failed(from))?.iter().ne(columns.iter().map(|column| column.as_bytes())) {
            return Ok(());
        }
        let mut begun: BTreeSet<PathBuf> = BTreeSet::new();
        let mut open: Option<((String, u64), csv::Writer<File>)> = None;
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record).map_err(failed(from))? {
            let (Some(system), Some(Ok(seed))) = (record.get(0), record.get(1).map(str::parse::<u64>)) else {
                continue;
            };
            let key = (system.to_owned(), seed);
            if !wanted.contains(&key) {
                continue;
            }
            let path = unfinished(&self.path(system, seed, name));
            if open.as_ref().is_none_or(|(current, _)| *current != key) {
                let first = begun.insert(path.clone());
                let mut options = OpenOptions::new();
                options.create(true).write(true).truncate(first).append(!first);
                let file = options.open(&path).map_err(io_error("write", &path))?;
                let writer = csv::WriterBuilder::new().has_headers(false).from_writer(file);
                if let Some((_, mut before)) = open.replace((key, writer)) {
                    before.flush().map_err(io_error("write", from))?;
                }
            }
            if let Some((_, writer)) = &mut open {
                writer.write_record(&record).map_err(failed(&path))?;
            }
        }
        if let Some((_, mut last)) = open {
            last.flush().map_err(io_error("write", from))?;
        }
        for path in begun {
            let whole = path.to_string_lossy().trim_end_matches(UNFINISHED).to_owned();
            fs::rename(&path, whole).map_err(io_error("rename", &path))?;
        }
        Ok(())
    }
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowRecord, Recorder, Scene, Writer, testing};

    /// Leaves the records of these seeds of a system in `out`.
    fn run(out: &Path, parts: &Parts, seeds: impl Iterator<Item = u64> + Clone) {
        for seed in seeds.clone() {
            let mut recorder = Recorder::new("a,b", testing::window(0, 10), []);
            let mut records = parts.begin("a,b", seed).unwrap();
            records.sample(&mut recorder, &testing::path_sample("p,\"1", 0.0, 0.5, 0.25, seed)).unwrap();
            let flow = FlowRecord { completed: true, ..testing::flow("f", 1.0, 2.0 + seed as f64, 1_000) };
            records.flow(&mut recorder, &flow).unwrap();
            records.close().unwrap();
        }
        let mut writer = Writer::new(out, 0).unwrap();
        for seed in seeds {
            writer.append_part(parts, "a,b", seed).unwrap();
        }
        parts.clear().unwrap();
        let run = crate::RunResult::new("s", crate::World::Sim, 0);
        writer.finish(&run, &[], &Scene::default(), "", "").unwrap();
    }

    #[test]
    fn what_was_put_together_comes_apart_again_and_seeds_that_are_not_wanted_stay_out() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
        run(&one, &Parts::create(&one).unwrap(), 3..6);
        let read = |out: &Path, name: &str| fs::read_to_string(out.join(name)).unwrap();
        let before = [FLOWS, SERIES].map(|name| read(&one, name));
        assert!(
            before[0].contains("\"a,b\",4,f,") && before[1].contains("\"a,b\",5,0.5,path,\"p,\"\"1\""),
            "{before:?}"
        );
        let done: BTreeSet<(String, u64)> = [3, 4, 5].map(|seed| ("a,b".to_owned(), seed)).into();
        let parts = Parts::resume(&one, &done).unwrap();
        assert!(parts.has("a,b", 4) && !parts.has("a,b", 6) && !parts.has("a", 4));
        let mut writer = Writer::new(&one, 0).unwrap();
        for seed in 3..6 {
            writer.append_part(&parts, "a,b", seed).unwrap();
        }
        let run_again = crate::RunResult::new("s", crate::World::Sim, 0);
        writer.finish(&run_again, &[], &Scene::default(), "", "").unwrap();
        assert_eq!([FLOWS, SERIES].map(|name| read(&one, name)), before);
        run(&other, &Parts::create(&other).unwrap(), 4..5);
        assert_eq!(read(&other, FLOWS).lines().count(), 2);
        assert!(!other.join(DIRECTORY).exists());
    }

    #[test]
    fn a_file_of_other_columns_gives_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(SERIES), "system,time_s\na,1\n").unwrap();
        let parts = Parts::resume(dir.path(), &[("a".to_owned(), 1)].into()).unwrap();
        assert!(!parts.has("a", 1));
    }
}
