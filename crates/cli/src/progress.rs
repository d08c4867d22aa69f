//! Progress on a terminal; nothing elsewhere.

use std::{io::IsTerminal, time::Duration};

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
