/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The path changer inside TCP. It chooses a path when a socket of its cgroup connects, observes round trips,
 * retransmits and timeouts, asks the policy, and moves a connection by changing its mark: the agent's rules and
 * tables make a route of each mark. Connections to destinations without paths cost one lookup.
 *
 * The mark shows which path a connection is on. Until something happens to a connection, most policies need to
 * know no more of it, so it has no storage (`pc_stateless`). It gets that with its first signal.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "host/connect.h"
#include "host/sockops.h"
#include "host/iterators.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
