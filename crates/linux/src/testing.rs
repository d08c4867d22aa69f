//! For tests that need root: they are skipped without it, and say so.

/// Whether the test may run as root; otherwise prints that `what` is skipped.
///
/// # Panics
/// Panics without root if the environment says `SIDESTEP_REQUIRE_ROOT=1`, as CI does, so that no skip goes unnoticed.
pub fn root_or_skip(what: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let required = std::env::var_os("SIDESTEP_REQUIRE_ROOT").is_some_and(|value| value == "1");
    assert!(!required, "{what}: needs root, and SIDESTEP_REQUIRE_ROOT=1 allows no skipping");
    println!("skipped: needs root: {what}");
    false
}
