/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Coupled congestion control of MPTCP: how the windows of a connection's subflows grow together, and what a loss leaves.
 *
 *   LIA    RFC 6356
 *   OLIA   Khalili and others, "MPTCP is not Pareto-optimal", IEEE/ACM Transactions on Networking 21(5), 2013
 *   BALIA  Peng and others, "Multipath TCP: analysis, design, and implementation", the same, 24(1), 2016
 *
 * Windows are in bytes and times in microseconds, so subflows of different MSS are weighed rightly. A subflow adds up
 * what it needs of all subflows (coupled_add), about once in a round trip. What follows for its own window is
 * coupled_growth for each segment that is acknowledged, and coupled_kept for a loss.
 *
 * Numbers are clamped where they enter: no value overflows, and none divides by zero, whatever is passed in.
 */
#ifndef SIDESTEP_POLICY_COUPLED_H
#define SIDESTEP_POLICY_COUPLED_H

#include "policy/ints.h"

enum coupled_algorithm {
	COUPLED_LIA,
	COUPLED_OLIA,
	COUPLED_BALIA,
};

/* 4 GiB: more than a socket can have in flight. */
#define COUPLED_MAX_WINDOW (1ULL << 32)
/* 4.2 s; with the rate below, a rate times a round trip is less than 2^63. */
#define COUPLED_MAX_RTT (1U << 22)
/* Bytes a microsecond, Q24: the slowest rate, of one small segment in four seconds, still has eight bits. */
#define COUPLED_RATE_BITS 24
/* 131 kB a microsecond, a terabit a second; so much for all subflows together, too. */
#define COUPLED_MAX_RATE (1ULL << 41)
/* 256 GiB between two losses. */
#define COUPLED_MAX_BETWEEN (1ULL << 38)
/* A window that takes a petabyte for each segment does not grow. */
#define COUPLED_NEVER (1ULL << 50)
#define COUPLED_MAX_MSS 65535U
#define COUPLED_MAX_ACKED (1U << 20)
/* More subflows than a connection may have: their count times a window is less than 2^63. */
#define COUPLED_MAX_SUBFLOWS 1024U

/* A subflow, as coupling sees it. */
struct coupled_path {
	__u64 window;         /* bytes */
	__u64 between_losses; /* bytes acknowledged since the last loss, or between the two before, whichever is more */
	__u32 rtt;            /* smoothed, in microseconds; 0: the subflow does not count */
	__u32 mss;            /* bytes */
};
_Static_assert(sizeof(struct coupled_path) == 24, "shared with Rust");

/* What coupling needs of all subflows. */
struct coupled_sums {
	__u64 rate;       /* sum of window / rtt */
	__u64 fastest;    /* largest window / rtt: BALIA's max x */
	__u64 keen_rate;  /* window / rtt of the subflow with the largest window / rtt^2, for LIA's alpha */
	__u64 longest;    /* between_losses of the subflow with the largest between_losses / rtt^2, for OLIA's best paths */
	__u64 widest;     /* largest window, in bytes */
	__u32 keen_rtt;
	__u32 longest_rtt;
	__u16 count;       /* subflows */
	__u16 widest_of;   /* those with the largest window: OLIA's M */
	__u16 best_of;     /* those with the largest between_losses / rtt^2: OLIA's B */
	__u16 both;        /* those in M and in B */
};
_Static_assert(sizeof(struct coupled_sums) == 56, "shared with Rust");

/*
 * 1 if a > b, else 0, for all numbers. No branch: the verifier would follow both sides of each for every subflow. The empty assembly
 * keeps the compiler from making one.
 */
POLICY_FN __u64 coupled_over(__u64 a, __u64 b)
{
	__u64 borrow = (a & ~b) | ((a | ~b) & (b - a));

	__asm__("" : "+r"(borrow));
	return borrow >> 63;
}

POLICY_FN __u64 coupled_least(__u64 a, __u64 b)
{
	return pc_choose(a, b, coupled_over(a, b));
}

POLICY_FN __u64 coupled_most(__u64 a, __u64 b)
{
	return pc_choose(b, a, coupled_over(a, b));
}

/* From 1 to `most`: what it divides by is never 0. */
POLICY_FN __u64 coupled_clamp(__u64 value, __u64 most)
{
	return coupled_most(1, coupled_least(value, most));
}

POLICY_FN __u64 coupled_window(const struct coupled_path *path)
{
	return coupled_clamp(path->window, COUPLED_MAX_WINDOW);
}

POLICY_FN __u64 coupled_rtt(const struct coupled_path *path)
{
	return coupled_clamp(path->rtt, COUPLED_MAX_RTT);
}

/* window / rtt. */
POLICY_FN __u64 coupled_rate(const struct coupled_path *path)
{
	__u64 rate = (coupled_window(path) << COUPLED_RATE_BITS) / coupled_rtt(path);

	return coupled_clamp(rate, COUPLED_MAX_RATE);
}

/*
 * How the ranks between / rtt^2 of two paths compare: the rate that Reno would have on a path, squared, is proportional to it
 * (Khalili, equation 6; Linux's former mptcp_olia.c). Each side is multiplied by both round trips, and stays below 2^60.
 */
POLICY_FN __u64 coupled_rank(__u64 between, __u64 rtt, __u64 other_rtt)
{
	return (between * other_rtt) / rtt;
}

/* Adds a subflow that counts. `sums` is zero at first. */
POLICY_FN void coupled_add(struct coupled_sums *sums, const struct coupled_path *path)
{
	__u64 window = coupled_window(path), rtt = coupled_rtt(path), rate = coupled_rate(path);
	__u64 between = coupled_least(path->between_losses, COUPLED_MAX_BETWEEN);
	__u64 keen_rate = coupled_least(sums->keen_rate, COUPLED_MAX_RATE), keen_rtt = coupled_clamp(sums->keen_rtt, COUPLED_MAX_RTT);
	__u64 longest = coupled_least(sums->longest, COUPLED_MAX_BETWEEN);
	__u64 longest_rtt = coupled_clamp(sums->longest_rtt, COUPLED_MAX_RTT);
	/* rate / rtt > keen_rate / keen_rtt. */
	__u64 keener = coupled_over(rate * keen_rtt, keen_rate * rtt);
	/* The sets M and B, in one pass: a subflow that is above all before is alone in its set. */
	__u64 own = coupled_rank(between, rtt, longest_rtt), best = coupled_rank(longest, longest_rtt, rtt);
	__u64 first = pc_zero(sums->count), wider = coupled_over(window, sums->widest), better = first | coupled_over(own, best);
	__u64 in_widest = 1 - coupled_over(sums->widest, window), in_best = first | (1 - coupled_over(best, own));

	sums->rate = coupled_least(coupled_least(sums->rate, COUPLED_MAX_RATE) + rate, COUPLED_MAX_RATE);
	sums->fastest = coupled_most(sums->fastest, rate);
	sums->keen_rate = pc_choose(keen_rate, rate, keener);
	sums->keen_rtt = pc_choose(keen_rtt, rtt, keener);
	sums->both = sums->both * (1 - (wider | better)) + (in_widest & in_best);
	sums->widest_of = sums->widest_of * (1 - wider) + in_widest;
	sums->best_of = sums->best_of * (1 - better) + in_best;
	sums->widest = coupled_most(sums->widest, window);
	sums->longest = pc_choose(longest, between, better);
	sums->longest_rtt = pc_choose(longest_rtt, rtt, better);
	sums->count++;
}

/*
 * (sum of window / rtt)^2 / (rate / rtt) in bytes: with LIA and OLIA a window grows by one segment for this number of bytes that
 * are acknowledged. `sum` is not less than `rate`.
 */
POLICY_FN __u64 coupled_every(__u64 sum, __u64 rate, __u64 rtt)
{
	/* The window at this round trip that would have the whole rate; below 2^39. */
	__u64 whole = (sum * rtt) >> COUPLED_RATE_BITS;
	/* How many times the whole rate is the path's, Q20; below 2^61. */
	__u64 times = (sum << 20) / rate;

	/* The product below has at most 63 bits: times < 2^24, or 2^34 without ten of its bits. */
	if (times < 1U << 24)
		return coupled_clamp((whole * times) >> 20, COUPLED_NEVER);
	times = coupled_least(times, (1ULL << 34) - 1);
	return coupled_clamp((whole * (times >> 10)) >> 10, COUPLED_NEVER);
}

/* OLIA's epsilon of a subflow over its window, in segments for each segment acknowledged, Q32 (Khalili, equation 6). */
POLICY_FN __s64 coupled_epsilon(const struct coupled_sums *sums, const struct coupled_path *path)
{
	__u64 window = coupled_window(path), rtt = coupled_rtt(path);
	__u64 longest_rtt = coupled_clamp(sums->longest_rtt, COUPLED_MAX_RTT);
	__u64 own = coupled_rank(coupled_least(path->between_losses, COUPLED_MAX_BETWEEN), rtt, longest_rtt);
	__u64 best = coupled_rank(coupled_least(sums->longest, COUPLED_MAX_BETWEEN), longest_rtt, rtt);
	/* One segment over the window, the number of subflows, and of those in the set. */
	__u64 whole = (coupled_clamp(path->mss, COUPLED_MAX_MSS) << 32) /
		      (coupled_most(window, path->mss) * coupled_clamp(sums->count, COUPLED_MAX_SUBFLOWS));

	/* Nothing moves where the best are the widest. */
	if (sums->best_of <= sums->both)
		return 0;
	if (window >= sums->widest)
		return -(__s64)(whole / coupled_clamp(sums->widest_of, COUPLED_MAX_SUBFLOWS));
	return own < best ? 0 : whole / (__u64)(sums->best_of - sums->both);
}

/*
 * By how much of a segment the window grows for each segment that is acknowledged in congestion avoidance, Q32; with OLIA that
 * may be negative.
 */
POLICY_FN __s64 coupled_growth(__u32 algorithm, const struct coupled_sums *sums, const struct coupled_path *path)
{
	__u64 rtt = coupled_rtt(path), rate = coupled_rate(path), mss = coupled_clamp(path->mss, COUPLED_MAX_MSS);
	/* Reno's growth is a segment for a window; a window is at least a segment. */
	__u64 reno = coupled_most(coupled_window(path), mss), every, a;
	/* The sums may be a round trip old, and without this subflow. */
	__u64 sum = coupled_clamp(coupled_most(sums->rate, rate), COUPLED_MAX_RATE);
	__u64 keen_rate = coupled_clamp(sums->keen_rate, COUPLED_MAX_RATE);
	__u64 keen_rtt = coupled_clamp(sums->keen_rtt, COUPLED_MAX_RTT);

	if (algorithm == COUPLED_LIA) {
		/*
		 * RFC 6356 section 3: alpha over the sum of the windows is the largest window / rtt^2 over (sum of window / rtt)^2,
		 * so that all subflows together get what one TCP gets on the best path; and never more than Reno.
		 */
		if (rate * keen_rtt > keen_rate * rtt) {
			keen_rate = rate;
			keen_rtt = rtt;
		}
		return (mss << 32) / coupled_most(reno, coupled_every(coupled_most(sum, keen_rate), keen_rate, keen_rtt));
	}
	every = coupled_every(sum, rate, rtt);
	if (algorithm == COUPLED_BALIA) {
		/* Peng, section V: (1 + a)/2 * (4 + a)/5 of OLIA's first term, where a = max x / x, in Q10 and below 2^12. */
		a = coupled_clamp(coupled_most(sums->fastest, rate), COUPLED_MAX_RATE);
		a = coupled_least((a << 10) / rate, 1U << 22);
		/* every * 10 / ((1 + a)(4 + a)), both with six fraction bits. */
		every = every * (10 << 6) / (((1024 + a) * (4096 + a)) >> 14);
		return (mss << 32) / coupled_most(reno, every);
	}
	/* OLIA, Khalili, equation 5. */
	return (__s64)((mss << 32) / coupled_most(reno, every)) + coupled_epsilon(sums, path);
}

/* The share of the window that a loss or a mark leaves, Q16. */
POLICY_FN __u32 coupled_kept(__u32 algorithm, const struct coupled_sums *sums, const struct coupled_path *path)
{
	__u64 rate = coupled_rate(path), a;

	if (algorithm != COUPLED_BALIA)
		return PC_Q16_ONE / 2;
	/* Peng, section V: window / 2 * min(a, 1.5) goes, so that a path that has less than the best leaves more. */
	a = coupled_clamp(coupled_most(sums->fastest, rate), COUPLED_MAX_RATE);
	a = coupled_least((a << 16) / rate, PC_Q16_ONE + PC_Q16_ONE / 2);
	return PC_Q16_ONE - a / 2;
}

/*
 * Takes the growth for `acked` segments, and returns by how many whole segments the window changes; the rest stays in `credit`,
 * which is at least 0 and below one segment (Q32). A loss sets it to 0.
 */
POLICY_FN __s32 coupled_grown(__s64 *credit, __s64 growth, __u32 acked)
{
	__s64 limit = (__s64)PC_Q32_ONE, total;

	growth = growth > limit ? limit : growth < -limit ? -limit : growth;
	total = (*credit & (limit - 1)) + growth * (__s64)coupled_least(acked, COUPLED_MAX_ACKED);
	*credit = total & (limit - 1);
	/* Towards minus infinity: both shift alike in every compiler that we use. */
	return total >> 32;
}

#endif
