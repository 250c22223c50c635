//! Rows that hold a JPEG file for the device to decode, and the layout of a batch's images on the
//! device.
//!
//! Such a row begins with a crop's header (see `crops`), whose last number is the length of the
//! file in bytes. These 4-byte numbers in native byte order follow: first line and column of the
//! crop, height and width of the whole image, and the chroma subsampling. The file comes last. The
//! worker that wrote the row has scanned the file, so the sender does not scan it.
//!
//! On the device, the decoded images come first, each at a multiple of 256 bytes. The images that
//! the host has cropped follow, in one of two layouts. A few images are copied one by one, without
//! gaps. Many images are copied with one command: all rows of the batch, from the first of these
//! images to the last. A copy and an event for each row would cost the sender more time than the
//! bus needs for the bytes between the images.

use std::ops::Range;

use infeed_raw::jpeg_encode::Subsampling;
use infeed_raw::kernel::{Bilinear, Kernel, KernelError, ResizeTable, ResizeView};

use crate::jpeg::{Baseline, ImagePosition};
use infeed_core::sample::{Region, Size};

use super::crops::{self, HEAD, RowHeader};

/// Bytes of a row before the file.
const FILE_HEAD: usize = HEAD + 20;

/// Chroma subsamplings, indexed by their number in a row.
const SUBSAMPLINGS: [Subsampling; 5] = [
    Subsampling::None,
    Subsampling::Half,
    Subsampling::HalfRows,
    Subsampling::Quarter,
    Subsampling::Gray,
];

/// Reciprocal of the share of cropped images from which one copy brings all rows. It equals the
/// smallest share of a mix.
const ONE_COPY_FROM: usize = 16;

/// Most pixels of an image that a device decodes. This bounds the device memory of a batch. The
/// host decodes the crop of a larger image.
pub const MAX_PIXELS: u64 = 1 << 22;

/// Channels of a decoded image.
const CHANNELS: usize = 3;

/// Alignment of an image on the device in bytes.
const ALIGNED: usize = 256;

/// The region of a JPEG to use, and its flips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageCrop {
    /// Size of the whole image.
    pub image: Size,
    /// The region that is resized.
    pub region: Region,
    /// Whether the result is flipped: horizontally, vertically.
    pub flips: (bool, bool),
}

impl ImageCrop {
    /// Whether a device can decode the image and resize the region to this size.
    pub fn is_for_device(&self, to: Size) -> bool {
        self.image.pixels() <= MAX_PIXELS
            && self.region.fits(self.image)
            && crops::shrinks(self.region.size, to)
    }

    /// Writes a scanned file into a row. Returns false if the row is too short; the contents of the
    /// row are then unspecified.
    pub fn write(&self, file: &[u8], subsampling: Subsampling, row: &mut [u8]) -> bool {
        let Ok(len @ 1..) = u32::try_from(file.len()) else {
            return false;
        };
        let Some(sampled) = SUBSAMPLINGS.iter().position(|&one| one == subsampling) else {
            return false;
        };
        let Some((head, room)) = row.split_at_mut_checked(FILE_HEAD) else {
            return false;
        };
        let Some(room) = room.get_mut(..file.len()) else {
            return false;
        };
        let Region { top, left, size } = self.region;
        let flags = crops::flags(self.flips.0, self.flips.1);
        let Size { height, width } = self.image;
        let words = [
            size.height,
            size.width,
            flags,
            len,
            top,
            left,
            height,
            width,
            sampled as u32,
        ];
        head.copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
        room.copy_from_slice(file);
        true
    }

    /// Reads the rest of the header of a row with a file, including the result of the scan.
    fn read(head: RowHeader, behind: &[u8]) -> Option<(ImageCrop, Baseline)> {
        let (words, room) = behind.split_first_chunk::<{ FILE_HEAD - HEAD }>()?;
        let (words, _) = words.as_chunks::<4>();
        let [top, left, height, width, sampled] =
            [0, 1, 2, 3, 4].map(|n| u32::from_ne_bytes(words[n]));
        let len = usize::try_from(head.file).ok()?;
        if len > room.len() {
            return None;
        }
        let scan = Baseline {
            width,
            height,
            subsampling: *SUBSAMPLINGS.get(sampled as usize)?,
            len,
        };
        let cut = ImageCrop {
            image: Size { height, width },
            region: Region {
                top,
                left,
                size: head.size,
            },
            flips: (false, false),
        };
        Some((cut, scan))
    }
}

/// Layout of a batch's images in the staging memory, and the table of their resizes.
#[derive(Debug)]
pub(super) struct StagingLayout {
    pub(super) table: ResizeTable,
    /// Bytes of the staging memory.
    pub(super) bytes: usize,
    /// Files to decode, ordered by row.
    pub(super) files: Vec<StagedFile>,
    /// Byte ranges of the batch's array to copy, each with its destination.
    pub(super) copies: Vec<(Range<usize>, usize)>,
}

/// A file of a batch.
#[derive(Clone, Debug)]
pub(super) struct StagedFile {
    pub(super) row: usize,
    /// The file's byte range in the batch's array.
    pub(super) at: Range<usize>,
    pub(super) scan: Baseline,
    pub(super) position: ImagePosition,
}

/// An image that the host has cropped.
struct StagedPixels {
    row: usize,
    /// The image's byte range in the batch's array.
    at: Range<usize>,
    /// Bytes of a line.
    line: u32,
}

impl StagingLayout {
    /// Computes the layout of a batch from its rows and the bytes of its array.
    ///
    /// # Errors
    ///
    /// If a row's header is invalid, or there is no room for all images.
    pub(super) fn of(
        kernel: &Kernel,
        rows: usize,
        bytes: &[u8],
        weights: &mut Bilinear,
    ) -> Result<StagingLayout, KernelError> {
        let Some((to, channels)) = crops::target(kernel) else {
            return Err(KernelError::Table { row: 0 });
        };
        let row_bytes = bytes.len().checked_div(rows).unwrap_or(0).max(1);
        let mut views = vec![ResizeView::default(); rows];
        let (mut files, mut pixels) = (Vec::new(), Vec::new());
        let mut end = 0_usize;
        for (row, held) in bytes.chunks_exact(row_bytes).take(rows).enumerate() {
            let wrong = KernelError::Table { row };
            let (head, behind) = RowHeader::read(held).ok_or(wrong.clone())?;
            views[row] = ResizeView {
                offset: 0,
                row_bytes: 0,
                flags: head.flags,
                height: head.size.height,
                width: head.size.width,
            };
            if head.file == 0 {
                let (image, line) = head.pixels(channels, behind.len(), to).ok_or(wrong)?;
                let begin = row * row_bytes + HEAD;
                let at = begin..begin + image;
                pixels.push(StagedPixels { row, at, line });
                continue;
            }
            let cut = ImageCrop::read(head, behind).filter(|_| channels == CHANNELS);
            let (cut, scan) = cut
                .filter(|(cut, _)| cut.is_for_device(to))
                .ok_or(wrong.clone())?;
            let position = ImagePosition::dense(end, cut.image.height, cut.image.width);
            let last = position.bytes().ok_or(wrong.clone())?.end;
            // The region is inside the image, and the image is inside its position.
            let line = u32::try_from(position.row_bytes).map_err(|_| wrong.clone())?;
            let first = cut.region.top as usize * position.row_bytes;
            views[row].offset = (end + first + cut.region.left as usize * CHANNELS) as u64;
            views[row].row_bytes = line;
            let begin = row * row_bytes + FILE_HEAD;
            files.push(StagedFile {
                row,
                at: begin..begin + scan.len,
                scan,
                position,
            });
            end = last.checked_next_multiple_of(ALIGNED).ok_or(wrong)?;
        }
        // One copy includes the bytes between two images, but not the bytes after the last.
        end = files
            .last()
            .and_then(|file: &StagedFile| file.position.bytes())
            .map_or(0, |position| position.end);
        let mut copies: Vec<(Range<usize>, usize)> = Vec::new();
        let is_one_copy = pixels.len() * ONE_COPY_FROM >= rows;
        for StagedPixels { row, at, line } in pixels {
            let wrong = KernelError::Table { row };
            match copies.last_mut() {
                Some((copied, _)) if is_one_copy => copied.end = at.end,
                _ => copies.push((at.clone(), end)),
            }
            let (copied, to) = copies.last().ok_or(wrong.clone())?;
            let offset = to.checked_add(at.start - copied.start);
            views[row].offset = offset.ok_or(wrong.clone())? as u64;
            views[row].row_bytes = line;
            end = to.checked_add(copied.len()).ok_or(wrong)?;
        }
        let table = ResizeTable::of(to.height as usize, to.width as usize, &views, weights)?;
        Ok(StagingLayout {
            table,
            bytes: end,
            files,
            copies,
        })
    }
}

#[cfg(test)]
mod tests {
    use infeed_raw::simd::{Dtype, Layout};

    use super::*;
    use infeed_core::random;

    const TO: Size = Size {
        height: 9,
        width: 7,
    };

    fn kernel(channels: usize) -> Kernel {
        Kernel::Resize {
            height: TO.height as usize,
            width: TO.width as usize,
            channels,
            dtype: Dtype::U8,
            layout: Layout::Hwc,
            scale: [1.0; 4],
            bias: [0.0; 4],
        }
    }

    fn stage(rows: usize, bytes: &[u8]) -> Result<StagingLayout, KernelError> {
        StagingLayout::of(&kernel(3), rows, bytes, &mut Bilinear::new())
    }

    /// Returns rows in random order, one in `one_in` with pixels and the others with files, and the
    /// crop of each file.
    fn batch(key: u64, rows: usize, one_in: u32) -> (Vec<u8>, Vec<Option<ImageCrop>>) {
        let row_bytes = crops::row_bytes(TO, 3).expect("small");
        let mut bytes = vec![0xa5; row_bytes * rows];
        let mut cuts = Vec::new();
        for (n, row) in bytes.chunks_exact_mut(row_bytes).enumerate() {
            let number = |of: u64, below: u32| {
                (random::hash(&[key, n as u64, of]) % u64::from(below)) as u32
            };
            let size = Size {
                height: 1 + number(0, 20),
                width: 1 + number(1, 12),
            };
            let flips = (number(2, 2) == 0, number(3, 2) == 0);
            if number(4, one_in) == 0 {
                crops::begin(row, size, 3, flips).expect("it fits").fill(7);
                cuts.push(None);
                continue;
            }
            let (top, left) = (number(5, 40), number(6, 40));
            let cut = ImageCrop {
                image: Size {
                    height: top + size.height + number(7, 9),
                    width: left + size.width + number(8, 9),
                },
                region: Region { top, left, size },
                flips,
            };
            let file = vec![n as u8; 1 + number(9, 200) as usize];
            let sampled = SUBSAMPLINGS[n % SUBSAMPLINGS.len()];
            assert!(cut.is_for_device(TO) && cut.write(&file, sampled, row));
            cuts.push(Some(cut));
        }
        (bytes, cuts)
    }

    #[test]
    fn images_do_not_overlap_and_copies_cover_them() {
        let mut copied_one_by_one = 0;
        for key in 0..100 {
            let (rows, one_in) = match key % 2 {
                0 => (1 + key as usize % 11, 3),
                _ => (60 + key as usize % 11, 40),
            };
            let (bytes, cuts) = batch(key, rows, one_in);

            let staged = stage(rows, &bytes).expect("images");

            let positions: Vec<ImagePosition> =
                staged.files.iter().map(|file| file.position).collect();
            let mut end = match infeed_raw::jpeg_batch::span(&positions, staged.bytes) {
                Ok(span) => {
                    assert_eq!(span.start, 0);
                    span.end
                }
                Err(bad) => panic!("{bad}"),
            };
            for (from, at) in &staged.copies {
                assert_eq!(*at, end);
                end += from.len();
            }
            assert_eq!(end, staged.bytes);
            let pixels = cuts.iter().filter(|cut| cut.is_none()).count();
            if pixels * 16 >= rows {
                assert_eq!(staged.copies.len(), 1, "{pixels} of {rows}");
            } else {
                assert_eq!(staged.copies.len(), pixels, "{pixels} of {rows}");
                copied_one_by_one += pixels;
            }
            let mut files = staged.files.iter();
            for (row, (cut, view)) in cuts.iter().zip(staged.table.views()).enumerate() {
                let Some(cut) = cut else {
                    // The image is where a copy puts it.
                    let at = view.offset as usize;
                    let image = 3 * view.height as usize * view.width as usize;
                    let mut copies = staged.copies.iter();
                    let brings = |&(from, to): &&(Range<usize>, usize)| {
                        (*to..to + from.len()).contains(&at) && at + image <= to + from.len()
                    };
                    let (from, to) = copies.find(|copy| brings(copy)).expect("one copy");
                    let begin = from.start + (at - to);
                    assert_eq!(begin, row * (bytes.len() / rows) + HEAD);
                    assert!(bytes[begin..begin + image].iter().all(|&level| level == 7));
                    assert_eq!(view.row_bytes, 3 * view.width);
                    continue;
                };
                let file = files.next().expect("one for each");
                assert_eq!(file.row, row);
                let sampled = SUBSAMPLINGS[row % SUBSAMPLINGS.len()];
                assert_eq!(
                    (file.scan.subsampling, file.scan.len),
                    (sampled, file.at.len())
                );
                let size = (file.scan.height, file.scan.width);
                assert_eq!(size, (cut.image.height, cut.image.width));
                assert!(bytes[file.at.clone()].iter().all(|&byte| byte == row as u8));
                assert!(file.position.offset.is_multiple_of(256));
                let Region { top, left, size } = cut.region;
                let first = top as usize * file.position.row_bytes + 3 * left as usize;
                assert_eq!(view.offset as usize, file.position.offset + first);
                assert_eq!((view.height, view.width), (size.height, size.width));
                assert_eq!(view.row_bytes as usize, 3 * cut.image.width as usize);
            }
            assert!(files.next().is_none());
        }
        assert!(copied_one_by_one > 0);
    }

    #[test]
    fn rows_with_an_invalid_header_are_rejected() {
        let (whole, cuts) = batch(3, 6, 3);
        let row = cuts.iter().position(Option::is_some).expect("a file");
        let row_bytes = whole.len() / 6;
        assert!(stage(6, &whole).is_ok());
        // Header words: height, width, flags, bytes; first line and column; height, width,
        // subsampling of the image.
        let wrong: [(usize, &[u32]); 9] = [
            (0, &[0, 73, 1 << 31, u32::MAX]),
            (1, &[0, 57, u32::MAX]),
            (2, &[4, u32::MAX]),
            (3, &[row_bytes as u32 - 35, u32::MAX]),
            (4, &[100, u32::MAX]),
            (5, &[100, u32::MAX]),
            (6, &[0, 1, u32::MAX]),
            (7, &[0, 1, u32::MAX]),
            (8, &[5, u32::MAX]),
        ];
        for (word, values) in wrong {
            for value in values {
                let mut bytes = whole.clone();
                bytes[row * row_bytes + 4 * word..][..4].copy_from_slice(&value.to_ne_bytes());
                assert!(stage(6, &bytes).is_err(), "{word}: {value}");
            }
        }
        let gray = StagingLayout::of(&kernel(1), 6, &whole, &mut Bilinear::new());
        assert!(gray.is_err(), "a device decodes to three channels");
        assert!(stage(6, &whole[..6 * 20]).is_err());
    }

    #[test]
    fn too_large_images_are_not_decoded_by_the_device() {
        let whole = |height, width| ImageCrop {
            image: Size { height, width },
            region: Size { height, width }.whole(),
            flips: (false, false),
        };
        assert!(whole(8 * 9, 8 * 7).is_for_device(TO));
        assert!(!whole(8 * 9 + 1, 7).is_for_device(TO));
        let small = ImageCrop {
            region: TO.whole(),
            ..whole(2048, 2048)
        };
        assert!(small.is_for_device(TO));
        let image = Size {
            height: 2048,
            width: 2049,
        };
        assert!(!ImageCrop { image, ..small }.is_for_device(TO));
        let write = |file: &[u8], row: &mut [u8]| small.write(file, Subsampling::None, row);
        assert!(!write(&[1; 40], &mut [0; 36 + 39]) && !write(&[], &mut [0; 99]));
        assert!(write(&[1; 40], &mut [0; 36 + 40]));
    }
}
