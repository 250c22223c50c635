//! Kernels on the host, compared with the SIMD passes and with plain loops.

use super::arguments::Divider;
use super::*;
use crate::simd::{self, Convert, Dtype, Layout, Level, SourcePixels};

const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::BF16];
const LAYOUTS: [Layout; 2] = [Layout::Hwc, Layout::Chw];
/// Odd sizes, sizes that 16 divides, and sizes whose rows are not a multiple of 16 bytes.
const SIZES: [(usize, usize); 9] = [
    (1, 1),
    (1, 17),
    (3, 5),
    (7, 16),
    (2, 48),
    (5, 33),
    (16, 16),
    (31, 9),
    (40, 64),
];
const SCALE: [f32; 4] = [1.0 / 58.4, 1.0 / 57.1, 1.0 / 57.4, 0.1];
const BIAS: [f32; 4] = [-2.118, -2.036, -1.804, 7.0];
/// Bytes around an output that no kernel may write to; the output is also shifted by one byte.
const GUARD: usize = 64;

/// Pseudorandom numbers, the same on every run.
pub(super) struct Noise(pub(super) u64);

impl Noise {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(super) fn choice<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Runs a kernel `shift` bytes off alignment, and checks the memory around the output afterwards.
fn run(
    kernel: &Kernel,
    rows: usize,
    input: &[u8],
    table: Option<Table<'_>>,
    shift: usize,
) -> Vec<u8> {
    let len = kernel.output_bytes(rows).expect("small");
    let mut host = crate::host::HostBytes::zeroed(len + 2 * GUARD).expect("memory");
    host.fill(0xa5);
    let range = GUARD / 2 + shift..GUARD / 2 + shift + len;

    kernel
        .run(rows, input, table, &mut host[range.clone()])
        .expect("everything fits");

    let around = host[..range.start].iter().chain(&host[range.end..]);
    assert!(around.into_iter().all(|&byte| byte == 0xa5), "{kernel:?}");
    host[range].to_vec()
}

/// Views of images in an input with other bytes between them.
fn views(noise: &mut Noise, kernel: &Kernel, rows: usize) -> (Vec<RowView>, usize) {
    let ((height, width), pixel) = (kernel.size(), kernel.pixel_bytes());
    let mut end = 0;
    let views = (0..rows).map(|_| {
        let row_bytes = width * pixel + noise.below(3) * noise.below(9);
        let view = RowView {
            offset: (end + noise.below(2) * noise.below(7)) as u64,
            row_bytes: row_bytes as u32,
            flags: noise.below(4) as u32,
        };
        end = view.offset as usize + (height - 1) * row_bytes + width * pixel;
        view
    });
    (views.collect(), end)
}

/// Copies the rows as images, one after another, flipped as in the views.
fn dense(kernel: &Kernel, input: &[u8], views: &[RowView]) -> Vec<u8> {
    let ((height, width), pixel) = (kernel.size(), kernel.pixel_bytes());
    let mut out = Vec::new();
    for view in views {
        for y in 0..height {
            let is_down = view.flags & RowView::FLIP_Y != 0;
            let from_y = if is_down { height - 1 - y } else { y };
            for x in 0..width {
                let is_left = view.flags & RowView::FLIP_X != 0;
                let from_x = if is_left { width - 1 - x } else { x };
                let at = view.offset as usize + from_y * view.row_bytes as usize + from_x * pixel;
                out.extend_from_slice(&input[at..at + pixel]);
            }
        }
    }
    out
}

/// Computes the result for dense rows with the passes on the host.
fn reference(kernel: &Kernel, rows: usize, input: &[u8]) -> Vec<u8> {
    let mut out = vec![0; kernel.output_bytes(rows).expect("small")];
    let (height, width) = kernel.size();
    let (from, to) = (input.len() / rows, out.len() / rows);
    for (image, out) in input.chunks(from).zip(out.chunks_mut(to)) {
        match kernel {
            Kernel::Expand {
                channels,
                dtype,
                layout,
                scale,
                bias,
                ..
            } => {
                let source = SourcePixels {
                    data: image,
                    width,
                    height,
                    channels: *channels,
                    row_bytes: width * channels,
                };
                let how = Convert {
                    dtype: *dtype,
                    layout: *layout,
                    flip_x: false,
                    flip_y: false,
                    scale: *scale,
                    bias: *bias,
                };
                simd::convert(Level::detect(), &source, &how, out);
            }
            Kernel::OneHot {
                classes,
                dtype,
                layout,
                ..
            } => {
                simd::one_hot(
                    Level::detect(),
                    image,
                    *classes,
                    *dtype,
                    *layout,
                    width,
                    height,
                    false,
                    false,
                    out,
                );
            }
            Kernel::Classes {
                colours,
                classes,
                unknown,
                ..
            } => {
                for (pixel, out) in image.chunks(3).zip(out) {
                    let found = colours.iter().position(|colour| colour == pixel);
                    *out = found.map_or(*unknown, |at| classes[at]);
                }
            }
            Kernel::Widen { dtype, unknown, .. } => {
                let wide = |&byte: &u8| {
                    if byte == 255 {
                        *unknown
                    } else {
                        i64::from(byte)
                    }
                };
                let all: Vec<u8> = match dtype {
                    Integer::I32 => image
                        .iter()
                        .flat_map(|byte| (wide(byte) as i32).to_ne_bytes())
                        .collect(),
                    Integer::I64 => image
                        .iter()
                        .flat_map(|byte| wide(byte).to_ne_bytes())
                        .collect(),
                };
                out.copy_from_slice(&all);
            }
            Kernel::Resize { .. } => panic!("its rows are not of one size"),
        }
    }
    out
}

/// Compares dense rows and rows of views, at every alignment of an element or a unit.
fn check(noise: &mut Noise, kernel: &Kernel, rows: usize, bytes: impl Fn(&mut Noise) -> u8) {
    let len = kernel.input_bytes(rows).expect("small");
    let input: Vec<u8> = (0..len).map(|_| bytes(noise)).collect();
    let expected = reference(kernel, rows, &input);
    for shift in [0, 1, 4] {
        let found = run(kernel, rows, &input, None, shift);
        assert!(
            found == expected,
            "{rows} rows, {shift} bytes off: {kernel:?}"
        );
    }

    let (table, len) = views(noise, kernel, rows);
    let input: Vec<u8> = (0..len).map(|_| bytes(noise)).collect();
    let expected = reference(kernel, rows, &dense(kernel, &input, &table));
    let views = Some(Table::Views(&table));
    let found = run(kernel, rows, &input, views, noise.below(16));
    assert!(found == expected, "{table:?}: {kernel:?}");
}

fn expand(
    (height, width): (usize, usize),
    channels: usize,
    dtype: Dtype,
    layout: Layout,
) -> Kernel {
    Kernel::Expand {
        height,
        width,
        channels,
        dtype,
        layout,
        scale: SCALE,
        bias: BIAS,
    }
}

fn one_hot(
    (height, width): (usize, usize),
    classes: usize,
    dtype: Dtype,
    layout: Layout,
) -> Kernel {
    Kernel::OneHot {
        height,
        width,
        classes,
        dtype,
        layout,
    }
}

/// A palette of `count` similar colours, and bytes that often match them.
fn classes((height, width): (usize, usize), count: usize) -> Kernel {
    Kernel::Classes {
        height,
        width,
        colours: (0..count)
            .map(|n| [(n % 7) as u8, (n / 7 % 7) as u8, (n / 49) as u8])
            .collect(),
        classes: (0..count).map(|n| (n * 3) as u8).collect(),
        unknown: 254,
    }
}

#[test]
fn expanded_rows_equal_the_rows_that_the_host_writes() {
    let mut noise = Noise(1);
    for size in SIZES {
        for channels in 1..=5 {
            for dtype in DTYPES {
                for layout in LAYOUTS {
                    for rows in [1, 3] {
                        let kernel = expand(size, channels, dtype, layout);
                        check(&mut noise, &kernel, rows, |noise| noise.next() as u8);
                    }
                }
            }
        }
    }
}

#[test]
fn one_hot_rows_equal_the_rows_that_the_host_writes() {
    let mut noise = Noise(2);
    for size in SIZES {
        for classes in [1, 2, 3, 12, 32, 255, 300] {
            for dtype in DTYPES {
                for layout in LAYOUTS {
                    let kernel = one_hot(size, classes, dtype, layout);
                    // Some indices are not below the number of classes.
                    check(&mut noise, &kernel, 2, |noise| {
                        noise.below((classes + 2).min(256)) as u8
                    });
                }
            }
        }
    }
}

#[test]
fn classes_equal_those_of_a_search_through_the_palette() {
    let mut noise = Noise(3);
    for size in SIZES {
        for count in [0, 1, 2, 32, MAX_COLOURS] {
            let kernel = classes(size, count);
            check(&mut noise, &kernel, 3, |noise| noise.below(7) as u8);
        }
    }
}

#[test]
fn widening_keeps_class_numbers_and_replaces_255() {
    let mut noise = Noise(5);
    for (height, width) in SIZES {
        for (dtype, unknown) in [
            (Integer::I32, -1),
            (Integer::I32, i64::from(i32::MIN)),
            (Integer::I64, 255),
            (Integer::I64, i64::MIN + 7),
        ] {
            let kernel = Kernel::Widen {
                height,
                width,
                dtype,
                unknown,
            };
            check(&mut noise, &kernel, 3, |noise| 250 + noise.below(6) as u8);
        }
    }
}

#[test]
fn the_largest_palette_finds_its_colours_and_no_neighbours() {
    let colours: Vec<[u8; 3]> = (0..MAX_COLOURS as u32)
        .map(|n| [n as u8 & 0xfe, (n * 77) as u8, 255 - (n * 5) as u8])
        .collect();
    let kernel = Kernel::Classes {
        height: 2,
        width: MAX_COLOURS,
        colours: colours.clone(),
        classes: (0..MAX_COLOURS).map(|n| n as u8).collect(),
        unknown: 255,
    };
    let neighbours = colours.iter().map(|&[r, g, b]| [r | 1, g, b]);
    let input = [colours.concat(), neighbours.collect::<Vec<_>>().concat()].concat();

    let found = run(&kernel, 1, &input, None, 0);

    let (of_colours, of_neighbours) = found.split_at(MAX_COLOURS);
    assert!(of_colours.iter().zip(0..).all(|(&class, n)| class == n));
    assert!(of_neighbours.iter().all(|&class| class == 255));
}

#[test]
fn kernels_and_views_of_any_size_equal_the_host() {
    let seed = 0x5eed_0f42;
    println!("seed {seed:#x}");
    let mut noise = Noise(seed);
    for _ in 0..1500 {
        let size = (1 + noise.below(40), 1 + noise.below(90));
        let (dtype, layout) = (noise.choice(&DTYPES), noise.choice(&LAYOUTS));
        let kernel = match noise.below(3) {
            0 => expand(size, noise.choice(&[1, 2, 3, 3, 3, 4, 7]), dtype, layout),
            1 => one_hot(size, 1 + noise.below(40), dtype, layout),
            _ => classes(size, noise.below(100)),
        };
        let rows = 1 + noise.below(4);
        check(&mut noise, &kernel, rows, |noise| noise.below(48) as u8);
    }
}

#[test]
fn every_byte_rounds_alike_for_ordinary_and_extreme_factors() {
    // Denormal float16 and bfloat16, halfway cases, overflow to infinity, and products whose
    // rounding a fused operation would skip.
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
    let input: Vec<u8> = (0..=255).collect();
    for dtype in DTYPES {
        for layout in LAYOUTS {
            for scale in scales {
                for bias in biases {
                    let kernel = Kernel::Expand {
                        height: 4,
                        width: 64,
                        channels: 1,
                        dtype,
                        layout,
                        scale: [scale; 4],
                        bias: [bias; 4],
                    };
                    let found = run(&kernel, 1, &input, None, 0);
                    assert!(found == reference(&kernel, 1, &input), "{kernel:?}");
                }
            }
        }
    }
}

#[test]
fn float16_and_bfloat16_round_as_the_library_does() {
    // A product of one and a factor is the factor: four numbers a run. Every upper half of a float,
    // with lower halves around the boundaries that decide how the upper half is rounded.
    let lower = [0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff];
    let numbers = (0..=u16::MAX).flat_map(|upper| {
        let number = move |low: u32| f32::from_bits(u32::from(upper) << 16 | low);
        lower.map(number).into_iter().filter(|n| n.is_finite())
    });
    let numbers: Vec<f32> = numbers.collect();
    for four in numbers.chunks(4) {
        let mut scale = [1.0; 4];
        scale[..four.len()].copy_from_slice(four);
        // The result of adding zero.
        let value = scale.map(|factor| factor + 0.0);
        for dtype in [Dtype::F16, Dtype::BF16] {
            let kernel = Kernel::Expand {
                height: 1,
                width: 1,
                channels: 4,
                dtype,
                layout: Layout::Hwc,
                scale,
                bias: [0.0; 4],
            };
            let mut found = [0; 8];
            kernel.run(1, &[1; 4], None, &mut found).expect("it fits");
            let expected = value.map(|value| match dtype {
                Dtype::F16 => half::f16::from_f32(value).to_bits(),
                _ => half::bf16::from_f32(value).to_bits(),
            });
            let found: Vec<u16> = found
                .chunks(2)
                .map(|pair| u16::from_ne_bytes([pair[0], pair[1]]))
                .collect();
            assert_eq!(found, expected, "{dtype:?} of {scale:?}");
        }
    }
}

#[test]
fn a_quotient_is_exact_for_every_divisor_and_numbers_below_2_to_the_31() {
    let mut noise = Noise(4);
    let last = (1_u32 << 31) - 1;
    let small = 1..=3000;
    let large = (0..3000).map(|n| last as usize - n);
    let others: Vec<usize> = (0..20_000)
        .map(|_| 1 + ((noise.next() as usize % (1 << 31)) >> noise.below(31)))
        .collect();
    let powers = (0..31).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]);
    for by in small.chain(large).chain(others).chain(powers) {
        let divider = Divider::of(by);
        let by = by.max(1) as u32;
        let at_seams = (0..8).map(|_| noise.below((last / by) as usize + 1) as u32 * by);
        let seams = at_seams.flat_map(|n| [n, n.saturating_sub(1), n + 1]);
        for n in seams.chain([0, 1, last, last - 1]).filter(|&n| n <= last) {
            assert_eq!(divider.divide(n), n / by, "{n} / {by}");
        }
    }
}
