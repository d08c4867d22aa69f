//! The states of a TCP connection, as sock_diag numbers them.

use netlink_packet_sock_diag::{
    TCP_CLOSE_WAIT, TCP_CLOSING, TCP_ESTABLISHED, TCP_FIN_WAIT1, TCP_FIN_WAIT2, TCP_LAST_ACK, TCP_SYN_SENT,
};

/// The states of a connection (RFC 9293, section 3.3.2) that a dump reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// Open in both directions.
    Established,
    /// The SYN is sent, and not answered.
    SynSent,
    /// Closed by this end, the FIN not acknowledged.
    FinWait1,
    /// Closed by this end, open at the other.
    FinWait2,
    /// Closed by the other end, open at this.
    CloseWait,
    /// Closed by the other end and then this, the FIN not acknowledged.
    LastAck,
    /// Closed by both at once, the FIN not acknowledged.
    Closing,
    /// Any other, by the kernel's number.
    Other(u8),
}

impl From<u8> for TcpState {
    fn from(number: u8) -> Self {
        match number {
            TCP_ESTABLISHED => TcpState::Established,
            TCP_SYN_SENT => TcpState::SynSent,
            TCP_FIN_WAIT1 => TcpState::FinWait1,
            TCP_FIN_WAIT2 => TcpState::FinWait2,
            TCP_CLOSE_WAIT => TcpState::CloseWait,
            TCP_LAST_ACK => TcpState::LastAck,
            TCP_CLOSING => TcpState::Closing,
            other => TcpState::Other(other),
        }
    }
}
