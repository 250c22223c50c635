//! Decodes bytes with Huffman codes from eight interleaved bit streams.
//!
//! Symbol *i* of a segment is in stream *i* mod 8, so that eight independent chains of table lookups
//! are in flight. Segments follow each other in the same streams; each begins at stream 0.
//!
//! Source: F. Giesen, "Reading bits in far too many ways" (2018), for refills without branches.

use super::Level;

/// Bits of the longest code.
pub const MAX_BITS: usize = 11;

/// Number of interleaved streams.
pub const STREAMS: usize = 8;

/// For the next [`MAX_BITS`] bits, the symbol in the high byte and its length in the low one, at
/// most `MAX_BITS`.
pub type SymbolTable = [u16; 1 << MAX_BITS];

/// Symbols of a stream that one refill of at least 56 bits always holds.
const PER_REFILL: usize = 5;

type DecodeSegment = fn(&mut BitStreams<'_>, &SymbolTable, &mut [u8]);

/// Reads segments from eight streams. Reading past the end of a stream gives zero bits.
#[derive(Debug)]
pub struct StreamReader<'a> {
    state: BitStreams<'a>,
    decode: DecodeSegment,
}

#[derive(Debug)]
struct BitStreams<'a> {
    streams: [&'a [u8]; STREAMS],
    /// Byte of each stream at which `buffer` was filled.
    at: [usize; STREAMS],
    /// Next bits, from the highest down. The lowest set bit marks the end: the number of zeros
    /// below it is the number of bits used since the buffer was filled.
    buffer: [u64; STREAMS],
}

impl<'a> StreamReader<'a> {
    /// Starts at the first bit of each stream, highest bits first.
    pub fn new(level: Level, streams: [&'a [u8]; STREAMS]) -> StreamReader<'a> {
        StreamReader {
            state: BitStreams {
                streams,
                at: [0; STREAMS],
                buffer: streams.map(|stream| word(stream, 0) | 1),
            },
            decode: choose(level),
        }
    }

    /// Decodes a segment of `out.len()` symbols.
    pub fn segment(&mut self, table: &SymbolTable, out: &mut [u8]) {
        (self.decode)(&mut self.state, table, out);
    }
}

fn choose(level: Level) -> DecodeSegment {
    #[cfg(target_arch = "x86_64")]
    if matches!(level, Level::Avx2 | Level::Avx512)
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
    {
        #[target_feature(enable = "bmi1,bmi2")]
        fn with_bmi2(state: &mut BitStreams<'_>, table: &SymbolTable, out: &mut [u8]) {
            decode(state, table, out);
        }
        // SAFETY: the processor has the instructions that the function enables, just tested.
        return |state, table, out| unsafe { with_bmi2(state, table, out) };
    }
    let _ = level;
    |state, table, out| decode(state, table, out)
}

#[inline(always)]
fn decode(state: &mut BitStreams<'_>, table: &SymbolTable, out: &mut [u8]) {
    let BitStreams {
        streams,
        mut at,
        mut buffer,
    } = *state;
    let mut rounds = out.chunks_exact_mut(STREAMS * PER_REFILL);
    for round in &mut rounds {
        refill(&streams, &mut at, &mut buffer);
        for symbols in round.chunks_exact_mut(STREAMS) {
            for (symbol, buffer) in symbols.iter_mut().zip(&mut buffer) {
                *symbol = next(table, buffer);
            }
        }
    }
    refill(&streams, &mut at, &mut buffer);
    for (i, symbol) in rounds.into_remainder().iter_mut().enumerate() {
        *symbol = next(table, &mut buffer[i % STREAMS]);
    }
    (state.at, state.buffer) = (at, buffer);
}

#[inline(always)]
fn next(table: &SymbolTable, buffer: &mut u64) -> u8 {
    let entry = table[(*buffer >> (64 - MAX_BITS)) as usize];
    // The processor uses only the low 6 bits of the distance, which are the length.
    *buffer = buffer.wrapping_shl(u32::from(entry));
    (entry >> 8) as u8
}

/// Fills each buffer to at least 56 bits.
#[inline(always)]
fn refill(streams: &[&[u8]; STREAMS], at: &mut [usize; STREAMS], buffer: &mut [u64; STREAMS]) {
    for i in 0..STREAMS {
        let used = buffer[i].trailing_zeros();
        at[i] += (used >> 3) as usize;
        buffer[i] = (word(streams[i], at[i]) | 1) << (used & 7);
    }
}

/// The next 8 bytes of a stream; zeros follow the end.
#[inline(always)]
fn word(stream: &[u8], at: usize) -> u64 {
    match stream.get(at..at + 8) {
        Some(bytes) => u64::from_be_bytes(bytes.try_into().unwrap_or([0; 8])),
        None => last_word(stream, at),
    }
}

#[cold]
fn last_word(stream: &[u8], at: usize) -> u64 {
    let rest = stream.get(at..).unwrap_or(&[]);
    let mut bytes = [0; 8];
    bytes[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_read_from_the_streams_in_turn_and_zeros_follow_their_end() {
        // One code of one bit, and two of two bits.
        let mut table = [0; 1 << MAX_BITS];
        for (i, entry) in table.iter_mut().enumerate() {
            *entry = match i >> (MAX_BITS - 2) {
                0 | 1 => u16::from(b'a') << 8 | 1,
                2 => u16::from(b'b') << 8 | 2,
                _ => u16::from(b'c') << 8 | 2,
            };
        }
        // a b c, then the end.
        let first = [0b0101_1000u8];
        for level in Level::available() {
            let mut streams = [&[][..]; STREAMS];
            streams[1] = &first;
            let mut reader = StreamReader::new(level, streams);
            let mut out = [0; 100];
            let (head, tail) = out.split_at_mut(10);
            reader.segment(&table, head);
            reader.segment(&table, tail);

            assert_eq!(&out[..10], b"aaaaaaaaab", "{level:?}");
            assert_eq!(&out[10..28], b"acaaaaaaaaaaaaaaaa", "{level:?}");
            assert!(out[28..].iter().all(|&symbol| symbol == b'a'));
        }
    }
}
