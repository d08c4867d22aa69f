//! Any text is read as an INRPP router's file or refused, with a line that the text has.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep_inrpp::daemon::{InrppConfig, tun_name};

fuzz_target!(|text: &str| match InrppConfig::parse(text) {
    // What was read has devices that the kernel can name, and says how much memory it takes.
    Ok(mut config) => {
        assert!(config.interfaces().all(|interface| (7..16).contains(&tun_name(interface).len())));
        assert!(config.memory().get() > 0);
        let _ = config.settle_name("r0");
    }
    Err(error) => assert!(error.line <= text.split('\n').count() && !error.to_string().is_empty()),
});
