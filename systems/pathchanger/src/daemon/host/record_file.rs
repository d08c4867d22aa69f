//! A file of records that must never harm the daemon: the disk may be full, and others may move or remove the file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::Serialize;
use sidestep_net::Bytes;

/// Where records go, and how much of them is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFile {
    /// The file. Records are appended to what is there.
    pub path: PathBuf,
    /// Largest size of a file; zero: no limit. A file that would grow beyond it becomes `PATH.1`.
    pub size: Bytes,
    /// How many older files `PATH.1`, `PATH.2`, … are kept.
    pub keep: u32,
}

impl RecordFile {
    /// Size that a file has at most, if no other is chosen.
    pub const SIZE: Bytes = Bytes::new(32 << 20);
    /// How many older files are kept, if no other number is chosen.
    pub const KEEP: u32 = 3;

    /// A file of the usual size and with the usual number of older files.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        RecordFile { path: path.into(), size: Self::SIZE, keep: Self::KEEP }
    }
}

/// Appends lines to a [`RecordFile`]. Lines that cannot be written are counted and dropped.
#[derive(Debug)]
pub(super) struct RecordLog {
    target: RecordFile,
    file: Option<File>,
    /// Complete lines that are not written yet.
    buffer: Vec<u8>,
    /// Whether a line may have been cut off where it cannot be taken back.
    torn: bool,
    lost: u64,
    /// Whether the last attempt to write failed.
    failing: bool,
    warned: Option<Instant>,
}

/// Lines are written at the latest when there are this many bytes of them.
const BUFFER: usize = 64 << 10;
/// A disk that is full now and then is reported no more often than this.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

impl RecordLog {
    /// Opens the file. Where that fails, each [`flush`](Self::flush) tries again.
    pub(super) fn open(target: RecordFile) -> Self {
        let (file, buffer) = (None, Vec::new());
        let mut log = RecordLog { target, file, buffer, torn: false, lost: 0, failing: false, warned: None };
        if let Err(error) = log.prepare() {
            log.fail(&error);
        }
        log
    }

    /// Adds a line.
    pub(super) fn line(&mut self, record: &impl Serialize) {
        let before = self.buffer.len();
        if serde_json::to_writer(&mut self.buffer, record).is_err() {
            self.buffer.truncate(before);
            self.lost += 1;
            return;
        }
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
    }

    /// Makes what was added visible to readers.
    pub(super) fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let written = self.prepare().and_then(|()| self.write());
        match written {
            Ok(()) if self.failing => {
                self.failing = false;
                tracing::info!(path = %self.target.path.display(), lost = self.lost, "events are recorded again");
            }
            Ok(()) => {}
            Err(error) => self.fail(&error),
        }
        self.buffer.clear();
    }

    /// How many lines were lost since the last time that this was asked.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn fail(&mut self, error: &io::Error) {
        self.lost += count_lines(&self.buffer);
        self.buffer.clear();
        self.file = None;
        if !self.failing && self.warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            let path = self.target.path.display();
            tracing::warn!(%path, %error, "events cannot be recorded; connections are moved all the same");
        }
        self.failing = true;
    }

    /// Makes sure that the file at the path is open and has room.
    fn prepare(&mut self) -> io::Result<()> {
        if self.file.as_ref().is_some_and(|file| !is_at(file, &self.target.path)) {
            self.file = None;
        }
        if self.file.is_none() {
            self.file = Some(self.open_file()?);
        }
        if self.is_full()? {
            self.rotate()?;
            self.file = Some(self.open_file()?);
        }
        Ok(())
    }

    /// Opens the file to append to it, and ends a line that was cut off, by a crash for instance.
    fn open_file(&mut self) -> io::Result<File> {
        let path = &self.target.path;
        // Neither a pipe that no process reads nor one that is full may stop the daemon.
        let mut file = OpenOptions::new().create(true).append(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let torn =
            if file.metadata()?.is_file() { last_byte(path).is_some_and(|last| last != b'\n') } else { self.torn };
        if torn {
            file.write_all(b"\n")?;
        }
        self.torn = false;
        Ok(file)
    }

    fn is_full(&self) -> io::Result<bool> {
        let Some(file) = self.file.as_ref().filter(|_| self.target.size > Bytes::default()) else { return Ok(false) };
        let metadata = file.metadata()?;
        let after = metadata.len().saturating_add(self.buffer.len() as u64);
        Ok(metadata.is_file() && metadata.len() > 0 && after > self.target.size.get())
    }

    /// Renames the files: each becomes the next older one, and the oldest goes.
    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        let older = |number: u32| match number {
            0 => self.target.path.clone(),
            number => {
                let mut name = self.target.path.clone().into_os_string();
                name.push(format!(".{number}"));
                PathBuf::from(name)
            }
        };
        if self.target.keep == 0 {
            return fs::remove_file(older(0));
        }
        for number in (0..self.target.keep).rev() {
            match fs::rename(older(number), older(number + 1)) {
                Err(error) if number == 0 || error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the lines. On an error those that were not written completely are left in the buffer.
    fn write(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Err(ErrorKind::NotConnected.into()) };
        let mut done = 0;
        let error = loop {
            match file.write(self.buffer.get(done..).unwrap_or_default()) {
                Ok(0) => break io::Error::from(ErrorKind::WriteZero),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break error,
            }
            if done >= self.buffer.len() {
                return Ok(());
            }
        };
        let written = self.buffer.get(..done).unwrap_or_default();
        let complete = written.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let part = (done - complete) as u64;
        self.torn |= part > 0 && file.metadata().and_then(|now| file.set_len(now.len().saturating_sub(part))).is_err();
        self.buffer.drain(..complete);
        Err(error)
    }
}

/// Whether `file` is what is found at `path`. Others, such as logrotate, may have moved it away.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => identity(&ours) == identity(&there),
        _ => false,
    }
}

/// The last byte of a file; `None` if it is empty or cannot be read.
fn last_byte(path: &Path) -> Option<u8> {
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::End(-1)).ok()?;
    let mut last = [0];
    file.read_exact(&mut last).ok()?;
    Some(last[0])
}

fn count_lines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use nix::{
        mount::{MsFlags, mount},
        sched::{CloneFlags, unshare},
    };
    use sidestep_linux::testing::root_or_skip;

    use super::*;

    fn log(path: &Path, size: u64, keep: u32) -> RecordLog {
        RecordLog::open(RecordFile { path: path.into(), size: Bytes::new(size), keep })
    }

    fn write(log: &mut RecordLog, record: &str) {
        log.line(&record);
        log.flush();
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn records_are_appended_and_a_line_that_a_crash_cut_off_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        write(&mut log(&path, 0, 0), "first");
        write(&mut log(&path, 0, 0), "second");
        assert_eq!(read(&path), "\"first\"\n\"second\"\n");
        fs::write(&path, "\"whole\"\n\"par").unwrap();
        write(&mut log(&path, 0, 0), "next");
        assert_eq!(read(&path), "\"whole\"\n\"par\n\"next\"\n");
    }

    #[test]
    fn a_file_is_rotated_by_size_and_a_few_older_ones_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        let mut log = log(&path, 10, 2);
        for record in ["one", "two", "three", "four", "five"] {
            write(&mut log, record);
        }
        let mut names: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["events", "events.1", "events.2"]);
        let older = |number: u32| read(&directory.path().join(format!("events.{number}")));
        assert_eq!([read(&path), older(1), older(2)], ["\"five\"\n", "\"four\"\n", "\"three\"\n"]);
        assert_eq!(log.take_lost(), 0);
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("events"), directory.path().join("moved"));
        let mut log = log(&path, 0, 0);
        write(&mut log, "before");
        fs::rename(&path, &moved).unwrap();
        write(&mut log, "after");
        assert_eq!((read(&moved), read(&path)), ("\"before\"\n".into(), "\"after\"\n".into()));
        // `copytruncate` of logrotate.
        OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        write(&mut log, "truncated");
        assert_eq!(read(&path), "\"truncated\"\n", "and no hole of zeros before it");
    }

    #[test]
    fn lines_are_lost_and_counted_while_the_file_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("missing").join("events");
        let mut log = log(&path, 0, 0);
        write(&mut log, "lost");
        log.line(&"lost, too");
        write(&mut log, "and this");
        assert_eq!(log.take_lost(), 3);
        fs::create_dir(path.parent().unwrap()).unwrap();
        write(&mut log, "there");
        assert_eq!((read(&path).as_str(), log.take_lost()), ("\"there\"\n", 0));
        let mut full = super::tests::log(Path::new("/dev/full"), 10, 1);
        write(&mut full, "nothing fits");
        assert_eq!(full.take_lost(), 1);
    }

    #[test]
    fn a_pipe_that_no_process_reads_does_not_stop_the_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut log = log(&path, 0, 0);
        write(&mut log, "lost");
        assert_eq!(log.take_lost(), 1);
        let _reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        for _ in 0..20 {
            write(&mut log, &"x".repeat(10_000));
        }
        assert!(log.take_lost() > 10, "a pipe holds 64 KiB");
    }

    #[test]
    fn a_full_disk_leaves_whole_lines_and_is_written_again_when_it_has_room() {
        if !root_or_skip("a full disk") {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().to_path_buf();
        let filled = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
            mount(Some("none"), &disk, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
            let path = disk.join("events");
            fs::write(disk.join("other"), vec![0; 48 << 10]).unwrap();
            let mut log = log(&path, 0, 0);
            for _ in 0..300 {
                log.line(&"x".repeat(97));
            }
            log.flush();
            let (lost, text) = (log.take_lost(), read(&path));
            assert!(lost > 0 && text.ends_with("\"\n"), "{lost} lost");
            assert_eq!(text.lines().count() as u64 + lost, 300);
            assert!(text.lines().all(|line| line.len() == 99));
            fs::remove_file(disk.join("other")).unwrap();
            write(&mut log, "again");
            assert!(read(&path).ends_with("\"\n\"again\"\n"));
            assert_eq!(log.take_lost(), 0);
        });
        filled.join().unwrap();
    }
}
