//! Segments of a JPEG before its pixels, and the parts of the image that libjpeg-turbo decodes.
//!
//! Source: ITU-T T.81, Annex B (markers, segments, the frame header).

use infeed_raw::jpeg::Window;

use super::color::ColorMode;
use super::error::DecodeError;
use infeed_core::sample::{Region, Size};

/// Scale at which a JPEG is reconstructed from its 8x8 blocks. Other formats support only full
/// size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DctScale {
    /// 1/8: one pixel per block.
    Eighth,
    /// 1/4.
    Quarter,
    /// 1/2.
    Half,
    /// Full size.
    #[default]
    Full,
}

impl DctScale {
    /// All scales, smallest first.
    pub const ALL: [DctScale; 4] = [
        DctScale::Eighth,
        DctScale::Quarter,
        DctScale::Half,
        DctScale::Full,
    ];

    /// Returns the scale in eighths of full size: 1, 2, 4 or 8.
    pub fn eighths(self) -> u32 {
        match self {
            DctScale::Eighth => 1,
            DctScale::Quarter => 2,
            DctScale::Half => 4,
            DctScale::Full => 8,
        }
    }

    /// Returns the size of an image at this scale. Sides round up.
    pub fn apply(self, size: Size) -> Size {
        // The quotient is at most `side`, so it fits.
        let side = |side: u32| (u64::from(side) * u64::from(self.eighths())).div_ceil(8) as u32;
        Size {
            height: side(size.height),
            width: side(size.width),
        }
    }
}

/// Properties of the image from the segments before the pixels.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) size: Size,
    pub(super) components: u8,
    /// Largest sampling factors: an iMCU has this number of 8-pixel blocks across and down.
    pub(super) across: u32,
    pub(super) down: u32,
    /// Whether libjpeg-turbo can decode a window at these sampling factors. Otherwise it decodes
    /// only the whole image.
    pub(super) has_windows: bool,
    /// Blocks of all components in one iMCU.
    pub(super) blocks: u32,
    /// Whether libjpeg-turbo holds the coefficients of the whole image: the file is progressive, or
    /// the first scan does not cover all components.
    pub(super) holds_coefficients: bool,
    /// Whether the coding is sequential with Huffman tables.
    pub(super) is_sequential: bool,
    /// MCUs between restart markers if the file may be decoded by tiles; otherwise 0.
    pub(super) interval: u16,
    /// Offset of the first scan's header.
    pub(super) scan: usize,
    /// Bytes of the whole record.
    pub(super) encoded: usize,
}

impl Frame {
    /// Whether there is one component. Its MCU is a single block, whatever its sampling factors
    /// are.
    pub(super) fn is_single(&self) -> bool {
        self.components == 1
    }

    /// Removes what depends on the scan data of a file.
    pub(super) fn without_scan(mut self) -> Frame {
        self.interval = 0;
        self
    }

    pub(super) fn has_several_scans(&self) -> bool {
        self.holds_coefficients
    }

    /// Returns the MCUs per row, if one scan holds all components.
    pub(super) fn mcus_across(&self) -> u32 {
        let across = if self.is_single() { 1 } else { self.across };
        self.size.width.div_ceil(8 * across)
    }
}

/// Returns the next marker at or after `at`, and the offset after it. Like libjpeg, skips the bytes
/// before the marker.
pub(super) fn next_marker(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    let rest = bytes.get(at..)?;
    let found = rest
        .windows(2)
        .position(|pair| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xFF))?;
    Some((rest[found + 1], at + found + 2))
}

/// Returns the payload of the segment whose length field is at `at`.
pub(super) fn segment(bytes: &[u8], at: usize) -> Result<&[u8], DecodeError> {
    let rest = bytes.get(at..).ok_or(DecodeError::Truncated)?;
    let &[high, low, ref payload @ ..] = rest else {
        return Err(DecodeError::Truncated);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let length = length
        .checked_sub(2)
        .ok_or(DecodeError::from_damage("a segment length below 2"))?;
    payload.get(..length).ok_or(DecodeError::Truncated)
}

pub(super) fn frame_header(marker: u8, segment: &[u8]) -> Result<Frame, DecodeError> {
    let &[bits, h1, h0, w1, w0, components, ref rest @ ..] = segment else {
        return Err(DecodeError::from_damage("a frame header too short"));
    };
    let unsupported = |what: &'static str| DecodeError::Unsupported {
        what: what.into(),
        fix: "convert the file to baseline JPEG or PNG",
    };
    if !matches!(marker, 0xC0 | 0xC1 | 0xC2 | 0xC9 | 0xCA) {
        return Err(unsupported("lossless or hierarchical JPEG"));
    }
    if bits != 8 {
        return Err(unsupported("JPEG of other than 8 bits"));
    }
    if !matches!(components, 1 | 3 | 4) {
        return Err(unsupported("JPEG of other than 1, 3 or 4 components"));
    }
    let size = Size {
        height: u32::from(u16::from_be_bytes([h1, h0])),
        width: u32::from(u16::from_be_bytes([w1, w0])),
    };
    if size.height == 0 {
        return Err(unsupported("JPEG that states its height at the end"));
    }
    let factors: Vec<(u32, u32)> = rest
        .chunks_exact(3)
        .map(|c| (u32::from(c[1] >> 4), u32::from(c[1] & 15)))
        .collect();
    if factors.len() != usize::from(components)
        || factors
            .iter()
            .any(|&(h, v)| !(1..=4).contains(&h) || !(1..=4).contains(&v))
    {
        return Err(DecodeError::from_damage("sampling factors out of range"));
    }
    Ok(Frame {
        size,
        components,
        across: factors.iter().map(|f| f.0).max().unwrap_or(1),
        down: factors.iter().map(|f| f.1).max().unwrap_or(1),
        has_windows: has_windows(&factors),
        blocks: factors.iter().map(|f| f.0 * f.1).sum(),
        holds_coefficients: matches!(marker, 0xC2 | 0xCA),
        is_sequential: matches!(marker, 0xC0 | 0xC1),
        interval: 0,
        scan: 0,
        encoded: 0,
    })
}

/// Whether the factors are those of 4:4:4, 4:2:2, 4:2:0, 4:4:0, 4:1:1, 4:4:1 or gray, which
/// TurboJPEG supports: chroma is 1x1, and a fourth component has the factors of the first.
fn has_windows(factors: &[(u32, u32)]) -> bool {
    match *factors {
        [_] => true,
        [first, (1, 1), (1, 1), ref rest @ ..] => {
            matches!(first, (1, 1) | (2, 1) | (2, 2) | (1, 2) | (4, 1) | (1, 4))
                && rest.iter().all(|&fourth| fourth == first)
        }
        _ => false,
    }
}

/// One decode: a region of the stored image at a scale.
pub(super) struct RegionDecode<'a> {
    pub(super) frame: &'a Frame,
    pub(super) mode: ColorMode,
    pub(super) region: Region,
    pub(super) scale: DctScale,
}

/// Returns the window that libjpeg-turbo decodes for a region: the region with a margin of iMCUs
/// above and on both sides, aligned to an iMCU. A margin below is not needed, because rows are
/// decoded downwards.
///
/// A margin of one iMCU is enough for chroma. In a progressive file without its last scans, libjpeg
/// also smooths over two blocks to each side before chroma, so the margin is three.
pub(super) fn window(frame: &Frame, region: Region, scale: DctScale) -> Window {
    let size = scale.apply(frame.size);
    if !frame.has_windows {
        return Window {
            top: 0,
            left: 0,
            height: size.height,
            width: size.width,
        };
    }
    let units = if frame.holds_coefficients { 3 } else { 1 };
    let from = |start: u32, unit: u32| (start / unit * unit).saturating_sub(units * unit);
    let (width, height) = (frame.across * scale.eighths(), frame.down * scale.eighths());
    let (left, top) = (from(region.left, width), from(region.top, height));
    let margin = u64::from(units * width);
    let right = region
        .right()
        .saturating_add(margin)
        .min(u64::from(size.width)) as u32;
    let bottom = region.bottom() as u32;
    Window {
        top,
        left,
        height: bottom - top,
        width: right - left,
    }
}
