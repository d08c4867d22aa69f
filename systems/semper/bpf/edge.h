/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the balancer of an edge router (balance.bpf.c) and its daemon exchange. */
#ifndef SIDESTEP_EDGE_H
#define SIDESTEP_EDGE_H

#include "policy/balance.h"

/* Most destination prefixes, those without paths included. */
#define EDGE_MAX_SITES 4096
/* Mark slots: 1 to 63 for paths; 0 is the router's own route. */
#define EDGE_SLOTS 64

/* A destination prefix; IPv4 addresses as ::ffff:a.b.c.d. */
struct edge_prefix {
	__u32 length; /* bits */
	__u8 address[16];
};
_Static_assert(sizeof(struct edge_prefix) == 20, "shared with Rust");

/* What is behind a prefix: the paths to it. A prefix without paths is left alone. */
struct edge_site {
	struct balance_set set;
	__u32 live; /* a bit for each path that is not known to be dead */
	__u32 unused;
	__u8 slot[BALANCE_MAX_PATHS]; /* the mark slot of each path; 0 where it has no route now */
	__u32 arrives[BALANCE_MAX_PATHS]; /* the interface by which packets of each path arrive; 0: not known */
};
_Static_assert(sizeof(struct edge_site) == 448, "shared with Rust");

/* Constants of the program. */
struct edge_config {
	__u32 mark_mask; /* the bits of the mark that are ours */
	__u32 mark_shift;
	__u32 dry_run; /* 1: count, and mark nothing */
	__u32 stateful; /* 1: keep TCP flows in the table */
};
_Static_assert(sizeof(struct edge_config) == 16, "shared with Rust");

/* Packets by what became of them. A packet that GRO has merged counts once. */
enum edge_count {
	EDGE_BALANCED, /* got a path */
	EDGE_LEFT_ALONE, /* no site, no IP, or source-routed */
	EDGE_FRAGMENTS, /* of those balanced: by addresses alone */
	EDGE_ERRORS, /* of those balanced: ICMP errors, by the flow that they quote */
	EDGE_UNROUTED, /* the path has no route now: by the router's own */
	EDGE_TABLE_FULL, /* flows that the table had no room for: by their hash */
	EDGE_COUNTS,
};

/* Packets and bytes on a slot. */
struct edge_use {
	__u64 packets;
	__u64 bytes;
};

/* A bit for each flow of a slot, drawn from its hash: how many are set shows about how many flows there were. */
#define EDGE_FLOW_WORDS 4
struct edge_seen {
	__u64 bits[EDGE_FLOW_WORDS];
};
_Static_assert(sizeof(struct edge_seen) == 32, "shared with Rust");

/* A flow in the table: its key with the lower end first, so that both directions find it. */
struct edge_flow {
	__u32 slot;
	__u32 seen; /* seconds of CLOCK_MONOTONIC, of 2^30 ns each */
	__u32 closing; /* 1 after a FIN or RST */
	__u32 follows; /* 1: it began at the other edge, whose path it follows */
};
_Static_assert(sizeof(struct edge_flow) == 16, "shared with Rust");

#endif
