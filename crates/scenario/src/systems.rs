//! The systems that can be compared: one table, from which every list of them is made.
//!
//! A new system is one line in [`systems!`](crate::systems!), and one file in each world that runs it. A system with
//! settings of its own is one line in `scenario/settings.rs` besides, and one file next to that.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::SystemError;

/// Hands the table of systems to the macro `$callback`, in the order in which systems are listed to people.
///
/// The columns of a line:
///
/// 1. the module that holds the system in a world,
/// 2. the variant of [`SystemName`](crate::SystemName),
/// 3. the name in files, on the command line and in results,
/// 4. `sim` if the simulator runs it, else `-`,
/// 5. `lab` if the lab runs it, else `-`,
/// 6. the scenario's table of settings that it takes as parameters: `none`, a name such as `agent`, or
///    `(agent policy = "random")` where the system fixes a setting,
/// 7. what it is.
///
/// A world makes its modules from it:
///
/// ```
/// macro_rules! names {
///     ($(($module:ident $variant:ident $name:literal $sim:tt $lab:tt $settings:tt $what:literal))*) => {
///         [$(($name, stringify!($sim) == "sim")),*]
///     };
/// }
/// let systems = crate::systems!(names);
/// assert!(systems.contains(&("tcp", true)));
/// ```
#[macro_export]
macro_rules! systems {
    ($callback:ident) => {
        $callback! {
            (tcp Tcp "tcp" sim lab none "plain TCP on the shortest path")
            (ecmp Ecmp "ecmp" sim lab none "each connection hashed onto one of the equal-cost paths")
            (random Random "random" sim lab (agent policy = "random") "the path changer with the policy `random`")
            (prr Prr "prr" sim lab none "Protective ReRoute: each timeout draws a new flow label")
            (plb Plb "plb" sim lab plb "Protective Load Balancing: a new flow label after congested rounds")
            (pathchanger Pathchanger "pathchanger" sim lab agent "the path changer")
            (mptcp Mptcp "mptcp" sim lab mptcp "MPTCP, each subflow hashed onto an equal-cost path")
            (semper Semper "semper" sim lab semper "MPTCP subflows hashed onto paths by a stateless edge router")
            (semper_stateful SemperStateful "semper-stateful" sim lab semper "`semper` with a table of subflows at the edge")
            (irc Irc "irc" sim lab irc "Intelligent Route Control at a multihomed edge")
            (rcp Rcp "rcp" sim - rcp "the Rate Control Protocol in every router")
            (inrpp Inrpp "inrpp" sim - inrpp "In-Network Resource Pooling in every router")
        }
    };
}

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// Network namespaces and the kernel's TCP, in real time.
    Lab,
    /// The packet-level simulator, in virtual time.
    Sim,
}

/// Whether a column of the table names a world.
macro_rules! runs {
    (-) => {
        false
    };
    ($world:tt) => {
        true
    };
}

/// The scenario's table of settings that a column of the table of systems names.
macro_rules! settings_key {
    (none) => {
        None
    };
    (($table:ident $($fixed:tt)*)) => {
        Some(stringify!($table))
    };
    ($table:ident) => {
        Some(stringify!($table))
    };
}

macro_rules! names {
    ($(($module:ident $variant:ident $name:literal $sim:tt $lab:tt $settings:tt $what:literal))*) => {
        /// The systems that can be compared.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum SystemName {
            $(#[doc = $what] $variant,)*
        }

        impl SystemName {
            /// All systems in the order in which they are listed to people.
            pub const ALL: [SystemName; [$($name),*].len()] = [$(SystemName::$variant),*];

            /// The name in files, on the command line and in results.
            pub const fn as_str(self) -> &'static str {
                match self { $(SystemName::$variant => $name,)* }
            }

            /// What the system is, in a few words.
            pub const fn what(self) -> &'static str {
                match self { $(SystemName::$variant => $what,)* }
            }

            /// Whether `world` can run the system.
            pub const fn runs_in(self, world: World) -> bool {
                match (self, world) {
                    $((SystemName::$variant, World::Sim) => runs!($sim),)*
                    $((SystemName::$variant, World::Lab) => runs!($lab),)*
                }
            }

            /// The scenario's table whose keys the system takes as parameters; `None`: it takes none.
            pub const fn settings_table(self) -> Option<&'static str> {
                match self { $(SystemName::$variant => settings_key!($settings),)* }
            }
        }
    };
}

systems!(names);

impl World {
    /// Both worlds.
    pub const ALL: [World; 2] = [World::Lab, World::Sim];

    /// The name in files and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            World::Lab => "lab",
            World::Sim => "sim",
        }
    }

    /// The systems that this world can run.
    pub fn systems(self) -> impl Iterator<Item = SystemName> {
        SystemName::ALL.into_iter().filter(move |system| system.runs_in(self))
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            World::Lab => "lab",
            World::Sim => "simulator",
        })
    }
}

impl SystemName {
    /// Refuses a system that `world` cannot run; the error lists those that it can.
    pub fn require(self, world: World) -> Result<(), SystemError> {
        if self.runs_in(world) { Ok(()) } else { Err(SystemError::NotInWorld { world, system: self }) }
    }
}

/// The names of `systems` as a person lists them: `tcp, ecmp and random`.
pub(crate) fn listed(systems: impl Iterator<Item = SystemName>) -> String {
    let mut names: Vec<&str> = systems.map(SystemName::as_str).collect();
    let last = names.pop().unwrap_or("none");
    if names.is_empty() { last.into() } else { format!("{} and {last}", names.join(", ")) }
}

/// The table of systems in `docs/scenario.md`, as Markdown.
pub fn markdown() -> String {
    let mut out = String::from("| name | is | lab | simulator | parameters |\n|---|---|---|---|---|\n");
    let yes = |yes| if yes { "yes" } else { "no" };
    for system in SystemName::ALL {
        let (lab, sim) = (yes(system.runs_in(World::Lab)), yes(system.runs_in(World::Sim)));
        let parameters = system.settings_table().map_or("–".into(), |table| format!("`[{table}]`"));
        out += &format!("| `{system}` | {} | {lab} | {sim} | {parameters} |\n", system.what());
    }
    out
}

impl FromStr for SystemName {
    type Err = SystemError;
    fn from_str(text: &str) -> Result<Self, SystemError> {
        let found = SystemName::ALL.into_iter().find(|name| name.as_str() == text);
        found.ok_or_else(|| SystemError::UnknownSystem(text.into()))
    }
}

impl fmt::Display for SystemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_table_of_systems() {
        let document = include_str!("../../../docs/scenario.md");
        let table = markdown();
        assert!(document.contains(&table), "docs/scenario.md must have this table:\n{table}");
    }

    #[test]
    fn a_world_refuses_what_it_cannot_run_and_lists_what_it_can() {
        let refused = SystemName::Inrpp.require(World::Lab).unwrap_err().to_string();
        let known = "tcp, ecmp, random, prr, plb, pathchanger, mptcp, semper, semper-stateful and irc";
        assert_eq!(refused, format!("the lab cannot run the system `inrpp` yet; it has {known}"));
        for world in World::ALL {
            assert!(world.systems().all(|system| system.require(world).is_ok()));
        }
    }

    #[test]
    fn every_systems_name_is_read_as_that_system() {
        for name in SystemName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
    }
}
