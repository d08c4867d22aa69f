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
#include "quality.h"

/*
 * The weights of the first draws of connections, as they were recently: to compute them takes longer than
 * all the rest of a draw. Processors write this at once, without locks; a draw that reads half of one
 * table and half of another goes by weights of which each was right within PC_DRAWS_NS.
 */
struct pc_draws {
	__u64 until_ns; /* to be used before this time; 0: never */
	__u64 sum[PC_MAX_PATHS]; /* of the weights of a path and all before it */
};

struct pc_shared {
	__u64 log_gain[PC_MAX_PATHS]; /* base 2, Q32, modulo 2^64 */
	struct pc_quality quality[PC_MAX_PATHS]; /* PC_DELAY_WEIGHTED */
	__u64 sequence; /* of the first draws of connections; its lower half counts */
	struct pc_draws draws; /* PC_DELAY_WEIGHTED */
};
_Static_assert(sizeof(struct pc_shared) == 1936, "shared with Rust");

/* For so long the weights of first draws are not computed again (1 ms). Our choice: little changes in that time. */
#define PC_DRAWS_NS (1ULL << 20)

/* A factor of 1024. Our choice, in the place of EXP3.S's share: a draw in a thousand, and unlearnt in ten doublings. */
#define PC_SHARED_DEPTH (10LL << 32)

/* Leads are cut to this, so that no sum overflows, whatever the table holds: below PC_LOG_FLOOR's 2^60. */
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

/* A draw by the quality of paths. */
struct pc_ask {
	__u64 now_ns;
	__u32 n; /* paths there are */
	__u32 among; /* those that may be drawn, as a bit set */
	__u32 random;
	__u32 short_q16; /* how far the time of a short transfer counts: less for a connection that has sent much,
			    since to send for long takes a path's rate, whatever its length */
};

/*
 * A number for the first draw of a connection, in place of `random`: multiples of the golden ratio, which
 * spread draws more evenly than chance does, and a little chance, so that no pattern in what programs
 * open keeps step with them. Hosts begin at different places, or all would take the same path first.
 */
POLICY_FN __u32 pc_evenly(struct pc_shared *shared, __u32 random)
{
	/* One that has come to 0 again may begin anywhere else as well. */
	if (!shared->sequence)
		shared->sequence = pc_remix(random);
	return (__u32)__sync_fetch_and_add(&shared->sequence, PC_GOLDEN) + (random >> 6);
}

/* The lowest round trip of a path, as measured, or else as the agent knows it; 0: not known. */
POLICY_FN __u64 pc_lowest(const struct pc_path *path, const struct pc_quality *quality)
{
	return pc_choose(quality->lowest_ns, path->rtt_ns, pc_zero(quality->lowest_ns)) & (PC_MAX_NS - 1);
}

/*
 * The time that a short transfer takes on an empty path; 0: the round trip is not known.
 *
 * What was measured of its rate counts twice, as the smoothed round trip lags behind, and only beyond
 * half as much again as the agent believes: crowds make rounds longer, too.
 */
POLICY_FN __u64 pc_base(const struct pc_path *path, const struct pc_quality *quality, __u64 now_ns)
{
	__u64 lowest = pc_lowest(path, quality), transfer = path->transfer_ns & (PC_MAX_NS - 1);

	transfer += pc_since(2 * pc_slow(quality, now_ns), 3 * transfer);
	return lowest + (transfer & (pc_zero(lowest) - 1));
}

/* What is asked of a path: the time that a short transfer takes on it if it is empty, as far as that counts. */
POLICY_FN __u64 pc_asked_base(const struct pc_paths *paths, const struct pc_shared *shared, __u32 i,
			      const struct pc_ask *ask, __u64 best)
{
	__u64 base = pc_base(&paths->path[i], &shared->quality[i], ask->now_ns);

	/* One that is not known counts as the best. */
	base = pc_choose(base, best, pc_zero(base));
	return best + ((pc_since(base, best) * (ask->short_q16 & (2 * PC_Q16_ONE - 1))) >> 16);
}

/* 1 if path `i` may be drawn. */
POLICY_FN __u64 pc_may_draw(const struct pc_ask *ask, __u32 i)
{
	return ask->among >> i & pc_above(ask->n, i);
}

/*
 * Functions with an `end` look at the first `end` paths, a constant that is no less than n: first draws at eight where there are
 * no more. A loop that ended at n would make the verifier follow 16 ends of each loop.
 */

/* What the weights of all paths are compared with. */
struct pc_scales {
	__u64 best; /* the least time that a short transfer takes on an empty path */
	__u64 least; /* the least that it takes now, on one that may be drawn */
};

POLICY_FN void pc_scales_of(struct pc_scales *scales, const struct pc_paths *paths, const struct pc_shared *shared,
			    const struct pc_ask *ask, __u32 end)
{
	__u64 best = 2 * PC_MAX_NS, least = 4 * PC_MAX_NS;
	__u32 i;

	for (i = 0; i < end; i++) {
		__u64 base = pc_base(&paths->path[i], &shared->quality[i], ask->now_ns);

		/* One that is not known, or not there, becomes the greatest. */
		base = pc_choose(base, 2 * PC_MAX_NS, pc_zero(base) | (1 - pc_above(ask->n, i)));
		best = pc_lesser(best, base);
	}
	for (i = 0; i < end; i++) {
		__u64 delay = pc_asked_base(paths, shared, i, ask, best) + pc_added(&shared->quality[i], ask->now_ns);

		least = pc_lesser(least, pc_choose(4 * PC_MAX_NS, delay, pc_may_draw(ask, i)));
	}
	scales->best = best;
	scales->least = least;
}

/* What the weight of path `i` is, for each unit of its initial one (quality.h), Q16; 0 if it may not be drawn. */
POLICY_FN __u32 pc_part_of(const struct pc_scales *scales, const struct pc_paths *paths,
			   const struct pc_shared *shared, const struct pc_ask *ask, __u32 i)
{
	__u64 base = pc_asked_base(paths, shared, i, ask, scales->best);
	__u64 delay = base + pc_added(&shared->quality[i], ask->now_ns), part;

	/* One more each, so that nothing is divided by 0, and no path that may be drawn weighs 0. */
	part = (scales->best << 15) / ((delay >> 1) + 1);
	part = (part * pc_lesser((scales->least << 14) / ((base >> 2) + 1), PC_Q16_ONE)) >> 16;
	part = ((part * part) >> 16) + 1;
	return (__u32)(part * pc_may_draw(ask, i));
}

/* Draws a path with the probability that its weight gives it (quality.h); an index below n. */
POLICY_LARGE_FN __u32 pc_quality_draw(const struct pc_paths *paths, const struct pc_shared *shared,
				      const struct pc_ask *ask)
{
	__u64 total = 0, point, passed = 0;
	/* Not the weights: Linux 6.1 counts each byte of the stack that functions below a program have. */
	__u32 parts[PC_MAX_PATHS], i, path = 0;
	struct pc_scales scales;

	if (!paths || !shared || !ask)
		return 0;
	pc_scales_of(&scales, paths, shared, ask, PC_MAX_PATHS);
	for (i = 0; i < PC_MAX_PATHS; i++) {
		parts[i] = pc_part_of(&scales, paths, shared, ask, i);
		total += ((__u64)paths->path[i].weight + 1) * parts[i];
	}
	point = pc_scale(ask->random, total);
	for (i = 0; i < PC_MAX_PATHS - 1; i++) {
		passed += ((__u64)paths->path[i].weight + 1) * parts[i];
		path += 1 - (__u32)pc_above(passed, point);
	}
	/* Where nothing may be drawn, it is the first. */
	return path < ask->n ? path : 0;
}

/* The first `n` paths, as a bit set. */
POLICY_FN __u32 pc_first_paths(__u32 n)
{
	return (1u << (n & 31)) - 1;
}

/* Of the first `n` paths, those on which a short transfer takes at most `most_ns` by their rate, as a bit set. */
POLICY_LARGE_FN __u32 pc_wide_paths(const struct pc_paths *paths, __u32 n, __u64 most_ns)
{
	__u32 wide = 0, i;

	if (!paths)
		return 0;
	most_ns = pc_least(most_ns, PC_MAX_NS);
	for (i = 0; i < PC_MAX_PATHS; i++)
		wide |= (__u32)(1 - pc_above(paths->path[i].transfer_ns & (2 * PC_MAX_NS - 1), most_ns)) << i;
	return wide & pc_first_paths(n);
}

/* The dead ones of the first `n` paths, as a bit set. */
POLICY_LARGE_FN __u32 pc_dead_paths(const struct pc_shared *shared, __u32 n, __u64 now_ns)
{
	__u32 dead = 0, i;

	if (!shared)
		return 0;
	for (i = 0; i < PC_MAX_PATHS; i++)
		dead |= (pc_dead(&shared->quality[i], now_ns) & (__u32)pc_above(n, i)) << i;
	return dead;
}

/* Those of the set `among` that are not dead; all of them if they all are. */
POLICY_FN __u32 pc_not_dead(const struct pc_shared *shared, __u32 n, __u32 among, __u64 now_ns)
{
	__u32 alive = among & ~pc_dead_paths(shared, n, now_ns);

	return alive | (among & -(__u32)pc_zero(alive));
}

/* Writes the table of first draws from the weights of the first `end` paths. */
POLICY_FN void pc_weigh_draws_of(const struct pc_paths *paths, struct pc_shared *shared, const struct pc_ask *ask, __u32 end)
{
	struct pc_scales scales;
	__u64 sum = 0;
	__u32 i;

	pc_scales_of(&scales, paths, shared, ask, end);
	for (i = 0; i < PC_MAX_PATHS; i++) {
		if (i < end)
			sum += ((__u64)paths->path[i].weight + 1) * pc_part_of(&scales, paths, shared, ask, i);
		shared->draws.sum[i] = sum;
	}
}

/* Computes the weights of first draws among those of the first `n` of `paths` that are in the set `among`; returns 0. */
POLICY_LARGE_FN __u32 pc_weigh_draws(const struct pc_paths *paths, struct pc_shared *shared, __u32 n, __u32 among,
				     __u64 now_ns)
{
	struct pc_ask ask = { .now_ns = now_ns, .n = n, .among = among, .short_q16 = PC_Q16_ONE };

	if (!paths || !shared)
		return 0;
	if (n <= 8)
		pc_weigh_draws_of(paths, shared, &ask, 8);
	else
		pc_weigh_draws_of(paths, shared, &ask, PC_MAX_PATHS);
	shared->draws.until_ns = now_ns + PC_DRAWS_NS;
	return 0;
}

/* The path that `random` means in the table of first draws; an index below n. */
POLICY_FN __u32 pc_look_up(const struct pc_draws *draws, __u32 n, __u32 random)
{
	__u64 point = pc_scale(random, draws->sum[PC_MAX_PATHS - 1]);
	__u32 i;

	for (i = 0; i < PC_MAX_PATHS - 1; i++) {
		if (point < draws->sum[i])
			break;
	}
	return i < n ? i : 0;
}

/*
 * Draws the first path of a connection that may take any of the first `n` of `paths`, as pc_quality_draw would have done
 * within the last PC_DRAWS_NS. Yet a path that has died since is left out at once.
 */
POLICY_LARGE_FN __u32 pc_first_draw(const struct pc_paths *paths, struct pc_shared *shared, __u32 n, __u64 now_ns,
				    __u32 random)
{
	__u32 path;

	if (!paths || !shared)
		return 0;
	/* Those that seem to be from the future are not used either. */
	if (shared->draws.until_ns - now_ns - 1 < PC_DRAWS_NS) {
		path = pc_look_up(&shared->draws, n, random);
		if (!pc_dead(&shared->quality[PC_INDEX(path)], now_ns))
			return path;
	}
	pc_weigh_draws(paths, shared, n, pc_not_dead(shared, n, pc_first_paths(n), now_ns), now_ns);
	return pc_look_up(&shared->draws, n, random);
}

/* Draws the first path of a connection that may take those of the first `n` of `paths` that are in the set `allowed`. */
POLICY_FN __u32 pc_first_among(const struct pc_path *paths, __u32 n, __u32 allowed, struct pc_shared *shared,
			       __u64 now_ns, __u32 random)
{
	struct pc_ask ask;

	random = pc_evenly(shared, random);
	if (allowed == pc_first_paths(n))
		return pc_first_draw((const struct pc_paths *)paths, shared, n, now_ns, random);
	ask.now_ns = now_ns;
	ask.n = n;
	ask.among = pc_not_dead(shared, n, allowed, now_ns);
	ask.random = random;
	ask.short_q16 = PC_Q16_ONE;
	return pc_quality_draw((const struct pc_paths *)paths, shared, &ask);
}

/* The shortest queue among the first `n` paths but `without`, in ns; the greatest number where there is none. */
POLICY_LARGE_FN __u32 pc_shortest_queue(const struct pc_shared *shared, __u32 n, __u32 without, __u64 now_ns)
{
	__u64 shortest = 0xffffffff;
	__u32 i;

	if (!shared)
		return 0;
	for (i = 0; i < PC_MAX_PATHS; i++) {
		__u64 queue = pc_added(&shared->quality[i], now_ns);

		queue |= 0xffffffff & -(pc_zero(i ^ without) | (1 - pc_above(n, i)));
		shortest = pc_lesser(shortest, queue);
	}
	return (__u32)shortest;
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
