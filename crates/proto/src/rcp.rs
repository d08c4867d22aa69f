//! rcp
