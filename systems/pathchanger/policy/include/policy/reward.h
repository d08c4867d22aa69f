/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a path has earned since the last decision, as a share of what it could have given:
 *
 *   PC_CWND  the mean congestion window, of the bandwidth-delay product (the path changer's paper, section 2.2,
 *            has the last window, and asks for a mean: one window is an accident of TCP's swing)
 *   PC_RATE  the delivered rate, of the path's rate
 *   PC_RTT   the lowest propagation round trip of all paths, of the mean round trip
 */
#ifndef SIDESTEP_POLICY_REWARD_H
#define SIDESTEP_POLICY_REWARD_H

#include "types.h"

enum pc_reward {
	PC_CWND,
	PC_RATE,
	PC_RTT,
};

/* A quotient of two sums: of samples and how many, or of bytes and nanoseconds. */
struct pc_mean {
	__u64 sum;
	__u64 count;
};
_Static_assert(sizeof(struct pc_mean) == 16, "shared with Rust");

/* Our choice: a terabyte or 18 minutes, and a million of them, so that no sum or product leaves 64 bits. */
#define PC_MAX_SAMPLE (1ULL << 40)
#define PC_MAX_SAMPLES (1ULL << 20)

POLICY_FN void pc_mean_clear(struct pc_mean *mean)
{
	mean->sum = 0;
	mean->count = 0;
}

/* Adds a sample. After a million, old ones are halved in weight, so that the sum never overflows. */
POLICY_FN void pc_mean_add(struct pc_mean *mean, __u64 sample)
{
	if (mean->count >= PC_MAX_SAMPLES) {
		mean->sum /= 2;
		mean->count /= 2;
	}
	mean->sum += pc_least(sample, PC_MAX_SAMPLE);
	mean->count++;
}

/* Adds `bytes` delivered in `ns`. When a sum would grow too large, both sums are halved. */
POLICY_FN void pc_rate_add(struct pc_mean *rate, __u64 bytes, __u64 ns)
{
	if (rate->count >= PC_MAX_SAMPLE || rate->sum >= PC_MAX_SAMPLE) {
		rate->sum /= 2;
		rate->count /= 2;
	}
	rate->sum += pc_least(bytes, PC_MAX_SAMPLE);
	rate->count += pc_least(ns, PC_MAX_SAMPLE);
}

/* The mean of the samples; `sample` stands in where there are none. */
POLICY_FN __u64 pc_mean_of(const struct pc_mean *mean, __u64 sample)
{
	return mean->count ? mean->sum / mean->count : pc_least(sample, PC_MAX_SAMPLE);
}

/* `part` (below 2^48) of `whole`, at most 1, as Q16; 0 of `whole` counts as 1. */
POLICY_FN __u32 pc_part(__u64 part, __u64 whole)
{
	if (!whole)
		whole = 1;
	if (part >= whole)
		return PC_Q16_ONE;
	return (__u32)((part << 16) / whole);
}

/*
 * The bytes that a connection delivers in `rtt_ns`: against the bandwidth-delay product, its rate
 * against the path's. Where nothing was measured, those that its window would let it deliver.
 */
POLICY_FN __u64 pc_bytes_per_rtt(const struct pc_mean *rate, const struct pc_round *round,
				 __u64 rtt_ns)
{
	__u64 bytes = rate->sum, ns = rate->count, rounds_q16;

	if (!ns) {
		bytes = pc_least(round->cwnd_bytes, PC_MAX_SAMPLE);
		ns = round->srtt_ns;
	}
	rtt_ns = pc_least(rtt_ns, PC_MAX_NS);
	rounds_q16 = rtt_ns ? (pc_least(ns, PC_MAX_NS) << 16) / rtt_ns : 0;
	if (!rounds_q16)
		return bytes;
	return pc_least((bytes << 16) / rounds_q16, PC_MAX_SAMPLE);
}

/* The lowest propagation round trip known of the first `n` paths, rounded up to an even number; 0: none is known. */
POLICY_FN __u64 pc_lowest_rtt(const struct pc_path *paths, __u32 n)
{
	__u64 lowest = ~0ULL >> 1;
	__u32 i;

	for (i = 0; i < PC_MAX_PATHS; i++) {
		/* 0, not known, becomes the greatest; halves, as pc_above takes no more than 63 bits. */
		__u64 half = (paths[i].rtt_ns - 1) >> 1;

		lowest = pc_choose(lowest, half, pc_above(lowest, half) & pc_above(n, i));
	}
	return (lowest + 1) * 2;
}

/*
 * With this number of packets overtaken TCP takes those before them for lost (RFC 5681, section 3.2: three duplicate
 * ACKs; the route controller's paper, section 3: N_o).
 */
#define PC_REORDERED 3

/*
 * Whether a move from a path of round trip `from_ns` to one of `to_ns` makes packets overtake this number
 * before them, so that TCP retransmits: (difference of one-way delays) * rate, in packets, with half a
 * round trip for a delay and cwnd / srtt for the rate.
 */
POLICY_FN __u32 pc_reorders(const struct pc_round *round, __u64 from_ns, __u64 to_ns)
{
	__u64 sooner_ns, packets;

	if (from_ns <= to_ns || !round->srtt_ns || !round->mss)
		return 0;
	/* Half a minute and 2^28 packets, so that the product does not overflow. */
	sooner_ns = pc_least((from_ns - to_ns) / 2, 1ULL << 35);
	packets = pc_least(round->cwnd_bytes / round->mss, 1ULL << 28);
	return packets * sooner_ns >= PC_REORDERED * pc_least(round->srtt_ns, PC_MAX_NS);
}

#endif
