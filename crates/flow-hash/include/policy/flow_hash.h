/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A flow's hash: MurmurHash3_x86_32 (Appleby, 2011) over the words of the flow's key. Routers, edges
 * and the simulator choose one of n next hops or paths by it.
 *
 * The values are frozen: two edges that run different versions must agree on them. All fields of the key
 * are numbers in host byte order, so that machines of either byte order compute the same hash.
 *
 * The hash spreads flows; it does not resist an attacker who chooses keys that collide.
 */
#ifndef SIDESTEP_POLICY_FLOW_HASH_H
#define SIDESTEP_POLICY_FLOW_HASH_H

#include "ints.h"

struct flow_hash_key {
	__u32 source[4]; /* most significant word first; IPv4 addresses as ::ffff:a.b.c.d */
	__u32 destination[4];
	__u32 source_port; /* 16 bits; 0 where the protocol has none */
	__u32 destination_port;
	__u32 protocol; /* IANA's number */
	__u32 flow_label; /* 20 bits; 0 to leave it out */
};
_Static_assert(sizeof(struct flow_hash_key) == 48, "shared with Rust");
_Static_assert(__builtin_offsetof(struct flow_hash_key, destination) == 16, "shared with Rust");
_Static_assert(__builtin_offsetof(struct flow_hash_key, source_port) == 32, "shared with Rust");
_Static_assert(__builtin_offsetof(struct flow_hash_key, flow_label) == 44, "shared with Rust");

POLICY_FN __u32 flow_hash_rotate(__u32 x, __u32 bits)
{
	return x << bits | x >> (32 - bits);
}

/* Mixes one word of the key into the hash. */
POLICY_FN __u32 flow_hash_add(__u32 hash, __u32 word)
{
	word *= 0xcc9e2d51;
	word = flow_hash_rotate(word, 15);
	word *= 0x1b873593;
	return flow_hash_rotate(hash ^ word, 13) * 5 + 0xe6546b64;
}

/*
 * 1 if the source's address and port, read as one number, exceed the destination's: the borrow of their
 * difference, from the least significant word on. It takes no branch.
 */
POLICY_FN __u32 flow_hash_descends(const struct flow_hash_key *key)
{
	__u64 borrow = ((__u64)key->destination_port - key->source_port) >> 63;

	borrow = ((__u64)key->destination[3] - key->source[3] - borrow) >> 63;
	borrow = ((__u64)key->destination[2] - key->source[2] - borrow) >> 63;
	borrow = ((__u64)key->destination[1] - key->source[1] - borrow) >> 63;
	borrow = ((__u64)key->destination[0] - key->source[0] - borrow) >> 63;
	return (__u32)borrow;
}

/* `a`, or `b` where `mask` is all ones. */
POLICY_FN __u32 flow_hash_either(__u32 a, __u32 b, __u32 mask)
{
	return a ^ ((a ^ b) & mask);
}

/*
 * The hash of a flow. If `symmetric` is 1, both directions of a connection have the same hash: the end
 * with the lower address and port counts as the source. The flow label is hashed as it is; give both
 * directions the same one, or 0. A router that forwards by hash takes a seed of its own, so that its
 * choice does not depend on the previous router's.
 */
POLICY_FN __u32 flow_hash(const struct flow_hash_key *key, __u32 seed, __u32 symmetric)
{
	__u32 swap = 0 - (symmetric & flow_hash_descends(key));
	__u32 hash = seed, i;

	for (i = 0; i < 4; i++)
		hash = flow_hash_add(hash, flow_hash_either(key->source[i], key->destination[i], swap));
	for (i = 0; i < 4; i++)
		hash = flow_hash_add(hash, flow_hash_either(key->destination[i], key->source[i], swap));
	hash = flow_hash_add(hash, flow_hash_either(key->source_port, key->destination_port, swap));
	hash = flow_hash_add(hash, flow_hash_either(key->destination_port, key->source_port, swap));
	hash = flow_hash_add(hash, key->protocol);
	hash = flow_hash_add(hash, key->flow_label);
	return pc_mix(hash ^ (__u32)sizeof(*key));
}

/*
 * One of n choices, in 0..n; 0 if n is 0. It is the remainder, which is how papers on such edges define
 * the choice. All bits of the hash are equally good, so the remainder is as even as a scaled product:
 * no choice is more likely than another by more than n / 2^32.
 */
POLICY_FN __u32 flow_hash_pick(__u32 hash, __u32 n)
{
	return n ? hash % n : 0;
}

#endif
