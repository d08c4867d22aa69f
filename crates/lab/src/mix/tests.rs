use sidestep_proto::mptcp::MptcpSettings;
use sidestep_scenario::SystemInfo;

use super::*;
use crate::system::{Run, System};

/// Plain TCP.
struct Plain;
/// A system whose routers hash flow labels.
struct Labels;
/// A system whose daemon `agent` moves connections, with settings that are its parameters.
struct Agents;

impl System for Plain {
    fn info(&self) -> SystemInfo {
        SystemInfo::plain("tcp", "plain TCP")
    }

    fn setup(&self, _: &Run<'_>) -> Result<Setup, LabError> {
        Ok(Setup::new(Multipath::Single))
    }
}

impl System for Labels {
    fn info(&self) -> SystemInfo {
        SystemInfo::plain("labels", "flow labels")
    }

    fn setup(&self, _: &Run<'_>) -> Result<Setup, LabError> {
        let sysctls = vec![("core/txrehash", "1".into())];
        Ok(Setup { hash: Hash::FlowLabel, rehash: true, sysctls, ..Setup::new(Multipath::Ecmp) })
    }
}

impl System for Agents {
    fn info(&self) -> SystemInfo {
        SystemInfo::with_settings::<MptcpSettings>("agents", "agents on hosts", "mptcp")
    }

    fn setup(&self, run: &Run<'_>) -> Result<Setup, LabError> {
        let settings: MptcpSettings = run.settings()?;
        let agent = Daemon::on("agent", settings, [], |_, around| Ok(around.command([]))).steering();
        Ok(Setup { daemons: vec![agent], ..Setup::new(Multipath::Ecmp) })
    }
}

/// A run of `system` over two equal paths, with flows that also have these keys.
fn mix(system: &str, flows: &[&str]) -> Result<RunPlan, LabError> {
    let flows: String =
        flows.iter().map(|more| format!("[[flow]]\nkind = \"bulk\"\nfrom = \"c1\"\nto = \"s1\"\n{more}\n")).collect();
    let network = "[topology]\ngenerator = \"parallel-paths\"\necmp = true\n[tcp]\ncongestion_control = \"reno\"\n";
    let scenario = Scenario::parse(&format!("duration = \"1 s\"\n{network}{flows}"), "test").unwrap();
    let registry = Registry::new().with(Plain).with(Labels).with(Agents);
    RunPlan::of(&registry, &scenario, &system.parse().unwrap())
}

#[test]
fn routers_serve_the_flows_that_ask_for_most() {
    let plain = mix("tcp", &[""]).unwrap();
    assert_eq!((plain.multipath, plain.hash, plain.notes.len()), (Multipath::Single, Hash::Ports, 0));
    let mixed = mix("tcp", &["", "system = \"labels\""]).unwrap();
    assert_eq!((mixed.multipath, mixed.hash, mixed.notes.len()), (Multipath::Ecmp, Hash::FlowLabel, 1));
    assert_eq!([0, 1].map(|flow| mixed.carried(flow).socket.rehash), [Some(false), Some(true)]);
    assert!(mixed.sysctls().contains(&("ipv6/fib_multipath_hash_policy", "0".into())));
}

#[test]
fn agents_leave_the_flows_of_other_systems_alone() {
    let mix = mix("tcp", &["", "system = \"agents\"", "system = \"agents\""]).unwrap();
    assert_eq!([0, 1, 2].map(|flow| mix.carried(flow).steered), [false, true, true]);
    assert!(mix.leaves_some_alone() && mix.daemons.len() == 1);
}

#[test]
fn what_belongs_to_whole_hosts_cannot_differ_between_flows() {
    let refused = |system: &str, flows: &[&str]| match mix(system, flows) {
        Err(LabError::Flow { number, problem, .. }) => (number, problem),
        other => panic!("{other:?}"),
    };
    let (number, problem) = refused("agents", &["", "system = \"agents:subflows=3\""]);
    assert!(number == 1 && problem.contains("a node has one"), "{problem}");
    let (number, problem) = refused("tcp", &["tcp = { min_rto = \"10 ms\" }"]);
    assert!(number == 0 && problem.contains("`congestion_control` and `receive_window`"), "{problem}");
    let (_, problem) = refused("tcp", &["tcp = { congestion_control = \"nosuch\" }"]);
    assert!(problem.contains("`nosuch`"), "{problem}");
}

#[test]
fn buffers_have_room_for_the_largest_window() {
    let wide = mix("tcp", &["", "tcp = { receive_window = \"20 MB\" }"]).unwrap();
    assert_eq!([0, 1].map(|flow| wide.carried(flow).socket.window), [Some(6_000_000), Some(20_000_000)]);
    assert!(wide.sysctls().contains(&("ipv4/tcp_rmem", "4096 131072 40000000".into())));
}
