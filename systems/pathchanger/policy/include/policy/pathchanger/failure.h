/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Failures: the path may be dead. The connection leaves it, and others learn of it. */
#ifndef SIDESTEP_POLICY_PATHCHANGER_FAILURE_H
#define SIDESTEP_POLICY_PATHCHANGER_FAILURE_H

#include "choice.h"
#include "plb.h"

/* Failures count again from zero once something was delivered or received. */
POLICY_FN void pc_progress(struct pc_conn *conn, const struct pc_round *round)
{
	__u32 progress = round->delivered + round->received;

	if (progress != conn->progress) {
		conn->timeouts = 0;
		conn->failed = 0;
	}
	conn->progress = progress;
}

/*
 * A failure of a connection that no signal can move. Others must know of it, as it does not prove by a move that the
 * path is dead for it alone.
 */
POLICY_FN void pc_stranded(struct pc_conn *conn, const struct pc_config *cfg, struct pc_quality *quality,
			   const struct pc_round *round, struct pc_decision *decision)
{
	__u32 how = (decision->reason == PC_ACK_LOSS ? PC_FAILED_ACKS : 0) | PC_FAILED_STRANDED;

	if (conn->n_paths < 2)
		how |= PC_FAILED_ALONE;
	if (quality)
		pc_failed(quality, round->now_ns, round->srtt_ns, how);
	pc_cannot_move(conn, cfg, decision);
}

/* Acts on a failure signal: the path has earned nothing. */
POLICY_FN void pc_failure(struct pc_conn *conn, const struct pc_config *cfg,
			  const struct pc_path *paths, struct pc_shared *shared,
			  const struct pc_round *round, __u32 random, struct pc_decision *decision)
{
	__u32 here = 1u << PC_INDEX(conn->current), due, leave = 1;
	struct pc_shared *table = pc_table(cfg, shared);
	struct pc_quality *quality = pc_quality_of(cfg, table, conn->current);

	if (!pc_can_move(conn, cfg)) {
		pc_stranded(conn, cfg, quality, round, decision);
		return;
	}
	pc_progress(conn, round);
	if (cfg->policy == PC_PLB) {
		/* As in Linux, where each timeout rehashes (tcp_write_timeout), with or without PLB. */
		pc_plb_pause(conn, cfg, round->now_ns, pc_remix(random));
		due = 1;
	} else if (cfg->policy == PC_NEXT) {
		due = ++conn->timeouts >= cfg->next_rtos;
	} else {
		due = pc_backoff_signal(&conn->failure, cfg->failure_min_ns, round->now_ns);
	}
	if (!due) {
		pc_ignore(conn, decision, (__u32)pc_choose(PC_BACK_OFF, PC_TOO_FEW, pc_is(cfg, 1u << PC_NEXT)));
		return;
	}
	/*
	 * Where others are served it was bad luck or congestion; or the answer to a SYN was lost, which takes a
	 * path that the other end draws. And where no other path is alive, nothing is gained by leaving one that
	 * has failed once. A second timeout in a row is more than that.
	 */
	if (pc_measures(cfg, table) && decision->reason != PC_ACK_LOSS && !(conn->failed & here)) {
		leave = pc_all_paths(conn) & ~here & ~pc_dead_paths(table, conn->n_paths, round->now_ns);
		leave = leave && !pc_works(quality, round->now_ns, round->srtt_ns);
	}
	if (quality)
		pc_failed(quality, round->now_ns, round->srtt_ns, decision->reason == PC_ACK_LOSS ? PC_FAILED_ACKS : 0);
	conn->failed |= here;
	if (conn->failed == pc_all_paths(conn))
		conn->failed = here;
	pc_decide(conn, cfg, paths, shared, round, leave, random, decision);
	pc_backoff_decided(&conn->failure, cfg->failure_max_ns, round->now_ns, cfg->jitter_q16,
			   pc_remix(random));
}

#endif
