/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The paths of a connection: by its ends, by the address that it sends from, and by the slot in its mark. */
#ifndef SIDESTEP_HOST_PATHS_H
#define SIDESTEP_HOST_PATHS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "kernel.h"
#include "maps.h"

/* IPv4 as an IPv6 socket would have it: ::ffff:a.b.c.d. */
static void map_address(__u32 to[4], __u32 address)
{
	/* The verifier wants each word of the context read at a place of its own; clang would merge the reads. */
	barrier_var(address);
	to[0] = to[1] = 0;
	to[2] = bpf_htonl(0xffff);
	to[3] = address;
}

static void ends_of(struct host_ends *ends, const struct bpf_sock_ops *ops)
{
	if (ops->family == AF_INET) {
		map_address(ends->local_addr, ops->local_ip4);
		map_address(ends->remote_addr, ops->remote_ip4);
	} else {
		ends->local_addr[0] = ops->local_ip6[0];
		ends->local_addr[1] = ops->local_ip6[1];
		ends->local_addr[2] = ops->local_ip6[2];
		ends->local_addr[3] = ops->local_ip6[3];
		ends->remote_addr[0] = ops->remote_ip6[0];
		ends->remote_addr[1] = ops->remote_ip6[1];
		ends->remote_addr[2] = ops->remote_ip6[2];
		ends->remote_addr[3] = ops->remote_ip6[3];
	}
	ends->local_port = ops->local_port;
	ends->remote_port = bpf_ntohl(ops->remote_port);
}

/* The longest key. IPv4 through an IPv6 socket is IPv4. */
static void key_of(struct host_prefix *key, const __u32 address[4])
{
	bool mapped = !address[0] && !address[1] && address[2] == bpf_htonl(0xffff);
	__u32 *addr = (__u32 *)key->addr;

	__builtin_memset(key, 0, sizeof(*key));
	if (mapped) {
		key->family = 4;
		key->len = 32 + 32;
		addr[0] = address[3];
	} else {
		key->family = 6;
		key->len = 32 + 128;
		__builtin_memcpy(addr, address, 16);
	}
}

static struct host_paths *paths_to(const struct host_ends *ends)
{
	struct host_prefix key;

	key_of(&key, ends->remote_addr);
	return bpf_map_lookup_elem(&sidestep_dests, &key);
}

/* The paths that take packets from this address, as a bit set. */
static __noinline __u32 paths_from(const struct host_paths *paths, const __u32 *address)
{
	__u32 i, n = paths->n, allowed = (1u << (n & 31)) - 1;
	struct host_prefix key;
	host_source_bits *found, bits;

	if (!paths->restricted)
		return allowed;
	key_of(&key, address);
	found = bpf_map_lookup_elem(&sidestep_addrs, &key);
	bits = found ? *found : HOST_UNNAMED;
	for (i = 0; i < PC_MAX_PATHS; i++) {
		__u64 named = paths->sources[i];

		/* Neither names the address, nor takes all. */
		allowed &= ~((__u32)(pc_zero(named & bits) & (1 - pc_zero(named))) << i);
	}
	return allowed;
}

/* Not inlined, as below. */
static __noinline __u32 paths_from_here(struct bpf_sock_ops *ops, const struct host_paths *paths)
{
	struct host_ends ends;

	ends_of(&ends, ops);
	return paths_from(paths, ends.local_addr);
}

/* Not inlined: the addresses must not take room on the stack while the policy decides. */
static __noinline struct host_paths *paths_to_peer(struct bpf_sock_ops *ops)
{
	struct host_ends ends;

	ends_of(&ends, ops);
	return paths_to(&ends);
}

/*
 * What connections to a destination learn together. It is 0 if each learns for itself, if the weights are those of
 * other paths, and in a dry run, in which no packet takes the paths.
 */
static struct pc_shared *shared_by(const struct host_config *cfg, const struct host_paths *paths)
{
	struct host_weights *found;

	if (!cfg->policy.shared || cfg->dry_run)
		return 0;
	found = bpf_map_lookup_elem(&sidestep_learnt, &paths->key);
	return found && found->generation == paths->generation ? &found->shared : 0;
}

static __u32 path_id(const struct host_paths *paths, __u32 index)
{
	return index < PC_MAX_PATHS ? paths->path[index].id : 0;
}

static __u32 slot_of(const struct host_config *cfg, __u32 mark)
{
	return (mark & cfg->mark_mask) >> (cfg->mark_shift & 31);
}

/* The path that a slot leads along; PC_MAX_PATHS if none does. A global function, which the verifier walks by itself. */
__noinline __u32 sidestep_index_of(const struct host_paths *paths, __u32 slot)
{
	__u32 i;

	if (!paths || !slot)
		return PC_MAX_PATHS;
	for (i = 0; i < PC_MAX_PATHS; i++) {
		if (paths->slot[i] == slot)
			return i;
	}
	return PC_MAX_PATHS;
}

/* The mark of a connection on path `index`: only our bits of it change. */
static __u32 mark_of(__u32 mark, const struct host_config *cfg, const struct host_paths *paths, __u32 index)
{
	__u32 slot = index < PC_MAX_PATHS ? paths->slot[index] : 0;

	return (mark & ~cfg->mark_mask) | ((slot << cfg->mark_shift) & cfg->mark_mask);
}

#endif
