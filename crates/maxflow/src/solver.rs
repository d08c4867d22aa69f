//! HiGHS as all programs here use it.

use highs::{ColProblem, HighsModelStatus, Model, Sense, Solution};

use super::network::FlowError;

/// A model of a problem that gets more columns and is solved again and again.
pub(super) fn model(problem: ColProblem, sense: Sense) -> Result<Model, FlowError> {
    let mut model = problem.try_optimise(sense).map_err(failed)?;
    model.make_quiet();
    // Additional columns leave the last solution feasible, so the primal simplex starts from it.
    let options: [(&str, i32); 2] = [("simplex_strategy", 4), ("threads", 1)];
    options.into_iter().try_for_each(|(name, value)| model.try_set_option(name, value)).map_err(failed)?;
    for name in ["primal_feasibility_tolerance", "dual_feasibility_tolerance"] {
        model.try_set_option(name, 1e-9).map_err(failed)?;
    }
    for (name, value) in [("presolve", "off"), ("parallel", "off"), ("solver", "simplex")] {
        model.try_set_option(name, value).map_err(failed)?;
    }
    Ok(model)
}

/// Solves a model; returns it, to go on with, and its solution. Fails if that is not an optimum.
pub(super) fn solve(model: Model) -> Result<(Model, Solution), FlowError> {
    let solved = model.try_solve().map_err(failed)?;
    if solved.status() != HighsModelStatus::Optimal {
        return Err(FlowError::Solver(format!("{:?}", solved.status())));
    }
    let solution = solved.get_solution();
    Ok((Model::from(solved), solution))
}

/// The error of a call of HiGHS.
pub(super) fn failed(error: impl std::fmt::Debug) -> FlowError {
    FlowError::Solver(format!("{error:?}"))
}
