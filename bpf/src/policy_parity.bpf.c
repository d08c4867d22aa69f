/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The policy as a program of its own, run through BPF_PROG_TEST_RUN: a test feeds the same history to
 * this and to the native build, and compares the states bit by bit.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "policy/pathchanger.h"

enum parity_op {
	PARITY_OPEN,
	PARITY_ROUND,
	PARITY_RETRANSMIT,
	PARITY_TIMEOUT,
	PARITY_DUPLICATE,
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
_Static_assert(sizeof(struct parity_ctx) == 896, "shared with Rust");

/*
 * A context allows constant offsets only, and the policy indexes its arrays: it works on this copy,
 * which is a map value as in the real program. One run at a time.
 */
static struct parity_ctx scratch;

SEC("syscall")
int policy_parity(struct parity_ctx *ctx)
{
	struct parity_ctx *s = &scratch;

	__builtin_memcpy(s, ctx, sizeof(*s));
	switch (s->op) {
	case PARITY_OPEN:
		pc_open(&s->conn, &s->config, s->paths, s->n_paths, s->round.now_ns, s->random);
		break;
	case PARITY_ROUND:
		pc_round(&s->conn, &s->config, s->paths, &s->round, s->random, &s->decision);
		break;
	case PARITY_RETRANSMIT:
		pc_retransmit(&s->conn, &s->config, s->paths, &s->round, s->segs, s->random,
			      &s->decision);
		break;
	case PARITY_TIMEOUT:
		pc_timeout(&s->conn, &s->config, s->paths, &s->round, s->syn, s->random,
			   &s->decision);
		break;
	case PARITY_DUPLICATE:
		pc_duplicate(&s->conn, &s->config, s->paths, &s->round, s->quiet_q16, s->random,
			     &s->decision);
		break;
	}
	__builtin_memcpy(ctx, s, sizeof(*s));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
