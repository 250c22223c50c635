//! JPEG coefficients in streams made for SIMD: encodes them, and supplies them to libjpeg-turbo.
//!
//! The layout is specified in `docs/formats/jpeg-coefficients.md`. A strip is a number of rows of
//! MCUs; it can be decoded without the strips before it.

use infeed_raw::jpeg_coefficients::{Block, ComponentBlocks, MAX_BLOCKS_IN_MCU, McuSource};
use infeed_raw::simd::{BlockCursor, ESCAPE, Level, PADDING, ZIGZAG, expand_blocks};

use super::huffman::{self, Code, MAX_BITS, STREAMS, StreamReader, StreamWriter, Table};
use super::varint;

/// Kinds of symbols of a class: the number of mask bytes, DC, eight mask bytes, coefficients 1 to
/// 7, the other coefficients.
const KINDS: usize = 12;
const COUNT: usize = 0;
const DC: usize = 1;
const MASKS: usize = 2;
const LOW: usize = 10;
const HIGH: usize = 11;

/// Classes of blocks: of the first component, and of the others.
const CLASSES: usize = 2;

/// Segments of a strip, kind by kind, both classes of each kind.
const SEGMENTS: usize = KINDS * CLASSES;

/// Largest number of symbols of a block: count, DC, mask bytes, coefficients.
const SYMBOLS_PER_BLOCK: usize = 1 + 1 + 8 + 63;

/// Smallest number of blocks of a strip, except for the last one.
const STRIP_BLOCKS: usize = 512;

/// Largest number of blocks of an image: 65535 x 65535 pixels do not fit, 20 000 x 20 000 in 4:4:4
/// do.
pub(super) const MAX_BLOCKS: usize = 20 << 20;

/// Blocks of one component in an MCU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sampling {
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
    pub(super) sampling: Vec<Sampling>,
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

/// Symbols of one strip.
#[derive(Debug, Default)]
struct StripSymbols {
    segments: [Vec<u8>; SEGMENTS],
    escapes: [Vec<u8>; CLASSES],
}

impl StripSymbols {
    fn push(&mut self, class: usize, block: &Block, dc: &mut i16) {
        let segment = |kind: usize| CLASSES * kind + class;
        let difference = block[0].wrapping_sub(*dc);
        *dc = block[0];
        let code = ((difference << 1) ^ (difference >> 15)) as u16;
        if code < u16::from(ESCAPE) {
            self.segments[segment(DC)].push(code as u8);
        } else {
            self.segments[segment(DC)].push(ESCAPE);
            self.escapes[class].extend(difference.to_le_bytes());
        }
        let mut mask = 0u64;
        for at in 1..64 {
            let value = block[usize::from(ZIGZAG[at])];
            if value == 0 {
                continue;
            }
            mask |= 1 << at;
            let magnitude = value.unsigned_abs();
            let code = if magnitude > 126 {
                self.escapes[class].extend(value.to_le_bytes());
                ESCAPE
            } else {
                (magnitude << 1) as u8 | u8::from(value < 0)
            };
            self.segments[segment(if at < 8 { LOW } else { HIGH })].push(code);
        }
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
            code.write(out);
        }
    }
    let mut bodies: Vec<u8> = Vec::new();
    for strip in &strips {
        let mut writer = StreamWriter::default();
        for (symbols, code) in strip.segments.iter().zip(&codes) {
            writer.segment(code, symbols);
        }
        for part in writer.finish().iter().chain(&strip.escapes) {
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
/// code of segment *i* - 1, because a table of its own would cost more than it saves.
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
    let bits = |counts: &[u32; 256], code: &Code| {
        let mut text = Vec::new();
        code.write(&mut text);
        code.bits(counts).unwrap_or(u64::MAX / 4) + 8 * text.len() as u64
    };
    // Segments that share a code, with their summed counts and its cost.
    let mut groups: Vec<(usize, [u32; 256], u64)> = Vec::new();
    for (at, counts) in counts.iter().enumerate() {
        let alone = bits(counts, &Code::of_counts(counts));
        if let Some((_, shared, cost)) = groups.last_mut() {
            let mut sum = *shared;
            sum.iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
            let together = bits(&sum, &Code::of_counts(&sum));
            if together <= *cost + alone {
                (*shared, *cost) = (sum, together);
                continue;
            }
        }
        groups.push((at, *counts, alone));
    }
    let mut codes = Vec::with_capacity(SEGMENTS);
    let mut is_shared = 0;
    for at in 0..SEGMENTS {
        match groups.iter().find(|(first, ..)| *first == at) {
            Some((_, counts, _)) => codes.push(Code::of_counts(counts)),
            None => {
                is_shared |= 1 << at;
                codes.push(codes.last().cloned().unwrap_or(Code::Constant(0)));
            }
        }
    }
    (codes, is_shared)
}

/// Decoded tables and the buffers of a strip, reused from record to record.
#[derive(Debug, Default)]
pub(crate) struct StripScratch {
    tables: Vec<Table>,
    symbols: Vec<u8>,
}

impl StripScratch {
    /// Returns the bytes that an image needs at most.
    pub(super) fn bytes(grid: &Grid, mut image: &[u8]) -> Result<u64, &'static str> {
        let rows = strip_rows(grid, &mut image)?;
        let blocks = rows * grid.across * grid.mcu_blocks();
        let tables = SEGMENTS * size_of::<Table>();
        Ok((tables + blocks * SYMBOLS_PER_BLOCK + PADDING) as u64)
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

/// The streams and the escapes of a strip.
#[derive(Clone, Copy, Debug)]
struct StripBytes<'a> {
    streams: [&'a [u8]; STREAMS],
    escapes: [&'a [u8]; CLASSES],
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
                let (code, rest) = Code::read(bytes).ok_or("a code that is not complete")?;
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
            let mut strip = [0usize; STREAMS + CLASSES];
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
                escapes: [&[]; CLASSES],
            };
            for (at, length) in lengths.into_iter().enumerate() {
                match at.checked_sub(STREAMS) {
                    None => strip.streams[at] = part(length)?,
                    Some(class) => strip.escapes[class] = part(length)?,
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
        let mut mcus = self.mcus(0..grid.across, scratch);
        let mut blocks = [[0; 64]; MAX_BLOCKS_IN_MCU];
        for row in 0..grid.down {
            for column in 0..grid.across {
                let blocks = &mut blocks[..grid.mcu_blocks()];
                blocks.fill([0; 64]);
                mcus.fill(blocks);
                let mut from = blocks.chunks_exact(1);
                for (component, sampling) in components.iter_mut().zip(&grid.sampling) {
                    for y in 0..sampling.down {
                        let to =
                            (row * sampling.down + y) * component.across + column * sampling.across;
                        for (to, from) in component.blocks[to..]
                            .iter_mut()
                            .zip(from.by_ref().take(sampling.across))
                        {
                            *to = from[0];
                        }
                    }
                }
            }
        }
        components
    }

    /// Returns a source of the MCUs. Only the columns of `window` are expanded for the caller.
    pub(super) fn mcus<'s>(
        &'s self,
        columns: std::ops::Range<usize>,
        scratch: &'s mut StripScratch,
    ) -> StripReader<'s> {
        StripReader {
            image: self,
            tables: &scratch.tables,
            symbols: &mut scratch.symbols,
            columns,
            level: Level::detect(),
            class_blocks: [self.grid.class_blocks(0), self.grid.class_blocks(1)],
            row: 0,
            column: 0,
            loaded: None,
            behind: 0,
            cursors: [BlockCursor::default(); CLASSES],
            dc: [0; 4],
        }
    }
}

/// Decodes strips when the first of their MCUs is needed.
#[derive(Debug)]
pub(super) struct StripReader<'a> {
    image: &'a CoefficientImage<'a>,
    tables: &'a [Table],
    symbols: &'a mut Vec<u8>,
    /// Columns of MCUs that the caller uses.
    columns: std::ops::Range<usize>,
    level: Level,
    class_blocks: [usize; CLASSES],
    /// Position of the next MCU.
    row: usize,
    column: usize,
    /// Strip in `symbols`.
    loaded: Option<usize>,
    /// MCUs between the cursors and the next MCU.
    behind: usize,
    cursors: [BlockCursor; CLASSES],
    /// Last DC coefficient of each component.
    dc: [i16; 4],
}

impl StripReader<'_> {
    fn advance(&mut self) {
        self.column += 1;
        if self.column == self.image.grid.across {
            self.column = 0;
            self.row += 1;
            if self.row % self.image.strip_rows == 0 {
                self.behind = 0;
            }
        }
    }

    /// Decodes the symbols of a strip.
    fn load(&mut self, strip: usize) {
        let grid = self.image.grid;
        let first = strip * self.image.strip_rows;
        let mcus = (grid.down - first).min(self.image.strip_rows) * grid.across;
        let mut reader = StreamReader::new(self.image.strips[strip].streams);
        // Every symbol of a strip is written, so that only the padding needs zeros.
        let blocks = mcus * grid.mcu_blocks();
        let largest = blocks * SYMBOLS_PER_BLOCK + PADDING;
        if self.symbols.len() < largest {
            self.symbols.resize(largest, 0);
        }
        let symbols = &mut self.symbols[..];
        let mut at = 0;
        let mut read = |kind: usize, class: usize, count: usize, symbols: &mut [u8]| {
            let table = &self.tables[self.image.table_of[CLASSES * kind + class]];
            let from = at;
            at += count;
            reader.segment(table, &mut symbols[from..at]);
            from
        };
        let mut cursors = [BlockCursor::default(); CLASSES];
        let mut bits = [[0usize; 2]; CLASSES];
        for kind in [COUNT, DC] {
            for (class, cursor) in cursors.iter_mut().enumerate() {
                let from = read(kind, class, mcus * self.class_blocks[class], symbols);
                *(if kind == COUNT {
                    &mut cursor.count
                } else {
                    &mut cursor.dc
                }) = from;
            }
        }
        for byte in 0..8 {
            for (class, cursor) in cursors.iter_mut().enumerate() {
                let counts = &symbols[cursor.count..][..mcus * self.class_blocks[class]];
                let has = counts
                    .iter()
                    .filter(|&&count| usize::from(count) > byte)
                    .count();
                let from = read(MASKS + byte, class, has, symbols);
                cursor.masks[byte] = from;
                let masks = &symbols[from..from + has];
                bits[class][usize::from(byte > 0)] += ones(masks, byte == 0);
            }
        }
        for (half, kind) in [LOW, HIGH].into_iter().enumerate() {
            for (class, cursor) in cursors.iter_mut().enumerate() {
                let from = read(kind, class, bits[class][half], symbols);
                *(if kind == LOW {
                    &mut cursor.low
                } else {
                    &mut cursor.high
                }) = from;
            }
        }
        symbols[at..at + PADDING].fill(0);
        self.cursors = cursors;
        self.dc = [0; 4];
        self.loaded = Some(strip);
    }

    /// Expands the next MCU of the strip in memory.
    fn expand(&mut self, strip: usize, blocks: &mut [Block]) {
        let mut rest = blocks;
        for (component, sampling) in self.image.grid.sampling.iter().enumerate() {
            let class = usize::from(component > 0);
            let count = (sampling.across * sampling.down).min(rest.len());
            let (out, others) = rest.split_at_mut(count);
            expand_blocks(
                self.level,
                self.symbols,
                self.image.strips[strip].escapes[class],
                &mut self.cursors[class],
                &mut self.dc[component],
                out,
            );
            rest = others;
        }
    }
}

/// Set bits of mask bytes. Bit 0 of the first byte of a mask is ignored.
fn ones(masks: &[u8], is_first: bool) -> usize {
    let keep = if is_first { !1u8 } else { !0 };
    let words = masks.chunks_exact(8);
    let rest = words
        .remainder()
        .iter()
        .map(|&mask| (mask & keep).count_ones());
    let keep = u64::from_ne_bytes([keep; 8]);
    let words = words.map(|word| {
        let word = u64::from_ne_bytes(word.try_into().unwrap_or([0; 8]));
        (word & keep).count_ones()
    });
    words.chain(rest).sum::<u32>() as usize
}

impl McuSource for StripReader<'_> {
    fn fill(&mut self, blocks: &mut [Block]) {
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
