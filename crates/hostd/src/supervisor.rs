//! The service manager, by the protocol of `sd_notify(3)`.

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

use sd_notify::{NotifyState, watchdog_enabled};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Pings for each time that the service manager waits for one.
const PINGS: u32 = 3;

/// The service manager, or none.
///
/// It is never waited for but to report that the daemon is ready: one that does not read must not hold the daemon up.
#[derive(Debug)]
pub struct Supervisor {
    /// Where it reads.
    address: Option<SocketAddr>,
    /// How often it wants to be pinged; `None` if it does not.
    period: Option<Duration>,
    pings: Option<Interval>,
    status: String,
}

impl Supervisor {
    /// The service manager that the environment names.
    pub fn from_env() -> Self {
        let address = env::var_os("NOTIFY_SOCKET").and_then(|address| read_address(&address).ok());
        let period = watchdog_enabled().map(|patience| patience / PINGS);
        Supervisor { address, period, pings: None, status: String::new() }
    }

    /// Reports that the daemon does its work.
    pub fn ready(&self) {
        self.notify(&NotifyState::Ready, true);
    }

    /// Reports that the daemon ends.
    pub fn stopping(&self) {
        self.notify(&NotifyState::Stopping, false);
    }

    /// Reports that another process has taken this one's place; it must be one of the same unit.
    pub fn succeeded_by(&self, process: u32) {
        self.notify(&NotifyState::MainPid(process), true);
    }

    /// Reports what matters now, in one line; the same again is not reported twice.
    pub fn status(&mut self, status: &str) {
        if self.status != status {
            // A line break would end the message.
            let line = status.replace(['\n', '\r'], " ");
            if self.notify(&NotifyState::Status(&line), false) {
                status.clone_into(&mut self.status);
            }
        }
    }

    /// Waits until a ping is due; for ever where no service manager waits for any. Needs a Tokio runtime.
    pub async fn due(&mut self) {
        let Some(period) = self.period.filter(|period| !period.is_zero()) else { return std::future::pending().await };
        let pings = self.pings.get_or_insert_with(|| {
            let mut pings = interval(period);
            pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
            pings
        });
        pings.tick().await;
    }

    /// Shows that the daemon's loop turns.
    pub fn ping(&self) {
        self.notify(&NotifyState::Watchdog, false);
    }

    /// Sends a message, and returns whether it need not be sent again. Unless it `waits`, there has to be room for it.
    fn notify(&self, state: &NotifyState<'_>, waits: bool) -> bool {
        let Some(address) = &self.address else { return true };
        let send = || {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(!waits)?;
            socket.send_to_addr(state.to_string().as_bytes(), address)
        };
        let sent = send();
        if let Err(error) = &sent {
            tracing::debug!(%error, "the service manager does not listen");
        }
        sent.is_ok()
    }
}

/// The address that `NOTIFY_SOCKET` names: a file, or after an `@` an abstract name.
fn read_address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_that_does_not_read_holds_no_daemon_up_and_receives_the_last_status_later() {
        let name = format!("@sidestep-hostd-test.{}", std::process::id());
        let address = read_address(OsStr::new(&name)).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let mut supervisor = Supervisor { address: Some(address), period: None, pings: None, status: String::new() };
        let read = || {
            let mut buffer = [0; 100];
            let length = manager.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        supervisor.ready();
        supervisor.status("first\nline");
        supervisor.status("first\nline");
        supervisor.ping();
        supervisor.succeeded_by(7);
        assert_eq!([read(), read(), read(), read()], ["READY=1", "STATUS=first line", "WATCHDOG=1", "MAINPID=7"]);

        // More than the kernel keeps for it (`net.unix.max_dgram_qlen`).
        for _ in 0..1_000 {
            supervisor.ping();
        }
        supervisor.status("second");
        manager.set_nonblocking(true).unwrap();
        while manager.recv(&mut [0; 100]).is_ok() {}
        supervisor.status("second");
        assert_eq!(read(), "STATUS=second");
    }
}
