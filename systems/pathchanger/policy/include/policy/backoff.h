/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Exponential back-off with jitter: how long to wait after a decision before the next. It doubles
 * with each decision and falls back when the signals cease.
 *
 * The path changer's paper, section 2.2: without it all connections leave a path at once, crowd another, and
 * return at once. The paper gives no numbers. The jitter is ours: equal waits would end together.
 */
#ifndef SIDESTEP_POLICY_BACKOFF_H
#define SIDESTEP_POLICY_BACKOFF_H

#include "types.h"

struct pc_backoff {
	__u64 interval_ns; /* the next wait, before jitter */
	__u64 next_ns; /* no decision before this time */
	__u64 signal_ns; /* when the last signal came */
};
_Static_assert(sizeof(struct pc_backoff) == 24, "shared with Rust");

/*
 * After this number of intervals without a signal the interval returns to its least. Our choice: congestion that comes
 * back within two doublings is the same.
 */
#define PC_QUIET_INTERVALS 4

POLICY_FN __u64 pc_backoff_clamp(__u64 interval_ns, __u64 max_ns)
{
	return pc_least(pc_least(interval_ns, max_ns), PC_MAX_NS);
}

/* Starts with no wait at all. */
POLICY_FN void pc_backoff_open(struct pc_backoff *backoff, __u64 min_ns, __u64 now_ns)
{
	backoff->interval_ns = pc_backoff_clamp(min_ns, PC_MAX_NS);
	backoff->next_ns = 0;
	backoff->signal_ns = now_ns;
}

/* Starts a wait of interval * (1 - j/2 + j*u), where u in 0..1 comes from `random`. */
POLICY_FN void pc_backoff_arm(struct pc_backoff *backoff, __u64 now_ns, __u32 jitter_q16,
			      __u32 random)
{
	__u64 jitter = jitter_q16 < PC_Q16_ONE ? jitter_q16 : PC_Q16_ONE;
	__u64 factor_q16 = PC_Q16_ONE - jitter / 2 + pc_scale(random, jitter);

	backoff->next_ns = now_ns + ((backoff->interval_ns * factor_q16) >> 16);
}

/* Takes note of a signal; returns whether it may be acted upon. */
POLICY_FN __u32 pc_backoff_signal(struct pc_backoff *backoff, __u64 min_ns, __u64 now_ns)
{
	if (now_ns > backoff->signal_ns) {
		if (now_ns - backoff->signal_ns > PC_QUIET_INTERVALS * backoff->interval_ns)
			backoff->interval_ns = pc_backoff_clamp(min_ns, PC_MAX_NS);
		backoff->signal_ns = now_ns;
	}
	return now_ns >= backoff->next_ns;
}

/* A decision was made: waits, and doubles the next wait. */
POLICY_FN void pc_backoff_decided(struct pc_backoff *backoff, __u64 max_ns, __u64 now_ns,
				  __u32 jitter_q16, __u32 random)
{
	pc_backoff_arm(backoff, now_ns, jitter_q16, random);
	backoff->interval_ns = pc_backoff_clamp(backoff->interval_ns * 2, max_ns);
}

#endif
