//! What is reported when the kernel refuses.

use sidestep_linux::{
    LinuxError,
    netlink::{self, Netlink, Route, Target},
    netns::NetNs,
    testing::root_or_skip,
};

use crate::support::{hop, in_node, route};

#[test]
fn a_refusal_names_what_was_attempted_and_why() {
    in_node("refused requests", async |netlink, interface| {
        let error = async |netlink: &Netlink, route: Route| netlink.add_route(&route).await.unwrap_err();
        let nowhere = route("fd00:a::/64", Target::Via(vec![hop("fe80::2", interface + 999)]));
        let error_text = error(netlink, nowhere).await.to_string();
        assert_eq!(error_text, "adding a route to fd00:a::/64 in table 8301: No such device (os error 19)");
        let unreachable = route("fd00:a::/64", Target::Via(vec![hop("fd00:77::1", interface)]));
        let refusal = error(netlink, unreachable).await;
        assert!(matches!(refusal, LinuxError::Refused { .. }), "{refusal}");
        assert!(!refusal.is_environment());
        let missing = netlink.index_of("nosuch").await.unwrap_err().to_string();
        assert_eq!(missing, "looking up interface nosuch: No such device (os error 19)");
        Ok(())
    });
}

#[test]
fn without_the_privilege_the_error_says_which_is_needed() {
    if !root_or_skip("a thread without privileges") {
        return;
    }
    let attempt = NetNs::create().unwrap().run(|| {
        // SAFETY: a system call without pointers. It changes this thread only, which ends with `run`.
        let dropped = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        assert_eq!(dropped, 0);
        netlink::block_on(async |netlink| netlink.loopback_up().await)
    });
    let error = attempt.unwrap_err();
    assert!(matches!(error, LinuxError::Privilege { .. }) && error.is_environment(), "{error:?}");
    assert_eq!(
        error.to_string(),
        "bringing the loopback interface up: not permitted: this process lacks CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON; run as \
         root, or with these"
    );
}
