//! What each model of routing carries, and gains over another.

use serde::Serialize;
use sidestep_maxflow::FlowModel;
use sidestep_results::{Estimate, measures::percentile};

use crate::{Answer, Question};

/// What is found for one share of the pairs.
#[derive(Debug, Serialize)]
pub struct Share {
    /// As a fraction.
    pub share: f64,
    /// How many pairs that is.
    pub pairs: usize,
    /// How many draws were computed.
    pub draws: usize,
    /// What each model carries, in the order asked.
    pub models: Vec<Model>,
}

/// What one model carries.
#[derive(Debug, Serialize)]
pub struct Model {
    /// What the model is called.
    pub name: String,
    /// Sum of the flows of all pairs; null without draws.
    pub flow_mbps: Option<Estimate>,
    /// In percent.
    pub gain_over: Gains,
    /// By draw, in bit/s.
    pub flows: Vec<f64>,
}

/// What a model gains over those without segment routing.
#[derive(Debug, Serialize)]
pub struct Gains {
    /// Over a single shortest path.
    pub single_path: Option<Gain>,
    /// Over ECMP.
    pub ecmp: Option<Gain>,
    /// Over all shortest paths in any proportion.
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

/// The models without segment routing, by which gains are measured; they come first.
pub const BASES: [(&str, FlowModel); 3] =
    [("single-path", FlowModel::SinglePath), ("ecmp", FlowModel::Ecmp), ("multipath", FlowModel::Multipath)];

/// What is compared, by name: bases, segment routing, and the bound.
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

/// What is found for each share that was asked for; `models` are those of the question, by name.
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
