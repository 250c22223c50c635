//! Tests of the ring, all on the simulated device.

mod behaviour;
mod decoding;
mod faults;
mod layouts;
mod model;
mod stress;
mod timing;

use infeed_raw::kernel::Kernel;
use infeed_raw::simd::{Dtype, Layout};

use infeed_core::batch::{Array, Batch, Column, ColumnKind, ColumnSpec, Values};
use infeed_core::sample::DType;

use super::{RingSettings, Route};

const SIDE: usize = 4;
const PIXELS: usize = SIDE * SIDE * 3;

/// Converts pixels to bfloat16, channels first, minus 1.
fn kernel() -> Kernel {
    Kernel::Expand {
        height: SIDE,
        width: SIDE,
        channels: 3,
        dtype: Dtype::BF16,
        layout: Layout::Chw,
        scale: [1.0; 4],
        bias: [-1.0; 4],
    }
}

fn column(name: &str, dtype: DType, shape: &[usize]) -> ColumnSpec {
    let shape = shape.to_vec();
    ColumnSpec {
        name: name.to_owned(),
        kind: ColumnKind::Fixed { dtype, shape },
    }
}

/// An image that a kernel expands, a label that is copied, a name that stays.
fn routes() -> Vec<Route> {
    let image = column("image", DType::UInt8, &[SIDE, SIDE, 3]);
    let expanded = column("image", DType::BFloat16, &[3, SIDE, SIDE]);
    let name = ColumnSpec {
        name: "name".to_owned(),
        kind: ColumnKind::Text,
    };
    vec![
        Route::expand(image, kernel(), expanded),
        Route::copy(column("label", DType::Int64, &[])),
        Route::stay(name),
    ]
}

/// Settings of a ring that does not wait for its consumer.
fn settings(rows: usize, slots: usize) -> RingSettings {
    let mut settings = RingSettings::new(rows);
    settings.slots = slots;
    settings.timeout = std::time::Duration::ZERO;
    settings
}

fn pixels(step: u64, rows: usize) -> Vec<u8> {
    let pixel = |n: usize| (step as usize * 7 + n) as u8;
    (0..rows * PIXELS).map(pixel).collect()
}

fn labels(step: u64, rows: usize) -> Vec<u8> {
    let label = |n: usize| (step * 1000 + n as u64).to_le_bytes();
    (0..rows).flat_map(label).collect()
}

/// Returns the expected image of a step on the device.
fn expected_image(step: u64, rows: usize) -> Vec<u8> {
    let mut output = vec![0; kernel().output_bytes(rows).expect("small")];
    kernel()
        .run(rows, &pixels(step, rows), None, &mut output)
        .expect("it fits");
    output
}

/// Returns the batch of a step; its contents depend on the step.
fn batch(step: u64, rows: usize) -> Batch {
    let array = |bytes: &[u8], shape: Vec<usize>, dtype| {
        Values::Array(Array::own(bytes, shape, dtype).expect("memory"))
    };
    let image = array(&pixels(step, rows), vec![rows, SIDE, SIDE, 3], DType::UInt8);
    let label = array(&labels(step, rows), vec![rows], DType::Int64);
    let name = Values::Text((0..rows).map(|row| format!("{step}.{row}")).collect());
    let columns = [("image", image), ("label", label), ("name", name)];
    let columns = columns.map(|(name, values)| Column {
        name: name.to_owned(),
        values,
    });
    Batch {
        columns: columns.into(),
        records: (0..rows as u64).collect(),
        epoch: 0,
        step,
    }
}
