//! Warps: images resampled along an affine or a projective map.
//!
//! Source: `affine`, `rotate` and `perspective` of torchvision.transforms.v2 on uint8 tensors, with
//! `affine_grid` of PyTorch: f32 coordinates of pixel centres. Products and sums are rounded one by
//! one, so that every machine gives the same pixels.

use super::elastic_field::ElasticField;
use super::params::{Filter, MAX_PIXELS};
use infeed_core::sample::{Region, Size};
use infeed_raw::simd::{self, Level, PositionRow};

/// A drawn warp: where each pixel of the result comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Warp {
    /// The map.
    pub map: WarpMap,
    /// Size of the result.
    pub size: Size,
    /// `Nearest` or `Bilinear` for images; masks use `Nearest`.
    pub filter: Filter,
    /// Fill of images: one value, or one per channel. If it is empty, the fill is 0 and pixels at
    /// the edge are not blended with it a second time.
    pub fill: Vec<f64>,
    /// Fill of masks: one value, or one per channel.
    pub mask_fill: Vec<f64>,
    /// Region of the result that is computed, for a crop that follows; `None` for the whole.
    pub part: Option<Region>,
}

impl Warp {
    /// Returns the region of the result that is computed.
    pub(super) fn computed_region(&self) -> Region {
        self.part.unwrap_or(self.size.whole())
    }

    /// Computes only a region of the present result, which must fit it.
    #[must_use]
    pub fn crop(&self, region: Region) -> Warp {
        let own = self.computed_region();
        let part = Region {
            top: own.top + region.top,
            left: own.left + region.left,
            size: region.size,
        };
        Warp {
            part: Some(part),
            ..self.clone()
        }
    }

    /// Moves a point of an image of this size to the computed region. The numbers are not finite if
    /// the point has no image.
    pub(super) fn move_point(&self, at: [f64; 2], image: Size) -> [f64; 2] {
        let part = self.computed_region();
        let [x, y] = self.map.move_point(at, image, self.size);
        [x - f64::from(part.left), y - f64::from(part.top)]
    }

    /// Moves points as `move_point`, with one matrix for all.
    pub(super) fn move_points(&self, points: &mut [[f64; 2]], image: Size) {
        let Some(matrix) = self.position_matrix(image) else {
            for point in points {
                *point = self.move_point(*point, image);
            }
            return;
        };
        let forward = invert(matrix);
        for point in points {
            *point = transform_point(&forward, *point);
        }
    }

    /// Moves a point that is a pixel of an image of this size, as `move_point`.
    pub(super) fn move_pixel(&self, at: [f64; 2], image: Size) -> [f64; 2] {
        let WarpMap::Projective { pixel_matrix, .. } = self.map else {
            return self.move_point(at, image);
        };
        let part = self.computed_region();
        let [x, y] = transform_point(&invert(pixel_matrix), at);
        [x - f64::from(part.left), y - f64::from(part.top)]
    }

    /// Whether the map contains an odd number of flips.
    pub(super) fn is_mirrored(&self) -> bool {
        matches!(
            self.map,
            WarpMap::Projective {
                is_mirrored: true,
                ..
            }
        )
    }

    /// Returns the matrix from positions in the result to positions in an image of this size, both
    /// in pixels from the upper left. None if the map has no matrix.
    pub(super) fn position_matrix(&self, image: Size) -> Option<[f64; 9]> {
        let own = match self.map {
            WarpMap::Elastic(_) => return None,
            _ => self.map.matrix(image),
        };
        let matrix = match self.map.is_centred() {
            false => own,
            true => {
                let [x, y] = middle(self.size);
                let [half_width, half_height] = middle(image);
                let to_centre = product(&own, &shift(-x, -y));
                product(&shift(half_width, half_height), &to_centre)
            }
        };
        let region = self.computed_region();
        Some(product(
            &matrix,
            &shift(region.left.into(), region.top.into()),
        ))
    }

    /// Returns a region of an image of this size that holds every pixel that contributes to the
    /// result. It may be empty.
    pub fn source_region(&self, image: Size) -> Region {
        let region = self.computed_region();
        if region.size.pixels() == 0 || !self.map.is_affine() {
            return image.whole();
        }
        // Each rounded operation keeps the order of positions along a row and a column, so the
        // extreme ones are those of the corners.
        let grid = PixelGrid::new(self, image);
        let (mut low, mut high) = ([f32::INFINITY; 2], [f32::NEG_INFINITY; 2]);
        for row in [0, region.size.height - 1] {
            for column in [0, region.size.width - 1] {
                let (mut x, mut y) = ([0.0], [0.0]);
                let (column, row) = (region.left + column, region.top + row);
                simd::warp_positions(Level::Scalar, &grid.row(column, row), &mut x, &mut y);
                for (side, at) in [x[0], y[0]].into_iter().enumerate() {
                    low[side] = low[side].min(at);
                    high[side] = high[side].max(at);
                }
            }
        }
        let range = |side: usize, length: u32| {
            let first = floor(low[side]).clamp(0, length.into());
            let end = (floor(high[side]) + 2).clamp(first, length.into());
            (first as u32, (end - first) as u32)
        };
        let ((left, width), (top, height)) = (range(0, image.width), range(1, image.height));
        let size = Size { height, width };
        Region { top, left, size }
    }
}

/// A map of positions in an image to positions in the result of a warp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WarpMap {
    /// Shears, scales and rotates around a centre, then moves.
    Affine {
        /// Rotation in degrees, clockwise.
        angle: f64,
        /// Shift to the right and down, in pixels.
        translate: [f64; 2],
        /// Factor of lengths, above 0.
        scale: f64,
        /// Shear along x and along y, in degrees.
        shear: [f64; 2],
        /// x and y of the centre in pixels; `None` for the centre of the image.
        center: Option<[f64; 2]>,
    },
    /// Moves the corners of the image.
    Perspective {
        /// x and y of the pixels to which the top left, top right, bottom right and bottom left
        /// pixels move.
        corners: [[f64; 2]; 4],
    },
    /// Maps by a matrix, row by row: fused warps, flips and crops.
    Projective {
        /// From positions in the result to positions in the image, in pixels from the upper left.
        matrix: [f64; 9],
        /// The same for points that are pixels: a flip maps the column `x` to `width - 1 - x`.
        pixel_matrix: [f64; 9],
        /// Whether the number of flips is odd.
        is_mirrored: bool,
    },
    /// Moves each pixel by its own shift.
    Elastic(ElasticField),
}

impl WarpMap {
    /// The affine map that rotates by an angle in degrees, counter-clockwise.
    pub(super) fn rotation(angle: f64, center: Option<[f64; 2]>) -> WarpMap {
        WarpMap::Affine {
            angle: -angle,
            translate: [0.0; 2],
            scale: 1.0,
            shear: [0.0; 2],
            center,
        }
    }

    /// Returns this map after a tilt of the plane of an image of this size: lengths at the position
    /// `[x, y]` from the centre are divided by `1 + tilt[0] * x + tilt[1] * y`.
    pub(super) fn tilt(&self, tilt: [f64; 2], image: Size) -> WarpMap {
        let back = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, -tilt[0], -tilt[1], 1.0];
        let [x, y] = middle(image);
        let centred = product(&product(&back, &self.matrix(image)), &shift(-x, -y));
        let matrix = product(&shift(x, y), &centred);
        WarpMap::Projective {
            matrix,
            pixel_matrix: matrix,
            is_mirrored: false,
        }
    }

    /// Returns the name of the most similar transform.
    pub(super) fn name(&self) -> &'static str {
        match self {
            WarpMap::Affine { .. } => "RandomAffine",
            WarpMap::Perspective { .. } | WarpMap::Projective { .. } => "RandomPerspective",
            WarpMap::Elastic(_) => "ElasticTransform",
        }
    }

    /// Whether the positions of the matrix are relative to the centres of image and result.
    fn is_centred(&self) -> bool {
        matches!(self, WarpMap::Affine { .. } | WarpMap::Elastic(_))
    }

    /// Whether the map is a matrix without perspective.
    fn is_affine(&self) -> bool {
        match self {
            WarpMap::Affine { .. } => true,
            WarpMap::Projective { matrix, .. } => matrix[6] == 0.0 && matrix[7] == 0.0,
            WarpMap::Perspective { .. } | WarpMap::Elastic(_) => false,
        }
    }

    /// Maps a point of an image of this size to the result. The numbers are not finite if the
    /// point has no image.
    pub(super) fn move_point(&self, [x, y]: [f64; 2], image: Size, result: Size) -> [f64; 2] {
        let [from, to] = match self {
            WarpMap::Affine { .. } => [image, result].map(middle),
            WarpMap::Perspective { .. } | WarpMap::Projective { .. } => [[0.0; 2]; 2],
            WarpMap::Elastic(field) => return field.move_point([x, y], image),
        };
        let forward = invert(self.matrix(image));
        let [x, y] = transform_point(&forward, [x - from[0], y - from[1]]);
        [x + to[0], y + to[1]]
    }

    /// Returns the matrix from positions in the result to positions in an image of this size, row
    /// by row, without the shifts of an elastic map. The positions of affine and elastic maps are
    /// relative to the centres of both.
    fn matrix(&self, image: Size) -> [f64; 9] {
        match *self {
            WarpMap::Affine {
                angle,
                translate,
                scale,
                shear,
                center,
            } => {
                let half = middle(image);
                let center = center.map_or([0.0; 2], |at| [at[0] - half[0], at[1] - half[1]]);
                affine_matrix(angle, translate, scale, shear, center)
            }
            WarpMap::Perspective { corners } => perspective_matrix(corners, image),
            WarpMap::Projective { matrix, .. } => matrix,
            WarpMap::Elastic(_) => [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        }
    }

    /// Returns the size of the smallest result that holds an image of this size, as Pillow and
    /// torchvision round it.
    pub(super) fn expanded_size(&self, image: Size) -> Option<Size> {
        // A margin of 1e-4 px keeps rounding errors from adding a row.
        const MARGIN: f32 = 1e-4;
        let matrix = self.matrix(image).map(|v| v as f32);
        let [half_width, half_height] = middle(image).map(|v| v as f32);
        let corners = [(-1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (1.0, -1.0)];
        let range = |row: usize, half: f32| {
            let at = corners.map(|(x, y)| {
                x * half_width * matrix[row] + y * half_height * matrix[row + 1] + matrix[row + 2]
            });
            let cut = |v: f32| ((v + half) * (1.0 / MARGIN)).trunc() * MARGIN;
            let low = at.into_iter().fold(f32::INFINITY, f32::min);
            let high = at.into_iter().fold(f32::NEG_INFINITY, f32::max);
            (cut(high).ceil() - cut(low).floor()) as u32
        };
        let (width, height) = (range(0, half_width), range(3, half_height));
        let size = Size { height, width };
        (size.pixels() > 0 && size.pixels() <= MAX_PIXELS).then_some(size)
    }

    /// Whether the map can be inverted, with finite numbers, for an image of this size.
    pub(super) fn is_regular(&self, image: Size) -> bool {
        let matrix = self.matrix(image);
        matrix.iter().chain(&invert(matrix)).all(|v| v.is_finite())
    }
}

/// The map that moves positions by x and y.
pub(super) fn shift(x: f64, y: f64) -> [f64; 9] {
    [1.0, 0.0, x, 0.0, 1.0, y, 0.0, 0.0, 1.0]
}

/// The map `a` of the result of the map `b`.
pub(super) fn product(a: &[f64; 9], b: &[f64; 9]) -> [f64; 9] {
    std::array::from_fn(|at| {
        let (row, column) = (at / 3 * 3, at % 3);
        a[row] * b[column] + a[row + 1] * b[column + 3] + a[row + 2] * b[column + 6]
    })
}

/// Returns x and y of the centre of an image.
fn middle(size: Size) -> [f64; 2] {
    [f64::from(size.width) * 0.5, f64::from(size.height) * 0.5]
}

/// Inverse of moving to the origin, shearing along x, then y, scaling, rotating and moving back.
fn affine_matrix(
    angle: f64,
    translate: [f64; 2],
    scale: f64,
    shear: [f64; 2],
    [center_x, center_y]: [f64; 2],
) -> [f64; 9] {
    let turn = angle.to_radians();
    let [shear_x, shear_y] = shear.map(f64::to_radians);
    // libm instead of std: the last bit of the platform's functions may differ.
    let slope = libm::tan(shear_x);
    let a = libm::cos(turn - shear_y) / libm::cos(shear_y);
    let b = -(a * slope + libm::sin(turn));
    let c = libm::sin(turn - shear_y) / libm::cos(shear_y);
    let d = libm::cos(turn) - c * slope;
    // The determinant of [a b; c d] is 1.
    let [a, b, c, d] = [d / scale, -b / scale, -c / scale, a / scale];
    let (moved_x, moved_y) = (center_x + translate[0], center_y + translate[1]);
    [
        a,
        b,
        center_x - a * moved_x - b * moved_y,
        c,
        d,
        center_y - c * moved_x - d * moved_y,
        0.0,
        0.0,
        1.0,
    ]
}

/// The projective map of four corners to the corner pixels of an image. Positions are pixels from
/// the upper left.
///
/// Source: Heckbert, "Fundamentals of Texture Mapping and Image Warping" (1989), section 2.2.3.
fn perspective_matrix([p0, p1, p2, p3]: [[f64; 2]; 4], image: Size) -> [f64; 9] {
    // From the unit square to the corners, in this order around it.
    let [dx1, dy1] = [p1[0] - p2[0], p1[1] - p2[1]];
    let [dx2, dy2] = [p3[0] - p2[0], p3[1] - p2[1]];
    let [sx, sy] = [0, 1].map(|i| p0[i] - p1[i] + p2[i] - p3[i]);
    let det = dx1 * dy2 - dx2 * dy1;
    let g = (sx * dy2 - dx2 * sy) / det;
    let h = (dx1 * sy - sx * dy1) / det;
    let square = [
        p1[0] - p0[0] + g * p1[0],
        p3[0] - p0[0] + h * p3[0],
        p0[0],
        p1[1] - p0[1] + g * p1[1],
        p3[1] - p0[1] + h * p3[1],
        p0[1],
        g,
        h,
        1.0,
    ];
    let back = invert(square);
    let (width, height) = (f64::from(image.width) - 1.0, f64::from(image.height) - 1.0);
    let rows = [width, width, width, height, height, height, 1.0, 1.0, 1.0];
    let scaled: [f64; 9] = std::array::from_fn(|at| back[at] * rows[at]);
    scaled.map(|v| v / scaled[8])
}

/// Inverse of a matrix, up to a factor for which the last number is 1.
fn invert([a, b, c, d, e, f, g, h, i]: [f64; 9]) -> [f64; 9] {
    let last = a * e - b * d;
    [
        e * i - f * h,
        c * h - b * i,
        b * f - c * e,
        f * g - d * i,
        a * i - c * g,
        c * d - a * f,
        d * h - e * g,
        b * g - a * h,
        last,
    ]
    .map(|v| v / last)
}

fn transform_point(m: &[f64; 9], [x, y]: [f64; 2]) -> [f64; 2] {
    let by = m[6] * x + m[7] * y + m[8];
    [
        (m[0] * x + m[1] * y + m[2]) / by,
        (m[3] * x + m[4] * y + m[5]) / by,
    ]
}

/// Positions of the pixels of a result in an image, as `affine_grid` and `grid_sample` compute
/// them.
pub(super) struct PixelGrid {
    /// Rows of the matrix; those of x and y in units of half the image.
    matrix: [f32; 9],
    /// Position of the first pixel.
    first: [f32; 2],
    is_projective: bool,
    /// Half the width and height of the image.
    half: [f32; 2],
}

impl PixelGrid {
    pub(super) fn new(warp: &Warp, image: Size) -> PixelGrid {
        let mut matrix = warp.map.matrix(image).map(|v| v as f32);
        let half = middle(image).map(|v| v as f32);
        for at in 0..3 {
            matrix[at] /= half[0];
            matrix[at + 3] /= half[1];
        }
        let first = match warp.map.is_centred() {
            true => middle(warp.size).map(|v| 0.5 - v as f32),
            false => [0.5; 2],
        };
        PixelGrid {
            matrix,
            first,
            // The other form is for positions relative to the centres.
            is_projective: !warp.map.is_centred(),
            half,
        }
    }

    /// Returns the positions of a row of the result, from a column on.
    pub(super) fn row(&self, column: u32, row: u32) -> PositionRow {
        PositionRow {
            column,
            first: self.first,
            row,
            matrix: self.matrix,
            is_projective: self.is_projective,
            half: self.half,
        }
    }
}

/// Rounds down. The cast truncates and saturates.
#[inline]
pub(super) fn floor(at: f32) -> i64 {
    let cut = at as i32;
    i64::from(cut) - i64::from(at < cut as f32)
}
