/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Gives every connection of a control group one congestion control. A namespace of the lab cannot: there
 * the sysctl takes only what tcp_allowed_congestion_control, which is the whole machine's, lists.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define SOL_TCP 6
#define TCP_CONGESTION 13

const volatile char name[16] = "";

SEC("sockops")
int sidestep_cc(struct bpf_sock_ops *ops)
{
	char copy[sizeof(name)];
	unsigned int i;

	if (ops->op != BPF_SOCK_OPS_TCP_CONNECT_CB && ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	/* Byte by byte: a copy as a whole would cast `volatile` away, and the compiler fold the empty default in. */
	for (i = 0; i < sizeof(copy); i++)
		copy[i] = name[i];
	bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, copy, sizeof(copy));
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
