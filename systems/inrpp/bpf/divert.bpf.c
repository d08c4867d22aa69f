/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Diverts what the kernel routes out of a managed interface into the TUN device of the router's process, or passes it: while
 * the process gives no sign of life, what it could not carry, and all while the link is idle.
 *
 * The filters outlive the process. They pass everything once its last beat is 100 ms ago.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define TC_ACT_UNSPEC -1
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_HLEN 14
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define BPF_MAP_TYPE_PERCPU_HASH 5

#define INRPP_PORTS 512	 /* interfaces at most: MAX_PORTS neighbours and as many edges */
#define STALE_NS 100000000ULL
#define IDLE_NS 1000000ULL
#define IDLE_BYTES 3000
/* IPv4 with options and TCP with options; assumed where headers are not understood. */
#define LONGEST_HEADERS 120

/* Bits of port.flags. */
enum { PORT_UP = 1, PORT_TCP_ONLY = 2, PORT_EDGE = 4 };
/* state.mode */
enum { MODE_DIVERT, MODE_PASS_IDLE };
/* Indices of counts.packets. */
enum { DIVERTED, DOWN, STALE, OWN, OTHER, OVERSIZE, NOT_TCP, IDLE, COUNTS };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* What vmlinux.h does not have of it. */
struct __sk_buff___inrpp {
	__u32 wire_len;
	__u32 gso_size;
};
#pragma clang attribute pop

struct port {
	__u32 tun;
	__u32 flags;
	__u32 max_len;	 /* of a packet or a segment, without the frame's header */
	__u32 l2_len;	 /* of the frame's header */
	__u64 rate_kbps; /* 0: the port is never busy by itself */
	__u64 free_at;	 /* when a queue at this rate would be empty, in ns of CLOCK_MONOTONIC */
};
_Static_assert(sizeof(struct port) == 32, "shared with divert.rs");

struct state {
	__u64 beat; /* ns of CLOCK_MONOTONIC */
	__u32 mode;
	__u32 unused;
};
_Static_assert(sizeof(struct state) == 16, "shared with divert.rs");

struct counts {
	__u64 packets[COUNTS];
	__u64 bytes; /* diverted */
};
_Static_assert(sizeof(struct counts) == 72, "shared with divert.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, INRPP_PORTS);
	__type(key, __u32);
	__type(value, struct port);
} sidestep_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, INRPP_PORTS);
	__type(key, __u32);
	__type(value, struct counts);
} sidestep_counts SEC(".maps");

/* The interface of an edge port, by its TUN device. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, INRPP_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} sidestep_edges SEC(".maps");

/* The process writes its beat here without a system call. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} sidestep_state SEC(".maps");

/* What a packet's headers say. */
struct headers {
	__u32 protocol; /* 0: a fragment, or not understood */
	__u32 length;	/* of all headers */
	__u32 flags;	/* TCP's */
};

#define read_at(skb, offset, to) bpf_skb_load_bytes_relative(skb, offset, to, sizeof(*(to)), BPF_HDR_START_NET)

static __always_inline void read_headers(struct __sk_buff *skb, bool v6, struct headers *of)
{
	__u8 ip[10], tcp[2];
	__u32 offset, protocol;

	of->length = LONGEST_HEADERS;
	if (read_at(skb, 0, &ip))
		return;
	if (v6) {
		offset = 40;
		protocol = ip[6];
	} else {
		offset = (ip[0] & 15) * 4;
		protocol = ip[9];
		/* A fragment: more follow, or it is not the first. */
		if (ip[6] & 0x3f || ip[7])
			return;
	}
	if (protocol == PROTOCOL_UDP) {
		of->protocol = protocol;
		of->length = offset + 8;
	} else if (protocol == PROTOCOL_TCP && !read_at(skb, offset + 12, &tcp)) {
		of->protocol = protocol;
		of->length = offset + (tcp[0] >> 4) * 4;
		of->flags = tcp[1];
	}
}

static __always_inline int pass(__u32 interface, __u32 why)
{
	struct counts *counts = bpf_map_lookup_elem(&sidestep_counts, &interface);

	if (counts && why < COUNTS)
		counts->packets[why] += 1;
	return TC_ACT_UNSPEC;
}

/*
 * Whether the link is busy: a queue at its rate would hold more than a millisecond of packets, this one among them. Several
 * processors may each overwrite what another has added, which delays the decision by a packet.
 */
static __always_inline bool is_busy(struct port *port, __u64 now, __u32 length)
{
	__u64 free_at = port->free_at, limit = IDLE_NS, two;

	if (!port->rate_kbps)
		return false;
	if (free_at < now)
		free_at = now;
	free_at += length * 8000000ULL / port->rate_kbps;
	port->free_at = free_at;
	/* A slow link is not busy because of two packets. */
	two = IDLE_BYTES * 8000000ULL / port->rate_kbps;
	if (limit < two)
		limit = two;
	return free_at - now > limit;
}

/* On egress of a managed interface. */
SEC("tc")
int sidestep_divert(struct __sk_buff *skb)
{
	struct __sk_buff___inrpp *more = (void *)skb;
	__u32 zero = 0, interface = skb->ifindex, ethertype, length, size;
	struct headers headers = {};
	struct counts *counts;
	struct state *state;
	struct port *port;
	__u64 now, beat;

	port = bpf_map_lookup_elem(&sidestep_ports, &interface);
	state = bpf_map_lookup_elem(&sidestep_state, &zero);
	if (!port || !state)
		return TC_ACT_UNSPEC;
	if (!(port->flags & PORT_UP))
		return pass(interface, DOWN);
	beat = state->beat;
	now = bpf_ktime_get_ns();
	/* The beat may be newer than what this processor has just read. */
	if (now > beat && now - beat > STALE_NS)
		return pass(interface, STALE);
	/*
	 * The router's own: our datagrams, routing protocols, neighbour discovery. Or it came from the process, to leave by an
	 * edge. What a neighbour has sent and the kernel routes back to it has to wait as all else.
	 */
	if (!skb->ingress_ifindex || ((port->flags & PORT_EDGE) && skb->ingress_ifindex == port->tun))
		return pass(interface, OWN);
	ethertype = bpf_ntohs(skb->protocol);
	if (ethertype != ETH_P_IP && ethertype != ETH_P_IPV6)
		return pass(interface, OTHER);
	read_headers(skb, ethertype == ETH_P_IPV6, &headers);
	length = skb->len - port->l2_len;
	size = more->gso_size ? headers.length + more->gso_size : length;
	if (size > port->max_len && length > port->max_len)
		return pass(interface, OVERSIZE);
	if ((port->flags & PORT_TCP_ONLY) && headers.protocol != PROTOCOL_TCP)
		return pass(interface, NOT_TCP);
	if (state->mode == MODE_PASS_IDLE) {
		if (is_busy(port, now, more->wire_len))
			state->mode = MODE_DIVERT;
		else if (!(headers.flags & (TCP_FIN | TCP_SYN | TCP_RST)))
			return pass(interface, IDLE);
	}
	counts = bpf_map_lookup_elem(&sidestep_counts, &interface);
	if (counts) {
		counts->packets[DIVERTED] += 1;
		counts->bytes += length;
	}
	return bpf_redirect(port->tun, 0);
}

/*
 * On ingress of an edge port's TUN device: what the process has written leaves by the port's interface, without being forwarded
 * once more.
 */
SEC("tc")
int sidestep_emit(struct __sk_buff *skb)
{
	__u32 tun = skb->ifindex;
	__u32 *interface = bpf_map_lookup_elem(&sidestep_edges, &tun);

	/* The device has no frames, and the neighbour is looked up for a frame. Without it, the kernel forwards. */
	if (!interface || bpf_skb_change_head(skb, ETH_HLEN, 0))
		return TC_ACT_UNSPEC;
	return bpf_redirect_neigh(*interface, 0, 0, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
