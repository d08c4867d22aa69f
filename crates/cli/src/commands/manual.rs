//! `sidestep completions` and `sidestep man`: what a package installs beside the program, from the command line's own
//! description.

use std::{fs, path::Path};

use clap::CommandFactory;
use clap_complete::generate;
use sidestep_command::{Failure, Outcome};

use crate::args::{Cli, Shell};

/// Prints the completions for `shell`.
pub fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    generate(shell, &mut Cli::command(), "sidestep", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(())
}

/// Writes a manual page for the program and for each of its commands into `directory`.
pub fn man(directory: &Path) -> Outcome {
    let failed = |error| Failure::run(format!("{}: {error}", directory.display()));
    fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), directory).map_err(failed)
}
