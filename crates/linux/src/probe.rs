//! What this machine's kernel can do for us, found by trying it.
//!
//! A trial works in a network namespace without a name, or in a control group that is removed at once. It reads the
//! machine's own settings and never changes them.

mod bpf;
mod egress;
mod features;
pub(crate) mod machine;
mod mptcp;
mod network;

pub use egress::Egress;
pub use features::{FEATURES, Feature, Need};

use std::path::Path;

use crate::{capabilities::Privileges, error::LinuxError};

/// What runs on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The host daemon.
    Agent,
    /// The router daemon.
    Router,
    /// The lab.
    Lab,
    /// The path manager for MPTCP.
    PathManager,
    /// The edge daemon.
    Edge,
    /// The route controller of an edge.
    RouteControl,
}

/// What a trial found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The feature works; the text contains what else is worth knowing, and may be empty.
    Present(String),
    /// The feature does not work, for this reason.
    Missing(String),
    /// The feature could not be tried, for this reason.
    Untried(String),
}

/// A feature and what was found.
#[derive(Clone, Debug)]
pub struct Probed {
    /// The feature.
    pub feature: &'static Feature,
    /// What was found.
    pub finding: Finding,
}

/// The machine, and what was found of each feature, in the order of [`FEATURES`].
#[derive(Clone, Debug)]
pub struct Report {
    /// The kernel's release, as `uname -r` gives it.
    pub kernel: String,
    /// Each feature.
    pub features: Vec<Probed>,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 6] =
        [Part::Agent, Part::Router, Part::Lab, Part::PathManager, Part::Edge, Part::RouteControl];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Part::Agent => "agent",
            Part::Router => "router",
            Part::Lab => "lab",
            Part::PathManager => "mptcp-pm",
            Part::Edge => "edge",
            Part::RouteControl => "route-control",
        }
    }
}

impl Finding {
    /// The feature works, and there is no more to report.
    fn present() -> Self {
        Finding::Present(String::new())
    }

    /// The finding of a trial that changed something. A trial that was not permitted counts as not tried.
    fn of<T>(tried: crate::Result<T>) -> Self {
        tried.map_or_else(|error| Finding::failed(&error), |_| Finding::present())
    }

    /// The finding of a trial that failed.
    fn failed(error: &LinuxError) -> Self {
        match error {
            LinuxError::Privilege { .. } => Finding::Untried(error.to_string()),
            _ => Finding::Missing(error.to_string()),
        }
    }

    /// Whether the feature works.
    pub fn is_present(&self) -> bool {
        matches!(self, Finding::Present(_))
    }
}

impl Report {
    /// The features that `part` cannot do without and that were not found to work.
    pub fn lacking(&self, part: Part) -> impl Iterator<Item = &Probed> {
        self.features
            .iter()
            .filter(move |probed| probed.feature.need(part) == Need::Required && !probed.finding.is_present())
    }

    /// What was found of the feature `id`.
    pub fn finding(&self, id: &str) -> Option<&Finding> {
        self.features.iter().find(|probed| probed.feature.id == id).map(|probed| &probed.finding)
    }
}

/// Bits of the mark that an agent uses or is to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// The bits.
    pub bits: u32,
    /// Whose they are, for people: `the default`.
    pub of: String,
}

/// Tries every feature; as for marks, whether rules of others leave the bits of `masks` alone, and as for path MTUs and VRFs, those
/// of `egresses`, to whose targets some packets go. An agent's programs are attached to `cgroup` for a moment, `None` being the
/// root.
///
/// Without CAP_SYS_ADMIN the process enters a user namespace for good, in which it can try networks. The kernel allows that
/// only while the process has a single thread. Modules that the kernel loads for a trial stay loaded.
pub fn probe(masks: &[Mask], egresses: &[Egress], cgroup: Option<&Path>) -> Report {
    let privileges = Privileges::read();
    let mut findings = machine::probe(&privileges);
    findings.extend(bpf::probe(&privileges, cgroup));
    findings.push(("path-mtu", egress::path_mtu(egresses, privileges)));
    findings.extend(network::probe(&privileges, masks, egresses));
    let finding = |id: &str| findings.iter().find(|(found, _)| *found == id).map(|(_, finding)| finding.clone());
    let untried = || Finding::Untried("nothing tries it".into());
    let features = FEATURES.iter();
    Report {
        kernel: machine::kernel_release(),
        features: features
            .map(|feature| Probed { feature, finding: finding(feature.id).unwrap_or_else(untried) })
            .collect(),
    }
}

/// Findings by the id of their feature.
type Findings = Vec<(&'static str, Finding)>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cgroup, netns::NetNs, testing::root_or_skip};

    #[test]
    fn every_feature_is_tried_works_here_and_leaves_nothing() {
        if !root_or_skip("kernel features") {
            return;
        }
        let groups = || {
            let all = std::fs::read_dir(cgroup::mount_point().unwrap()).unwrap().flatten();
            let ours = format!("sidestep-doctor.{}", std::process::id());
            all.filter(|entry| entry.file_name().to_string_lossy() == ours).count()
        };
        let in_it = |what: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{what}")).unwrap();
        let namespace = NetNs::create().unwrap();
        let report = namespace
            .run(|| {
                let before = (in_it("dev"), in_it("ipv6_route"));
                let report = probe(&[], &[], None);
                assert_eq!((in_it("dev"), in_it("ipv6_route")), before);
                Ok(report)
            })
            .unwrap();
        assert_eq!(groups(), 0);
        for probed in &report.features {
            assert_ne!(probed.finding, Finding::Untried("nothing tries it".into()), "{}", probed.feature.id);
        }
        for part in Part::ALL {
            let lacking: Vec<_> = report.lacking(part).collect();
            assert!(lacking.is_empty(), "{}: {lacking:#?}", part.name());
        }
    }

    #[test]
    fn what_is_not_permitted_was_not_tried_and_what_is_refused_is_missing() {
        let number =
            |number| Finding::of::<()>(Err(LinuxError::io("trying", std::io::Error::from_raw_os_error(number))));
        assert!(matches!(number(libc::EPERM), Finding::Untried(_)));
        assert!(matches!(number(libc::EOPNOTSUPP), Finding::Missing(_)));
        assert!(matches!(number(libc::EINVAL), Finding::Missing(_)));
    }

    #[test]
    fn a_part_lacks_what_it_requires_and_what_was_not_tried() {
        let features = FEATURES.iter().map(|feature| Probed { feature, finding: Finding::Untried("why".into()) });
        let report = Report { kernel: "6.1".into(), features: features.collect() };
        for part in Part::ALL {
            let required = FEATURES.iter().filter(|feature| feature.need(part) == Need::Required).count();
            assert!(required > 0);
            assert_eq!(report.lacking(part).count(), required);
        }
    }
}
