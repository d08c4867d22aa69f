//! `sidestep reflector`.

use sidestep_route_control::reflector::{ReflectorConfig, ReflectorOptions, StampClock, run_reflector};

use super::{
    runtime,
    signals::{announce, stopped_or_relieved},
};
use crate::{
    args::{ClockName, ReflectorArgs},
    failure::{Failure, Outcome},
};

/// Runs `sidestep reflector`.
pub fn run(args: ReflectorArgs) -> Outcome {
    let config = ReflectorConfig {
        clock: match args.clock {
            ClockName::Ntp => StampClock::Ntp,
            ClockName::Ptp => StampClock::Ptp,
        },
        synchronised: args.synchronised,
        sessions: args.sessions as usize,
        expiry: args.expiry,
        rate: args.rate,
    };
    let options = ReflectorOptions { listen: args.listen, config, metrics: args.metrics };
    runtime()?.block_on(async { run_reflector(options, announce, stopped_or_relieved()).await }).map_err(Failure::from)
}
