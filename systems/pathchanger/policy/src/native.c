/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The policy's functions under linkable names, for raw.rs. */
#include "policy/pathchanger.h"

void native_pc_open(struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths,
		    __u32 n, struct pc_shared *shared, __u64 now_ns, __u32 random)
{
	pc_open(conn, cfg, paths, n, shared, now_ns, random);
}

__u32 native_pc_stateless(const struct pc_config *cfg, const struct pc_shared *shared)
{
	return pc_stateless(cfg, shared);
}

__u32 native_pc_first(const struct pc_config *cfg, const struct pc_path *paths, __u32 n, struct pc_shared *shared,
		      __u64 now_ns, __u32 random)
{
	return pc_first(cfg, paths, n, 0, shared, now_ns, random);
}

__u32 native_pc_uneventful(const struct pc_config *cfg, const struct pc_path *paths, struct pc_shared *shared,
			   __u32 current, const struct pc_round *round)
{
	return pc_uneventful(cfg, paths, shared, current, round);
}

void native_pc_resume(struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths, __u32 n,
		      __u32 allowed, const struct pc_shared *shared, const struct pc_round *round, __u64 began_ns,
		      __u32 random, __u32 current)
{
	pc_resume(conn, cfg, paths, n, allowed, shared, round, began_ns, random, current);
}

void native_pc_open_again(struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths, __u32 n,
			  struct pc_shared *shared, __u32 kept, __u64 now_ns, __u32 random)
{
	pc_open_again(conn, cfg, paths, n, 0, shared, kept, now_ns, random);
}

void native_pc_round(struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths,
		     struct pc_shared *shared, const struct pc_round *round, __u32 random,
		     struct pc_decision *decision)
{
	pc_round(conn, cfg, paths, shared, round, random, decision);
}

void native_pc_retransmit(struct pc_conn *conn, const struct pc_config *cfg,
			  const struct pc_path *paths, struct pc_shared *shared,
			  const struct pc_round *round, __u32 segs, __u32 random,
			  struct pc_decision *decision)
{
	pc_retransmit(conn, cfg, paths, shared, round, segs, random, decision);
}

void native_pc_timeout(struct pc_conn *conn, const struct pc_config *cfg,
		       const struct pc_path *paths, struct pc_shared *shared,
		       const struct pc_round *round, __u32 syn, __u32 random,
		       struct pc_decision *decision)
{
	pc_timeout(conn, cfg, paths, shared, round, syn, random, decision);
}

void native_pc_close(struct pc_conn *conn, const struct pc_config *cfg, const struct pc_path *paths,
		     struct pc_shared *shared, const struct pc_round *round)
{
	pc_close(conn, cfg, paths, shared, round);
}

void native_pc_connect(const struct pc_conn *conn, const struct pc_config *cfg, struct pc_shared *shared)
{
	pc_connect(conn, cfg, shared);
}

__u64 native_pc_syn_rto(const struct pc_config *cfg, struct pc_shared *shared, __u32 path, __u64 now_ns)
{
	return pc_syn_rto(cfg, shared, path, now_ns);
}

__u32 native_pc_syn_retries(__u64 rto_ns)
{
	return pc_syn_retries(rto_ns);
}

__u64 native_pc_added(const struct pc_quality *quality, __u64 now_ns)
{
	return pc_added(quality, now_ns);
}

__u64 native_pc_base(const struct pc_path *path, const struct pc_quality *quality, __u64 now_ns)
{
	return pc_base(path, quality, now_ns);
}

__u32 native_pc_dead(const struct pc_quality *quality, __u64 now_ns)
{
	return pc_dead(quality, now_ns);
}

__u32 native_pc_down(const struct pc_quality *quality, __u64 now_ns)
{
	return pc_down(quality, now_ns);
}

void native_pc_weigh(struct pc_exp3 *exp3, const struct pc_path *paths, __u32 n,
		     const struct pc_shared *shared)
{
	pc_weigh(exp3, (const struct pc_paths *)paths, n, shared);
}

void native_pc_shared_add(struct pc_shared *shared, __u32 n, __u32 path, __s64 step)
{
	pc_shared_add(shared, n, path, step);
}

void native_pc_duplicate(struct pc_conn *conn, const struct pc_config *cfg,
			 const struct pc_path *paths, struct pc_shared *shared,
			 const struct pc_round *round, __u32 quiet_q16, __u32 random,
			 struct pc_decision *decision)
{
	pc_duplicate(conn, cfg, paths, shared, round, quiet_q16, random, decision);
}

void native_pc_exp3_open(struct pc_exp3 *exp3, const struct pc_path *paths, __u32 n)
{
	pc_exp3_open(exp3, paths, n);
}

__u64 native_pc_exp3_probability(const struct pc_exp3 *exp3, __u32 n, __u32 gamma_q16, __u32 path)
{
	return pc_exp3_shares(exp3, pc_exp3_total(exp3, n), n, gamma_q16, 1u << path);
}

/* `leave`: a path never to draw, or n for any. */
__u32 native_pc_exp3_draw(const struct pc_exp3 *exp3, __u32 n, __u32 gamma_q16, __u32 leave,
			  __u32 random)
{
	__u32 among = (1u << n) - 1;

	if (leave < n)
		among &= ~(1u << leave);
	return pc_exp3_draw(exp3, n, gamma_q16, among, random);
}

void native_pc_exp3_reward(struct pc_exp3 *exp3, __u32 n, __u32 gamma_q16, __u32 path,
			   __u32 reward_q16)
{
	__u32 chance = pc_exp3_chance(exp3, n, gamma_q16, (1u << n) - 1, path);

	pc_exp3_add(exp3, path, pc_exp3_gain(n, gamma_q16, chance, reward_q16));
}

void native_pc_exp3_lose(struct pc_exp3 *exp3, __u32 n, __u32 gamma_q16, __u32 path, __u32 loss_q16)
{
	__u32 chance = pc_exp3_chance(exp3, n, 0, (1u << n) - 1, path);

	pc_exp3_add(exp3, path, -pc_exp3_loss(gamma_q16, chance, loss_q16));
}

__s64 native_pc_log2(__u32 value)
{
	return pc_log2(value);
}

__u64 native_pc_exp2(__s64 log)
{
	return pc_exp2(log);
}
