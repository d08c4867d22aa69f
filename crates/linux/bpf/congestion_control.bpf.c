/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Gives every connection of a control group one congestion control. The sysctl of a lab's namespace cannot: it takes
 * only what tcp_allowed_congestion_control lists, which holds for the whole machine.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define SOL_TCP 6
#define TCP_CONGESTION 13

const volatile char name[16] = "";

/* One entry: connections for which the kernel refused it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sidestep_denied SEC(".maps");

SEC("sockops")
int sidestep_cc(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct tcp_sock *tp;
	char copy[sizeof(name)];
	volatile char other[sizeof("reno")];
	__u64 *count;
	__u32 i, zero = 0;

	if (ops->op != BPF_SOCK_OPS_TCP_CONNECT_CB && ops->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB &&
	    ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	tp = sk ? bpf_skc_to_tcp_sock(sk) : 0;
	if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB) {
		/*
		 * What was set before the SYN began then, with no sequence number and no time: CUBIC's HyStart would see
		 * trains of ACKs by chance. Another one between makes it begin again. The first decides on ECN in the SYN.
		 */
		if (!tp || !BPF_CORE_READ_BITFIELD(tp, inet_conn.icsk_ca_initialized))
			return 1;
		/* Each kernel has it. Letter by letter: a constant would be in a map of its own, with no name of ours. */
		other[0] = 'r';
		other[1] = 'e';
		other[2] = 'n';
		other[3] = 'o';
		other[4] = 0;
		if (bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, (void *)other, sizeof(other)))
			return 1;
	} else if (tp && BPF_CORE_READ_BITFIELD(tp, inet_conn.icsk_ca_setsockopt)) {
		/* A program's own choice stays; connections inherit what their listening socket chose. */
		return 1;
	}
	/* Byte by byte: memcpy would cast `volatile` away, and the compiler would then fold the empty default in. */
	for (i = 0; i < sizeof(copy); i++)
		copy[i] = name[i];
	if (!bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, copy, sizeof(copy)))
		return 1;
	count = bpf_map_lookup_elem(&sidestep_denied, &zero);
	if (count)
		++*count;
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
