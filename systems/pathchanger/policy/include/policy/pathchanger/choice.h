/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which path a connection takes when it leaves its own: which ones can be drawn, how it is drawn, and what the
 * connection learns of the path that it was on.
 */
#ifndef SIDESTEP_POLICY_PATHCHANGER_CHOICE_H
#define SIDESTEP_POLICY_PATHCHANGER_CHOICE_H

#include "state.h"

/*
 * The paths that a decision may lead to, as a bit set that is never empty. On congestion these are
 * the present path and those that the guard lets pass; PC_PLB leaves the present path out if there
 * are others. On a failure these are the others that the guard lets pass, or all others if it lets
 * none pass; those that have just failed are left out if any others remain.
 */
POLICY_FN __u32 pc_among(const struct pc_conn *conn, const struct pc_config *cfg,
			 const struct pc_path *paths, const struct pc_round *round, __u32 failure)
{
	__u32 here = 1u << PC_INDEX(conn->current), all = pc_all_paths(conn);
	__u32 among = all, others, i;
	__u64 limit;

	if (cfg->rtt_guard_ns) {
		limit = pc_least(paths[PC_INDEX(conn->current)].rtt_ns, PC_MAX_NS) +
			pc_least(cfg->rtt_guard_ns, PC_MAX_NS);
		if (round->rto_ns)
			limit = pc_least(limit, round->rto_ns);
		/* Halves, as pc_above takes no more than 63 bits. */
		for (i = 0; i < PC_MAX_PATHS; i++)
			among &= ~((__u32)pc_above(paths[i].rtt_ns >> 1, limit >> 1) << i);
	}
	others = among & ~here;
	if (!failure)
		return cfg->policy == PC_PLB && others ? others : among | here;
	if (others & ~conn->failed)
		return others & ~conn->failed;
	if (all & ~here & ~conn->failed)
		return all & ~here & ~conn->failed;
	return others ? others : all & ~here;
}

/* The first of the set `among` after the present path, in turn. */
POLICY_FN __u32 pc_in_turn(const struct pc_conn *conn, __u32 among)
{
	__u32 first = PC_INDEX(conn->current) + 1;
	__u32 path = first + pc_nth((among | among << (conn->n_paths & 31)) >> first & 0xffff, 0);

	return path < conn->n_paths ? path : path - conn->n_paths;
}

/* The share of draws that ignore the weights. */
POLICY_FN __u32 pc_explores(const struct pc_config *cfg)
{
	return pc_gamma(cfg) * pc_is(cfg, PC_LEARNERS & ~(1u << PC_EXP3_IX));
}

/*
 * Whether paths are drawn by the connection's weights. PC_NEXT and PC_FIXED draw once, by the initial ones;
 * PC_DELAY_WEIGHTED knows no others where it has no table.
 */
POLICY_FN __u32 pc_weighs(const struct pc_config *cfg)
{
	return pc_is(cfg, PC_LEARNERS | 1u << PC_NEXT | 1u << PC_FIXED | 1u << PC_DELAY_WEIGHTED);
}

/* A connection that has delivered this number of segments (0.7 MB) is no longer short: our choice, as most end before. */
#define PC_SHORT_SEGMENTS 500

/*
 * How far a connection is still a short one, Q16: what it has delivered shows how much it is likely to
 * send yet. Beyond PC_SHORT_SEGMENTS it falls with the square, so that those that send for long soon
 * take all paths that have room.
 */
POLICY_FN __u32 pc_short(const struct pc_round *round)
{
	__u64 part = (PC_SHORT_SEGMENTS << 16) / pc_most(round->delivered, PC_SHORT_SEGMENTS);

	return (__u32)((part * part) >> 16);
}

/* Draws one of the set `among`. */
POLICY_FN __u32 pc_draw(const struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths,
			const struct pc_shared *shared, __u64 now_ns, __u32 short_q16, __u32 among,
			__u32 random)
{
	struct pc_ask ask;

	if (pc_measures(cfg, shared)) {
		ask.now_ns = now_ns;
		ask.n = conn->n_paths;
		ask.among = among;
		ask.random = random;
		ask.short_q16 = short_q16;
		return pc_quality_draw((const struct pc_paths *)paths, shared, &ask);
	}
	if (pc_weighs(cfg))
		return pc_exp3_draw(&conn->exp3, conn->n_paths, pc_explores(cfg), among, random);
	return pc_nth(among, (__u32)pc_scale(random, pc_bits(among)));
}

/* What the present path has earned since the last decision, Q16. */
POLICY_FN __u32 pc_earned(const struct pc_conn *conn, const struct pc_config *cfg,
			  const struct pc_path *paths, const struct pc_round *round)
{
	const struct pc_path *path = &paths[PC_INDEX(conn->current)];
	__u32 kind = cfg->policy == PC_LOWEST_RTT ? PC_RTT : cfg->reward;
	__u64 part, whole = path->bdp_bytes;

	if (kind == PC_RTT) {
		part = pc_least(conn->lowest_rtt_ns, PC_MAX_NS);
		/* Where no path's round trip is known, every path earns the full reward. */
		whole = part ? pc_mean_of(&conn->rtt, round->srtt_ns) : 0;
		part += !part;
	} else if (kind == PC_RATE) {
		part = pc_bytes_per_rtt(&conn->rate, round, path->rtt_ns);
	} else {
		part = pc_mean_of(&conn->cwnd, round->cwnd_bytes);
	}
	/* Reordering passes for loss, which halves the window (RFC 5681, section 3.1). */
	return pc_part(part, whole) >> conn->reordered;
}

/* The set `among` without dead paths, or the whole of it if all are dead. */
POLICY_FN __u32 pc_alive(const struct pc_conn *conn, const struct pc_config *cfg,
			 const struct pc_shared *shared, __u64 now_ns, __u32 among)
{
	return pc_measures(cfg, shared) ? pc_not_dead(shared, conn->n_paths, among, now_ns) : among;
}

/* Bytes of the transfer that pc_path.transfer_ns is of, and a quarter more: our choice, as no rate is known better. */
#define PC_WIDE_BYTES 20000

/*
 * The set `among` without the paths that are narrower, by a fifth at least, than the rate that the
 * connection has where it is: one that is alone on a wide path gains nothing on a narrow one, however
 * idle that is. The present path stays.
 */
POLICY_FN __u32 pc_wide(const struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths,
			const struct pc_shared *shared, const struct pc_round *round, __u32 among)
{
	if (!pc_measures(cfg, shared) || !round->srtt_ns)
		return among;
	return among & (pc_wide_paths((const struct pc_paths *)paths, conn->n_paths,
				      PC_WIDE_BYTES * pc_least(round->srtt_ns, PC_MAX_NS) / (round->cwnd_bytes + 1)) |
			1u << PC_INDEX(conn->current));
}

POLICY_FN void pc_set_weights(struct pc_conn *conn, const struct pc_path *paths,
			      const struct pc_shared *shared)
{
	pc_weigh(&conn->exp3, (const struct pc_paths *)paths, conn->n_paths, shared);
}

/* Takes `path`, and notes how probable it was among those of a set. */
POLICY_FN void pc_take(struct pc_conn *conn, const struct pc_config *cfg, __u32 among, __u32 path)
{
	conn->current = path;
	if (pc_learns(cfg))
		conn->chance_q32 = pc_exp3_chance(&conn->exp3, conn->n_paths, pc_explores(cfg), among, path);
}

/* The connection sends on its path from now on. */
POLICY_FN void pc_begin(const struct pc_conn *conn, const struct pc_config *cfg, struct pc_shared *shared,
		      __u64 now_ns)
{
	struct pc_quality *quality = pc_quality_of(cfg, shared, conn->current);

	if (quality)
		pc_try(quality, now_ns);
}

/*
 * Credits the present path with what it has earned; on a failure that is nothing. What other
 * connections have learnt since it was drawn must not change how probable it was then.
 */
POLICY_FN void pc_learn(struct pc_conn *conn, const struct pc_config *cfg,
			const struct pc_path *paths, struct pc_shared *shared,
			const struct pc_round *round, __u32 failure)
{
	__u32 earned = failure ? 0 : pc_earned(conn, cfg, paths, round);
	__s64 step;

	if (cfg->policy == PC_EXP3_IX)
		step = -pc_exp3_loss(pc_gamma(cfg), conn->chance_q32, PC_Q16_ONE - earned);
	else
		step = pc_exp3_gain(conn->n_paths, pc_gamma(cfg), conn->chance_q32, earned);
	if (shared)
		pc_shared_add(shared, conn->n_paths, conn->current, step);
	else
		pc_exp3_add(&conn->exp3, conn->current, step);
}

/* The connection goes on on `path`, one of the set `among`: its own or another. */
POLICY_FN void pc_go(struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths,
		     struct pc_shared *shared, const struct pc_round *round, __u32 among, __u32 path,
		     struct pc_decision *decision)
{
	pc_restart(conn);
	decision->decided = 1;
	decision->moved = path != conn->current;
	decision->path = path;
	if (decision->moved) {
		pc_share_clear(&conn->share);
		conn->settling = cfg->settle_rounds;
		conn->reordered = cfg->reorder_guard &&
				  pc_reorders(round, paths[PC_INDEX(conn->current)].rtt_ns,
					      paths[PC_INDEX(path)].rtt_ns);
	}
	pc_take(conn, cfg, among, path);
	if (decision->moved)
		pc_begin(conn, cfg, shared, round->now_ns);
	conn->decisions++;
	conn->moves += decision->moved;
}

/* Acts on a signal. */
POLICY_FN void pc_decide(struct pc_conn *conn, const struct pc_config *cfg,
			 const struct pc_path *paths, struct pc_shared *shared,
			 const struct pc_round *round, __u32 failure, __u32 random,
			 struct pc_decision *decision)
{
	__u32 among = pc_among(conn, cfg, paths, round, failure), here = 1u << PC_INDEX(conn->current), alone, path;

	shared = pc_table(cfg, shared);
	if (pc_learns(cfg))
		pc_learn(conn, cfg, paths, shared, round, failure);
	if (shared && pc_learns(cfg))
		pc_set_weights(conn, paths, shared);
	if (!failure)
		among = pc_wide(conn, cfg, paths, shared, round, among);
	alone = (__u32)pc_zero(among ^ here);
	among = pc_alive(conn, cfg, shared, round->now_ns, among);
	/* 1 if none but the present path is left, and was not before the dead were left out. */
	alone = (__u32)pc_zero(among ^ here) & ~alone;
	if (cfg->policy == PC_NEXT)
		path = pc_in_turn(conn, among);
	else
		path = pc_draw(conn, cfg, paths, shared, round->now_ns, pc_short(round), among, random);
	decision->stay = (__u32)pc_choose(PC_DREW_SAME, PC_OTHERS_DEAD, alone) & (__u32)-pc_zero(path ^ conn->current);
	pc_go(conn, cfg, paths, shared, round, among, path, decision);
}

#endif
