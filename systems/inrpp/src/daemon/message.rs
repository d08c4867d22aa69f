//! What neighbours say to each other beside packets: hellos, probes and grants.
