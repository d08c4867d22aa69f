//! What is asked of rtnetlink is what the kernel then has, read back through iproute2.

mod marks;
mod reading;
mod refusals;
mod routes;
mod rules;
mod support;
