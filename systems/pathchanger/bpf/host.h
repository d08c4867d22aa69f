/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What host.bpf.c and the agent exchange through maps; mirrored in src/daemon/program.rs. */
#ifndef SIDESTEP_HOST_H
#define SIDESTEP_HOST_H

#include "policy/pathchanger.h"

/* The most slots that a host uses, whatever room the mark has: this number of tables is its own. */
#define HOST_SLOTS 63

/* Map `sidestep_config`, one entry. */
struct host_config {
	struct pc_config policy;
	__u32 mark_mask;	/* contiguous bits of SO_MARK that are ours */
	__u32 mark_shift;	/* position of the mask's lowest bit */
	__u32 table_base;	/* not for the program: where the agent's routes are, for readers of the map */
	__u32 priority;		/* not for the program: priority of the agent's rules */
	__u32 dry_run;		/* decide, count and report, but leave marks alone */
	__u32 events;		/* 1: write events, as a process records them */
	__u32 netns_inode;	/* not for the program: of the agent's network namespace, by which its processes are found */
	__u32 controller;	/* not for the program: enum host_controller */
	__u64 paths_ns;		/* not for the program: when the paths came, CLOCK_MONOTONIC */
	__u64 netns_cookie;	/* of the agent's network namespace, the only one in which the marks mean anything */
	__u32 mended;		/* not for the program: how many rules and routes of the agent were put back */
	__u32 resets;		/* not for the program: how many connections stuck on a dead path the agent has ended */
};

/*
 * Map `sidestep_layout`, one entry. Not for the program: agents of other versions read it, older and newer ones, so its
 * shape never changes. It shows whether the other maps are what the reader expects, and what to clear away if they are not.
 */
struct host_layout {
	__u32 number;		/* of the layout of all maps; 0: not known */
	__u32 mark_mask;	/* these are as in struct host_config */
	__u32 mark_shift;
	__u32 table_base;
	__u32 priority;
	__u32 dry_run;
	__u32 netns_inode;
	__u32 pad;
	__u64 netns_cookie;
	__u64 unused[3];
};

enum host_controller {
	HOST_NO_CONTROLLER,	/* the agent works without one */
	HOST_CONNECTED,
	HOST_AWAY,
};

/*
 * Key of map `sidestep_dests`: longest prefix match on the family and the remote address. The family comes first: no
 * prefix of one family covers an address of the other.
 */
struct host_prefix {
	__u32 len;		/* the family's 32 bits included */
	__u32 family;		/* 4 or 6 */
	__u8 addr[16];		/* network byte order; of IPv4 the first 4 bytes */
};

/*
 * Value of map `sidestep_dests`. A mark with the slot of a path leads along it; slot 0 is the default route. A path keeps
 * its slot as long as it is here, whatever comes and goes beside it.
 */
struct host_paths {
	__u32 n;
	__u32 generation;	/* changes when ids, their order or slots change, not when weights do */
	struct host_prefix key;	/* under which these are here, and in `sidestep_learnt` */
	__u8 slot[PC_MAX_PATHS];	/* of each path, in 1..=HOST_SLOTS, and 0 where there is none */
	__u64 changed_ns;	/* since when they have this generation, CLOCK_MONOTONIC */
	__u64 restricted;	/* the bits of all `sources` together; 0: no path restricts its sources */
	__u64 sources[PC_MAX_PATHS];	/* prefixes whose addresses a path takes, as bits of `sidestep_addrs`; 0: all */
	__u32 address[PC_MAX_PATHS][4];	/* that sockets are bound to before they connect; IPv4 as ::ffff:a.b.c.d; 0: none */
	struct pc_path path[PC_MAX_PATHS];
};

/*
 * Value of map `sidestep_addrs`, whose keys are the prefixes that any path names: a bit for this prefix and for each
 * that contains it.
 */
typedef __u64 host_source_bits;
#define HOST_SOURCES 63
/* The bit of addresses that are in none of these prefixes. */
#define HOST_UNNAMED (1ULL << HOST_SOURCES)

/*
 * Value of map `sidestep_learnt`, which has the keys of `sidestep_dests`. It is valid as long as its generation is that
 * of the paths. A change of the paths replaces it whole; a step that is in progress then is lost, or ends up in the table
 * that the kernel makes of the same memory next. The map is no trie: values of a trie need not be aligned as atomics
 * demand.
 */
struct host_weights {
	struct pc_shared shared;
	__u32 generation;
	__u32 pad;
	__u32 path_id[PC_MAX_PATHS];
};

/* Key of map `sidestep_names`, which is not for the program: what the agent calls a path. */
struct host_name_key {
	struct host_prefix destination;
	__u32 path_id;		/* 0: a note on the destination */
};

/* Value of map `sidestep_names`. */
struct host_name {
	char text[64];		/* UTF-8, ends with zero */
};

enum host_event_kind {
	HOST_OPENED,	/* a connection got its first path */
	HOST_DECIDED,	/* a draw, to another path or to the same; or a failure without a draw, as there is no other path */
};

/* A connection. */
struct host_ends {
	__u32 local_addr[4];	/* network byte order; IPv4 as ::ffff:a.b.c.d */
	__u32 remote_addr[4];
	__u16 local_port;	/* host byte order */
	__u16 remote_port;
};

/* Record of ring buffer `sidestep_events`. */
struct host_event {
	__u64 time_ns;		/* CLOCK_MONOTONIC */
	struct host_ends ends;
	__u8 kind;		/* enum host_event_kind */
	__u8 reason;		/* enum pc_reason */
	__u8 passive;		/* the other side opened the connection */
	__u8 stay;		/* enum pc_stay: why it is not on another path */
	__u32 from_id;		/* path ids; equal when it stayed; from 0 when opened */
	__u32 to_id;
};

/* What sidestep_list writes for each connection. */
struct host_status {
	__u64 opened_ns;	/* CLOCK_MONOTONIC */
	__u64 decided_ns;	/* of the last draw; 0: none but the first */
	__u64 signal_ns;	/* of the last signal; 0: none */
	struct host_ends ends;
	__u8 reason;		/* enum pc_reason of the last draw */
	__u8 passive;
	__u8 signal;		/* enum pc_reason of the last signal */
	__u8 stay;		/* enum pc_stay: what came of it */
	__u32 path_id;
	__u32 decisions;	/* draws after the first */
	__u32 moves;		/* draws that changed the path, and moves as paths changed */
	__u32 suppressed;	/* signals that led to no draw */
};

/* What sidestep_marks writes for each socket with a slot in its mark. */
struct host_marked {
	__u32 remote_addr[4];	/* network byte order; IPv4 as ::ffff:a.b.c.d */
	__u32 slot;
};

/* Indices of per-CPU array `sidestep_counts`. */
enum host_counter {
	HOST_ACTIVE,		/* connections opened from here that got a path */
	HOST_PASSIVE,		/* connections accepted here that got a path */
	HOST_UNTOUCHED,		/* connections to destinations without paths */
	HOST_NO_STORAGE,	/* connections left alone for want of memory */
	HOST_EVENTS_LOST,	/* events for which the ring had no room */
	HOST_MARK_REFUSED,	/* moves that the kernel refused */
	HOST_STAYED,		/* + enum pc_stay: signals that did not move a connection, by what kept it */
	HOST_MOVED = HOST_STAYED + PC_STAYS, /* + enum pc_reason: moves by reason; PC_NONE: as paths changed */
	HOST_RECORDS_LOST = HOST_MOVED + PC_REASONS, /* not for the program: events that the agent could not write */
	HOST_OTHER_NETNS,	/* sockets of other network namespaces, left alone */
	HOST_TO_DEVICE,		/* connections bound to a device or in a VRF, left alone */
	HOST_OWN_MARK,		/* connections left alone because another program set their mark */
	HOST_NO_SOURCE,		/* connections left alone because no path takes their source address */
	HOST_COUNTERS,
};

_Static_assert(sizeof(struct host_prefix) == 24, "mirrored in Rust");
_Static_assert(sizeof(struct host_name_key) == 28, "mirrored in Rust");
_Static_assert(sizeof(struct host_layout) == 64, "for good");
_Static_assert(sizeof(struct host_weights) == 2008, "mirrored in Rust");
_Static_assert(sizeof(struct host_event) == 56, "mirrored in Rust");
_Static_assert(sizeof(struct host_status) == 80, "mirrored in Rust");
_Static_assert(sizeof(struct host_marked) == 20, "mirrored in Rust");

#endif
