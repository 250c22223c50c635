//! Runs groups of checks on a device of a known kind.

use std::time::Duration;

use super::checked_device::CheckedDevice;
use super::findings::FindingLog;
use super::plan::{CheckPlan, Effort, Group};
use super::{batch_decoding, jpeg, kernels, ordering, rates, stress};
use crate::jpeg::{Backend, DecoderSettings};

/// Runs the groups of the plan one after another.
pub(crate) fn check<D: CheckedDevice>(device: &D, plan: &CheckPlan, log: &mut FindingLog<'_>) {
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
                            let mut decoder = jpeg::open_decoder(device, &settings)?;
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

fn rates<D: CheckedDevice>(device: &D, effort: Effort, log: &mut FindingLog<'_>) {
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

fn stress<D: CheckedDevice>(device: &D, lasting: Duration, log: &mut FindingLog<'_>) {
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
    log: &mut FindingLog<'_>,
) {
    let open = || jpeg::open_decoder(device, settings);
    log.check(
        format!("JPEGs decoded by {by} have the host's pixels, or nearly"),
        |figures| jpeg::pixels(device, &mut open()?, by, figures),
    );
    log.check(format!("JPEGs that {by} cannot decode are named"), |_| {
        jpeg::refusals(device, &mut open()?)
    });
    log.check(
        format!("rows decoded by {by} and resized have the host's pixels, or nearly"),
        |figures| batch_decoding::rows(device, open()?, by, figures),
    );
    log.check(format!("decoding by {by} is timed"), |figures| {
        jpeg::rates(device, &mut open()?, by, effort, figures)
    });
}
