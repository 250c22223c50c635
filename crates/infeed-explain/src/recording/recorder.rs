//! Writers of recordings: a thread for a loader of infeed, and calls for any other loader.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf, absolute};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::windows::{LoopTotals, RecordingWindows};
use super::{RecordedWatch, Recording, contents};
use crate::explain::running_loader::{running, running_on, waiting_s};
use crate::findings::Explanation;
use crate::watch::loop_verdict;
use crate::watch::measurements::WatchedLoop;
use infeed::Stats;
use infeed::loader::any::AnyLoader;
use infeed_core::error::Error;
use infeed_core::replace::replace;

/// Maximum time between two samples of the counters.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Samples per window, while windows are narrow. A window gets the counts up to its last sample.
const WINDOW_SAMPLES: u32 = 4;

/// Minimum time between two writes of the file.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// Minimum time between two writes, in multiples of the last write's duration.
const WRITE_COST: u32 = 200;

/// Type of the loader of infeed in recordings.
const OWN_LOADER: &str = "infeed.Loader";

/// Settings of a recording.
#[derive(Clone, Debug, Default)]
pub struct RecordingOptions {
    /// Whether the file may contain paths, names of records, class names and addresses of feeders.
    pub paths: bool,
    /// Versions of other software, such as Python, by name.
    pub versions: BTreeMap<String, String>,
}

/// Records a loader of infeed until it is dropped. Drop it before the loader is closed, so that the
/// file has the last counters.
///
/// A thread reads the counters about once per second and writes the file every 10 seconds. Each
/// write replaces the file.
#[derive(Debug)]
pub struct Recorder {
    /// Dropped to end the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Recorder {
    /// Starts to record `loader` in the file at `path`, and writes the file once.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Write`] if the file cannot be written, and [`Error::Thread`].
    pub fn start(
        path: &Path,
        loader: &Arc<AnyLoader>,
        options: RecordingOptions,
    ) -> Result<Recorder, Error> {
        let mut run = LoaderRecording::start(path, loader, options)?;
        run.write(Some(&**loader), false)
            .map_err(|source| Error::write(path, source))?;
        let (end, ended) = channel();
        let loader = Arc::downgrade(loader);
        let thread = thread::Builder::new()
            .name("infeed-record".to_owned())
            .spawn(move || run.repeat(&loader, &ended))
            .map_err(|source| Error::Thread {
                source: Arc::new(source),
            })?;
        Ok(Recorder {
            end: Some(end),
            thread: Some(thread),
            process: std::process::id(),
        })
    }
}

impl Drop for Recorder {
    /// Writes the file for the last time, and waits for the thread.
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // A forked child has no such thread, and the file belongs to the parent.
            std::mem::forget(self.thread.take());
            return;
        }
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // The panic hook already reported a panic.
            let _ = thread.join();
        }
    }
}

/// The recording of a loader of infeed.
struct LoaderRecording {
    /// Absolute, because the process may change its folder.
    path: PathBuf,
    recording: Recording,
    began: Instant,
    write_at: Instant,
    warned: bool,
    /// Counters at the last sample.
    seen: SeenCounters,
}

/// Counters whose changes are events.
#[derive(Clone, Copy, Debug, Default)]
struct SeenCounters {
    epoch: u64,
    bad: usize,
    warnings: u64,
    retries: u64,
    lost: u64,
    held_warned: bool,
    stopped: bool,
}

impl SeenCounters {
    fn of(stats: &Stats, epoch: u64) -> SeenCounters {
        SeenCounters {
            epoch,
            bad: stats.bad as usize,
            warnings: stats.warnings,
            retries: stats.storage.retries,
            lost: stats.remote.iter().map(|worker| worker.lost).sum(),
            held_warned: stats.held_warned,
            stopped: false,
        }
    }
}

impl LoaderRecording {
    fn start(
        path: &Path,
        loader: &AnyLoader,
        options: RecordingOptions,
    ) -> Result<LoaderRecording, Error> {
        let stats = loader.loader().stats()?;
        let path = absolute(path).map_err(|source| Error::write(path, source))?;
        let mut recording = Recording::new(OWN_LOADER.to_owned(), options.versions, options.paths);
        recording.sources = contents::sources(loader.loader().pipeline());
        recording.age_s = stats.elapsed.as_secs_f64();
        recording.windows = RecordingWindows::since(totals(loader, &stats, 0)?);
        let now = Instant::now();
        Ok(LoaderRecording {
            path,
            recording,
            began: now,
            write_at: now,
            warned: false,
            seen: SeenCounters::of(&stats, loader.loader().place().0),
        })
    }

    /// Samples the counters and writes the file until the recorder or the loader is dropped.
    fn repeat(mut self, loader: &Weak<AnyLoader>, ended: &Receiver<()>) {
        loop {
            let width = Duration::from_secs_f64(self.recording.windows.width_s().min(1e3));
            let ended = ended.recv_timeout((width / WINDOW_SAMPLES).min(SAMPLE_INTERVAL));
            let is_last = ended != Err(RecvTimeoutError::Timeout);
            let loader = loader.upgrade();
            let sampled = loader.as_ref().map(|loader| self.sample(loader));
            let is_open = matches!(sampled, Some(Ok(())));
            let is_last = is_last || !is_open;
            if is_last || Instant::now() >= self.write_at {
                self.write_and_warn(loader.as_deref().filter(|_| is_open), is_last);
            }
            if is_last {
                return;
            }
        }
    }

    fn write_and_warn(&mut self, loader: Option<&AnyLoader>, closed: bool) {
        if let Err(error) = self.write(loader, closed)
            && !std::mem::replace(&mut self.warned, true)
        {
            let path = self.path.display();
            tracing::warn!("cannot write the recording {path}: {error}; trying again");
        }
    }

    /// Adds the counters since the last sample, and the events that follow from them.
    fn sample(&mut self, loader: &AnyLoader) -> Result<(), Error> {
        let stats = loader.loader().stats()?;
        let at_s = self.began.elapsed().as_secs_f64();
        let mut now = SeenCounters::of(&stats, loader.loader().place().0);
        let before = self.seen;
        // After a seek to an earlier epoch, one epoch ended.
        let epochs = now.epoch.checked_sub(before.epoch).unwrap_or(1);
        let events = &mut self.recording.events;
        let with_paths = self.recording.with_paths;
        let example = |error: &Error| with_paths.then(|| error.chain());
        events.add(at_s, "epochs ended", epochs);
        if now.bad != before.bad {
            let bad = loader.loader().bad_records();
            now.bad = bad.len();
            for bad in bad.iter().skip(before.bad.min(now.bad)) {
                let kind = format!("bad records ({})", contents::kind(&bad.reason));
                events.add_with(at_s, &kind, 1, example(&bad.reason));
            }
        }
        let more = |now: u64, before: u64| now.saturating_sub(before);
        events.add(
            at_s,
            "warnings of image decoders",
            more(now.warnings, before.warnings),
        );
        events.add(
            at_s,
            "repeated storage requests",
            more(now.retries, before.retries),
        );
        events.add(
            at_s,
            "lost connections to feeders",
            more(now.lost, before.lost),
        );
        if now.held_warned && !before.held_warned {
            events.add(at_s, "warning: the loop holds too many batches", 1);
        }
        let error = loader.loader().stop_error();
        now.stopped = error.is_some();
        if let Some(error) = error.filter(|_| !before.stopped) {
            let kind = format!("stopped by an error ({})", contents::kind(&error));
            events.add_with(at_s, &kind, 1, example(&error));
        }
        let ended = self.recording.windows.totals().epochs + epochs;
        let totals = totals(loader, &stats, ended)?;
        self.recording.windows.add(at_s, totals);
        self.seen = now;
        Ok(())
    }

    /// Writes the file. Without a loader, the explanation stays as it was.
    fn write(&mut self, loader: Option<&AnyLoader>, closed: bool) -> std::io::Result<()> {
        let begun = Instant::now();
        if let Some(found) = loader.and_then(|loader| self.explain(loader)) {
            self.recording.explanation = Some(Box::new(found));
        }
        self.recording.seconds = self.began.elapsed().as_secs_f64();
        self.recording.closed = closed;
        let written = replace(&self.path, &self.recording.to_json());
        let now = Instant::now();
        self.write_at = now + WRITE_INTERVAL.max((now - begun) * WRITE_COST);
        written
    }

    /// Returns the explanation so far, without what the file must not contain.
    fn explain(&self, loader: &AnyLoader) -> Option<Explanation> {
        let host = loader.loader();
        let found = match loader {
            AnyLoader::Host(loader) => running("loader", loader.pipeline(), loader),
            AnyLoader::Device(on) => running_on("loader", host.pipeline(), on),
        };
        // There is none before the first batch.
        let mut found = found.ok()?;
        let tuned = host.stats().ok()?.tuned.map(|tuned| tuned.text);
        contents::reduce(
            &mut found,
            host.selection(),
            tuned,
            self.recording.with_paths,
        );
        Some(found)
    }
}

/// Returns the counters of a loader after `epochs` epochs.
fn totals(loader: &AnyLoader, stats: &Stats, epochs: u64) -> Result<LoopTotals, Error> {
    let (_, sent): (Vec<_>, Vec<_>) = loader.device_stats()?.into_iter().unzip();
    Ok(LoopTotals {
        batches: stats.batches,
        samples: stats.samples,
        waited_s: waiting_s(stats, &sent, stats.elapsed.as_secs_f64()),
        epochs,
        bad: stats.bad,
        ready: Some(stats.ready as u64),
        held: Some(stats.held as u64),
    })
}

/// Records a loop over any loader. It has no thread: the loop passes its counters.
#[derive(Debug)]
pub struct WatchRecorder {
    path: PathBuf,
    recording: Recording,
    began: Instant,
    process: u32,
}

impl WatchRecorder {
    /// Starts to record a loop over a loader of the type `loader`, and writes the file once.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the file cannot be written.
    pub fn start(
        path: &Path,
        loader: String,
        options: RecordingOptions,
    ) -> Result<WatchRecorder, Error> {
        let failed = |source| Error::write(path, source);
        let mut recorder = WatchRecorder {
            path: absolute(path).map_err(failed)?,
            recording: Recording::new(loader, options.versions, options.paths),
            began: Instant::now(),
            process: std::process::id(),
        };
        recorder.write(None, false)?;
        Ok(recorder)
    }

    /// Adds the counters of the loop up to now.
    pub fn add(&mut self, totals: LoopTotals) {
        let at_s = self.began.elapsed().as_secs_f64();
        let before = self.recording.windows.totals().epochs;
        let epochs = totals.epochs.saturating_sub(before);
        self.recording.events.add(at_s, "epochs ended", epochs);
        self.recording.windows.add(at_s, totals);
    }

    /// Counts an error that the loader raised, by its type.
    pub fn add_error(&mut self, kind: &str) {
        let at_s = self.began.elapsed().as_secs_f64();
        let kind: String = kind.chars().take(100).collect();
        self.recording
            .events
            .add(at_s, &format!("errors of the loader ({kind})"), 1);
    }

    /// Writes the file with the verdict on `measured`, if there are measurements. A forked child
    /// writes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub fn write(&mut self, measured: Option<WatchedLoop>, closed: bool) -> Result<(), Error> {
        if std::process::id() != self.process {
            return Ok(());
        }
        if let Some(measured) = measured {
            let verdict = loop_verdict(&measured);
            self.recording.watch = Some(Box::new(RecordedWatch { verdict, measured }));
        }
        self.recording.seconds = self.began.elapsed().as_secs_f64();
        self.recording.closed = closed;
        replace(&self.path, &self.recording.to_json())
            .map_err(|source| Error::write(&self.path, source))
    }
}
