/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Keeps congestion marks across decapsulation. Linux's End.DT6 drops a CE mark that a router set on
 * the outer header, so senders would never observe congestion inside the SRv6 domain. On ingress of the
 * decapsulating router this copies CE inward first, as RFC 6040 (section 4.2) asks of a tunnel's egress.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define TC_ACT_UNSPEC -1
#define ETH_P_IPV6 0x86dd
#define IPV6_HEADER 40
#define NEXTHDR_IPV6 41
#define NEXTHDR_ROUTING 43
#define ECN_MASK 0x30 /* in the second byte of an IPv6 header */

/* Bytes before the IPv6 header on this kind of device: 14 on Ethernet, 0 on a tunnel. */
const volatile __u32 l2_len = 14;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sidestep_copied SEC(".maps");

SEC("tc")
int sidestep_ecn(struct __sk_buff *skb)
{
	__u8 next, ecn, srh[2];
	__u32 inner = IPV6_HEADER, zero = 0;
	__u64 *counter;

	if (skb->protocol != bpf_htons(ETH_P_IPV6))
		return TC_ACT_UNSPEC;
	if (bpf_skb_load_bytes_relative(skb, 1, &ecn, 1, BPF_HDR_START_NET) || (ecn & ECN_MASK) != ECN_MASK)
		return TC_ACT_UNSPEC;
	if (bpf_skb_load_bytes_relative(skb, 6, &next, 1, BPF_HDR_START_NET))
		return TC_ACT_UNSPEC;
	if (next == NEXTHDR_ROUTING) {
		if (bpf_skb_load_bytes_relative(skb, IPV6_HEADER, srh, 2, BPF_HDR_START_NET))
			return TC_ACT_UNSPEC;
		next = srh[0];
		inner += ((__u32)srh[1] + 1) << 3;
	}
	if (next != NEXTHDR_IPV6 || bpf_skb_load_bytes_relative(skb, inner + 1, &ecn, 1, BPF_HDR_START_NET))
		return TC_ACT_UNSPEC;
	/* Not-ECT must stay so: its sender would not understand the mark. CE already means it. */
	if ((ecn & ECN_MASK) == 0 || (ecn & ECN_MASK) == ECN_MASK)
		return TC_ACT_UNSPEC;
	ecn |= ECN_MASK;
	if (bpf_skb_store_bytes(skb, l2_len + inner + 1, &ecn, 1, 0))
		return TC_ACT_UNSPEC;
	counter = bpf_map_lookup_elem(&sidestep_copied, &zero);
	if (counter)
		*counter += 1;
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
