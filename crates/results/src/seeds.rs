//! What each seed of a repeated run gave, kept so that a run that was interrupted can go on.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    SeedTrace, SystemResult, WriteError,
    whole::{io_error, write_whole},
};

/// The file that a run under several seeds has.
pub(crate) const FILE: &str = "seeds.jsonl";

/// `seeds.jsonl`: a line that describes what was run, then a line for each system and seed that ran to the end.
#[derive(Debug)]
pub struct SeedLog {
    dir: PathBuf,
    file: File,
    head: Head,
}

/// What one system gave under one seed; a line of `seeds.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeedResult {
    /// The system's name with its parameters.
    pub system: String,
    /// The seed.
    pub seed: u64,
    /// The measures.
    pub result: SystemResult,
    /// What pictures of all seeds show of it.
    pub trace: SeedTrace,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    version: String,
    scenario: String,
}

impl SeedLog {
    /// Begins the file in `dir`, for a run of this version of the program and this text of a resolved scenario.
    pub fn create(dir: &Path, version: &str, scenario: &str) -> Result<SeedLog, WriteError> {
        let path = file_in(dir);
        std::fs::create_dir_all(dir).map_err(io_error("make", dir))?;
        let file = File::create(&path).map_err(io_error("create", &path))?;
        let mut log = SeedLog { dir: dir.to_owned(), file, head: Head::new(version, scenario) };
        let head = line(&log.head)?;
        log.append(&head)?;
        Ok(log)
    }

    /// Goes on with the file in `dir`; returns what is in it. The file of another version or scenario is refused.
    ///
    /// A line that is not whole, as the program was killed, is left out.
    pub fn resume(dir: &Path, version: &str, scenario: &str) -> Result<(SeedLog, Vec<SeedResult>), WriteError> {
        let path = file_in(dir);
        let mut lines = BufReader::new(File::open(&path).map_err(io_error("go on with", &path))?).lines();
        let own = Head::new(version, scenario);
        let head = lines.next().transpose().map_err(io_error("read", &path))?;
        if head.and_then(|line| serde_json::from_str(&line).ok()).as_ref() != Some(&own) {
            return Err(WriteError::OtherRun { path });
        }
        let mut done: Vec<SeedResult> = Vec::new();
        for line in lines {
            let line = line.map_err(io_error("read", &path))?;
            done.extend(serde_json::from_str::<SeedResult>(&line));
        }
        let file = OpenOptions::new().append(true).open(&path).map_err(io_error("go on with", &path))?;
        let mut log = SeedLog { dir: dir.to_owned(), file, head: own };
        // What a killed run left of a line is ended, so that it spoils no other.
        log.append("\n")?;
        Ok((log, done))
    }

    /// Writes the whole file again, in this order: as results came, their order was chance.
    pub fn finish(self, results: &[SeedResult]) -> Result<(), WriteError> {
        let mut text = line(&self.head)?;
        for result in results {
            text += &line(result)?;
        }
        write_whole(&self.dir, FILE, &text)
    }

    /// Removes the file that an earlier run has left in `dir`.
    pub fn remove(dir: &Path) -> Result<(), WriteError> {
        let path = file_in(dir);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Adds the result of a system and a seed.
    pub fn add(&mut self, result: &SeedResult) -> Result<(), WriteError> {
        self.append(&line(result)?)
    }

    fn append(&mut self, text: &str) -> Result<(), WriteError> {
        self.file.write_all(text.as_bytes()).map_err(io_error("write", &file_in(&self.dir)))
    }
}

impl Head {
    fn new(version: &str, scenario: &str) -> Head {
        Head { version: version.to_owned(), scenario: scenario.to_owned() }
    }
}

fn line(value: &impl Serialize) -> Result<String, WriteError> {
    Ok(serde_json::to_string(value)? + "\n")
}

fn file_in(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(system: &str, seed: u64) -> SeedResult {
        let measured =
            SystemResult { goodput_mbps: 9.5 + seed as f64, fairness: Some(0.1 + 0.2), ..Default::default() };
        SeedResult { system: system.into(), seed, result: measured, trace: SeedTrace::default() }
    }

    #[test]
    fn a_run_goes_on_with_what_was_whole_to_the_bit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep");
        let mut log = SeedLog::create(&path, "1", "name = \"a\"\n").unwrap();
        let all = [result("tcp", 0), result("pathchanger:policy=next", 0), result("tcp", 1)];
        all.iter().for_each(|one| log.add(one).unwrap());
        log.file.write_all(br#"{"system":"tcp","seed":2,"resu"#).unwrap();
        let (mut log, done) = SeedLog::resume(&path, "1", "name = \"a\"\n").unwrap();
        assert_eq!(done, all);
        log.add(&result("tcp", 2)).unwrap();
        let (_, done) = SeedLog::resume(&path, "1", "name = \"a\"\n").unwrap();
        assert_eq!((done.len(), &done[3]), (4, &result("tcp", 2)));
    }

    #[test]
    fn another_scenario_or_version_and_a_missing_or_foreign_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let resume =
            |version: &str, scenario: &str| SeedLog::resume(dir.path(), version, scenario).unwrap_err().to_string();
        assert!(resume("1", "a").starts_with("cannot go on with "), "{}", resume("1", "a"));
        SeedLog::create(dir.path(), "1", "a").unwrap();
        for (version, scenario) in [("2", "a"), ("1", "b")] {
            assert!(resume(version, scenario).contains("another scenario or version"), "{}", resume(version, scenario));
        }
        std::fs::write(dir.path().join(FILE), "no json\n").unwrap();
        assert!(resume("1", "a").contains("another scenario or version"));
    }
}
