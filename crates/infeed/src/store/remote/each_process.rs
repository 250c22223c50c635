//! A value that every process has for itself.
//!
//! A fork has none of its parent's threads, and a lock that one of them held stays locked. So such
//! a value hangs on the process's number: a fork begins anew with one of its own.

use std::sync::OnceLock;

/// A value by process, made when it is asked for first.
#[derive(Debug)]
pub(super) struct EachProcess<T>(OnceLock<Own<T>>);

#[derive(Debug)]
struct Own<T> {
    id: u32,
    value: T,
    /// Of a fork of this process.
    fork: Box<EachProcess<T>>,
}

impl<T> EachProcess<T> {
    pub(super) const fn new() -> EachProcess<T> {
        EachProcess(OnceLock::new())
    }

    /// This process's own.
    pub(super) fn here(&self, make: impl Fn() -> T) -> &T {
        self.of(std::process::id(), make)
    }

    fn of(&self, id: u32, make: impl Fn() -> T) -> &T {
        let mut place = self;
        loop {
            let own = place.0.get_or_init(|| Own {
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
    fn a_process_keeps_its_value_and_a_fork_makes_its_own() {
        let each = EachProcess::new();

        let found = [1, 2, 2, 3, 1].map(|id| *each.of(id, || id * 10));

        assert_eq!(found, [10, 20, 20, 30, 10]);
        assert!(std::ptr::eq(each.here(|| 4), each.here(|| 5)));
    }
}
