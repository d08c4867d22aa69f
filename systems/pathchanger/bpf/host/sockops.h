/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The program of sockops, which the kernel calls for what happens to a connection. */
#ifndef SIDESTEP_HOST_SOCKOPS_H
#define SIDESTEP_HOST_SOCKOPS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "handshake.h"
#include "signals.h"

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
	/* Each in one place, as the verifier walks a function again for each. */
	if (opens)
		open_with_addresses(ops);
	if (signals && sidestep_first_signal(ops) && signal(ops, quiet_q16))
		adopt(ops);
	return 1;
}

#endif
