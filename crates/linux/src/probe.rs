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
mod part;

pub use bpf::{try_on_control_groups, try_program};
pub use egress::Egress;
pub use features::{Feature, features};
pub use part::Part;

use crate::{
    capabilities::Privileges,
    error::{LinuxError, Result},
    netlink::Interface,
};

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
    pub feature: Feature,
    /// What was found.
    pub finding: Finding,
}

/// The machine, and what was found of each feature, in the order of [`features`].
#[derive(Clone, Debug)]
pub struct Report {
    /// The kernel's release, as `uname -r` gives it.
    pub kernel: String,
    /// Each feature.
    pub features: Vec<Probed>,
}

impl Finding {
    /// The feature works, and there is no more to report.
    fn present() -> Self {
        Finding::Present(String::new())
    }

    /// The finding of a trial that changed something. A trial that was not permitted counts as not tried.
    fn of<T>(tried: Result<T>) -> Self {
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
    pub fn lacking(&self, part: &Part) -> impl Iterator<Item = &Probed> {
        self.features.iter().filter(|probed| probed.is_lacking(part))
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

/// Attaches a program that is loaded to the ingress of an interface of Ethernet, and detaches it.
pub type TryFilter = Box<dyn FnOnce(&Interface) -> Result<()> + Send>;

/// What is tried, beside the features of every kernel.
#[derive(Clone, Debug)]
pub struct Trial<'a> {
    /// What was found of our own programs.
    pub own: Vec<Probed>,
    /// Loads the program that is tried on ingress; `None`: none is.
    pub filter: Option<fn() -> Result<TryFilter>>,
    /// The bits of marks of which is asked whether rules of others leave them alone.
    pub masks: &'a [Mask],
    /// The egresses whose path MTUs and VRFs are looked at, with packets to some of their targets; or why none are.
    pub egresses: std::result::Result<&'a [Egress], &'a str>,
}

impl Default for Trial<'_> {
    fn default() -> Self {
        Trial { own: Vec::new(), filter: None, masks: &[], egresses: Err("no egresses are known") }
    }
}

/// Tries every feature.
///
/// Without CAP_SYS_ADMIN the process enters a user namespace for good, in which it can try networks. The kernel allows that
/// only while the process has a single thread. Modules that the kernel loads for a trial stay loaded.
pub fn probe(trial: Trial<'_>) -> Report {
    let Trial { own, filter, masks, egresses } = trial;
    let privileges = Privileges::read();
    let mut findings = machine::probe(&privileges);
    findings.extend(bpf::probe(&privileges));
    findings.push(("path-mtu", egress::path_mtu(egresses, privileges)));
    findings.extend(network::probe(&privileges, filter, masks, egresses));
    findings.extend(own.iter().map(|probed| (probed.feature.id, probed.finding.clone())));
    let finding = |id: &str| findings.iter().find(|(found, _)| *found == id).map(|(_, finding)| finding.clone());
    let untried = || Finding::Untried("nothing tries it".into());
    let own: Vec<_> = own.iter().map(|probed| probed.feature).collect();
    let probed = |feature: Feature| Probed { finding: finding(feature.id).unwrap_or_else(untried), feature };
    Report { kernel: machine::kernel_release(), features: features(&own).into_iter().map(probed).collect() }
}

/// Findings by the id of their feature.
type Findings = Vec<(&'static str, Finding)>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bpf::arrivals::Arrivals, cgroup, netns::NetNs, testing::root_or_skip};

    fn filter() -> Result<TryFilter> {
        let arrivals = Arrivals::load()?;
        Ok(Box::new(move |interface| arrivals.attach(interface.index)))
    }

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
                let report = probe(Trial { filter: Some(filter), ..Trial::default() });
                assert_eq!((in_it("dev"), in_it("ipv6_route")), before);
                Ok(report)
            })
            .unwrap();
        assert_eq!(groups(), 0);
        for probed in &report.features {
            assert_ne!(probed.finding, Finding::Untried("nothing tries it".into()), "{}", probed.feature.id);
        }
        // Those of the machine's settings, and of its egresses.
        let settings = ["bpffs", "reverse-path", "forwarding", "vrf", "path-mtu", "multipath-seed", "mptcp-id-0"];
        let lacking = report.features.iter().filter(|probed| !probed.finding.is_present());
        let lacking: Vec<_> = lacking.filter(|probed| !settings.contains(&probed.feature.id)).collect();
        assert!(lacking.is_empty(), "{lacking:#?}");
    }

    #[test]
    fn what_is_not_permitted_was_not_tried_and_what_is_refused_is_missing() {
        let number =
            |number| Finding::of::<()>(Err(LinuxError::io("trying", std::io::Error::from_raw_os_error(number))));
        assert!(matches!(number(libc::EPERM), Finding::Untried(_)));
        assert!(matches!(number(libc::EOPNOTSUPP), Finding::Missing(_)));
        assert!(matches!(number(libc::EINVAL), Finding::Missing(_)));
    }
}
