//! JPEGs decoded by a device: what the seam says of them.
//!
//! Which files a device takes, and where their pixels go, is one thing for all devices
//! ([`Baseline`], [`Place`]). Which pixels they become is not: a card's decoder computes otherwise than
//! the host's. The simulated device's are the host's.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use infeed_raw::jpeg_batch::{self, BadPlaces};

pub use infeed_raw::cuda::nvjpeg::{Search, Settings as DecoderSettings, Way};
pub use infeed_raw::jpeg_batch::{Baseline, NotBaseline, Place, Refusal, Refused, ScannedJpeg};

use super::DeviceError;

/// A batch of JPEGs under way.
#[must_use = "dropping it waits until the files have been read"]
#[derive(Debug)]
pub struct Decoding<T> {
    /// Holds the files until the device has read them.
    pub transfer: T,
    refused: Vec<Refused>,
    /// None where all is found out before the batch begins.
    later: Option<Later>,
}

/// Files that are found broken while they are decoded.
pub(super) type Later = Arc<Mutex<Vec<Refused>>>;

impl<T> Decoding<T> {
    /// A batch of which these files were refused before it began.
    pub(super) fn new(transfer: T, refused: Vec<Refused>, later: Option<Later>) -> Decoding<T> {
        Decoding {
            transfer,
            refused,
            later,
        }
    }

    /// The same under a transfer of another type.
    pub(super) fn map<U>(self, with: impl FnOnce(T) -> U) -> Decoding<U> {
        Decoding::new(with(self.transfer), self.refused, self.later)
    }

    /// The files that are not decoded, by their numbers in order: those refused before the batch
    /// began, and those found broken so far. Complete when an event behind the batch is past, as far
    /// as the device finds out at all; see [`Device::decode`](super::Device::decode).
    pub fn refused(&self) -> Vec<Refused> {
        let mut all = self.refused.clone();
        all.extend(self.later.iter().flat_map(found));
        all.sort_by_key(|refused| refused.row);
        all
    }

    /// What holds the files, which of them were refused before the batch began, and where the device
    /// says what it finds out later, if it does.
    pub(super) fn parts(self) -> (T, Vec<Refused>, Option<Later>) {
        (self.transfer, self.refused, self.later)
    }
}

/// The files that were found broken so far.
pub(super) fn found(later: &Later) -> Vec<Refused> {
    later.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Checks the places of a batch: one for each file, each by itself inside of `len` bytes. Returns the bytes
/// from the first place to the last.
pub(super) fn span(
    files: usize,
    places: &[Place],
    len: usize,
) -> Result<Range<usize>, DeviceError> {
    let checked = match places.len() {
        count if count == files => jpeg_batch::span(places, len),
        places => Err(BadPlaces::Count { files, places }),
    };
    checked.map_err(|bad| DeviceError::Refused {
        call: "decoding JPEGs",
        source: Arc::new(bad),
    })
}
