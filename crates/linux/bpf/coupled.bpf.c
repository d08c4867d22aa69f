/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * LIA, OLIA and BALIA for the subflows of MPTCP, as tcp_congestion_ops. Only the growth in congestion avoidance and the slow-start
 * threshold are ours; slow start, PRR, undo and timeouts stay the kernel's. That needs cong_avoid: with cong_control nobody
 * would set the pacing rate, by which MPTCP's scheduler chooses.
 *
 * There is no map. From time to time a subflow looks at its connection's list of subflows, read-only. The first of the list adds all
 * up; the others take its sums. Where those are no newer than what a subflow has, since the first is idle, slow or dying, it takes
 * those of another, or adds up itself. A subflow alone grows as Reno does.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "policy/coupled.h"

extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;
extern __u32 tcp_slow_start(struct tcp_sock *tp, __u32 acked) __ksym;
/* Since Linux 6.2: fields of what it returns are read by plain loads, which give 0 where there is nothing. */
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

/* By a load, or on older kernels by a call. */
#define READ(type, pointer, field)                                                                                     \
	(bpf_ksym_exists(bpf_rdonly_cast) ?                                                                            \
		 ((struct type *)bpf_rdonly_cast(pointer, bpf_core_type_id_kernel(struct type)))->field :              \
		 BPF_CORE_READ((struct type *)(pointer), field))

/* The kernel counts the subflows of a connection in a byte. */
#define MAX_SUBFLOWS 256
/* Longer without a packet, beyond a round trip: the least timeout (TCP_RTO_MIN), after which slow start begins again. */
#define IDLE_US 200000

/*
 * A subflow looks again after as many segments, and not before a round trip is over. Where ACKs are few nothing of the others is in
 * the cache, and each that is read costs more than all arithmetic.
 */
#define LOOK_AFTER 32

enum { TCP_ESTABLISHED = 1, TCP_CLOSE_WAIT = 8 };
enum { TCP_CA_CWR = 2, TCP_CA_RECOVERY = 3, TCP_CA_LOSS = 4 };

/*
 * What a subflow keeps in icsk_ca_priv. Others read it, at any time: numbers that do not belong together are possible, and do no
 * harm, since the header clamps them.
 */
struct coupled {
	/* What is added up, and how old the sums are. */
	struct coupled_seen {
		__u32 magic;
		__u32 looked;  /* when this subflow looked at the others, in microseconds */
		__u32 added;   /* when its sums were added up; they may be another's */
		__u32 zero;    /* always 0, which the verifier does not know */
		__u64 mark;    /* bytes acknowledged at the last loss */
		__u64 before;  /* bytes between the two losses before */
	} seen;
	__s64 growth;  /* for each segment, Q32 */
	__u32 credit;  /* the rest of a segment, Q32 */
	__u32 since;   /* segments acknowledged since this subflow looked */
	struct coupled_sums sums;
};
_Static_assert(sizeof(struct coupled) == sizeof(((struct inet_connection_sock *)0)->icsk_ca_priv), "fits, and no more");

/* Of this form of the struct: another one needs another number. */
#define MAGIC 0x6370326cU

struct walk {
	struct list_head *next, *head;
	struct coupled_sums sums;
	__u32 now;
	__u32 recent; /* sums of this age are taken, in microseconds */
	__u32 added;
};

static __always_inline struct coupled *state_of(struct sock *sk)
{
	return (struct coupled *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static __always_inline __u64 between_losses(const struct coupled_seen *of, __u64 acked)
{
	return pc_most(acked - of->mark, of->before);
}

/* Goes one subflow on; returns its socket, or 0. */
static __always_inline void *next_of(struct walk *walk)
{
	struct mptcp_subflow_context *context = (void *)walk->next - bpf_core_field_offset(struct mptcp_subflow_context, node);

	walk->next = READ(mptcp_subflow_context, context, node.next);
	return READ(mptcp_subflow_context, context, tcp_sock);
}

/* Takes the sums of a subflow if they are recent; returns whether it did. `seen` is zero if nothing could be read. */
static __always_inline int take(struct walk *walk, void *tp, struct coupled_seen *seen, __u32 recent)
{
	struct coupled *state = state_of(tp);

	if (bpf_probe_read_kernel(seen, sizeof(*seen), state) || seen->magic != MAGIC)
		return 0;
	if (!seen->added || walk->now - seen->added > recent)
		return 0;
	if (bpf_probe_read_kernel(&walk->sums, sizeof(walk->sums), &state->sums))
		return 0;
	walk->added = seen->added;
	return 1;
}

/* Adds a subflow, or takes its sums; returns whether the walk is over. */
static long look(__u32 index, struct walk *walk)
{
	struct coupled_path path = {};
	struct coupled_seen seen;
	struct tcp_sock *tp;
	__u32 state;

	if (!walk->next || walk->next == walk->head)
		return 1;
	tp = next_of(walk);
	if (!tp)
		return 0;
	if (take(walk, tp, &seen, walk->recent))
		return 1;
	state = READ(sock, tp, __sk_common.skc_state);
	if (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT)
		return 0;
	path.rtt = READ(tcp_sock, tp, srtt_us) >> 3;
	if (!path.rtt)
		return 0;
	/* An idle subflow's window is of another time; a backup's is never used. */
	if (!READ(tcp_sock, tp, packets_out) &&
	    (__s32)(walk->now - (__u32)READ(tcp_sock, tp, tcp_mstamp)) > (__s32)pc_least(path.rtt, 1 << 22) + IDLE_US)
		return 0;
	state = bpf_ksym_exists(bpf_rdonly_cast) ?
			BPF_CORE_READ_BITFIELD((struct inet_connection_sock *)bpf_rdonly_cast(
						       tp, bpf_core_type_id_kernel(struct inet_connection_sock)),
					       icsk_ca_state) :
			BPF_CORE_READ_BITFIELD_PROBED((struct inet_connection_sock *)tp, icsk_ca_state);
	/* After a timeout the path may be dead, and what it carried before would make it the best. */
	if (state == TCP_CA_LOSS)
		return 0;
	path.mss = READ(tcp_sock, tp, mss_cache);
	/* While the window is reduced it is what is in flight (PRR); where it goes is the threshold. */
	path.window = (__u64)path.mss * (state == TCP_CA_CWR || state == TCP_CA_RECOVERY ? READ(tcp_sock, tp, snd_ssthresh) :
										    READ(tcp_sock, tp, snd_cwnd));
	if (seen.magic == MAGIC)
		path.between_losses = between_losses(&seen, READ(tcp_sock, tp, bytes_acked));
	coupled_add(&walk->sums, &path);
	return 0;
}

/* Brings the sums up to date. */
static __always_inline void look_at_all(struct sock *sk, struct coupled *own, __u32 now, __u32 rtt)
{
	/* What another has added up since this subflow looked is new to it. */
	__u32 recent = own->seen.looked ? pc_most(now - own->seen.looked, rtt) : rtt;
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct mptcp_subflow_context *context;
	struct mptcp_sock *connection = 0;
	__u32 zero = own->seen.zero;
	struct coupled_seen seen;
	/* From a number that the verifier does not know: its states of the walk then are all alike. */
	struct walk walk = {
		.sums = { zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero },
		.now = now,
		.recent = recent,
		.added = now,
	};
	void *first;

	/* Another protocol on top, as kTLS, keeps other things in icsk_ulp_data. */
	if (tp->is_mptcp) {
		context = ((struct inet_connection_sock *)sk)->icsk_ulp_data;
		if (context)
			connection = (void *)READ(mptcp_subflow_context, context, conn);
	}
	if (connection) {
		walk.head = (void *)connection + bpf_core_field_offset(struct mptcp_sock, conn_list);
		walk.next = READ(mptcp_sock, connection, conn_list.next);
		first = next_of(&walk);
		if (first == sk)
			walk.recent = 0;
		if (first == sk || !take(&walk, first, &seen, pc_most(recent, 2 * rtt))) {
			walk.next = READ(mptcp_sock, connection, conn_list.next);
			bpf_loop(MAX_SUBFLOWS, look, &walk, 0);
		}
	}
	own->sums = walk.sums;
	/* 0 is never. */
	own->seen.added = walk.added | 1;
}

static __always_inline struct coupled_path path_of(struct tcp_sock *tp, const struct coupled *own)
{
	struct coupled_path path = {
		.window = (__u64)tp->snd_cwnd * tp->mss_cache,
		.between_losses = between_losses(&own->seen, tp->bytes_acked),
		.rtt = tp->srtt_us >> 3,
		.mss = tp->mss_cache,
	};

	return path;
}

/* By the sums as they are. */
static __noinline int set_growth(struct sock *sk, __u32 algorithm)
{
	struct coupled *own = state_of(sk);
	struct coupled_path path = path_of((struct tcp_sock *)sk, own);

	own->growth = coupled_growth(algorithm, &own->sums, &path);
	return 0;
}

/* Not called while the window is reduced. */
static __always_inline void avoid(struct sock *sk, __u32 acked, __u32 algorithm)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u32 cwnd = tp->snd_cwnd, now = tp->tcp_mstamp, rtt = tp->srtt_us >> 3, most;
	struct coupled *own = state_of(sk);
	__s64 credit;
	__s32 change;

	/* tcp_is_cwnd_limited */
	if (!BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited) &&
	    !(cwnd < tp->snd_ssthresh && cwnd < 2 * tp->max_packets_out))
		return;
	if (cwnd < tp->snd_ssthresh) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
		cwnd = tp->snd_cwnd;
	}
	if (!own->seen.looked || (own->since >= LOOK_AFTER && now - own->seen.looked > rtt)) {
		look_at_all(sk, own, now, rtt);
		own->seen.looked = now | 1;
		own->since = 0;
		set_growth(sk, algorithm);
	}
	own->since += acked;
	credit = own->credit;
	change = coupled_grown(&credit, own->growth, acked);
	own->credit = credit;
	if (!change)
		return;
	most = tp->snd_cwnd_clamp;
	if (change > 0)
		cwnd = pc_least((__u64)cwnd + change, most);
	else
		cwnd = cwnd > 2 - change ? cwnd + change : 2;
	tp->snd_cwnd = cwnd;
	set_growth(sk, algorithm);
}

/* A loss, or a mark: also when the kernel enters CWR. */
static __always_inline __u32 threshold(struct sock *sk, __u32 algorithm)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct coupled *own = state_of(sk);
	struct coupled_path path = path_of(tp, own);
	struct coupled_sums sums = own->sums;
	__u64 acked = tp->bytes_acked;

	own->seen.before = acked - own->seen.mark;
	own->seen.mark = acked;
	own->seen.looked = 0;
	own->credit = 0;
	if (algorithm != COUPLED_BALIA)
		return tcp_reno_ssthresh(sk);
	return pc_most(((__u64)tp->snd_cwnd * coupled_kept(algorithm, &sums, &path)) >> 16, 2);
}

SEC("struct_ops")
void BPF_PROG(sidestep_cinit, struct sock *sk)
{
	struct coupled *own = state_of(sk);

	__builtin_memset(own, 0, sizeof(*own));
	own->seen.mark = ((struct tcp_sock *)sk)->bytes_acked;
	own->seen.magic = MAGIC;
}

SEC("struct_ops")
void BPF_PROG(sidestep_cend, struct sock *sk)
{
	state_of(sk)->seen.magic = 0;
}

/* There was no loss: what was acknowledged before counts on. */
SEC("struct_ops")
__u32 BPF_PROG(sidestep_cundo, struct sock *sk)
{
	struct coupled *own = state_of(sk);

	own->seen.mark -= own->seen.before;
	own->seen.looked = 0;
	return tcp_reno_undo_cwnd(sk);
}

/* LIA and OLIA. */
SEC("struct_ops")
__u32 BPF_PROG(sidestep_chalf, struct sock *sk)
{
	return threshold(sk, COUPLED_LIA);
}

SEC("struct_ops")
__u32 BPF_PROG(sidestep_cless, struct sock *sk)
{
	return threshold(sk, COUPLED_BALIA);
}

SEC("struct_ops")
void BPF_PROG(sidestep_clia, struct sock *sk, __u32 ack, __u32 acked)
{
	avoid(sk, acked, COUPLED_LIA);
}

SEC("struct_ops")
void BPF_PROG(sidestep_colia, struct sock *sk, __u32 ack, __u32 acked)
{
	avoid(sk, acked, COUPLED_OLIA);
}

SEC("struct_ops")
void BPF_PROG(sidestep_cbalia, struct sock *sk, __u32 ack, __u32 acked)
{
	avoid(sk, acked, COUPLED_BALIA);
}

/* TCP_CONG_NON_RESTRICTED: else no network namespace but the first may have it as its default. */
#define FLAGS 1

SEC(".struct_ops.link")
struct tcp_congestion_ops sidestep_lia = {
	.init = (void *)sidestep_cinit,
	.release = (void *)sidestep_cend,
	.ssthresh = (void *)sidestep_chalf,
	.undo_cwnd = (void *)sidestep_cundo,
	.cong_avoid = (void *)sidestep_clia,
	.flags = FLAGS,
	.name = "lia",
};

SEC(".struct_ops.link")
struct tcp_congestion_ops sidestep_olia = {
	.init = (void *)sidestep_cinit,
	.release = (void *)sidestep_cend,
	.ssthresh = (void *)sidestep_chalf,
	.undo_cwnd = (void *)sidestep_cundo,
	.cong_avoid = (void *)sidestep_colia,
	.flags = FLAGS,
	.name = "olia",
};

SEC(".struct_ops.link")
struct tcp_congestion_ops sidestep_balia = {
	.init = (void *)sidestep_cinit,
	.release = (void *)sidestep_cend,
	.ssthresh = (void *)sidestep_cless,
	.undo_cwnd = (void *)sidestep_cundo,
	.cong_avoid = (void *)sidestep_cbalia,
	.flags = FLAGS,
	.name = "balia",
};

char LICENSE[] SEC("license") = "Dual BSD/GPL";
