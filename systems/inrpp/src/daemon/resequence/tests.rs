use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What a flow has, as a list that is searched from the start each time.
#[derive(Clone, Debug, Default)]
struct Slow {
    next: Option<u64>,
    /// Where each begins and ends, when it came, and its number.
    waiting: Vec<(u64, u64, Time, u32)>,
}

/// The resequencer again, with nothing remembered that can be computed.
#[derive(Debug)]
struct Reference {
    max_wait: Span,
    limits: (u64, u64),
    flows: BTreeMap<u64, Slow>,
    out: Vec<u32>,
}

impl Slow {
    fn bytes(&self) -> u64 {
        self.waiting.iter().map(|(start, end, ..)| end - start + OVERHEAD).sum()
    }

    fn advance(&mut self, next: u64, out: &mut Vec<u32>) {
        let mut next = self.next.unwrap_or(0).max(next);
        // Those that begin alike leave as they came.
        while let Some(first) = (0..self.waiting.len()).min_by_key(|at| self.waiting[*at].0) {
            if self.waiting[first].0 > next {
                break;
            }
            let (_, end, _, number) = self.waiting.remove(first);
            next = next.max(end);
            out.push(number);
        }
        self.next = (!self.waiting.is_empty()).then_some(next);
    }
}

impl Reference {
    fn oldest(&self) -> Option<(Time, u32, u64)> {
        let of = |(key, flow): (&u64, &Slow)| flow.waiting.iter().map(|of| (of.2, of.3, *key)).min();
        self.flows.iter().filter_map(of).min()
    }

    fn arrive(&mut self, now: Time, key: u64, passed: u64, (start, end): (u64, u64), number: u32) {
        loop {
            let total: u64 = self.flows.values().map(Slow::bytes).sum();
            let oldest = self.oldest();
            let flow = self.flows.entry(key).or_default();
            let (next, cost) = (flow.next.unwrap_or(passed), end - start + OVERHEAD);
            if start <= next || end <= next {
                self.out.push(number);
                return if flow.next.is_some() {
                    flow.advance(end, &mut self.out)
                };
            }
            let is_flow_full = flow.bytes() + cost > self.limits.0;
            if !is_flow_full && total + cost <= self.limits.1 {
                flow.next = Some(next);
                return flow.waiting.push((start, end, now, number));
            }
            let gives = if is_flow_full { Some(key) } else { oldest.map(|oldest| oldest.2) };
            let gives = gives.and_then(|gives| self.flows.get_mut(&gives).map(|flow| (gives, flow)));
            let first = gives.as_ref().and_then(|(_, flow)| flow.waiting.iter().map(|of| of.0).min());
            match (gives, first) {
                (Some((gives, flow)), Some(first)) if gives != key || first <= start => {
                    flow.advance(first, &mut self.out)
                }
                (Some((_, flow)), Some(_)) => {
                    self.out.push(number);
                    return flow.advance(end, &mut self.out);
                }
                _ => return self.out.push(number),
            }
        }
    }

    fn timeout(&mut self, now: Time) {
        while let Some((_, number, key)) = self.oldest().filter(|oldest| oldest.0 + self.max_wait <= now) {
            let flow = self.flows.get_mut(&key).unwrap();
            let start = flow.waiting.iter().find(|of| of.3 == number).unwrap().0;
            flow.advance(start, &mut self.out);
        }
    }
}

fn packets() -> impl Strategy<Value = Vec<(u64, u64, u64, u64)>> {
    proptest::collection::vec((0u64..3, 0u64..2_000, 0u64..300, 0u64..4), 0..120)
}

proptest! {
    /// Any packets at any time do what the slow one does, each leaves once and in time, and memory is bounded.
    #[test]
    fn packets_leave_as_the_slow_one_says(
        packets in packets(), wait in 0u64..20, of_flow in 0u64..4_000, all in 0u64..6_000,
    ) {
        let (max_wait, mut now) = (Span::from_millis(wait), Time::ZERO);
        let mut fast = Resequencer::new(max_wait, Bytes::new(of_flow), Bytes::new(all));
        let mut slow = Reference { max_wait, limits: (of_flow, all), flows: BTreeMap::new(), out: Vec::new() };
        let (mut out, mut came, mut passed) = (Vec::new(), Vec::new(), BTreeMap::<u64, u64>::new());
        for (number, (flow, start, len, pause)) in (0u32..).zip(packets) {
            now += Span::from_millis(pause);
            fast.handle_timeout(now, &mut |Handle(number)| out.push(number));
            slow.timeout(now);
            let hint = passed.entry(flow).or_default();
            fast.arrive(now, flow, *hint, start, start + len, Handle(number), &mut |Handle(number)| out.push(number));
            slow.arrive(now, flow, *hint, (start, start + len), number);
            *hint = (*hint).max(start + len);
            came.push(now);
            prop_assert_eq!(&out, &slow.out);
            prop_assert!(fast.bytes().get() <= all);
            prop_assert!(slow.flows.values().all(|flow| flow.bytes() <= of_flow));
            let waits: Vec<Time> = (0..came.len()).filter(|at| !out.contains(&(*at as u32))).map(|at| came[at]).collect();
            prop_assert_eq!(fast.len(), waits.len());
            prop_assert_eq!(fast.poll_timeout(), waits.iter().min().map(|first| *first + max_wait));
            prop_assert!(fast.poll_timeout().is_none_or(|due| due + Span::from_millis(1) > now));
        }
        fast.handle_timeout(now + max_wait, &mut |Handle(number)| out.push(number));
        prop_assert!(fast.is_empty() && fast.by_key.is_empty() && fast.bytes() == Bytes::new(0));
        out.sort_unstable();
        prop_assert!(out.iter().copied().eq(0..came.len() as u32));
        let counts = fast.counts();
        prop_assert!(counts.restored + counts.timed_out + counts.overflowed <= came.len() as u64);
    }

    /// Where there is time and room, each flow's segments leave in order, whatever the order is in which they come.
    #[test]
    fn order_is_restored(lens in proptest::collection::vec(1u64..2_000, 1..80), seed in any::<u64>(), lookup in any::<bool>()) {
        let mut segments: Vec<(u64, u64)> = lens.iter().scan(0, |end, len| {
            let start = *end;
            *end += len;
            Some((start, *end))
        }).collect();
        let sorted = segments.clone();
        segments.sort_by_key(|(start, _)| (start ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut all = Resequencer::new(Span::from_secs(1), Bytes::new(u64::MAX), Bytes::new(u64::MAX));
        let (mut out, mut passed) = (Vec::new(), 0);
        for (at, (start, end)) in (0u32..).zip(segments.iter().copied()) {
            let mut leaves = |packet: Handle| out.push(segments[packet.0 as usize]);
            // The copy is spared where the packet may leave at once.
            if lookup && all.is_in_order(7, passed, start, end) != Verdict::Ahead {
                leaves(Handle(at));
                all.passed(7, end, &mut leaves);
            } else {
                all.arrive(Time::ZERO, 7, passed, start, end, Handle(at), &mut leaves);
            }
            passed = passed.max(end);
        }
        prop_assert_eq!(out, sorted);
        prop_assert!(all.is_empty() && all.counts().timed_out + all.counts().overflowed == 0);
    }
}

#[test]
fn a_fin_without_data_waits_for_what_is_before_it_and_the_end_of_a_flow_for_nothing() {
    let mut all = Resequencer::new(Span::from_millis(5), Bytes::new(10_000), Bytes::new(10_000));
    let mut out = Vec::new();
    let mut leaves = |packet: Handle| out.push(packet.0);
    all.arrive(Time::ZERO, 2, 100, 300, 300, Handle(3), &mut leaves);
    all.arrive(Time::ZERO, 2, 300, 200, 300, Handle(2), &mut leaves);
    all.arrive(Time::ZERO, 2, 300, 100, 200, Handle(1), &mut leaves);
    all.arrive(Time::ZERO, 4, 100, 500, 600, Handle(4), &mut leaves);
    assert!(all.holds(4) && !all.holds(2));
    all.forget(4, &mut leaves);
    all.arrive(Time::ZERO, 6, 100, 500, 600, Handle(5), &mut leaves);
    all.arrive(Time::ZERO, 8, 100, 500, 600, Handle(6), &mut leaves);
    all.clear(&mut leaves);
    assert_eq!((out, all.counts().restored), (vec![1, 2, 3, 4, 5, 6], 2));
}
