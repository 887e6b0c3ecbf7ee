//! How far the streams may follow the host.

use gvmm::driver::HostFunction;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A host that does not get on for so long waits for a stream; streams then go on, as a GPU would, until it does.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a host has done, for streams that wait for that.
#[derive(Debug)]
pub(super) struct Pace {
    state: Mutex<State>,
    changed: Condvar,
    patience: Duration,
}

#[derive(Debug)]
struct State {
    /// Operations.
    done: u64,
    /// Nobody waits any more.
    open: bool,
    /// Nobody waits while so many are done.
    stalled: Option<u64>,
    /// The least that any stream waits for.
    next: u64,
}

impl Pace {
    pub(super) fn new() -> Arc<Self> {
        Self::with(PATIENCE)
    }

    fn with(patience: Duration) -> Arc<Self> {
        let state = State { done: 0, open: false, stalled: None, next: u64::MAX };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), patience })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host has done so many operations.
    pub(super) fn advance(&self, done: u64) {
        let mut state = self.state();
        state.done = done;
        if done >= state.next {
            state.next = u64::MAX;
            self.changed.notify_all();
        }
    }

    /// Lets all streams go on, now and from now on.
    pub(super) fn open(&self) {
        self.state().open = true;
        self.changed.notify_all();
    }

    /// What a stream is given so that it goes no further before the host has done `goal` operations.
    pub(super) fn gate(self: &Arc<Self>, goal: u64) -> HostFunction {
        let pace = Arc::clone(self);
        Arc::new(move || pace.wait(goal))
    }

    fn wait(&self, goal: u64) {
        let mut state = self.state();
        while state.done < goal && !state.open && state.stalled != Some(state.done) {
            let seen = state.done;
            state.next = state.next.min(goal);
            let (now, waited) =
                self.changed.wait_timeout(state, self.patience).unwrap_or_else(PoisonError::into_inner);
            state = now;
            if waited.timed_out() && state.done == seen {
                state.stalled = Some(seen);
                self.changed.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_waits_for_the_host_and_not_for_ever() {
        let pace = Pace::with(Duration::from_millis(1));
        pace.advance(5);
        // The host has been there; then it does not get on; then it says that nobody needs to wait.
        pace.gate(5)();
        pace.gate(6)();
        pace.open();
        pace.gate(u64::MAX)();
        let pace = Pace::with(Duration::from_secs(3600));
        let (gate, order) = (pace.gate(3), Arc::new(Mutex::new(Vec::new())));
        let of_stream = Arc::clone(&order);
        let stream = std::thread::spawn(move || {
            gate();
            of_stream.lock().expect("nobody panics").push(9);
        });
        for done in 1..=3 {
            order.lock().expect("nobody panics").push(done);
            pace.advance(done);
        }
        stream.join().expect("it ends");
        let order = order.lock().expect("nobody panics").clone();
        assert_eq!(order.iter().filter(|&&n| n == 9).count(), 1);
        assert_eq!(order.last(), Some(&9), "{order:?}");
    }
}
