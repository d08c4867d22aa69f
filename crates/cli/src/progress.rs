//! Progress on a terminal; nothing elsewhere.

use std::{
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use sidestep_lab::Observer;
use sidestep_model::{Rate, Span, scenario::SystemSpec};
use sidestep_results::SystemResult;

/// A bar for each system of a lab run, on standard error.
#[derive(Debug)]
pub struct LabProgress {
    shown: bool,
    bar: ProgressBar,
}

impl LabProgress {
    /// A bar if standard error is a terminal.
    pub fn new() -> Self {
        LabProgress { shown: std::io::stderr().is_terminal(), bar: ProgressBar::hidden() }
    }
}

impl Observer for LabProgress {
    fn begins(&mut self, system: &SystemSpec, index: usize, of: usize) {
        if !self.shown {
            return;
        }
        let style = "{prefix:>24} {bar:30.cyan/blue} {pos:>3}/{len} s  {msg}";
        self.bar = ProgressBar::new(1);
        self.bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.bar.set_prefix(format!("[{}/{of}] {system}", index + 1));
        self.bar.set_message("building the network");
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }

    fn runs(&mut self, elapsed: Span, duration: Span, goodput: Rate) {
        self.bar.set_length(duration.as_secs_f64().ceil() as u64);
        self.bar.set_position(elapsed.as_secs_f64() as u64);
        self.bar.set_message(format!("{:.0} Mbit/s", goodput.as_mbits()));
    }

    fn ends(&mut self, _: &SystemSpec, result: &SystemResult) {
        self.bar.finish_with_message(format!("{:.1} Mbit/s on average", result.goodput_mbps));
    }
}

/// A bar for each system of a simulation, on standard error.
#[derive(Debug)]
pub struct SimProgress {
    shown: bool,
    bar: Mutex<(ProgressBar, Instant)>,
}

impl SimProgress {
    /// A bar if standard error is a terminal.
    pub fn new() -> Self {
        SimProgress { shown: std::io::stderr().is_terminal(), bar: Mutex::new((ProgressBar::hidden(), Instant::now())) }
    }

    fn with(&self, act: impl FnOnce(&mut (ProgressBar, Instant))) {
        if self.shown {
            act(&mut self.bar.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl sidestep_sim::Observer for SimProgress {
    fn begins(&self, system: &SystemSpec, index: usize, of: usize) {
        self.with(|(bar, begun)| {
            let style = "{prefix:>24} {bar:30.cyan/blue} {msg}, {eta} left";
            *bar = ProgressBar::new(1_000);
            bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(format!("[{}/{of}] {system}", index + 1));
            *begun = Instant::now();
        });
    }

    fn runs(&self, elapsed: Span, duration: Span, goodput: Rate, traversals: u64) {
        self.with(|(bar, begun)| {
            let speed = traversals as f64 / begun.elapsed().as_secs_f64().max(1e-3) / 1e6;
            bar.set_position((1_000.0 * elapsed.as_secs_f64() / duration.as_secs_f64()) as u64);
            let of = duration.as_secs_f64();
            let now = elapsed.as_secs_f64();
            bar.set_message(format!("{now:.1}/{of:.0} s, {:.0} Mbit/s, {speed:.1} M hops/s", goodput.as_mbits()));
        });
    }

    fn repeats(&self, done: u32, seeds: u32) {
        self.with(|(bar, _)| {
            bar.set_length(u64::from(seeds));
            bar.set_position(u64::from(done));
            bar.set_message(format!("{done} of {seeds} seeds"));
        });
    }

    fn ends(&self, _: &SystemSpec, result: &SystemResult) {
        self.with(|(bar, _)| {
            bar.finish_and_clear();
            eprintln!("{}: {:.1} Mbit/s", bar.prefix(), result.goodput_mbps);
        });
    }
}
