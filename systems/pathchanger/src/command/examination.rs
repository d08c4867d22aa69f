//! What `sidestep doctor` asks about hosts and access routers.

use std::path::Path;

use sidestep_command::{ConfigFile, Examination, Failure, Seen, obstacles, runtime};
use sidestep_hostd::{MetricsConfig, restored_marks};
use sidestep_linux::{
    Result as Tried,
    netlink::Netlink,
    probe::{Feature, Finding, Mask, Part, TryFilter},
};
use sidestep_policy::PolicySettings;

use super::agent::read_config;
use crate::daemon::{
    HostConfig, cannot_reset, doubtful_sources, masks_at_work,
    needs::{AGENT, FEATURES, ROUTER, load_filter, try_program},
    overrides_at_work,
};

/// The agent and the router.
pub struct PathchangerExamination;

impl Examination for PathchangerExamination {
    fn parts(&self) -> &[Part] {
        &[AGENT, ROUTER]
    }

    fn features(&self) -> &[Feature] {
        &FEATURES
    }

    fn try_programs(&self, cgroup: Option<&Path>) -> Vec<Finding> {
        try_program(cgroup).into()
    }

    fn filter(&self) -> Option<fn() -> Tried<TryFilter>> {
        Some(load_filter)
    }

    fn config_file(&self) -> Option<ConfigFile> {
        let tried = "try its mark_mask, and the sources of its paths";
        Some(ConfigFile { part: AGENT, who: "the agent", tried, recognise: None })
    }

    fn look(&self, config: Option<&Path>) -> Result<Seen, Failure> {
        let host = config.map(|file| read_config(file, &MetricsConfig::default(), true)).transpose()?;
        let masks = masks(config.zip(host.as_ref()))?;
        let doubts = host.as_ref().map(doubts).transpose()?.unwrap_or_default();
        Ok(Seen { obstacles: obstacles_here(&masks), doubts, masks, ..Seen::default() })
    }
}

/// The bits of the mark that agents use here, or will use: those at work, and one with this configuration.
fn masks(config: Option<(&Path, &HostConfig)>) -> Result<Vec<Mask>, Failure> {
    let at_work = |(process, bits)| Mask { bits, of: format!("of the agent at work (process {process})") };
    let mut masks: Vec<_> = masks_at_work()?.into_iter().map(at_work).collect();
    match config {
        Some((file, config)) => masks.push(Mask { bits: config.agent.mark_mask, of: format!("of {}", file.display()) }),
        None if masks.is_empty() => {
            masks.push(Mask { bits: PolicySettings::default().mark_mask, of: "the default".into() });
        }
        None => {}
    }
    Ok(masks)
}

/// What is doubtful about a configuration on this machine.
fn doubts(config: &HostConfig) -> Result<Vec<String>, Failure> {
    let sources = runtime()?.block_on(doubtful_sources(config))?;
    Ok(sources.iter().map(ToString::to_string).chain(cannot_reset(&config.agent)).collect())
}

/// Firewalls that would undo an agent's moves, and what of others overrides those of the agents at work.
fn obstacles_here(masks: &[Mask]) -> Vec<String> {
    let mut found: Vec<_> = masks.iter().flat_map(|mask| obstacles(&[], &restored_marks(mask.bits))).collect();
    // A user who may not ask sees what else is there.
    let asked =
        runtime().and_then(|runtime| Ok(runtime.block_on(async { overrides_at_work(&Netlink::open()?).await })?));
    found.extend(obstacles(&asked.unwrap_or_default(), &[]));
    found
}
