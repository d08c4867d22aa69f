//! The traps of the host's data plane (DESIGN), seen from outside.
//!
//! Two more are implied by every run of the path changer, which would carry nothing otherwise: that hosts accept the
//! last segment, and that binding SIDs are `End.B6.Encaps`. That marks are lost without the routers' program is
//! `sidestep-linux`'s test `ecn_decap`.

use crate::common::{BULK, Room, TWO_PATHS, number, root_or_skip};

/// 300 kB on each of four connections: many segments of full size.
const SIZED: &str = r#"
[[flow]]
kind = "bulk"
from = "c1"
to = "s1"
connections = 4
size = "300 kB"
"#;

/// Bytes of the IPv6 and TCP headers, with timestamps: all that packets carry on the shortest path.
const HEADERS: u32 = 40 + 32;
/// Bytes of an inline SRH with a Path ID and the destination, which packets carry on the other path.
const SRH: u32 = 40;

/// Runs sized flows over a core with this mtu, and asserts that all complete with segments of one of these sizes.
#[track_caller]
fn completes_with_segments_of(core: u32, sizes: [u32; 2]) {
    let room = Room::new();
    room.run_lab("out", &format!("duration = \"4 s\"\n{TWO_PATHS}mtu = {core}\n{SIZED}")).is_fine();
    for flow in room.rows("out", "flows.csv") {
        assert_eq!((flow["completed"].as_str(), flow["bytes"].as_str()), ("true", "300000"), "{flow:#?}");
    }
    let series = room.rows("out", "series.csv");
    let windows: Vec<_> = series
        .iter()
        .filter(|row| row["kind"] == "connection" && row["name"].starts_with("c1:") && !row["cwnd_bytes"].is_empty())
        .map(|row| number(row, "cwnd_bytes") as u32)
        .collect();
    let full = |window: &u32| sizes.iter().any(|size| window.is_multiple_of(*size));
    assert!(!windows.is_empty() && windows.iter().all(full), "{sizes:?}: {windows:?}");
    // The queues never fill, so whatever is dropped was too large for its link.
    let drops: f64 = series.iter().filter(|row| row["kind"] == "link").map(|row| number(row, "drops")).sum();
    assert_eq!(drops, 0.0);
}

#[test]
fn a_core_as_narrow_as_the_edge_is_no_black_hole_because_routes_carry_an_mtu() {
    if !root_or_skip("a lab run") {
        return;
    }
    // The access router adds an outer header and a list of two segments.
    completes_with_segments_of(1500, [1500 - HEADERS, 1500 - 80 - SRH - HEADERS]);
}

#[test]
fn a_wider_core_leaves_the_edge_its_full_packets() {
    if !root_or_skip("a lab run") {
        return;
    }
    completes_with_segments_of(1700, [1500 - HEADERS, 1500 - SRH - HEADERS]);
}

#[test]
fn marks_of_the_core_survive_decapsulation_and_move_connections_before_anything_is_dropped() {
    if !root_or_skip("a lab run") {
        return;
    }
    let room = Room::new();
    room.run_lab("out", &format!("duration = \"3 s\"\n{TWO_PATHS}{BULK}")).is_fine();
    let result = room.result_of("out", "pathchanger");
    assert!(result["moves"]["ecn"].as_u64() > Some(0), "{result:#}");
    let of_paths = |measure: &str| {
        let paths = result["paths"].as_object().unwrap();
        paths.values().map(|path| path[measure].as_u64().unwrap()).sum::<u64>()
    };
    assert!(of_paths("marks") > 0 && of_paths("drops") == 0, "{result:#}");
    for row in room.rows("out", "series.csv").iter().filter(|row| row["kind"] == "link") {
        let core = row["name"].contains('m');
        assert!(core || number(row, "marks") == 0.0, "marked at the edge: {row:#?}");
    }
}
