/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Gives connections of a control group a congestion control: subflows of MPTCP one, and the others another. A sysctl cannot: it
 * makes no difference between the two, and takes only what tcp_allowed_congestion_control lists, which holds for the whole machine.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define SOL_TCP 6
#define TCP_CONGESTION 13
#define NAME 16

struct settings {
	char tcp[NAME];   /* for connections that are not MPTCP's; empty: they keep what they have */
	char mptcp[NAME]; /* for subflows of MPTCP; empty: as the others */
	__u64 namespace;  /* cookie of the network namespace; 0: all */
	__u64 needs_ecn;  /* whether that of TCP is one with TCP_CONG_NEEDS_ECN, whose packets are all ECN-capable */
};

const volatile struct settings settings = {};

/* What became of connections; others know these numbers. */
enum count {
	REFUSED,  /* by the kernel */
	COUPLED,  /* subflows that got the congestion control of MPTCP */
	CHOSEN,   /* subflows of which the program has chosen it */
	FALLBACK, /* connections of MPTCP whose other end does not speak it */
	COUNTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} sidestep_given SEC(".maps");

static __always_inline void add_one(__u32 which)
{
	__u64 *count = bpf_map_lookup_elem(&sidestep_given, &which);

	if (count)
		++*count;
}

static __always_inline void set(struct bpf_sock_ops *ops, const volatile char *name, __u32 done)
{
	char copy[NAME];
	__u32 i;

	/* Byte by byte: memcpy would cast `volatile` away, and the compiler would then fold the empty default in. */
	for (i = 0; i < NAME; i++)
		copy[i] = name[i];
	if (bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, copy, sizeof(copy)))
		add_one(REFUSED);
	else if (done != COUNTS)
		add_one(done);
}

/*
 * What was set before the SYN began then, with no sequence number and no time: CUBIC's HyStart would see trains of ACKs by
 * chance. Another one between makes it begin again. Returns whether that was possible.
 */
static __always_inline bool restart(struct bpf_sock_ops *ops)
{
	volatile char other[sizeof("reno")];

	/* Each kernel has it. Letter by letter: a constant would be in a map of its own, with no name of ours. */
	other[0] = 'r';
	other[1] = 'e';
	other[2] = 'n';
	other[3] = 'o';
	other[4] = 0;
	return !bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, (void *)other, sizeof(other));
}

/*
 * Whether a program has chosen the congestion control of an MPTCP connection. The flag of a subflow is not enough: the kernel sets
 * it too whenever it copies other options of the connection. A choice of the namespace's default is not seen as one.
 */
static __always_inline bool has_chosen(struct tcp_sock *tp, struct mptcp_subflow_context *context)
{
	struct mptcp_sock *connection = (void *)BPF_CORE_READ(context, conn);
	const struct tcp_congestion_ops *of;
	char chosen[NAME], usual[NAME];
	__u32 i;

	if (!BPF_CORE_READ_BITFIELD(tp, inet_conn.icsk_ca_setsockopt))
		return false;
	of = BPF_CORE_READ(tp, inet_conn.icsk_inet.sk.__sk_common.skc_net.net, ipv4.tcp_congestion_control);
	if (!connection || !of || bpf_core_read(chosen, NAME, &connection->ca_name) || bpf_core_read(usual, NAME, &of->name))
		return true;
	for (i = 0; i < NAME && chosen[i]; i++) {
		if (chosen[i] != usual[i])
			return true;
	}
	return false;
}

/* Returns whether it is a subflow of a connection of which both ends speak MPTCP. */
static __always_inline bool set_subflow(struct bpf_sock_ops *ops, struct tcp_sock *tp)
{
	struct mptcp_subflow_context *context = BPF_CORE_READ(tp, inet_conn.icsk_ulp_data);

	if (!context)
		return false;
	if (!BPF_CORE_READ_BITFIELD_PROBED(context, mp_capable) && !BPF_CORE_READ_BITFIELD_PROBED(context, mp_join)) {
		add_one(FALLBACK);
		return false;
	}
	if (has_chosen(tp, context))
		add_one(CHOSEN);
	else if (restart(ops))
		set(ops, settings.mptcp, COUPLED);
	return true;
}

SEC("sockops")
int sidestep_cc(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct tcp_sock *tp;
	bool established = ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB;
	bool asks = ops->op == BPF_SOCK_OPS_NEEDS_ECN;

	if (!established && !asks && ops->op != BPF_SOCK_OPS_TCP_CONNECT_CB)
		return 1;
	if (settings.namespace && bpf_get_netns_cookie(ops) != settings.namespace)
		return 1;
	if (asks) {
		/*
		 * Of a listening socket: a peer's SYN is ECN-capable too, which to any other congestion control means that something on
		 * the way sets these bits (tcp_ecn_create_request). A socket that connects has had its congestion control.
		 */
		if (settings.needs_ecn && !sk)
			ops->reply = 1;
		return 1;
	}
	tp = sk ? bpf_skc_to_tcp_sock(sk) : 0;
	if (tp && tp->is_mptcp && settings.mptcp[0]) {
		/* Only when it is established is it known whether the other end speaks MPTCP. */
		if (!established || set_subflow(ops, tp))
			return 1;
	}
	if (!settings.tcp[0])
		return 1;
	if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB) {
		/* The first, before the SYN, decides on ECN in it. */
		if (!tp || !BPF_CORE_READ_BITFIELD(tp, inet_conn.icsk_ca_initialized) || !restart(ops))
			return 1;
	} else if (tp && BPF_CORE_READ_BITFIELD(tp, inet_conn.icsk_ca_setsockopt)) {
		/* A program's own choice stays; connections inherit what their listening socket chose. */
		return 1;
	}
	set(ops, settings.tcp, COUNTS);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
