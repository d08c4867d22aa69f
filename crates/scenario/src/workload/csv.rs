//! A distribution of sizes as a table of comma-separated values.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use thiserror::Error;

use super::SizeDistribution;
use sidestep_net::Bytes;

/// What is wrong with a table of sizes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct CsvError {
    /// Counted from 1.
    pub line: usize,
    /// In words.
    pub problem: String,
}

/// Points that a table may have, so that a resolved scenario has room for them.
const MAX_POINTS: usize = 10_000;

impl SizeDistribution {
    /// Reads an empirical distribution: in each line a size, in bytes or with a unit, and the probability of at most so
    /// much, with a comma, a semicolon or white space between them. Probabilities end with 1, or with 100 if they are
    /// percents. Empty lines, comments (`#`) and one line of names above are skipped.
    pub fn from_csv(text: &str) -> Result<SizeDistribution, CsvError> {
        let mut points: Vec<(Bytes, f64)> = Vec::new();
        let mut named = false;
        let mut last = 1;
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default().trim();
            last = index + 1;
            if content.is_empty() {
                continue;
            }
            let bad = |problem: &str| CsvError { line: index + 1, problem: problem.into() };
            let separator: fn(char) -> bool =
                if content.contains([',', ';']) { |c: char| c == ',' || c == ';' } else { char::is_whitespace };
            let fields = content.rsplit_once(separator);
            let (size, share) = fields
                .ok_or_else(|| bad("needs a size and a probability; remove lines with one value, such as a mean"))?;
            let (size, share) = (size.trim(), share.trim().trim_end_matches('%').trim_end());
            if points.is_empty() && !named && !begins_as_number(size) && !begins_as_number(share) {
                named = true;
                continue;
            }
            let size = size_of(size).ok_or_else(|| {
                bad("the first value is not a size; a line is a size, `1460` or `10 kB`, and a probability: remove other columns")
            })?;
            let share: f64 = share.parse().map_err(|_| bad("the second value is not a probability"))?;
            if !(0.0..=100.0).contains(&share) {
                return Err(bad("a probability is between 0 and 1, or between 0 and 100 if the last is 100"));
            }
            if points.last().is_some_and(|(before, upto)| *before >= size || *upto > share) {
                return Err(bad("sizes and probabilities must ascend, with each size once"));
            }
            if points.len() == MAX_POINTS {
                return Err(bad(&format!("more than {MAX_POINTS} points")));
            }
            points.push((size, share));
        }
        if points.last().is_some_and(|(_, share)| *share == 100.0) {
            points.iter_mut().for_each(|(_, share)| *share /= 100.0);
        }
        let whole = points.last().is_some_and(|(size, share)| *share == 1.0 && size.get() > 0);
        let problem = || CsvError {
            line: last,
            problem: "the last size must have the probability 1, or 100 if all are percents".into(),
        };
        if whole { Ok(SizeDistribution::Empirical(points)) } else { Err(problem()) }
    }
}

fn begins_as_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
}

/// A number of bytes, or a size as scenarios have it.
fn size_of(text: &str) -> Option<Bytes> {
    text.parse().map(Bytes::new).ok().or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_SIZE: &str =
        "the first value is not a size; a line is a size, `1460` or `10 kB`, and a probability: remove other columns";

    fn read(text: &str) -> Result<Vec<(u64, f64)>, String> {
        match SizeDistribution::from_csv(text) {
            Ok(SizeDistribution::Empirical(points)) => {
                Ok(points.into_iter().map(|(size, share)| (size.get(), share)).collect())
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_table_is_read_with_its_names_units_and_comments() {
        let points = vec![(100, 0.0), (1_460, 0.5), (10_000, 1.0)];
        assert_eq!(read("100,0\n1460,0.5\n10000,1\n"), Ok(points.clone()));
        let text = "# of our web server\nbytes, probability\r\n\n100 B, 0\r\n1460, .5 # a segment\n10 kB, 1.0";
        assert_eq!(read(text), Ok(points));
    }

    #[test]
    fn published_tables_with_white_space_and_percents_are_read() {
        let points = vec![(0, 0.0), (10_000, 0.15), (30_000_000, 1.0)];
        assert_eq!(read("0 0\n10000 15\n30000000 100\n"), Ok(points.clone()));
        assert_eq!(read("0\t0\n10 kB\t0.15\n30000000\t1\n"), Ok(points.clone()));
        assert_eq!(read("size;share\n0;0 %\n10000;15 %\n30000000;100 %\n"), Ok(points));
    }

    #[test]
    fn a_bad_table_is_refused_with_its_line() {
        for (text, expected) in [
            ("", "line 1: the last size must have the probability 1, or 100 if all are percents"),
            ("size,p\n100,0.5\n", "line 2: the last size must have the probability 1, or 100 if all are percents"),
            ("0,1\n", "line 1: the last size must have the probability 1, or 100 if all are percents"),
            ("1430\n100 0.5\n", "line 1: needs a size and a probability; remove lines with one value, such as a mean"),
            ("size,p\nsize,p\n", &format!("line 2: {NO_SIZE}")),
            ("100,0.5\n-5,1\n", &format!("line 2: {NO_SIZE}")),
            ("6 2 0.15\n", &format!("line 1: {NO_SIZE}")),
            ("100,half\n", "line 1: the second value is not a probability"),
            ("100,NaN\n", "line 1: a probability is between 0 and 1, or between 0 and 100 if the last is 100"),
            ("100,101\n", "line 1: a probability is between 0 and 1, or between 0 and 100 if the last is 100"),
            ("100,1.5\n", "line 1: the last size must have the probability 1, or 100 if all are percents"),
            ("100,0.5\n100,1\n", "line 2: sizes and probabilities must ascend, with each size once"),
            ("100,0.5\n200,0.4\n", "line 2: sizes and probabilities must ascend, with each size once"),
        ] {
            assert_eq!(read(text), Err(expected.to_string()), "{text:?}");
        }
        let long: String = (1..=10_001).map(|n| format!("{n},0\n")).collect();
        assert_eq!(read(&long), Err("line 10001: more than 10000 points".to_string()));
    }
}
