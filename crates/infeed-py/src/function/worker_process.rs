//! One worker process of a function, and the protocol between it and the engine.
//!
//! The process runs `infeed/_process.py`. Its standard input is the socket and its standard output
//! is a file in memory; the process moves both to other descriptors first. A message is a length
//! (four bytes, little-endian) and that number of bytes of JSON. The file holds the values: inputs
//! from its start, outputs after the inputs.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use infeed::Values;
use infeed::function::{DrawKey, FunctionFailure, ValueSink, ValueSpec};
use infeed_core::batch::Column;
use infeed_core::stop::Stop;
use infeed_raw::anonymous::anonymous_file;
use serde_json::{Value, json};

use super::worker_failure::{LaunchCommand, WorkerFailure};
use crate::items::values::dtype_of;
use crate::raised_exception::RaisedException;

/// Interval at which a thread that waits for an answer checks whether the loader closes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time that a call may still take after its answer is no longer needed, so that the end of an
/// epoch does not end the process.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Longest message in bytes. The longest messages are tracebacks.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Alignment of values in the file, in bytes.
const ALIGNMENT: u64 = 64;

/// A process that runs a function.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    process: Child,
    stream: UnixStream,
    memory: File,
}

impl WorkerProcess {
    /// Starts a process. [`WorkerProcess::ready`] waits until it has loaded the function.
    pub(super) fn start(
        (program, arguments, pickled): &LaunchCommand,
    ) -> io::Result<WorkerProcess> {
        let (stream, theirs) = UnixStream::pair()?;
        let memory = anonymous_file(c"infeed-sample")?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        let process = Command::new(program)
            .args(arguments)
            // A terminal sends SIGINT on Ctrl-C to the parent alone, which ends its processes.
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(memory.try_clone()?))
            .spawn()?;
        let mut worker = WorkerProcess {
            process,
            stream,
            memory,
        };
        worker.memory.write_all_at(pickled, 0)?;
        // If the process has ended already, reading the answer finds it.
        let _ = worker.send(&json!({ "pickled": pickled.len() }));
        Ok(worker)
    }

    /// Waits until the function is loaded.
    pub(super) fn ready(&mut self) -> Result<(), WorkerFailure> {
        self.answer().map(drop)
    }

    /// Calls the function and returns the processor time that it took.
    pub(super) fn call(
        &mut self,
        inputs: &[Column],
        draw: DrawKey,
        sink: &mut dyn ValueSink,
    ) -> Result<Duration, WorkerFailure> {
        let broken =
            |error: io::Error| WorkerFailure::Failed(FunctionFailure::Process(Arc::new(error)));
        let mut end = 0;
        let mut descriptions = Vec::with_capacity(inputs.len());
        for Column { name, values } in inputs {
            let (kind, dtype, shape, bytes) = match values {
                Values::Array(array) => {
                    ("array", array.dtype().name(), array.shape(), array.bytes())
                }
                Values::Bytes(rows) => (
                    "bytes",
                    "",
                    &[][..],
                    rows.first().map_or(&[][..], |row| row),
                ),
                Values::Text(rows) => (
                    "text",
                    "",
                    &[][..],
                    rows.first().map_or(&[][..], |row| row.as_bytes()),
                ),
                Values::Ragged { values, .. } => (
                    "array",
                    values.dtype().name(),
                    values.shape(),
                    values.bytes(),
                ),
            };
            self.memory.write_all_at(bytes, end).map_err(broken)?;
            descriptions.push(json!({
                "name": name, "kind": kind, "dtype": dtype, "shape": shape,
                "at": end, "bytes": bytes.len(),
            }));
            end = (end + bytes.len() as u64).next_multiple_of(ALIGNMENT);
        }
        let sent = self.send(&json!({ "key": draw.0, "values": descriptions, "end": end }));
        if sent.is_err() {
            return Err(self.wait_for_exit());
        }
        let answer = self.answer()?;
        for value in answer["values"].as_array().into_iter().flatten() {
            self.take(value, sink).map_err(FunctionFailure::wrong)?;
        }
        Ok(Duration::from_nanos(answer["cpu_ns"].as_u64().unwrap_or(0)))
    }

    /// Copies a value that the function returned into its output buffer.
    fn take(&self, value: &Value, sink: &mut dyn ValueSink) -> Result<(), String> {
        let name = value["name"].as_str().unwrap_or_default();
        let number = |key: &str| value[key].as_u64().unwrap_or(0);
        let axes = value["shape"].as_array().into_iter().flatten();
        let shape: Vec<usize> = axes.map(|n| n.as_u64().unwrap_or(0) as usize).collect();
        let len = number("bytes") as usize;
        let spec = match value["kind"].as_str() {
            Some("bytes") => ValueSpec::Bytes(len),
            Some("text") => ValueSpec::Text(len),
            _ => {
                let dtype = value["dtype"].as_str().unwrap_or_default();
                ValueSpec::Array {
                    dtype: dtype_of(dtype).ok_or_else(|| format!("`{name}` is of {dtype}"))?,
                    shape: &shape,
                }
            }
        };
        let room = sink.room(name, spec)?;
        if room.len() != len {
            return Err(format!(
                "`{name}` has {len} bytes for room of {}",
                room.len()
            ));
        }
        let read = self.memory.read_exact_at(room, number("at"));
        read.map_err(|error| format!("`{name}` cannot be read: {error}"))
    }

    fn send(&mut self, message: &Value) -> io::Result<()> {
        let text = message.to_string();
        let mut frame = Vec::with_capacity(4 + text.len());
        frame.extend((text.len() as u32).to_le_bytes());
        frame.extend(text.as_bytes());
        self.stream.write_all(&frame)
    }

    /// Returns the next message, or the failure that it reports.
    fn answer(&mut self) -> Result<Value, WorkerFailure> {
        let mut length = [0; 4];
        self.receive(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_MESSAGE_BYTES {
            return Err(self.wait_for_exit());
        }
        let mut text = vec![0; length];
        self.receive(&mut text)?;
        let Ok(answer) = serde_json::from_slice::<Value>(&text) else {
            return Err(self.wait_for_exit());
        };
        let Some(line) = answer["raised"].as_str() else {
            return Ok(answer);
        };
        let raised = RaisedException {
            line: line.to_owned(),
            traceback: answer["traceback"].as_str().unwrap_or_default().to_owned(),
        };
        Err(WorkerFailure::Failed(FunctionFailure::Raised(Arc::new(
            raised,
        ))))
    }

    fn receive(&mut self, mut into: &mut [u8]) -> Result<(), WorkerFailure> {
        let mut unwanted: Option<Instant> = None;
        while !into.is_empty() {
            match self.stream.read(into) {
                Ok(0) => return Err(self.wait_for_exit()),
                Ok(read) => into = &mut into[read..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    let requested = Stop::here().is_some_and(|stop| stop.is_requested());
                    let since = unwanted.get_or_insert_with(Instant::now);
                    if !requested {
                        unwanted = None;
                    } else if since.elapsed() > GRACE_PERIOD {
                        // The process is still in the call and cannot take another one.
                        self.end();
                        return Err(WorkerFailure::Failed(FunctionFailure::Closed));
                    }
                }
                Err(_) => return Err(self.wait_for_exit()),
            }
        }
        Ok(())
    }

    /// Returns whether the process has ended.
    pub(super) fn is_over(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// Returns the exit status, after the socket was closed.
    fn wait_for_exit(&mut self) -> WorkerFailure {
        // `wait` would block for a process that closed the socket and still runs.
        let _ = self.process.kill();
        WorkerFailure::Ended(self.process.wait().ok())
    }

    fn end(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.end();
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
