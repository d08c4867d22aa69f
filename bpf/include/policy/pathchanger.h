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
 * first n given to pc_open are used; they stay the same until the connection is opened anew. `shared`
 * is the table of their destination, or 0; it matters only if pc_config.shared is set.
 */
#ifndef SIDESTEP_POLICY_PATHCHANGER_H
#define SIDESTEP_POLICY_PATHCHANGER_H

#include "backoff.h"
#include "exp3.h"
#include "reward.h"
#include "shared.h"

enum pc_policy {
	PC_STATIC, /* the first path for good */
	PC_RANDOM, /* every path equally likely */
	PC_EXP3, /* learns from the reward of the paths used */
	PC_NEXT, /* the next in turn after timeouts; ignores congestion */
	PC_LOWEST_RTT, /* PC_EXP3 with PC_RTT for a reward */
	PC_PLB, /* any other, when Linux's Protective Load Balancing (tcp_plb.c) would rehash */
	PC_EXP3_IX, /* like PC_EXP3; learns also from path failures, and never explores on purpose */
	PC_FIXED, /* drawn by the initial weights, and then for good */
	PC_DELAY_WEIGHTED, /* drawn by what the host's connections lately measured on each path (quality.h) */
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
	PC_STAYS, /* how many there are */
};

struct pc_config {
	__u32 policy; /* enum pc_policy */
	__u32 gamma_q16; /* EXP3: share of draws that ignore what was learnt; EXP3-IX: how fast it
			    learns; cut to 1..=65536 */
	__u32 ce_share_q16; /* share of CE marks among a round's delivered packets that counts as
			       congested; 0: any mark; above 65536: never */
	__u32 ce_rounds; /* congested rounds, */
	__u32 ce_window; /* among so many of the last, that make a signal: at most 64; equal: in a row.
			    TCP alone on a path probes it into congestion now and then, TCP on a crowded
			    path all the time: the two numbers tell one from the other */
	__u32 retransmit_burst; /* segments retransmitted in a round that make a signal; 0: never */
	__u32 jitter_q16; /* back-off waits vary by +- half of this share; cut to 65536 */
	__u32 reward; /* enum pc_reward, of PC_EXP3 and PC_EXP3_IX */
	__u32 next_rtos; /* PC_NEXT: timeouts in a row that make it move; 0 counts as 1 */
	__u32 settle_rounds; /* rounds after a move that are not judged */
	__u32 reorder_guard; /* 1: a move that reorders packets halves the reward of what it led to */
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

/* A connection's state; pc_open sets all of it. */
struct pc_conn {
	struct pc_exp3 exp3;
	struct pc_backoff congestion;
	struct pc_backoff failure;
	struct pc_mean cwnd; /* since the last decision */
	struct pc_mean rtt; /* since the last decision, without the rounds that are not judged */
	struct pc_mean rate; /* bytes delivered and nanoseconds, as rtt */
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
_Static_assert(sizeof(struct pc_conn) == 328, "shared with Rust");

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

/* Whether the host's connections measure together how good paths are. */
POLICY_FN __u32 pc_measures(const struct pc_config *cfg, const struct pc_shared *shared)
{
	return cfg->policy == PC_DELAY_WEIGHTED && shared;
}

/* A connection that has delivered so many segments (0.7 MB) is no longer short: our choice, as most end before. */
#define PC_SHORT_SEGMENTS 500

/*
 * How far a connection is still a short one, Q16: what it has delivered says how much it is likely to
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
	pc_restart(conn);
	decision->decided = 1;
	decision->moved = path != conn->current;
	decision->path = path;
	decision->stay = (__u32)pc_choose(PC_DREW_SAME, PC_OTHERS_DEAD, alone) & (decision->moved - 1);
	if (decision->moved) {
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
	if (!pc_backoff_signal(&conn->congestion, cfg->congestion_min_ns, round->now_ns)) {
		pc_ignore(conn, decision, PC_BACK_OFF);
		return;
	}
	pc_decide(conn, cfg, paths, shared, round, 0, random, decision);
	pc_backoff_decided(&conn->congestion, cfg->congestion_max_ns, round->now_ns,
			   cfg->jitter_q16, pc_remix(random));
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
 * After what time the SYN of a connection that leaves on `path` now is to be sent again if no answer comes, in ns; 0:
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

/* The SYN of a new connection is about to leave, at the time that pc_open was told. */
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
	/* How many segments the round had is not known: as many as are on their way now, if that says anything. */
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

/* Congested rounds among the last ce_window. */
POLICY_FN __u32 pc_congested_rounds(const struct pc_conn *conn, const struct pc_config *cfg)
{
	__u32 window = cfg->ce_window > cfg->ce_rounds ? cfg->ce_window : cfg->ce_rounds;

	return pc_bits(conn->ce_history & (window < 64 ? (1ULL << window) - 1 : ~0ULL));
}

/* PC_PLB: of so many packets delivered in a round so many were marked (tcp_plb_update_state, tcp_plb_check_rehash). */
POLICY_FN __u32 pc_plb_due(struct pc_conn *conn, const struct pc_config *cfg,
			   const struct pc_round *round, __u32 delivered, __u32 marked)
{
	__u32 idle, busy;

	if (!delivered)
		return 0;
	if (((__u64)marked << 16) < (__u64)cfg->ce_share_q16 * delivered)
		conn->plb_rounds = 0;
	else if (conn->plb_rounds < cfg->plb_rounds)
		conn->plb_rounds++;
	busy = cfg->plb_rounds && conn->plb_rounds >= cfg->plb_rounds;
	idle = cfg->plb_idle_rounds && conn->plb_rounds >= cfg->plb_idle_rounds && !round->in_flight;
	return busy || idle;
}

/* PC_PLB: a round has ended; moves the connection if that is due. */
POLICY_FN void pc_plb_round(struct pc_conn *conn, const struct pc_config *cfg,
			    const struct pc_path *paths, const struct pc_round *round,
			    __u32 delivered, __u32 marked, __u32 random, struct pc_decision *decision)
{
	if (!pc_plb_due(conn, cfg, round, delivered, marked))
		return;
	decision->reason = PC_ECN;
	if (!pc_can_move(conn, cfg)) {
		pc_cannot_move(conn, cfg, decision);
		return;
	}
	if (round->now_ns < conn->plb_pause_ns) {
		pc_ignore(conn, decision, PC_BACK_OFF);
		return;
	}
	pc_decide(conn, cfg, paths, 0, round, 0, random, decision);
}

/* PC_PLB: a timeout. The pause is plb_pause_ns * (1 + u), u in 0..1 by `random` (tcp_plb_update_state_upon_rto). */
POLICY_FN void pc_plb_pause(struct pc_conn *conn, const struct pc_config *cfg, __u64 now_ns,
			    __u32 random)
{
	__u64 pause = pc_least(cfg->plb_pause_ns, PC_MAX_NS);

	conn->plb_pause_ns = now_ns + pause + pc_scale(random, pause);
	conn->plb_rounds = 0;
}

/* Failures count anew once something was delivered or received. */
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
 * A failure of a connection that no signal can move. Others are to know of it, as it does not prove by a move that the
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

/* Measures the round that has ended. */
POLICY_FN void pc_measure(struct pc_conn *conn, const struct pc_config *cfg, struct pc_shared *shared,
			  const struct pc_round *round, __u32 delivered)
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
	}
	conn->delivered = round->delivered;
	conn->delivered_ce = round->delivered_ce;
	conn->round_ns = round->now_ns;
	conn->retransmitted = 0;
	conn->lost = 0;
}

/*
 * Counts the rounds in a row that met a queue of at least a quarter of the path's lowest round trip and
 * 4 ms, at least twice as long as the shortest on another path; returns 1, and begins anew, when they
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

/* A round trip has ended. */
POLICY_FN void pc_round(struct pc_conn *conn, const struct pc_config *cfg,
			const struct pc_path *paths, struct pc_shared *shared,
			const struct pc_round *round, __u32 random, struct pc_decision *decision)
{
	__u32 delivered = round->delivered - conn->delivered;
	__u32 marked = round->delivered_ce - conn->delivered_ce;
	__u64 any, congested, queued;

	pc_stay(conn, decision);
	pc_measure(conn, cfg, shared, round, delivered);
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

#endif
