//! Where Prometheus may read a daemon's metrics.

use std::net::SocketAddr;

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::read_address;

/// Whether and where Prometheus may read metrics.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Where to listen; `None`: nowhere.
    #[serde(deserialize_with = "address")]
    pub listen: Option<SocketAddr>,
    /// Whether to make the kernel count runs of BPF programs, all of the machine's.
    pub bpf_stats: bool,
}

/// Reads an address to listen at, for fields of other tables; an error says what one is like.
pub fn address<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SocketAddr>, D::Error> {
    read_address(&String::deserialize(input)?).map(Some).map_err(D::Error::custom)
}
