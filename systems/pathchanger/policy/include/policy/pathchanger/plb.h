/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* PC_PLB: when Linux's Protective Load Balancing (tcp_plb.c) would rehash a connection. */
#ifndef SIDESTEP_POLICY_PATHCHANGER_PLB_H
#define SIDESTEP_POLICY_PATHCHANGER_PLB_H

#include "choice.h"

/* PC_PLB: of `delivered` packets in a round `marked` were marked (tcp_plb_update_state, tcp_plb_check_rehash). */
POLICY_FN __u32 pc_plb_due(struct pc_conn *conn, const struct pc_config *cfg,
			   const struct pc_round *round, __u32 delivered, __u32 marked)
{
	__u32 idle, busy;

	if (!delivered)
		return 0;
	if (((__u64)marked << 16) < (__u64)cfg->ce_share_q16 * delivered)
		conn->plb_rounds = 0;
	else if (conn->plb_rounds < cfg->plb_rounds)
		conn->plb_rounds++;
	busy = cfg->plb_rounds && conn->plb_rounds >= cfg->plb_rounds;
	idle = cfg->plb_idle_rounds && conn->plb_rounds >= cfg->plb_idle_rounds && !round->in_flight;
	return busy || idle;
}

/* PC_PLB: a round has ended; moves the connection if that is due. */
POLICY_FN void pc_plb_round(struct pc_conn *conn, const struct pc_config *cfg,
			    const struct pc_path *paths, const struct pc_round *round,
			    __u32 delivered, __u32 marked, __u32 random, struct pc_decision *decision)
{
	if (!pc_plb_due(conn, cfg, round, delivered, marked))
		return;
	decision->reason = PC_ECN;
	if (!pc_can_move(conn, cfg)) {
		pc_cannot_move(conn, cfg, decision);
		return;
	}
	if (round->now_ns < conn->plb_pause_ns) {
		pc_ignore(conn, decision, PC_BACK_OFF);
		return;
	}
	pc_decide(conn, cfg, paths, 0, round, 0, random, decision);
}

/* PC_PLB: a timeout. The pause is plb_pause_ns * (1 + u), u in 0..1 by `random` (tcp_plb_update_state_upon_rto). */
POLICY_FN void pc_plb_pause(struct pc_conn *conn, const struct pc_config *cfg, __u64 now_ns,
			    __u32 random)
{
	__u64 pause = pc_least(cfg->plb_pause_ns, PC_MAX_NS);

	conn->plb_pause_ns = now_ns + pause + pc_scale(random, pause);
	conn->plb_rounds = 0;
}

#endif
