/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What all policy headers share. These headers are pure: no maps, helpers, globals, floats, signed
 * division or 128-bit arithmetic, so the same text compiles for BPF and natively.
 *
 * "Qn" marks a fixed-point number with n fractional bits: in Q16, 65536 is one.
 */
#ifndef SIDESTEP_POLICY_TYPES_H
#define SIDESTEP_POLICY_TYPES_H

/* The kernel's own spellings, so that meeting <linux/types.h> later is no conflict. */
#if !defined(__VMLINUX_H__) && !defined(_LINUX_TYPES_H)
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef long long __s64;
#endif

#define POLICY_FN static inline __attribute__((always_inline, unused))

/* Most paths a connection chooses from; a power of two, so that a mask bounds every index. */
#define PC_MAX_PATHS 16
#define PC_INDEX(i) ((i) & (PC_MAX_PATHS - 1))

#define PC_Q16_ONE 65536u
#define PC_Q32_ONE (1ULL << 32)

struct pc_path {
	__u32 id; /* the caller's name for it; the policy goes by index */
	__u32 weight; /* initial weight, usually the bandwidth; 0 counts as 1 */
	__u64 bdp_bytes; /* bandwidth-delay product, the cwnd that earns the full reward; 0 counts as 1 */
};
_Static_assert(sizeof(struct pc_path) == 16, "shared with Rust");

/* How many bits of `x` are set: each step adds neighbouring fields of twice the width. */
POLICY_FN __u32 pc_bits(__u64 x)
{
	x -= x >> 1 & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + (x >> 2 & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (x * 0x0101010101010101ULL) >> 56;
}

/* `random`, 32 uniform bits, scaled to 0..range; range at most 2^32. */
POLICY_FN __u64 pc_scale(__u32 random, __u64 range)
{
	return (random * range) >> 32;
}

#endif
