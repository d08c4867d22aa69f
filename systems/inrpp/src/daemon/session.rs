//! The session of two neighbours: who may speak, and what is a replay.
