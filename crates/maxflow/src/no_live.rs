//! What stands for HiGHS in a build without it.

use std::convert::Infallible;

use super::{
    network::{FlowError, FlowNetwork},
    solved::Solved,
    tree::Column,
};

/// There is none.
pub(super) struct Live(Infallible);

impl Live {
    pub(super) fn new(_: &FlowNetwork, _: &[Column]) -> Result<Self, FlowError> {
        Err(FlowError::NoSolver)
    }

    pub(super) fn add(&mut self, _: &FlowNetwork, _: &[Column]) -> Result<(), FlowError> {
        match self.0 {}
    }

    pub(super) fn solve(self, _: &FlowNetwork) -> Result<(Self, Solved), FlowError> {
        match self.0 {}
    }
}
