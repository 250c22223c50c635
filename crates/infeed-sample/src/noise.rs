//! Seeded randomness and noise with the spectrum of natural images.
//!
//! Source: splitmix64 (Steele, Lea, Flood 2014) for the numbers; value noise summed over octaves
//! for the texture, whose amplitude falls with frequency as it does in photographs.

use infeed_core::sample::Size;

/// Mixes two numbers into one that looks random.
pub(super) fn hash(seed: u64, value: u64) -> u64 {
    let mut z = seed ^ value.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A sequence of random numbers that depends on its seed alone.
pub(super) struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random { seed, drawn: 0 }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.drawn += 1;
        hash(self.seed, self.drawn)
    }

    /// Uniform in `[0, 1)`.
    pub(super) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Uniform in `[low, high)`.
    pub(super) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Uniform in `0..n`; `n` must not be 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// One of several.
    pub(super) fn pick<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[self.below(N as u64) as usize]
    }

    /// True with probability `p`.
    pub(super) fn chance(&mut self, p: f32) -> bool {
        self.unit() < p
    }

    /// `±amount` around a colour, the same for all channels plus a little for each.
    pub(super) fn near(&mut self, colour: [f32; 3], amount: f32) -> [f32; 3] {
        let all = self.between(-amount, amount);
        colour.map(|c| (c + all + self.between(-amount, amount) * 0.3).max(0.02))
    }
}

/// Noise over an image, about -1 to 1, `octaves` of it starting at cells of `cell` pixels.
///
/// Each octave has half the cell and `gain` times the amplitude of the one before; it stops where
/// cells would be smaller than a pixel. A gain of 0.5 is the `1/f` amplitude of photographs.
pub(super) fn fractal(size: Size, cell: f32, octaves: u32, gain: f32, seed: u64) -> Vec<f32> {
    let (height, width) = (size.height as usize, size.width as usize);
    let mut out = vec![0.0; height * width];
    let (mut cell, mut amplitude) = (cell, 1.0);
    for octave in 0..octaves {
        if cell < 1.0 {
            break;
        }
        add_octave(
            &mut out,
            width,
            cell,
            amplitude,
            hash(seed, u64::from(octave)),
        );
        cell *= 0.5;
        amplitude *= gain;
    }
    out
}

fn add_octave(out: &mut [f32], width: usize, cell: f32, amplitude: f32, seed: u64) {
    let columns: Vec<(usize, f32)> = (0..width).map(|x| lattice(x, cell)).collect();
    let knots = columns.last().map_or(0, |&(knot, _)| knot + 2);
    let knot_row = |y: usize| -> Vec<f32> {
        let row_seed = hash(seed, y as u64);
        (0..knots)
            .map(|x| (hash(row_seed, x as u64) >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
            .map(|value| value * amplitude)
            .collect()
    };

    let (mut above, mut below, mut at) = (knot_row(0), knot_row(1), 0);
    let mut blended = vec![0.0; knots];
    for (y, row) in out.chunks_exact_mut(width).enumerate() {
        let (knot, weight) = lattice(y, cell);
        while at < knot {
            at += 1;
            above = std::mem::replace(&mut below, knot_row(at + 1));
        }
        for ((mix, a), b) in blended.iter_mut().zip(&above).zip(&below) {
            *mix = a + (b - a) * weight;
        }
        for (value, &(x, weight)) in row.iter_mut().zip(&columns) {
            *value += blended[x] + (blended[x + 1] - blended[x]) * weight;
        }
    }
}

/// The knot before a pixel, and how far it lies towards the next, smoothed at both ends.
fn lattice(pixel: usize, cell: f32) -> (usize, f32) {
    let position = pixel as f32 / cell;
    let knot = position as usize;
    let t = position - knot as f32;
    (knot, t * t * (3.0 - 2.0 * t))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_a_function_of_its_seed() {
        let size = Size {
            height: 20,
            width: 33,
        };

        let one = fractal(size, 16.0, 4, 0.5, 7);

        assert_eq!(one, fractal(size, 16.0, 4, 0.5, 7));
        assert_ne!(one, fractal(size, 16.0, 4, 0.5, 8));
    }

    #[test]
    fn neighbouring_pixels_of_noise_are_alike() {
        let size = Size {
            height: 64,
            width: 64,
        };

        let noise = fractal(size, 32.0, 1, 0.5, 3);

        let step = noise.windows(2).step_by(3).map(|w| (w[1] - w[0]).abs());
        let mean = step.sum::<f32>() / (noise.len() / 3) as f32;
        assert!(mean < 0.1, "mean step {mean}");
        assert!(noise.iter().any(|v| v.abs() > 0.3));
    }
}
