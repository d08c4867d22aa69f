/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * An edge router's balancer. On ingress from the site it chooses a path for each packet, by its flow's hash,
 * and writes the path's slot into the packet's mark. The router's rules and tables do the rest. A packet that
 * has no path keeps its mark and takes the router's own route.
 *
 * With a table, a host's TCP connections are assigned to paths in turn. The edge at the other end takes the
 * path by which a connection's packets arrive (sidestep_learn).
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define FLOW_PACKET struct __sk_buff *
#define FLOW_READ(packet, offset, to, length) \
	bpf_skb_load_bytes_relative(packet, offset, to, length, BPF_HDR_START_NET)

#include "policy/flow_key.h"
#include "edge.h"

#define TC_ACT_UNSPEC -1
/* Any number: it sets the bit of a flow apart from its path. */
#define EDGE_FLOW_SALT 0x9e3779b9u
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16

const volatile struct edge_config config = { .mark_mask = 0x3f000000, .mark_shift = 24 };

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, EDGE_MAX_SITES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct edge_prefix);
	__type(value, struct edge_site);
} sidestep_sites SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EDGE_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} sidestep_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EDGE_SLOTS);
	__type(key, __u32);
	__type(value, struct edge_use);
} sidestep_use SEC(".maps");

/* The daemon clears it now and then. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EDGE_SLOTS);
	__type(key, __u32);
	__type(value, struct edge_seen);
} sidestep_seen SEC(".maps");

/* TCP flows by their keys; the daemon sets the size, and removes those that have ended. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_hash_key);
	__type(value, struct edge_flow);
} sidestep_flows SEC(".maps");

/* The position of the last path that a host of the site was assigned. The least recently used go first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u32[4]);
	__type(value, __u32);
} sidestep_turns SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *counter = bpf_map_lookup_elem(&sidestep_counts, &what);

	if (counter)
		*counter += 1;
}

static __always_inline struct edge_site *site_of(const __u32 *address)
{
	struct edge_prefix key = { .length = 128 };
	__u32 words[4] = { bpf_htonl(address[0]), bpf_htonl(address[1]), bpf_htonl(address[2]), bpf_htonl(address[3]) };

	__builtin_memcpy(key.address, words, sizeof(words));
	return bpf_map_lookup_elem(&sidestep_sites, &key);
}

/* The packet's flow. Its kind is FLOW_NONE for what is left alone: no IP, a VLAN's frame, a source route. */
static __always_inline void view_of(struct __sk_buff *skb, struct flow_view *view)
{
	__u32 protocol = bpf_ntohs(skb->protocol);

	view->kind = FLOW_NONE;
	if ((protocol != ETH_P_IP && protocol != ETH_P_IPV6) || skb->vlan_present)
		return;
	flow_view(skb, protocol == ETH_P_IPV6, view);
	if (view->routed)
		view->kind = FLOW_NONE;
}

static __always_inline __u32 seconds(void)
{
	return bpf_ktime_get_ns() >> 30;
}

/* Puts the end with the lower address and port first. */
static __always_inline void canonical(struct flow_hash_key *to, const struct flow_hash_key *key)
{
	*to = *key;
	if (!flow_hash_descends(key))
		return;
	__builtin_memcpy(to->source, key->destination, sizeof(to->source));
	__builtin_memcpy(to->destination, key->source, sizeof(to->destination));
	to->source_port = key->destination_port;
	to->destination_port = key->source_port;
}

/* The position of the path with this slot; BALANCE_NONE if there is none. Without a branch in the loop. */
POLICY_LARGE_FN __u32 position_of(const struct edge_site *site, __u32 slot)
{
	__u32 i, found = BALANCE_NONE;

	if (!site)
		return BALANCE_NONE;
	for (i = 0; i < BALANCE_MAX_PATHS && i < site->set.n; i++)
		found = pc_choose(found, i, pc_zero(site->slot[i] ^ slot));
	return found;
}

/* The slot of the path whose packets arrive by this interface; 0 if there is none. */
POLICY_LARGE_FN __u32 slot_of(const struct edge_site *site, __u32 interface)
{
	__u32 i, found = 0;

	if (!site)
		return 0;
	for (i = 0; i < BALANCE_MAX_PATHS && i < site->set.n; i++)
		found = pc_choose(found, site->slot[i], pc_zero(site->arrives[i] ^ interface));
	return found;
}

static __always_inline int flags_of(struct __sk_buff *skb, const struct flow_view *view)
{
	__u8 flags;

	return FLOW_READ(skb, view->offset + 13, &flags, 1) ? 0 : flags;
}

/* Notes a flow's path, if there is room. */
static __always_inline int note(const struct flow_hash_key *key, __u32 slot, __u32 follows)
{
	struct edge_flow flow = { .slot = slot, .seen = seconds(), .follows = follows };

	return bpf_map_update_elem(&sidestep_flows, key, &flow, BPF_ANY);
}

/* The next path in turn for a new connection of a host; the first of a host is hashed. */
static __always_inline __u32 in_turn(const struct edge_site *site, const struct flow_view *view, __u32 hashed)
{
	__u32 host[4], next = hashed, *last;

	__builtin_memcpy(host, view->key.source, sizeof(host));
	last = bpf_map_lookup_elem(&sidestep_turns, host);
	if (last)
		next = balance_next(&site->set, site->live, *last);
	bpf_map_update_elem(&sidestep_turns, host, &next, BPF_ANY);
	return next;
}

/* The position of the path that the table has for the packet's flow, or that a new flow gets; else the hashed one. */
static __always_inline __u32 assigned(struct __sk_buff *skb, const struct edge_site *site,
				      const struct flow_view *view, __u32 hashed)
{
	struct flow_hash_key key;
	struct edge_flow *flow;
	__u32 position, flags, now;

	if (view->kind != FLOW_PORTS || view->key.protocol != FLOW_TCP)
		return hashed;
	canonical(&key, &view->key);
	flow = bpf_map_lookup_elem(&sidestep_flows, &key);
	flags = view->error ? 0 : flags_of(skb, view);
	/* A SYN begins a new connection, unless it comes again. */
	if (flow && !(flow->closing && (flags & TCP_SYN))) {
		position = position_of(site, flow->slot);
		now = seconds();
		/* Written only when they change: both directions share the entry, and may be on different processors. */
		if (flow->seen != now)
			flow->seen = now;
		if (!flow->closing && (flags & (TCP_FIN | TCP_RST)))
			flow->closing = 1;
		/* While its path is dead it takes the hashed one, as it does at the other edge, and then returns. */
		if (position < BALANCE_MAX_PATHS)
			return balance_usable(&site->set, site->live) >> position & 1 ? position : hashed;
		/* Its path is gone: for good it takes another. */
		flow->slot = site->slot[BALANCE_INDEX(hashed)];
		return hashed;
	}
	if ((flags & (TCP_SYN | TCP_ACK)) != TCP_SYN)
		return hashed;
	position = in_turn(site, view, hashed);
	if (position < BALANCE_MAX_PATHS && !note(&key, site->slot[BALANCE_INDEX(position)], 0))
		return position;
	count(EDGE_TABLE_FULL);
	return hashed;
}

/* Notes that a slot has a flow with this hash. */
static __always_inline void see(__u32 slot, __u32 hash)
{
	struct edge_seen *seen = bpf_map_lookup_elem(&sidestep_seen, &slot);

	if (!seen)
		return;
	/* Mixed once more: the path follows from the hash itself. */
	hash = pc_mix(hash ^ EDGE_FLOW_SALT);
	seen->bits[hash >> 6 & (EDGE_FLOW_WORDS - 1)] |= 1ULL << (hash & 63);
}

SEC("tc")
int sidestep_edge(struct __sk_buff *skb)
{
	struct flow_view view = {};
	struct edge_site *site = 0;
	struct edge_use *use;
	__u32 position, hash, slot = 0;

	view_of(skb, &view);
	if (view.kind != FLOW_NONE)
		site = site_of(view.towards);
	if (!site || !site->set.n) {
		count(EDGE_LEFT_ALONE);
		return TC_ACT_UNSPEC;
	}
	hash = balance_hash(&site->set, &view.key);
	position = balance_choose(&site->set, site->live, hash);
	if (config.stateful)
		position = assigned(skb, site, &view, position);
	if (position < BALANCE_MAX_PATHS)
		slot = site->slot[BALANCE_INDEX(position)];
	slot &= EDGE_SLOTS - 1;
	count(EDGE_BALANCED);
	if (view.kind == FLOW_ADDRESSES)
		count(EDGE_FRAGMENTS);
	if (view.error)
		count(EDGE_ERRORS);
	if (!slot)
		count(EDGE_UNROUTED);
	use = bpf_map_lookup_elem(&sidestep_use, &slot);
	if (use) {
		use->packets += 1;
		use->bytes += skb->len;
	}
	see(slot, hash);
	if (!config.dry_run)
		skb->mark = (skb->mark & ~config.mark_mask) | slot << config.mark_shift;
	return TC_ACT_UNSPEC;
}

/*
 * On ingress from the paths: notes by which path the other edge sends a connection's packets. If the connection began there,
 * its packets go back by that path, whichever it is now. Else the path is noted only where the table has none: this edge was
 * started after the connection had begun. Such an entry stays as it is, as the other edge may be following this one.
 */
SEC("tc")
int sidestep_learn(struct __sk_buff *skb)
{
	struct flow_view view = {};
	struct flow_hash_key key;
	struct edge_flow *flow;
	struct edge_site *site;
	__u32 slot, flags, begins;

	view_of(skb, &view);
	if (view.kind != FLOW_PORTS || view.key.protocol != FLOW_TCP || view.error)
		return TC_ACT_UNSPEC;
	site = site_of(view.key.source);
	if (!site)
		return TC_ACT_UNSPEC;
	canonical(&key, &view.key);
	flow = bpf_map_lookup_elem(&sidestep_flows, &key);
	flags = flags_of(skb, &view);
	begins = (flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	if (!begins && (flow ? !flow->follows : flags & (TCP_FIN | TCP_RST)))
		return TC_ACT_UNSPEC;
	slot = slot_of(site, skb->ingress_ifindex);
	if (!slot)
		return TC_ACT_UNSPEC;
	if (flow && !begins) {
		if (flow->slot != slot)
			flow->slot = slot;
		return TC_ACT_UNSPEC;
	}
	if (note(&key, slot, begins) && begins)
		count(EDGE_TABLE_FULL);
	return TC_ACT_UNSPEC;
}

/*
 * Makes the kernel hash the packet itself. Else its multipath routes take the hash that the network card or the sender's
 * socket has left, which knows neither our seed nor both directions.
 */
SEC("tc")
int sidestep_rehash(struct __sk_buff *skb)
{
	bpf_set_hash_invalid(skb);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
