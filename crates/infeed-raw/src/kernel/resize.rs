//! Positions of the images that a device resizes, and the weights.
//!
//! The arithmetic is that of the host's resizer, `fast_image_resize` for bytes. For each pixel of
//! the output, a triangle that widens as the image shrinks gives the weights of the input's pixels.
//! The weights are normalised in f64, and rounded to 16 bits with as many binary places as the
//! largest weight allows. The rest are sums of integers, which are the same on every device: first
//! along each column, rounded to a byte, then along the line. A side that keeps its length has one
//! weight of 1 for each pixel, so it does not change.
//!
//! A table is contiguous, so that it needs one copy to a device: an entry of 48 bytes for each
//! image, then axes. An axis describes how a side gets its new length: the number of the first
//! contributing pixel, 4 bytes for each pixel of the output, then the weights, 2 bytes each, the
//! same number for every pixel. Images with sides of the same length share axes.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::KernelError;
use super::shape::LaunchShape;
use super::views::{MAX_SIDE, ResizeView, RowView};

/// Bytes of an entry. The same number is in `kernels/resize.c`.
const ENTRY: usize = 48;

/// Weights are below 2 to this power.
const WEIGHT_BITS: u8 = 15;

/// Maximum binary places of a sum: a byte and two more bits fit above them.
const MAX_PRECISION: u8 = 21;

/// Weights kept for the next table, in bytes; enough for all lengths up to 512.
const KEPT_BYTES: usize = 16 << 20;

/// Images, and the weights that resize each to the size of the output. Every table is valid: all
/// its axes are inside of it and refer only to pixels of their image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeTable {
    height: usize,
    width: usize,
    views: Vec<ResizeView>,
    bytes: Arc<Vec<u8>>,
}

/// Weights of bilinear filters, kept for later tables.
#[derive(Debug, Default)]
pub struct Bilinear {
    known: HashMap<(u32, u32), Arc<Axis>>,
    bytes: usize,
}

/// Weights that resize a side to its new length.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// The first contributing pixel, for each pixel of the output.
    pub(super) firsts: Vec<u32>,
    /// Weights of each pixel of the output; `taps` for each.
    pub(super) weights: Vec<i16>,
    pub(super) taps: usize,
    /// Binary places of the weights.
    pub(super) precision: u8,
}

/// An axis as an entry refers to it.
#[derive(Clone, Copy, Debug)]
struct AxisEntry {
    /// Position in the table, in words of 4 bytes.
    at: u32,
    taps: u32,
    precision: u32,
    /// Length of the side before the resize.
    from: u32,
}

impl Bilinear {
    /// Makes an empty cache.
    pub fn new() -> Bilinear {
        Bilinear::default()
    }

    fn axis(&mut self, from: u32, to: u32) -> Arc<Axis> {
        if let Some(axis) = self.known.get(&(from, to)) {
            return Arc::clone(axis);
        }
        let axis = Arc::new(Axis::bilinear(from, to));
        if self.bytes > KEPT_BYTES {
            self.known.clear();
            self.bytes = 0;
        }
        self.bytes += axis.bytes();
        self.known.insert((from, to), Arc::clone(&axis));
        axis
    }
}

impl Axis {
    /// Computes the axis from a length to another; neither is 0.
    pub(super) fn bilinear(from: u32, to: u32) -> Axis {
        let scale = f64::from(from) / f64::from(to);
        let reach = scale.max(1.0);
        let steepness = 1.0 / reach;
        // All weights, one output pixel after another, and for each output pixel the start of its
        // weights and its first input pixel.
        let mut values: Vec<f64> = Vec::new();
        let mut windows = Vec::with_capacity(to as usize);
        for n in 0..to {
            let centre = (f64::from(n) + 0.5) * scale;
            let begin = (centre - reach).floor().max(0.0) as u32;
            let end = (centre + reach).ceil().min(f64::from(from)) as u32;
            let middle = centre - 0.5;
            let weight = |x: u32| {
                let distance = ((f64::from(x) - middle) * steepness).abs();
                if distance < 1.0 { 1.0 - distance } else { 0.0 }
            };
            let first = (begin..end).find(|&x| weight(x) != 0.0).unwrap_or(begin);
            let start = values.len();
            values.extend((first..end).map(weight));
            while values.len() > start + 1 && values.last() == Some(&0.0) {
                values.pop();
            }
            // Added in this order, with or without the zeros at the ends.
            let sum: f64 = values[start..].iter().sum();
            if sum != 0.0 {
                values[start..].iter_mut().for_each(|value| *value /= sum);
            }
            windows.push((start, first));
        }
        let largest = values.iter().copied().fold(0.0, f64::max);
        let precision = precision_for(largest);
        let ends = windows[1..].iter().map(|&(start, _)| start);
        let ends: Vec<usize> = ends.chain([values.len()]).collect();
        let counts = windows
            .iter()
            .zip(&ends)
            .map(|(&(start, _), end)| end - start);
        let taps = counts.max().unwrap_or(0);
        let mut axis = Axis {
            firsts: Vec::with_capacity(windows.len()),
            weights: vec![0; taps * windows.len()],
            taps,
            precision,
        };
        let of = f64::from(1_u32 << precision);
        let rows = axis.weights.chunks_exact_mut(taps.max(1));
        for ((&(start, first), &end), weights) in windows.iter().zip(&ends).zip(rows) {
            // At the end of the side the window begins earlier, with weights of 0.
            let moved = first.min(from - taps as u32);
            axis.firsts.push(moved);
            let weights = &mut weights[(first - moved) as usize..];
            for (weight, value) in weights.iter_mut().zip(&values[start..end]) {
                *weight = (value * of).round() as i16;
            }
        }
        axis
    }

    /// Bytes in a table, a multiple of 4.
    fn bytes(&self) -> usize {
        (4 * self.firsts.len() + 2 * self.weights.len()).next_multiple_of(4)
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.firsts.iter().flat_map(|first| first.to_ne_bytes()));
        to.extend(self.weights.iter().flat_map(|weight| weight.to_ne_bytes()));
        to.resize(to.len().next_multiple_of(4), 0);
    }
}

/// Returns the binary places for weights with this maximum: the largest number that keeps it below
/// 2^[`WEIGHT_BITS`].
fn precision_for(largest: f64) -> u8 {
    let fits = |&precision: &u8| {
        let next = (largest * f64::from(1_u32 << (precision + 1))).round();
        next < f64::from(1_u32 << WEIGHT_BITS)
    };
    (0..MAX_PRECISION).take_while(fits).count() as u8
}

impl ResizeTable {
    /// Makes a table that resizes images to one size, by a bilinear filter that widens as they
    /// shrink.
    ///
    /// # Errors
    ///
    /// [`KernelError::Side`] for a side that is longer than [`MAX_SIDE`], or an image without
    /// pixels; [`KernelError::Image`] for unknown flags.
    ///
    /// # Cost
    ///
    /// A few nanoseconds for each weight, about two for each pixel of a side. Weights of lengths
    /// used before are only copied.
    pub fn of(
        height: usize,
        width: usize,
        views: &[ResizeView],
        weights: &mut Bilinear,
    ) -> Result<ResizeTable, KernelError> {
        let side = |row: usize, length: usize| match u32::try_from(length) {
            Ok(side @ 1..=MAX_SIDE) => Ok(side),
            _ => Err(KernelError::Side { row, length }),
        };
        let mut bytes = vec![0; views.len() * ENTRY];
        let mut seen: HashMap<(u32, u32), AxisEntry> = HashMap::new();
        for (row, view) in views.iter().enumerate() {
            view.check_flags(row)?;
            let mut entry = Vec::with_capacity(ENTRY);
            entry.extend(view.offset.to_ne_bytes());
            entry.extend(view.row_bytes.to_ne_bytes());
            entry.extend(view.flags.to_ne_bytes());
            for (from, to) in [(view.width, width), (view.height, height)] {
                let (from, to) = (side(row, from as usize)?, side(row, to)?);
                let axis_entry = match seen.get(&(from, to)) {
                    Some(axis_entry) => *axis_entry,
                    None => {
                        let axis = weights.axis(from, to);
                        let at = u32::try_from(bytes.len() / 4)
                            .map_err(|_| KernelError::Table { row })?;
                        axis.write(&mut bytes);
                        let axis_entry = AxisEntry {
                            at,
                            taps: axis.taps as u32,
                            precision: u32::from(axis.precision),
                            from,
                        };
                        seen.insert((from, to), axis_entry);
                        axis_entry
                    }
                };
                let words = [
                    axis_entry.at,
                    axis_entry.taps,
                    axis_entry.precision,
                    axis_entry.from,
                ];
                entry.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
            }
            bytes[row * ENTRY..][..ENTRY].copy_from_slice(&entry);
        }
        // Padded, so that the bytes after it in one memory are aligned.
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        Ok(ResizeTable {
            height,
            width,
            views: views.to_vec(),
            bytes: Arc::new(bytes),
        })
    }

    /// Parses the table of `rows` images from bytes.
    ///
    /// # Errors
    ///
    /// [`KernelError::Table`] if a kernel would read outside of the table, or of an image;
    /// [`KernelError::Image`] for unknown flags.
    pub fn from_bytes(
        height: usize,
        width: usize,
        rows: usize,
        bytes: Vec<u8>,
    ) -> Result<ResizeTable, KernelError> {
        let fits = rows
            .checked_mul(ENTRY)
            .is_some_and(|end| end <= bytes.len());
        if !fits {
            let row = bytes.len() / ENTRY;
            return Err(KernelError::Table { row });
        }
        let mut views = Vec::with_capacity(rows);
        let mut sound = HashMap::new();
        for (row, entry) in bytes.chunks_exact(ENTRY).take(rows).enumerate() {
            let (view, columns, lines) = ResizeView::read(entry);
            view.check_flags(row)?;
            for (axis_entry, to) in [(columns, width), (lines, height)] {
                // An axis that many images share is checked once for each length.
                let key = (
                    axis_entry.at,
                    axis_entry.taps,
                    axis_entry.precision,
                    axis_entry.from,
                    to,
                );
                let is_sound = *sound
                    .entry(key)
                    .or_insert_with(|| axis_entry.is_sound(to, &bytes).is_some());
                if !is_sound {
                    return Err(KernelError::Table { row });
                }
            }
            views.push(view);
        }
        Ok(ResizeTable {
            height,
            width,
            views,
            bytes: Arc::new(bytes),
        })
    }

    /// Returns the images.
    pub fn views(&self) -> &[ResizeView] {
        &self.views
    }

    /// Returns the bytes that a device reads.
    pub fn bytes(&self) -> &Arc<Vec<u8>> {
        &self.bytes
    }

    /// Returns the bytes of the input up to the last byte of all images; `None` if that overflows.
    pub fn input_bytes(&self, channels: usize) -> Option<usize> {
        let mut ends = self.views.iter().map(|view| view.end(channels));
        ends.try_fold(0, |end, next| Some(end.max(next?)))
    }

    /// Checks that this is a table for such an output, and that its images are inside of the input.
    pub(super) fn check(
        &self,
        rows: usize,
        shape: &LaunchShape,
        input_bytes: usize,
    ) -> Result<(), KernelError> {
        let found = self.views.len();
        if found != rows {
            return Err(KernelError::Views { rows, found });
        }
        if (self.height, self.width) != (shape.height, shape.width) {
            return Err(KernelError::TableSize {
                height: self.height,
                width: self.width,
                expected_height: shape.height,
                expected_width: shape.width,
            });
        }
        let line = |view: &ResizeView| (view.width as usize).checked_mul(shape.pixel_bytes);
        for (row, view) in self.views.iter().enumerate() {
            let is_apart = line(view).is_some_and(|line| line <= view.row_bytes as usize);
            let end = view.end(shape.pixel_bytes);
            if !is_apart || end.is_none_or(|end| end > input_bytes) {
                return Err(view.wrong(row, input_bytes));
            }
        }
        Ok(())
    }
}

impl ResizeView {
    /// Parses an entry of a table, which has [`ENTRY`] bytes.
    fn read(entry: &[u8]) -> (ResizeView, AxisEntry, AxisEntry) {
        let word = |n: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&entry[4 * n..4 * n + 4]);
            u32::from_ne_bytes(word)
        };
        let mut offset = [0; 8];
        offset.copy_from_slice(&entry[..8]);
        let axis_entry = |n: usize| AxisEntry {
            at: word(n),
            taps: word(n + 1),
            precision: word(n + 2),
            from: word(n + 3),
        };
        let (columns, lines) = (axis_entry(4), axis_entry(8));
        let view = ResizeView {
            offset: u64::from_ne_bytes(offset),
            row_bytes: word(2),
            flags: word(3),
            height: lines.from,
            width: columns.from,
        };
        (view, columns, lines)
    }

    /// Returns the end of its last line in the input.
    fn end(&self, channels: usize) -> Option<usize> {
        let offset = usize::try_from(self.offset).ok()?;
        let Some(lines_before) = self.height.checked_sub(1) else {
            return Some(offset);
        };
        let last = (self.row_bytes as usize).checked_mul(lines_before as usize)?;
        let line = (self.width as usize).checked_mul(channels)?;
        offset.checked_add(last)?.checked_add(line)
    }

    fn check_flags(&self, row: usize) -> Result<(), KernelError> {
        match self.flags & !(RowView::FLIP_X | RowView::FLIP_Y) {
            0 => Ok(()),
            _ => Err(self.wrong(row, 0)),
        }
    }

    fn wrong(self, row: usize, input: usize) -> KernelError {
        KernelError::Image {
            row,
            view: self,
            input,
        }
    }
}

impl AxisEntry {
    /// Whether the axis is inside of these bytes, and every pixel's weights inside of its side.
    fn is_sound(&self, to: usize, bytes: &[u8]) -> Option<()> {
        let begin = (self.at as usize).checked_mul(4)?;
        let end = begin.checked_add(to.checked_mul(4)?)?;
        let firsts = bytes.get(begin..end)?;
        let weights = to.checked_mul(self.taps as usize)?.checked_mul(2)?;
        let is_inside = end.checked_add(weights)? <= bytes.len();
        let has_precision = (1..=u32::from(MAX_PRECISION)).contains(&self.precision);
        let last = self.from.checked_sub(self.taps)?;
        let (firsts, _) = firsts.as_chunks::<4>();
        let are_inside = firsts
            .iter()
            .all(|&first| u32::from_ne_bytes(first) <= last);
        (is_inside && has_precision && are_inside).then_some(())
    }
}
