//! The operations with NEON, which every 64-bit Arm processor has.

use std::arch::aarch64::*;

use super::isa::{ByteShuffle, Isa, soft_f16};

/// NEON.
#[derive(Clone, Copy)]
pub(super) struct Neon;

impl Isa for Neon {
    type Bytes = uint8x16_t;
    type Floats = [float32x4_t; 4];

    #[inline(always)]
    fn load(self, from: &[u8; 16]) -> uint8x16_t {
        // SAFETY: reads the 16 bytes of the array; NEON is in the baseline.
        unsafe { vld1q_u8(from.as_ptr()) }
    }

    #[inline(always)]
    fn permute(self, from: &[u8; 48], how: &ByteShuffle) -> [uint8x16_t; 3] {
        let (parts, _) = from.as_chunks::<16>();
        let table = uint8x16x3_t(
            self.load(&parts[0]),
            self.load(&parts[1]),
            self.load(&parts[2]),
        );
        // SAFETY: NEON is in the baseline.
        let pick = |index| unsafe { vqtbl3q_u8(table, self.load(index)) };
        [
            pick(&how.index[0]),
            pick(&how.index[1]),
            pick(&how.index[2]),
        ]
    }

    #[inline(always)]
    fn affine(self, v: uint8x16_t, scale: &[f32; 16], bias: &[f32; 16]) -> [float32x4_t; 4] {
        // Not `vfmaq`: the product is rounded too.
        //
        // SAFETY: NEON is in the baseline; each load reads four of the 16 floats, from `4 * n` on.
        unsafe {
            let part = |v, n: usize| {
                let product = vmulq_f32(vcvtq_f32_u32(v), vld1q_f32(scale.as_ptr().add(4 * n)));
                vaddq_f32(product, vld1q_f32(bias.as_ptr().add(4 * n)))
            };
            let low = vmovl_u8(vget_low_u8(v));
            let high = vmovl_high_u8(v);
            [
                part(vmovl_u16(vget_low_u16(low)), 0),
                part(vmovl_high_u16(low), 1),
                part(vmovl_u16(vget_low_u16(high)), 2),
                part(vmovl_high_u16(high), 3),
            ]
        }
    }

    #[inline(always)]
    fn put_u8(self, v: uint8x16_t, out: &mut [u8; 16]) {
        // SAFETY: writes the 16 bytes of the array; NEON is in the baseline.
        unsafe { vst1q_u8(out.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn put_f32(self, v: [float32x4_t; 4], out: &mut [u8; 64]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<16>().0) {
            // SAFETY: writes the 16 bytes of the chunk; NEON is in the baseline.
            unsafe { vst1q_u8(out.as_mut_ptr(), vreinterpretq_u8_f32(v)) }
        }
    }

    #[inline(always)]
    fn put_f16(self, v: [float32x4_t; 4], out: &mut [u8; 32]) {
        let mut floats = [0.0; 16];
        for (v, part) in v.into_iter().zip(floats.as_chunks_mut::<4>().0) {
            // SAFETY: writes the four floats of the chunk; NEON is in the baseline.
            unsafe { vst1q_f32(part.as_mut_ptr(), v) }
        }
        soft_f16(&floats, out);
    }

    #[inline(always)]
    fn put_bf16(self, v: [float32x4_t; 4], out: &mut [u8; 32]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<8>().0) {
            // SAFETY: writes the 8 bytes of the chunk; NEON is in the baseline.
            unsafe {
                let bits = vreinterpretq_u32_f32(v);
                let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
                let half = vaddq_u32(odd, vdupq_n_u32(0x7fff));
                let rounded = vshrn_n_u32::<16>(vaddq_u32(bits, half));
                vst1_u8(out.as_mut_ptr(), vreinterpret_u8_u16(rounded));
            }
        }
    }
}
