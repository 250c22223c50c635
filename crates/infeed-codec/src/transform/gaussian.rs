//! Gaussian filters, applied row by row.

use infeed_raw::simd::{self, Level};

/// Largest filter in pixels.
pub(super) const MAX_KERNEL: u32 = 1023;

/// Weights of a filter, sum 1.
pub(super) fn weights(size: u32, sigma: f64) -> Vec<f32> {
    let middle = f64::from(size / 2);
    let distances = (0..size).map(|at| (f64::from(at) - middle) / sigma);
    // libm instead of std: the last bit of the platform's exponential may differ.
    let weights: Vec<f64> = distances.map(|at| libm::exp(-0.5 * at * at)).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| (weight / sum) as f32).collect()
}

/// Index in a side of the number `at` of a side with `added` more at each end, which mirror it
/// without its outermost pixel.
#[inline]
pub(super) fn mirror_index(at: usize, added: usize, side: usize) -> usize {
    let last = side - 1;
    last - last.abs_diff(at.abs_diff(added))
}

/// Blurs an image row by row, from some row on. Each side must be longer than half the filter.
pub(super) struct RowBlur {
    along_x: Vec<f32>,
    along_y: Vec<f32>,
    channels: usize,
    /// Rows of the image.
    height: usize,
    /// One row with half the filter more at each end.
    padded: Vec<f32>,
    /// The rows around the present one, each blurred along x.
    ring: Vec<f32>,
    /// Number of the next row for the ring.
    next: usize,
    sums: Vec<f32>,
}

impl RowBlur {
    /// Blurs rows of `width` pixels, first row number `first` of an image of `height` rows.
    pub(super) fn new(
        [along_x, along_y]: [Vec<f32>; 2],
        [width, channels]: [usize; 2],
        height: usize,
        first: usize,
    ) -> RowBlur {
        let values = width * channels;
        RowBlur {
            padded: vec![0.0; (width + along_x.len() / 2 * 2) * channels],
            ring: vec![0.0; along_y.len() * values],
            next: first.saturating_sub(along_y.len() / 2),
            sums: vec![0.0; values],
            channels,
            height,
            along_x,
            along_y,
        }
    }

    /// Returns row `y`, which must be the one after the last. `read` writes a row of the image, with
    /// half the filter more at each end.
    pub(super) fn row(&mut self, y: usize, read: impl Fn(usize, &mut [f32])) -> &[f32] {
        let (values, rows, added) = (self.sums.len(), self.along_y.len(), self.along_y.len() / 2);
        let ring_row = |y: usize| {
            let at = y % rows;
            at * values..(at + 1) * values
        };
        while self.next <= (y + added).min(self.height - 1) {
            read(self.next, &mut self.padded);
            let moved = |at: usize| &self.padded[at * self.channels..][..values];
            add_weighted(&mut self.ring[ring_row(self.next)], &self.along_x, moved);
            self.next += 1;
        }
        let around = |at: usize| &self.ring[ring_row(mirror_index(y + at, added, self.height))];
        add_weighted(&mut self.sums, &self.along_y, around);
        &self.sums
    }
}

/// Sets `to` to the weighted sum of rows.
fn add_weighted<'a>(to: &mut [f32], weights: &[f32], row: impl Fn(usize) -> &'a [f32]) {
    to.fill(0.0);
    for (at, &weight) in weights.iter().enumerate() {
        simd::add_weighted(Level::detect(), to, row(at), weight);
    }
}
