//! The files of a run.

use std::{
    fs::{self, File},
    io::{self, Seek},
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    FlowRecord, Parts, Recorder, RunResult, SamplePoint, Scene, SubflowRecord, Trace, WriteError,
    page::{Pictures, page},
    plot,
    record::{FLOW_COLUMNS, FlowRow, SAMPLE_COLUMNS, SUBFLOW_COLUMNS, SampleRow, SubflowRow},
    seeds, times,
    whole::{io_error, write_whole},
};

const RESULT: &str = "result.json";
const TIMES: &str = "times.svg";
pub(crate) const FLOWS: &str = "flows.csv";
pub(crate) const SERIES: &str = "series.csv";
pub(crate) const SUBFLOWS: &str = "subflows.csv";
/// The files that every run has beside the page, in the order in which the page links to them.
pub(crate) const FILES: [&str; 5] = [RESULT, FLOWS, SERIES, "plot.svg", "scenario.resolved.toml"];

/// Writes a run's files into one directory; records go to disk as they come.
///
/// `result.json` is written last and appears whole or not at all. `subflows.csv` is there if a subflow was recorded.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    records: Records,
}

/// The records of a run, or of one of its systems, as they come.
#[derive(Debug)]
pub struct Records {
    flows: Csv,
    series: Csv,
    /// `None` until the first subflow is recorded.
    subflows: Option<Csv>,
    /// The directory of the run.
    dir: PathBuf,
    /// Where rows of subflows go.
    aside: Aside,
    /// The seed of these records.
    seed: u64,
}

/// Where records are until they are in the run's files.
#[derive(Debug)]
enum Aside {
    /// They are there.
    Not,
    /// In files without a name.
    Nameless,
    /// In a part; the file that its subflows have.
    Part(PathBuf),
}

#[derive(Debug)]
struct Csv {
    path: PathBuf,
    rows: csv::Writer<File>,
}

impl Writer {
    /// Makes `dir` if necessary, removes from it what an earlier run has and this one may not, and begins the CSV files. `seed` is
    /// that of the records which are not [parts](Parts).
    pub fn new(dir: impl Into<PathBuf>, seed: u64) -> Result<Self, WriteError> {
        let dir = dir.into();
        fs::create_dir_all(&dir).map_err(io_error("make", &dir))?;
        for stale in [RESULT, SUBFLOWS, TIMES].map(|name| dir.join(name)) {
            match fs::remove_file(&stale) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", &stale)(error)),
                _ => {}
            }
        }
        let flows = Csv::create(dir.join(FLOWS), &FLOW_COLUMNS)?;
        let series = Csv::create(dir.join(SERIES), &SAMPLE_COLUMNS)?;
        let records = Records { flows, series, subflows: None, dir: dir.clone(), aside: Aside::Not, seed };
        Ok(Writer { dir, records })
    }

    /// Where records go that are not [set aside](Self::set_aside).
    pub fn records(&mut self) -> &mut Records {
        &mut self.records
    }

    /// Records of a system that runs beside others: they are in files without a name until they are
    /// [appended](Self::append).
    pub fn set_aside(&self) -> Result<Records, WriteError> {
        let aside = |csv: &Csv| Csv::nameless(&self.dir, csv.path.clone());
        let (flows, series) = (aside(&self.records.flows)?, aside(&self.records.series)?);
        let (dir, seed) = (self.dir.clone(), self.records.seed);
        Ok(Records { flows, series, subflows: None, dir, aside: Aside::Nameless, seed })
    }

    /// Adds what was set aside.
    pub fn append(&mut self, records: Records) -> Result<(), WriteError> {
        self.records.flows.append(records.flows)?;
        self.records.series.append(records.series)?;
        match records.subflows {
            Some(subflows) => self.records.subflows()?.append(subflows),
            None => Ok(()),
        }
    }

    /// Adds the records of a system and seed.
    pub fn append_part(&mut self, parts: &Parts, system: &str, seed: u64) -> Result<(), WriteError> {
        self.records.flows.append_file(&parts.path(system, seed, FLOWS))?;
        self.records.series.append_file(&parts.path(system, seed, SERIES))?;
        let subflows = parts.path(system, seed, SUBFLOWS);
        if subflows.exists() { self.records.subflows()?.append_file(&subflows) } else { Ok(()) }
    }

    /// Completes the files: CSVs, `scenario.resolved.toml`, `plot.svg`, `times.svg` if transfers completed, `index.html`,
    /// and `result.json` last.
    ///
    /// `traces` are the systems' in the order of the run, `scene` is what the scenario has happen, `scenario` is the resolved scenario file's text, and
    /// `command` the command line that reproduces the run.
    pub fn finish(
        self,
        run: &RunResult,
        traces: &[Trace],
        scene: &Scene,
        scenario: &str,
        command: &str,
    ) -> Result<(), WriteError> {
        let Writer { dir, records: Records { flows, series, subflows, .. } } = self;
        let mut files = FILES.to_vec();
        if subflows.is_some() {
            files.insert(2, SUBFLOWS);
        }
        if dir.join(seeds::FILE).exists() {
            files.insert(1, seeds::FILE);
        }
        for csv in [flows, series].into_iter().chain(subflows) {
            csv.finish()?;
        }
        write_whole(&dir, "scenario.resolved.toml", scenario)?;
        let picture = plot(run, traces, scene)?;
        write_whole(&dir, "plot.svg", &picture)?;
        let times = times::picture(traces, run.seeds)?;
        if let Some(times) = &times {
            write_whole(&dir, TIMES, times)?;
            files.push(TIMES);
        }
        let pictures = Pictures { plot: &picture, times: times.as_deref() };
        write_whole(&dir, "index.html", &page(run, &pictures, &files, command))?;
        let json = serde_json::to_string_pretty(run)?;
        write_whole(&dir, RESULT, &(json + "\n"))
    }
}

impl Records {
    /// Records of one system and seed in files of their own: of flows, samples and subflows.
    pub(crate) fn part([flows, series, subflows]: [PathBuf; 3], seed: u64) -> Result<Self, WriteError> {
        let dir = flows.parent().map(Path::to_owned).unwrap_or_default();
        let (flows, series) = (Csv::headless(flows)?, Csv::headless(series)?);
        Ok(Records { flows, series, subflows: None, dir, aside: Aside::Part(subflows), seed })
    }

    /// Completes a [part](Parts).
    pub fn close(self) -> Result<(), WriteError> {
        [self.flows, self.series].into_iter().chain(self.subflows).try_for_each(Csv::finish)
    }

    /// Gives a sample to the recorder and to `series.csv`.
    pub fn sample(&mut self, recorder: &mut Recorder, point: &SamplePoint) -> Result<(), WriteError> {
        recorder.sample(point);
        self.series.add(SampleRow::new((recorder.system(), self.seed), point))
    }

    /// Gives a flow to the recorder and to `flows.csv`, and to `series.csv` what no sample of its connection showed.
    pub fn flow(&mut self, recorder: &mut Recorder, flow: &FlowRecord) -> Result<(), WriteError> {
        for point in recorder.flow(flow) {
            self.series.add(SampleRow::new((recorder.system(), self.seed), &point))?;
        }
        self.flows.add(FlowRow::new((recorder.system(), self.seed), flow))
    }

    /// Adds a subflow of the recorder's system to `subflows.csv`, which the first subflow begins.
    ///
    /// A subflow adds to no measure: its connection's [`FlowRecord`] counts what it carried.
    pub fn subflow(&mut self, recorder: &Recorder, subflow: &SubflowRecord) -> Result<(), WriteError> {
        let seed = self.seed;
        self.subflows()?.add(SubflowRow::new((recorder.system(), seed), subflow))
    }

    fn subflows(&mut self) -> Result<&mut Csv, WriteError> {
        let csv = match self.subflows.take() {
            Some(csv) => csv,
            None => match &self.aside {
                Aside::Nameless => Csv::nameless(&self.dir, self.dir.join(SUBFLOWS))?,
                Aside::Part(path) => Csv::headless(path.clone())?,
                Aside::Not => Csv::create(self.dir.join(SUBFLOWS), &SUBFLOW_COLUMNS)?,
            },
        };
        Ok(self.subflows.insert(csv))
    }
}

impl Csv {
    fn create(path: PathBuf, columns: &[&str]) -> Result<Self, WriteError> {
        let file = File::create(&path).map_err(io_error("create", &path))?;
        // The header is written here, so that a file without records has one too.
        let mut rows = csv::WriterBuilder::new().has_headers(false).from_writer(file);
        rows.write_record(columns).map_err(|source| WriteError::Csv { path: path.clone(), source })?;
        Ok(Csv { path, rows })
    }

    /// Rows that will be in `path`, for the time being in a file of `dir` that has no name.
    fn nameless(dir: &Path, path: PathBuf) -> Result<Self, WriteError> {
        let file = tempfile::tempfile_in(dir).map_err(io_error("make a temporary file in", dir))?;
        Ok(Csv { path, rows: csv::WriterBuilder::new().has_headers(false).from_writer(file) })
    }

    /// Rows in a file of their own, without a head.
    fn headless(path: PathBuf) -> Result<Self, WriteError> {
        let file = File::create(&path).map_err(io_error("create", &path))?;
        Ok(Csv { path, rows: csv::WriterBuilder::new().has_headers(false).from_writer(file) })
    }

    fn append_file(&mut self, path: &Path) -> Result<(), WriteError> {
        let mut from = File::open(path).map_err(io_error("open", path))?;
        let failed = io_error("write", &self.path);
        let mut copy = || {
            self.rows.flush()?;
            io::copy(&mut from, &mut self.rows.get_ref())
        };
        copy().map(drop).map_err(failed)
    }

    fn append(&mut self, other: Csv) -> Result<(), WriteError> {
        let failed = io_error("write", &self.path);
        let copy = || {
            let mut from = other.rows.into_inner().map_err(|error| error.into_error())?;
            self.rows.flush()?;
            from.rewind()?;
            // Both files are written to at their own ends.
            io::copy(&mut from, &mut self.rows.get_ref())
        };
        copy().map(drop).map_err(failed)
    }

    fn add(&mut self, row: impl Serialize) -> Result<(), WriteError> {
        self.rows.serialize(row).map_err(|source| WriteError::Csv { path: self.path.clone(), source })
    }

    fn finish(mut self) -> Result<(), WriteError> {
        self.rows.flush().map_err(io_error("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use sidestep_net::Span;

    use super::*;
    use crate::{SampleKind, Window, testing};

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_finished_run_leaves_all_files_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (run, traces) = testing::traced_run(&["tcp", "pathchanger"], 2);
        let writer = Writer::new(dir.path().join("deep/er"), 1).unwrap();
        writer.finish(&run, &traces, &Scene::default(), "name = \"x\"\n", "sidestep lab run x").unwrap();
        let out = dir.path().join("deep/er");
        let mut expected: Vec<_> = FILES.into_iter().chain(["index.html"]).collect();
        expected.sort();
        assert_eq!(names(&out), expected);
        let json = fs::read_to_string(out.join(RESULT)).unwrap();
        assert_eq!(serde_json::from_str::<RunResult>(&json).unwrap(), run);
    }

    #[test]
    fn records_are_rows_with_empty_cells_where_not_applicable() {
        let dir = tempfile::tempdir().unwrap();
        let window = Window { sample: Span::from_secs(2), ..testing::window(0, 10) };
        let mut recorder = Recorder::new("tcp", window, []);
        let mut writer = Writer::new(dir.path(), 1).unwrap();
        writer.records().sample(&mut recorder, &testing::path_sample("p,1", 0.0, 0.5, 0.25, 3)).unwrap();
        let completed = FlowRecord { completed: true, moves: 2, ..testing::flow("f1", 1.0, 3.0, 1_000_000) };
        writer.records().flow(&mut recorder, &completed).unwrap();
        let mut aside = writer.set_aside().unwrap();
        aside.flow(&mut recorder, &testing::flow("f2", 1.0, 3.0, 500)).unwrap();
        writer.append(aside).unwrap();
        let (result, trace) = recorder.finish();
        assert_eq!(result.connections, 2);
        let mut run = RunResult::new("s", crate::World::Sim, 1);
        run.systems.insert("tcp", result);
        writer.finish(&run, &[trace], &Scene::default(), "", "").unwrap();
        insta::assert_snapshot!(fs::read_to_string(dir.path().join("series.csv")).unwrap(), @r#"
        system,seed,time_s,kind,name,mbps,utilisation,queue_bytes,drops,marks,cwnd_bytes,srtt_ms,path
        tcp,1,0.5,path,"p,1",25.0,0.25,,3,30,,,
        tcp,1,2.0,connection,f1,2.0,,,,,,,
        tcp,1,4.0,connection,f1,2.0,,,,,,,
        tcp,1,2.0,connection,f2,0.001,,,,,,,
        tcp,1,4.0,connection,f2,0.001,,,,,,,
        "#);
        insta::assert_snapshot!(fs::read_to_string(dir.path().join("flows.csv")).unwrap(), @r#"
        system,seed,flow,from,to,connection,start_s,end_s,completed,bytes,fct_s,goodput_mbps,retransmits,moves,bytes_in_window
        tcp,1,f1,h1,h2,f1,1.0,3.0,true,1000000,2.0,4.0,0,2,1000000
        tcp,1,f2,h1,h2,f2,1.0,3.0,false,500,,0.002,0,0,500
        "#);
    }

    #[test]
    fn a_router_a_cache_and_a_probe_have_rows_in_the_columns_that_links_have() {
        let dir = tempfile::tempdir().unwrap();
        let window = testing::window(0, 10);
        let mut recorder = Recorder::new("inrpp", window, []);
        let mut writer = Writer::new(dir.path(), 1).unwrap();
        let point = |kind, name: &str| SamplePoint {
            time: testing::at(0.5),
            interval: Span::from_millis(500),
            kind,
            name: name.into(),
            rate: Some(sidestep_net::Rate::from_mbits(25)),
            ..SamplePoint::default()
        };
        let held = Some(sidestep_net::Bytes::new(4_096));
        let rtt = Some(Span::from_micros(12_500));
        let points = [
            SamplePoint { utilisation: Some(0.5), queue: held, ..point(SampleKind::Router, "A:A-B") },
            SamplePoint { utilisation: Some(0.25), queue: held, drops: Some(2), ..point(SampleKind::Cache, "A") },
            SamplePoint { srtt: rtt, drops: Some(1), path: Some("p1".into()), ..point(SampleKind::Probe, "E>S") },
        ];
        for point in points {
            writer.records().sample(&mut recorder, &point).unwrap();
        }
        let (result, trace) = recorder.finish();
        assert!(result.links.is_empty() && result.paths.is_empty() && trace.goodput.iter().all(|mbps| *mbps == 0.0));
        writer.finish(&RunResult::new("s", crate::World::Sim, 1), &[], &Scene::default(), "", "").unwrap();
        insta::assert_snapshot!(fs::read_to_string(dir.path().join("series.csv")).unwrap(), @r#"
        system,seed,time_s,kind,name,mbps,utilisation,queue_bytes,drops,marks,cwnd_bytes,srtt_ms,path
        inrpp,1,0.5,router,A:A-B,25.0,0.5,4096,,,,,
        inrpp,1,0.5,cache,A,25.0,0.25,4096,2,,,,
        inrpp,1,0.5,probe,E>S,25.0,,,1,,,12.5,p1
        "#);
    }

    #[test]
    fn subflows_have_a_file_of_their_own_that_is_there_only_if_there_are_any() {
        let dir = tempfile::tempdir().unwrap();
        let window = testing::window(0, 10);
        let recorder = Recorder::new("mptcp", window, []);
        let subflow = |subflow, path: Option<&str>| SubflowRecord {
            connection: "c1".into(),
            subflow,
            local: "[fd02:0:1::1]:40001".parse().unwrap(),
            remote: "[fd02:0:2::1]:7000".parse().unwrap(),
            path: path.map(str::to_owned),
            bytes: sidestep_net::Bytes::new(5_000),
            retransmits: 3,
            srtt: path.map(|_| Span::from_micros(14_250)),
            opened: path.map(|_| sidestep_net::Time::ZERO + Span::from_millis(250)),
            bytes_in_window: sidestep_net::Bytes::new(4_000),
        };
        let mut writer = Writer::new(dir.path(), 1).unwrap();
        writer.append(writer.set_aside().unwrap()).unwrap();
        assert!(!dir.path().join(SUBFLOWS).exists());
        let mut aside = writer.set_aside().unwrap();
        aside.subflow(&recorder, &subflow(0, Some("p,1"))).unwrap();
        aside.subflow(&recorder, &subflow(1, None)).unwrap();
        writer.append(aside).unwrap();
        writer.records().subflow(&recorder, &subflow(2, Some("p2"))).unwrap();
        writer.finish(&RunResult::new("s", crate::World::Sim, 1), &[], &Scene::default(), "", "").unwrap();
        insta::assert_snapshot!(fs::read_to_string(dir.path().join(SUBFLOWS)).unwrap(), @r#"
        system,seed,connection,subflow,local,remote,path,bytes,retransmits,srtt_ms,opened_s,bytes_in_window
        mptcp,1,c1,0,[fd02:0:1::1]:40001,[fd02:0:2::1]:7000,"p,1",5000,3,14.25,0.25,4000
        mptcp,1,c1,1,[fd02:0:1::1]:40001,[fd02:0:2::1]:7000,,5000,3,,,4000
        mptcp,1,c1,2,[fd02:0:1::1]:40001,[fd02:0:2::1]:7000,p2,5000,3,14.25,0.25,4000
        "#);
        assert!(fs::read_to_string(dir.path().join("index.html")).unwrap().contains("href=\"subflows.csv\""));
        let _next = Writer::new(dir.path(), 1).unwrap();
        assert!(!dir.path().join(SUBFLOWS).exists());
    }

    #[test]
    fn a_new_run_removes_the_result_of_the_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(RESULT), "{}").unwrap();
        let _writer = Writer::new(dir.path(), 1).unwrap();
        assert_eq!(names(dir.path()), ["flows.csv", "series.csv"]);
    }

    #[test]
    fn a_result_that_cannot_be_put_in_place_leaves_nothing_half_written() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::new(dir.path(), 1).unwrap();
        fs::create_dir_all(dir.path().join(RESULT).join("blocking")).unwrap();
        let error =
            writer.finish(&RunResult::new("s", crate::World::Sim, 1), &[], &Scene::default(), "", "").unwrap_err();
        assert!(
            error.to_string().starts_with(&format!("cannot write {}/result.json: ", dir.path().display())),
            "{error}"
        );
        assert!(names(dir.path()).iter().all(|name| !name.ends_with("unfinished")));
    }

    #[test]
    fn errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = Writer::new(dir.path().join("file"), 1).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot make {}/file: ", dir.path().display())), "{error}");
    }
}
