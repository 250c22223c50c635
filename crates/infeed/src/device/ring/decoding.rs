//! Images of a batch into its staging memory: those that the host has cut out are copied, files are
//! decoded by the device, and files that the device refuses by the host.

use std::ops::Range;
use std::sync::Arc as StdArc;

use crate::batch::Array;
use crate::decode::{self, ColorMode, Limits, Request};
use crate::device::jpeg::{Later, Place, ScannedJpeg};
use crate::device::{Device, DeviceError, HostSource};
use crate::sample::{Image, Size};

use super::files::{File, MOST_PIXELS, Staged};

/// The decoders of a ring.
#[derive(Debug)]
pub(super) struct Decoders<D: Device> {
    device: D::Decoder,
    /// For files that the device refuses.
    host: decode::Decoder,
    image: Image,
}

/// Rows of a batch that may not hold what their files show.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Rows whose files nobody could decode.
    broken: Vec<usize>,
    /// What the device finds out while it decodes, by the number of the file; and the files' rows.
    later: Vec<(Later, Vec<usize>)>,
}

/// What was sent of a column of files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) transfers: u64,
    pub(super) bytes: u64,
    /// Files that the device decodes.
    pub(super) files: u64,
}

impl Sums {
    /// One copy of so many bytes.
    pub(super) fn one(bytes: usize) -> Sums {
        Sums {
            transfers: 1,
            bytes: bytes as u64,
            files: 0,
        }
    }

    pub(super) fn add(&mut self, more: Sums) {
        self.transfers += more.transfers;
        self.bytes += more.bytes;
        self.files += more.files;
    }
}

/// A part of an array, as bytes that a copy reads.
#[derive(Debug)]
struct Part {
    of: Array,
    at: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        // It was cut from the same bytes.
        self.of.bytes().get(self.at.clone()).unwrap_or(&[])
    }
}

impl Doubts {
    /// Whether all is known that there is to know, before the batch is decoded.
    pub(super) fn are_settled(&self) -> bool {
        self.later.is_empty()
    }

    /// Rows that do not hold what their files show; complete once the batch is decoded.
    pub(super) fn rows(&self) -> Vec<usize> {
        let mut rows = self.broken.clone();
        for (later, files) in &self.later {
            let refused = crate::device::jpeg::found(later);
            rows.extend(refused.iter().filter_map(|file| files.get(file.row)));
        }
        rows.sort_unstable();
        rows.dedup();
        rows
    }
}

impl<D: Device> Decoders<D> {
    pub(super) fn new(device: D::Decoder) -> Decoders<D> {
        Decoders {
            device,
            host: decode::Decoder::new(),
            image: Image::default(),
        }
    }

    /// Enqueues what brings all images to their places. `transfers` hold the host's bytes. Nothing on the
    /// device uses the memory any more: decoders write as soon as they are called.
    ///
    /// # Errors
    ///
    /// What the device refuses; files that it does not take are no error.
    pub(super) fn send(
        &mut self,
        (device, queue): (&D, D::Queue),
        (array, staged): (&Array, &Staged),
        to: &StdArc<D::Memory>,
        doubts: &mut Doubts,
        transfers: &mut Vec<D::Transfer>,
    ) -> Result<Sums, DeviceError> {
        let part = |at: &Range<usize>| Part {
            of: array.clone(),
            at: at.clone(),
        };
        let mut sums = Sums::default();
        let copy = |from: HostSource, at: usize, sums: &mut Sums| {
            let bytes = (*from).as_ref().len();
            sums.add(Sums::one(bytes));
            device.copy(queue, from, bytes, to, at)
        };
        if !staged.files.is_empty() {
            let files = staged.files.iter();
            let scanned = |file: &File| ScannedJpeg {
                source: StdArc::new(part(&file.at)),
                header: file.scan,
            };
            let (jpegs, places): (Vec<ScannedJpeg>, Vec<Place>) =
                files.map(|file| (scanned(file), file.place)).unzip();
            let decoding = device.decode(queue, &mut self.device, &jpegs, to, &places)?;
            let (transfer, refused, later) = decoding.parts();
            transfers.push(transfer);
            let bytes = staged.files.iter().map(|file| file.at.len()).sum();
            sums.add(Sums::one(bytes));
            sums.files = (staged.files.len() - refused.len()) as u64;
            if let Some(later) = later {
                let rows = staged.files.iter().map(|file| file.row).collect();
                doubts.later.push((later, rows));
            }
            for refused in refused {
                let Some(file) = staged.files.get(refused.row) else {
                    continue;
                };
                tracing::debug!(
                    target: "infeed::device",
                    "row {}, decoded on the host: {}", file.row, refused.why
                );
                let pixels = self.on_host(part(&file.at).as_ref(), &file.place);
                let pixels = pixels.unwrap_or_else(|| {
                    doubts.broken.push(file.row);
                    vec![0; file.place.bytes().map_or(0, |place| place.len())]
                });
                transfers.push(copy(StdArc::new(pixels), file.place.offset, &mut sums)?);
            }
        }
        for (from, at) in &staged.copies {
            transfers.push(copy(StdArc::new(part(from)), *at, &mut sums)?);
        }
        Ok(sums)
    }

    /// The pixels of a file that the device refuses; None if the host cannot decode it either, to
    /// which it then is left to say so.
    fn on_host(&mut self, file: &[u8], place: &Place) -> Option<Vec<u8>> {
        let limits = Limits {
            max_pixels: MOST_PIXELS,
        };
        let header = self.host.header(file, false, &limits).ok()?;
        let size = Size {
            height: place.height,
            width: place.width,
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
