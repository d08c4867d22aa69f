//! The experiments, a file each.

pub(crate) mod tpc_fig5;
