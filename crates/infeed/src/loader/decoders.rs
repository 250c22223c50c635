//! Decoders of devices: when a loader may use them, and how files are handled that they cannot
//! decode.
//!
//! A file that neither the device's decoder nor its fallback on the host can decode goes to a
//! worker. Its batch is made again, and the worker reports, skips or substitutes the record as
//! usual. If the device finds the failure late, that batch and the batches after it are made again,
//! once per record.

use super::assemble::BatchFacts;
use super::digest::DigestScope;
use super::options::Options;
use super::records::RecordJob;
use super::running::{Loader, lock};
use crate::plan::device::Placement;
use infeed_core::error::Error;
use infeed_core::exec::Executor;
use infeed_device::Device;

/// Rejects options that do not work with decoding on a device. `placement` is `None` if batches
/// stay on the host.
///
/// # Errors
///
/// [`Error::Config`] with the reason and the fix.
pub(crate) fn check(options: &Options, placement: Option<Placement>) -> Result<(), Error> {
    if !options.decode.is_by_device() {
        return Ok(());
    }
    let problem = match placement {
        None => "\"gpu\" needs a device, such as device=\"cuda\"",
        Some(Placement::Host | Placement::Device) => {
            "\"gpu\" also resizes on the device; use placement=\"device-resize\" or \"auto\""
        }
        Some(_) if options.remote.is_some() => {
            "\"gpu\" does not support feeders, because the decoder of a record would depend on the \
             load; use decode=\"cpu\" with feeders"
        }
        Some(_) if options.digest != DigestScope::Ids => {
            "\"gpu\" leaves no pixels on the host for a digest; use digest=\"ids\", or \
             decode=\"cpu\""
        }
        Some(Placement::Resize | Placement::Auto) => return Ok(()),
    };
    Err(Error::config("decode", problem))
}

/// Creates the decoder of each device; `None` if the host decodes.
///
/// # Errors
///
/// [`Error::Device`] for a device without a decoder, with the reason and the fix.
pub(super) fn of<D: Device>(
    devices: &[D],
    options: &Options,
) -> Result<Vec<Option<D::Decoder>>, Error> {
    let decoder = |device: &D| {
        if !options.decode.is_by_device() {
            return Ok(None);
        }
        let decoder = device.decoder(&Default::default());
        decoder.map(Some).map_err(|error| error.on(device.name()))
    };
    devices.iter().map(decoder).collect()
}

/// Returns the names of the decoders, for states; `None` without decoders.
pub(super) fn decoder_names<D: Device>(
    devices: &[D],
    decoders: &[Option<D::Decoder>],
) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for (device, decoder) in devices.iter().zip(decoders) {
        let name = device.decoder_name(decoder.as_ref()?);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| names.join(" and "))
}

impl Loader {
    /// Makes a batch and all later ones again, and decodes `records` on the host. The caller must
    /// be the only consumer of the executor.
    pub(super) fn make_again(
        &self,
        executor: &Executor<RecordJob>,
        facts: &BatchFacts,
        records: &[u64],
    ) {
        let job = executor.job();
        for &record in records {
            let id = job.source().id(record, None);
            tracing::debug!(target: "infeed::device", "{id}: the host decodes it from now on");
            job.plan().keep_on_host(record);
        }
        executor.reset(facts.epoch * job.partition().steps() + facts.step);
        if let Some(tuning) = &self.tuning {
            lock(tuning).discard_window(self.flight);
        }
    }
}
