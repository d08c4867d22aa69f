//! Commands that belong together, and the `status` that they share.

use clap::{Arg, ArgAction, ArgMatches};

use crate::{Failure, Outcome};

/// Commands under a common name: what one kind of machine does, whichever system does it there.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    /// The name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
}

/// What a site's edge router does.
pub const EDGE: Group = Group {
    name: "edge",
    about: "On a site's edge router: balance its flows over several paths, or send them over the egress that works",
};

/// What a system's daemon reports about itself, for the `status` that the systems of a group share.
pub struct Status {
    shows: &'static str,
    absent: &'static str,
    show: Box<dyn Fn(bool) -> Result<bool, Failure>>,
}

impl Status {
    /// The name of the command.
    pub(crate) const NAME: &'static str = "status";

    /// A status that `ask` gets from the daemon at work here, if there is one, and `show` prints, as JSON if that is wanted.
    ///
    /// `shows` continues "Show …" in the help. `absent` is the error where none of the group's daemons is at work; the first
    /// system's is printed.
    pub fn of<S: 'static, E: 'static>(
        shows: &'static str,
        absent: &'static str,
        ask: fn() -> Result<Option<S>, E>,
        show: fn(&S, bool) -> Outcome,
    ) -> Self
    where
        Failure: From<E>,
    {
        let show = Box::new(move |json| match ask()? {
            Some(status) => show(&status, json).map(|()| true),
            None => Ok(false),
        });
        Status { shows, absent, show }
    }

    /// The command that shows one of these.
    pub(crate) fn describe<'a>(statuses: impl Iterator<Item = &'a Status>) -> clap::Command {
        let shows: Vec<_> = statuses.map(|status| status.shows).collect();
        let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print it as JSON");
        clap::Command::new(Status::NAME).about(format!("Show {}", shows.join("; "))).arg(json)
    }

    /// Shows the first of these whose daemon is at work here, as the command line wants it.
    pub(crate) fn show_first(statuses: &[Status], matches: &ArgMatches) -> Outcome {
        for status in statuses {
            if (status.show)(matches.get_flag("json"))? {
                return Ok(());
            }
        }
        Err(Failure::run(statuses.first().map_or("there is nothing to show", |status| status.absent)))
    }
}
