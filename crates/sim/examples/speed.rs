fn main() {
    use sidestep_sim::bench::Case;
    let want = std::env::args().nth(1);
    for case in Case::ALL {
        if want.as_deref().is_some_and(|w| w != case.name()) { continue; }
        let cpu = || { let mut u: libc::rusage = unsafe { std::mem::zeroed() }; unsafe { libc::getrusage(0, &mut u) }; (u.ru_utime.tv_sec as f64 + u.ru_utime.tv_usec as f64*1e-6 + u.ru_stime.tv_sec as f64 + u.ru_stime.tv_usec as f64*1e-6, u.ru_maxrss) };
        let a = cpu();
        let o = case.run(case.duration(), 1).unwrap();
        let b = cpu();
        println!("{:24} {:.3e} hops/s  {:.2} s  rss {} MB  goodput {:.1} queue {:.0} drops {} jain {:.3} hops {} {:x}", case.name(), o.traversals as f64/(b.0-a.0), b.0-a.0, b.1/1024, o.goodput_mbps, o.mean_queue_bytes, o.drops, o.fairness, o.traversals, o.fingerprint);
    }
}
