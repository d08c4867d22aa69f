/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Constants of the kernel. vmlinux.h has its types only. */
#ifndef SIDESTEP_HOST_KERNEL_H
#define SIDESTEP_HOST_KERNEL_H

#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SO_MARK 36
#define TCP_SYNCNT 7
#define SOCK_STREAM 1
#define IPPROTO_TCP 6

#endif
