//! Kernels on a device against the same kernels on the host, byte for byte.

use infeed_raw::kernel::{Kernel, RowView};
use infeed_raw::simd::{Dtype, Layout};
use infeed_raw::slab::Slab;

use super::{Checked, Wrong, filled, noise, wrong};
use crate::device::DeviceError;

pub(super) const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::BF16];
const LAYOUTS: [Layout; 2] = [Layout::Hwc, Layout::Chw];

/// Heights and widths: a pixel, a row, sizes that no vector divides, and one that all do.
const SIZES: [(usize, usize); 4] = [(1, 1), (1, 37), (13, 7), (32, 64)];

/// The usual factors of photographs: `(v / 255 - mean) / std`.
pub(super) fn photograph(
    size: (usize, usize),
    channels: usize,
    dtype: Dtype,
    layout: Layout,
) -> Kernel {
    let mean = [0.485, 0.456, 0.406, 0.5];
    let std = [0.229, 0.224, 0.225, 0.25];
    Kernel::Expand {
        height: size.0,
        width: size.1,
        channels,
        dtype,
        layout,
        scale: std::array::from_fn(|n| (1.0 / 255.0 / std[n]) as f32),
        bias: std::array::from_fn(|n| (-mean[n] / std[n]) as f32),
    }
}

fn all() -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for size in SIZES {
        let (height, width) = size;
        for dtype in DTYPES {
            for layout in LAYOUTS {
                kernels.extend([1, 3, 4].map(|n| photograph(size, n, dtype, layout)));
                kernels.extend([1, 19].map(|classes| Kernel::OneHot {
                    height,
                    width,
                    classes,
                    dtype,
                    layout,
                }));
            }
        }
        // Colours from the noise that the rows are made of, so that many are met.
        let colours: Vec<[u8; 3]> = (0..200u8).map(|n| [n, n ^ 7, 3]).collect();
        kernels.push(Kernel::Classes {
            height,
            width,
            classes: (0..200).collect(),
            colours,
            unknown: 255,
        });
    }
    kernels
}

/// Rows of a kernel's input. For colours, every other pixel is one that is known.
fn rows_of(kernel: &Kernel, key: u64, len: usize) -> Vec<u8> {
    let mut bytes = noise(key, len);
    match kernel {
        Kernel::Classes { .. } => {
            for (n, pixel) in bytes
                .chunks_exact_mut(3)
                .enumerate()
                .filter(|(n, _)| n % 2 == 0)
            {
                let index = (n % 200) as u8;
                pixel.copy_from_slice(&[index, index ^ 7, 3]);
            }
        }
        // Mostly classes that there are, some that there are not.
        Kernel::OneHot { classes, .. } => bytes
            .iter_mut()
            .for_each(|byte| *byte %= (classes + 2).min(255) as u8),
        Kernel::Expand { .. } => {}
    }
    bytes
}

/// Views of `rows` crops: from lines that are longer than needed, in reverse, and mirrored.
fn crops(kernel: &Kernel, rows: usize) -> (Vec<RowView>, usize) {
    let (height, line) = match *kernel {
        Kernel::Expand {
            height,
            width,
            channels,
            ..
        } => (height, width * channels),
        Kernel::OneHot { height, width, .. } => (height, width),
        Kernel::Classes { height, width, .. } => (height, width * 3),
    };
    let row_bytes = line + 5;
    let image = height * row_bytes;
    let views = (0..rows)
        .map(|row| RowView {
            offset: ((rows - 1 - row) * image + row) as u64,
            row_bytes: row_bytes as u32,
            flags: row as u32 % 4,
        })
        .collect();
    (views, rows * image + rows)
}

/// Runs every kernel over rows one after another and over views, on the device and on the host.
pub(super) fn same_bytes<D: Checked>(device: &D) -> Result<String, Wrong> {
    const ROWS: usize = 5;
    let queue = device.stream()?;
    let (kernels, mut bytes) = (all(), 0);
    for (key, kernel) in kernels.iter().enumerate() {
        let dense = kernel
            .input_bytes(ROWS)
            .ok_or_else(|| wrong("the size of a kernel's input is no number"))?;
        let (crops, len) = crops(kernel, ROWS);
        for (views, len) in [(None, dense), (Some(crops), len)] {
            let input = rows_of(kernel, key as u64, len);
            bytes += one(device, queue, kernel, ROWS, &input, views.as_deref())?;
        }
    }
    Ok(format!(
        "{} kernels, over rows and over views: {bytes} bytes equal",
        kernels.len()
    ))
}

fn one<D: Checked>(
    device: &D,
    queue: D::Queue,
    kernel: &Kernel,
    rows: usize,
    input: &[u8],
    views: Option<&[RowView]>,
) -> Result<usize, Wrong> {
    let len = kernel
        .output_bytes(rows)
        .ok_or_else(|| wrong("the size of a kernel's output is no number"))?;
    let mut expected = vec![0; len];
    kernel.run(rows, input, views, &mut expected)?;

    let from = filled(device, queue, input)?;
    // What was there before must not be what is expected by chance.
    let to = filled(device, queue, &noise(1 << 40, len))?;
    let table = views
        .map(|views| Ok::<_, DeviceError>((views, filled(device, queue, RowView::bytes(views))?)))
        .transpose()?;
    let table = table.as_ref().map(|(views, place)| (*views, place));
    device.launch(queue, kernel, rows, &from, table, &to)?;
    let found = device.fetch(queue, &to, Slab::zeroed(1, len)?)?;

    let differs = |(_, (a, b)): &(usize, (&u8, &u8))| a != b;
    let pairs = || expected.iter().zip(found.as_ref()).enumerate();
    if let Some((at, (want, got))) = pairs().find(differs) {
        let count = pairs().filter(differs).count();
        return Err(wrong(format!(
            "{kernel:?}, {} views: byte {at} is {got} and should be {want}; {count} of {len} differ",
            views.map_or(0, <[RowView]>::len)
        )));
    }
    Ok(len)
}
