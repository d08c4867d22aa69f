//! The linear program over the paths found so far, in HiGHS.

use highs::{ColProblem, HighsModelStatus, Model, Row, Sense};

use super::{
    network::{FlowError, FlowNetwork},
    tree::Column,
};

/// The live program: a row for each arc, a column for each path. Rates are in units of the largest capacity.
pub(super) struct Master<'a> {
    network: &'a FlowNetwork,
    /// The largest capacity.
    unit: f64,
    rows: Vec<Row>,
    model: Model,
    columns: Vec<Column>,
}

/// What the solver found, in the network's unit.
pub(super) struct Solved {
    /// By column: a rate; all together fit the capacities.
    pub(super) rates: Vec<f64>,
    /// By arc: how much the flow would grow with its capacity; not negative.
    pub(super) prices: Vec<f64>,
}

impl<'a> Master<'a> {
    /// The program over these paths.
    pub(super) fn new(network: &'a FlowNetwork, columns: Vec<Column>) -> Result<Self, FlowError> {
        let unit = network.arcs().iter().map(|arc| arc.capacity).fold(f64::MIN_POSITIVE, f64::max);
        let mut problem = ColProblem::new();
        let rows: Vec<Row> = network.arcs().iter().map(|_| problem.add_row(..=1.0)).collect();
        for column in &columns {
            problem.add_column(1.0, 0.0.., factors(network, unit, &rows, column));
        }
        let mut model = problem.try_optimise(Sense::Maximise).map_err(failed)?;
        model.make_quiet();
        // More columns leave the last solution feasible, so that the primal simplex goes on from there.
        let options: [(&str, i32); 2] = [("simplex_strategy", 4), ("threads", 1)];
        options.into_iter().try_for_each(|(name, value)| model.try_set_option(name, value)).map_err(failed)?;
        for name in ["primal_feasibility_tolerance", "dual_feasibility_tolerance"] {
            model.try_set_option(name, 1e-9).map_err(failed)?;
        }
        for (name, value) in [("presolve", "off"), ("parallel", "off"), ("solver", "simplex")] {
            model.try_set_option(name, value).map_err(failed)?;
        }
        Ok(Master { network, unit, rows, model, columns })
    }

    /// The same with more paths.
    pub(super) fn with(mut self, columns: Vec<Column>) -> Result<Self, FlowError> {
        for column in &columns {
            let factors = factors(self.network, self.unit, &self.rows, column);
            self.model.try_add_column(1.0, 0.0.., factors).map_err(failed)?;
        }
        self.columns.extend(columns);
        Ok(self)
    }

    /// Solves the program, from the last solution on.
    pub(super) fn solve(mut self) -> Result<(Self, Solved), FlowError> {
        let solved = self.model.try_solve().map_err(failed)?;
        if solved.status() != HighsModelStatus::Optimal {
            return Err(FlowError::Solver(format!("{:?}", solved.status())));
        }
        let solution = solved.get_solution();
        self.model = Model::from(solved);
        let positive = |value: f64| if value > 0.0 { value } else { 0.0 };
        let price = |(arc, dual): (u32, &f64)| positive(*dual) * self.unit / self.network.arc(arc).capacity;
        let prices = (0..).zip(solution.dual_rows()).map(price).collect();
        let mut rates: Vec<f64> = solution.columns().iter().map(|rate| positive(*rate) * self.unit).collect();
        self.fit(&mut rates);
        Ok((self, Solved { rates, prices }))
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Takes away what is beyond a capacity within the solver's tolerance.
    fn fit(&self, rates: &mut [f64]) {
        let mut loads = vec![0.0; self.rows.len()];
        for (column, rate) in self.columns.iter().zip(rates.iter()).filter(|(_, rate)| **rate > 0.0) {
            column.iter().for_each(|(arc, share)| loads[*arc as usize] += share * rate);
        }
        for (column, rate) in self.columns.iter().zip(rates).filter(|(_, rate)| **rate > 0.0) {
            let room = |(arc, _): &(u32, f64)| self.network.arc(*arc).capacity / loads[*arc as usize];
            *rate *= column.iter().map(room).fold(1.0, f64::min);
        }
    }
}

/// Which share of an arc's capacity a unit of flow takes, in the program's unit.
fn factors(network: &FlowNetwork, unit: f64, rows: &[Row], column: &Column) -> Vec<(Row, f64)> {
    column.iter().map(|(arc, share)| (rows[*arc as usize], share * unit / network.arc(*arc).capacity)).collect()
}

fn failed(error: impl std::fmt::Debug) -> FlowError {
    FlowError::Solver(format!("{error:?}"))
}
