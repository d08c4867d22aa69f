//! `sidestep top`: the connections of an agent, looked at again and again.

mod fit;
mod screen;

use std::{
    fs,
    io::{IsTerminal, stdout},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event},
};
use sidestep_command::{Failure, Outcome, out, println, until_signalled};

use self::screen::{Screen, Then};
use super::{
    args::TopArgs,
    watch::{Seen, Watch},
};

/// How long a signal may go unnoticed.
const NOTICE: Duration = Duration::from_millis(100);

/// Draws the state, or prints it as JSON, until a signal ends it.
pub fn run(args: &TopArgs) -> Outcome {
    let stop = until_signalled()?;
    if !args.json && !stdout().is_terminal() {
        return Err(Failure::usage(
            "standard output is not a terminal to draw on; `sidestep top --json` prints a line for each look, \
             `sidestep agent status` a table",
        ));
    }
    // Whatever is wrong at the beginning is better printed in a line than in a picture.
    let mut looker = Looker::open(args)?;
    if args.json {
        return stream(args, &mut looker, &stop);
    }
    // Where the terminal is gone, crossterm reads its end again and again and never comes back to look at `stop`.
    let gone = std::sync::Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_default(signal_hook::consts::SIGHUP, gone).map_err(Failure::run)?;
    // A panic puts the terminal back, too.
    let mut terminal = ratatui::try_init().map_err(|error| Failure::run(format!("the terminal: {error}")))?;
    let drawn = draw(args, &mut looker, &stop, &mut terminal);
    ratatui::restore();
    drawn
}

/// Prints a line for each look, until no process reads them.
fn stream(args: &TopArgs, looker: &mut Looker<'_>, stop: &AtomicBool) -> Outcome {
    loop {
        if let Some(seen) = looker.look()? {
            println!("{}", serde_json::to_string(&seen).map_err(Failure::run)?);
        }
        let next = Instant::now() + args.interval.to_std();
        while Instant::now() < next {
            if stop.load(Ordering::Relaxed) || out::is_closed() {
                return Ok(());
            }
            std::thread::sleep(NOTICE.min(next.saturating_duration_since(Instant::now())));
        }
    }
}

fn draw(args: &TopArgs, looker: &mut Looker<'_>, stop: &AtomicBool, terminal: &mut DefaultTerminal) -> Outcome {
    let failed = |error| Failure::run(format!("the terminal: {error}"));
    let mut screen = Screen::new(args.sort);
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            next = Instant::now() + args.interval.to_std();
            if !screen.is_paused() {
                screen.take(looker.look()?, Instant::now());
            }
        }
        terminal.draw(|frame| screen.draw(frame)).map_err(failed)?;
        let wait = NOTICE.min(next.saturating_duration_since(Instant::now()));
        if event::poll(wait).map_err(failed)?
            && let Event::Key(key) = event::read().map_err(failed)?
            && screen.key(key) == Then::Quit
        {
            break;
        }
    }
    Ok(())
}

/// Looks at the agent, and at the next one after it.
struct Looker<'a> {
    args: &'a TopArgs,
    watch: Option<Watch>,
    /// The inode of the directory of `watch`: an agent that starts again makes another.
    inode: Option<u64>,
}

impl<'a> Looker<'a> {
    fn open(args: &'a TopArgs) -> Result<Self, Failure> {
        let watch = Watch::open(&args.state, &args.filter)?;
        Ok(Looker { args, watch: Some(watch), inode: inode(&args.state) })
    }

    /// What there is now; `None` while there is no agent.
    fn look(&mut self) -> Result<Option<Seen>, Failure> {
        let present = inode(&self.args.state);
        if present != self.inode {
            (self.watch, self.inode) = (None, present);
        }
        if self.watch.is_none() && present.is_some() {
            // One that has just begun may not have everything in place yet.
            self.watch = Watch::open(&self.args.state, &self.args.filter).ok();
        }
        self.watch.as_ref().map(Watch::look).transpose()
    }
}

fn inode(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|directory| directory.ino())
}
