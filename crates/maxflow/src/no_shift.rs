//! What stands for the program of the least utilisation in a build without HiGHS.

use std::convert::Infallible;

use super::{
    network::{FlowError, FlowNetwork},
    tree::Column,
};

/// There is none.
pub(super) struct Shift(Infallible);

/// A solution.
pub(super) struct Shifted {
    pub(super) shares: Vec<f64>,
    pub(super) prices: Vec<f64>,
    pub(super) slack: Vec<f64>,
}

impl Shift {
    pub(super) fn new(_: &FlowNetwork, _: &[f64], _: f64) -> Result<Self, FlowError> {
        Err(FlowError::NoSolver)
    }

    pub(super) fn add(&mut self, _: &FlowNetwork, _: usize, _: f64, _: &Column, _: &Column) -> Result<(), FlowError> {
        match self.0 {}
    }

    pub(super) fn solve(self, _: &FlowNetwork) -> Result<(Self, Shifted), FlowError> {
        match self.0 {}
    }
}
