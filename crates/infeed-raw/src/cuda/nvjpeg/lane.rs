//! Resources of a batch until the GPU has decoded it.

use std::sync::Arc;

use super::functions::NvjpegImage;
use crate::cuda::{Event, GpuMemory};
use crate::host::HostSource;
use crate::jpeg_batch::{Baseline, ImagePosition, ScannedJpeg};
use crate::jpeg_encode::Subsampling;

/// States of the library that decode one batch, and the arguments of its calls.
pub(super) struct Lane {
    /// One state for each kind of file that a batch of this lane had. A state has one call in
    /// flight, so the calls for the kinds of a batch follow each other without a wait.
    pub(super) states: Vec<LaneState>,
    /// Recorded after the lane's last batch.
    pub(super) done: Event,
    pub(super) arguments: Arguments,
}

/// A state of the library, for files of one kind.
pub(super) struct LaneState {
    /// `nvjpegJpegState_t`.
    pub(super) handle: usize,
    /// Chroma subsampling of its files; [`Subsampling::None`] if one call takes all subsamplings.
    pub(super) subsampling: Subsampling,
    /// Number of files that the state is initialised for; 0 if it is not initialised.
    pub(super) files: usize,
    pub(super) reserved: MemoryNeed,
}

/// Memory that the library needs for a call, as the numbers that determine it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryNeed {
    pub(super) files: usize,
    /// Pixels of all files.
    pub(super) pixels: u64,
    /// Columns of the widest file.
    pub(super) width: u32,
}

impl MemoryNeed {
    /// Returns the memory that files need.
    pub(super) fn of(files: &[AcceptedFile]) -> MemoryNeed {
        let pixels =
            |file: &AcceptedFile| u64::from(file.header.width) * u64::from(file.header.height);
        MemoryNeed {
            files: files.len(),
            pixels: files.iter().map(pixels).sum(),
            width: files
                .iter()
                .map(|file| file.header.width)
                .max()
                .unwrap_or(0),
        }
    }

    /// Whether this memory is enough for `other`.
    pub(super) fn holds(&self, other: &MemoryNeed) -> bool {
        other.files <= self.files && other.pixels <= self.pixels && other.width <= self.width
    }

    /// Returns memory for both, with a quarter more pixels: batches differ, and each growth waits
    /// for the device.
    pub(super) fn grow_to(&self, other: &MemoryNeed) -> MemoryNeed {
        let pixels = self.pixels.max(other.pixels);
        MemoryNeed {
            files: self.files.max(other.files),
            pixels: pixels.saturating_add(pixels / 4),
            width: self.width.max(other.width),
        }
    }

    /// Returns the rows that files of this width have if they have these pixels together. Not the
    /// rows of the highest file: one large file among many small ones would reserve its height for
    /// each of them.
    pub(super) fn height(&self) -> u64 {
        let across = u64::from(self.width.max(1)).saturating_mul(self.files.max(1) as u64);
        self.pixels.div_ceil(across).max(1)
    }
}

/// A file that is decoded.
#[derive(Clone, Copy)]
pub(super) struct AcceptedFile {
    /// Number of the file in the batch.
    pub(super) row: usize,
    pub(super) header: Baseline,
}

/// Arguments of the library for a batch, by file. They are kept, since the library need not have
/// copied them when it returns.
#[derive(Default)]
pub(super) struct Arguments {
    /// Addresses of the bytes.
    pub(super) data: Vec<usize>,
    pub(super) lengths: Vec<usize>,
    pub(super) images: Vec<NvjpegImage>,
}

impl Arguments {
    pub(super) fn of(
        taken: &[AcceptedFile],
        bytes: &[&[u8]],
        to: &GpuMemory,
        positions: &[ImagePosition],
    ) -> Arguments {
        let address = |file: &AcceptedFile| bytes[file.row].as_ptr().expose_provenance();
        let image = |file: &AcceptedFile| {
            let position = &positions[file.row];
            NvjpegImage {
                channel: [to.address() + position.offset as u64, 0, 0, 0],
                pitch: [position.row_bytes, 0, 0, 0],
            }
        };
        Arguments {
            data: taken.iter().map(address).collect(),
            lengths: taken.iter().map(|file| file.header.len).collect(),
            images: taken.iter().map(image).collect(),
        }
    }
}

/// The bytes of a batch.
pub(super) struct FileBytes {
    _files: Vec<HostSource>,
}

impl FileBytes {
    /// Shares the bytes with all copies that read them.
    pub(super) fn share(files: &[ScannedJpeg]) -> HostSource {
        Arc::new(FileBytes {
            _files: files.iter().map(|file| Arc::clone(&file.source)).collect(),
        })
    }
}

impl AsRef<[u8]> for FileBytes {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}
