/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The functions of balance.h under linkable names. */
#include "policy/balance.h"

__u32 native_balance_hash(const struct balance_set *set, const struct flow_hash_key *key)
{
	return balance_hash(set, key);
}

__u32 native_balance_choose(const struct balance_set *set, __u32 live, __u32 hash)
{
	return balance_choose(set, live, hash);
}

__u32 native_balance_next(const struct balance_set *set, __u32 live, __u32 last)
{
	return balance_next(set, live, last);
}

__u64 native_balance_digest(const struct balance_set *set)
{
	return balance_digest(set);
}
