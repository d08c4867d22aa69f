//! The round-trip time and the retransmission timeout (RFC 6298).

use sidestep_net::Span;

use super::Config;

/// Smoothed round-trip time and its variation, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    srtt: u64,
    rttvar: u64,
    rto: u64,
}

impl RoundTrip {
    /// An estimate without samples.
    pub fn new(config: &Config) -> Self {
        RoundTrip { srtt: 0, rttvar: 0, rto: config.initial_rto.as_nanos() }
    }

    /// Takes a sample. The RTO is the smoothed time plus at least `min_rto`, as in Linux, so a delayed ACK never looks
    /// like a loss. RFC 6298 bounds the sum instead.
    ///
    /// RFC 6298, section 2: the time moves by an eighth of a new sample (rule 2.3, α), its variation by a quarter (β).
    /// Four variations (K) leave few ACKs that come after the timeout.
    #[inline]
    pub fn sample(&mut self, config: &Config, rtt: u64) {
        if self.srtt == 0 {
            self.srtt = rtt.max(1);
            self.rttvar = rtt / 2;
        } else {
            let error = rtt as i64 - self.srtt as i64;
            self.srtt = (self.srtt as i64 + error / 8).max(1) as u64;
            self.rttvar = (self.rttvar as i64 + (error.abs() - self.rttvar as i64) / 4) as u64;
        }
        let variation = (4 * self.rttvar).max(config.min_rto.as_nanos());
        self.rto = (self.srtt + variation).min(config.max_rto.as_nanos());
    }

    /// The timeout until the first sample (RFC 6298, section 2, rule 2.1: a second, if nothing better is known).
    pub fn set_rto(&mut self, rto: Span) {
        self.rto = rto.as_nanos();
    }

    /// The timeout after `backoff` timeouts in a row; see `back_off`.
    #[inline]
    pub fn timeout(&self, config: &Config, backoff: u8) -> u64 {
        back_off(self.rto, config, backoff)
    }

    /// The timeout before back-off.
    pub fn rto(&self) -> Span {
        Span::from_nanos(self.rto)
    }

    /// The smoothed round-trip time; `None` before the first sample.
    #[inline]
    pub fn smoothed(&self) -> Option<Span> {
        (self.srtt > 0).then(|| Span::from_nanos(self.srtt))
    }

    /// The smoothed round-trip time, in nanoseconds.
    #[inline]
    pub fn srtt_nanos(&self) -> u64 {
        self.srtt
    }
}

/// A timeout in nanoseconds after `backoff` timeouts in a row: it doubles with each (RFC 6298, section 5, rule 5.5), as a
/// path that is full empties only if all send less. The shift is bounded.
#[inline]
pub(super) fn back_off(rto: u64, config: &Config, backoff: u8) -> u64 {
    if backoff == 0 {
        return rto;
    }
    rto.saturating_mul(1 << backoff.min(16)).min(config.max_rto.as_nanos())
}
