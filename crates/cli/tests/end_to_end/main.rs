//! The program as its users run it: real command lines, the real kernel, and what is there afterwards.
//!
//! One test binary, so that all of them share threads and are linked once. Other labs may run on the machine at the
//! same time, these tests' own among them: what is left behind is judged by a lab's own name only.

mod agent;
mod clean_up;
mod common;
mod contract;
mod demo;
mod doctor;
mod edge;
mod errors;
mod explain;
mod failures;
mod inrpp;
mod mptcp_pm;
mod ownership;
mod packaged;
mod pipes;
mod policies;
mod programs;
mod reflector;
mod reload;
mod requests;
mod route_control;
mod simulation;
mod soak;
mod supervision;
mod systems;
mod topologies;
mod traffic;
mod traps;
