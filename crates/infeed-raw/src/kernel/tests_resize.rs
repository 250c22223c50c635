//! Resizes on the host, compared with the host's resizer, which has the same bits, and hostile
//! tables.

use infeed_resize::{FilterType, PixelType, ResizeAlg, Resizer, RowPart};

use super::resize::Axis;
use super::tests::Noise;
use super::*;
use crate::simd::{self, Convert, Dtype, Layout, Level, SourcePixels};

const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::BF16];
const LAYOUTS: [Layout; 2] = [Layout::Hwc, Layout::Chw];

fn kernel((height, width): (usize, usize), channels: usize) -> Kernel {
    Kernel::Resize {
        height,
        width,
        channels,
        dtype: Dtype::U8,
        layout: Layout::Hwc,
        scale: [1.0 / 58.4, 1.0 / 57.1, 1.0 / 57.4, 0.1],
        bias: [-2.118, -2.036, -1.804, 7.0],
    }
}

/// An image among others: the bytes around it must not contribute.
fn view(
    noise: &mut Noise,
    end: &mut usize,
    (height, width): (u32, u32),
    channels: usize,
) -> ResizeView {
    let row_bytes = width as usize * channels + noise.below(3) * noise.below(9);
    let offset = *end + noise.below(2) * noise.below(7);
    *end = offset + (height as usize - 1) * row_bytes + width as usize * channels;
    ResizeView {
        offset: offset as u64,
        row_bytes: row_bytes as u32,
        flags: noise.below(4) as u32,
        height,
        width,
    }
}

/// Computes the result for an image with the host's resizer and the SIMD pass.
fn reference(kernel: &Kernel, view: &ResizeView, input: &[u8]) -> Vec<u8> {
    let Kernel::Resize {
        height,
        width,
        channels,
        dtype,
        layout,
        scale,
        bias,
    } = *kernel
    else {
        panic!("a resize");
    };
    let line = view.width as usize * channels;
    let lines = input[view.offset as usize..].chunks(view.row_bytes as usize);
    let dense: Vec<u8> = lines
        .take(view.height as usize)
        .flat_map(|all| &all[..line])
        .copied()
        .collect();
    let kind = [
        PixelType::U8,
        PixelType::U8x2,
        PixelType::U8x3,
        PixelType::U8x4,
    ][channels - 1];
    let mut to = vec![0; height * width * channels];
    let size = (width as u32, height as u32);
    let part = RowPart::whole(&dense, view.width, view.height);
    let mut resizer = Resizer::new();
    infeed_resize::resize(
        &mut resizer,
        kind,
        ResizeAlg::Convolution(FilterType::Bilinear),
        &part,
        &mut to,
        size,
    )
    .expect("its pixels");
    let source = SourcePixels {
        data: &to,
        width,
        height,
        channels,
        row_bytes: width * channels,
    };
    let how = Convert {
        dtype,
        layout,
        flip_x: view.flags & RowView::FLIP_X != 0,
        flip_y: view.flags & RowView::FLIP_Y != 0,
        scale,
        bias,
    };
    let mut out = vec![0; kernel.output_bytes(1).expect("small")];
    simd::convert(Level::detect(), &source, &how, &mut out);
    out
}

/// Resizes images of these sizes, compares each, and checks the bytes around the output.
fn check(noise: &mut Noise, kernel: &Kernel, sizes: &[(u32, u32)], weights: &mut Bilinear) {
    const GUARD: usize = 24;
    let (height, width) = kernel.size();
    let channels = kernel.pixel_bytes();
    let mut end = 0;
    let views: Vec<ResizeView> = sizes
        .iter()
        .map(|&size| view(noise, &mut end, size, channels))
        .collect();
    // Includes extremes, where sums exceed a byte or are clipped.
    let input: Vec<u8> = match noise.below(4) {
        0 => (0..end).map(|_| noise.choice(&[0, 255])).collect(),
        1 => vec![255; end],
        _ => (0..end).map(|_| noise.next() as u8).collect(),
    };
    let table = ResizeTable::of(height, width, &views, weights).expect("sides of images");
    assert_eq!(table.input_bytes(channels), Some(end));
    let read = ResizeTable::from_bytes(height, width, views.len(), table.bytes().to_vec());
    assert_eq!(read.as_ref(), Ok(&table), "as a device reads it");

    let len = kernel.output_bytes(sizes.len()).expect("small");
    let shift = kernel.element_bytes() * noise.below(5);
    let mut host = vec![0xa5_u8; len + 2 * GUARD + shift];
    let range = GUARD + shift..GUARD + shift + len;
    kernel
        .run(
            sizes.len(),
            &input,
            Some(Table::Resize(&table)),
            &mut host[range.clone()],
        )
        .expect("everything fits");

    let around = host[..range.start].iter().chain(&host[range.end..]);
    assert!(around.into_iter().all(|&byte| byte == 0xa5), "{kernel:?}");
    let rows = host[range].chunks_exact(len / sizes.len());
    for (view, found) in views.iter().zip(rows) {
        let expected = reference(kernel, view, &input);
        let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{view:?}: {kernel:?}");
    }
}

#[test]
fn resized_rows_equal_those_of_the_hosts_resizer() {
    let seed = 0x5eed_0f43;
    println!("seed {seed:#x}");
    let mut noise = Noise(seed);
    let mut weights = Bilinear::new();
    for _ in 0..900 {
        let side = |noise: &mut Noise| match noise.below(4) {
            0 => 1 + noise.below(4),
            1 => 1 + noise.below(150),
            _ => 1 + noise.below(48),
        };
        let mut kernel = kernel(
            (side(&mut noise), side(&mut noise)),
            noise.choice(&[1, 2, 3, 3, 3, 4]),
        );
        if let Kernel::Resize { dtype, layout, .. } = &mut kernel {
            (*dtype, *layout) = (noise.choice(&DTYPES), noise.choice(&LAYOUTS));
        }
        let sizes: Vec<(u32, u32)> = (0..1 + noise.below(4))
            .map(|_| (side(&mut noise) as u32, side(&mut noise) as u32))
            .collect();
        check(&mut noise, &kernel, &sizes, &mut weights);
    }
}

#[test]
fn crops_of_photographs_equal_those_of_the_hosts_resizer() {
    let mut noise = Noise(44);
    let mut weights = Bilinear::new();
    for _ in 0..12 {
        let sizes: Vec<(u32, u32)> = (0..3)
            .map(|_| (30 + noise.below(470) as u32, 30 + noise.below(470) as u32))
            .collect();
        check(&mut noise, &kernel((224, 224), 3), &sizes, &mut weights);
    }
}

#[test]
fn sides_of_every_length_have_the_weights_of_the_hosts_resizer() {
    // A line with one bright pixel shows the weights of that pixel, so all lines together show all
    // weights, to 8 bits.
    let mut resizer = Resizer::new();
    for from in (1..=70_u32).chain([127, 333]) {
        for to in [1, 2, 3, 5, 7, 16, 31, 64, 100] {
            let axis = Axis::bilinear(from, to);
            // In line n, pixel n is bright.
            let mut pixels = vec![0_u8; (from * from) as usize];
            pixels
                .iter_mut()
                .step_by(from as usize + 1)
                .for_each(|pixel| *pixel = 255);
            let mut out = vec![0; (to * from) as usize];
            let part = RowPart::whole(&pixels, from, from);
            let filter = ResizeAlg::Convolution(FilterType::Bilinear);
            let kind = PixelType::U8;
            infeed_resize::resize(&mut resizer, kind, filter, &part, &mut out, (to, from))
                .expect("square");

            for x in 0..to as usize {
                let weights = &axis.weights[x * axis.taps..][..axis.taps];
                for y in 0..from as usize {
                    let tap = y.checked_sub(axis.firsts[x] as usize);
                    let weight = tap.and_then(|tap| weights.get(tap)).copied().unwrap_or(0);
                    let half = 1 << (axis.precision - 1);
                    let byte = ((255 * i32::from(weight) + half) >> axis.precision).min(255);
                    let found = out[y * to as usize + x];
                    assert_eq!(byte, i32::from(found), "{from} to {to}: {x} of {y}");
                }
            }
        }
    }
}

#[test]
fn images_of_one_length_share_axes_which_are_kept_for_the_next_table() {
    let view = |height, width| ResizeView {
        offset: 0,
        row_bytes: 3 * width,
        flags: 0,
        height,
        width,
    };
    let mut weights = Bilinear::new();
    let one = ResizeTable::of(8, 8, &[view(20, 30)], &mut weights).expect("an image");
    let views = [view(20, 30), view(30, 20), view(20, 20)];
    let three = ResizeTable::of(8, 8, &views, &mut weights).expect("images");

    // Two more entries and no more axes.
    assert_eq!(three.bytes().len(), one.bytes().len() + 2 * 48);
    assert_eq!(
        three,
        ResizeTable::of(8, 8, &views, &mut Bilinear::new()).expect("images")
    );
}

#[test]
fn views_that_are_not_images_are_rejected() {
    let fitting = ResizeView {
        offset: 10,
        row_bytes: 20,
        flags: 3,
        height: 4,
        width: 5,
    };
    let of = |view| ResizeTable::of(3, 3, &[fitting, view], &mut Bilinear::new());
    for (height, width) in [(0, 5), (4, 0), (MAX_SIDE + 1, 5), (4, u32::MAX)] {
        let error = of(ResizeView {
            height,
            width,
            ..fitting
        })
        .unwrap_err();
        assert!(matches!(error, KernelError::Side { row: 1, .. }), "{error}");
    }
    let error = of(ResizeView {
        flags: 4,
        ..fitting
    })
    .unwrap_err();
    assert!(
        matches!(error, KernelError::Image { row: 1, .. }),
        "{error}"
    );

    // The last line ends at the end of the input: 10 + 3 * 20 + 15.
    let kernel = kernel((3, 3), 3);
    let check = |view: ResizeView, input| {
        let table = of(view).expect("a table");
        kernel.check(2, input, Some(Table::Resize(&table)), 54)
    };
    assert_eq!(check(fitting, 85), Ok(()));
    for view in [
        ResizeView {
            offset: 11,
            ..fitting
        },
        ResizeView {
            offset: u64::MAX - 20,
            ..fitting
        },
        ResizeView {
            row_bytes: 21,
            ..fitting
        },
        ResizeView {
            row_bytes: 14,
            ..fitting
        },
        ResizeView {
            height: 5,
            ..fitting
        },
        ResizeView {
            width: 6,
            ..fitting
        },
    ] {
        let error = check(view, 85).unwrap_err();
        assert!(
            matches!(error, KernelError::Image { row: 1, .. }),
            "{view:?}: {error}"
        );
    }
    assert!(check(fitting, 84).is_err());
}

#[test]
fn only_a_resize_accepts_a_resize_table() {
    let view = ResizeView {
        offset: 0,
        row_bytes: 6,
        flags: 0,
        height: 2,
        width: 2,
    };
    let table =
        |height| ResizeTable::of(height, 3, &[view], &mut Bilinear::new()).expect("a table");
    let resize = kernel((3, 3), 3);
    let check = |kernel: &Kernel, rows, table: Option<Table<'_>>| {
        let output = kernel.output_bytes(rows).expect("small");
        kernel.check(rows, 12, table, output)
    };
    let other = |result| matches!(result, Err(KernelError::OtherTable { .. }));
    assert_eq!(check(&resize, 1, Some(Table::Resize(&table(3)))), Ok(()));
    assert!(other(check(&resize, 1, None)));
    assert!(other(check(&resize, 0, Some(Table::Views(&[])))));
    assert!(resize.launch(1, 0, None, 0).is_err());
    let expand = Kernel::Widen {
        height: 3,
        width: 3,
        dtype: Integer::I64,
        unknown: 0,
    };
    assert!(other(check(&expand, 1, Some(Table::Resize(&table(3))))));
    let error = check(&resize, 1, Some(Table::Resize(&table(4)))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the table resizes to 4x3, the kernel to 3x3"
    );
    let error = check(&resize, 2, Some(Table::Resize(&table(3)))).unwrap_err();
    assert_eq!(error, KernelError::Views { rows: 2, found: 1 });
    let error = kernel((3, 3), 5).check(1, 12, None, 45).unwrap_err();
    assert_eq!(error, KernelError::Channels { channels: 5 });
}

#[test]
fn a_table_with_any_word_changed_is_rejected_or_harmless() {
    let mut noise = Noise(46);
    let kernel = kernel((5, 4), 3);
    let mut end = 0;
    let sizes = [(7, 9), (3, 2), (12, 5)];
    let views = sizes.map(|size| view(&mut noise, &mut end, size, 3));
    let table = ResizeTable::of(5, 4, &views, &mut Bilinear::new()).expect("a table");
    // The bytes around the input must not affect the result.
    let surrounded = [0_u8, 0xa5].map(|byte| {
        let mut memory = vec![byte; end + 2 * 4096];
        memory[4096..][..end].fill(255);
        memory
    });
    let words = table.bytes().len() / 4;
    let mut taken = 0;
    for n in 0..words * 12 {
        let mut bytes = table.bytes().to_vec();
        let position = n % words * 4;
        let word: u32 = match noise.below(6) {
            0 => noise.next() as u32,
            1 => u32::MAX,
            2 => 1 << noise.below(32),
            3 => noise.below(words + 2) as u32,
            4 => noise.below(12) as u32,
            _ => 0,
        };
        bytes[position..position + 4].copy_from_slice(&word.to_ne_bytes());
        if noise.below(8) == 0 {
            bytes.truncate(noise.below(bytes.len()));
        }
        let Ok(table) = ResizeTable::from_bytes(5, 4, 3, bytes) else {
            continue;
        };
        // Any weights make any sums; the results stay bytes.
        let [one, other] = surrounded.each_ref().map(|memory| {
            let mut out = vec![0; kernel.output_bytes(3).expect("small")];
            let input = &memory[4096..][..end];
            let ran = kernel.run(3, input, Some(Table::Resize(&table)), &mut out);
            ran.map(|()| out)
        });
        assert_eq!(one, other, "word {position}: {word:#x}");
        taken += usize::from(one.is_ok());
    }
    assert!(taken > words, "only some are rejected: {taken}");
}

#[test]
fn lengths_that_overflow_are_errors() {
    for rows in [1, usize::MAX / 48, usize::MAX / 48 + 1, usize::MAX] {
        let error = ResizeTable::from_bytes(4, 4, rows, Vec::new()).unwrap_err();
        assert_eq!(error, KernelError::Table { row: 0 });
    }
    let view = ResizeView {
        offset: 0,
        row_bytes: 3,
        flags: 0,
        height: 1,
        width: 1,
    };
    let table = ResizeTable::of(2, 2, &[view], &mut Bilinear::new()).expect("a table");
    for side in [1 << 20, 1 << 31, usize::MAX / 4, usize::MAX] {
        let bytes = table.bytes().to_vec();
        assert!(ResizeTable::from_bytes(side, 2, 1, bytes).is_err());
        assert!(ResizeTable::of(side.saturating_add(1), 2, &[view], &mut Bilinear::new()).is_err());
    }
    // An image without pixels has nothing to read.
    assert!(ResizeTable::from_bytes(0, 0, 1, table.bytes().to_vec()).is_ok());
}
