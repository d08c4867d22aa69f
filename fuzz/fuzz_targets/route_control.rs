//! Any text is read as a route controller's file or refused, with a line that the text has.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_route_control::daemon::RouteControlConfig;

fuzz_target!(|text: &str| match RouteControlConfig::parse(text) {
    // What was read has targets for each egress, as many as must be reachable.
    Ok(config) => {
        let targets = config.targets();
        assert_eq!(targets.of.len(), config.egresses.len());
        assert!(targets.of.iter().all(|of| of.len() >= targets.quorum as usize && targets.quorum > 0));
        drop((config.stability(), config.families(), config.is_passive()));
    }
    Err(error) => assert!(error.line <= text.split('\n').count() && !error.to_string().is_empty()),
});
