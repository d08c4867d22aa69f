/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The few kernel types that our programs read, by the kernel's names. CO-RE relocates every access
 * against the running kernel's BTF, so only the fields in use need to be here.
 * Constants of the kernel's uapi are stable and given as plain enums.
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef _Bool bool;
enum { false = 0, true = 1 };

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_SK_STORAGE_GET_F_CREATE = 1,
};

/* Of ring buffers. */
enum {
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
};

/* Values of bpf_sock_ops.op and bits of its callback flags. */
enum {
	BPF_SOCK_OPS_TIMEOUT_INIT = 1,
	BPF_SOCK_OPS_TCP_CONNECT_CB = 3,
	BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB = 4,
	BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5,
	BPF_SOCK_OPS_NEEDS_ECN = 6,
	BPF_SOCK_OPS_RTO_CB = 8,
	BPF_SOCK_OPS_RETRANS_CB = 9,
	BPF_SOCK_OPS_STATE_CB = 10,
	BPF_SOCK_OPS_RTT_CB = 12,
	BPF_SOCK_OPS_HDR_OPT_LEN_CB = 14,
};

enum {
	BPF_SOCK_OPS_RTO_CB_FLAG = 1,
	BPF_SOCK_OPS_RETRANS_CB_FLAG = 2,
	BPF_SOCK_OPS_STATE_CB_FLAG = 4,
	BPF_SOCK_OPS_RTT_CB_FLAG = 8,
	BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG = 32,
	BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG = 64,
};

/* In args[0] of BPF_SOCK_OPS_HDR_OPT_LEN_CB: nothing is being sent, TCP reckons its MSS. */
enum { BPF_WRITE_HDR_TCP_CURRENT_MSS = 1 };

enum { BPF_TCP_SYN_SENT = 2, BPF_TCP_CLOSE = 7 };

enum bpf_hdr_start_off {
	BPF_HDR_START_MAC,
	BPF_HDR_START_NET,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bpf_sock {
	__u32 bound_dev_if;
	__u32 mark;
	__u32 src_ip4;
	__u32 src_ip6[4];
};

struct bpf_tcp_sock {
	__u32 snd_cwnd;
	__u32 srtt_us;
	__u32 mss_cache;
	__u32 packets_out;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 rcv_nxt;
};

struct bpf_sock_ops {
	__u32 op;
	union {
		__u32 args[4];
		__u32 reply;
	};
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 bpf_sock_ops_cb_flags;
	__u32 state;
	__u32 srtt_us;
	union {
		struct bpf_sock *sk;
	};
};

struct bpf_sock_addr {
	__u32 user_ip4;
	__u32 user_ip6[4];
	__u32 family;
	__u32 type;
	__u32 protocol;
	union {
		struct bpf_sock *sk;
	};
};

/* For bpf_bind. */
struct sockaddr {
	unsigned short sa_family;
};

struct __sk_buff {
	__u32 len;
	__u32 mark;
	__u32 protocol;
	__u32 vlan_present;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 gso_segs;
	struct bpf_sock *sk;
};

/* What iterators over sockets are given, and what they read of it. */
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct tcp_congestion_ops;

struct netns_ipv4 {
	const struct tcp_congestion_ops *tcp_congestion_control;
	__u8 sysctl_tcp_syn_retries;
};

struct net {
	struct netns_ipv4 ipv4;
};

struct list_head {
	struct list_head *next;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	struct {
		struct net *net;
	} skc_net;
};

struct sock {
	struct sock_common __sk_common;
	__u32 sk_mark;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u32 icsk_rto;
	__u8 icsk_syn_retries;
	__u8 icsk_ca_state : 5, icsk_ca_initialized : 1, icsk_ca_setsockopt : 1;
	void *icsk_ulp_data;
	__u64 icsk_ca_priv[13];
	struct {
		__u32 lrcvtime;
	} icsk_ack;
};

struct tcp_options_received {
	__u16 saw_tstamp : 1, tstamp_ok : 1, dsack : 1;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 srtt_us;
	__u32 rttvar_us;
	__u32 mss_cache;
	__u32 packets_out;
	__u32 max_packets_out;
	__u32 snd_cwnd;
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
	__u8 is_cwnd_limited : 1;
	__u64 bytes_acked;
	__u64 tcp_mstamp;
	struct tcp_options_received rx_opt;
	__u8 bpf_sock_ops_cb_flags;
	bool is_mptcp;
	struct {
		__u64 time;
	} rcvq_space;
};

struct mptcp_sock {
	struct list_head conn_list;
	char ca_name[16];
};

struct mptcp_subflow_context {
	struct list_head node;
	__u32 mp_capable : 1, mp_join : 1;
	struct sock *tcp_sock;
	struct sock *conn;
};

struct tcp_congestion_ops {
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	__u32 flags;
	char name[16];
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop

#endif
