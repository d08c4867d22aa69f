use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Reserve,
    Fill(usize, Vec<u8>, usize),
    Note(usize, u64),
    Free(usize),
    /// Of a handle that may be anybody's.
    Guess(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Reserve),
        4 => (any::<usize>(), proptest::collection::vec(any::<u8>(), 0..70), 0usize..70)
            .prop_map(|(at, bytes, cut)| Step::Fill(at, bytes, cut)),
        2 => (any::<usize>(), any::<u64>()).prop_map(|(at, flow)| Step::Note(at, flow)),
        3 => any::<usize>().prop_map(Step::Free),
        1 => prop_oneof![0u32..10, any::<u32>()].prop_map(Step::Guess),
    ]
}

proptest! {
    /// As a map from handles to packets has it, and old handles do nothing.
    #[test]
    fn slots_hold_what_was_written(steps in proptest::collection::vec(step(), 0..200)) {
        let mut slots = Slots::new(64, Bytes::new(9 * 88 + 87));
        let (mut model, mut all, mut peak) = (HashMap::<u32, (Vec<u8>, u64)>::new(), Vec::<Handle>::new(), 0);
        for step in steps {
            let pick = |at: usize| all.get(at % all.len().max(1)).copied();
            match step {
                Step::Reserve => match slots.reserve() {
                    Some(handle) => {
                        prop_assert!(model.insert(handle.0, (Vec::new(), 0)).is_none());
                        prop_assert!(handle != NO_SLOT);
                        all.push(handle);
                    }
                    None => prop_assert_eq!(model.len(), 9),
                },
                Step::Fill(at, bytes, cut) => if let Some(handle) = pick(at) {
                    let (head, tail) = bytes.split_at(cut.min(bytes.len()));
                    let fits = model.contains_key(&handle.0) && bytes.len() <= 64;
                    prop_assert_eq!(slots.fill(handle, &[head, tail]), fits);
                    if let Some(of) = model.get_mut(&handle.0).filter(|_| fits) {
                        of.0 = bytes;
                    }
                    slots.with_front(handle).iter_mut().take(FRONT).for_each(|byte| *byte = 0xff);
                },
                Step::Note(at, flow) => if let Some(handle) = pick(at) {
                    let known = model.get_mut(&handle.0);
                    prop_assert_eq!(slots.note_mut(handle).map(|note| note.flow = flow).is_some(), known.is_some());
                    if let Some(of) = known {
                        of.1 = flow;
                    }
                },
                Step::Free(at) => if let Some(handle) = pick(at) {
                    slots.free(handle);
                    model.remove(&handle.0);
                },
                Step::Guess(number) if !model.contains_key(&number) => {
                    slots.free(Handle(number));
                    prop_assert!(slots.packet_mut(Handle(number)).is_empty());
                }
                Step::Guess(_) => {}
            }
            peak = peak.max(model.len());
            prop_assert_eq!((slots.used_bytes().get(), slots.peak().get()), (model.len() as u64 * 88, peak as u64 * 88));
            for handle in &all {
                let (packet, flow) = model.get(&handle.0).cloned().unwrap_or_default();
                prop_assert_eq!((slots.packet(*handle), slots.note(*handle).flow), (&packet[..], flow));
            }
        }
    }
}

#[test]
fn memory_grows_by_chunks_up_to_the_limit() {
    let mut slots = Slots::new(1_500, Bytes::new(5 << 19));
    let handles: Vec<Handle> = std::iter::from_fn(|| slots.reserve()).collect();
    assert_eq!(handles.len(), (5 << 19) / 1_524);
    assert_eq!((slots.chunks.len(), slots.used_bytes()), (3, slots.limit()));
    for (number, handle) in handles.iter().enumerate() {
        assert!(slots.fill(*handle, &[&number.to_be_bytes(), &[7; 1_492]]));
    }
    assert!(handles.iter().enumerate().all(|(number, handle)| slots.packet(*handle)[..8] == number.to_be_bytes()));
    handles.iter().for_each(|handle| slots.free(*handle));
    handles.iter().for_each(|handle| slots.free(*handle));
    assert_eq!((slots.used_bytes(), slots.misused()), (Bytes::new(0), handles.len() as u64));
    assert_eq!(std::iter::from_fn(|| slots.reserve()).count(), handles.len());
    assert_eq!(slots.chunks.len(), 3);
}

#[test]
fn no_room_is_no_slot() {
    assert_eq!(Slots::new(1_500, Bytes::new(1_523)).reserve(), None);
    assert!(Slots::new(usize::MAX, Bytes::new(u64::MAX)).reserve().is_some());
}
