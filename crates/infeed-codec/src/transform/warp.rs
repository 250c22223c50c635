//! Warps: images resampled along an affine or a projective map.
//!
//! Source: `affine`, `rotate` and `perspective` of torchvision.transforms.v2 on uint8 tensors, with
//! `grid_sample` of PyTorch: f32 coordinates of pixel centres, weights in f32, the fill blended by
//! the share of the four neighbours inside the image, and values rounded to the nearest even.
//! Products and sums are rounded one by one, so that every machine gives the same pixels.

use super::elastic::ElasticField;
use super::params::MAX_PIXELS;
use super::{Filter, PixelView, TransformError};
use infeed_core::sample::{Depth, Image, Region, Size};
use infeed_raw::simd::{self, Level, PositionRow, SourcePixels};

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
    pub(super) fn computed(&self) -> Region {
        self.part.unwrap_or(self.size.whole())
    }

    /// Computes only a region of the present result, which must fit it.
    #[must_use]
    pub fn cropped(&self, region: Region) -> Warp {
        let own = self.computed();
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
        let part = self.computed();
        let [x, y] = self.map.move_point(at, image, self.size);
        [x - f64::from(part.left), y - f64::from(part.top)]
    }

    /// Moves a point that is a pixel of an image of this size, as `move_point`.
    pub(super) fn move_pixel(&self, at: [f64; 2], image: Size) -> [f64; 2] {
        let WarpMap::Projective { pixel_matrix, .. } = self.map else {
            return self.move_point(at, image);
        };
        let part = self.computed();
        let [x, y] = applied(&inverted(pixel_matrix), at);
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
        let region = self.computed();
        Some(product(
            &matrix,
            &shift(region.left.into(), region.top.into()),
        ))
    }

    /// Returns a region of an image of this size that holds every pixel that contributes to the
    /// result. It may be empty.
    pub fn source_region(&self, image: Size) -> Region {
        let region = self.computed();
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
        let forward = inverted(self.matrix(image));
        let [x, y] = applied(&forward, [x - from[0], y - from[1]]);
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
    pub(super) fn expanded(&self, image: Size) -> Option<Size> {
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
        matrix
            .iter()
            .chain(&inverted(matrix))
            .all(|v| v.is_finite())
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
    let back = inverted(square);
    let (width, height) = (f64::from(image.width) - 1.0, f64::from(image.height) - 1.0);
    let rows = [width, width, width, height, height, height, 1.0, 1.0, 1.0];
    let scaled: [f64; 9] = std::array::from_fn(|at| back[at] * rows[at]);
    scaled.map(|v| v / scaled[8])
}

/// Inverse of a matrix, up to a factor for which the last number is 1.
fn inverted([a, b, c, d, e, f, g, h, i]: [f64; 9]) -> [f64; 9] {
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

fn applied(m: &[f64; 9], [x, y]: [f64; 2]) -> [f64; 2] {
    let by = m[6] * x + m[7] * y + m[8];
    [
        (m[0] * x + m[1] * y + m[2]) / by,
        (m[3] * x + m[4] * y + m[5]) / by,
    ]
}

/// Buffers that a worker keeps between warps: positions in the image for one row of the result.
#[derive(Debug, Default)]
pub(super) struct WarpScratch {
    x: Vec<f32>,
    y: Vec<f32>,
    /// Columns whose neighbours are not all inside the image.
    rest: Vec<u32>,
}

/// Positions of the pixels of a result in an image, as `affine_grid` and `grid_sample` compute
/// them.
struct PixelGrid {
    /// Rows of the matrix; those of x and y in units of half the image.
    matrix: [f32; 9],
    /// Position of the first pixel.
    first: [f32; 2],
    is_projective: bool,
    /// Half the width and height of the image.
    half: [f32; 2],
}

impl PixelGrid {
    fn new(warp: &Warp, image: Size) -> PixelGrid {
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
    fn row(&self, column: u32, row: u32) -> PositionRow {
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

/// Warps a view that has pixels. Masks use `Nearest`, whatever the filter.
pub(super) fn warp(
    input: PixelView<'_>,
    warp: &Warp,
    is_mask: bool,
    out: &mut Image,
    scratch: &mut WarpScratch,
) -> Result<(), TransformError> {
    let (parameter, values) = match is_mask {
        true => ("mask_fill", &warp.mask_fill),
        false => ("fill", &warp.fill),
    };
    let fill = fill_values(warp.map.name(), parameter, values, &input)?;
    let region = warp.computed();
    let mut shifts = match &warp.map {
        WarpMap::Elastic(field) => {
            field.check(input.size())?;
            Some(field.rows(input.size(), region))
        }
        _ => None,
    };
    out.reset(region.size, input.channels(), input.depth());
    let source = WarpInput {
        view: input,
        fill,
        blends: !values.is_empty(),
    };
    let nearest = is_mask || warp.filter == Filter::Nearest;
    let run = match (input.depth(), input.channels(), nearest) {
        (Depth::U8, 1, false) => WarpInput::bilinear_bytes::<1>,
        (Depth::U8, 2, false) => WarpInput::bilinear_bytes::<2>,
        (Depth::U8, 3, false) => WarpInput::bilinear_bytes::<3>,
        (Depth::U8, _, false) => WarpInput::bilinear_bytes::<4>,
        (Depth::U16, 1, false) => WarpInput::bilinear_words::<1>,
        (Depth::U16, 2, false) => WarpInput::bilinear_words::<2>,
        (Depth::U16, 3, false) => WarpInput::bilinear_words::<3>,
        (Depth::U16, _, false) => WarpInput::bilinear_words::<4>,
        (Depth::U8, 1, true) => WarpInput::nearest::<1, 1>,
        (Depth::U8, 2, true) => WarpInput::nearest::<2, 1>,
        (Depth::U8, 3, true) => WarpInput::nearest::<3, 1>,
        (Depth::U8, _, true) => WarpInput::nearest::<4, 1>,
        (Depth::U16, 1, true) => WarpInput::nearest::<1, 2>,
        (Depth::U16, 2, true) => WarpInput::nearest::<2, 2>,
        (Depth::U16, 3, true) => WarpInput::nearest::<3, 2>,
        (Depth::U16, _, true) => WarpInput::nearest::<4, 2>,
    };
    let grid = PixelGrid::new(warp, input.size());
    let WarpScratch { x, y, rest } = scratch;
    x.resize(region.size.width as usize, 0.0);
    y.resize(region.size.width as usize, 0.0);
    let level = Level::detect();
    for row in 0..region.size.height {
        let positions = grid.row(region.left, region.top + row);
        simd::warp_positions(level, &positions, x, y);
        if let Some(shifts) = &mut shifts {
            shifts.add(region.top + row, x, y);
        }
        run(&source, (&x[..], &y[..]), rest, out.row_mut(row as usize));
    }
    Ok(())
}

/// Returns the fill by channel; 0 without values.
fn fill_values(
    transform: &'static str,
    parameter: &'static str,
    values: &[f64],
    input: &PixelView<'_>,
) -> Result<[f32; 4], TransformError> {
    let channels = input.channels();
    if values.len() > 1 && values.len() != channels {
        return Err(TransformError::Values {
            transform,
            parameter,
            found: values.len(),
            channels,
        });
    }
    let value = |at: usize| values.get(at).or(values.first()).copied().unwrap_or(0.0);
    Ok(std::array::from_fn(|at| value(at) as f32))
}

/// The image that is warped.
struct WarpInput<'a> {
    view: PixelView<'a>,
    fill: [f32; 4],
    /// Whether the fill is blended by the share of the neighbours outside the image.
    blends: bool,
}

impl WarpInput<'_> {
    /// Takes the nearest pixels, or the fill outside the image.
    fn nearest<const CHANNELS: usize, const BYTES: usize>(
        &self,
        (x, y): (&[f32], &[f32]),
        rest: &mut Vec<u32>,
        to: &mut [u8],
    ) {
        let pixel = CHANNELS * BYTES;
        let mut fill = [0; 8];
        for (to, value) in fill.chunks_exact_mut(BYTES).zip(self.fill) {
            write::<BYTES>(value, to);
        }
        rest.clear();
        simd::nearest_row(Level::detect(), &self.source(), x, y, to, rest);
        for &at in &*rest {
            to[at as usize * pixel..][..pixel].copy_from_slice(&fill[..pixel]);
        }
    }

    fn source(&self) -> SourcePixels<'_> {
        let (data, row_bytes) = self.view.strided();
        SourcePixels {
            data,
            width: self.view.width(),
            height: self.view.height(),
            channels: self.view.pixel_bytes(),
            row_bytes,
        }
    }

    /// Blends the four neighbours in pixels of 8-bit samples.
    fn bilinear_bytes<const CHANNELS: usize>(
        &self,
        (x, y): (&[f32], &[f32]),
        rest: &mut Vec<u32>,
        to: &mut [u8],
    ) {
        rest.clear();
        simd::blend_row(Level::detect(), &self.source(), x, y, to, rest);
        for &at in &*rest {
            let at = at as usize;
            let to = &mut to[at * CHANNELS..][..CHANNELS];
            self.bilinear::<CHANNELS, 1>([x[at], y[at]], to);
        }
    }

    /// Blends the four neighbours in pixels of 16-bit samples.
    fn bilinear_words<const CHANNELS: usize>(
        &self,
        (x, y): (&[f32], &[f32]),
        _rest: &mut Vec<u32>,
        to: &mut [u8],
    ) {
        for (to, (&x, &y)) in to.chunks_exact_mut(2 * CHANNELS).zip(x.iter().zip(y)) {
            self.bilinear::<CHANNELS, 2>([x, y], to);
        }
    }

    /// Blends the four neighbours of a position, some of which may be outside the image.
    fn bilinear<const CHANNELS: usize, const BYTES: usize>(&self, [x, y]: [f32; 2], to: &mut [u8]) {
        let Size { height, width } = self.view.size();
        let (data, row_bytes) = self.view.strided();
        let pixel = CHANNELS * BYTES;
        let (left, top) = (floor(x), floor(y));
        let (right_share, below_share) = (x - left as f32, y - top as f32);
        let (left_share, above_share) = (1.0 - right_share, 1.0 - below_share);
        let shares = [
            left_share * above_share,
            right_share * above_share,
            left_share * below_share,
            right_share * below_share,
        ];
        let mut values = [0.0; CHANNELS];
        let is_near = |at: i64, side: u32| (-1..i64::from(side)).contains(&at);
        if !is_near(left, width) || !is_near(top, height) {
            if self.blends {
                values.copy_from_slice(&self.fill[..CHANNELS]);
            }
            for (to, value) in to.chunks_exact_mut(BYTES).zip(values) {
                write::<BYTES>(value, to);
            }
            return;
        }
        let mut share = 0.0;
        for (number, part) in shares.into_iter().enumerate() {
            let (x, y) = (left + number as i64 % 2, top + number as i64 / 2);
            if (0..i64::from(width)).contains(&x) && (0..i64::from(height)).contains(&y) {
                let from = &data[y as usize * row_bytes + x as usize * pixel..][..pixel];
                for (at, value) in values.iter_mut().enumerate() {
                    *value += read::<BYTES>(from, at) * part;
                }
                share += part;
            }
        }
        let is_inside =
            left >= 0 && top >= 0 && left < i64::from(width) - 1 && top < i64::from(height) - 1;
        if self.blends && !is_inside {
            for (value, fill) in values.iter_mut().zip(self.fill) {
                *value = (*value - fill) * share + fill;
            }
        }
        for (to, value) in to.chunks_exact_mut(BYTES).zip(values) {
            write::<BYTES>(value, to);
        }
    }
}

/// Rounds down. The cast truncates and saturates.
fn floor(at: f32) -> i64 {
    let cut = at as i32;
    i64::from(cut) - i64::from(at < cut as f32)
}

/// Reads a sample of 1 or 2 bytes.
fn read<const BYTES: usize>(from: &[u8], at: usize) -> f32 {
    match BYTES {
        1 => f32::from(from[at]),
        _ => f32::from(u16::from_ne_bytes([from[2 * at], from[2 * at + 1]])),
    }
}

/// Writes a sample of 1 or 2 bytes, rounded to the nearest even.
fn write<const BYTES: usize>(value: f32, to: &mut [u8]) {
    // Adding 1.5 * 2^23 leaves no bits for fractions; the addition itself rounds to even.
    const ROUND: f32 = 12_582_912.0;
    let rounded = (value + ROUND) - ROUND;
    match BYTES {
        1 => to[0] = rounded as u8,
        _ => to.copy_from_slice(&(rounded as u16).to_ne_bytes()),
    }
}
