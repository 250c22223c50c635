//! Expands the symbols of 8x8 blocks to coefficients.
//!
//! A block is a mask of its nonzero AC coefficients in zigzag order and a code for each: twice the
//! magnitude plus 1 for negative values. Codes of large magnitudes have one or two more bytes, see
//! [`LONG`], [`ESCAPE`] and `docs/formats/jpeg-coefficients.md`.

use super::Level;
use crate::jpeg_coefficients::CoefficientBlock;

/// Position in row order of each coefficient in zigzag order (ITU-T T.81, figure A.6).
pub const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// First code with another byte in the list of long values. The codes `LONG` to 253 are ranges of
/// 256 magnitudes each, one code for positive and one for negative values; the byte is the position
/// in the range.
pub const LONG: u8 = 238;

/// Code of a coefficient that is in the list of long values, in 16 bits, little-endian.
pub const ESCAPE: u8 = 255;

/// Bytes after the codes of coefficients, of any value, so that 64 bytes can be loaded at each.
pub const PADDING: usize = 64;

/// The symbols of one class of blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockSymbols<'a> {
    /// DC coefficient of each block.
    pub dc: &'a [i16],
    /// Nonzero coefficients of each block: bit *i* is the coefficient *i* in zigzag order.
    pub masks: &'a [u64],
    /// Codes of the coefficients 1 to 7, then [`PADDING`].
    pub low: &'a [u8],
    /// Codes of the other coefficients, then [`PADDING`].
    pub high: &'a [u8],
    /// The other bytes of the codes from [`LONG`] on.
    pub long: &'a [u8],
}

/// Positions of the next block and its symbols.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockCursor {
    block: usize,
    low: usize,
    high: usize,
    long: usize,
}

type ExpandBlocks = fn(&BlockSymbols<'_>, &mut BlockCursor, &mut [CoefficientBlock]);
type AssembleMasks = fn(&[u8], [&[u8]; 8], &mut [u64]);

/// Expands symbols with the best instructions of this processor. The result does not depend on
/// them.
#[derive(Clone, Copy, Debug)]
pub struct BlockExpander {
    expand: ExpandBlocks,
    assemble: AssembleMasks,
}

impl BlockExpander {
    /// Chooses the instructions of a level.
    pub fn new(level: Level) -> BlockExpander {
        #[cfg(target_arch = "x86_64")]
        if level == Level::Avx512
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("bmi2")
        {
            return BlockExpander {
                // SAFETY: the processor has the instructions of the level and the sets that were
                // just tested, which are all that the function enables.
                expand: |symbols, cursor, out| unsafe { x86::expand(symbols, cursor, out) },
                // SAFETY: likewise.
                assemble: |counts, bytes, masks| unsafe { x86::assemble(counts, bytes, masks) },
            };
        }
        let _ = level;
        BlockExpander {
            expand: expand_portable,
            assemble: assemble_portable,
        }
    }

    /// Writes the coefficients of the next blocks, in row order. `out` must be zero. Blocks and
    /// symbols beyond the end are zero.
    #[inline]
    pub fn expand(
        &self,
        symbols: &BlockSymbols<'_>,
        cursor: &mut BlockCursor,
        out: &mut [CoefficientBlock],
    ) {
        (self.expand)(symbols, cursor, out);
    }

    /// Writes the mask of each block. `counts` are the numbers of mask bytes of the blocks, and
    /// `bytes` those bytes: the first of every block that has one, then the second, and so on.
    /// Missing bytes are zero.
    pub fn assemble(&self, counts: &[u8], bytes: [&[u8]; 8], masks: &mut [u64]) {
        (self.assemble)(counts, bytes, masks);
    }
}

fn assemble_portable(counts: &[u8], bytes: [&[u8]; 8], masks: &mut [u64]) {
    let mut next = [0; 8];
    for (&count, mask) in counts.iter().zip(masks) {
        let mut parts = [0; 8];
        for at in 0..8 {
            // Without a branch: the number of bytes cannot be predicted.
            let has = usize::from(usize::from(count) > at);
            parts[at] = bytes[at].get(next[at]).copied().unwrap_or(0) * has as u8;
            next[at] += has;
        }
        *mask = u64::from_le_bytes(parts);
    }
}

fn expand_portable(
    symbols: &BlockSymbols<'_>,
    cursor: &mut BlockCursor,
    out: &mut [CoefficientBlock],
) {
    for block in out {
        let mask = symbols.masks.get(cursor.block).copied().unwrap_or(0);
        block[0] = symbols.dc.get(cursor.block).copied().unwrap_or(0);
        cursor.block += 1;
        for (half, codes, at) in [
            (mask & 0xFE, symbols.low, &mut cursor.low),
            (mask & !0xFF, symbols.high, &mut cursor.high),
        ] {
            let mut bits = half;
            while bits != 0 {
                let to = usize::from(ZIGZAG[bits.trailing_zeros() as usize & 63]);
                bits &= bits - 1;
                let code = codes.get(*at).copied().unwrap_or(0);
                *at += 1;
                block[to] = if code >= LONG {
                    long_value(code, symbols.long, &mut cursor.long)
                } else {
                    signed(code, i16::from(code >> 1))
                };
            }
        }
    }
}

#[inline(always)]
fn signed(code: u8, magnitude: i16) -> i16 {
    let sign = -i16::from(code & 1);
    (magnitude ^ sign) - sign
}

/// The coefficient of a code of at least `LONG`.
fn long_value(code: u8, long: &[u8], at: &mut usize) -> i16 {
    let mut byte = || {
        *at += 1;
        long.get(*at - 1).copied().unwrap_or(0)
    };
    if code == ESCAPE {
        return i16::from_le_bytes([byte(), byte()]);
    }
    let range = i16::from((code - LONG) >> 1);
    signed(
        code,
        i16::from(LONG >> 1) + (range << 8) + i16::from(byte()),
    )
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{BlockCursor, BlockSymbols, LONG, PADDING, ZIGZAG, long_value};
    use crate::jpeg_coefficients::CoefficientBlock;

    /// For each byte in row order, the position in zigzag order.
    const FROM: [u8; 64] = {
        let mut from = [0; 64];
        let mut at = 0;
        while at < 64 {
            from[ZIGZAG[at] as usize] = at as u8;
            at += 1;
        }
        from
    };

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn load(bytes: &[u8; 64]) -> __m512i {
        // SAFETY: reads the 64 bytes of the array.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    /// 64 bytes from a position; zeros beyond the end.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn codes(data: &[u8], at: usize) -> __m512i {
        match data
            .get(at..at + PADDING)
            .and_then(|bytes| bytes.try_into().ok())
        {
            Some(bytes) => load(bytes),
            None => _mm512_setzero_si512(),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn values(codes: __m256i) -> __m512i {
        let wide = _mm512_cvtepu8_epi16(codes);
        let magnitude = _mm512_srli_epi16::<1>(wide);
        let negative = _mm512_test_epi16_mask(wide, _mm512_set1_epi16(1));
        _mm512_mask_sub_epi16(magnitude, negative, _mm512_setzero_si512(), magnitude)
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt,lzcnt"
    )]
    pub(super) fn expand(
        symbols: &BlockSymbols<'_>,
        cursor: &mut BlockCursor,
        out: &mut [CoefficientBlock],
    ) {
        let order = load(&FROM);
        for block in out {
            let mask = symbols.masks.get(cursor.block).copied().unwrap_or(0) & !1;
            let dc = symbols.dc.get(cursor.block).copied().unwrap_or(0);
            cursor.block += 1;
            let (low, high) = (mask & 0xFF, mask & !0xFF);
            let found = _mm512_or_si512(
                _mm512_maskz_expand_epi8(low, codes(symbols.low, cursor.low)),
                _mm512_maskz_expand_epi8(high, codes(symbols.high, cursor.high)),
            );
            cursor.low += low.count_ones() as usize;
            cursor.high += high.count_ones() as usize;
            let ordered = _mm512_permutexvar_epi8(order, found);
            let (head, tail) = block.split_at_mut(32);
            // SAFETY: each half of the block has 32 coefficients of 16 bits.
            unsafe {
                _mm512_storeu_si512(
                    head.as_mut_ptr().cast(),
                    values(_mm512_castsi512_si256(ordered)),
                );
                _mm512_storeu_si512(
                    tail.as_mut_ptr().cast(),
                    values(_mm512_extracti64x4_epi64::<1>(ordered)),
                );
            }
            block[0] = dc;
            let mut long = _mm512_cmpge_epu8_mask(found, _mm512_set1_epi8(LONG as i8));
            if long == 0 {
                continue;
            }
            let mut codes = [0; 64];
            // SAFETY: writes the 64 bytes of the array.
            unsafe { _mm512_storeu_si512(codes.as_mut_ptr().cast(), found) };
            while long != 0 {
                let at = long.trailing_zeros() as usize & 63;
                long &= long - 1;
                block[usize::from(ZIGZAG[at])] =
                    long_value(codes[at], symbols.long, &mut cursor.long);
            }
        }
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt,lzcnt"
    )]
    pub(super) fn assemble(counts: &[u8], mut bytes: [&[u8]; 8], masks: &mut [u64]) {
        for (counts, masks) in counts.chunks(64).zip(masks.chunks_mut(64)) {
            let counts = load_start(counts);
            // Plane *i* has byte *i* of 64 masks.
            let mut planes = [_mm512_setzero_si512(); 8];
            for (at, (plane, bytes)) in planes.iter_mut().zip(&mut bytes).enumerate() {
                let has = _mm512_cmpgt_epu8_mask(counts, _mm512_set1_epi8(at as i8));
                *plane = _mm512_maskz_expand_epi8(has, load_start(bytes));
                *bytes = bytes.get(has.count_ones() as usize..).unwrap_or(&[]);
            }
            // Transposes 8x8 bytes: pairs, then groups of 4, then masks. Each lane of 128 bits
            // holds 16 masks.
            let [a, b, c, d, e, f, g, h] = planes;
            let (ab, cd, ef, gh) = (
                [_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)],
                [_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d)],
                [_mm512_unpacklo_epi8(e, f), _mm512_unpackhi_epi8(e, f)],
                [_mm512_unpacklo_epi8(g, h), _mm512_unpackhi_epi8(g, h)],
            );
            let mut block = [0u64; 64];
            for half in 0..2 {
                let low = [
                    _mm512_unpacklo_epi16(ab[half], cd[half]),
                    _mm512_unpackhi_epi16(ab[half], cd[half]),
                ];
                let high = [
                    _mm512_unpacklo_epi16(ef[half], gh[half]),
                    _mm512_unpackhi_epi16(ef[half], gh[half]),
                ];
                for quarter in 0..2 {
                    let pairs = [
                        _mm512_unpacklo_epi32(low[quarter], high[quarter]),
                        _mm512_unpackhi_epi32(low[quarter], high[quarter]),
                    ];
                    for (at, pair) in pairs.into_iter().enumerate() {
                        let mut lanes = [0u64; 8];
                        // SAFETY: writes the 64 bytes of the array.
                        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), pair) };
                        for (lane, masks) in lanes.chunks_exact(2).enumerate() {
                            let to = 16 * lane + 8 * half + 4 * quarter + 2 * at;
                            block[to..to + 2].copy_from_slice(masks);
                        }
                    }
                }
            }
            let count = masks.len();
            masks.copy_from_slice(&block[..count]);
        }
    }

    /// Mask of the first `count` lanes, at most all 64.
    #[inline]
    #[target_feature(enable = "bmi2")]
    fn first(count: usize) -> u64 {
        _bzhi_u64(!0, count.min(64) as u32)
    }

    /// The first 64 bytes of a slice; zeros follow its end.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2")]
    fn load_start(bytes: &[u8]) -> __m512i {
        // SAFETY: reads the first bytes of the slice, up to its length and at most 64.
        unsafe { _mm512_maskz_loadu_epi8(first(bytes.len()), bytes.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random.
    fn numbers(count: usize) -> Vec<u64> {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        (0..count)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            })
            .collect()
    }

    #[test]
    fn every_level_writes_the_same_coefficients() {
        let numbers = numbers(8000);
        let counts: Vec<u8> = numbers.iter().take(300).map(|n| (n % 9) as u8).collect();
        let bytes: Vec<u8> = numbers.iter().map(|&n| (n >> 24) as u8).collect();
        let codes: Vec<u8> = numbers.iter().map(|&n| (n >> 32) as u8).collect();
        let dc: Vec<i16> = numbers.iter().take(300).map(|&n| n as i16).collect();
        let expand = |level: Level| {
            let expander = BlockExpander::new(level);
            let mut masks = vec![0; counts.len()];
            expander.assemble(&counts, std::array::from_fn(|at| &bytes[at..]), &mut masks);
            let symbols = BlockSymbols {
                dc: &dc,
                masks: &masks,
                low: &codes,
                high: &codes[1..],
                long: &bytes,
            };
            // More blocks than there are, in calls of several lengths.
            let mut blocks = vec![[0; 64]; 310];
            let mut cursor = BlockCursor::default();
            for part in blocks.chunks_mut(7) {
                expander.expand(&symbols, &mut cursor, part);
            }
            blocks
        };
        let expected = expand(Level::Scalar);

        assert!(
            expected
                .iter()
                .flatten()
                .filter(|&&value| value != 0)
                .count()
                > 3000
        );
        assert!(
            expected
                .iter()
                .any(|block| block.iter().any(|v| v.unsigned_abs() > 1000))
        );
        for level in Level::available() {
            assert!(expand(level) == expected, "{level:?}");
        }
    }

    #[test]
    fn a_code_is_a_magnitude_with_a_sign() {
        let mut blocks = [[0; 64]; 1];
        let symbols = BlockSymbols {
            dc: &[-5],
            masks: &[1 << 63 | 1 << 8 | 0b110],
            low: &[3, ESCAPE],
            high: &[LONG, 253],
            long: &[0x00, 0xFE, 7, 255],
        };
        BlockExpander::new(Level::Scalar).expand(
            &symbols,
            &mut BlockCursor::default(),
            &mut blocks,
        );

        let found: Vec<(usize, i16)> = blocks[0]
            .iter()
            .enumerate()
            .filter_map(|(at, &value)| (value != 0).then_some((at, value)))
            .collect();
        assert_eq!(found, [(0, -5), (1, -1), (8, -512), (17, 126), (63, -2166)]);
    }
}
