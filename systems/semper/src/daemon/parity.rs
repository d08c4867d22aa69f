//! The choice of a path as the kernel runs it (`bpf/balance_parity.bpf.c`), for tests that compare it with the native build.

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use sidestep_balance::BalanceCall;
use sidestep_linux::{
    Result,
    bpf::{bytecode, failed, load, map, open, program},
};
use zerocopy::{FromBytes, IntoBytes};

/// How many calls of the balancer the kernel answers in one run (`BALANCE_CALLS`).
pub const BALANCE_CALLS: usize = 1_000;

/// The program, loaded.
#[derive(Debug)]
pub struct BalanceParity {
    object: Object,
}

impl BalanceParity {
    /// Makes the kernel verify and load the program.
    pub fn load() -> Result<Self> {
        Ok(BalanceParity { object: load("balance_parity", open("balance_parity", bytecode!("balance_parity"))?)? })
    }

    /// Makes the kernel answer calls, of which it takes [`BALANCE_CALLS`] at once.
    pub fn balance(&self, calls: &mut [BalanceCall; BALANCE_CALLS]) -> Result<()> {
        let table = map(&self.object, "balance_calls")?;
        let keys: Vec<u8> = (0..BALANCE_CALLS as u32).flat_map(u32::to_ne_bytes).collect();
        let written = table.update_batch(&keys, calls.as_bytes(), BALANCE_CALLS as u32, MapFlags::ANY, MapFlags::ANY);
        written.map_err(|error| failed("handing the kernel flows to balance", &error))?;
        let run = program(&self.object, "balance_parity")?.test_run(ProgramInput::default());
        run.map_err(|error| failed("balancing flows in the kernel", &error))?;
        let answers = table.lookup_batch(BALANCE_CALLS as u32, MapFlags::ANY, MapFlags::ANY);
        let answers = answers.map_err(|error| failed("reading the paths of flows", &error))?;
        for (call, (_, answer)) in calls.iter_mut().zip(answers) {
            *call = BalanceCall::read_from_bytes(&answer).unwrap_or_default();
        }
        Ok(())
    }
}
