//! Detects memory accesses that are not ordered after conflicting ones.
//!
//! Each stream counts its commands, and stores for every other stream the last command that it
//! comes after: a vector clock. Events carry clocks from stream to stream. An access is in order if
//! its stream's clock covers the accesses that conflict with it. This depends on the enqueued
//! commands and not on when they ran, so a race is found even if it did no harm.
//!
//! Source: Fidge, "Timestamps in message-passing systems that preserve the partial ordering"
//! (1988); Mattern, "Virtual time and global states of distributed systems" (1989).

use std::fmt;
use std::ops::Range;

/// For each stream, the number of its last command that the clock's owner is ordered after.
#[derive(Clone, Debug, Default)]
pub(super) struct VectorClock {
    seen: Vec<u64>,
}

impl VectorClock {
    /// Returns the number of the last command of this stream; 0 for none.
    fn of(&self, stream: usize) -> u64 {
        self.seen.get(stream).copied().unwrap_or(0)
    }

    /// Adds the order of `other` to this clock.
    pub(super) fn join(&mut self, other: &VectorClock) {
        if self.seen.len() < other.seen.len() {
            self.seen.resize(other.seen.len(), 0);
        }
        for (mine, theirs) in self.seen.iter_mut().zip(&other.seen) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Adds a command of this stream.
    pub(super) fn reach(&mut self, stream: usize, command: u64) {
        if self.seen.len() <= stream {
            self.seen.resize(stream + 1, 0);
        }
        self.seen[stream] = command;
    }
}

/// A command that accesses bytes of a memory.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// Number of the stream.
    pub(super) stream: usize,
    /// Number of the command in its stream, from 1.
    pub(super) command: u64,
    /// Byte range.
    pub(super) bytes: Range<usize>,
}

impl Access {
    fn is_before(&self, clock: &VectorClock) -> bool {
        self.command <= clock.of(self.stream)
    }

    fn overlaps(&self, bytes: &Range<usize>) -> bool {
        self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }

    fn lies_in(&self, bytes: &Range<usize>) -> bool {
        bytes.start <= self.bytes.start && self.bytes.end <= bytes.end
    }
}

/// Kind of an ordering violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ViolationKind {
    /// Read without being ordered after the write.
    ReadBeforeReady,
    /// Read without ever having been written.
    ReadUnwritten,
    /// Written without being ordered after a read.
    OverwrittenBeforeRead,
    /// Written without being ordered after another write.
    OverwrittenBeforeWritten,
    /// The host's bytes changed before they were copied.
    HostChanged,
    /// Freed before the end of a consumer's command that uses the memory.
    FreedInUse,
}

/// A memory access that was not ordered as required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Kind of the violation.
    pub kind: ViolationKind,
    /// Number of the memory, in the order of allocation.
    pub memory: u64,
    /// The stream whose command came out of order, or had not ended yet.
    pub stream: usize,
    /// The stream with the conflicting command, if there is one.
    pub other: Option<usize>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (memory, stream, other) = (self.memory, self.stream, self.other.unwrap_or(0));
        match self.kind {
            ViolationKind::ReadBeforeReady => write!(
                f,
                "memory {memory} was read by stream {stream} before stream {other}'s write of it \
                 was ordered"
            ),
            ViolationKind::ReadUnwritten => write!(
                f,
                "memory {memory} was read by stream {stream} before anything was written there"
            ),
            ViolationKind::OverwrittenBeforeRead => write!(
                f,
                "memory {memory} was overwritten by stream {stream} before stream {other}'s read \
                 of it was ordered"
            ),
            ViolationKind::OverwrittenBeforeWritten => write!(
                f,
                "memory {memory} was overwritten by stream {stream} before stream {other}'s write \
                 of it was ordered"
            ),
            ViolationKind::FreedInUse => write!(
                f,
                "memory {memory} was freed before stream {stream} was done with it"
            ),
            ViolationKind::HostChanged => write!(
                f,
                "the host's bytes for memory {memory} changed before stream {stream} had copied \
                 them"
            ),
        }
    }
}

/// The accesses of one memory that can still conflict with a later one.
#[derive(Debug, Default)]
pub(super) struct AccessHistory {
    writes: Vec<Access>,
    reads: Vec<Access>,
}

impl AccessHistory {
    /// Records a read by a stream with this clock. Returns the accesses that it is not ordered
    /// after.
    pub(super) fn read(
        &mut self,
        access: Access,
        clock: &VectorClock,
    ) -> Vec<(ViolationKind, Option<usize>)> {
        let mut wrong = Vec::new();
        for write in &self.writes {
            if write.overlaps(&access.bytes) && !write.is_before(clock) {
                wrong.push((ViolationKind::ReadBeforeReady, Some(write.stream)));
            }
        }
        if !self.is_written(&access.bytes) {
            wrong.push((ViolationKind::ReadUnwritten, None));
        }
        // An access ordered after this read is ordered after earlier reads of its stream too.
        self.reads
            .retain(|read| read.stream != access.stream || !read.lies_in(&access.bytes));
        self.reads.push(access);
        wrong
    }

    /// Records a write by a stream with this clock. Returns the accesses that it is not ordered
    /// after.
    pub(super) fn write(
        &mut self,
        access: Access,
        clock: &VectorClock,
    ) -> Vec<(ViolationKind, Option<usize>)> {
        let mut wrong = Vec::new();
        for (kind, before) in [
            (ViolationKind::OverwrittenBeforeWritten, &self.writes),
            (ViolationKind::OverwrittenBeforeRead, &self.reads),
        ] {
            for before in before {
                if before.overlaps(&access.bytes) && !before.is_before(clock) {
                    wrong.push((kind, Some(before.stream)));
                }
            }
        }
        // This write replaces the writes that it fully overwrites: later accesses conflict with it
        // instead.
        self.writes.retain(|write| !write.lies_in(&access.bytes));
        self.reads.retain(|read| !read.lies_in(&access.bytes));
        self.writes.push(access);
        wrong
    }

    fn is_written(&self, bytes: &Range<usize>) -> bool {
        let mut writes: Vec<&Range<usize>> = self.writes.iter().map(|w| &w.bytes).collect();
        writes.sort_by_key(|write| write.start);
        let reached =
            writes
                .into_iter()
                .fold(bytes.start, |reached, write| match write.start <= reached {
                    true => reached.max(write.end),
                    false => reached,
                });
        reached >= bytes.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(stream: usize, command: u64, bytes: Range<usize>) -> Access {
        Access {
            stream,
            command,
            bytes,
        }
    }

    fn clock(seen: &[u64]) -> VectorClock {
        VectorClock {
            seen: seen.to_vec(),
        }
    }

    #[test]
    fn a_read_is_in_order_once_its_clock_covers_the_write() {
        let mut history = AccessHistory::default();
        assert!(history.write(access(0, 4, 0..8), &clock(&[4])).is_empty());

        let early = history.read(access(1, 1, 0..8), &clock(&[3, 1]));
        assert_eq!(early, [(ViolationKind::ReadBeforeReady, Some(0))]);

        assert!(history.read(access(1, 2, 0..8), &clock(&[4, 2])).is_empty());
    }

    #[test]
    fn a_write_must_follow_every_stream_that_read() {
        let mut history = AccessHistory::default();
        history.write(access(0, 1, 0..8), &clock(&[1]));
        history.read(access(1, 1, 0..8), &clock(&[1, 1]));
        history.read(access(2, 1, 0..8), &clock(&[1, 0, 1]));

        let wrong = history.write(access(0, 2, 0..8), &clock(&[2, 1, 0]));

        assert_eq!(wrong, [(ViolationKind::OverwrittenBeforeRead, Some(2))]);
        assert!(
            history.write(access(0, 3, 0..8), &clock(&[3])).is_empty(),
            "reported once"
        );
    }

    #[test]
    fn accesses_to_different_bytes_do_not_conflict() {
        let mut history = AccessHistory::default();
        history.write(access(0, 1, 0..8), &clock(&[1]));

        assert!(
            history
                .write(access(1, 1, 8..16), &clock(&[0, 1]))
                .is_empty()
        );
        let both = history.read(access(0, 2, 4..12), &clock(&[2]));
        assert_eq!(both, [(ViolationKind::ReadBeforeReady, Some(1))]);
        let hole = history.read(access(0, 3, 4..17), &clock(&[3, 1]));
        assert_eq!(hole, [(ViolationKind::ReadUnwritten, None)]);
    }

    #[test]
    fn clocks_join_to_the_later_of_both() {
        let mut one = clock(&[1, 5]);
        one.join(&clock(&[3, 2, 7]));
        one.reach(1, 6);
        assert_eq!(one.seen, [3, 6, 7]);
    }
}
