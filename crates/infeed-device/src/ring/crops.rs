//! Rows that each hold an image of a different size. The device resizes the images to the size of
//! the batch.
//!
//! A row begins with a header of four 4-byte numbers in native byte order: height, width, flip
//! flags, and 0. The lines of the image follow without gaps; the rest of the row is unused. If the
//! last number of the header is not 0, the row holds a file of that many bytes; see `files`.

use infeed_raw::kernel::{Bilinear, Kernel, KernelError, ResizeTable, ResizeView, RowView};

use infeed_core::sample::Size;

/// Bytes of a row header.
pub(super) const HEAD: usize = 16;

/// Most pixels of a row's image, as a multiple of the output image's pixels. Most crops of
/// photographs are smaller; the host resizes larger ones.
const ROOM: usize = 4;

/// Largest factor by which a side may shrink. It bounds the length of a table.
const SHRINKS: u32 = 8;

/// Returns the bytes of a row for images that are resized to this size. None on overflow.
pub fn row_bytes(to: Size, channels: usize) -> Option<usize> {
    let pixels = usize::try_from(to.pixels()).ok()?;
    let bytes = pixels.checked_mul(channels)?.checked_mul(ROOM)?;
    bytes.checked_add(HEAD)?.checked_next_multiple_of(16)
}

/// Whether an image of size `from`, resized to `to`, fits in a row.
pub fn takes(from: Size, to: Size) -> bool {
    shrinks(from, to) && from.pixels() <= to.pixels().saturating_mul(ROOM as u64)
}

/// Whether a table can describe the resize.
pub(super) fn shrinks(from: Size, to: Size) -> bool {
    let fits =
        |from: u32, to: u32| from > 0 && u64::from(from) <= u64::from(to) * u64::from(SHRINKS);
    fits(from.height, to.height) && fits(from.width, to.width)
}

/// Writes the header of an image, and returns the bytes for its lines. None if the row is too
/// short.
pub fn begin(
    row: &mut [u8],
    size: Size,
    channels: usize,
    (flip_x, flip_y): (bool, bool),
) -> Option<&mut [u8]> {
    let (head, room) = row.split_at_mut_checked(HEAD)?;
    let words = [size.height, size.width, flags(flip_x, flip_y), 0].map(u32::to_ne_bytes);
    head.copy_from_slice(words.as_flattened());
    let bytes = usize::try_from(size.pixels()).ok()?.checked_mul(channels)?;
    room.get_mut(..bytes)
}

/// Encodes flips as in headers and tables.
pub(super) fn flags(flip_x: bool, flip_y: bool) -> u32 {
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    flag(flip_x, RowView::FLIP_X) | flag(flip_y, RowView::FLIP_Y)
}

/// Header of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowHeader {
    pub(super) size: Size,
    pub(super) flags: u32,
    /// Bytes of the file; 0 if the row holds pixels.
    pub(super) file: u32,
}

impl RowHeader {
    /// Reads the header of a row. Returns it and the bytes after it.
    pub(super) fn read(row: &[u8]) -> Option<(RowHeader, &[u8])> {
        let (head, room) = row.split_first_chunk::<HEAD>()?;
        let (words, _) = head.as_chunks::<4>();
        let [height, width, flags, file] = [0, 1, 2, 3].map(|n| u32::from_ne_bytes(words[n]));
        let size = Size { height, width };
        Some((RowHeader { size, flags, file }, room))
    }

    /// Returns the bytes of the image and of one of its lines. None if rows do not accept the image
    /// or it is larger than `room`.
    pub(super) fn pixels(&self, channels: usize, room: usize, to: Size) -> Option<(usize, u32)> {
        let line = (self.size.width as usize).checked_mul(channels)?;
        let image = line.checked_mul(self.size.height as usize)?;
        let is_image = self.file == 0 && image <= room && takes(self.size, to);
        is_image.then_some((image, u32::try_from(line).ok()?))
    }
}

/// Returns the output size and channels of a kernel that resizes. None for other kernels.
pub(super) fn target(kernel: &Kernel) -> Option<(Size, usize)> {
    let Kernel::Resize {
        height,
        width,
        channels,
        ..
    } = *kernel
    else {
        return None;
    };
    let size = Size {
        height: u32::try_from(height).ok()?,
        width: u32::try_from(width).ok()?,
    };
    Some((size, channels))
}

/// Returns the most bytes that a table for `rows` rows can have. None on overflow.
pub(super) fn table_bytes(kernel: &Kernel, rows: usize) -> Option<usize> {
    let Kernel::Resize { height, width, .. } = *kernel else {
        return None;
    };
    // A filter reaches one pixel beyond the shrink factor on each side.
    let taps = 2 * SHRINKS as usize + 2;
    let axis = |side: usize| side.checked_mul(4 + 2 * taps)?.checked_add(4);
    let row = axis(height)?.checked_add(axis(width)?)?.checked_add(48)?;
    row.checked_mul(rows)?.checked_add(8)
}

/// Returns the table for the rows of a batch.
///
/// # Errors
///
/// If a row has an invalid header.
pub(super) fn table(
    kernel: &Kernel,
    rows: usize,
    bytes: &[u8],
    weights: &mut Bilinear,
) -> Result<ResizeTable, KernelError> {
    let Some((to, channels)) = target(kernel) else {
        return Err(KernelError::Table { row: 0 });
    };
    let row_bytes = bytes.len().checked_div(rows).unwrap_or(0);
    let mut views = Vec::with_capacity(rows);
    for (row, held) in bytes.chunks_exact(row_bytes.max(1)).take(rows).enumerate() {
        let wrong = KernelError::Table { row };
        let (head, room) = RowHeader::read(held).ok_or(wrong.clone())?;
        let (_, line) = head.pixels(channels, room.len(), to).ok_or(wrong)?;
        views.push(ResizeView {
            offset: (row * row_bytes + HEAD) as u64,
            row_bytes: line,
            flags: head.flags,
            height: head.size.height,
            width: head.size.width,
        });
    }
    ResizeTable::of(to.height as usize, to.width as usize, &views, weights)
}

#[cfg(test)]
mod tests {
    use infeed_raw::simd::{Dtype, Layout};

    use super::*;
    use infeed_core::random;

    fn kernel(height: usize, width: usize) -> Kernel {
        Kernel::Resize {
            height,
            width,
            channels: 3,
            dtype: Dtype::U8,
            layout: Layout::Hwc,
            scale: [1.0; 4],
            bias: [0.0; 4],
        }
    }

    fn size(height: u32, width: u32) -> Size {
        Size { height, width }
    }

    #[test]
    fn every_image_that_a_row_takes_fits_it_and_the_table_its_memory() {
        for key in 0..200 {
            let number = |n: u64, below: u64| 1 + (random::hash(&[key, n]) % below) as u32;
            let to = size(number(0, 40), number(1, 40));
            let sizes = (0..40).map(|n| size(number(2 * n + 2, 330), number(2 * n + 3, 330)));
            let sizes: Vec<Size> = sizes.filter(|&from| takes(from, to)).chain([to]).collect();
            let row_bytes = row_bytes(to, 3).expect("small");
            let mut bytes = vec![0xa5; row_bytes * sizes.len()];
            for (row, &from) in bytes.chunks_exact_mut(row_bytes).zip(&sizes) {
                let position = begin(row, from, 3, (key % 2 == 0, key % 3 == 0)).expect("it fits");
                assert_eq!(position.len() as u64, from.pixels() * 3);
            }
            let kernel = kernel(to.height as usize, to.width as usize);
            let mut weights = Bilinear::new();
            let table = table(&kernel, sizes.len(), &bytes, &mut weights).expect("images");

            let most = table_bytes(&kernel, sizes.len()).expect("small");
            assert!(table.bytes().len() <= most, "{to}: {sizes:?}");
            for (view, from) in table.views().iter().zip(&sizes) {
                assert_eq!((view.height, view.width), (from.height, from.width));
            }
        }
    }

    #[test]
    fn rows_without_an_image_are_rejected() {
        let kernel = kernel(5, 4);
        let to = size(5, 4);
        let row_bytes = row_bytes(to, 3).expect("small");
        let mut whole = vec![0; 2 * row_bytes];
        for row in whole.chunks_exact_mut(row_bytes) {
            begin(row, size(7, 3), 3, (true, false)).expect("it fits");
        }
        let try_with = |bytes: &[u8]| table(&kernel, 2, bytes, &mut Bilinear::new());
        assert!(try_with(&whole).is_ok());
        // Height, width and flags of the second row.
        for (word, values) in [
            (0, &[0, 41, 1 << 31, u32::MAX][..]),
            (1, &[0, 33, 100, u32::MAX]),
            (2, &[4, u32::MAX]),
            (3, &[1, u32::MAX]),
        ] {
            for value in values {
                let mut bytes = whole.clone();
                bytes[row_bytes + 4 * word..][..4].copy_from_slice(&value.to_ne_bytes());
                assert!(try_with(&bytes).is_err(), "{word}: {value}");
            }
        }
        assert!(try_with(&whole[..2 * HEAD - 2]).is_err());
        assert!(begin(&mut whole[..HEAD - 1], to, 3, (false, false)).is_none());
        assert!(begin(&mut whole[..HEAD + 59], to, 3, (false, false)).is_none());
    }
}
