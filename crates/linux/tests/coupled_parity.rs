//! Coupled congestion control in the kernel and in the simulator is the same function.

use sidestep_coupled::{CoupledCall, Path, Sums};
use sidestep_linux::{
    bpf::coupled::{COUPLED_CALLS, CoupledParity},
    testing::root_or_skip,
};
use zerocopy::{FromBytes, IntoBytes};

/// Numbers of all sizes (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn any(&mut self) -> u64 {
        let shift = self.next() % 64;
        self.next() >> shift
    }

    fn path(&mut self) -> Path {
        if self.next().is_multiple_of(8) {
            let words = [self.any(), self.any(), self.any()];
            return Path::read_from_bytes(words.as_bytes()).unwrap();
        }
        // Few values, so that subflows are equally wide and equally good.
        let mss = [536, 1_448, 8_948][self.next() as usize % 3];
        let segments = 1 + self.any() % 1_000;
        Path {
            window: segments * u64::from(mss),
            between_losses: (self.next() % 4) * 1_000_000,
            rtt: 1 + (self.any() % 4_000_000) as u32,
            mss,
        }
    }
}

#[test]
fn the_kernel_and_the_simulator_couple_a_thousand_connections_alike() {
    if !root_or_skip("coupled congestion control in BPF") {
        return;
    }
    let kernel = CoupledParity::load().unwrap();
    let mut numbers = Numbers(0x5eed);
    let mut calls = [CoupledCall::default(); COUPLED_CALLS];
    let mut grown = [0u32; 3];
    for round in 0..300 {
        for (connection, call) in calls.iter_mut().enumerate() {
            // The history of a connection: one more subflow in each round, and now and then a new one, or sums without sense.
            if connection % 40 == round % 40 {
                call.sums = match numbers.next() % 4 {
                    0 => Sums::read_from_bytes([numbers.any(); 7].as_bytes()).unwrap(),
                    _ => Sums::default(),
                };
            }
            (call.path, call.algorithm, call.acked) = (numbers.path(), connection as u32 % 4, numbers.any() as u32);
        }
        let expected = calls.map(CoupledCall::answered);
        kernel.compute(&mut calls).unwrap();
        for (call, expected) in calls.iter().zip(&expected) {
            assert_eq!(call, expected, "round {round}");
        }
        calls.iter().for_each(|call| grown[(call.grown.signum() + 1) as usize] += 1);
    }
    assert!(grown.iter().all(|count| *count > 100), "windows shrink, stay and grow: {grown:?}");
}
