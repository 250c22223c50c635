//! Compares kernels on a device with the same kernels on the host, byte for byte.

use infeed_raw::kernel::{Bilinear, Integer, Kernel, ResizeTable, ResizeView, RowView, Table};
use infeed_raw::simd::{Dtype, Layout};
use infeed_raw::slab::Slab;

use super::bytes::{memory_with_bytes, noise};
use super::checked_device::CheckedDevice;
use super::findings::{CheckFailure, wrong};

pub(super) const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::BF16];
pub(super) const LAYOUTS: [Layout; 2] = [Layout::Hwc, Layout::Chw];

/// Heights and widths: one pixel, one row, a size that no vector length divides, and a size that
/// all vector lengths divide.
const SIZES: [(usize, usize); 4] = [(1, 1), (1, 37), (13, 7), (32, 64)];

/// Returns the usual normalization of photographs: `(v / 255 - mean) / std`.
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
        // Colours from the noise of the rows, so that many pixels match.
        let colours: Vec<[u8; 3]> = (0..200u8).map(|n| [n, n ^ 7, 3]).collect();
        kernels.push(Kernel::Classes {
            height,
            width,
            classes: (0..200).collect(),
            colours,
            unknown: 255,
        });
        kernels.extend([Integer::I32, Integer::I64].map(|dtype| Kernel::Widen {
            height,
            width,
            dtype,
            unknown: -100,
        }));
    }
    kernels
}

/// Returns a kernel that resizes, and then applies another kernel.
pub(super) fn with_resize(of: Kernel) -> Kernel {
    match of {
        Kernel::Expand {
            height,
            width,
            channels,
            dtype,
            layout,
            scale,
            bias,
        } => Kernel::Resize {
            height,
            width,
            channels,
            dtype,
            layout,
            scale,
            bias,
        },
        other => other,
    }
}

/// Places images of these sizes with padding between their lines, mirrored in all directions.
/// Returns their views and the total number of bytes.
pub(super) fn images(sizes: &[(u32, u32)], channels: usize) -> (Vec<ResizeView>, usize) {
    let mut end = 0;
    let views = sizes.iter().zip(0..).map(|(&(height, width), n)| {
        let row_bytes = width as usize * channels + n % 3;
        let view = ResizeView {
            offset: end as u64,
            row_bytes: row_bytes as u32,
            flags: n as u32 % 4,
            height,
            width,
        };
        end += height as usize * row_bytes;
        view
    });
    (views.collect(), end)
}

/// Returns rows of a kernel's input. For colours, every other pixel is a known colour.
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
        // Includes values without a class.
        Kernel::Widen { .. } => bytes
            .iter_mut()
            .filter(|byte| **byte > 200)
            .for_each(|byte| *byte = 255),
        // Mostly existing classes, some not.
        Kernel::OneHot { classes, .. } => bytes
            .iter_mut()
            .for_each(|byte| *byte %= (classes + 2).min(255) as u8),
        Kernel::Expand { .. } | Kernel::Resize { .. } => {}
    }
    bytes
}

/// Returns views of `rows` crops in reverse order, with padded lines, some of them mirrored.
fn crops(kernel: &Kernel, rows: usize) -> (Vec<RowView>, usize) {
    let (height, line) = match *kernel {
        Kernel::Expand {
            height,
            width,
            channels,
            ..
        }
        | Kernel::Resize {
            height,
            width,
            channels,
            ..
        } => (height, width * channels),
        Kernel::OneHot { height, width, .. } | Kernel::Widen { height, width, .. } => {
            (height, width)
        }
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

/// Runs every kernel, over contiguous rows, over views and over images of many sizes, on the device
/// and on the host.
pub(super) fn same_bytes<D: CheckedDevice>(device: &D) -> Result<String, CheckFailure> {
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
            let table = views.as_deref().map(Table::Views);
            bytes += one(device, queue, kernel, ROWS, &input, table)?;
        }
    }
    let (resizes, resized_bytes) = same_resizes(device, queue)?;
    Ok(format!(
        "{} kernels, over rows and over views, and {resizes} over images: {} bytes equal",
        kernels.len(),
        bytes + resized_bytes
    ))
}

/// Resizes images up, down, and to their own size.
fn same_resizes<D: CheckedDevice>(
    device: &D,
    queue: D::Queue,
) -> Result<(usize, usize), CheckFailure> {
    let (mut count, mut bytes) = (0, 0);
    let mut weights = Bilinear::new();
    for (height, width) in SIZES {
        let own = (height as u32, width as u32);
        let sizes = [own, (9, 200), (61, 33), (1, 1), (150, 7), own];
        for (channels, dtype, layout) in [1, 2, 3, 4].into_iter().flat_map(|channels| {
            let of = move |dtype| LAYOUTS.map(|layout| (channels, dtype, layout));
            DTYPES.into_iter().flat_map(of)
        }) {
            let kernel = with_resize(photograph((height, width), channels, dtype, layout));
            let (views, len) = images(&sizes, channels);
            let table = ResizeTable::of(height, width, &views, &mut weights)?;
            let input = noise(count as u64, len);
            let table = Some(Table::Resize(&table));
            bytes += one(device, queue, &kernel, sizes.len(), &input, table)?;
            count += 1;
        }
    }
    Ok((count, bytes))
}

fn one<D: CheckedDevice>(
    device: &D,
    queue: D::Queue,
    kernel: &Kernel,
    rows: usize,
    input: &[u8],
    table: Option<Table<'_>>,
) -> Result<usize, CheckFailure> {
    let len = kernel
        .output_bytes(rows)
        .ok_or_else(|| wrong("the size of a kernel's output is no number"))?;
    let mut expected = vec![0; len];
    kernel.run(rows, input, table, &mut expected)?;

    let from = memory_with_bytes(device, queue, input)?;
    // Old contents must not match the expected bytes by chance.
    let to = memory_with_bytes(device, queue, &noise(1 << 40, len))?;
    let position = table
        .map(|table| device.memory(table.bytes().len()))
        .transpose()?;
    let placed = table.zip(position.as_ref());
    device.launch(queue, kernel, rows, &from, placed, &to)?;
    let found = device.fetch(queue, &to, Slab::zeroed(1, len)?)?;

    let differs = |(_, (a, b)): &(usize, (&u8, &u8))| a != b;
    let pairs = || expected.iter().zip(found.as_ref()).enumerate();
    if let Some((at, (want, got))) = pairs().find(differs) {
        let count = pairs().filter(differs).count();
        return Err(wrong(format!(
            "{kernel:?}, {}: byte {at} is {got} and should be {want}; {count} of {len} differ",
            match table {
                None => "rows one after another",
                Some(Table::Views(_)) => "views",
                Some(Table::Resize(_)) => "images",
            }
        )));
    }
    Ok(len)
}
