//! The systems of sidestep: one line each. A system is a folder beside this one.

#[cfg(feature = "command")]
mod lab_needs;

#[cfg(feature = "command")]
use sidestep_command::EDGE;

/// The systems that the simulator runs, in the order in which they are listed to people.
#[cfg(feature = "sim")]
pub fn simulator() -> sidestep_sim::system::Registry {
    sidestep_sim::system::Registry::new()
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
        .with(sidestep_inrpp::lab::Inrpp)
}

/// The commands of the systems' daemons, and what `doctor` asks of them, in the order in which they are listed to people.
#[cfg(feature = "command")]
pub fn commands() -> sidestep_command::Registry {
    sidestep_command::Registry::new()
        .with(sidestep_pathchanger::command::agent())
        .with(sidestep_pathchanger::command::top())
        .with(sidestep_pathchanger::command::router())
        .with(sidestep_semper::command::balance())
        .with(sidestep_route_control::command::route_control())
        .with(sidestep_semper::command::place())
        .with_status(&EDGE, sidestep_semper::command::status())
        .with_status(&EDGE, sidestep_route_control::command::status())
        .with(sidestep_semper::command::stop())
        .with(sidestep_mptcp::command::mptcp_pm())
        .with(sidestep_route_control::command::reflector())
        .with(sidestep_inrpp::command::inrpp())
        .with_examination(sidestep_pathchanger::command::PathchangerExamination)
        .with_examination(lab_needs::LAB)
        .with_examination(sidestep_mptcp::command::PathManagerExamination)
        .with_examination(sidestep_semper::command::SemperExamination)
        .with_examination(sidestep_route_control::command::RouteControlExamination)
        .with_examination(sidestep_inrpp::command::InrppExamination)
}
