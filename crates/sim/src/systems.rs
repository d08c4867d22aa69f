//! The systems that the simulator runs: one file for each that the table of systems gives to it.
//!
//! A file has a function `system`, which builds a [`System`] from a [`Context`]; most begin with [`System::tcp`].

use sidestep_scenario::SystemName;

use crate::{
    SimError,
    system::{Context, System},
};

/// Makes a module of each system that the simulator runs, and the function that builds them.
macro_rules! modules {
    ($(($module:ident $variant:ident $name:literal $sim:tt $lab:tt $settings:tt $what:literal))*) => {
        $(module!($module $sim);)*

        /// The system that `context` names.
        pub(crate) fn build(context: &Context<'_>) -> Result<System, SimError> {
            match context.spec.name {
                $(SystemName::$variant => system!($module $sim context),)*
            }
        }
    };
}

macro_rules! module {
    ($module:ident sim) => {
        mod $module;
    };
    ($module:ident -) => {};
}

macro_rules! system {
    ($module:ident sim $context:ident) => {
        $module::system($context)
    };
    ($module:ident - $context:ident) => {
        Err($context.not_here())
    };
}

sidestep_scenario::systems!(modules);
