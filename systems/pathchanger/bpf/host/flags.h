/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the kernel reports of a connection. */
#ifndef SIDESTEP_HOST_FLAGS_H
#define SIDESTEP_HOST_FLAGS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "maps.h"

/* With these the kernel notifies us of a connection. One that has them, and a path's slot in its mark, is ours. */
#define SYN_FLAGS (BPF_SOCK_OPS_RTO_CB_FLAG | BPF_SOCK_OPS_RETRANS_CB_FLAG)
#define SIGNAL_FLAGS                                                                                                   \
	(SYN_FLAGS | BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG)
/*
 * A connection that was accepted. The kernel has no room for a bit of ours beside a socket; this one makes it call us
 * for options that it does not know itself, which hardly any packet has.
 */
#define PASSIVE_FLAG BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG

/* Makes the kernel report the SYN's timeouts. */
static void watch_syn(struct bpf_sock_ops *ops)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | SYN_FLAGS);
}

/* Makes the kernel report what happens from now on, where that can matter. */
static void watch(struct bpf_sock_ops *ops, const struct host_config *cfg, __u32 more)
{
	__u32 flags = ops->bpf_sock_ops_cb_flags | SYN_FLAGS | BPF_SOCK_OPS_RTT_CB_FLAG | more;

	if (cfg->policy.ack_quiet_q16)
		flags |= BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
	if (cfg->policy.shared && pc_learns(&cfg->policy))
		flags |= BPF_SOCK_OPS_STATE_CB_FLAG;
	bpf_sock_ops_cb_flags_set(ops, flags);
}

/* Leaves a connection alone for good, because its mark is no longer ours or no longer matters. */
static void let_go(struct bpf_sock_ops *ops, struct bpf_sock *sk, __u32 why)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags & ~(SIGNAL_FLAGS | PASSIVE_FLAG));
	bpf_sk_storage_delete(&sidestep_conns, sk);
	count(why);
}

#endif
