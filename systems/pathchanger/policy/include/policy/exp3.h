/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * EXP3: Auer, Cesa-Bianchi, Freund, Schapire, "The nonstochastic multiarmed bandit problem", 2002.
 *
 *     probability_i = (1 - gamma) * weight_i / sum(weight) + gamma / n
 *     weight_p     *= exp(gamma * reward / (probability_p * n))     for the path p in use
 *
 * This is figure 2 of the path changer's paper, too. A reward counts for more where the path was less probable,
 * or paths that are seldom drawn would seem to earn little. The share gamma of draws explores, as a path
 * that no connection tries any more could never be seen to have become good.
 *
 * EXP3-IX: Neu, "Explore no more: improved high-probability regret bounds for non-stochastic
 * bandits", 2015. No share of the draws explores; losses are estimated too low instead, the more so
 * the less probable the path. Here gamma is the paper's eta, and its gamma is half of that (theorem 1):
 *
 *     probability_i = weight_i / sum(weight)
 *     weight_p     *= exp(-gamma * loss / (probability_p + gamma / 2))
 *
 * The functions below that take gamma_q16 for a share take 0 for EXP3-IX.
 *
 * Weights are kept as logarithms with the greatest at 0, so that no history overflows them.
 */
#ifndef SIDESTEP_POLICY_EXP3_H
#define SIDESTEP_POLICY_EXP3_H

#include "policy/log2.h"
#include "types.h"

struct pc_exp3 {
	__s64 log_weight[PC_MAX_PATHS]; /* base 2, Q32, in PC_LOG_FLOOR..=0, where the
					   floor weighs nothing: also unused paths */
};
_Static_assert(sizeof(struct pc_exp3) == 128, "shared with Rust");

/* An update adds at most 1.5: from here no path returns within 10^8 updates, and nothing overflows. */
#define PC_LOG_FLOOR (-(1LL << 60))
/* log2(e): the papers' weights are powers of e, and these are powers of 2. */
#define PC_LOG2_E_Q31 3098164009ULL

/* 2^log for log <= 0 in Q32, as Q40; relative error below 1e-8 until it reaches 0 at 2^-41. */
POLICY_FN __u64 pc_exp2(__s64 log)
{
	/* The shift of a negative number rounds down, in gcc and clang, so that 0 <= part < 1. */
	__u64 shift = (__u64)-(log >> 32);
	__u64 part = (__u64)log & 0xffffffff;
	__u64 sum;

	/* (2^part - 1) / part, interpolated at Chebyshev nodes */
	sum = 894123;
	sum = ((sum * part) >> 32) + 5451244;
	sum = ((sum * part) >> 32) + 41455862;
	sum = ((sum * part) >> 32) + 238353606;
	sum = ((sum * part) >> 32) + 1031767986;
	sum = ((sum * part) >> 32) + 2977044430ULL;
	sum = PC_Q32_ONE + ((sum * part) >> 32);
	return pc_halved(sum << 8, shift);
}

/* The weight of path `i`, relative to the greatest, Q40. */
POLICY_FN __u64 pc_exp3_weight(const struct pc_exp3 *exp3, __u32 i)
{
	return pc_exp2(exp3->log_weight[PC_INDEX(i)]);
}

/* Subtracts the greatest log weight from all. */
POLICY_FN void pc_exp3_normalise(struct pc_exp3 *exp3)
{
	__s64 max = PC_LOG_FLOOR;
	__u32 i;

	for (i = 0; i < PC_MAX_PATHS; i++) {
		if (exp3->log_weight[i] > max)
			max = exp3->log_weight[i];
	}
	for (i = 0; i < PC_MAX_PATHS; i++) {
		exp3->log_weight[i] -= max;
		if (exp3->log_weight[i] < PC_LOG_FLOOR)
			exp3->log_weight[i] = PC_LOG_FLOOR;
	}
}

/* Starts from the initial weights of the first `n` of `paths`. */
POLICY_FN void pc_exp3_open(struct pc_exp3 *exp3, const struct pc_path *paths, __u32 n)
{
	__u32 i;

	for (i = 0; i < PC_MAX_PATHS; i++) {
		exp3->log_weight[i] = PC_LOG_FLOOR;
		if (i < n)
			exp3->log_weight[i] = pc_log2(paths[i].weight ? paths[i].weight : 1);
	}
	pc_exp3_normalise(exp3);
}

/*
 * Where the shares of the first `i` of `n` paths, which weigh `sum` of `total`, end on the unit
 * interval, Q32. Shares are differences of ends, so that they add up to exactly one.
 */
POLICY_FN __u64 pc_exp3_end(__u64 sum, __u64 total, __u32 i, __u32 n, __u32 gamma_q16)
{
	/* A long division in two digits: the product with 2^32 does not fit. */
	__u64 scaled = sum * (PC_Q16_ONE - gamma_q16);
	__u64 high = scaled / total;
	__u64 low = ((scaled % total) << 16) / total;

	return (high << 16) + low + (((__u64)gamma_q16 * i) << 16) / n;
}

/* What the first `n` paths weigh together. */
POLICY_FN __u64 pc_exp3_total(const struct pc_exp3 *exp3, __u32 n)
{
	__u64 total = 0;
	__u32 i;

	for (i = 0; i < PC_MAX_PATHS && i < n; i++)
		total += pc_exp3_weight(exp3, i);
	return total;
}

/*
 * The shares of the paths in the bit set `among` together, where all `n` weigh `total`; `gamma_q16` in
 * 0..=65536. Paths from n on weigh nothing; they are not looked at, as most connections have few paths,
 * and each costs divisions.
 */
POLICY_FN __u64 pc_exp3_shares(const struct pc_exp3 *exp3, __u64 total, __u32 n, __u32 gamma_q16, __u32 among)
{
	__u64 sum = 0, from = 0, to, shares = 0;
	__u32 i;

	for (i = 0; i < PC_MAX_PATHS && i < n; i++) {
		sum += pc_exp3_weight(exp3, i);
		to = pc_exp3_end(sum, total, i + 1, n, gamma_q16);
		shares += (to - from) * (among >> i & 1);
		from = to;
	}
	return shares;
}

/*
 * Draws one of the paths in the bit set `among`, none of them n or more, by their probabilities;
 * if these are all 0, any of them.
 */
POLICY_LARGE_FN __u32 pc_exp3_draw(const struct pc_exp3 *exp3, __u32 n, __u32 gamma_q16,
				   __u32 among, __u32 random)
{
	__u64 sum = 0, total, from = 0, to, possible, point, passed = 0;
	__u32 i, path = 0;

	if (!exp3)
		return 0;
	total = pc_exp3_total(exp3, n);
	possible = pc_exp3_shares(exp3, total, n, gamma_q16, among);
	if (!possible)
		return pc_nth(among, (__u32)pc_scale(random, pc_bits(among)));
	point = pc_scale(random, possible);
	/* The path is where `passed` first exceeds the point: as many as do not are before it. */
	for (i = 0; i < PC_MAX_PATHS - 1 && i + 1 < n; i++) {
		sum += pc_exp3_weight(exp3, i);
		to = pc_exp3_end(sum, total, i + 1, n, gamma_q16);
		passed += (to - from) * (among >> i & 1);
		from = to;
		path += 1 - pc_above(passed, point);
	}
	return path;
}

/*
 * The probability, Q32, with which pc_exp3_draw takes `path`, one of the set `among`; one is cut to the
 * greatest number there is.
 */
POLICY_LARGE_FN __u32 pc_exp3_chance(const struct pc_exp3 *exp3, __u32 n, __u32 gamma_q16, __u32 among,
				     __u32 path)
{
	__u64 total, possible, mine;

	if (!exp3)
		return 0;
	total = pc_exp3_total(exp3, n);
	possible = pc_exp3_shares(exp3, total, n, gamma_q16, among);
	if (!possible)
		return (__u32)((PC_Q32_ONE - 1) / (pc_bits(among) | !pc_bits(among)));
	mine = pc_exp3_shares(exp3, total, n, gamma_q16, 1u << PC_INDEX(path));
	return (__u32)pc_least((pc_least(mine, PC_Q32_ONE - 1) << 32) / possible, PC_Q32_ONE - 1);
}

/*
 * What a reward in 0..=65536, Q16, adds to the log weight of a path that was drawn with the probability
 * `chance_q32`, at least gamma / n, as exploring gives each path: smaller ones count as that, so that no step is
 * more than e.
 */
POLICY_FN __s64 pc_exp3_gain(__u32 n, __u32 gamma_q16, __u32 chance_q32, __u32 reward_q16)
{
	__u64 divisor = (__u64)chance_q32 * n;
	__u64 gain_q31 = (((__u64)gamma_q16 * reward_q16) << 31) / (divisor + !divisor);

	return (__s64)((pc_least(gain_q31, 1ULL << 31) * PC_LOG2_E_Q31) >> 30);
}

/*
 * EXP3-IX: what a loss in 0..=65536, Q16, takes from the log weight of the path; gamma is not 0. Half of gamma
 * in the divisor bounds the step for an improbable path, which no exploring does here.
 */
POLICY_FN __s64 pc_exp3_loss(__u32 gamma_q16, __u32 chance_q32, __u32 loss_q16)
{
	__u64 divisor = chance_q32 + ((__u64)gamma_q16 << 15);
	/* At most 2, which the product below just has room for. */
	__u64 step_q31 = (((__u64)gamma_q16 * loss_q16) << 31) / divisor;

	return (__s64)((step_q31 * PC_LOG2_E_Q31) >> 30);
}

/* Adds to the log weight of `path`; returns 0. */
POLICY_LARGE_FN __u32 pc_exp3_add(struct pc_exp3 *exp3, __u32 path, __s64 step)
{
	if (!exp3)
		return 0;
	exp3->log_weight[PC_INDEX(path)] += step;
	pc_exp3_normalise(exp3);
	return 0;
}

#endif
