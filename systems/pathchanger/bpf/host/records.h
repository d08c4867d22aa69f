/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The events that the agent reads and records: what happened to a connection. */
#ifndef SIDESTEP_HOST_RECORDS_H
#define SIDESTEP_HOST_RECORDS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "paths.h"

static struct host_event *new_event(void)
{
	struct host_event *event = bpf_ringbuf_reserve(&sidestep_events, sizeof(*event), 0);

	if (!event)
		count(HOST_EVENTS_LOST);
	return event;
}

/* What happened to a connection. */
struct change {
	__u32 from_id;
	__u32 to_id;
	__u8 kind;
	__u8 reason;
	__u8 passive;
	__u8 stay;
};

/* The agent looks four times a second by itself. Waking it for each event would cost more than everything else here. */
static void submit(struct host_event *event, const struct change *change)
{
	event->time_ns = bpf_ktime_get_ns();
	event->kind = change->kind;
	event->reason = change->reason;
	event->passive = change->passive;
	event->stay = change->stay;
	event->from_id = change->from_id;
	event->to_id = change->to_id;
	bpf_ringbuf_submit(event, bpf_ringbuf_query(&sidestep_events, BPF_RB_AVAIL_DATA) < EVENTS_SIZE / 4 ?
					  BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
}

/* Not inlined: events are rare, and need not be on the stack of what follows. */
static __noinline int report(struct bpf_sock_ops *ops, const struct change *change)
{
	struct host_event *event = new_event();

	if (!event)
		return 0;
	ends_of(&event->ends, ops);
	submit(event, change);
	return 0;
}

static __noinline int report_decision(struct bpf_sock_ops *ops, const struct conn *conn, __u8 reason, __u32 from_id)
{
	struct change change = {
		.from_id = from_id, .to_id = conn->current_id, .kind = HOST_DECIDED, .reason = reason,
		.passive = conn->passive, .stay = conn->stay,
	};

	return report(ops, &change);
}

#endif
