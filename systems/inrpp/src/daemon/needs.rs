//! What the daemon needs of a machine, and how its program is tried.
