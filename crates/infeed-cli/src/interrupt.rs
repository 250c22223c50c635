//! Handles Ctrl-C as a flag to check between batches, so that the measurements so far are printed.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use infeed::stop::Stop;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Stop request of the main thread, which lists folders and buckets without checking the flag.
static STOP: LazyLock<Stop> = LazyLock::new(Stop::default);

/// Installs the handler. The first Ctrl-C sets a flag and ends a list of a folder or a bucket on
/// this thread, the second ends the process.
pub(crate) fn watch() {
    STOP.watch_here();
    let handler = || {
        // Relaxed: the flag carries no other data.
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        STOP.request();
    };
    // If no handler can be set (a second call in one process), Ctrl-C keeps its default effect.
    let _ = ctrlc::set_handler(handler);
}

/// Returns whether Ctrl-C was pressed since [`watch`]. The caller ends its work, for which buckets
/// can be used again.
pub(crate) fn asked() -> bool {
    let asked = ASKED.load(Ordering::Relaxed);
    if asked {
        STOP.withdraw();
    }
    asked
}
