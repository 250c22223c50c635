//! A device, checked against the host and measured: what `scripts/gpu-check` runs on a machine
//! with a card, and tests run on the simulated device.
//!
//! Everything goes through the seam, so it is the same code for both. A check says what it found;
//! nothing here panics, and one that fails does not keep the others from running.

mod decoded;
mod jpeg;
mod kernels;
mod ordering;
mod rates;
mod stress;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use infeed_raw::nvml;
use infeed_raw::slab::Slab;
use serde::Serialize;

use super::jpeg::{DecoderSettings, Way};
use super::{Any, Cuda, Device, DeviceError, HostSource, Sim};
use crate::error::Error;

pub use jpeg::Apart;

/// What checks need of a device beyond what a loader needs.
pub trait Checked: Device {
    /// How late the stress test's consumer is at most, in a step: longer than the host takes for one.
    const LATE: Duration;

    /// Bytes of the copies that make it late.
    const BUSY_BYTES: usize;

    /// What it may decode JPEGs by; where there is no choice, the one that is there.
    const WAYS: &'static [Option<Way>];

    /// How far the pixels of JPEGs that it decodes may be from the host's.
    const APART: Apart;

    /// Fills a slab from the beginning of a memory, after what is in a stream, and waits for it.
    ///
    /// # Errors
    ///
    /// As [`Device::copy`].
    fn fetch(
        &self,
        queue: Self::Queue,
        from: &Arc<Self::Memory>,
        into: Slab,
    ) -> Result<Slab, DeviceError>;

    /// Uses of memory out of order that the device itself has noticed so far; a card notices none.
    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }

    /// What it is, by name and value.
    fn facts(&self) -> Vec<(&'static str, String)>;
}

impl Checked for Cuda {
    const LATE: Duration = Duration::from_millis(4);
    const BUSY_BYTES: usize = 64 << 20;
    const WAYS: &'static [Option<Way>] = jpeg::WAYS_OF_A_CARD;
    // Decoders may round otherwise at each of three steps; and chroma between samples is computed
    // from fewer of them, or from one.
    const APART: Apart = Apart {
        full: 1.5,
        sampled: 6.0,
    };

    fn fetch(
        &self,
        queue: Self::Queue,
        from: &Arc<Self::Memory>,
        into: Slab,
    ) -> Result<Slab, DeviceError> {
        self.read(queue, from, into)
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let card = self.card();
        vec![
            ("name", card.name.clone()),
            ("capability", dotted(card.capability)),
            ("multiprocessors", card.multiprocessors.to_string()),
            ("memory_bytes", card.memory_bytes.to_string()),
            ("bus", card.bus.clone()),
            ("utilisation", utilisation(&card.bus)),
            ("driver_cuda", dotted(card.driver)),
        ]
    }
}

/// What the management library says of a card just now.
fn utilisation(bus: &str) -> String {
    let found = nvml::Card::at(bus).and_then(|card| card.utilisation());
    found.map_or("not told".to_owned(), |found| {
        format!("{:.0} % busy", 100.0 * found.busy)
    })
}

fn dotted((major, minor): (i32, i32)) -> String {
    format!("{major}.{minor}")
}

impl Checked for Sim {
    // It finds what is out of order whatever the timing was.
    const LATE: Duration = Duration::from_micros(100);
    const BUSY_BYTES: usize = 64 << 10;
    const WAYS: &'static [Option<Way>] = &[None];
    const APART: Apart = Apart {
        full: 0.0,
        sampled: 0.0,
    };

    fn fetch(
        &self,
        queue: Self::Queue,
        from: &Arc<Self::Memory>,
        mut into: Slab,
    ) -> Result<Slab, DeviceError> {
        let bytes = into.as_ref().len();
        let seen = self.read(queue, from, bytes, Duration::ZERO)?.bytes();
        let into_bytes = into.as_mut();
        into_bytes.copy_from_slice(&seen);
        Ok(into)
    }

    fn complaints(&self) -> Vec<String> {
        self.violations().iter().map(ToString::to_string).collect()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        vec![("name", "the simulated device".to_owned())]
    }
}

/// What was found out about a device.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its name, as a user gives it.
    pub device: String,
    /// What it is, by name and value.
    pub facts: Vec<(&'static str, String)>,
    /// What is right or wrong.
    pub checks: Vec<Check>,
    /// What was measured.
    pub figures: Vec<Figure>,
}

impl Report {
    /// Whether every check passed.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

/// One thing that is right or wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What should be so, as a sentence.
    pub name: &'static str,
    /// Whether it is.
    pub passed: bool,
    /// What was seen.
    pub detail: String,
    /// How long that took.
    pub seconds: f64,
}

/// One thing that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What, as `name/of=value/…`.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
}

/// How much is done: enough to see that all of it works, or enough to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    Small,
    Full,
}

/// Checks the device of a name, with decoders of JPEGs as they are by default; see [`run_with`].
///
/// # Errors
///
/// As [`run_with`].
pub fn run(device: &str, seconds: f64) -> Result<Report, Error> {
    run_with(device, seconds, &DecoderSettings::default())
}

/// Checks the device of a name, as [`Any::open`] reads it.
///
/// With 10 seconds or more, sizes are those of training; with fewer, small ones, whose figures
/// say little. About half of the time is the stress test's.
///
/// # Errors
///
/// [`Error::Config`] if the name means no device; [`Error::Device`] if it cannot be opened.
pub fn run_with(device: &str, seconds: f64, decoders: &DecoderSettings) -> Result<Report, Error> {
    let lasting = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Ok(match Any::open(device)? {
        Any::Cuda(cuda) => check(&cuda, lasting, decoders),
        Any::Sim(sim) => check(&sim, lasting, decoders),
    })
}

/// All checks, one after another.
pub fn check<D: Checked>(device: &D, lasting: Duration, decoders: &DecoderSettings) -> Report {
    let effort = match lasting >= Duration::from_secs(10) {
        true => Effort::Full,
        false => Effort::Small,
    };
    let mut checks = Vec::new();
    let mut figures = Vec::new();
    let mut note = |name, run: &mut dyn FnMut(&mut Vec<Figure>) -> Result<String, Wrong>| {
        let start = Instant::now();
        let found = run(&mut figures);
        checks.push(Check {
            name,
            passed: found.is_ok(),
            detail: found.unwrap_or_else(|wrong| wrong.0),
            seconds: start.elapsed().as_secs_f64(),
        });
    };
    note("every kernel gives the bytes of its host run", &mut |_| {
        kernels::same_bytes(device)
    });
    note(
        "JPEGs are decoded to the host's pixels, or near them",
        &mut |figures| jpeg::pixels(device, decoders, figures),
    );
    note("JPEGs that are not decoded are named", &mut |_| {
        jpeg::refusals(device, decoders)
    });
    note(
        "JPEGs among rows are decoded and resized to the host's pixels, or near them",
        &mut |figures| decoded::rows(device, decoders, figures),
    );
    note(
        "JPEGs that are decoded after a wait overwrite nothing that is still read",
        &mut |figures| ordering::ordering(device, decoders, figures),
    );
    note("decoding of JPEGs is timed", &mut |figures| {
        jpeg::rates(device, decoders, effort, figures)
    });
    note("copies are timed", &mut |figures| {
        rates::copies(device, effort, figures)
    });
    note("kernels are timed", &mut |figures| {
        rates::kernels(device, effort, figures)
    });
    note("a step costs the host little", &mut |figures| {
        rates::host_cost(device, effort, figures)
    });
    note(
        "the ring's own times are those of its copies and kernels",
        &mut |figures| rates::own_times(device, effort, figures),
    );
    note(
        "an injected delay is the gap that is told",
        &mut |figures| rates::gap(device, figures),
    );
    note(
        "no batch is overwritten while a stream reads it",
        &mut |_| stress::with_release(device, lasting / 3),
    );
    note("a release left out on purpose is found", &mut |_| {
        stress::without_release(device, lasting / 6)
    });
    Report {
        device: device.name(),
        facts: device.facts(),
        checks,
        figures,
    }
}

/// What a check says when it fails.
struct Wrong(String);

impl<E: std::error::Error> From<E> for Wrong {
    fn from(error: E) -> Wrong {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        Wrong(text)
    }
}

fn wrong(what: impl Display) -> Wrong {
    Wrong(what.to_string())
}

/// Memory with these bytes in it, put there in a stream and waited for.
fn filled<D: Device>(
    device: &D,
    queue: D::Queue,
    bytes: &[u8],
) -> Result<Arc<D::Memory>, DeviceError> {
    let memory = device.memory(bytes.len())?;
    let source: HostSource = Arc::new(bytes.to_vec());
    drop(device.copy(queue, source, bytes.len(), &memory, 0)?);
    Ok(memory)
}

/// Bytes that differ from place to place, and by key.
fn noise(key: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|n| crate::random::hash(&[key, n]));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}
