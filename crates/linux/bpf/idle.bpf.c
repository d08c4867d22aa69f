/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* These do nothing. Their cost is what the kernel spends on calling any programs of these kinds. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

SEC("sockops")
int sidestep_idle(struct bpf_sock_ops *ops)
{
	return 1;
}

SEC("cgroup/connect4")
int sidestep_idle4(struct bpf_sock_addr *ctx)
{
	return 1;
}

SEC("cgroup/connect6")
int sidestep_idle6(struct bpf_sock_addr *ctx)
{
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
