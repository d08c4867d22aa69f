/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whether another path gives a connection more than its own (PC_DELAY_WEIGHTED).
 *
 * A connection that sends for long meets congestion on each path that it fills, also where it is alone. To leave then
 * gains nothing, and a path that is left takes seconds to be filled again. So it measures its share of the path in
 * rounds in which that is full: those with a mark, a loss or a queue. It compares the rate that it has with what other
 * paths would give:
 *
 *   room    what is not in use of a path's rate, by the controller's report, less what is not in use of its own
 *   joined  1 / (1 / rate + 1 / y), where connections of this host recently had y each while the path was full: with k
 *           that share it alike, y is rate / k, and this is rate / (k + 1)
 *
 * It leaves if that is an eighth more; or a quarter less at most, if the other path is idle and its own is shared, as an
 * idle path adds to what all have. Others see the same, so each leaves with the probability
 *
 *   max(1/4, 1 - mine / offered) * min(1/2, share)
 *
 * in each epoch: of k that share a path, about one (Fischer, Raecke, Voecking, "Fast convergence to Wardrop equilibria
 * by adaptive sampling methods", 2006, move by the relative gain as well).
 *
 * Without reports, a connection that shares its path now and then tries a path on which no connection of this host lately
 * was. What it had before is remembered: if that was better, it goes back, by the same rule without the share.
 */
#ifndef SIDESTEP_POLICY_PATHCHANGER_GAIN_H
#define SIDESTEP_POLICY_PATHCHANGER_GAIN_H

#include "choice.h"

/* About a second, as often as the controller reports what is in use; and some round trips, as a share is of a round. */
#define PC_EPOCH_NS (1ULL << 30)
#define PC_EPOCH_ROUNDS 8
/* A queue of a 16th of the lowest round trip and 1 ms is none that jitter makes: our choice. */
#define PC_FULL_QUEUE_NS (1ULL << 20)
/* With fewer epochs on a path nothing is known of it: in the first one it may still have met what came before. */
#define PC_EPOCHS 2
/* What a connection of this host had of a path is known for so long (8.6 s): our choice, some times an epoch. */
#define PC_RATE_AGE_NS (1ULL << 33)
/*
 * What another path must give, in eighths of what the connection has: more, or on an idle path a little less, if it shares
 * its own. Our choice: an idle path adds to what all get, and shares of congestion controls vary by themselves.
 */
#define PC_MORE_Q3 9
#define PC_IDLE_Q3 6
/*
 * A path counts as full if the controller reports that at most so many eighths of its rate are not in use. Our choice: as
 * much as a congestion control leaves where the queue is short.
 */
#define PC_FULL_ROOM_Q3 3

/* Bytes a second of a path; 0: not known. A transfer is of 16 kB (pc_path). */
POLICY_FN __u64 pc_rate_of(const struct pc_path *path)
{
	__u64 transfer_ns = path->transfer_ns;

	return 16000000000000ULL / (transfer_ns + pc_zero(transfer_ns)) * (1 - pc_zero(transfer_ns));
}

/* Bytes a second that a share of a path is. */
POLICY_FN __u64 pc_rate_at(const struct pc_path *path, __u32 share_q16)
{
	return ((pc_rate_of(path) >> 8) * (share_q16 & (4 * PC_Q16_ONE - 1))) >> 8;
}

/* What share of a path `bytes` in `ns` are, Q16, at most 2. */
POLICY_FN __u32 pc_share_of(const struct pc_path *path, __u64 bytes, __u64 ns)
{
	/* The time that they take at the path's rate: cut, so that no product overflows. */
	__u64 needed = pc_lesser(bytes, 0xffffffff) * pc_lesser(path->transfer_ns & (PC_MAX_NS - 1), 0x7fffffff) / 16000;

	return (__u32)pc_lesser((pc_lesser(needed, PC_MAX_NS) << 16) / (ns + pc_zero(ns)), 2 * PC_Q16_ONE);
}

/*
 * A round of a connection has ended on this path; the counters are still those at its start. In slow start a round
 * delivers twice the one before, and its bursts queue where there is room. Returns 0.
 */
POLICY_LARGE_FN __u32 pc_share_round(struct pc_conn *conn, const struct pc_path *path, const struct pc_quality *quality,
				     const struct pc_round *round)
{
	__u64 lowest, queue, full, steady;
	__u32 delivered, marked, share;

	if (!conn || !path || !quality || !round)
		return 0;
	delivered = round->delivered - conn->delivered;
	marked = round->delivered_ce - conn->delivered_ce;
	lowest = pc_lowest(path, quality);
	queue = pc_since(pc_lesser(round->srtt_ns, PC_MAX_NS), lowest);
	full = (1 - pc_zero(marked)) | (1 - pc_zero(conn->lost)) |
	       ((1 - pc_zero(lowest)) & pc_above(queue, PC_FULL_QUEUE_NS + lowest / 16));
	steady = pc_above(3 * (__u64)conn->share.delivered, 2 * (__u64)delivered);
	share = pc_share_of(path, (__u64)delivered * round->mss, pc_since(round->now_ns, conn->round_ns));
	share *= (__u32)(full & steady);
	conn->share.most_q16 = (__u32)pc_choose(conn->share.most_q16, share, pc_above(share, conn->share.most_q16));
	conn->share.delivered = delivered;
	return 0;
}

/* An epoch has ended, in which the path was full at times: takes what the connection had of it; returns 1. */
POLICY_LARGE_FN __u32 pc_share_epoch(struct pc_share *share, const struct pc_path *path, struct pc_quality *quality,
				     const struct pc_round *round)
{
	__u64 least, rate;
	__u32 most;

	if (!share || !path || !quality || !round)
		return 0;
	least = pc_most(PC_EPOCH_NS, PC_EPOCH_ROUNDS * pc_least(round->srtt_ns, PC_MAX_NS));
	most = share->most_q16;
	if (!share->epoch_ns)
		share->epoch_ns = round->now_ns;
	if (pc_since(round->now_ns, share->epoch_ns) < least)
		return 0;
	share->epoch_ns = round->now_ns;
	share->most_q16 = 0;
	if (!most)
		return 0;
	share->mean_q16 = share->epochs ? (share->mean_q16 + most) / 2 : most;
	share->epochs += share->epochs < PC_EPOCHS;
	rate = pc_rate_at(path, share->mean_q16);
	if (pc_since(round->now_ns, quality->rate_ns) < PC_RATE_AGE_NS)
		rate = (3 * (quality->rate & (PC_MAX_NS - 1)) + rate) / 4;
	quality->rate = rate;
	quality->rate_ns = round->now_ns;
	return 1;
}

/* 1 if a connection with this share has less than two thirds of its path: others may have as much. */
POLICY_FN __u64 pc_shares_path(__u32 share_q16)
{
	return pc_above(2 * PC_Q16_ONE, 3 * (__u64)share_q16);
}

/* 1 if a path is reported to be full. */
POLICY_FN __u64 pc_reported_full(const struct pc_path *path)
{
	return 1 - pc_above(8 * (path->room & (PC_MAX_NS - 1)), PC_FULL_ROOM_Q3 * pc_rate_of(path));
}

/*
 * 1 if no use of a connection's own path is reported, although it fills that at times: then no controller reports. A 16th is
 * for rounding.
 */
POLICY_FN __u64 pc_unreported(const struct pc_path *path)
{
	return 1 - pc_above(15 * pc_rate_of(path), 16 * (path->room & (PC_MAX_NS - 1)));
}

/*
 * Whether a connection tries an unknown path in this epoch: in one of 16, and after each move half as often, down to one of
 * 256. Our choice: what is found soon serves for longest, and each try costs goodput.
 */
#define PC_LOOK_BITS 4
POLICY_FN __u32 pc_looks(const struct pc_conn *conn, __u32 random)
{
	__u32 bits = PC_LOOK_BITS + (__u32)pc_lesser(conn->moves, PC_LOOK_BITS);

	return (__u32)pc_zero(pc_remix(~random) >> (32 - bits));
}

/* What other paths offer to a connection. */
struct pc_offer {
	__u64 now_ns;
	__u32 here; /* its path */
	__u32 share_q16; /* what it has of that */
	__u32 among; /* the paths that it may take, as a bit set */
	__u32 looks; /* 1: without reports, it may take one of which nothing is known */
	__u32 tried; /* 1: without reports, it came to its path: only this host knows what it had before, so no crowd goes back */
	__u32 random;
};

/* What offers are compared with. */
struct pc_own {
	__u64 mine; /* bytes a second that the connection has */
	__u64 reported; /* 1: what is not in use of paths is known */
	__u64 room; /* bytes a second of its path that are not in use although connections would send more */
	__u64 shares; /* 1: it has not its own path for itself */
};

/* What path `i` gives to one connection more, in bytes a second, below 2^46; 0 if that is too little. */
POLICY_FN __u64 pc_offered(const struct pc_paths *paths, const struct pc_shared *shared, const struct pc_offer *offer,
			   const struct pc_own *own, __u32 i)
{
	const struct pc_quality *quality = &shared->quality[i];
	__u64 rate = pc_rate_of(&paths->path[i]), had = quality->rate & (PC_MAX_NS - 1), joined, room, offered, wanted;

	/* Thousands of bytes, so that the product has room. */
	joined = (rate >> 10) * (had >> 10) / ((rate >> 10) + (had >> 10) + 1) << 10;
	joined *= pc_above(PC_RATE_AGE_NS, pc_since(offer->now_ns, quality->rate_ns));
	room = pc_since(pc_lesser(paths->path[i].room & (PC_MAX_NS - 1), rate), own->room) * own->reported;
	offered = pc_choose(joined, room, pc_above(room, joined)) * (offer->among >> i & 1);
	wanted = pc_choose(PC_MORE_Q3, PC_IDLE_Q3, own->shares & pc_above(4 * room, 3 * rate));
	return offered * (1 - pc_above(wanted * own->mine, 8 * offered));
}

/*
 * Draws one of the paths that give enough, by what they give, and whether the connection goes there; returns
 * PC_MAX_PATHS if it stays.
 */
POLICY_LARGE_FN __u32 pc_best_offer(const struct pc_paths *paths, const struct pc_shared *shared,
				    const struct pc_offer *offer)
{
	__u64 total = 0, best = 0, point, passed = 0, chance_q16;
	__u32 i, path = 0, unknown = 0;
	const struct pc_path *here;
	struct pc_own own;

	if (!paths || !shared || !offer)
		return PC_MAX_PATHS;
	here = &paths->path[PC_INDEX(offer->here)];
	own.mine = pc_rate_at(here, offer->share_q16);
	own.shares = pc_shares_path(offer->share_q16);
	/* Its own path is full: if that is not reported, nothing is. */
	own.reported = pc_reported_full(here);
	own.room = here->room & (PC_MAX_NS - 1);
	for (i = 0; i < PC_MAX_PATHS; i++) {
		__u64 offered = pc_offered(paths, shared, offer, &own, i);

		best = pc_choose(best, offered, pc_above(offered, best));
		total += offered;
		unknown |= (__u32)(1 - pc_above(PC_RATE_AGE_NS, pc_since(offer->now_ns, shared->quality[i].rate_ns))) << i;
	}
	unknown &= offer->among & -(offer->looks & (__u32)(pc_zero(total) & own.shares));
	if (unknown)
		return pc_nth(unknown, (__u32)pc_scale(pc_remix(offer->random), pc_bits(unknown)));
	chance_q16 = PC_Q16_ONE - pc_lesser((own.mine << 16) / (best + 1), 3 * PC_Q16_ONE / 4);
	chance_q16 = (chance_q16 * pc_choose(pc_lesser(offer->share_q16, PC_Q16_ONE / 2), PC_Q16_ONE, offer->tried)) >> 16;
	if (!total || offer->random >> 16 >= chance_q16)
		return PC_MAX_PATHS;
	point = pc_scale(pc_remix(offer->random), total);
	for (i = 0; i < PC_MAX_PATHS - 1; i++) {
		passed += pc_offered(paths, shared, offer, &own, i);
		path += 1 - (__u32)pc_above(passed, point);
	}
	return path;
}

/* What was delivered on a path so long ago (17 s) shows nothing of it now: our choice, some half-lives of a queue. */
#define PC_KNOWN_NS (1ULL << 34)

/* Those of the first `n` paths on which something was delivered recently, as a bit set. */
POLICY_LARGE_FN __u32 pc_known_paths(const struct pc_shared *shared, __u32 n, __u64 now_ns)
{
	__u32 known = 0, i;

	if (!shared)
		return 0;
	for (i = 0; i < PC_MAX_PATHS; i++) {
		__u64 delivered_ns = shared->quality[i].delivered_ns;

		known |= (__u32)(pc_above(PC_KNOWN_NS, pc_since(now_ns, delivered_ns)) & (1 - pc_zero(delivered_ns))) << i;
	}
	return known & pc_first_paths(n);
}

/* Whether a policy, with a table, goes by what a path gives. */
POLICY_FN __u32 pc_guards_gain(const struct pc_config *cfg, const struct pc_shared *shared, const struct pc_path *path)
{
	return cfg->gain_guard && pc_measures(cfg, shared) && path->transfer_ns;
}

/* Those of the first `n` paths that are another choice than path `here`: by an eighth nearer or farther, or faster. */
POLICY_LARGE_FN __u32 pc_unlike_paths(const struct pc_paths *paths, __u32 n, __u32 here)
{
	__u64 rtt_ns, transfer_ns;
	__u32 unlike = 0, i;

	if (!paths)
		return 0;
	rtt_ns = pc_lesser(paths->path[PC_INDEX(here)].rtt_ns, PC_MAX_NS);
	transfer_ns = pc_lesser(paths->path[PC_INDEX(here)].transfer_ns, PC_MAX_NS);
	for (i = 0; i < PC_MAX_PATHS; i++) {
		__u64 rtt = pc_lesser(paths->path[i].rtt_ns, PC_MAX_NS);
		__u64 transfer = pc_lesser(paths->path[i].transfer_ns, PC_MAX_NS);

		unlike |= (__u32)(pc_above(8 * rtt, 9 * rtt_ns) | pc_above(8 * rtt_ns, 9 * rtt) |
				  pc_above(8 * transfer_ns, 9 * transfer))
			  << i;
	}
	return unlike & pc_first_paths(n);
}

/*
 * Whether a signal of congestion may move the connection. If it has sent much: not where it has the path for itself, nor
 * where the path is reported to be full, as pc_gain moves it then; on a path that has room, and yet marks or losses,
 * another may be better. Without reports pc_gain tries paths, more rarely than signals come. If it has not sent much: only
 * where something is known of other paths, for in slow start each connection overruns its path. A queue that stands is an
 * exception where paths are unlike: there more choose one than it carries.
 */
POLICY_FN __u32 pc_may_gain(const struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths,
			    const struct pc_shared *shared, const struct pc_round *round, __u32 reason)
{
	__u32 here = PC_INDEX(conn->current), others;

	if (!pc_guards_gain(cfg, shared, &paths[here]))
		return 1;
	if (round->delivered >= PC_SHORT_SEGMENTS)
		return conn->share.epochs >= PC_EPOCHS && pc_shares_path(conn->share.mean_q16) &&
		       !pc_reported_full(&paths[here]) && !pc_unreported(&paths[here]);
	others = pc_known_paths(shared, conn->n_paths, round->now_ns);
	if (reason == PC_STANDING_QUEUE)
		others |= pc_unlike_paths((const struct pc_paths *)paths, conn->n_paths, here);
	return others & ~(1u << here);
}

/* At the end of a round: leaves for a path that gives more; returns 1 if it does. */
POLICY_FN __u32 pc_gain(struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths,
			struct pc_shared *shared, const struct pc_round *round, __u32 random,
			struct pc_decision *decision)
{
	__u32 here = PC_INDEX(conn->current), path, unreported;
	struct pc_offer offer;

	if (!pc_guards_gain(cfg, pc_table(cfg, shared), &paths[here]) || round->delivered < PC_SHORT_SEGMENTS)
		return 0;
	/* Also where there is one path: another may come up. */
	if (!pc_share_epoch(&conn->share, &paths[here], &shared->quality[here], round) ||
	    conn->share.epochs < PC_EPOCHS || !pc_can_move(conn, cfg))
		return 0;
	offer.now_ns = round->now_ns;
	offer.here = here;
	offer.share_q16 = conn->share.mean_q16;
	offer.among = pc_all_paths(conn) & ~(1u << here) & ~pc_dead_paths(shared, conn->n_paths, round->now_ns);
	unreported = (__u32)pc_unreported(&paths[here]);
	offer.looks = pc_looks(conn, random) & unreported;
	offer.tried = conn->share.tried & unreported;
	offer.random = random;
	path = pc_best_offer((const struct pc_paths *)paths, shared, &offer);
	if (path >= conn->n_paths)
		return 0;
	decision->reason = PC_CROWDED;
	pc_go(conn, cfg, paths, shared, round, pc_all_paths(conn), path, decision);
	conn->share.tried = (__u16)unreported;
	return 1;
}

#endif
