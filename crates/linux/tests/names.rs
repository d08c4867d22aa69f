//! What `bpftool` shows of programs that belong to no daemon is recognisable.

use std::path::Path;

use sidestep_coupled::Algorithm;
use sidestep_linux::{
    bpf::{
        arrivals::Arrivals,
        congestion_control::{CongestionControl, Wanted},
        coupled::Registration,
        idle::IdlePrograms,
    },
    cgroup::Cgroup,
    testing::{assert_names_are_shown, root_or_skip},
};

#[test]
fn programs_and_maps_are_recognisable_in_bpftool() {
    if !root_or_skip("names of programs and maps") {
        return;
    }
    let cgroup = Cgroup::create(&format!("sidestep-test-names-{}", std::process::id())).unwrap();
    let loaded = (
        Arrivals::load().unwrap(),
        CongestionControl::attach(cgroup.path(), Wanted { tcp: Some("reno"), ..Wanted::default() }).unwrap(),
        IdlePrograms::attach(cgroup.path()).unwrap(),
        Algorithm::ALL.map(|algorithm| Registration::new(algorithm).unwrap()),
    );
    assert_names_are_shown(&Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf"));
    drop(loaded);
    cgroup.destroy().unwrap();
}
