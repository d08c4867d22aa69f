//! Bytes that keep flowing through a connection.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sidestep_linux::sock_diag::TcpInfo;

use super::PATIENCE;

/// About 16 Mbit/s from one socket to the other: enough to notice an outage, not enough to fill a queue.
pub struct Flow {
    pub sender: TcpStream,
    receiver: TcpStream,
    received: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

const CHUNK: usize = 10_000;
const PAUSE: Duration = Duration::from_millis(5);

impl Flow {
    pub fn start((sender, receiver): (TcpStream, TcpStream)) -> Flow {
        let received = Arc::new(AtomicU64::new(0));
        let (mut out, mut into, count) =
            (sender.try_clone().unwrap(), receiver.try_clone().unwrap(), Arc::clone(&received));
        let write = move || {
            while out.write_all(&[0; CHUNK]).is_ok() {
                thread::sleep(PAUSE);
            }
        };
        let read = move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length @ 1..) = into.read(&mut buffer) {
                count.fetch_add(length as u64, Ordering::Relaxed);
            }
        };
        Flow { sender, receiver, received, threads: vec![thread::spawn(write), thread::spawn(read)] }
    }

    /// Waits until this many more bytes have arrived; returns how long that took.
    pub fn pass(&self, bytes: u64) -> Duration {
        let (start, before) = (Instant::now(), self.received());
        while self.received() < before + bytes {
            let passed = self.received() - before;
            assert!(start.elapsed() < PATIENCE, "{passed} bytes passed: {:?}", TcpInfo::of(&self.sender));
            thread::sleep(Duration::from_millis(1));
        }
        start.elapsed()
    }

    /// How many bytes have arrived.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let _ = self.sender.shutdown(Shutdown::Both);
        let _ = self.receiver.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
