//! Batches of JPEGs for a decoder on a device: which files it takes, and where their pixels go.
//!
//! A device's decoder takes plain files only ([`Baseline`]); the host decodes every other file. This
//! module is the same for all devices, so the simulated device takes and refuses the same files as a GPU.

mod baseline;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use crate::cuda::HostSource;

pub use baseline::{Baseline, NotBaseline};

/// Where the pixels of one image go: rows of red, green and blue, 8 bits each, in a memory of a
/// device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagePosition {
    /// First byte.
    pub offset: usize,
    /// Bytes from the beginning of a row to that of the next, at least three a column.
    pub row_bytes: usize,
    /// Rows. The file must have as many.
    pub height: u32,
    /// Columns. The file must have as many.
    pub width: u32,
}

impl ImagePosition {
    /// For an image whose rows lie one after another, from `offset` on.
    pub fn dense(offset: usize, height: u32, width: u32) -> ImagePosition {
        ImagePosition {
            offset,
            row_bytes: (width as usize).saturating_mul(3),
            height,
            width,
        }
    }

    /// Its bytes in the memory, those behind the last pixel of its last row included, which a
    /// decoder may write too; none if that is no number, or a row is too short for its columns.
    pub fn bytes(&self) -> Option<Range<usize>> {
        let (height, width) = (self.height as usize, self.width as usize);
        let is_wide = width.checked_mul(3)? <= self.row_bytes;
        let end = height
            .checked_mul(self.row_bytes)?
            .checked_add(self.offset)?;
        (is_wide && height > 0 && width > 0).then_some(self.offset..end)
    }
}

/// Places that cannot be decoded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPositions {
    /// Not one place for each file.
    #[error("{files} files have {positions} positions; give one position per file")]
    Count {
        /// Files there are.
        files: usize,
        /// Places there are.
        positions: usize,
    },
    /// A place that leaves the memory, or is too narrow for its own size.
    #[error(
        "row {row}: {height} rows of {row_bytes} bytes for {width} pixels, from byte {offset} on, do \
         not fit into {len} bytes"
    )]
    Outside {
        /// Which file's.
        row: usize,
        /// First byte.
        offset: usize,
        /// From row to row.
        row_bytes: usize,
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// Bytes of the memory.
        len: usize,
    },
    /// Two places share bytes.
    #[error("the positions of rows {row} and {other} overlap")]
    Shared {
        /// One of them.
        row: usize,
        /// The other.
        other: usize,
    },
}

/// Checks that every place lies inside of `len` bytes and shares none with another; the bytes from
/// the first to the last of them all, empty if there are none.
///
/// # Errors
///
/// [`BadPositions`], for the first that is wrong.
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

/// Why one file was not decoded. Others of its batch were.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The decoder does not take such files, or nobody would take this one.
    #[error(transparent)]
    NotBaseline(#[from] NotBaseline),
    /// The file has another size than its place.
    #[error("the file is {found_width}x{found_height}, but its position is for {width}x{height}")]
    OtherSize {
        /// Columns of the place.
        width: u32,
        /// Rows of the place.
        height: u32,
        /// Columns of the file.
        found_width: u32,
        /// Rows of the file.
        found_height: u32,
    },
    /// The decoder's library refused it.
    #[error("{decoder} rejects the file: {what}")]
    Decoder {
        /// Which library.
        decoder: &'static str,
        /// What it says.
        what: String,
    },
}

impl Rejection {
    /// Whether the host's decoder is likely to take the file: nothing says that it is broken.
    pub fn is_for_the_host(&self) -> bool {
        match self {
            Rejection::NotBaseline(why) => why.is_for_the_host(),
            Rejection::OtherSize { .. } => false,
            // It is the host's decoder that can tell what is wrong, if anything is.
            Rejection::Decoder { .. } => true,
        }
    }
}

/// A file that was not decoded, by its number in the batch. What its place holds is not specified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedFile {
    /// Its number.
    pub row: usize,
    /// Why.
    pub why: Rejection,
}

/// A file for a device's decoder, with the result of its scan. A scan reads every byte, so it is done
/// once per file, by the worker that has the file in its cache, and not by the thread that sends batches.
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

    /// Bytes up to the end of the image; fewer if the source is shorter than its header says.
    pub fn bytes(&self) -> &[u8] {
        let bytes = (*self.source).as_ref();
        bytes.get(..self.header.len).unwrap_or(bytes)
    }

    /// Checks the result of the scan against a place, without another scan.
    ///
    /// # Errors
    ///
    /// [`Rejection::OtherSize`] for a place of another size, [`Rejection::NotBaseline`] for a source that is
    /// shorter than its header says.
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
