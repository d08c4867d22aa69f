//! What `bpftool` shows of the path changer and of its routers' program is recognisable.

use std::path::Path;

use sidestep_linux::testing::{assert_names_are_shown, root_or_skip};
use sidestep_pathchanger::daemon::{ecn_decap::EcnProgram, program::HostProgram};

#[test]
fn programs_and_maps_are_recognisable_in_bpftool() {
    if root_or_skip("names of programs and maps") {
        let _loaded = (HostProgram::load(None).unwrap(), EcnProgram::load().unwrap());
        assert_names_are_shown(&Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf"));
    }
}
