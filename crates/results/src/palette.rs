//! Colours and lettering that the pictures have in common.

use plotters::style::{
    Color, IntoFont, RGBColor, TextStyle,
    text_anchor::{HPos, Pos, VPos},
};

/// The first of Okabe and Ito's colours for colour-blind readers.
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
/// The second.
pub const VERMILION: RGBColor = RGBColor(213, 94, 0);
/// The third.
pub const GREEN: RGBColor = RGBColor(0, 158, 115);
/// The fourth.
pub const PURPLE: RGBColor = RGBColor(204, 121, 167);
/// The fifth.
pub const ORANGE: RGBColor = RGBColor(230, 159, 0);
/// The sixth.
pub const SKY: RGBColor = RGBColor(86, 180, 233);

/// Okabe and Ito's palette without its yellow, which is lost on white.
pub const PALETTE: [RGBColor; 6] = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY];

/// What is read first.
pub const INK: RGBColor = RGBColor(34, 34, 34);
/// What explains.
pub const QUIET: RGBColor = RGBColor(105, 105, 105);
/// Lines behind the data.
pub const GRID: RGBColor = RGBColor(225, 225, 225);

/// Letters of `size` pixels that stand, from the point where they are drawn, at `side` and `height`.
pub fn letters(size: i32, color: RGBColor, side: HPos, height: VPos) -> TextStyle<'static> {
    TextStyle { font: ("sans-serif", size).into_font(), color: color.to_backend_color(), pos: Pos::new(side, height) }
}
