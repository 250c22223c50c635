//! Headers of a few records, read within a budget of bytes before a run begins.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use infeed_codec::decode::{Decoder, Format, Header, Limits};
use infeed_core::exec::budget::BudgetError;
use infeed_raw::file;
use infeed_source::{Read, RecordResult, Source, store};

/// Bytes at the beginning of a file that are read one after the other, until they hold its header.
/// The first number is a few pages, because most headers are that short; the second one usually
/// holds metadata and a thumbnail. The whole file follows.
const HEAD_BYTES: [u64; 2] = [8 << 10, 64 << 10];

/// Reads headers within a budget of bytes.
pub(crate) struct HeaderReader<'a> {
    decoder: Decoder,
    /// Bytes that may still be read, by all readers with this budget.
    left: &'a AtomicU64,
}

/// Beginning of a file, with its header.
pub(crate) struct FileHead {
    /// The bytes that the header needed.
    pub(crate) bytes: Vec<u8>,
    /// Length of the file in bytes.
    pub(crate) length: u64,
    pub(crate) header: Header,
}

impl<'a> HeaderReader<'a> {
    /// Creates a reader for up to `left` bytes, from which it takes those that it reads.
    pub(crate) fn new(left: &'a AtomicU64) -> HeaderReader<'a> {
        HeaderReader {
            decoder: Decoder::new(),
            left,
        }
    }

    pub(crate) fn decoder(&mut self) -> &mut Decoder {
        &mut self.decoder
    }

    /// Performs the reads of one record, or of a group, if the budget permits. Calls `sink` with the
    /// number and the fields of each good record; only a run reports bad ones.
    pub(crate) fn read(
        &mut self,
        source: &dyn Source,
        reads: &[Read],
        mut sink: impl FnMut(&mut Decoder, u64, Vec<Bytes>),
    ) {
        for read in reads {
            let HeaderReader { decoder, left } = self;
            let mut admit = |bytes: u64| match take(left, bytes) {
                true => Ok(()),
                false => Err(BudgetError::Closed),
            };
            let mut pass = |_, found: RecordResult| {
                if let Ok(record) = found {
                    sink(decoder, record.index, record.fields);
                }
            };
            let _ = source.read(read, &mut admit, &mut pass);
        }
    }

    /// Reads the head of a local image file, and the whole file if the header needs more. Without
    /// `orientation`, the header may lack it. None if the budget does not permit it, or if there is
    /// no header, which only decoding reports.
    pub(crate) fn head(&mut self, path: &Path, orientation: bool) -> Option<FileHead> {
        if store::is_url(path) {
            return None;
        }
        let (file, length) = file::open(path).ok()?;
        let mut bytes = Vec::new();
        // Metadata may follow the size.
        let heads = HEAD_BYTES.into_iter().skip(usize::from(orientation));
        for most in heads.chain([length]) {
            let most = most.min(length);
            if (bytes.len() as u64) < most {
                self.read_up_to(&file, most, &mut bytes).ok()?;
            }
            let is_whole = bytes.len() as u64 == length;
            // The metadata of a WebP file follow its pixels.
            let needs_more = orientation && Format::of(&bytes)? == Format::WebP;
            if (is_whole || !needs_more)
                && let Some(header) = self.header(&bytes)
            {
                return Some(FileHead {
                    bytes,
                    length,
                    header,
                });
            }
            if is_whole {
                return None;
            }
        }
        None
    }

    /// Parses a header without a limit on the number of pixels.
    pub(crate) fn header(&mut self, bytes: &[u8]) -> Option<Header> {
        let limits = Limits {
            max_pixels: u64::MAX,
        };
        self.decoder.header(bytes, true, &limits).ok()
    }

    /// Reads on from a file until there are `most` bytes.
    fn read_up_to(&mut self, mut file: &File, most: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        let more = most.saturating_sub(bytes.len() as u64);
        if !take(self.left, more) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        (&mut file).take(more).read_to_end(bytes)?;
        Ok(())
    }
}

/// Takes bytes from a budget, if it has them.
fn take(left: &AtomicU64, bytes: u64) -> bool {
    let rest = |left: u64| left.checked_sub(bytes);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest)
        .is_ok()
}
