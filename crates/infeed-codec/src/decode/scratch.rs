//! Buffers that a decoder reuses from record to record.

use super::loss::{Loss, NarrowedSamples};
use super::lossless::jpeg::JpegRecordScratch;
use super::lossless::planes::PlaneScratch;
use infeed_core::sample::Image;

/// Buffers that are reused from record to record.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Rows from a decoder, before columns are cut off or samples are converted.
    pub(super) wide: Vec<u8>,
    /// File built from the tiles of a JPEG.
    pub(super) tiles: Vec<u8>,
    /// Rows of converted pixels before they are scattered.
    pub(super) narrow: Vec<u8>,
    /// Region before its orientation is applied.
    pub(super) unturned: Image,
    /// Tables and symbols of lossless records of JPEGs.
    pub(super) coefficients: JpegRecordScratch,
    /// Planes of lossless records of PNGs.
    pub(super) planes: PlaneScratch,
    /// Samples of the last image that lost their low bytes.
    pub(super) narrowed: NarrowedSamples,
    /// Other losses of the last image.
    pub(super) losses: Vec<Loss>,
}
