//! Resizes have the same bits at every SIMD level.
//!
//! infeed promises this for its resizer. The test is in this crate because forcing a level is
//! `unsafe`: the processor must support it.

use fast_image_resize::images::Image;
use infeed_resize::{CpuExtensions, FilterType, PixelType, ResizeAlg, Resizer, RowPart};

const LEVELS: &[CpuExtensions] = &[
    CpuExtensions::None,
    #[cfg(target_arch = "x86_64")]
    CpuExtensions::Sse4_1,
    #[cfg(target_arch = "x86_64")]
    CpuExtensions::Avx2,
    #[cfg(target_arch = "aarch64")]
    CpuExtensions::Neon,
];

fn noise(width: u32, height: u32, kind: PixelType) -> Image<'static> {
    let mut image = Image::new(width, height, kind);
    let mut state = 88_172_645_463_325_252_u64;
    for byte in image.buffer_mut() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 32) as u8;
    }
    image
}

fn resized_at(
    level: CpuExtensions,
    from: &Image<'_>,
    to: (u32, u32),
    filter: FilterType,
) -> Vec<u8> {
    assert!(level.is_supported());
    let mut resizer = Resizer::new();
    // SAFETY: the processor supports this level, asserted above.
    unsafe { resizer.set_cpu_extensions(level) };
    let mut out = Image::new(to.0, to.1, from.pixel_type());
    let part = RowPart::whole(from.buffer(), from.width(), from.height());
    let kind = from.pixel_type();
    let filter = ResizeAlg::Convolution(filter);
    infeed_resize::resize(&mut resizer, kind, filter, &part, out.buffer_mut(), to)
        .expect("an image that can be resized");
    out.into_vec()
}

#[test]
fn resizes_have_the_same_bits_at_every_simd_level() {
    let kinds = [
        (PixelType::U8, FilterType::Bilinear),
        (PixelType::U8x2, FilterType::Bilinear),
        (PixelType::U8x3, FilterType::Bilinear),
        (PixelType::U8x4, FilterType::Bilinear),
        (PixelType::U16, FilterType::CatmullRom),
        (PixelType::U16x2, FilterType::Lanczos3),
        (PixelType::U16x3, FilterType::Lanczos3),
        (PixelType::U16x4, FilterType::CatmullRom),
    ];
    for (kind, filter) in kinds {
        for (width, height) in [(500, 375), (97, 61), (33, 1), (1, 40)] {
            let from = noise(width, height, kind);
            for to in [(224, 224), (31, 200), (201, 7), (1, 1)] {
                let plain = resized_at(CpuExtensions::None, &from, to, filter);
                for level in LEVELS.iter().copied().filter(CpuExtensions::is_supported) {
                    let what = format!("{kind:?} {filter:?} {width}x{height} to {to:?} {level:?}");
                    assert!(resized_at(level, &from, to, filter) == plain, "{what}");
                }
            }
        }
    }
}
