//! Ctrl-C as a question to ask between batches, so that what was measured is still printed.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on the first Ctrl-C only sets a flag, and the second ends the process.
pub(crate) fn watch() {
    let handler = || {
        // Relaxed: the flag carries no other data.
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // Where no handler can be set (a second call in one process), Ctrl-C ends it as ever.
    let _ = ctrlc::set_handler(handler);
}

/// Whether Ctrl-C was pressed since [`watch`].
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
