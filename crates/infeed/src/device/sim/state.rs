//! Streams of a simulated device as they stand after what was enqueued, and what was found wrong.

#[cfg(test)]
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::device::DeviceError;

use super::config::SimConfig;
use super::line::{Line, Mark, Task, lock};
use super::races::{Access, Clocks, Violation, ViolationKind};

/// Violations that are kept.
const KEPT: usize = 1000;

/// What went wrong so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) violations: Mutex<Vec<Violation>>,
    /// What a command failed with, to be told by the next call.
    pub(super) fault: Mutex<Option<DeviceError>>,
}

impl Found {
    pub(super) fn add(
        &self,
        stream: usize,
        memory: u64,
        wrong: Vec<(ViolationKind, Option<usize>)>,
    ) {
        for (kind, other) in wrong {
            let mut violations = lock(&self.violations);
            if violations.len() < KEPT {
                violations.push(Violation {
                    kind,
                    memory,
                    stream,
                    other,
                });
            }
        }
    }

    pub(super) fn fail(&self, error: DeviceError) {
        lock(&self.fault).get_or_insert(error);
    }
}

/// Whether a stream takes commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Usage {
    #[default]
    Open,
    /// They would become part of a graph.
    Captured,
    Destroyed,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) usage: Usage,
    /// None on a device with a clock of its own.
    line: Option<Line>,
    /// When it is done with what was enqueued.
    pub(super) end_ns: u64,
    /// What comes before what is enqueued next.
    clock: Clocks,
    commands: u64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) streams: Vec<Stream>,
    /// When the bus is free.
    bus_ns: u64,
    /// What the host has waited for.
    pub(super) host: Clocks,
    memories: u64,
    #[cfg(test)]
    pub(super) failures: HashMap<&'static str, u64>,
    #[cfg(test)]
    pub(super) spans: Vec<(usize, u64, u64)>,
}

/// A command with its place and its time.
pub(super) struct Begun {
    pub(super) stream: usize,
    command: u64,
    pub(super) end_ns: u64,
}

impl Begun {
    pub(super) fn access(&self, bytes: Range<usize>) -> Access {
        Access {
            stream: self.stream,
            command: self.command,
            bytes,
        }
    }
}

impl State {
    /// A stream with a thread whose times count from `start`, or without one.
    pub(super) fn add_stream(&mut self, start: Option<Instant>) -> io::Result<usize> {
        let number = self.streams.len();
        let line = start.map(|start| Line::new(number, start)).transpose()?;
        self.streams.push(Stream {
            usage: Usage::Open,
            line,
            end_ns: 0,
            clock: Clocks::default(),
            commands: 0,
        });
        Ok(number)
    }

    pub(super) fn next_memory(&mut self) -> u64 {
        self.memories += 1;
        self.memories - 1
    }

    /// The clock of a command's stream.
    pub(super) fn clock(&self, begun: &Begun) -> &Clocks {
        &self.streams[begun.stream].clock
    }

    /// A command of a consumer that takes as long as said.
    pub(super) fn begin(
        &mut self,
        config: &SimConfig,
        stream: usize,
        now_ns: u64,
        lasting: Duration,
    ) -> Begun {
        let ns = lasting.as_nanos() as f64;
        let ns = config.delayed_ns(ns, stream, self.streams[stream].commands);
        let start_ns = self.streams[stream].end_ns.max(now_ns);
        self.enter(stream, start_ns, ns)
    }

    /// A command that moves bytes on the device.
    pub(super) fn begin_kernel(
        &mut self,
        config: &SimConfig,
        stream: usize,
        now_ns: u64,
        bytes: u64,
    ) -> Begun {
        let number = self.streams[stream].commands;
        let ns = config.duration_ns(bytes, config.kernel_bytes_per_s, stream, number);
        let start_ns = self.streams[stream].end_ns.max(now_ns);
        self.enter(stream, start_ns, ns)
    }

    /// A command that decodes so many pixels.
    pub(super) fn begin_decode(
        &mut self,
        config: &SimConfig,
        stream: usize,
        now_ns: u64,
        pixels: u64,
        pixels_per_s: f64,
    ) -> Begun {
        let number = self.streams[stream].commands;
        let ns = config.duration_ns(pixels, pixels_per_s, stream, number);
        let start_ns = self.streams[stream].end_ns.max(now_ns);
        self.enter(stream, start_ns, ns)
    }

    /// A command that moves bytes over the bus.
    pub(super) fn begin_copy(
        &mut self,
        config: &SimConfig,
        stream: usize,
        now_ns: u64,
        bytes: u64,
    ) -> Begun {
        let number = self.streams[stream].commands;
        let ns = config.duration_ns(bytes, config.bandwidth_bytes_per_s, stream, number);
        let start_ns = self.streams[stream].end_ns.max(now_ns).max(self.bus_ns);
        let begun = self.enter(stream, start_ns, ns);
        self.bus_ns = begun.end_ns;
        begun
    }

    fn enter(&mut self, number: usize, start_ns: u64, ns: u64) -> Begun {
        let stream = &mut self.streams[number];
        stream.end_ns = start_ns.saturating_add(ns);
        stream.commands += 1;
        stream.clock.join(&self.host);
        stream.clock.reach(number, stream.commands);
        #[cfg(test)]
        self.spans.push((number, start_ns, stream.end_ns));
        Begun {
            stream: number,
            command: stream.commands,
            end_ns: stream.end_ns,
        }
    }

    /// Gives a task to a stream's thread; without one, does it.
    pub(super) fn push(&self, stream: usize, task: Task) {
        match &self.streams[stream].line {
            Some(line) => line.push(task),
            None => match task {
                Task::Write { work, .. } | Task::Read { work, .. } => work(),
                Task::Mark(mark) => mark.reach(),
                Task::Wait(_) => {}
            },
        }
    }

    /// A mark at the end of a stream.
    pub(super) fn mark(&self, stream: usize, time_ns: u64) -> Arc<Mark> {
        let mark = Mark::new(time_ns, self.streams[stream].clock.clone());
        self.push(stream, Task::Mark(Arc::clone(&mark)));
        mark
    }

    /// Lets a stream wait for a mark.
    pub(super) fn wait(&mut self, number: usize, mark: Arc<Mark>) {
        let stream = &mut self.streams[number];
        stream.end_ns = stream.end_ns.max(mark.time_ns);
        stream.clock.join(&mark.clock);
        self.push(number, Task::Wait(mark));
    }

    /// Lets the threads hurry through what is left, and joins them.
    pub(super) fn end(self) {
        let lines: Vec<Line> = self.streams.into_iter().filter_map(|s| s.line).collect();
        lines.iter().for_each(Line::end);
        lines.into_iter().for_each(Line::join);
    }
}
