//! Parses baseline JPEGs, the simplest kind, from the first marker to the last.
//!
//! Source: ITU-T T.81, Annex B (markers and segments), C.2 (code lengths), F.1 (baseline).

use crate::jpeg_encode::Subsampling;

/// Properties of a file that a hardware decoder accepts: baseline, 8 bits, YCbCr or gray, one scan.
///
/// The whole file was checked: it has one frame, one scan with only restart markers in it, an end,
/// and valid tables. The pixels were not checked, so the file may still be damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Chroma subsampling.
    pub subsampling: Subsampling,
    /// Bytes up to the end of the image; later bytes do not belong to it.
    pub len: usize,
}

/// Reason why a file is not a [`Baseline`] file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotBaseline {
    /// The file is of a kind that the host decodes.
    #[error("the device decodes only baseline JPEG, but this file {0}; the host decodes it")]
    Other(&'static str),
    /// The file is not a complete JPEG.
    #[error("the file {0}")]
    Damaged(&'static str),
    /// The file has too many pixels.
    #[error("{width}x{height} pixels are more than {limit}")]
    TooLarge {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// Maximum number of pixels.
        limit: u64,
    },
}

impl NotBaseline {
    /// Whether the host's decoder is likely to accept the file.
    pub fn is_for_the_host(&self) -> bool {
        matches!(self, NotBaseline::Other(_))
    }
}

use NotBaseline::{Damaged, Other};

impl Baseline {
    /// Parses a file. Allocates nothing.
    ///
    /// # Errors
    ///
    /// [`NotBaseline`] with the first reason found.
    ///
    /// # Cost
    ///
    /// Reads every byte of the file once, at several GB/s.
    pub fn read(bytes: &[u8], max_pixels: u64) -> Result<Baseline, NotBaseline> {
        let mut walk = MarkerReader {
            bytes,
            at: 0,
            tables: Tables::default(),
            frame: None,
            interval: 0,
            is_rgb: false,
        };
        walk.file(max_pixels)
    }
}

/// Tables defined so far, by their numbers.
#[derive(Default)]
struct Tables {
    quantization: [bool; 4],
    dc: [bool; 2],
    ac: [bool; 2],
}

/// Contents of the frame header.
#[derive(Clone, Copy)]
struct FrameHeader {
    width: u32,
    height: u32,
    subsampling: Subsampling,
    components: usize,
    /// Number and quantization table of each component.
    ids: [(u8, u8); 3],
}

impl FrameHeader {
    fn is_gray(&self) -> bool {
        self.components == 1
    }

    /// Number of MCUs of the only scan.
    fn mcus(&self) -> u64 {
        let down = match self.subsampling {
            Subsampling::HalfRows | Subsampling::Quarter => 16,
            Subsampling::None | Subsampling::Half | Subsampling::Gray => 8,
        };
        let across = self.width.div_ceil(self.subsampling.mcu_width());
        u64::from(across) * u64::from(self.height.div_ceil(down))
    }

    /// Number of blocks of 8x8 samples in an MCU.
    fn blocks(&self) -> u64 {
        match self.subsampling {
            Subsampling::Gray => 1,
            Subsampling::None => 3,
            Subsampling::Half | Subsampling::HalfRows => 4,
            Subsampling::Quarter => 6,
        }
    }
}

struct MarkerReader<'a> {
    bytes: &'a [u8],
    at: usize,
    tables: Tables,
    frame: Option<FrameHeader>,
    /// MCUs between restart markers; 0 for none.
    interval: u16,
    /// Whether a marker declares that the samples are red, green and blue.
    is_rgb: bool,
}

const CUT: NotBaseline = Damaged("ends within a segment");

impl<'a> MarkerReader<'a> {
    fn file(&mut self, max_pixels: u64) -> Result<Baseline, NotBaseline> {
        if self.take(2) != Some(&[0xFF, 0xD8]) {
            return Err(Damaged("is not a JPEG"));
        }
        loop {
            let marker = self.marker()?;
            match marker {
                0xC0 => self.frame(max_pixels)?,
                0xC4 => self.codes()?,
                0xDB => self.quantization()?,
                0xDD => self.restarts()?,
                0xEE => self.adobe()?,
                0xDA => return self.scan(),
                0xE0..=0xEF | 0xFE => _ = self.segment()?,
                _ => return Err(marker_error(marker)),
            }
        }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn marker(&mut self) -> Result<u8, NotBaseline> {
        match self.take(2) {
            Some(&[0xFF, marker]) => Ok(marker),
            Some(_) => Err(Other("has bytes between its segments")),
            None => Err(CUT),
        }
    }

    /// Returns the payload of the segment that begins here.
    fn segment(&mut self) -> Result<&'a [u8], NotBaseline> {
        let Some(&[high, low]) = self.take(2) else {
            return Err(CUT);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let payload = length
            .checked_sub(2)
            .ok_or(Damaged("has a segment that is shorter than its length"))?;
        self.take(payload).ok_or(CUT)
    }

    fn frame(&mut self, max_pixels: u64) -> Result<(), NotBaseline> {
        if self.frame.is_some() {
            return Err(Damaged("has two frame headers"));
        }
        let segment = self.segment()?;
        let &[bits, h1, h0, w1, w0, components, ref rest @ ..] = segment else {
            return Err(Damaged("has a frame header that is too short"));
        };
        if bits != 8 {
            return Err(Other("has samples of other than 8 bits"));
        }
        let height = u32::from(u16::from_be_bytes([h1, h0]));
        let width = u32::from(u16::from_be_bytes([w1, w0]));
        if height == 0 {
            return Err(Other("states its height at the end"));
        }
        if width == 0 {
            return Err(Damaged("has an image without pixels"));
        }
        if u64::from(width) * u64::from(height) > max_pixels {
            return Err(NotBaseline::TooLarge {
                width,
                height,
                limit: max_pixels,
            });
        }
        let components = usize::from(components);
        if !matches!(components, 1 | 3) {
            return Err(Other("has other than 1 or 3 components"));
        }
        if rest.len() != 3 * components {
            return Err(Damaged("has a frame header of the wrong length"));
        }
        let mut ids = [(0, 0); 3];
        let mut factors = [0; 3];
        for ((one, id), factor) in rest.chunks_exact(3).zip(&mut ids).zip(&mut factors) {
            *id = (one[0], one[2]);
            *factor = one[1];
        }
        let subsampling = match (components, factors) {
            (1, [0x11, ..]) => Subsampling::Gray,
            (3, [0x11, 0x11, 0x11]) => Subsampling::None,
            (3, [0x21, 0x11, 0x11]) => Subsampling::Half,
            (3, [0x12, 0x11, 0x11]) => Subsampling::HalfRows,
            (3, [0x22, 0x11, 0x11]) => Subsampling::Quarter,
            _ => {
                return Err(Other(
                    "has a chroma subsampling other than 4:4:4, 4:2:2, 4:2:0, 4:4:0 or gray",
                ));
            }
        };
        self.frame = Some(FrameHeader {
            width,
            height,
            subsampling,
            components,
            ids,
        });
        Ok(())
    }

    /// Reads Huffman tables.
    fn codes(&mut self) -> Result<(), NotBaseline> {
        let mut segment = self.segment()?;
        while let [kind, rest @ ..] = segment {
            let (class, number) = (kind >> 4, usize::from(kind & 15));
            let Some((counts, rest)) = rest.split_at_checked(16) else {
                return Err(Damaged("has a Huffman table that is too short"));
            };
            let symbols: usize = counts.iter().map(|&count| usize::from(count)).sum();
            // A code of 16 bits is used up if it begins with a shorter code.
            let used: u32 = counts
                .iter()
                .enumerate()
                .map(|(n, &count)| u32::from(count) << (15 - n))
                .sum();
            if symbols == 0 || symbols > 256 || used > 1 << 16 {
                return Err(Damaged("has a Huffman table with impossible code lengths"));
            }
            let Some((symbols, rest)) = rest.split_at_checked(symbols) else {
                return Err(Damaged("has a Huffman table that is too short"));
            };
            let defined = match class {
                0 => &mut self.tables.dc,
                1 => &mut self.tables.ac,
                _ => return Err(Damaged("has a Huffman table of an unknown class")),
            };
            // Differences of 8-bit samples have at most 11 bits.
            if class == 0 && symbols.iter().any(|&bits| bits > 11) {
                return Err(Damaged("has a Huffman table for other than 8 bits"));
            }
            let Some(defined) = defined.get_mut(number) else {
                return Err(Other("has more Huffman tables than baseline files"));
            };
            *defined = true;
            segment = rest;
        }
        Ok(())
    }

    fn quantization(&mut self) -> Result<(), NotBaseline> {
        let mut segment = self.segment()?;
        while let [kind, rest @ ..] = segment {
            if kind >> 4 != 0 {
                return Err(Other("has quantization tables of 16 bits"));
            }
            let Some(defined) = self.tables.quantization.get_mut(usize::from(*kind)) else {
                return Err(Damaged("has a quantization table with an invalid number"));
            };
            let Some((_, rest)) = rest.split_at_checked(64) else {
                return Err(Damaged("has a quantization table that is too short"));
            };
            *defined = true;
            segment = rest;
        }
        Ok(())
    }

    fn restarts(&mut self) -> Result<(), NotBaseline> {
        let &[high, low] = self.segment()? else {
            return Err(Damaged("has a restart interval of other than two bytes"));
        };
        self.interval = u16::from_be_bytes([high, low]);
        Ok(())
    }

    /// Reads APP14, in which Adobe's programs declare the colour space of the samples.
    fn adobe(&mut self) -> Result<(), NotBaseline> {
        let segment = self.segment()?;
        if segment.starts_with(b"Adobe") && segment.get(11) == Some(&0) {
            self.is_rgb = true;
        }
        Ok(())
    }

    /// Reads the header of the scan, the scan, and the end.
    fn scan(&mut self) -> Result<Baseline, NotBaseline> {
        let segment = self.segment()?;
        let Some(frame) = self.frame else {
            return Err(Damaged("has a scan before its frame"));
        };
        let ids = &frame.ids[..frame.components];
        if !frame.is_gray() && (self.is_rgb || ids.iter().map(|id| id.0).eq(*b"RGB")) {
            return Err(Other(
                "stores red, green and blue without a conversion to YCbCr",
            ));
        }
        let Some((&count, rest)) = segment.split_first() else {
            return Err(Damaged("has a scan header that is too short"));
        };
        if usize::from(count) != frame.components {
            return Err(Other("has several scans"));
        }
        let Some((chosen, how)) = rest.split_at_checked(2 * frame.components) else {
            return Err(Damaged("has a scan header that is too short"));
        };
        if how != [0, 63, 0] {
            return Err(Damaged("has a scan header that baseline files cannot have"));
        }
        for (&(id, table), chosen) in ids.iter().zip(chosen.chunks_exact(2)) {
            let is_there = |defined: &[bool], n: u8| defined.get(usize::from(n)) == Some(&true);
            if chosen[0] != id {
                return Err(Other("has its components in another order"));
            }
            if !is_there(&self.tables.quantization, table)
                || !is_there(&self.tables.dc, chosen[1] >> 4)
                || !is_there(&self.tables.ac, chosen[1] & 15)
            {
                return Err(Damaged("lacks a table that it names"));
            }
        }
        let start = self.at;
        let end = self.read_scan(&frame)?;
        // A block has at least two codes of at least one bit.
        if (end - start) as u64 * 8 < frame.mcus() * frame.blocks() * 2 {
            return Err(Damaged("has too few bytes for its pixels"));
        }
        Ok(Baseline {
            width: frame.width,
            height: frame.height,
            subsampling: frame.subsampling,
            len: end + 2,
        })
    }

    /// Reads the scan. Returns the position of the marker after it.
    fn read_scan(&mut self, frame: &FrameHeader) -> Result<usize, NotBaseline> {
        let restarts = match self.interval {
            0 => 0,
            interval => (frame.mcus() - 1) / u64::from(interval),
        };
        let mut seen = 0;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or(&[]);
            let found = find_ff(rest).ok_or(Damaged("ends within its scan"))?;
            let at = self.at + found;
            match self.bytes.get(at + 1) {
                // A byte 255 of the scan, and a fill byte before a marker.
                Some(0x00) => self.at = at + 2,
                Some(0xFF) => self.at = at + 1,
                Some(&marker @ 0xD0..=0xD7) => {
                    if seen >= restarts || u64::from(marker - 0xD0) != seen % 8 {
                        return Err(Damaged("has restart markers in the wrong order"));
                    }
                    seen += 1;
                    self.at = at + 2;
                }
                Some(0xD9) if seen == restarts => return Ok(at),
                Some(0xD9) => return Err(Damaged("lacks restart markers")),
                Some(_) => return Err(Other("has several scans, or markers within one")),
                None => return Err(Damaged("ends within its scan")),
            }
        }
    }
}

/// Returns the error for a marker that baseline files do not have.
fn marker_error(marker: u8) -> NotBaseline {
    match marker {
        0xC1 => Other("is extended sequential"),
        0xC2 => Other("is progressive"),
        0xC3 => Other("is lossless"),
        0xC5..=0xC7 | 0xCD..=0xCF | 0xDE | 0xDF => Other("is hierarchical"),
        0xC9..=0xCC => Other("is coded arithmetically"),
        0xD8 => Damaged("begins twice"),
        0xD9 => Damaged("ends before its scan"),
        _ => Other("has a segment that baseline files do not have"),
    }
}

/// Returns the index of the first byte 255.
fn find_ff(bytes: &[u8]) -> Option<usize> {
    // The compiler vectorises the comparison of a chunk.
    const CHUNK: usize = 64;
    let chunks = bytes.chunks_exact(CHUNK);
    let has_none = |chunk: &[u8]| !chunk.iter().fold(false, |any, &byte| any | (byte == 0xFF));
    let skipped = CHUNK * chunks.take_while(|chunk| has_none(chunk)).count();
    let found = bytes[skipped..].iter().position(|&byte| byte == 0xFF)?;
    Some(skipped + found)
}
