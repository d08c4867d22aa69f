//! Numbers of topology files, checked before they become units.

use sidestep_net::{MAX_QUANTITY, Rate, Span};

use super::shown;

/// A finite number; `what` names it in errors.
pub(super) fn number(what: &str, text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| format!("the {what} `{}` is not a finite number", shown(text)))
}

/// A finite number that is not negative.
pub(super) fn amount(what: &str, text: &str) -> Result<f64, String> {
    let amount = number(what, text)?;
    if amount >= 0.0 { Ok(amount) } else { Err(format!("the {what} `{}` is negative", shown(text))) }
}

/// A rate in units of `bits` per second.
///
/// Zero is refused, as [`Rate`] takes it for "not limited", which no file means by it.
pub(super) fn rate(what: &str, text: &str, bits: u32) -> Result<Rate, String> {
    match scaled(what, text, bits)? {
        0 => Err(format!("the {what} `{}` is less than 1 bit/s", shown(text))),
        rate => Ok(Rate::from_bits_per_sec(rate)),
    }
}

/// A delay in units of `nanos` nanoseconds.
pub(super) fn delay(what: &str, text: &str, nanos: u32) -> Result<Span, String> {
    scaled(what, text, nanos).map(Span::from_nanos)
}

fn scaled(what: &str, text: &str, unit: u32) -> Result<u64, String> {
    let value = (amount(what, text)? * f64::from(unit)).round();
    if value <= MAX_QUANTITY as f64 {
        Ok(value as u64)
    } else {
        Err(format!("the {what} `{}` is too large", shown(text)))
    }
}
