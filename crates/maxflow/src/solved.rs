//! What a solver of the linear program finds.

/// A solution, in the network's unit.
pub(super) struct Solved {
    /// By column: a rate; all together fit the capacities.
    pub(super) rates: Vec<f64>,
    /// By arc: how much the flow would grow with its capacity; not negative.
    pub(super) prices: Vec<f64>,
    /// Whether the rates are known to be optimal over the columns; else the prices may still prove it.
    pub(super) best: bool,
}
