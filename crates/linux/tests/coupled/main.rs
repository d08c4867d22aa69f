//! Coupled congestion control at real connections of MPTCP.

use sidestep_coupled::Algorithm;
use sidestep_linux::{
    bpf::coupled::{Registration, has_links, is_registered},
    testing::root_or_skip,
};

#[test]
fn the_kernel_verifies_each_algorithm_and_has_it_while_it_is_held() {
    if !root_or_skip("coupled congestion control") {
        return;
    }
    for algorithm in Algorithm::ALL {
        let began = std::time::Instant::now();
        let registration = Registration::new(algorithm).unwrap_or_else(|error| panic!("{error}"));
        println!("{algorithm}: {:?}", began.elapsed());
        assert!(is_registered(algorithm));
        let second = Registration::new(algorithm).unwrap();
        drop(registration);
        assert!(is_registered(algorithm), "another process holds it");
        drop(second);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!is_registered(algorithm) || !has_links());
    }
}
