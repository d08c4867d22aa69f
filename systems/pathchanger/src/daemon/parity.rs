//! The policy as the kernel runs it (`bpf/policy_parity.bpf.c`), for tests that compare it with the native build.

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use sidestep_flow_hash::FlowHashCall;
use sidestep_linux::{
    Result,
    bpf::{bytecode, failed, load, map, open, program},
};
use sidestep_policy::raw::{Cost, Parity, SHARED_WORDS, Sharing};
use zerocopy::IntoBytes;

/// How many calls of the policy the kernel times in one run (`COST_CALLS`).
pub const COST_CALLS: u64 = 1_000;

/// The program, loaded.
#[derive(Debug)]
pub struct PolicyParity {
    object: Object,
}

impl PolicyParity {
    /// Makes the kernel verify and load the program.
    pub fn load() -> Result<Self> {
        Ok(PolicyParity { object: load("policy_parity", open("policy_parity", bytecode!("policy_parity"))?)? })
    }

    /// Makes the kernel do the call that `context` describes, and write state and outcome into it; `shared` is what was
    /// learnt together, before and after.
    pub fn call(&mut self, context: &mut Parity, shared: &mut [u64; SHARED_WORDS]) -> Result<()> {
        self.set_shared(shared)?;
        let input = ProgramInput { context_in: Some(context.as_mut_bytes()), ..ProgramInput::default() };
        let run = program(&self.object, "policy_parity")?.test_run(input);
        run.map(drop).map_err(|error| failed("running the policy in the kernel", &error))?;
        *shared = self.shared()?;
        Ok(())
    }

    /// Makes the kernel do [`COST_CALLS`] calls that begin with that of `context`, beside the state in `shared`, and time them.
    pub fn cost(&self, context: &mut Cost, shared: &[u64; SHARED_WORDS]) -> Result<()> {
        self.set_shared(shared)?;
        let input = ProgramInput { context_in: Some(context.as_mut_bytes()), ..ProgramInput::default() };
        let run = program(&self.object, "policy_cost")?.test_run(input);
        run.map(drop).map_err(|error| failed("timing the policy in the kernel", &error))
    }

    /// Makes steps in the shared table on this processor, and a draw; several processors may do so at once.
    pub fn share(&self, context: &mut Sharing) -> Result<()> {
        let input = ProgramInput { context_in: Some(context.as_mut_bytes()), ..ProgramInput::default() };
        let run = program(&self.object, "policy_sharing")?.test_run(input);
        run.map(drop).map_err(|error| failed("sharing weights in the kernel", &error))
    }

    /// Makes the kernel compute a flow's hash and choose by it.
    pub fn flow_hash(&self, context: &mut FlowHashCall) -> Result<()> {
        let input = ProgramInput { context_in: Some(context.as_mut_bytes()), ..ProgramInput::default() };
        let run = program(&self.object, "policy_flow_hash")?.test_run(input);
        run.map(drop).map_err(|error| failed("hashing a flow in the kernel", &error))
    }

    fn set_shared(&self, shared: &[u64; SHARED_WORDS]) -> Result<()> {
        let written = map(&self.object, "learnt")?.update(&0u32.to_ne_bytes(), shared.as_bytes(), MapFlags::ANY);
        written.map_err(|error| failed("setting shared weights", &error))
    }

    /// What lies in the table of shared weights.
    pub fn shared(&self) -> Result<[u64; SHARED_WORDS]> {
        let read = map(&self.object, "learnt")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let bytes = read.map_err(|error| failed("reading shared weights", &error))?.unwrap_or_default();
        let mut words = [0; SHARED_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Ok(words)
    }
}
