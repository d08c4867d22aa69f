/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Congestion: marked rounds are counted, queues that stand are found, and a signal is acted on. */
#ifndef SIDESTEP_POLICY_PATHCHANGER_CONGESTION_H
#define SIDESTEP_POLICY_PATHCHANGER_CONGESTION_H

#include "gain.h"

POLICY_FN void pc_congestion(struct pc_conn *conn, const struct pc_config *cfg,
			     const struct pc_path *paths, struct pc_shared *shared,
			     const struct pc_round *round, __u32 random, struct pc_decision *decision)
{
	if (!pc_can_move(conn, cfg)) {
		pc_cannot_move(conn, cfg, decision);
		return;
	}
	if (pc_is(cfg, 1u << PC_NEXT | 1u << PC_PLB)) {
		pc_ignore(conn, decision, PC_BY_POLICY);
		return;
	}
	if (!pc_may_gain(conn, cfg, paths, shared, round, decision->reason)) {
		pc_ignore(conn, decision, PC_NO_GAIN);
		return;
	}
	if (!pc_backoff_signal(&conn->congestion, cfg->congestion_min_ns, round->now_ns)) {
		pc_ignore(conn, decision, PC_BACK_OFF);
		return;
	}
	pc_decide(conn, cfg, paths, shared, round, 0, random, decision);
	pc_backoff_decided(&conn->congestion, cfg->congestion_max_ns, round->now_ns,
			   cfg->jitter_q16, pc_remix(random));
}

/* Congested rounds among the last ce_window. */
POLICY_FN __u32 pc_congested_rounds(const struct pc_conn *conn, const struct pc_config *cfg)
{
	__u32 window = cfg->ce_window > cfg->ce_rounds ? cfg->ce_window : cfg->ce_rounds;

	return pc_bits(conn->ce_history & (window < 64 ? (1ULL << window) - 1 : ~0ULL));
}

/*
 * Counts the rounds in a row that met a queue of at least a quarter of the path's lowest round trip and
 * 4 ms, at least twice as long as the shortest on another path; returns 1, and begins again, when they
 * are cfg->queue_rounds. The quarter and the double are our choice: less is jitter, or nothing is gained.
 *
 * A short connection has no time for that where a path is much slower than another. So until its first
 * decision a queue of n times that length counts as n^2 rounds, and the decision does not wait.
 */
POLICY_FN __u64 pc_queue_stands(struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths,
				const struct pc_shared *shared, const struct pc_round *round)
{
	__u32 here = PC_INDEX(conn->current);
	__u64 lowest = pc_lowest(&paths[here], &shared->quality[here]);
	__u64 queue = pc_since(pc_lesser(round->srtt_ns, PC_MAX_NS), lowest), least = PC_QUEUE_MIN_NS + lowest / 4;
	__u64 other = pc_shortest_queue(shared, conn->n_paths, here, round->now_ns), rounds, stands, begins, times_q2;

	stands = (1 - pc_zero(lowest)) & (1 - pc_above(least, queue)) & (1 - pc_above(2 * other, queue));
	begins = pc_zero(conn->decisions) & pc_above(PC_SHORT_SEGMENTS, round->delivered);
	times_q2 = pc_lesser(4 * queue / least, 64);
	rounds = (conn->queue_rounds + pc_choose(1, (times_q2 * times_q2) >> 4, begins)) * stands;
	stands &= 1 - pc_above(cfg->queue_rounds, rounds);
	conn->queue_rounds = (__u32)(rounds * (1 - stands));
	conn->congestion.next_ns *= 1 - (begins & stands);
	return stands;
}

#endif
