//! The systems of sidestep: one line each. A system is a folder beside this one.

use sidestep_sim::system::Registry;

/// The systems that the simulator runs, in the order in which they are listed to people.
pub fn simulator() -> Registry {
    Registry::new()
        .with(sidestep_tcp::sim::Tcp)
        .with(sidestep_tcp::sim::Ecmp)
        .with(sidestep_pathchanger::sim::Random)
        .with(sidestep_prr::sim::Prr)
        .with(sidestep_plb::sim::Plb)
        .with(sidestep_pathchanger::sim::Pathchanger)
        .with(sidestep_mptcp::sim::Mptcp)
        .with(sidestep_semper::sim::Semper)
        .with(sidestep_semper::sim::SemperStateful)
        .with(sidestep_route_control::sim::RouteControl)
        .with(sidestep_rcp::sim::Rcp)
        .with(sidestep_inrpp::sim::Inrpp)
}

/// The systems that the lab runs, in the order in which they are listed to people.
#[cfg(feature = "lab")]
pub fn lab() -> sidestep_lab::Registry {
    sidestep_lab::Registry::new()
        .with(sidestep_tcp::lab::Tcp)
        .with(sidestep_tcp::lab::Ecmp)
        .with(sidestep_pathchanger::lab::Random)
        .with(sidestep_prr::lab::Prr)
        .with(sidestep_plb::lab::Plb)
        .with(sidestep_pathchanger::lab::Pathchanger)
        .with(sidestep_mptcp::lab::Mptcp)
        .with(sidestep_semper::lab::Semper)
        .with(sidestep_semper::lab::SemperStateful)
        .with(sidestep_route_control::lab::RouteControl)
}
