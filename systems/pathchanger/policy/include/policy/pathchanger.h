/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * PathChanger decides when a live connection leaves its path, and for which other path. The BPF
 * program calls it for a kernel socket, the simulator for a simulated one.
 *
 * Signals:
 *   congestion  The share of CE marks in a round trip (PC_ECN), or a burst of fast retransmits
 *               (PC_RETRANSMIT), or a queue that stands on this path and not on another
 *               (PC_STANDING_QUEUE), which congestion controls that avoid loss and marks meet. The path
 *               works, but another may be better; the draw may keep it.
 *   crowding    A connection that has sent much knows of a path that gives it more (PC_CROWDED, gain.h). Such
 *               a connection ignores signals of congestion where no path does.
 *   failure     A retransmission timeout (PC_RTO), also of the SYN (PC_SYN_TIMEOUT). The path may
 *               be dead, so the connection leaves it if there is another. The end that only receives
 *               has no timeouts. It observes data that comes again after a time without new data
 *               (PC_ACK_LOSS): the other end has had a timeout although its data arrived, so the
 *               path that the acknowledgements take may be dead.
 * Each kind has its own back-off. A signal within the back-off is counted and ignored. PC_NEXT and
 * PC_PLB have rules of their own instead.
 *
 * A connection that can use one path only never moves. It measures that path as others do, and its failures
 * keep others off it.
 *
 * The first rounds after the connection opened or moved are not judged: their marks and retransmits
 * still belong to the past.
 *
 * `random` is 32 uniform bits, fresh for each call. `paths` has PC_MAX_PATHS entries, of which the
 * first n given to pc_open are used; they stay the same until the connection is opened again. `shared`
 * is the table of their destination, or 0; it matters only if pc_config.shared is set.
 */
#ifndef SIDESTEP_POLICY_PATHCHANGER_H
#define SIDESTEP_POLICY_PATHCHANGER_H

#include "pathchanger/congestion.h"
#include "pathchanger/failure.h"
#include "pathchanger/opening.h"
#include "pathchanger/plb.h"

/* Measures the round that has ended. */
POLICY_FN void pc_measure(struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths,
			  struct pc_shared *shared, const struct pc_round *round, __u32 delivered)
{
	struct pc_quality *quality = pc_quality_of(cfg, pc_table(cfg, shared), conn->current);

	/* The first round trip of all is the SYN's: it met no other path. */
	if (quality && round->srtt_ns && (!conn->settling || !conn->decisions))
		pc_delivered(quality, round->now_ns, round->srtt_ns, delivered, conn->lost);
	if (!conn->settling) {
		pc_mean_add(&conn->cwnd, round->cwnd_bytes);
		if (round->srtt_ns)
			pc_mean_add(&conn->rtt, round->srtt_ns);
		if (round->now_ns > conn->round_ns)
			pc_rate_add(&conn->rate, (__u64)delivered * round->mss,
				    round->now_ns - conn->round_ns);
		if (quality && cfg->gain_guard)
			pc_share_round(conn, &paths[PC_INDEX(conn->current)], quality, round);
	}
	conn->delivered = round->delivered;
	conn->delivered_ce = round->delivered_ce;
	conn->round_ns = round->now_ns;
	conn->retransmitted = 0;
	conn->lost = 0;
}

/* A round trip has ended. */
POLICY_FN void pc_round(struct pc_conn *conn, const struct pc_config *cfg,
			const struct pc_path *paths, struct pc_shared *shared,
			const struct pc_round *round, __u32 random, struct pc_decision *decision)
{
	__u32 delivered = round->delivered - conn->delivered;
	__u32 marked = round->delivered_ce - conn->delivered_ce;
	__u64 any, congested, queued;

	pc_stay(conn, decision);
	pc_measure(conn, cfg, paths, shared, round, delivered);
	if (cfg->policy == PC_PLB) {
		pc_plb_round(conn, cfg, paths, round, delivered, marked, random, decision);
		return;
	}
	if (conn->settling) {
		conn->settling--;
		return;
	}
	/* In numbers and not in branches, each of which the verifier would follow through all that comes. */
	any = pc_zero(cfg->policy ^ PC_PAPER);
	congested = (1 - pc_zero(marked)) &
		    (any | (1 - pc_above((__u64)cfg->ce_share_q16 * delivered, (__u64)marked << 16)));
	conn->ce_history = conn->ce_history << 1 | congested;
	congested &= any | (1 - pc_above(cfg->ce_rounds, pc_congested_rounds(conn, cfg)));
	queued = 0;
	if (cfg->queue_rounds && pc_measures(cfg, pc_table(cfg, shared)))
		queued = pc_queue_stands(conn, cfg, paths, shared, round);
	if (pc_gain(conn, cfg, paths, shared, round, random, decision))
		return;
	if (!(congested | queued))
		return;
	decision->reason = (__u32)pc_choose(PC_STANDING_QUEUE, PC_ECN, congested);
	pc_congestion(conn, cfg, paths, shared, round, random, decision);
}

/* `segs` segments were retransmitted. */
POLICY_FN void pc_retransmit(struct pc_conn *conn, const struct pc_config *cfg,
			     const struct pc_path *paths, struct pc_shared *shared,
			     const struct pc_round *round, __u32 segs, __u32 random,
			     struct pc_decision *decision)
{
	__u64 sum = (__u64)conn->retransmitted + segs;

	pc_stay(conn, decision);
	conn->lost = (__u32)pc_least((__u64)conn->lost + segs, PC_MAX_SAMPLES);
	if (conn->settling || !cfg->retransmit_burst)
		return;
	if (sum < cfg->retransmit_burst) {
		conn->retransmitted = (__u32)sum;
		return;
	}
	conn->retransmitted = 0;
	decision->reason = PC_RETRANSMIT;
	pc_congestion(conn, cfg, paths, shared, round, random, decision);
}

/* A retransmission timeout; `syn`: of the connection's first packet. */
POLICY_FN void pc_timeout(struct pc_conn *conn, const struct pc_config *cfg,
			  const struct pc_path *paths, struct pc_shared *shared,
			  const struct pc_round *round, __u32 syn, __u32 random,
			  struct pc_decision *decision)
{
	pc_stay(conn, decision);
	decision->reason = syn ? PC_SYN_TIMEOUT : PC_RTO;
	if (cfg->policy == PC_PAPER)
		pc_congestion(conn, cfg, paths, shared, round, random, decision);
	else
		pc_failure(conn, cfg, paths, shared, round, random, decision);
}

/*
 * Data came that was here already; the last new data came `quiet_q16` of the retransmission timeout
 * before. Soon after new data it may be a retransmission without need, as reordering causes; after
 * half a timeout the other end has had one, as none of the acknowledgements has reached it.
 */
POLICY_FN void pc_duplicate(struct pc_conn *conn, const struct pc_config *cfg,
			    const struct pc_path *paths, struct pc_shared *shared,
			    const struct pc_round *round, __u32 quiet_q16, __u32 random,
			    struct pc_decision *decision)
{
	pc_stay(conn, decision);
	if (cfg->policy == PC_PAPER || !cfg->ack_quiet_q16 || quiet_q16 < cfg->ack_quiet_q16)
		return;
	decision->reason = PC_ACK_LOSS;
	pc_failure(conn, cfg, paths, shared, round, random, decision);
}

/*
 * The connection has ended. Where connections share what they learn, it adds what its path has
 * earned since the last decision, if a round was judged. Short connections get no signals on good
 * paths; without this only those on bad paths would count.
 */
POLICY_FN void pc_close(struct pc_conn *conn, const struct pc_config *cfg,
			const struct pc_path *paths, struct pc_shared *shared,
			const struct pc_round *round)
{
	shared = pc_table(cfg, shared);
	if (shared && pc_learns(cfg) && pc_can_move(conn, cfg) && conn->rtt.count)
		pc_learn(conn, cfg, paths, shared, round, 0);
	pc_restart(conn);
}

#endif
