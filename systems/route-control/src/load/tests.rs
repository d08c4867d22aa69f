use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use sidestep_net::Ratio;

use super::*;

fn settings() -> RouteControlSettings {
    RouteControlSettings { load: Ratio::from_ppb(800_000_000), ..RouteControlSettings::default() }
}

fn unguarded() -> RouteControlSettings {
    RouteControlSettings { guards: false, ..settings() }.effective()
}

/// A site with flows at egresses of these capacities, in Mbit/s.
struct Site {
    load: Load,
    capacities: Vec<f64>,
    /// The bucket of each flow.
    flows: Vec<usize>,
    /// Egresses that may have no flows.
    bad: Vec<usize>,
    random: Pcg32,
    now: f64,
    shifts: Vec<Shift>,
}

impl Site {
    fn new(settings: &RouteControlSettings, capacities: &[f64], flows: usize, seed: u64) -> Site {
        let rates: Vec<Rate> = capacities.iter().map(|mbits| Rate::from_bits_per_sec((mbits * 1e6) as u64)).collect();
        let mut random = Pcg32::seed_from_u64(seed);
        Site {
            load: Load::new(settings, &rates, Time::ZERO).unwrap(),
            capacities: capacities.to_vec(),
            flows: (0..flows).map(|_| random.next_u32() as usize % BUCKETS).collect(),
            bad: Vec::new(),
            random,
            now: 0.0,
            shifts: Vec::new(),
        }
    }

    /// Flows at an egress.
    fn at(&self, egress: usize) -> usize {
        self.flows.iter().filter(|bucket| self.load.owner(**bucket) == egress).count()
    }

    /// A second passes, in which each egress carries this, in Mbit/s.
    fn second(&mut self, carried: &[f64]) {
        self.now += 1.0;
        let now = Time::from_nanos((self.now * 1e9) as u64);
        let sent: Vec<Bytes> = carried.iter().map(|mbits| Bytes::new((mbits * 1e6 / 8.0) as u64)).collect();
        self.load.note_sent(now, &sent);
        let bad = self.bad.clone();
        let takes = |egress: usize| !bad.contains(&egress);
        self.load.follow(now, 0, takes);
        let before = self.load.owners;
        let shift = self.load.decide(now, takes, self.random.next_u32());
        let moved = before.iter().zip(&self.load.owners).filter(|(one, other)| one != other).count();
        assert_eq!(moved > 0, shift.is_some_and(|shift| shift.share > 0.0));
        assert!(moved <= self.load.step || shift.is_some_and(|shift| shift.reason == Reason::LoadOver));
        self.shifts.extend(shift);
    }

    /// Seconds pass with flows that together want this, in Mbit/s, spread evenly over all buckets.
    fn want(&mut self, demand: f64, seconds: u32) {
        for _ in 0..seconds {
            let of = |(egress, capacity): (usize, &f64)| (demand * self.load.share(egress)).min(*capacity);
            let carried: Vec<f64> = self.capacities.iter().enumerate().map(of).collect();
            self.second(&carried);
        }
    }

    fn shares(&self) -> Vec<f64> {
        (0..self.capacities.len()).map(|egress| self.load.share(egress)).collect()
    }
}

/// What each of these sites gets by each of its egresses where endless flows share links of these capacities evenly, as far as the
/// sites' own lines let them.
fn shared(sites: &[Site], links: &[f64]) -> Vec<Vec<f64>> {
    let mut gets = vec![vec![0.0; links.len()]; sites.len()];
    for (link, capacity) in links.iter().enumerate() {
        let mut room = *capacity;
        // Who needs least of its share first: what it leaves is for the others.
        let mut order: Vec<usize> = (0..sites.len()).collect();
        let need = |site: usize| sites[site].capacities[link] / sites[site].at(link).max(1) as f64;
        order.sort_by(|one, other| need(*one).total_cmp(&need(*other)));
        let mut flows: usize = sites.iter().map(|site| site.at(link)).sum();
        for site in order {
            let at = sites[site].at(link);
            gets[site][link] = (room * at as f64 / flows.max(1) as f64).min(sites[site].capacities[link]);
            (room, flows) = (room - gets[site][link], flows - at);
        }
    }
    gets
}

/// Two sites for some seconds; returns how often each moved flows from 30 s on, and the share of both links that is used then.
fn neighbours(settings: &RouteControlSettings, links: &[f64], own: &[f64], seconds: u32, seed: u64) -> (usize, f64) {
    let mut sites = [0, 1].map(|site| Site::new(settings, own, 8, seed * 2 + site));
    let mut used = 0.0;
    for second in 0..seconds {
        let gets = shared(&sites, links);
        if second >= 30 {
            used += gets.iter().flatten().sum::<f64>() / links.iter().sum::<f64>();
        }
        sites.iter_mut().zip(&gets).for_each(|(site, gets)| site.second(gets));
    }
    let late = |site: &Site| site.shifts.iter().filter(|shift| shift.at.as_secs_f64() > 30.0).count();
    (sites.iter().map(late).sum(), used / f64::from(seconds - 30))
}

#[test]
fn flows_of_a_full_egress_are_spread_in_proportion_to_capacity() {
    let mut site = Site::new(&settings(), &[5.0, 20.0], 0, 1);
    site.want(10.0, 60);
    assert!((0.6..0.85).contains(&site.shares()[1]), "{:?}", site.shares());
    assert!(site.shifts.len() <= 3, "{:?}", site.shifts);
    let mut site = Site::new(&settings(), &[20.0, 10.0], 0, 1);
    site.want(18.0, 60);
    assert!((site.shares()[1] - 1.0 / 3.0).abs() < 0.03, "{:?}", site.shares());
    let mut site = Site::new(&settings(), &[10.0, 10.0, 20.0], 0, 1);
    site.want(24.0, 120);
    let utilisation =
        site.shares().iter().zip(&site.capacities).map(|(share, of)| 24.0 * share / of).fold(0.0, f64::max);
    assert!(utilisation < 0.8, "{:?}", site.shares());
}

#[test]
fn between_the_thresholds_nothing_moves_and_below_the_lower_one_all_return() {
    let mut site = Site::new(&settings(), &[10.0, 10.0], 0, 2);
    site.want(7.9, 60);
    assert!(site.shifts.is_empty(), "{:?}", site.shifts);
    site.want(9.0, 30);
    assert_eq!(site.shares(), [0.5, 0.5]);
    site.want(5.1, 60);
    assert_eq!((site.shares(), site.shifts.len()), (vec![0.5, 0.5], 1));
    site.want(4.9, 30);
    assert_eq!(site.shares(), [1.0, 0.0]);
    assert_eq!(site.shifts.last().map(|last| last.reason), Some(Reason::LoadOver));
}

#[test]
fn a_short_burst_moves_nothing() {
    let mut site = Site::new(&settings(), &[10.0, 10.0], 0, 3);
    for _ in 0..20 {
        site.want(10.0, 1);
        site.want(3.0, 3);
    }
    assert!(site.shifts.is_empty(), "{:?}", site.shifts);
}

#[test]
fn an_egress_that_is_impaired_or_of_unknown_capacity_gets_no_share() {
    let mut site = Site::new(&settings(), &[10.0, 0.0, 10.0], 0, 4);
    site.bad = vec![2];
    site.want(12.0, 30);
    assert_eq!(site.shares(), [1.0, 0.0, 0.0]);
    site.bad.clear();
    site.want(12.0, 30);
    assert_eq!(site.shares()[1], 0.0);
    assert!(site.shares()[2] > 0.3, "{:?}", site.shares());
    site.bad = vec![2];
    site.want(12.0, 1);
    assert_eq!(site.shares(), [1.0, 0.0, 0.0], "at once");
}

#[test]
fn endless_flows_fill_both_egresses_and_stay_there() {
    for seed in 0..50 {
        let mut site = Site::new(&settings(), &[5.0, 20.0], 4, seed);
        for _ in 0..120 {
            let gets = shared(std::slice::from_ref(&site), &[5.0, 20.0]);
            site.second(&gets[0]);
        }
        let late = site.shifts.iter().filter(|shift| shift.at.as_secs_f64() > 60.0).count();
        assert!(late <= 1, "{seed}: {:?}", site.shifts);
    }
}

#[test]
fn two_sites_that_share_both_links_do_not_chase_each_other() {
    // Lines of 8 Mbit/s to providers that carry both; or of which the backup carries less, so that its capacity says too much.
    for (links, bound) in [([16.0, 16.0], 0), ([16.0, 6.0], 30)] {
        let (mut most, mut all_used) = (0, 0.0);
        for seed in 0..50 {
            let (moves, used) = neighbours(&settings(), &links, &[8.0, 8.0], 330, seed);
            (most, all_used) = (most.max(moves), all_used + used / 50.0);
        }
        // In five minutes, of both sites.
        assert!(most <= bound, "{links:?}: {most}");
        assert!(all_used > 0.88, "{links:?}: {all_used}");
    }
    // Without waits, and with decisions that move all, they do.
    let (moves, _) = neighbours(&unguarded(), &[16.0, 6.0], &[8.0, 8.0], 330, 1);
    assert!(moves > 100, "{moves}");
}

proptest! {
    #[test]
    fn whatever_is_carried_each_bucket_has_one_egress_that_may_have_it(
        carried in prop::collection::vec(prop::collection::vec(0.0..30.0_f64, 3), 1..200),
        bad in prop::collection::vec(1_usize..4, 0..200),
        seed in 0_u64..1_000,
    ) {
        let mut site = Site::new(&settings(), &[5.0, 20.0, 10.0], 0, seed);
        for (second, carried) in carried.iter().enumerate() {
            site.bad = bad.get(second).copied().into_iter().collect();
            site.second(carried);
            prop_assert!(site.load.owners.iter().all(|owner| *owner < 3 && !site.bad.contains(owner)));
            prop_assert!((site.shares().iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}
