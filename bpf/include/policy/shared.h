/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What all connections of a host to one destination have learnt together, updated by many processors
 * at once, without locks.
 *
 * A connection's weights are then the initial weights of its paths, times what is kept here. Steps are
 * added atomically, so that none is lost. Only differences between paths mean anything: the numbers
 * may wrap, and nothing ever has to be subtracted from all of them at once. A reader that meets an
 * update half done is as far off as that one step; as it works on its own copy, probabilities sum to
 * one whatever it meets.
 *
 * No path falls behind the best by more than PC_SHARED_DEPTH: what took a day to learn must not take a
 * day to unlearn (as EXP3.S, Auer et al. 2002, section 8, where each weight is a share of their sum).
 */
#ifndef SIDESTEP_POLICY_SHARED_H
#define SIDESTEP_POLICY_SHARED_H

#include "exp3.h"

struct pc_shared {
	__u64 log_gain[PC_MAX_PATHS]; /* base 2, Q32, modulo 2^64 */
};
_Static_assert(sizeof(struct pc_shared) == 128, "shared with Rust");

/* A factor of 1024. */
#define PC_SHARED_DEPTH (10LL << 32)

/* Leads are cut to this, so that no sum overflows, whatever the table holds. */
#define PC_LEAD_MAX (1LL << 58)

POLICY_FN __u64 pc_shared_read(const struct pc_shared *shared, __u32 i)
{
	return *(const volatile __u64 *)&shared->log_gain[PC_INDEX(i)];
}

/* By how much `log` is above `from`, modulo 2^64. */
POLICY_FN __s64 pc_lead(__u64 log, __u64 from)
{
	__s64 lead = (__s64)(log - from);

	if (lead > PC_LEAD_MAX)
		return PC_LEAD_MAX;
	return lead < -PC_LEAD_MAX ? -PC_LEAD_MAX : lead;
}

/*
 * Sets the weights of a connection over the first `n` of `paths`: the initial ones, times what was
 * learnt if there is a table; returns 0.
 */
POLICY_LARGE_FN __u32 pc_weigh(struct pc_exp3 *exp3, const struct pc_paths *paths, __u32 n,
			       const struct pc_shared *shared)
{
	__u64 first;
	__u32 i;

	if (!exp3 || !paths)
		return 0;
	pc_exp3_open(exp3, paths->path, n);
	if (!shared)
		return 0;
	first = pc_shared_read(shared, 0);
	for (i = 0; i < PC_MAX_PATHS; i++) {
		/* Those beyond n weigh nothing, whatever stands there. */
		if (i < n)
			exp3->log_weight[i] += pc_lead(pc_shared_read(shared, i), first);
	}
	pc_exp3_normalise(exp3);
	return 0;
}

/* Adds to what was learnt of `path`, one of `n`, and lifts those that are too far behind; returns 0. */
POLICY_LARGE_FN __u32 pc_shared_add(struct pc_shared *shared, __u32 n, __u32 path, __s64 step)
{
	__u64 first, log;
	__s64 best = 0;
	__u32 i;

	if (!shared)
		return 0;
	__sync_fetch_and_add(&shared->log_gain[PC_INDEX(path)], (__u64)step);
	first = pc_shared_read(shared, 0);
	for (i = 1; i < PC_MAX_PATHS; i++) {
		__s64 lead = pc_lead(pc_shared_read(shared, i), first);

		if (i < n && lead > best)
			best = lead;
	}
	for (i = 0; i < PC_MAX_PATHS; i++) {
		log = pc_shared_read(shared, i);
		/* Where another processor was faster nothing is lifted: its step stays, and the next lifts. */
		if (i < n && pc_lead(log, first) < best - PC_SHARED_DEPTH)
			__sync_val_compare_and_swap(&shared->log_gain[i], log,
						    first + (__u64)(best - PC_SHARED_DEPTH));
	}
	return 0;
}

#endif
