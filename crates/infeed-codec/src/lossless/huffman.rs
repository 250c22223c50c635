//! Canonical Huffman codes of bytes, in eight interleaved bit streams.
//!
//! A code has at most 11 bits. Symbol *i* of a segment is in stream *i* mod 8, so that a decoder
//! has eight independent chains of table lookups in flight. The segments of a strip follow each
//! other in the same streams, each with its own table; a segment begins at stream 0.
//!
//! Source: D. A. Huffman, "A method for the construction of minimum-redundancy codes" (1952);
//! L. Larmore and D. Hirschberg, "A fast algorithm for optimal length-limited Huffman codes"
//! (1990), for the lengths; F. Giesen, "Reading bits in far too many ways" (2018), for the refill
//! without branches.

/// Bits of the longest code.
pub(super) const MAX_BITS: usize = 11;

/// Interleaved streams of a strip.
pub(super) const STREAMS: usize = 8;

/// Symbols that one refill of 56 bits always holds.
const PER_REFILL: usize = 5;

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
    /// The form is a sequence of nibbles, high nibble first, for the values from 0 on: 0 to 11 is
    /// the length of one value; 12, n repeats the previous length 3 + n times; 13, n is 3 + n
    /// zeros; 14, m, n is 19 + 16 m + n zeros; 15 ends the code: all later lengths are 0. A
    /// constant is 15, 0 and the value as a byte.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let lengths = match self {
            Code::Constant(value) => {
                out.extend([0xF0, *value]);
                return;
            }
            Code::Lengths(lengths) => lengths,
        };
        let mut nibbles = Vec::new();
        let end = lengths
            .iter()
            .rposition(|&bits| bits > 0)
            .map_or(0, |at| at + 1);
        let mut at = 0;
        let mut previous = 0;
        while at < end {
            let bits = lengths[at];
            let run = lengths[at..end].iter().take_while(|&&b| b == bits).count();
            if bits == 0 && run >= 19 {
                let run = run.min(19 + 255);
                nibbles.extend([14, ((run - 19) >> 4) as u8, ((run - 19) & 15) as u8]);
                at += run;
            } else if run >= 3 && (bits == 0 || bits == previous) {
                let run = run.min(18);
                nibbles.extend([if bits == 0 { 13 } else { 12 }, (run - 3) as u8]);
                at += run;
            } else {
                nibbles.push(bits);
                at += 1;
            }
            previous = bits;
        }
        nibbles.push(15);
        if nibbles.len() % 2 == 1 {
            nibbles.push(0);
        }
        out.extend(nibbles.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]));
    }

    /// Reads a code; returns it and the bytes after it. `None` if the bytes are no complete code.
    pub(super) fn read(bytes: &[u8]) -> Option<(Code, &[u8])> {
        if let [0xF0, value, rest @ ..] = bytes {
            return Some((Code::Constant(*value), rest));
        }
        let mut lengths = Box::new([0u8; 256]);
        let mut nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let (mut at, mut read, mut previous) = (0usize, 0usize, 0u8);
        loop {
            let mut next = || {
                read += 1;
                nibbles.next()
            };
            let (bits, run) = match next()? {
                15 => break,
                12 => (previous, 3 + usize::from(next()?)),
                13 => (0, 3 + usize::from(next()?)),
                14 => (0, 19 + (usize::from(next()?) << 4) + usize::from(next()?)),
                bits => (bits, 1),
            };
            lengths.get_mut(at..at + run)?.fill(bits);
            at += run;
            previous = bits;
        }
        let code = Code::Lengths(lengths);
        code.is_complete()
            .then_some((code, &bytes[read.div_ceil(2)..]))
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

/// First code of each value, in the high bits of 16.
fn codes(lengths: &Lengths) -> [u16; 256] {
    let mut codes = [0u16; 256];
    let mut next = 0u32;
    for bits in 1..=MAX_BITS as u8 {
        for (value, _) in lengths.iter().enumerate().filter(|(_, l)| **l == bits) {
            codes[value] = (next << (16 - MAX_BITS)) as u16;
            next += 1 << (MAX_BITS - usize::from(bits));
        }
    }
    codes
}

/// Lookup table: for the next `MAX_BITS` bits, the value in the high byte and the length in the
/// low one.
pub(super) type Table = [u16; 1 << MAX_BITS];

/// Fills the lookup table of a code.
pub(super) fn fill_table(code: &Code, table: &mut Table) {
    match code {
        Code::Constant(value) => table.fill(u16::from(*value) << 8),
        Code::Lengths(lengths) => {
            let mut at = 0;
            for bits in 1..=MAX_BITS as u8 {
                for (value, _) in lengths.iter().enumerate().filter(|(_, l)| **l == bits) {
                    let run = 1 << (MAX_BITS - usize::from(bits));
                    let entry = (value as u16) << 8 | u16::from(bits);
                    // A complete code ends exactly at the end of the table.
                    if let Some(entries) = table.get_mut(at..at + run) {
                        entries.fill(entry);
                    }
                    at += run;
                }
            }
        }
    }
}

/// Writes the streams of one strip.
#[derive(Debug, Default)]
pub(super) struct StreamWriter {
    streams: [BitWriter; STREAMS],
}

#[derive(Debug, Default)]
struct BitWriter {
    bytes: Vec<u8>,
    buffer: u64,
    bits: u32,
}

impl StreamWriter {
    /// Appends a segment. Every symbol must have a code.
    pub(super) fn segment(&mut self, code: &Code, symbols: &[u8]) {
        let Code::Lengths(lengths) = code else {
            return;
        };
        let codes = codes(lengths);
        for (i, &symbol) in symbols.iter().enumerate() {
            let symbol = usize::from(symbol);
            let bits = u32::from(lengths[symbol]);
            let stream = &mut self.streams[i % STREAMS];
            stream.buffer |= u64::from(codes[symbol]) << 48 >> stream.bits;
            stream.bits += bits;
            while stream.bits >= 8 {
                stream.bytes.push((stream.buffer >> 56) as u8);
                stream.buffer <<= 8;
                stream.bits -= 8;
            }
        }
    }

    /// Returns the streams.
    pub(super) fn finish(self) -> [Vec<u8>; STREAMS] {
        self.streams.map(|mut stream| {
            if stream.bits > 0 {
                stream.bytes.push((stream.buffer >> 56) as u8);
            }
            stream.bytes
        })
    }
}

/// Reads the streams of one strip. Reading past the end of a stream gives zero bits.
#[derive(Debug)]
pub(super) struct StreamReader<'a> {
    streams: [&'a [u8]; STREAMS],
    /// Byte after those in the buffer.
    at: [usize; STREAMS],
    /// Next bits, from the highest down.
    buffer: [u64; STREAMS],
    /// Valid bits of the buffer.
    bits: [u32; STREAMS],
}

impl<'a> StreamReader<'a> {
    pub(super) fn new(streams: [&'a [u8]; STREAMS]) -> StreamReader<'a> {
        StreamReader {
            streams,
            at: [0; STREAMS],
            buffer: [0; STREAMS],
            bits: [0; STREAMS],
        }
    }

    /// Decodes a segment of `out.len()` symbols.
    pub(super) fn segment(&mut self, table: &Table, out: &mut [u8]) {
        let mut rounds = out.chunks_exact_mut(STREAMS * PER_REFILL);
        let (mut at, mut buffer, mut bits) = (self.at, self.buffer, self.bits);
        for round in &mut rounds {
            refill(&self.streams, &mut at, &mut buffer, &mut bits);
            for symbols in round.chunks_exact_mut(STREAMS) {
                for i in 0..STREAMS {
                    let entry = table[(buffer[i] >> (64 - MAX_BITS)) as usize];
                    symbols[i] = (entry >> 8) as u8;
                    buffer[i] <<= entry & 15;
                    bits[i] = bits[i].wrapping_sub(u32::from(entry & 15));
                }
            }
        }
        refill(&self.streams, &mut at, &mut buffer, &mut bits);
        for (i, symbol) in rounds.into_remainder().iter_mut().enumerate() {
            let i = i % STREAMS;
            let entry = table[(buffer[i] >> (64 - MAX_BITS)) as usize];
            *symbol = (entry >> 8) as u8;
            buffer[i] <<= entry & 15;
            bits[i] = bits[i].wrapping_sub(u32::from(entry & 15));
        }
        (self.at, self.buffer, self.bits) = (at, buffer, bits);
    }
}

/// Fills each buffer to at least 56 bits.
#[inline(always)]
fn refill(
    streams: &[&[u8]; STREAMS],
    at: &mut [usize; STREAMS],
    buffer: &mut [u64; STREAMS],
    bits: &mut [u32; STREAMS],
) {
    for i in 0..STREAMS {
        let next = match streams[i].get(at[i]..at[i] + 8) {
            Some(bytes) => u64::from_be_bytes(bytes.try_into().unwrap_or([0; 8])),
            None => last_bytes(streams[i], at[i]),
        };
        buffer[i] |= next >> bits[i];
        at[i] += ((63 - bits[i]) >> 3) as usize;
        bits[i] |= 56;
    }
}

/// The next 8 bytes near the end of a stream, followed by zeros.
#[cold]
fn last_bytes(stream: &[u8], at: usize) -> u64 {
    let rest = stream.get(at..).unwrap_or(&[]);
    let mut bytes = [0; 8];
    bytes[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(symbols: &[u8]) -> [u32; 256] {
        let mut counts = [0; 256];
        for &symbol in symbols {
            counts[usize::from(symbol)] += 1;
        }
        counts
    }

    /// Symbols whose frequencies fall by a factor per value.
    fn skewed(count: usize, shift: u32) -> Vec<u8> {
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
            code.write(&mut text);
            text.push(0xAB);
            let (read, rest) = Code::read(&text).unwrap();
            assert_eq!((&read, rest), (&code, &[0xAB][..]));
            codes.push(read);
        }
        let streams = writer.finish();
        let mut reader = StreamReader::new(std::array::from_fn(|i| &streams[i][..]));
        let mut table = [0; 1 << MAX_BITS];
        for (symbols, code) in segments.iter().zip(&codes) {
            let mut out = vec![0; symbols.len()];
            fill_table(code, &mut table);
            reader.segment(&table, &mut out);
            assert_eq!(&out, symbols);
        }
    }

    #[test]
    fn segments_of_any_length_and_skew_round_trip() {
        for count in [0, 1, 2, 7, 8, 9, 39, 40, 41, 79, 1000, 4999] {
            round_trip(&[skewed(count, 0), skewed(count / 2, 1), vec![7; count]]);
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
        assert_eq!(Code::read(&[]), None);
        assert_eq!(Code::read(&[0x11, 0x1F]), None, "three codes of one bit");
        assert_eq!(Code::read(&[0x2F]), None, "one code of two bits");
        assert_eq!(
            Code::read(&[0xEF, 0xFF, 0xEF, 0xFF]),
            None,
            "past value 255"
        );
        assert!(Code::read(&[0x11, 0xF0]).is_some());
    }
}
