/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A connection begins: its SYN leaves, or it is established. */
#ifndef SIDESTEP_HOST_HANDSHAKE_H
#define SIDESTEP_HOST_HANDSHAKE_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "flags.h"
#include "kernel.h"
#include "records.h"
#include "storage.h"

/* What a kernel may have for CONFIG_HZ. */
#define HZ_MIN 100
#define HZ_MAX 1024
/* What pc_syn_retries returns at most. */
#define SYN_RETRIES_MORE 4

static void report_opened(struct bpf_sock_ops *ops, __u32 path_id, bool passive)
{
	struct change change = { .to_id = path_id, .kind = HOST_OPENED, .passive = passive };

	report(ops, &change);
}

/* The path of a connection by its storage, or else by its mark; 0: it has none. */
static __u32 present_id(const struct host_config *cfg, const struct host_paths *paths, struct bpf_sock *sk)
{
	struct conn *conn = bpf_sk_storage_get(&sidestep_conns, sk, 0, 0);

	return conn ? conn->current_id : path_id(paths, sidestep_index_of(paths, slot_of(cfg, sk->mark)));
}

/* A connection that has its addresses begins: one that was accepted, or one that connects and has no mark yet. */
static __noinline int open_with_addresses(struct bpf_sock_ops *ops)
{
	bool passive = ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB;
	struct opening opening = { .cfg = configured(), .passive = passive };
	struct bpf_sock *sk = ops->sk;

	if (!opening.cfg || !sk)
		return 0;
	if (bpf_get_netns_cookie(ops) != opening.cfg->netns_cookie) {
		count(HOST_OTHER_NETNS);
		return 0;
	}
	opening.paths = paths_to_peer(ops);
	if (!opening.paths || !opening.paths->n) {
		count(HOST_UNTOUCHED);
		return 0;
	}
	opening.allowed = paths_from_here(ops, opening.paths);
	if (!may_take(opening.paths, sk, opening.allowed))
		return 0;
	opening.mark = sk->mark;
	opening.before = mark_before(sk, opening.mark, opening.cfg);
	if (begin(ops, sk, &opening) >= PC_MAX_PATHS)
		return 0;
	if (passive)
		watch(ops, opening.cfg, PASSIVE_FLAG);
	else
		watch_syn(ops);
	if (opening.cfg->events)
		report_opened(ops, present_id(opening.cfg, opening.paths, sk), passive);
	return 0;
}

/*
 * The SYN of a connection is about to leave. Its path was chosen when the socket connected; returns whether that is
 * still to be done.
 */
static bool syn_leaves(struct bpf_sock_ops *ops)
{
	const struct host_config *cfg = configured();
	struct bpf_sock *sk = ops->sk;
	struct host_paths *paths;
	struct tcp_sock *tp;

	if (!cfg || !sk)
		return false;
	if (cfg->dry_run)
		return true;
	if (!slot_of(cfg, sk->mark)) {
		/* The first subflow of a connection of MPTCP does not pass through connect4 and connect6. */
		tp = bpf_skc_to_tcp_sock(sk);
		return tp && tp->is_mptcp;
	}
	if (bpf_get_netns_cookie(ops) != cfg->netns_cookie)
		return false;
	watch_syn(ops);
	if (!cfg->events)
		return false;
	paths = paths_to_peer(ops);
	if (paths && !sk->bound_dev_if && sidestep_index_of(paths, slot_of(cfg, sk->mark)) < PC_MAX_PATHS)
		report_opened(ops, present_id(cfg, paths, sk), false);
	return false;
}

/*
 * The kernel asks after how many ticks a SYN that is about to leave must be sent again; 0: after a second. Where others have
 * measured the path's round trip it is less, and the SYN is sent some more times, so that the connection is not given up
 * before it would have been. An application that itself sets how often its SYNs are sent is left alone.
 */
static __noinline int syn_timeout(struct bpf_sock_ops *ops)
{
	const struct host_config *cfg = configured();
	struct bpf_sock *sk = ops->sk;
	__u32 hz, retries, own, index;
	struct host_paths *paths;
	struct tcp_sock *tp;
	__u64 rto_ns;

	if (!cfg || !sk || cfg->dry_run || !slot_of(cfg, sk->mark) || bpf_get_netns_cookie(ops) != cfg->netns_cookie)
		return 0;
	paths = paths_to_peer(ops);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!paths || !tp)
		return 0;
	index = sidestep_index_of(paths, slot_of(cfg, sk->mark));
	if (index >= PC_MAX_PATHS)
		return 0;
	rto_ns = pc_syn_rto(&cfg->policy, shared_by(cfg, paths), index, bpf_ktime_get_ns());
	/* A socket that has not sent yet has Linux's second here, and so the ticks in one. */
	hz = tp->inet_conn.icsk_rto;
	if (!rto_ns || hz < HZ_MIN || hz > HZ_MAX)
		return 0;
	retries = ((struct sock *)tp)->__sk_common.skc_net.net->ipv4.sysctl_tcp_syn_retries;
	own = tp->inet_conn.icsk_syn_retries;
	/* What this program set when the same socket connected before is not the application's. */
	if (own && (own <= retries || own > retries + SYN_RETRIES_MORE))
		return 0;
	retries += pc_syn_retries(rto_ns);
	if (bpf_setsockopt(ops, IPPROTO_TCP, TCP_SYNCNT, &retries, sizeof(retries)))
		return 0;
	return rto_ns * hz / 1000000000 + 1;
}

/*
 * A connection opened here is established; before, only the SYN's timeouts mattered. Returns whether the SYN's round trip
 * is known: it is not where the SYN was sent more than once, and there are no timestamps.
 */
static bool established(struct bpf_sock_ops *ops)
{
	const struct host_config *cfg;

	if (!(ops->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_RTO_CB_FLAG))
		return false;
	cfg = configured();
	if (!cfg || bpf_get_netns_cookie(ops) != cfg->netns_cookie)
		return false;
	watch(ops, cfg, 0);
	return ops->srtt_us;
}

#endif
