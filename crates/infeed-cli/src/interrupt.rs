//! Handles Ctrl-C as a flag to check between batches, so that the measurements so far are printed.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Installs the handler. The first Ctrl-C sets a flag, the second ends the process.
pub(crate) fn watch() {
    let handler = || {
        // Relaxed: the flag carries no other data.
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // If no handler can be set (a second call in one process), Ctrl-C keeps its default effect.
    let _ = ctrlc::set_handler(handler);
}

/// Returns whether Ctrl-C was pressed since [`watch`].
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
