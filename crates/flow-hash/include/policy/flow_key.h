/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The key of the flow that a packet belongs to, read from its headers.
 *
 * - TCP, UDP (QUIC), UDP-Lite, SCTP and DCCP: addresses, ports and protocol.
 * - Other protocols: addresses and protocol.
 * - All fragments of a packet, the first included: addresses alone. Later fragments have no ports, and of
 *   IPv6 not even a protocol that can be relied on (RFC 8200, section 4.5).
 * - An ICMP error: the key of the packet that it quotes. That packet went the other way; a symmetric hash
 *   does not mind.
 *
 * The includer defines what a packet is and how its bytes are read:
 *
 *     FLOW_PACKET is the type of a pointer to it.
 *     FLOW_READ(packet, offset, to, length) copies `length` bytes that begin `offset` bytes into the packet,
 *     counted from its network header, and is 0. If the packet has fewer, it is something else.
 *
 * Nothing here reads a packet otherwise, so that no packet can lead beyond its end. Functions that look at
 * one header are large ones, so that the verifier walks each once and not in each state of the others.
 */
#ifndef SIDESTEP_POLICY_FLOW_KEY_H
#define SIDESTEP_POLICY_FLOW_KEY_H

#include "flow_hash.h"

/* Most extension headers of IPv6 that are looked through; behind more, addresses alone count. */
#define FLOW_EXTENSIONS 6

enum flow_kind {
	FLOW_NONE, /* no IP packet, or cut off in its header */
	FLOW_PORTS, /* addresses, ports, protocol */
	FLOW_PROTOCOL, /* addresses and protocol: it has no ports, or they are cut off */
	FLOW_ADDRESSES, /* a fragment, or too many extension headers */
};

enum {
	FLOW_HOP_BY_HOP = 0,
	FLOW_ICMP = 1,
	FLOW_TCP = 6,
	FLOW_UDP = 17,
	FLOW_DCCP = 33,
	FLOW_ROUTING = 43,
	FLOW_FRAGMENT = 44,
	FLOW_AH = 51,
	FLOW_ICMPV6 = 58,
	FLOW_DESTINATION = 60,
	FLOW_SCTP = 132,
	FLOW_MOBILITY = 135,
	FLOW_UDP_LITE = 136,
	FLOW_HIP = 139,
	FLOW_SHIM6 = 140,
};

struct flow_view {
	struct flow_hash_key key;
	__u32 kind; /* enum flow_kind */
	__u32 error; /* 1: an ICMP error, and the key is that of the packet that it quotes */
	__u32 routed; /* 1: the packet has segments left, and the key's destination is its last one */
	__u32 offset; /* of what follows the headers that were read: ports, if there are any */
	__u32 towards[4]; /* where the packet itself goes: for an ICMP error, not the key's destination */
};
_Static_assert(sizeof(struct flow_view) == 80, "shared with Rust");

POLICY_FN __u32 flow_u16(const __u8 *bytes)
{
	return (__u32)bytes[0] << 8 | bytes[1];
}

POLICY_FN __u32 flow_u32(const __u8 *bytes)
{
	return flow_u16(bytes) << 16 | flow_u16(bytes + 2);
}

POLICY_FN void flow_address(__u32 *to, const __u8 *bytes)
{
	to[0] = flow_u32(bytes);
	to[1] = flow_u32(bytes + 4);
	to[2] = flow_u32(bytes + 8);
	to[3] = flow_u32(bytes + 12);
}

POLICY_FN void flow_mapped(__u32 *to, const __u8 *bytes)
{
	to[0] = 0;
	to[1] = 0;
	to[2] = 0xffff;
	to[3] = flow_u32(bytes);
}

/*
 * Reads the IPv4 header at `at`. Returns the offset of what follows it, or 0 if it is none. The kind becomes
 * FLOW_PROTOCOL, or FLOW_ADDRESSES for a fragment.
 */
POLICY_LARGE_FN __u32 flow_ipv4(FLOW_PACKET packet, __u32 at, struct flow_view *view)
{
	__u8 header[20];

	if (!view || FLOW_READ(packet, at, header, sizeof(header)) || header[0] >> 4 != 4 || (header[0] & 15) < 5)
		return 0;
	flow_mapped(view->key.source, header + 12);
	flow_mapped(view->key.destination, header + 16);
	view->key.protocol = header[9];
	/* More fragments, or not the first. */
	view->kind = flow_u16(header + 6) & 0x3fff ? FLOW_ADDRESSES : FLOW_PROTOCOL;
	return at + ((__u32)(header[0] & 15) << 2);
}

#define FLOW_BIT(next) (1ULL << ((next) & 63))

/* Whether this number in a next-header field is that of an extension header that has a length; without a branch. */
POLICY_FN __u32 flow_is_extension(__u32 next)
{
	const __u64 low = FLOW_BIT(FLOW_HOP_BY_HOP) | FLOW_BIT(FLOW_ROUTING) | FLOW_BIT(FLOW_FRAGMENT) |
			  FLOW_BIT(FLOW_AH) | FLOW_BIT(FLOW_DESTINATION);
	const __u64 high = FLOW_BIT(FLOW_MOBILITY) | FLOW_BIT(FLOW_HIP) | FLOW_BIT(FLOW_SHIM6);
	__u64 set = pc_choose(0, low, pc_zero(next >> 6)) | pc_choose(0, high, pc_zero(next >> 6 ^ 2));

	return set >> (next & 63) & 1;
}

/* What flow_extension returns of a header behind which nothing must be read. */
#define FLOW_STOP 0xffffffffu

/*
 * Reads the extension header of kind `next` at `at`. Returns its length in bytes, times 256, and the kind of
 * what follows it.
 */
POLICY_LARGE_FN __u32 flow_extension(FLOW_PACKET packet, __u32 at, __u32 next, struct flow_view *view)
{
	__u8 header[8], last[16];

	if (!view || FLOW_READ(packet, at, header, sizeof(header)))
		return FLOW_STOP;
	if (next == FLOW_FRAGMENT) {
		/* An atomic fragment is a whole packet (RFC 6946). */
		if (!(flow_u16(header + 2) & 0xfff9))
			return 8 << 8 | header[0];
		view->kind = FLOW_ADDRESSES;
		return FLOW_STOP;
	}
	if (next == FLOW_AH)
		return ((__u32)header[1] + 2) << 10 | header[0];
	/* Segment routing and mobility: the last destination is the first address in the header. */
	if (next == FLOW_ROUTING && header[3] && (header[2] == 4 || header[2] == 2)) {
		if (FLOW_READ(packet, at + 8, last, sizeof(last)))
			return FLOW_STOP;
		flow_address(view->key.destination, last);
		view->routed = 1;
	}
	return ((__u32)header[1] + 1) << 11 | header[0];
}

/* The same of an IPv6 header and its extensions. */
POLICY_LARGE_FN __u32 flow_ipv6(FLOW_PACKET packet, __u32 at, struct flow_view *view)
{
	__u8 header[40];
	__u32 i, next, step;

	if (!view || FLOW_READ(packet, at, header, sizeof(header)) || header[0] >> 4 != 6)
		return 0;
	flow_address(view->key.source, header + 8);
	flow_address(view->key.destination, header + 24);
	view->kind = FLOW_PROTOCOL;
	next = header[6];
	at += sizeof(header);
	for (i = 0; i < FLOW_EXTENSIONS && flow_is_extension(next); i++) {
		step = flow_extension(packet, at, next, view);
		if (step == FLOW_STOP)
			break;
		at += step >> 8;
		next = step & 255;
	}
	if (flow_is_extension(next))
		view->kind = FLOW_ADDRESSES;
	view->key.protocol = next;
	return at;
}

/* Whether packets of this protocol begin with the ports of source and destination. */
POLICY_FN __u32 flow_has_ports(__u32 protocol)
{
	return protocol == FLOW_TCP || protocol == FLOW_UDP || protocol == FLOW_SCTP || protocol == FLOW_DCCP ||
	       protocol == FLOW_UDP_LITE;
}

/* Whether an ICMP message of this type is an error, which quotes a packet. */
POLICY_FN __u32 flow_is_error(__u32 v6, __u32 type)
{
	return v6 ? type >= 1 && type < 128 : type == 3 || type == 4 || type == 11 || type == 12;
}

/* If the packet is an ICMP error, reads the packet that it quotes. Returns the offset as flow_ipv4 does. */
POLICY_LARGE_FN __u32 flow_quoted(FLOW_PACKET packet, __u32 at, __u32 v6, struct flow_view *view)
{
	struct flow_view quoted = {};
	__u8 bytes[4];

	if (!view || view->kind != FLOW_PROTOCOL || view->key.protocol != (v6 ? FLOW_ICMPV6 : FLOW_ICMP) ||
	    FLOW_READ(packet, at, bytes, sizeof(bytes)) || !flow_is_error(v6, bytes[0]))
		return at;
	at = v6 ? flow_ipv6(packet, at + 8, &quoted) : flow_ipv4(packet, at + 8, &quoted);
	if (at) {
		view->key = quoted.key;
		view->kind = quoted.kind;
		view->error = 1;
	}
	return at;
}

/*
 * Reads the packet that begins at its network header, of IPv6 if `v6` is 1 and of IPv4 if it is 0. Returns its
 * kind; if that is FLOW_NONE, nothing else of `view` means anything.
 */
POLICY_LARGE_FN __u32 flow_view(FLOW_PACKET packet, __u32 v6, struct flow_view *view)
{
	__u8 bytes[4];
	__u32 at;

	if (!view)
		return FLOW_NONE;
	__builtin_memset(view, 0, sizeof(*view));
	at = v6 ? flow_ipv6(packet, 0, view) : flow_ipv4(packet, 0, view);
	if (!at) {
		view->kind = FLOW_NONE;
		return FLOW_NONE;
	}
	__builtin_memcpy(view->towards, view->key.destination, sizeof(view->towards));
	at = flow_quoted(packet, at, v6, view);
	view->offset = at;
	if (view->kind == FLOW_ADDRESSES) {
		view->key.protocol = 0;
	} else if (at && flow_has_ports(view->key.protocol) && !FLOW_READ(packet, at, bytes, sizeof(bytes))) {
		view->key.source_port = flow_u16(bytes);
		view->key.destination_port = flow_u16(bytes + 2);
		view->kind = FLOW_PORTS;
	}
	return view->kind;
}

#endif
