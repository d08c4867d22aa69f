//! A host with an address of each of two providers, and a server that has nothing but MPTCP in its kernel.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use sidestep_api::HostIdentity;
use sidestep_linux::{cgroup::Cgroup, netns::set_sysctl, testing::root_or_skip};
use sidestep_mptcp::daemon::{MptcpPmConfig, MptcpPmStatus};
use sidestep_pathchanger::daemon::{HostConfig, HostOptions, run_host};

use crate::{
    PATIENCE,
    daemon::Daemon,
    sockets,
    support::{Connection, Host, Pair, PathManager, Transfer},
};

/// How long what a change of addresses or routes brings about may take on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A client with wan0 and wan1 to a network of both providers, and a server behind it.
struct Network {
    pair: Pair,
    providers: Host,
}

/// An address family: the client's addresses, and the server's.
#[derive(Clone, Copy)]
struct Family {
    ip: &'static str,
    own: [&'static str; 2],
    via: [&'static str; 2],
    bits: u8,
    server: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family { ip: "-4", own: ["10.9.0.1", "10.9.1.1"], via: ["10.9.0.2", "10.9.1.2"], bits: 24, server: "10.2.0.1" },
    Family { ip: "-6", own: ["fd09::1", "fd09:1::1"], via: ["fd09::2", "fd09:1::2"], bits: 64, server: "fd02::1" },
];

impl Network {
    fn new() -> Self {
        let network = Self::without_rules();
        for Family { ip, own, via, .. } in FAMILIES {
            for k in 0..2 {
                network.client().ip(&format!("{ip} rule add from {} table 10{k} pref 100", own[k]));
                network.client().ip(&format!("{ip} route add default via {} table 10{k}", via[k]));
            }
        }
        network
    }

    /// All that the host sends leaves by the first provider, and each provider drops what has an address of the other.
    fn without_rules() -> Self {
        let (client, providers, server) = (Host::new(), Host::new(), Host::new());
        let of = |host: &Host| format!("/proc/{}/fd/{}", std::process::id(), host.0.raw_fd());
        for k in 0..2 {
            client.ip(&format!("link add wan{k} type veth peer name site{k} netns {}", of(&providers)));
            client.ip(&format!("link set wan{k} up"));
            providers.ip(&format!("link set site{k} up"));
        }
        server.ip(&format!("link add net type veth peer name server netns {}", of(&providers)));
        server.ip("link set net up");
        providers.ip("link set server up");
        providers.run(|| {
            set_sysctl("ipv4/ip_forward", "1").unwrap();
            set_sysctl("ipv6/conf/all/forwarding", "1").unwrap();
        });
        for family in FAMILIES {
            let Family { ip, own, via, bits, server: address } = family;
            let nodad = if ip == "-6" { "nodad" } else { "" };
            for k in 0..2 {
                client.ip(&format!("address add {}/{bits} dev wan{k} {nodad}", own[k]));
                providers.ip(&format!("address add {}/{bits} dev site{k} {nodad}", via[k]));
                providers.ip(&format!("{ip} rule add iif site{k} from {}/{bits} blackhole pref 9", own[1 - k]));
            }
            client.ip(&format!("{ip} route add default via {}", via[0]));
            let (here, there) = if ip == "-6" { ("fd08::1", "fd08::2") } else { ("10.8.0.1", "10.8.0.2") };
            providers.ip(&format!("address add {here}/{bits} dev server {nodad}"));
            server.ip(&format!("address add {there}/{bits} dev net {nodad}"));
            server.ip(&format!("address add {address} dev lo"));
            server.ip(&format!("{ip} route add default via {here}"));
            providers.ip(&format!("{ip} route add {address} via {there}"));
        }
        Network { pair: Pair::new(client, server), providers }
    }

    fn client(&self) -> &Host {
        &self.pair.client
    }

    /// The client's addresses that the connection has an established subflow from.
    fn sources(&self, connection: &Connection) -> BTreeSet<String> {
        self.of(&self.pair.client, connection, true)
    }

    /// The client's addresses that the server has a subflow from.
    fn seen_by_the_server(&self, connection: &Connection) -> BTreeSet<String> {
        self.of(&self.pair.server, connection, false)
    }

    fn of(&self, host: &Host, connection: &Connection, is_client: bool) -> BTreeSet<String> {
        let port = connection.client.peer_addr().unwrap().port();
        let ends = host.tcp().into_iter().filter(|one| one.subflow.is_some()).map(|one| one.ends);
        let (ours, theirs) = if is_client { (true, false) } else { (false, true) };
        ends.filter(|ends| ours && ends.remote.port() == port || theirs && ends.local.port() == port)
            .map(|ends| if is_client { ends.local.ip() } else { ends.remote.ip() }.to_string())
            .collect()
    }

    /// Waits until the connection has subflows from these addresses and no others.
    fn until(&self, what: &str, connection: &Connection, addresses: &[&str]) -> Duration {
        let (start, wanted) = (Instant::now(), addresses.iter().map(ToString::to_string).collect());
        self.client().within(SOON, what, || self.sources(connection) == wanted);
        start.elapsed()
    }

    /// What a provider does that fails without a word.
    fn silence(&self, k: usize, family: Family) {
        self.providers.ip(&format!("{} rule add iif site{k} blackhole pref 10", family.ip));
        self.providers.ip(&format!("{} rule add to {}/{} blackhole pref 11", family.ip, family.own[k], family.bits));
    }
}

/// A host agent at work in a namespace, for the sockets of a control group.
struct Agent {
    _daemon: Daemon<HostConfig>,
    group: Group,
}

/// A control group that is removed when dropped.
struct Group(Cgroup);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.0.destroy();
    }
}

impl Agent {
    /// Starts one whose paths are the two providers.
    fn start(host: &Host, name: &str) -> Self {
        let destination = |family: Family| {
            let path = |k: usize| format!("{{ name = \"p{k}\", via = \"{}\", dev = \"wan{k}\" }}", family.via[k]);
            let prefix = if family.ip == "-6" { "::/0" } else { "0.0.0.0/0" };
            format!("[[destination]]\nprefix = \"{prefix}\"\npath = [ {}, {} ]\n", path(0), path(1))
        };
        let file = format!("[pathchanger]\n{}{}", destination(FAMILIES[0]), destination(FAMILIES[1]));
        let group = Group(Cgroup::create(&format!("sidestep-test-{name}-{}", std::process::id())).unwrap());
        let options = HostOptions {
            controller: None,
            identity: HostIdentity::Node("host".into()),
            config: HostConfig::parse(&file).unwrap(),
            cgroup: group.0.path().into(),
            table_base: 8300,
            priority: 8300,
            pins: None,
            keep: false,
            dry_run: false,
            events: None,
        };
        let (daemon, is_ready) =
            Daemon::spawn(&host.0, |configs, ready, stopped| run_host(options, configs, ready, stopped));
        is_ready.recv_timeout(PATIENCE).expect("the agent is ready");
        Agent { _daemon: daemon, group }
    }
}

fn fullmesh(more: &str) -> MptcpPmConfig {
    MptcpPmConfig::parse(&format!("[subflows]\nmode = \"fullmesh\"\ncount = 8\n{more}\n")).unwrap()
}

fn why_not(status: &MptcpPmStatus, address: &str) -> String {
    let found = status.addresses.iter().find(|one| one.address.to_string() == address);
    found.and_then(|one| one.why_not.clone()).unwrap_or_default()
}

#[test]
fn an_address_of_a_bridge_that_leads_nowhere_begins_no_subflow_whatever_its_name() {
    if !root_or_skip("the path manager") {
        return;
    }
    let net = Network::new();
    for (n, name) in ["docker0", "inner"].into_iter().enumerate() {
        // Stands for a bridge, which not every kernel has.
        net.client().ip(&format!("link add {name} type veth peer name far{n}"));
        for link in [name, &format!("far{n}")] {
            net.client().ip(&format!("link set {link} up"));
        }
        net.client().ip(&format!("address add 172.1{n}.0.1/16 dev {name}"));
        net.client().ip(&format!("address add fd17:{n}::1/64 dev {name} nodad"));
    }
    let manager = PathManager::start(net.client(), fullmesh(""));
    for (n, family) in FAMILIES.into_iter().enumerate() {
        let connection = net.pair.connect(family.server);
        connection.exchange();
        net.until("both providers", &connection, &family.own);
        connection.exchange();
        net.client().eventually("an answer about each address", || {
            let (bridge, inner) = [("172.10.0.1", "172.11.0.1"), ("fd17::1", "fd17:1::1")][n];
            let status = manager.status();
            why_not(&status, bridge).contains("`docker*`") && why_not(&status, inner).contains("no route by inner")
        });
        assert_eq!(manager.counter("sidestep_mptcp_subflows_begun_total"), 1.0 + n as f64, "and none from a bridge");
        assert_eq!(why_not(&manager.status(), family.own[1]), "");
    }
}

#[test]
fn subflows_follow_addresses_and_routes_that_come_and_go_and_no_byte_is_lost() {
    if !root_or_skip("the path manager") {
        return;
    }
    for family in FAMILIES {
        let net = Network::new();
        let (client, Family { ip, own, via, bits, server }) = (net.client(), family);
        let nodad = if ip == "-6" { "nodad" } else { "" };
        let manager = PathManager::start(client, fullmesh(""));
        let transfer = Transfer::start(net.pair.connect(server));
        net.until("both providers", transfer.connection(), &own);

        client.ip(&format!("address del {}/{bits} dev wan1", own[1]));
        client.ip(&format!("{ip} route flush table 101"));
        let took = net.until("the end of a subflow without an address", transfer.connection(), &own[..1]);
        println!("{ip}: ended after {took:?}");
        // The other end is notified of it, though nothing leaves from that address any more.
        client.within(SOON, "the end at the server", || {
            net.seen_by_the_server(transfer.connection()) == [own[0].to_string()].into()
        });
        transfer.pass(100_000);

        // It comes before its routes: nothing is sent by the wrong provider, and it is used when they are there.
        client.ip(&format!("{ip} rule add from {} prohibit pref 50", own[1]));
        client.ip(&format!("address add {}/{bits} dev wan1 {nodad}", own[1]));
        client.eventually("no way yet", || why_not(&manager.status(), own[1]).contains("no route by wan1"));
        assert_eq!(manager.counter("sidestep_mptcp_subflows_begun_total"), 1.0);
        client.ip(&format!("{ip} rule del from {} pref 50", own[1]));
        client.ip(&format!("{ip} route add default via {} table 101", via[1]));
        let took = net.until("a subflow by the new route", transfer.connection(), &own);
        println!("{ip}: made again {took:?} after its route came");
        transfer.pass(100_000);

        // The address of the first subflow.
        client.ip(&format!("address del {}/{bits} dev wan0", own[0]));
        net.until("the end of the first subflow", transfer.connection(), &own[1..]);
        transfer.pass(1_000_000);
        client.ip(&format!("address add {}/{bits} dev wan0 {nodad}", own[0]));
        client.ip(&format!("{ip} route replace default via {} table 100", via[0]));
        net.until("both again", transfer.connection(), &own);

        // An interface without a carrier is as good as none.
        net.providers.ip("link set site1 down");
        net.until("the end of a subflow without a carrier", transfer.connection(), &own[..1]);
        transfer.pass(100_000);
        assert!(manager.counter("sidestep_mptcp_addresses_withdrawn_total") >= 2.0);
        transfer.finish();
    }
}

#[test]
fn a_deprecated_address_keeps_its_subflow_and_begins_none() {
    if !root_or_skip("the path manager") {
        return;
    }
    let net = Network::new();
    let (client, family) = (net.client(), FAMILIES[1]);
    let manager = PathManager::start(client, fullmesh(""));
    let early = net.pair.connect(family.server);
    early.exchange();
    net.until("both providers", &early, &family.own);
    client.ip(&format!("address change {}/64 dev wan1 preferred_lft 0", family.own[1]));
    client.eventually("news of it", || why_not(&manager.status(), family.own[1]) == "deprecated");
    let begun = manager.counter("sidestep_mptcp_subflows_begun_total");
    let late = net.pair.connect(family.server);
    late.exchange();
    late.exchange();
    early.exchange();
    assert_eq!(net.sources(&early), family.own.map(str::to_string).into());
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(manager.counter("sidestep_mptcp_subflows_begun_total"), begun);
}

#[test]
fn a_connection_survives_the_silent_death_of_the_provider_that_it_began_with() {
    if !root_or_skip("the path manager") {
        return;
    }
    for family in FAMILIES {
        let net = Network::new();
        let _manager = PathManager::start(net.client(), fullmesh(""));
        let transfer = Transfer::start(net.pair.connect(family.server));
        net.until("both providers", transfer.connection(), &family.own);
        transfer.pass(1_000_000);
        let start = Instant::now();
        net.silence(0, family);
        // What the dead one holds comes again by the other.
        transfer.pass(20_000_000);
        println!("{}: 20 MB after {:?}", family.ip, start.elapsed());
        transfer.finish();
    }
}

#[test]
fn path_manager_and_agent_know_the_same_paths_and_the_connection_survives_without_a_rule_for_its_sources() {
    if !root_or_skip("the path manager beside an agent") {
        return;
    }
    for family in FAMILIES {
        let net = Network::without_rules();
        let agent = Agent::start(net.client(), family.ip);
        let open = || {
            let version = if family.ip == "-6" { libc::AF_INET6 } else { libc::AF_INET };
            let socket = sockets::socket_of(&agent.group.0, &net.client().0, version, libc::IPPROTO_MPTCP);
            net.pair.connect_with(socket, family.server)
        };
        // By the host's own routes alone the other address leads nowhere.
        let manager = PathManager::start(net.client(), fullmesh(""));
        let connection = open();
        connection.exchange();
        let first = connection.client.local_addr().unwrap().ip().to_string();
        let other = family.own.into_iter().find(|address| *address != first).unwrap();
        let is_refused = || why_not(&manager.status(), other).contains("no route by wan");
        if other == family.own[1] {
            net.client().eventually("no way", is_refused);
            assert_eq!(net.sources(&connection), [first].into());
        }
        manager.stop();

        let manager = PathManager::start(net.client(), fullmesh("[addresses]\npaths = \"agent\""));
        let transfer = Transfer::start(open());
        net.until("both providers", transfer.connection(), &family.own);
        transfer.pass(1_000_000);
        let first = transfer.connection().client.local_addr().unwrap().ip().to_string();
        let dead = usize::from(first == family.own[1]);
        let start = Instant::now();
        net.silence(dead, family);
        transfer.pass(20_000_000);
        println!("{}: 20 MB after {:?}, begun with {first}", family.ip, start.elapsed());
        assert!(manager.counter("sidestep_mptcp_subflows_joined_total") >= 1.0);
        transfer.finish();
    }
}
