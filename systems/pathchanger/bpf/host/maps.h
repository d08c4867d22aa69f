/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The maps of host.bpf.c, what a connection keeps, and the counters. */
#ifndef SIDESTEP_HOST_MAPS_H
#define SIDESTEP_HOST_MAPS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "host.h"

#define EVENTS_SIZE (256 * 1024)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_config);
} sidestep_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_layout);
} sidestep_layout SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct host_prefix);
	__type(value, struct host_paths);
} sidestep_dests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct host_prefix);
	__type(value, struct host_weights);
} sidestep_learnt SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096 * (PC_MAX_PATHS + 1));
	__type(key, struct host_name_key);
	__type(value, struct host_name);
} sidestep_names SEC(".maps");

/* Source prefixes that paths name, and those that contain them, as bits. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, HOST_SOURCES);
	__type(key, struct host_prefix);
	__type(value, host_source_bits);
} sidestep_addrs SEC(".maps");

struct conn {
	struct pc_conn policy;
	__u64 opened_ns;
	__u64 decided_ns;
	__u64 signal_ns; /* of the last signal */
	__u32 generation;
	__u32 current_id;
	__u32 mark_before; /* what our bits were when the connection opened */
	__u8 reason; /* of the last decision */
	__u8 passive;
	__u8 has_address; /* the policy knows which paths take the connection's address */
	__u8 signal; /* enum pc_reason of the last signal */
	__u8 stay; /* enum pc_stay: what came of it */
	/* What the policy counted before the paths changed, and the moves that this caused. */
	__u32 decisions;
	__u32 moves;
	__u32 suppressed;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct conn);
} sidestep_conns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENTS_SIZE);
} sidestep_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOST_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} sidestep_counts SEC(".maps");

static struct host_config *configured(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sidestep_config, &zero);
}

static void count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&sidestep_counts, &which);

	/* A packet may interrupt a connect on the same processor. */
	if (counter)
		__sync_fetch_and_add(counter, 1);
}

#endif
