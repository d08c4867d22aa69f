//! The flow of each routing model, and its gains over other models.

use serde::Serialize;
use sidestep_maxflow::FlowModel;
use sidestep_results::{Estimate, measures::percentile};

use crate::{Answer, Question};

/// The results for one share of the pairs.
#[derive(Debug, Serialize)]
pub struct Share {
    /// The share, as a fraction.
    pub share: f64,
    /// The number of pairs in this share.
    pub pairs: usize,
    /// The number of draws that were computed.
    pub draws: usize,
    /// The results of each model, in the order of the question.
    pub models: Vec<Model>,
}

/// The flows of one model, and its gains.
#[derive(Debug, Serialize)]
pub struct Model {
    /// Name of the model.
    pub name: String,
    /// Sum of the flows of all pairs; null without draws.
    pub flow_mbps: Option<Estimate>,
    /// The gains over the models without segment routing, in percent.
    pub gain_over: Gains,
    /// The flow of each draw, in bit/s.
    pub flows: Vec<f64>,
}

/// The gains of a model over those without segment routing.
#[derive(Debug, Serialize)]
pub struct Gains {
    /// Gain over a single shortest path.
    pub single_path: Option<Gain>,
    /// Gain over ECMP.
    pub ecmp: Option<Gain>,
    /// Gain over all shortest paths in any proportion.
    pub multipath: Option<Gain>,
}

/// A gain over the draws, in percent.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Gain {
    /// Mean and confidence.
    #[serde(flatten)]
    pub mean: Estimate,
    /// Median.
    pub median: f64,
}

/// The models without segment routing, over which gains are measured; they come first.
pub const BASES: [(&str, FlowModel); 3] =
    [("single-path", FlowModel::SinglePath), ("ecmp", FlowModel::Ecmp), ("multipath", FlowModel::Multipath)];

/// The models to compare, by name: the bases, segment routing with each limit and without one, and the upper bound.
pub fn models(limits: &[u8], adjacency: bool) -> Vec<(String, FlowModel)> {
    let mut models: Vec<_> = BASES.iter().map(|(name, model)| ((*name).to_owned(), *model)).collect();
    for limit in limits {
        let limit = Some(usize::from(*limit));
        let name = limit.map_or(String::new(), |limit| format!("sr-{limit}"));
        models.push((name.clone(), FlowModel::Segments { limit, adjacency }));
        models.push((format!("{name}-multipath"), FlowModel::SegmentPaths { limit, adjacency }));
    }
    models.push(("sr".into(), FlowModel::Segments { limit: None, adjacency }));
    models.push(("sr-multipath".into(), FlowModel::SegmentPaths { limit: None, adjacency }));
    models.push(("bound".into(), FlowModel::AnyPath));
    models
}

/// The results for each share of the question; `models` are those of the question, by name.
pub fn shares(question: &Question<'_>, models: &[(String, FlowModel)], answer: &Answer) -> Vec<Share> {
    (0..question.shares.len()).map(|share| share_of(question, models, answer, share)).collect()
}

fn share_of(question: &Question<'_>, models: &[(String, FlowModel)], answer: &Answer, share: usize) -> Share {
    let gain = |model: usize, over: usize| {
        let mut gains = answer.gains(share, model, over);
        gains.sort_by(f64::total_cmp);
        Estimate::of(&gains).zip(percentile(&gains, 50)).map(|(mean, median)| Gain { mean, median })
    };
    let model = |(index, (name, _)): (usize, &(String, FlowModel))| {
        let flows = answer.flows(share, index);
        Model {
            name: name.clone(),
            flow_mbps: Estimate::of(&flows.iter().map(|flow| flow / 1e6).collect::<Vec<_>>()),
            gain_over: Gains { single_path: gain(index, 0), ecmp: gain(index, 1), multipath: gain(index, 2) },
            flows,
        }
    };
    let ratio = question.shares[share];
    Share {
        share: ratio.as_f64(),
        pairs: question.pairs(ratio),
        draws: answer.flows(share, 0).len(),
        models: models.iter().enumerate().map(model).collect(),
    }
}
