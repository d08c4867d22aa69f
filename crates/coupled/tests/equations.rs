//! The integers of coupled congestion control against the papers' equations in floating point.

use proptest::prelude::*;
use sidestep_coupled::{Algorithm, CoupledCall, Path, Sums, alpha, grown};
use zerocopy::FromBytes;

const Q32: f64 = 4_294_967_296.0;

fn path(window: u64, rtt: u32) -> Path {
    Path { window, between_losses: 0, rtt, mss: 1_000 }
}

fn growth(algorithm: Algorithm, paths: &[Path], own: usize) -> f64 {
    Sums::of(paths.iter().copied()).growth(algorithm, &paths[own]) as f64 / Q32
}

fn rate(path: &Path) -> f64 {
    path.window as f64 / f64::from(path.rtt)
}

/// Khalili's rank of a path: ℓ / rtt².
fn rank(path: &Path) -> f64 {
    path.between_losses as f64 / f64::from(path.rtt).powi(2)
}

/// Growth in segments for a segment acknowledged, as the papers have it.
fn equation(algorithm: Algorithm, paths: &[Path], own: usize) -> f64 {
    let sum: f64 = paths.iter().map(rate).sum();
    let (mine, mss) = (&paths[own], f64::from(paths[own].mss));
    let (window, x) = (mine.window as f64, rate(mine));
    let share = x / f64::from(mine.rtt) / (sum * sum);
    match algorithm {
        // RFC 6356, section 3, equations 1 and 2.
        Algorithm::Lia => {
            let total: f64 = paths.iter().map(|path| path.window as f64).sum();
            let best = paths.iter().map(|path| rate(path) / f64::from(path.rtt)).fold(0.0, f64::max);
            let alpha = total * best / (sum * sum);
            mss * (alpha / total).min(1.0 / window)
        }
        Algorithm::Olia => {
            let best = paths.iter().map(rank).fold(0.0, f64::max);
            let widest = paths.iter().map(|path| path.window).max().unwrap();
            let collected = paths.iter().filter(|path| rank(path) == best && path.window < widest).count() as f64;
            let widest_of = paths.iter().filter(|path| path.window == widest).count() as f64;
            let epsilon = match (collected > 0.0, mine.window == widest, rank(mine) == best) {
                (true, true, _) => -1.0 / widest_of,
                (true, false, true) => 1.0 / collected,
                _ => 0.0,
            };
            mss * (share + epsilon / paths.len() as f64 / window)
        }
        Algorithm::Balia => {
            let a = paths.iter().map(rate).fold(0.0, f64::max) / x;
            mss * share * (1.0 + a) / 2.0 * (4.0 + a) / 5.0
        }
    }
}

#[test]
fn the_formulas_by_hand() {
    // LIA: w_tot · (w/rtt²) / (2w/rtt)² = 1/2 on two like paths, over 20 segments.
    let like = [path(10_000, 100_000); 2];
    assert!((growth(Algorithm::Lia, &like, 0) - 1.0 / 40.0).abs() < 1e-5);
    // 20 segments at 0.1 s, 10 at 0.05 s: max(2000, 4000) / (200 + 200)² = 1/40.
    let unlike = [path(20_000, 100_000), path(10_000, 50_000)];
    assert!((growth(Algorithm::Lia, &unlike, 1) - 1.0 / 40.0).abs() < 1e-5);
    assert!((alpha(&like).unwrap() - 0.5).abs() < 1e-9 && (alpha(&unlike).unwrap() - 0.75).abs() < 1e-9);
    assert_eq!(alpha(&[path(10_000, 0)]), None);
    // OLIA: the best path is not the widest; (500/250², 2000/250²) and ±1/2 over the windows 5 and 20.
    let best = Path { between_losses: 1_000_000, ..path(5_000, 100_000) };
    let widest = Path { between_losses: 100_000, ..path(20_000, 100_000) };
    assert!((growth(Algorithm::Olia, &[best, widest], 0) - (0.008 + 0.1)).abs() < 1e-5);
    assert!((growth(Algorithm::Olia, &[best, widest], 1) - (0.032 - 0.025)).abs() < 1e-5);
    // BALIA: x = 100 and 400, a = 4 and 1.
    let paths = [path(10_000, 100_000), path(40_000, 100_000)];
    assert!((growth(Algorithm::Balia, &paths, 0) - 100.0 / (0.1 * 250_000.0) * 2.5 * 1.6).abs() < 1e-4);
    assert!((growth(Algorithm::Balia, &paths, 1) - 400.0 / (0.1 * 250_000.0)).abs() < 1e-4);
    // A loss takes half of the window times min(a, 1.5).
    let sums = Sums::of(paths);
    assert_eq!(sums.kept(Algorithm::Balia, &paths[0]), 65_536 / 4);
    assert_eq!(sums.kept(Algorithm::Balia, &paths[1]), 65_536 / 2);
    assert_eq!(sums.kept(Algorithm::Olia, &paths[0]), 65_536 / 2);
}

#[test]
fn subflows_of_unequal_segments_are_weighed_by_bytes() {
    // The same bytes in segments of another size change nothing but the size of a step.
    let (small, large) = (Path { mss: 500, ..path(30_000, 40_000) }, Path { mss: 9_000, ..path(90_000, 40_000) });
    for algorithm in Algorithm::ALL {
        let of = |paths: [Path; 2]| [0, 1].map(|own| growth(algorithm, &paths, own) / f64::from(paths[own].mss));
        let (unequal, equal) = (of([small, large]), of([small, Path { mss: 500, ..large }]));
        assert!(
            unequal.iter().zip(equal).all(|(one, other)| (one / other - 1.0).abs() < 1e-3),
            "{unequal:?} {equal:?}"
        );
    }
}

#[test]
fn numbers_without_sense_do_no_harm() {
    let extremes = [0, 1, u64::MAX, 1 << 41, 1 << 63];
    for bytes in 0..=255u8 {
        let call = CoupledCall::read_from_bytes(&[bytes; 112]).unwrap();
        for algorithm in 0..4 {
            let answered = CoupledCall { algorithm, ..call }.answered();
            assert!((0..1 << 32).contains(&answered.credit), "{answered:?}");
        }
    }
    for window in extremes {
        for rtt in [0, 1, u32::MAX] {
            for mss in [0, 1, u32::MAX] {
                let path = Path { window, between_losses: window, rtt, mss };
                let sums = Sums::of([path; 64]);
                for algorithm in Algorithm::ALL {
                    // A window is at least a segment, so nothing outgrows slow start.
                    assert!(sums.growth(algorithm, &path).unsigned_abs() <= 1 << 32, "{path:?}");
                }
            }
        }
    }
}

fn any_path() -> impl Strategy<Value = Path> {
    let path = (1u64..2_000, 50u32..2_000_000, 0u64..1 << 34, 536u32..9_000);
    path.prop_map(|(segments, rtt, between_losses, mss)| Path {
        window: segments * u64::from(mss),
        between_losses,
        rtt,
        mss,
    })
}

/// Few different values, so that subflows are often equally wide, or equally good.
fn coarse_path() -> impl Strategy<Value = Path> {
    (1u64..5, 1u32..4, 0u64..4).prop_map(|(window, rtt, between)| Path {
        window: window * 10_000,
        between_losses: between * 1_000_000,
        rtt: rtt * 10_000,
        mss: 1_000,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4_000) })]

    #[test]
    fn the_integers_agree_with_the_equations(
        paths in prop_oneof![prop::collection::vec(any_path(), 1..33), prop::collection::vec(coarse_path(), 1..33)],
        which in any::<prop::sample::Index>(),
    ) {
        let own = which.index(paths.len());
        for algorithm in Algorithm::ALL {
            // Beyond, windows grow by less than a segment in a million.
            if rate(&paths[own]) * 1_000.0 < paths.iter().map(rate).sum() {
                continue;
            }
            let (ours, theirs) = (growth(algorithm, &paths, own), equation(algorithm, &paths, own));
            let scale = f64::from(paths[own].mss) / paths[own].window as f64;
            // OLIA's two terms may cancel.
            let tolerance = if algorithm == Algorithm::Olia { 0.01 * theirs.abs().max(scale / paths.len() as f64) } else { 0.01 * theirs };
            prop_assert!((ours - theirs).abs() <= tolerance + 4.0 / Q32, "{:?} {} {} {:?}", algorithm, ours, theirs, paths);
        }
        let a = paths.iter().map(rate).fold(0.0, f64::max) / rate(&paths[own]);
        let kept = f64::from(Sums::of(paths.iter().copied()).kept(Algorithm::Balia, &paths[own])) / 65_536.0;
        prop_assert!((kept - (1.0 - a.min(1.5) / 2.0)).abs() < 0.002);
    }

    #[test]
    fn one_subflow_alone_grows_as_reno_does_and_none_is_keener(
        paths in prop::collection::vec(any_path(), 1..9),
        which in any::<prop::sample::Index>(),
    ) {
        let own = which.index(paths.len());
        let reno = f64::from(paths[own].mss) / paths[own].window as f64;
        for algorithm in Algorithm::ALL {
            prop_assert!((growth(algorithm, &paths[own..=own], 0) / reno - 1.0).abs() < 0.003, "{:?}", algorithm);
            let limit = if algorithm == Algorithm::Olia { 2.0 } else { 1.0 };
            prop_assert!(growth(algorithm, &paths, own) <= limit * reno * 1.001, "{:?}", algorithm);
        }
    }

    #[test]
    fn the_order_in_which_subflows_are_added_does_not_matter(paths in prop::collection::vec(coarse_path(), 1..33)) {
        let (there, back) = (Sums::of(paths.iter().copied()), Sums::of(paths.iter().rev().copied()));
        for path in &paths {
            for algorithm in Algorithm::ALL {
                let [there, back] = [there, back].map(|sums| sums.growth(algorithm, path) as f64);
                // Products of other roundings, for LIA.
                prop_assert!((there - back).abs() <= 1e-3 * there.abs() + 4.0, "{:?} {} {}", algorithm, there, back);
            }
        }
    }

    #[test]
    fn whole_segments_and_the_rest_are_what_was_taken(steps in prop::collection::vec((-(1i64 << 32)..1 << 32, 0u32..1_000), 0..50)) {
        let (mut credit, mut window, mut exact) = (0, 0i64, 0i128);
        for (growth, acked) in steps {
            window += i64::from(grown(&mut credit, growth, acked));
            exact += i128::from(growth) * i128::from(acked);
            prop_assert_eq!((i128::from(window) << 32) + i128::from(credit), exact);
        }
    }
}
