//! Users who transfer, think for an exponential time, and transfer again.

use std::{cmp::Reverse, collections::BinaryHeap};

use rand_pcg::Pcg32;
use sidestep_net::{Bytes, Span};
use sidestep_scenario::workload::{self, SizeDistribution};

use super::Monotonic;

/// The users of one sender; the same random numbers as in the simulator.
#[derive(Clone, Debug, PartialEq)]
pub struct Users {
    /// How many.
    pub count: u32,
    /// Number of the first among the flow's.
    pub first: u32,
    /// Mean time between the end of a transfer and the next one's start.
    pub think: Span,
    /// How large transfers are.
    pub sizes: SizeDistribution,
    /// When no more transfers begin, counted from the epoch.
    pub until: Span,
    /// Seed of the run.
    pub seed: u64,
    /// Stream of random numbers of the flow.
    pub stream: u64,
}

/// A transfer that a user begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Position of the user among the sender's.
    pub user: usize,
    /// Number of the user among the flow's, and of the transfer among the user's.
    pub name: (u32, u32),
    /// Payload.
    pub size: Bytes,
}

/// When which user begins the next transfer.
#[derive(Debug)]
pub struct Crowd {
    options: Users,
    until: Monotonic,
    users: Vec<User>,
    due: BinaryHeap<Reverse<(Monotonic, usize)>>,
}

#[derive(Debug)]
struct User {
    random: Pcg32,
    transfers: u32,
}

impl Crowd {
    /// The users, who begin to think at `start`.
    pub fn new(options: &Users, epoch: Monotonic, start: Monotonic) -> Self {
        let random = |index: u32| Pcg32::new(options.seed.wrapping_add(index.into()), options.stream);
        let user = |index| User { random: random(options.first + index), transfers: 0 };
        let users = (0..options.count).map(user).collect();
        let until = epoch + options.until;
        let mut crowd = Crowd { options: options.clone(), until, users, due: BinaryHeap::new() };
        for user in 0..crowd.users.len() {
            crowd.think(user, start);
        }
        crowd
    }

    /// A user thinks from `since` on.
    pub fn think(&mut self, user: usize, since: Monotonic) {
        let Some(of) = self.users.get_mut(user) else { return };
        let done = since + workload::exponential(self.options.think, &mut of.random);
        if done < self.until {
            self.due.push(Reverse((done, user)));
        }
    }

    /// When the next transfer begins; `None`: not before another has ended.
    pub fn next_at(&self) -> Option<Monotonic> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// The next transfer that is to begin by `now`.
    pub fn begin(&mut self, now: Monotonic) -> Option<Begun> {
        self.next_at().filter(|at| *at <= now)?;
        let Reverse((_, user)) = self.due.pop()?;
        let of = self.users.get_mut(user)?;
        let size = self.options.sizes.draw(&mut of.random);
        let name = (self.options.first + user as u32, of.transfers);
        of.transfers += 1;
        Some(Begun { user, name, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(count: u32, first: u32) -> Users {
        Users {
            count,
            first,
            think: Span::from_millis(10),
            sizes: SizeDistribution::Exponential(Bytes::new(10_000)),
            until: Span::from_secs(1),
            seed: 7,
            stream: 3,
        }
    }

    #[test]
    fn a_user_thinks_between_transfers_and_draws_the_same_wherever_the_user_sits() {
        let start = Monotonic::from_nanos(1_000);
        let (mut all, mut second) = (Crowd::new(&users(2, 0), start, start), Crowd::new(&users(1, 1), start, start));
        let far = Monotonic::from_nanos(u64::MAX);
        let both = [all.begin(far).unwrap(), all.begin(far).unwrap()];
        let alone = second.begin(far).unwrap();
        assert_eq!(all.next_at(), None, "a user waits for the end of the transfer");
        let same = both.iter().find(|begun| begun.name.0 == 1).unwrap();
        assert_eq!((same.name, same.size), (alone.name, alone.size));
        assert_ne!(both[0].size, both[1].size);

        second.think(0, start + Span::from_millis(5));
        let next = second.next_at().unwrap();
        assert!(next > start + Span::from_millis(5));
        assert_eq!(second.begin(start + Span::from_millis(5)), None, "the user still thinks");
        assert_eq!(second.begin(next).unwrap().name, (1, 1));
        second.think(0, start + Span::from_secs(1));
        assert_eq!(second.next_at(), None, "no transfer begins after the flow's end");
    }
}
