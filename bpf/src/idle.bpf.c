/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Does nothing. Its cost is what the kernel spends on calling any program of this kind. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

SEC("sockops")
int sidestep_idle(struct bpf_sock_ops *ops)
{
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
