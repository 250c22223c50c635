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
            && level.is_available()
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
        #[cfg(target_arch = "x86_64")]
        if matches!(level, Level::Avx2 | Level::Avx512)
            && level.is_available()
            && is_x86_feature_detected!("popcnt")
        {
            return BlockExpander {
                // SAFETY: the processor has AVX2, which both levels include, and POPCNT: both were
                // just tested.
                expand: |symbols, cursor, out| unsafe { avx2::expand(symbols, cursor, out) },
                assemble: assemble_portable,
            };
        }
        #[cfg(target_arch = "aarch64")]
        if level == Level::Neon {
            return BlockExpander {
                expand: neon::expand,
                assemble: assemble_portable,
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
                    apply_sign(code, i16::from(code >> 1))
                };
            }
        }
    }
}

#[inline(always)]
fn apply_sign(code: u8, magnitude: i16) -> i16 {
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
    apply_sign(
        code,
        i16::from(LONG >> 1) + (range << 8) + i16::from(byte()),
    )
}

/// For each coefficient in row order, the position in zigzag order.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const FROM: [u8; 64] = {
    let mut from = [0; 64];
    let mut at = 0;
    while at < 64 {
        from[ZIGZAG[at] as usize] = at as u8;
        at += 1;
    }
    from
};

/// Index of a byte that becomes zero.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const NONE: u8 = 0x80;

/// For each mask of 8 coefficients, the index of the code of each.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static SPREAD: [[u8; 8]; 256] = {
    let mut spread = [[NONE; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut at, mut code) = (0, 0);
        while at < 8 {
            if mask >> at & 1 == 1 {
                spread[mask][at] = code;
                code += 1;
            }
            at += 1;
        }
        mask += 1;
    }
    spread
};

/// Without the instructions that expand bytes by a mask: shuffles from tables, 8 codes at a time.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{BlockCursor, BlockSymbols, FROM, LONG, NONE, SPREAD, ZIGZAG, long_value};
    use crate::jpeg_coefficients::CoefficientBlock;

    /// For both halves of a block in row order, the index of each code among each 16 codes in
    /// zigzag order.
    static ORDER: [[[u8; 32]; 4]; 2] = {
        let mut order = [[[NONE; 32]; 4]; 2];
        let mut to = 0;
        while to < 64 {
            let from = FROM[to];
            order[to / 32][from as usize / 16][to % 32] = from % 16;
            to += 1;
        }
        order
    };

    /// Codes of 8 coefficients, of which the first of `codes` are those in the mask. The upper
    /// half has any value.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn spread(codes: &[u8], at: usize, mask: u8) -> __m128i {
        let codes = codes.get(at..).and_then(|codes| codes.first_chunk());
        let codes = codes.map_or(0, |codes| i64::from_le_bytes(*codes));
        let index = i64::from_le_bytes(SPREAD[usize::from(mask)]);
        _mm_shuffle_epi8(_mm_cvtsi64_si128(codes), _mm_cvtsi64_si128(index))
    }

    /// Writes the values of 16 codes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn write(codes: __m128i, out: &mut [i16; 16]) {
        let wide = _mm256_cvtepu8_epi16(codes);
        let magnitude = _mm256_srli_epi16::<1>(wide);
        let bit = _mm256_and_si256(wide, _mm256_set1_epi16(1));
        let sign = _mm256_sub_epi16(_mm256_setzero_si256(), bit);
        let value = _mm256_sub_epi16(_mm256_xor_si256(magnitude, sign), sign);
        // SAFETY: writes the 16 values of the array.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), value) };
    }

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn expand(
        symbols: &BlockSymbols<'_>,
        cursor: &mut BlockCursor,
        out: &mut [CoefficientBlock],
    ) {
        for block in out {
            let mask = symbols.masks.get(cursor.block).copied().unwrap_or(0) & !1;
            let dc = symbols.dc.get(cursor.block).copied().unwrap_or(0);
            cursor.block += 1;
            let high = mask & !0xFF;
            let mut eights = [spread(symbols.low, cursor.low, mask as u8); 8];
            for (group, eight) in eights.iter_mut().enumerate().skip(1) {
                let before = high & ((1 << (8 * group)) - 1);
                let at = cursor.high + before.count_ones() as usize;
                *eight = spread(symbols.high, at, (mask >> (8 * group)) as u8);
            }
            cursor.low += (mask & 0xFF).count_ones() as usize;
            cursor.high += high.count_ones() as usize;
            let [a, b, c, d, e, f, g, h] = eights;
            let found = [
                _mm_unpacklo_epi64(a, b),
                _mm_unpacklo_epi64(c, d),
                _mm_unpacklo_epi64(e, f),
                _mm_unpacklo_epi64(g, h),
            ];
            let (rows, _) = block.as_chunks_mut::<16>();
            for (order, rows) in ORDER.iter().zip(rows.chunks_exact_mut(2)) {
                let mut ordered = _mm256_setzero_si256();
                for (found, order) in found.iter().zip(order) {
                    // SAFETY: reads the 32 bytes of the array.
                    let order = unsafe { _mm256_loadu_si256(order.as_ptr().cast()) };
                    let both = _mm256_broadcastsi128_si256(*found);
                    ordered = _mm256_or_si256(ordered, _mm256_shuffle_epi8(both, order));
                }
                write(_mm256_castsi256_si128(ordered), &mut rows[0]);
                write(_mm256_extracti128_si256::<1>(ordered), &mut rows[1]);
            }
            block[0] = dc;
            let largest = _mm_max_epu8(
                _mm_max_epu8(found[0], found[1]),
                _mm_max_epu8(found[2], found[3]),
            );
            let limit = _mm_set1_epi8(LONG as i8);
            let is_long = _mm_cmpeq_epi8(_mm_max_epu8(largest, limit), largest);
            if _mm_movemask_epi8(is_long) == 0 {
                continue;
            }
            for (sixteen, found) in found.into_iter().enumerate() {
                let mut codes = [0u8; 16];
                // SAFETY: writes the 16 bytes of the array.
                unsafe { _mm_storeu_si128(codes.as_mut_ptr().cast(), found) };
                for (at, code) in codes
                    .into_iter()
                    .enumerate()
                    .filter(|(_, code)| *code >= LONG)
                {
                    block[usize::from(ZIGZAG[16 * sixteen + at])] =
                        long_value(code, symbols.long, &mut cursor.long);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{BlockCursor, BlockSymbols, FROM, LONG, PADDING, ZIGZAG, long_value};
    use crate::jpeg_coefficients::CoefficientBlock;

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

/// Table lookups, which every 64-bit Arm processor has.
#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    use super::{BlockCursor, BlockSymbols, FROM, LONG, SPREAD, ZIGZAG, long_value};
    use crate::jpeg_coefficients::CoefficientBlock;

    /// Codes of 8 coefficients, of which the first of `codes` are those in the mask.
    #[inline(always)]
    fn spread(codes: &[u8], at: usize, mask: u8) -> uint8x8_t {
        let codes = codes.get(at..).and_then(|codes| codes.first_chunk());
        let codes: &[u8; 8] = codes.unwrap_or(&[0; 8]);
        // SAFETY: reads the 8 bytes of each array; NEON is in the baseline.
        unsafe {
            let index = vld1_u8(SPREAD[usize::from(mask)].as_ptr());
            vtbl1_u8(vld1_u8(codes.as_ptr()), index)
        }
    }

    /// Writes the values of 8 codes.
    #[inline(always)]
    fn write(codes: uint8x8_t, out: &mut [i16; 8]) {
        // SAFETY: writes the 8 values of the array; NEON is in the baseline.
        unsafe {
            let wide = vreinterpretq_s16_u16(vmovl_u8(codes));
            let magnitude = vshrq_n_s16::<1>(wide);
            let sign = vnegq_s16(vandq_s16(wide, vdupq_n_s16(1)));
            let value = vsubq_s16(veorq_s16(magnitude, sign), sign);
            vst1q_s16(out.as_mut_ptr(), value);
        }
    }

    pub(super) fn expand(
        symbols: &BlockSymbols<'_>,
        cursor: &mut BlockCursor,
        out: &mut [CoefficientBlock],
    ) {
        for block in out {
            let mask = symbols.masks.get(cursor.block).copied().unwrap_or(0) & !1;
            let dc = symbols.dc.get(cursor.block).copied().unwrap_or(0);
            cursor.block += 1;
            let high = mask & !0xFF;
            let mut eights = [spread(symbols.low, cursor.low, mask as u8); 8];
            for (group, eight) in eights.iter_mut().enumerate().skip(1) {
                let before = high & ((1 << (8 * group)) - 1);
                let at = cursor.high + before.count_ones() as usize;
                *eight = spread(symbols.high, at, (mask >> (8 * group)) as u8);
            }
            cursor.low += (mask & 0xFF).count_ones() as usize;
            cursor.high += high.count_ones() as usize;
            let [a, b, c, d, e, f, g, h] = eights;
            // SAFETY: NEON is in the baseline.
            let found = unsafe {
                uint8x16x4_t(
                    vcombine_u8(a, b),
                    vcombine_u8(c, d),
                    vcombine_u8(e, f),
                    vcombine_u8(g, h),
                )
            };
            let (rows, _) = block.as_chunks_mut::<8>();
            for (from, rows) in FROM
                .as_chunks::<16>()
                .0
                .iter()
                .zip(rows.chunks_exact_mut(2))
            {
                // SAFETY: reads the 16 bytes of the array; NEON is in the baseline.
                let (low, high) = unsafe {
                    let ordered = vqtbl4q_u8(found, vld1q_u8(from.as_ptr()));
                    (vget_low_u8(ordered), vget_high_u8(ordered))
                };
                write(low, &mut rows[0]);
                write(high, &mut rows[1]);
            }
            block[0] = dc;
            // SAFETY: NEON is in the baseline.
            let largest = unsafe {
                let first = vmaxq_u8(found.0, found.1);
                vmaxvq_u8(vmaxq_u8(first, vmaxq_u8(found.2, found.3)))
            };
            if largest < LONG {
                continue;
            }
            let mut codes = [0u8; 64];
            // SAFETY: writes the 64 bytes of the array; NEON is in the baseline.
            unsafe { vst1q_u8_x4(codes.as_mut_ptr(), found) };
            for (code, &to) in codes.into_iter().zip(&ZIGZAG) {
                if code >= LONG {
                    block[usize::from(to)] = long_value(code, symbols.long, &mut cursor.long);
                }
            }
        }
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
