//! Checks and measurements of a device. `scripts/gpu-check` runs them on a machine with a GPU;
//! tests run them on the simulated device.
//!
//! All checks use [`Device`], so the code is the same for both. Each finding is reported
//! immediately, so that a later check that hangs or crashes loses nothing. Nothing here panics, and
//! a failed check does not stop the others.

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

use infeed_raw::slab::Slab;
use serde::Serialize;

use super::jpeg::{Backend, DecoderSettings};
use super::{AnyDevice, Device, DeviceError, HostSource};
use infeed_core::error::Error;

pub use jpeg::PixelTolerance;

/// A device with the functions that checks need beyond those of a loader.
pub trait CheckedDevice: Device {
    /// Longest delay of the stress test's consumer per step. It must exceed the host's time per
    /// step.
    const LATE: Duration;

    /// Bytes of the copies that delay the consumer.
    const BUSY_BYTES: usize;

    /// JPEG decoders to check. `None` for the only decoder of a device without a choice.
    const BACKENDS: &'static [Option<Backend>];

    /// Largest accepted distance of decoded pixels from the host's.
    const APART: PixelTolerance;

    /// Fills a slab from the beginning of a memory, after the commands in a stream, and waits for
    /// it.
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

    /// Returns unordered memory accesses that the device itself has detected. A GPU detects none.
    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns properties of the device, by name and value.
    fn facts(&self) -> Vec<(&'static str, String)>;
}

/// All findings about a device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Properties of the device, by name and value.
    pub facts: Vec<(&'static str, String)>,
    /// Results of the checks.
    pub checks: Vec<CheckResult>,
    /// Measurements.
    pub figures: Vec<Figure>,
}

/// One result, reported as soon as it is known.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finding {
    /// A property of the device.
    Fact {
        /// Name of the property.
        name: &'static str,
        /// Value of the property.
        value: String,
    },
    /// The result of a check.
    Check(CheckResult),
    /// A measurement.
    Figure(Figure),
}

/// Result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct CheckResult {
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

/// A group of checks that a process can run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Bytes that kernels write, compared with the host's.
    Kernels,
    /// Rates of copies and kernels, and the host's cost of a step.
    Rates,
    /// Batches that a consumer reads late.
    Stress,
    /// Order of the writes of JPEG decoders.
    Ordering,
    /// JPEG decoding: pixels, rejected files and rates.
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

    /// Returns the name of the group on the command line.
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

/// Groups to check, and the time to spend.
#[derive(Clone, Debug)]
pub struct CheckPlan {
    /// Duration in seconds. From 10 seconds on, sizes are those of training. Below, sizes are small
    /// and the figures mean little. The stress test takes all of this time if it runs alone,
    /// otherwise half.
    pub seconds: f64,
    /// The groups to run.
    pub groups: Vec<Group>,
    /// Settings of JPEG decoders.
    pub decoders: DecoderSettings,
}

impl CheckPlan {
    /// Creates a plan of every group, with the default decoders.
    pub fn new(seconds: f64) -> CheckPlan {
        CheckPlan {
            seconds,
            groups: Group::ALL.to_vec(),
            decoders: DecoderSettings::default(),
        }
    }
}

/// Amount of work: enough to see that everything works, or enough to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    Small,
    Full,
}

/// Checks a device and passes each finding to `found` immediately. [`AnyDevice::open`] defines the
/// names of devices.
///
/// # Errors
///
/// [`Error::Config`] if no device has this name; [`Error::Device`] if the device cannot be opened.
pub fn run(
    device: &str,
    plan: &CheckPlan,
    found: &mut dyn FnMut(&Finding),
) -> Result<CheckReport, Error> {
    let mut log = Log {
        report: CheckReport::default(),
        found,
    };
    let start = Instant::now();
    let opened = AnyDevice::open(device)?;
    log.figure(Figure {
        name: "open/device".to_owned(),
        value: start.elapsed().as_secs_f64() * 1e3,
        unit: "ms",
    });
    opened.check(plan, &mut log);
    Ok(log.report)
}

/// The findings so far, and the function that receives each of them.
pub(super) struct Log<'a> {
    report: CheckReport,
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
        run: impl FnOnce(&mut Figures<'_>) -> Result<String, CheckFailure>,
    ) {
        let start = Instant::now();
        let (outcome, detail) = match run(&mut Figures(&mut |figure| self.figure(figure))) {
            Ok(seen) => (Outcome::Passed, seen),
            Err(CheckFailure::Failed(why)) => (Outcome::Failed, why),
            Err(CheckFailure::NotRun(why)) => (Outcome::NotRun, why),
        };
        let check = CheckResult {
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
pub(super) fn check<D: CheckedDevice>(device: &D, plan: &CheckPlan, log: &mut Log<'_>) {
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

fn rates<D: CheckedDevice>(device: &D, effort: Effort, log: &mut Log<'_>) {
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

fn stress<D: CheckedDevice>(device: &D, lasting: Duration, log: &mut Log<'_>) {
    log.check("no batch is overwritten while a stream reads it", |_| {
        stress::with_release(device, lasting * 2 / 3)
    });
    log.check("a release left out on purpose is found", |_| {
        stress::without_release(device, lasting / 3)
    });
}

/// Returns the device's decoders by name.
fn decoders<D: CheckedDevice>(settings: &DecoderSettings) -> Vec<(String, DecoderSettings)> {
    let named = |&backend: &Option<Backend>| {
        let by = backend.map_or("the simulated device".to_owned(), |backend| {
            backend.to_string()
        });
        let settings = DecoderSettings {
            backend,
            ..settings.clone()
        };
        (by, settings)
    };
    D::BACKENDS.iter().map(named).collect()
}

/// Runs the checks of one of the device's decoders.
fn jpegs<D: CheckedDevice>(
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

/// Reason why a check did not pass.
#[derive(Debug)]
enum CheckFailure {
    /// The statement does not hold, or an operation failed.
    Failed(String),
    /// The check cannot run here.
    NotRun(String),
}

impl<E: std::error::Error> From<E> for CheckFailure {
    fn from(error: E) -> CheckFailure {
        CheckFailure::Failed(with_causes(&error))
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

fn wrong(what: impl Display) -> CheckFailure {
    CheckFailure::Failed(what.to_string())
}

/// Allocates memory with these bytes, and waits until the copy is done.
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

/// Returns pseudo-random bytes that depend on the key.
fn noise(key: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|n| infeed_core::random::hash(&[key, n]));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}
