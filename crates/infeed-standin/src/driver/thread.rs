//! What belongs to a thread of the process: contexts on its stack, its mode towards captures.

use std::cell::{Cell, RefCell};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls of this thread break no capture.
pub(crate) const RELAXED: u32 = 2;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, which every thread begins with.
const GLOBAL: u32 = 0;

thread_local! {
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

pub(crate) fn push(context: usize) {
    CONTEXTS.with_borrow_mut(|stack| stack.push(context));
}

pub(crate) fn pop() -> Option<usize> {
    CONTEXTS.with_borrow_mut(Vec::pop)
}

/// The context on top, which calls of this thread are for.
pub(crate) fn top() -> Option<usize> {
    CONTEXTS.with_borrow(|stack| stack.last().copied())
}

/// Replaces the context on top, or lays one there.
pub(crate) fn set(context: usize) {
    CONTEXTS.with_borrow_mut(|stack| {
        stack.pop();
        stack.push(context);
    });
}

/// Sets the mode; what it was.
pub(crate) fn exchange_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

pub(crate) fn is_relaxed() -> bool {
    MODE.get() == RELAXED
}
