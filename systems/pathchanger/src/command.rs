//! The commands `agent`, `top` and `router`.

mod agent;
mod args;
mod examination;
mod explain;
mod router;
mod top;
mod watch;

use sidestep_command::Command;

use self::args::{AgentArgs, RouterArgs, TopArgs};

pub use self::examination::PathchangerExamination;

/// `sidestep agent`: moves this host's connections, and shows what it does.
pub fn agent() -> Command {
    Command::of::<AgentArgs>("agent", agent::run)
}

/// `sidestep top`: looks at an agent again and again.
pub fn top() -> Command {
    Command::of::<TopArgs>("top", |args| top::run(&args))
}

/// `sidestep router`: installs what Path IDs stand for.
pub fn router() -> Command {
    Command::of::<RouterArgs>("router", router::run)
}
