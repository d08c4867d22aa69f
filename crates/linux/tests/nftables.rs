//! The table that draws paths for packets without a socket, in namespaces of their own.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    process::Command,
    thread,
    time::Duration,
};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, connect, setsockopt, socket, sockopt,
};
use sidestep_linux::{
    Result,
    netlink::{Family, block_on},
    netns::NetNs,
    nftables::{Draw, DrawTable, Share, flush_ruleset},
    testing::root_or_skip,
};

const TABLE: &str = "sidestep-test";
const MASK: u32 = 0xff00;

/// A client and a server with three links between them; marks 0x100, 0x200 and 0x300 are the links from the server back.
///
/// The server's default route back is the first link, and the client does not receive what comes on it.
struct Links {
    client: NetNs,
    server: NetNs,
}

fn sh(namespace: &NetNs, script: &str) {
    let script = format!("set -e\n{script}");
    let status = namespace.run(|| Ok(Command::new("sh").args(["-c", &script]).status().unwrap())).unwrap();
    assert!(status.success(), "{script}");
}

impl Links {
    fn build() -> Self {
        let links = Links { client: NetNs::create().unwrap(), server: NetNs::create().unwrap() };
        links
            .server
            .run(|| {
                block_on(async |netlink| {
                    for link in 0..3 {
                        netlink.add_veth(&format!("b{link}"), &format!("a{link}")).await?;
                        let there = std::os::fd::AsFd::as_fd(&links.client);
                        netlink
                            .move_to(netlink.index_of(&format!("a{link}")).await?, &format!("a{link}"), there)
                            .await?;
                    }
                    Ok(())
                })
            })
            .unwrap();
        let each = |script: &str| (0..3).map(|link| script.replace('N', &link.to_string()) + "\n").collect::<String>();
        sh(
            &links.client,
            &("ip link set lo up\n".to_string()
                + &each(
                    "
            ip link set aN up; ip addr add fd77:N::2/64 dev aN nodad; ip addr add 10.77.N.2/24 dev aN
            sysctl -qw net.ipv4.conf.aN.rp_filter=0",
                )
                + "
            ip addr add 2001:db8:1::1/128 dev lo nodad; ip addr add 192.0.2.1/32 dev lo
            ip route add 2001:db8:5::/48 via fd77:1::1 src 2001:db8:1::1
            ip route add 198.51.100.0/24 via 10.77.1.1 src 192.0.2.1"),
        );
        sh(&links.server, &("ip link set lo up\n".to_string() + &each("
            ip link set bN up; ip addr add fd77:N::1/64 dev bN nodad; ip addr add 10.77.N.1/24 dev bN
            sysctl -qw net.ipv4.conf.bN.rp_filter=0 net.ipv4.conf.all.rp_filter=0
            ip -6 route add default via fd77:N::2 table $((8301+N)); ip route add default via 10.77.N.2 table $((8301+N))
            ip -6 rule add pref 8300 fwmark $(((N+1)*256))/0xff00 lookup $((8301+N))
            ip rule add pref 8300 fwmark $(((N+1)*256))/0xff00 lookup $((8301+N))") + "
            ip addr add 2001:db8:5::9/128 dev lo nodad; ip addr add 198.51.100.9/32 dev lo
            ip route add 2001:db8:1::/48 via fd77:0::2; ip route add 192.0.2.0/24 via 10.77.0.2
            ip neigh replace fd77:0::2 lladdr 02:00:00:00:00:99 dev b0 nud permanent
            ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:99 dev b0 nud permanent"));
        links
    }

    /// The table in the server's namespace.
    fn table<T: Send>(&self, work: impl FnOnce(&mut DrawTable) -> Result<T> + Send) -> T {
        self.server.run(|| work(&mut DrawTable::open(TABLE, MASK)?)).unwrap()
    }

    /// How many of `count` connections, opened at once, are established within `wait`.
    fn connect(&self, count: usize, to: &str, wait: Duration) -> usize {
        let to = SocketAddr::new(to.parse::<IpAddr>().unwrap(), 7777);
        let one = || self.client.run(|| Ok(TcpStream::connect_timeout(&to, wait).is_ok())).unwrap();
        thread::scope(|scope| {
            let all: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|one| usize::from(one.join().unwrap())).sum()
        })
    }

    fn listen(&self, at: &str) -> TcpListener {
        let at = SocketAddr::new(at.parse::<IpAddr>().unwrap(), 7777);
        self.server.run(|| Ok(TcpListener::bind(at).unwrap())).unwrap()
    }

    /// Connects to a port where no process listens, `count` times in a row, and returns how many resets came back.
    fn refused(&self, count: usize, to: &str) -> usize {
        let to = SocketAddr::new(to.parse::<IpAddr>().unwrap(), 7779);
        let refused = |_: &usize| {
            let error = TcpStream::connect_timeout(&to, Duration::from_secs(3)).unwrap_err();
            error.kind() == ErrorKind::ConnectionRefused
        };
        self.client.run(|| Ok((0..count).filter(refused).count())).unwrap()
    }

    /// Packets that the server has sent on each link.
    fn sent(&self) -> [u64; 3] {
        let read = |link| {
            let lines = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            let line = lines.lines().find(|line| line.trim().starts_with(&format!("b{link}:"))).unwrap();
            line.split_whitespace().nth(10).unwrap().parse::<u64>().unwrap()
        };
        self.server.run(|| Ok([read(0), read(1), read(2)])).unwrap()
    }
}

fn draw(destination: &str, weights: [u32; 3]) -> Draw {
    let share = |(index, weight)| Share { mark: (index as u32 + 1) << 8, weight, sources: Vec::new(), unnamed: false };
    let shares = weights.into_iter().enumerate().filter(|(_, weight)| *weight > 0).map(share).collect();
    Draw { destination: destination.parse().unwrap(), shares }
}

#[test]
fn new_connections_survive_a_dead_default_route_by_a_path_for_each_syn_ack() {
    if !root_or_skip("nf_tables") {
        return;
    }
    let links = Links::build();
    for (server, client, others) in
        [("2001:db8:5::9", "2001:db8:1::/48", "2001:db8:1:2::/64"), ("198.51.100.9", "192.0.2.0/24", "192.0.2.128/25")]
    {
        let _listener = links.listen(server);
        links.table(DrawTable::remove);
        assert_eq!(links.connect(2, server, Duration::from_millis(1_300)), 0, "{server}: the default route is dead");
        // Every second transmission takes the dead path, and is made again after a second.
        links.table(|table| table.replace(&[draw(client, [2, 1, 1]), draw(others, [1, 0, 0])]));
        assert_eq!(links.connect(8, server, Duration::from_secs(16)), 8, "{server}");
        // A longer prefix without paths is left alone.
        let hole = client.replace("/48", "/120").replace("/24", "/30");
        links.table(|table| table.replace(&[draw(client, [0, 1, 1]), draw(&hole, [0, 0, 0])]));
        assert_eq!(links.connect(2, server, Duration::from_millis(1_300)), 0, "{server}: its clients are in the hole");
    }
}

#[test]
fn paths_are_drawn_by_weight_and_source_and_replaced_at_once() {
    if !root_or_skip("nf_tables") {
        return;
    }
    let links = Links::build();
    let weights = |weights| vec![draw("2001:db8:1::/48", weights), draw("192.0.2.0/24", weights)];
    links.table(|table| table.replace(&weights([0, 1, 3])));
    for server in ["2001:db8:5::9", "198.51.100.9"] {
        // The client asks for its neighbour once on each link.
        links.refused(4, server);
        let before = links.sent();
        assert_eq!(links.refused(200, server), 200, "resets are drawn a path");
        let sent: Vec<_> = links.sent().iter().zip(before).map(|(now, before)| now - before).collect();
        assert!((110..190).contains(&sent[2]) && sent[1] + sent[2] >= 200, "{server}: {sent:?} for 0, 1 and 3 parts");
    }
    let only = links.table(|table| {
        table.reweigh(0, &draw("2001:db8:1::/48", [0, 1, 0]))?;
        table.reweigh(1, &draw("192.0.2.0/24", [0, 1, 0]))?;
        Ok(links.sent())
    });
    assert_eq!((links.refused(40, "2001:db8:5::9"), links.refused(40, "198.51.100.9")), (40, 40));
    assert!(links.sent()[2] - only[2] < 5, "nothing by the third link");

    // The source of a reply is fixed: only paths that may carry it are drawn.
    let mut one = draw("2001:db8:1::/48", [0, 1, 1]);
    one.shares[0].sources = vec!["2001:db8:5::/48".parse().unwrap()];
    one.shares[1].sources = vec!["2001:db8:6::/48".parse().unwrap()];
    links.table(|table| table.replace(std::slice::from_ref(&one)));
    let before = links.sent();
    assert_eq!(links.refused(40, "2001:db8:5::9"), 40);
    assert!(links.sent()[2] - before[2] < 5, "the third link does not carry this source");
}

/// Connects from the server's namespace to `to` by the second link, and sends a byte and receives it, then one by the third
/// link; returns whether that came back, too.
fn moves(links: &Links, listener: &TcpListener, to: &str) -> bool {
    let address = SocketAddr::new(to.parse().unwrap(), 7777);
    let domain = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            // The end of a connection that is lost does not arrive.
            stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            let mut byte = [0];
            while let Ok(1) = stream.read(&mut byte) {
                stream.write_all(&byte).unwrap();
            }
        });
        let talk = || {
            let socket = socket(domain, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
            setsockopt(&socket, sockopt::Mark, &0x200).unwrap();
            match address {
                SocketAddr::V4(to) => connect(socket.as_raw_fd(), &SockaddrIn::from(to)).unwrap(),
                SocketAddr::V6(to) => connect(socket.as_raw_fd(), &SockaddrIn6::from(to)).unwrap(),
            }
            let mut stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let mut echo = || stream.write_all(b"x").and_then(|()| stream.read_exact(&mut [0])).is_ok();
            assert!(echo(), "{to}: by its first path");
            setsockopt(&stream, sockopt::Mark, &0x300).unwrap();
            let mut echo = || stream.write_all(b"x").and_then(|()| stream.read_exact(&mut [0])).is_ok();
            Ok(echo() && echo())
        };
        links.server.run(talk).unwrap()
    })
}

#[test]
fn a_connection_that_another_program_masquerades_survives_a_move_where_sources_are_kept() {
    if !root_or_skip("nf_tables") {
        return;
    }
    let links = Links::build();
    // As a host with two providers has it.
    sh(
        &links.server,
        "nft 'add table inet nat { chain out { type nat hook postrouting priority srcnat; masquerade; }; }'",
    );
    for to in ["2001:db8:1::1", "192.0.2.1"] {
        let address = SocketAddr::new(to.parse().unwrap(), 7777);
        let listener = links.client.run(|| Ok(TcpListener::bind(address).unwrap())).unwrap();
        let moves_with = |keep| {
            links.table(|table| table.keep_sources(Family::of(address.ip().into()), keep));
            moves(&links, &listener, to)
        };
        assert!(!moves_with(false), "{to}: the kernel drops what it knows of a masqueraded connection");
        assert!(moves_with(true), "{to}");
    }
}

#[test]
fn bits_of_the_mark_that_are_not_ours_stay_and_a_mark_under_the_mask_is_left_alone() {
    if !root_or_skip("nf_tables") {
        return;
    }
    let links = Links::build();
    links.table(|table| table.replace(&[draw("2001:db8:1::/48", [0, 1, 0])]));
    // Resets carry the mark of what they answer.
    sh(&links.server, "sysctl -qw net.ipv6.fwmark_reflect=1");
    let with = |mark: u32| {
        // Before us, as another program's table might.
        sh(&links.server, &format!("nft -f - <<'N'
            table ip6 other {{
                chain pre {{ type filter hook prerouting priority -300; meta mark set {mark:#x}; }};
                chain post {{ type filter hook postrouting priority 0; tcp flags & rst == rst meta mark 0x10204 counter; }};
            }}
N"));
        let came = links.refused(3, "2001:db8:5::9");
        let listing =
            links.server.run(|| Ok(Command::new("nft").args(["list", "table", "ip6", "other"]).output().unwrap()));
        let listing = String::from_utf8(listing.unwrap().stdout).unwrap();
        sh(&links.server, "nft delete table ip6 other");
        // On a busy machine a SYN may be sent again, and is refused again.
        let counted = listing.split_once("counter packets ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        (came, counted.is_some_and(|resets: u32| resets >= 3))
    };
    assert_eq!(with(0x10004), (3, true), "ours is added to the others");
    assert_eq!(with(0x10104).0, 0, "the mark of the dead link is not ours to change");
}

#[test]
fn a_table_that_is_changed_or_flushed_by_others_shows_it() {
    if !root_or_skip("nf_tables") {
        return;
    }
    let namespace = NetNs::create().unwrap();
    namespace
        .run(|| {
            let mut table = DrawTable::open(TABLE, MASK)?;
            assert_eq!((table.fingerprint()?, table.remove()?), (None, false));
            let draws: Vec<_> = (0..600).map(|n| draw(&format!("2001:db8:{n:x}::/48"), [1, n + 1, 1])).collect();
            table.replace(&draws)?;
            let (generation, print) = (table.generation()?, table.fingerprint()?);
            assert!(print.is_some());
            assert_eq!((table.generation()?, table.fingerprint()?), (generation, print), "reading changes nothing");

            let nft = |script: &str| assert!(Command::new("nft").arg(script).status().unwrap().success(), "{script}");
            nft("add table inet another");
            assert_ne!(table.generation()?, generation);
            assert_eq!(table.fingerprint()?, print, "a table of another program");
            nft(&format!("flush chain inet {TABLE} to-3"));
            assert_ne!(table.fingerprint()?, print);
            table.replace(&draws)?;
            let print = table.fingerprint()?;
            table.reweigh(599, &draw("2001:db8:257::/48", [1, 0, 5]))?;
            assert_ne!(table.fingerprint()?, print);
            let print = table.fingerprint()?;
            table.keep_sources(Family::V4, true)?;
            assert_ne!(table.fingerprint()?, print);
            table.keep_sources(Family::V4, false)?;
            assert_eq!(table.fingerprint()?, print, "nothing of it is left");
            table.keep_sources(Family::V6, true)?;
            assert!(table.remove()?);
            let tables = Command::new("nft").args(["list", "tables"]).output().unwrap().stdout;
            assert_eq!(String::from_utf8(tables).unwrap(), "table inet another\n");
            table.replace(&draws)?;
            flush_ruleset()?;
            assert_eq!(table.fingerprint()?, None);
            table.replace(&draws[..1])?;
            assert_eq!((table.remove()?, table.fingerprint()?), (true, None));
            Ok(())
        })
        .unwrap();
}
