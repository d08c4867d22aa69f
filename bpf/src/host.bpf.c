/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The path changer inside TCP. It observes round trips, retransmits and timeouts of the connections of
 * one cgroup, asks the policy, and moves a connection by changing its mark: the agent's rules and
 * tables make a route of each mark. Connections to destinations without paths cost one lookup.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "host.h"

#define AF_INET 2
#define SOL_SOCKET 1
#define SO_MARK 36
#define EVENTS_SIZE (256 * 1024)
#define TCP_RTO_MIN_NS 200000000

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_config);
} sidestep_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct host_prefix);
	__type(value, struct host_paths);
} sidestep_dests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct host_prefix);
	__type(value, struct host_weights);
} sidestep_learnt SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096 * (PC_MAX_PATHS + 1));
	__type(key, struct host_name_key);
	__type(value, struct host_name);
} sidestep_names SEC(".maps");

struct conn {
	struct pc_conn policy;
	__u64 opened_ns;
	__u64 decided_ns;
	__u32 generation;
	__u32 current_id;
	__u32 mark_before; /* what our bits were when the connection opened */
	__u8 reason; /* of the last decision */
	__u8 passive;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct conn);
} sidestep_conns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENTS_SIZE);
} sidestep_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOST_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} sidestep_counts SEC(".maps");

static struct host_config *configured(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sidestep_config, &zero);
}

static void count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&sidestep_counts, &which);

	/* A packet may interrupt a connect on the same processor. */
	if (counter)
		__sync_fetch_and_add(counter, 1);
}

/* IPv4 as an IPv6 socket would have it: ::ffff:a.b.c.d. */
static void map_address(__u32 to[4], __u32 address)
{
	/* The verifier wants each word of the context read at a place of its own; clang would merge the reads. */
	barrier_var(address);
	to[0] = to[1] = 0;
	to[2] = bpf_htonl(0xffff);
	to[3] = address;
}

static void ends_of(struct host_ends *ends, const struct bpf_sock_ops *ops)
{
	if (ops->family == AF_INET) {
		map_address(ends->local_addr, ops->local_ip4);
		map_address(ends->remote_addr, ops->remote_ip4);
	} else {
		ends->local_addr[0] = ops->local_ip6[0];
		ends->local_addr[1] = ops->local_ip6[1];
		ends->local_addr[2] = ops->local_ip6[2];
		ends->local_addr[3] = ops->local_ip6[3];
		ends->remote_addr[0] = ops->remote_ip6[0];
		ends->remote_addr[1] = ops->remote_ip6[1];
		ends->remote_addr[2] = ops->remote_ip6[2];
		ends->remote_addr[3] = ops->remote_ip6[3];
	}
	ends->local_port = ops->local_port;
	ends->remote_port = bpf_ntohl(ops->remote_port);
}

/* IPv4 through an IPv6 socket is IPv4. */
static struct host_paths *paths_to(const struct host_ends *ends)
{
	const __u32 *address = ends->remote_addr;
	bool mapped = !address[0] && !address[1] && address[2] == bpf_htonl(0xffff);
	struct host_prefix key = {};
	__u32 *addr = (__u32 *)key.addr;

	if (mapped) {
		key.family = 4;
		key.len = 32 + 32;
		addr[0] = address[3];
	} else {
		key.family = 6;
		key.len = 32 + 128;
		__builtin_memcpy(addr, address, 16);
	}
	return bpf_map_lookup_elem(&sidestep_dests, &key);
}

/* Not inlined: the addresses must not take room on the stack while the policy decides. */
static __noinline struct host_paths *paths_to_peer(struct bpf_sock_ops *ops)
{
	struct host_ends ends;

	ends_of(&ends, ops);
	return paths_to(&ends);
}

/*
 * What connections to a destination learn together. It is 0 if each learns for itself, if the weights are those of
 * other paths, and in a dry run, in which nobody takes the paths.
 */
static struct pc_shared *shared_by(const struct host_config *cfg, const struct host_paths *paths)
{
	struct host_weights *found;

	if (!cfg->policy.shared || cfg->dry_run)
		return 0;
	found = bpf_map_lookup_elem(&sidestep_learnt, &paths->key);
	return found && found->generation == paths->generation ? &found->shared : 0;
}

static __u32 path_id(const struct host_paths *paths, __u32 index)
{
	return index < PC_MAX_PATHS ? paths->path[index].id : 0;
}

static struct host_event *new_event(void)
{
	struct host_event *event = bpf_ringbuf_reserve(&sidestep_events, sizeof(*event), 0);

	if (!event)
		count(HOST_EVENTS_LOST);
	return event;
}

/* The agent looks twice a second by itself. Waking it for each event would cost more than everything else here. */
static void submit(struct host_event *event, const struct conn *conn, __u8 kind, __u8 reason, __u32 from_id)
{
	event->time_ns = bpf_ktime_get_ns();
	event->kind = kind;
	event->reason = reason;
	event->passive = conn->passive;
	event->pad = 0;
	event->from_id = from_id;
	event->to_id = conn->current_id;
	bpf_ringbuf_submit(event, bpf_ringbuf_query(&sidestep_events, BPF_RB_AVAIL_DATA) < EVENTS_SIZE / 4 ?
					  BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
}

static void report(struct bpf_sock_ops *ops, const struct conn *conn, __u8 kind, __u8 reason, __u32 from_id)
{
	struct host_event *event = new_event();

	if (!event)
		return;
	ends_of(&event->ends, ops);
	submit(event, conn, kind, reason, from_id);
}

/* The mark of a connection on path `index`: only our bits of it change. */
static __u32 mark_of(__u32 mark, const struct host_config *cfg, const struct host_paths *paths, __u32 index)
{
	__u32 slot = index < PC_MAX_PATHS ? paths->slot[index] : 0;

	return (mark & ~cfg->mark_mask) | ((slot << cfg->mark_shift) & cfg->mark_mask);
}

/* Puts the connection on path `index`; the kernel looks its route up anew. */
static bool take_path(struct bpf_sock_ops *ops, struct bpf_sock *sk, const struct host_config *cfg,
		      const struct host_paths *paths, __u32 index)
{
	__u32 mark = mark_of(sk->mark, cfg, paths, index);

	if (cfg->dry_run)
		return true;
	if (bpf_setsockopt(ops, SOL_SOCKET, SO_MARK, &mark, sizeof(mark))) {
		count(HOST_MARK_REFUSED);
		return false;
	}
	return true;
}

static void open_connection(struct bpf_sock_ops *ops, bool passive)
{
	const struct host_config *cfg = configured();
	struct host_paths *paths = paths_to_peer(ops);
	struct bpf_sock *sk = ops->sk;
	struct pc_shared *shared;
	struct conn *conn;
	__u32 flags;
	__u64 now;

	if (!cfg)
		return;
	if (!paths || !paths->n) {
		count(HOST_UNTOUCHED);
		return;
	}
	if (!sk)
		return;
	conn = bpf_sk_storage_get(&sidestep_conns, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!conn) {
		count(HOST_NO_STORAGE);
		return;
	}
	now = bpf_ktime_get_ns();
	shared = shared_by(cfg, paths);
	pc_open(&conn->policy, &cfg->policy, paths->path, paths->n, shared, now, bpf_get_prandom_u32());
	if (!passive)
		pc_connect(&conn->policy, &cfg->policy, shared);
	conn->opened_ns = now;
	conn->decided_ns = 0;
	conn->reason = PC_NONE;
	conn->mark_before = sk->mark & cfg->mark_mask;
	conn->generation = paths->generation;
	conn->passive = passive;
	conn->current_id = path_id(paths, conn->policy.current);
	if (!take_path(ops, sk, cfg, paths, conn->policy.current))
		return;
	flags = ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_RTO_CB_FLAG |
		BPF_SOCK_OPS_RETRANS_CB_FLAG;
	if (cfg->policy.ack_quiet_q16)
		flags |= BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
	if (cfg->policy.shared && pc_learns(&cfg->policy))
		flags |= BPF_SOCK_OPS_STATE_CB_FLAG;
	bpf_sock_ops_cb_flags_set(ops, flags);
	count(passive ? HOST_PASSIVE : HOST_ACTIVE);
	if (cfg->events)
		report(ops, conn, HOST_OPENED, PC_NONE, 0);
}

/* The path set changed under the connection: it learns anew, and stays on its path if that still exists. */
static void choose_anew(const struct host_config *cfg, struct conn *conn, const struct host_paths *paths)
{
	__u32 i, current, from_id = conn->current_id;

	pc_open(&conn->policy, &cfg->policy, paths->path, paths->n, shared_by(cfg, paths), bpf_ktime_get_ns(),
		bpf_get_prandom_u32());
	current = conn->policy.current;
	for (i = 0; i < PC_MAX_PATHS; i++) {
		if (i < paths->n && paths->path[i].id == from_id)
			current = i;
	}
	pc_take(&conn->policy, &cfg->policy, pc_all_paths(&conn->policy), current);
	conn->generation = paths->generation;
	conn->current_id = path_id(paths, conn->policy.current);
	if (conn->current_id != from_id) {
		conn->decided_ns = bpf_ktime_get_ns();
		conn->reason = PC_NONE;
	}
}

static void adopt(struct bpf_sock_ops *ops, struct bpf_sock *sk, const struct host_config *cfg, struct conn *conn,
		  const struct host_paths *paths)
{
	__u32 from_id = conn->current_id;

	choose_anew(cfg, conn, paths);
	take_path(ops, sk, cfg, paths, conn->policy.current);
	if (cfg->events && conn->current_id != from_id)
		report(ops, conn, HOST_DECIDED, PC_NONE, from_id);
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

static void signal(struct bpf_sock_ops *ops)
{
	const struct host_config *cfg;
	struct pc_decision decision = {};
	struct pc_shared *shared;
	struct host_paths *paths;
	struct bpf_sock *sk = ops->sk;
	struct bpf_tcp_sock *tp;
	struct conn *conn;
	struct pc_round round;
	__u32 random, from, from_id, quiet_q16 = 0;

	if (!sk)
		return;
	/* First, because the kernel asks this for each packet. */
	if (ops->op == BPF_SOCK_OPS_HDR_OPT_LEN_CB && !came_again(ops, sk, &quiet_q16))
		return;
	cfg = configured();
	conn = bpf_sk_storage_get(&sidestep_conns, sk, 0, 0);
	if (!cfg || !conn)
		return;
	paths = paths_to_peer(ops);
	tp = bpf_tcp_sock(sk);
	if (!paths || !paths->n || !tp)
		return;
	if (conn->generation != paths->generation) {
		if (ops->op != BPF_SOCK_OPS_STATE_CB)
			adopt(ops, sk, cfg, conn, paths);
		return;
	}
	random = bpf_get_prandom_u32();
	from = conn->policy.current;
	read_socket(tp, &round);
	shared = shared_by(cfg, paths);

	if (ops->op == BPF_SOCK_OPS_RTT_CB) {
		pc_round(&conn->policy, &cfg->policy, paths->path, shared, &round, random, &decision);
	} else if (ops->op == BPF_SOCK_OPS_RETRANS_CB) {
		pc_retransmit(&conn->policy, &cfg->policy, paths->path, shared, &round, ops->args[1], random, &decision);
	} else if (ops->op == BPF_SOCK_OPS_HDR_OPT_LEN_CB) {
		/* A move takes this very packet along: its route is looked up later. */
		pc_duplicate(&conn->policy, &cfg->policy, paths->path, shared, &round, quiet_q16, random, &decision);
	} else if (ops->op == BPF_SOCK_OPS_STATE_CB) {
		pc_close(&conn->policy, &cfg->policy, paths->path, shared, &round);
	} else {
		bool syn = ops->state == BPF_TCP_SYN_SENT;

		pc_timeout(&conn->policy, &cfg->policy, paths->path, shared, &round, syn, random, &decision);
	}
	if (!decision.decided)
		return;
	from_id = conn->current_id;
	conn->decided_ns = round.now_ns;
	conn->reason = decision.reason;
	if (decision.moved) {
		if (!take_path(ops, sk, cfg, paths, decision.path)) {
			/* It stays on its path, which goes on to earn its reward. */
			pc_take(&conn->policy, &cfg->policy, pc_all_paths(&conn->policy), from);
			return;
		}
		conn->current_id = path_id(paths, decision.path);
		if (decision.reason < PC_REASONS)
			count(HOST_MOVED + decision.reason);
	} else {
		count(HOST_STAYED);
	}
	if (cfg->events)
		report(ops, conn, HOST_DECIDED, decision.reason, from_id);
}

SEC("sockops")
int sidestep_host(struct bpf_sock_ops *ops)
{
	/* The kernel calls for much else, for instance for the first timeout of a connection. That ends here. */
	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		open_connection(ops, false);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		open_connection(ops, true);
		break;
	case BPF_SOCK_OPS_RTT_CB:
	case BPF_SOCK_OPS_RETRANS_CB:
	case BPF_SOCK_OPS_RTO_CB:
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		signal(ops);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ops->args[1] == BPF_TCP_CLOSE)
			signal(ops);
		break;
	}
	return 1;
}

/*
 * The programs below act on all connections of the network namespace when the agent reads an iterator. The kernel holds
 * each socket's lock meanwhile.
 */
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

static void set_mark(struct sock *sk, const struct host_config *cfg, __u32 mark)
{
	if (cfg->dry_run)
		return;
	if (bpf_setsockopt(sk, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)))
		count(HOST_MARK_REFUSED);
}

/*
 * Connections with a path look their route up anew. The kernel keeps the route of a socket as long as it is valid; one that
 * was looked up while our rules or routes were missing stays valid when these are back. Another mark, for a moment in which
 * the socket's lock lets nothing out, makes it forget.
 */
SEC("iter/tcp")
int sidestep_reroute(struct bpf_iter__tcp *ctx)
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
	set_mark(sk, cfg, (sk->sk_mark & ~cfg->mark_mask) | conn->mark_before);
	bpf_sk_storage_delete(&sidestep_conns, sk);
}

SEC("iter/tcp")
int sidestep_leave(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct sock *sk = socket_of(common);
	struct host_config *cfg;
	struct conn *conn;

	cfg = configured();
	conn = sk ? bpf_sk_storage_get(&sidestep_conns, sk, 0, 0) : 0;
	if (cfg && conn)
		leave(sk, cfg, conn);
	return 0;
}

/* Connections take note of paths that changed, before their next signal. */
SEC("iter/tcp")
int sidestep_adopt(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct sock *sk = socket_of(common);
	struct host_paths *paths;
	struct host_event *event;
	struct host_config *cfg;
	struct host_ends ends;
	struct conn *conn;
	__u32 from_id;

	cfg = configured();
	conn = sk ? bpf_sk_storage_get(&sidestep_conns, sk, 0, 0) : 0;
	if (!cfg || !conn)
		return 0;
	ends_of_socket(&ends, common);
	paths = paths_to(&ends);
	if (!paths || !paths->n) {
		leave(sk, cfg, conn);
		return 0;
	}
	if (conn->generation == paths->generation)
		return 0;
	from_id = conn->current_id;
	choose_anew(cfg, conn, paths);
	set_mark(sk, cfg, mark_of(sk->sk_mark, cfg, paths, conn->policy.current));
	if (!cfg->events || conn->current_id == from_id)
		return 0;
	event = new_event();
	if (event) {
		event->ends = ends;
		submit(event, conn, HOST_DECIDED, PC_NONE, from_id);
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
	marked.slot = (sk->sk_mark & cfg->mark_mask) >> (cfg->mark_shift & 31);
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
	struct host_status status = {};
	struct conn *conn;

	conn = sk ? bpf_sk_storage_get(&sidestep_conns, sk, 0, 0) : 0;
	if (!conn)
		return 0;
	status.opened_ns = conn->opened_ns;
	status.decided_ns = conn->decided_ns;
	ends_of_socket(&status.ends, common);
	status.reason = conn->reason;
	status.passive = conn->passive;
	status.path_id = conn->current_id;
	status.decisions = conn->policy.decisions;
	status.moves = conn->policy.moves;
	status.suppressed = conn->policy.suppressed;
	bpf_seq_write(seq, &status, sizeof(status));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
