//! What `bpftool` shows of the measurement of what passes is recognisable.

use std::path::Path;

use sidestep_linux::testing::{assert_names_are_shown, root_or_skip};
use sidestep_route_control::daemon::passive::Passive;

#[test]
fn programs_and_maps_are_recognisable_in_bpftool() {
    if root_or_skip("names of programs and maps") {
        let _loaded = Passive::load(16).unwrap();
        assert_names_are_shown(&Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf"));
    }
}
