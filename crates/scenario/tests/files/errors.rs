//! Messages as a user sees them.

use insta::assert_snapshot;
use sidestep_net::{ParseError, document::MAX_TEXT, topology_file};
use sidestep_scenario::{Scenario, builder::replace_once};
use sidestep_systems::simulator;

use super::INLINE;

/// Reads a scenario, its systems checked.
fn read(text: &str, name: &str) -> Result<Scenario, ParseError> {
    let mut scenario = Scenario::parse(text, name)?;
    simulator().catalogue().resolve_read(&mut scenario, text)?;
    Ok(scenario)
}

/// The inline network with `more`, its systems checked.
fn inline(more: &str) -> Result<Scenario, ParseError> {
    read(&format!("{INLINE}{more}"), "inline")
}

/// The error for a parallel-paths scenario of ten seconds, with more keys in the topology and `rest` after it.
fn complaint(topology: &str, rest: &str) -> String {
    let text = format!("duration = \"10 s\"\n[topology]\ngenerator = \"parallel-paths\"\n{topology}\n{rest}\n");
    read(&text, "bad").expect_err("it is refused").in_file("bad.toml").to_string()
}

/// The first line of the error for the inline network with `more`.
fn brief(more: &str) -> String {
    let error = inline(more).expect_err("it is refused");
    format!("{}: {}", error.source_line, error.message)
}

#[test]
fn an_unknown_key_is_pointed_at() {
    assert_snapshot!(complaint("pahts = 6", ""), @r"
    bad.toml:4:1: unknown field `pahts`, expected one of `paths`, `hops`, `clients`, `servers`, `rate`, `delay`, `queue`, `ecn`, `loss`, `access_rate`, `access_delay`, `access_queue`, `mtu`, `access_mtu`, `ecmp`
      |
    4 | pahts = 6
      | ^
    ");
    assert_snapshot!(complaint("", "[[flow]]\nkind = \"bulk\"\nfrom = \"c1\"\nto = \"s1\"\ncommand = [\"x\"]"), @r#"
    bad.toml:9:1: unknown field `command`, expected one of `name`, `from`, `to`, `pairing`, `pairs`, `connections`, `start`, `start_jitter`, `stop`, `size`, `port`, `system`, `tcp`
      |
    9 | command = ["x"]
      | ^
    "#);
}

#[test]
fn a_bad_unit_is_pointed_at() {
    assert_snapshot!(complaint("rate = \"100 Mbps\"", ""), @r#"
    bad.toml:4:8: `Mbps` is not a unit of rate; known units: bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s
      |
    4 | rate = "100 Mbps"
      |        ^
    "#);
    assert_snapshot!(complaint("", "[[flow]]\nkind = \"bulk\"\nfrom = \"c1\"\nto = \"s1\"\nsize = 10"), @r"
    bad.toml:9:8: invalid type: integer `10`, expected a string
      |
    9 | size = 10
      |        ^
    ");
}

#[test]
fn a_setting_of_mptcp_that_does_not_fit_is_pointed_at() {
    assert_snapshot!(complaint("", "[mptcp]\nsource_ports = \"odd\""), @r#"
    bad.toml:6:16: unknown variant `odd`, expected one of `random`, `consecutive`, `linux`
      |
    6 | source_ports = "odd"
      |                ^
    "#);
}

#[test]
fn bad_toml_is_pointed_at() {
    assert_snapshot!(complaint("paths = ", ""), @r"
    bad.toml:4:9: string values must be quoted, expected literal string
      |
    4 | paths =
      |         ^
    ");
}

#[test]
fn an_unknown_host_is_pointed_at_within_its_list() {
    assert_snapshot!(complaint("", "[[flow]]\nkind = \"bulk\"\nfrom = [\"c1\", \"c9\"]\nto = \"s1\""), @r#"
    bad.toml:7:15: there is no node `c9`
      |
    7 | from = ["c1", "c9"]
      |               ^
    "#);
}

#[test]
fn an_unknown_placeholder_is_an_error_that_shows_how_to_write_braces() {
    assert_snapshot!(complaint("", "[[flow]]\nkind = \"exec\"\nnode = \"s1\"\ncommand = [\"ping\", \"{s2}\"]"), @r#"
    bad.toml:8:20: there is no node `s2`; `{NAME}` is replaced by the address of node NAME, write `{{NAME}}` for the text itself
      |
    8 | command = ["ping", "{s2}"]
      |                    ^
    "#);
}

#[test]
fn an_unknown_parameter_lists_the_known_ones() {
    let text =
        "duration = \"1 s\"\nsystems = [\"tcp\", \"pathchanger:gama=0.1\"]\n[topology]\ngenerator = \"dumbbell\"";
    assert_snapshot!(read(text, "bad").unwrap_err(), @r#"
    2:19: `pathchanger` has no parameter `gama`; it has ack_quiet, ce_rounds, ce_share, ce_window, congestion_max, congestion_min, gain_guard, gamma, initial, jitter, next_rtos, plb_idle_rounds, plb_pause, plb_rounds, policy, queue_rounds, reorder_guard, retransmit_burst, reward, rtt_guard, settle_rounds, silence_max, silence_min, weights
      |
    2 | systems = ["tcp", "pathchanger:gama=0.1"]
      |                   ^
    "#);
}

#[test]
fn a_generators_bad_number_is_pointed_at() {
    assert_snapshot!(complaint("access_mtu = 576", ""), @r"
    bad.toml:4:14: access_mtu of `c1-A` must be between 1280 (IPv6's minimum) and 65000 bytes
      |
    4 | access_mtu = 576
      |              ^
    ");
    assert_snapshot!(complaint("paths = 0", ""), @r"
    bad.toml:4:9: paths of `parallel-paths` must be at least 1
      |
    4 | paths = 0
      |         ^
    ");
}

#[test]
fn semantic_mistakes_are_refused_where_they_stand() {
    let bulk = |more: &str| brief(&format!("[[flow]]\nkind = 'bulk'\nfrom = 'c*'\nto = 's*'\n{more}"));
    let event = |more: &str| brief(&format!("[[event]]\nat = '1 s'\n{more}"));
    let all = [
        bulk("connections = 50001"),
        bulk("connections = 0"),
        bulk("start = '10 s'"),
        bulk("start = '2 s'\nstop = '1 s'"),
        bulk("stop = '11 s'"),
        bulk("name = 'a b'"),
        bulk("name = 'x'\n[[flow]]\nkind = 'exec'\nname = 'x'\nnode = 'A'\ncommand = ['true']"),
        brief("[[flow]]\nkind = 'bulk'\nfrom = 'A'\nto = 's1'"),
        brief("[[flow]]\nkind = 'bulk'\nfrom = 'x*'\nto = 's1'"),
        brief("[[flow]]\nkind = 'bulk'\nfrom = 's1'\nto = 's1'"),
        brief("[[flow]]\nkind = 'bulk'\nfrom = 's1'"),
        brief("[[flow]]\nkind = 'bulky'\nfrom = 's1'"),
        bulk("system = 'quic'"),
        bulk("system = 'pathchanger:gamma=2'"),
        bulk("tcp = 'reno'"),
        bulk("tcp = { congestion = 'reno' }"),
        bulk("tcp = { mss = 1 }"),
        bulk("tcp = { mss = '1 kB' }"),
        brief("[[flow]]\nkind = 'exec'\nnode = 's1'\ncommand = []"),
        brief("[[flow]]\nkind = 'exec'\nnode = 's1'\ncommand = ['x']\nenv = { 'A=B' = 'x' }"),
        event("link = 'A-B'\naction = 'rate'"),
        event("link = 'A-C'\naction = 'down'"),
        event("path = 'lower'\naction = 'down'"),
        event("action = 'down'"),
        brief("[[event]]\nat = '10 s'\nlink = 'A-B'\naction = 'up'"),
        brief("[[impairment]]\nlink = 'A-B'\ngood = '0 s'\nbad = '1 s'\neffect = 'outage'"),
        brief("[[impairment]]\nlink = 'A-B'\ngood = '1 s'\nbad = '1 s'\neffect = 'loss'"),
        brief("[[impairment]]\nlink = 'A-B'\ngood = '1 s'\nbad = '1 s'\neffect = 'outage'\nloss = '1 %'"),
        brief("[[impairment]]\ngood = '1 s'\nbad = '1 s'\neffect = 'outage'"),
        brief("[[impairment]]\nlink = 'A-C'\ngood = '1 s'\nbad = '1 s'\neffect = 'outage'"),
        brief("[[impairment]]\nlink = '*'\ngood = '1 us'\nbad = '1 us'\neffect = 'outage'"),
        brief("[[impairment]]\nlink = '*'\ngood = '1 s'\nbad = '1 s'\neffect = 'outage'\nstart = '10 s'"),
        brief("[[impairment]]\nlink = '*'\ngood = '1 s'\nbad = '1 s'\neffect = 'noise'"),
        brief("[pathchanger]\nmark_mask = 0x500"),
        brief("[pathchanger]\ngamma = nan"),
        brief("[pathchanger]\nsilence_backoff = { min = '2 s', max = '1 s' }"),
        brief("[paths]\nmax_paths = 17"),
        brief("[tcp]\ncongestion_control = ''"),
        brief("[[topology.node]]\nname = 'x'"),
    ];
    assert_snapshot!(all.join("\n"), @r#"
    connections = 50001: more than 100000 connections in all; use fewer hosts or connections
    connections = 0: must be at least 1
    start = '10 s': 10 s is not before the end of the run, 10 s
    stop = '1 s': must be after `start`
    stop = '11 s': is after the end of the run, 10 s
    name = 'a b': must be 1 to 64 letters, digits, `-`, `_` or `.`
    name = 'x': flow `x` exists twice
    from = 'A': `A` is a router; flows run between hosts
    from = 'x*': no host matches `x*`
    to = 's1': no pair of two different hosts is left
    [[flow]]: a flow needs `from` and `to`, or `pairs` and neither of them nor `pairing`, or `pairing = "demands"` alone
    kind = 'bulky': a flow needs `kind = "bulk"`, `"poisson"`, `"list"`, `"closed-loop"`, `"cbr"` or `"exec"`
    system = 'quic': there is no system `quic`; known systems: tcp, ecmp, random, prr, plb, pathchanger, mptcp, semper, semper-stateful, route-control, rcp, inrpp
    system = 'pathchanger:gamma=2': gamma must be above 0 and at most 1
    tcp = 'reno': must be a table of the keys of `[tcp]`
    tcp = { congestion = 'reno' }: unknown field `congestion`, expected one of `profile`, `hz`, `congestion_control`, `ecn`, `mss`, `initial_window`, `min_rto`, `initial_rto`, `delayed_ack`, `ack_every`, `quick_acks`, `sack`, `limited_transmit`, `idle_restart`, `count_acks`, `receive_window`, `send_jitter`
    tcp = { mss = 1 }: mss must be between 64 and 60000
    tcp = { mss = '1 kB' }: invalid type: string "1 kB", expected u16
    command = []: name a program
    env = { 'A=B' = 'x' }: `A=B` cannot be an environment variable, or its value holds a NUL character
    action = 'rate': an action `rate`, `delay` or `loss` needs the key of that name and no other of them; `down`, `up` and `blackhole` take none
    link = 'A-C': there is no link `A-C`
    path = 'lower': there is no path `lower`
    [[event]]: needs either `link` or `path`
    at = '10 s': 10 s is not before the end of the run, 10 s
    good = '0 s': must be above zero
    effect = 'loss': an effect `loss` needs the key `loss`, and `outage` takes none
    effect = 'outage': an effect `loss` needs the key `loss`, and `outage` takes none
    [[impairment]]: needs either `link` or `path`
    link = 'A-C': there is no link `A-C`
    good = '1 us': about 50000000 changes of links are more than the 10000000 of a run
    start = '10 s': 10 s is not before the end of the run, 10 s
    effect = 'noise': unknown variant `noise`, expected `outage` or `loss`
    mark_mask = 0x500: mark_mask must be one contiguous run of bits
    gamma = nan: gamma must be above 0 and at most 1
    silence_backoff = { min = '2 s', max = '1 s' }: silence_backoff must have a `min` that is not above its `max`
    max_paths = 17: max_paths must be between 1 and 16
    congestion_control = '': congestion_control must be 1 to 15 letters, digits, `-` or `_`
    [[topology.node]]: duplicate key
    "#);
}

#[test]
fn bad_times_and_systems_are_refused() {
    let head = |head: &str| {
        let text = format!("{head}\n[topology]\ngenerator = 'dumbbell'");
        let error = read(&text, "bad").expect_err("it is refused");
        format!("{}:{}: {}", error.line, error.column, error.message)
    };
    let all = [
        head("seed = 2"),
        head("duration = '0 s'"),
        head("duration = '2 s'\nwarmup = '2 s'"),
        head("duration = '2 s'\nsample = '1 us'"),
        head("duration = '2 s'\nname = ''"),
        head("duration = '2 s'\nsystems = []"),
        head("duration = '2 s'\nsystems = ['tcp', 'tcp']"),
        head("duration = '2 s'\nsystems = ['random:policy=exp3']"),
        head("duration = '2 s'\nsystems = ['tcp:gamma=1']"),
        head("duration = '2 s'\nsystems = ['pathchanger:gamma=2']"),
        head("duration = '2 s'\nsystems = ['pathchanger:ce_share=2']"),
        head("duration = '2 s'\nsystems = ['quic']"),
        head("duration = '2 s'\nflow = 3"),
        head("duration = '2 s'\nevent = [3]"),
    ];
    assert_snapshot!(all.join("\n"), @r"
    1:1: missing field `duration`
    1:12: a run must last longer than nothing
    2:10: a warm-up of 2 s leaves nothing of a run of 2 s
    2:10: samples must be at least 1 ms apart, and at most the duration
    2:8: must be 1 to 64 letters, digits, `-`, `_` or `.`
    2:11: name at least one system
    2:19: system `tcp` is listed twice
    2:12: `random` has no parameter `policy`; it has ack_quiet, ce_rounds, ce_share, ce_window, congestion_max, congestion_min, gain_guard, gamma, initial, jitter, next_rtos, plb_idle_rounds, plb_pause, plb_rounds, queue_rounds, reorder_guard, retransmit_burst, reward, rtt_guard, settle_rounds, silence_max, silence_min, weights
    2:12: `tcp` has no parameter `gamma`; it has none
    2:12: gamma must be above 0 and at most 1
    2:12: ce_share: `2` is outside the range of a share
    2:12: there is no system `quic`; known systems: tcp, ecmp, random, prr, plb, pathchanger, mptcp, semper, semper-stateful, route-control, rcp, inrpp
    2:8: `flow` must be a list of tables
    2:10: `event` must be a list of tables
    ");
}

#[test]
fn bad_networks_are_refused_where_they_stand() {
    let swap = |from: &str, to: &str| {
        let error = read(&replace_once(INLINE, from, to), "bad").expect_err("it is refused");
        format!("{}:{}: {}", error.line, error.column, error.message)
    };
    let all = [
        swap("name = \"c2\"", "name = \"c1\""),
        swap("name = \"c2\"", "name = \"c 2\""),
        swap("kind = \"host\", prefix", "kind = \"router\", prefix"),
        swap("fd77:0:1::/48", "fd77:0:1::/64"),
        swap("2001:db8:1::9/64", "fd02::/16"),
        swap("fd77:0:1::/48", "fd01:0:5::/48"),
        swap("ends = [\"B\", \"s1\"]", "ends = [\"B\", \"s2\"]"),
        swap("ends = [\"B\", \"s1\"]", "ends = [\"B\", \"B\"]"),
        swap("ends = [\"B\", \"s1\"]", "ends = [\"B\"]"),
        swap("name = \"last\"", "name = \"A-B\""),
        swap("mtu = 1700", "mtu = 1200"),
        swap("weight = 20", "weight = 0"),
        swap("reverse = { rate = \"1 Mbit/s\"", "reverse = { queue = \"10 B\""),
        swap("links = [\"A-B\"]", "links = [\"A-B\", \"A-C\"]"),
        swap("links = [\"A-B\"]", "links = []"),
    ];
    assert_snapshot!(all.join("\n"), @r"
    6:12: node `c1` exists twice; give each a name of its own
    6:12: `c 2` cannot be a name; use 1 to 32 letters, digits, `-`, `_` or `.`
    6:44: a router has a `locator`; only hosts have a `prefix`
    8:27: a locator must be a /48
    6:42: fd02:0:1::/64 of `c1` lies within fd02::/16 of `c2`
    8:27: fd01:0:5::/48 of `B` lies within fd01:0:5::/48 of `A`
    16:18: there is no node `s2`
    16:12: link `last` connects a node with itself
    16:12: invalid length 1, expected an array of length 2
    16:32: link `A-B` exists twice; give each a name of its own
    14:120: mtu of `A-B` must be between 1280 (IPv6's minimum) and 65000 bytes
    15:89: invalid value: integer `0`, expected a nonzero u64
    15:113: queue of `A-B.2` must have room for at least one packet of the link's mtu
    18:43: there is no link `A-C`
    18:35: a path needs at least one link
    ");
}

#[test]
fn a_topology_file_holds_nothing_but_its_table() {
    let error = topology_file::parse("duration = \"1 s\"\n[topology]\nnode = []").expect_err("it is refused");
    assert_snapshot!(error.in_file("net.toml"), @r#"
    net.toml:1:1: unknown field `duration`, expected `topology`
      |
    1 | duration = "1 s"
      | ^
    "#);
    assert_snapshot!(topology_file::parse("").unwrap_err(), @r"1:1: missing field `topology`");
}

#[test]
fn a_text_that_is_too_large_is_refused() {
    let error = read(&" ".repeat(MAX_TEXT + 1), "bad").unwrap_err();
    assert_snapshot!(error, @r"1:1: the file is larger than 4 MiB; is it the right one?");
}

#[test]
fn the_pairs_of_all_flows_together_are_limited() {
    let each = "from = \"*\"\nto = \"*\"\npairing = \"all\"";
    let open = format!("[[flow]]\nkind = \"poisson\"\n{each}\nrate = 1.0\nsize = \"1 kB\"\n");
    let constant = format!("[[flow]]\nkind = \"cbr\"\n{each}\nrate = \"1 Mbit/s\"\n");
    for flow in [open, constant] {
        // 200 hosts have 39 800 pairs.
        let text = |flows| {
            format!("duration = \"1 s\"\n[topology]\ngenerator = \"dumbbell\"\nhosts = 100\n{}", flow.repeat(flows))
        };
        assert!(read(&text(2), "large").is_ok());
        let error = read(&text(3), "large").expect_err("it is refused");
        assert!(error.message.contains("more than 100000 connections"), "{error}");
    }
}

#[test]
fn more_nodes_than_the_address_plan_has_are_refused() {
    let error = complaint("clients = 4000000000", "");
    assert!(error.contains("65001 nodes are more than the 65000"), "{error}");
}

#[test]
fn what_a_terminal_would_obey_is_not_repeated() {
    let error = complaint("rate = \"\\u001b[2J Mbit/s\"", "");
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn workloads_that_cannot_be_are_refused() {
    let flow = |rest: &str| brief(&format!("[[flow]]\nfrom = \"c*\"\nto = \"s1\"\n{rest}"));
    let size = "size = \"1 kB\"";
    assert_snapshot!(flow(&format!("kind = \"poisson\"\n{size}")), @r##"[[flow]]: give `rate`, in arrivals a second, or `load` and `load_of`"##);
    assert_snapshot!(flow(&format!("kind = \"poisson\"\nrate = 0.0\n{size}")), @r##"rate = 0.0: must be above zero"##);
    assert_snapshot!(flow(&format!("kind = \"poisson\"\nrate = -1.0\n{size}")), @r##"rate = -1.0: must be above zero"##);
    assert_snapshot!(flow(&format!("kind = \"poisson\"\nrate = 1e9\n{size}")), @r##"rate = 1e9: about 10000000000 transfers are more than the 2000000 of a run"##);
    assert_snapshot!(flow("kind = \"poisson\"\nrate = 1.0\nsize = { distribution = \"pareto\", shape = 0.9, mean = \"1 kB\" }"), @r##"size = { distribution = "pareto", shape = 0.9, mean = "1 kB" }: a Pareto distribution with a mean has a shape above 1"##);
    assert_snapshot!(flow(&format!("kind = \"closed-loop\"\nthink = \"1 s\"\nusers = 0\n{size}")), @r##"users = 0: must be at least 1"##);
    assert_snapshot!(flow(&format!("kind = \"closed-loop\"\nthink = \"-1 s\"\n{size}")), @r##"think = "-1 s": `-1 s` is not a time; write a number and a unit, such as `50 ms`"##);
    assert_snapshot!(flow("kind = \"cbr\"\nrate = \"0 bit/s\""), @r##"rate = "0 bit/s": must be above zero"##);
    assert_snapshot!(flow("kind = \"cbr\"\nrate = \"1 Mbit/s\"\non = \"1 s\""), @r##"on = "1 s": give both `on` and `off`, above zero, or neither"##);
}
