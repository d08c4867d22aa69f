//! The probes that may still be answered.

use sidestep_net::Time;
use sidestep_proto::stamp::WallTime;

/// How many probes are remembered: those of ten seconds at one each 10 ms.
pub const WINDOW: usize = 1_024;

/// A probe that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) sequence: u32,
    /// Before it was given to the kernel.
    pub(super) now: Time,
    /// The same by the clock that shows the date.
    pub(super) wall: WallTime,
    /// When it entered the queue of its device, as the kernel reports.
    pub(super) stamp: Option<WallTime>,
}

/// The last [`WINDOW`] probes, by their numbers.
#[derive(Debug)]
pub(super) struct Pending(Box<[Slot]>);

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    sent: Sent,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    Waiting,
    Answered,
}

/// What is known of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// The probe waits for its answer.
    Waiting(Sent),
    /// It has been answered.
    Answered,
    /// No such probe was sent recently.
    Unknown,
}

impl Default for Pending {
    fn default() -> Self {
        Pending(vec![Slot::default(); WINDOW].into_boxed_slice())
    }
}

impl Pending {
    /// Remembers a probe, in the place of the one that was sent [`WINDOW`] probes before.
    pub(super) fn insert(&mut self, sent: Sent) {
        if let Some(slot) = self.0.get_mut(sent.sequence as usize % WINDOW) {
            *slot = Slot { sent, state: State::Waiting };
        }
    }

    /// Notes when a probe entered the queue of its device, if that can be true of it. The first time counts: with tunnels a
    /// packet enters several.
    pub(super) fn stamp(&mut self, sequence: u32, at: WallTime) {
        if let Some(slot) = self.slot(sequence)
            && slot.sent.stamp.is_none()
            && at >= slot.sent.wall
        {
            slot.sent.stamp = Some(at);
        }
    }

    /// A probe that is remembered, answered or not.
    pub(super) fn get(&mut self, sequence: u32) -> Option<Sent> {
        self.slot(sequence).map(|slot| slot.sent)
    }

    /// Notes that a probe is answered; returns what was known before.
    pub(super) fn answer(&mut self, sequence: u32) -> Lookup {
        let Some(slot) = self.slot(sequence) else { return Lookup::Unknown };
        match std::mem::replace(&mut slot.state, State::Answered) {
            State::Waiting => Lookup::Waiting(slot.sent),
            _ => Lookup::Answered,
        }
    }

    fn slot(&mut self, sequence: u32) -> Option<&mut Slot> {
        let slot = self.0.get_mut(sequence as usize % WINDOW)?;
        (slot.state != State::Free && slot.sent.sequence == sequence).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(sequence: u32) -> Sent {
        let at = u64::from(sequence) * 10;
        Sent { sequence, now: Time::from_nanos(at), wall: WallTime::from_nanos(at), stamp: None }
    }

    #[test]
    fn a_probe_is_answered_once_and_forgotten_after_a_window_of_others() {
        let mut pending = Pending::default();
        assert_eq!(pending.answer(0), Lookup::Unknown, "nothing was sent");
        (0..5).for_each(|sequence| pending.insert(sent(sequence)));
        assert_eq!(pending.answer(3), Lookup::Waiting(sent(3)));
        assert_eq!(pending.answer(3), Lookup::Answered);
        assert_eq!(pending.answer(5), Lookup::Unknown);
        pending.insert(sent(WINDOW as u32 + 2));
        assert_eq!(pending.answer(2), Lookup::Unknown, "another has its place");
        assert_eq!(pending.answer(WINDOW as u32 + 2), Lookup::Waiting(sent(WINDOW as u32 + 2)));
    }

    #[test]
    fn a_timestamp_counts_once_and_not_from_before_its_probe() {
        let mut pending = Pending::default();
        pending.insert(sent(7));
        pending.stamp(7, WallTime::from_nanos(69));
        pending.stamp(8, WallTime::from_nanos(100));
        assert_eq!(pending.get(7).unwrap().stamp, None);
        pending.stamp(7, WallTime::from_nanos(71));
        pending.stamp(7, WallTime::from_nanos(75));
        assert_eq!(pending.get(7).unwrap().stamp, Some(WallTime::from_nanos(71)));
    }
}
