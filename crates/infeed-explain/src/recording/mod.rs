//! The recording of a loop: a small file that shows what the loop waited for, to read on any
//! machine.
//!
//! [`Recorder`] writes it for a loader of infeed, [`WatchRecorder`] for any other. Both write the
//! verdict and its evidence as `explain` reports them, and add counters over time, events, machine
//! and versions.

mod contents;
mod events;
mod recorder;
mod windows;

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::findings::{Explanation, QueuePoint, Verdict, now_s};
use crate::watch::measurements::WatchedLoop;
use infeed_core::error::Error;
use infeed_core::parse_problem::in_words;
use infeed_core::probe::{self, Machine};
use infeed_raw::file;
use infeed_raw::simd::Level;

pub use contents::RecordedSource;
pub use events::{RecordedEvent, RecordedEvents};
pub use recorder::{Recorder, RecordingOptions, WatchRecorder};
pub use windows::{LoopTotals, RecordedWindow, RecordingPart, RecordingWindows};

/// Value of [`Recording::format`], which separates recordings from other JSON.
const FORMAT: &str = "infeed recording";

/// Version of the format. A reader accepts its own version and lower ones.
const RECORDING_VERSION: u32 = 1;

/// Maximum size of a recording in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// A recorded loop.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Recording {
    /// Always `infeed recording`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Version of infeed.
    pub infeed: String,
    /// Versions of Python and of imported frameworks, by name.
    pub versions: BTreeMap<String, String>,
    /// The machine.
    pub machine: RecordedMachine,
    /// Type of the loader.
    pub loader: String,
    /// Sources of the data by kind. Empty for the loader of a watched loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<RecordedSource>,
    /// Whether the user allowed paths and names of records.
    pub with_paths: bool,
    /// Begin of the recording, in seconds since 1970, UTC.
    pub began_at_s: u64,
    /// Time from opening the loader to the begin of the recording, in seconds. 0 for the loader of
    /// a watched loop.
    pub age_s: f64,
    /// Duration of the recording in seconds.
    pub seconds: f64,
    /// Whether the loader was closed. If not, the process still ran, or ended without closing it.
    pub closed: bool,
    /// Counters over time.
    pub windows: RecordingWindows,
    /// Events by kind, in the order of their first occurrence.
    pub events: RecordedEvents,
    /// The explanation at the end of the recording. None before the first batch, and for the loader
    /// of a watched loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Box<Explanation>>,
    /// The watched loop. None for a loader of infeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Box<RecordedWatch>>,
}

/// The machine of a recording. Without names of hosts and users.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct RecordedMachine {
    /// Processor, cores, memory and operating system.
    #[serde(flatten)]
    pub machine: Machine,
    /// Vector instructions that infeed uses, such as `avx2`.
    pub simd: String,
}

/// Verdict and measurements of a watched loop.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct RecordedWatch {
    /// The verdict.
    pub verdict: Verdict,
    /// The measurements behind the verdict.
    pub measured: WatchedLoop,
}

/// The first keys of a recording, which all versions have.
#[derive(Deserialize)]
struct RecordingHeader {
    #[serde(default)]
    format: String,
    #[serde(default)]
    version: u32,
    #[serde(default)]
    infeed: String,
}

impl Recording {
    /// Creates a recording without counters.
    fn new(loader: String, versions: BTreeMap<String, String>, with_paths: bool) -> Recording {
        Recording {
            format: FORMAT.to_owned(),
            version: RECORDING_VERSION,
            infeed: env!("CARGO_PKG_VERSION").to_owned(),
            versions,
            machine: RecordedMachine {
                machine: probe::machine(),
                simd: Level::detect().name().to_owned(),
            },
            loader,
            sources: Vec::new(),
            with_paths,
            began_at_s: now_s(),
            age_s: 0.0,
            seconds: 0.0,
            closed: false,
            windows: RecordingWindows::default(),
            events: RecordedEvents::default(),
            explanation: None,
            watch: None,
        }
    }

    /// Reads the recording at `path`. None if the file is no recording, or no regular file.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] if the file cannot be read, is too large or damaged, or has a newer version
    /// of the format.
    pub fn open(path: &Path) -> Result<Option<Recording>, Error> {
        if !path.is_file() {
            return Ok(None);
        }
        let failed = |error| Error::open(path, error);
        let mut bytes = Vec::new();
        let limit = MAX_BYTES as u64 + 1;
        let (file, _) = file::open(path).map_err(failed)?;
        file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
        if !is_recording(&bytes) {
            return Ok(None);
        }
        let recording = Recording::from_json(&bytes);
        recording
            .map(Some)
            .map_err(|problem| failed(io::Error::new(io::ErrorKind::InvalidData, problem)))
    }

    /// Parses the bytes of a recording.
    ///
    /// # Errors
    ///
    /// The problem and its fix, as text.
    pub fn from_json(bytes: &[u8]) -> Result<Recording, String> {
        if bytes.len() > MAX_BYTES {
            return Err(format!(
                "the recording has more than {MAX_BYTES} bytes, so infeed did not write it"
            ));
        }
        let damaged = |error: serde_json::Error| {
            let problem = in_words(&error.to_string());
            format!("the recording is damaged: {problem}; get a complete copy of the file")
        };
        let header: RecordingHeader = serde_json::from_slice(bytes).map_err(damaged)?;
        if header.format != FORMAT {
            return Err("the file is not a recording of infeed".to_owned());
        }
        if !(1..=RECORDING_VERSION).contains(&header.version) {
            return Err(format!(
                "the recording has version {} of the format, and this infeed reads up to \
                 {RECORDING_VERSION}; use infeed {} or newer",
                header.version, header.infeed
            ));
        }
        let mut recording: Recording = serde_json::from_slice(bytes).map_err(damaged)?;
        if !(0.0..1e12).contains(&recording.seconds) {
            return Err("the recording is damaged: its duration is not possible".to_owned());
        }
        recording.add_queue();
        Ok(recording)
    }

    /// Returns the recording as JSON with one key per line, at most [`MAX_BYTES`] long. Leaves out
    /// what does not fit, or what JSON cannot represent.
    fn to_json(&self) -> Vec<u8> {
        let mut recording = self.clone();
        let reductions: [fn(&mut Recording); 4] = [
            |_| {},
            // Numbers that JSON lacks come from these parts.
            |recording| {
                if let Some(explanation) = &mut recording.explanation {
                    (explanation.feeding, explanation.transfers) = (None, None);
                }
            },
            |recording| {
                if let Some(explanation) = &mut recording.explanation {
                    explanation.plan.clear();
                    explanation.subject.pipeline.clear();
                }
                recording.events.without_examples();
            },
            |recording| (recording.explanation, recording.watch) = (None, None),
        ];
        let mut text = Vec::new();
        for reduce in reductions {
            reduce(&mut recording);
            text = lines(&recording);
            if Recording::from_json(&text).is_ok() {
                break;
            }
        }
        text
    }

    /// Returns the verdict. None before the first batch.
    pub fn verdict(&self) -> Option<&Verdict> {
        let watched = self.watch.as_ref().map(|watch| &watch.verdict);
        watched.or(self.explanation.as_ref().map(|found| &found.verdict))
    }

    /// Adds the windows to the explanation as fill level over time, and removes what the
    /// explanation of a running loader never has.
    fn add_queue(&mut self) {
        let parts = self
            .windows
            .parts(self.seconds, self.windows.windows().len());
        let Some(explanation) = &mut self.explanation else {
            return;
        };
        contents::remove_empty_parts(explanation);
        let point = |part: RecordingPart| QueuePoint {
            at_s: self.age_s + part.to_s,
            ready: part.sum.ready.unwrap_or(0) as usize,
            waiting: part.waiting(),
        };
        explanation.run.queue = parts.into_iter().map(point).collect();
    }
}

/// Returns whether bytes are JSON that names the format. Damaged JSON counts, too.
fn is_recording(bytes: &[u8]) -> bool {
    let mut words = bytes.windows(FORMAT.len());
    bytes.trim_ascii_start().starts_with(b"{") && words.any(|word| word == FORMAT.as_bytes())
}

/// Returns a recording as JSON with one key per line.
fn lines(recording: &Recording) -> Vec<u8> {
    // All keys are strings, so nothing can fail.
    let value = serde_json::to_value(recording).expect("plain data with string keys");
    let mut entries: Vec<(&String, &serde_json::Value)> =
        value.as_object().into_iter().flatten().collect();
    // The format first: a person who opens the file sees what it is.
    entries.sort_by_key(|(key, _)| *key != "format");
    let entries: Vec<String> = entries
        .into_iter()
        .map(|(key, value)| format!("\"{key}\":{value}"))
        .collect();
    format!("{{\n{}\n}}\n", entries.join(",\n")).into_bytes()
}
