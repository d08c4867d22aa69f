//! What the daemon reports about itself.
