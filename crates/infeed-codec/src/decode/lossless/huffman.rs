//! Canonical Huffman codes of bytes, in eight interleaved bit streams.
//!
//! This module makes the codes and writes the streams; `infeed_raw::simd` reads them. A code has at
//! most 11 bits. Symbol *i* of a segment is in stream *i* mod 8, so that a decoder
//! has eight independent chains of table lookups in flight. The segments of a strip follow each
//! other in the same streams, each with its own table; a segment begins at stream 0.
//!
//! Source: D. A. Huffman, "A method for the construction of minimum-redundancy codes" (1952);
//! L. Larmore and D. Hirschberg, "A fast algorithm for optimal length-limited Huffman codes"
//! (1990), for the lengths; F. Giesen, "Reading bits in far too many ways" (2018), for refills
//! without branches.

use infeed_raw::simd::{MAX_BITS, STREAMS, SymbolTable};

/// Code lengths of all byte values; 0 for values that do not occur. A table with a single value has
/// only zeros, and its code has no bits.
pub(super) type Lengths = [u8; 256];

/// Table with a single value, or lengths of a complete code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// Every symbol is this value, and takes no bits.
    Constant(u8),
    /// Complete canonical code.
    Lengths(Box<Lengths>),
}

/// Values that have similar lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeShape {
    /// Numbers: a value has the length of the value before it.
    Numbers,
    /// Bit masks: a value has the length of the last value with as many set bits.
    Masks,
}

/// Predicts the length of a value from those before it.
struct LengthPredictor {
    shape: CodeShape,
    lengths: [u8; 9],
}

impl LengthPredictor {
    fn new(shape: CodeShape) -> LengthPredictor {
        LengthPredictor {
            shape,
            lengths: [4, 5, 6, 7, 8, 8, 8, 8, 8],
        }
    }

    /// Length predicted for a value, to be replaced with its length.
    fn length(&mut self, value: usize) -> &mut u8 {
        match self.shape {
            CodeShape::Numbers => &mut self.lengths[0],
            CodeShape::Masks => &mut self.lengths[value.count_ones().min(8) as usize],
        }
    }
}

impl Code {
    /// Computes the optimal code for a histogram. An empty histogram gives `Constant(0)`.
    pub(super) fn of_counts(counts: &[u32; 256]) -> Code {
        let mut used: Vec<(u64, u8)> = (0..=255u8)
            .filter(|&value| counts[usize::from(value)] > 0)
            .map(|value| (u64::from(counts[usize::from(value)]), value))
            .collect();
        used.sort_unstable();
        match used[..] {
            [] => Code::Constant(0),
            [(_, value)] => Code::Constant(value),
            _ => Code::Lengths(Box::new(limited_lengths(&used))),
        }
    }

    /// Appends the code in the form that `read` reads.
    ///
    /// A byte is the largest value with a code. Bits follow, highest first: 1 for a constant.
    /// Otherwise 0, and for each value up to that one the difference of its length to the length
    /// that `CodeShape` predicts: 0 is the same, 100 one more, 101 one less, 11 and four bits any
    /// length. The last byte is filled with zeros.
    pub(super) fn write(&self, shape: CodeShape, out: &mut Vec<u8>) {
        let lengths = match self {
            Code::Constant(value) => {
                out.extend([*value, 0x80]);
                return;
            }
            Code::Lengths(lengths) => lengths,
        };
        let last = lengths.iter().rposition(|&bits| bits > 0).unwrap_or(0);
        out.push(last as u8);
        let mut bits = BitWriter::default();
        bits.put(0, 1);
        let mut predictor = LengthPredictor::new(shape);
        for (value, &length) in lengths.iter().enumerate().take(last + 1) {
            let predicted = predictor.length(value);
            match i32::from(length) - i32::from(*predicted) {
                0 => bits.put(0, 1),
                1 => bits.put(0b100, 3),
                -1 => bits.put(0b101, 3),
                _ => bits.put(0b11_0000 | u16::from(length), 6),
            }
            *predicted = length;
        }
        out.extend(bits.finish());
    }

    /// Reads a code; returns it and the bytes after it. `None` if the bytes are no complete code.
    pub(super) fn read(shape: CodeShape, bytes: &[u8]) -> Option<(Code, &[u8])> {
        let (&last, rest) = bytes.split_first()?;
        let mut read = 0usize;
        let mut bit = || {
            let byte = *rest.get(read / 8)?;
            read += 1;
            Some(byte >> (7 - (read - 1) % 8) & 1)
        };
        if bit()? == 1 {
            return Some((Code::Constant(last), &rest[1..]));
        }
        let mut lengths = Box::new([0u8; 256]);
        let mut predictor = LengthPredictor::new(shape);
        for (value, length) in lengths.iter_mut().enumerate().take(usize::from(last) + 1) {
            let predicted = predictor.length(value);
            *length = match (bit()?, *predicted) {
                (0, same) => same,
                (_, near) => match (bit()?, bit()?) {
                    (0, 0) => near + 1,
                    (0, _) => near.checked_sub(1)?,
                    (_, high) => high << 3 | bit()? << 2 | bit()? << 1 | bit()?,
                },
            };
            if usize::from(*length) > MAX_BITS {
                return None;
            }
            *predicted = *length;
        }
        let code = Code::Lengths(lengths);
        code.is_complete()
            .then_some((code, &rest[read.div_ceil(8)..]))
    }

    fn is_complete(&self) -> bool {
        match self {
            Code::Constant(_) => true,
            Code::Lengths(lengths) => {
                let sum: usize = lengths
                    .iter()
                    .filter(|&&bits| bits > 0)
                    .map(|&bits| 1 << (MAX_BITS - usize::from(bits)))
                    .sum();
                sum == 1 << MAX_BITS
            }
        }
    }

    /// Bits that a histogram takes in this code, without the code itself. `None` if a value of the
    /// histogram has no code.
    pub(super) fn bits(&self, counts: &[u32; 256]) -> Option<u64> {
        let mut sum = 0;
        for (value, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            sum += match self {
                Code::Constant(only) if usize::from(*only) == value => 0,
                Code::Lengths(lengths) if lengths[value] > 0 => {
                    u64::from(count) * u64::from(lengths[value])
                }
                _ => return None,
            };
        }
        Some(sum)
    }
}

/// Optimal lengths of at most `MAX_BITS` for at least two values in increasing order of their
/// counts, by package-merge.
fn limited_lengths(used: &[(u64, u8)]) -> Lengths {
    // A package is its weight and the number of times it contains each of the lightest values:
    // package-merge always takes the lightest values first, so a prefix count per level suffices.
    let leaves: Vec<u64> = used.iter().map(|&(count, _)| count).collect();
    // `levels[l]` lists the merged items of level l: true for a leaf.
    let mut levels: Vec<Vec<bool>> = Vec::with_capacity(MAX_BITS);
    let mut packages: Vec<u64> = Vec::new();
    for _ in 0..MAX_BITS {
        let mut merged = Vec::with_capacity(leaves.len() + packages.len());
        let mut kinds = Vec::with_capacity(merged.capacity());
        let (mut leaf, mut package) = (0, 0);
        while leaf < leaves.len() || package < packages.len() {
            let take_leaf = package == packages.len()
                || leaf < leaves.len() && leaves[leaf] <= packages[package];
            merged.push(if take_leaf {
                leaves[leaf]
            } else {
                packages[package]
            });
            kinds.push(take_leaf);
            leaf += usize::from(take_leaf);
            package += usize::from(!take_leaf);
        }
        packages = merged
            .chunks_exact(2)
            .map(|pair| pair[0] + pair[1])
            .collect();
        levels.push(kinds);
    }
    let mut lengths = [0u8; 256];
    // The 2n - 2 lightest items of the last level; each package among them stands for two items of
    // the level before.
    let mut take = 2 * leaves.len() - 2;
    for kinds in levels.iter().rev() {
        let taken = &kinds[..take.min(kinds.len())];
        let leaf_count = taken.iter().filter(|&&is_leaf| is_leaf).count();
        for &(_, value) in &used[..leaf_count] {
            lengths[usize::from(value)] += 1;
        }
        take = 2 * (taken.len() - leaf_count);
    }
    lengths
}

/// Code of each value, in the low bits.
fn codes(lengths: &Lengths) -> [u16; 256] {
    let mut codes = [0u16; 256];
    let mut next = 0;
    for bits in 1..=MAX_BITS as u8 {
        for (value, _) in lengths.iter().enumerate().filter(|(_, l)| **l == bits) {
            codes[value] = next;
            next += 1;
        }
        next <<= 1;
    }
    codes
}

/// Fills the lookup table of a code.
pub(super) fn fill_table(code: &Code, table: &mut SymbolTable) {
    let lengths = match code {
        Code::Constant(value) => return table.fill(u16::from(*value) << 8),
        Code::Lengths(lengths) => lengths,
    };
    // Where the codes of each length begin.
    let mut counts = [0usize; 16];
    for &bits in lengths.iter() {
        counts[usize::from(bits & 15)] += 1;
    }
    let mut starts = [0usize; 16];
    for bits in 1..MAX_BITS {
        starts[bits + 1] = starts[bits] + (counts[bits] << (MAX_BITS - bits));
    }
    for (value, &bits) in lengths.iter().enumerate().filter(|(_, bits)| **bits > 0) {
        let start = &mut starts[usize::from(bits & 15)];
        let run = 1usize << MAX_BITS >> bits;
        // A complete code ends exactly at the end of the table.
        if let Some(entries) = table.get_mut(*start..*start + run) {
            entries.fill((value as u16) << 8 | u16::from(bits));
        }
        *start += run;
    }
}

/// Writes the streams of one strip.
#[derive(Debug, Default)]
pub(super) struct StreamWriter {
    streams: [BitWriter; STREAMS],
}

/// Bits, highest first.
#[derive(Debug, Default)]
struct BitWriter {
    bytes: Vec<u8>,
    buffer: u64,
    bits: u32,
}

impl BitWriter {
    fn put(&mut self, value: u16, bits: u32) {
        self.buffer = self.buffer << bits | u64::from(value);
        self.bits += bits;
        if self.bits >= 32 {
            self.bits -= 32;
            let word = (self.buffer >> self.bits) as u32;
            self.bytes.extend(word.to_be_bytes());
        }
    }

    /// Fills the last byte with zeros.
    fn finish(mut self) -> Vec<u8> {
        let word = (self.buffer << (32 - self.bits)) as u32;
        let left = self.bits.div_ceil(8) as usize;
        self.bytes.extend(&word.to_be_bytes()[..left]);
        self.bytes
    }
}

impl StreamWriter {
    /// Appends a segment. Every symbol must have a code.
    pub(super) fn segment(&mut self, code: &Code, symbols: &[u8]) {
        let Code::Lengths(lengths) = code else {
            return;
        };
        let codes = codes(lengths);
        for round in symbols.chunks(STREAMS) {
            for (stream, &symbol) in self.streams.iter_mut().zip(round) {
                let symbol = usize::from(symbol);
                stream.put(codes[symbol], u32::from(lengths[symbol]));
            }
        }
    }

    /// Returns the streams.
    pub(super) fn finish(self) -> [Vec<u8>; STREAMS] {
        self.streams.map(BitWriter::finish)
    }
}

#[cfg(test)]
mod tests {
    use infeed_raw::simd::{Level, StreamReader};

    use super::*;

    fn counts(symbols: &[u8]) -> [u32; 256] {
        let mut counts = [0; 256];
        for &symbol in symbols {
            counts[usize::from(symbol)] += 1;
        }
        counts
    }

    /// Symbols whose frequencies fall by a factor per value.
    fn skewed_symbols(count: usize, shift: u32) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        (0..count)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                ((state >> 33 | 1).leading_zeros() >> shift << 3 | (state >> 61) as u32) as u8
            })
            .collect()
    }

    fn round_trip(segments: &[Vec<u8>]) {
        let mut writer = StreamWriter::default();
        let mut codes = Vec::new();
        for symbols in segments {
            let code = Code::of_counts(&counts(symbols));
            writer.segment(&code, symbols);
            let mut text = Vec::new();
            for shape in [CodeShape::Masks, CodeShape::Numbers] {
                text.clear();
                code.write(shape, &mut text);
                text.push(0xAB);
                let (read, rest) = Code::read(shape, &text).unwrap();
                assert_eq!((&read, rest), (&code, &[0xAB][..]));
            }
            codes.push(code);
        }
        let streams = writer.finish();
        for level in Level::available() {
            let mut reader = StreamReader::new(level, std::array::from_fn(|i| &streams[i][..]));
            let mut table = [0; 1 << MAX_BITS];
            for (symbols, code) in segments.iter().zip(&codes) {
                let mut out = vec![0; symbols.len()];
                fill_table(code, &mut table);
                reader.segment(&table, &mut out);
                assert_eq!(&out, symbols, "{level:?}");
            }
        }
    }

    #[test]
    fn segments_of_any_length_and_skew_round_trip() {
        for count in [0, 1, 2, 7, 8, 9, 39, 40, 41, 79, 1000, 4999] {
            round_trip(&[
                skewed_symbols(count, 0),
                skewed_symbols(count / 2, 1),
                vec![7; count],
            ]);
        }
    }

    #[test]
    fn codes_are_complete_and_at_most_11_bits_for_the_most_skewed_counts() {
        let mut fibonacci = [0u32; 256];
        let (mut a, mut b) = (1u32, 1u32);
        for count in fibonacci.iter_mut().take(40) {
            *count = a;
            (a, b) = (b, a + b);
        }
        let code = Code::of_counts(&fibonacci);

        assert!(code.is_complete());
        let Code::Lengths(lengths) = code else {
            panic!("40 values")
        };
        assert!(lengths.iter().all(|&bits| usize::from(bits) <= MAX_BITS));
    }

    #[test]
    fn a_code_that_is_not_complete_is_rejected() {
        fn read(bytes: &[u8]) -> Option<Code> {
            Code::read(CodeShape::Numbers, bytes).map(|(code, _)| code)
        }
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[2]), None, "no bits");
        assert_eq!(read(&[0, 0]), None, "one code of four bits");
        // 0, 11 0001, 0, 0: three codes of one bit.
        assert_eq!(read(&[2, 0b0110_0010, 0]), None);
        assert_eq!(read(&[0, 0b0111_1000]), None, "a code of 12 bits");
        // 0, 11 0001, 0: two codes of one bit.
        assert!(read(&[1, 0b0110_0010]).is_some());
        assert_eq!(read(&[9, 0x80]), Some(Code::Constant(9)));
    }
}
