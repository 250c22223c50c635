//! JPEGs decoded by a device.
//!
//! All devices accept the same files ([`Baseline`]) and place their pixels in the same way
//! ([`ImagePosition`]). The pixels differ: a GPU's decoder rounds differently from the host's. The
//! simulated device produces the host's pixels.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use infeed_raw::jpeg_batch::{self, BadPositions};

pub use infeed_raw::jpeg_batch::{
    Backend, Baseline, DecoderSettings, ImagePosition, NotBaseline, RejectedFile, Rejection,
    ScannedJpeg, Search,
};

use super::error::DeviceError;

/// A batch of JPEGs that is being decoded.
#[must_use = "dropping it waits until the files have been read"]
#[derive(Debug)]
pub struct Decoding<T> {
    /// Holds the files until the device has read them.
    pub transfer: T,
    rejected: Vec<RejectedFile>,
    /// None if the device finds every error before decoding starts.
    later: Option<LateRejections>,
}

/// Files that the device finds broken while it decodes.
pub(super) type LateRejections = Arc<Mutex<Vec<RejectedFile>>>;

impl<T> Decoding<T> {
    /// Describes a batch from which the device rejected these files before decoding started.
    pub(super) fn new(
        transfer: T,
        rejected: Vec<RejectedFile>,
        later: Option<LateRejections>,
    ) -> Decoding<T> {
        Decoding {
            transfer,
            rejected,
            later,
        }
    }

    /// Converts the transfer.
    pub(super) fn map<U>(self, with: impl FnOnce(T) -> U) -> Decoding<U> {
        Decoding::new(with(self.transfer), self.rejected, self.later)
    }

    /// Returns the rejected files, ordered by their number in the batch: files rejected before
    /// decoding started, and files found broken so far. The list is complete once an event recorded
    /// after the batch is done, as far as the device detects errors; see
    /// [`Device::decode`](super::Device::decode).
    pub fn rejected_files(&self) -> Vec<RejectedFile> {
        let mut all = self.rejected.clone();
        all.extend(self.later.iter().flat_map(rejected_files));
        all.sort_by_key(|rejected| rejected.row);
        all
    }

    /// Returns the transfer, the files rejected before decoding started, and the list that the
    /// device extends later, if any.
    pub(super) fn parts(self) -> (T, Vec<RejectedFile>, Option<LateRejections>) {
        (self.transfer, self.rejected, self.later)
    }
}

/// Returns the files found broken so far.
pub(super) fn rejected_files(later: &LateRejections) -> Vec<RejectedFile> {
    later.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Checks the positions of a batch: one for each file, inside `len` bytes, without overlap. Returns
/// the byte range from the first to the last position.
pub(super) fn span(
    files: usize,
    positions: &[ImagePosition],
    len: usize,
) -> Result<Range<usize>, DeviceError> {
    let checked = match positions.len() {
        count if count == files => jpeg_batch::span(positions, len),
        positions => Err(BadPositions::Count { files, positions }),
    };
    checked.map_err(|bad| DeviceError::Rejected {
        call: "decoding JPEGs",
        source: Arc::new(bad),
    })
}
