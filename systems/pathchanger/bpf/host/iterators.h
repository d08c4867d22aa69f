/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * These programs act on all connections of the network namespace when the agent reads an iterator. The kernel holds
 * each socket's lock meanwhile.
 */
#ifndef SIDESTEP_HOST_ITERATORS_H
#define SIDESTEP_HOST_ITERATORS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "flags.h"
#include "kernel.h"
#include "records.h"
#include "storage.h"

static struct sock *socket_of(struct sock_common *common)
{
	/* Neither requests nor connections in TIME-WAIT have storage. */
	return common ? (struct sock *)bpf_skc_to_tcp_sock(common) : 0;
}

static void ends_of_socket(struct host_ends *ends, const struct sock_common *common)
{
	if (common->skc_family == AF_INET) {
		map_address(ends->local_addr, common->skc_rcv_saddr);
		map_address(ends->remote_addr, common->skc_daddr);
	} else {
		__builtin_memcpy(ends->local_addr, &common->skc_v6_rcv_saddr, 16);
		__builtin_memcpy(ends->remote_addr, &common->skc_v6_daddr, 16);
	}
	ends->local_port = common->skc_num;
	ends->remote_port = bpf_ntohs(common->skc_dport);
}

/* Whether a connection without storage is one of ours. */
static bool is_ours(struct sock *sk, const struct host_config *cfg)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	return !cfg->dry_run && slot_of(cfg, sk->sk_mark) && tp->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_RTO_CB_FLAG;
}

static void set_mark(struct sock *sk, const struct host_config *cfg, __u32 mark)
{
	if (cfg->dry_run)
		return;
	if (bpf_setsockopt(sk, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)))
		count(HOST_MARK_REFUSED);
}

/*
 * Connections with a path look their route up again. The kernel keeps the route of a socket as long as it is valid; one that
 * was looked up while our rules or routes were missing stays valid when these are back. Another mark, for a moment in which
 * the socket's lock lets nothing out, makes it forget.
 */
SEC("iter/tcp")
int sidestep_lookup(struct bpf_iter__tcp *ctx)
{
	struct sock *sk = socket_of(ctx->sk_common);
	struct host_config *cfg = configured();
	__u32 mark;

	if (!cfg || !sk || !(sk->sk_mark & cfg->mark_mask))
		return 0;
	mark = sk->sk_mark;
	set_mark(sk, cfg, mark ^ cfg->mark_mask);
	set_mark(sk, cfg, mark);
	return 0;
}

/* Releases a connection: its mark is again what it was. */
static void leave(struct sock *sk, const struct host_config *cfg, const struct conn *conn)
{
	if (conn) {
		set_mark(sk, cfg, (sk->sk_mark & ~cfg->mark_mask) | conn->mark_before);
		bpf_sk_storage_delete(&sidestep_conns, sk);
	} else if (is_ours(sk, cfg)) {
		set_mark(sk, cfg, sk->sk_mark & ~cfg->mark_mask);
	}
}

SEC("iter/tcp")
int sidestep_leave(struct bpf_iter__tcp *ctx)
{
	struct sock *sk = socket_of(ctx->sk_common);
	struct host_config *cfg = configured();

	if (cfg && sk)
		leave(sk, cfg, bpf_sk_storage_get(&sidestep_conns, sk, 0, 0));
	return 0;
}

/*
 * Releases connections of which nothing is known but the slot in their marks, because another version left them: those
 * to the prefixes in `sidestep_dests`.
 */
SEC("iter/tcp")
int sidestep_clear(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct sock *sk = socket_of(common);
	struct host_config *cfg;
	struct host_ends ends;

	cfg = configured();
	if (!cfg || !sk || !(sk->sk_mark & cfg->mark_mask))
		return 0;
	ends_of_socket(&ends, common);
	if (paths_to(&ends))
		set_mark(sk, cfg, sk->sk_mark & ~cfg->mark_mask);
	return 0;
}

static bool is_passive(struct sock *sk)
{
	return ((struct tcp_sock *)sk)->bpf_sock_ops_cb_flags & PASSIVE_FLAG;
}

/* A connection without storage whose path is gone draws another one. */
static __noinline int draw_anew(struct sock *sk, const struct host_paths *paths, const struct host_ends *ends)
{
	const struct host_config *cfg = configured();
	__u32 index;

	if (!cfg)
		return 0;
	index = pc_first(&cfg->policy, paths->path, paths->n, paths_from(paths, ends->local_addr), shared_by(cfg, paths),
			 bpf_ktime_get_ns(), bpf_get_prandom_u32());
	set_mark(sk, cfg, mark_of(sk->sk_mark, cfg, paths, index));
	count(HOST_MOVED + PC_NONE);
	return 0;
}

/* Storage for a connection without one whose path is gone: it must remember that it moved. */
static __always_inline struct conn *remember(struct sock *sk)
{
	struct conn *conn = bpf_sk_storage_get(&sidestep_conns, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!conn) {
		count(HOST_NO_STORAGE);
		return 0;
	}
	begin_history(conn, began_ns((struct tcp_sock *)sk, bpf_ktime_get_ns()));
	conn->mark_before = 0;
	conn->passive = is_passive(sk);
	conn->has_address = 1;
	/* Which path it was is not known any more. */
	conn->current_id = 0;
	return conn;
}

/* Connections take note of paths that changed, before their next signal. */
SEC("iter/tcp")
int sidestep_adopt(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct sock *sk = socket_of(common);
	struct change change = { .kind = HOST_DECIDED };
	struct host_paths *paths;
	struct host_event *event;
	struct host_config *cfg;
	struct host_ends ends;
	struct conn *conn;

	cfg = configured();
	if (!cfg || !sk)
		return 0;
	conn = bpf_sk_storage_get(&sidestep_conns, sk, 0, 0);
	if (!conn && !is_ours(sk, cfg))
		return 0;
	ends_of_socket(&ends, common);
	paths = paths_to(&ends);
	if (!paths || !paths->n) {
		leave(sk, cfg, conn);
		return 0;
	}
	if (!conn) {
		if (sidestep_index_of(paths, slot_of(cfg, sk->sk_mark)) < PC_MAX_PATHS)
			return 0;
		conn = remember(sk);
		if (!conn)
			return draw_anew(sk, paths, &ends);
	} else if (conn->generation == paths->generation) {
		return 0;
	}
	change.from_id = conn->current_id;
	choose_anew(cfg, conn, paths, paths_from(paths, ends.local_addr));
	set_mark(sk, cfg, mark_of(sk->sk_mark, cfg, paths, conn->policy.current));
	change.to_id = conn->current_id;
	change.passive = conn->passive;
	if (!cfg->events || change.to_id == change.from_id)
		return 0;
	event = new_event();
	if (event) {
		event->ends = ends;
		submit(event, &change);
	}
	return 0;
}

/* Writes a struct host_marked for each socket whose mark has a slot, whether or not the program knows the socket. */
SEC("iter/tcp")
int sidestep_marks(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct sock *sk = socket_of(common);
	struct host_marked marked = {};
	struct host_config *cfg;
	struct host_ends ends;

	cfg = configured();
	if (!cfg || !sk)
		return 0;
	marked.slot = slot_of(cfg, sk->sk_mark);
	if (!marked.slot)
		return 0;
	ends_of_socket(&ends, common);
	__builtin_memcpy(marked.remote_addr, ends.remote_addr, sizeof(marked.remote_addr));
	bpf_seq_write(ctx->meta->seq, &marked, sizeof(marked));
	return 0;
}

/* Writes a struct host_status for each connection. */
SEC("iter/tcp")
int sidestep_list(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct sock *sk = socket_of(common);
	struct seq_file *seq = ctx->meta->seq;
	struct host_config *cfg = configured();
	struct host_status status = {};
	struct host_paths *paths;
	struct conn *conn;
	__u32 index;

	if (!cfg || !sk)
		return 0;
	conn = bpf_sk_storage_get(&sidestep_conns, sk, 0, 0);
	if (!conn && !is_ours(sk, cfg))
		return 0;
	ends_of_socket(&status.ends, common);
	if (conn) {
		status.opened_ns = conn->opened_ns;
		status.decided_ns = conn->decided_ns;
		status.signal_ns = conn->signal_ns;
		status.signal = conn->signal;
		status.stay = conn->stay;
		status.reason = conn->reason;
		status.passive = conn->passive;
		status.path_id = conn->current_id;
		status.decisions = conn->decisions + conn->policy.decisions;
		status.moves = conn->moves + conn->policy.moves;
		status.suppressed = conn->suppressed + conn->policy.suppressed;
	} else {
		paths = paths_to(&status.ends);
		index = sidestep_index_of(paths, slot_of(cfg, sk->sk_mark));
		if (!paths || index >= PC_MAX_PATHS)
			return 0;
		status.passive = is_passive(sk);
		status.path_id = path_id(paths, index);
	}
	bpf_seq_write(seq, &status, sizeof(status));
	return 0;
}

#endif
