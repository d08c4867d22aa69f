//! What `bpftool` shows of the balancer is recognisable.

use std::path::Path;

use sidestep_linux::testing::{assert_names_are_shown, root_or_skip};
use sidestep_semper::daemon::balancer::{Balancer, BalancerConfig};

#[test]
fn programs_and_maps_are_recognisable_in_bpftool() {
    if root_or_skip("names of programs and maps") {
        let _loaded = Balancer::load(&BalancerConfig { mark_mask: 0xff00, dry_run: false, flows: None }).unwrap();
        assert_names_are_shown(&Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf"));
    }
}
