//! Where a controller listens: `unix:/path/to.sock`, or TCP.
//!
//! There is no TLS: TCP is for loopback and management networks; a Unix socket is for its owner only.

use std::{
    fs, io,
    net::SocketAddr,
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use thiserror::Error;
use tokio::net::{TcpListener, UnixListener, UnixSocket, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server, server::TcpIncoming};

use crate::proto::path_control_server::{PathControl, PathControlServer};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often an idle connection is checked, so that a peer that vanished is noticed.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// How long the answer to that check may take.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most calls of one connection at a time; an agent needs three.
const MAX_STREAMS: u32 = 64;
/// The largest message from an agent: [`MAX_ITEMS`](crate::MAX_ITEMS) counters fit.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 128;

/// An endpoint that cannot be used.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// The text is not an endpoint.
    #[error("`{endpoint}` is not an endpoint: {problem}")]
    Syntax {
        /// What was read.
        endpoint: String,
        /// What is wrong, and what to write.
        problem: &'static str,
    },
    /// No controller answers at the endpoint.
    #[error("cannot connect to `{endpoint}`: {reason}")]
    Connect {
        /// The endpoint.
        endpoint: String,
        /// Why.
        reason: String,
    },
    /// The endpoint cannot be listened on.
    #[error("cannot listen on `{endpoint}`")]
    Listen {
        /// The endpoint.
        endpoint: String,
        /// Why.
        source: io::Error,
    },
}

/// Connects to the controller at `unix:/path/to.sock` or `http://host:port`.
pub async fn connect(endpoint: &str) -> Result<Channel, EndpointError> {
    let target = client_endpoint(endpoint)?;
    target.connect().await.map_err(|error| EndpointError::Connect { endpoint: endpoint.into(), reason: chain(&error) })
}

/// Listens at `unix:/path/to.sock` or `tcp:[addr]:port`.
///
/// The socket file is its owner's only (0600); one that a dead process left behind is replaced, one that is in use not.
pub async fn listen(endpoint: &str) -> Result<Listener, EndpointError> {
    let failed = |source| EndpointError::Listen { endpoint: endpoint.into(), source };
    if let Some(path) = endpoint.strip_prefix("unix:") {
        let path = unix_path(endpoint, path)?;
        let listener = bind_unix(&path).await.map_err(failed)?;
        return Ok(Listener(Socket::Unix(listener, SocketFile(path))));
    }
    let address =
        endpoint.strip_prefix("tcp:").or_else(|| endpoint.strip_prefix("http://")).ok_or(EndpointError::Syntax {
            endpoint: endpoint.into(),
            problem: "write `unix:/path/to.sock` or `tcp:[::1]:7000`",
        })?;
    let address: SocketAddr = address.parse().map_err(|_| EndpointError::Syntax {
        endpoint: endpoint.into(),
        problem: "write a numeric address and a port, such as `tcp:[::1]:7000`",
    })?;
    TcpListener::bind(address).await.map(|listener| Listener(Socket::Tcp(listener))).map_err(failed)
}

/// A socket that agents can connect to; its file is removed when it is dropped.
#[derive(Debug)]
pub struct Listener(Socket);

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

#[derive(Debug)]
struct SocketFile(PathBuf);

impl Listener {
    /// The endpoint to give to [`connect`]; has the real port when the system chose it.
    pub fn endpoint(&self) -> io::Result<String> {
        Ok(match &self.0 {
            Socket::Tcp(listener) => format!("http://{}", listener.local_addr()?),
            Socket::Unix(_, file) => format!("unix:{}", file.0.display()),
        })
    }

    /// Answers with `service` until `shutdown`, then waits for the calls in progress.
    pub async fn serve(
        self,
        service: impl PathControl,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), tonic::transport::Error> {
        let service = PathControlServer::new(service)
            .max_decoding_message_size(MAX_REQUEST_BYTES)
            .max_encoding_message_size(crate::MAX_MESSAGE_BYTES);
        let server = Server::builder()
            .max_concurrent_streams(MAX_STREAMS)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT));
        match self.0 {
            Socket::Tcp(listener) => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                server.serve_with_incoming_shutdown(service, incoming, shutdown).await
            }
            Socket::Unix(listener, _file) => {
                server.serve_with_incoming_shutdown(service, UnixListenerStream::new(listener), shutdown).await
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If this fails, the next start replaces the file.
        let _ = fs::remove_file(&self.0);
    }
}

/// The target of [`connect`], checked but not connected.
pub(crate) fn client_endpoint(endpoint: &str) -> Result<Endpoint, EndpointError> {
    const HOW: &str = "write `unix:/path/to.sock` or `http://[::1]:7000`";
    let bad = |problem| EndpointError::Syntax { endpoint: endpoint.into(), problem };
    let target = if let Some(path) = endpoint.strip_prefix("unix:") {
        unix_path(endpoint, path)?;
        Endpoint::from_shared(endpoint.to_owned()).map_err(|_| bad(HOW))?
    } else if endpoint.starts_with("http://") {
        let target = Endpoint::from_shared(endpoint.to_owned()).map_err(|_| bad(HOW))?;
        if target.uri().port_u16().is_none() || !matches!(target.uri().path(), "" | "/") {
            return Err(bad("write a host and a port and nothing else, such as `http://[::1]:7000`"));
        }
        target
    } else {
        return Err(bad(HOW));
    };
    Ok(target
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true))
}

/// An error with all its causes, on one line; `tonic` by itself prints only "transport error".
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        cause = error.source();
    }
    text
}

fn unix_path(endpoint: &str, path: &str) -> Result<PathBuf, EndpointError> {
    let absolute = path.starts_with('/') && !path.starts_with("//") && !path.ends_with('/');
    absolute.then(|| PathBuf::from(path)).ok_or(EndpointError::Syntax {
        endpoint: endpoint.into(),
        problem: "write the absolute path of the socket with one slash in front, such as `unix:/run/sidestep.sock`",
    })
}

async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers there"));
        }
        fs::remove_file(path)?;
    }
    let socket = UnixSocket::new_stream()?;
    // Linux gives the file the mode that the socket has when it is bound: at no time can others connect.
    fs::File::from(socket.as_fd().try_clone_to_owned()?).set_permissions(fs::Permissions::from_mode(0o600))?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_test<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    #[test]
    fn a_bad_endpoint_is_refused_with_what_to_write() {
        for bad in [
            "",
            "localhost:7000",
            "unix:",
            "unix:relative.sock",
            "unix:///three",
            "http://[::1]",
            "http://h:1/x",
            "https://h:1",
        ] {
            let error = in_test(connect(bad)).unwrap_err();
            assert!(matches!(error, EndpointError::Syntax { .. }), "{bad}: {error}");
        }
        for bad in ["tcp:7000", "tcp:localhost:7000", "udp:[::1]:7000", "unix:x", "tcp:[::1]:70000"] {
            let error = in_test(listen(bad)).unwrap_err();
            assert!(matches!(error, EndpointError::Syntax { .. }), "{bad}: {error}");
        }
        let error = in_test(connect("ftp:x")).unwrap_err().to_string();
        assert_eq!(error, "`ftp:x` is not an endpoint: write `unix:/path/to.sock` or `http://[::1]:7000`");
    }

    #[test]
    fn an_endpoint_where_no_process_listens_is_an_error_that_shows_why() {
        let error = in_test(connect("unix:/nonexistent/x.sock")).unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
    }

    #[test]
    fn the_socket_file_is_private_and_goes_with_the_listener() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.sock");
        let endpoint = format!("unix:{}", path.display());
        in_test(async {
            let listener = listen(&endpoint).await.unwrap();
            assert_eq!(listener.endpoint().unwrap(), endpoint);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            let second = listen(&endpoint).await.unwrap_err();
            assert!(matches!(second, EndpointError::Listen { .. }), "{second}");
            drop(listener);
            assert!(!path.exists());
        });
    }

    #[test]
    fn a_stale_socket_is_replaced_but_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        in_test(listen(&format!("unix:{}", path.display()))).unwrap();
        fs::write(&path, "precious").unwrap();
        in_test(listen(&format!("unix:{}", path.display()))).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_port_that_the_system_chose_is_reported() {
        in_test(async {
            let listener = listen("tcp:[::1]:0").await.unwrap();
            let endpoint = listener.endpoint().unwrap();
            assert!(endpoint.starts_with("http://[::1]:") && !endpoint.ends_with(":0"), "{endpoint}");
            client_endpoint(&endpoint).unwrap();
        });
    }
}
