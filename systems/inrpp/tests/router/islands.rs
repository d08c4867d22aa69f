//! Partial deployment: two islands of INRPP over a plain network, by tunnels.
//!
//! ```text
//! h1 ── a ── p ── b ── h2        p knows nothing of INRPP, and may lose packets
//! ```

use std::{fs, thread, time::Duration};

use sidestep_linux::{
    netns::{NetNs, set_sysctl},
    testing::{cable, root_or_skip},
};

use crate::net::{Net, Over, ip};

/// The plain router, between `a` and `b` in the place of their link.
fn plain_network(net: &Net, loss_percent: u32) -> NetNs {
    let plain = NetNs::create().unwrap();
    let settings = [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1"), ("ipv6/conf/default/accept_dad", "0")];
    plain.run(|| settings.iter().try_for_each(|(name, value)| set_sysctl(name, value))).unwrap();
    cable((&net.a, "to-p"), (&plain, "to-a"), "10.8.1", "fd08:0:0:1");
    cable((&plain, "to-b"), (&net.b, "to-p"), "10.8.2", "fd08:0:0:2");
    for (node, link) in [(&net.a, "to-p"), (&plain, "to-a"), (&plain, "to-b"), (&net.b, "to-p")] {
        ip(node, &format!("tc qdisc add dev {link} root tbf rate {}mbit burst 20kb latency 30ms", net.rate));
    }
    for (node, far, net_of_far, via) in
        [(&net.a, "10.2.0.0/16", "10.8.2.0/24", "10.8.1.2"), (&net.b, "10.1.0.0/16", "10.8.1.0/24", "10.8.2.1")]
    {
        ip(node, &format!("route replace {far} via {via}"));
        ip(node, &format!("route replace {net_of_far} via {via}"));
    }
    ip(&plain, "route add 10.1.0.0/16 via 10.8.1.1");
    ip(&plain, "route add 10.2.0.0/16 via 10.8.2.2");
    if loss_percent > 0 {
        // Each packet may be lost by itself, and no super-packet as a whole.
        for node in [&net.a, &net.b] {
            ip(node, "link set to-p gso_max_segs 1");
        }
        for rule in [
            "add table inet loss".to_string(),
            "add chain inet loss forward { type filter hook forward priority 0; }".into(),
            format!("add rule inet loss forward numgen random mod 100 < {loss_percent} drop"),
        ] {
            crate::net::nft(&plain, &rule);
        }
    }
    plain
}

/// The files of both islands' routers.
fn config(net: &Net, over: Over) -> [(&'static str, String); 2] {
    [("a", ["10.8.1.1", "10.8.2.2", "b", "h1", "true"]), ("b", ["10.8.2.2", "10.8.1.1", "a", "h2", "false"])].map(
        |(name, [own, other, neighbour, edge, listen])| {
            let link = match over {
                Over::Tcp => format!("link = \"tcp\"\nlisten = {listen}\n"),
                _ => "link = \"udp\"\n".into(),
            };
            // TCP's headers, and what it sends again, need a part of the link.
            let rate = u64::from(net.rate) * if over == Over::Tcp { 950 } else { 985 };
            let text = format!(
                "[inrpp]\nname = \"{name}\"\ncache = \"2 MB\"\n[[neighbour]]\nname = \"{neighbour}\"\ninterface = \"to-p\"\n\
                 rate = \"{rate} kbit/s\"\n{link}local = \"{own}\"\nremote = \"{other}\"\nkey_file = \"none\"\n\
                 [[edge]]\ninterface = \"{edge}\"\n"
            );
            (name, text)
        },
    )
}

#[test]
fn two_islands_work_over_a_plain_network_and_a_tunnel_by_tcp_repeats_what_that_loses() {
    if !root_or_skip("routers") {
        return;
    }
    for loss in [0, 1] {
        let net = Net::new(50);
        let plain = plain_network(&net, loss);
        let measure = |what: &str| {
            let (before, began) = (net.sent_again(), std::time::Instant::now());
            let streams: Vec<_> = (0..4).map(|_| net.stream(false, 1_000)).collect();
            thread::sleep(Duration::from_millis(1_500));
            let bytes: usize = streams.into_iter().map(|stream| stream.end_with_bytes().0).sum();
            let mbits = bytes as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e6;
            let again = net.sent_again() - before;
            println!("loss {loss} %, {what}: {mbits:.1} Mbit/s, {again} segments sent again");
            (mbits, again)
        };
        let (without, _) = measure("no INRPP");
        for over in [Over::Udp, Over::Tcp] {
            let files = config(&net, over);
            let routers = [&net.a, &net.b].into_iter().zip(files).map(|(node, (name, text))| {
                let path = net.files.path().join(format!("{name}.toml"));
                fs::write(&path, text).unwrap();
                net.start_file(node, &path)
            });
            let routers: Vec<_> = routers.collect();
            net.answers(&net.a);
            net.answers(&net.b);
            let (mbits, again) = measure(&format!("{over:?}"));
            let dropped: u64 = [&net.a, &net.b]
                .map(|node| net.status(node).unwrap().ports.iter().map(|port| port.dropped).sum())
                .iter()
                .sum();
            assert_eq!(dropped, 0);
            match (loss, over) {
                (0, _) => assert!(mbits > 35.0 && again < 50, "{mbits} {again}"),
                (_, Over::Tcp) => assert!(again < 50, "the tunnel repeats: {again}"),
                _ => assert!(mbits > without / 2.0, "{mbits} for {without}"),
            }
            drop(routers);
        }
        drop(plain);
    }
}
