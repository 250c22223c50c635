//! Checks and measurements of a device: `scripts/gpu-check` runs them on a machine with a GPU, tests
//! run them on the simulated device.
//!
//! Everything goes through [`Device`], so it is the same code for both. Each finding is reported as
//! soon as it is made, so that a check that hangs or crashes loses nothing of those before it. Nothing
//! here panics, and a check that fails does not keep the others from running.

mod decoded;
mod jpeg;
mod kernels;
mod ordering;
mod pace;
mod rates;
mod stress;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::str::FromStr;
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

/// Share of the time that the GPU was busy, as the management library reports it.
fn utilisation(bus: &str) -> String {
    let found = nvml::Card::at(bus).and_then(|card| card.utilisation());
    found.map_or("unknown".to_owned(), |found| {
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

/// Everything found out about a device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Properties of the device, by name and value.
    pub facts: Vec<(&'static str, String)>,
    /// Results of the checks.
    pub checks: Vec<Check>,
    /// Measurements.
    pub figures: Vec<Figure>,
}

/// One result, reported as soon as it is known.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finding {
    /// A property of the device.
    Fact {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The result of a check.
    Check(Check),
    /// A measurement.
    Figure(Figure),
}

/// Result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// The statement that is checked, as a sentence.
    pub name: String,
    /// Whether the statement holds.
    pub outcome: Outcome,
    /// The observation, the failure, or the reason why the check did not run.
    pub detail: String,
    /// Duration of the check.
    pub seconds: f64,
}

/// Whether a checked statement holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not hold, or the check ended with an error.
    Failed,
    /// The check could not run here.
    NotRun,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The measured quantity, as `name/of=value/…`.
    pub name: String,
    /// The measured value.
    pub value: f64,
    /// The unit of `value`.
    pub unit: &'static str,
}

/// Receives measurements one by one.
pub(super) struct Figures<'a>(&'a mut dyn FnMut(Figure));

impl Figures<'_> {
    fn push(&mut self, figure: Figure) {
        (self.0)(figure);
    }
}

/// A group of checks, which a process can run by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Bytes that kernels write, against the host's.
    Kernels,
    /// Rates of copies and kernels, and the host's cost of a step.
    Rates,
    /// Batches that a consumer reads late.
    Stress,
    /// Order of the writes of decoders of JPEGs.
    Ordering,
    /// Decoding of JPEGs: pixels, rejected files and rates.
    Jpegs,
}

impl Group {
    /// Every group, in the order in which they run.
    pub const ALL: [Group; 5] = [
        Group::Kernels,
        Group::Rates,
        Group::Stress,
        Group::Ordering,
        Group::Jpegs,
    ];

    /// The name as a caller gives it.
    pub fn name(self) -> &'static str {
        match self {
            Group::Kernels => "kernels",
            Group::Rates => "rates",
            Group::Stress => "stress",
            Group::Ordering => "ordering",
            Group::Jpegs => "jpegs",
        }
    }
}

impl FromStr for Group {
    type Err = Error;

    fn from_str(name: &str) -> Result<Group, Error> {
        let found = Group::ALL.into_iter().find(|group| group.name() == name);
        found.ok_or_else(|| {
            let names = Group::ALL.map(Group::name).join(", ");
            let problem = format!("no group of checks is named {name:?}; the groups are {names}");
            Error::config("groups", problem)
        })
    }
}

/// What to check, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// With 10 seconds or more, sizes are those of training; with fewer, sizes are small and the
    /// figures say little. The stress test takes all of this time if it runs alone, otherwise half.
    pub seconds: f64,
    /// The groups to run.
    pub groups: Vec<Group>,
    /// Decoders of JPEGs.
    pub decoders: DecoderSettings,
}

impl Plan {
    /// Every group, with the default decoders.
    pub fn new(seconds: f64) -> Plan {
        Plan {
            seconds,
            groups: Group::ALL.to_vec(),
            decoders: DecoderSettings::default(),
        }
    }
}

/// How much is done: enough to see that all of it works, or enough to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    Small,
    Full,
}

/// Checks the device with a name that [`Any::open`] accepts, and passes each finding to `found` as soon
/// as it is known.
///
/// # Errors
///
/// [`Error::Config`] if no device has the name; [`Error::Device`] if it cannot be opened.
pub fn run(device: &str, plan: &Plan, found: &mut dyn FnMut(&Finding)) -> Result<Report, Error> {
    let mut log = Log {
        report: Report::default(),
        found,
    };
    let start = Instant::now();
    let opened = Any::open(device)?;
    log.figure(Figure {
        name: "open/device".to_owned(),
        value: start.elapsed().as_secs_f64() * 1e3,
        unit: "ms",
    });
    match opened {
        Any::Cuda(cuda) => check(&cuda, plan, &mut log),
        Any::Sim(sim) => check(&sim, plan, &mut log),
    }
    Ok(log.report)
}

/// The findings so far, and the function that receives each of them.
struct Log<'a> {
    report: Report,
    found: &'a mut dyn FnMut(&Finding),
}

impl Log<'_> {
    fn fact(&mut self, name: &'static str, value: String) {
        (self.found)(&Finding::Fact {
            name,
            value: value.clone(),
        });
        self.report.facts.push((name, value));
    }

    fn figure(&mut self, figure: Figure) {
        (self.found)(&Finding::Figure(figure.clone()));
        self.report.figures.push(figure);
    }

    fn check(
        &mut self,
        name: impl Into<String>,
        run: impl FnOnce(&mut Figures<'_>) -> Result<String, Wrong>,
    ) {
        let start = Instant::now();
        let (outcome, detail) = match run(&mut Figures(&mut |figure| self.figure(figure))) {
            Ok(seen) => (Outcome::Passed, seen),
            Err(Wrong::Failed(why)) => (Outcome::Failed, why),
            Err(Wrong::NotRun(why)) => (Outcome::NotRun, why),
        };
        let check = Check {
            name: name.into(),
            outcome,
            detail,
            seconds: start.elapsed().as_secs_f64(),
        };
        (self.found)(&Finding::Check(check.clone()));
        self.report.checks.push(check);
    }
}

/// Runs the groups of the plan one after another.
fn check<D: Checked>(device: &D, plan: &Plan, log: &mut Log<'_>) {
    let seconds = Duration::try_from_secs_f64(plan.seconds).unwrap_or_default();
    let effort = match seconds >= Duration::from_secs(10) {
        true => Effort::Full,
        false => Effort::Small,
    };
    for (name, value) in device.facts() {
        log.fact(name, value);
    }
    for group in &plan.groups {
        match group {
            Group::Kernels => {
                log.check("every kernel gives the bytes of its host run", |_| {
                    kernels::same_bytes(device)
                });
            }
            Group::Rates => rates(device, effort, log),
            Group::Stress => {
                let alone = plan.groups.len() == 1;
                stress(device, if alone { seconds } else { seconds / 2 }, log);
            }
            Group::Ordering => {
                for (by, settings) in decoders::<D>(&plan.decoders) {
                    log.check(
                        format!(
                            "JPEGs decoded by {by} after a wait overwrite nothing that is read"
                        ),
                        |figures| {
                            let mut decoder = jpeg::opened(device, &settings)?;
                            ordering::ordering(device, &mut decoder, &by, figures)
                        },
                    );
                }
            }
            Group::Jpegs => {
                for (by, settings) in decoders::<D>(&plan.decoders) {
                    jpegs(device, &settings, &by, effort, log);
                }
            }
        }
    }
}

fn rates<D: Checked>(device: &D, effort: Effort, log: &mut Log<'_>) {
    log.check("copies are timed", |figures| {
        rates::copies(device, effort, figures)
    });
    log.check("kernels are timed", |figures| {
        rates::kernels(device, effort, figures)
    });
    log.check("a step costs the host little", |figures| {
        rates::host_cost(device, effort, figures)
    });
    log.check(
        "the ring's own times are those of its copies and kernels",
        |figures| rates::own_times(device, effort, figures),
    );
    log.check(
        "the measured gap is as long as an injected delay",
        |figures| rates::gap(device, figures),
    );
}

fn stress<D: Checked>(device: &D, lasting: Duration, log: &mut Log<'_>) {
    log.check("no batch is overwritten while a stream reads it", |_| {
        stress::with_release(device, lasting * 2 / 3)
    });
    log.check("a release left out on purpose is found", |_| {
        stress::without_release(device, lasting / 3)
    });
}

/// The device's decoders by their names.
fn decoders<D: Checked>(settings: &DecoderSettings) -> Vec<(String, DecoderSettings)> {
    let named = |&way: &Option<Way>| {
        let by = way.map_or("the simulated device".to_owned(), |way| way.to_string());
        let settings = DecoderSettings {
            way,
            ..settings.clone()
        };
        (by, settings)
    };
    D::WAYS.iter().map(named).collect()
}

/// The checks of one of the device's decoders.
fn jpegs<D: Checked>(
    device: &D,
    settings: &DecoderSettings,
    by: &str,
    effort: Effort,
    log: &mut Log<'_>,
) {
    let open = || jpeg::opened(device, settings);
    log.check(
        format!("JPEGs decoded by {by} have the host's pixels, or nearly"),
        |figures| jpeg::pixels(device, &mut open()?, by, figures),
    );
    log.check(format!("JPEGs that {by} cannot decode are named"), |_| {
        jpeg::refusals(device, &mut open()?)
    });
    log.check(
        format!("rows decoded by {by} and resized have the host's pixels, or nearly"),
        |figures| decoded::rows(device, open()?, by, figures),
    );
    log.check(format!("decoding by {by} is timed"), |figures| {
        jpeg::rates(device, &mut open()?, by, effort, figures)
    });
}

/// Why a check did not pass.
enum Wrong {
    /// The statement does not hold, or an operation failed.
    Failed(String),
    /// The check cannot run here.
    NotRun(String),
}

impl<E: std::error::Error> From<E> for Wrong {
    fn from(error: E) -> Wrong {
        Wrong::Failed(with_causes(&error))
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn wrong(what: impl Display) -> Wrong {
    Wrong::Failed(what.to_string())
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
