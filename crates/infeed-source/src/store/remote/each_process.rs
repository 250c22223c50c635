//! A value per process.
//!
//! A forked process has none of its parent's threads, and a lock that one of them held stays
//! locked. Such a value is therefore bound to the process number: a fork creates its own.

use std::sync::OnceLock;

/// A value per process, created on first use.
#[derive(Debug)]
pub(super) struct EachProcess<T>(OnceLock<OwnValue<T>>);

#[derive(Debug)]
struct OwnValue<T> {
    id: u32,
    value: T,
    /// Value of a fork of this process.
    fork: Box<EachProcess<T>>,
}

impl<T> EachProcess<T> {
    pub(super) const fn new() -> EachProcess<T> {
        EachProcess(OnceLock::new())
    }

    /// Returns the value of this process.
    pub(super) fn here(&self, make: impl Fn() -> T) -> &T {
        self.of(std::process::id(), make)
    }

    fn of(&self, id: u32, make: impl Fn() -> T) -> &T {
        let mut place = self;
        loop {
            let own = place.0.get_or_init(|| OwnValue {
                id,
                value: make(),
                fork: Box::new(EachProcess::new()),
            });
            if own.id == id {
                return &own.value;
            }
            place = &own.fork;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_its_value_and_a_fork_creates_its_own() {
        let each = EachProcess::new();

        let found = [1, 2, 2, 3, 1].map(|id| *each.of(id, || id * 10));

        assert_eq!(found, [10, 20, 20, 30, 10]);
        assert!(std::ptr::eq(each.here(|| 4), each.here(|| 5)));
    }
}
