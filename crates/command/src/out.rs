//! Standard output and standard error of a command whose reader may go before it ends, as in `sidestep topo list | head`.
//!
//! The standard library's `println!` panics then. The macros here have its name and hide it where they are imported: what
//! no process reads is dropped, and the command ends as it would have.

use std::{
    fmt,
    io::{self, ErrorKind, Write},
    sync::OnceLock,
};

use crate::{Failure, Outcome};

/// The first error of standard output.
static ERROR: OnceLock<io::Error> = OnceLock::new();

/// Hides `std::print!`.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::out::write(format_args!($($text)*)) };
}

/// Hides `std::println!`.
#[macro_export]
macro_rules! println {
    () => { $crate::out::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Hides `std::eprintln!`.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::out::complain(format_args!($($text)*)) };
}

/// Writes to standard output; an error shows in [`finish`].
pub fn write(text: fmt::Arguments<'_>) {
    note(io::stdout().write_fmt(text));
}

/// Writes a line to standard error, if a process reads it.
pub fn complain(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Whether no process will read what is still to be written.
pub fn is_closed() -> bool {
    note(io::stdout().flush());
    ERROR.get().is_some()
}

/// Writes what waits; an error if something of it all could not be written, other than for want of a reader.
pub fn finish() -> Outcome {
    note(io::stdout().flush());
    match ERROR.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::run(format!("standard output: {error}"))),
        _ => Ok(()),
    }
}

fn note(written: io::Result<()>) {
    if let Err(error) = written {
        let _ = ERROR.set(error);
    }
}
