//! What `sidestep doctor` asks about route control.

use std::path::Path;

use sidestep_command::{ConfigFile, Examination, Failure, Seen, obstacles};
use sidestep_linux::{
    netlink::{DefaultRoute, Interface, Netlink, block_on},
    probe::{Egress, Part},
};

use super::read_config;
use crate::daemon::{EgressStatus, RouteControlConfig, needs::ROUTE_CONTROL, route_control_status};

const NO_EGRESSES: &str = "no two egresses are known here: give a route controller's file (--config FILE)";

/// The route controller.
pub struct RouteControlExamination;

impl Examination for RouteControlExamination {
    fn parts(&self) -> &[Part] {
        &[ROUTE_CONTROL]
    }

    fn config_file(&self) -> Option<ConfigFile> {
        Some(ConfigFile {
            part: ROUTE_CONTROL,
            who: "route control",
            tried: "look at the paths of its egresses, and send some packets to its targets",
            recognise: Some(RouteControlConfig::is_one),
        })
    }

    fn look(&self, config: Option<&Path>) -> Result<Seen, Failure> {
        // A user who may not ask the daemon sees the egresses of the routes.
        let status = route_control_status().ok().flatten();
        let egresses = match (config, &status) {
            (Some(file), _) => read_config(file)?.probed(),
            (None, Some(status)) => status.egresses.iter().map(egress_at_work).collect(),
            (None, None) => egresses_here(),
        };
        let found = status.map(|status| obstacles(&status.overridden, &status.restored));
        let obstacles = found.unwrap_or_default();
        Ok(Seen { obstacles, egresses, no_egresses: Some(NO_EGRESSES), ..Seen::default() })
    }
}

fn egress_at_work(egress: &EgressStatus) -> Egress {
    let targets = egress.targets.iter().map(|target| target.address).collect();
    Egress { name: egress.name.clone(), dev: egress.dev.clone(), mark: egress.mark, targets }
}

/// The interfaces of the default routes, if there are two.
fn egresses_here() -> Vec<Egress> {
    let read = async |netlink: &Netlink| Ok((netlink.default_routes().await?, netlink.interfaces().await?));
    let (routes, links) = block_on(read).unwrap_or_default();
    egresses_of(&routes, &links)
}

fn egresses_of(routes: &[DefaultRoute], links: &[Interface]) -> Vec<Egress> {
    let egress = |link: &Interface| {
        let hops = routes.iter().map(|route| route.hop).filter(|hop| hop.interface == link.index);
        let targets: Vec<_> = hops.clone().filter_map(|hop| hop.via).collect();
        hops.clone().next()?;
        Some(Egress { name: link.name.clone(), dev: link.name.clone(), mark: None, targets })
    };
    let egresses: Vec<_> = links.iter().filter_map(egress).collect();
    if egresses.len() < 2 { Vec::new() } else { egresses }
}
