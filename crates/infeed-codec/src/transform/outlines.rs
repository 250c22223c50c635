//! Outlines of objects: polygons whose corners move with the pixels of their image.
//!
//! An outline stays a polygon until the last step, so moves lose nothing. Its box is the box around
//! its visible part. A map of the objects is painted last, in the size of the result or a smaller one.
//!
//! A pixel belongs to an object if the object covers any part of it, as in `fillPoly` of OpenCV after
//! corners are rounded down. A pixel of a smaller map takes the middle pixels that it covers, as
//! bilinear interpolation does: the middle one, or at least two of the middle four.

use std::ops::Range;

use super::Step;
use infeed_core::sample::Size;

/// The outlines of the objects of an image, on their way through its steps.
#[derive(Clone, Debug, PartialEq)]
pub struct MovingOutlines {
    /// Column and row of the corners of all polygons, also outside the image.
    corners: Vec<[f64; 2]>,
    /// End of each polygon in `corners`.
    polygons: Vec<usize>,
    /// End of each object in `polygons`.
    objects: Vec<usize>,
    /// Corners of the part that no image on the way cut off. It is convex.
    rest: Vec<[f64; 2]>,
}

/// Left, top, right and bottom of an outline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutlineExtent {
    /// Of the whole outline.
    pub whole: [f64; 4],
    /// Of the part that no image cut off; `None` if nothing is left.
    pub visible: Option<[f64; 4]>,
}

/// A map of objects: its size, and the pixels of the image per pixel of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectMap {
    /// Size of the map.
    pub size: Size,
    stride: u32,
}

impl ObjectMap {
    /// Creates a map of an image. The last pixels that fill no pixel of the map are left out.
    pub fn new(image: Size, stride: u32) -> ObjectMap {
        let stride = stride.max(1);
        let size = Size {
            height: image.height / stride,
            width: image.width / stride,
        };
        ObjectMap { size, stride }
    }

    /// Returns the first of the middle pixels of a pixel of the map, and their number.
    fn middle(self) -> (u32, u32) {
        match self.stride % 2 {
            0 => (self.stride / 2 - 1, 2),
            _ => (self.stride / 2, 1),
        }
    }
}

/// The pixels of an object in a map.
#[derive(Clone, Debug, Default)]
pub struct PaintedObject {
    /// First row and column of the map.
    origin: [u32; 2],
    width: usize,
    /// 1 for the pixels of the object, else 0, row by row.
    pixels: Vec<u8>,
    /// Number of pixels of the object.
    area: u64,
}

impl PaintedObject {
    /// Returns the number of pixels.
    pub fn area(&self) -> u64 {
        self.area
    }

    /// Returns column and row of each pixel of the object.
    pub(super) fn covered_pixels(&self) -> impl Iterator<Item = [usize; 2]> {
        let [top, left] = self.origin.map(|at| at as usize);
        let rows = self.pixels.chunks_exact(self.width.max(1)).enumerate();
        rows.flat_map(move |(row, pixels)| {
            let covered = pixels.iter().enumerate().filter(|(_, pixel)| **pixel == 1);
            covered.map(move |(column, _)| [left + column, top + row])
        })
    }
}

impl MovingOutlines {
    /// Creates the outlines of an image of this size, of no object.
    pub fn new(image: Size) -> MovingOutlines {
        MovingOutlines {
            corners: Vec::new(),
            polygons: Vec::new(),
            objects: Vec::new(),
            rest: rectangle(image).to_vec(),
        }
    }

    /// Adds a polygon to the last object.
    pub fn add_polygon(&mut self, corners: impl IntoIterator<Item = [f64; 2]>) {
        self.corners.extend(corners);
        self.polygons.push(self.corners.len());
    }

    /// Ends an object, which has the polygons that no other object has.
    pub fn end_object(&mut self) {
        self.objects.push(self.polygons.len());
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Moves the outlines with the pixels of an image of this size.
    pub fn follow(&mut self, step: &Step, input: Size) {
        step.move_points(&mut self.corners, input);
        step.move_points(&mut self.rest, input);
        self.rest = clip(&self.rest, &rectangle(step.output_size(input)));
    }

    /// Returns the corners of the visible part of each polygon of an object. Parts of a concave
    /// polygon stay connected by lines along the edges.
    pub fn visible_polygons(&self, object: usize) -> impl Iterator<Item = Vec<[f64; 2]>> {
        let polygons = self.polygons(object);
        let visible = polygons.map(|polygon| clip(polygon, &self.rest));
        visible.filter(|polygon| !polygon.is_empty())
    }

    /// Returns the corners of each polygon of an object.
    fn polygons(&self, object: usize) -> impl Iterator<Item = &[[f64; 2]]> {
        let begin = |ends: &[usize], at: usize| at.checked_sub(1).map_or(0, |before| ends[before]);
        let numbers = begin(&self.objects, object)..self.objects[object];
        numbers.map(move |at| &self.corners[begin(&self.polygons, at)..self.polygons[at]])
    }

    /// Returns the box around an outline, and that around its visible part.
    pub fn extent(&self, object: usize) -> OutlineExtent {
        let (mut whole, mut visible) = (Extent::default(), Extent::default());
        for polygon in self.polygons(object) {
            let mut is_cut = false;
            for &corner in polygon {
                whole.add(corner);
                match is_inside_convex(&self.rest, corner) {
                    true => visible.add(corner),
                    false => is_cut = true,
                }
            }
            if !is_cut {
                continue;
            }
            for (from, to) in edges(polygon) {
                for (begin, end) in edges(&self.rest) {
                    if let Some(at) = crossing([from, to], [begin, end]) {
                        visible.add(at);
                    }
                }
            }
            let inside = self.rest.iter().filter(|at| is_inside(polygon, **at));
            inside.for_each(|at| visible.add(*at));
        }
        OutlineExtent {
            whole: whole.sides().unwrap_or_default(),
            visible: visible.sides(),
        }
    }

    /// Paints an object after the last step. `scratch` holds at most one byte per pixel of the image.
    pub fn paint(&self, object: usize, map: ObjectMap, scratch: &mut Vec<u8>) -> PaintedObject {
        let Some([left, top, right, bottom]) = self.extent(object).visible else {
            return PaintedObject::default();
        };
        let range = |low: f64, high: f64, side: u32| {
            let cell = |at: f64| (at.max(0.0) as u32 / map.stride).min(side);
            cell(low)..cell(high).saturating_add(1).min(side)
        };
        let (columns, rows) = (
            range(left, right, map.size.width),
            range(top, bottom, map.size.height),
        );
        if columns.is_empty() || rows.is_empty() {
            return PaintedObject::default();
        }
        let area = PaintArea::new(map, columns, rows);
        area.clear(scratch);
        for polygon in self.polygons(object) {
            for edge in edges(polygon) {
                area.draw(edge, scratch);
            }
            area.fill(scratch);
        }
        area.cut(&self.rest, scratch);
        area.reduce(scratch)
    }
}

/// Writes the number of the object of each pixel, from 1, in a map of this width. A later object
/// covers those before it.
pub fn write_map<'a>(
    objects: impl IntoIterator<Item = &'a PaintedObject>,
    width: u32,
    map: &mut [i32],
) {
    map.fill(0);
    for (number, object) in (1..).zip(objects) {
        let [top, left] = object.origin.map(|at| at as usize);
        for (row, pixels) in object.pixels.chunks_exact(object.width.max(1)).enumerate() {
            let begin = (top + row) * width as usize + left;
            let below = map[begin..begin + pixels.len()].iter_mut().zip(pixels);
            let covered = below.filter(|(_, pixel)| **pixel == 1);
            covered.for_each(|(below, _)| *below = number);
        }
    }
}

/// The part of an image in which an object is painted: the rows that count, with all columns.
struct PaintArea {
    map: ObjectMap,
    /// Columns and rows of the map.
    columns: Range<u32>,
    rows: Range<u32>,
    /// First column of the image, and the number of its columns.
    left: i64,
    width: usize,
}

/// The pixel is part of the object.
const COVERED: u8 = 1;
/// The inside of a polygon begins or ends at the pixel.
const TURNS: u8 = 2;

impl PaintArea {
    fn new(map: ObjectMap, columns: Range<u32>, rows: Range<u32>) -> PaintArea {
        PaintArea {
            map,
            left: i64::from(columns.start) * i64::from(map.stride),
            width: columns.len() * map.stride as usize,
            columns,
            rows,
        }
    }

    /// Returns the row of the image of each row of the area, from a row of the map on.
    fn image_rows(&self, from: u32) -> impl Iterator<Item = f64> {
        let (first, count) = self.map.middle();
        let stride = self.map.stride;
        (from..self.rows.end)
            .flat_map(move |row| (0..count).map(move |at| f64::from(row * stride + first + at)))
    }

    fn clear(&self, pixels: &mut Vec<u8>) {
        let rows = self.rows.len() * self.map.middle().1 as usize;
        pixels.clear();
        pixels.resize(rows * self.width, 0);
    }

    /// Returns the column of the area with a horizontal position.
    fn column(&self, x: f64) -> i64 {
        (x.floor() as i64).saturating_sub(self.left)
    }

    /// Marks the pixels that an edge touches, and those at which the inside begins or ends.
    fn draw(&self, (from, to): ([f64; 2], [f64; 2]), pixels: &mut [u8]) {
        let [low, high] = match from[1] <= to[1] {
            true => [from, to],
            false => [to, from],
        };
        let rise = high[1] - low[1];
        let at = |y: f64| match rise > 0.0 {
            true => low[0] + (high[0] - low[0]) * ((y - low[1]) / rise),
            false => low[0],
        };
        let top = (low[1].max(0.0) as u32 / self.map.stride).clamp(self.rows.start, self.rows.end);
        let above = (top - self.rows.start) as usize * self.map.middle().1 as usize;
        let pixels = pixels.chunks_exact_mut(self.width).skip(above);
        let rows = self.image_rows(top).zip(pixels);
        let rows = rows.skip_while(|(row, _)| row + 1.0 <= low[1]);
        for (row, pixels) in rows.take_while(|(row, _)| *row <= high[1]) {
            let ends = match rise > 0.0 {
                true => [at(low[1].max(row)), at(high[1].min(row + 1.0))],
                false => [low[0], high[0]],
            };
            let first = self.column(ends[0].min(ends[1])).max(0);
            let last = self.column(ends[0].max(ends[1])).min(self.width as i64 - 1);
            for column in first..=last {
                pixels[column as usize] |= COVERED;
            }
            let middle = row + 0.5;
            if low[1] <= middle && middle < high[1] {
                let column = self.column(at(middle)).max(0) as usize;
                if let Some(pixel) = pixels.get_mut(column) {
                    *pixel ^= TURNS;
                }
            }
        }
    }

    /// Fills the inside of the polygon whose edges are drawn.
    fn fill(&self, pixels: &mut [u8]) {
        for row in pixels.chunks_exact_mut(self.width) {
            let mut inside = 0;
            for pixel in row {
                inside ^= *pixel >> 1;
                *pixel = (*pixel & COVERED) | inside;
            }
        }
    }

    /// Clears the pixels whose centre is not in a convex part of the image.
    fn cut(&self, rest: &[[f64; 2]], pixels: &mut [u8]) {
        let rows = self.image_rows(self.rows.start);
        for (row, pixels) in rows.zip(pixels.chunks_exact_mut(self.width)) {
            let middle = row + 0.5;
            let mut span = Extent::default();
            for (from, to) in edges(rest) {
                let rise = to[1] - from[1];
                let share = (middle - from[1]) / rise;
                if (0.0..=1.0).contains(&share) {
                    span.add([from[0] + (to[0] - from[0]) * share, middle]);
                }
            }
            let [begin, end] = match span.sides() {
                Some([left, _, right, _]) => [left - 0.5, right + 0.5].map(|x| self.column(x)),
                None => [0, -1],
            };
            let begin = begin.saturating_add(1).clamp(0, self.width as i64) as usize;
            let end = end.clamp(begin as i64, self.width as i64) as usize;
            pixels[..begin].fill(0);
            pixels[end..].fill(0);
        }
    }

    /// Reduces the rows to pixels of the map.
    fn reduce(&self, pixels: &[u8]) -> PaintedObject {
        let (first, count) = self.map.middle();
        let (first, count) = (first as usize, count as usize);
        let width = self.columns.len();
        let mut map = Vec::with_capacity(width * self.rows.len());
        for rows in pixels.chunks_exact(self.width * count) {
            map.extend((0..width).map(|column| {
                let begin = column * self.map.stride as usize + first;
                let rows = rows.chunks_exact(self.width);
                let covered = rows.map(|row| row[begin..begin + count].iter().sum::<u8>());
                u8::from(2 * usize::from(covered.sum::<u8>()) >= count * count)
            }));
        }
        PaintedObject {
            origin: [self.rows.start, self.columns.start],
            width,
            area: map.iter().map(|&pixel| u64::from(pixel)).sum(),
            pixels: map,
        }
    }
}

/// Left, top, right and bottom of points.
#[derive(Clone, Copy, Default)]
struct Extent(Option<[f64; 4]>);

impl Extent {
    fn add(&mut self, [x, y]: [f64; 2]) {
        self.0 = Some(match self.0 {
            Some([left, top, right, bottom]) => {
                [left.min(x), top.min(y), right.max(x), bottom.max(y)]
            }
            None => [x, y, x, y],
        });
    }

    fn sides(self) -> Option<[f64; 4]> {
        self.0
    }
}

fn rectangle(size: Size) -> [[f64; 2]; 4] {
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    [[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]]
}

/// Returns the edges of a polygon, from each corner to the next.
fn edges(polygon: &[[f64; 2]]) -> impl Iterator<Item = ([f64; 2], [f64; 2])> {
    let next = polygon.iter().cycle().skip(1);
    polygon.iter().zip(next).map(|(from, to)| (*from, *to))
}

/// Returns twice the area of a triangle, positive if its corners turn clockwise on the screen.
fn turn(from: [f64; 2], to: [f64; 2], at: [f64; 2]) -> f64 {
    (to[0] - from[0]) * (at[1] - from[1]) - (to[1] - from[1]) * (at[0] - from[0])
}

/// Whether a point is in a convex polygon or on its edge.
fn is_inside_convex(polygon: &[[f64; 2]], at: [f64; 2]) -> bool {
    let (mut left, mut right) = (polygon.is_empty(), polygon.is_empty());
    for (from, to) in edges(polygon) {
        let side = turn(from, to, at);
        left |= side < 0.0;
        right |= side > 0.0;
    }
    !(left && right)
}

/// Whether a point is in a polygon, by the even-odd rule.
fn is_inside(polygon: &[[f64; 2]], [x, y]: [f64; 2]) -> bool {
    let crosses = |(from, to): &([f64; 2], [f64; 2])| {
        (from[1] > y) != (to[1] > y)
            && x < from[0] + (to[0] - from[0]) * ((y - from[1]) / (to[1] - from[1]))
    };
    edges(polygon).filter(crosses).count() % 2 == 1
}

/// Returns the point at which two lines between points cross.
fn crossing([from, to]: [[f64; 2]; 2], [begin, end]: [[f64; 2]; 2]) -> Option<[f64; 2]> {
    let (first, last) = (turn(begin, end, from), turn(begin, end, to));
    let share = first / (first - last);
    let at = [0, 1].map(|side| from[side] + (to[side] - from[side]) * share);
    // Both ends on one side, also of lines without length, make no share from 0 to 1.
    let is_between = |low: f64, high: f64, value: f64| {
        let margin = 1e-9 * (1.0 + low.abs().max(high.abs()));
        low.min(high) - margin <= value && value <= low.max(high) + margin
    };
    let is_on = (0..2).all(|side| is_between(begin[side], end[side], at[side]));
    ((0.0..=1.0).contains(&share) && is_on).then_some(at)
}

/// Returns the part of a polygon that is in a convex one. Parts of a concave polygon stay connected
/// by lines along the edges.
fn clip(polygon: &[[f64; 2]], convex: &[[f64; 2]]) -> Vec<[f64; 2]> {
    // The corners of a mirrored polygon turn the other way.
    let area: f64 = edges(convex)
        .map(|(from, to)| turn([0.0; 2], from, to))
        .sum();
    let mut left = polygon.to_vec();
    for (begin, end) in edges(convex) {
        let side = |at: [f64; 2]| turn(begin, end, at) * area.signum();
        let mut cut = Vec::with_capacity(left.len() + 1);
        for (from, to) in edges(&left) {
            let (first, last) = (side(from), side(to));
            if first >= 0.0 {
                cut.push(from);
            }
            if (first >= 0.0) != (last >= 0.0) {
                let share = first / (first - last);
                cut.push([0, 1].map(|side| from[side] + (to[side] - from[side]) * share));
            }
        }
        left = cut;
    }
    left
}
