/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How good the paths to a destination have been recently, by what the connections of a host measured on
 * them: one scale for all paths, the time that a short transfer takes.
 *
 *     base_i   = lowest round trip + transfer at the path's rate, or longer if that was measured
 *     delay_i  = base_i + what queues and losses recently added
 *     weight_i = initial weight / (delay_i * max(base_i, least delay))^2
 *
 * The second factor keeps connections off a path that would be slower even if it were empty than the
 * best one is now. It is the same for all paths that would not. So a slower path is used as far as the
 * best one is congested, as in a Wardrop equilibrium, and no connection has to find out that it is slower.
 *
 * What was added is a moving average of samples: one for each round trip of each connection, which
 * weighs the more the longer there was none. What a draw reads of it halves with each half-life that
 * passes without one, as old information misleads (Mitzenmacher, "How useful is old information?",
 * 2000). So an unused path looks better with time, until a connection tries it. The average itself
 * stays: if that try finds the path as bad as it was, it is known at once; if it finds it good, it takes
 * some more to be sure.
 *
 * What is the path's own stays for longer. A path that has less rate than the agent believes shows that
 * to each transfer: its rounds of several segments wait behind themselves. The least that rounds recently
 * waited, for ten segments, is the path's own share; a queue of others is not in it, as it comes and goes.
 *
 * A path is dead after a failure if nothing was delivered on it since. The first failure may well be
 * the loss of a single segment, so the first wait is short; after a failure of one that tries it again
 * waits are long, and double. One connection at a time tries the path. It is also left alone, before
 * the first timeout, while a SYN that left on it should have been answered and nothing was delivered
 * since.
 *
 * A connection that can use one path only, for instance because its source address fits no other, cannot
 * leave it: it would be lost for a try. So a path that failed such a connection is not tried, but by those
 * that have no other. What proves it again is that one of these delivers, or the agent's own trial.
 *
 * Several processors update this at once, with plain stores. A sample may be lost that way, which
 * changes an average by a 32nd of one sample.
 */
#ifndef SIDESTEP_POLICY_QUALITY_H
#define SIDESTEP_POLICY_QUALITY_H

#include "types.h"

struct pc_quality {
	__u64 added_ns; /* what queues and losses added to a round trip, as of `updated_ns` */
	__u64 updated_ns;
	__u64 lowest_ns; /* the lowest round trip measured; 0: none yet */
	__u64 delivered_ns; /* when something was last delivered; 0: never */
	__u64 failed_ns; /* when it last failed; 0: never */
	__u64 hold_ns; /* so long after that no connection tries it, unless something is delivered */
	__u64 unproven; /* 1: the failure was one of acknowledgements, whose delivery is not measured */
	__u64 asked_ns; /* when a SYN left, the first since something was delivered; 0: none */
	__u64 slow_ns; /* by how much ten segments prolonged a round trip, at least; 0: not measured */
	__u64 slow_at_ns; /* when that was last measured */
	__u64 stranded; /* 1: the failure was one of a connection that has no other path */
	__u64 rate; /* bytes a second that a connection had of the path while it was full, as of `rate_ns` */
	__u64 rate_ns; /* 0: never */
};
_Static_assert(sizeof(struct pc_quality) == 104, "shared with Rust");

/* Queues up to this are noise (4 ms). As HYSTART_DELAY_MIN in Linux's tcp_cubic.c. */
#define PC_QUEUE_MIN_NS (1ULL << 22)
/* About two seconds. Our choice: a queue that was measured longer ago is most likely gone. */
#define PC_HALF_LIFE_LOG 31
/*
 * A sample moves the average by a 32nd at least, and by a quarter at most: a single transfer shows more
 * about itself than about the path. In between it gains weight by the time without one: a quarter in
 * about a second. All three are our choice.
 */
#define PC_SAMPLE_LOG 5
#define PC_SAMPLE_MAX_LOG 2
#define PC_SAMPLE_AGE_LOG 32
/* What a lost segment costs, at worst: Linux's least retransmission timeout (TCP_RTO_MIN). */
#define PC_LOSS_NS 200000000ULL
/* Added times are cut to this (4 s). Our choice: more makes a path no worse, and products stay within 64 bits. */
#define PC_MAX_ADDED_NS (1ULL << 32)
/*
 * Waits after a first failure: about a quarter of a second; after others: four seconds, and one minute. Our
 * choice: a longer first wait makes connections begin elsewhere for one lost segment, and after an outage of
 * an hour a path should be found within a minute.
 */
#define PC_HOLD_FIRST_NS (1ULL << 28)
#define PC_HOLD_MIN_NS (1ULL << 32)
#define PC_HOLD_MAX_NS (1ULL << 36)
/* And where a try strands a connection: nine minutes, in case no agent is there to try the path. Our choice, too. */
#define PC_STRANDED_NS (1ULL << 39)
/* A path that delivered something to anybody so shortly before a timeout works: half of TCP_RTO_MIN, our choice. */
#define PC_WORKS_NS 100000000ULL
/* And so shortly before a SYN's timeout, which comes after PC_LATE_NS at least. */
#define PC_SYN_WORKS_NS 40000000ULL
/*
 * A SYN's answer is late after this (67 ms) and two of the lowest round trips: nothing delays a SYN-ACK as it
 * may delay an ACK. A SYN whose answer is lost comes again about then (pc_syn_rto), or after Linux's
 * second. A refusal, which is not measured, matters no longer after PC_ASKED_NS. Our choice, where RFC 6298 knows
 * of no round trip, and waits for a second.
 */
#define PC_LATE_NS (1ULL << 26)
#define PC_ASKED_NS 1500000000ULL
/* Linux's timeout of a SYN where nothing is known of the round trip (TCP_TIMEOUT_INIT; RFC 6298, rule 2.1). */
#define PC_SYN_RTO_NS 1000000000ULL
/* A lowest round trip that is not met again is forgotten over about a minute. Our choice: routes change, if seldom. */
#define PC_LOWEST_LOG 36

/* Rounds with fewer segments do not show what a path's rate makes of ten (TCP_INIT_CWND). Our choice. */
#define PC_SLOW_SEGMENTS 5
/* What is known of that halves in about 17 seconds without a measurement: ours, slower than what queues add. */
#define PC_SLOW_HALF_LIFE_LOG 34

/*
 * The functions below take no branches, or are global for BPF: the verifier would follow each branch of
 * each path.
 */

/* What queues and losses add to a round trip of the path now; at most PC_MAX_ADDED_NS. */
POLICY_FN __u64 pc_added(const struct pc_quality *quality, __u64 now_ns)
{
	__u64 added = quality->added_ns & (PC_MAX_ADDED_NS - 1);
	__u64 age = pc_since(now_ns, quality->updated_ns);
	__u64 halvings = age >> PC_HALF_LIFE_LOG;
	/* Between halvings a straight line: in Q16 the part of a half-life that has passed. */
	__u64 part = (age >> (PC_HALF_LIFE_LOG - 16)) & 0xffff;

	added = pc_halved(added, halvings);
	return added - ((added * part) >> 17);
}

/* A sample of what queues and losses add. */
POLICY_FN void pc_sample(struct pc_quality *quality, __u64 now_ns, __u64 ns)
{
	__u64 added = quality->added_ns & (PC_MAX_ADDED_NS - 1);
	__u64 age = pc_since(now_ns, quality->updated_ns);
	__u64 share_q16 = pc_lesser((PC_Q16_ONE >> PC_SAMPLE_LOG) + (age >> (PC_SAMPLE_AGE_LOG - 16)),
				    PC_Q16_ONE >> PC_SAMPLE_MAX_LOG);

	quality->added_ns = (added * (PC_Q16_ONE - share_q16) +
			     pc_lesser(ns, PC_MAX_ADDED_NS - 1) * share_q16) >> 16;
	quality->updated_ns = now_ns;
}

/* By how much ten segments prolong a round trip, as measured recently; below 2^34. */
POLICY_FN __u64 pc_slow(const struct pc_quality *quality, __u64 now_ns)
{
	return pc_halved(quality->slow_ns & (4 * PC_MAX_ADDED_NS - 1),
			 pc_since(now_ns, quality->slow_at_ns) >> PC_SLOW_HALF_LIFE_LOG);
}

/*
 * A round of `segments` segments was longer than the lowest round trip by `over_ns`; something had been
 * delivered `age` ns before. Like the lowest round trip, the least is forgotten over about a minute.
 */
POLICY_FN void pc_measure_slow(struct pc_quality *quality, __u64 now_ns, __u64 over_ns, __u32 segments, __u64 age)
{
	__u64 slow = over_ns * 10 / segments, least = quality->slow_ns & (4 * PC_MAX_ADDED_NS - 1);

	if (!least || slow < least)
		least = slow + 1;
	else
		least += (age * ((slow - least) >> 8)) >> (PC_LOWEST_LOG - 8);
	quality->slow_ns = least;
	quality->slow_at_ns = now_ns;
}

/*
 * A round trip took `rtt_ns`, and `delivered` segments were delivered in it, `lost` lost; returns 0.
 *
 * A single segment meets the queue of others only. The first round of each connection, its SYN's, is
 * like that. It shows a queue, but where there is none it does not show that transfers are fast.
 */
POLICY_LARGE_FN __u32 pc_delivered(struct pc_quality *quality, __u64 now_ns, __u64 rtt_ns,
				   __u32 delivered, __u32 lost)
{
	__u64 lowest, age, over;

	if (!quality)
		return 0;
	lowest = quality->lowest_ns;
	age = pc_least(pc_since(now_ns, quality->delivered_ns), PC_MAX_ADDED_NS);
	rtt_ns = pc_least(rtt_ns, PC_MAX_ADDED_NS);
	if (!lowest || rtt_ns < lowest)
		lowest = rtt_ns;
	else
		lowest += (age * ((rtt_ns - lowest) >> 8)) >> (PC_LOWEST_LOG - 8);
	quality->lowest_ns = lowest;
	quality->delivered_ns = now_ns;
	quality->asked_ns = 0;
	over = rtt_ns - pc_least(lowest, rtt_ns);
	if (delivered >= PC_SLOW_SEGMENTS)
		pc_measure_slow(quality, now_ns, over, delivered, age);
	if (delivered > 1 || lost || over >= pc_added(quality, now_ns))
		pc_sample(quality, now_ns, over + lost * PC_LOSS_NS / (delivered ? delivered : 1));
	return 0;
}

/* 1 if the path failed, nothing was delivered since, and it is not yet to be tried. */
POLICY_FN __u32 pc_down(const struct pc_quality *quality, __u64 now_ns)
{
	__u64 hold = pc_choose(quality->hold_ns, PC_STRANDED_NS, quality->stranded & 1);

	return (__u32)(pc_above(quality->failed_ns, quality->delivered_ns) &
		       pc_above(hold, pc_since(now_ns, quality->failed_ns)));
}

/* 1 if no connection should try the path now. */
POLICY_LARGE_FN __u32 pc_dead(const struct pc_quality *quality, __u64 now_ns)
{
	__u64 waited, lowest, late;

	if (!quality)
		return 0;
	waited = pc_since(now_ns, quality->asked_ns);
	lowest = quality->lowest_ns & (PC_MAX_ADDED_NS - 1);
	late = pc_above(waited, PC_LATE_NS + 2 * lowest) & pc_above(PC_ASKED_NS, waited);

	/* Without any SYN, or any round trip measured, no answer is late. */
	return pc_down(quality, now_ns) | (__u32)(late & (1 - pc_zero(lowest)) & (1 - pc_zero(quality->asked_ns)));
}

/*
 * After what time a SYN that leaves on the path now is sent again; 0: no round trip was measured there, or the time is
 * none shorter than Linux's own.
 *
 * RFC 6298 makes a connection wait for a second because it knows of no round trip. Here others have
 * measured it recently (RFC 9040 makes connections share that).
 */
POLICY_FN __u64 pc_answer_time(const struct pc_quality *quality, __u64 now_ns)
{
	__u64 lowest = quality->lowest_ns & (PC_MAX_ADDED_NS - 1);
	__u64 time = PC_LATE_NS + 2 * (lowest + pc_added(quality, now_ns));

	return pc_choose(time, 0, pc_zero(lowest) | (1 - pc_above(PC_SYN_RTO_NS, time)));
}

/* A connection's SYN leaves on the path. */
POLICY_FN void pc_asked(struct pc_quality *quality, __u64 now_ns)
{
	if (!quality->asked_ns || pc_since(now_ns, quality->asked_ns) >= PC_ASKED_NS)
		quality->asked_ns = now_ns;
}

/* A connection that will deliver begins on the path: if that had failed, and may be tried, no other tries it soon; returns 0. */
POLICY_LARGE_FN __u32 pc_try(struct pc_quality *quality, __u64 now_ns)
{
	if (!quality || quality->failed_ns <= quality->delivered_ns || quality->unproven ||
	    pc_since(now_ns, quality->failed_ns) < quality->hold_ns)
		return 0;
	quality->failed_ns = now_ns;
	quality->hold_ns = pc_least(quality->hold_ns * 2, PC_HOLD_MAX_NS);
	return 0;
}

/* 1 if a path carried something to anybody shortly before a timeout of a connection with this round trip; 0: its SYN's. */
POLICY_LARGE_FN __u32 pc_works(const struct pc_quality *quality, __u64 now_ns, __u64 srtt_ns)
{
	if (!quality)
		return 0;
	return pc_since(now_ns, quality->delivered_ns) <
	       (srtt_ns ? PC_WORKS_NS + pc_least(srtt_ns, PC_MAX_ADDED_NS) : PC_SYN_WORKS_NS);
}

/* What is reported of a failure, as bits. */
#define PC_FAILED_ACKS 1u /* acknowledgements did not arrive */
#define PC_FAILED_STRANDED 2u /* of a connection that has no other path */
#define PC_FAILED_ALONE 4u /* there is no other path for anybody: there are no draws, and no weights */

/*
 * A connection had a timeout on the path, or its acknowledgements did not arrive, as `how` states;
 * `srtt_ns` is its round trip; returns 0.
 */
POLICY_LARGE_FN __u32 pc_failed(struct pc_quality *quality, __u64 now_ns, __u64 srtt_ns, __u32 how)
{
	__u32 acks = how & PC_FAILED_ACKS;
	__u64 before;

	if (!quality)
		return 0;
	before = pc_since(now_ns, quality->failed_ns);
	srtt_ns = pc_least(srtt_ns, PC_MAX_ADDED_NS);
	if (!(how & PC_FAILED_ALONE)) {
		quality->asked_ns = 0;
		pc_sample(quality, now_ns, PC_LOSS_NS + srtt_ns);
	}
	if (pc_works(quality, now_ns, srtt_ns))
		return 0;
	/* It is not measured that ACKs arrive again, so time alone opens the path. */
	if (how == PC_FAILED_STRANDED || how == (PC_FAILED_STRANDED | PC_FAILED_ALONE))
		quality->stranded = 1;
	else if (quality->failed_ns <= quality->delivered_ns)
		quality->stranded = 0;
	if (quality->failed_ns <= quality->delivered_ns || before > 4 * quality->hold_ns)
		/* It is not measured that ACKs arrive again, so there is nothing to wait for but time. */
		quality->hold_ns = acks ? PC_HOLD_MIN_NS : PC_HOLD_FIRST_NS;
	else if (before < quality->hold_ns)
		/* Of the same losses, or on its way when the path failed. */
		return 0;
	else
		quality->hold_ns = pc_least(pc_most(quality->hold_ns * 2, PC_HOLD_MIN_NS), PC_HOLD_MAX_NS);
	quality->failed_ns = now_ns;
	quality->unproven = acks;
	return 0;
}

#endif
