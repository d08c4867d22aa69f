/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the path changer is set to, what it keeps of a connection and what it decides; and what follows from
 * these alone. Rust mirrors the structs (src/raw.rs).
 */
#ifndef SIDESTEP_POLICY_PATHCHANGER_STATE_H
#define SIDESTEP_POLICY_PATHCHANGER_STATE_H

#include "../backoff.h"
#include "../exp3.h"
#include "../reward.h"
#include "../shared.h"

enum pc_policy {
	PC_STATIC, /* the first path for good */
	PC_RANDOM, /* every path equally likely */
	PC_EXP3, /* learns from the reward of the paths used */
	PC_NEXT, /* the next in turn after timeouts; ignores congestion */
	PC_LOWEST_RTT, /* PC_EXP3 with PC_RTT for a reward */
	PC_PLB, /* any other, when Linux's Protective Load Balancing (tcp_plb.c) would rehash */
	PC_EXP3_IX, /* like PC_EXP3; learns also from path failures, and never explores on purpose */
	PC_FIXED, /* drawn by the initial weights, and then for good */
	PC_DELAY_WEIGHTED, /* drawn by what the host's connections recently measured on each path (quality.h) */
	PC_PAPER, /* like PC_EXP3, with the paper's signals (section 2.5): any mark in a round trip; a timeout counts
		     like it, is credited with the window, and may keep the path */
};

enum pc_reason {
	PC_NONE,
	PC_ECN,
	PC_RETRANSMIT,
	PC_RTO,
	PC_SYN_TIMEOUT,
	PC_ACK_LOSS,
	PC_STANDING_QUEUE,
	PC_CROWDED,
	PC_REASONS, /* how many there are */
};

/* Why a signal did not move a connection. */
enum pc_stay {
	PC_NO_STAY, /* it did, or there was none */
	PC_DREW_SAME, /* the path that it was on was drawn again */
	PC_ONLY_PATH, /* it can use no other path: its source address fits none, or there is none */
	PC_OTHERS_DEAD, /* all others that it can use are dead */
	PC_BACK_OFF, /* it came within the back-off */
	PC_TOO_FEW, /* it takes more of them */
	PC_BY_POLICY, /* the policy does not move connections for it */
	PC_NO_GAIN, /* no other path is known to give more */
	PC_STAYS, /* how many there are */
};

struct pc_config {
	__u32 policy; /* enum pc_policy */
	__u32 gamma_q16; /* EXP3: share of draws that ignore what was learnt; EXP3-IX: how fast it
			    learns; cut to 1..=65536 */
	__u32 ce_share_q16; /* share of CE marks among a round's delivered packets that counts as
			       congested; 0: any mark; above 65536: never */
	__u32 ce_rounds; /* congested rounds, */
	__u32 ce_window; /* among this number of the last, that make a signal: at most 64; equal: in a row.
			    TCP alone on a path probes it into congestion now and then, TCP on a crowded
			    path all the time: the two numbers distinguish these */
	__u32 retransmit_burst; /* segments retransmitted in a round that make a signal; 0: never */
	__u32 jitter_q16; /* back-off waits vary by +- half of this share; cut to 65536 */
	__u32 reward; /* enum pc_reward, of PC_EXP3 and PC_EXP3_IX */
	__u32 next_rtos; /* PC_NEXT: timeouts in a row that make it move; 0 counts as 1 */
	__u32 settle_rounds; /* rounds after a move that are not judged */
	__u16 gain_guard; /* PC_DELAY_WEIGHTED: 1: a connection that has sent much leaves a path only for one that gives more */
	__u16 reorder_guard; /* 1: a move that reorders packets halves the reward of what it led to */
	__u32 plb_idle_rounds; /* PC_PLB: congested rounds in a row that move it when idle; 0: never */
	__u32 plb_rounds; /* PC_PLB: congested rounds in a row that move it with packets in flight */
	__u32 ack_quiet_q16; /* data that comes again is a signal if none was new for so much of the RTO;
				0: never */
	__u32 shared; /* 1: what is learnt is learnt for all connections to the destination */
	__u32 queue_rounds; /* PC_DELAY_WEIGHTED: rounds in a row with a standing queue that make a signal; 0:
			       never */
	__u64 congestion_min_ns; /* back-off between decisions on congestion: first wait */
	__u64 congestion_max_ns; /* longest wait */
	__u64 failure_min_ns; /* back-off between decisions on path failures: first wait */
	__u64 failure_max_ns; /* longest wait */
	__u64 rtt_guard_ns; /* no moves to paths whose round trip is so much longer than the present
			       one's, nor beyond the timeout; 0: to any */
	__u64 plb_pause_ns; /* PC_PLB: no moves on congestion for once to twice this after a timeout */
};
_Static_assert(sizeof(struct pc_config) == 112, "shared with Rust");

/* What a connection has of its path (gain.h). */
struct pc_share {
	__u64 epoch_ns; /* when the present epoch began; 0: with the next round */
	__u32 most_q16; /* its largest share of the path in a round of this epoch in which that was full; 0: none was */
	__u32 mean_q16; /* the same, as a moving average over the epochs that had such rounds */
	__u16 epochs; /* how many these are, since it is on this path */
	__u16 tried; /* 1: it came to this path without reports of what is in use */
	__u32 delivered; /* segments of the round before */
};
_Static_assert(sizeof(struct pc_share) == 24, "shared with Rust");

/* A connection's state; pc_open sets all of it. */
struct pc_conn {
	struct pc_exp3 exp3;
	struct pc_backoff congestion;
	struct pc_backoff failure;
	struct pc_mean cwnd; /* since the last decision */
	struct pc_mean rtt; /* since the last decision, without the rounds that are not judged */
	struct pc_mean rate; /* bytes delivered and nanoseconds, as rtt */
	struct pc_share share;
	__u64 lowest_rtt_ns; /* of the paths; 0: not known */
	__u64 round_ns; /* when the last round ended */
	__u64 plb_pause_ns; /* no moves on congestion before this time */
	__u64 ce_history; /* a bit for each round since the last decision, the latest lowest: congested */
	__u32 n_paths;
	__u32 current; /* index into paths */
	__u32 delivered; /* the counters at the last round's end */
	__u32 delivered_ce;
	__u32 retransmitted; /* segments in this round, since the last burst */
	__u32 settling; /* rounds left that are not judged */
	__u32 timeouts; /* failure signals in a row, for PC_NEXT */
	__u32 progress; /* what had been delivered and received at the last of them */
	__u32 plb_rounds; /* congested rounds in a row */
	__u32 reordered; /* 1: the last move is counted against the present path */
	__u32 decisions; /* draws after the first */
	__u32 moves; /* decisions that changed the path */
	__u32 suppressed; /* signals that led to no decision */
	__u32 failed; /* bit set of the paths left on a failure since anything was delivered or received */
	__u32 chance_q32; /* probability of the present path among those that could be drawn */
	__u32 lost; /* segments retransmitted in this round */
	__u32 queue_rounds; /* rounds in a row with a standing queue */
	__u32 allowed; /* bit set of the paths that it may take, for instance by its source address; 0: all */
};
_Static_assert(sizeof(struct pc_conn) == 352, "shared with Rust");

struct pc_decision {
	__u32 path; /* index of the path to use from now on */
	__u32 reason; /* enum pc_reason: the signal observed, even if ignored */
	__u32 moved; /* 1: the path is another than before */
	__u32 decided; /* 1: a path was drawn, perhaps the same */
	__u32 stay; /* enum pc_stay: why the signal did not move it */
	__u32 unused;
};
_Static_assert(sizeof(struct pc_decision) == 24, "shared with Rust");

POLICY_FN __u32 pc_gamma(const struct pc_config *cfg)
{
	__u32 gamma = (__u32)pc_lesser(cfg->gamma_q16, PC_Q16_ONE);

	return gamma + (__u32)pc_zero(gamma);
}

/* 1 if the policy is among those of a bit set; the verifier would follow each comparison by itself. */
POLICY_FN __u32 pc_is(const struct pc_config *cfg, __u32 policies)
{
	return policies >> (cfg->policy & 31) & 1;
}

#define PC_LEARNERS (1u << PC_EXP3 | 1u << PC_LOWEST_RTT | 1u << PC_EXP3_IX | 1u << PC_PAPER)

POLICY_FN __u32 pc_learns(const struct pc_config *cfg)
{
	return pc_is(cfg, PC_LEARNERS);
}

/* Those of the first `n` paths that are allowed, as a bit set; where that is none, all of them. */
POLICY_FN __u32 pc_allowed(__u32 n, __u32 allowed)
{
	__u32 all = pc_first_paths(n);

	allowed &= all;
	return allowed | (all & -(__u32)pc_zero(allowed));
}

/* The paths that a connection may take. */
POLICY_FN __u32 pc_all_paths(const struct pc_conn *conn)
{
	return pc_allowed(conn->n_paths, conn->allowed);
}

/* Whether the policy ever moves a connection, as 1 or 0. */
POLICY_FN __u32 pc_moves(const struct pc_config *cfg)
{
	return 1 - pc_is(cfg, 1u << PC_STATIC | 1u << PC_FIXED);
}

/* Whether any signal can move the connection. */
POLICY_FN __u32 pc_can_move(const struct pc_conn *conn, const struct pc_config *cfg)
{
	return pc_moves(cfg) && pc_all_paths(conn) & ~(1u << PC_INDEX(conn->current));
}

/* Whether the host's connections measure together how good paths are. */
POLICY_FN __u32 pc_measures(const struct pc_config *cfg, const struct pc_shared *shared)
{
	return cfg->policy == PC_DELAY_WEIGHTED && shared;
}

/* The table to learn in; 0: each connection learns for itself. */
POLICY_FN struct pc_shared *pc_table(const struct pc_config *cfg, struct pc_shared *shared)
{
	return cfg->shared && pc_is(cfg, PC_LEARNERS | 1u << PC_DELAY_WEIGHTED) ? shared : 0;
}

/* What is known of the quality of path `i`; 0: nothing is kept of it. */
POLICY_FN struct pc_quality *pc_quality_of(const struct pc_config *cfg, struct pc_shared *shared, __u32 i)
{
	return pc_measures(cfg, shared) ? &shared->quality[PC_INDEX(i)] : 0;
}

/* A signal leads to no decision. */
POLICY_FN void pc_ignore(struct pc_conn *conn, struct pc_decision *decision, __u32 why)
{
	conn->suppressed++;
	decision->stay = why;
}

/* A signal of a connection that no signal can move. */
POLICY_FN void pc_cannot_move(struct pc_conn *conn, const struct pc_config *cfg, struct pc_decision *decision)
{
	pc_ignore(conn, decision, (__u32)pc_choose(PC_BY_POLICY, PC_ONLY_PATH, pc_moves(cfg)));
}

POLICY_FN void pc_stay(const struct pc_conn *conn, struct pc_decision *decision)
{
	decision->path = conn->current;
	decision->reason = PC_NONE;
	decision->moved = 0;
	decision->decided = 0;
	decision->stay = PC_NO_STAY;
	decision->unused = 0;
}

/* The connection is on another path: what it has of that is not known yet. */
POLICY_FN void pc_share_clear(struct pc_share *share)
{
	share->epoch_ns = 0;
	share->most_q16 = 0;
	share->mean_q16 = 0;
	share->epochs = 0;
	share->tried = 0;
	share->delivered = 0;
}

/* Restarts what is measured between two decisions. */
POLICY_FN void pc_restart(struct pc_conn *conn)
{
	pc_mean_clear(&conn->cwnd);
	pc_mean_clear(&conn->rtt);
	pc_mean_clear(&conn->rate);
	conn->ce_history = 0;
	conn->retransmitted = 0;
	conn->timeouts = 0;
	conn->plb_rounds = 0;
	conn->reordered = 0;
	conn->lost = 0;
	conn->queue_rounds = 0;
}

#endif
