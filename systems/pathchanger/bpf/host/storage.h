/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The storage of a connection, from its first path on; and the paths that it takes when they change. */
#ifndef SIDESTEP_HOST_STORAGE_H
#define SIDESTEP_HOST_STORAGE_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "kernel.h"
#include "maps.h"
#include "paths.h"

/* Puts the connection with this mark on path `index`; the kernel looks its route up again. `ctx` is the program's context. */
static __always_inline bool take_path(void *ctx, __u32 mark, const struct host_config *cfg,
				      const struct host_paths *paths, __u32 index)
{
	mark = mark_of(mark, cfg, paths, index);
	if (cfg->dry_run)
		return true;
	if (bpf_setsockopt(ctx, SOL_SOCKET, SO_MARK, &mark, sizeof(mark))) {
		count(HOST_MARK_REFUSED);
		return false;
	}
	return true;
}

/* What is needed to begin a connection on a path. */
struct opening {
	const struct host_config *cfg;
	struct host_paths *paths;
	__u32 allowed; /* bit set of the paths that take the socket's address */
	__u32 mark;
	__u32 before; /* our bits of the mark, as the application set them */
	bool passive;
};

/* A connection has not met anything yet. */
static __always_inline void begin_history(struct conn *conn, __u64 opened_ns)
{
	conn->opened_ns = opened_ns;
	conn->decided_ns = 0;
	conn->signal_ns = 0;
	conn->reason = PC_NONE;
	conn->signal = PC_NONE;
	conn->stay = PC_NO_STAY;
	conn->decisions = 0;
	conn->moves = 0;
	conn->suppressed = 0;
}

/* Begins a connection with storage, because its policy or the mark that it had must be remembered; returns its path. */
static __always_inline __u32 begin_with_storage(void *ctx, struct bpf_sock *sk, const struct opening *opening)
{
	const struct host_config *cfg = opening->cfg;
	struct host_paths *paths = opening->paths;
	struct pc_shared *shared;
	struct conn *conn;
	__u64 now;

	conn = bpf_sk_storage_get(&sidestep_conns, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!conn) {
		count(HOST_NO_STORAGE);
		return PC_MAX_PATHS;
	}
	now = bpf_ktime_get_ns();
	shared = shared_by(cfg, paths);
	pc_open_among(&conn->policy, &cfg->policy, paths->path, paths->n, opening->allowed, shared, now,
		      bpf_get_prandom_u32());
	if (!opening->passive)
		pc_connect(&conn->policy, &cfg->policy, shared);
	begin_history(conn, now);
	conn->mark_before = opening->before;
	conn->generation = paths->generation;
	conn->passive = opening->passive;
	conn->has_address = 0;
	conn->current_id = path_id(paths, conn->policy.current);
	return take_path(ctx, opening->mark, cfg, paths, conn->policy.current) ? conn->policy.current : PC_MAX_PATHS;
}

/* Begins a connection of which the mark holds all that there is to know; returns its path. */
static __always_inline __u32 begin_by_mark(void *ctx, struct bpf_sock *sk, const struct opening *opening,
					  struct pc_shared *shared)
{
	const struct host_config *cfg = opening->cfg;
	struct host_paths *paths = opening->paths;
	__u64 now = bpf_ktime_get_ns();
	__u32 index;

	index = pc_first(&cfg->policy, paths->path, paths->n, opening->allowed, shared, now, bpf_get_prandom_u32());
	if (!opening->passive)
		pc_ask_on(&cfg->policy, shared, index, now);
	return take_path(ctx, opening->mark, cfg, paths, index) ? index : PC_MAX_PATHS;
}

/* Puts a new connection on its first path, and returns that; PC_MAX_PATHS if it has none. */
static __always_inline __u32 begin(void *ctx, struct bpf_sock *sk, const struct opening *opening)
{
	const struct host_config *cfg = opening->cfg;
	struct pc_shared *shared = shared_by(cfg, opening->paths);
	__u32 index;

	/* In a dry run no mark means anything. */
	if (cfg->dry_run || opening->before || !pc_stateless(&cfg->policy, shared))
		index = begin_with_storage(ctx, sk, opening);
	else
		index = begin_by_mark(ctx, sk, opening, shared);
	if (index < PC_MAX_PATHS)
		count(opening->passive ? HOST_PASSIVE : HOST_ACTIVE);
	return index;
}

/* Our bits of the mark of a socket before it connects or is accepted, unless we have set them: for an earlier connection. */
static __u32 mark_before(struct bpf_sock *sk, __u32 mark, const struct host_config *cfg)
{
	__u32 before = mark & cfg->mark_mask;
	struct tcp_sock *tp;

	if (!before)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	return tp && tp->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_RTO_CB_FLAG ? 0 : before;
}

/* Whether paths can matter to a socket; counts those to which they do not. */
static __always_inline bool may_take(const struct host_paths *paths, const struct bpf_sock *sk, __u32 allowed)
{
	/* The kernel looks for a route through that device, or in the VRF's table, whatever the mark is. */
	if (sk->bound_dev_if) {
		count(HOST_TO_DEVICE);
		return false;
	}
	if (!allowed) {
		count(HOST_NO_SOURCE);
		return false;
	}
	return true;
}

/*
 * About when a connection was established: when the kernel last tuned its receive buffer, for which it first starts the
 * clock then. A connection that receives data looks younger than it is.
 */
static __u64 began_ns(const struct tcp_sock *tp, __u64 now_ns)
{
	if (!tp || !bpf_core_field_exists(tp->rcvq_space.time) || !tp->rcvq_space.time)
		return now_ns;
	return pc_least(tp->rcvq_space.time * 1000, now_ns);
}

/* The path set changed under the connection: it learns again, and stays on its path if that exists and takes its address. */
static void choose_anew(const struct host_config *cfg, struct conn *conn, const struct host_paths *paths,
			__u32 allowed)
{
	__u32 i, kept = PC_MAX_PATHS, from_id = conn->current_id;

	conn->decisions += conn->policy.decisions;
	conn->moves += conn->policy.moves;
	conn->suppressed += conn->policy.suppressed;
	/* In numbers: the verifier of Linux 6.1 would walk what follows for each path that it may be. */
	for (i = 0; i < PC_MAX_PATHS; i++)
		kept = (__u32)pc_choose(kept, i, pc_above(paths->n, i) & pc_zero(paths->path[i].id ^ from_id));
	pc_open_again(&conn->policy, &cfg->policy, paths->path, paths->n, allowed, shared_by(cfg, paths), kept,
		      bpf_ktime_get_ns(), bpf_get_prandom_u32());
	conn->generation = paths->generation;
	conn->current_id = path_id(paths, conn->policy.current);
	if (conn->current_id != from_id) {
		conn->decided_ns = bpf_ktime_get_ns();
		conn->reason = PC_NONE;
		conn->stay = PC_NO_STAY;
		conn->moves++;
		count(HOST_MOVED + PC_NONE);
	}
}

#endif
