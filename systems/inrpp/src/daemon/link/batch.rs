//! Many messages a system call (`sendmmsg`, `recvmmsg`), without allocation.

use std::{
    mem,
    os::fd::{AsRawFd, BorrowedFd},
};

use nix::errno::Errno;

use super::{MESSAGES, ROOM, ReceiveBuffers, Received, outbox::Message};

/// Room for the address of a frame's sender or receiver.
pub(super) type Address = libc::sockaddr_ll;

/// A control message that holds an int, and room for another.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control {
    header: libc::cmsghdr,
    value: [u8; 24],
}

/// Messages to be sent by one call.
pub(super) struct SendBatch {
    headers: [libc::mmsghdr; MESSAGES],
    parts: [[libc::iovec; 2]; MESSAGES],
    controls: [Control; MESSAGES],
    prefixes: [[u8; 2]; MESSAGES],
    /// Which messages they are.
    messages: [Message; MESSAGES],
    count: usize,
}

/// Messages that have been received by one call.
pub(super) struct ReceiveBatch {
    headers: [libc::mmsghdr; MESSAGES],
    parts: [libc::iovec; MESSAGES],
    controls: [Control; MESSAGES],
    senders: [Address; MESSAGES],
}

/// A message that has been received.
pub(super) struct Arrived<'b> {
    pub(super) bytes: &'b [u8],
    /// The length of its datagrams but the last; zero: it is one.
    pub(super) segment: usize,
    /// Of frames only.
    pub(super) sender: Address,
    /// Whether it was longer than the buffer.
    pub(super) truncated: bool,
}

impl SendBatch {
    pub(super) fn new() -> Self {
        // SAFETY: numbers and raw pointers, for which all zeroes is a value.
        unsafe { mem::zeroed() }
    }

    pub(super) fn messages(&self) -> &[Message] {
        self.messages.get(..self.count).unwrap_or_default()
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == MESSAGES
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a message; with `prefix`, its length goes before it. There must be room.
    pub(super) fn add(&mut self, message: Message, prefix: bool) {
        if let Some(to) = self.messages.get_mut(self.count) {
            *to = message;
            self.prefixes[self.count] = if prefix { (message.len as u16).to_be_bytes() } else { [0; 2] };
            self.count += 1;
        }
    }

    /// Sends the messages, whose bytes are in `bytes`; returns how many the kernel took, or why it refused the first.
    pub(super) fn send<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        bytes: impl Fn(&Message) -> &'a [u8],
        to: Option<&Address>,
    ) -> Result<usize, Errno> {
        let own = self.headers.iter_mut().zip(&mut self.parts).zip(&mut self.controls).zip(&self.prefixes);
        for ((((header, parts), control), prefix), message) in own.zip(&self.messages).take(self.count) {
            let bytes = bytes(message);
            let header = &mut header.msg_hdr;
            let body = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            let length = libc::iovec { iov_base: prefix.as_ptr().cast_mut().cast(), iov_len: prefix.len() };
            *parts = if to.is_some() { [length, body] } else { [body, length] };
            header.msg_iov = parts.as_mut_ptr();
            header.msg_iovlen = if to.is_some() { 2 } else { 1 };
            let (name, name_len) =
                to.map_or((std::ptr::null(), 0), |to| (std::ptr::from_ref(to), size_of::<Address>()));
            header.msg_name = name.cast_mut().cast();
            header.msg_namelen = name_len as libc::socklen_t;
            (header.msg_control, header.msg_controllen) = (std::ptr::null_mut(), 0);
            if message.count > 1 {
                control.set_segment(message.segment as u16);
                header.msg_control = std::ptr::from_mut(control).cast();
                header.msg_controllen = size_of::<libc::cmsghdr>() + 8;
            }
        }
        let (headers, flags) = (self.headers.as_mut_ptr(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        // SAFETY: `count` headers have been filled in. What they point at is borrowed: parts, controls and prefixes lie in `self`,
        // bytes and address with the caller; the kernel writes to none of them but the headers.
        let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers, self.count as u32, flags) };
        Errno::result(sent).map(|sent| usize::try_from(sent).unwrap_or(0))
    }
}

impl ReceiveBatch {
    fn new() -> Self {
        // SAFETY: numbers and raw pointers, for which all zeroes is a value.
        unsafe { mem::zeroed() }
    }

    /// Receives messages into the buffers, and shows each to `take`, which counts it.
    pub(super) fn receive<'b>(
        fd: BorrowedFd<'_>,
        buffers: &'b mut ReceiveBuffers,
        mut take: impl FnMut(&Arrived<'b>, &mut Received),
    ) -> Received {
        let (mut received, mut messages) = (Received::default(), 0);
        match Self::new().read(fd, buffers) {
            Ok(arrived) => {
                for message in arrived {
                    messages += 1;
                    take(&message, &mut received);
                }
            }
            Err(error) => received.failed(error),
        }
        received.more = messages == MESSAGES;
        received
    }

    /// Receives messages into the buffers.
    fn read<'b>(
        &mut self,
        fd: BorrowedFd<'_>,
        buffers: &'b mut ReceiveBuffers,
    ) -> Result<impl Iterator<Item = Arrived<'b>>, Errno> {
        let rooms = buffers.bytes.chunks_exact_mut(ROOM);
        let own = self.headers.iter_mut().zip(&mut self.parts).zip(&mut self.controls).zip(&mut self.senders);
        let mut count = 0;
        for ((((header, part), control), sender), room) in own.zip(rooms) {
            *part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            control.header.cmsg_len = 0;
            let header = &mut header.msg_hdr;
            (header.msg_iov, header.msg_iovlen) = (part, 1);
            header.msg_name = std::ptr::from_mut(sender).cast();
            header.msg_namelen = size_of::<Address>() as libc::socklen_t;
            header.msg_control = std::ptr::from_mut(control).cast();
            header.msg_controllen = size_of::<Control>();
            count += 1;
        }
        let (headers, flags, none) = (self.headers.as_mut_ptr(), libc::MSG_DONTWAIT, std::ptr::null_mut());
        // SAFETY: `count` headers have been filled in. What they point at is borrowed mutably, and each part is a room of its own.
        let received = unsafe { libc::recvmmsg(fd.as_raw_fd(), headers, count, flags, none) };
        let received = Errno::result(received).map(|received| usize::try_from(received).unwrap_or(0))?;
        let own = self.headers.iter().zip(&self.controls).zip(&self.senders);
        let rooms = buffers.bytes.chunks_exact(ROOM);
        let arrived = own.zip(rooms).take(received).map(|(((header, control), sender), room)| Arrived {
            bytes: room.get(..header.msg_len as usize).unwrap_or_default(),
            segment: control.segment(header.msg_hdr.msg_controllen),
            sender: *sender,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        });
        Ok(arrived)
    }
}

impl Control {
    fn set_segment(&mut self, segment: u16) {
        let [low, high] = segment.to_ne_bytes();
        self.header.cmsg_level = libc::SOL_UDP;
        self.header.cmsg_type = libc::UDP_SEGMENT;
        self.header.cmsg_len = size_of::<libc::cmsghdr>() + 2;
        self.value[..2].copy_from_slice(&[low, high]);
    }

    /// What `UDP_GRO` says; zero: nothing. `len` is the length of all control messages, of which no other was asked for.
    fn segment(&self, len: usize) -> usize {
        let header = &self.header;
        let is_one = header.cmsg_len >= size_of::<libc::cmsghdr>() + 4 && len >= header.cmsg_len;
        if !is_one || header.cmsg_level != libc::SOL_UDP || header.cmsg_type != libc::UDP_GRO {
            return 0;
        }
        let [a, b, c, d, ..] = self.value;
        usize::try_from(i32::from_ne_bytes([a, b, c, d])).unwrap_or(0)
    }
}
