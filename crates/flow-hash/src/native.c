/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The functions of flow_hash.h and flow_key.h under linkable names; packets are bytes of a slice. */
#include <string.h>

struct native_packet {
	const unsigned char *bytes;
	unsigned long length;
};

static int native_read(const struct native_packet *packet, unsigned int offset, void *to, unsigned int length)
{
	if (offset > packet->length || length > packet->length - offset)
		return -1;
	memcpy(to, packet->bytes + offset, length);
	return 0;
}

#define FLOW_PACKET const struct native_packet *
#define FLOW_READ(packet, offset, to, length) native_read(packet, offset, to, length)
#include "policy/flow_key.h"

void native_flow_view(const unsigned char *bytes, unsigned long length, __u32 v6, struct flow_view *view)
{
	struct native_packet packet = { bytes, length };

	flow_view(&packet, v6, view);
}

__u32 native_flow_hash(const struct flow_hash_key *key, __u32 seed, __u32 symmetric)
{
	return flow_hash(key, seed, symmetric);
}

__u32 native_flow_hash_pick(__u32 hash, __u32 n)
{
	return flow_hash_pick(hash, n);
}
