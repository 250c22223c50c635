//! Handles Ctrl-C as a flag to check between batches, so that the measurements so far are printed. A
//! command that Ctrl-C ended exits with [`STATUS`], whatever it printed.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use infeed_core::stop::Stop;

/// Exit status that shells report for a program that Ctrl-C ended.
pub(crate) const STATUS: u8 = 130;

static IS_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether Ctrl-C is the regular end of the command.
static IS_END: AtomicBool = AtomicBool::new(false);

/// Stop request of the main thread, which lists folders and buckets without checking the flag.
static STOP: LazyLock<Stop> = LazyLock::new(Stop::default);

/// Installs the handler. The first Ctrl-C sets a flag and ends a list of a folder or a bucket on
/// this thread, the second ends the process.
pub(crate) fn watch() {
    STOP.watch_here();
    let handler = || {
        // Relaxed: the flag carries no other data.
        if IS_REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(STATUS.into());
        }
        STOP.request();
    };
    // If no handler can be set (a second call in one process), Ctrl-C keeps its default effect.
    let _ = ctrlc::set_handler(handler);
}

/// Returns whether Ctrl-C was pressed since [`watch`]. The caller ends its work, for which buckets
/// can be used again.
pub(crate) fn is_requested() -> bool {
    let is_requested = IS_REQUESTED.load(Ordering::Relaxed);
    if is_requested {
        STOP.withdraw();
    }
    is_requested
}

/// Declares that Ctrl-C is the regular end of this command from now on.
pub(crate) fn is_regular_end() {
    // Relaxed: the flag carries no other data.
    IS_END.store(true, Ordering::Relaxed);
}

/// Returns whether Ctrl-C ended the command early.
pub(crate) fn ended_early() -> bool {
    IS_REQUESTED.load(Ordering::Relaxed) && !IS_END.load(Ordering::Relaxed)
}
