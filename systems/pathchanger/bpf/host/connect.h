/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The programs of cgroup/connect4 and cgroup/connect6: they choose a path before the kernel looks for a route. */
#ifndef SIDESTEP_HOST_CONNECT_H
#define SIDESTEP_HOST_CONNECT_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "kernel.h"
#include "storage.h"

/* Of the kernel's sockaddr_in and sockaddr_in6. */
struct bind_address {
	__u16 family;
	__be16 port;
	__be32 word[6]; /* IPv4: the address; IPv6: the flow label, the address, the scope */
};

/*
 * Binds a socket to the address that a path wants for a source. Where the host has lost that address, the kernel chooses
 * another one.
 */
static __noinline int bind_source(struct bpf_sock_addr *ctx, const struct host_paths *paths, __u32 index)
{
	struct bind_address address = {};
	const __u32 *wanted;

	if (index >= PC_MAX_PATHS)
		return 0;
	wanted = paths->address[index];
	if (!(wanted[0] | wanted[1] | wanted[2] | wanted[3]))
		return 0;
	if (ctx->family == AF_INET) {
		address.family = AF_INET;
		address.word[0] = wanted[3];
		return bpf_bind(ctx, (struct sockaddr *)&address, 16);
	}
	address.family = AF_INET6;
	__builtin_memcpy(&address.word[1], wanted, 16);
	return bpf_bind(ctx, (struct sockaddr *)&address, sizeof(address));
}

/*
 * A socket connects. The kernel has not looked for a route yet, so the source address will be one that belongs to the
 * path; if the socket is bound to an address, only paths that take this address are drawn.
 */
static __always_inline void choose_before_route(struct bpf_sock_addr *ctx, const struct host_ends *ends)
{
	struct bpf_sock *sk = ctx->sk;
	struct opening opening = { .cfg = configured() };
	const __u32 *local = ends->local_addr;
	bool bound = local[0] || local[1] || local[3];
	__u32 index;

	/* A dry run begins when the SYN leaves. */
	if (!opening.cfg || opening.cfg->dry_run || !sk)
		return;
	if (bpf_get_netns_cookie(ctx) != opening.cfg->netns_cookie) {
		count(HOST_OTHER_NETNS);
		return;
	}
	opening.paths = paths_to(ends);
	if (!opening.paths || !opening.paths->n) {
		count(HOST_UNTOUCHED);
		return;
	}
	if (bound)
		opening.allowed = paths_from(opening.paths, local);
	else
		opening.allowed = (1u << (opening.paths->n & 31)) - 1;
	if (!may_take(opening.paths, sk, opening.allowed))
		return;
	opening.mark = sk->mark;
	opening.before = mark_before(sk, opening.mark, opening.cfg);
	index = begin(ctx, sk, &opening);
	if (!bound)
		bind_source(ctx, opening.paths, index);
}

SEC("cgroup/connect4")
int sidestep_con4(struct bpf_sock_addr *ctx)
{
	struct host_ends ends;

	if (ctx->type != SOCK_STREAM || ctx->protocol != IPPROTO_TCP || !ctx->sk)
		return 1;
	map_address(ends.remote_addr, ctx->user_ip4);
	map_address(ends.local_addr, ctx->sk->src_ip4);
	choose_before_route(ctx, &ends);
	return 1;
}

SEC("cgroup/connect6")
int sidestep_con6(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct host_ends ends;

	if (ctx->type != SOCK_STREAM || ctx->protocol != IPPROTO_TCP || !sk)
		return 1;
	ends.remote_addr[0] = ctx->user_ip6[0];
	ends.remote_addr[1] = ctx->user_ip6[1];
	ends.remote_addr[2] = ctx->user_ip6[2];
	ends.remote_addr[3] = ctx->user_ip6[3];
	ends.local_addr[0] = sk->src_ip6[0];
	ends.local_addr[1] = sk->src_ip6[1];
	ends.local_addr[2] = sk->src_ip6[2];
	ends.local_addr[3] = sk->src_ip6[3];
	choose_before_route(ctx, &ends);
	return 1;
}

#endif
