//! Rounds of probes over several paths to one place, and which of the paths are dead by them.
//!
//! Each round probes every path once. A round that no path answers shows nothing about the paths: the target is down, or the path
//! back is. So a path is dead only beside others that work, and what is known of it stays while no answer comes.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::indexing_slicing))]

use std::collections::VecDeque;

use sidestep_net::{Span, Time};

/// How often paths are probed, and what makes them dead and live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundsConfig {
    /// From one round to the next.
    pub interval: Span,
    /// An answer that has not come by then is late.
    pub timeout: Span,
    /// This number of rounds in a row without an answer make a path dead.
    pub lost: u32,
    /// This number of rounds in a row that are answered in time make it live again.
    pub answered: u32,
}

/// The rounds of one set of paths. A path is known by its position.
#[derive(Clone, Debug)]
pub struct Rounds {
    config: RoundsConfig,
    paths: Vec<PathRounds>,
    /// Rounds whose time is not over, the oldest first.
    open: VecDeque<Round>,
    next: u32,
    /// When the next round begins.
    due: Time,
    /// How many rounds in a row had no answer.
    silent: u32,
}

/// What rounds show about a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRounds {
    /// Whether it is dead.
    pub dead: bool,
    /// Rounds that it has answered in time.
    pub answered: u64,
    /// Rounds that it has not, though another path has.
    pub lost: u64,
    /// Answers that came when their round was over.
    pub late: u64,
    /// Rounds lost in a row, and answered in a row.
    run: u32,
    good: u32,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    number: u32,
    until: Time,
    /// The paths that have answered: bits by position.
    answered: u64,
}

impl Rounds {
    /// The most paths of a set.
    pub const MAX_PATHS: usize = 64;

    /// All paths are live until their probes show otherwise; further ones than [`MAX_PATHS`](Self::MAX_PATHS) are left out.
    pub fn new(config: RoundsConfig, paths: usize, now: Time) -> Self {
        let paths = vec![PathRounds::default(); paths.min(Self::MAX_PATHS)];
        Rounds { config, paths, open: VecDeque::new(), next: 0, due: now, silent: 0 }
    }

    /// When something is due next: always at some time, as rounds never end.
    pub fn poll_timeout(&self) -> Option<Time> {
        Some(self.open.front().map_or(self.due, |oldest| oldest.until.min(self.due)))
    }

    /// The number of a round that begins now, if one is due: each path must be probed.
    ///
    /// Rounds that were missed, as the caller had no time, are not made up for.
    pub fn poll_transmit(&mut self, now: Time) -> Option<u32> {
        if now < self.due {
            return None;
        }
        let late = now.since(self.due) >= self.config.interval;
        self.due = if late { now } else { self.due } + self.config.interval;
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.open.push_back(Round { number, until: now + self.config.timeout, answered: 0 });
        Some(number)
    }

    /// The caller did not listen for a while, or the machine was suspended: open rounds show nothing, and the next one begins
    /// an interval from now at the latest.
    pub fn handle_pause(&mut self, now: Time) {
        self.open.clear();
        self.due = self.due.min(now + self.config.interval);
    }

    /// A path has answered the probe of a round. A second answer, by another target, changes nothing.
    pub fn handle_answer(&mut self, position: usize, round: u32) {
        let Some(path) = self.paths.get_mut(position) else { return };
        match self.open.iter_mut().find(|open| open.number == round) {
            Some(open) => open.answered |= 1 << position,
            None => {
                path.late += 1;
                // It is slow, and not dead.
                path.run = 0;
            }
        }
    }

    /// Ends the rounds whose time is over; returns whether a path has died or is live again. Hand over the answers that have come
    /// first.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        let before = self.dead();
        while let Some(round) = self.open.front().copied().filter(|round| round.until <= now) {
            self.open.pop_front();
            self.judge(round);
        }
        self.dead() != before
    }

    /// The dead paths: bits by position.
    pub fn dead(&self) -> u64 {
        self.paths.iter().enumerate().fold(0, |dead, (position, path)| dead | u64::from(path.dead) << position)
    }

    /// What is known of each path.
    pub fn paths(&self) -> &[PathRounds] {
        &self.paths
    }

    /// Whether answers come: not if as many rounds as kill a path went without any answer.
    pub fn is_answered(&self) -> bool {
        self.silent < self.config.lost
    }

    fn judge(&mut self, round: Round) {
        if round.answered == 0 {
            self.silent = self.silent.saturating_add(1);
            return;
        }
        self.silent = 0;
        let RoundsConfig { lost, answered, .. } = self.config;
        let has = |position: usize| round.answered >> position & 1 != 0;
        for (position, path) in self.paths.iter_mut().enumerate() {
            if has(position) {
                (path.run, path.good, path.answered) = (0, path.good.saturating_add(1), path.answered + 1);
                path.dead &= path.good < answered;
            } else {
                (path.run, path.good, path.lost) = (path.run.saturating_add(1), 0, path.lost + 1);
                path.dead |= path.run >= lost;
            }
        }
        // No path is left to wait on: those that answer are better than none.
        if self.paths.iter().all(|path| path.dead) {
            let answering = self.paths.iter_mut().enumerate().filter(|(position, _)| has(*position));
            answering.for_each(|(_, path)| path.dead = false);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: RoundsConfig =
        RoundsConfig { interval: Span::from_millis(100), timeout: Span::from_millis(300), lost: 3, answered: 5 };

    struct World {
        rounds: Rounds,
        now: Time,
    }

    impl World {
        fn new(paths: usize) -> Self {
            World { rounds: Rounds::new(CONFIG, paths, Time::ZERO), now: Time::ZERO }
        }

        /// Runs rounds in which these paths answer after 20 ms; returns when the dead paths changed last.
        fn run(&mut self, rounds: usize, answering: &[usize]) -> Option<Time> {
            let mut changed = None;
            for _ in 0..rounds {
                self.now = self.now.max(self.rounds.due);
                changed = self.rounds.handle_timeout(self.now).then_some(self.now).or(changed);
                let number = self.rounds.poll_transmit(self.now).expect("it is due");
                assert_eq!(self.rounds.poll_transmit(self.now), None);
                self.now += Span::from_millis(20);
                answering.iter().for_each(|path| self.rounds.handle_answer(*path, number));
            }
            changed
        }
    }

    #[test]
    fn a_silent_path_is_dead_after_three_lost_probes_and_live_after_a_longer_run_of_answers() {
        let mut world = World::new(3);
        world.run(10, &[0, 1, 2]);
        assert_eq!(world.rounds.dead(), 0);
        let began = world.now;
        let died = world.run(10, &[0, 2]).expect("it dies");
        assert_eq!((world.rounds.dead(), died.since(began)), (0b010, Span::from_millis(580)));
        // Two answers and a loss are not enough.
        for _ in 0..5 {
            world.run(4, &[0, 1, 2]);
            world.run(1, &[0, 2]);
        }
        assert_eq!(world.rounds.dead(), 0b010);
        world.run(5 + 3, &[0, 1, 2]);
        assert_eq!(world.rounds.dead(), 0);
    }

    #[test]
    fn rounds_without_an_answer_kill_no_path_and_revive_none() {
        let mut world = World::new(3);
        world.run(10, &[0, 2]);
        assert_eq!((world.rounds.dead(), world.rounds.is_answered()), (0b010, true));
        world.run(100, &[]);
        assert_eq!((world.rounds.dead(), world.rounds.is_answered()), (0b010, false));
        world.run(10, &[1]);
        assert_eq!((world.rounds.dead(), world.rounds.is_answered()), (0b101, true));
        let mut single = World::new(1);
        single.run(100, &[]);
        assert_eq!(single.rounds.dead(), 0, "there is no other path");
    }

    #[test]
    fn the_only_path_that_answers_is_live_at_once() {
        let mut world = World::new(2);
        world.run(10, &[1]);
        assert_eq!(world.rounds.dead(), 0b01);
        // Three rounds that the other one loses, and those that are open.
        world.run(3 + 3, &[0]);
        assert_eq!(world.rounds.dead(), 0b10);
    }

    #[test]
    fn answers_that_come_late_keep_a_path_alive_and_do_not_revive_it() {
        let mut world = World::new(2);
        let late = |world: &mut World| {
            let number = world.rounds.next;
            world.run(1, &[0]);
            world.rounds.handle_answer(1, number.wrapping_sub(5));
        };
        (0..50).for_each(|_| late(&mut world));
        assert_eq!(world.rounds.dead(), 0);
        assert!(world.rounds.paths()[1].late > 40 && world.rounds.paths()[1].answered == 0);
        world.run(10, &[0]);
        assert_eq!(world.rounds.dead(), 0b10);
        (0..50).for_each(|_| late(&mut world));
        assert_eq!(world.rounds.dead(), 0b10);
    }

    #[test]
    fn rounds_that_were_missed_are_not_made_up_for() {
        let mut world = World::new(2);
        world.run(10, &[0, 1]);
        world.now += Span::from_secs(60);
        assert!(world.rounds.poll_transmit(world.now).is_some());
        assert_eq!(world.rounds.poll_transmit(world.now), None);
        world.rounds.handle_timeout(world.now + CONFIG.timeout);
        assert_eq!(world.rounds.dead(), 0);
    }

    #[test]
    fn rounds_that_were_open_when_the_machine_was_suspended_kill_no_path() {
        let mut world = World::new(2);
        world.run(10, &[0, 1]);
        // Path 1 answered a probe just before, and the suspended machine received nothing from path 0 for three rounds.
        for _ in 0..3 {
            let number = world.rounds.poll_transmit(world.now.max(world.rounds.due)).unwrap();
            world.now = world.rounds.due;
            world.rounds.handle_answer(1, number);
        }
        world.now += Span::from_secs(60);
        world.rounds.handle_pause(world.now);
        world.rounds.handle_timeout(world.now);
        assert_eq!(world.rounds.dead(), 0);
        world.run(10, &[0, 1]);
        assert_eq!(world.rounds.dead(), 0);
    }

    proptest! {
        /// The reference looks at all rounds that have an answer, one path at a time.
        #[test]
        fn a_path_is_dead_as_the_last_rounds_say(answers in prop::collection::vec(0_u64..16, 0..80)) {
            let mut rounds = Rounds::new(CONFIG, 4, Time::ZERO);
            let mut now = Time::ZERO;
            let mut dead = [false; 4];
            let mut heard: Vec<u64> = Vec::new();
            for answered in answers {
                let number = rounds.poll_transmit(now).unwrap();
                (0..4).filter(|path| answered >> path & 1 != 0).for_each(|path| rounds.handle_answer(path, number));
                rounds.handle_timeout(now + CONFIG.timeout);
                now = rounds.due;
                if answered > 0 {
                    heard.push(answered);
                    for (path, dead) in dead.iter_mut().enumerate() {
                        let last = |count: u32, bit: u64| {
                            heard.len() >= count as usize
                                && heard.iter().rev().take(count as usize).all(|round| round >> path & 1 == bit)
                        };
                        *dead = if *dead { !last(CONFIG.answered, 1) } else { last(CONFIG.lost, 0) };
                    }
                    if dead.iter().all(|dead| *dead) {
                        (0..4).for_each(|path| dead[path] = answered >> path & 1 == 0);
                    }
                }
                let expected = (0..4).fold(0, |bits, path| bits | u64::from(dead[path]) << path);
                prop_assert_eq!(rounds.dead(), expected);
            }
        }
    }
}
