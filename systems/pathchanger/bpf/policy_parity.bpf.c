/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The policy as a program of its own, run through BPF_PROG_TEST_RUN: a test feeds the same history to
 * this and to the native build, and compares the states bit by bit.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "policy/flow_hash.h"
#include "policy/pathchanger.h"

enum parity_op {
	PARITY_OPEN,
	PARITY_ROUND,
	PARITY_RETRANSMIT,
	PARITY_TIMEOUT,
	PARITY_DUPLICATE,
	PARITY_CLOSE,
	/* Of connections without a state, which only policy_cost calls. */
	PARITY_FIRST,
	PARITY_UNEVENTFUL,
	PARITY_SYN_RTO,
};

struct parity_ctx {
	__u32 op; /* enum parity_op */
	__u32 random;
	__u32 n_paths; /* for open */
	__u32 segs; /* for retransmit */
	__u32 syn; /* for timeout */
	__u32 quiet_q16; /* for duplicate */
	struct pc_round round; /* of open only the time */
	struct pc_config config;
	struct pc_path paths[PC_MAX_PATHS];
	struct pc_conn conn; /* read and written */
	struct pc_decision decision; /* written */
};
_Static_assert(sizeof(struct parity_ctx) == 1208, "shared with Rust");

/* What is learnt together: by a connection and those that the test knows of, or by several processors at once. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pc_shared);
} learnt SEC(".maps");

/*
 * A context allows constant offsets only, and the policy indexes its arrays: it works on this copy,
 * which is a map value as in the real program. One run at a time.
 */
static struct parity_ctx scratch;

/* Word by word: clang copies no more than 1024 bytes by itself, and keeps what it has read on the stack. */
static __always_inline void copy(struct parity_ctx *to, const struct parity_ctx *from)
{
	volatile __u64 *words = (volatile __u64 *)to;
	__u32 i;

#pragma unroll
	for (i = 0; i < sizeof(*to) / 8; i++)
		words[i] = ((const volatile __u64 *)from)[i];
}

/* Makes the call in `scratch`. A function of its own, so that the verifier walks it once. */
__attribute__((noinline)) int make_call(void)
{
	struct parity_ctx *s = &scratch;
	__u32 zero = 0;
	struct pc_shared *shared = bpf_map_lookup_elem(&learnt, &zero);

	if (!shared)
		return 1;
	switch (s->op) {
	case PARITY_OPEN:
		pc_open(&s->conn, &s->config, s->paths, s->n_paths, shared, s->round.now_ns, s->random);
		break;
	case PARITY_ROUND:
		pc_round(&s->conn, &s->config, s->paths, shared, &s->round, s->random, &s->decision);
		break;
	case PARITY_RETRANSMIT:
		pc_retransmit(&s->conn, &s->config, s->paths, shared, &s->round, s->segs, s->random,
			      &s->decision);
		break;
	case PARITY_TIMEOUT:
		pc_timeout(&s->conn, &s->config, s->paths, shared, &s->round, s->syn, s->random,
			   &s->decision);
		break;
	case PARITY_DUPLICATE:
		pc_duplicate(&s->conn, &s->config, s->paths, shared, &s->round, s->quiet_q16, s->random,
			     &s->decision);
		break;
	case PARITY_CLOSE:
		pc_close(&s->conn, &s->config, s->paths, shared, &s->round);
		break;
	case PARITY_FIRST:
		s->decision.path = pc_first(&s->config, s->paths, s->n_paths, ~0u, shared, s->round.now_ns, s->random);
		break;
	case PARITY_UNEVENTFUL:
		s->decision.decided = !pc_uneventful(&s->config, s->paths, shared, s->decision.path, &s->round);
		break;
	case PARITY_SYN_RTO:
		s->decision.reason = (__u32)pc_answer_time(&shared->quality[PC_INDEX(s->decision.path)], s->round.now_ns);
		break;
	}
	return 0;
}

SEC("syscall")
int policy_parity(struct parity_ctx *ctx)
{
	copy(&scratch, ctx);
	if (make_call())
		return 1;
	copy(ctx, &scratch);
	return 0;
}

/* How many calls policy_cost makes. */
#define COST_CALLS 1000

struct cost_ctx {
	__u64 ns; /* written: what the calls took together */
	__u64 step_ns; /* how much later each call is than the one before */
	__u32 delivered; /* how many segments more were delivered at each */
	__u32 unused;
	struct parity_ctx call; /* the first call */
};
_Static_assert(sizeof(struct cost_ctx) == 1232, "shared with Rust");

/* What a call costs on this processor, with all that it reads in the cache. */
SEC("syscall")
int policy_cost(struct cost_ctx *ctx)
{
	__u64 began;
	__u32 i;

	copy(&scratch, &ctx->call);
	began = bpf_ktime_get_ns();
	for (i = 0; i < COST_CALLS; i++) {
		scratch.round.now_ns += ctx->step_ns;
		scratch.round.delivered += ctx->delivered;
		/* A linear congruential generator: a helper's call would be counted in. */
		scratch.random = scratch.random * 1664525 + 1013904223;
		if (make_call())
			return 1;
	}
	ctx->ns = bpf_ktime_get_ns() - began;
	return 0;
}

struct sharing_ctx {
	__s64 step;
	__u32 n_paths;
	__u32 path;
	__u32 gamma_q16;
	__u32 random;
	struct pc_exp3 exp3; /* written: the weights after the step */
	__u32 drawn; /* written */
	__u32 chance_q32; /* written: of what was drawn */
	__u32 times; /* how often the step is made, at most 1000 */
	__u32 pad;
};
_Static_assert(sizeof(struct sharing_ctx) == 168, "shared with Rust");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pc_paths);
} equal_paths SEC(".maps");

/* Steps, and one draw by what is then known. */
SEC("syscall")
int policy_sharing(struct sharing_ctx *ctx)
{
	struct pc_exp3 exp3;
	__u32 zero = 0, i;
	struct pc_paths *paths = bpf_map_lookup_elem(&equal_paths, &zero);
	struct pc_shared *shared = bpf_map_lookup_elem(&learnt, &zero);

	if (!paths || !shared)
		return 1;
	for (i = 0; i < 1000 && i < ctx->times; i++)
		pc_shared_add(shared, ctx->n_paths, ctx->path, ctx->step);
	pc_weigh(&exp3, paths, ctx->n_paths, shared);
	ctx->drawn = pc_exp3_draw(&exp3, ctx->n_paths, ctx->gamma_q16, (1u << (ctx->n_paths & 31)) - 1, ctx->random);
	ctx->chance_q32 = pc_exp3_chance(&exp3, ctx->n_paths, ctx->gamma_q16, (1u << (ctx->n_paths & 31)) - 1, ctx->drawn);
	__builtin_memcpy(&ctx->exp3, &exp3, sizeof(exp3));
	return 0;
}

struct flow_hash_ctx {
	struct flow_hash_key key;
	__u32 seed;
	__u32 symmetric;
	__u32 choices;
	__u32 hash; /* written */
	__u32 picked; /* written */
	__u32 unused;
};
_Static_assert(sizeof(struct flow_hash_ctx) == 72, "shared with Rust");

SEC("syscall")
int policy_flow_hash(struct flow_hash_ctx *ctx)
{
	struct flow_hash_key key = ctx->key;

	ctx->hash = flow_hash(&key, ctx->seed, ctx->symmetric);
	ctx->picked = flow_hash_pick(ctx->hash, ctx->choices);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
