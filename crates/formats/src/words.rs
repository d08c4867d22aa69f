//! Lines and words of plain text, with the offsets at which they stand.

use std::fmt;

use super::{Fault, raw::Text};

/// A piece of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'t> {
    pub(super) at: usize,
    pub(super) text: &'t str,
}

/// The lines that are not blank.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut next = 0;
    let placed = text.split_inclusive('\n').map(move |line| {
        let at = next;
        next += line.len();
        Piece { at, text: line }
    });
    placed.filter(|line| !line.text.trim().is_empty())
}

impl<'t> Piece<'t> {
    /// The words, which white space separates.
    pub(super) fn words(self) -> impl Iterator<Item = Piece<'t>> {
        let Piece { mut at, text: mut rest } = self;
        std::iter::from_fn(move || {
            let trimmed = rest.trim_start();
            at += rest.len() - trimmed.len();
            let (text, tail) = trimmed.split_at(trimmed.find(char::is_whitespace).unwrap_or(trimmed.len()));
            let word = Piece { at, text };
            (at, rest) = (at + text.len(), tail);
            (!text.is_empty()).then_some(word)
        })
    }

    /// The words, of which there must be `N`; `expected` describes them.
    pub(super) fn fields<const N: usize>(self, expected: impl fmt::Display) -> Result<[Piece<'t>; N], Fault> {
        let mut fields = [self; N];
        let mut words = self.words();
        for (number, field) in fields.iter_mut().enumerate() {
            let end = self.at + self.text.trim_end().len();
            *field =
                words.next().ok_or_else(|| Fault::new(end, format!("only {number} fields; expected {expected}")))?;
        }
        match words.next() {
            Some(word) => Err(word.fault(format!("more than {N} fields; expected {expected}"))),
            None => Ok(fields),
        }
    }

    /// A complaint about this piece.
    pub(super) fn fault(self, message: impl Into<String>) -> Fault {
        Fault::new(self.at, message)
    }
}

impl From<Piece<'_>> for Text {
    fn from(piece: Piece<'_>) -> Self {
        Text { at: piece.at, text: piece.text.into() }
    }
}
