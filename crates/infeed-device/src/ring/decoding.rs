//! Fills the staging memory of a batch: copies images that the host has cropped, and makes the
//! device decode files. The host decodes files that the device rejects.

use std::ops::Range;
use std::sync::Arc as StdArc;

use crate::jpeg::{ImagePosition, LateRejections, ScannedJpeg};
use crate::{Device, DeviceError, HostSource};
use infeed_codec::decode::{self, ColorMode, Limits, Request};
use infeed_core::batch::Array;
use infeed_core::sample::{Image, Size};

use super::files::{MAX_PIXELS, StagedFile, StagingLayout};

/// Decoders of a ring.
#[derive(Debug)]
pub(super) struct RingDecoders<D: Device> {
    device: D::Decoder,
    /// Decodes files that the device rejects.
    host: decode::Decoder,
    image: Image,
}

/// Rows of a batch that may be invalid because their files were not decoded.
#[derive(Debug, Default)]
pub(super) struct UndecodedRows {
    /// Rows whose files neither the device nor the host could decode.
    broken: Vec<usize>,
    /// Lists of files that the device may still reject while it decodes, each with the row of every
    /// file.
    later: Vec<(LateRejections, Vec<usize>)>,
}

/// Totals of the transfers of columns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TransferTotals {
    pub(super) transfers: u64,
    pub(super) bytes: u64,
    /// Number of files that the device decodes.
    pub(super) files: u64,
}

impl TransferTotals {
    /// Counts one copy.
    pub(super) fn one(bytes: usize) -> TransferTotals {
        TransferTotals {
            transfers: 1,
            bytes: bytes as u64,
            files: 0,
        }
    }

    pub(super) fn add(&mut self, more: TransferTotals) {
        self.transfers += more.transfers;
        self.bytes += more.bytes;
        self.files += more.files;
    }
}

/// A range of an array, as the bytes that a copy reads.
#[derive(Debug)]
struct ArrayRange {
    of: Array,
    at: Range<usize>,
}

impl AsRef<[u8]> for ArrayRange {
    fn as_ref(&self) -> &[u8] {
        // The caller computed the range from the same bytes.
        self.of.bytes().get(self.at.clone()).unwrap_or(&[])
    }
}

impl UndecodedRows {
    /// Whether no row can become invalid later.
    pub(super) fn are_settled(&self) -> bool {
        self.later.is_empty()
    }

    /// Returns the invalid rows. Complete once the batch is decoded.
    pub(super) fn rows(&self) -> Vec<usize> {
        let mut rows = self.broken.clone();
        for (later, files) in &self.later {
            let rejected = crate::jpeg::rejected_files(later);
            rows.extend(rejected.iter().filter_map(|file| files.get(file.row)));
        }
        rows.sort_unstable();
        rows.dedup();
        rows
    }
}

impl<D: Device> RingDecoders<D> {
    pub(super) fn new(device: D::Decoder) -> RingDecoders<D> {
        RingDecoders {
            device,
            host: decode::Decoder::new(),
            image: Image::default(),
        }
    }

    /// Enqueues the copies and the decoding that put all images at their positions. Adds transfers
    /// that keep the host's bytes alive to `transfers`. The caller must have waited on the host
    /// until nothing on the device uses the memory: decoders write as soon as they are called.
    ///
    /// # Errors
    ///
    /// The device's error. A rejected file is not an error.
    pub(super) fn send(
        &mut self,
        (device, queue): (&D, D::Queue),
        (array, staged): (&Array, &StagingLayout),
        to: &StdArc<D::Memory>,
        undecoded_rows: &mut UndecodedRows,
        transfers: &mut Vec<D::Transfer>,
    ) -> Result<TransferTotals, DeviceError> {
        let part = |at: &Range<usize>| ArrayRange {
            of: array.clone(),
            at: at.clone(),
        };
        let mut sums = TransferTotals::default();
        let copy = |from: HostSource, at: usize, sums: &mut TransferTotals| {
            let bytes = (*from).as_ref().len();
            sums.add(TransferTotals::one(bytes));
            device.copy(queue, from, bytes, to, at)
        };
        if !staged.files.is_empty() {
            let files = staged.files.iter();
            let scanned = |file: &StagedFile| ScannedJpeg {
                source: StdArc::new(part(&file.at)),
                header: file.scan,
            };
            let (jpegs, positions): (Vec<ScannedJpeg>, Vec<ImagePosition>) =
                files.map(|file| (scanned(file), file.position)).unzip();
            let decoding = device.decode(queue, &mut self.device, &jpegs, to, &positions)?;
            let (transfer, rejected, later) = decoding.parts();
            transfers.push(transfer);
            let bytes = staged.files.iter().map(|file| file.at.len()).sum();
            sums.add(TransferTotals::one(bytes));
            sums.files = (staged.files.len() - rejected.len()) as u64;
            if let Some(later) = later {
                let rows = staged.files.iter().map(|file| file.row).collect();
                undecoded_rows.later.push((later, rows));
            }
            for rejected in rejected {
                let Some(file) = staged.files.get(rejected.row) else {
                    continue;
                };
                tracing::debug!(
                    target: "infeed_device",
                    "row {}, decoded on the host: {}", file.row, rejected.why
                );
                let pixels = self.on_host(part(&file.at).as_ref(), &file.position);
                let pixels = pixels.unwrap_or_else(|| {
                    undecoded_rows.broken.push(file.row);
                    vec![0; file.position.bytes().map_or(0, |position| position.len())]
                });
                transfers.push(copy(StdArc::new(pixels), file.position.offset, &mut sums)?);
            }
        }
        for (from, at) in &staged.copies {
            transfers.push(copy(StdArc::new(part(from)), *at, &mut sums)?);
        }
        Ok(sums)
    }

    /// Decodes a file that the device rejected. None if the host cannot decode it either: the
    /// loader then decodes the record on the host, which reports the reason.
    fn on_host(&mut self, file: &[u8], position: &ImagePosition) -> Option<Vec<u8>> {
        let limits = Limits {
            max_pixels: MAX_PIXELS,
        };
        let header = self.host.header(file, false, &limits).ok()?;
        let size = Size {
            height: position.height,
            width: position.width,
        };
        let request = Request::whole(&header, ColorMode::Rgb);
        if header.size != size {
            return None;
        }
        self.host
            .decode(file, &header, &request, &mut self.image)
            .ok()?;
        Some(std::mem::take(&mut self.image.data))
    }
}
