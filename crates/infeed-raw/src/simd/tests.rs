//! Every level, compared with a plain implementation of the formula.

use super::*;
use crate::host::HostBytes;

const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::BF16];
const LAYOUTS: [Layout; 2] = [Layout::Hwc, Layout::Chw];
const FLIPS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

/// Pseudorandom bytes without a short period; the same on every run.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

fn element_bytes(dtype: Dtype, value: f32, byte: u8) -> Vec<u8> {
    match dtype {
        Dtype::U8 => vec![byte],
        Dtype::F32 => value.to_ne_bytes().to_vec(),
        Dtype::F16 => half::f16::from_f32(value).to_ne_bytes().to_vec(),
        Dtype::BF16 => half::bf16::from_f32(value).to_ne_bytes().to_vec(),
    }
}

fn reference(source: &SourcePixels<'_>, how: &Convert) -> Vec<u8> {
    let SourcePixels {
        data,
        width,
        height,
        channels,
        row_bytes,
    } = *source;
    let mut out = vec![0; width * height * channels * how.dtype.bytes()];
    for y in 0..height {
        for x in 0..width {
            for c in 0..channels {
                let from_y = if how.flip_y { height - 1 - y } else { y };
                let from_x = if how.flip_x { width - 1 - x } else { x };
                let byte = data[from_y * row_bytes + from_x * channels + c];
                let product = f32::from(byte) * how.scale[c.min(3)];
                let value = product + how.bias[c.min(3)];
                let at = match how.layout {
                    Layout::Hwc => (y * width + x) * channels + c,
                    Layout::Chw => (c * height + y) * width + x,
                };
                let element = element_bytes(how.dtype, value, byte);
                out[at * how.dtype.bytes()..][..element.len()].copy_from_slice(&element);
            }
        }
    }
    out
}

fn check(source: &SourcePixels<'_>, how: &Convert) {
    let expected = reference(source, how);
    for level in Level::available() {
        // One byte off, to detect code that relies on alignment.
        let mut out = vec![0xaa; expected.len() + 1];

        convert(level, source, how, &mut out[1..]);

        assert!(
            out[1..] == expected,
            "{level:?} {how:?} {}x{}",
            source.width,
            source.channels
        );
    }
}

const IMAGENET: ([f32; 4], [f32; 4]) = (
    [
        1.0 / (255.0 * 0.229),
        1.0 / (255.0 * 0.224),
        1.0 / (255.0 * 0.225),
        0.1,
    ],
    [-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225, 7.0],
);

#[test]
fn every_level_gives_the_bits_of_the_reference_for_every_width_and_channel_count() {
    for width in (1..=70).step_by(if cfg!(miri) { 23 } else { 1 }) {
        for channels in 1..=6 {
            let (height, row_bytes) = (3, width * channels + 5);
            let data = noise(height * row_bytes - 5);
            let source = SourcePixels {
                data: &data,
                width,
                height,
                channels,
                row_bytes,
            };
            for dtype in DTYPES {
                for layout in LAYOUTS {
                    for (flip_x, flip_y) in FLIPS {
                        let (scale, bias) = IMAGENET;
                        check(
                            &source,
                            &Convert {
                                dtype,
                                layout,
                                flip_x,
                                flip_y,
                                scale,
                                bias,
                            },
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_byte_rounds_alike_for_ordinary_and_extreme_factors() {
    let data: Vec<u8> = (0..=255).collect();
    // Includes denormal float16 and bfloat16, halfway cases, overflow to infinity, and products
    // whose rounding a fused operation would skip.
    let scales = [
        1.0,
        1.0 / 255.0,
        -1.0 / 3.0,
        1e-7,
        1e-40,
        3e4,
        1e37,
        f32::MIN_POSITIVE,
        0.0,
    ];
    let biases = [0.0, -0.5, 1.0 / 2048.0, 1e-8, 2049.0, -3e38];
    for dtype in DTYPES {
        for scale in scales {
            for bias in biases {
                let source = SourcePixels {
                    data: &data,
                    width: 64,
                    height: 4,
                    channels: 1,
                    row_bytes: 64,
                };
                let how = Convert {
                    dtype,
                    layout: Layout::Hwc,
                    flip_x: false,
                    flip_y: false,
                    scale: [scale; 4],
                    bias: [bias; 4],
                };
                check(&source, &how);
            }
        }
    }
}

#[test]
fn the_product_is_rounded_before_the_sum() {
    // 255 * (1/255) rounds to 1, so the difference is exactly 0; fused, it is not.
    let source = SourcePixels {
        data: &[255; 16],
        width: 16,
        height: 1,
        channels: 1,
        row_bytes: 16,
    };
    let how = Convert {
        dtype: Dtype::F32,
        layout: Layout::Hwc,
        flip_x: false,
        flip_y: false,
        scale: [1.0 / 255.0; 4],
        bias: [-1.0; 4],
    };
    assert_ne!(255_f32.mul_add(1.0 / 255.0, -1.0), 0.0);
    for level in Level::available() {
        let mut out = [0xff; 64];
        convert(level, &source, &how, &mut out);
        assert_eq!(out, [0; 64], "{level:?}");
    }
}

fn reference_one_hot(
    indices: &[u8],
    (width, classes): (usize, usize),
    dtype: Dtype,
    layout: Layout,
    (flip_x, flip_y): (bool, bool),
) -> Vec<u8> {
    let height = indices.len() / width;
    let mut out = Vec::new();
    let mut push = |y: usize, x: usize, class: usize| {
        let y = if flip_y { height - 1 - y } else { y };
        let x = if flip_x { width - 1 - x } else { x };
        let is_class = usize::from(indices[y * width + x]) == class;
        let element = element_bytes(dtype, f32::from(u8::from(is_class)), u8::from(is_class));
        out.extend(element);
    };
    match layout {
        Layout::Hwc => (0..height).for_each(|y| {
            (0..width).for_each(|x| (0..classes).for_each(|class| push(y, x, class)));
        }),
        Layout::Chw => (0..classes).for_each(|class| {
            (0..height).for_each(|y| (0..width).for_each(|x| push(y, x, class)));
        }),
    }
    out
}

#[test]
fn every_level_gives_the_same_one_hot_mask_and_count_of_invalid_indices() {
    for width in [1, 5, 16, 63, 70] {
        for classes in [1, 12, 256, 300] {
            let indices: Vec<u8> = noise(width * 3);
            let strangers = indices
                .iter()
                .filter(|&&i| usize::from(i) >= classes)
                .count();
            for dtype in DTYPES {
                for layout in LAYOUTS {
                    for flips in FLIPS {
                        let expected =
                            reference_one_hot(&indices, (width, classes), dtype, layout, flips);
                        for level in Level::available() {
                            let mut out = vec![0xaa; expected.len()];
                            let (x, y) = flips;
                            let counted = one_hot(
                                level, &indices, classes, dtype, layout, width, 3, x, y, &mut out,
                            );
                            assert_eq!(counted, strangers as u64);
                            assert!(out == expected, "{level:?} {dtype:?} {layout:?} {width}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn an_empty_image_is_no_error() {
    let how = Convert {
        dtype: Dtype::F32,
        layout: Layout::Chw,
        flip_x: true,
        flip_y: true,
        scale: [1.0; 4],
        bias: [0.0; 4],
    };
    let source = |width, height| SourcePixels {
        data: &[],
        width,
        height,
        channels: 3,
        row_bytes: 0,
    };

    convert(Level::detect(), &source(0, 5), &how, &mut []);
    convert(Level::detect(), &source(0, 0), &how, &mut []);
    let counted = one_hot(
        Level::detect(),
        &[4; 6],
        0,
        Dtype::U8,
        Layout::Hwc,
        3,
        2,
        false,
        false,
        &mut [],
    );
    assert_eq!(counted, 6);
}

#[test]
#[should_panic(expected = "as long as the converted image")]
fn a_row_of_the_wrong_length_panics() {
    let source = SourcePixels {
        data: &[0; 12],
        width: 2,
        height: 2,
        channels: 3,
        row_bytes: 6,
    };
    let (scale, bias) = IMAGENET;
    let how = Convert {
        dtype: Dtype::F32,
        layout: Layout::Chw,
        flip_x: false,
        flip_y: false,
        scale,
        bias,
    };

    convert(
        Level::detect(),
        &source,
        &how,
        &mut HostBytes::zeroed(47).unwrap(),
    );
}

#[test]
#[should_panic(expected = "hold every row")]
fn data_that_ends_before_the_last_row_panics() {
    let source = SourcePixels {
        data: &[0; 13],
        width: 2,
        height: 2,
        channels: 3,
        row_bytes: 8,
    };
    let how = Convert {
        dtype: Dtype::U8,
        layout: Layout::Chw,
        flip_x: false,
        flip_y: false,
        scale: [1.0; 4],
        bias: [0.0; 4],
    };

    convert(Level::detect(), &source, &how, &mut [0; 12]);
}

/// The colour transforms in the other direction, by their definition.
fn transform_colors(colors: PlaneColors, pixel: &[u8]) -> Vec<u8> {
    let mut planes = pixel.to_vec();
    let half = |value: u8| (i16::from(value as i8).div_euclid(2)) as u8;
    if let [r, g, b, ..] = *pixel {
        let rgb = match colors {
            PlaneColors::Stored => [r, g, b],
            PlaneColors::MinusGreen => [r.wrapping_sub(g), g, b.wrapping_sub(g)],
            PlaneColors::YCoCg => {
                let co = r.wrapping_sub(b);
                let t = b.wrapping_add(half(co));
                let cg = g.wrapping_sub(t);
                [co, t.wrapping_add(half(cg)), cg]
            }
        };
        planes[..3].copy_from_slice(&rgb);
    }
    planes
}

#[test]
fn every_level_merges_planes_to_the_pixels_that_were_split() {
    for channels in 1..=4 {
        for length in (0..100).chain([1000]) {
            let pixels = noise(length * channels);
            for colors in [
                PlaneColors::Stored,
                PlaneColors::MinusGreen,
                PlaneColors::YCoCg,
            ] {
                if channels < 3 && colors != PlaneColors::Stored {
                    continue;
                }
                let mut planes = vec![Vec::new(); channels];
                for pixel in pixels.chunks_exact(channels) {
                    for (plane, sample) in planes.iter_mut().zip(transform_colors(colors, pixel)) {
                        plane.push(sample);
                    }
                }
                let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
                for level in Level::available() {
                    let mut out = vec![7; pixels.len()];
                    merge_planes(level, colors, &planes, &mut out);
                    assert_eq!(out, pixels, "{level:?} {colors:?} {channels} {length}");
                }
            }
        }
    }
}
