//! Restores the order of a flow's packets that detours have disturbed.
