//! How large an image may claim to be.

use super::DecodeError;
use crate::sample::Size;

/// Bounds that hold before anything is allocated for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most pixels, height times width.
    pub max_pixels: u64,
}

impl Limits {
    /// The number of pixels above which Pillow refuses to open a file (twice its warning level):
    /// half a gigabyte as RGB.
    pub const DEFAULT_MAX_PIXELS: u64 = 178_956_970;

    pub(super) fn check(&self, size: Size) -> Result<(), DecodeError> {
        if size.pixels() == 0 {
            return Err(DecodeError::damaged(
                "the header claims an image without pixels",
            ));
        }
        if size.pixels() > self.max_pixels {
            return Err(DecodeError::TooLarge {
                size,
                limit: self.max_pixels,
            });
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_pixels: Limits::DEFAULT_MAX_PIXELS,
        }
    }
}
