//! The operations with SSE4.1, AVX2 and AVX-512.
//!
//! Every method here is inlined into a function compiled with the level's features, in `convert`;
//! only these functions make the values of a level.

use std::arch::x86_64::*;

use super::isa::{ByteShuffle, Isa, soft_f16};

/// SSSE3 and SSE4.1.
#[derive(Clone, Copy)]
pub(super) struct Sse41(());

/// AVX2 and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// AVX-512 F, BW and VL, and the instructions of AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

macro_rules! proof_of_level {
    ($($level:ident)*) => {$(
        impl $level {
            /// # Safety
            ///
            /// The processor has the instructions of this level.
            #[inline(always)]
            pub(super) unsafe fn new() -> Self {
                Self(())
            }
        }
    )*};
}

proof_of_level!(Sse41 Avx2 Avx512);

/// Computes one output vector of a permutation. A closure would not always be inlined.
#[inline(always)]
fn pick<I: Isa<Bytes = __m128i>>(isa: I, from: [__m128i; 3], masks: &[[u8; 16]; 3]) -> __m128i {
    // SAFETY: every type in this file that implements `Isa` guarantees at least SSSE3, which the
    // code that made the value has checked.
    unsafe {
        let a = _mm_shuffle_epi8(from[0], isa.load(&masks[0]));
        let b = _mm_shuffle_epi8(from[1], isa.load(&masks[1]));
        let c = _mm_shuffle_epi8(from[2], isa.load(&masks[2]));
        _mm_or_si128(_mm_or_si128(a, b), c)
    }
}

/// Operations that are the same for all three levels, on 16 bytes.
macro_rules! bytes_in_xmm {
    () => {
        type Bytes = __m128i;

        #[inline(always)]
        fn load(self, from: &[u8; 16]) -> __m128i {
            // SAFETY: reads the 16 bytes of the array; SSE2 is in the baseline.
            unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
        }

        #[inline(always)]
        fn permute(self, from: &[u8; 48], how: &ByteShuffle) -> [__m128i; 3] {
            let (parts, _) = from.as_chunks::<16>();
            let from = [
                self.load(&parts[0]),
                self.load(&parts[1]),
                self.load(&parts[2]),
            ];
            let [first, second, third] = &how.masks;
            [
                pick(self, from, first),
                pick(self, from, second),
                pick(self, from, third),
            ]
        }

        #[inline(always)]
        fn put_u8(self, v: __m128i, out: &mut [u8; 16]) {
            // SAFETY: writes the 16 bytes of the array; SSE2 is in the baseline.
            unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), v) }
        }

        #[inline(always)]
        fn prefetch(self, data: &[u8], at: usize) {
            // SAFETY: a hint that cannot fault at any address; SSE is in the baseline.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(data.as_ptr().wrapping_add(at).cast()) }
        }
    };
}

impl Isa for Sse41 {
    bytes_in_xmm!();

    type Floats = [__m128; 4];

    #[inline(always)]
    fn affine(self, v: __m128i, scale: &[f32; 16], bias: &[f32; 16]) -> [__m128; 4] {
        // SAFETY: `self` exists, so its maker has checked for SSE4.1; each load reads four of the
        // 16 floats, from `4 * n` on.
        unsafe {
            let mut floats = [
                _mm_cvtepi32_ps(_mm_cvtepu8_epi32(v)),
                _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_srli_si128::<4>(v))),
                _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_srli_si128::<8>(v))),
                _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_srli_si128::<12>(v))),
            ];
            for (n, v) in floats.iter_mut().enumerate() {
                let product = _mm_mul_ps(*v, _mm_loadu_ps(scale.as_ptr().add(4 * n)));
                *v = _mm_add_ps(product, _mm_loadu_ps(bias.as_ptr().add(4 * n)));
            }
            floats
        }
    }

    #[inline(always)]
    fn put_f32(self, v: [__m128; 4], out: &mut [u8; 64]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<16>().0) {
            // SAFETY: writes the 16 bytes of the chunk; SSE is in the baseline.
            unsafe { _mm_storeu_ps(out.as_mut_ptr().cast(), v) }
        }
    }

    #[inline(always)]
    fn put_f16(self, v: [__m128; 4], out: &mut [u8; 32]) {
        let mut floats = [0.0; 16];
        for (v, part) in v.into_iter().zip(floats.as_chunks_mut::<4>().0) {
            // SAFETY: writes the four floats of the chunk; SSE is in the baseline.
            unsafe { _mm_storeu_ps(part.as_mut_ptr(), v) }
        }
        soft_f16(&floats, out);
    }

    #[inline(always)]
    fn put_bf16(self, v: [__m128; 4], out: &mut [u8; 32]) {
        // SAFETY: `self` exists, so its maker has checked for SSE4.1; each store writes 16 of the
        // 32 bytes.
        unsafe {
            let mut rounded = [_mm_setzero_si128(); 4];
            for (rounded, v) in rounded.iter_mut().zip(v) {
                let bits = _mm_castps_si128(v);
                let odd = _mm_and_si128(_mm_srli_epi32::<16>(bits), _mm_set1_epi32(1));
                let half = _mm_add_epi32(odd, _mm_set1_epi32(0x7fff));
                *rounded = _mm_srli_epi32::<16>(_mm_add_epi32(bits, half));
            }
            let low = _mm_packus_epi32(rounded[0], rounded[1]);
            let high = _mm_packus_epi32(rounded[2], rounded[3]);
            _mm_storeu_si128(out.as_mut_ptr().cast(), low);
            _mm_storeu_si128(out.as_mut_ptr().add(16).cast(), high);
        }
    }
}

impl Isa for Avx2 {
    bytes_in_xmm!();

    type Floats = [__m256; 2];

    #[inline(always)]
    fn affine(self, v: __m128i, scale: &[f32; 16], bias: &[f32; 16]) -> [__m256; 2] {
        // SAFETY: `self` exists, so its maker has checked for AVX2; each load reads eight of the 16
        // floats, from `8 * n` on.
        unsafe {
            let mut floats = [
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)),
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128::<8>(v))),
            ];
            for (n, v) in floats.iter_mut().enumerate() {
                let product = _mm256_mul_ps(*v, _mm256_loadu_ps(scale.as_ptr().add(8 * n)));
                *v = _mm256_add_ps(product, _mm256_loadu_ps(bias.as_ptr().add(8 * n)));
            }
            floats
        }
    }

    #[inline(always)]
    fn put_f32(self, v: [__m256; 2], out: &mut [u8; 64]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<32>().0) {
            // SAFETY: writes the 32 bytes of the chunk; `self` guarantees AVX.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr().cast(), v) }
        }
    }

    #[inline(always)]
    fn put_f16(self, v: [__m256; 2], out: &mut [u8; 32]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<16>().0) {
            // SAFETY: writes the 16 bytes of the chunk; `self` guarantees F16C.
            unsafe {
                _mm_storeu_si128(
                    out.as_mut_ptr().cast(),
                    _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v),
                )
            }
        }
    }

    #[inline(always)]
    fn put_bf16(self, v: [__m256; 2], out: &mut [u8; 32]) {
        // SAFETY: `self` exists, so its maker has checked for AVX2; the store writes the 32 bytes
        // of the array.
        unsafe {
            let mut rounded = [_mm256_setzero_si256(); 2];
            for (rounded, v) in rounded.iter_mut().zip(v) {
                let bits = _mm256_castps_si256(v);
                let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
                let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
                *rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half));
            }
            // The pack instruction works within 128-bit lanes; the permutation restores the order.
            let packed = _mm256_packus_epi32(rounded[0], rounded[1]);
            let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), ordered);
        }
    }
}

impl Isa for Avx512 {
    bytes_in_xmm!();

    type Floats = __m512;

    #[inline(always)]
    fn affine(self, v: __m128i, scale: &[f32; 16], bias: &[f32; 16]) -> __m512 {
        // SAFETY: `self` exists, so its maker has checked for AVX-512F; the loads read the 16
        // floats of each array.
        unsafe {
            let v = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v));
            let product = _mm512_mul_ps(v, _mm512_loadu_ps(scale.as_ptr()));
            _mm512_add_ps(product, _mm512_loadu_ps(bias.as_ptr()))
        }
    }

    #[inline(always)]
    fn put_f32(self, v: __m512, out: &mut [u8; 64]) {
        // SAFETY: writes the 64 bytes of the array; `self` guarantees AVX-512F.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr().cast(), v) }
    }

    #[inline(always)]
    fn put_f16(self, v: __m512, out: &mut [u8; 32]) {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: writes the 32 bytes of the array; `self` guarantees AVX-512F.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_cvtps_ph::<NEAREST>(v)) }
    }

    #[inline(always)]
    fn put_bf16(self, v: __m512, out: &mut [u8; 32]) {
        // Not VCVTNEPS2BF16: it treats denormals as zero, which gives other bits.
        //
        // SAFETY: writes the 32 bytes of the array; `self` guarantees AVX-512F.
        unsafe {
            let bits = _mm512_castps_si512(v);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half));
            _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(rounded));
        }
    }
}
