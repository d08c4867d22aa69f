/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the headers of the path policies share. */
#ifndef SIDESTEP_POLICY_TYPES_H
#define SIDESTEP_POLICY_TYPES_H

#include "policy/ints.h"

/* Most paths a connection chooses from; a power of two, so that a mask bounds every index. */
#define PC_MAX_PATHS 16
#define PC_INDEX(i) ((i) & (PC_MAX_PATHS - 1))

struct pc_path {
	__u32 id; /* the caller's name for it; the policy goes by index */
	__u32 weight; /* initial weight, usually the bandwidth; 0 counts as 1 */
	__u64 bdp_bytes; /* bandwidth-delay product, the cwnd that earns the full reward; 0 counts as 1 */
	__u64 rtt_ns; /* round-trip propagation time; 0: not known */
	__u64 transfer_ns; /* what a short transfer (16 kB) takes at the path's rate; 0: not known */
	__u64 room; /* bytes a second that are not in use, as the controller reports; all of the rate where it reports none */
};
_Static_assert(sizeof(struct pc_path) == 40, "shared with Rust");

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

/* The time from `since` until `now`, without a branch; 0 if the clocks of two processors disagree. */
POLICY_FN __u64 pc_since(__u64 now_ns, __u64 since_ns)
{
	return (now_ns - since_ns) & (pc_above(since_ns, now_ns) - 1);
}

/* `x` halved `times` times, of which those beyond 63 do not count; without a branch. */
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
