//! Each host's throughput in windows of one second.

use std::{collections::BTreeMap, ops::Range, path::Path};

use sidestep_results::measures::{self, jain};

use crate::{
    ReproError,
    series::{self, Sample},
};

/// By the second with which a window begins: the throughput of each host in Mbit/s, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Series(BTreeMap<u32, Vec<f64>>);

/// The series of each system of the run in a directory, which has a sample for each second.
pub(super) fn read(run: &Path) -> Result<BTreeMap<String, Series>, ReproError> {
    let mut all: BTreeMap<String, BTreeMap<u32, BTreeMap<String, f64>>> = BTreeMap::new();
    for Sample { system, time_s, kind, name, mbps, .. } in series::read(run)? {
        if let Some(mbps) = mbps.filter(|_| kind == "connection") {
            // A sample is of the second that ends with it.
            let second = (time_s.round() as u32).saturating_sub(1);
            all.entry(system).or_default().entry(second).or_default().insert(name, mbps);
        }
    }
    let series = |of: BTreeMap<u32, BTreeMap<String, f64>>| {
        Series(of.into_iter().map(|(second, hosts)| (second, hosts.into_values().collect())).collect())
    };
    Ok(all.into_iter().map(|(system, of)| (system, series(of))).collect())
}

impl Series {
    /// The windows in their order.
    pub(super) fn seconds(&self) -> impl Iterator<Item = (&u32, &[f64])> {
        self.0.iter().map(|(second, hosts)| (second, hosts.as_slice()))
    }

    /// Of all hosts together in one window.
    pub(super) fn total(&self, second: u32) -> Option<f64> {
        Some(self.0.get(&second)?.iter().sum())
    }

    /// The mean total of these windows.
    pub(super) fn mean(&self, seconds: Range<u32>) -> Option<f64> {
        measures::mean(&self.totals(seconds))
    }

    /// The least total of these windows.
    pub(super) fn least(&self, seconds: Range<u32>) -> Option<f64> {
        self.totals(seconds).into_iter().min_by(f64::total_cmp)
    }

    /// The standard deviation of a host's throughput between these windows, the mean over hosts.
    pub(super) fn sigma(&self, seconds: Range<u32>) -> Option<f64> {
        let hosts = self.0.values().map(Vec::len).max()?;
        let each: Option<Vec<f64>> = (0..hosts).map(|host| deviation(&self.host(host, seconds.clone()))).collect();
        measures::mean(&each?)
    }

    /// The standard deviation of Jain's index between these windows.
    pub(super) fn jain_sigma(&self, seconds: Range<u32>) -> Option<f64> {
        let values: Vec<f64> = self.0.range(seconds).filter_map(|(_, hosts)| jain(hosts)).collect();
        deviation(&values)
    }

    /// Pearson's correlation of the first two hosts' throughput.
    pub(super) fn correlation(&self, seconds: Range<u32>) -> Option<f64> {
        let [a, b] = [0, 1].map(|host| self.host(host, seconds.clone()));
        let (mean_a, mean_b) = (measures::mean(&a)?, measures::mean(&b)?);
        let products: f64 = a.iter().zip(&b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum();
        let correlation = products / (a.len() as f64 * deviation(&a)? * deviation(&b)?);
        correlation.is_finite().then_some(correlation)
    }

    fn totals(&self, seconds: Range<u32>) -> Vec<f64> {
        self.0.range(seconds).map(|(_, hosts)| hosts.iter().sum()).collect()
    }

    fn host(&self, host: usize, seconds: Range<u32>) -> Vec<f64> {
        self.0.range(seconds).filter_map(|(_, hosts)| hosts.get(host).copied()).collect()
    }
}

/// The standard deviation of all of a population.
fn deviation(values: &[f64]) -> Option<f64> {
    let mean = measures::mean(values)?;
    let squares: Vec<f64> = values.iter().map(|value| (value - mean).powi(2)).collect();
    Some(measures::mean(&squares)?.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runs_series_is_read_by_system_and_second_and_measured() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("series.csv");
        let text = "system,time_s,kind,name,mbps\n\
                    s,1.0,path,p,9\ns,1.0,connection,c2,10\ns,1.0,connection,c1,30\n\
                    s,2.0,connection,c1,20\ns,2.0,connection,c2,20\nother,1.0,connection,c1,1\n\
                    s,3.0,connection,c1,10\ns,3.0,connection,c2,30\n";
        std::fs::write(&path, text).unwrap();
        let all = read(dir.path()).unwrap();
        let series = &all["s"];
        assert_eq!(all.len(), 2);
        assert_eq!(series.seconds().next(), Some((&0, &[30.0, 10.0][..])));
        assert_eq!((series.total(1), series.total(3)), (Some(40.0), None));
        assert_eq!((series.mean(0..2), series.least(0..3)), (Some(40.0), Some(40.0)));
        // Host by host 30, 20, 10 and the reverse.
        assert!((series.sigma(0..3).unwrap() - (200.0_f64 / 3.0).sqrt()).abs() < 1e-9);
        assert!((series.correlation(0..3).unwrap() + 1.0).abs() < 1e-9);
        // 0.8, 1 and 0.8.
        assert!((series.jain_sigma(0..3).unwrap() - (0.08_f64 / 9.0).sqrt()).abs() < 1e-9);
        assert_eq!((series.mean(7..9), series.correlation(0..1)), (None, None));
        assert!(read(&dir.path().join("none")).is_err());
    }
}
