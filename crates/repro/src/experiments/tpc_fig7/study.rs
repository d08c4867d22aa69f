//! Maximum flows of drawn pairs under all models, over all networks.

use std::collections::BTreeMap;

use sidestep_maxflow::{FlowModel, FlowNetwork, FlowProgram, Pairs, Sampling};
use sidestep_net::{NodeId, Ratio};

use crate::{ReproError, Watch, in_parallel};

/// The shares of pairs with heavy hitters, in percent.
pub(super) const SHARES: [usize; 6] = [1, 2, 5, 10, 20, 50];

/// What is compared.
pub(super) const MODELS: [FlowModel; 4] = [
    FlowModel::SinglePath,
    FlowModel::Ecmp,
    FlowModel::Multipath,
    FlowModel::Segments { limit: None, adjacency: false },
];
pub(super) const SINGLE_PATH: usize = 0;
pub(super) const ECMP: usize = 1;
pub(super) const MULTIPATH: usize = 2;
pub(super) const SEGMENTS: usize = 3;

/// By [`MODELS`], flows in bit/s.
pub(super) type Flows = [f64; MODELS.len()];

/// By network and draw; none where no pair is drawn.
pub(super) type Draws = Vec<Vec<Option<Flows>>>;

/// What flows are computed for.
pub(super) struct Network {
    pub(super) name: String,
    pub(super) network: FlowNetwork,
    /// The access routers.
    pub(super) access: Vec<NodeId>,
}

/// The flows of a study.
pub(super) struct Study {
    /// By rule and share in percent.
    pub(super) flows: BTreeMap<(Sampling, usize), Draws>,
    /// How many programs were solved.
    pub(super) programs: usize,
    /// The largest gap between a flow and its bound, as a share of the flow.
    pub(super) gap: f64,
}

/// What came of one network.
#[derive(Default)]
pub(super) struct One {
    flows: BTreeMap<(Sampling, usize), Vec<Option<Flows>>>,
    pub(super) programs: usize,
    pub(super) gap: f64,
    /// By the clock, for the draw that took longest, all models together: seconds, and how many pairs.
    pub(super) longest: (f64, usize),
}

/// Draws pairs by each of these rules, the number of times beside it, and computes all flows.
pub(super) fn run(networks: &[Network], rules: &[(Sampling, u64)], watch: &dyn Watch) -> Result<Study, ReproError> {
    // The largest take longest, and are begun first.
    let mut order: Vec<usize> = (0..networks.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(networks[*index].network.arcs().len()));
    watch.on_start("networks", order.len());
    let work = |(): &mut (), step: usize| one(&networks[order[step]], order[step] as u64, rules, || 0.0);
    let done = in_parallel(order.len(), watch, || (), work);
    if watch.stopped() {
        return Err(ReproError::Interrupted);
    }
    let mut all: Vec<_> = order.into_iter().zip(done).collect();
    // In the order of the networks, whichever was first.
    all.sort_by_key(|(index, _)| *index);
    let mut study = Study { flows: BTreeMap::new(), programs: 0, gap: 0.0 };
    for (_, one) in all {
        let one = one.ok_or_else(|| ReproError::Run("a thread that computed flows has failed".into()))??;
        for (key, flows) in one.flows {
            study.flows.entry(key).or_default().push(flows);
        }
        study.programs += one.programs;
        study.gap = study.gap.max(one.gap);
    }
    Ok(study)
}

/// Computes the flows of one network. Draws that rules have in common are computed once. `clock` returns seconds.
pub(super) fn one(
    network: &Network,
    index: u64,
    rules: &[(Sampling, u64)],
    clock: impl Fn() -> f64,
) -> Result<One, ReproError> {
    let mut programs = MODELS.map(|model| FlowProgram::new(&network.network, model));
    let mut known: BTreeMap<(Pairs, usize, u64), Flows> = BTreeMap::new();
    let mut one = One::default();
    for (rule, draws) in rules {
        for share in SHARES {
            let count = rule.count(network.access.len(), Ratio::from_ppb(share as u32 * 10_000_000));
            for draw in 0..*draws {
                let key = (rule.pairs, count, draw);
                if count > 0 && !known.contains_key(&key) {
                    let pairs = rule.pairs.draw(&network.access, count, index << 32 | draw);
                    let mut flows = Flows::default();
                    let before = clock();
                    let solved = FlowProgram::solve_each(&mut programs, &pairs);
                    let solved = solved.map_err(|error| ReproError::Run(format!("{}: {error}", network.name)))?;
                    let seconds = clock() - before;
                    if seconds > one.longest.0 {
                        one.longest = (seconds, count);
                    }
                    for (flow, solved) in flows.iter_mut().zip(&solved) {
                        *flow = solved.flow;
                        one.gap = one.gap.max(solved.gap());
                        one.programs += 1;
                    }
                    known.insert(key, flows);
                }
                one.flows.entry((*rule, share)).or_default().push(known.get(&key).copied());
            }
        }
    }
    Ok(one)
}
