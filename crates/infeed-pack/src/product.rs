//! The output of one field of one record.

use bytes::Bytes;

use infeed_core::sample::{Depth, Size};

/// The output of one field.
pub(super) struct Product {
    pub(super) bytes: Bytes,
    /// Shape of raw pixels.
    pub(super) shape: Option<Shape>,
}

/// Shape of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) size: Size,
    pub(super) channels: usize,
    pub(super) depth: Depth,
}

impl Shape {
    /// Returns `[H, W]` or `[H, W, C]`.
    pub(super) fn axes(&self) -> Vec<usize> {
        let mut axes = vec![self.size.height as usize, self.size.width as usize];
        if self.channels > 1 {
            axes.push(self.channels);
        }
        axes
    }
}
