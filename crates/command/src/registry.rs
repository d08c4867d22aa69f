//! The commands of systems.

use std::collections::BTreeSet;

use clap::{ArgMatches, Args, error::ErrorKind};

use crate::{Examination, Group, Outcome, Status};

/// A command that a system has.
pub struct Command {
    name: &'static str,
    group: Option<&'static Group>,
    logs: Option<&'static str>,
    augment: fn(clap::Command) -> clap::Command,
    read: Read,
}

/// Takes out of what clap has read what a run needs.
type Read = Box<dyn Fn(&mut ArgMatches) -> Result<Run, clap::Error>>;

type Run = Box<dyn FnOnce() -> Outcome>;

/// A command of a system as a command line has it, ready to be run.
pub struct Invocation {
    logs: Option<&'static str>,
    run: Run,
}

/// The commands of systems, and what `doctor` asks of them, in the order in which they are listed to people.
#[derive(Default)]
pub struct Registry {
    commands: Vec<Entry>,
    examinations: Vec<Box<dyn Examination>>,
}

enum Entry {
    Command(Command),
    Status(&'static Group, Status),
}

impl Command {
    /// A command of this name, which takes what `A` describes: its documentation is what the help says.
    pub fn of<A: Args + 'static>(name: &'static str, run: fn(A) -> Outcome) -> Self {
        let read = Box::new(move |matches: &mut ArgMatches| {
            let args = A::from_arg_matches_mut(matches)?;
            Ok(Box::new(move || run(args)) as Run)
        });
        Command { name, group: None, logs: None, augment: A::augment_args, read }
    }

    /// Puts the command into a group.
    pub fn within(self, group: &'static Group) -> Self {
        Command { group: Some(group), ..self }
    }

    /// Logs by default, beside warnings, what this filter of `tracing` names.
    pub fn logging(self, filter: &'static str) -> Self {
        Command { logs: Some(filter), ..self }
    }
}

impl Invocation {
    /// What is logged by default beside warnings, as a filter of `tracing`.
    pub fn logs(&self) -> Option<&'static str> {
        self.logs
    }

    /// Runs the command.
    pub fn run(self) -> Outcome {
        (self.run)()
    }
}

impl Entry {
    fn group(&self) -> Option<&'static Group> {
        match self {
            Entry::Command(command) => command.group,
            Entry::Status(group, _) => Some(group),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Entry::Command(command) => command.name,
            Entry::Status(..) => Status::NAME,
        }
    }

    /// The name of what stands at the top level: the command itself, or its group.
    fn top(&self) -> &'static str {
        self.group().map_or(self.name(), |group| group.name)
    }

    fn as_status(&self) -> Option<&Status> {
        match self {
            Entry::Command(_) => None,
            Entry::Status(_, status) => Some(status),
        }
    }
}

impl Registry {
    /// None.
    pub fn new() -> Self {
        Registry::default()
    }

    /// These, and another. A group stands where its first command does.
    pub fn with(mut self, command: Command) -> Self {
        self.commands.push(Entry::Command(command));
        self
    }

    /// These, and what a system shows in the `status` of a group, which stands where the first of them does.
    pub fn with_status(mut self, group: &'static Group, status: Status) -> Self {
        self.commands.push(Entry::Status(group, status));
        self
    }

    /// These, and what `doctor` asks of a system.
    pub fn with_examination(mut self, examination: impl Examination + 'static) -> Self {
        self.examinations.push(Box::new(examination));
        self
    }

    /// What `doctor` asks of the systems.
    pub fn examinations(self) -> Vec<Box<dyn Examination>> {
        self.examinations
    }

    /// Whether there is a command, or a group, of this name.
    pub fn has(&self, name: &str) -> bool {
        self.commands.iter().any(|entry| entry.top() == name)
    }

    /// The program with these as further commands.
    pub fn describe(&self, program: clap::Command) -> clap::Command {
        firsts(self.commands.iter().collect(), Entry::top).fold(program, |program, entry| {
            program.subcommand(match entry.group() {
                Some(group) => self.describe_group(group),
                None => self.describe_entry(entry),
            })
        })
    }

    fn describe_group(&self, group: &'static Group) -> clap::Command {
        let within = self.commands.iter().filter(|entry| entry.group() == Some(group)).collect();
        let whole = clap::Command::new(group.name).about(group.about);
        let whole = whole.subcommand_required(true).arg_required_else_help(true);
        firsts(within, Entry::name).fold(whole, |whole, entry| whole.subcommand(self.describe_entry(entry)))
    }

    fn describe_entry(&self, entry: &Entry) -> clap::Command {
        match entry {
            Entry::Command(command) => (command.augment)(clap::Command::new(command.name)),
            Entry::Status(group, _) => {
                let same = self.commands.iter().filter(|entry| entry.group() == Some(group));
                Status::describe(same.filter_map(Entry::as_status))
            }
        }
    }

    /// Takes one of these commands out of what clap has read.
    pub fn read(self, matches: &mut ArgMatches) -> Result<Invocation, clap::Error> {
        let missing = || clap::Error::raw(ErrorKind::MissingSubcommand, "there is no such command");
        let (top, mut matches) = matches.remove_subcommand().ok_or_else(missing)?;
        let mut entries: Vec<_> = self.commands.into_iter().filter(|entry| entry.top() == top).collect();
        if entries.iter().any(|entry| entry.group().is_some()) {
            let (name, within) = matches.remove_subcommand().ok_or_else(missing)?;
            entries.retain(|entry| entry.name() == name);
            matches = within;
        }
        let mut statuses = Vec::new();
        for entry in entries {
            match entry {
                Entry::Command(command) => {
                    return Ok(Invocation { logs: command.logs, run: (command.read)(&mut matches)? });
                }
                Entry::Status(_, status) => statuses.push(status),
            }
        }
        Ok(Invocation { logs: None, run: Box::new(move || Status::show_first(&statuses, &matches)) })
    }
}

/// The first of those of each name.
fn firsts(entries: Vec<&Entry>, name: fn(&Entry) -> &'static str) -> impl Iterator<Item = &Entry> {
    let mut met = BTreeSet::new();
    entries.into_iter().filter(move |entry| met.insert(name(entry)))
}

#[cfg(test)]
mod tests {
    use sidestep_linux::probe::Part;

    use super::*;
    use crate::{EDGE, Failure};

    /// Do something
    #[derive(Args)]
    struct Something {
        #[arg(long)]
        fails: bool,
    }

    fn something(args: Something) -> Outcome {
        if args.fails { Err(Failure::usage("it fails")) } else { Ok(()) }
    }

    /// Those of two systems, of which one has its daemon at work here.
    fn registry() -> Registry {
        let show = |status: &&str, _json| Err(Failure::run(status));
        let away = Status::of("the paths", "no edge works here", || Ok::<_, Failure>(None), show);
        let here = Status::of("of another, its egresses", "-", || Ok::<_, Failure>(Some("shown")), show);
        Registry::new()
            .with(Command::of("alone", something))
            .with(Command::of("first", something).within(&EDGE))
            .with_status(&EDGE, away)
            .with(Command::of("second", something).within(&EDGE).logging("second=info"))
            .with_status(&EDGE, here)
            .with(Command::of("last", something))
    }

    fn run(words: &[&str]) -> Result<(), String> {
        let program = registry().describe(clap::Command::new("program"));
        let mut matches = program.try_get_matches_from(["program"].iter().chain(words)).map_err(|e| e.to_string())?;
        registry().read(&mut matches).unwrap().run().map_err(|failure| failure.to_string())
    }

    #[test]
    fn commands_stand_in_the_order_in_which_they_came_and_a_group_where_its_first_did() {
        let program = registry().describe(clap::Command::new("program"));
        program.clone().debug_assert();
        let names = |of: &clap::Command| of.get_subcommands().map(|one| one.get_name().to_string()).collect::<Vec<_>>();
        assert_eq!(names(&program), ["alone", "edge", "last"]);
        let edge = program.find_subcommand("edge").unwrap();
        assert_eq!(names(edge), ["first", "status", "second"]);
        let status = edge.find_subcommand("status").unwrap();
        assert_eq!(status.get_about().unwrap().to_string(), "Show the paths; of another, its egresses");
        assert!(registry().has("edge") && registry().has("last") && !registry().has("first"));
    }

    #[test]
    fn a_command_runs_with_what_the_command_line_gives() {
        assert_eq!(run(&["alone"]), Ok(()));
        assert_eq!(run(&["edge", "first", "--fails"]), Err("it fails".into()));
        assert!(run(&["first"]).is_err_and(|error| error.contains("unrecognized subcommand 'first'")));
    }

    #[test]
    fn the_status_of_a_group_is_that_of_the_daemon_at_work() {
        assert_eq!(run(&["edge", "status"]), Err("shown".into()));
        let Entry::Status(_, away) = registry().commands.remove(2) else { panic!("the third is a status") };
        let alone = Registry::new().with_status(&EDGE, away);
        let mut matches = alone.describe(clap::Command::new("program")).get_matches_from(["program", "edge", "status"]);
        assert_eq!(alone.read(&mut matches).unwrap().run().unwrap_err().to_string(), "no edge works here");
    }

    #[test]
    fn examinations_stand_in_the_order_in_which_they_came_and_are_no_commands() {
        let part = |name| Part { name, required: &[], useful: &[], without: &[] };
        let registry = registry().with_examination(part("one")).with_examination(part("another"));
        assert!(!registry.has("one"));
        let examinations = registry.examinations();
        let names: Vec<_> = examinations.iter().flat_map(|one| one.parts()).map(|part| part.name).collect();
        assert_eq!(names, ["one", "another"]);
        assert_eq!(examinations[0].look(None).unwrap().no_egresses, None);
    }

    #[test]
    fn what_is_logged_is_the_commands_choice() {
        let logs = |words: &[&str]| {
            let program = registry().describe(clap::Command::new("program"));
            registry().read(&mut program.get_matches_from(["program"].iter().chain(words))).unwrap().logs()
        };
        assert_eq!(logs(&["edge", "second"]), Some("second=info"));
        assert_eq!(logs(&["edge", "first"]), None);
    }
}
