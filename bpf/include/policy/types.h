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
typedef unsigned char __u8;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef long long __s64;
#endif

#define POLICY_FN static inline __attribute__((always_inline, unused))

/*
 * A large function is a global function for BPF: the verifier walks it once and by itself, instead of
 * in each place and state that it is called from. It returns a number and takes five arguments at
 * most. It may assume nothing of them, so it has to compare pointers with 0.
 */
#ifdef __bpf__
#define POLICY_LARGE_FN __attribute__((noinline))
#else
#define POLICY_LARGE_FN POLICY_FN
#endif

/* Most paths a connection chooses from; a power of two, so that a mask bounds every index. */
#define PC_MAX_PATHS 16
#define PC_INDEX(i) ((i) & (PC_MAX_PATHS - 1))

#define PC_Q16_ONE 65536u
#define PC_Q32_ONE (1ULL << 32)

struct pc_path {
	__u32 id; /* the caller's name for it; the policy goes by index */
	__u32 weight; /* initial weight, usually the bandwidth; 0 counts as 1 */
	__u64 bdp_bytes; /* bandwidth-delay product, the cwnd that earns the full reward; 0 counts as 1 */
	__u64 rtt_ns; /* round-trip propagation time; 0: not known */
	__u64 transfer_ns; /* what a short transfer (16 kB) takes at the path's rate; 0: not known */
};
_Static_assert(sizeof(struct pc_path) == 32, "shared with Rust");

/* The paths of a destination as one, so that the verifier knows how much a function may read. */
struct pc_paths {
	struct pc_path path[PC_MAX_PATHS];
};

/*
 * What is read of the socket when a round trip ends, and with every other signal; the counters are
 * tcp_sock's, cumulative, and may wrap.
 */
struct pc_round {
	__u64 now_ns;
	__u64 cwnd_bytes;
	__u64 srtt_ns; /* smoothed round-trip time; 0: none yet */
	__u64 rto_ns; /* the retransmission timeout before back-off, or less; 0: not known */
	__u32 delivered;
	__u32 delivered_ce;
	__u32 mss;
	__u32 in_flight; /* segments sent and not acknowledged */
	__u32 received; /* where the data received in order ends: the next sequence number awaited */
	__u32 unused;
};
_Static_assert(sizeof(struct pc_round) == 56, "shared with Rust");

/* Longer times (about 20 hours) are cut to this, so that no product overflows. */
#define PC_MAX_NS (1ULL << 46)

/*
 * 1 if a > b, else 0; both below 2^63. It takes no branch, as in a loop the verifier follows both
 * sides of each; the empty assembly keeps the compiler from seeing the comparison and making one.
 */
POLICY_FN __u64 pc_above(__u64 a, __u64 b)
{
	__u64 difference = b - a;

	__asm__("" : "+r"(difference));
	return difference >> 63;
}

POLICY_FN __u64 pc_least(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

POLICY_FN __u64 pc_most(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

/* `b` if `which` is 1, `a` if it is 0; no branch either. */
POLICY_FN __u64 pc_choose(__u64 a, __u64 b, __u64 which)
{
	return a ^ ((a ^ b) & -which);
}

/* The lesser of two numbers below 2^63, without a branch. */
POLICY_FN __u64 pc_lesser(__u64 a, __u64 b)
{
	return pc_choose(a, b, pc_above(a, b));
}

/* 1 if x is 0, without a branch. */
POLICY_FN __u64 pc_zero(__u64 x)
{
	return 1 - ((x | -x) >> 63);
}

/* The time from `since` until `now`, without a branch; 0 if the clocks of two processors disagree. */
POLICY_FN __u64 pc_since(__u64 now_ns, __u64 since_ns)
{
	return (now_ns - since_ns) & (pc_above(since_ns, now_ns) - 1);
}

/* How many bits of `x` are set: each step adds neighbouring fields of twice the width. */
POLICY_FN __u32 pc_bits(__u64 x)
{
	x -= x >> 1 & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + (x >> 2 & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (x * 0x0101010101010101ULL) >> 56;
}

/* `x` halved so many times, of which those beyond 63 do not count; without a branch. */
POLICY_FN __u64 pc_halved(__u64 x, __u64 times)
{
	times |= -pc_above(times, 63);
	return x >> (times & 63);
}

/* `random`, 32 uniform bits, scaled to 0..range: random * range / 2^32 in two halves, as the product may not fit. */
POLICY_FN __u64 pc_scale(__u32 random, __u64 range)
{
	return (range >> 32) * random + (((range & 0xffffffff) * random) >> 32);
}

/* MurmurHash3's finaliser fmix32: each bit of the input changes each bit of the output in half of all cases. */
POLICY_FN __u32 pc_mix(__u32 x)
{
	x ^= x >> 16;
	x *= 0x85ebca6b;
	x ^= x >> 13;
	x *= 0xc2b2ae35;
	return x ^ x >> 16;
}

/* 2^32 divided by the golden ratio. */
#define PC_GOLDEN 0x9e3779b9u

/* A second number from `random`, so that what it is used for does not depend on the draw. */
POLICY_FN __u32 pc_remix(__u32 random)
{
	return pc_mix(random ^ PC_GOLDEN);
}

/* The position of the lowest bit of `set` but `skip` others; `set` has more than that, and 16 at most. */
POLICY_FN __u32 pc_nth(__u32 set, __u32 skip)
{
	__u32 i, position = 0, passed = 0;

	for (i = 0; i < PC_MAX_PATHS - 1; i++) {
		passed += set >> i & 1;
		position += 1 - (__u32)pc_above(passed, skip);
	}
	return position;
}

#endif
