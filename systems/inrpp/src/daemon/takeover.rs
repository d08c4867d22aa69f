//! How a router takes the place of another: devices, links and packets pass from process to process over a Unix socket.
//!
//! The one that works listens, and lets only its own user and root have what it has. It stops, sends all, and ends when the other
//! says that it works; else it goes on. Meanwhile packets wait in the devices and sockets, which both hold.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, getsockopt, recvmsg, sendmsg, sockopt::PeerCredentials,
};
use serde::{Deserialize, Serialize};
use sidestep_hostd::{AgentError, control};
use sidestep_linux::LinuxError;
use tokio::net::UnixListener;

use super::{connections::Row, session::SavedSession};

/// The socket's name.
const NAME: &str = "sidestep-inrpp/takeover";
/// The version of what is sent.
const VERSION: u32 = 1;
/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of what is said, and of packets.
const MAX_TEXT: u64 = 1 << 30;
const MAX_PACKETS: u64 = 8 << 30;
/// What the successor says when it works.
const WORKS: u8 = b'w';

/// What a router hands over beside descriptors and packets.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    /// The keys by which flows are numbered.
    pub keys: [u64; 2],
    /// The ports, in their order. Of each the device's descriptor comes, then that of the link if it has one.
    pub ports: Vec<SavedPort>,
    /// The connections that are known.
    pub connections: Vec<Row>,
    /// The packets that wait, in the order in which they would leave.
    pub packets: Vec<SavedPacket>,
}

/// A port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedPort {
    /// Its interface.
    pub interface: String,
    /// Its TUN device.
    pub tun: String,
    /// How its link is known, if the link's descriptor comes.
    pub link: Option<String>,
    /// The neighbour there, if it has one.
    pub neighbour: Option<SavedNeighbour>,
}

/// A neighbour.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedNeighbour {
    /// The session with it.
    pub session: SavedSession,
    /// Whether it answers.
    pub alive: bool,
    /// Packets and bytes that have come from it in this session.
    pub received: (u64, u64),
    /// The packets that had come before its last hello. It compares them with what it had sent.
    pub at_its_hello: u64,
    /// The rate of the link to it, in bit/s, as it was found.
    pub rate: u64,
}

/// A packet that waits.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SavedPacket {
    /// The place of its port.
    pub port: u16,
    /// See [`SlotNote`](super::slots::SlotNote).
    pub flow: u64,
    /// See [`flow`](Self::flow).
    pub end: u64,
    /// Whether its checksum is partial.
    pub partial: bool,
    /// Whether packets of its flow may come in another order.
    pub disturbed: bool,
    /// Whether it is on a detour.
    pub detoured: bool,
    /// Its length in bytes.
    pub len: u32,
}

/// All that passes.
#[derive(Debug)]
pub struct Passed {
    /// What is said.
    pub saved: Saved,
    /// The descriptors.
    pub descriptors: Vec<OwnedFd>,
    /// The packets, one behind the other.
    pub bytes: Vec<u8>,
}

impl Saved {
    /// What a router with these keys hands over; still empty.
    pub fn new(keys: [u64; 2]) -> Saved {
        Saved { version: VERSION, keys, ports: Vec::new(), connections: Vec::new(), packets: Vec::new() }
    }
}

/// Listens for a successor. Needs a Tokio runtime.
pub fn listen() -> Result<UnixListener, LinuxError> {
    control::listen(NAME).map_err(|error| LinuxError::io("listening for a router that takes over", error))
}

/// Hands all over; returns whether the successor works.
pub fn hand_over(stream: &UnixStream, saved: &Saved, descriptors: &[BorrowedFd<'_>], bytes: &[u8]) -> io::Result<bool> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let text = serde_json::to_vec(saved)?;
    let mut stream = stream;
    for len in [text.len() as u64, descriptors.len() as u64, bytes.len() as u64] {
        stream.write_all(&len.to_be_bytes())?;
    }
    for descriptor in descriptors {
        let raw = [descriptor.as_raw_fd()];
        let message = [ControlMessage::ScmRights(&raw)];
        sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&[0])], &message, MsgFlags::empty(), None)?;
    }
    stream.write_all(&text)?;
    stream.write_all(bytes)?;
    let mut answer = [0];
    Ok(stream.read(&mut answer)? == 1 && answer[0] == WORKS)
}

/// The process at the other end.
pub fn process_of(stream: &UnixStream) -> Option<u32> {
    let credentials = getsockopt(stream, PeerCredentials).ok()?;
    u32::try_from(credentials.pid()).ok().filter(|process| *process > 0)
}

/// Takes all that the router of this network namespace has; `None`: none works.
pub fn take() -> Result<Option<(Passed, Working)>, AgentError> {
    let Some(stream) = control::connect_blocking(NAME)? else { return Ok(None) };
    let failed = |error| LinuxError::io("taking over from the router that works", error);
    if !control::is_privileged(&stream) {
        let error = io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user");
        return Err(failed(error).into());
    }
    let passed = receive(&stream).map_err(failed)?;
    Ok(Some((passed, Working(stream))))
}

/// To be dropped if the successor fails: the other goes on.
#[derive(Debug)]
pub struct Working(UnixStream);

impl Working {
    /// The successor works.
    pub fn works(mut self) -> io::Result<()> {
        self.0.write_all(&[WORKS])
    }
}

fn receive(stream: &UnixStream) -> io::Result<Passed> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = stream;
    let mut next = || -> io::Result<u64> {
        let mut bytes = [0; 8];
        stream.read_exact(&mut bytes)?;
        Ok(u64::from_be_bytes(bytes))
    };
    let (text, count, bytes) = (next()?, next()?, next()?);
    if text > MAX_TEXT || count > 1 << 10 || bytes > MAX_PACKETS {
        return Err(malformed("more than a router has"));
    }
    let descriptors = (0..count).map(|_| receive_descriptor(stream)).collect::<io::Result<Vec<_>>>()?;
    let saved: Saved = serde_json::from_slice(&read(stream, text)?)?;
    if saved.version != VERSION {
        return Err(malformed("of another version: end that router, and start this one"));
    }
    let bytes = read(stream, bytes)?;
    Ok(Passed { saved, descriptors, bytes })
}

fn read(stream: &UnixStream, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut stream = stream.take(len);
    if stream.read_to_end(&mut bytes)? as u64 == len { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn receive_descriptor(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    let mut room = nix::cmsg_space!([i32; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut room), flags)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control
            && let Some(raw) = descriptors.first()
        {
            // SAFETY: the kernel has just made this descriptor for us.
            return Ok(unsafe { OwnedFd::from_raw_fd(*raw) });
        }
    }
    Err(malformed("without a descriptor"))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("what was received is {what}"))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd, thread};

    use super::*;

    #[test]
    fn all_arrives_and_the_one_before_learns_whether_its_successor_works() {
        for works in [true, false] {
            let (here, there) = UnixStream::pair().unwrap();
            let mut saved = Saved::new([1, 2]);
            saved.packets =
                vec![SavedPacket { port: 1, flow: 8, end: 9, partial: true, disturbed: false, detoured: true, len: 3 }];
            let giving = thread::spawn(move || {
                let file = File::open("/dev/zero").unwrap();
                hand_over(&here, &saved, &[file.as_fd(), file.as_fd()], b"abc").unwrap()
            });
            let passed = receive(&there).unwrap();
            assert_eq!((passed.saved.keys, passed.saved.packets[0].end, &passed.bytes[..]), ([1, 2], 9, &b"abc"[..]));
            assert_eq!(passed.descriptors.len(), 2);
            let mut zeros = [1; 4];
            File::from(passed.descriptors.into_iter().next().unwrap()).read_exact(&mut zeros).unwrap();
            assert_eq!(zeros, [0; 4]);
            if works {
                Working(there).works().unwrap();
            } else {
                drop(there);
            }
            assert_eq!(giving.join().unwrap(), works);
        }
    }

    #[test]
    fn what_is_no_routers_is_refused() {
        for bytes in [&[0xff; 24][..], &[0; 24][..], &[0; 3][..]] {
            let (mut here, there) = UnixStream::pair().unwrap();
            here.write_all(bytes).unwrap();
            drop(here);
            assert!(receive(&there).is_err());
        }
    }
}
