//! Progress on a terminal; nothing elsewhere.

use std::{
    io::IsTerminal,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use sidestep_lab::Observer;
use sidestep_net::{Rate, Span};
use sidestep_results::SystemResult;
use sidestep_scenario::SystemSpec;

/// A bar of `steps` steps that looks like `style`.
fn bar(steps: u64, style: &str) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// A bar if standard error is a terminal, else a hidden one.
fn bar_if_terminal(style: &str) -> ProgressBar {
    if std::io::stderr().is_terminal() { bar(1, style) } else { ProgressBar::hidden() }
}

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
    fn on_start(&mut self, system: &SystemSpec, index: usize, of: usize) {
        if !self.shown {
            return;
        }
        let style = "{prefix:>24} {bar:30.cyan/blue} {pos:>3}/{len} s  {msg}";
        self.bar = bar(1, style);
        self.bar.set_prefix(format!("[{}/{of}] {system}", index + 1));
        self.bar.set_message("building the network");
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }

    fn on_progress(&mut self, elapsed: Span, duration: Span, goodput: Rate) {
        self.bar.set_length(duration.as_secs_f64().ceil() as u64);
        self.bar.set_position(elapsed.as_secs_f64() as u64);
        self.bar.set_message(format!("{:.0} Mbit/s", goodput.as_mbits()));
    }

    fn on_finish(&mut self, _: &SystemSpec, result: &SystemResult) {
        self.bar.finish_with_message(format!("{:.1} Mbit/s on average", result.goodput_mbps));
    }
}

/// A bar for the steps of a benchmark, on standard error.
#[derive(Debug)]
pub struct BenchProgress {
    bar: ProgressBar,
}

impl BenchProgress {
    /// A bar if standard error is a terminal.
    pub fn new() -> Self {
        let bar = bar_if_terminal("{bar:30.cyan/blue} {pos:>3}/{len}  {msg}");
        bar.enable_steady_tick(Duration::from_millis(200));
        BenchProgress { bar }
    }

    /// Step number `step` of `of` begins.
    pub fn step(&self, what: &str, step: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(step as u64);
        self.bar.set_message(what.to_string());
    }
}

impl Drop for BenchProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// One bar for all simulations of a run, on standard error.
#[derive(Debug)]
pub struct SimProgress {
    shown: bool,
    bar: Mutex<SimBar>,
}

#[derive(Debug)]
struct SimBar {
    bar: ProgressBar,
    begun: Instant,
    simulated: Span,
    of: Span,
    traversals: u64,
}

impl SimProgress {
    /// A bar if standard error is a terminal.
    pub fn new() -> Self {
        let bar = SimBar {
            bar: ProgressBar::hidden(),
            begun: Instant::now(),
            simulated: Span::ZERO,
            of: Span::ZERO,
            traversals: 0,
        };
        SimProgress { shown: std::io::stderr().is_terminal(), bar: Mutex::new(bar) }
    }

    fn with(&self, act: impl FnOnce(&mut SimBar)) {
        if self.shown {
            act(&mut self.bar.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl sidestep_sim::Observer for SimProgress {
    fn on_start(&self, simulations: usize, duration: Span) {
        self.with(|bar| {
            let style = "{prefix:>12} {bar:30.cyan/blue} {msg}, {eta} left";
            bar.bar = self::bar(1_000, style);
            bar.bar.set_prefix(format!("{simulations} run{}", if simulations == 1 { "" } else { "s" }));
            bar.of = Span::from_nanos(duration.as_nanos().saturating_mul(simulations as u64));
            bar.begun = Instant::now();
        });
    }

    fn on_progress(&self, elapsed: Span, traversals: u64) {
        self.with(|bar| {
            bar.simulated = bar.simulated + elapsed;
            bar.traversals += traversals;
            let speed = bar.traversals as f64 / bar.begun.elapsed().as_secs_f64().max(1e-3) / 1e6;
            let (now, of) = (bar.simulated.as_secs_f64(), bar.of.as_secs_f64());
            bar.bar.set_position((1_000.0 * now / of) as u64);
            bar.bar.set_message(format!("{now:.1}/{of:.0} s simulated, {speed:.1} M hops/s"));
        });
    }

    fn on_finish(&self, system: &SystemSpec, result: &SystemResult) {
        self.with(|bar| {
            bar.bar.finish_and_clear();
            let cut = if result.is_cut() { "interrupted".into() } else { format!("{:.1} Mbit/s", result.goodput_mbps) };
            eprintln!("{system}: {cut}");
        });
    }
}

/// A bar for steps of computation, on standard error; the signal that ends a run ends them.
#[derive(Debug)]
pub struct StepProgress {
    shown: bool,
    bar: Mutex<ProgressBar>,
    stop: Arc<AtomicBool>,
    until: Option<Instant>,
}

impl StepProgress {
    /// A bar if standard error is a terminal.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        StepProgress {
            shown: std::io::stderr().is_terminal(),
            bar: Mutex::new(ProgressBar::hidden()),
            stop,
            until: None,
        }
    }

    /// The time is over this long from now.
    pub fn until(self, time: Duration) -> Self {
        StepProgress { until: Instant::now().checked_add(time), ..self }
    }

    fn with(&self, act: impl FnOnce(&mut ProgressBar)) {
        if self.shown {
            act(&mut self.bar.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl sidestep_repro::Watch for StepProgress {
    fn on_start(&self, what: &str, steps: usize) {
        self.with(|bar| {
            let style = "{prefix:>24} {bar:30.cyan/blue} {pos}/{len}, {eta} left";
            *bar = self::bar(steps as u64, style);
            bar.set_prefix(what.to_owned());
        });
    }

    fn step(&self) {
        self.with(|bar| bar.inc(1));
    }

    fn on_finish(&self) {
        self.with(|bar| bar.finish_and_clear());
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// One bar for a tournament, on standard error.
#[derive(Debug)]
pub struct PolicyProgress {
    bar: ProgressBar,
}

impl PolicyProgress {
    /// A bar if standard error is a terminal.
    pub fn new() -> Self {
        PolicyProgress { bar: bar_if_terminal("{msg:>24} {bar:30.cyan/blue} {pos}/{len} s simulated, {eta} left") }
    }
}

impl sidestep_tournament::Observer for PolicyProgress {
    fn on_start(&self, total: Span) {
        self.bar.set_length(total.as_secs_f64() as u64);
    }

    fn plays(&self, case: &sidestep_tournament::Case) {
        self.bar.set_message(case.name.clone());
    }

    // Samples of the cases are a second apart, so whole seconds lose nothing.
    fn on_progress(&self, elapsed: Span) {
        self.bar.inc(elapsed.as_secs_f64() as u64);
    }
}

impl Drop for PolicyProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
