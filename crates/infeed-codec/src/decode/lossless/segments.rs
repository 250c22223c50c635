//! Segments of a JPEG file, and its entropy-coded scan: both ways.
//!
//! Source: ITU-T T.81, Annex B (segments), Annex F.1.2 (sequential Huffman encoding), Annex K.3
//! (the tables that most encoders use).

use infeed_raw::jpeg_coefficients::{CoefficientBlock, ComponentBlocks};
use infeed_raw::simd::ZIGZAG;

use super::coefficients::{ComponentSampling, Grid};
use super::zigzag::zigzag_mask;

/// Properties of a file with one scan, from the segments before the scan data.
#[derive(Clone, Debug)]
pub(super) struct ScanHeader {
    pub(super) grid: Grid,
    /// Bytes up to the scan data.
    pub(super) length: usize,
    /// Whether the file is baseline or extended sequential, with Huffman codes and all components
    /// in its first scan.
    pub(super) is_sequential: bool,
    /// MCUs between restart markers, or 0.
    restart_interval: usize,
    /// Indices of the DC and AC tables of each component.
    tables: Vec<(usize, usize)>,
    dc_tables: [Option<HuffmanCodes>; 4],
    ac_tables: [Option<HuffmanCodes>; 4],
}

/// Code and length of each symbol.
#[derive(Clone, Debug)]
struct HuffmanCodes {
    codes: [(u16, u8); 256],
}

/// A segment: its marker, and the bytes after the length.
pub(super) struct Segment<'a> {
    pub(super) marker: u8,
    pub(super) body: &'a [u8],
    /// Offset of the marker's first byte.
    pub(super) start: usize,
    /// Offset after the segment.
    pub(super) end: usize,
}

/// Reads the segment at `at`, after any fill bytes. `None` at any other byte.
pub(super) fn segment(bytes: &[u8], at: usize) -> Option<Segment<'_>> {
    let rest = bytes.get(at..)?;
    let fill = rest.iter().take_while(|&&byte| byte == 0xFF).count();
    let marker = *rest.get(fill).filter(|_| fill > 0)?;
    let body = rest.get(fill + 1..)?;
    let length = usize::from(u16::from_be_bytes(*body.first_chunk()?));
    Some(Segment {
        marker,
        body: body.get(2..length)?,
        start: at,
        end: at + fill + 1 + length,
    })
}

impl ScanHeader {
    /// Reads the segments of a file up to its first scan. `None` if a segment is damaged or the
    /// file is not of 8 bits with 1 or 3 components.
    pub(super) fn read(bytes: &[u8]) -> Option<ScanHeader> {
        if !bytes.starts_with(&[0xFF, 0xD8]) {
            return None;
        }
        let mut frame: Option<(u8, &[u8])> = None;
        let (mut dc_tables, mut ac_tables) = ([const { None }; 4], [const { None }; 4]);
        let mut restart_interval = 0;
        let mut at = 2;
        loop {
            let found = segment(bytes, at)?;
            match found.marker {
                0xC0..=0xC2 if frame.is_none() => frame = Some((found.marker, found.body)),
                0xC4 => huffman_tables(found.body, &mut dc_tables, &mut ac_tables)?,
                // Other frames: lossless, hierarchical or arithmetic coding.
                0xC0..=0xCF => return None,
                0xDD => {
                    restart_interval = usize::from(u16::from_be_bytes(found.body.try_into().ok()?));
                }
                0xDA => {
                    let (marker, frame) = frame?;
                    return scan_header(
                        frame,
                        found.body,
                        ScanHeader {
                            grid: grid(frame)?,
                            length: found.end,
                            is_sequential: marker != 0xC2,
                            restart_interval,
                            tables: Vec::new(),
                            dc_tables,
                            ac_tables,
                        },
                    );
                }
                0xD8 | 0xD9 | 0x01 | 0xD0..=0xD7 => return None,
                _ => {}
            }
            at = found.end;
        }
    }
}

/// Arrangement of the blocks, from the body of a frame header.
fn grid(frame: &[u8]) -> Option<Grid> {
    let &[8, h1, h0, w1, w0, count, ref rest @ ..] = frame else {
        return None;
    };
    let (height, width) = (u16::from_be_bytes([h1, h0]), u16::from_be_bytes([w1, w0]));
    if !matches!(count, 1 | 3) || rest.len() != 3 * usize::from(count) || height == 0 || width == 0
    {
        return None;
    }
    let mut sampling: Vec<ComponentSampling> = rest
        .chunks_exact(3)
        .map(|component| ComponentSampling {
            across: usize::from(component[1] >> 4),
            down: usize::from(component[1] & 15),
        })
        .collect();
    if sampling
        .iter()
        .any(|s| !(1..=4).contains(&s.across) || !(1..=4).contains(&s.down))
    {
        return None;
    }
    // A component alone in its scan has MCUs of one block.
    if let [only] = &mut sampling[..] {
        (only.across, only.down) = (1, 1);
    }
    let across = sampling.iter().map(|s| s.across).max()?;
    let down = sampling.iter().map(|s| s.down).max()?;
    Some(Grid {
        across: usize::from(width).div_ceil(8 * across),
        down: usize::from(height).div_ceil(8 * down),
        sampling,
    })
}

fn scan_header(frame: &[u8], scan: &[u8], mut header: ScanHeader) -> Option<ScanHeader> {
    let components = header.grid.sampling.len();
    let &[count, ref rest @ ..] = scan else {
        return None;
    };
    if usize::from(count) != components
        || rest.len() != 2 * components + 3
        || rest[2 * components..] != [0, 63, 0]
    {
        header.is_sequential = false;
        return Some(header);
    }
    for (component, selected) in rest.chunks_exact(2).take(components).enumerate() {
        // In the order of the frame, as every known encoder writes them.
        if selected[0] != frame[6 + 3 * component] {
            header.is_sequential = false;
        }
        header.tables.push((
            usize::from(selected[1] >> 4) & 3,
            usize::from(selected[1]) & 3,
        ));
    }
    Some(header)
}

/// Reads the tables of a DHT segment.
fn huffman_tables(
    mut body: &[u8],
    dc: &mut [Option<HuffmanCodes>; 4],
    ac: &mut [Option<HuffmanCodes>; 4],
) -> Option<()> {
    while let [class, rest @ ..] = body {
        let (counts, rest) = rest.split_first_chunk::<16>()?;
        let total: usize = counts.iter().map(|&count| usize::from(count)).sum();
        let (values, rest) = rest.split_at_checked(total)?;
        let tables = if class >> 4 == 0 { &mut *dc } else { &mut *ac };
        *tables.get_mut(usize::from(class & 15))? = Some(HuffmanCodes::new(counts, values)?);
        body = rest;
    }
    Some(())
}

impl HuffmanCodes {
    fn new(counts: &[u8; 16], values: &[u8]) -> Option<HuffmanCodes> {
        let mut codes = [(0u16, 0u8); 256];
        let mut next = 0u32;
        let mut values = values.iter();
        for (bits, &count) in (1..).zip(counts) {
            for _ in 0..count {
                codes[usize::from(*values.next()?)] = (u16::try_from(next).ok()?, bits);
                next += 1;
            }
            if next > 1 << bits {
                return None;
            }
            next <<= 1;
        }
        Some(HuffmanCodes { codes })
    }
}

/// Bits of a scan, with a zero byte stuffed after each 0xFF.
struct ScanWriter {
    out: Vec<u8>,
    buffer: u64,
    bits: u32,
}

impl ScanWriter {
    /// Appends at most 31 bits.
    fn put(&mut self, value: u32, bits: u32) {
        self.buffer = self.buffer << bits | u64::from(value);
        self.bits += bits;
        if self.bits >= 32 {
            self.bits -= 32;
            let word = (self.buffer >> self.bits) as u32;
            // No byte of the complement is zero, so none of the word is 0xFF.
            if word & !word.wrapping_add(0x0101_0101) & 0x8080_8080 == 0 {
                self.out.extend(word.to_be_bytes());
            } else {
                self.bytes(&word.to_be_bytes());
            }
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.out.push(byte);
            if byte == 0xFF {
                self.out.push(0);
            }
        }
    }

    /// Fills the last byte with ones or zeros.
    fn align(&mut self, pad: bool) {
        let missing = (8 - self.bits % 8) % 8;
        self.put(if pad { (1 << missing) - 1 } else { 0 }, missing);
        let left = self.bits as usize / 8;
        let bytes = ((self.buffer << (32 - self.bits)) as u32).to_be_bytes();
        self.bytes(&bytes[..left]);
        self.bits = 0;
    }

    /// Appends the code of a symbol, and the additional bits of its value.
    fn symbol(&mut self, codes: &HuffmanCodes, symbol: u8, value: u32) -> Option<()> {
        let (code, bits) = codes.codes[usize::from(symbol)];
        let additional = u32::from(symbol & 15);
        let value = u32::from(code) << additional | value;
        (bits > 0).then(|| self.put(value, u32::from(bits) + additional))
    }

    /// Size category and additional bits of a value (T.81, F.1.2.1).
    fn additional(value: i32) -> (u8, u32) {
        let bits = 32 - value.unsigned_abs().leading_zeros();
        let low = if value < 0 { value - 1 } else { value };
        (bits as u8, low as u32 & ((1 << bits) - 1))
    }

    fn block(
        &mut self,
        block: &CoefficientBlock,
        dc: &mut i32,
        dc_codes: &HuffmanCodes,
        ac_codes: &HuffmanCodes,
    ) -> Option<()> {
        let (bits, value) = Self::additional(i32::from(block[0]) - *dc);
        *dc = i32::from(block[0]);
        if bits > 15 {
            return None;
        }
        self.symbol(dc_codes, bits, value)?;
        let mut rest = zigzag_mask(block) & !1;
        let mut last = 0;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize & 63;
            rest &= rest - 1;
            let mut run = (at - last - 1) as u8;
            last = at;
            while run > 15 {
                self.symbol(ac_codes, 0xF0, 0)?;
                run -= 16;
            }
            let (bits, value) = Self::additional(i32::from(block[usize::from(ZIGZAG[at])]));
            if bits > 15 {
                return None;
            }
            self.symbol(ac_codes, run << 4 | bits, value)?;
        }
        if last < 63 {
            self.symbol(ac_codes, 0, 0)?;
        }
        Some(())
    }
}

/// Encodes the scan data of a file with these segments. Fills bytes before markers with ones, or
/// with zeros. `None` if the file's tables have no code for a coefficient.
pub(super) fn write_scan(
    header: &ScanHeader,
    components: &[ComponentBlocks],
    pad: bool,
) -> Option<Vec<u8>> {
    let mut writer = ScanWriter {
        out: Vec::new(),
        buffer: 0,
        bits: 0,
    };
    let grid = &header.grid;
    let mut dc = [0i32; 4];
    let mut mcu = 0usize;
    for row in 0..grid.down {
        for column in 0..grid.across {
            if header.restart_interval > 0 && mcu > 0 && mcu.is_multiple_of(header.restart_interval)
            {
                writer.align(pad);
                let number = (mcu / header.restart_interval - 1) % 8;
                writer.out.extend([0xFF, 0xD0 + number as u8]);
                dc = [0; 4];
            }
            mcu += 1;
            for (at, (component, sampling)) in components.iter().zip(&grid.sampling).enumerate() {
                let &(dc_table, ac_table) = header.tables.get(at)?;
                let dc_codes = header.dc_tables[dc_table].as_ref()?;
                let ac_codes = header.ac_tables[ac_table].as_ref()?;
                for y in 0..sampling.down {
                    let from =
                        (row * sampling.down + y) * component.across + column * sampling.across;
                    for block in component.blocks.get(from..from + sampling.across)? {
                        writer.block(block, &mut dc[at], dc_codes, ac_codes)?;
                    }
                }
            }
        }
    }
    writer.align(pad);
    Some(writer.out)
}
