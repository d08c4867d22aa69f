/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The path changer inside TCP. It chooses a path when a socket of its cgroup connects, observes round trips,
 * retransmits and timeouts, asks the policy, and moves a connection by changing its mark: the agent's rules and
 * tables make a route of each mark. Connections to destinations without paths cost one lookup.
 *
 * The mark says which path a connection is on. Until something happens to a connection, most policies need to
 * know no more of it, so it has no storage (`pc_stateless`). It gets that with its first signal.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "host.h"

#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SO_MARK 36
#define TCP_SYNCNT 7
#define EVENTS_SIZE (256 * 1024)
#define TCP_RTO_MIN_NS 200000000
/* Within this time the agent has all connections take note of paths that changed. */
#define ADOPTION_NS 1000000000ULL
#define SOCK_STREAM 1
#define IPPROTO_TCP 6
/* What a kernel may have for CONFIG_HZ. */
#define HZ_MIN 100
#define HZ_MAX 1024
/* What pc_syn_retries returns at most. */
#define SYN_RETRIES_MORE 4

/* With these the kernel tells us of a connection. One that has them, and a path's slot in its mark, is ours. */
#define SYN_FLAGS (BPF_SOCK_OPS_RTO_CB_FLAG | BPF_SOCK_OPS_RETRANS_CB_FLAG)
#define SIGNAL_FLAGS                                                                                                   \
	(SYN_FLAGS | BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG)
/*
 * A connection that was accepted. The kernel has no room for a bit of ours beside a socket; this one has it call us
 * for options that it does not know itself, which hardly any packet has.
 */
#define PASSIVE_FLAG BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_config);
} sidestep_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_layout);
} sidestep_layout SEC(".maps");

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

/* Source prefixes that paths name, and those that contain them, as bits. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, HOST_SOURCES);
	__type(key, struct host_prefix);
	__type(value, host_source_bits);
} sidestep_addrs SEC(".maps");

struct conn {
	struct pc_conn policy;
	__u64 opened_ns;
	__u64 decided_ns;
	__u64 signal_ns; /* of the last signal */
	__u32 generation;
	__u32 current_id;
	__u32 mark_before; /* what our bits were when the connection opened */
	__u8 reason; /* of the last decision */
	__u8 passive;
	__u8 has_address; /* the policy knows which paths take the connection's address */
	__u8 signal; /* enum pc_reason of the last signal */
	__u8 stay; /* enum pc_stay: what came of it */
	/* What the policy counted before the paths changed, and the moves that this caused. */
	__u32 decisions;
	__u32 moves;
	__u32 suppressed;
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

/* The longest key. IPv4 through an IPv6 socket is IPv4. */
static void key_of(struct host_prefix *key, const __u32 address[4])
{
	bool mapped = !address[0] && !address[1] && address[2] == bpf_htonl(0xffff);
	__u32 *addr = (__u32 *)key->addr;

	__builtin_memset(key, 0, sizeof(*key));
	if (mapped) {
		key->family = 4;
		key->len = 32 + 32;
		addr[0] = address[3];
	} else {
		key->family = 6;
		key->len = 32 + 128;
		__builtin_memcpy(addr, address, 16);
	}
}

static struct host_paths *paths_to(const struct host_ends *ends)
{
	struct host_prefix key;

	key_of(&key, ends->remote_addr);
	return bpf_map_lookup_elem(&sidestep_dests, &key);
}

/* The paths that take packets from this address, as a bit set. */
static __noinline __u32 paths_from(const struct host_paths *paths, const __u32 *address)
{
	__u32 i, n = paths->n, allowed = (1u << (n & 31)) - 1;
	struct host_prefix key;
	host_source_bits *found, bits;

	if (!paths->restricted)
		return allowed;
	key_of(&key, address);
	found = bpf_map_lookup_elem(&sidestep_addrs, &key);
	bits = found ? *found : HOST_UNNAMED;
	for (i = 0; i < PC_MAX_PATHS; i++) {
		__u64 named = paths->sources[i];

		/* Neither names the address, nor takes all. */
		allowed &= ~((__u32)(pc_zero(named & bits) & (1 - pc_zero(named))) << i);
	}
	return allowed;
}

/* Not inlined, as below. */
static __noinline __u32 paths_from_here(struct bpf_sock_ops *ops, const struct host_paths *paths)
{
	struct host_ends ends;

	ends_of(&ends, ops);
	return paths_from(paths, ends.local_addr);
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

static __u32 slot_of(const struct host_config *cfg, __u32 mark)
{
	return (mark & cfg->mark_mask) >> (cfg->mark_shift & 31);
}

/* The path that a slot leads along; PC_MAX_PATHS if none does. A global function, which the verifier walks by itself. */
__noinline __u32 sidestep_index_of(const struct host_paths *paths, __u32 slot)
{
	__u32 i;

	if (!paths || !slot)
		return PC_MAX_PATHS;
	for (i = 0; i < PC_MAX_PATHS; i++) {
		if (paths->slot[i] == slot)
			return i;
	}
	return PC_MAX_PATHS;
}

static struct host_event *new_event(void)
{
	struct host_event *event = bpf_ringbuf_reserve(&sidestep_events, sizeof(*event), 0);

	if (!event)
		count(HOST_EVENTS_LOST);
	return event;
}

/* What happened to a connection. */
struct change {
	__u32 from_id;
	__u32 to_id;
	__u8 kind;
	__u8 reason;
	__u8 passive;
	__u8 stay;
};

/* The agent looks four times a second by itself. Waking it for each event would cost more than everything else here. */
static void submit(struct host_event *event, const struct change *change)
{
	event->time_ns = bpf_ktime_get_ns();
	event->kind = change->kind;
	event->reason = change->reason;
	event->passive = change->passive;
	event->stay = change->stay;
	event->from_id = change->from_id;
	event->to_id = change->to_id;
	bpf_ringbuf_submit(event, bpf_ringbuf_query(&sidestep_events, BPF_RB_AVAIL_DATA) < EVENTS_SIZE / 4 ?
					  BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
}

/* Not inlined: events are rare, and need not be on the stack of what follows. */
static __noinline int report(struct bpf_sock_ops *ops, const struct change *change)
{
	struct host_event *event = new_event();

	if (!event)
		return 0;
	ends_of(&event->ends, ops);
	submit(event, change);
	return 0;
}

static __noinline int report_decision(struct bpf_sock_ops *ops, const struct conn *conn, __u8 reason, __u32 from_id)
{
	struct change change = {
		.from_id = from_id, .to_id = conn->current_id, .kind = HOST_DECIDED, .reason = reason,
		.passive = conn->passive, .stay = conn->stay,
	};

	return report(ops, &change);
}

/* The mark of a connection on path `index`: only our bits of it change. */
static __u32 mark_of(__u32 mark, const struct host_config *cfg, const struct host_paths *paths, __u32 index)
{
	__u32 slot = index < PC_MAX_PATHS ? paths->slot[index] : 0;

	return (mark & ~cfg->mark_mask) | ((slot << cfg->mark_shift) & cfg->mark_mask);
}

/* Puts the connection with this mark on path `index`; the kernel looks its route up anew. `ctx` is the program's context. */
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

/* Begins a connection of which the mark says all that there is to know; returns its path. */
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

	/* In a dry run no mark says anything. */
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
	/* The kernel looks for a route through that device, or in the VRF's table, whatever the mark says. */
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

/* Of the kernel's sockaddr_in and sockaddr_in6. */
struct bind_address {
	__u16 family;
	__be16 port;
	__be32 word[6]; /* IPv4: the address; IPv6: the flow label, the address, the scope */
};

/*
 * Binds a socket to the address that a path wants for a source. Where the host has lost that address, the kernel chooses
 * another one.
 */
static __noinline int bind_source(struct bpf_sock_addr *ctx, const struct host_paths *paths, __u32 index)
{
	struct bind_address address = {};
	const __u32 *wanted;

	if (index >= PC_MAX_PATHS)
		return 0;
	wanted = paths->address[index];
	if (!(wanted[0] | wanted[1] | wanted[2] | wanted[3]))
		return 0;
	if (ctx->family == AF_INET) {
		address.family = AF_INET;
		address.word[0] = wanted[3];
		return bpf_bind(ctx, (struct sockaddr *)&address, 16);
	}
	address.family = AF_INET6;
	__builtin_memcpy(&address.word[1], wanted, 16);
	return bpf_bind(ctx, (struct sockaddr *)&address, sizeof(address));
}

/*
 * A socket connects. The kernel has not looked for a route yet, so the source address will be one that belongs to the
 * path; if the socket is bound to an address, only paths that take this address are drawn.
 */
static __always_inline void choose_before_route(struct bpf_sock_addr *ctx, const struct host_ends *ends)
{
	struct bpf_sock *sk = ctx->sk;
	struct opening opening = { .cfg = configured() };
	const __u32 *local = ends->local_addr;
	bool bound = local[0] || local[1] || local[3];
	__u32 index;

	/* A dry run begins when the SYN leaves. */
	if (!opening.cfg || opening.cfg->dry_run || !sk)
		return;
	if (bpf_get_netns_cookie(ctx) != opening.cfg->netns_cookie) {
		count(HOST_OTHER_NETNS);
		return;
	}
	opening.paths = paths_to(ends);
	if (!opening.paths || !opening.paths->n) {
		count(HOST_UNTOUCHED);
		return;
	}
	if (bound)
		opening.allowed = paths_from(opening.paths, local);
	else
		opening.allowed = (1u << (opening.paths->n & 31)) - 1;
	if (!may_take(opening.paths, sk, opening.allowed))
		return;
	opening.mark = sk->mark;
	opening.before = mark_before(sk, opening.mark, opening.cfg);
	index = begin(ctx, sk, &opening);
	if (!bound)
		bind_source(ctx, opening.paths, index);
}

SEC("cgroup/connect4")
int sidestep_con4(struct bpf_sock_addr *ctx)
{
	struct host_ends ends;

	if (ctx->type != SOCK_STREAM || ctx->protocol != IPPROTO_TCP || !ctx->sk)
		return 1;
	map_address(ends.remote_addr, ctx->user_ip4);
	map_address(ends.local_addr, ctx->sk->src_ip4);
	choose_before_route(ctx, &ends);
	return 1;
}

SEC("cgroup/connect6")
int sidestep_con6(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct host_ends ends;

	if (ctx->type != SOCK_STREAM || ctx->protocol != IPPROTO_TCP || !sk)
		return 1;
	ends.remote_addr[0] = ctx->user_ip6[0];
	ends.remote_addr[1] = ctx->user_ip6[1];
	ends.remote_addr[2] = ctx->user_ip6[2];
	ends.remote_addr[3] = ctx->user_ip6[3];
	ends.local_addr[0] = sk->src_ip6[0];
	ends.local_addr[1] = sk->src_ip6[1];
	ends.local_addr[2] = sk->src_ip6[2];
	ends.local_addr[3] = sk->src_ip6[3];
	choose_before_route(ctx, &ends);
	return 1;
}

/* Has the kernel report the SYN's timeouts. */
static void watch_syn(struct bpf_sock_ops *ops)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | SYN_FLAGS);
}

/* Has the kernel report what happens from now on, where that can matter. */
static void watch(struct bpf_sock_ops *ops, const struct host_config *cfg, __u32 more)
{
	__u32 flags = ops->bpf_sock_ops_cb_flags | SYN_FLAGS | BPF_SOCK_OPS_RTT_CB_FLAG | more;

	if (cfg->policy.ack_quiet_q16)
		flags |= BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
	if (cfg->policy.shared && pc_learns(&cfg->policy))
		flags |= BPF_SOCK_OPS_STATE_CB_FLAG;
	bpf_sock_ops_cb_flags_set(ops, flags);
}

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
 * The kernel asks after how many ticks a SYN that is about to leave is to be sent again; 0: after a second. Where others have
 * measured the path's round trip it is less, and the SYN is sent some more times, so that the connection is not given up
 * before it would have been. An application that says itself how often its SYNs are sent is left alone.
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

/* The path set changed under the connection: it learns anew, and stays on its path if that still exists and takes its address. */
static void choose_anew(const struct host_config *cfg, struct conn *conn, const struct host_paths *paths,
			__u32 allowed)
{
	__u32 i, current, from_id = conn->current_id;

	conn->decisions += conn->policy.decisions;
	conn->moves += conn->policy.moves;
	conn->suppressed += conn->policy.suppressed;
	pc_open_among(&conn->policy, &cfg->policy, paths->path, paths->n, allowed, shared_by(cfg, paths),
		      bpf_ktime_get_ns(), bpf_get_prandom_u32());
	current = conn->policy.current;
	for (i = 0; i < PC_MAX_PATHS; i++) {
		if (i < paths->n && paths->path[i].id == from_id)
			current = i;
	}
	/* After the loop: within it the verifier of Linux 6.1 would walk each step twice. */
	if (allowed && !(allowed >> (current & 31) & 1))
		current = conn->policy.current;
	pc_take(&conn->policy, &cfg->policy, pc_all_paths(&conn->policy), current);
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

/* Leaves a connection alone for good, because its mark is no longer ours or no longer matters. */
static void let_go(struct bpf_sock_ops *ops, struct bpf_sock *sk, __u32 why)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags & ~(SIGNAL_FLAGS | PASSIVE_FLAG));
	bpf_sk_storage_delete(&sidestep_conns, sk);
	count(why);
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
	/* In a dry run no mark says anything; and nothing is left to be learnt of what has ended. */
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

/* Counts a signal that did not move a connection; returns whether it is to be reported. */
static bool stays(const struct pc_decision *decision)
{
	__u32 failures = 1u << PC_RTO | 1u << PC_SYN_TIMEOUT | 1u << PC_ACK_LOSS;

	if (decision->stay < PC_STAYS)
		count(HOST_STAYED + decision->stay);
	/* Without a draw it says something of the path. Signals of congestion may come with each round trip. */
	return decision->decided || (decision->stay == PC_ONLY_PATH && failures >> (decision->reason & 31) & 1);
}

/* A signal for a connection with storage. Returns 1 if it is to adopt other paths instead. */
static __noinline int signal(struct bpf_sock_ops *ops, __u32 quiet_q16)
{
	const struct host_config *cfg;
	struct pc_decision decision = {};
	struct pc_shared *shared;
	struct host_paths *paths;
	struct bpf_sock *sk = ops->sk;
	struct bpf_tcp_sock *tp;
	struct conn *conn;
	struct pc_round round;
	__u32 random, from, from_id, mark;

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
	/* No path takes its address, which the host has lost: what becomes of it says nothing of any path. */
	if (paths->restricted && !conn->policy.allowed)
		return 0;
	read_socket(tp, &round);
	shared = shared_by(cfg, paths);
	random = bpf_get_prandom_u32();

	if (ends_round(ops)) {
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

SEC("sockops")
int sidestep_host(struct bpf_sock_ops *ops)
{
	bool opens = false, signals = false;
	struct bpf_sock *sk = ops->sk;
	__u32 quiet_q16 = 0;

	/* The kernel calls for much else, for instance for the first timeout of a connection. That ends here. */
	switch (ops->op) {
	case BPF_SOCK_OPS_TIMEOUT_INIT:
		ops->reply = syn_timeout(ops);
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		opens = syn_leaves(ops);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		signals = established(ops);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		opens = true;
		break;
	case BPF_SOCK_OPS_RTT_CB:
	case BPF_SOCK_OPS_RETRANS_CB:
	case BPF_SOCK_OPS_RTO_CB:
		signals = true;
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		/* The kernel asks this for each packet. */
		signals = sk && came_again(ops, sk, &quiet_q16);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		signals = ops->args[1] == BPF_TCP_CLOSE;
		break;
	}
	/* Each in one place, as the verifier walks a function anew for each. */
	if (opens)
		open_with_addresses(ops);
	if (signals && sidestep_first_signal(ops) && signal(ops, quiet_q16))
		adopt(ops);
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
 * Connections with a path look their route up anew. The kernel keeps the route of a socket as long as it is valid; one that
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

/* Storage for a connection without one whose path is gone: it is to remember that it moved. */
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
	/* Which path it was nobody knows any more. */
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
