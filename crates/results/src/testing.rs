//! Runs for the tests, made up from a formula.

use std::f64::consts::TAU;

use sidestep_net::{Bytes, Rate, Span, Time};
use sidestep_scenario::{Catalogue, Standing, SystemInfo};

use crate::{FlowRecord, Late, Recorder, RunResult, SampleKind, SamplePoint, Trace, Window, World};

/// Nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;

pub(crate) fn at(seconds: f64) -> Time {
    Time::from_nanos((seconds * 1e9).round() as u64)
}

/// A run of `duration` seconds, warm-up included, that is sampled five times a second.
pub(crate) fn window(warmup: u64, duration: u64) -> Window {
    Window { warmup: Span::from_secs(warmup), duration: Span::from_secs(duration), sample: Span::from_millis(200) }
}

/// A flow on a connection of its own name.
pub(crate) fn flow(name: &str, start: f64, end: f64, bytes_in_window: u64) -> FlowRecord {
    FlowRecord {
        flow: name.into(),
        from: "h1".into(),
        to: "h2".into(),
        connection: name.into(),
        series: Some(name.into()),
        start: at(start),
        end: at(end),
        bytes: Bytes::new(bytes_in_window),
        bytes_in_window: Bytes::new(bytes_in_window),
        ..FlowRecord::default()
    }
}

pub(crate) fn path_sample(name: &str, from: f64, to: f64, utilisation: f64, drops: u64) -> SamplePoint {
    SamplePoint {
        time: at(to),
        interval: at(to).since(at(from)),
        kind: SampleKind::Path,
        name: name.into(),
        rate: Some(Rate::from_mbits((utilisation * 100.0) as u64)),
        utilisation: Some(utilisation),
        drops: Some(drops),
        marks: Some(drops * 10),
        ..SamplePoint::default()
    }
}

/// Systems of each standing.
pub(crate) fn catalogue() -> Catalogue {
    const NONE: Standing = Standing::baseline(2, "no control").never_advised();
    let control = SystemInfo::plain("route-control", "").with_standing(Standing::recommended(2));
    let cases = &[("mode", "none", NONE), ("mode", "ideal", Standing::REFERENCE)];
    let mut catalogue = Catalogue::default();
    catalogue.add(
        World::Sim,
        [
            SystemInfo::plain("tcp", "").with_standing(Standing::baseline(1, "plain TCP")),
            SystemInfo::plain("ecmp", "").with_standing(Standing::baseline(3, "ECMP")),
            SystemInfo::plain("random", "").with_standing(Standing::REFERENCE),
            SystemInfo::plain("pathchanger", "").with_standing(Standing::recommended(1)),
            control.with_standing_when(cases),
        ],
    );
    catalogue
}

/// The result of a 20 s run over `paths` paths of 100 Mbit/s; later systems use more of them.
pub(crate) fn run(systems: &[&str], paths: usize) -> RunResult {
    traced_run(systems, paths).0
}

/// The result of [`run`], and the traces of its systems.
pub(crate) fn traced_run(systems: &[&str], paths: usize) -> (RunResult, Vec<Trace>) {
    let mut run = RunResult::new("parallel-paths", World::Lab, 7);
    let mut traces = Vec::new();
    for (number, system) in systems.iter().enumerate() {
        let recorder = record(system, number, systems.len(), paths);
        let (result, trace) = recorder.finish();
        run.systems.insert(*system, result);
        traces.push(trace);
    }
    run.ceiling_mbps = Some(100.0 * paths as f64);
    (run, traces)
}

fn record(system: &str, number: usize, systems: usize, paths: usize) -> Recorder {
    let window = self::window(4, 20);
    let names = (1..=paths).map(|path| (format!("p{path}"), Rate::from_mbits(100)));
    let mut recorder = Recorder::new(system, window, names);
    let used = (1 + number * paths / systems).min(paths);
    let mut seed = 12_345 + number as u32;
    for tick in 1..=100u32 {
        let to = f64::from(tick) / 5.0;
        let mut total = 0.0;
        for path in 1..=paths {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = f64::from(seed >> 16) / 65_536.0;
            let wave = (TAU * (to / 9.0 + path as f64 / 5.0)).sin();
            let settled = if path <= used { 0.95 - 0.12 * noise - 0.05 * wave } else { 0.03 * noise };
            let share = settled * (1.0 - (-to / 1.5).exp());
            total += share * 100.0;
            recorder.sample(&path_sample(&format!("p{path}"), to - 0.2, to, share, u64::from(tick) * path as u64 / 10));
            if number > 0 && noise > 0.55 && to < 1.0 + 3.0 * noise {
                recorder.moved(at(to), if noise > 0.8 { "rto" } else { "ecn" });
            }
        }
        for connection in 1..=used {
            recorder.sample(&SamplePoint {
                time: at(to),
                interval: window.sample,
                kind: SampleKind::Connection,
                name: format!("c{connection}"),
                rate: Some(Rate::from_bits_per_sec((total / used as f64 * 0.94e6) as u64)),
                ..SamplePoint::default()
            });
        }
    }
    for path in 1..=used as u64 {
        recorder.flow(&flow(&format!("c{path}"), 0.0, 20.0, 180_000_000 - path * 3_000_000));
    }
    recorder.late(Late { max: Span::from_micros(3_140), ..Late::default() });
    recorder
}
