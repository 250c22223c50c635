//! Rows of a memory-mapped .npy file, through the kernel that writes a row of a batch.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use infeed_raw::host::HostBytes;
use infeed_raw::map::FileMap;
use infeed_raw::simd::{Convert, Dtype, Layout, Level, SourcePixels, convert};

use crate::records::{Random, Turn};
use crate::{Job, Step};

const SIDE: usize = 224;
const ROW: usize = SIDE * SIDE * 3;
const BATCH: usize = 256;

/// Flip and, if `floats`, normalize to float32; channels last.
pub fn job(path: &Path, floats: bool) -> Result<Job> {
    let map = FileMap::open(path)?;
    // An .npy header ends on a multiple of 64 bytes, and its length is in bytes 8 and 9.
    let length = fs::metadata(path)?.len() as usize;
    let header = map
        .as_ref()
        .get(8..10)
        .map_or(0, |b| 10 + usize::from(b[0]) + (usize::from(b[1]) << 8));
    ensure!(
        length > header && (length - header).is_multiple_of(ROW),
        "{path:?} does not hold 224x224x3"
    );
    // The first access to a mapped page costs more than the work on its rows.
    std::hint::black_box(
        map.as_ref()
            .iter()
            .step_by(4096)
            .fold(0, |sum, byte| sum ^ byte),
    );
    let shared = Arc::new((map, Turn::default()));
    Ok(Box::new(move |thread| {
        let shared = shared.clone();
        let mut random = Random(thread);
        let element = if floats { 4 } else { 1 };
        let mut slab = HostBytes::zeroed(BATCH * ROW * element)?;
        let level = Level::detect();
        let (scale, bias) = normalize();
        let step = move || {
            let (map, turn) = &*shared;
            let rows = &map.as_ref()[header..];
            for out in slab.chunks_exact_mut(ROW * element) {
                let row = &rows[turn.next(rows.len() / ROW) * ROW..][..ROW];
                let source = SourcePixels {
                    data: row,
                    width: SIDE,
                    height: SIDE,
                    channels: 3,
                    row_bytes: SIDE * 3,
                };
                let pass = Convert {
                    dtype: if floats { Dtype::F32 } else { Dtype::U8 },
                    layout: Layout::Hwc,
                    flip_x: random.coin(),
                    flip_y: false,
                    scale,
                    bias,
                };
                convert(level, &source, &pass, out);
            }
            Ok(BATCH as u64)
        };
        Ok(Box::new(step) as Step)
    }))
}

/// ImageNet's normalization of bytes, as one multiplication and one addition per channel.
pub fn normalize() -> ([f32; 4], [f32; 4]) {
    let (mean, std) = ([0.485f32, 0.456, 0.406, 0.0], [0.229f32, 0.224, 0.225, 1.0]);
    let scale = std.map(|s| 1.0 / (255.0 * s));
    let bias = std::array::from_fn(|c| -mean[c] / std[c]);
    (scale, bias)
}
