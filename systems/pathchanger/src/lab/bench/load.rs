//! Traffic as fast as the two ends can send and receive it.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    socket::{setsockopt, sockopt},
    time::TimeVal,
};
use sidestep_lab::LabError;
use sidestep_linux::{LinuxError, cpu_seconds};

use super::stage::{PORT, SERVER, Stage};

/// An amount of traffic, and the time that it took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    amount: f64,
    seconds: f64,
    cpu_seconds: f64,
}

/// How long the server waits for a client, in seconds.
const PATIENCE: i64 = 10;
const CHUNK: usize = 128 << 10;

impl Sample {
    /// The amount per second.
    pub fn per_second(&self) -> f64 {
        self.amount / self.seconds.max(1e-9)
    }

    /// The amount per second of this process's CPU time, which includes both ends and the kernel's work for them.
    pub fn per_cpu_second(&self) -> f64 {
        self.amount / self.cpu_seconds.max(1e-9)
    }
}

/// Bytes that one connection carries.
pub fn transfer(stage: &Stage, seconds: f64) -> Result<Sample, LabError> {
    let listener = listen(stage)?;
    let sender = || {
        stage.host.run(|| {
            let mut stream = open()?;
            let end = Instant::now() + duration(seconds);
            let chunk = vec![0; CHUNK];
            while Instant::now() < end {
                stream.write_all(&chunk).map_err(failed("sending"))?;
            }
            Ok(())
        })
    };
    sample(|| {
        thread::scope(|scope| {
            let sender = scope.spawn(sender);
            let (mut stream, _) = listener.accept().map_err(failed("accepting"))?;
            let mut buffer = vec![0; CHUNK];
            let mut bytes = 0;
            loop {
                match stream.read(&mut buffer).map_err(failed("receiving"))? {
                    0 => break,
                    read => bytes += read,
                }
            }
            join(sender)?;
            Ok(bytes as f64)
        })
    })
}

/// Connections that are opened, accepted, and closed by the server and then by the client.
pub fn connect(stage: &Stage, seconds: f64) -> Result<Sample, LabError> {
    let listener = listen(stage)?;
    let done = AtomicBool::new(false);
    let client = || {
        let result = stage.host.run(|| {
            let end = Instant::now() + duration(seconds);
            let mut count = 0u32;
            while Instant::now() < end {
                let mut stream = open()?;
                stream.read(&mut [0]).map_err(failed("waiting for the end of a connection"))?;
                // Without this option, the port would stay in TIME-WAIT for a minute.
                let none = libc::linger { l_onoff: 1, l_linger: 0 };
                setsockopt(&stream, sockopt::Linger, &none).map_err(|errno| failed("closing")(errno.into()))?;
                count += 1;
            }
            Ok(count)
        });
        done.store(true, Ordering::Relaxed);
        // A last connection wakes the server, which then notices the end.
        let _ = stage.host.run(open);
        result
    };
    sample(|| {
        thread::scope(|scope| {
            let client = scope.spawn(client);
            while !done.load(Ordering::Relaxed) {
                drop(listener.accept().map_err(failed("accepting"))?);
            }
            Ok(f64::from(join(client)?))
        })
    })
}

/// Opens the server's listening socket.
fn listen(stage: &Stage) -> Result<TcpListener, LabError> {
    let listen = || {
        let listener = TcpListener::bind((SERVER, PORT))?;
        // The server does not wait forever for a client that fails to connect.
        setsockopt(&listener, sockopt::ReceiveTimeout, &TimeVal::new(PATIENCE, 0))?;
        Ok(listener)
    };
    Ok(stage.server.run(|| listen().map_err(failed("listening")))?)
}

/// Connects to the server, from the calling thread's namespace.
pub fn open() -> Result<TcpStream, LinuxError> {
    TcpStream::connect((SERVER, PORT)).map_err(failed("connecting"))
}

/// Names what of the benchmark's traffic failed.
pub fn failed(what: &'static str) -> impl Fn(std::io::Error) -> LinuxError {
    move |error| LinuxError::io(format!("{what}, in a benchmark"), error)
}

fn sample(work: impl FnOnce() -> Result<f64, LinuxError>) -> Result<Sample, LabError> {
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let amount = work()?;
    Ok(Sample { amount, seconds: begun.elapsed().as_secs_f64(), cpu_seconds: cpu_seconds() - cpu })
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, Result<T, LinuxError>>) -> Result<T, LinuxError> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
