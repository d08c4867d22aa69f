//! What a hop in user space costs, beside the kernel's.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use super::{
    hosts,
    net::{Kind, Net, Running},
};

/// Sends over TCP for a while; returns Gbit/s.
fn stream(net: &Net, span: Duration) -> f64 {
    let to = hosts(true).1;
    let listener = net.h2.run(|| Ok(TcpListener::bind((to, 5001)).unwrap())).unwrap();
    let mut sender = net.connect(to);
    let (mut receiver, _) = listener.accept().unwrap();
    let begin = Instant::now();
    let writer = thread::spawn(move || {
        let block = vec![7; 1 << 18];
        while begin.elapsed() < span {
            sender.write_all(&block).unwrap();
        }
    });
    let (mut buffer, mut total) = (vec![0; 1 << 18], 0);
    loop {
        match receiver.read(&mut buffer).unwrap() {
            0 => break,
            read => total += read,
        }
    }
    writer.join().unwrap();
    total as f64 * 8e-9 / begin.elapsed().as_secs_f64()
}

#[test]
#[ignore = "a measurement; needs root and a quiet machine"]
fn packets_a_cpu_second_and_hop() {
    const SPAN: Duration = Duration::from_secs(2);
    let net = Net::new();
    println!("the kernel: {:.1} Gbit/s", stream(&net, SPAN));
    for (kind, burst) in [
        (Kind::UdpV6, 64),
        (Kind::UdpV6, 24),
        (Kind::UdpV6, 8),
        (Kind::UdpV6, 2),
        (Kind::UdpV6, 1),
        (Kind::Ethernet, 64),
        (Kind::Tcp, 64),
    ] {
        let [one, two] = [0, 1].map(|which| net.start(which, net.hop(which, kind, burst)));
        thread::sleep(Duration::from_millis(300));
        let rate = stream(&net, SPAN);
        let watches = [&one, &two].map(|hop| hop.watch.clone());
        drop([one, two].map(Running::stop));
        let sum = |of: fn(&super::hop::Watch) -> u64| watches.iter().map(|watch| of(watch)).sum::<u64>();
        let sent = sum(|watch| watch.sent.load(Ordering::Relaxed));
        let reads = sum(|watch| watch.reads.load(Ordering::Relaxed));
        let cpu = sum(|watch| watch.cpu_us.load(Ordering::Relaxed)) as f64 * 1e-6;
        // Each packet passes two processes, which are two hops.
        println!(
            "{kind:?}, bursts of {burst}: {rate:.1} Gbit/s, {:.0} k packets per CPU-second and hop, {:.1} a read",
            sent as f64 * 2.0 / cpu * 1e-3,
            sent as f64 / reads as f64
        );
    }
}
