//! Batches of JPEGs for a decoder on a device: accepted files, and the positions of their pixels.
//!
//! A device's decoder accepts baseline files only ([`Baseline`]); the host decodes every other
//! file. All devices use this module, so the simulated device accepts and rejects the same files as
//! a GPU.

mod baseline;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use crate::host::HostSource;

pub use baseline::{Baseline, NotBaseline};
pub use settings::{Backend, DecoderSettings, Search};

/// Position of the pixels of one image: rows of red, green and blue, 8 bits each, in the memory of
/// a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagePosition {
    /// First byte.
    pub offset: usize,
    /// Bytes from the start of a row to the start of the next, at least three for each column.
    pub row_bytes: usize,
    /// Rows. The file must have the same number.
    pub height: u32,
    /// Columns. The file must have the same number.
    pub width: u32,
}

impl ImagePosition {
    /// Position of an image with contiguous rows, from `offset` on.
    pub fn dense(offset: usize, height: u32, width: u32) -> ImagePosition {
        ImagePosition {
            offset,
            row_bytes: (width as usize).saturating_mul(3),
            height,
            width,
        }
    }

    /// Returns the range of its bytes in the memory. It includes the bytes after the last pixel of
    /// the last row, which a decoder may also write. None if the range overflows, or a row is too
    /// short for its columns.
    pub fn bytes(&self) -> Option<Range<usize>> {
        let (height, width) = (self.height as usize, self.width as usize);
        let is_wide = width.checked_mul(3)? <= self.row_bytes;
        let end = height
            .checked_mul(self.row_bytes)?
            .checked_add(self.offset)?;
        (is_wide && height > 0 && width > 0).then_some(self.offset..end)
    }
}

/// Invalid positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPositions {
    /// The numbers of files and positions differ.
    #[error("{files} files have {positions} positions; give one position per file")]
    Count {
        /// Number of files.
        files: usize,
        /// Number of positions.
        positions: usize,
    },
    /// A position that exceeds the memory, or whose rows are too short.
    #[error(
        "row {row}: {height} rows of {row_bytes} bytes for {width} pixels, from byte {offset} on, do \
         not fit into {len} bytes"
    )]
    Outside {
        /// Number of the file.
        row: usize,
        /// First byte.
        offset: usize,
        /// Bytes from the start of a row to the start of the next.
        row_bytes: usize,
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// Bytes of the memory.
        len: usize,
    },
    /// Two positions overlap.
    #[error("the positions of rows {row} and {other} overlap")]
    Shared {
        /// First of the two rows.
        row: usize,
        /// Second of the two rows.
        other: usize,
    },
}

/// Checks that every position is inside of `len` bytes and overlaps no other. Returns the range
/// from the first byte of all to the last, empty if there are none.
///
/// # Errors
///
/// [`BadPositions`] for the first invalid position.
pub fn span(positions: &[ImagePosition], len: usize) -> Result<Range<usize>, BadPositions> {
    let mut ranges = Vec::with_capacity(positions.len());
    for (row, position) in positions.iter().enumerate() {
        match position.bytes() {
            Some(bytes) if bytes.end <= len => ranges.push((bytes, row)),
            _ => {
                return Err(BadPositions::Outside {
                    row,
                    offset: position.offset,
                    row_bytes: position.row_bytes,
                    height: position.height,
                    width: position.width,
                    len,
                });
            }
        }
    }
    ranges.sort_by_key(|(bytes, _)| bytes.start);
    for pair in ranges.windows(2) {
        if pair[1].0.start < pair[0].0.end {
            return Err(BadPositions::Shared {
                row: pair[0].1,
                other: pair[1].1,
            });
        }
    }
    let first = ranges.first().map_or(0, |(bytes, _)| bytes.start);
    let last = ranges.last().map_or(0, |(bytes, _)| bytes.end);
    Ok(first..last)
}

/// Reason why a file was not decoded. Others of its batch were.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// No device decodes such files, or the file is damaged.
    #[error(transparent)]
    NotBaseline(#[from] NotBaseline),
    /// The file's size differs from that of its position.
    #[error("the file is {found_width}x{found_height}, but its position is for {width}x{height}")]
    OtherSize {
        /// Columns of the position.
        width: u32,
        /// Rows of the position.
        height: u32,
        /// Columns of the file.
        found_width: u32,
        /// Rows of the file.
        found_height: u32,
    },
    /// The decoder's library rejected the file.
    #[error("{decoder} rejects the file: {what}")]
    Decoder {
        /// Name of the library.
        decoder: &'static str,
        /// The library's reason.
        what: String,
    },
}

impl Rejection {
    /// Whether the host's decoder is likely to accept the file: no check found damage.
    pub fn is_for_the_host(&self) -> bool {
        match self {
            Rejection::NotBaseline(why) => why.is_for_the_host(),
            Rejection::OtherSize { .. } => false,
            // If the file is damaged, the host's decoder determines the reason.
            Rejection::Decoder { .. } => true,
        }
    }
}

/// A file that was not decoded. The bytes at its position are unspecified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedFile {
    /// Number of the file in the batch.
    pub row: usize,
    /// Reason.
    pub why: Rejection,
}

/// A file for a device's decoder, with the result of its scan. A scan reads every byte, so it is
/// done once per file, by the worker that has the file in its cache and not by the thread that
/// sends batches.
#[derive(Clone)]
pub struct ScannedJpeg {
    /// Bytes of the file, the same for as long as the source lives.
    pub source: HostSource,
    /// Result of [`Baseline::read`] over these bytes.
    pub header: Baseline,
}

impl ScannedJpeg {
    /// Scans a file.
    ///
    /// # Errors
    ///
    /// [`NotBaseline`] with the reason why no device decodes the file.
    pub fn scan(source: HostSource) -> Result<ScannedJpeg, NotBaseline> {
        let header = Baseline::read((*source).as_ref(), u64::MAX)?;
        Ok(ScannedJpeg { source, header })
    }

    /// Returns the bytes up to the end of the image; fewer if the source is shorter than its header
    /// requires.
    pub fn bytes(&self) -> &[u8] {
        let bytes = (*self.source).as_ref();
        bytes.get(..self.header.len).unwrap_or(bytes)
    }

    /// Checks the result of the scan against a position, without another scan.
    ///
    /// # Errors
    ///
    /// [`Rejection::OtherSize`] for a position of another size, [`Rejection::NotBaseline`] for a
    /// source that is shorter than its header requires.
    pub fn check(&self, position: &ImagePosition) -> Result<(), Rejection> {
        let header = &self.header;
        if (header.width, header.height) != (position.width, position.height) {
            return Err(Rejection::OtherSize {
                width: position.width,
                height: position.height,
                found_width: header.width,
                found_height: header.height,
            });
        }
        match self.bytes().len() == header.len {
            true => Ok(()),
            false => Err(NotBaseline::Damaged("is shorter than its scan").into()),
        }
    }
}

impl fmt::Debug for ScannedJpeg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScannedJpeg")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}
