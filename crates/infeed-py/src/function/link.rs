//! One process that runs a function: started, spoken to over a socket, ended.
//!
//! It is Python's `infeed/_process.py`. Its standard input is the socket and its standard output a
//! file in memory, both of which it puts elsewhere first. A message is its length, four bytes,
//! little-endian, and so many bytes of JSON; values lie in the file, those that go in from its
//! start and those that come out behind them.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use infeed::Values;
use infeed::batch::Column;
use infeed::function::{Draw, Failed, Form, Sink};
use infeed::stop::Stop;
use infeed_raw::anonymous::anonymous_file;
use serde_json::{Value, json};

use crate::items::values::dtype_of;
use crate::raised::Raised;

/// How often a thread that waits for an answer looks whether anybody still wants it.
const LOOK: Duration = Duration::from_millis(50);

/// How long an answer that nobody wants any more is waited for, so that a process need not be ended
/// whenever an epoch is.
const GRACE: Duration = Duration::from_secs(1);

/// Longest message; a traceback is the longest there is.
const LONGEST: usize = 16 << 20;

/// Values begin at multiples of this.
const ALIGNED: u64 = 64;

/// Program, arguments, and the pickled function.
pub(super) type Launch = (String, Vec<String>, Vec<u8>);

/// A process that runs a function.
#[derive(Debug)]
pub(super) struct Link {
    process: Child,
    stream: UnixStream,
    memory: File,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum End {
    /// The function failed, or returned what it should not.
    Failed(Failed),
    /// The process ended.
    Ended(Option<ExitStatus>),
}

impl From<Failed> for End {
    fn from(failed: Failed) -> End {
        End::Failed(failed)
    }
}

impl Link {
    /// Starts a process, which then loads the function; [`Link::ready`] waits for that.
    pub(super) fn start((program, arguments, pickled): &Launch) -> io::Result<Link> {
        let (stream, theirs) = UnixStream::pair()?;
        let memory = anonymous_file(c"infeed-sample")?;
        stream.set_read_timeout(Some(LOOK))?;
        let process = Command::new(program)
            .args(arguments)
            // What a terminal sends on Ctrl-C is for the parent, which ends its processes.
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(memory.try_clone()?))
            .spawn()?;
        let mut link = Link {
            process,
            stream,
            memory,
        };
        link.memory.write_all_at(pickled, 0)?;
        // One that ended already is noticed when its answer is read.
        let _ = link.send(&json!({ "pickled": pickled.len() }));
        Ok(link)
    }

    /// Waits until the function is loaded.
    pub(super) fn ready(&mut self) -> Result<(), End> {
        self.answer().map(drop)
    }

    /// Calls the function; gives the processor time that it took.
    pub(super) fn call(
        &mut self,
        inputs: &[Column],
        draw: Draw,
        sink: &mut dyn Sink,
    ) -> Result<Duration, End> {
        let broken = |error: io::Error| End::Failed(Failed::Process(Arc::new(error)));
        let mut end = 0;
        let mut told = Vec::with_capacity(inputs.len());
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
            told.push(json!({
                "name": name, "kind": kind, "dtype": dtype, "shape": shape,
                "at": end, "bytes": bytes.len(),
            }));
            end = (end + bytes.len() as u64).next_multiple_of(ALIGNED);
        }
        let sent = self.send(&json!({ "key": draw.0, "values": told, "end": end }));
        if sent.is_err() {
            return Err(self.ended());
        }
        let answer = self.answer()?;
        for value in answer["values"].as_array().into_iter().flatten() {
            self.take(value, sink).map_err(Failed::wrong)?;
        }
        Ok(Duration::from_nanos(answer["cpu_ns"].as_u64().unwrap_or(0)))
    }

    /// Takes a value that the function returned.
    fn take(&self, value: &Value, sink: &mut dyn Sink) -> Result<(), String> {
        let name = value["name"].as_str().unwrap_or_default();
        let number = |key: &str| value[key].as_u64().unwrap_or(0);
        let axes = value["shape"].as_array().into_iter().flatten();
        let shape: Vec<usize> = axes.map(|n| n.as_u64().unwrap_or(0) as usize).collect();
        let len = number("bytes") as usize;
        let form = match value["kind"].as_str() {
            Some("bytes") => Form::Bytes(len),
            Some("text") => Form::Text(len),
            _ => {
                let dtype = value["dtype"].as_str().unwrap_or_default();
                Form::Array {
                    dtype: dtype_of(dtype).ok_or_else(|| format!("`{name}` is of {dtype}"))?,
                    shape: &shape,
                }
            }
        };
        let room = sink.room(name, form)?;
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

    /// The next message, if it tells of no failure.
    fn answer(&mut self) -> Result<Value, End> {
        let mut length = [0; 4];
        self.receive(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST {
            return Err(self.ended());
        }
        let mut text = vec![0; length];
        self.receive(&mut text)?;
        let Ok(answer) = serde_json::from_slice::<Value>(&text) else {
            return Err(self.ended());
        };
        let Some(line) = answer["raised"].as_str() else {
            return Ok(answer);
        };
        let raised = Raised {
            line: line.to_owned(),
            traceback: answer["traceback"].as_str().unwrap_or_default().to_owned(),
        };
        Err(End::Failed(Failed::Raised(Arc::new(raised))))
    }

    fn receive(&mut self, mut into: &mut [u8]) -> Result<(), End> {
        let mut unwanted: Option<Instant> = None;
        while !into.is_empty() {
            match self.stream.read(into) {
                Ok(0) => return Err(self.ended()),
                Ok(read) => into = &mut into[read..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    let wished = Stop::here().is_some_and(|stop| stop.is_wished());
                    let since = unwanted.get_or_insert_with(Instant::now);
                    if !wished {
                        unwanted = None;
                    } else if since.elapsed() > GRACE {
                        // It is in the middle of something: of no use any more.
                        self.end();
                        return Err(End::Failed(Failed::Closed));
                    }
                }
                Err(_) => return Err(self.ended()),
            }
        }
        Ok(())
    }

    /// Whether it was ended.
    pub(super) fn is_over(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// How it ended, once the socket says that it did.
    fn ended(&mut self) -> End {
        // One that closed the socket and goes on would be waited for without end.
        let _ = self.process.kill();
        End::Ended(self.process.wait().ok())
    }

    fn end(&mut self) {
        // Both fail only for a process that is gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
