//! Links to neighbours: UDP, Ethernet, TCP.
