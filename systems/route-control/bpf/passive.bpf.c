/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures what passes the egresses of a site, on their egress and on their ingress, with maps that all share: a connection may
 * leave by one egress while its acknowledgements come in by another. It looks at TCP headers and changes nothing. Of other
 * protocols, QUIC among them, only packets and bytes are seen.
 *
 * - Retransmissions: the sequence number goes back.
 * - Far ends from which nothing comes: a SYN or a segment with data is sent again. Whether the egress or the far end is to blame,
 *   the reader has to find out.
 * - Round trips: the timestamp (TSval) of a segment with data, until it comes back (TSecr), as pping does; one at a time for a
 *   connection. Segments without data are not timed: the far end may have nothing to answer them with.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define FLOW_PACKET struct __sk_buff *
#define FLOW_READ(packet, offset, to, length) \
	bpf_skb_load_bytes_relative(packet, offset, to, length, BPF_HDR_START_NET)

#include "policy/flow_key.h"
#include "passive.h"

#define TC_ACT_UNSPEC -1
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16
#define TCP_HEADER 20
#define OPTION_NOP 1
#define OPTION_TIMESTAMP 8
/* Most options that are looked through for a timestamp. */
#define MAX_OPTIONS 10
/* A timestamp that has not come back after this number of ns is given up: its segment or the answer was lost. */
#define GIVE_UP 10000000000ULL
/* What a window can span at most (RFC 7323, section 2.3). */
#define MAX_WINDOW (1U << 30)

/* By the index of the interface. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PASSIVE_EGRESSES);
	__type(key, __u32);
	__type(value, struct passive_interface);
} sidestep_egress SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PASSIVE_PLACES);
	__type(key, __u32);
	__type(value, struct passive_use);
} sidestep_use SEC(".maps");

/* Connections; the least recently used go first. The reader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_hash_key);
	__type(value, struct passive_flow);
} sidestep_seen SEC(".maps");

/* Far ends towards which something was sent again, and when in ns of CLOCK_MONOTONIC. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PASSIVE_SILENT);
	__type(key, struct passive_silent);
	__type(value, __u64);
} sidestep_silent SEC(".maps");

/* By family, IPv4 first: the number of the epoch, which the reader counts up with each sample. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} sidestep_epoch SEC(".maps");

/* A segment as its headers describe it. */
struct segment {
	__u32 seq;
	__u32 ack;
	__u32 flags;
	__u32 payload; /* bytes */
	__u32 stamped; /* 1: it has a timestamp */
	__u32 value; /* TSval */
	__u32 echo; /* TSecr */
};

static __always_inline int after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

static __always_inline struct passive_use *use_of(__u32 egress)
{
	egress &= PASSIVE_PLACES - 1;
	return bpf_map_lookup_elem(&sidestep_use, &egress);
}

/* The epoch of the family of a place. */
static __always_inline __u32 epoch(__u32 place)
{
	__u32 family = !!(place & PASSIVE_EGRESSES), *now = bpf_map_lookup_elem(&sidestep_epoch, &family);

	return now ? *now : 0;
}

/* The bytes of the IP packet. Ethernet pads short frames; a packet of more than 65,535 bytes does not give its length. */
static __always_inline __u32 length_of(struct __sk_buff *skb, __u32 v6, __u32 l2)
{
	__u8 bytes[2];
	__u32 length;

	if (FLOW_READ(skb, v6 ? 4 : 2, bytes, sizeof(bytes)))
		return 0;
	length = flow_u16(bytes);
	if (length)
		return v6 ? length + 40 : length;
	return skb->len > l2 ? skb->len - l2 : 0;
}

/* Looks for the timestamp among options that lie otherwise than usual. */
static __always_inline __u32 find_timestamp(struct __sk_buff *skb, __u32 at, __u32 end)
{
	__u8 option[2];
	int i;

	for (i = 0; i < MAX_OPTIONS && at + 10 <= end; i++) {
		if (FLOW_READ(skb, at, option, sizeof(option)) || !option[0])
			return 0;
		if (option[0] == OPTION_TIMESTAMP)
			return at;
		at += option[0] == OPTION_NOP ? 1 : option[1];
		if (option[0] != OPTION_NOP && option[1] < 2)
			return 0;
	}
	return 0;
}

/* Reads the TCP header at `at` of a packet of `length` bytes. Returns its length, or 0 if it is none. */
static __always_inline __u32 read_segment(struct __sk_buff *skb, __u32 at, __u32 length, struct segment *segment)
{
	__u8 header[TCP_HEADER], options[12];
	__u32 size, stamp = 0;

	if (FLOW_READ(skb, at, header, sizeof(header)))
		return 0;
	size = (header[12] >> 4) << 2;
	if (size < TCP_HEADER || at + size > length)
		return 0;
	segment->seq = flow_u32(header + 4);
	segment->ack = flow_u32(header + 8);
	segment->flags = header[13];
	segment->payload = length - at - size;
	segment->stamped = 0;
	if (size < TCP_HEADER + sizeof(options))
		return size;
	if (FLOW_READ(skb, at + TCP_HEADER, options, sizeof(options)))
		return size;
	/* NOP, NOP, timestamp: as nearly everybody sends it. */
	if (options[0] != OPTION_NOP || options[1] != OPTION_NOP || options[2] != OPTION_TIMESTAMP) {
		stamp = find_timestamp(skb, at + TCP_HEADER, at + size);
		if (!stamp || FLOW_READ(skb, stamp, options + 2, 10))
			return size;
	}
	segment->stamped = 1;
	segment->value = flow_u32(options + 4);
	segment->echo = flow_u32(options + 8);
	return size;
}

/* Which egress a byte of a connection left by. */
static __always_inline __u32 left_by(const struct passive_flow *flow, __u32 seq)
{
	return after(flow->boundary, seq) ? flow->before : flow->egress;
}

/* Counts a connection once in an epoch. */
static __always_inline void count_connection(struct passive_flow *flow, struct passive_use *use)
{
	__u32 now = epoch(flow->egress);

	if (flow->epoch == now)
		return;
	flow->epoch = now;
	use->connections += 1;
}

/* A connection that is new, or begins again, or of which nothing was seen until now. */
static __always_inline void open(struct passive_flow *flow, const struct segment *segment, __u32 egress)
{
	__u32 begin = segment->seq + !!(segment->flags & TCP_SYN);

	flow->timing = 0;
	flow->sent = begin;
	flow->acked = begin;
	/* What came in before is not known, and does not count. */
	flow->received = segment->ack;
	flow->reads = !!(segment->flags & TCP_ACK);
	flow->egress = egress;
	flow->before = egress;
	flow->boundary = begin;
	flow->arrives = egress;
	flow->value = segment->value - 1;
}

/* Something that left by `egress` is sent again: nothing has answered it. */
static __always_inline void repeats(const struct flow_hash_key *key, __u32 egress)
{
	struct passive_use *use = use_of(egress);
	struct passive_silent silent = {};
	__u64 now = bpf_ktime_get_ns();
	__u32 i;

	if (!use)
		return;
	use->repeated += 1;
	for (i = 0; i < 4; i++)
		silent.address[i] = key->destination[i];
	silent.port = key->destination_port;
	silent.place = egress;
	bpf_map_update_elem(&sidestep_silent, &silent, &now, BPF_ANY);
}

/* Takes a segment that leaves, of which the wire carries `parts` parts. */
static __always_inline void leaves(struct passive_flow *flow, const struct flow_hash_key *key,
				   const struct segment *segment, __u32 egress, __u32 parts)
{
	/* Only the first of several segments with a timestamp can be timed: it is the one that is answered. */
	__u32 fresh = segment->stamped && after(segment->value, flow->value);
	__u32 end = segment->seq + segment->payload, retransmitted;
	struct passive_use *use = use_of(egress);

	if (fresh)
		flow->value = segment->value;

	if (flow->egress != egress) {
		flow->before = flow->egress;
		flow->boundary = flow->sent;
		flow->egress = egress;
	}
	/* What the site's end acknowledges has come in for good. */
	if ((segment->flags & TCP_ACK) && (!flow->reads || after(segment->ack, flow->received))) {
		struct passive_use *in = use_of(flow->arrives);

		if (in && flow->reads && segment->ack - flow->received < MAX_WINDOW)
			in->received += segment->ack - flow->received;
		flow->received = segment->ack;
		flow->reads = 1;
	}
	if (!segment->payload || !use)
		return;
	retransmitted = after(flow->sent, segment->seq);
	/* A byte that was acknowledged before asks whether the far end is there (keep-alive). */
	if (retransmitted && segment->payload == 1 && segment->seq + 1 == flow->acked)
		return;
	use->data += parts;
	count_connection(flow, use);
	if (retransmitted) {
		struct passive_use *lost = use_of(left_by(flow, segment->seq));

		if (lost)
			lost->retransmitted += parts;
		repeats(key, left_by(flow, segment->seq));
	}
	if (after(end, flow->sent))
		flow->sent = end;
	/* An answer to a segment that was sent twice would show nothing. */
	if (retransmitted) {
		flow->timing = 0;
	} else if (fresh) {
		__u64 now = bpf_ktime_get_ns();

		if (!flow->timing || now - flow->timed_at > GIVE_UP) {
			flow->timed = segment->value;
			flow->timed_at = now;
			flow->timing = 1;
		}
	}
}

/* Takes a segment that comes in by an egress. */
static __always_inline void arrives(struct passive_flow *flow, const struct segment *segment, __u32 egress)
{
	__u32 ack = segment->ack;
	struct passive_use *use;
	__u64 now;

	/* What it carries counts when the site's end acknowledges it. */
	if (segment->payload)
		flow->arrives = egress;
	if (!(segment->flags & TCP_ACK))
		return;
	/* A FIN has a number of its own, and is no byte. */
	if (ack == flow->sent + 1)
		ack = flow->sent;
	if (after(ack, flow->acked) && !after(ack, flow->sent)) {
		use = use_of(left_by(flow, ack - 1));
		if (use) {
			use->acked += ack - flow->acked;
			use->advanced = bpf_ktime_get_ns();
			use->heard = use->advanced;
			count_connection(flow, use);
		}
		flow->acked = ack;
	}
	if (!flow->timing || !segment->stamped || after(flow->timed, segment->echo))
		return;
	flow->timing = 0;
	use = use_of(flow->egress);
	if (!use || segment->echo != flow->timed)
		return;
	now = bpf_ktime_get_ns() - flow->timed_at;
	use->rtts += 1;
	use->rtt_sum += now;
	if (use->rtt_epoch != epoch(flow->egress)) {
		use->rtt_epoch = epoch(flow->egress);
		use->rtt_least = now;
	} else if (now < use->rtt_least) {
		use->rtt_least = now;
	}
}

static __always_inline void swap(struct flow_hash_key *key)
{
	__u32 word, i;

	for (i = 0; i < 4; i++) {
		word = key->source[i];
		key->source[i] = key->destination[i];
		key->destination[i] = word;
	}
	word = key->source_port;
	key->source_port = key->destination_port;
	key->destination_port = word;
}

static __always_inline void measure(struct __sk_buff *skb, __u32 out)
{
	__u32 index = skb->ifindex, protocol = bpf_ntohs(skb->protocol), parts = skb->gso_segs, v6, length, header;
	struct passive_interface *interface;
	struct flow_view view = {};
	struct segment segment = {};
	struct passive_flow *flow;
	struct passive_use *use;
	__u32 egress, fresh = 0;

	if ((protocol != ETH_P_IP && protocol != ETH_P_IPV6) || skb->vlan_present)
		return;
	interface = bpf_map_lookup_elem(&sidestep_egress, &index);
	if (!interface)
		return;
	v6 = protocol == ETH_P_IPV6;
	egress = interface->egress + (v6 ? PASSIVE_EGRESSES : 0);
	length = length_of(skb, v6, interface->l2);
	if (!parts)
		parts = 1;
	flow_view(skb, v6, &view);
	header = 0;
	if (view.kind == FLOW_PORTS && view.key.protocol == FLOW_TCP && !view.error)
		header = read_segment(skb, view.offset, length, &segment);
	if (out) {
		use = use_of(egress);
		if (!use)
			return;
		use->segments += parts;
		/* Each part has headers of its own. */
		use->bytes += length + (parts - 1) * (view.offset + header);
	}
	if (!header)
		return;
	if (!out)
		swap(&view.key);
	view.key.flow_label = 0;
	flow = bpf_map_lookup_elem(&sidestep_seen, &view.key);
	if (!flow) {
		struct passive_flow new = {};

		if (!out || (segment.flags & TCP_RST))
			return;
		open(&new, &segment, egress);
		fresh = 1;
		bpf_map_update_elem(&sidestep_seen, &view.key, &new, BPF_ANY);
		flow = bpf_map_lookup_elem(&sidestep_seen, &view.key);
		if (!flow)
			return;
	}
	if (segment.flags & TCP_SYN) {
		if (!out && (segment.flags & TCP_ACK) && segment.ack == flow->sent) {
			use = use_of(flow->egress);
			if (use)
				use->heard = bpf_ktime_get_ns();
		}
		if (!out)
			return;
		if (flow->sent != segment.seq + 1)
			open(flow, &segment, egress);
		else if (!fresh && !(segment.flags & TCP_ACK))
			repeats(&view.key, flow->egress);
		/* It may leave by another egress than the one before. */
		flow->egress = egress;
		return;
	}
	if (segment.flags & TCP_RST)
		return;
	if (out)
		leaves(flow, &view.key, &segment, egress, parts);
	else
		arrives(flow, &segment, egress);
}

SEC("tc")
int sidestep_out(struct __sk_buff *skb)
{
	measure(skb, 1);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int sidestep_in(struct __sk_buff *skb)
{
	measure(skb, 0);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
