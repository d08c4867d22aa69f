//! The policy as the kernel runs it (`bpf/src/policy_parity.bpf.c`), for tests that compare it with the native build.

use libbpf_rs::{Object, ProgramInput};
use sidestep_policy::raw::{Parity, Plain};

use super::{bytecode, failed, load, open, program};
use crate::error::Result;

/// The program, loaded.
#[derive(Debug)]
pub struct PolicyParity {
    object: Object,
}

impl PolicyParity {
    /// Has the kernel verify and take in the program.
    pub fn load() -> Result<Self> {
        Ok(PolicyParity { object: load("policy_parity", open("policy_parity", bytecode!("policy_parity"))?)? })
    }

    /// Has the kernel make the call that `context` describes, and write state and outcome into it.
    pub fn call(&mut self, context: &mut Parity) -> Result<()> {
        let input = ProgramInput { context_in: Some(context.as_bytes_mut()), ..ProgramInput::default() };
        let run = program(&self.object, "policy_parity")?.test_run(input);
        run.map(drop).map_err(|error| failed("running the policy in the kernel", &error))
    }
}
