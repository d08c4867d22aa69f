//! What a series of traffic matrices does to a network.

use serde::Serialize;
use sidestep_results::measures::median;

use super::Routing;

/// The utilisation of the most utilised link over the matrices, under a way of routing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeriesRow {
    /// The name of the [`Routing`].
    pub name: &'static str,
    /// The largest and the median.
    #[serde(flatten)]
    pub extent: Extent,
    /// The matrix with the largest.
    pub matrix: String,
    /// Of how many matrices time ended the search before the utilisation was proved to be the least.
    pub unproved: usize,
}

/// The largest and the median of a value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Extent {
    /// The largest.
    pub worst: f64,
    /// The median.
    pub median: f64,
}

/// The rows of all ways of routing that each matrix has; a matrix is its name and its routings.
pub(super) fn rows(matrices: &[(&str, &[Routing])]) -> Vec<SeriesRow> {
    let row = |name: &'static str| {
        let of = |(_, routings): &(&str, &[Routing])| routings.iter().find(|routing| routing.name == name).cloned();
        let found: Vec<Routing> = matrices.iter().map(of).collect::<Option<_>>()?;
        let (most, matrix) =
            found.iter().zip(matrices).max_by(|one, other| one.0.utilisation.total_cmp(&other.0.utilisation))?;
        let mut values: Vec<f64> = found.iter().map(|routing| routing.utilisation).collect();
        values.sort_by(f64::total_cmp);
        let extent = Extent { worst: most.utilisation, median: median(&values)? };
        let unproved = found.iter().filter(|routing| !routing.is_proved()).count();
        Some(SeriesRow { name, extent, matrix: matrix.0.into(), unproved })
    };
    let names = matrices.first().map_or(&[][..], |(_, routings)| routings);
    names.iter().filter_map(|routing| row(routing.name)).collect()
}
