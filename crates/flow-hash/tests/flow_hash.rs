//! The flow hash: its frozen values, its symmetry, and how evenly it spreads flows.

#[path = "common/flows.rs"]
mod flows;

use rand_core::Rng;
use rand_pcg::Pcg32;
use sidestep_flow_hash::{FlowKey, Symmetry, hash, pick};

use flows::{FAR, any_key, deviation, families};

const BOTH: [Symmetry; 2] = [Symmetry::Directed, Symmetry::Symmetric];

/// Addresses, ports, protocol and label of a flow, the seed, and the hashes of both symmetries.
type Vector = (&'static str, &'static str, u16, u16, u8, u32, u32, [u32; 2]);

#[test]
fn the_values_are_those_that_were_frozen() {
    // Computed by a MurmurHash3_x86_32 of its own that yields the published test vectors.
    let vectors: [Vector; 6] = [
        ("::", "::", 0, 0, 0, 0, 0, [0x4ba8_d3db, 0x4ba8_d3db]),
        ("2001:db8::1", "2001:db8::2", 40_000, 443, 6, 0, 0, [0xc2fc_421b, 0xc2fc_421b]),
        ("2001:db8::2", "2001:db8::1", 443, 40_000, 6, 0, 0, [0x64a8_0886, 0xc2fc_421b]),
        ("2001:db8::2", "2001:db8::1", 443, 40_000, 6, 0xbeef5, 0x9747_b28c, [0x6b08_e48f, 0x77df_3c44]),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.1", 5_001, 5_000, 17, 0, 1, [0xe0ae_69fe, 0x2e98_5c56]),
        (
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "::1",
            65_535,
            65_535,
            255,
            0xf_ffff,
            u32::MAX,
            [0xb435_07bb, 0xd442_0599],
        ),
    ];
    for (source, destination, source_port, destination_port, protocol, flow_label, seed, values) in vectors {
        let [source, destination] = [source, destination].map(|address| address.parse().unwrap());
        let key = FlowKey { source, destination, source_port, destination_port, protocol, flow_label };
        assert_eq!(BOTH.map(|symmetry| hash(&key, seed, symmetry)), values, "{key:?}");
    }
}

#[test]
fn both_directions_of_a_million_connections_have_the_same_symmetric_hash() {
    let mut random = Pcg32::new(1, 1);
    let mut differing = 0;
    for number in 0..1_000_000_u32 {
        let mut key = any_key(&mut random);
        // Also ends that differ in few bits, or in the ports only.
        match number % 8 {
            0 => key.destination = (key.source.to_bits() ^ 1 << (number / 8 % 128)).into(),
            1 => key.destination = key.source,
            _ => {}
        }
        let seed = random.next_u32();
        let back = key.reversed();
        assert_eq!(hash(&key, seed, Symmetry::Symmetric), hash(&back, seed, Symmetry::Symmetric), "{key:?}");
        differing += u32::from(hash(&key, seed, Symmetry::Directed) != hash(&back, seed, Symmetry::Directed));
    }
    assert!(differing > 999_900, "{differing}");
}

#[test]
fn any_number_of_choices_is_even_for_random_consecutive_and_one_sided_flows() {
    for (name, family) in families() {
        for symmetry in BOTH {
            for seed in [0, 1, 0x9747_b28c] {
                let hashes: Vec<u32> = family.iter().map(|key| hash(key, seed, symmetry)).collect();
                for n in 2..=32 {
                    let mut counts = vec![0; n as usize];
                    hashes.iter().for_each(|hash| counts[pick(*hash, n) as usize] += 1);
                    let off = deviation(&counts);
                    assert!(off.abs() < FAR, "{name}, {symmetry:?}, seed {seed}, {n} choices: {off:.1}");
                }
            }
        }
    }
}

#[test]
fn routers_with_different_seeds_choose_independently() {
    for (name, family) in families() {
        for (one, other) in [(0, 1), (1, 2), (2, 3), (1_000, 1_001), (0, 0x8000_0000)] {
            for n in [2, 3, 4, 8] {
                let mut counts = vec![0; (n * n) as usize];
                for key in &family {
                    let [first, second] = [one, other].map(|seed| pick(hash(key, seed, Symmetry::Directed), n));
                    counts[(first * n + second) as usize] += 1;
                }
                let off = deviation(&counts);
                assert!(off.abs() < FAR, "{name}, seeds {one} and {other}, {n} choices each: {off:.1}");
            }
        }
    }
}

#[test]
fn each_bit_of_key_and_seed_changes_each_bit_of_the_hash_in_half_of_all_cases() {
    const TRIALS: u32 = 4_000;
    let mut random = Pcg32::new(5, 1);
    // 128 and 128 bits of addresses, 16 and 16 of ports, 8 of the protocol, 20 of the label, 32 of the seed.
    for bit in 0..348 {
        let mut flips = [0_u32; 32];
        for _ in 0..TRIALS {
            let (key, seed) = (any_key(&mut random), random.next_u32());
            let (mut changed, mut changed_seed) = (key, seed);
            match bit {
                0..128 => changed.source = (key.source.to_bits() ^ 1 << bit).into(),
                128..256 => changed.destination = (key.destination.to_bits() ^ 1 << (bit - 128)).into(),
                256..272 => changed.source_port ^= 1 << (bit - 256),
                272..288 => changed.destination_port ^= 1 << (bit - 272),
                288..296 => changed.protocol ^= 1 << (bit - 288),
                296..316 => changed.flow_label ^= 1 << (bit - 296),
                _ => changed_seed ^= 1 << (bit - 316),
            }
            let change = hash(&key, seed, Symmetry::Directed) ^ hash(&changed, changed_seed, Symmetry::Directed);
            flips.iter_mut().enumerate().for_each(|(at, flips)| *flips += change >> at & 1);
        }
        // The standard deviation of a share is 0.008, and there are 11,136 of them.
        for (at, flips) in flips.iter().enumerate() {
            let share = f64::from(*flips) / f64::from(TRIALS);
            assert!((share - 0.5).abs() < 0.05, "bit {bit} changes bit {at} in {share}");
        }
    }
}

#[test]
fn no_choices_at_all_pick_the_first() {
    assert_eq!(pick(u32::MAX, 0), 0);
    assert_eq!(pick(u32::MAX, 1), 0);
    assert_eq!(pick(1_000_003, 1_000), 3);
}
