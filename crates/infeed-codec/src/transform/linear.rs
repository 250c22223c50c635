//! Several linear changes of colours in one pass.

use super::color_step::ColorStep;
use infeed_core::sample::Image;
use infeed_raw::simd::{self, ColorChange, Level};

/// Weights of red, green and blue in the luma, as in torchvision.
const LUMA: [f64; 3] = [0.2989, 0.587, 0.114];

/// A result channel: weights of red, green and blue, and a number to add.
type ChannelSum = [f64; 4];

/// Makes linear changes of an image of 1 or 3 channels of 8 bits. Other changes do nothing.
///
/// The result of the single changes, without rounding or clipping between them.
pub(super) fn change_linearly(image: &mut Image, steps: &[ColorStep]) {
    let level = Level::detect();
    if image.channels != 3 {
        let pixels = image.size.pixels().max(1) as f64;
        let mean = image.data.iter().map(|&v| u64::from(v)).sum::<u64>() as f64 / pixels;
        // All channels of a gray pixel are equal.
        let [[r, g, b, add], ..] = channel_sums(steps, [mean; 3]);
        // Truncation rounds, with one half more.
        let (scale, bias) = ((r + g + b) as f32, (add + 0.5) as f32);
        return simd::scale_samples(level, scale, bias, &mut image.data);
    }
    let has_contrast = |step: &ColorStep| matches!(step, ColorStep::Contrast(_));
    let means = match steps.iter().any(has_contrast) {
        false => [0.0; 3],
        true => {
            let pixels = image.size.pixels().max(1) as f64;
            simd::channel_sums(level, &image.data).map(|sum| sum as f64 / pixels)
        }
    };
    let rows = channel_sums(steps, means).map(|row| row.map(|v| v as f32));
    simd::change_colors(level, ColorChange::Linear(rows), &mut image.data);
}

/// Returns the result channels of all changes, for an image whose channels have these means.
fn channel_sums(steps: &[ColorStep], means: [f64; 3]) -> [ChannelSum; 3] {
    let mut rows = [
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0],
    ];
    for step in steps {
        let luma = luma(&rows);
        rows = match *step {
            ColorStep::Brightness(factor) => blend(rows, factor, [0.0; 4]),
            ColorStep::Contrast(factor) => {
                let [r, g, b] = means;
                let mean = luma[0] * r + luma[1] * g + luma[2] * b + luma[3];
                blend(rows, factor, [0.0, 0.0, 0.0, mean])
            }
            ColorStep::Saturation(factor) => blend(rows, factor, luma),
            ColorStep::Gray => [luma; 3],
            ColorStep::Invert => rows.map(|[r, g, b, add]| [-r, -g, -b, 255.0 - add]),
            ColorStep::Permute(order) => order.map(|from| rows[usize::from(from % 3)]),
            _ => rows,
        };
    }
    rows
}

/// Returns the luma of a result.
fn luma(rows: &[ChannelSum; 3]) -> ChannelSum {
    let [r, g, b] = rows;
    std::array::from_fn(|at| LUMA[0] * r[at] + LUMA[1] * g[at] + LUMA[2] * b[at])
}

/// Blends each channel with another sum.
fn blend(rows: [ChannelSum; 3], factor: f64, other: ChannelSum) -> [ChannelSum; 3] {
    rows.map(|row| std::array::from_fn(|at| row[at] * factor + other[at] * (1.0 - factor)))
}
