/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The binary logarithm in integers. */
#ifndef SIDESTEP_POLICY_LOG2_H
#define SIDESTEP_POLICY_LOG2_H

#include "ints.h"

/* log2 of value >= 1, Q32; absolute error below 2e-8. */
POLICY_FN __s64 pc_log2(__u32 value)
{
	__u64 rest = value, whole = 0, step, mantissa, s, s2, sum;

	step = pc_above(rest, 0xffff) << 4;
	rest >>= step;
	whole += step;
	step = pc_above(rest, 0xff) << 3;
	rest >>= step;
	whole += step;
	step = pc_above(rest, 0xf) << 2;
	rest >>= step;
	whole += step;
	step = pc_above(rest, 0x3) << 1;
	rest >>= step;
	whole += step;
	whole += rest >> 1;

	/* log2(m) = 2/ln(2) * (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1), for m in 1..2 */
	mantissa = ((__u64)value << 32) >> whole;
	s = ((mantissa - PC_Q32_ONE) << 32) / (mantissa + PC_Q32_ONE);
	s2 = (s * s) >> 32;
	sum = 953281234ULL;
	sum = ((sum * s2) >> 32) + 1126605094ULL;
	sum = ((sum * s2) >> 32) + 1376961782ULL;
	sum = ((sum * s2) >> 32) + 1770379434ULL;
	sum = ((sum * s2) >> 32) + 2478531207ULL;
	sum = ((sum * s2) >> 32) + 4130885346ULL;
	sum = ((sum * s2) >> 32) + 12392656037ULL;
	return (__s64)((whole << 32) + ((sum * s) >> 32));
}

#endif
