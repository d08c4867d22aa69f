//! The socket behind all requests: rtnetlink's handle, and the task that reads the answers.

use rtnetlink::Handle;
use tokio::task::JoinHandle;

use crate::error::{LinuxError, Result};

/// A netlink socket in the namespace of the thread that opened it; closed when dropped.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) handle: Handle,
    connection: JoinHandle<()>,
    strict: bool,
}

impl Socket {
    /// Opens a socket; needs a Tokio runtime. Only for a `strict` one does the kernel filter the routes that it lists.
    pub(super) fn open(strict: bool) -> Result<Self> {
        let opened = if strict { rtnetlink::new_connection_with_strict_check() } else { rtnetlink::new_connection() };
        let failed = |error| LinuxError::io("opening a netlink socket", error);
        let (connection, handle, _) = opened.map_err(failed)?;
        Ok(Socket { handle, connection: tokio::spawn(connection), strict })
    }

    /// Opens it again, in the calling thread's namespace, if it has failed: a send or receive that the kernel refuses ends it,
    /// and all requests fail from then on.
    pub(super) fn renew(&mut self) -> Result<()> {
        if self.connection.is_finished() {
            *self = Socket::open(self.strict)?;
        }
        Ok(())
    }

    /// The result of a request, unless the socket has failed meanwhile: then an answer is missing, which rtnetlink takes for
    /// success.
    pub(super) fn answered<T>(
        &self,
        result: std::result::Result<T, rtnetlink::Error>,
    ) -> std::result::Result<T, rtnetlink::Error> {
        if self.connection.is_finished() { result.and(Err(rtnetlink::Error::RequestFailed)) } else { result }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
