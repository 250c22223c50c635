//! Streams, each a thread that runs commands in order, and events.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::lock;

/// A command of a stream.
pub(crate) type StreamCommand = Box<dyn FnOnce() + Send>;

/// A stream of a GPU. Its thread ends when the stream is closed and all commands are done.
pub(crate) struct Stream {
    pub(crate) gpu: usize,
    /// Whether this stream and the legacy stream wait for each other.
    pub(crate) is_blocking: bool,
    state: Mutex<StreamState>,
    changed: Condvar,
}

#[derive(Default)]
struct StreamState {
    commands: VecDeque<StreamCommand>,
    given: u64,
    done: u64,
    is_closed: bool,
    capture: Capture,
}

/// Whether commands of a stream are recorded into a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Capture {
    #[default]
    None,
    Active,
    /// The capture is invalid: a call that a capture forbids was made.
    Broken,
}

/// The commands of a stream up to a point in time.
#[derive(Clone)]
pub(crate) struct StreamTail {
    stream: Arc<Stream>,
    given: u64,
}

impl StreamTail {
    /// Waits until all of these commands are done.
    pub(crate) fn wait(&self) {
        let mut state = lock(&self.stream.state);
        while state.done < self.given {
            let woken = self.stream.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Stream {
    /// Starts a stream that delays each command by up to `delay`.
    pub(crate) fn start(gpu: usize, is_blocking: bool, delay: Duration) -> Arc<Stream> {
        let stream = Arc::new(Stream {
            gpu,
            is_blocking,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let runs = Arc::clone(&stream);
        // Not joined: destroying a stream does not wait for its commands.
        thread::spawn(move || runs.run(delay));
        stream
    }

    fn run(&self, delay: Duration) {
        while let Some(command) = self.next() {
            if !delay.is_zero() {
                thread::sleep(delay.mul_f64(random()));
            }
            command();
            lock(&self.state).done += 1;
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<StreamCommand> {
        let mut state = lock(&self.state);
        loop {
            if let Some(command) = state.commands.pop_front() {
                return Some(command);
            }
            if state.is_closed {
                return None;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Adds a command after the others.
    pub(crate) fn put(&self, command: StreamCommand) {
        let mut state = lock(&self.state);
        state.given += 1;
        state.commands.push_back(command);
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the commands added so far.
    pub(crate) fn tail(self: &Arc<Stream>) -> StreamTail {
        let given = lock(&self.state).given;
        let stream = Arc::clone(self);
        StreamTail { stream, given }
    }

    /// Ends the stream after its commands.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn capture(&self) -> Capture {
        lock(&self.state).capture
    }

    /// Sets whether the stream is captured. Returns the previous state.
    pub(crate) fn set_capture(&self, capture: Capture) -> Capture {
        std::mem::replace(&mut lock(&self.state).capture, capture)
    }
}

/// A position in a stream, which is past after the stream reached it.
#[derive(Default)]
pub(crate) struct StreamPosition {
    past: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl StreamPosition {
    /// Marks the position as reached.
    pub(crate) fn reach(&self) {
        *lock(&self.past) = Some(Instant::now());
        self.changed.notify_all();
    }

    /// Returns the time when the position was reached, if it was.
    pub(crate) fn past(&self) -> Option<Instant> {
        *lock(&self.past)
    }

    pub(crate) fn wait(&self) {
        let mut past = lock(&self.past);
        while past.is_none() {
            let woken = self.changed.wait(past);
            past = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// An event: its last recorded mark.
pub(crate) struct FakeEvent {
    pub(crate) gpu: usize,
    pub(crate) is_timed: bool,
    pub(crate) mark: Mutex<Option<Arc<StreamPosition>>>,
}

/// Returns the next number, from 0 to 1, of a sequence of the process (splitmix64).
fn random() -> f64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    let mut z = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_runs_commands_in_order_and_ends() {
        let stream = Stream::start(0, true, Duration::from_micros(200));
        let done = Arc::new(Mutex::new(Vec::new()));
        for n in 0..20 {
            let done = Arc::clone(&done);
            stream.put(Box::new(move || lock(&done).push(n)));
        }
        let tail = stream.tail();
        stream.close();

        tail.wait();
        assert_eq!(*lock(&done), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_mark_is_past_once_its_stream_reaches_it() {
        let (first, second) = (
            StreamPosition::default(),
            Arc::new(StreamPosition::default()),
        );
        let stream = Stream::start(0, true, Duration::ZERO);
        let held = Arc::new(first);
        let waits = Arc::clone(&held);
        stream.put(Box::new(move || waits.wait()));
        let reaches = Arc::clone(&second);
        stream.put(Box::new(move || reaches.reach()));

        assert!(second.past().is_none());
        held.reach();
        second.wait();
        assert!(second.past() >= held.past());
        stream.close();
    }
}
