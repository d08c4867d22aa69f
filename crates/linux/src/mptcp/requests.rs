//! Requests of a userspace path manager: a further subflow for a connection, or the end of one.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::indexing_slicing))]

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_F_NESTED, NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr as NetlinkAddress, protocols::NETLINK_GENERIC};
use nix::sys::{
    socket::{setsockopt, sockopt::ReceiveTimeout},
    time::{TimeVal, TimeValLike},
};

use super::{
    ADDR_ATTR_ADDR6, ADDR_ATTR_FAMILY, ATTR_ADDR, Request,
    events::{Ends, Token},
    number, resolve, send,
};
use crate::error::{LinuxError, Result};

/// Asks the kernel for subflows of connections that have the userspace path manager.
#[derive(Debug)]
pub struct SubflowRequests {
    socket: Socket,
    family: u16,
    sequence: u32,
}

/// A subflow that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSubflow {
    /// The connection.
    pub token: Token,
    /// Its address here; port 0 leaves the port to the kernel.
    pub local: SocketAddr,
    /// The number by which the other end knows our address; 0 is that of the first subflow.
    pub local_id: u8,
    /// The other end.
    pub remote: SocketAddr,
    /// The number of the other end's address; 0 is that of the first subflow.
    pub remote_id: u8,
}

/// Why the kernel did not make or end a subflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kernel's number for it.
    pub errno: i32,
    /// The kernel's words, if it has any.
    pub message: String,
    /// What it means.
    pub kind: RefusalKind,
}

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalKind {
    /// The connection does not exist any more.
    Gone,
    /// The connection has the kernel's path manager, which it was made with.
    KernelManager,
    /// The connection is not fully established, or it is being closed.
    NotConnected,
    /// No port of the address is free, or not this one.
    NoPort,
    /// This kernel wants another number than zero for the address.
    NeedsId,
    /// The number stands for another address or port.
    IdTaken,
    /// There is no such subflow.
    NoSubflow,
    /// There is no path to the other end from this address.
    Unreachable,
    /// Anything else.
    Other,
}

impl RefusalKind {
    /// All kinds.
    pub const ALL: [RefusalKind; 9] = [
        RefusalKind::Gone,
        RefusalKind::KernelManager,
        RefusalKind::NotConnected,
        RefusalKind::NoPort,
        RefusalKind::NeedsId,
        RefusalKind::IdTaken,
        RefusalKind::NoSubflow,
        RefusalKind::Unreachable,
        RefusalKind::Other,
    ];

    /// Its name in metrics and in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusalKind::Gone => "gone",
            RefusalKind::KernelManager => "kernel-path-manager",
            RefusalKind::NotConnected => "not-connected",
            RefusalKind::NoPort => "no-port",
            RefusalKind::NeedsId => "needs-id",
            RefusalKind::IdTaken => "id-taken",
            RefusalKind::NoSubflow => "no-subflow",
            RefusalKind::Unreachable => "unreachable",
            RefusalKind::Other => "other",
        }
    }
}

impl SubflowRequests {
    /// Opens the path manager of the calling thread's network namespace.
    pub fn open() -> Result<Self> {
        let failed = |source| LinuxError::io("reaching MPTCP's path manager", source);
        let mut socket = Socket::new(NETLINK_GENERIC).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.connect(&NetlinkAddress::new(0, 0)).map_err(failed)?;
        let family = resolve(&socket)?.id;
        // The kernel's words come with its refusals, and not our request again.
        socket.set_ext_ack(true).map_err(failed)?;
        socket.set_cap_ack(true).map_err(failed)?;
        let patience = TimeVal::milliseconds(PATIENCE.as_millis() as i64);
        setsockopt(&socket, ReceiveTimeout, &patience).map_err(|error| failed(error.into()))?;
        Ok(SubflowRequests { socket, family, sequence: 0 })
    }

    /// Makes the kernel begin a subflow: its SYN is sent, and an event reports what became of it.
    pub fn create(&mut self, subflow: &NewSubflow) -> std::result::Result<(), Refusal> {
        let attributes = vec![
            number(ATTR_TOKEN, subflow.token.0),
            address(ATTR_ADDR, subflow.local, Some(subflow.local_id)),
            address(ATTR_ADDR_REMOTE, subflow.remote, Some(subflow.remote_id).filter(|id| *id != 0)),
        ];
        self.ask(CMD_SUBFLOW_CREATE, attributes)
    }

    /// Makes the kernel end a subflow of a connection.
    pub fn destroy(&mut self, token: Token, ends: &Ends) -> std::result::Result<(), Refusal> {
        let attributes = vec![
            number(ATTR_TOKEN, token.0),
            address(ATTR_ADDR, ends.local, None),
            address(ATTR_ADDR_REMOTE, ends.remote, None),
        ];
        self.ask(CMD_SUBFLOW_DESTROY, attributes)
    }

    /// Makes the kernel notify the other end of a connection that an address of this host, which it knows by this number, is no
    /// longer there (`REMOVE_ADDR`; RFC 8684, section 3.4.2); the other end then ends its subflows to it.
    ///
    /// The kernel knows the number while it has a subflow from that address, or has announced it.
    pub fn withdraw(&mut self, token: Token, local_id: u8) -> std::result::Result<(), Refusal> {
        let id = DefaultNla::new(ATTR_LOC_ID, vec![local_id]);
        self.ask(CMD_REMOVE, vec![number(ATTR_TOKEN, token.0), id])
    }

    fn ask(&mut self, command: u8, attributes: Vec<DefaultNla>) -> std::result::Result<(), Refusal> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = Request { command, attributes };
        send(&self.socket, self.family, request, NLM_F_REQUEST | NLM_F_ACK, self.sequence)?;
        self.answer()
    }

    /// Waits for the answer to the last request.
    fn answer(&self) -> std::result::Result<(), Refusal> {
        loop {
            let answer = match self.socket.recv_from_full() {
                Ok((answer, _)) => answer,
                // A wait with a timeout is not restarted after a signal's handler (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let answer = NetlinkBuffer::new_checked(answer.as_slice()).map_err(|_| malformed())?;
            // The answer to a request that was given up may come late.
            if answer.sequence_number() == self.sequence && answer.message_type() == NLMSG_ERROR {
                return read_status(answer.payload());
            }
        }
    }
}

/// How long the kernel may take for an answer; it comes with the request, unless a busy program holds its connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// Commands and attributes (include/uapi/linux/mptcp_pm.h).
const CMD_REMOVE: u8 = 9;
const CMD_SUBFLOW_CREATE: u8 = 10;
const CMD_SUBFLOW_DESTROY: u8 = 11;
const ATTR_TOKEN: u16 = 4;
const ATTR_LOC_ID: u16 = 5;
const ATTR_ADDR_REMOTE: u16 = 6;
const ADDR_ATTR_ID: u16 = 2;
const ADDR_ATTR_ADDR4: u16 = 3;
const ADDR_ATTR_PORT: u16 = 5;
/// The kernel's words in an answer (`NLMSGERR_ATTR_MSG`), after its number and the header of the request.
const NLMSGERR_ATTR_MSG: u16 = 1;
const STATUS_LENGTH: usize = 4 + 16;

fn address(kind: u16, address: SocketAddr, id: Option<u8>) -> DefaultNla {
    let (family, value) = match address.ip() {
        IpAddr::V4(ip) => (libc::AF_INET, DefaultNla::new(ADDR_ATTR_ADDR4, ip.octets().to_vec())),
        IpAddr::V6(ip) => (libc::AF_INET6, DefaultNla::new(ADDR_ATTR_ADDR6, ip.octets().to_vec())),
    };
    let mut attributes = vec![DefaultNla::new(ADDR_ATTR_FAMILY, (family as u16).to_ne_bytes().to_vec()), value];
    attributes.extend(id.map(|id| DefaultNla::new(ADDR_ATTR_ID, vec![id])));
    if address.port() != 0 {
        // This attribute alone is in the host's byte order.
        attributes.push(DefaultNla::new(ADDR_ATTR_PORT, address.port().to_ne_bytes().to_vec()));
    }
    let mut bytes = vec![0; attributes.as_slice().buffer_len()];
    attributes.as_slice().emit(&mut bytes);
    DefaultNla::new(kind | NLA_F_NESTED, bytes)
}

/// Reads an answer: zero or a negated errno, perhaps with words.
fn read_status(payload: &[u8]) -> std::result::Result<(), Refusal> {
    let status = payload.first_chunk().ok_or_else(malformed)?;
    let errno = match i32::from_ne_bytes(*status) {
        0 => return Ok(()),
        status => status.saturating_neg(),
    };
    let attributes = NlasIterator::new(payload.get(STATUS_LENGTH..).unwrap_or_default());
    let words = attributes.flatten().find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG);
    let words = words.map(|words| String::from_utf8_lossy(words.value()).trim_end_matches('\0').to_string());
    Err(Refusal::new(errno, words.unwrap_or_default()))
}

impl Refusal {
    /// A refusal with this number and these words.
    pub fn new(errno: i32, message: String) -> Self {
        let kind = match errno {
            libc::ENOTCONN => RefusalKind::NotConnected,
            libc::EADDRINUSE | libc::EADDRNOTAVAIL => RefusalKind::NoPort,
            libc::ESRCH => RefusalKind::NoSubflow,
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN => RefusalKind::Unreachable,
            libc::EINVAL => Self::of_words(&message),
            _ => RefusalKind::Other,
        };
        Refusal { errno, message, kind }
    }

    fn of_words(words: &str) -> RefusalKind {
        let known = [
            ("invalid token", RefusalKind::Gone),
            ("userspace PM not selected", RefusalKind::KernelManager),
            // Linux before 6.6.
            ("missing local addr id", RefusalKind::NeedsId),
            ("invalid addr id", RefusalKind::NeedsId),
            ("did not match address and id", RefusalKind::IdTaken),
        ];
        known.iter().find(|(part, _)| words.contains(part)).map_or(RefusalKind::Other, |(_, kind)| *kind)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        let message = error.to_string();
        Refusal { errno: error.raw_os_error().unwrap_or(libc::EIO), message, kind: RefusalKind::Other }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = io::Error::from_raw_os_error(self.errno);
        if self.message.is_empty() { write!(f, "{reason}") } else { write!(f, "{} ({reason})", self.message) }
    }
}

fn malformed() -> Refusal {
    Refusal::from(io::Error::from_raw_os_error(libc::EBADMSG))
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    use proptest::prelude::*;

    use super::{
        super::{ATTR_SUBFLOWS, CMD_SET_LIMITS},
        *,
    };
    use crate::{netns::NetNs, testing::root_or_skip};

    #[test]
    fn a_refusal_shows_what_it_means() {
        let kind = |errno, words: &str| Refusal::new(errno, words.into()).kind;
        assert_eq!(kind(libc::EINVAL, "invalid token"), RefusalKind::Gone);
        assert_eq!(kind(libc::EINVAL, "invalid request; userspace PM not selected"), RefusalKind::KernelManager);
        assert_eq!(kind(libc::EINVAL, ""), RefusalKind::Other);
        assert_eq!(kind(libc::ENOTCONN, ""), RefusalKind::NotConnected);
        assert_eq!(kind(libc::EADDRINUSE, ""), RefusalKind::NoPort);
        let refusal = Refusal::new(libc::EINVAL, "missing local addr id".into());
        assert_eq!(refusal.kind, RefusalKind::NeedsId);
        assert_eq!(refusal.to_string(), "missing local addr id (Invalid argument (os error 22))");
    }

    #[test]
    fn the_late_answer_to_a_request_that_was_given_up_is_not_taken_for_the_next_ones() {
        if !root_or_skip("requests to MPTCP's path manager") {
            return;
        }
        let namespace = NetNs::create().unwrap();
        let mut requests = namespace.run(SubflowRequests::open).unwrap();
        let ends = |port| SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), port);
        let ask =
            |requests: &mut SubflowRequests| requests.destroy(Token(1), &Ends { local: ends(1), remote: ends(2) });
        // A request without attributes, whose answer is not read: it has other words than the answer to the next one.
        let empty = Request { command: CMD_SUBFLOW_DESTROY, attributes: Vec::new() };
        requests.sequence += 1;
        send(&requests.socket, requests.family, empty, NLM_F_REQUEST | NLM_F_ACK, requests.sequence).unwrap();
        let refusal = ask(&mut requests).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Gone, "{refusal}");
        assert_eq!(ask(&mut requests).unwrap_err(), refusal);
    }

    #[test]
    fn a_request_that_is_not_answered_is_given_up_and_the_next_one_works() {
        if !root_or_skip("requests to MPTCP's path manager") {
            return;
        }
        let namespace = NetNs::create().unwrap();
        let mut requests = namespace.run(SubflowRequests::open).unwrap();
        let short = TimeVal::milliseconds(50);
        setsockopt(&requests.socket, ReceiveTimeout, &short).unwrap();
        // Generic netlink answers a request without this flag only if it fails: this one does not.
        requests.sequence += 1;
        let silent = Request { command: CMD_SET_LIMITS, attributes: vec![number(ATTR_SUBFLOWS, 2)] };
        send(&requests.socket, requests.family, silent, NLM_F_REQUEST, requests.sequence).unwrap();
        // A signal is no answer: tests beside this one have handlers, and programs end.
        extern "C" fn handle(_: libc::c_int) {}
        let handler = SigAction::new(SigHandler::Handler(handle), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler does nothing, and nothing else in these tests has one for this signal.
        unsafe { sigaction(Signal::SIGUSR2, &handler) }.unwrap();
        // SAFETY: a thread's own number.
        let waiting = unsafe { libc::pthread_self() };
        let error = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                // SAFETY: the thread that waits joins this one.
                unsafe { libc::pthread_kill(waiting, libc::SIGUSR2) };
            });
            requests.answer().unwrap_err()
        });
        assert_eq!((error.errno, error.kind), (libc::EAGAIN, RefusalKind::Other), "{error}");
        let ends = SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), 1);
        let refusal = requests.destroy(Token(1), &Ends { local: ends, remote: ends }).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Gone, "{refusal}");
    }

    proptest! {
        #[test]
        fn no_answer_panics_the_reader(bytes: Vec<u8>) {
            let _ = read_status(&bytes);
        }
    }
}
