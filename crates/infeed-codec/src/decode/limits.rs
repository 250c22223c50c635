//! Limits the claimed size of an image.

use super::error::DecodeError;
use infeed_core::sample::Size;

/// Limits that are checked before memory is allocated for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of pixels, height times width.
    pub max_pixels: u64,
}

impl Limits {
    /// Number of pixels above which Pillow refuses to open a file (twice its warning level). As
    /// RGB, this is half a gigabyte.
    pub const DEFAULT_MAX_PIXELS: u64 = 178_956_970;

    pub(crate) fn check(&self, size: Size) -> Result<(), DecodeError> {
        if size.pixels() == 0 {
            return Err(DecodeError::from_damage(
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
