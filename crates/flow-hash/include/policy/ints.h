/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What all pure headers share. They are pure: no maps, helpers, globals, floats, signed
 * division or 128-bit arithmetic, so the same text compiles for BPF and natively.
 *
 * "Qn" marks a fixed-point number with n fractional bits: in Q16, 65536 is one.
 */
#ifndef SIDESTEP_POLICY_INTS_H
#define SIDESTEP_POLICY_INTS_H

/* The kernel's own spellings, so that meeting <linux/types.h> later is no conflict. */
#if !defined(__VMLINUX_H__) && !defined(_LINUX_TYPES_H)
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
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

#define PC_Q16_ONE 65536u
#define PC_Q32_ONE (1ULL << 32)

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

/* How many bits of `x` are set: each step adds neighbouring fields of twice the width. */
POLICY_FN __u32 pc_bits(__u64 x)
{
	x -= x >> 1 & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + (x >> 2 & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (x * 0x0101010101010101ULL) >> 56;
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

#endif
