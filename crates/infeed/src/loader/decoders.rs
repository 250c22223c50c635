//! Decoders of devices: when a loader may use them, and what becomes of files that they cannot decode.
//!
//! A file that neither the device nor the host's decoder beside it can decode is given to a worker: its
//! batch is made again, and what is wrong with the record is found, told, skipped or substituted as
//! ever. A device that finds it out late costs that batch and those begun behind it, once a record.

use super::digest::Digested;
use super::made::Told;
use super::records::Records;
use super::{Loader, Options, lock};
use crate::device::Device;
use crate::error::Error;
use crate::exec::Conveyor;
use crate::plan::device::Placement;

/// Refuses what cannot go with files that a device decodes; `placement` is None where batches stay on the
/// host.
///
/// # Errors
///
/// [`Error::Config`] with the reason and the mend.
pub(super) fn check(options: &Options, placement: Option<Placement>) -> Result<(), Error> {
    if !options.decode.is_by_device() {
        return Ok(());
    }
    let problem = match placement {
        None => "\"gpu\" decodes on a device; give one, such as device=\"cuda\"",
        Some(Placement::Host | Placement::Device) => {
            "\"gpu\" leaves JPEGs to the device together with their resize; use \
             placement=\"device-resize\", or leave that to it (\"auto\")"
        }
        Some(_) if options.feeders.is_some() => {
            "\"gpu\" takes no feeders: who decoded a record would depend on who was free; use \
             decode=\"cpu\" with them"
        }
        Some(_) if options.digest != Digested::Ids => {
            "\"gpu\" leaves no pixels on the host to take a digest of; use digest=\"ids\", or \
             decode=\"cpu\""
        }
        Some(Placement::Resize | Placement::Auto) => return Ok(()),
    };
    Err(Error::config("decode", problem))
}

/// The decoders that batches of these devices need, one each, where files are theirs.
///
/// # Errors
///
/// [`Error::Device`] for a device that has none, with the reason and the mend.
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

/// What these decoders are, for states; None where there are none.
pub(super) fn named<D: Device>(devices: &[D], decoders: &[Option<D::Decoder>]) -> Option<String> {
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
    /// Makes a batch again, and those behind it, without the device's decoding these records. Nobody but
    /// the caller takes batches from the conveyor.
    pub(super) fn make_again(&self, conveyor: &Conveyor<Records>, told: &Told, records: &[u64]) {
        let job = conveyor.job();
        for &record in records {
            let id = job.source().id(record, None);
            tracing::debug!(target: "infeed::device", "{id}: the host decodes it from now on");
            job.plan().keep_on_host(record);
        }
        conveyor.reset(told.epoch * job.partition().steps() + told.step);
        if let Some(tuning) = &self.tuning {
            lock(tuning).disturbed(self.flight);
        }
    }
}
