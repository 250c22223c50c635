//! Masks of single objects: polygons and run lengths of COCO, painted as one bit per object.
//!
//! A plane has one byte per pixel and up to eight objects, one in each bit. Steps that only move
//! pixels then move eight masks at once: see [`Step::moving_bits`](crate::transform::Step::moving_bits).
//!
//! Source: "Data format" of <https://cocodataset.org>, and the outlines that its API draws. An outline
//! runs along a grid of five points per pixel side. It crosses the line through the centres of a
//! column of pixels at whole points of this grid; pixels whose centre is not above a crossing are
//! inside after an odd number of crossings.

use std::collections::HashMap;
use std::fmt;

use serde::de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::transform::MAX_PIXELS;
use infeed_core::sample::{Depth, Image, Size};

/// Objects in a plane: one per bit of a pixel.
pub const OBJECTS_PER_PLANE: usize = 8;

/// Grid points per side of a pixel.
const GRID: i64 = 5;

/// The line through the centres of a column runs between the second and third grid point after its
/// left edge.
const CENTRE: i64 = 2;

/// Largest distance of a point of a polygon from the corner of the image, in pixels.
const MAX_COORDINATE: f64 = 1e6;

/// Largest number of runs, in characters of a compressed string or in numbers.
const MAX_RUNS: usize = 1 << 26;

/// The mask of an object, as an annotation of COCO has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CocoMask {
    /// x and y of the corners of each polygon, in pixels. The object is their union.
    Polygons(Vec<Vec<f64>>),
    /// Lengths of runs outside and inside the object, column by column from the top left.
    Runs {
        /// Height and width of the image.
        size: [u32; 2],
        /// The lengths.
        counts: RunLengths,
    },
}

/// Lengths of the runs of a mask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum RunLengths {
    /// The lengths, beginning outside the object.
    Numbers(Vec<u32>),
    /// The lengths in the compressed form of COCO.
    Text(String),
}

/// A mask that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {fix}")]
pub struct CocoMaskError {
    /// The problem, which continues "the segmentation".
    pub problem: String,
    /// The fix.
    pub fix: &'static str,
}

fn invalid(problem: impl Into<String>, fix: &'static str) -> CocoMaskError {
    let problem = problem.into();
    CocoMaskError { problem, fix }
}

const RUNS_FIX: &str = "write its mask again, or remove the annotation";

/// Largest number of runs of all segments of an image.
const MAX_SEGMENT_RUNS: usize = 1 << 22;

/// Maximum memory for a length of a run: a number, and digits with a comma, in vectors that grew.
const RUN_BYTES: u64 = 2 * (4 + 10);

/// Returns the maximum memory that the masks of all segments of an image take, as values and as JSON.
pub fn segments_bytes(size: Size) -> u64 {
    // Two lengths for each run, which has at least one pixel.
    size.pixels().saturating_mul(2).min(MAX_SEGMENT_RUNS as u64) * RUN_BYTES
}

/// Returns the mask of each segment of an image whose pixels are numbers of segments, in the order
/// of `ids`. The number of a pixel is red + 256 green + 65 536 blue, and 0 belongs to no segment.
///
/// Source: "Panoptic segmentation" in the data format of <https://cocodataset.org>.
///
/// # Errors
///
/// For an image that is not RGB of 8 bits, a pixel of no segment in `ids`, a segment without pixels,
/// and an image of more than 4 194 304 runs.
pub fn segments(image: &Image, ids: &[u32]) -> Result<Vec<CocoMask>, CocoMaskError> {
    let fix = "correct the file, or its annotation";
    if image.channels != 3 || image.depth != Depth::U8 {
        return Err(invalid("has no RGB pixels of 8 bits", fix));
    }
    let numbers: HashMap<u32, usize> = ids.iter().enumerate().map(|(at, &id)| (id, at)).collect();
    let (height, width) = (image.height(), image.width());
    let mut runs: Vec<Vec<u32>> = vec![Vec::new(); ids.len()];
    let mut ends = vec![0; ids.len()];
    let mut count = 0;
    let mut close = |id: u32, run: std::ops::Range<usize>| {
        if id == 0 || run.is_empty() {
            return Ok(());
        }
        let Some(&at) = numbers.get(&id) else {
            return Err(invalid(
                format!("has pixels of segment {id}, which is not in segments_info"),
                fix,
            ));
        };
        count += 2;
        if count > MAX_SEGMENT_RUNS {
            return Err(invalid("has more runs of pixels than masks can have", fix));
        }
        let before = std::mem::replace(&mut ends[at], run.end);
        runs[at].extend([run.start - before, run.len()].map(|length| length as u32));
        Ok(())
    };
    let (mut last, mut begin) = (0, 0);
    // Runs go down the columns.
    for x in 0..width {
        for y in 0..height {
            let at = x * height + y;
            let pixel = &image.data[3 * (y * width + x)..][..3];
            let id = u32::from_le_bytes([pixel[0], pixel[1], pixel[2], 0]);
            if id != last {
                close(last, begin..at)?;
                (last, begin) = (id, at);
            }
        }
    }
    close(last, begin..height * width)?;
    let mut masks = Vec::with_capacity(ids.len());
    for ((mut counts, end), id) in runs.into_iter().zip(ends).zip(ids) {
        if counts.is_empty() {
            return Err(invalid(format!("has no pixels of segment {id}"), fix));
        }
        counts.push((height * width - end) as u32);
        masks.push(CocoMask::Runs {
            size: [image.size.height, image.size.width],
            counts: RunLengths::Numbers(counts),
        });
    }
    Ok(masks)
}

impl CocoMask {
    /// Checks everything that does not depend on the image.
    ///
    /// # Errors
    ///
    /// For polygons with fewer than three corners, an odd number of coordinates, or coordinates that
    /// are not finite or far outside any image; for run lengths that are damaged, or that are not
    /// the pixels of their size.
    pub fn check(&self) -> Result<(), CocoMaskError> {
        match self {
            CocoMask::Polygons(polygons) => {
                let fix = "correct it, or remove the annotation";
                if polygons.is_empty() {
                    return Err(invalid("has no polygon", fix));
                }
                for (number, polygon) in polygons.iter().enumerate() {
                    let length = polygon.len();
                    if length < 6 || !length.is_multiple_of(2) {
                        return Err(invalid(
                            format!(
                                "has {length} numbers in polygon {number}, which are not x and y of 3 \
                                 corners or more"
                            ),
                            fix,
                        ));
                    }
                    let is_far = |x: &&f64| !x.is_finite() || x.abs() > MAX_COORDINATE;
                    if let Some(value) = polygon.iter().find(is_far) {
                        return Err(invalid(
                            format!(
                                "has the coordinate {value} in polygon {number}, which is far outside \
                                 any image"
                            ),
                            fix,
                        ));
                    }
                }
                Ok(())
            }
            CocoMask::Runs { size, counts } => {
                let size = checked_size(*size)?;
                counts.each(size, |_, _| {})
            }
        }
    }

    /// Returns the size of the image, if the mask has one.
    pub fn size(&self) -> Option<Size> {
        match self {
            CocoMask::Polygons(_) => None,
            CocoMask::Runs { size, .. } => {
                let [height, width] = *size;
                Some(Size { height, width })
            }
        }
    }

    /// Sets a bit of the pixels of the object in a plane, which has the size of the image.
    /// `scratch` holds at most one byte per pixel.
    ///
    /// # Errors
    ///
    /// As [`CocoMask::check`], and for run lengths of an image of another size.
    pub fn paint(
        &self,
        plane: &mut Image,
        bit: u8,
        scratch: &mut Vec<u8>,
    ) -> Result<(), CocoMaskError> {
        match self {
            CocoMask::Polygons(polygons) => {
                self.check()?;
                for polygon in polygons {
                    paint_polygon(polygon, plane, bit, scratch);
                }
                Ok(())
            }
            CocoMask::Runs { size, counts } => {
                let found = checked_size(*size)?;
                if found != plane.size {
                    let problem = format!("is for an image of {found} px, not {} px", plane.size);
                    return Err(invalid(problem, "use the mask of this image"));
                }
                let (height, width) = (plane.height(), plane.width());
                counts.each(found, |mut begin, mut length| {
                    // A run continues at the top of the next column.
                    while length > 0 {
                        let (x, y) = (begin / height, begin % height);
                        let part = length.min(height - y);
                        let rows = plane.data[y * width..].chunks_mut(width);
                        for row in rows.take(part) {
                            row[x] |= bit;
                        }
                        begin += part;
                        length -= part;
                    }
                })
            }
        }
    }
}

fn checked_size([height, width]: [u32; 2]) -> Result<Size, CocoMaskError> {
    let size = Size { height, width };
    if size.pixels() == 0 || size.pixels() > MAX_PIXELS {
        let problem = format!("is for an image of {size} px, which is not possible");
        return Err(invalid(problem, RUNS_FIX));
    }
    Ok(size)
}

impl RunLengths {
    /// Calls `inside` with begin and length of each run of the object.
    fn each(&self, size: Size, mut inside: impl FnMut(usize, usize)) -> Result<(), CocoMaskError> {
        let pixels = size.pixels();
        let mut begin = 0_u64;
        let mut run = |number: usize, length: u64| {
            if number >= MAX_RUNS {
                return Err(invalid(format!("has more than {MAX_RUNS} runs"), RUNS_FIX));
            }
            if length > pixels - begin {
                let problem =
                    format!("has runs of more than the {pixels} pixels of its size {size}");
                return Err(invalid(problem, RUNS_FIX));
            }
            if number % 2 == 1 {
                inside(begin as usize, length as usize);
            }
            begin += length;
            Ok(())
        };
        match self {
            RunLengths::Numbers(lengths) => {
                for (number, &length) in lengths.iter().enumerate() {
                    run(number, length.into())?;
                }
            }
            RunLengths::Text(text) => {
                // From the fourth length on, the text has the difference to the length two before.
                let (mut before, mut number) = ([0_i64; 2], 0);
                let mut rest = text.as_bytes();
                while !rest.is_empty() {
                    let mut length = next_number(&mut rest)?;
                    if number > 2 {
                        length += before[0];
                    }
                    before = [before[1], length];
                    let found = u64::try_from(length).map_err(|_| {
                        let problem = format!("has a run of {length} pixels, number {number}");
                        invalid(problem, RUNS_FIX)
                    })?;
                    run(number, found)?;
                    number += 1;
                }
            }
        }
        if begin != pixels {
            let problem = format!("has runs of {begin} pixels, but its size {size} has {pixels}");
            return Err(invalid(problem, RUNS_FIX));
        }
        Ok(())
    }
}

/// Reads a signed number of five bits per character, lowest first. The sixth bit says that another
/// character follows.
fn next_number(text: &mut &[u8]) -> Result<i64, CocoMaskError> {
    let (mut value, mut shift) = (0_i64, 0);
    loop {
        let Some((&first, rest)) = text.split_first() else {
            return Err(invalid("has a text that is truncated", RUNS_FIX));
        };
        *text = rest;
        let digit = first.wrapping_sub(b'0');
        if digit >= 64 || shift > 30 {
            let problem = "has a text that is no compressed run lengths";
            return Err(invalid(problem, RUNS_FIX));
        }
        value |= i64::from(digit & 0x1f) << shift;
        shift += 5;
        if digit & 0x20 == 0 {
            let is_negative = digit & 0x10 != 0;
            return Ok(if is_negative {
                value - (1 << shift)
            } else {
                value
            });
        }
    }
}

/// A line between two points of the grid, from the one with the lower number along its longer side.
struct GridLine {
    from: [i64; 2],
    to: [i64; 2],
    /// Change along the shorter side for one point along the longer side.
    slope: f64,
    /// Whether x is the longer side.
    is_flat: bool,
}

impl GridLine {
    fn new(from: [i64; 2], to: [i64; 2]) -> GridLine {
        let [dx, dy] = [0, 1].map(|side: usize| (to[side] - from[side]).abs());
        let is_flat = dx >= dy;
        let long = usize::from(!is_flat);
        let (from, to) = match from[long] > to[long] {
            true => (to, from),
            false => (from, to),
        };
        let short = 1 - long;
        let slope = (to[short] - from[short]) as f64 / (to[long] - from[long]) as f64;
        GridLine {
            from,
            to,
            slope,
            is_flat,
        }
    }

    /// Returns the coordinate along the shorter side, `at` points after the beginning.
    fn short(&self, at: i64) -> i64 {
        let from = self.from[usize::from(self.is_flat)] as f64;
        // The cast rounds to zero, which only matters outside the image.
        (from + self.slope * at as f64 + 0.5) as i64
    }

    /// Returns the upper y of the step of the line between the grid columns `x` and `x + 1`, which
    /// lie between its ends.
    fn crossing(&self, x: i64) -> i64 {
        if self.is_flat {
            let at = x - self.from[0];
            return self.short(at).min(self.short(at + 1));
        }
        // The first point beyond the step.
        let is_beyond = |at: i64| match self.slope > 0.0 {
            true => self.short(at) > x,
            false => self.short(at) <= x,
        };
        let (mut low, mut high) = (0, self.to[1] - self.from[1]);
        while low < high {
            let middle = low + (high - low) / 2;
            match is_beyond(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        self.from[1] + (low - 1).max(0)
    }
}

/// Sets a bit of the pixels inside a polygon of at least three corners.
fn paint_polygon(polygon: &[f64], plane: &mut Image, bit: u8, scratch: &mut Vec<u8>) {
    let (height, width) = (plane.height() as i64, plane.width() as i64);
    let corner = |at: usize| [polygon[2 * at], polygon[2 * at + 1]].map(on_grid);
    let corners = polygon.len() / 2;
    let (mut low, mut high) = ([i64::MAX; 2], [i64::MIN; 2]);
    for at in 0..corners {
        for (side, value) in corner(at).into_iter().enumerate() {
            low[side] = low[side].min(value);
            high[side] = high[side].max(value);
        }
    }
    // The first column whose centre is not left of `x`, and the first row not above `y`.
    let column = |x: i64| -((CENTRE - x).div_euclid(GRID));
    let row = |y: i64| (-((CENTRE - y).div_euclid(GRID))).clamp(0, height);
    let (left, right) = (column(low[0]).max(0), column(high[0]).min(width));
    let (top, bottom) = (row(low[1]), row(high[1]));
    if left >= right || top >= bottom {
        return;
    }
    let columns = (right - left) as usize;
    scratch.clear();
    scratch.resize(columns * (bottom - top) as usize, 0);
    for at in 0..corners {
        let line = [corner(at), corner((at + 1) % corners)];
        let (first, last) = (line[0][0].min(line[1][0]), line[0][0].max(line[1][0]));
        let own = column(first).max(left)..column(last).min(right);
        if own.is_empty() {
            continue;
        }
        let line = GridLine::new(line[0], line[1]);
        for column in own {
            let y = row(line.crossing(column * GRID + CENTRE));
            // Below the last row, a crossing changes nothing.
            if y < bottom {
                let at = (y - top).max(0) as usize * columns + (column - left) as usize;
                scratch[at] ^= 1;
            }
        }
    }
    for number in 0..(bottom - top) as usize {
        let (above, own) = scratch.split_at_mut(number * columns);
        let own = &mut own[..columns];
        if let Some(above) = above.len().checked_sub(columns).map(|at| &above[at..]) {
            own.iter_mut()
                .zip(above)
                .for_each(|(own, above)| *own ^= above);
        }
        let begin = (top as usize + number) * width as usize + left as usize;
        let pixels = plane.data[begin..begin + columns].iter_mut();
        pixels
            .zip(&*own)
            .for_each(|(pixel, own)| *pixel |= own * bit);
    }
}

fn on_grid(coordinate: f64) -> i64 {
    (GRID as f64 * coordinate + 0.5) as i64
}

/// Makes `plane` an empty plane of this size.
pub fn clear(plane: &mut Image, size: Size) {
    plane.data.clear();
    plane.reset(size, 1, Depth::U8);
}

/// Returns left, top, right and bottom of the pixels of each bit of a plane, and their number. None
/// for a bit without pixels.
pub fn bits_of(plane: &Image) -> [Option<([usize; 4], usize)>; OBJECTS_PER_PLANE] {
    let mut found = [None; OBJECTS_PER_PLANE];
    for y in 0..plane.height() {
        let row = plane.row(y);
        let any = row.iter().fold(0, |any, pixel| any | pixel);
        for (bit, found) in found.iter_mut().enumerate() {
            if any >> bit & 1 == 0 {
                continue;
            }
            let is_set = |pixel: &u8| pixel >> bit & 1 == 1;
            let count = row.iter().filter(|pixel| is_set(pixel)).count();
            let first = row.iter().position(is_set).unwrap_or(0);
            let last = row.iter().rposition(is_set).unwrap_or(0) + 1;
            let ([left, top, right, _], before) = found.unwrap_or(([usize::MAX, y, 0, 0], 0));
            let around = [left.min(first), top, right.max(last), y + 1];
            *found = Some((around, before + count));
        }
    }
    found
}

impl<'de> Deserialize<'de> for CocoMask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CocoMask, D::Error> {
        deserializer.deserialize_any(CocoMaskVisitor)
    }
}

/// Reads a segmentation without the copy that serde needs for enumerations without a tag.
struct CocoMaskVisitor;

impl<'de> Visitor<'de> for CocoMaskVisitor {
    type Value = CocoMask;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of polygons, or run lengths with `size` and `counts`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<CocoMask, A::Error> {
        let (mut polygons, mut flat) = (Vec::new(), Vec::new());
        while let Some(part) = list.next_element()? {
            match part {
                PolygonPart::Polygon(polygon) => polygons.push(polygon),
                PolygonPart::Coordinate(x) => flat.push(x),
            }
        }
        match (polygons.is_empty(), flat.is_empty()) {
            (_, true) => Ok(CocoMask::Polygons(polygons)),
            (true, false) => Ok(CocoMask::Polygons(vec![flat])),
            (false, false) => Err(de::Error::custom("polygons and numbers in one list")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CocoMask, A::Error> {
        let (mut size, mut counts) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "size" => size = Some(map.next_value()?),
                "counts" => counts = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(CocoMask::Runs {
            size: size.ok_or_else(|| de::Error::missing_field("size"))?,
            counts: counts.ok_or_else(|| de::Error::missing_field("counts"))?,
        })
    }
}

impl<'de> Deserialize<'de> for RunLengths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RunLengths, D::Error> {
        deserializer.deserialize_any(RunLengthsVisitor)
    }
}

/// Reads run lengths without the copy that serde needs for enumerations without a tag: it takes 32
/// bytes for each length.
struct RunLengthsVisitor;

impl<'de> Visitor<'de> for RunLengthsVisitor {
    type Value = RunLengths;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of run lengths, or their compressed form")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RunLengths, A::Error> {
        let mut lengths = Vec::new();
        while let Some(length) = list.next_element()? {
            lengths.push(length);
        }
        Ok(RunLengths::Numbers(lengths))
    }

    fn visit_str<E>(self, text: &str) -> Result<RunLengths, E> {
        Ok(RunLengths::Text(text.to_owned()))
    }
}

/// A part of a list of polygons. Some tools write the numbers of a single polygon without its brackets.
enum PolygonPart {
    Polygon(Vec<f64>),
    Coordinate(f64),
}

impl<'de> Deserialize<'de> for PolygonPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PolygonPart, D::Error> {
        deserializer.deserialize_any(PolygonPartVisitor)
    }
}

struct PolygonPartVisitor;

impl<'de> Visitor<'de> for PolygonPartVisitor {
    type Value = PolygonPart;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of coordinates")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PolygonPart, A::Error> {
        let mut polygon = Vec::new();
        while let Some(x) = list.next_element()? {
            polygon.push(x);
        }
        Ok(PolygonPart::Polygon(polygon))
    }

    fn visit_i64<E>(self, x: i64) -> Result<PolygonPart, E> {
        Ok(PolygonPart::Coordinate(x as f64))
    }

    fn visit_u64<E>(self, x: u64) -> Result<PolygonPart, E> {
        Ok(PolygonPart::Coordinate(x as f64))
    }

    fn visit_f64<E>(self, x: f64) -> Result<PolygonPart, E> {
        Ok(PolygonPart::Coordinate(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn paint_mask(segmentation: &CocoMask, size: Size) -> Result<Vec<u8>, CocoMaskError> {
        let (mut plane, mut scratch) = (Image::default(), vec![7; 9]);
        clear(&mut plane, size);
        plane.data.fill(0b101);
        segmentation.paint(&mut plane, 1 << 3, &mut scratch)?;
        assert!(plane.data.iter().all(|pixel| pixel & !(1 << 3) == 0b101));
        Ok(plane.data.iter().map(|pixel| pixel >> 3).collect())
    }

    fn of(json: &Value) -> CocoMask {
        CocoMask::deserialize(json).expect("a segmentation")
    }

    #[test]
    fn segments_are_the_pixels_with_their_number() {
        let size = Size {
            height: 5,
            width: 7,
        };
        let mut image = Image::default();
        image.reset(size, 3, Depth::U8);
        let ids = [1, 256, 70_000, 0x00ff_ffff];
        let number = |at: usize| [0, 1, 256, 70_000, 0x00ff_ffff][at * 3 / 2 % 5];
        for (at, pixel) in image.data.chunks_exact_mut(3).enumerate() {
            pixel.copy_from_slice(&u32::to_le_bytes(number(at))[..3]);
        }

        let masks = segments(&image, &ids).expect("all segments");
        for (mask, id) in masks.iter().zip(ids) {
            let expected: Vec<u8> = (0..35).map(|at| u8::from(number(at) == id)).collect();
            assert_eq!(paint_mask(mask, size), Ok(expected), "{id}");
        }
        let error = |ids: &[u32]| segments(&image, ids).unwrap_err().problem;
        assert!(error(&ids[1..]).contains("segment 1, which is not in"));
        assert!(error(&[ids[0], ids[1], 5, ids[2], ids[3]]).contains("no pixels of segment 5"));
        image.reset(size, 1, Depth::U8);
        let error = segments(&image, &ids).unwrap_err().to_string();
        assert!(error.contains("RGB"), "{error}");
    }

    #[test]
    fn polygons_and_both_formats_of_runs_are_the_pixels_of_pycocotools() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../testdata/masks/masks.json"
        );
        let text = std::fs::read(path).expect("masks.json");
        let cases: Vec<Value> = serde_json::from_slice(&text).expect("JSON");
        let mut inside = 0;
        for case in &cases {
            let [height, width] = [0, 1].map(|at| case["size"][at].as_u64().expect("a side"));
            let (height, width) = (height as u32, width as u32);
            let size = Size { height, width };
            let hex = case["pixels"].as_str().expect("hexadecimal");
            let bit = |at: usize| {
                let byte = u8::from_str_radix(&hex[at / 8 * 2..at / 8 * 2 + 2], 16);
                byte.expect("hexadecimal") >> (7 - at % 8) & 1
            };
            let expected: Vec<u8> = (0..size.pixels() as usize).map(bit).collect();
            inside += expected.iter().filter(|pixel| **pixel == 1).count();

            let outline = paint_mask(&of(&case["polygons"]), size);
            assert_eq!(outline.as_ref(), Ok(&expected), "{case}");
            let text = of(&json!({"size": case["size"], "counts": case["counts"]}));
            assert_eq!(paint_mask(&text, size).as_ref(), Ok(&expected), "{case}");
            // Runs, column by column.
            let column_wise = (0..width as usize)
                .flat_map(|x| (0..height as usize).map(move |y| y * width as usize + x));
            let mut lengths = vec![0_u32];
            for at in column_wise {
                if u32::from(expected[at]) != (lengths.len() as u32 - 1) % 2 {
                    lengths.push(0);
                }
                *lengths.last_mut().expect("a run") += 1;
            }
            let numbers = of(&json!({"counts": lengths, "size": case["size"], "other": 1}));
            assert_eq!(paint_mask(&numbers, size), Ok(expected), "{case}");
        }
        assert!(cases.len() >= 100 && inside > 10_000, "{inside}");
    }

    #[test]
    fn segmentations_keep_their_values_as_json() {
        for json in [
            json!([[1.0, 2.5, 3.0, 4.0, 1e-3, 6.0]]),
            json!({"size": [2, 3], "counts": [1, 5]}),
            json!({"size": [2, 3], "counts": "16"}),
        ] {
            assert_eq!(serde_json::to_value(of(&json)).expect("JSON"), json);
        }
    }

    #[test]
    fn damaged_segmentations_are_errors() {
        let size = Size {
            height: 4,
            width: 6,
        };
        for (json, part) in [
            (json!([]), "has no polygon"),
            (json!([[1, 2, 3, 4]]), "4 numbers in polygon 0"),
            (json!([[1, 2, 3, 4, 5, 6, 7]]), "7 numbers"),
            (json!([[1, 2, 3, 4, 5, -2e6]]), "the coordinate -2000000"),
            (
                json!({"size": [6, 4], "counts": [24]}),
                "an image of 4x6 px, not 6x4 px",
            ),
            (
                json!({"size": [4, 6], "counts": [25]}),
                "more than the 24 pixels",
            ),
            (json!({"size": [4, 6], "counts": [20]}), "runs of 20 pixels"),
            (json!({"size": [0, 6], "counts": [0]}), "not possible"),
            (
                json!({"size": [4_000_000_000_u32, 4_000_000_000_u32], "counts": []}),
                "not possible",
            ),
            (json!({"size": [4, 6], "counts": "h"}), "truncated"),
            (
                json!({"size": [4, 6], "counts": "\u{20ac}"}),
                "no compressed",
            ),
            (
                json!({"size": [4, 6], "counts": "oooooooooooo0"}),
                "no compressed",
            ),
            (json!({"size": [4, 6], "counts": "N"}), "a run of -2 pixels"),
        ] {
            let error = paint_mask(&of(&json), size)
                .expect_err("damaged")
                .to_string();
            assert!(
                error.contains(part) && error.contains("; "),
                "{json}: {error}"
            );
        }
    }

    #[test]
    fn outlines_far_outside_take_no_memory_and_little_time() {
        let size = Size {
            height: 100,
            width: 100,
        };
        let far: Vec<f64> = (0..20_000)
            .flat_map(|at| match at % 3 {
                0 => [-1e6, -1e6],
                1 => [1e6, -1e6 + f64::from(at)],
                _ => [f64::from(at % 100), 1e6],
            })
            .collect();
        let (mut plane, mut scratch) = (Image::default(), Vec::new());
        clear(&mut plane, size);
        let outline = CocoMask::Polygons(vec![far]);
        outline
            .paint(&mut plane, 1, &mut scratch)
            .expect("a polygon");
        assert!(scratch.len() <= 100 * 100);
    }

    #[test]
    fn bits_have_their_box_and_their_pixels() {
        let mut plane = Image::default();
        let size = Size {
            height: 3,
            width: 4,
        };
        clear(&mut plane, size);
        plane
            .data
            .copy_from_slice(&[0, 0, 0, 0, 0, 1, 3, 0, 1, 0, 0, 0]);
        let found = bits_of(&plane);
        assert_eq!(found[0], Some(([0, 1, 3, 3], 3)));
        assert_eq!(found[1], Some(([2, 1, 3, 2], 1)));
        assert!(found[2..].iter().all(Option::is_none));
    }
}
