//! Commands of a batch: copies, decoders, kernels, and the events that order them.
//!
//! The README of this crate gives the reasons for the order, under "Enqueued commands" and "Why no
//! event is missing".

#[cfg(test)]
use std::sync::atomic::Ordering;

use infeed_raw::kernel::Table;

use crate::{Device, DeviceError, HostSource};
use infeed_core::batch::Array;
use infeed_core::error::Error;

use super::decoding::{TransferTotals, UndecodedRows};
use super::device_ring::Ring;
use super::ring_state::Slot;
use super::route::{ImageTable, Route};
use super::sync::{self, Arc};
use super::times::TimingMarks;

/// The array of a column, and its table of images.
pub(super) struct ColumnUpload<'a> {
    pub(super) route: &'a Route,
    array: &'a Array,
    pub(super) image_table: ImageTable,
}

/// Events recorded after a batch's copies, and after all its commands.
pub(super) struct EnqueuedBatch<D: Device> {
    pub(super) copied: Arc<D::Event>,
    pub(super) ready: Arc<D::Event>,
    pub(super) undecoded_rows: UndecodedRows,
}

impl<D: Device> Ring<D> {
    /// Pairs each array with its route and its table of images.
    pub(super) fn uploads<'a>(
        &self,
        routes: &'a [Route],
        arrays: &'a [(usize, Array)],
        rows: usize,
    ) -> Result<Vec<ColumnUpload<'a>>, Error> {
        let mut weights = sync::lock(&self.weights);
        let upload = |(route, array): &'a (usize, Array)| {
            let route = &routes[*route];
            let image_table = route.image_table(array, rows, &mut weights)?;
            if matches!(image_table, ImageTable::Staged(_)) && self.decoders.is_none() {
                let problem = "it has files, but the ring has no decoder";
                return Err(Error::config("device", problem));
            }
            Ok(ColumnUpload {
                route,
                array,
                image_table,
            })
        };
        arrays.iter().map(upload).collect()
    }

    /// Enqueues the copies and kernels of a batch, ordered after all earlier uses of the slot.
    pub(super) fn enqueue(
        &self,
        uploads: &[ColumnUpload<'_>],
        slot: &mut Slot<D>,
        rows: usize,
        is_timed: bool,
        transfers: &mut Vec<D::Transfer>,
    ) -> Result<EnqueuedBatch<D>, DeviceError> {
        let shared = &self.shared;
        let device = &shared.device;
        let events = if is_timed {
            &shared.timed
        } else {
            &shared.plain
        };
        let begin = |queue| -> Result<Option<Arc<D::Event>>, DeviceError> {
            if !is_timed {
                return Ok(None);
            }
            let begun = events.take(device)?;
            device.record(&begun, queue)?;
            Ok(Some(begun))
        };
        let copied = events.take(device)?;
        // A kernel may still read or write the memory that the copies write. The output of a kernel
        // in one batch can be the target of a copy in the next.
        if let (Some(before), Some(_)) = (&slot.ready, self.kernels)
            && !self.is_omitted(OmittedWait::Kernel)
        {
            device.wait(self.copies, before)?;
        }
        let releases = |queue: D::Queue| -> Result<(), DeviceError> {
            if self.is_omitted(OmittedWait::Release) {
                return Ok(());
            }
            let mut released = slot.released.iter();
            released.try_for_each(|event| device.wait(queue, event))
        };
        // Consumers may still read the outputs that copies write. Kernels wait for consumers in
        // their own stream, so copies do not wait for a long step on their behalf.
        if uploads.iter().any(|upload| upload.route.is_copied()) {
            releases(self.copies)?;
        }
        let has_files = |upload: &ColumnUpload<'_>| matches!(&upload.image_table, ImageTable::Staged(s) if !s.files.is_empty());
        if let Some(before) = &slot.ready
            && uploads.iter().any(has_files)
            && !self.is_omitted(OmittedWait::Staging)
        {
            // Decoders write as soon as they are called, so only a wait on the host helps.
            device.synchronize(before)?;
        }
        let begun = begin(self.copies)?;
        let (mut sums, mut undecoded_rows) = (TransferTotals::default(), UndecodedRows::default());
        for (upload, column) in uploads.iter().zip(&slot.columns) {
            if let (ImageTable::Staged(staged), Some(decoders), Some(to)) =
                (&upload.image_table, &self.decoders, &column.staging)
            {
                let (on, from) = ((device, self.copies), (upload.array, staged));
                let mut decoders = sync::lock(decoders);
                sums.add(decoders.send(on, from, to, &mut undecoded_rows, transfers)?);
                continue;
            }
            let bytes = upload.array.bytes().len();
            let to = match &column.staging {
                Some(staging) if upload.route.has_kernel() => staging,
                _ => &column.output,
            };
            let from: HostSource = std::sync::Arc::new(upload.array.clone());
            if bytes > 0 {
                transfers.push(device.copy(self.copies, from, bytes, to, 0)?);
                sums.add(TransferTotals::one(bytes));
            }
        }
        // The timed range ends here. Tables are sent with the kernels.
        let copied_bytes = sums.bytes;
        device.record(&copied, self.copies)?;
        let kernels = self
            .kernels
            .filter(|_| uploads.iter().any(|upload| upload.route.has_kernel()));
        let (ready, expanding) = match kernels {
            // The event after the copies is also the batch's `ready` event.
            None => (Arc::clone(&copied), None),
            Some(kernels) => {
                let ready = events.take(device)?;
                if !self.is_omitted(OmittedWait::Copied) {
                    device.wait(kernels, &copied)?;
                }
                releases(kernels)?;
                let begun = begin(kernels)?;
                for (upload, column) in uploads.iter().zip(&slot.columns) {
                    let (Some(kernel), Some(staging), true) =
                        (upload.route.kernel(), &column.staging, rows > 0)
                    else {
                        continue;
                    };
                    let table = upload
                        .image_table
                        .table()
                        .map(Table::from)
                        .zip(column.table.as_ref());
                    device.launch(kernels, kernel, rows, staging, table, &column.output)?;
                    if let Some((table, _)) = table {
                        sums.add(TransferTotals::one(table.bytes().len()));
                    }
                }
                device.record(&ready, kernels)?;
                (Arc::clone(&ready), begun.map(|begun| (begun, ready)))
            }
        };
        if let Some(begun) = begun {
            sync::lock(&shared.times).push(TimingMarks {
                copies: (begun, Arc::clone(&copied)),
                kernels: expanding,
                bytes: copied_bytes,
            });
        }
        let mut counted = sync::lock(&self.counted);
        counted.0 += 1;
        counted.1.add(sums);
        drop(counted);
        slot.released.clear();
        slot.ready = Some(Arc::clone(&ready));
        Ok(EnqueuedBatch {
            copied,
            ready,
            undecoded_rows,
        })
    }

    #[cfg(test)]
    fn is_omitted(&self, what: OmittedWait) -> bool {
        self.without.load(Ordering::Relaxed) == what as u8
    }

    #[cfg(not(test))]
    fn is_omitted(&self, _what: OmittedWait) -> bool {
        false
    }
}

/// Waits that tests omit, to check that the simulated device finds the race.
#[derive(Clone, Copy)]
pub(super) enum OmittedWait {
    /// The wait of a slot's writer for the release by the consumers.
    Release = 1,
    /// The wait of copies for the kernel that last read the staging memory.
    Kernel = 2,
    /// The wait of a kernel for its copies.
    Copied = 3,
    /// The wait of the host, before files are decoded, for the kernel that last read the staging
    /// memory.
    Staging = 4,
}
