//! Cases for all kernels and all kinds of rows.

use infeed_raw::kernel::{Integer, Kernel, ResizeView, RowView};
use infeed_raw::simd::{Dtype, Layout};

use crate::case::{Case, GpuAddresses, Images, Rows};
use crate::noise::Noise;

const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::BF16];
const LAYOUTS: [Layout; 2] = [Layout::Hwc, Layout::Chw];
/// Odd sizes, sizes that 16 divides, sizes whose rows are not a multiple of 16 bytes, and sizes
/// whose lines have one or two bytes.
const SIZES: [(usize, usize); 11] = [
    (1, 1),
    (32, 1),
    (29, 2),
    (1, 17),
    (3, 5),
    (7, 16),
    (2, 48),
    (5, 33),
    (16, 16),
    (31, 9),
    (20, 64),
];

/// Values of the colours' bytes.
const SHADES: [u8; 7] = [0, 1, 77, 128, 200, 254, 255];

/// Returns cases for every entry and every size.
pub(crate) fn all(noise: &mut Noise) -> Vec<Case> {
    let mut cases = Vec::new();
    for (height, width) in SIZES {
        for dtype in DTYPES {
            for layout in LAYOUTS {
                for channels in (1..=5).chain([6, 7, 8, 12]) {
                    let kernel = expand(noise, (height, width), channels, dtype, layout);
                    cases.push(dense(noise, kernel));
                    let kernel = expand(noise, (height, width), channels, dtype, layout);
                    cases.push(through_views(noise, kernel));
                }
                for classes in [1, 2, 3, 12, 40] {
                    let kernel = || Kernel::OneHot {
                        height,
                        width,
                        classes,
                        dtype,
                        layout,
                    };
                    cases.push(dense(noise, kernel()));
                    cases.push(through_views(noise, kernel()));
                }
                for channels in [1, 2, 3, 4, 4] {
                    let kernel = resize(noise, (height, width), channels, dtype, layout);
                    cases.push(of_images(noise, kernel, 48));
                }
            }
        }
        for colours in [0, 1, 2, 32, 255] {
            cases.push(dense(noise, palette((height, width), colours)));
            cases.push(through_views(noise, palette((height, width), colours)));
        }
        for (dtype, unknown) in [
            (Integer::I32, -1),
            (Integer::I32, i64::from(i32::MIN)),
            (Integer::I64, 255),
            (Integer::I64, i64::MIN + 7),
        ] {
            let kernel = || Kernel::Widen {
                height,
                width,
                dtype,
                unknown,
            };
            cases.push(dense(noise, kernel()));
            cases.push(through_views(noise, kernel()));
        }
    }
    // Rows that begin and end at every position in 16 bytes, with lines that end anywhere in
    // between.
    for shift in 0..16 {
        for (height, width) in [(32, 1), (11, 3)] {
            let mut kernels = vec![palette((height, width), 32)];
            for dtype in [Integer::I32, Integer::I64] {
                kernels.push(Kernel::Widen {
                    height,
                    width,
                    dtype,
                    unknown: -1,
                });
            }
            for dtype in DTYPES {
                kernels.push(expand(noise, (height, width), 1, dtype, Layout::Hwc));
                for layout in LAYOUTS {
                    kernels.push(Kernel::OneHot {
                        height,
                        width,
                        classes: 1,
                        dtype,
                        layout,
                    });
                }
            }
            kernels.retain(|kernel| shift % element(kernel) == 0);
            for kernel in kernels {
                let mut case = through_views(noise, kernel);
                case.addresses.output = 0x7100_0000_0000 + shift as u64;
                cases.push(case);
            }
        }
    }
    // Rows of more than one block, with numbers halfway between two numbers of 16 bits.
    let (height, width) = (67, 63);
    for dtype in DTYPES {
        for layout in LAYOUTS {
            let first = if dtype == Dtype::BF16 { 256.0 } else { 2048.0 };
            let kernel = || Kernel::Expand {
                height,
                width,
                channels: 3,
                dtype,
                layout,
                scale: [1.0; 4],
                bias: [first, first + 1.0, first, 0.0],
            };
            cases.push(dense(noise, kernel()));
            cases.push(through_views(noise, kernel()));
            let kernel = || Kernel::OneHot {
                height,
                width,
                classes: 2,
                dtype,
                layout,
            };
            cases.push(dense(noise, kernel()));
            cases.push(through_views(noise, kernel()));
        }
    }
    for dtype in [Integer::I32, Integer::I64] {
        let kernel = || Kernel::Widen {
            height,
            width,
            dtype,
            unknown: -1,
        };
        cases.push(dense(noise, kernel()));
        cases.push(through_views(noise, kernel()));
    }
    cases.push(dense(noise, palette((height, width), 255)));
    cases.push(through_views(noise, palette((height, width), 255)));
    // Sides and numbers of weights that exceed 16 bits.
    for dtype in DTYPES {
        for layout in LAYOUTS {
            for size in [(1, 70_000), (70_000, 1)] {
                for channels in [3, 4] {
                    let kernel = resize(noise, (1, 1), channels, dtype, layout);
                    cases.push(of_sizes(noise, kernel, &[size], false));
                    let kernel = resize(noise, (3, 5), channels, dtype, layout);
                    cases.push(of_sizes(noise, kernel, &[(4, 4), size], true));
                }
            }
        }
    }
    cases
}

/// Returns a random case of any size.
pub(crate) fn any(noise: &mut Noise) -> Case {
    let size = (1 + noise.below(24), 1 + noise.below(70));
    let (dtype, layout) = (noise.choice(&DTYPES), noise.choice(&LAYOUTS));
    let (height, width) = size;
    let kernel = match noise.below(5) {
        0 => {
            let channels = noise.choice(&[1, 2, 3, 3, 3, 4, 7]);
            expand(noise, size, channels, dtype, layout)
        }
        1 => Kernel::OneHot {
            height,
            width,
            classes: 1 + noise.below(40),
            dtype,
            layout,
        },
        2 => palette(size, noise.below(100)),
        3 => Kernel::Widen {
            height,
            width,
            dtype: noise.choice(&[Integer::I32, Integer::I64]),
            unknown: noise.next() as i32 as i64,
        },
        _ => {
            let channels = noise.choice(&[1, 2, 3, 3, 3, 4]);
            let kernel = resize(noise, size, channels, dtype, layout);
            return of_images(noise, kernel, 90);
        }
    };
    match noise.below(3) {
        0 => dense(noise, kernel),
        _ => through_views(noise, kernel),
    }
}

/// Returns ordinary factors, or factors whose results are denormal or infinite, or halfway between
/// two numbers of 16 bits for every odd byte.
fn factors(noise: &mut Noise) -> ([f32; 4], [f32; 4]) {
    const SCALES: [f32; 9] = [
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
    const BIASES: [f32; 6] = [0.0, -0.5, 1.0 / 2048.0, 1e-8, 2049.0, -3e38];
    const HALFWAY: [f32; 4] = [256.0, 257.0, 2048.0, 2049.0];
    match noise.below(3) {
        0 => (
            [1.0 / 58.4, 1.0 / 57.1, 1.0 / 57.4, 0.1],
            [-2.118, -2.036, -1.804, 7.0],
        ),
        1 => (
            [(); 4].map(|()| noise.choice(&[1.0, -1.0])),
            [(); 4].map(|()| noise.choice(&HALFWAY)),
        ),
        _ => (
            [(); 4].map(|()| noise.choice(&SCALES)),
            [(); 4].map(|()| noise.choice(&BIASES)),
        ),
    }
}

pub(crate) fn expand(
    noise: &mut Noise,
    (height, width): (usize, usize),
    channels: usize,
    dtype: Dtype,
    layout: Layout,
) -> Kernel {
    let (scale, bias) = factors(noise);
    Kernel::Expand {
        height,
        width,
        channels,
        dtype,
        layout,
        scale,
        bias,
    }
}

fn resize(
    noise: &mut Noise,
    (height, width): (usize, usize),
    channels: usize,
    dtype: Dtype,
    layout: Layout,
) -> Kernel {
    let (scale, bias) = factors(noise);
    Kernel::Resize {
        height,
        width,
        channels,
        dtype,
        layout,
        scale,
        bias,
    }
}

/// Returns a palette of `count` colours of few different bytes, which random inputs often match.
fn palette((height, width): (usize, usize), count: usize) -> Kernel {
    let colour = |n: usize| [n % 7, n / 7 % 7, n / 49].map(|n| SHADES[n]);
    Kernel::Classes {
        height,
        width,
        colours: (0..count).map(colour).collect(),
        classes: (0..count).map(|n| (n * 3) as u8).collect(),
        unknown: 254,
    }
}

/// Returns height, width and bytes of a pixel of the input.
fn shape(kernel: &Kernel) -> (usize, usize, usize) {
    match *kernel {
        Kernel::Expand {
            height,
            width,
            channels,
            ..
        } => (height, width, channels),
        Kernel::Resize {
            height,
            width,
            channels,
            ..
        } => (height, width, channels),
        Kernel::OneHot { height, width, .. } | Kernel::Widen { height, width, .. } => {
            (height, width, 1)
        }
        Kernel::Classes { height, width, .. } => (height, width, 3),
    }
}

/// Returns the bytes of an element of the output.
fn element(kernel: &Kernel) -> usize {
    match kernel {
        Kernel::Expand { dtype, .. }
        | Kernel::OneHot { dtype, .. }
        | Kernel::Resize { dtype, .. } => dtype.bytes(),
        Kernel::Classes { .. } => 1,
        Kernel::Widen { dtype, .. } => dtype.bytes(),
    }
}

/// Returns bytes that reach all branches of a kernel.
fn bytes(noise: &mut Noise, kernel: &Kernel, len: usize) -> Vec<u8> {
    let kind = noise.below(4);
    let mut run = (0, 0);
    let mut byte = || match kernel {
        // Includes extremes, where sums exceed a byte or are clipped.
        Kernel::Resize { .. } if kind == 0 => noise.choice(&[0, 255]),
        Kernel::Expand { .. } | Kernel::Resize { .. } => noise.next() as u8,
        // Some indices are not below the number of classes.
        Kernel::OneHot { classes, .. } => noise.below((classes + 2).min(256)) as u8,
        // Runs of equal pixels, and different pixels.
        Kernel::Classes { .. } if kind < 2 => {
            if run.0 == 0 {
                run = (noise.below(40), noise.choice(&SHADES));
            } else {
                run.0 -= 1;
            }
            run.1
        }
        Kernel::Classes { .. } => noise.choice(&SHADES),
        Kernel::Widen { .. } => 250 + noise.below(6) as u8,
    };
    (0..len).map(|_| byte()).collect()
}

fn case(noise: &mut Noise, kernel: Kernel, rows: Rows, input: usize) -> Case {
    let (height, width, pixel) = shape(&kernel);
    let count = rows.count();
    let output = kernel.output_bytes(count).expect("small");
    Case {
        line: match rows {
            Rows::Images(_) => (0, pixel),
            _ => (height, width * pixel),
        },
        input: bytes(noise, &kernel, input),
        addresses: GpuAddresses::any(noise, element(&kernel), output),
        kernel,
        rows,
    }
}

/// Returns a case of up to three contiguous rows.
fn dense(noise: &mut Noise, kernel: Kernel) -> Case {
    let rows = 1 + noise.below(3);
    let len = kernel.input_bytes(rows).expect("small");
    case(noise, kernel, Rows::Dense(rows), len)
}

/// Returns a case of rows in an input with other bytes around them, some the same as the rows
/// before, mirrored.
fn through_views(noise: &mut Noise, kernel: Kernel) -> Case {
    let (height, width, pixel) = shape(&kernel);
    let mut end = 0;
    let views = (0..1 + noise.below(3)).map(|_| {
        let row_bytes = width * pixel + noise.below(3) * noise.below(9);
        let offset = match noise.below(4) {
            0 => noise.below(end + 1),
            _ => end + noise.below(2) * noise.below(7),
        };
        end = end.max(offset + (height - 1) * row_bytes + width * pixel);
        RowView {
            offset: offset as u64,
            row_bytes: row_bytes as u32,
            flags: noise.below(4) as u32,
        }
    });
    let views: Vec<RowView> = views.collect();
    case(noise, kernel, Rows::Views(views), end)
}

/// Returns a case of images with sides up to `longest`.
fn of_images(noise: &mut Noise, kernel: Kernel, longest: usize) -> Case {
    let sizes = (0..1 + noise.below(3)).map(|_| {
        let longest = noise.choice(&[4, longest, longest]);
        (1 + noise.below(longest), 1 + noise.below(longest))
    });
    let sizes: Vec<(usize, usize)> = sizes.collect();
    let is_wild = noise.below(3) == 0;
    of_sizes(noise, kernel, &sizes, is_wild)
}

fn of_sizes(noise: &mut Noise, kernel: Kernel, sizes: &[(usize, usize)], is_wild: bool) -> Case {
    let (height, width, pixel) = shape(&kernel);
    let mut end = 0;
    let views = sizes.iter().map(|&(height, width)| {
        let row_bytes = width * pixel + noise.below(3) * noise.below(9);
        let offset = end + noise.below(2) * noise.below(7);
        end = offset + (height - 1) * row_bytes + width * pixel;
        ResizeView {
            offset: offset as u64,
            row_bytes: row_bytes as u32,
            flags: noise.below(4) as u32,
            height: height as u32,
            width: width as u32,
        }
    });
    let views = views.collect();
    let wild = is_wild.then(|| noise.next());
    let rows = Rows::Images(Images {
        height,
        width,
        views,
        wild,
    });
    case(noise, kernel, rows, end)
}
