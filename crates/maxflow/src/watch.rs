//! Long computations: how to follow and stop them, and how to spread them over processors.

use std::{
    num::NonZero,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Follows a long computation, and may stop it.
pub trait Watch: Sync {
    /// A computation of `steps` steps begins; `what` names it.
    fn on_start(&self, what: &str, steps: usize);
    /// A step is done.
    fn step(&self);
    /// The computation has ended, complete or stopped.
    fn on_finish(&self);
    /// Whether no further step should begin.
    fn stopped(&self) -> bool;
    /// Whether the time is over for what only makes a result more certain.
    fn is_over(&self) -> bool {
        false
    }
}

/// A [`Watch`] that ignores all reports and never stops the computation.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn on_start(&self, _: &str, _: usize) {}
    fn step(&self) {}
    fn on_finish(&self) {}
    fn stopped(&self) -> bool {
        false
    }
}

/// Runs steps `0..count` on all processors, each processor with its own state; returns the results by step.
///
/// A result is `None` if the watch stopped the computation before the step, or if its thread has panicked.
pub fn in_parallel<S, T: Send>(
    count: usize,
    watch: &dyn Watch,
    prepare: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> T + Sync,
) -> Vec<Option<T>> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut state = prepare();
        let mut done = Vec::new();
        while !watch.stopped() {
            let step = next.fetch_add(1, Ordering::Relaxed);
            if step >= count {
                break;
            }
            done.push((step, work(&mut state, step)));
            watch.step();
        }
        done
    };
    let workers = thread::available_parallelism().map_or(1, NonZero::get).min(count);
    let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(run)).collect();
        for (step, result) in workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()) {
            results[step] = Some(result);
        }
    });
    watch.on_finish();
    results
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Stops after a number of steps.
    struct Impatient {
        left: AtomicUsize,
        ended: AtomicBool,
    }

    impl Watch for Impatient {
        fn on_start(&self, _: &str, _: usize) {}
        fn step(&self) {
            let _ = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        }
        fn on_finish(&self) {
            self.ended.store(true, Ordering::SeqCst);
        }
        fn stopped(&self) -> bool {
            self.left.load(Ordering::SeqCst) == 0
        }
    }

    #[test]
    fn every_step_is_done_once_by_whichever_thread() {
        let results = in_parallel(100, &Unwatched, || 0, |_, step| step * step);
        assert!(results.iter().enumerate().all(|(step, result)| *result == Some(step * step)));
        assert!(in_parallel(0, &Unwatched, || 0, |_, step| step).is_empty());
    }

    #[test]
    fn when_the_watcher_wants_an_end_no_further_step_begins() {
        let watch = Impatient { left: AtomicUsize::new(5), ended: AtomicBool::new(false) };
        let done = in_parallel(1000, &watch, || (), |(), step| step).iter().flatten().count();
        // Steps that other threads had begun are finished.
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        assert!((5..5 + threads).contains(&done), "{done}");
        assert!(watch.ended.load(Ordering::SeqCst));
    }
}
