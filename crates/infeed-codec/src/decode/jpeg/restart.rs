//! Regions of JPEGs with restart markers: builds a smaller file from the required tiles.
//!
//! Source: ITU-T T.81, B.2.1 (restart intervals), E.1.4, F.1.2.3 (byte stuffing), F.2.1.3.1.
//! Entropy coding restarts at a restart marker. A segment, the data between two markers, can
//! therefore be decoded without the segments before it. If the interval divides the MCUs of a row,
//! segments are the tiles of a grid. A valid smaller file consists of the header with another size,
//! the segments of some columns and rows of tiles with renumbered markers, and an end of image.
//!
//! libjpeg smooths subsampled chroma over the next sample to each side, which is within the next
//! pixel of the scaled image. Therefore the tiles cover one more pixel on each side, and every
//! pixel of the region has the same neighbours as in the whole file. If anything in the file is
//! unusual, no tiles are used. The caller then decodes the whole file, with the same result as
//! without this module.

use std::ops::Range;

use infeed_raw::jpeg::Window;

use crate::decode::jpeg_frame::{self, DctScale, Frame, RegionDecode, segment};
use infeed_core::sample::{Region, Size};

/// A file of tiles, and the region in it.
pub(super) struct TileFile {
    pub(super) frame: Frame,
    pub(super) region: Region,
}

impl TileFile {
    /// Returns the window to decode. It includes all rows below the region, which is at most one
    /// row. At the end of the image, libjpeg reports whether the last segment had unused data,
    /// which happens only if the file is damaged.
    pub(super) fn window(&self, scale: DctScale) -> Window {
        let window = jpeg_frame::window(&self.frame, self.region, scale);
        Window {
            height: scale.apply(self.frame.size).height - window.top,
            ..window
        }
    }
}

/// Whether a file with this frame can be decoded by tiles, if it has restart markers.
///
/// A file with one component and sampling factors above 1 has MCUs of one block, but iMCU rows of
/// several blocks. No known encoder writes such files with restart markers.
pub(super) fn is_possible(frame: &Frame) -> bool {
    frame.is_sequential
        && frame.has_windows
        && !frame.holds_coefficients
        && (!frame.is_single() || (frame.across, frame.down) == (1, 1))
}

/// Writes a file of the tiles that a region needs into `out`. None if the file is unusual, or if
/// tiles would save nothing.
///
/// # Cost
///
/// One search of the bytes up to the last tile, and a copy of the tiles.
pub(super) fn assemble(
    bytes: &[u8],
    job: &RegionDecode<'_>,
    out: &mut Vec<u8>,
) -> Option<TileFile> {
    let tiles = Tiles::of(job.frame, job.region, job.scale)?;
    out.clear();
    // The output is never longer: every part except the end of image is copied from the file.
    out.reserve_exact(bytes.len());
    let data = copy_header(bytes, job.frame, tiles.size, out)?;
    copy_segments(bytes.get(data..)?, &tiles, out)?;
    let [top, left] = tiles.origin;
    Some(TileFile {
        frame: Frame {
            size: tiles.size,
            ..job.frame.clone()
        },
        region: Region {
            top: job.region.top.checked_sub(top)?,
            left: job.region.left.checked_sub(left)?,
            size: job.region.size,
        },
    })
}

/// Tiles of a region, and the grid that they are part of.
#[derive(Debug, PartialEq, Eq)]
struct Tiles {
    /// Tiles in a row of the file.
    across: u32,
    /// Rows of tiles in the file.
    down: u32,
    columns: Range<u32>,
    rows: Range<u32>,
    /// Top and left of the first tile in the scaled image.
    origin: [u32; 2],
    /// Size of the file of tiles at full scale.
    size: Size,
}

impl Tiles {
    fn of(frame: &Frame, region: Region, scale: DctScale) -> Option<Tiles> {
        let interval = u32::from(frame.interval);
        let mcus = frame.mcus_across();
        if interval == 0 || !mcus.is_multiple_of(interval) {
            return None;
        }
        let (whole, scaled) = (frame.size, scale.apply(frame.size));
        let (across, down) = (mcus / interval, whole.height.div_ceil(8 * frame.down));
        // Sides of a tile, in pixels of the scaled image.
        let width = interval * frame.across * scale.eighths();
        let height = frame.down * scale.eighths();
        // All values are below 2^20: sides of a JPEG have 16 bits.
        let right = (u32::try_from(region.right()).ok()? + 1).min(scaled.width);
        let bottom = (u32::try_from(region.bottom()).ok()? + 1).min(scaled.height);
        let mut columns = region.left.saturating_sub(1) / width..right.div_ceil(width);
        let rows = region.top.saturating_sub(1) / height..bottom.div_ceil(height);
        let full = |tile: u32| (tile * interval * frame.across * 8).min(whole.width);
        // An image whose chroma is at most two samples wide is not smoothed.
        let is_narrow = |columns: &Range<u32>| {
            let width = full(columns.end) - full(columns.start);
            let scaled = (width * scale.eighths()).div_ceil(8);
            scaled.div_ceil(frame.across) <= 2
        };
        while is_narrow(&columns) && columns.len() < across as usize {
            if columns.start > 0 {
                columns.start -= 1;
            } else {
                columns.end += 1;
            }
        }
        if columns == (0..across) && rows.start == 0 {
            return None;
        }
        let top = rows.start * frame.down * 8;
        // One pixel below the region, instead of a whole MCU.
        let end = (bottom * 8).div_ceil(scale.eighths()).min(whole.height);
        Some(Tiles {
            across,
            down,
            origin: [rows.start * height, columns.start * width],
            size: Size {
                height: end - top,
                width: full(columns.end) - full(columns.start),
            },
            columns,
            rows,
        })
    }

    fn holds(&self, segment: u32) -> bool {
        self.rows.contains(&(segment / self.across))
            && self.columns.contains(&(segment % self.across))
    }

    /// Number of the last required segment.
    fn last(&self) -> u32 {
        (self.rows.end - 1) * self.across + self.columns.end - 1
    }
}

/// Copies the segments that libjpeg reads before the scan's data, with another size. Returns the
/// offset of the data.
fn copy_header(bytes: &[u8], frame: &Frame, size: Size, out: &mut Vec<u8>) -> Option<usize> {
    out.extend_from_slice(bytes.get(..2)?);
    let mut at = 2;
    loop {
        let &[0xFF, marker] = bytes.get(at..at + 2)? else {
            return None;
        };
        let body = segment(bytes, at + 2).ok()?;
        let whole = bytes.get(at..at + 4 + body.len())?;
        match marker {
            0xC0 | 0xC1 => {
                let (before, after) = (whole.get(..5)?, whole.get(9..)?);
                out.extend_from_slice(before);
                out.extend_from_slice(&u16::try_from(size.height).ok()?.to_be_bytes());
                out.extend_from_slice(&u16::try_from(size.width).ok()?.to_be_bytes());
                out.extend_from_slice(after);
            }
            // Tables, the interval, and the two segments that define the colours.
            0xC4 | 0xDB | 0xDD | 0xE0 | 0xEE | 0xDA => out.extend_from_slice(whole),
            // libjpeg ignores all others.
            0xE1..=0xED | 0xEF | 0xFE => {}
            _ => return None,
        }
        if marker == 0xDA {
            return (at + 2 == frame.scan).then_some(at + whole.len());
        }
        at += whole.len();
    }
}

/// Copies the segments of the tiles, and an end of image.
fn copy_segments(data: &[u8], tiles: &Tiles, out: &mut Vec<u8>) -> Option<()> {
    let all = tiles.across.checked_mul(tiles.down)?;
    let last = tiles.last();
    let (mut number, mut start, mut written) = (0_u32, 0, 0_u8);
    let mut behind = 0;
    for at in memchr::memchr_iter(0xFF, data) {
        if at < behind {
            continue;
        }
        behind = at + 2;
        let marker = *data.get(at + 1)?;
        match marker {
            // A stuffed data byte.
            0x00 => continue,
            0xD0..=0xD7 if u32::from(marker - 0xD0) == number % 8 && number + 1 < all => {}
            0xD9 if number + 1 == all => {}
            _ => return None,
        }
        if tiles.holds(number) {
            if number != tiles.rows.start * tiles.across + tiles.columns.start {
                out.extend_from_slice(&[0xFF, 0xD0 + written]);
                written = (written + 1) % 8;
            }
            out.extend_from_slice(data.get(start..at)?);
            if number == last {
                out.extend_from_slice(&[0xFF, 0xD9]);
                return Some(());
            }
        }
        number += 1;
        start = behind;
    }
    None
}
