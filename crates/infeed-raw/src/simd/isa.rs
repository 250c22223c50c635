//! The vector operations of the passes, on 16 bytes or 16 floats at a time for any register width,
//! and their plain implementation.

/// Operations of one level. A value of an implementing type proves that the processor has the
/// instructions: except for the plain one, values are made only after a check.
pub(super) trait Isa: Copy {
    /// 16 bytes.
    type Bytes: Copy;
    /// 16 float32.
    type Floats: Copy;

    fn load(self, from: &[u8; 16]) -> Self::Bytes;

    /// Rearranges 48 bytes.
    fn permute(self, from: &[u8; 48], how: &ByteShuffle) -> [Self::Bytes; 3];

    /// `f32(v) * scale + bias`, two roundings.
    fn affine(self, v: Self::Bytes, scale: &[f32; 16], bias: &[f32; 16]) -> Self::Floats;

    fn put_u8(self, v: Self::Bytes, out: &mut [u8; 16]);

    fn put_f32(self, v: Self::Floats, out: &mut [u8; 64]);

    fn put_f16(self, v: Self::Floats, out: &mut [u8; 32]);

    fn put_bf16(self, v: Self::Floats, out: &mut [u8; 32]);

    /// Prefetches the cache line at `data[at]`, if there is an instruction for it; `at` may be out
    /// of bounds.
    #[inline(always)]
    fn prefetch(self, _data: &[u8], _at: usize) {}
}

/// Source of each of 48 bytes, as an index and as masks for 16-byte shuffles.
pub(super) struct ByteShuffle {
    /// Output byte *n* is input byte `index[n]`.
    pub(super) index: [[u8; 16]; 3],
    /// `masks[out][in]`: a shuffle of input vector `in` for the bytes of output vector `out` that
    /// come from it; zero (the high bit set) elsewhere.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) masks: [[[u8; 16]; 3]; 3],
}

impl ByteShuffle {
    const fn from_index(index: [[u8; 16]; 3]) -> ByteShuffle {
        let mut masks = [[[0x80; 16]; 3]; 3];
        let mut n = 0;
        while n < 48 {
            let from = index[n / 16][n % 16];
            masks[n / 16][from as usize / 16][n % 16] = from % 16;
            n += 1;
        }
        ByteShuffle { index, masks }
    }

    /// 16 pixels of three channels into 16 bytes of each channel.
    pub(super) const SPLIT: ByteShuffle = ByteShuffle::split(false);

    /// The same, the last pixel first.
    pub(super) const SPLIT_REVERSED: ByteShuffle = ByteShuffle::split(true);

    /// 16 pixels of three channels, the last pixel first.
    pub(super) const REVERSE: ByteShuffle = {
        let mut index = [[0; 16]; 3];
        let mut n = 0;
        while n < 48 {
            index[n / 16][n % 16] = ((15 - n / 3) * 3 + n % 3) as u8;
            n += 1;
        }
        ByteShuffle::from_index(index)
    };

    const fn split(is_reversed: bool) -> ByteShuffle {
        let mut index = [[0; 16]; 3];
        let mut n = 0;
        while n < 48 {
            let pixel = if is_reversed { 15 - n % 16 } else { n % 16 };
            index[n / 16][n % 16] = (pixel * 3 + n / 16) as u8;
            n += 1;
        }
        ByteShuffle::from_index(index)
    }
}

/// Converts 16 float32 to float16 without a special instruction.
#[inline(always)]
pub(super) fn soft_f16(v: &[f32; 16], out: &mut [u8; 32]) {
    for (out, v) in out.as_chunks_mut::<2>().0.iter_mut().zip(v) {
        *out = half::f16::from_f32(*v).to_bits().to_ne_bytes();
    }
}

/// Only instructions that every processor of the target has.
#[derive(Clone, Copy)]
pub(super) struct Plain;

impl Isa for Plain {
    type Bytes = [u8; 16];
    type Floats = [f32; 16];

    #[inline(always)]
    fn load(self, from: &[u8; 16]) -> [u8; 16] {
        *from
    }

    #[inline(always)]
    fn permute(self, from: &[u8; 48], how: &ByteShuffle) -> [[u8; 16]; 3] {
        how.index.map(|index| index.map(|n| from[usize::from(n)]))
    }

    #[inline(always)]
    fn affine(self, v: [u8; 16], scale: &[f32; 16], bias: &[f32; 16]) -> [f32; 16] {
        std::array::from_fn(|n| f32::from(v[n]) * scale[n] + bias[n])
    }

    #[inline(always)]
    fn put_u8(self, v: [u8; 16], out: &mut [u8; 16]) {
        *out = v;
    }

    #[inline(always)]
    fn put_f32(self, v: [f32; 16], out: &mut [u8; 64]) {
        for (out, v) in out.as_chunks_mut::<4>().0.iter_mut().zip(v) {
            *out = v.to_ne_bytes();
        }
    }

    #[inline(always)]
    fn put_f16(self, v: [f32; 16], out: &mut [u8; 32]) {
        soft_f16(&v, out);
    }

    #[inline(always)]
    fn put_bf16(self, v: [f32; 16], out: &mut [u8; 32]) {
        for (out, v) in out.as_chunks_mut::<2>().0.iter_mut().zip(v) {
            // Adds half a unit in the last place, less one bit if the result would be even. The sum
            // carries into the upper half exactly if nearest-even rounds up.
            let bits = v.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            *out = (rounded as u16).to_ne_bytes();
        }
    }
}
