//! The model in HiGHS.

use highs::{ColProblem, Model, Row, Sense};

use super::{
    network::{FlowError, FlowNetwork},
    solved::Solved,
    solver::{self, failed},
    tree::Column,
};

/// A model, which goes on from its last solution.
pub(super) struct Live {
    /// The largest capacity.
    unit: f64,
    rows: Vec<Row>,
    model: Model,
    /// How many columns it has.
    columns: usize,
}

impl Live {
    pub(super) fn new(network: &FlowNetwork, columns: &[Column]) -> Result<Self, FlowError> {
        let unit = network.arcs().iter().map(|arc| arc.capacity).fold(f64::MIN_POSITIVE, f64::max);
        let mut problem = ColProblem::new();
        let rows: Vec<Row> = network.arcs().iter().map(|_| problem.add_row(..=1.0)).collect();
        for column in columns {
            problem.add_column(1.0, 0.0.., factors(network, unit, &rows, column));
        }
        let model = solver::model(problem, Sense::Maximise)?;
        Ok(Live { unit, rows, model, columns: columns.len() })
    }

    /// Adds the columns that it does not have yet.
    pub(super) fn add(&mut self, network: &FlowNetwork, columns: &[Column]) -> Result<(), FlowError> {
        for column in &columns[self.columns..] {
            let factors = factors(network, self.unit, &self.rows, column);
            self.model.try_add_column(1.0, 0.0.., factors).map_err(failed)?;
        }
        self.columns = columns.len();
        Ok(())
    }

    pub(super) fn solve(mut self, network: &FlowNetwork) -> Result<(Self, Solved), FlowError> {
        let (model, solution) = solver::solve(self.model)?;
        self.model = model;
        let positive = |value: f64| if value > 0.0 { value } else { 0.0 };
        let price = |(arc, dual): (u32, &f64)| positive(*dual) * self.unit / network.arc(arc).capacity;
        let prices = (0..).zip(solution.dual_rows()).map(price).collect();
        let rates = solution.columns().iter().map(|rate| positive(*rate) * self.unit).collect();
        Ok((self, Solved { rates, prices, best: true }))
    }
}

/// Which share of an arc's capacity a unit of flow takes, in the program's unit.
fn factors(network: &FlowNetwork, unit: f64, rows: &[Row], column: &Column) -> Vec<(Row, f64)> {
    column.iter().map(|(arc, share)| (rows[*arc as usize], share * unit / network.arc(*arc).capacity)).collect()
}
