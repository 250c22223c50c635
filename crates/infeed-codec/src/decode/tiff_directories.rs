//! Directories of a TIFF, read without the `tiff` crate: the position of a tag, and further pages.
//!
//! Source: TIFF 6.0, 2 (directories), 8 (NewSubfileType); the BigTIFF design of libtiff.

use std::iter::StepBy;
use std::ops::Range;

use infeed_core::sample::Size;

/// Maximum number of directories that are read.
const MAX_PAGES: usize = 256;

const NEW_SUBFILE_TYPE: u64 = 254;
const IMAGE_WIDTH: u64 = 256;
const IMAGE_LENGTH: u64 = 257;
const PHOTOMETRIC: u64 = 262;

/// Type of 16-bit integers.
const SHORT: u64 = 3;

/// Bits of NewSubfileType for reduced images and transparency masks, which belong to another page.
const BELONGS_TO_PAGE: u64 = 1 | 4;

/// Further pages of a file. Reduced images and transparency masks do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FurtherPages {
    /// There are none.
    None,
    /// No page has the size of the first one.
    OfOtherSizes,
    /// A page has the size of the first one, as in a stack.
    OfSameSize,
}

/// Directories of a file, found by their positions.
struct Directories<'a> {
    bytes: &'a [u8],
    is_little: bool,
    /// Bytes of an offset.
    word: usize,
    /// Bytes of the number of entries.
    count: usize,
    /// Bytes of an entry, which ends with its value.
    entry: usize,
}

impl<'a> Directories<'a> {
    /// Reads the header. Returns the position of the first directory, too.
    fn open(bytes: &'a [u8]) -> Option<(Directories<'a>, usize)> {
        let mut file = Directories {
            bytes,
            is_little: bytes.first()? == &b'I',
            word: 4,
            count: 2,
            entry: 12,
        };
        let mut at = 4;
        if file.integer(2, 2)? == 43 {
            (file.word, file.count, file.entry, at) = (8, 8, 20, 8);
        }
        let first = file.position(at)?;
        Some((file, first))
    }

    /// Returns an integer in the byte order of the file.
    fn integer(&self, at: usize, length: usize) -> Option<u64> {
        let raw = self.bytes.get(at..at.checked_add(length)?)?;
        let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(match self.is_little {
            true => raw.iter().rev().fold(0, push),
            false => raw.iter().fold(0, push),
        })
    }

    /// Returns the position that an offset refers to.
    fn position(&self, at: usize) -> Option<usize> {
        usize::try_from(self.integer(at, self.word)?).ok()
    }

    /// Returns the positions of the entries of a directory, and its end. The entries may lie beyond
    /// the end of the file.
    fn entries(&self, directory: usize) -> Option<(StepBy<Range<usize>>, usize)> {
        let entries = self.integer(directory, self.count)?;
        let entries = usize::from(u16::try_from(entries).ok()?);
        let first = directory.checked_add(self.count)?;
        let end = first.checked_add(entries.checked_mul(self.entry)?)?;
        Some(((first..end).step_by(self.entry), end))
    }
}

/// Returns the value of PhotometricInterpretation in the first directory, and the position of its
/// low byte.
pub(super) fn photometric(bytes: &[u8]) -> Option<(u64, u64)> {
    let (file, first) = Directories::open(bytes)?;
    let (entries, _) = file.entries(first)?;
    for at in entries {
        if file.integer(at, 2)? == PHOTOMETRIC && file.integer(at + 2, 2)? == SHORT {
            let value = at + file.entry - file.word;
            let low = value + usize::from(!file.is_little);
            return Some((file.integer(value, 2)?, low as u64));
        }
    }
    None
}

/// Finds the pages after the first one, whose size is given.
pub(super) fn further_pages(bytes: &[u8], size: Size) -> FurtherPages {
    let mut found = FurtherPages::None;
    // A broken chain of directories ends like a complete one; the first page is not concerned.
    let _ = each_further_page(bytes, |width, height| {
        let is_same = (width, height) == (size.width.into(), size.height.into());
        found = match is_same {
            true => FurtherPages::OfSameSize,
            false => FurtherPages::OfOtherSizes,
        };
        is_same
    });
    found
}

/// Calls `is_last` with width and height of each page after the first one, until it returns true.
fn each_further_page(bytes: &[u8], mut is_last: impl FnMut(u64, u64) -> bool) -> Option<()> {
    let (file, mut directory) = Directories::open(bytes)?;
    for page in 0..MAX_PAGES {
        let (entries, end) = file.entries(directory)?;
        if page > 0 {
            let (mut kind, mut width, mut height) = (0, 0, 0);
            for at in entries {
                let length = if file.integer(at + 2, 2)? == SHORT {
                    2
                } else {
                    4
                };
                let value = file.integer(at + file.entry - file.word, length)?;
                match file.integer(at, 2)? {
                    NEW_SUBFILE_TYPE => kind = value,
                    IMAGE_WIDTH => width = value,
                    IMAGE_LENGTH => height = value,
                    _ => {}
                }
            }
            if kind & BELONGS_TO_PAGE == 0 && is_last(width, height) {
                return None;
            }
        }
        directory = match file.position(end)? {
            0 => return None,
            next => next,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size {
        height: 5,
        width: 7,
    };

    /// Returns the directories of pages with these kinds and sizes.
    fn pages(pages: &[(u32, u32, u32)]) -> Vec<u8> {
        let mut file = b"II\x2a\0\x08\0\0\0".to_vec();
        for (number, &(kind, width, height)) in pages.iter().enumerate() {
            file.extend(3_u16.to_le_bytes());
            for (tag, value) in [(254_u16, kind), (256, width), (257, height)] {
                file.extend(tag.to_le_bytes());
                file.extend([4, 0, 1, 0, 0, 0]);
                file.extend(value.to_le_bytes());
            }
            let next = match number + 1 == pages.len() {
                true => 0,
                false => file.len() as u32 + 4,
            };
            file.extend(next.to_le_bytes());
        }
        file
    }

    #[test]
    fn reduced_images_and_transparency_masks_are_not_further_pages() {
        for (second, expected) in [
            ((0, 7, 5), FurtherPages::OfSameSize),
            ((2, 7, 5), FurtherPages::OfSameSize),
            ((0, 7, 6), FurtherPages::OfOtherSizes),
            ((1, 3, 2), FurtherPages::None),
            ((4, 7, 5), FurtherPages::None),
        ] {
            let file = pages(&[(0, 7, 5), second]);
            assert_eq!(further_pages(&file, SIZE), expected, "{second:?}");
        }
        assert_eq!(
            further_pages(&pages(&[(0, 7, 5)]), SIZE),
            FurtherPages::None
        );
    }

    #[test]
    fn a_chain_of_directories_that_is_broken_or_has_no_end_is_read_in_bounds() {
        let file = pages(&[(0, 7, 5), (0, 3, 2), (0, 7, 5)]);
        for length in 0..file.len() {
            further_pages(&file[..length], SIZE);
        }
        let mut endless = pages(&[(0, 7, 5), (0, 3, 2)]);
        let last = endless.len() - 4;
        endless[last] = 8 + 2 + 3 * 12 + 4;

        assert_eq!(further_pages(&endless, SIZE), FurtherPages::OfOtherSizes);
    }
}
