/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The functions of coupled.h under linkable names. */
#include "policy/coupled.h"

void native_coupled_add(struct coupled_sums *sums, const struct coupled_path *path)
{
	coupled_add(sums, path);
}

__s64 native_coupled_growth(__u32 algorithm, const struct coupled_sums *sums, const struct coupled_path *path)
{
	return coupled_growth(algorithm, sums, path);
}

__u32 native_coupled_kept(__u32 algorithm, const struct coupled_sums *sums, const struct coupled_path *path)
{
	return coupled_kept(algorithm, sums, path);
}

__s32 native_coupled_grown(__s64 *credit, __s64 growth, __u32 acked)
{
	return coupled_grown(credit, growth, acked);
}
