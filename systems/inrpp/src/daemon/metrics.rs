//! What the daemon exports to Prometheus.
