//! State of a thread: its stack of contexts, its capture mode, its log of calls.

use std::cell::{Cell, RefCell};

use crate::testing::Call;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls of this thread do not invalidate a capture.
pub(crate) const RELAXED: u32 = 2;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, the initial mode of a thread.
const GLOBAL: u32 = 0;

thread_local! {
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// Removes the contexts, the mode and the log of this thread.
pub(crate) fn reset() {
    CONTEXTS.with_borrow_mut(Vec::clear);
    MODE.set(GLOBAL);
    take_log();
}

/// Appends a call to the log. Takes no lock, so it works in a forked child.
pub(crate) fn log(function: &'static str, arguments: &[u64]) {
    let arguments = arguments.to_vec();
    CALLS.with_borrow_mut(|calls| {
        calls.push(Call {
            function,
            arguments,
        })
    });
}

/// Returns the log and clears it.
pub(crate) fn take_log() -> Vec<Call> {
    CALLS.take()
}

/// Returns the number of contexts on the stack.
pub(crate) fn depth() -> usize {
    CONTEXTS.with_borrow(Vec::len)
}

pub(crate) fn push(context: usize) {
    CONTEXTS.with_borrow_mut(|stack| stack.push(context));
}

pub(crate) fn pop() -> Option<usize> {
    CONTEXTS.with_borrow_mut(Vec::pop)
}

/// Returns the context on top of the stack, which this thread's calls use.
pub(crate) fn top() -> Option<usize> {
    CONTEXTS.with_borrow(|stack| stack.last().copied())
}

/// Replaces the context on top of the stack, or pushes one.
pub(crate) fn set(context: usize) {
    CONTEXTS.with_borrow_mut(|stack| {
        stack.pop();
        stack.push(context);
    });
}

/// Sets the mode. Returns the previous one.
pub(crate) fn exchange_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

pub(crate) fn is_relaxed() -> bool {
    MODE.get() == RELAXED
}
