//! What a batch needs until the card is done with it.

use std::sync::Arc;

use super::functions::Image;
use crate::cuda::{Event, HostSource, Memory};
use crate::jpeg_batch::{Place, Taken};

/// A state of the library, and what it was given.
pub(super) struct Lane {
    /// `nvjpegJpegState_t`.
    pub(super) state: usize,
    /// Files it is initialised for; 0 if it is not.
    pub(super) files: usize,
    /// Behind its last batch.
    pub(super) done: Event,
    pub(super) arguments: Arguments,
}

/// What the library is given of a batch, by file: it need not have copied that when it returns.
#[derive(Default)]
pub(super) struct Arguments {
    /// Addresses of the bytes.
    pub(super) data: Vec<usize>,
    pub(super) lengths: Vec<usize>,
    pub(super) images: Vec<Image>,
}

impl Arguments {
    pub(super) fn of(taken: &[Taken], bytes: &[&[u8]], to: &Memory, places: &[Place]) -> Arguments {
        let address = |file: &Taken| bytes[file.row].as_ptr().expose_provenance();
        let image = |file: &Taken| {
            let place = &places[file.row];
            Image {
                channel: [to.address() + place.offset as u64, 0, 0, 0],
                pitch: [place.row_bytes, 0, 0, 0],
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
pub(super) struct Files {
    _files: Vec<HostSource>,
}

impl Files {
    /// Shared by all that read them.
    pub(super) fn shared(files: &[HostSource]) -> HostSource {
        Arc::new(Files {
            _files: files.to_vec(),
        })
    }
}

impl AsRef<[u8]> for Files {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}
