//! MPTCP and its path managers, tried at a connection of the trial's namespace to itself.

use std::{
    io::{self, Read, Write},
    net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, Socket, Type};

use super::{
    Finding, Findings,
    machine::{present_with, sysctl},
};
use crate::{
    error::{LinuxError, Result},
    mptcp::{ManagerSetting, NewSubflow, RefusalKind, SubflowRequests, tcp_ends},
    sock_diag::SockDiag,
};

/// Settings of the namespace that the process was started in.
pub(super) struct Settings {
    enabled: Option<String>,
    manager: Option<ManagerSetting>,
}

/// How long a connection may take to be one that can have further subflows.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

impl Settings {
    pub(super) fn read() -> Self {
        Settings { enabled: sysctl("mptcp/enabled"), manager: ManagerSetting::current().ok() }
    }
}

/// Tries what this module can, in the calling thread's network namespace, whose loopback interface is up.
pub(super) fn probe(settings: &Settings) -> Findings {
    if let Err(error) = socket() {
        let missing = || Finding::Missing(format!("{error}; the kernel needs CONFIG_MPTCP"));
        return ["mptcp", "mptcp-pm", "mptcp-id-0"].map(|id| (id, missing())).into();
    }
    let (manager, first_address) = match further_subflow() {
        Ok(None) => (present(settings), Finding::present()),
        Ok(Some(words)) => (present(settings), Finding::Missing(format!("the kernel says: {words}"))),
        Err(error) => (Finding::failed(&error), Finding::Untried("needs a path manager".into())),
    };
    let enabled = settings.enabled.as_deref();
    vec![("mptcp", present_with("mptcp/enabled", enabled)), ("mptcp-pm", manager), ("mptcp-id-0", first_address)]
}

/// The finding that paths can be left to a program, with what is set now.
fn present(settings: &Settings) -> Finding {
    let now = settings.manager.as_ref().map(|now| format!("net.mptcp.{} is {} here", now.sysctl, now.value));
    Finding::Present(now.unwrap_or_default())
}

/// Opens a connection whose paths are left to this program, and asks for a further subflow from its first address.
///
/// Returns the kernel's words if it has such connections, but takes 0 for no number of an address.
fn further_subflow() -> Result<Option<String>> {
    let failed = |error: io::Error| LinuxError::io("opening a connection of MPTCP", error);
    ManagerSetting::current()?.for_programs().set()?;
    let mut requests = SubflowRequests::open()?;
    let (client, server) = connection().map_err(failed)?;
    let mut diag = SockDiag::open()?;
    let start = Instant::now();
    loop {
        // Data in both directions shows each end that the other one uses MPTCP.
        for (mut from, mut to) in [(&client, &server), (&server, &client)] {
            from.write_all(b"x").map_err(failed)?;
            to.read_exact(&mut [0]).map_err(failed)?;
        }
        let listed = tcp_ends(&mut diag)?;
        let first = listed.iter().find_map(|entry| {
            Some((entry.ends, entry.subflow.filter(|subflow| subflow.opened_here && subflow.is_first)?.token))
        });
        let asked = first.map(|(ends, token)| {
            let local = SocketAddr::new(ends.local.ip(), 0);
            requests.create(&NewSubflow { token, local, local_id: 0, remote: ends.remote, remote_id: 0 })
        });
        match asked {
            Some(Ok(())) => return Ok(None),
            Some(Err(refusal)) if refusal.kind == RefusalKind::NeedsId => return Ok(Some(refusal.to_string())),
            Some(Err(refusal)) if refusal.kind != RefusalKind::NotConnected => {
                return Err(failed(io::Error::other(refusal.to_string())));
            }
            None if start.elapsed() > PATIENCE => return Err(failed(io::Error::other("it is plain TCP"))),
            Some(Err(refusal)) if start.elapsed() > PATIENCE => {
                return Err(failed(io::Error::other(refusal.to_string())));
            }
            _ => thread::sleep(PAUSE),
        }
    }
}

/// Both ends of a connection of MPTCP.
fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let (listener, client) = (socket()?, socket()?);
    listener.bind(&SocketAddr::from((Ipv6Addr::LOCALHOST, 0)).into())?;
    listener.listen(1)?;
    let listener = TcpListener::from(listener);
    client.connect_timeout(&listener.local_addr()?.into(), PATIENCE)?;
    let (client, server) = (TcpStream::from(client), listener.accept()?.0);
    for end in [&client, &server] {
        end.set_read_timeout(Some(PATIENCE))?;
    }
    Ok((client, server))
}

fn socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::MPTCP))
}
