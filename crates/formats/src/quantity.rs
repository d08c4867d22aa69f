//! Numbers of topology files, checked before they become units.

use super::{
    mapping::{Role, Unit},
    raw::Amount,
    shown,
};

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

/// A rate: a number, and perhaps a unit behind it, such as `10G` or `10 Gbit/s`.
///
/// Zero is refused, as [`Rate`](sidestep_net::Rate) takes it for "not limited", which no file means by it.
pub(super) fn rate(text: &str) -> Result<Amount, String> {
    let amount = with_unit("rate", Role::Rate, text)?;
    if amount.number > 0.0 { Ok(amount) } else { Err(format!("the rate `{}` is less than 1 bit/s", shown(text))) }
}

/// A delay or a length: a number, and perhaps a unit behind it.
pub(super) fn delay(text: &str) -> Result<Amount, String> {
    with_unit("delay", Role::Delay, text)
}

fn with_unit(what: &str, role: Role, text: &str) -> Result<Amount, String> {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
    // An exponent's `e` is followed by a digit or a sign, a unit's letter is not.
    let end = text.char_indices().find(|(at, c)| {
        let next = text.get(at + 1..).and_then(|rest| rest.chars().next());
        let is_exponent = matches!(c, 'e' | 'E') && *at > 0 && next.is_some_and(|next| is_number(next) && next != '.');
        !is_number(*c) && !is_exponent
    });
    let (digits, unit) = text.split_at(end.map_or(text.len(), |(at, _)| at));
    let unit = unit.trim();
    let known = Unit::of(role, unit);
    if digits.is_empty() {
        return Err(amount(what, text).err().unwrap_or_default());
    }
    if !unit.is_empty() && known.is_none() {
        return Err(format!("the {what} `{}` is no number with a unit of a {what}", shown(text)));
    }
    Ok(Amount { number: amount(what, digits)?, unit: known.filter(|_| !unit.is_empty()) })
}
