use std::{fs, os::fd::AsFd};

use super::*;
use crate::{
    netlink,
    netns::NetNs,
    testing::{eventually, root_or_skip},
};

#[test]
fn a_device_forwards_as_the_router_does_and_is_taken_over_with_its_descriptor() {
    if !root_or_skip("TUN devices") {
        return;
    }
    let work = || {
        // As devices begin.
        set_sysctl("ipv6/conf/all/forwarding", "1")?;
        for (all, filter, forwarding) in [("0", "0", "1"), ("1", "2", "0"), ("2", "0", "1")] {
            set_sysctl("ipv4/conf/all/rp_filter", all)?;
            set_sysctl("ipv4/conf/all/forwarding", forwarding)?;
            let tun = Tun::create("inrpp-a", 1_400, 77)?;
            assert_eq!(sysctl("ipv4/conf/inrpp-a/rp_filter").as_deref(), Some(filter));
            assert_eq!(sysctl("ipv4/conf/inrpp-a/forwarding").as_deref(), Some(forwarding));
            assert_eq!(sysctl("ipv6/conf/inrpp-a/forwarding").as_deref(), Some("1"));
            let read = |name: &str| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
            assert!(!read("if_inet6").contains("inrpp-a"), "no address of its own");
            netlink::block_on(async |netlink| {
                let interfaces = netlink.interfaces().await?;
                let found = interfaces.iter().find(|one| one.name == "inrpp-a").unwrap();
                assert_eq!((found.index, found.mtu, found.ethernet, found.running), (tun.index(), 1_400, false, true));
                Ok(())
            })?;
            let groups = read("igmp6");
            let joined = |name: &str| groups.lines().filter(|line| line.contains(name)).collect::<Vec<_>>().join(" ");
            assert!(!joined("inrpp-a").contains("ff020000000000000000000000000002"), "{groups}");
            std::thread::sleep(std::time::Duration::from_millis(30));
            assert!(tun.read(&mut vec![0; MAX_READ]).is_err(), "the kernel sends nothing by itself");
            let again = Tun::create("inrpp-a", 1_400, 77).unwrap_err().to_string();
            assert!(again.contains("the name is taken"), "{again}");

            let passed = tun.as_fd().try_clone_to_owned().unwrap();
            let index = tun.index();
            drop(tun);
            assert!(Tun::from_fd(passed.try_clone().unwrap(), "inrpp-b").is_err());
            assert!(Tun::from_fd(fs::File::open("/dev/null").unwrap().into(), "inrpp-a").is_err());
            let taken = Tun::from_fd(passed, "inrpp-a")?;
            assert_eq!((taken.index(), taken.name()), (index, "inrpp-a"));
            let nothing = taken.read(&mut vec![0; MAX_READ]).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
            let bad = taken.write(&[IoSlice::new(&[0; HEADER])]).unwrap_err();
            assert_eq!(bad.raw_os_error(), Some(libc::EINVAL));
            drop(taken);
            // A process that another test has just forked may hold the descriptor for a moment.
            let gone = || nix::net::if_::if_nametoindex("inrpp-a").is_err().then_some(());
            eventually("the end of the device", std::time::Duration::from_secs(10), gone);
        }
        let short = Tun::create("inrpp-a", 1_200, 77)?;
        assert!(sysctl("ipv6/conf/inrpp-a/forwarding").is_none(), "no IPv6 where packets are too short for it");
        drop(short);
        Ok(())
    };
    NetNs::create().and_then(|namespace| namespace.run(work)).unwrap();
}

#[test]
fn what_a_device_has_dropped_is_in_the_twelfth_column() {
    let text = "Inter-| …\n face | …\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\ninrpp-a: 1 2 0 0 0 0 0 0 9 10 0 42 0 0 0 0\n";
    assert_eq!([dropped_of(text, "inrpp-a"), dropped_of(text, "lo"), dropped_of(text, "inrpp")], [42, 12, 0]);
    assert_eq!(dropped_of("inrpp-a: 1 2", "inrpp-a"), 0);
}
