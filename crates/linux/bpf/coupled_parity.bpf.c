/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Coupled congestion control as a program of its own, run through BPF_PROG_TEST_RUN: a test gives the same numbers to this and to the
 * native build, and compares the answers.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "policy/coupled.h"

#define COUPLED_CALLS 1000

struct coupled_call {
	struct coupled_sums sums;
	struct coupled_path path;
	__s64 credit;
	__s64 growth;
	__u32 algorithm;
	__u32 acked;
	__u32 kept;
	__s32 grown;
};
_Static_assert(sizeof(struct coupled_call) == 112, "shared with Rust");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUPLED_CALLS);
	__type(key, __u32);
	__type(value, struct coupled_call);
} coupled_calls SEC(".maps");

/* A function of its own, so that the verifier walks it once, not in each turn of the loop. */
__attribute__((noinline)) int coupled_one(__u32 i)
{
	struct coupled_call *call = bpf_map_lookup_elem(&coupled_calls, &i);

	if (!call)
		return 1;
	coupled_add(&call->sums, &call->path);
	call->growth = coupled_growth(call->algorithm, &call->sums, &call->path);
	call->kept = coupled_kept(call->algorithm, &call->sums, &call->path);
	call->grown = coupled_grown(&call->credit, call->growth, call->acked);
	return 0;
}

SEC("syscall")
int coupled_parity(void *ctx)
{
	__u32 i;

	for (i = 0; i < COUPLED_CALLS; i++) {
		if (coupled_one(i))
			return 1;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
