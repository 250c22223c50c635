//! JPEG coefficients in streams made for SIMD: encodes them, and supplies them to libjpeg-turbo.
//!
//! The layout is specified in `docs/formats/jpeg-coefficients.md`. A strip is a number of rows of
//! MCUs; it can be decoded without the strips before it.

use infeed_raw::jpeg_coefficients::{
    CoefficientBlock, ComponentBlocks, MAX_BLOCKS_IN_MCU, McuSource,
};
use infeed_raw::simd::{
    BlockCursor, BlockExpander, BlockSymbols, ESCAPE, LONG, Level, MAX_BITS, PADDING, STREAMS,
    StreamReader, SymbolTable, ZIGZAG,
};

use super::huffman::{self, Code, CodeShape, StreamWriter};
use super::varint;
use super::zigzag::zigzag_mask;

/// Kinds of symbols of a class: the number of mask bytes, DC, eight mask bytes, coefficients 1 to
/// 7, the other coefficients.
const KINDS: usize = 12;
const COUNT: usize = 0;
const DC: usize = 1;
const MASKS: usize = 2;
const LOW: usize = 10;
const HIGH: usize = 11;

/// Zigzag-coded DC differences from which a code has another byte, and from which it has two.
const DC_LONG: u16 = LONG as u16;
const DC_ESCAPE: u16 = DC_LONG + 256 * (254 - DC_LONG);

/// Magnitudes from which a code has another byte, and from which it has two.
const AC_LONG: u16 = LONG as u16 / 2;
const AC_ESCAPE: u16 = AC_LONG + 256 * ((254 - LONG as u16) / 2);

/// Classes of blocks: of the first component, and of the others.
const CLASSES: usize = 2;

/// Segments of a strip. In the streams they follow each other kind by kind; in the list of codes
/// they do so class by class, so that similar segments are neighbours.
const SEGMENTS: usize = KINDS * CLASSES;

/// Index of a segment in the list of codes.
fn segment(kind: usize, class: usize) -> usize {
    KINDS * class + kind
}

/// Largest number of bytes of a block's symbols: count, DC coefficient, mask, codes of
/// coefficients, and bytes of the mask.
const SYMBOL_BYTES_PER_BLOCK: usize = 1 + 2 + 8 + 63 + 8;

/// Smallest number of blocks of a strip, except for the last one.
const STRIP_BLOCKS: usize = 1024;

/// Largest number of blocks of an image: 65535 x 65535 pixels do not fit, 20 000 x 20 000 in 4:4:4
/// do.
pub(super) const MAX_BLOCKS: usize = 20 << 20;

/// Blocks of one component in an MCU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ComponentSampling {
    pub(super) across: usize,
    pub(super) down: usize,
}

/// Arrangement of an image's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// MCUs per row.
    pub(super) across: usize,
    /// Rows of MCUs.
    pub(super) down: usize,
    /// One for each component.
    pub(super) sampling: Vec<ComponentSampling>,
}

impl Grid {
    /// Blocks of a class in an MCU.
    fn class_blocks(&self, class: usize) -> usize {
        let range = if class == 0 {
            0..1
        } else {
            1..self.sampling.len()
        };
        self.sampling[range].iter().map(|s| s.across * s.down).sum()
    }

    /// Largest number of blocks of a component across an MCU.
    pub(super) fn max_across(&self) -> usize {
        self.sampling.iter().map(|s| s.across).max().unwrap_or(1)
    }

    /// Blocks of an MCU.
    pub(super) fn mcu_blocks(&self) -> usize {
        self.class_blocks(0) + self.class_blocks(1)
    }

    /// Returns the rows of MCUs in a strip.
    fn strip_rows(&self) -> usize {
        STRIP_BLOCKS
            .div_ceil((self.across * self.mcu_blocks()).max(1))
            .clamp(1, self.down.max(1))
    }

    /// Blocks of the image; `None` above the limits of the format and of libjpeg-turbo.
    pub(super) fn blocks(&self) -> Option<usize> {
        self.across
            .checked_mul(self.down)?
            .checked_mul(self.mcu_blocks())
            .filter(|&blocks| blocks <= MAX_BLOCKS && self.mcu_blocks() <= MAX_BLOCKS_IN_MCU)
    }
}

/// Returns the shape of the code that begins with a segment.
fn shape(segment: usize) -> CodeShape {
    match segment % KINDS {
        MASKS..LOW => CodeShape::Masks,
        _ => CodeShape::Numbers,
    }
}

/// Symbols of one strip.
#[derive(Debug, Default)]
struct StripSymbols {
    segments: [Vec<u8>; SEGMENTS],
    /// Bytes of long DC differences, then of the other long coefficients.
    long: [Vec<u8>; 2 * CLASSES],
}

impl StripSymbols {
    fn push(&mut self, class: usize, block: &CoefficientBlock, dc: &mut i16) {
        let segment = |kind: usize| segment(kind, class);
        let difference = block[0].wrapping_sub(*dc);
        *dc = block[0];
        let code = ((difference << 1) ^ (difference >> 15)) as u16;
        let code = match code {
            0..DC_LONG => code as u8,
            DC_LONG..DC_ESCAPE => {
                self.long[class].push((code - DC_LONG) as u8);
                LONG + ((code - DC_LONG) >> 8) as u8
            }
            _ => {
                self.long[class].extend(difference.to_le_bytes());
                ESCAPE
            }
        };
        self.segments[segment(DC)].push(code);
        let mask = zigzag_mask(block) & !1;
        let (mut codes, mut count) = ([0; 63], 0);
        let mut rest = mask;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize & 63;
            rest &= rest - 1;
            let value = block[usize::from(ZIGZAG[at])];
            let magnitude = value.unsigned_abs();
            let code = match magnitude {
                0..AC_LONG => (magnitude << 1) as u8,
                AC_LONG..AC_ESCAPE => {
                    self.long[CLASSES + class].push((magnitude - AC_LONG) as u8);
                    LONG + ((magnitude - AC_LONG) >> 8 << 1) as u8
                }
                _ => {
                    self.long[CLASSES + class].extend(value.to_le_bytes());
                    ESCAPE
                }
            };
            codes[count] = match code {
                ESCAPE => code,
                _ => code | u8::from(value < 0),
            };
            count += 1;
        }
        let (low, high) = codes[..count].split_at((mask & 0xFF).count_ones() as usize);
        self.segments[segment(LOW)].extend_from_slice(low);
        self.segments[segment(HIGH)].extend_from_slice(high);
        let count = (64 - mask.leading_zeros() as usize).div_ceil(8);
        self.segments[segment(COUNT)].push(count as u8);
        for (at, &byte) in mask.to_le_bytes().iter().take(count).enumerate() {
            self.segments[segment(MASKS + at)].push(byte);
        }
    }
}

/// Appends the codes, the directory and the strips of an image.
pub(super) fn write(grid: &Grid, components: &[ComponentBlocks], out: &mut Vec<u8>) {
    let rows = grid.strip_rows();
    let strips: Vec<StripSymbols> = (0..grid.down.div_ceil(rows))
        .map(|strip| {
            let first = strip * rows;
            strip_symbols(grid, components, first..grid.down.min(first + rows))
        })
        .collect();
    let (codes, is_shared) = choose_codes(&strips);
    varint::write(out, rows as u64);
    out.extend(&is_shared.to_le_bytes()[..3]);
    for (at, code) in codes.iter().enumerate() {
        if is_shared >> at & 1 == 0 {
            code.write(shape(at), out);
        }
    }
    let mut bodies: Vec<u8> = Vec::new();
    for strip in &strips {
        let mut writer = StreamWriter::default();
        for kind in 0..KINDS {
            for class in 0..CLASSES {
                let at = segment(kind, class);
                writer.segment(&codes[at], &strip.segments[at]);
            }
        }
        for part in writer.finish().iter().chain(&strip.long) {
            varint::write(out, part.len() as u64);
            bodies.extend(part);
        }
    }
    out.extend(bodies);
}

fn strip_symbols(
    grid: &Grid,
    components: &[ComponentBlocks],
    rows: std::ops::Range<usize>,
) -> StripSymbols {
    let mut strip = StripSymbols::default();
    let mut dc = [0i16; 4];
    for row in rows {
        for column in 0..grid.across {
            for (at, (component, sampling)) in components.iter().zip(&grid.sampling).enumerate() {
                for y in 0..sampling.down {
                    let from =
                        (row * sampling.down + y) * component.across + column * sampling.across;
                    for block in &component.blocks[from..from + sampling.across] {
                        strip.push(usize::from(at > 0), block, &mut dc[at]);
                    }
                }
            }
        }
    }
    strip
}

/// Chooses a code for each segment. Bit *i* of the second result is set if segment *i* shares the
/// code of segment *i* - 1, because another table would cost more than it saves.
fn choose_codes(strips: &[StripSymbols]) -> (Vec<Code>, u32) {
    let counts: Vec<[u32; 256]> = (0..SEGMENTS)
        .map(|at| {
            let mut counts = [0u32; 256];
            for symbol in strips.iter().flat_map(|strip| &strip.segments[at]) {
                counts[usize::from(*symbol)] += 1;
            }
            counts
        })
        .collect();
    let group = |first: usize, counts: &[u32; 256]| {
        let code = Code::of_counts(counts);
        let mut text = Vec::new();
        code.write(shape(first), &mut text);
        CodeGroup {
            first,
            counts: *counts,
            bits: code.bits(counts).unwrap_or(u64::MAX / 4) + 8 * text.len() as u64,
            code,
        }
    };
    let mut groups: Vec<CodeGroup> = Vec::new();
    for (at, counts) in counts.iter().enumerate() {
        let alone = group(at, counts);
        if let Some(last) = groups.last_mut() {
            let sum = std::array::from_fn(|value| last.counts[value] + counts[value]);
            let together = group(last.first, &sum);
            if together.bits <= last.bits + alone.bits {
                *last = together;
                continue;
            }
        }
        groups.push(alone);
    }
    let mut codes: Vec<Code> = Vec::with_capacity(SEGMENTS);
    let mut is_shared = 0;
    for at in 0..SEGMENTS {
        match groups.iter().find(|group| group.first == at) {
            Some(group) => codes.push(group.code.clone()),
            None => {
                is_shared |= 1 << at;
                codes.push(codes.last().cloned().unwrap_or(Code::Constant(0)));
            }
        }
    }
    (codes, is_shared)
}

/// Segments that share a code.
struct CodeGroup {
    first: usize,
    /// Of all segments.
    counts: [u32; 256],
    code: Code,
    /// Bits of the code and of all symbols.
    bits: u64,
}

/// Decoded tables and the symbols of a strip, reused from record to record.
#[derive(Debug, Default)]
pub(crate) struct StripScratch {
    tables: Vec<SymbolTable>,
    strip: StripBuffer,
}

/// The symbols of a strip.
#[derive(Debug, Default)]
struct StripBuffer {
    classes: [ClassBuffer; CLASSES],
}

/// The symbols of one class.
#[derive(Debug, Default)]
struct ClassBuffer {
    counts: Vec<u8>,
    dc: Vec<i16>,
    masks: Vec<u64>,
    low: Vec<u8>,
    high: Vec<u8>,
    /// Symbols from which `dc` and `masks` are computed.
    symbols: Vec<u8>,
}

impl ClassBuffer {
    fn symbols<'a>(&'a self, long: &'a [u8]) -> BlockSymbols<'a> {
        BlockSymbols {
            dc: &self.dc,
            masks: &self.masks,
            low: &self.low,
            high: &self.high,
            long,
        }
    }
}

impl StripScratch {
    /// Returns the bytes that an image needs at most.
    pub(super) fn bytes(grid: &Grid, mut image: &[u8]) -> Result<u64, &'static str> {
        let rows = strip_rows(grid, &mut image)?;
        let blocks = rows * grid.across * grid.mcu_blocks();
        let tables = SEGMENTS * size_of::<SymbolTable>();
        Ok((tables + blocks * SYMBOL_BYTES_PER_BLOCK + 4 * PADDING) as u64)
    }
}

/// Reads the rows of MCUs in a strip, and checks the number of blocks.
fn strip_rows(grid: &Grid, image: &mut &[u8]) -> Result<usize, &'static str> {
    grid.blocks().ok_or("more blocks than the format allows")?;
    varint::read(image)
        .filter(|rows| (1..=grid.down).contains(rows))
        .ok_or("rows of a strip out of range")
}

/// An image whose strips are ready to be decoded.
#[derive(Debug)]
pub(super) struct CoefficientImage<'a> {
    grid: &'a Grid,
    strip_rows: usize,
    /// Index of each segment's table.
    table_of: [usize; SEGMENTS],
    strips: Vec<StripBytes<'a>>,
}

/// The streams and the bytes of long values of a strip.
#[derive(Clone, Copy, Debug)]
struct StripBytes<'a> {
    streams: [&'a [u8]; STREAMS],
    /// Of the DC differences of each class, then of the other coefficients.
    long: [&'a [u8]; 2 * CLASSES],
}

impl<'a> CoefficientImage<'a> {
    /// Reads the codes and the directory. Allocates in proportion to the rows of MCUs.
    pub(super) fn read(
        grid: &'a Grid,
        mut bytes: &'a [u8],
        scratch: &mut StripScratch,
    ) -> Result<CoefficientImage<'a>, &'static str> {
        let strip_rows = strip_rows(grid, &mut bytes)?;
        let (shared, rest) = bytes.split_first_chunk::<3>().ok_or("no codes")?;
        bytes = rest;
        let is_shared = u32::from_le_bytes([shared[0], shared[1], shared[2], 0]);
        let mut table_of = [0; SEGMENTS];
        let mut tables = 0;
        for (at, table) in table_of.iter_mut().enumerate() {
            if is_shared >> at & 1 == 0 {
                let (code, rest) =
                    Code::read(shape(at), bytes).ok_or("a code that is not complete")?;
                bytes = rest;
                if scratch.tables.len() == tables {
                    scratch.tables.push([0; 1 << MAX_BITS]);
                }
                huffman::fill_table(&code, &mut scratch.tables[tables]);
                tables += 1;
            }
            *table = usize::checked_sub(tables, 1).ok_or("a shared code without a first")?;
        }
        let count = grid.down.div_ceil(strip_rows);
        let mut lengths = Vec::with_capacity(count);
        for _ in 0..count {
            let mut strip = [0usize; STREAMS + 2 * CLASSES];
            for length in &mut strip {
                *length = varint::read(&mut bytes).ok_or("a directory that ends early")?;
            }
            lengths.push(strip);
        }
        let mut part = |length: usize| {
            let (part, rest) = bytes
                .split_at_checked(length)
                .ok_or("a strip that ends early")?;
            bytes = rest;
            Ok::<_, &'static str>(part)
        };
        let mut strips = Vec::with_capacity(count);
        for lengths in lengths {
            let mut strip = StripBytes {
                streams: [&[]; STREAMS],
                long: [&[]; 2 * CLASSES],
            };
            for (at, length) in lengths.into_iter().enumerate() {
                match at.checked_sub(STREAMS) {
                    None => strip.streams[at] = part(length)?,
                    Some(at) => strip.long[at] = part(length)?,
                }
            }
            strips.push(strip);
        }
        if !bytes.is_empty() {
            return Err("bytes after the last strip");
        }
        Ok(CoefficientImage {
            grid,
            strip_rows,
            table_of,
            strips,
        })
    }

    /// Decodes all coefficients.
    pub(super) fn components(&self, scratch: &mut StripScratch) -> Vec<ComponentBlocks> {
        let grid = self.grid;
        let mut components: Vec<ComponentBlocks> = grid
            .sampling
            .iter()
            .map(|sampling| {
                let across = grid.across * sampling.across;
                ComponentBlocks {
                    across,
                    blocks: vec![[0; 64]; across * grid.down * sampling.down],
                }
            })
            .collect();
        self.each_block(scratch, |component, at, block| {
            components[component].blocks[at] = *block;
        });
        components
    }

    /// Whether these are the coefficients of the image.
    pub(super) fn has(&self, components: &[ComponentBlocks], scratch: &mut StripScratch) -> bool {
        let blocks: usize = components.iter().map(|of| of.blocks.len()).sum();
        let mut is_same = self.grid.blocks() == Some(blocks);
        self.each_block(scratch, |component, at, block| {
            is_same &= components[component].blocks.get(at) == Some(block);
        });
        is_same
    }

    /// Calls `call` with the component, the position in it, row by row, and the coefficients of
    /// each block.
    fn each_block(
        &self,
        scratch: &mut StripScratch,
        mut call: impl FnMut(usize, usize, &CoefficientBlock),
    ) {
        let grid = self.grid;
        let mut mcus = self.mcus(0..grid.across, scratch);
        let mut blocks = [[0; 64]; MAX_BLOCKS_IN_MCU];
        for row in 0..grid.down {
            for column in 0..grid.across {
                let blocks = &mut blocks[..grid.mcu_blocks()];
                blocks.fill([0; 64]);
                mcus.fill(blocks);
                let mut from = blocks.iter();
                for (component, sampling) in grid.sampling.iter().enumerate() {
                    for y in 0..sampling.down {
                        let across = grid.across * sampling.across;
                        let first = (row * sampling.down + y) * across + column * sampling.across;
                        for (x, block) in from.by_ref().take(sampling.across).enumerate() {
                            call(component, first + x, block);
                        }
                    }
                }
            }
        }
    }

    /// Returns a source of the MCUs. Only the columns of `window` are expanded for the caller.
    pub(super) fn mcus<'s>(
        &'s self,
        columns: std::ops::Range<usize>,
        scratch: &'s mut StripScratch,
    ) -> StripReader<'s> {
        let level = Level::detect();
        StripReader {
            image: self,
            tables: &scratch.tables,
            strip: &mut scratch.strip,
            columns,
            level,
            expander: BlockExpander::new(level),
            class_blocks: [self.grid.class_blocks(0), self.grid.class_blocks(1)],
            row: 0,
            column: 0,
            loaded: None,
            behind: 0,
            cursors: [BlockCursor::default(); CLASSES],
        }
    }
}

/// Decodes strips when the first of their MCUs is needed.
#[derive(Debug)]
pub(super) struct StripReader<'a> {
    image: &'a CoefficientImage<'a>,
    tables: &'a [SymbolTable],
    strip: &'a mut StripBuffer,
    /// Columns of MCUs that the caller uses.
    columns: std::ops::Range<usize>,
    level: Level,
    expander: BlockExpander,
    class_blocks: [usize; CLASSES],
    /// Position of the next MCU.
    row: usize,
    column: usize,
    /// Strip in the buffer.
    loaded: Option<usize>,
    /// MCUs between the cursors and the next MCU.
    behind: usize,
    cursors: [BlockCursor; CLASSES],
}

impl StripReader<'_> {
    fn advance(&mut self) {
        self.column += 1;
        if self.column == self.image.grid.across {
            self.column = 0;
            self.row += 1;
            if self.row.is_multiple_of(self.image.strip_rows) {
                self.behind = 0;
            }
        }
    }

    /// Decodes the symbols of a strip.
    fn load(&mut self, strip: usize) {
        let grid = self.image.grid;
        let first = strip * self.image.strip_rows;
        let mcus = (grid.down - first).min(self.image.strip_rows) * grid.across;
        let bytes = &self.image.strips[strip];
        let mut reader = StreamReader::new(self.level, bytes.streams);
        let mut read = |kind: usize, class: usize, out: &mut [u8]| {
            reader.segment(&self.tables[self.image.table_of[segment(kind, class)]], out);
        };
        let classes = &mut self.strip.classes;
        for (class, buffer) in classes.iter_mut().enumerate() {
            buffer.counts.resize(mcus * self.class_blocks[class], 0);
            read(COUNT, class, &mut buffer.counts);
        }
        for (class, buffer) in classes.iter_mut().enumerate() {
            buffer.symbols.resize(buffer.counts.len(), 0);
            read(DC, class, &mut buffer.symbols);
            let range = if class == 0 {
                0..1
            } else {
                1..grid.sampling.len()
            };
            let sampling = &grid.sampling[range];
            integrate(&buffer.symbols, bytes.long[class], sampling, &mut buffer.dc);
        }
        // Ends of the mask bytes of each position.
        let mut ends = [[0; 8]; CLASSES];
        for at in 0..8 {
            for (class, buffer) in classes.iter_mut().enumerate() {
                let counts = buffer.counts.iter();
                let has = counts.filter(|&&count| usize::from(count) > at).count();
                let start = if at == 0 { 0 } else { ends[class][at - 1] };
                ends[class][at] = start + has;
                buffer.symbols.resize(start + has, 0);
                read(MASKS + at, class, &mut buffer.symbols[start..]);
            }
        }
        for (class, buffer) in classes.iter_mut().enumerate() {
            let mut rest = &buffer.symbols[..];
            let mut start = 0;
            let parts = ends[class].map(|end| {
                let (part, after) = rest.split_at(end - start);
                (rest, start) = (after, end);
                part
            });
            buffer.masks.resize(buffer.counts.len(), 0);
            self.expander
                .assemble(&buffer.counts, parts, &mut buffer.masks);
        }
        for kind in [LOW, HIGH] {
            for (class, buffer) in classes.iter_mut().enumerate() {
                let (bits, codes) = match kind {
                    LOW => (0xFE, &mut buffer.low),
                    _ => (!0xFF, &mut buffer.high),
                };
                let masks = buffer.masks.iter();
                let count = masks.map(|mask| (mask & bits).count_ones()).sum::<u32>() as usize;
                codes.resize(count + PADDING, 0);
                read(kind, class, &mut codes[..count]);
            }
        }
        self.cursors = [BlockCursor::default(); CLASSES];
        self.loaded = Some(strip);
    }

    /// Expands the next MCU of the strip in the buffer.
    fn expand(&mut self, strip: usize, blocks: &mut [CoefficientBlock]) {
        let long = &self.image.strips[strip].long[CLASSES..];
        let (first, others) = blocks.split_at_mut(self.class_blocks[0].min(blocks.len()));
        for (class, out) in [first, others].into_iter().enumerate() {
            let symbols = self.strip.classes[class].symbols(long[class]);
            self.expander
                .expand(&symbols, &mut self.cursors[class], out);
        }
    }
}

/// Sums the differences of DC coefficients of the components of a class.
fn integrate(codes: &[u8], long: &[u8], sampling: &[ComponentSampling], out: &mut Vec<i16>) {
    let mut long = long.iter().copied();
    let mut difference = |code: u8| {
        let code = match code {
            0..LONG => u16::from(code),
            ESCAPE => {
                let bytes = [long.next().unwrap_or(0), long.next().unwrap_or(0)];
                return i16::from_le_bytes(bytes);
            }
            _ => DC_LONG + (u16::from(code - LONG) << 8) + u16::from(long.next().unwrap_or(0)),
        };
        (code >> 1) as i16 ^ -((code & 1) as i16)
    };
    out.clear();
    let mut dc = [0i16; 3];
    let mut codes = codes.iter();
    while codes.len() > 0 {
        for (dc, sampling) in dc.iter_mut().zip(sampling) {
            for &code in codes.by_ref().take(sampling.across * sampling.down) {
                *dc = dc.wrapping_add(difference(code));
                out.push(*dc);
            }
        }
    }
}

impl McuSource for StripReader<'_> {
    fn fill(&mut self, blocks: &mut [CoefficientBlock]) {
        if self.row >= self.image.grid.down {
            return;
        }
        if !self.columns.contains(&self.column) {
            self.skip();
            return;
        }
        let strip = self.row / self.image.strip_rows;
        if self.loaded != Some(strip) {
            self.load(strip);
        }
        if self.behind > 0 {
            let mut skipped = [[0; 64]; MAX_BLOCKS_IN_MCU];
            let skipped = &mut skipped[..blocks.len().min(MAX_BLOCKS_IN_MCU)];
            for _ in 0..std::mem::take(&mut self.behind) {
                self.expand(strip, skipped);
            }
        }
        self.expand(strip, blocks);
        self.advance();
    }

    fn skip(&mut self) {
        self.behind += 1;
        self.advance();
    }
}
