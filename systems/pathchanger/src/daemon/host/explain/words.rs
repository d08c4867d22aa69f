//! Numbers, times and lists as sentences have them.

use sidestep_policy::Stay;

/// `a, b and c`.
pub(super) fn and<T: AsRef<str>>(words: &[T]) -> String {
    match words {
        [] => "none".into(),
        [one] => one.as_ref().into(),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", first.join(", "), last.as_ref())
        }
    }
}

/// `1 move`, `2 moves`.
pub(super) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A time of `seconds` seconds.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..10.0 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        ..7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3_600.0),
    }
}

/// Why a signal left a connection on its path.
pub(super) fn stay(stay: Stay) -> &'static str {
    match stay {
        Stay::DrewSame => "its own path was drawn again",
        Stay::OnlyPath => "it can use no other path",
        Stay::OthersDead => "all others that it can use are dead",
        Stay::BackOff => "it came within the back-off",
        Stay::TooFew => "it takes more of them",
        Stay::ByPolicy => "the policy moves no connection for it",
        Stay::NoGain => "no other path is known to give more",
    }
}
