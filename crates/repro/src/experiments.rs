//! The experiments, a file each.

pub(crate) mod inrpp_dumbbell;
pub(crate) mod inrpp_table1;
mod semper;
pub(crate) mod semper_fig3;
pub(crate) mod semper_fig4;
pub(crate) mod semper_fig5;
mod topologies;
pub(crate) mod tpc_fig5;
pub(crate) mod tpc_fig6;
pub(crate) mod tpc_fig7;
pub(crate) mod tpc_fig8;
