//! Expands the symbols of 8x8 blocks to coefficients.
//!
//! A block is a mask of its nonzero AC coefficients in zigzag order and a code for each: twice the
//! magnitude plus 1 for negative values, or 255 for a value in the list of escapes. See
//! `docs/formats/jpeg-coefficients.md`.

use super::Level;
use crate::jpeg_coefficients::Block;

/// Position in row order of each coefficient in zigzag order (ITU-T T.81, figure A.6).
pub const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// Code of a value that is in the list of escapes.
pub const ESCAPE: u8 = 255;

/// Zero bytes after the symbols, so that every cursor can load 64 bytes.
pub const PADDING: usize = 64;

/// Positions in the symbols of one class of blocks, each of the next symbol of its kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockCursor {
    /// Mask bytes of a block, 0 to 8.
    pub count: usize,
    /// Zigzag-coded differences of DC coefficients.
    pub dc: usize,
    /// Byte 0 to 7 of a mask.
    pub masks: [usize; 8],
    /// Codes of the coefficients 1 to 7 in zigzag order.
    pub low: usize,
    /// Codes of the other coefficients.
    pub high: usize,
    /// Byte in the list of escapes, which are 16-bit little-endian values.
    pub escape: usize,
}

/// Writes the coefficients of the next blocks. `out` must be zero. `dc` is the DC coefficient of
/// the block before.
///
/// Symbols are positions in `data`; reads beyond its end (less [`PADDING`]) give zeros.
pub fn expand_blocks(
    level: Level,
    data: &[u8],
    escapes: &[u8],
    cursor: &mut BlockCursor,
    dc: &mut i16,
    out: &mut [Block],
) {
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 && is_x86_feature_detected!("avx512vbmi2") {
        if is_x86_feature_detected!("avx512vbmi") {
            // SAFETY: the processor has the instructions of the level, and the two sets that were
            // just tested.
            unsafe { x86::expand_avx512(data, escapes, cursor, dc, out) };
            return;
        }
    }
    let _ = level;
    for block in out {
        let mask = next_mask(data, cursor);
        block[0] = next_dc(data, escapes, cursor, dc);
        let mut bits = mask & 0xFF;
        while bits != 0 {
            let at = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            block[usize::from(ZIGZAG[at])] = value(byte(data, cursor.low), escapes, cursor);
            cursor.low += 1;
        }
        let mut bits = mask & !0xFF;
        while bits != 0 {
            let at = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            block[usize::from(ZIGZAG[at & 63])] = value(byte(data, cursor.high), escapes, cursor);
            cursor.high += 1;
        }
    }
}

#[inline(always)]
fn byte(data: &[u8], at: usize) -> u8 {
    data.get(at).copied().unwrap_or(0)
}

/// Mask of the next block; bit *i* is the coefficient *i* in zigzag order.
#[inline(always)]
fn next_mask(data: &[u8], cursor: &mut BlockCursor) -> u64 {
    let count = usize::from(byte(data, cursor.count));
    cursor.count += 1;
    let mut mask = 0;
    for (at, position) in cursor.masks.iter_mut().enumerate() {
        // Without a branch: the number of bytes cannot be predicted.
        let has = usize::from(count > at);
        mask |= (u64::from(byte(data, *position)) * has as u64) << (8 * at);
        *position += has;
    }
    mask & !1
}

#[inline(always)]
fn next_escape(escapes: &[u8], cursor: &mut BlockCursor) -> i16 {
    let at = cursor.escape;
    cursor.escape += 2;
    escapes
        .get(at..at + 2)
        .map_or(0, |pair| i16::from_le_bytes([pair[0], pair[1]]))
}

#[inline(always)]
fn next_dc(data: &[u8], escapes: &[u8], cursor: &mut BlockCursor, dc: &mut i16) -> i16 {
    let code = byte(data, cursor.dc);
    cursor.dc += 1;
    let difference = if code == ESCAPE {
        next_escape(escapes, cursor)
    } else {
        i16::from(code >> 1) ^ -i16::from(code & 1)
    };
    *dc = dc.wrapping_add(difference);
    *dc
}

#[inline(always)]
fn value(code: u8, escapes: &[u8], cursor: &mut BlockCursor) -> i16 {
    if code == ESCAPE {
        return next_escape(escapes, cursor);
    }
    let sign = -i16::from(code & 1);
    (i16::from(code >> 1) ^ sign) - sign
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{BlockCursor, PADDING, ZIGZAG, next_dc, next_escape, next_mask};
    use crate::jpeg_coefficients::Block;

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
    pub(super) fn expand_avx512(
        data: &[u8],
        escapes: &[u8],
        cursor: &mut BlockCursor,
        dc: &mut i16,
        out: &mut [Block],
    ) {
        let order = load(&FROM);
        for block in out {
            let mask = next_mask(data, cursor);
            let first = next_dc(data, escapes, cursor, dc);
            if mask == 0 {
                block[0] = first;
                continue;
            }
            let (low, high) = (mask & 0xFF, mask & !0xFF);
            let found = _mm512_or_si512(
                _mm512_maskz_expand_epi8(low, codes(data, cursor.low)),
                _mm512_maskz_expand_epi8(high, codes(data, cursor.high)),
            );
            cursor.low += low.count_ones() as usize;
            cursor.high += high.count_ones() as usize;
            let mut escaped = _mm512_cmpeq_epi8_mask(found, _mm512_set1_epi8(-1));
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
            block[0] = first;
            while escaped != 0 {
                let at = escaped.trailing_zeros() as usize;
                escaped &= escaped - 1;
                block[usize::from(ZIGZAG[at & 63])] = next_escape(escapes, cursor);
            }
        }
    }
}
