//! A stranger's system, as `examples/own-system` has it: it runs beside plain TCP, and its moves and measures are on the page.

#[path = "../../examples/own-system/src/main.rs"]
mod own_system;

use std::fs;

#[test]
fn a_system_of_ones_own_runs_beside_tcp_and_its_moves_and_measures_are_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    std::env::set_current_dir(dir.path()).unwrap();
    own_system::main().unwrap();
    let out = dir.path().join("out/own-system");
    let result: serde_json::Value = serde_json::from_slice(&fs::read(out.join("result.json")).unwrap()).unwrap();
    let of = |system: &str, key: &str| result["systems"][system][key].clone();
    let goodput = |system: &str| of(system, "goodput_mbps").as_f64().unwrap();
    assert!(goodput("shortest-queue") > 2.5 * goodput("tcp"), "{result}");
    let turns = of("shortest-queue", "turns").as_u64().unwrap();
    assert!(turns > 1_000 && of("shortest-queue", "moves")["shorter queue"] == turns, "{result}");
    let wide = of("shortest-queue:margin=30 kB", "turns").as_u64().unwrap();
    assert!(0 < wide && wide < turns, "{wide} of {turns}: a margin makes turns rarer");
    let page = fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.contains(&format!("{turns} for shorter queue")) && page.contains(&format!("turns {turns}")), "{page}");
}
