//! A contact sheet of the first samples of the pipeline. Undoes normalization, lays masks over the
//! images, tints objects, outlines boxes, draws points, and writes labels below.

use std::path::Path;

use infeed::pipeline::{BoxesSpec, Layout, PointsSpec};
use infeed::{Array, OnError, Options, Values};
use infeed_codec::transform::{Palette, Transform};
use infeed_core::batch::Batch;
use infeed_core::sample::{DType, Depth, FieldKind, Image, Size};

use super::glyphs;
use crate::error::CliError;
use crate::interrupt;
use crate::target::Target;

/// Longest side of a sample on the sheet in pixels. Larger samples are shrunk.
const CELL: usize = 320;
const GAP: usize = 6;
const BACKGROUND: u8 = 24;
const INK: u8 = 230;
/// Opacity of a mask's colour over the image.
const COVER: f32 = 0.5;
/// Size of a letter's dot in pixels.
const DOT: usize = 2;

/// Width of an outline in pixels.
const LINE: usize = 2;

/// Pixels of a point on each side of its centre.
const MARK: usize = 1;

/// Colour of a box that has no class.
const OUTLINE: [u8; 3] = [255, 255, 0];

/// Runs the pipeline for up to `samples` samples and writes the sheet. Returns the number of
/// samples on it.
///
/// # Errors
///
/// The error of the pipeline, a pipeline without images, or a file that cannot be written.
pub(super) fn write(target: &Target, out: &Path, samples: usize) -> Result<usize, CliError> {
    let mut options = Options::default();
    options.on_error = OnError::Substitute;
    let loader = target.open(&options)?;
    let source = loader
        .source()
        .map_err(|error| CliError::from_error(&error))?;
    let painter = Painter::new(target, source.fields(), source.classes())?;
    let mut cells = Vec::new();
    while cells.len() < samples && !interrupt::is_requested() {
        let Some(batch) = loader
            .next_batch()
            .map_err(|error| CliError::from_error(&error))?
        else {
            break;
        };
        for row in 0..batch.samples().min(samples - cells.len()) {
            cells.push(painter.cell(&batch, row)?);
        }
    }
    let png = infeed_sample::png(&arrange(&cells)).map_err(|error| CliError::from_error(&error))?;
    std::fs::write(out, png)
        .map_err(|error| CliError::Failed(format!("cannot write {}: {error}", out.display())))?;
    Ok(cells.len())
}

/// One sample on the sheet.
struct SheetCell {
    /// RGB image.
    image: Image,
    caption: String,
}

/// Meaning of the columns of a batch.
struct Painter {
    layout: Layout,
    image: String,
    mask: Option<String>,
    /// Scalar fields, with the names of their values if they are known.
    labels: Vec<(String, Option<Vec<String>>)>,
    /// Mean and standard deviation to undo, per channel, in the order of the transforms.
    normalized: Vec<(Vec<f64>, Vec<f64>)>,
    palette: Option<Palette>,
    one_hot: bool,
    boxes: Vec<BoxesSpec>,
    points: Vec<PointsSpec>,
}

impl Painter {
    fn new(
        target: &Target,
        fields: &[infeed_core::sample::Field],
        classes: Option<&[String]>,
    ) -> Result<Painter, CliError> {
        let of_kind = |wanted: fn(&FieldKind) -> bool| {
            fields
                .iter()
                .find(|field| wanted(&field.kind))
                .map(|field| field.name.clone())
        };
        let image = of_kind(|kind| matches!(kind, FieldKind::Image(_)));
        let Some(image) = image.filter(|_| can_show(target, fields)) else {
            let problem = "the pipeline has no decoded images for a sheet";
            return Err(CliError::Failed(problem.to_owned()));
        };
        let scalar = |kind: &FieldKind| matches!(kind, FieldKind::Tensor { dtype: DType::Int64, shape } if shape.is_empty());
        let labels = fields
            .iter()
            .filter(|field| scalar(&field.kind))
            .map(|field| {
                let names = classes
                    .filter(|_| field.name == "label")
                    .map(<[String]>::to_vec);
                (field.name.clone(), names)
            });
        let transforms = &target.pipeline.transforms;
        let normalized = transforms.iter().filter_map(|transform| {
            let (mean, std) = transform.normalization()?;
            let is_about = transform.field().is_none_or(|field| field == image);
            is_about.then(|| (mean.to_vec(), std.to_vec()))
        });
        let normalized = normalized.collect();
        let palette = transforms.iter().find_map(Transform::palette);
        let palette = palette.map(Palette::from_csv).transpose();
        Ok(Painter {
            layout: target.pipeline.output.layout,
            mask: of_kind(|kind| matches!(kind, FieldKind::Mask(_))),
            labels: labels.collect(),
            normalized,
            palette: palette.map_err(|error| CliError::from_error(&error))?,
            one_hot: transforms
                .iter()
                .filter_map(Transform::classes)
                .any(|to| to.index.is_none()),
            boxes: target.pipeline.declared_boxes(),
            points: target.pipeline.declared_points(),
            image,
        })
    }

    fn cell(&self, batch: &Batch, row: usize) -> Result<SheetCell, CliError> {
        let array = |name: &str| {
            batch
                .array(name)
                .ok_or_else(|| CliError::Failed(format!("`{name}` is not an array")))
        };
        let view = ImageView::of(array(&self.image)?, row, self.layout)?;
        let mut image = self.picture(&view);
        if let Some(mask) = &self.mask {
            let array = array(mask)?;
            // A mask of class numbers has no channel axis.
            let layout = if array.shape().len() == 4 {
                self.layout
            } else {
                Layout::Hwc
            };
            self.overlay(&mut image, &ImageView::of(array, row, layout)?);
        }
        for spec in &self.boxes {
            self.tint(&mut image, batch, row, spec);
        }
        let mut image = shrunk(&image);
        for spec in &self.boxes {
            self.outline(&mut image, view.size, batch, row, spec);
        }
        for spec in &self.points {
            self.marks(&mut image, view.size, batch, row, spec);
        }
        let label = |(name, names): &(String, Option<Vec<String>>)| {
            let Some(Values::Array(array)) = batch.get(name) else {
                return String::new();
            };
            let named = |value: f64| {
                let known = names.as_ref().and_then(|names| names.get(value as usize));
                known.cloned().unwrap_or_else(|| format!("{name} {value}"))
            };
            // A mixed sample has a share of each class.
            if let [_, classes] = *array.shape() {
                let share = |class: usize| {
                    let index = row * classes + class;
                    (class, ArrayElement { array, index }.value())
                };
                let shares = (0..classes).map(share).filter(|(_, share)| *share > 0.0);
                let texts = shares.map(|(class, share)| match share {
                    share if share < 1.0 => format!("{} {share:.2}", named(class as f64)),
                    _ => named(class as f64),
                });
                return texts.collect::<Vec<_>>().join(" + ");
            }
            named(ArrayElement { array, index: row }.value())
        };
        let captions: Vec<String> = self.labels.iter().map(label).collect();
        Ok(SheetCell {
            image,
            caption: captions.join(", "),
        })
    }

    /// Returns the image as RGB bytes, with scaling and normalization undone.
    fn picture(&self, view: &ImageView) -> Image {
        let mut image = Image::default();
        image.reset(view.size, 3, Depth::U8);
        let full = match view.array.dtype() {
            DType::UInt8 => 1.0,
            DType::UInt16 => 1.0 / 257.0,
            _ => 255.0,
        };
        for (at, pixel) in image.data.chunks_exact_mut(3).enumerate() {
            for (channel, out) in pixel.iter_mut().enumerate() {
                let channel = if view.channels >= 3 { channel } else { 0 };
                let mut value = view.value(at, channel);
                for (mean, std) in self.normalized.iter().rev() {
                    let of = |values: &[f64]| {
                        values
                            .get(channel)
                            .or(values.last())
                            .copied()
                            .unwrap_or(0.0)
                    };
                    value = value * of(std) + of(mean);
                }
                *out = (value * full).round().clamp(0.0, 255.0) as u8;
            }
        }
        image
    }

    /// Lays the colours of a mask over an image of the same size.
    fn overlay(&self, image: &mut Image, mask: &ImageView) {
        if mask.size != image.size {
            return;
        }
        for (at, pixel) in image.data.chunks_exact_mut(3).enumerate() {
            let colour = if self.one_hot {
                // The channel that is set. None for a pixel of no class.
                (0..mask.channels)
                    .find(|&c| mask.value(at, c) > 0.5)
                    .map(|c| self.colour(c))
            } else if mask.channels >= 3 {
                Some([0, 1, 2].map(|c| mask.value(at, c) as u8))
            } else {
                let class = mask.value(at, 0);
                (class >= 0.0).then(|| self.colour(class as usize))
            };
            if let Some(colour) = colour {
                cover(pixel, colour);
            }
        }
    }

    /// Lays a colour over each object of a row, where its mask is.
    fn tint(&self, image: &mut Image, batch: &Batch, row: usize, spec: &BoxesSpec) {
        let masks = spec.masks.as_ref();
        let Some(masks) = masks.and_then(|name| list_of(batch, name, row)) else {
            return;
        };
        let [.., height, width] = *masks.array.shape() else {
            return;
        };
        let pixels = height * width;
        if pixels == 0 || (height, width) != (image.height(), image.width()) {
            return;
        }
        for number in 0..masks.count / pixels {
            let colour = bright(self.colour(number + 1));
            for (at, pixel) in image.data.chunks_exact_mut(3).enumerate() {
                if masks.value(number * pixels + at) != 0.0 {
                    cover(pixel, colour);
                }
            }
        }
    }

    /// Outlines the boxes of a row in an image that was shrunk from this size, in the colour of
    /// the first column of whole numbers.
    fn outline(&self, image: &mut Image, from: Size, batch: &Batch, row: usize, spec: &BoxesSpec) {
        let Some(boxes) = list_of(batch, &spec.field, row) else {
            return;
        };
        let mut columns = spec.columns.iter().filter_map(|name| {
            let column = list_of(batch, name, row)?;
            (column.array.dtype() == DType::Int64).then_some(column)
        });
        let classes = columns.next();
        let unit = match spec.normalized {
            true => [f64::from(from.width), f64::from(from.height)],
            false => [1.0; 2],
        };
        let sides = [image.size.width, image.size.height].map(f64::from);
        let scale = [
            sides[0] / f64::from(from.width),
            sides[1] / f64::from(from.height),
        ];
        for number in 0..boxes.count / 4 {
            let values = [0, 1, 2, 3].map(|side| boxes.value(number * 4 + side));
            let corners = spec.format.corners(values);
            // Padding of a list is zeros.
            if values == [0.0; 4] {
                continue;
            }
            let edge = |side: usize| corners[side] * unit[side % 2] * scale[side % 2];
            // The casts saturate.
            let low = |side: usize| (edge(side).round() as usize).min(sides[side % 2] as usize - 1);
            let high = |side: usize| {
                let last = (edge(side).round() as usize).min(sides[side % 2] as usize);
                last.max(1) - 1
            };
            let class = classes.as_ref().map(|classes| classes.value(number));
            // The first colour of the list is black.
            let colour = class.map_or(OUTLINE, |class| bright(self.colour(class as usize + 1)));
            let (left, top, right, bottom) = (low(0), low(1), high(2), high(3));
            for y in top..=bottom {
                for x in left..=right {
                    let edges = [y - top, bottom - y, x - left, right - x];
                    if edges.iter().any(|&distance| distance < LINE) {
                        image.row_mut(y)[x * 3..x * 3 + 3].copy_from_slice(&colour);
                    }
                }
            }
        }
    }

    /// Draws the visible points of a row in an image that was shrunk from this size, in a colour for
    /// each number of a point.
    fn marks(&self, image: &mut Image, from: Size, batch: &Batch, row: usize, spec: &PointsSpec) {
        let Some(points) = list_of(batch, &spec.field, row) else {
            return;
        };
        let numbers = if spec.visibility { 3 } else { 2 };
        let per_object = spec.count.unwrap_or(1).max(1);
        let sides = [image.size.width, image.size.height];
        let full = [from.width, from.height].map(f64::from);
        for number in 0..points.count / numbers {
            let value = |at: usize| points.value(number * numbers + at);
            // Padding of a list is zeros.
            if (0..numbers).all(|at| value(at) == 0.0) || (spec.visibility && value(2) == 0.0) {
                continue;
            }
            let centre = [0, 1].map(|side| {
                let share = match spec.normalized {
                    true => value(side),
                    false => (value(side) + 0.5) / full[side],
                };
                share * f64::from(sides[side])
            });
            let is_inside = |side: usize| (0.0..f64::from(sides[side])).contains(&centre[side]);
            if !is_inside(0) || !is_inside(1) {
                continue;
            }
            let colour = bright(self.colour(number % per_object + 1));
            let around = |side: usize| {
                let at = centre[side] as usize;
                at.saturating_sub(MARK)..(at + MARK + 1).min(sides[side] as usize)
            };
            for y in around(1) {
                for x in around(0) {
                    image.row_mut(y)[x * 3..x * 3 + 3].copy_from_slice(&colour);
                }
            }
        }
    }

    /// Returns the colour of a class: the palette's, or a generated one that differs from its
    /// neighbours.
    fn colour(&self, class: usize) -> [u8; 3] {
        if let Some(colour) = self.palette.as_ref().and_then(|p| p.colors().get(class)) {
            return *colour;
        }
        // The bits of the number are spread over the channels, highest first, as in PASCAL VOC.
        let bit = |n: usize| ((class >> n) & 1) as u8;
        std::array::from_fn(|c| bit(c) << 7 | bit(c + 3) << 6 | bit(c + 6) << 5)
    }
}

/// Lays a colour over a pixel.
fn cover(pixel: &mut [u8], colour: [u8; 3]) {
    for (under, over) in pixel.iter_mut().zip(colour) {
        let mixed = f32::from(*under) * (1.0 - COVER) + f32::from(over) * COVER;
        *under = mixed as u8;
    }
}

/// Makes the colour of a thin line bright enough to be seen on a photograph.
fn bright(colour: [u8; 3]) -> [u8; 3] {
    colour.map(|channel| match channel {
        0 => 0,
        channel => channel.saturating_add(127),
    })
}

/// The list of one row of a batch.
struct RowList<'a> {
    array: &'a Array,
    first: usize,
    /// Number of its numbers.
    count: usize,
}

impl RowList<'_> {
    /// Returns a number of the list, 0 beyond its end.
    fn value(&self, at: usize) -> f64 {
        let (array, index) = (self.array, self.first + at);
        match at < self.count {
            true => ArrayElement { array, index }.value(),
            false => 0.0,
        }
    }
}

/// Returns the list of a row; with its padding if the batch has padded lists.
fn list_of<'a>(batch: &'a Batch, name: &str, row: usize) -> Option<RowList<'a>> {
    let (array, begin, end) = match batch.get(name)? {
        Values::Ragged { values, offsets } => {
            let offset = |index| {
                ArrayElement {
                    array: offsets,
                    index,
                }
                .value() as usize
            };
            let item: usize = values.shape().get(1..)?.iter().product();
            (values, offset(row) * item, offset(row + 1) * item)
        }
        Values::Array(array) => {
            let items: usize = array.shape().get(1..)?.iter().product();
            (array, row * items, (row + 1) * items)
        }
        Values::Bytes(_) | Values::Text(_) => return None,
    };
    Some(RowList {
        array,
        first: begin,
        count: end - begin,
    })
}

/// Returns whether image fields hold pixels in a batch.
fn can_show(target: &Target, fields: &[infeed_core::sample::Field]) -> bool {
    let encoded = |field: &infeed_core::sample::Field| {
        matches!(
            field.kind,
            FieldKind::Image(infeed_core::sample::Pixels::Encoded)
        )
    };
    target.pipeline.decode.is_some() || !fields.iter().any(encoded)
}

/// One row of an array of images.
struct ImageView<'a> {
    array: &'a Array,
    first: usize,
    size: Size,
    channels: usize,
    layout: Layout,
}

impl<'a> ImageView<'a> {
    fn of(array: &'a Array, row: usize, layout: Layout) -> Result<ImageView<'a>, CliError> {
        let (height, width, channels) = match (array.shape(), layout) {
            ([_, h, w], _) => (*h, *w, 1),
            ([_, h, w, c], Layout::Hwc) | ([_, c, h, w], Layout::Chw) => (*h, *w, *c),
            (shape, _) => {
                return Err(CliError::Failed(format!(
                    "an array of shape {shape:?} does not hold images"
                )));
            }
        };
        // The sides come from images, which have 32-bit sides.
        let size = Size {
            height: height as u32,
            width: width as u32,
        };
        let first = row * height * width * channels;
        Ok(ImageView {
            array,
            first,
            size,
            channels,
            layout,
        })
    }

    /// Returns the element of a channel of pixel number `at`.
    fn value(&self, at: usize, channel: usize) -> f64 {
        let index = match self.layout {
            Layout::Hwc => at * self.channels + channel,
            Layout::Chw => channel * self.size.pixels() as usize + at,
        };
        ArrayElement {
            array: self.array,
            index: self.first + index,
        }
        .value()
    }
}

/// One number of an array.
struct ArrayElement<'a> {
    array: &'a Array,
    index: usize,
}

impl ArrayElement<'_> {
    fn value(&self) -> f64 {
        let width = self.array.dtype().bytes();
        let bytes = &self.array.bytes()[self.index * width..(self.index + 1) * width];
        match (self.array.dtype(), bytes) {
            (DType::UInt8 | DType::Bool, [a]) => f64::from(*a),
            (DType::UInt16, [a, b]) => f64::from(u16::from_le_bytes([*a, *b])),
            (DType::Float16, [a, b]) => half::f16::from_le_bytes([*a, *b]).to_f64(),
            (DType::BFloat16, [a, b]) => half::bf16::from_le_bytes([*a, *b]).to_f64(),
            (DType::Float32, [a, b, c, d]) => f64::from(f32::from_le_bytes([*a, *b, *c, *d])),
            (DType::Int64, [a, b, c, d, e, f, g, h]) => {
                i64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) as f64
            }
            // Images and labels have no other types.
            _ => 0.0,
        }
    }
}

/// Shrinks an image so that no side exceeds [`CELL`], by the mean over blocks of pixels.
fn shrunk(image: &Image) -> Image {
    let by = image.height().max(image.width()).div_ceil(CELL);
    if by <= 1 {
        return image.clone();
    }
    let (height, width) = ((image.height() / by).max(1), (image.width() / by).max(1));
    let mut out = Image::default();
    out.reset(
        Size {
            height: height as u32,
            width: width as u32,
        },
        3,
        Depth::U8,
    );
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let (mut sum, mut count) = (0, 0);
                for row in (y * by..(y + 1) * by).take_while(|&row| row < image.height()) {
                    for column in (x * by..(x + 1) * by).take_while(|&c| c < image.width()) {
                        sum += u32::from(image.row(row)[column * 3 + channel]);
                        count += 1;
                    }
                }
                out.row_mut(y)[x * 3 + channel] = (sum / count.max(1)) as u8;
            }
        }
    }
    out
}

/// Arranges cells in a grid that is about as wide as high.
fn arrange(cells: &[SheetCell]) -> Image {
    let side =
        |of: fn(&Image) -> usize| cells.iter().map(|cell| of(&cell.image)).max().unwrap_or(1);
    let caption = if cells.iter().any(|cell| !cell.caption.is_empty()) {
        glyphs::HEIGHT * DOT + GAP
    } else {
        0
    };
    let (height, width) = (
        side(Image::height) + caption + GAP,
        side(Image::width) + GAP,
    );
    let columns = (1..=cells.len().max(1))
        .find(|columns| columns * width >= cells.len().div_ceil(*columns) * height)
        .unwrap_or(1);
    let rows = cells.len().div_ceil(columns).max(1);
    let mut sheet = Image::default();
    let size = Size {
        height: (rows * height + GAP) as u32,
        width: (columns * width + GAP) as u32,
    };
    sheet.reset(size, 3, Depth::U8);
    sheet.data.fill(BACKGROUND);
    for (number, cell) in cells.iter().enumerate() {
        let (top, left) = (
            number / columns * height + GAP,
            number % columns * width + GAP,
        );
        for y in 0..cell.image.height() {
            let bytes = cell.image.row_bytes();
            sheet.row_mut(top + y)[left * 3..left * 3 + bytes].copy_from_slice(cell.image.row(y));
        }
        let below = top + side(Image::height) + GAP / 2;
        write_text(&mut sheet, &cell.caption, below, left, width - GAP);
    }
    sheet
}

fn write_text(sheet: &mut Image, text: &str, top: usize, left: usize, width: usize) {
    for (number, letter) in text.chars().take(width / (glyphs::WIDTH * DOT)).enumerate() {
        for y in 0..glyphs::HEIGHT * DOT {
            for x in 0..glyphs::WIDTH * DOT {
                if glyphs::dot(letter, x / DOT, y / DOT) {
                    let at = (left + number * glyphs::WIDTH * DOT + x) * 3;
                    sheet.row_mut(top + y)[at..at + 3].fill(INK);
                }
            }
        }
    }
}
