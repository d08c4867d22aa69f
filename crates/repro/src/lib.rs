//! The tables and figures of the papers, ours beside theirs.
