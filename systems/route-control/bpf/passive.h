/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the measurement of passing traffic (passive.bpf.c) and its reader exchange. */
#ifndef SIDESTEP_PASSIVE_H
#define SIDESTEP_PASSIVE_H

#include "policy/ints.h"

/* Most egresses; a power of two. */
#define PASSIVE_EGRESSES 16
/* Each egress has a place for IPv4, its number, and one for IPv6, this number of places later. */
#define PASSIVE_PLACES (2 * PASSIVE_EGRESSES)

/* An interface that is measured. */
struct passive_interface {
	__u32 egress; /* its number */
	__u32 l2; /* bytes of a frame before the IP header */
};
_Static_assert(sizeof(struct passive_interface) == 8, "shared with Rust");

/* What of one family has passed an egress, on one processor. All but the shortest round trip only grow. */
struct passive_use {
	__u64 segments; /* IP packets out, as they are on the wire: a packet that is still to be cut counts as its parts */
	__u64 bytes; /* their bytes, IP headers included */
	__u64 data; /* TCP segments with data among them */
	__u64 retransmitted; /* of these, those of which the sequence number went back */
	__u64 acked; /* bytes that left by this egress, and that the far ends have acknowledged */
	__u64 received; /* bytes that came in by it, and that the site's hosts have acknowledged */
	__u64 advanced; /* ns of CLOCK_MONOTONIC: when an acknowledgement of `acked` bytes last came; 0: never */
	__u64 connections; /* each counts once in an epoch if it sends data, or if data of it is acknowledged */
	__u64 rtts; /* round trips measured */
	__u64 rtt_sum; /* ns */
	__u64 rtt_least; /* ns: the shortest one in the epoch of which rtt_epoch has the number */
	__u64 rtt_epoch;
	__u64 repeated; /* SYNs and segments with data that were sent again, as nothing had answered them */
	__u64 heard; /* ns of CLOCK_MONOTONIC: when a SYN or data that left by this egress was last answered; 0: never */
};
_Static_assert(sizeof(struct passive_use) == 112, "shared with Rust");

/* Most far ends that are remembered because nothing came from there. */
#define PASSIVE_SILENT 256

/* A far end towards which something was sent again. */
struct passive_silent {
	__u32 address[4]; /* as in flow_hash_key */
	__u32 port;
	__u32 place; /* of the egress by which it left */
};
_Static_assert(sizeof(struct passive_silent) == 24, "shared with Rust");

/* A TCP connection, known by its site's end first. Sequence numbers are of RFC 9293. */
struct passive_flow {
	__u64 timed_at; /* ns: when a segment with the timestamp `timed` first left */
	__u32 timed; /* its TSval */
	__u32 timing; /* 1: no answer to it has come */
	__u32 sent; /* the next number after all that has left */
	__u32 acked; /* up to here the far end has acknowledged */
	__u32 received; /* up to here the site's end has acknowledged */
	__u32 reads; /* 1: `received` is known */
	__u32 egress; /* the place of the egress by which it leaves */
	__u32 before; /* the egress by which it left before */
	__u32 boundary; /* what was sent before this number left by that one */
	__u32 arrives; /* the egress by which data last came in */
	__u32 epoch; /* in which it was counted last */
	__u32 value; /* the newest TSval that has left */
};
_Static_assert(sizeof(struct passive_flow) == 56, "a field for each");

#endif
