/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * When a frame arrived at a wire of the lab, whose thread reads it later.
 *
 * On egress of a TAP each frame gets the time in the place of its source address, which no program reads at the other end
 * of a wire. What a router forwards while a wire's thread hands it a frame gets the time at which that frame was due. So the
 * thread's lateness does not add up from hop to hop. This is the packet debt of ModelNet (Vahdat et al., OSDI 2002). What a host
 * sends has the time at which it did: an answer never leaves before its host could know the question.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define TC_ACT_UNSPEC -1
#define SOURCE_ADDRESS 6 /* in an Ethernet header */
#define THREADS 8	 /* a power of two, as in arrivals.rs */

struct wire_thread {
	__u64 task; /* which thread this is */
	__u64 due;  /* when the frame was due that it hands over, on CLOCK_MONOTONIC; 0: it hands over none */
};

struct wire_threads {
	struct wire_thread thread[THREADS];
};
_Static_assert(sizeof(struct wire_threads) == 16 * THREADS, "shared with arrivals.rs");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wire_threads);
} sidestep_wires SEC(".maps");

SEC("tc")
int sidestep_stamp(struct __sk_buff *skb)
{
	__u32 zero = 0;
	__u64 task = bpf_get_current_task(), time = 0, stamp;
	struct wire_threads *wires = bpf_map_lookup_elem(&sidestep_wires, &zero);

	if (!wires)
		return TC_ACT_UNSPEC;
	/* What is forwarded belongs to no socket. */
	for (int i = 0; i < THREADS && !skb->sk; i++) {
		if (wires->thread[i].task == task) {
			time = wires->thread[i].due;
			break;
		}
	}
	if (!time)
		time = bpf_ktime_get_ns();
	/* The lower 48 bits: three days. */
	stamp = bpf_cpu_to_be64(time << 16);
	bpf_skb_store_bytes(skb, SOURCE_ADDRESS, &stamp, 6, 0);
	return TC_ACT_UNSPEC;
}

/* Run once by each of the wires' threads, with its number as the first byte of a frame. */
SEC("tc")
int sidestep_enter(struct __sk_buff *skb)
{
	__u32 zero = 0;
	__u8 number;
	struct wire_threads *wires = bpf_map_lookup_elem(&sidestep_wires, &zero);

	if (!wires || bpf_skb_load_bytes(skb, 0, &number, 1))
		return -1;
	/* Masked instead of compared, which the verifier would forget. */
	wires->thread[number & (THREADS - 1)].task = bpf_get_current_task();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
