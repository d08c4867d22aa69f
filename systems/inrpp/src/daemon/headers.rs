//! Headers of IP and TCP: what the router reads in a packet, and what it changes.
