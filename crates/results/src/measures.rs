//! The measures themselves, as functions of plain numbers.

/// Jain's fairness index (Σx)² / (n Σx²), from 1/n (one has everything) to 1 (all have the same).
///
/// `None` where nothing is shared: no shares, or all of them zero. Shares are non-negative, in any one unit.
/// Source: Jain, Chiu, Hawe, "A quantitative measure of fairness and discrimination", DEC TR-301, 1984.
pub fn jain(shares: &[f64]) -> Option<f64> {
    // Scaling by the largest share leaves the index as it is and keeps the squares in range.
    let largest = shares.iter().copied().fold(0.0, f64::max);
    if largest <= 0.0 || !largest.is_finite() {
        return None;
    }
    let (sum, squares) = shares.iter().map(|share| share / largest).fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    Some(sum * sum / (shares.len() as f64 * squares))
}

/// The arithmetic mean; `None` if there are no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The variance of a sample; `None` of fewer than two values.
pub fn variance(values: &[f64]) -> Option<f64> {
    let (mean, freedom) = (mean(values)?, values.len() - 1);
    (freedom > 0).then(|| values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom as f64)
}

/// The nearest-rank percentile of values in ascending order: the ⌈percent/100 · n⌉-th of them; `None` if there are none.
///
/// It is always one of the values; `percent` is taken as at most 100, and 0 gives the smallest.
pub fn percentile(ascending: &[f64], percent: u32) -> Option<f64> {
    per_mille(ascending, percent.min(100) * 10)
}

/// The median of values in ascending order, of an even number the mean of the two in the middle; `None` if there are none.
pub fn median(ascending: &[f64]) -> Option<f64> {
    let middle = ascending.len().checked_sub(1)? / 2;
    let other = ascending.len() / 2;
    Some((ascending.get(middle)? + ascending.get(other)?) / 2.0)
}

/// The 95 % confidence interval of the median of independent values in ascending order; `None` of fewer than six.
///
/// Its ends are two of the values, the same number of ranks from either end. Their rank *k* is the highest for which fewer
/// than *k* of *n* fair coins show heads with a probability of at most 2.5 %; above 1000 values the normal approximation
/// gives it. Source: Conover, "Practical Nonparametric Statistics", section 3.2.
pub fn median_interval(ascending: &[f64]) -> Option<[f64; 2]> {
    let n = ascending.len();
    let rank = if n > 1000 {
        (n as f64 / 2.0 - 1.96 * (n as f64).sqrt() / 2.0).floor() as usize
    } else {
        // The probability of exactly `rank` heads, and of fewer than `rank`.
        let (mut exactly, mut at_most, mut rank) = (0.5f64.powi(n as i32), 0.0, 0);
        while rank < n && at_most + exactly <= 0.025 {
            at_most += exactly;
            exactly *= (n - rank) as f64 / (rank + 1) as f64;
            rank += 1;
        }
        rank
    };
    Some([*ascending.get(rank.checked_sub(1)?)?, *ascending.get(n.checked_sub(rank)?)?])
}

/// The nearest-rank quantile of values in ascending order, in thousandths; `None` if there are none.
pub fn per_mille(ascending: &[f64], thousandths: u32) -> Option<f64> {
    let rank = (ascending.len() as u128 * u128::from(thousandths.min(1000))).div_ceil(1000) as usize;
    ascending.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let values = [15.0, 20.0, 35.0, 40.0, 50.0];
        let of = |percent| percentile(&values, percent).unwrap();
        assert_eq!([of(0), of(5), of(30), of(40), of(50), of(99), of(100)], [15.0, 15.0, 20.0, 20.0, 35.0, 50.0, 50.0]);
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!([&[3.0][..], &[1.0, 2.0], &[1.0, 2.0, 9.0]].map(median), [Some(3.0), Some(1.5), Some(2.0)]);
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn the_medians_interval_has_the_ranks_of_the_tables() {
        // Ranks from the tables of the sign test, two-sided 5 %.
        for (n, low, high) in [(6, 1, 6), (9, 2, 8), (20, 6, 15), (30, 10, 21), (100, 40, 61), (1000, 469, 532)] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            assert_eq!(median_interval(&values), Some([f64::from(low), f64::from(high)]), "{n}");
        }
        let many: Vec<f64> = (1..=1001).map(f64::from).collect();
        assert_eq!(median_interval(&many), Some([469.0, 533.0]));
        assert_eq!(median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]), None);
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn fairness_of_known_shares_is_as_in_the_paper() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[9.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[1.0, 2.0]), Some(0.9));
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    fn shares() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(prop_oneof![Just(0.0), 0.0..1e12f64], 1..50)
            .prop_filter("something is shared", |shares| shares.iter().any(|x| *x > 0.0))
    }

    proptest! {
        #[test]
        fn fairness_lies_between_one_nth_and_one(shares in shares()) {
            let index = jain(&shares).unwrap();
            prop_assert!(index >= 1.0 / shares.len() as f64 - 1e-12 && index <= 1.0 + 1e-12, "{}", index);
        }

        #[test]
        fn fairness_depends_neither_on_order_nor_on_scale(shares in shares(), turn in 0usize..50, factor in 1e-3..1e3f64) {
            let index = jain(&shares).unwrap();
            let mut other: Vec<f64> = shares.iter().map(|x| x * factor).collect();
            let turn = turn % other.len();
            other.rotate_left(turn);
            other.reverse();
            prop_assert!((index - jain(&other).unwrap()).abs() < 1e-9);
        }

        #[test]
        fn fairness_is_one_only_among_equals(share in 1.0..1e9f64, n in 1usize..50) {
            let mut shares = vec![share; n];
            prop_assert!((jain(&shares).unwrap() - 1.0).abs() < 1e-12);
            shares.push(share * 2.0);
            prop_assert!(jain(&shares).unwrap() < 1.0 - 1e-4);
        }

        #[test]
        fn a_percentile_has_enough_values_on_either_side(mut values in prop::collection::vec(-1e6..1e6f64, 1..200), percent in 1u32..=100) {
            values.sort_by(f64::total_cmp);
            let found = percentile(&values, percent).unwrap();
            let share = f64::from(percent) / 100.0 * values.len() as f64;
            let below = values.iter().filter(|x| **x < found).count() as f64;
            let upto = values.iter().filter(|x| **x <= found).count() as f64;
            prop_assert!(below < share && upto >= share - 1e-9);
        }
    }
}
