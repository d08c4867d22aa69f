//! The program at egress that diverts packets into the process (`bpf/divert.bpf.c`).
