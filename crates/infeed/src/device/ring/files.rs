//! Rows that hold a JPEG in place of its pixels, for a device that decodes it; and where on the device
//! the images of a batch come to lie, whoever decodes them.
//!
//! Such a row begins with the head of an image (see `crops`), which is the part that is resized and
//! whose last number is that of the file's bytes. Behind it: the part's first line and column, height
//! and width of the whole image, and its chroma subsampling, each of 4 bytes in the order of the machine;
//! then the file. The worker that wrote the row has scanned the file, so the sender does not.
//!
//! On the device, whole images lie first, each at a multiple of 256 bytes. Behind them lie the images that the
//! host has cut out, in one of two layouts. A few are copied one by one, without gaps. Otherwise one copy
//! brings the batch's rows, from the first of these images to the last, as they lie on the host: a copy and
//! its event for each row would cost the sender more than the bus needs for the bytes between the images.

use std::ops::Range;

use infeed_raw::jpeg_encode::Subsampling;
use infeed_raw::kernel::{Bilinear, Kernel, KernelError, ResizeTable, ResizeView};

use crate::device::jpeg::{Baseline, Place};
use crate::sample::{Region, Size};

use super::crops::{self, HEAD, Head};

/// Bytes of a row before its file.
const FILE_HEAD: usize = HEAD + 20;

/// Chroma subsamplings by their number in a row.
const SUBSAMPLINGS: [Subsampling; 5] = [
    Subsampling::None,
    Subsampling::Half,
    Subsampling::HalfRows,
    Subsampling::Quarter,
    Subsampling::Gray,
];

/// Share of a batch's rows, as its inverse, from which images that the host has cut out go to the device with
/// one copy of the rows: that of the smallest mix.
const ONE_COPY_FROM: usize = 16;

/// Most pixels of an image that a device decodes, so that its memory for a batch has a limit. A larger
/// one is the host's, which decodes the part that is used.
pub(crate) const MOST_PIXELS: u64 = 1 << 22;

/// Channels of what a device decodes.
const CHANNELS: usize = 3;

/// Where an image may begin on the device.
const ALIGNED: usize = 256;

/// The part of a file's image that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The whole image.
    pub(crate) image: Size,
    /// What of it is resized.
    pub(crate) region: Region,
    /// How the result is mirrored: its columns, its lines.
    pub(crate) flips: (bool, bool),
}

impl Cut {
    /// Whether a device decodes the image and brings the part to this size.
    pub(crate) fn is_for_device(&self, to: Size) -> bool {
        self.image.pixels() <= MOST_PIXELS
            && self.region.fits(self.image)
            && crops::shrinks(self.region.size, to)
    }

    /// Puts a scanned file into a row; false if the row is too short for it, and may hold anything then.
    pub(crate) fn write(&self, file: &[u8], subsampling: Subsampling, row: &mut [u8]) -> bool {
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

    /// Reads the rest of a file's head; the result of its scan, too.
    fn read(head: Head, behind: &[u8]) -> Option<(Cut, Baseline)> {
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
        let cut = Cut {
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

/// Where the images of a batch come to lie, and how they are resized from there.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) table: ResizeTable,
    /// Bytes of all.
    pub(super) bytes: usize,
    /// Files to decode, in the order of their rows.
    pub(super) files: Vec<File>,
    /// Bytes to copy: their range in the batch's array, and where they go.
    pub(super) copies: Vec<(Range<usize>, usize)>,
}

/// A file of a batch.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) row: usize,
    /// Its bytes in the batch's array.
    pub(super) at: Range<usize>,
    pub(super) scan: Baseline,
    pub(super) place: Place,
}

/// An image that the host has cut out.
struct Pixels {
    row: usize,
    /// Its bytes in the batch's array.
    at: Range<usize>,
    /// Bytes of a line.
    line: u32,
}

impl Staged {
    /// Layout of a batch: the number of its rows and the bytes of its array.
    ///
    /// # Errors
    ///
    /// If a row's head is none, or there is no room for all images.
    pub(super) fn of(
        kernel: &Kernel,
        rows: usize,
        bytes: &[u8],
        weights: &mut Bilinear,
    ) -> Result<Staged, KernelError> {
        let Some((to, channels)) = crops::target(kernel) else {
            return Err(KernelError::Table { row: 0 });
        };
        let row_bytes = bytes.len().checked_div(rows).unwrap_or(0).max(1);
        let mut views = vec![ResizeView::default(); rows];
        let (mut files, mut pixels) = (Vec::new(), Vec::new());
        let mut end = 0_usize;
        for (row, held) in bytes.chunks_exact(row_bytes).take(rows).enumerate() {
            let wrong = KernelError::Table { row };
            let (head, behind) = Head::read(held).ok_or(wrong.clone())?;
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
                pixels.push(Pixels { row, at, line });
                continue;
            }
            let cut = Cut::read(head, behind).filter(|_| channels == CHANNELS);
            let (cut, scan) = cut
                .filter(|(cut, _)| cut.is_for_device(to))
                .ok_or(wrong.clone())?;
            let place = Place::dense(end, cut.image.height, cut.image.width);
            let last = place.bytes().ok_or(wrong.clone())?.end;
            // The part lies inside of the image, and that inside of its place.
            let line = u32::try_from(place.row_bytes).map_err(|_| wrong.clone())?;
            let first = cut.region.top as usize * place.row_bytes;
            views[row].offset = (end + first + cut.region.left as usize * CHANNELS) as u64;
            views[row].row_bytes = line;
            let begin = row * row_bytes + FILE_HEAD;
            files.push(File {
                row,
                at: begin..begin + scan.len,
                scan,
                place,
            });
            end = last.checked_next_multiple_of(ALIGNED).ok_or(wrong)?;
        }
        // What lies between two images is written with them, and what would lie behind the last is not.
        end = files
            .last()
            .and_then(|file: &File| file.place.bytes())
            .map_or(0, |place| place.end);
        let mut copies: Vec<(Range<usize>, usize)> = Vec::new();
        let is_one_copy = pixels.len() * ONE_COPY_FROM >= rows;
        for Pixels { row, at, line } in pixels {
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
        Ok(Staged {
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
    use crate::random;

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

    fn staged(rows: usize, bytes: &[u8]) -> Result<Staged, KernelError> {
        Staged::of(&kernel(3), rows, bytes, &mut Bilinear::new())
    }

    /// Rows in random order, one in `one_in` with pixels and the others with files, and the kind of each.
    fn batch(key: u64, rows: usize, one_in: u32) -> (Vec<u8>, Vec<Option<Cut>>) {
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
            let cut = Cut {
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
    fn every_image_has_a_place_of_its_own_and_nothing_between_them_is_left_out() {
        let mut copied_one_by_one = 0;
        for key in 0..100 {
            let (rows, one_in) = match key % 2 {
                0 => (1 + key as usize % 11, 3),
                _ => (60 + key as usize % 11, 40),
            };
            let (bytes, cuts) = batch(key, rows, one_in);

            let staged = staged(rows, &bytes).expect("images");

            let places: Vec<Place> = staged.files.iter().map(|file| file.place).collect();
            let mut end = match infeed_raw::jpeg_batch::span(&places, staged.bytes) {
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
                    // The image lies where a copy brings it.
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
                assert!(file.place.offset.is_multiple_of(256));
                let Region { top, left, size } = cut.region;
                let first = top as usize * file.place.row_bytes + 3 * left as usize;
                assert_eq!(view.offset as usize, file.place.offset + first);
                assert_eq!((view.height, view.width), (size.height, size.width));
                assert_eq!(view.row_bytes as usize, 3 * cut.image.width as usize);
            }
            assert!(files.next().is_none());
        }
        assert!(copied_one_by_one > 0);
    }

    #[test]
    fn rows_that_hold_neither_are_refused() {
        let (whole, cuts) = batch(3, 6, 3);
        let row = cuts.iter().position(Option::is_some).expect("a file");
        let row_bytes = whole.len() / 6;
        assert!(staged(6, &whole).is_ok());
        // Height, width, flags and bytes; first line and column; height, width and sampling of the image.
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
                assert!(staged(6, &bytes).is_err(), "{word}: {value}");
            }
        }
        let gray = Staged::of(&kernel(1), 6, &whole, &mut Bilinear::new());
        assert!(gray.is_err(), "a device decodes to three channels");
        assert!(staged(6, &whole[..6 * 20]).is_err());
    }

    #[test]
    fn what_is_too_large_is_not_the_devices() {
        let whole = |height, width| Cut {
            image: Size { height, width },
            region: Size { height, width }.whole(),
            flips: (false, false),
        };
        assert!(whole(8 * 9, 8 * 7).is_for_device(TO));
        assert!(!whole(8 * 9 + 1, 7).is_for_device(TO));
        let small = Cut {
            region: TO.whole(),
            ..whole(2048, 2048)
        };
        assert!(small.is_for_device(TO));
        let image = Size {
            height: 2048,
            width: 2049,
        };
        assert!(!Cut { image, ..small }.is_for_device(TO));
        let write = |file: &[u8], row: &mut [u8]| small.write(file, Subsampling::None, row);
        assert!(!write(&[1; 40], &mut [0; 36 + 39]) && !write(&[], &mut [0; 99]));
        assert!(write(&[1; 40], &mut [0; 36 + 40]));
    }
}
