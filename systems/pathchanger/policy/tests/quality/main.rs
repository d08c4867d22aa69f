//! The policy `delay-weighted`: connections go where the host's connections recently measured short delays, and not where
//! nothing arrives.

mod draws;
mod failures;
mod host;
mod queues;
mod restricted;
