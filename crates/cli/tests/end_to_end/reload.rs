//! The controller reads its topology again when it gets SIGHUP.

use std::{fs, time::Duration};

use nix::sys::signal::Signal;
use sidestep_api::{HostIdentity, PathUpdate, Watcher, watch_paths};
use tokio::time::timeout;

use crate::common::{Room, Running};

/// Routers of these names side by side between A and B.
fn network(middles: &[&str]) -> String {
    let nodes: String = middles.iter().map(|name| format!(", {{ name = \"{name}\" }}")).collect();
    let link = |a: &str, b: &str| {
        format!("  {{ ends = [\"{a}\", \"{b}\"], rate = \"1 Gbit/s\", delay = \"1 ms\", mtu = 1700 }},\n")
    };
    let links: String = middles.iter().map(|name| link("A", name) + &link(name, "B")).collect();
    let hosts =
        "{ name = \"c1\", kind = \"host\" }, { name = \"s1\", kind = \"host\" }, { name = \"A\" }, { name = \"B\" }";
    format!("[topology]\nnode = [{hosts}{nodes}]\nlink = [\n{}{}{links}]\n", link("c1", "A"), link("s1", "B"))
}

/// Waits until there are `count` paths, and returns their ids.
async fn paths(watcher: &mut Watcher<PathUpdate>, count: usize) -> Vec<String> {
    let ids =
        |update: &PathUpdate| update.sets.iter().flat_map(|set| &set.paths).map(|path| path.id.to_string()).collect();
    let waiting = async {
        let mut latest = watcher.latest();
        loop {
            let ids: Vec<String> = latest.update.as_deref().map(ids).unwrap_or_default();
            if ids.len() == count {
                return ids;
            }
            latest = watcher.changed().await.unwrap();
        }
    };
    timeout(Duration::from_secs(20), waiting).await.unwrap()
}

/// Sends SIGHUP and waits until the log contains this.
fn hang_up(running: &mut Running, log: &std::path::Path, says: &str) {
    running.signal(Signal::SIGHUP);
    running.wait_until(says, || fs::read_to_string(log).is_ok_and(|text| text.contains(says)));
}

#[tokio::test]
async fn a_controller_that_gets_sighup_reads_its_topology_again_and_keeps_it_when_the_file_is_bad() {
    let room = Room::new();
    let file = room.write("network.toml", &network(&["m1", "m2"]));
    let socket = room.path("controller.sock");
    let endpoint = format!("unix:{}", socket.display());
    let mut running = room.start(&["controller", "--topology", &file, "--listen", &endpoint]);
    running.wait_until("a socket", || socket.exists());
    let log = room.path("0.stderr");
    let mut watcher = watch_paths(&endpoint, HostIdentity::Node("c1".into()), true).await.unwrap();
    let before = paths(&mut watcher, 2).await;

    room.write("network.toml", &network(&["m1", "m2", "m3"]));
    running.signal(Signal::SIGHUP);
    let after = paths(&mut watcher, 3).await;
    assert!(before.iter().all(|id| after.contains(id)), "paths that stay keep their ids: {before:?}, {after:?}");

    // A router of that name is missing: the log shows where.
    let broken = network(&["m1"]).replacen("\"m1\"", "\"m4\"", 1);
    assert_ne!(broken, network(&["m1"]));
    room.write("network.toml", &broken);
    hang_up(&mut running, &log, "the topology stays what it was");
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains(&format!("{file}:")) && text.contains("`m1`"), "{text}");

    // A host that is linked to nothing.
    let alone = network(&["m1"]).replacen(
        "[topology]\nnode = [",
        "[topology]\nnode = [{ name = \"s2\", kind = \"host\" }, ",
        1,
    );
    room.write("network.toml", &alone);
    hang_up(&mut running, &log, "host `s2` is not linked to any router");
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains(&format!("{file}: host `s2`")), "{text}");

    // A file that is no more.
    fs::remove_file(&file).unwrap();
    hang_up(&mut running, &log, "No such file");
    assert_eq!(watcher.latest().update.map(|update| update.sets[0].paths.len()), Some(3));

    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code, Some(0));
}
