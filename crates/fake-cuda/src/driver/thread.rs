//! State of a thread: its stack of contexts and its capture mode.

use std::cell::{Cell, RefCell};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls of this thread do not invalidate a capture.
pub(crate) const RELAXED: u32 = 2;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, the initial mode of a thread.
const GLOBAL: u32 = 0;

thread_local! {
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Removes the contexts and the mode of this thread.
pub(crate) fn reset() {
    CONTEXTS.with_borrow_mut(Vec::clear);
    MODE.set(GLOBAL);
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
