//! What `maxflow`, `advise` and `topo` take for maximum flows, and how they report what was assumed.

use sidestep_advise::{Assumption, Capacities};
use sidestep_maxflow::Sampling;

use crate::planning::args::SamplingArgs;

/// How the user wants pairs to be drawn.
pub fn sampling(args: &SamplingArgs) -> Sampling {
    Sampling { pairs: args.sampling, rounding: args.rounding }
}

/// Where the rates are from, in a sentence.
pub fn source(capacities: &Capacities) -> String {
    let Capacities { links, unknown, assumed, assumption, .. } = capacities;
    let rule = match assumption {
        Assumption::Given => "as --default-rate says",
        Assumption::Median => "the median of the others; --default-rate RATE sets another",
        Assumption::Default => "which --default-rate RATE changes",
    };
    match unknown {
        0 => "as the file says".to_owned(),
        all if all == links => format!("the file has none; all links are taken for {assumed}, {rule}"),
        some => format!("{some} of {links} links have none in the file; these are taken for {assumed}, {rule}"),
    }
}
