//! What passes the egresses of a site is measured, over real wires.

#![expect(clippy::disallowed_methods, reason = "tests of the kernel have a clock and threads")]

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use sidestep_linux::{
    monotonic_now,
    netlink::{self, Interface, Netlink},
    netns::NetNs,
    sock_diag::TcpInfo,
    testing::{
        egresses::{DELAYS, Net, PATIENCE, TARGETS, channel, ip},
        root_or_skip,
    },
};
use sidestep_net::{Bytes, Channel, Ratio};
use sidestep_route_control::daemon::passive::{self, MAX_EGRESSES, Passive, PassiveSample};

const PORT: u16 = 5001;
const MEGABYTE: usize = 1_000_000;

/// Measures both egresses of the site.
fn measure(net: &Net) -> Passive {
    let attach = async |netlink: &Netlink| {
        let mut passive = Passive::load(1_000)?;
        for (egress, name) in ["egress0", "egress1"].into_iter().enumerate() {
            passive.attach(netlink, &interface(netlink, name).await, egress).await?;
        }
        Ok(passive)
    };
    net.site.run(|| netlink::block_on(attach)).unwrap()
}

async fn interface(netlink: &Netlink, name: &str) -> Interface {
    let interfaces = netlink.interfaces().await.unwrap();
    interfaces.into_iter().find(|interface| interface.name == name).unwrap()
}

/// A server at the far end: it sends this number of bytes to each client, reads until there is no more, and closes.
fn serve(net: &Net, target: &str, connections: usize, sends: usize) -> thread::JoinHandle<usize> {
    let listener = net.far.run(|| Ok(TcpListener::bind((target, PORT)).unwrap())).unwrap();
    thread::spawn(move || {
        let mut read = 0;
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&vec![7; sends]).unwrap();
            let mut bytes = Vec::new();
            read += stream.read_to_end(&mut bytes).unwrap();
        }
        read
    })
}

fn connect(net: &Net, target: &str) -> TcpStream {
    let stream = net.site.run(|| Ok(TcpStream::connect((target, PORT)).unwrap())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Ends what this end sends, and reads until the other end has all of it; the number of bytes read, and what the kernel reports.
fn finish(mut stream: TcpStream) -> (usize, TcpInfo) {
    stream.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes).unwrap();
    (read, TcpInfo::of(&stream).unwrap())
}

fn lossy(delay: sidestep_net::Span) -> Channel {
    Channel { loss: Ratio::from_ppb(20_000_000), ..channel(delay) }
}

/// Bytes that the kernel has sent by an interface, without Ethernet headers, and packets.
fn sent_by(net: &Net, interface: &str) -> (u64, u64) {
    let read = || {
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:"))).unwrap();
        let fields: Vec<u64> = line.split_whitespace().map(|field| field.parse().unwrap()).collect();
        Ok((fields[8], fields[9]))
    };
    let (bytes, packets) = net.site.run(read).unwrap();
    (bytes - 14 * packets, packets)
}

#[test]
fn a_transfer_over_a_lossy_wire_is_measured_as_its_ends_see_it() {
    if !root_or_skip("measuring what passes by BPF") {
        return;
    }
    for (egress, losses) in [(0, false), (1, false), (1, true)] {
        let there = if losses { DELAYS.map(lossy) } else { DELAYS.map(channel) };
        let net = Net::with(there, DELAYS.map(channel));
        net.route_by(egress);
        for target in TARGETS {
            let mut passive = measure(&net);
            let before = sent_by(&net, &format!("egress{egress}"));
            let server = serve(&net, target, 1, 0);
            let start = monotonic_now();
            let mut stream = connect(&net, target);
            stream.write_all(&vec![7; MEGABYTE]).unwrap();
            let (_, info) = finish(stream);
            assert_eq!(server.join().unwrap(), MEGABYTE);
            let samples = passive.sample().unwrap();
            println!("{target} by egress {egress}, losses {losses}: {:?} {info:?}", &samples[..2]);
            let sample = samples[egress];
            let after = sent_by(&net, &format!("egress{egress}"));

            assert_eq!(sample.acked, Bytes::new(MEGABYTE as u64));
            assert_eq!(sample.retransmitted, u64::from(info.retrans_total), "{info:?}");
            assert!(!losses || sample.retransmitted > 0);
            assert_eq!(sample.connections, 1);
            // A few packets are of the kernel itself, such as those that ask for the neighbour's address.
            let (bytes, packets) = (after.0 - before.0, after.1 - before.1);
            assert!(sample.packets.abs_diff(packets) < 20, "{sample:?} of {packets} packets");
            assert!(sample.bytes.get().abs_diff(bytes) < 2_000, "{sample:?} of {bytes} bytes");
            assert!(sample.data_segments >= MEGABYTE as u64 / 1_460 && sample.data_segments < sample.packets);
            let rtt = sample.rtt.unwrap();
            // None is faster than the wire. On a busy machine all may be slower, as the sender sees, too.
            let least = 2 * DELAYS[egress].as_nanos();
            let most = least.max(u64::from(info.min_rtt_us) * 1_000) + 10_000_000;
            assert!((least..most).contains(&rtt.least.as_nanos()), "{rtt:?}, {info:?}");
            assert!(rtt.mean >= rtt.least && rtt.count >= 3, "{rtt:?}");
            assert!((start..=monotonic_now()).contains(&sample.last_advance.unwrap()));

            let again = passive.sample().unwrap();
            let last_advance = sample.last_advance;
            assert_eq!((again[egress].acked, again[egress].connections, again[egress].rtt), (Bytes::new(0), 0, None));
            assert_eq!(again[egress].last_advance, last_advance);
            assert_eq!(again[1 - egress].acked, Bytes::new(0));
        }
    }
}

#[test]
fn what_moves_in_mid_connection_is_shared_between_its_egresses() {
    if !root_or_skip("measuring what passes by BPF") {
        return;
    }
    let net = Net::lossless();
    let mut passive = measure(&net);
    let server = serve(&net, TARGETS[0], 1, 0);
    let mut stream = connect(&net, TARGETS[0]);
    let mut sum = [0; 2];
    let mut add = |samples: [PassiveSample; MAX_EGRESSES]| {
        sum.iter_mut().zip(&samples).for_each(|(sum, sample)| *sum += sample.acked.get());
        sum
    };
    // Its acknowledgements come by the first egress all the time: there is its source address.
    for egress in [0, 1] {
        net.route_by(egress);
        stream.write_all(&vec![7; MEGABYTE]).unwrap();
        let start = Instant::now();
        while add(passive.sample().unwrap()).iter().sum::<u64>() < (egress as u64 + 1) * MEGABYTE as u64 {
            assert!(start.elapsed() < PATIENCE, "{sum:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
    finish(stream);
    server.join().unwrap();
    assert_eq!(add(passive.sample().unwrap()), [MEGABYTE as u64; 2]);
}

#[test]
fn what_comes_in_counts_when_it_is_acknowledged_and_connections_count_once_a_sample() {
    if !root_or_skip("measuring what passes by BPF") {
        return;
    }
    let net = Net::with(DELAYS.map(channel), DELAYS.map(lossy));
    let mut passive = measure(&net);
    let server = serve(&net, TARGETS[1], 3, MEGABYTE / 4);
    let mut streams = [(); 3].map(|()| connect(&net, TARGETS[1]));
    for stream in &mut streams {
        stream.write_all(b"give").unwrap();
        stream.write_all(b" me").unwrap();
    }
    for stream in streams {
        assert_eq!(finish(stream).0, MEGABYTE / 4);
    }
    assert_eq!(server.join().unwrap(), 3 * 7);
    let sample = passive.sample().unwrap()[0];
    // With the last bytes comes a FIN, which has a number, too.
    let received = sample.received.get();
    assert!((3 * MEGABYTE as u64 / 4..=3 * MEGABYTE as u64 / 4 + 3).contains(&received), "{received}");
    assert_eq!((sample.acked, sample.connections), (Bytes::new(3 * 7), 3));
}

#[test]
fn filters_of_others_stay_and_ours_go_with_their_owner_or_by_hand() {
    if !root_or_skip("attaching filters") {
        return;
    }
    /// A filter of another program that does nothing; `_` stands for a space within an argument.
    const FOREIGN: &str = "protocol all bpf bytecode 1,6_0_0_0,";
    let tc = |arguments: &str| {
        let words = arguments.split(' ').map(|word| word.replace('_', " "));
        let output = Command::new("tc").args(words).output().expect("iproute2 is installed");
        assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let work = || {
        netlink::block_on(async |netlink| {
            netlink.add_veth("a", "b").await?;
            let a = interface(netlink, "a").await;
            tc("qdisc add dev a clsact");
            ["ingress", "egress"]
                .iter()
                .for_each(|side| drop(tc(&format!("filter add dev a {side} prio 7 {FOREIGN}"))));
            let shown = || ["ingress", "egress"].map(|side| tc(&format!("filter show dev a {side}")));
            let foreign = shown();
            let mut first = Passive::load(10)?;
            first.attach(netlink, &a, 0).await?;
            // As a killed daemon leaves them: the next one takes their place.
            std::mem::forget(first);
            let mut second = Passive::load(10)?;
            assert!(!second.is_attached(netlink, a.index).await?, "another's programs are not these");
            second.attach(netlink, &a, 0).await?;
            assert!(second.is_attached(netlink, a.index).await?);
            assert_eq!(netlink.ingress_filters(a.index).await?.len(), 2, "the first was replaced");
            assert_eq!(netlink.egress_filters(a.index).await?.len(), 2);
            drop(second);
            assert_eq!(shown(), foreign);
            let mut third = Passive::load(10)?;
            third.attach(netlink, &a, 0).await?;
            std::mem::forget(third);
            assert!(passive::remove(netlink, a.index).await?);
            assert!(!passive::remove(netlink, a.index).await?);
            assert_eq!(shown(), foreign);

            // A filter of another program in our place stays, and is named.
            tc(&format!("filter add dev a egress prio 82 handle 0x5357 {FOREIGN}"));
            let taken = shown();
            let mut refused = Passive::load(10)?;
            let error = refused.attach(netlink, &a, 0).await.unwrap_err().to_string();
            assert!(error.contains("of somebody else has priority 82 and handle 0x5357"), "{error}");
            assert!(!passive::remove(netlink, a.index).await?);
            drop(refused);
            assert_eq!(shown(), taken);
            let mut most = Passive::load(10)?;
            assert!(most.attach(netlink, &a, MAX_EGRESSES).await.is_err());
            Ok(())
        })
    };
    NetNs::create().and_then(|namespace| namespace.run(work)).unwrap();
}

#[test]
fn the_verifier_has_room_to_spare() {
    if !root_or_skip("loading BPF programs") {
        return;
    }
    let _loaded = Passive::load(10).unwrap();
    let ours = libbpf_rs::query::ProgInfoIter::default().filter(|program| {
        let name = program.name.to_string_lossy().into_owned();
        name == "sidestep_out" || name == "sidestep_in"
    });
    let verified = ours.map(|program| program.verified_insns).max().unwrap();
    println!("the verifier walked {verified} instructions of the passive measurement");
    // Kernels since 5.2 give up at a million, and older verifiers prune less than this one.
    assert!((1..200_000).contains(&verified), "{verified}");
}

/// Bytes in a second that one connection carries over a veth pair, and the processor's seconds for a gigabyte.
fn throughput(site: &NetNs, far: &NetNs) -> (f64, f64) {
    const LASTS: Duration = Duration::from_secs(2);
    let listener = far.run(|| Ok(TcpListener::bind("10.0.0.2:5001").unwrap())).unwrap();
    let reader = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 18];
        let mut read = 0;
        while let Ok(length) = stream.read(&mut buffer)
            && length > 0
        {
            read += length;
        }
        read as f64
    });
    let mut stream = site.run(|| Ok(TcpStream::connect("10.0.0.2:5001").unwrap())).unwrap();
    let buffer = vec![7; 1 << 18];
    let (start, cpu) = (Instant::now(), sidestep_linux::cpu_seconds());
    while start.elapsed() < LASTS {
        stream.write_all(&buffer).unwrap();
    }
    drop(stream);
    let read = reader.join().unwrap();
    (read / start.elapsed().as_secs_f64(), (sidestep_linux::cpu_seconds() - cpu) / (read / 1e9))
}

#[test]
#[ignore = "a measurement; needs a quiet machine"]
fn throughput_with_and_without() {
    const PAIRS: usize = 20;
    // The median of 20 lies between the sixth and the fifteenth of them, in 95.9 of 100 cases.
    const SURE: [usize; 2] = [5, 14];
    let (site, far) = (NetNs::create().unwrap(), NetNs::create().unwrap());
    ip(&site, "link add egress0 type veth peer name b");
    let far_file = &far;
    site.run(|| {
        netlink::block_on(async |netlink| {
            let index = netlink.index_of("b").await?;
            netlink.move_to(index, "egress0", std::os::fd::AsFd::as_fd(far_file)).await
        })
    })
    .unwrap();
    for (namespace, own) in [(&site, 1), (&far, 2)] {
        ip(namespace, "link set egress0 up");
        ip(namespace, &format!("address add 10.0.0.{own}/24 dev egress0"));
    }
    for segments in [true, false] {
        if !segments {
            // Each packet by itself, as without offloads.
            for namespace in [&site, &far] {
                namespace
                    .run(|| {
                        let output = Command::new("ethtool")
                            .args(["-K", "egress0", "tso", "off", "gso", "off", "gro", "off"])
                            .output()
                            .expect("ethtool is installed");
                        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                        Ok(())
                    })
                    .unwrap();
            }
        }
        let with = |look: &dyn Fn()| {
            let attach = async |netlink: &Netlink| {
                let mut passive = Passive::load(1_000)?;
                passive.attach(netlink, &interface(netlink, "egress0").await, 0).await?;
                Ok(passive)
            };
            let mut passive = site.run(|| netlink::block_on(attach)).unwrap();
            let carried = throughput(&site, &far);
            assert!(passive.sample().unwrap()[0].acked > Bytes::new(1_000_000));
            look();
            carried
        };
        let mut ratios = Vec::new();
        let mut costs = Vec::new();
        for pair in 0..PAIRS {
            let with = || with(&|| {});
            let (with, without) = match pair % 2 {
                0 => {
                    let with = with();
                    (with, throughput(&site, &far))
                }
                _ => {
                    let without = throughput(&site, &far);
                    (with(), without)
                }
            };
            ratios.push(with.0 / without.0);
            costs.push(with.1 / without.1);
            println!(
                "{:.2} and {:.2} Gbit/s, CPU s/GB {:.3} and {:.3}",
                with.0 * 8e-9,
                without.0 * 8e-9,
                with.1,
                without.1
            );
        }
        ratios.sort_by(f64::total_cmp);
        costs.sort_by(f64::total_cmp);
        println!(
            "offloads {segments}: throughput with / without, median {:.3} ({:.3} to {:.3}), all {:.3} to {:.3}; CPU for a byte {:.3}",
            (ratios[PAIRS / 2 - 1] + ratios[PAIRS / 2]) / 2.0,
            ratios[SURE[0]],
            ratios[SURE[1]],
            ratios[0],
            ratios[PAIRS - 1],
            (costs[PAIRS / 2 - 1] + costs[PAIRS / 2]) / 2.0
        );
        // While this is open, the kernel takes the time of each run, which costs some itself.
        // SAFETY: the call takes a number, and gives a descriptor that no other code has.
        let stats = unsafe { libbpf_rs::libbpf_sys::bpf_enable_stats(0) };
        assert!(stats >= 0);
        // SAFETY: as above.
        let _stats = unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(stats) };
        with(&|| {
            for program in libbpf_rs::query::ProgInfoIter::default() {
                let name = program.name.to_string_lossy().into_owned();
                if program.run_cnt > 0 && (name == "sidestep_out" || name == "sidestep_in") {
                    println!("{name}: {} ns a run, of {}", program.run_time_ns / program.run_cnt, program.run_cnt);
                }
            }
        });
    }
}
