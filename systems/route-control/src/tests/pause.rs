//! Probes that show nothing, and drivers that come late.

use super::*;

/// A driver that wakes each millisecond, but not while it sleeps; returns how many probes it sent in each millisecond.
fn drive(
    bench: &mut Bench,
    seconds: std::ops::Range<f64>,
    asleep: impl Fn(f64) -> bool,
    path: impl Fn(f64, usize) -> Path,
) -> Vec<(f64, usize)> {
    let mut sent = Vec::new();
    let (first, end) = ((seconds.start * 1e3) as u64, (seconds.end * 1e3) as u64);
    for now in (first..end).map(|millis| at(millis as f64 / 1e3)) {
        if asleep(now.as_secs_f64()) {
            continue;
        }
        while let Some((due, ..)) = bench.answers.front().copied().filter(|(due, ..)| *due <= now) {
            let (_, probe, delay) = bench.answers.pop_front().unwrap();
            bench.controller.handle_answer(due, probe, Some(delay));
        }
        let before = bench.sent;
        while let Some((_, timeout)) = bench.controller.next_timeout().filter(|(due, _)| *due <= now) {
            bench.take_timeout(now, timeout, &path, &|_, _| None);
        }
        sent.push((now.as_secs_f64(), bench.sent - before));
    }
    sent
}

fn count(sent: &[(f64, usize)], seconds: std::ops::Range<f64>) -> usize {
    sent.iter().filter(|(at, _)| seconds.contains(at)).map(|(_, probes)| probes).sum()
}

fn live() -> Bench {
    let mut bench = Bench::two(&guarded());
    bench.controller = bench.controller.with_stability(Stability::default());
    bench
}

#[test]
fn a_driver_that_slept_sends_a_probe_of_each_egress_at_most_at_once_and_a_round_in_the_next_second() {
    for (frozen, told) in [(0.035, false), (0.7, false), (3.0, false), (20.0, false), (60.0, true)] {
        let mut bench = live();
        drive(&mut bench, 0.0..10.75, |_| false, |_, _| FINE);
        let wakes = 10.75 + frozen;
        let asleep = |now: f64| now < wakes;
        if told {
            bench.answers.clear();
            bench.controller.handle_pause(at(wakes));
        }
        let sent = drive(&mut bench, 10.75..wakes + 10.0, asleep, |_, _| FINE);
        let most = sent.iter().map(|(_, probes)| *probes).max().unwrap();
        assert!(most <= 2, "{most} probes at once after {frozen} s");
        // A round is of 40 probes of each egress, and a second may have the end of one and most of the next.
        let first = count(&sent, wakes..wakes + 1.0);
        assert!(first <= 82, "{first} probes in the first second after {frozen} s");
        assert!(count(&sent, wakes + 1.0..wakes + 10.0) >= 8 * 80, "it goes on");
        assert_eq!(bench.moves(), [], "after {frozen} s");
        assert!(bench.decisions.iter().all(|one| one.reason == Reason::Fine), "after {frozen} s");
    }
}

#[test]
fn an_outage_that_began_while_the_driver_slept_is_seen_when_it_is_awake() {
    let mut bench = live();
    drive(&mut bench, 0.0..10.75, |_| false, |_, _| FINE);
    bench.answers.clear();
    bench.controller.handle_pause(at(30.0));
    assert_eq!(bench.controller.report(0).unwrap().health, Health::Fine, "the time that has passed is no outage");
    drive(&mut bench, 30.0..33.0, |_| false, while_bad(0.0, 100.0, DEAD));
    assert_eq!(bench.moves(), [(1, Reason::Dead)]);
}

#[test]
fn probes_that_could_not_be_sent_are_no_losses_and_an_egress_of_which_most_were_not_is_not_judged() {
    for (first_void, health, lost) in [(0, Health::Fine, 0.0), (15, Health::Fine, 0.0), (30, Health::Dead, 1.0)] {
        let mut bench = live();
        bench.run(5.3, |_, _| FINE);
        let period = loop {
            let (now, _) = bench.controller.next_timeout().unwrap();
            bench.controller.handle_timeout(now, 0);
            let probes: Vec<_> = std::iter::from_fn(|| bench.controller.poll_transmit(now)).collect();
            for probe in &probes {
                match probe.egress {
                    0 if probe.number >= first_void => bench.controller.handle_void(*probe),
                    0 => {}
                    _ => bench.controller.handle_answer(now, *probe, None),
                }
            }
            if let Some(probe) = probes.first().filter(|probe| probe.number == 39) {
                break probe.period;
            }
        };
        let decided = loop {
            let (now, timeout) = bench.controller.next_timeout().unwrap();
            bench.controller.handle_timeout(now, 0);
            if timeout == Timeout::Decision {
                break bench.controller.report(0).unwrap();
            }
        };
        // What was sent of the measurement is lost; below half of it shows nothing.
        assert_eq!((decided.health, decided.lost), (health, lost), "{first_void} of period {period}");
    }
}

#[test]
fn an_egress_that_cannot_be_probed_is_unknown_and_is_not_left_for_that() {
    let mut bench = live();
    bench.run(5.3, |_, _| FINE);
    bench.controller.forget_health(0);
    let end = at(20.0);
    while let Some((now, _)) = bench.controller.next_timeout().filter(|(due, _)| *due < end) {
        bench.controller.handle_timeout(now, 0);
        while let Some(probe) = bench.controller.poll_transmit(now) {
            match probe.egress {
                0 => bench.controller.handle_void(probe),
                _ => bench.controller.handle_answer(now, probe, None),
            }
        }
    }
    let report = bench.controller.report(0).unwrap();
    assert_eq!((report.health, report.lost, bench.controller.active()), (Health::Unknown, 0.0, 0));
    bench.run(25.0, |_, _| FINE);
    assert_eq!(bench.controller.report(0).unwrap().health, Health::Fine);
}
