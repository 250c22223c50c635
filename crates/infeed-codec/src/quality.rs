//! Similarity of two images: PSNR and SSIM.
//!
//! Source: Z. Wang, A. C. Bovik, H. R. Sheikh, E. P. Simoncelli, "Image quality assessment: from
//! error visibility to structural similarity", IEEE Transactions on Image Processing 13(4), 2004:
//! formula 13 and, for the window and the constants, section III.B and III.C.

use infeed_core::sample::{Depth, Image};

/// Side of the SSIM window in pixels.
const WINDOW: usize = 11;

/// Standard deviation of the window's weights, in pixels.
const SIGMA: f64 = 1.5;

/// Returns the peak signal-to-noise ratio in decibels over all channels. Infinite for equal images.
/// None for images of different shape or without pixels.
pub fn psnr(one: &Image, other: &Image) -> Option<f64> {
    if !are_alike(one, other) {
        return None;
    }
    let square = |(a, b): (f64, f64)| (a - b) * (a - b);
    let sum: f64 = samples(one).zip(samples(other)).map(square).sum();
    let mean = sum / (one.data.len() / one.depth.bytes()) as f64;
    Some(match mean {
        0.0 => f64::INFINITY,
        mean => 10.0 * (peak(one.depth).powi(2) / mean).log10(),
    })
}

/// Returns the mean structural similarity of the luma, 1 for equal images. None for images of
/// different shape or with a side below 11 pixels. The luma is `0.299 r + 0.587 g + 0.114 b` and
/// ignores alpha.
///
/// # Cost
///
/// About 100 operations per pixel. Memory for ten numbers per column and 11 rows.
pub fn ssim(one: &Image, other: &Image) -> Option<f64> {
    if !are_alike(one, other) || one.height() < WINDOW || one.width() < WINDOW {
        return None;
    }
    let weights = weights();
    let (width, peak) = (one.width(), peak(one.depth));
    let (c1, c2) = ((0.01 * peak).powi(2), (0.03 * peak).powi(2));
    let inside = width - WINDOW + 1;
    // Per row, for the last 11 rows: x, y, x^2, y^2 and x y, weighted along the row.
    let mut rows: Vec<Vec<[f64; 5]>> = Vec::with_capacity(WINDOW);
    let mut products = vec![[0.0; 5]; width];
    let mut sum = 0.0;
    for y in 0..one.height() {
        let (a, b) = (luma(one, y), luma(other, y));
        for ((to, a), b) in products.iter_mut().zip(a).zip(b) {
            *to = [a, b, a * a, b * b, a * b];
        }
        let mut row = match rows.len() {
            WINDOW => rows.remove(0),
            _ => vec![[0.0; 5]; inside],
        };
        for (x, to) in row.iter_mut().enumerate() {
            *to = weighted_sum(&weights, &products[x..x + WINDOW]);
        }
        rows.push(row);
        if rows.len() < WINDOW {
            continue;
        }
        for x in 0..inside {
            let mut column = [[0.0; 5]; WINDOW];
            for (to, row) in column.iter_mut().zip(&rows) {
                *to = row[x];
            }
            let [mx, my, xx, yy, xy] = weighted_sum(&weights, &column);
            let (vx, vy, cov) = (xx - mx * mx, yy - my * my, xy - mx * my);
            sum += (2.0 * mx * my + c1) * (2.0 * cov + c2)
                / ((mx * mx + my * my + c1) * (vx + vy + c2));
        }
    }
    Some(sum / (inside * (one.height() - WINDOW + 1)) as f64)
}

/// Returns Gaussian weights that sum to one.
fn weights() -> [f64; WINDOW] {
    let middle = (WINDOW / 2) as f64;
    let bell: [f64; WINDOW] =
        std::array::from_fn(|at| (-((at as f64 - middle) / SIGMA).powi(2) / 2.0).exp());
    let sum: f64 = bell.iter().sum();
    bell.map(|weight| weight / sum)
}

fn weighted_sum(weights: &[f64; WINDOW], values: &[[f64; 5]]) -> [f64; 5] {
    let mut sum = [0.0; 5];
    for (weight, values) in weights.iter().zip(values) {
        for (sum, value) in sum.iter_mut().zip(values) {
            *sum += weight * value;
        }
    }
    sum
}

fn are_alike(one: &Image, other: &Image) -> bool {
    let shape = |image: &Image| (image.size, image.channels, image.depth);
    shape(one) == shape(other) && one.size.pixels() > 0
}

fn peak(depth: Depth) -> f64 {
    match depth {
        Depth::U8 => 255.0,
        Depth::U16 => 65_535.0,
    }
}

fn samples(image: &Image) -> impl Iterator<Item = f64> {
    image.data.chunks_exact(image.depth.bytes()).map(sample)
}

fn sample(bytes: &[u8]) -> f64 {
    match *bytes {
        [low, high] => f64::from(u16::from_ne_bytes([low, high])),
        [byte, ..] => f64::from(byte),
        [] => 0.0,
    }
}

fn luma(image: &Image, y: usize) -> impl Iterator<Item = f64> {
    let (channels, bytes) = (image.channels, image.depth.bytes());
    image
        .row(y)
        .chunks_exact(image.pixel_bytes())
        .map(move |pixel| {
            let channel = |at: usize| sample(&pixel[at * bytes..(at + 1) * bytes]);
            match channels {
                1 | 2 => channel(0),
                _ => 0.299 * channel(0) + 0.587 * channel(1) + 0.114 * channel(2),
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::sample::Size;

    fn image(height: u32, width: u32, channels: usize, depth: Depth, values: &[u16]) -> Image {
        let mut image = Image::default();
        image.reset(Size { height, width }, channels, depth);
        match depth {
            Depth::U8 => image.data = values.iter().map(|&value| value as u8).collect(),
            Depth::U16 => image.data = values.iter().flat_map(|v| v.to_ne_bytes()).collect(),
        }
        image
    }

    /// Returns a pattern, and a copy with errors of up to 11 levels.
    fn pair(height: u32, width: u32, channels: usize) -> (Image, Image) {
        let count = height as usize * width as usize * channels;
        let clean: Vec<u16> = (0..count)
            .map(|n| ((n * 7 + n / width as usize * 3) % 251) as u16)
            .collect();
        let noisy: Vec<u16> = clean
            .iter()
            .enumerate()
            .map(|(n, &value)| (i32::from(value) + (n * 5 % 23) as i32 - 11).clamp(0, 255) as u16)
            .collect();
        let of = |values: &[u16]| image(height, width, channels, Depth::U8, values);
        (of(&clean), of(&noisy))
    }

    fn is_near(found: Option<f64>, expected: f64) {
        let found = found.expect("images of one shape");
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    // The numbers below are from scikit-image 0.26.0 on the same arrays (numpy 2.4.6, float64):
    // `peak_signal_noise_ratio(x, y)`, and of the luma `structural_similarity(x, y, sigma=1.5,
    // gaussian_weights=True, use_sample_covariance=False, data_range=255)`.

    #[test]
    fn colours_have_the_psnr_and_ssim_of_scikit_image() {
        let (clean, noisy) = pair(24, 31, 3);

        is_near(psnr(&clean, &noisy), 31.753_297_800_923_008);
        is_near(ssim(&clean, &noisy), 0.998_155_696_888_655_5);
    }

    #[test]
    fn gray_has_the_psnr_and_ssim_of_scikit_image() {
        let (clean, noisy) = pair(40, 17, 1);

        is_near(psnr(&clean, &noisy), 31.775_670_470_800_552);
        is_near(ssim(&clean, &noisy), 0.995_293_099_926_957);
    }

    #[test]
    fn sixteen_bits_have_the_psnr_and_ssim_of_scikit_image() {
        // With `data_range=65535`.
        let clean: Vec<u16> = (0..400_u32).map(|n| (n * 131 % 65_521) as u16).collect();
        let noisy: Vec<u16> = (0..400)
            .map(|n| (i32::from(clean[n]) + (n % 2001) as i32 - 1000).clamp(0, 65_535) as u16)
            .collect();
        let clean = image(20, 20, 1, Depth::U16, &clean);
        let noisy = image(20, 20, 1, Depth::U16, &noisy);

        is_near(psnr(&clean, &noisy), 38.265_770_104_063_21);
        is_near(ssim(&clean, &noisy), 0.999_260_760_967_939_4);
    }

    #[test]
    fn equal_images_have_infinite_psnr_and_other_shapes_none() {
        let (clean, _) = pair(24, 31, 3);
        let (other, _) = pair(31, 24, 3);
        let (small, _) = pair(10, 31, 3);

        assert_eq!(psnr(&clean, &clean), Some(f64::INFINITY));
        assert_eq!(ssim(&clean, &clean), Some(1.0));
        assert_eq!(psnr(&clean, &other), None);
        assert_eq!(ssim(&clean, &other), None);
        assert_eq!(ssim(&small, &small), None, "no window fits");
        assert_eq!(psnr(&Image::default(), &Image::default()), None);
    }
}
