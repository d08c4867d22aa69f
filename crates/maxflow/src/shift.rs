//! The program of the least utilisation in HiGHS.

use std::collections::BTreeMap;

use highs::{Col, ColProblem, Model, Row, Sense};

use super::{
    network::{FlowError, FlowNetwork},
    solver::{self, failed},
    tree::Column,
};

/// A model, which goes on from its last solution. Utilisations are in units of the first one.
pub(super) struct Shift {
    unit: f64,
    /// By arc: its row if it has a limit.
    rows: Vec<Option<Row>>,
    /// How many rows are those of arcs.
    arcs: usize,
    /// By demand that has columns: the place of its row, and the row.
    demands: BTreeMap<usize, (usize, Row)>,
    /// How many columns move demands.
    columns: usize,
    model: Model,
}

/// A solution.
pub(super) struct Shifted {
    /// By column: the share of its demand.
    pub(super) shares: Vec<f64>,
    /// By arc: how much the utilisation, in its unit, would fall with the arc's capacity; 0 without a limit.
    pub(super) prices: Vec<f64>,
    /// By demand: how much it would fall if more than the whole demand could move.
    pub(super) slack: Slack,
}

/// The prices of the demands' rows, 0 of those without one.
pub(super) struct Slack(BTreeMap<usize, f64>);

impl std::ops::Index<usize> for Slack {
    type Output = f64;

    fn index(&self, demand: usize) -> &f64 {
        self.0.get(&demand).unwrap_or(&0.0)
    }
}

impl Shift {
    /// The program in which no demand moves yet; `unit` is the utilisation of these loads.
    pub(super) fn new(network: &FlowNetwork, loads: &[f64], unit: f64) -> Result<Self, FlowError> {
        let mut problem = ColProblem::new();
        let mut rows = Vec::with_capacity(loads.len());
        for (arc, load) in loads.iter().enumerate() {
            rows.push(network.limit(arc).map(|limit| problem.add_row(..=-load / limit / unit)));
        }
        let arcs = rows.iter().flatten().count();
        problem.add_column(1.0, 0.0.., rows.iter().flatten().map(|row| (*row, -1.0)));
        let model = solver::model(problem, Sense::Minimise)?;
        Ok(Shift { unit, rows, arcs, demands: BTreeMap::new(), columns: 0, model })
    }

    /// Lets a share of a demand move from the path with which it began to another.
    pub(super) fn add(
        &mut self,
        network: &FlowNetwork,
        demand: usize,
        rate: f64,
        from: &Column,
        to: &Column,
    ) -> Result<(), FlowError> {
        let mut shares: BTreeMap<u32, f64> = from.iter().map(|(arc, share)| (*arc, -share)).collect();
        to.iter().for_each(|(arc, share)| *shares.entry(*arc).or_default() += share);
        let factor = |(arc, share): (u32, f64)| {
            let limit = network.limit(arc as usize)?;
            Some((self.rows[arc as usize]?, rate * share / limit / self.unit))
        };
        let mut factors: Vec<(Row, f64)> = shares.into_iter().filter_map(factor).collect();
        let known = self.demands.get(&demand).copied();
        factors.extend(known.map(|(_, row)| (row, 1.0)));
        let column: Col = self.model.try_add_column(0.0, 0.0.., factors).map_err(failed)?;
        if known.is_none() {
            let row = self.model.try_add_row(..=1.0, [(column, 1.0)]).map_err(failed)?;
            self.demands.insert(demand, (self.arcs + self.demands.len(), row));
        }
        self.columns += 1;
        Ok(())
    }

    pub(super) fn solve(mut self, network: &FlowNetwork) -> Result<(Self, Shifted), FlowError> {
        let (model, solution) = solver::solve(self.model)?;
        self.model = model;
        // The duals of upper limits are negative where the objective is minimised.
        let price = |place: usize| solution.dual_rows().get(place).map_or(0.0, |dual| (-dual).max(0.0));
        let mut place = 0;
        let mut prices = vec![0.0; self.rows.len()];
        for (arc, row) in self.rows.iter().enumerate() {
            if let (Some(_), Some(limit)) = (row, network.limit(arc)) {
                prices[arc] = price(place) / limit;
                place += 1;
            }
        }
        let slack = self.demands.iter().map(|(demand, (place, _))| (*demand, price(*place))).collect();
        let shares = solution.columns().iter().skip(1).map(|share| share.clamp(0.0, 1.0)).collect();
        Ok((self, Shifted { shares, prices, slack: Slack(slack) }))
    }
}
