/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What happens to a connection, and what comes of it. */
#ifndef SIDESTEP_HOST_SIGNALS_H
#define SIDESTEP_HOST_SIGNALS_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "flags.h"
#include "records.h"
#include "storage.h"

#define TCP_RTO_MIN_NS 200000000
/* Within this time the agent makes all connections take note of paths that changed. */
#define ADOPTION_NS 1000000000ULL

/* A connection takes note of paths that changed. Not within `signal`: Linux 6.1 has no stack for both. */
static __noinline int adopt(struct bpf_sock_ops *ops)
{
	const struct host_config *cfg = configured();
	struct bpf_sock *sk = ops->sk;
	struct host_paths *paths;
	struct conn *conn;
	__u32 from_id;

	conn = sk ? bpf_sk_storage_get(&sidestep_conns, sk, 0, 0) : 0;
	paths = paths_to_peer(ops);
	if (!cfg || !conn || !paths)
		return 0;
	from_id = conn->current_id;
	choose_anew(cfg, conn, paths, paths_from_here(ops, paths));
	take_path(ops, sk->mark, cfg, paths, conn->policy.current);
	if (cfg->events && conn->current_id != from_id)
		report_decision(ops, conn, PC_NONE, from_id);
	return 0;
}

static void read_socket(const struct bpf_tcp_sock *tp, struct pc_round *round)
{
	__u64 srtt_ns = (__u64)(tp->srtt_us >> 3) * 1000;

	round->now_ns = bpf_ktime_get_ns();
	round->cwnd_bytes = (__u64)tp->snd_cwnd * tp->mss_cache;
	round->srtt_ns = srtt_ns;
	/* BPF does not see the variation. One above the minimum only makes the RTO longer. */
	round->rto_ns = srtt_ns ? srtt_ns + TCP_RTO_MIN_NS : 0;
	round->delivered = tp->delivered;
	round->delivered_ce = tp->delivered_ce;
	round->mss = tp->mss_cache;
	round->in_flight = tp->packets_out;
	round->received = tp->rcv_nxt;
	round->unused = 0;
}

/*
 * The RTO in ticks, computed with the least variation instead of the measured one. A host that only receives has a
 * single RTT sample, the handshake's, so its own RTO stays at three times that round trip (three seconds without a
 * sample). That is too long: the other end has several timeouts in this time.
 */
static __u32 least_rto(const struct tcp_sock *tp)
{
	__u32 srtt_us = tp->srtt_us >> 3, var_us = tp->rttvar_us, rto = tp->inet_conn.icsk_rto;
	__u64 whole_us = (__u64)srtt_us + var_us;

	/* The kernel converted microseconds to ticks. BPF does not know the ticks per second, so scale by the ratio. */
	return whole_us ? rto * (srtt_us + pc_least(var_us, TCP_RTO_MIN_NS / 1000)) / whole_us : rto;
}

/*
 * Whether the packet that is about to leave reports data that came again (D-SACK, RFC 2883), and how long before it new
 * data last came, as a share of the RTO. The kernel answers a duplicate at once, mostly before a program for arriving
 * packets would see it, because it is out of the window. Where SACK or net.ipv4.tcp_dsack is off none is observed.
 */
static bool came_again(struct bpf_sock_ops *ops, struct bpf_sock *sk, __u32 *quiet_q16)
{
	struct tcp_sock *tp;
	__u32 quiet, rto;

	if (ops->args[0] & BPF_WRITE_HDR_TCP_CURRENT_MSS)
		return false;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || !BPF_CORE_READ_BITFIELD(tp, rx_opt.dsack))
		return false;
	rto = least_rto(tp);
	quiet = (__u32)bpf_jiffies64() - tp->inet_conn.icsk_ack.lrcvtime;
	*quiet_q16 = rto ? pc_least(((__u64)quiet << 16) / rto, 0xffffffff) : 0;
	return true;
}

static bool ends_round(const struct bpf_sock_ops *ops)
{
	return ops->op == BPF_SOCK_OPS_RTT_CB || ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB;
}

/*
 * Returns 1 if a signal is for a connection with storage. If it is the first one that matters to a connection, that gets
 * storage now. A global function, which the verifier walks by itself.
 */
__noinline int sidestep_first_signal(struct bpf_sock_ops *ops)
{
	const struct host_config *cfg = configured();
	struct bpf_sock *sk = ops->sk;
	struct host_paths *paths;
	struct bpf_tcp_sock *tp;
	struct pc_round round;
	struct conn *conn;
	__u32 current;

	/* The agent of another namespace may have set the flags. */
	if (!cfg || !sk || bpf_get_netns_cookie(ops) != cfg->netns_cookie)
		return 0;
	if (bpf_sk_storage_get(&sidestep_conns, sk, 0, 0))
		return 1;
	/* In a dry run no mark means anything; and nothing is left to be learnt of what has ended. */
	if (cfg->dry_run || ops->op == BPF_SOCK_OPS_STATE_CB)
		return 0;
	paths = paths_to_peer(ops);
	tp = bpf_tcp_sock(sk);
	if (!paths || !paths->n || !tp)
		return 0;
	current = sidestep_index_of(paths, slot_of(cfg, sk->mark));
	if (current >= PC_MAX_PATHS) {
		/* The path may be gone, and the agent is about to give the connection another one. */
		if (pc_since(bpf_ktime_get_ns(), paths->changed_ns) > ADOPTION_NS)
			let_go(ops, sk, HOST_OWN_MARK);
		return 0;
	}
	if (sk->bound_dev_if) {
		let_go(ops, sk, HOST_TO_DEVICE);
		return 0;
	}
	read_socket(tp, &round);
	if (ends_round(ops) && pc_uneventful(&cfg->policy, paths->path, shared_by(cfg, paths), current, &round))
		return 0;
	conn = bpf_sk_storage_get(&sidestep_conns, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!conn) {
		count(HOST_NO_STORAGE);
		return 0;
	}
	begin_history(conn, began_ns(bpf_skc_to_tcp_sock(sk), round.now_ns));
	pc_resume(&conn->policy, &cfg->policy, paths->path, paths->n, paths_from_here(ops, paths),
		  shared_by(cfg, paths), &round, conn->opened_ns, bpf_get_prandom_u32(), current);
	conn->mark_before = 0;
	conn->generation = paths->generation;
	conn->passive = !!(ops->bpf_sock_ops_cb_flags & PASSIVE_FLAG);
	conn->has_address = 1;
	conn->current_id = path_id(paths, current);
	return 1;
}

/* When a connection drew its first path, it may have had no address yet. */
static __noinline int note_address(struct bpf_sock_ops *ops, const struct host_paths *paths, struct conn *conn)
{
	if (!paths->restricted || conn->has_address)
		return 0;
	conn->policy.allowed = paths_from_here(ops, paths);
	conn->has_address = 1;
	return 0;
}

/* Counts a signal that did not move a connection; returns whether it must be reported. */
static bool stays(const struct pc_decision *decision)
{
	__u32 failures = 1u << PC_RTO | 1u << PC_SYN_TIMEOUT | 1u << PC_ACK_LOSS;

	if (decision->stay < PC_STAYS)
		count(HOST_STAYED + decision->stay);
	/* Without a draw it shows something of the path. Signals of congestion may come with each round trip. */
	return decision->decided || (decision->stay == PC_ONLY_PATH && failures >> (decision->reason & 31) & 1);
}

/* The policy observes what happened. */
static __always_inline void observe(struct bpf_sock_ops *ops, const struct host_config *cfg, struct conn *conn,
				    const struct host_paths *paths, const struct pc_round *round, __u32 quiet_q16,
				    struct pc_decision *decision)
{
	struct pc_shared *shared = shared_by(cfg, paths);
	__u32 random = bpf_get_prandom_u32();

	if (ends_round(ops)) {
		pc_round(&conn->policy, &cfg->policy, paths->path, shared, round, random, decision);
	} else if (ops->op == BPF_SOCK_OPS_RETRANS_CB) {
		pc_retransmit(&conn->policy, &cfg->policy, paths->path, shared, round, ops->args[1], random, decision);
	} else if (ops->op == BPF_SOCK_OPS_HDR_OPT_LEN_CB) {
		/* A move takes this very packet along: its route is looked up later. */
		pc_duplicate(&conn->policy, &cfg->policy, paths->path, shared, round, quiet_q16, random, decision);
	} else if (ops->op == BPF_SOCK_OPS_STATE_CB) {
		pc_close(&conn->policy, &cfg->policy, paths->path, shared, round);
	} else {
		bool syn = ops->state == BPF_TCP_SYN_SENT;

		pc_timeout(&conn->policy, &cfg->policy, paths->path, shared, round, syn, random, decision);
	}
}

/* A signal for a connection with storage. Returns 1 if it should adopt other paths instead. */
static __noinline int signal(struct bpf_sock_ops *ops, __u32 quiet_q16)
{
	const struct host_config *cfg;
	struct pc_decision decision = {};
	struct host_paths *paths;
	struct bpf_sock *sk = ops->sk;
	struct bpf_tcp_sock *tp;
	struct conn *conn;
	struct pc_round round;
	__u32 from, from_id, mark;

	cfg = configured();
	conn = sk ? bpf_sk_storage_get(&sidestep_conns, sk, 0, 0) : 0;
	if (!cfg || !conn)
		return 0;
	mark = sk->mark;
	paths = paths_to_peer(ops);
	tp = bpf_tcp_sock(sk);
	if (!paths || !paths->n || !tp)
		return 0;
	if (conn->generation != paths->generation)
		return ops->op != BPF_SOCK_OPS_STATE_CB;
	from = conn->policy.current;
	if (!cfg->dry_run && (sk->bound_dev_if || mark != mark_of(mark, cfg, paths, from))) {
		let_go(ops, sk, sk->bound_dev_if ? HOST_TO_DEVICE : HOST_OWN_MARK);
		return 0;
	}
	note_address(ops, paths, conn);
	/* No path takes its address, which the host has lost: what becomes of it shows nothing of any path. */
	if (paths->restricted && !conn->policy.allowed)
		return 0;
	read_socket(tp, &round);
	observe(ops, cfg, conn, paths, &round, quiet_q16, &decision);
	if (!decision.reason)
		return 0;
	conn->signal_ns = round.now_ns;
	conn->signal = decision.reason;
	from_id = conn->current_id;
	if (decision.decided) {
		conn->decided_ns = round.now_ns;
		conn->reason = decision.reason;
	}
	conn->stay = decision.stay;
	if (decision.moved) {
		if (!take_path(ops, mark, cfg, paths, decision.path)) {
			/* It stays on its path, which goes on to earn its reward. */
			pc_take(&conn->policy, &cfg->policy, pc_all_paths(&conn->policy), from);
			return 0;
		}
		conn->current_id = path_id(paths, decision.path);
		if (decision.reason < PC_REASONS)
			count(HOST_MOVED + decision.reason);
	} else if (!stays(&decision)) {
		return 0;
	}
	if (cfg->events)
		report_decision(ops, conn, decision.reason, from_id);
	return 0;
}

#endif
