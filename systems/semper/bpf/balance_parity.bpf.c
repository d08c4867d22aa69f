/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The choice of a path as a program of its own, run through BPF_PROG_TEST_RUN: a test gives the same flows to this and to
 * the native build, and compares the answers.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "policy/balance.h"

/* A thousand choices in each run, as a call for each would take the test's time. */
#define BALANCE_CALLS 1000

struct balance_call {
	struct balance_set set;
	struct flow_hash_key key;
	__u32 live;
	__u32 last;
	__u64 digest; /* this and all below: written */
	__u32 hash;
	__u32 chosen;
	__u32 next;
	__u32 unused;
};
_Static_assert(sizeof(struct balance_call) == 360, "shared with Rust");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BALANCE_CALLS);
	__type(key, __u32);
	__type(value, struct balance_call);
} balance_calls SEC(".maps");

/* A function of its own, so that the verifier walks it once, not in each turn of the loop. */
__attribute__((noinline)) int balance_one(__u32 i)
{
	struct balance_call *call = bpf_map_lookup_elem(&balance_calls, &i);

	if (!call)
		return 1;
	call->hash = balance_hash(&call->set, &call->key);
	call->chosen = balance_choose(&call->set, call->live, call->hash);
	call->next = balance_next(&call->set, call->live, call->last);
	call->digest = balance_digest(&call->set);
	return 0;
}

SEC("syscall")
int balance_parity(void *ctx)
{
	__u32 i;

	for (i = 0; i < BALANCE_CALLS; i++) {
		if (balance_one(i))
			return 1;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
