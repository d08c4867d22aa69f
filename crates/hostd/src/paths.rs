//! Paths as hosts and edges have them: in a configuration file, in mark slots, and as routes of the kernel.

mod check;
mod destination;
mod exceptions;
mod file;
mod local;
mod places;
mod routes;
mod shared;
mod slots;
mod underlay;

pub use self::{
    check::{Checker, is_interface_name},
    exceptions::Exceptions,
    file::{follow_the_network, resolve, resolve_present, resolve_quietly},
    routes::{routes, take_refused, used_slots},
    shared::{MarkBits, check_reserved, check_tables, first_hops, mapped, tables},
    slots::{Placement, Room, place},
    underlay::Underlay,
};
pub use self::{
    destination::{DestinationPaths, HostPath, PathRoute, Slots},
    exceptions::{Captured, captured},
    file::{ConfigError, Interfaces, StaticDestination, StaticPath, Via},
    places::{Place, Places},
};
