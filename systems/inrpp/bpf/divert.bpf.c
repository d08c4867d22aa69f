/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

SEC("tc")
int sidestep_divert(struct __sk_buff *packet)
{
	return -1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
