/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* How a connection begins, and gets its first path: with a state, or at first without one. */
#ifndef SIDESTEP_POLICY_PATHCHANGER_OPENING_H
#define SIDESTEP_POLICY_PATHCHANGER_OPENING_H

#include "choice.h"

/* Sets all of a connection's state but its path. */
POLICY_FN void pc_prepare(struct pc_conn *conn, const struct pc_config *cfg,
			  const struct pc_path *paths, __u32 n, __u32 allowed,
			  const struct pc_shared *shared, __u64 now_ns, __u32 random)
{
	conn->n_paths = n < PC_MAX_PATHS ? n : PC_MAX_PATHS;
	conn->allowed = allowed;
	conn->current = 0;
	conn->delivered = 0;
	conn->delivered_ce = 0;
	/* At least one, as the counters may have begun before. */
	conn->settling = cfg->settle_rounds ? cfg->settle_rounds : 1;
	conn->progress = 0;
	conn->decisions = 0;
	conn->moves = 0;
	conn->suppressed = 0;
	conn->failed = 0;
	conn->chance_q32 = 0;
	conn->lowest_rtt_ns = pc_lowest_rtt(paths, conn->n_paths);
	conn->round_ns = now_ns;
	conn->plb_pause_ns = 0;
	pc_share_clear(&conn->share);
	pc_restart(conn);
	pc_backoff_open(&conn->congestion, cfg->congestion_min_ns, now_ns);
	pc_backoff_arm(&conn->congestion, now_ns, cfg->jitter_q16, pc_remix(random));
	pc_backoff_open(&conn->failure, cfg->failure_min_ns, now_ns);
	if (pc_measures(cfg, shared))
		__builtin_memset(&conn->exp3, 0, sizeof(conn->exp3));
	else
		pc_set_weights(conn, paths, shared);
}

/*
 * A new connection over those of the first `n` of `paths` (more than PC_MAX_PATHS are ignored) that are
 * in the bit set `allowed` (0: all); conn->current is its first path: the first allowed one for
 * PC_STATIC, else drawn. With no paths it stays at index 0 for good. A decision on congestion has to
 * wait once first, as there is no reward yet to learn from.
 */
POLICY_FN void pc_open_among(struct pc_conn *conn, const struct pc_config *cfg,
			     const struct pc_path *paths, __u32 n, __u32 allowed,
			     struct pc_shared *shared, __u64 now_ns, __u32 random)
{
	__u32 among;

	shared = pc_table(cfg, shared);
	pc_prepare(conn, cfg, paths, n, allowed, shared, now_ns, random);
	if (conn->n_paths < 2)
		return;
	if (cfg->policy == PC_STATIC) {
		conn->current = pc_nth(pc_all_paths(conn), 0);
		return;
	}
	among = pc_all_paths(conn);
	if (pc_measures(cfg, shared))
		conn->current = pc_first_among(paths, conn->n_paths, among, shared, now_ns, random);
	else
		pc_take(conn, cfg, among, pc_draw(conn, cfg, paths, shared, now_ns, PC_Q16_ONE, among, random));
}

/* A new connection that may take any of its paths. */
POLICY_FN void pc_open(struct pc_conn *conn, const struct pc_config *cfg,
		       const struct pc_path *paths, __u32 n, struct pc_shared *shared, __u64 now_ns,
		       __u32 random)
{
	pc_open_among(conn, cfg, paths, n, 0, shared, now_ns, random);
}

/*
 * The path set has changed under a connection, which learns again. It stays on path `kept`, of which it still has the
 * share that it had, if it may take that; PC_MAX_PATHS: its path is gone.
 */
POLICY_FN void pc_open_again(struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths, __u32 n,
			     __u32 allowed, struct pc_shared *shared, __u32 kept, __u64 now_ns, __u32 random)
{
	struct pc_share share = conn->share;

	pc_open_among(conn, cfg, paths, n, allowed, shared, now_ns, random);
	if (kept >= conn->n_paths || !(pc_all_paths(conn) >> kept & 1))
		return;
	pc_take(conn, cfg, pc_all_paths(conn), kept);
	conn->share = share;
}

/*
 * Whether a connection can begin without a state, and get one with its first signal: it draws without
 * weights of its own, and earns nothing.
 */
POLICY_FN __u32 pc_stateless(const struct pc_config *cfg, const struct pc_shared *shared)
{
	return pc_is(cfg, 1u << PC_STATIC | 1u << PC_RANDOM | 1u << PC_PLB) ||
	       (cfg->shared && pc_measures(cfg, shared));
}

/* The first path of a connection that begins without a state, as pc_open_among draws it. */
POLICY_FN __u32 pc_first(const struct pc_config *cfg, const struct pc_path *paths, __u32 n, __u32 allowed,
			 struct pc_shared *shared, __u64 now_ns, __u32 random)
{
	if (n < 2)
		return 0;
	allowed = pc_allowed(n, allowed);
	if (cfg->policy == PC_STATIC)
		return pc_nth(allowed, 0);
	if (!pc_measures(cfg, shared))
		return pc_nth(allowed, (__u32)pc_scale(random, pc_bits(allowed)));
	return pc_first_among(paths, n, allowed, shared, now_ns, random);
}

/*
 * The SYN of a new connection is about to leave on `path`. Only now it tries a path that had failed: a
 * connection that is accepted may do nothing but receive, and prove nothing.
 */
POLICY_FN void pc_ask_on(const struct pc_config *cfg, struct pc_shared *shared, __u32 path, __u64 now_ns)
{
	struct pc_quality *quality = pc_quality_of(cfg, pc_table(cfg, shared), path);

	if (!quality)
		return;
	pc_try(quality, now_ns);
	pc_asked(quality, now_ns);
}

/*
 * After what time the SYN of a connection that leaves on `path` now must be sent again if no answer comes, in ns; 0:
 * after Linux's own.
 */
POLICY_FN __u64 pc_syn_rto(const struct pc_config *cfg, struct pc_shared *shared, __u32 path, __u64 now_ns)
{
	const struct pc_quality *quality = pc_quality_of(cfg, pc_table(cfg, shared), path);

	return quality ? pc_answer_time(quality, now_ns) : 0;
}

/*
 * How many times more than Linux would a SYN with such a timeout is sent: timeouts double, and the connection is not to
 * be given up before.
 */
POLICY_FN __u32 pc_syn_retries(__u64 rto_ns)
{
	__u32 more = 0, i;

	for (i = 0; i < 4; i++)
		more += (__u32)pc_above(PC_SYN_RTO_NS, rto_ns << i);
	return more;
}

/* The SYN of a new connection is about to leave, at the time that was passed to pc_open. */
POLICY_FN void pc_connect(const struct pc_conn *conn, const struct pc_config *cfg, struct pc_shared *shared)
{
	pc_ask_on(cfg, shared, conn->current, conn->round_ns);
}

/*
 * A round trip of a connection without a state has ended on path `current`. Measures it and returns 1;
 * but if the connection now needs a state, as it met marks or a queue, returns 0 and leaves the round
 * to pc_resume and pc_round.
 */
POLICY_FN __u32 pc_uneventful(const struct pc_config *cfg, const struct pc_path *paths,
			      struct pc_shared *shared, __u32 current, const struct pc_round *round)
{
	struct pc_quality *quality = pc_quality_of(cfg, pc_table(cfg, shared), current);
	__u32 segments;
	__u64 lowest;

	if (round->delivered_ce)
		return 0;
	if (!quality || !round->srtt_ns)
		return 1;
	lowest = pc_lowest(&paths[PC_INDEX(current)], quality);
	if (cfg->queue_rounds && lowest &&
	    pc_since(pc_lesser(round->srtt_ns, PC_MAX_NS), lowest) >= PC_QUEUE_MIN_NS + lowest / 4)
		return 0;
	/* How many segments the round had is not known: as many as are in flight now, if that shows anything. */
	segments = round->delivered > 1 ? (__u32)pc_most(2, pc_least(round->delivered, round->in_flight)) : 1;
	pc_delivered(quality, round->now_ns, round->srtt_ns, segments, 0);
	return 1;
}

/*
 * The first signal of a connection that began without a state, about `began_ns`, and is on path
 * `current`: gives it the state that it would have by now. No round before had marks. How much was
 * delivered before this round is not known: a round delivers about a window.
 */
POLICY_FN void pc_resume(struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths,
			 __u32 n, __u32 allowed, const struct pc_shared *shared,
			 const struct pc_round *round, __u64 began_ns, __u32 random, __u32 current)
{
	__u64 window = round->cwnd_bytes / (round->mss ? round->mss : 1);

	shared = cfg->shared ? shared : 0;
	pc_prepare(conn, cfg, paths, n, allowed, shared, began_ns, random);
	pc_take(conn, cfg, pc_all_paths(conn), current);
	if (!round->srtt_ns)
		return;
	conn->settling = 0;
	conn->delivered = round->delivered - (__u32)pc_lesser(round->delivered, window);
}

#endif
