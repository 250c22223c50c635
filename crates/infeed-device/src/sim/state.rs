//! Streams of a simulated device with their enqueued commands, and the faults found.

#[cfg(test)]
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::DeviceError;

use super::config::SimConfig;
use super::races::{Access, VectorClock, Violation, ViolationKind};
use super::stream_thread::{StreamMark, StreamTask, StreamThread, lock};

/// Maximum number of violations kept.
const KEPT: usize = 1000;

/// Violations, and the first error of a command.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) violations: Mutex<Vec<Violation>>,
    /// Error of a command, which the next call returns.
    pub(super) fault: Mutex<Option<DeviceError>>,
}

impl Faults {
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

/// Whether a stream accepts commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StreamUsage {
    #[default]
    Open,
    /// The consumer captures the stream. Commands would become part of a graph.
    Captured,
    Destroyed,
}

#[derive(Debug)]
pub(super) struct SimStream {
    pub(super) usage: StreamUsage,
    /// None on a device with its own clock.
    line: Option<StreamThread>,
    /// End of the enqueued commands in nanoseconds.
    pub(super) end_ns: u64,
    /// Everything that comes before the next command.
    clock: VectorClock,
    commands: u64,
}

#[derive(Debug, Default)]
pub(super) struct SimState {
    pub(super) streams: Vec<SimStream>,
    /// Time at which the bus is free.
    bus_ns: u64,
    /// Everything that the host has waited for.
    pub(super) host: VectorClock,
    memories: u64,
    #[cfg(test)]
    pub(super) failures: HashMap<&'static str, u64>,
    #[cfg(test)]
    pub(super) spans: Vec<(usize, u64, u64)>,
}

/// A command that was enqueued, with its stream, number and end.
pub(super) struct StartedCommand {
    pub(super) stream: usize,
    command: u64,
    pub(super) end_ns: u64,
}

impl StartedCommand {
    pub(super) fn access(&self, bytes: Range<usize>) -> Access {
        Access {
            stream: self.stream,
            command: self.command,
            bytes,
        }
    }
}

impl SimState {
    /// Adds a stream, with a thread whose times count from `start` unless it is None.
    pub(super) fn add_stream(&mut self, start: Option<Instant>) -> io::Result<usize> {
        let number = self.streams.len();
        let line = start
            .map(|start| StreamThread::new(number, start))
            .transpose()?;
        self.streams.push(SimStream {
            usage: StreamUsage::Open,
            line,
            end_ns: 0,
            clock: VectorClock::default(),
            commands: 0,
        });
        Ok(number)
    }

    pub(super) fn next_memory(&mut self) -> u64 {
        self.memories += 1;
        self.memories - 1
    }

    /// Returns the clock of a command's stream.
    pub(super) fn clock(&self, begun: &StartedCommand) -> &VectorClock {
        &self.streams[begun.stream].clock
    }

    /// Enqueues a consumer's command of a given duration.
    pub(super) fn begin(
        &mut self,
        config: &SimConfig,
        stream: usize,
        now_ns: u64,
        lasting: Duration,
    ) -> StartedCommand {
        let ns = lasting.as_nanos() as f64;
        let ns = config.delayed_ns(ns, stream, self.streams[stream].commands);
        let start_ns = self.streams[stream].end_ns.max(now_ns);
        self.enter(stream, start_ns, ns)
    }

    /// Enqueues a command that moves bytes on the device.
    pub(super) fn begin_kernel(
        &mut self,
        config: &SimConfig,
        stream: usize,
        now_ns: u64,
        bytes: u64,
    ) -> StartedCommand {
        self.begin_work(config, stream, now_ns, bytes, config.kernel_bytes_per_s)
    }

    /// Enqueues a command of the device that processes an amount, of bytes or pixels, at a rate.
    pub(super) fn begin_work(
        &mut self,
        config: &SimConfig,
        stream: usize,
        now_ns: u64,
        amount: u64,
        per_s: f64,
    ) -> StartedCommand {
        let number = self.streams[stream].commands;
        let ns = config.duration_ns(amount, per_s, stream, number);
        let start_ns = self.streams[stream].end_ns.max(now_ns);
        self.enter(stream, start_ns, ns)
    }

    /// Enqueues a command that moves bytes over the bus.
    pub(super) fn begin_copy(
        &mut self,
        config: &SimConfig,
        stream: usize,
        now_ns: u64,
        bytes: u64,
    ) -> StartedCommand {
        let number = self.streams[stream].commands;
        let ns = config.duration_ns(bytes, config.bandwidth_bytes_per_s, stream, number);
        let start_ns = self.streams[stream].end_ns.max(now_ns).max(self.bus_ns);
        let begun = self.enter(stream, start_ns, ns);
        self.bus_ns = begun.end_ns;
        begun
    }

    fn enter(&mut self, number: usize, start_ns: u64, ns: u64) -> StartedCommand {
        let stream = &mut self.streams[number];
        stream.end_ns = start_ns.saturating_add(ns);
        stream.commands += 1;
        stream.clock.join(&self.host);
        stream.clock.reach(number, stream.commands);
        #[cfg(test)]
        self.spans.push((number, start_ns, stream.end_ns));
        StartedCommand {
            stream: number,
            command: stream.commands,
            end_ns: stream.end_ns,
        }
    }

    /// Passes a task to a stream's thread. Runs the task here if there is no thread.
    pub(super) fn push(&self, stream: usize, task: StreamTask) {
        match &self.streams[stream].line {
            Some(line) => line.push(task),
            None => match task {
                StreamTask::Write { work, .. } | StreamTask::Read { work, .. } => work(),
                StreamTask::Mark(mark) => mark.reach(),
                StreamTask::Wait(_) => {}
            },
        }
    }

    /// Adds a mark at the end of a stream.
    pub(super) fn mark(&self, stream: usize, time_ns: u64) -> Arc<StreamMark> {
        let mark = StreamMark::new(time_ns, self.streams[stream].clock.clone());
        self.push(stream, StreamTask::Mark(Arc::clone(&mark)));
        mark
    }

    /// Makes a stream wait for a mark.
    pub(super) fn wait(&mut self, number: usize, mark: Arc<StreamMark>) {
        let stream = &mut self.streams[number];
        stream.end_ns = stream.end_ns.max(mark.time_ns);
        stream.clock.join(&mark.clock);
        self.push(number, StreamTask::Wait(mark));
    }

    /// Makes the threads run the remaining tasks immediately, and joins them.
    pub(super) fn end(self) {
        let lines: Vec<StreamThread> = self.streams.into_iter().filter_map(|s| s.line).collect();
        lines.iter().for_each(StreamThread::end);
        lines.into_iter().for_each(StreamThread::join);
    }
}
