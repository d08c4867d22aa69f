//! The linear program over the paths found so far. It is solved first by a guess, then by HiGHS, if the build has it.

#[cfg(feature = "highs")]
use super::live::Live;
#[cfg(not(feature = "highs"))]
use super::no_live::Live;
use super::{
    network::{FlowError, FlowNetwork},
    solved::Solved,
    tree::Column,
};

/// The program: a row for each arc, a column for each path. In HiGHS rates are in units of the largest capacity.
pub(super) struct Master<'a> {
    network: &'a FlowNetwork,
    columns: Vec<Column>,
    /// By column, the index of its pair.
    owners: Vec<usize>,
    /// The last solution.
    solved: Solved,
    /// The model in HiGHS, made when a guess first fails: to set it up costs as much as to solve a small program.
    live: Option<Live>,
}

impl<'a> Master<'a> {
    /// The program without paths. Arcs of little capacity are dear.
    pub(super) fn new(network: &'a FlowNetwork) -> Self {
        let prices = network.arcs().iter().map(|arc| 1.0 / arc.capacity).collect();
        let solved = Solved { rates: Vec::new(), prices, best: false };
        Master { network, columns: Vec::new(), owners: Vec::new(), solved, live: None }
    }

    /// Whether the program is of this network.
    pub(super) fn is_on(&self, network: &FlowNetwork) -> bool {
        std::ptr::eq(self.network, network)
    }

    /// Adds a path of the pair of this index.
    pub(super) fn add(&mut self, owner: usize, column: Column) {
        self.owners.push(owner);
        self.columns.push(column);
    }

    /// Solves the program: at first by a guess, then with HiGHS, which goes on from its last solution.
    pub(super) fn solve(&mut self) -> Result<(), FlowError> {
        let mut live = match self.live.take() {
            None if self.solved.rates.is_empty() => {
                self.guess();
                return Ok(());
            }
            None => Live::new(self.network, &self.columns)?,
            Some(live) => live,
        };
        live.add(self.network, &self.columns)?;
        let (live, mut solved) = live.solve(self.network)?;
        self.fit(&mut solved.rates);
        (self.live, self.solved) = (Some(live), solved);
        Ok(())
    }

    /// The last solution; columns may have been added since.
    pub(super) fn solved(&self) -> &Solved {
        &self.solved
    }

    /// The paths.
    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// By path, the index of its pair.
    pub(super) fn owners(&self) -> &[usize] {
        &self.owners
    }

    /// A guess: fills one path after the other. Then, from the last path to the first, it prices the arc that limits
    /// the path so that the path costs 1. Where few paths share arcs, this often is the optimum.
    fn guess(&mut self) {
        let mut room: Vec<f64> = self.network.arcs().iter().map(|arc| arc.capacity).collect();
        let mut prices = vec![0.0; room.len()];
        let mut rates = Vec::with_capacity(self.columns.len());
        let mut ends = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let limits = column.iter().map(|(arc, share)| (room[*arc as usize] / share, *arc, *share));
            let Some((rate, arc, share)) = limits.min_by(|a, b| a.0.total_cmp(&b.0)) else {
                rates.push(0.0);
                continue;
            };
            let rate = rate.max(0.0);
            column.iter().for_each(|(arc, share)| room[*arc as usize] -= share * rate);
            room[arc as usize] = 0.0;
            rates.push(rate);
            ends.push((column, arc, share));
        }
        for (column, arc, share) in ends.into_iter().rev() {
            let missing = 1.0 - cost(column, &prices);
            if missing > 0.0 {
                prices[arc as usize] += missing / share;
            }
        }
        self.fit(&mut rates);
        self.solved = Solved { rates, prices, best: false };
    }

    /// Reduces rates that exceed a capacity within the solver's tolerance.
    fn fit(&self, rates: &mut [f64]) {
        let mut loads = vec![0.0; self.network.arcs().len()];
        for (column, rate) in self.columns.iter().zip(rates.iter()).filter(|(_, rate)| **rate > 0.0) {
            column.iter().for_each(|(arc, share)| loads[*arc as usize] += share * rate);
        }
        for (column, rate) in self.columns.iter().zip(rates).filter(|(_, rate)| **rate > 0.0) {
            let room = |(arc, _): &(u32, f64)| self.network.arc(*arc).capacity / loads[*arc as usize];
            *rate *= column.iter().map(room).fold(1.0, f64::min);
        }
    }
}

/// The price of a unit of flow on a path; infinite where there is none.
pub(super) fn cost(column: &Column, prices: &[f64]) -> f64 {
    match column.is_empty() {
        true => f64::INFINITY,
        false => column.iter().map(|(arc, share)| share * prices[*arc as usize]).sum(),
    }
}
