//! Messages of panics, and panics of codec and file-format libraries as errors.
//!
//! The libraries parse untrusted bytes. A panic in a library means that it cannot handle the input.
//! The process is not broken.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread is inside [`contain`].
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs `work` and returns the message of its panic, if it panics.
///
/// The panic is not printed: the first call installs a panic hook that ignores contained panics and
/// passes all others to the previous hook.
///
/// The caller must drop or reset any state that `work` may have left incomplete.
///
/// # Errors
///
/// Message of the panic.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !CONTAINED.get() {
                before(panic);
            }
        }));
    });
    let was_contained = CONTAINED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(was_contained);
    done.map_err(|panic| message(&*panic))
}

/// Returns the panic message on one line.
fn message(panic: &(dyn Any + Send)) -> String {
    text_of(panic)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the name of the calling thread and its panic message.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a thread");
    format!("{name}: {}", text_of(panic))
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message_on_one_line() {
        let caught = contain(|| -> u8 { panic!("left\n  right: {}", 7) });

        assert_eq!(caught, Err("left right: 7".to_owned()));
        assert_eq!(contain(|| 3), Ok(3));
        assert!(!CONTAINED.get());
    }

    #[test]
    fn a_contained_panic_inside_another_leaves_the_outer_one_contained() {
        let seen = contain(|| {
            let inner = contain(|| panic!("inner"));
            (inner, CONTAINED.get())
        });

        assert_eq!(seen, Ok((Err("inner".to_owned()), true)));
    }
}
