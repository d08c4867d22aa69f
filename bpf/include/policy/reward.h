/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a path has earned: the mean congestion window while it was used, as a share of what the
 * path could carry (its bandwidth-delay product).
 */
#ifndef SIDESTEP_POLICY_REWARD_H
#define SIDESTEP_POLICY_REWARD_H

#include "types.h"

struct pc_mean {
	__u64 sum;
	__u64 count;
};
_Static_assert(sizeof(struct pc_mean) == 16, "shared with Rust");

#define PC_MAX_CWND_BYTES (1ULL << 40)
#define PC_MAX_SAMPLES (1ULL << 20)

POLICY_FN __u64 pc_cwnd_clamp(__u64 cwnd_bytes)
{
	return cwnd_bytes < PC_MAX_CWND_BYTES ? cwnd_bytes : PC_MAX_CWND_BYTES;
}

/* Adds a sample. After a million, old ones are halved in weight, so that the sum never overflows. */
POLICY_FN void pc_mean_add(struct pc_mean *mean, __u64 cwnd_bytes)
{
	if (mean->count >= PC_MAX_SAMPLES) {
		mean->sum /= 2;
		mean->count /= 2;
	}
	mean->sum += pc_cwnd_clamp(cwnd_bytes);
	mean->count++;
}

/* The reward in 0..=65536, Q16; `cwnd_bytes` stands in for a mean without samples. */
POLICY_FN __u32 pc_reward(const struct pc_mean *mean, __u64 cwnd_bytes, __u64 bdp_bytes)
{
	__u64 cwnd = mean->count ? mean->sum / mean->count : pc_cwnd_clamp(cwnd_bytes);

	if (!bdp_bytes)
		bdp_bytes = 1;
	if (cwnd >= bdp_bytes)
		return PC_Q16_ONE;
	return (__u32)((cwnd << 16) / bdp_bytes);
}

#endif
