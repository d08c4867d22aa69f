/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How an edge router chooses one of n paths for a flow, without state: by the flow's symmetric hash, so
 * that both directions take the same path, and the edges at both ends of the paths choose alike.
 *
 * Modulo: the path at the position that is the hash's remainder. It is what the paper on SEMPER does.
 * When the number of paths changes from n to n + 1, only one flow in n + 1 stays where it is.
 *
 * Rendezvous (highest random weight: Thaler and Ravishankar, 1998): each path draws a number from the
 * hash and from the path's identity, and the greatest wins. When a path goes, only its own flows move;
 * when one comes, it takes its share and nothing else moves. The order of the paths does not matter.
 *
 * Weighted: rendezvous by shares proportional to the weights. Each path draws from the exponential
 * distribution whose rate is its weight, -ln(u) / weight, and the least wins (Efraimidis and Spirakis,
 * 2006). A change of one weight moves flows to or from that path only.
 *
 * A path that is known to be dead is left out by the set of live ones. Its flows are chosen again among
 * the others by rendezvous, in all modes; flows of live paths stay.
 *
 * The values are frozen, as those of flow_hash.h: edges of different versions must agree.
 */
#ifndef SIDESTEP_POLICY_BALANCE_H
#define SIDESTEP_POLICY_BALANCE_H

#include "policy/flow_hash.h"
#include "policy/log2.h"

/* Most paths in a set; a bit each in the set of live ones. */
#define BALANCE_MAX_PATHS 32
#define BALANCE_INDEX(i) ((i) & (BALANCE_MAX_PATHS - 1))
/* What is chosen where there is no path at all. */
#define BALANCE_NONE 0xffffffffu
/* The set of live paths of an edge that does not know which are dead. */
#define BALANCE_ALL 0xffffffffu

enum balance_mode {
	BALANCE_MODULO,
	BALANCE_RENDEZVOUS,
	BALANCE_WEIGHTED,
};

struct balance_path {
	__u32 id; /* the path's identity, the same number at both edges; no two paths share one */
	__u32 weight; /* relative to the others'; 0: no flows while another live path has a weight */
};
_Static_assert(sizeof(struct balance_path) == 8, "shared with Rust");

/* What both edges have to have alike, but for `generation`, which shows whose set is the newer one. */
struct balance_set {
	__u64 generation;
	__u32 mode; /* enum balance_mode; any other number counts as rendezvous */
	__u32 seed; /* of the flow hash */
	__u32 n; /* how many paths; more than BALANCE_MAX_PATHS count as that many */
	__u32 unused;
	struct balance_path path[BALANCE_MAX_PATHS];
};
_Static_assert(sizeof(struct balance_set) == 280, "shared with Rust");

/* The flow's hash, which is the same for both directions. Leave out the flow label: they have different ones. */
POLICY_FN __u32 balance_hash(const struct balance_set *set, const struct flow_hash_key *key)
{
	return flow_hash(key, set->seed, 1);
}

POLICY_FN __u32 balance_count(const struct balance_set *set)
{
	return (__u32)pc_least(set->n, BALANCE_MAX_PATHS);
}

/* The set's paths that are in the bit set `live`. If none is, all: a path that counts as dead is better than none. */
POLICY_FN __u32 balance_usable(const struct balance_set *set, __u32 live)
{
	__u32 all = (__u32)((1ULL << balance_count(set)) - 1);

	live &= all;
	return live | (all & (0 - (__u32)pc_zero(live)));
}

/* The number, uniform in 32 bits, that the path of this identity draws for a flow. */
POLICY_FN __u32 balance_draw(__u32 hash, __u32 id)
{
	return pc_mix(flow_hash_add(hash, id));
}

/* The greatest draw's path; equal draws go to the greater identity. `usable` has a path of the set. */
POLICY_LARGE_FN __u32 balance_rendezvous(const struct balance_set *set, __u32 usable, __u32 hash)
{
	__u64 best = 0, draw, better;
	__u32 i, best_id = 0, chosen = 0;

	if (!set)
		return BALANCE_NONE;
	for (i = 0; i < BALANCE_MAX_PATHS && i < set->n; i++) {
		__u32 id = set->path[i].id;

		/* 0 where the path must not be used */
		draw = (1 + (__u64)balance_draw(hash, id)) & (0 - (__u64)(usable >> i & 1));
		better = pc_above(draw, best);
		better |= pc_zero(draw ^ best) & pc_above(id, best_id) & (1 - pc_zero(draw));
		best = pc_choose(best, draw, better);
		best_id = (__u32)pc_choose(best_id, id, better);
		chosen = (__u32)pc_choose(chosen, i, better);
	}
	return chosen;
}

/*
 * What a path pays for a draw u in 0..2^32: -log2((u + 1) / 2^32), Q25, 1..2^30 + 1. The addition outweighs
 * the logarithm's error, so that it is never below 1; the number is exact to 2^-24.
 */
POLICY_FN __u64 balance_cost(__u32 draw)
{
	__u64 log = (__u64)pc_log2(draw | (__u32)pc_zero(draw));

	return ((32ULL << 32) + 256 - log) >> 7;
}

/*
 * The path of the least cost for its weight; equal ones go to the greater identity. BALANCE_NONE if no
 * usable path has a weight.
 */
POLICY_LARGE_FN __u32 balance_weighted(const struct balance_set *set, __u32 usable, __u32 hash)
{
	__u64 best_cost = 1, best_weight = 0, cost, weight, mine, theirs, better;
	__u32 i, best_id = 0, chosen = BALANCE_NONE;

	if (!set)
		return BALANCE_NONE;
	for (i = 0; i < BALANCE_MAX_PATHS && i < set->n; i++) {
		__u32 id = set->path[i].id;

		weight = set->path[i].weight & (0 - (usable >> i & 1));
		cost = balance_cost(balance_draw(hash, id));
		/* cost / weight < best_cost / best_weight, of numbers below 2^63 */
		mine = cost * best_weight;
		theirs = best_cost * weight;
		better = pc_above(theirs, mine);
		better |= pc_zero(theirs ^ mine) & pc_above(id, best_id) & (1 - pc_zero(weight));
		best_cost = pc_choose(best_cost, cost, better);
		best_weight = pc_choose(best_weight, weight, better);
		best_id = (__u32)pc_choose(best_id, id, better);
		chosen = (__u32)pc_choose(chosen, i, better);
	}
	return chosen;
}

/*
 * The position of the flow's path in the set, below n; BALANCE_NONE if the set is empty. `live` has a bit
 * for each path that is not known to be dead; BALANCE_ALL leaves flows on dead paths.
 */
POLICY_LARGE_FN __u32 balance_choose(const struct balance_set *set, __u32 live, __u32 hash)
{
	__u32 usable, chosen;

	if (!set || !set->n)
		return BALANCE_NONE;
	usable = balance_usable(set, live);
	if (set->mode == BALANCE_MODULO) {
		chosen = flow_hash_pick(hash, balance_count(set));
		if (usable >> BALANCE_INDEX(chosen) & 1)
			return chosen;
	}
	if (set->mode == BALANCE_WEIGHTED) {
		chosen = balance_weighted(set, usable, hash);
		if (chosen != BALANCE_NONE)
			return chosen;
	}
	return balance_rendezvous(set, usable, hash);
}

/*
 * The live path after the one at position `last`, in turn; BALANCE_NONE if the set is empty. Edges that
 * keep a table of subflows assign a host's next one so.
 */
POLICY_FN __u32 balance_next(const struct balance_set *set, __u32 live, __u32 last)
{
	__u32 usable = balance_usable(set, live), after;

	if (!set->n)
		return BALANCE_NONE;
	after = usable & ~(__u32)((2ULL << BALANCE_INDEX(last)) - 1);
	after |= usable & (0 - (__u32)pc_zero(after));
	/* The position of the lowest bit. */
	return pc_bits((after & (0 - after)) - 1);
}

POLICY_FN __u32 balance_digest_half(const struct balance_set *set, __u32 hash)
{
	__u32 i;

	hash = flow_hash_add(hash, 1); /* the version of what is digested */
	hash = flow_hash_add(hash, set->mode);
	hash = flow_hash_add(hash, set->seed);
	hash = flow_hash_add(hash, balance_count(set));
	for (i = 0; i < BALANCE_MAX_PATHS && i < set->n; i++) {
		hash = flow_hash_add(hash, set->path[i].id);
		hash = flow_hash_add(hash, set->path[i].weight);
	}
	return pc_mix(hash);
}

/*
 * A number for mode, seed, and the paths' order, identities and weights. Edges whose sets have the same
 * one choose alike, as far as they also agree on what is live. It finds mistakes, not forgeries.
 */
POLICY_FN __u64 balance_digest(const struct balance_set *set)
{
	return (__u64)balance_digest_half(set, PC_GOLDEN) << 32 | balance_digest_half(set, 0);
}

#endif
