//! Four images in one, for detection.
//!
//! Source: Bochkovskiy et al., "YOLOv4: Optimal Speed and Accuracy of Object Detection" (2020), with
//! the sizes and the centre of Ultralytics and YOLOX: images that fit half of the result, around a
//! centre in its middle half.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::mix::other_position;
use super::operation::Operation;
use super::pad::{check_fill, fill_row, pixel_from_values};
use super::params::Check;
use super::resize::default_antialias;
use super::scale::push_scaled;
use super::{ChannelValues, Filter, PadMode, Rng, Sides, Step, TransformError};
use infeed_core::sample::{Depth, Image, Region, Size};

/// Images of a mosaic.
pub const TILES: usize = 4;

/// Places the image and those of three other positions around a random centre: the image above and
/// to the left of it. Each is resized to fit half of the result, touches the centre with one corner,
/// and is cut off at the edges. The fill covers the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mosaic {
    /// Size of the result.
    pub size: Sides,
    /// Range of the centre, in shares of width and height.
    #[serde(default = "default_center_range")]
    pub center_range: [f64; 2],
    /// Probability of four images. Otherwise the image is alone in the middle, in the same size.
    #[serde(default = "one")]
    pub p: f64,
    /// Interpolation of images; masks use `Nearest`.
    #[serde(default)]
    pub interpolation: Filter,
    /// Fill for images.
    #[serde(default = "default_fill")]
    pub fill: ChannelValues,
    /// Fill for masks.
    #[serde(default)]
    pub mask_fill: ChannelValues,
    /// Number of positions before that of the sample from which the other images are drawn. A tile of
    /// the window is decoded once and serves several mosaics.
    #[serde(default = "default_window")]
    pub window: u64,
    /// Whether the filter becomes wider as the image shrinks, as in [`super::Resize`].
    #[serde(default = "default_antialias", skip_serializing_if = "Clone::clone")]
    pub antialias: bool,
}

/// As many as Ultralytics keeps for batches of 16 images.
fn default_window() -> u64 {
    128
}

fn default_center_range() -> [f64; 2] {
    [0.25, 0.75]
}

fn one() -> f64 {
    1.0
}

fn default_fill() -> ChannelValues {
    ChannelValues::All(114.0)
}

/// Random parameters of a mosaic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MosaicDraw {
    /// Positions of the other images: to the right of the first, below it, and diagonal to it.
    pub partners: [u64; TILES - 1],
    /// Pixels of the result to the left of the centre, and above it.
    pub center: [u32; 2],
}

/// An image in a mosaic.
#[derive(Clone, Debug, PartialEq)]
pub struct MosaicTile {
    /// Steps to the whole tile.
    pub steps: Vec<Step>,
    /// Part of the tile that is visible.
    pub visible: Region,
    /// Location of this part in the result.
    pub region: Region,
}

impl Mosaic {
    /// Makes a mosaic of this size for every sample.
    pub fn new(size: impl Into<Sides>) -> Mosaic {
        Mosaic {
            size: size.into(),
            center_range: default_center_range(),
            p: one(),
            interpolation: Filter::default(),
            fill: default_fill(),
            mask_fill: ChannelValues::default(),
            window: default_window(),
            antialias: default_antialias(),
        }
    }

    /// Draws the other positions and the centre for the sample at `position`. Each other position
    /// is uniform over the window before it; over the first positions of `near` where these are
    /// fewer. The only position of `near` is its own partner. None if the image is alone.
    pub fn draw_partners(
        &self,
        position: u64,
        near: impl FnOnce() -> Range<u64>,
        rng: &mut Rng,
    ) -> Option<MosaicDraw> {
        if !rng.chance(self.p) {
            return None;
        }
        let Size { height, width } = self.size.square();
        let [low, high] = self.center_range;
        let mut center = |side: u32| {
            let pixels = (f64::from(side) * rng.uniform(low, high)) as u32;
            pixels.min(side.saturating_sub(1)).max(1)
        };
        let center = [center(width), center(height)];
        let near = self.window_of(position, near());
        let partner = |_| other_position(position, &near, rng).unwrap_or(position);
        Some(MosaicDraw {
            partners: std::array::from_fn(partner),
            center,
        })
    }

    /// Returns the positions of `near` from which the sample at `position` gets its images.
    pub fn window_of(&self, position: u64, near: Range<u64>) -> Range<u64> {
        if !near.contains(&position) {
            return near;
        }
        let start = position.saturating_sub(self.window).max(near.start);
        let end = start.saturating_add(self.window).saturating_add(1);
        start..end.min(near.end)
    }

    /// Returns the steps and the location of an image of this size: number 0 to 3 are above the centre
    /// on the left and right, then below it.
    ///
    /// # Errors
    ///
    /// `TooLarge` if the resized image would be too large.
    pub fn tile(
        &self,
        image: Size,
        number: usize,
        [x, y]: [u32; 2],
    ) -> Result<MosaicTile, TransformError> {
        let mut steps = Vec::new();
        let resized = self.resize(image, &mut steps)?;
        let whole = self.size.square();
        // The beginning of the visible part in the result and in the image, and its length.
        let before = |at: u32, length: u32| {
            let visible = length.min(at);
            (at - visible, length - visible, visible)
        };
        let after = |at: u32, length: u32, side: u32| (at, 0, length.min(side.saturating_sub(at)));
        let (left, from_left, width) = match number % 2 {
            0 => before(x, resized.width),
            _ => after(x, resized.width, whole.width),
        };
        let (top, from_top, height) = match number / 2 {
            0 => before(y, resized.height),
            _ => after(y, resized.height, whole.height),
        };
        let size = Size { height, width };
        Ok(MosaicTile {
            steps,
            visible: Region {
                top: from_top,
                left: from_left,
                size,
            },
            region: Region { top, left, size },
        })
    }

    /// Most pixels of a tile.
    pub fn tile_pixels(&self) -> u64 {
        let Size { height, width } = self.size.square();
        u64::from(height.div_ceil(2)) * u64::from(width.div_ceil(2))
    }

    /// Returns the step that moves the boxes of a tile to its location.
    pub fn pad(&self, region: Region) -> Step {
        let Size { height, width } = self.size.square();
        let after = |side: u32, end: u64| side.saturating_sub(end as u32);
        let sides = [
            region.left,
            region.top,
            after(width, region.right()),
            after(height, region.bottom()),
        ];
        Step::pad(sides, &self.fill, &self.mask_fill, PadMode::Constant)
    }

    /// Makes `out` the empty result: the fill of images or masks in every pixel of a region. Other
    /// pixels are unspecified.
    ///
    /// # Errors
    ///
    /// `Values` or `Pixels` if the fill is not valid for these channels and this depth.
    pub fn canvas(
        &self,
        is_mask: bool,
        (channels, depth): (usize, Depth),
        region: Region,
        out: &mut Image,
    ) -> Result<(), TransformError> {
        let (parameter, fill) = match is_mask {
            true => ("mask_fill", &self.mask_fill),
            false => ("fill", &self.fill),
        };
        let pixel = pixel_from_values("Mosaic", parameter, fill.as_slice(), channels, depth)?;
        out.reset(self.size.square(), channels, depth);
        let columns = region.left as usize * pixel.len()..region.right() as usize * pixel.len();
        for y in region.top as usize..region.bottom() as usize {
            fill_row(&mut out.row_mut(y)[columns.clone()], &pixel);
        }
        Ok(())
    }

    /// Appends the resize that makes an image fit half of the result. Returns its size.
    fn resize(&self, image: Size, steps: &mut Vec<Step>) -> Result<Size> {
        let whole = self.size.square();
        let ratio = |result: u32, image: u32| f64::from(result) / 2.0 / f64::from(image);
        let factor = ratio(whole.width, image.width).min(ratio(whole.height, image.height));
        let filter = (self.interpolation, self.antialias);
        let round = f64::round_ties_even;
        push_scaled("Mosaic", image, factor, round, filter, steps)?;
        Ok(steps.last().map_or(image, |step| step.output_size(image)))
    }
}

impl Operation for Mosaic {
    fn effect(&self) -> Effect {
        Effect::Pad
    }

    fn is_random(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<Effect> {
        vec![Effect::Resize, Effect::Crop, Effect::Pad]
    }

    fn fixed_size(&self) -> Option<Size> {
        Some(self.size.square())
    }

    fn filter(&self) -> Option<Filter> {
        Some(self.interpolation)
    }

    fn is_antialiased(&self) -> bool {
        self.antialias
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        if depth == Depth::U16 && self.fill == default_fill() {
            // The default is a gray of 8 bits, which is nearly black in 16 bits.
            return Err(TransformError::Pixels {
                transform: "Mosaic",
                channels,
                depth,
                allowed: "a fill of 16 bits there, such as fill=29298 for the gray of its default",
            });
        }
        check_fill("Mosaic", &self.fill, channels, depth)
    }

    fn mask_fill(&self) -> Option<ChannelValues> {
        Some(self.mask_fill.clone())
    }

    fn validate(&self) -> Result<()> {
        let check = Check("Mosaic");
        let size = self.size.square();
        check.size("size", size)?;
        check.holds(
            size.height > 1 && size.width > 1,
            "size",
            [size.height, size.width],
            "at least 2 x 2",
        )?;
        let [low, high] = self.center_range;
        check.holds(
            0.0 < low && low <= high && high < 1.0,
            "center_range",
            self.center_range,
            "[low, high] with 0 < low <= high < 1",
        )?;
        check.probability(self.p)?;
        check.holds(self.window > 0, "window", self.window, "at least 1")?;
        check.fills(&self.fill, &self.mask_fill)
    }

    /// Draws the steps of an image that is alone.
    fn draw(&self, image: Size, _rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let whole = self.size.square();
        let size = self.resize(image, steps)?;
        let before = |side: u32, own: u32| side.saturating_sub(own) / 2;
        let region = Region {
            top: before(whole.height, size.height),
            left: before(whole.width, size.width),
            size,
        };
        if size != whole {
            steps.push(self.pad(region));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(height: u32, width: u32) -> Size {
        Size { height, width }
    }

    fn region(top: u32, left: u32, height: u32, width: u32) -> Region {
        let size = size(height, width);
        Region { top, left, size }
    }

    #[test]
    fn tiles_touch_the_centre_and_are_cut_at_the_edges_as_in_ultralytics() {
        // For imgsz=320: a canvas of 640, images with a longer side of 320, and the rectangles
        // x1a, y1a, x2a, y2a and x1b, y1b of `_mosaic4` for a centre of (200, 400).
        let mosaic = Mosaic::new(640);
        let image = size(480, 640);
        for (number, visible, place) in [
            (0, region(0, 120, 240, 200), region(160, 0, 240, 200)),
            (1, region(0, 0, 240, 320), region(160, 200, 240, 320)),
            (2, region(0, 120, 240, 200), region(400, 0, 240, 200)),
            (3, region(0, 0, 240, 320), region(400, 200, 240, 320)),
        ] {
            let tile = mosaic.tile(image, number, [200, 400]).expect("a tile");

            let resize = Step::Resize {
                size: size(240, 320),
                filter: Filter::Bilinear,
                antialias: true,
            };
            assert_eq!(tile.steps, [resize], "{number}");
            assert_eq!(tile.visible, visible, "{number}");
            assert_eq!(tile.region, place, "{number}");
        }
        let tall = mosaic.tile(size(900, 30), 3, [350, 500]).expect("a tile");
        assert_eq!(tall.region, region(500, 350, 140, 11));
    }

    #[test]
    fn tiles_fit_results_and_images_of_every_size() {
        let mut rng = Rng::new(1, 0, 0, 0);
        for _ in 0..2000 {
            let side = |rng: &mut Rng, most: u32| 1 + rng.below(most);
            let whole = size(1 + side(&mut rng, 90), 1 + side(&mut rng, 90));
            let mosaic = Mosaic {
                center_range: [0.001, 0.999],
                ..Mosaic::new(whole)
            };
            mosaic.validate().expect("valid");
            let image = size(side(&mut rng, 200), side(&mut rng, 200));
            let draw = mosaic.draw_partners(5, || 0..9, &mut rng).expect("p is 1");
            let mut covered = 0;
            for number in 0..TILES {
                let tile = mosaic.tile(image, number, draw.center).expect("a tile");
                let steps = tile.steps.iter();
                let resized = steps.fold(image, |size, step| step.output_size(size));
                assert!(resized.pixels() <= mosaic.tile_pixels(), "{resized}");
                assert!(tile.visible.fits(resized), "{tile:?} in {resized}");
                let found = tile.visible.size;
                assert_eq!(found, tile.region.size);
                assert!(tile.region.fits(whole) && found.pixels() > 0, "{tile:?}");
                assert_eq!(mosaic.pad(tile.region).output_size(found), whole);
                covered += found.pixels();
            }
            assert!(covered <= whole.pixels(), "tiles do not overlap");
            let mut alone = Vec::new();
            mosaic.draw(image, &mut rng, &mut alone).expect("a sample");
            let found = alone
                .iter()
                .fold(image, |size, step| step.output_size(size));
            assert_eq!(found, whole);
        }
    }

    #[test]
    fn partners_and_centres_are_uniform_and_p_decides_whether_there_are_any() {
        let mosaic = Mosaic {
            p: 0.75,
            ..Mosaic::new(size(100, 200))
        };
        let (mut counts, mut sums, mut drawn) = ([0_u32; 8], [0.0; 2], 0);
        for epoch in 0..4000 {
            let mut rng = Rng::new(1, epoch, 13, 0);
            let Some(draw) = mosaic.draw_partners(13, || 10..18, &mut rng) else {
                continue;
            };
            drawn += 1;
            for partner in draw.partners {
                counts[(partner - 10) as usize] += 1;
            }
            let [x, y] = draw.center;
            assert!((50..150).contains(&x) && (25..75).contains(&y), "{draw:?}");
            sums = [sums[0] + f64::from(x), sums[1] + f64::from(y)];
        }

        assert!((2900..3100).contains(&drawn), "{drawn}");
        assert_eq!(counts[3], 0, "itself");
        let expected = 3.0 * f64::from(drawn) / 7.0;
        let others = counts.iter().enumerate().filter(|(at, _)| *at != 3);
        let chi2: f64 = others
            .map(|(_, &n)| (f64::from(n) - expected).powi(2) / expected)
            .sum();
        assert!(chi2 < 22.5, "{counts:?}: the 0.1 % point of 6 dof is 22.5");
        for (sum, middle) in sums.into_iter().zip([99.5, 49.5]) {
            let mean = sum / f64::from(drawn);
            assert!((mean - middle).abs() < 2.0, "{mean}");
        }
        let (mut lowest, mut highest) = ([u64::MAX; 2], [0; 2]);
        let windowed = Mosaic {
            window: 5,
            ..Mosaic::new(8)
        };
        for epoch in 0..200 {
            for (at, position) in [(0, 12), (1, 30)] {
                let mut rng = Rng::new(1, epoch, position, 0);
                let draw = windowed.draw_partners(position, || 10..40, &mut rng);
                for partner in draw.expect("p is 1").partners {
                    assert_ne!(partner, position);
                    lowest[at] = partner.min(lowest[at]);
                    highest[at] = partner.max(highest[at]);
                }
            }
        }
        assert_eq!((lowest, highest), ([10, 25], [15, 29]));
        let alone = Mosaic::new(8).draw_partners(7, || 7..8, &mut Rng::new(1, 0, 7, 0));
        assert_eq!(alone.expect("p is 1").partners, [7; 3]);
    }
}
