//! Views of pixels: of an image, a memory-mapped array, or a part of either.

use super::TransformError;
use infeed_core::sample::{Depth, Image, Region, Size};

/// A rectangle of pixels in borrowed bytes.
///
/// The distance between rows may exceed their length, so a crop of an image is a view too.
#[derive(Clone, Copy, Debug)]
pub struct PixelView<'a> {
    /// Starts with the first row of the surrounding pixels, not at the view's first column, because
    /// a resize needs whole strides.
    data: &'a [u8],
    left_bytes: usize,
    size: Size,
    channels: usize,
    depth: Depth,
    row_bytes: usize,
}

impl<'a> PixelView<'a> {
    /// Creates a view of `size` pixels at the start of `data`, whose rows begin `row_bytes` apart.
    ///
    /// # Errors
    ///
    /// `View` if rows overlap, or the last row exceeds `data`.
    pub fn new(
        data: &'a [u8],
        size: Size,
        channels: usize,
        depth: Depth,
        row_bytes: usize,
    ) -> Result<PixelView<'a>, TransformError> {
        let view = PixelView {
            data,
            left_bytes: 0,
            size,
            channels,
            depth,
            row_bytes,
        };
        view.fits()
            .then_some(view)
            .ok_or(TransformError::View { size })
    }

    /// Returns the part of this view that a region covers, without a copy.
    ///
    /// # Errors
    ///
    /// `View` if the region exceeds the view.
    pub fn crop(&self, region: Region) -> Result<PixelView<'a>, TransformError> {
        if !region.fits(self.size) {
            return Err(TransformError::View { size: region.size });
        }
        let skipped = (region.top as usize * self.row_bytes).min(self.data.len());
        Ok(PixelView {
            data: &self.data[skipped..],
            left_bytes: self.left_bytes + region.left as usize * self.pixel_bytes(),
            size: region.size,
            ..*self
        })
    }

    /// Returns the number of rows and columns.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the channels of a pixel.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns the bit depth of a sample.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// Returns the bytes of one pixel.
    pub fn pixel_bytes(&self) -> usize {
        self.channels * self.depth.bytes()
    }

    /// Returns the number of rows.
    pub fn height(&self) -> usize {
        self.size.height as usize
    }

    /// Returns the number of columns.
    pub fn width(&self) -> usize {
        self.size.width as usize
    }

    /// Returns one row of pixels, `width * pixel_bytes` bytes long.
    ///
    /// # Panics
    ///
    /// If `y` is not below the height.
    pub fn row(&self, y: usize) -> &'a [u8] {
        assert!(y < self.height(), "row {y} of {}", self.size);
        let start = y * self.row_bytes + self.left_bytes;
        &self.data[start..start + self.width() * self.pixel_bytes()]
    }

    /// Returns the pixels from the first of the view on, and the bytes from one row to the next.
    pub fn bytes_and_stride(&self) -> (&'a [u8], usize) {
        (
            self.data.get(self.left_bytes..).unwrap_or_default(),
            self.row_bytes,
        )
    }

    /// Returns the surrounding rows as whole strides from this view's first row, with the first
    /// column of the view in them. None if the stride is not a multiple of the pixel size, or the
    /// last row is shorter than a stride.
    pub(super) fn strides(&self) -> Option<Strides<'a>> {
        let pixel = self.pixel_bytes();
        let whole = pixel > 0
            && self.height() * self.row_bytes <= self.data.len()
            && self.row_bytes.is_multiple_of(pixel)
            && self.left_bytes.is_multiple_of(pixel);
        whole.then(|| Strides {
            data: self.data,
            width: (self.row_bytes / pixel) as u32,
            left: (self.left_bytes / pixel) as u32,
        })
    }

    fn fits(&self) -> bool {
        let used = self.width().checked_mul(self.pixel_bytes());
        let end = |used: usize| {
            self.height().checked_sub(1).map_or(Some(0), |above| {
                above.checked_mul(self.row_bytes)?.checked_add(used)
            })
        };
        (1..=4).contains(&self.channels)
            && used.is_some_and(|used| {
                used <= self.row_bytes && end(used).is_some_and(|end| end <= self.data.len())
            })
    }
}

/// Whole rows around a view.
pub(super) struct Strides<'a> {
    pub(super) data: &'a [u8],
    /// Pixels from one row to the next.
    pub(super) width: u32,
    /// First column of the view.
    pub(super) left: u32,
}

impl<'a> From<&'a Image> for PixelView<'a> {
    fn from(image: &'a Image) -> PixelView<'a> {
        // The data of an `Image` matches its shape. Shorter data is treated as having no rows.
        let rows = match image.row_bytes() {
            0 => 0,
            row => (image.data.len() / row).min(image.height()) as u32,
        };
        PixelView {
            data: &image.data,
            left_bytes: 0,
            size: Size {
                height: rows,
                width: image.size.width,
            },
            channels: image.channels,
            depth: image.depth,
            row_bytes: image.row_bytes(),
        }
    }
}
