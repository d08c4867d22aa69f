/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * PathChanger: when a live connection leaves its path, and for which. The BPF program calls it for
 * a kernel socket, the simulator for a simulated one.
 *
 * Signals:
 *   congestion  the share of CE marks in a round trip (PC_ECN), or a burst of fast retransmits
 *               (PC_RETRANSMIT): the path works, another may be better; the draw may keep it.
 *   silence     a retransmission timeout (PC_RTO), also of the SYN (PC_SYN_TIMEOUT): the path may
 *               be dead, so the connection leaves it if there is another.
 * Each kind has its own back-off. A signal within the back-off is counted and ignored.
 *
 * The first round after the connection opened or moved is not judged: its marks and retransmits
 * still belong to the past.
 *
 * `random` is 32 uniform bits, fresh for each call. `paths` has PC_MAX_PATHS entries, of which the
 * first n given to pc_open are used; they stay the same until the connection is opened anew.
 */
#ifndef SIDESTEP_POLICY_PATHCHANGER_H
#define SIDESTEP_POLICY_PATHCHANGER_H

#include "backoff.h"
#include "exp3.h"
#include "reward.h"

enum pc_policy {
	PC_STATIC, /* the first path for good */
	PC_RANDOM, /* every path equally likely */
	PC_EXP3, /* learns from the reward of the paths used */
};

enum pc_reason {
	PC_NONE,
	PC_ECN,
	PC_RETRANSMIT,
	PC_RTO,
	PC_SYN_TIMEOUT,
	PC_REASONS, /* how many there are */
};

struct pc_config {
	__u32 policy; /* enum pc_policy */
	__u32 gamma_q16; /* EXP3: share of draws that ignore what was learnt; cut to 1..=65536 */
	__u32 ce_share_q16; /* share of CE marks among a round's delivered packets that counts as
			       congested; 0: any mark; above 65536: never */
	__u32 ce_rounds; /* congested rounds, */
	__u32 ce_window; /* among so many of the last, that make a signal: at most 64; equal: in a row.
			    TCP alone on a path probes it into congestion now and then, TCP on a crowded
			    path all the time: the two numbers tell one from the other */
	__u32 retransmit_burst; /* segments retransmitted in a round that make a signal; 0: never */
	__u32 jitter_q16; /* back-off waits vary by +- half of this share; cut to 65536 */
	__u32 unused;
	__u64 congestion_min_ns; /* back-off between decisions on congestion: first, */
	__u64 congestion_max_ns; /* and longest wait */
	__u64 silence_min_ns; /* the same on silence */
	__u64 silence_max_ns;
};
_Static_assert(sizeof(struct pc_config) == 64, "shared with Rust");

/* A connection's state; pc_open sets all of it. */
struct pc_conn {
	struct pc_exp3 exp3;
	struct pc_backoff congestion;
	struct pc_backoff silence;
	struct pc_mean cwnd; /* since the last decision */
	__u64 ce_history; /* a bit for each round since the last decision, the latest lowest: congested */
	__u32 n_paths;
	__u32 current; /* index into paths */
	__u32 delivered; /* the counters at the last round's end */
	__u32 delivered_ce;
	__u32 retransmitted; /* segments in this round, since the last burst */
	__u32 settling; /* 1 in the round that is not judged */
	__u32 decisions; /* draws after the first */
	__u32 moves; /* decisions that changed the path */
	__u32 suppressed; /* signals that came within the back-off */
	__u32 unused;
};
_Static_assert(sizeof(struct pc_conn) == 240, "shared with Rust");

/* What is read once in a round trip; the counters are tcp_sock's, cumulative, and may wrap. */
struct pc_round {
	__u64 now_ns;
	__u64 cwnd_bytes;
	__u32 delivered;
	__u32 delivered_ce;
};
_Static_assert(sizeof(struct pc_round) == 24, "shared with Rust");

struct pc_decision {
	__u32 path; /* index of the path to use from now on */
	__u32 reason; /* enum pc_reason: the signal heard, even if ignored */
	__u32 moved; /* 1: the path is another than before */
	__u32 decided; /* 1: a path was drawn, perhaps the same */
};
_Static_assert(sizeof(struct pc_decision) == 16, "shared with Rust");

POLICY_FN __u32 pc_gamma(const struct pc_config *cfg)
{
	__u32 gamma = cfg->gamma_q16 < PC_Q16_ONE ? cfg->gamma_q16 : PC_Q16_ONE;

	return gamma ? gamma : 1;
}

/* A second number from `random` (MurmurHash3's finaliser), so that the wait tells nothing of the draw. */
POLICY_FN __u32 pc_remix(__u32 random)
{
	random ^= 0x9e3779b9;
	random ^= random >> 16;
	random *= 0x85ebca6b;
	random ^= random >> 13;
	random *= 0xc2b2ae35;
	return random ^ (random >> 16);
}

/* Draws a path; `leave`: any but the current one. */
POLICY_FN __u32 pc_draw(const struct pc_conn *conn, const struct pc_config *cfg, __u32 leave,
			__u32 random)
{
	struct pc_share avoid = { 0, 0 };
	__u32 path;

	if (cfg->policy == PC_EXP3) {
		if (leave)
			avoid = pc_exp3_share(&conn->exp3, conn->n_paths, pc_gamma(cfg),
					      conn->current);
		return pc_exp3_draw(&conn->exp3, conn->n_paths, pc_gamma(cfg), avoid, random);
	}
	path = (__u32)pc_scale(random, conn->n_paths - leave);
	return path + (leave && path >= conn->current);
}

/* Restarts what is measured between two decisions. */
POLICY_FN void pc_restart(struct pc_conn *conn)
{
	conn->cwnd.sum = 0;
	conn->cwnd.count = 0;
	conn->ce_history = 0;
	conn->retransmitted = 0;
}

/* Acts on a signal that its back-off lets through. */
POLICY_FN void pc_decide(struct pc_conn *conn, const struct pc_config *cfg, __u32 silence,
			 __u32 reward_q16, __u32 random, struct pc_decision *decision)
{
	__u32 path;

	if (cfg->policy == PC_EXP3)
		pc_exp3_reward(&conn->exp3, conn->n_paths, pc_gamma(cfg), conn->current,
			       reward_q16);
	path = pc_draw(conn, cfg, silence, random);
	decision->decided = 1;
	decision->moved = path != conn->current;
	decision->path = path;
	conn->current = path;
	conn->decisions++;
	conn->moves += decision->moved;
	conn->settling |= decision->moved;
	pc_restart(conn);
}

/* Whether any signal can move the connection. */
POLICY_FN __u32 pc_can_move(const struct pc_conn *conn, const struct pc_config *cfg)
{
	return cfg->policy != PC_STATIC && conn->n_paths > 1;
}

POLICY_FN void pc_congestion(struct pc_conn *conn, const struct pc_config *cfg,
			     const struct pc_path *paths, __u64 now_ns, __u64 cwnd_bytes,
			     __u32 random, struct pc_decision *decision)
{
	__u64 bdp_bytes = paths[PC_INDEX(conn->current)].bdp_bytes;

	if (!pc_can_move(conn, cfg))
		return;
	if (!pc_backoff_hear(&conn->congestion, cfg->congestion_min_ns, now_ns)) {
		conn->suppressed++;
		return;
	}
	pc_decide(conn, cfg, 0, pc_reward(&conn->cwnd, cwnd_bytes, bdp_bytes), random, decision);
	pc_backoff_decided(&conn->congestion, cfg->congestion_max_ns, now_ns, cfg->jitter_q16,
			   pc_remix(random));
}

POLICY_FN void pc_stay(const struct pc_conn *conn, struct pc_decision *decision)
{
	decision->path = conn->current;
	decision->reason = PC_NONE;
	decision->moved = 0;
	decision->decided = 0;
}

/*
 * A new connection over the first `n` of `paths` (more than PC_MAX_PATHS are ignored); conn->current
 * is its first path: paths[0] for PC_STATIC, else drawn. With no paths it stays at index 0 for good.
 * A decision on congestion has to wait once first, as there is no reward yet to learn from.
 */
POLICY_FN void pc_open(struct pc_conn *conn, const struct pc_config *cfg,
		       const struct pc_path *paths, __u32 n, __u64 now_ns, __u32 random)
{
	conn->n_paths = n < PC_MAX_PATHS ? n : PC_MAX_PATHS;
	conn->current = 0;
	conn->delivered = 0;
	conn->delivered_ce = 0;
	conn->settling = 1;
	conn->decisions = 0;
	conn->moves = 0;
	conn->suppressed = 0;
	conn->unused = 0;
	pc_restart(conn);
	pc_backoff_open(&conn->congestion, cfg->congestion_min_ns, now_ns);
	pc_backoff_arm(&conn->congestion, now_ns, cfg->jitter_q16, pc_remix(random));
	pc_backoff_open(&conn->silence, cfg->silence_min_ns, now_ns);
	pc_exp3_open(&conn->exp3, paths, conn->n_paths);
	if (pc_can_move(conn, cfg))
		conn->current = pc_draw(conn, cfg, 0, random);
}

/* Congested rounds among the last ce_window. */
POLICY_FN __u32 pc_congested_rounds(const struct pc_conn *conn, const struct pc_config *cfg)
{
	__u32 window = cfg->ce_window > cfg->ce_rounds ? cfg->ce_window : cfg->ce_rounds;

	return pc_bits(conn->ce_history & (window < 64 ? (1ULL << window) - 1 : ~0ULL));
}

/* A round trip has ended. */
POLICY_FN void pc_round(struct pc_conn *conn, const struct pc_config *cfg,
			const struct pc_path *paths, const struct pc_round *round, __u32 random,
			struct pc_decision *decision)
{
	__u32 delivered = round->delivered - conn->delivered;
	__u32 marked = round->delivered_ce - conn->delivered_ce;
	__u32 settling = conn->settling;
	__u32 congested;

	pc_stay(conn, decision);
	pc_mean_add(&conn->cwnd, round->cwnd_bytes);
	conn->delivered = round->delivered;
	conn->delivered_ce = round->delivered_ce;
	conn->retransmitted = 0;
	conn->settling = 0;
	if (settling)
		return;
	congested = marked && ((__u64)marked << 16) >= (__u64)cfg->ce_share_q16 * delivered;
	conn->ce_history = conn->ce_history << 1 | congested;
	if (!congested || pc_congested_rounds(conn, cfg) < cfg->ce_rounds)
		return;
	decision->reason = PC_ECN;
	pc_congestion(conn, cfg, paths, round->now_ns, round->cwnd_bytes, random, decision);
}

/* `segs` segments were retransmitted. */
POLICY_FN void pc_retransmit(struct pc_conn *conn, const struct pc_config *cfg,
			     const struct pc_path *paths, __u64 now_ns, __u32 segs,
			     __u64 cwnd_bytes, __u32 random, struct pc_decision *decision)
{
	__u64 sum = (__u64)conn->retransmitted + segs;

	pc_stay(conn, decision);
	if (conn->settling || !cfg->retransmit_burst)
		return;
	if (sum < cfg->retransmit_burst) {
		conn->retransmitted = (__u32)sum;
		return;
	}
	conn->retransmitted = 0;
	decision->reason = PC_RETRANSMIT;
	pc_congestion(conn, cfg, paths, now_ns, cwnd_bytes, random, decision);
}

/* A retransmission timeout; `syn`: of the connection's first packet. The path has earned nothing. */
POLICY_FN void pc_timeout(struct pc_conn *conn, const struct pc_config *cfg, __u64 now_ns,
			  __u32 syn, __u32 random, struct pc_decision *decision)
{
	pc_stay(conn, decision);
	decision->reason = syn ? PC_SYN_TIMEOUT : PC_RTO;
	if (!pc_can_move(conn, cfg))
		return;
	if (!pc_backoff_hear(&conn->silence, cfg->silence_min_ns, now_ns)) {
		conn->suppressed++;
		return;
	}
	pc_decide(conn, cfg, 1, 0, random, decision);
	pc_backoff_decided(&conn->silence, cfg->silence_max_ns, now_ns, cfg->jitter_q16,
			   pc_remix(random));
}

#endif
