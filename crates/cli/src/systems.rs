//! The commands that systems bring along, for clap: as if they were variants of the program's own.

use clap::{ArgMatches, Error, FromArgMatches, Subcommand};
use sidestep_command::Invocation;
use sidestep_systems::commands;

/// One of them, with what it was given.
pub struct SystemCommand(pub Invocation);

impl FromArgMatches for SystemCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        commands().read(matches).map(SystemCommand)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for SystemCommand {
    fn augment_subcommands(program: clap::Command) -> clap::Command {
        commands().describe(program)
    }

    fn augment_subcommands_for_update(program: clap::Command) -> clap::Command {
        Self::augment_subcommands(program)
    }

    fn has_subcommand(name: &str) -> bool {
        commands().has(name)
    }
}
