//! The traffic: streams of both families and directions, connections that are idle, and datagrams.

use std::{
    io::{Read, Write},
    net::{TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::net::{Net, block, uninterrupted};

/// Longer than any connection may be silent.
const SILENCE: Duration = Duration::from_secs(10);
/// Mbit/s of a stream: those of one direction are more than the links carry.
const RATE: f64 = 60.0;

/// Traffic that goes on until it is ended.
pub struct Load {
    stop: Arc<AtomicBool>,
    flows: Vec<Flow>,
    idle: Vec<(TcpStream, TcpStream)>,
}

struct Flow {
    name: String,
    received: Arc<AtomicU64>,
    threads: Vec<JoinHandle<u64>>,
}

impl Load {
    pub fn start(net: &Net) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let mut load = Load { stop, flows: Vec::new(), idle: Vec::new() };
        for v6 in [true, false] {
            for back in [true, false] {
                let (client, server) = net.connection(v6);
                let (from, to) = if back { (server, client) } else { (client, server) };
                load.add_stream(format!("the stream v6 {v6} back {back}"), from, to);
                load.idle.push(net.connection(v6));
            }
        }
        load.add_datagrams(net);
        load
    }

    /// Waits until all that carries data has carried more.
    pub fn goes_on(&mut self, after: &str, patience: Duration) {
        let counts =
            |load: &Load| -> Vec<u64> { load.flows.iter().map(|flow| flow.received.load(Ordering::Relaxed)).collect() };
        let (before, began) = (counts(self), Instant::now());
        loop {
            for flow in &self.flows {
                let is_over = flow.threads.iter().any(JoinHandle::is_finished);
                assert!(!is_over, "{} was lost: {after}", flow.name);
            }
            // More than what waited at its end.
            let waits: Vec<&str> = self
                .flows
                .iter()
                .zip(counts(self))
                .zip(&before)
                .filter(|((_, now), before)| *now <= *before + 2)
                .map(|((flow, _), _)| flow.name.as_str())
                .collect();
            if waits.is_empty() {
                return;
            }
            assert!(began.elapsed() < patience, "{waits:?} do not go on: {after}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it: all that was sent has arrived, and connections that were idle answer.
    pub fn end(self) -> String {
        for (client, server) in &self.idle {
            for (mut from, mut to) in [(client, server), (server, client)] {
                from.write_all(b"ping").unwrap();
                let mut got = [0; 4];
                to.read_exact(&mut got).unwrap();
                assert_eq!(&got, b"ping");
            }
        }
        self.stop.store(true, Ordering::Relaxed);
        let mut report = Vec::new();
        for flow in self.flows {
            let [sent, received] =
                flow.threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()[..]
            else {
                panic!("two threads a flow");
            };
            let is_stream = flow.name.contains("stream");
            assert!(received == sent || !is_stream, "{}: {received} of {sent}", flow.name);
            report.push(format!("{}: {received} of {sent}", flow.name));
        }
        report.join(", ")
    }

    fn add_stream(&mut self, name: String, mut from: TcpStream, mut to: TcpStream) {
        let (stop, received) = (Arc::clone(&self.stop), Arc::new(AtomicU64::new(0)));
        for end in [&from, &to] {
            end.set_read_timeout(Some(SILENCE)).unwrap();
            end.set_write_timeout(Some(SILENCE)).unwrap();
        }
        let sending = thread::spawn(move || {
            let (mut began, mut since, mut sent) = (Instant::now(), 0.0, 0_usize);
            while !stop.load(Ordering::Relaxed) {
                if since > began.elapsed().as_secs_f64() * RATE * 1e6 / 8.0 {
                    thread::sleep(Duration::from_millis(2));
                    continue;
                }
                from.write_all(&block(sent, 16_384)).unwrap();
                sent += 16_384;
                since += 16_384.0;
                // What was missed is not sent in a burst.
                if began.elapsed() > Duration::from_secs(1) {
                    (began, since) = (Instant::now(), 0.0);
                }
            }
            from.shutdown(std::net::Shutdown::Write).unwrap();
            sent as u64
        });
        let count = Arc::clone(&received);
        let receiving = thread::spawn(move || {
            let (mut received, mut buffer) = (0, vec![0; 65_536]);
            loop {
                let len = uninterrupted(|| to.read(&mut buffer)).unwrap();
                if len == 0 {
                    return received as u64;
                }
                assert!(buffer[..len] == block(received, len)[..], "a byte differs after {received}");
                received += len;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        self.flows.push(Flow { name, received, threads: vec![sending, receiving] });
    }

    /// A datagram every five milliseconds; some may be lost.
    fn add_datagrams(&mut self, net: &Net) {
        let bind = |address: &str| UdpSocket::bind(address).unwrap();
        let to = net.h2.run(|| Ok(bind("10.2.0.2:0"))).unwrap();
        let from = net.h1.run(|| Ok(bind("10.1.0.1:0"))).unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        to.set_read_timeout(Some(SILENCE)).unwrap();
        let (stop, received) = (Arc::clone(&self.stop), Arc::new(AtomicU64::new(0)));
        let sending = thread::spawn(move || {
            let mut sent = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                // Without a route for a moment it cannot be sent.
                sent += u64::from(from.send(&sent.to_be_bytes()).is_ok());
                thread::sleep(Duration::from_millis(5));
            }
            for _ in 0..20 {
                let _ = from.send(&u64::MAX.to_be_bytes());
            }
            sent
        });
        let count = Arc::clone(&received);
        let receiving = thread::spawn(move || {
            let (mut buffer, mut received) = ([0; 8], 0);
            while uninterrupted(|| to.recv(&mut buffer)).unwrap() == 8 && u64::from_be_bytes(buffer) != u64::MAX {
                received += 1;
                count.fetch_add(1, Ordering::Relaxed);
            }
            received
        });
        self.flows.push(Flow { name: "datagrams".into(), received, threads: vec![sending, receiving] });
    }
}
