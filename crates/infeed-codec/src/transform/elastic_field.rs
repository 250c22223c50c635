//! A smooth field of random shifts. The noise is a hash of the pixel's position, so a part of the
//! field is computed without the rest.

use super::error::TransformError;
use super::gaussian::{RowBlur, mirror_index, weights};
use infeed_core::random::{hash, mix};
use infeed_core::sample::{Region, Size};

/// Pixels of a filter with this deviation.
pub(super) fn kernel(sigma: f64) -> u32 {
    // The cast saturates, and the filter is odd.
    (8.0 * sigma + 1.0) as u32 | 1
}

/// Minimum size of an image for filters with these deviations along x and y.
pub(super) fn min_size(sigma: [f64; 2]) -> Size {
    // The filter of each axis is a square.
    let side = sigma.map(kernel).into_iter().max().unwrap_or(1) / 2 + 1;
    Size {
        height: side,
        width: side,
    }
}

/// A smooth field of random shifts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ElasticField {
    /// Twice the shifts along x and y in pixels that noise of 1 everywhere would give.
    pub alpha: [f64; 2],
    /// Standard deviations of the filter along x and y in pixels.
    pub sigma: [f64; 2],
    /// Decides the noise.
    pub seed: u64,
}

impl ElasticField {
    /// Checks that an image is not smaller than half the filter.
    pub(super) fn check(&self, image: Size) -> Result<(), TransformError> {
        let needed = min_size(self.sigma);
        if image.height < needed.height || image.width < needed.width {
            return Err(TransformError::TooSmall {
                transform: "ElasticTransform",
                found: image,
                needed,
                hint: "set a smaller sigma, or make images larger with Resize",
            });
        }
        Ok(())
    }

    /// Returns the field of the shifts along an axis: 0 for x, 1 for y.
    fn along(&self, axis: usize, image: Size) -> AxisField {
        let side = kernel(self.sigma[axis]);
        let filters = self.sigma.map(|sigma| match side {
            1 => vec![1.0],
            _ => weights(side, sigma),
        });
        AxisField {
            filters,
            scale: (self.alpha[axis] * 0.5) as f32,
            key: hash(&[self.seed, axis as u64]),
            width: image.width as usize,
            height: image.height as usize,
        }
    }

    /// Returns the shifts for a region of an image that is large enough, row by row.
    pub(super) fn rows(&self, image: Size, region: Region) -> ElasticRows {
        ElasticRows {
            axes: [0, 1].map(|axis| {
                let field = self.along(axis, image);
                let width = region.size.width as usize;
                let first = region.top as usize;
                let blur = RowBlur::new(field.filters.clone(), [width, 1], field.height, first);
                (field, blur)
            }),
            left: region.left as usize,
        }
    }

    /// Moves a point of an image: by the shift of the pixel whose left and upper edges are at the
    /// point or after it.
    pub(super) fn move_point(&self, at: [f64; 2], image: Size) -> [f64; 2] {
        if self.check(image).is_err() {
            return [f64::NAN; 2];
        }
        // The cast saturates.
        let pixel = |at: f64, side: u32| (at.ceil() as usize).min(side as usize - 1);
        let pixel = [pixel(at[0], image.width), pixel(at[1], image.height)];
        [0, 1].map(|axis| at[axis] - f64::from(self.along(axis, image).shift(pixel)))
    }
}

/// Shifts along one axis.
struct AxisField {
    /// Filters along x and y.
    filters: [Vec<f32>; 2],
    /// Shift in pixels for noise of 1.
    scale: f32,
    key: u64,
    width: usize,
    height: usize,
}

impl AxisField {
    /// Noise of a pixel, from -1 to 1.
    fn noise(&self, x: usize, y: usize) -> f32 {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let number = (y * self.width + x) as u64;
        let random = mix(self.key.wrapping_add(number.wrapping_mul(GOLDEN)));
        // 24 bits are exact in f32.
        (random >> 40) as f32 * (2.0 / 16_777_216.0) - 1.0
    }

    /// Shift of one pixel, with the same sums as those of a row.
    fn shift(&self, [x, y]: [usize; 2]) -> f32 {
        let [along_x, along_y] = &self.filters;
        let mut sum = 0.0;
        for (row, weight) in along_y.iter().enumerate() {
            let row = mirror_index(y + row, along_y.len() / 2, self.height);
            let mut sum_x = 0.0;
            for (column, weight) in along_x.iter().enumerate() {
                let column = mirror_index(x + column, along_x.len() / 2, self.width);
                sum_x += self.noise(column, row) * weight;
            }
            sum += sum_x * weight;
        }
        sum * self.scale
    }
}

/// Shifts of a region, row by row.
pub(super) struct ElasticRows {
    axes: [(AxisField, RowBlur); 2],
    /// First column of the region.
    left: usize,
}

impl ElasticRows {
    /// Adds the shifts of row `row` of the image, which must be the one after the last, to the
    /// positions of its pixels.
    pub(super) fn add(&mut self, row: u32, x: &mut [f32], y: &mut [f32]) {
        let left = self.left;
        for ((field, blur), positions) in self.axes.iter_mut().zip([x, y]) {
            let added = field.filters[0].len() / 2;
            let read = |row: usize, padded: &mut [f32]| {
                for (at, noise) in padded.iter_mut().enumerate() {
                    *noise = field.noise(mirror_index(left + at, added, field.width), row);
                }
            };
            let sums = blur.row(row as usize, read);
            for (position, sum) in positions.iter_mut().zip(sums) {
                *position += sum * field.scale;
            }
        }
    }
}
