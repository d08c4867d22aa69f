//! The controller, without a network and over real sockets.

mod common;
mod grpc;
mod plan;
