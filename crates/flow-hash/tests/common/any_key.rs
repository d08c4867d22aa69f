//! Flows for tests that compare the hash in the kernel with the native one.

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_flow_hash::FlowKey;

/// Any flow; every fourth has addresses alike, up to one word, so that the lower end shows late or only in the ports.
pub fn any_key(random: &mut Pcg32, number: u32) -> FlowKey {
    let source = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let destination = match number % 4 {
        0 => match number / 4 % 5 {
            4 => source,
            word => source ^ u128::from(random.next_u32()) << (32 * word),
        },
        _ => u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()),
    };
    FlowKey {
        source: source.into(),
        destination: destination.into(),
        source_port: random.next_u32() as u16,
        destination_port: random.next_u32() as u16,
        protocol: random.next_u32() as u8,
        flow_label: random.next_u32() & 0xf_ffff,
    }
}
