//! Parts of a sample of several records: drawn, arranged, and joined on a canvas.
//!
//! Each record is decoded and transformed up to the joining transform as at its own position. The
//! result is an image without a decoder for the transforms that follow.

use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::{PartFailure, SampleError, StageFailure};
use crate::fields::moving::{SampleImage, SampleImages};
use crate::fields::pixels::header::{ArrangedPixels, VisualField};
use crate::fields::scratch::FieldScratch;
use crate::fields::steps::Flips;
use crate::plan::draws::DrawnImage;
use infeed_codec::transform::{PixelView, Step, TransformError};
use infeed_core::batch::BatchRow;
use infeed_core::counters::Stage;
use infeed_core::sample::{Image, Region, Size};

/// An image of a joined sample with its drawn steps.
pub(super) struct DrawnPart {
    /// The image at its location in the canvas.
    pub(super) image: DrawnImage,
    /// Number of the steps up to the whole tile, and up to its visible pixels. The rest moves these to
    /// their location.
    pub(super) whole: usize,
    pub(super) visible: usize,
    /// The visible pixels in the whole tile, and their location in the canvas.
    pub(super) from: Region,
    pub(super) region: Region,
}

/// A record on its way into the canvas.
pub(super) struct SamplePart<'a> {
    /// Number of the record among those of its canvas.
    pub(super) number: usize,
    pub(super) visuals: Vec<VisualField<'a>>,
    pub(super) drawn: DrawnPart,
    /// The steps of each field.
    pub(super) arranged: Vec<ArrangedPart>,
}

/// A field of a record on its way into the canvas.
pub(super) struct ArrangedPart {
    /// The steps up to the whole tile.
    pub(super) pixels: ArrangedPixels,
    /// The needed pixels in the canvas. `None` if no pixel is needed.
    pub(super) region: Option<Region>,
}

impl<'a> SamplePart<'a> {
    /// Returns a record whose pixels are not arranged yet.
    pub(super) fn new(
        number: usize,
        visuals: Vec<VisualField<'a>>,
        drawn: DrawnPart,
    ) -> SamplePart<'a> {
        let arranged = Vec::with_capacity(visuals.len());
        SamplePart {
            number,
            visuals,
            drawn,
            arranged,
        }
    }

    /// Returns the image, with which boxes and points move.
    pub(super) fn image<'s>(&'s self, of: SampleRecord<'s>) -> SampleImage<'s> {
        let steps = &self.drawn.image.steps;
        SampleImage::new(of.record, self.visuals[0].frame, steps).with_number(self.number)
    }

    /// Copies the needed pixels of a tile to the canvases.
    pub(super) fn paste(&self, tile: &[Image], canvases: &mut [Image]) -> Result<(), StageFailure> {
        let DrawnPart { from, region, .. } = self.drawn;
        let fields = self.visuals.iter().zip(&self.arranged).zip(tile);
        for (((visual, field), image), canvas) in fields.zip(canvases) {
            let Some(needed) = field.region else {
                continue;
            };
            let needed_in_tile = Region {
                top: from.top + needed.top - region.top,
                left: from.left + needed.left - region.left,
                size: needed.size,
            };
            let view = PixelView::from(image).crop(needed_in_tile);
            let view = view.map_err(|error| transform_failure(visual.field, "Mosaic", error))?;
            paste(view, Flips::default(), needed, canvas);
        }
        Ok(())
    }
}

/// Returns the region that two regions share. None if there is none.
fn common(a: Region, b: Region) -> Option<Region> {
    let range = |[a, b]: [u32; 2], ends: [u64; 2]| {
        let (first, end) = (a.max(b), ends[0].min(ends[1]));
        (u64::from(first) < end).then(|| (first, (end - u64::from(first)) as u32))
    };
    let (left, width) = range([a.left, b.left], [a.right(), b.right()])?;
    let (top, height) = range([a.top, b.top], [a.bottom(), b.bottom()])?;
    let size = Size { height, width };
    Some(Region { top, left, size })
}

/// Returns a failure of the joining transform.
pub(super) fn transform_failure(
    field: usize,
    transform: &'static str,
    error: TransformError,
) -> StageFailure {
    StageFailure {
        field,
        transform: Some(transform),
        error: SampleError::Transform(error),
    }
}

/// The work on the canvas after the joining transform.
pub(super) struct CanvasWork {
    /// The steps of each visual field.
    pub(super) pixels: Vec<ArrangedPixels>,
    /// Bytes of memory for the canvases and for the inputs of user functions.
    pub(super) bytes: u64,
    /// Bytes of the buffers of the steps, which are also those of the steps of parts.
    pub(super) step_bytes: u64,
}

impl<'a> SampleMaker<'a> {
    /// Reads the headers of all records of a sample, and draws their steps up to the joining
    /// transform with this number. `place` adds the steps to the location in the canvas, given the
    /// number of the record and the parts before it.
    pub(super) fn draw_parts<'r>(
        &mut self,
        records: &[SampleRecord<'r>],
        (layout, number): (usize, usize),
        place: impl Fn(usize, DrawnImage, &[SamplePart<'r>]) -> Result<DrawnPart, StageFailure>,
    ) -> Result<Vec<SamplePart<'r>>, PartFailure>
    where
        'a: 'r,
    {
        let mut parts = Vec::with_capacity(records.len());
        for (part, of) in records.iter().enumerate() {
            let failed = |failure| PartFailure { part, failure };
            let visuals = self.headers(*of, layout).map_err(failed)?;
            let first = visuals.first().expect("a joining transform has an image");
            let undrawn = self.plan.undrawn(of.record, first.field, first.frame);
            let mut image = undrawn.map_err(failed)?;
            let drawn = self.plan.draw_more(0..number, of.at, &mut image);
            drawn.map_err(failed)?;
            let drawn = place(part, image, &parts).map_err(failed)?;
            parts.push(SamplePart::new(part, visuals, drawn));
        }
        Ok(parts)
    }

    /// Arranges the steps of the pixels of all records. The canvas of each field needs those of a
    /// region. Returns the number of the record that needs most working memory, and its bytes.
    pub(super) fn arrange_parts(
        &self,
        records: &[SampleRecord<'_>],
        parts: &mut [SamplePart<'_>],
        needed: &[Region],
    ) -> (usize, u64) {
        let mut most = (0, 0);
        for (number, (of, part)) in records.iter().zip(parts).enumerate() {
            let drawn = &part.drawn;
            let steps = self
                .plan
                .missing(&drawn.image.steps[..drawn.whole], of.state);
            let mut bytes = 0;
            for (visual, needed) in part.visuals.iter().zip(needed) {
                let pixels = visual.arrange(steps, &self.plan.decode);
                bytes += visual.scratch_bytes(&pixels, &self.scratch.decoder);
                part.arranged.push(ArrangedPart {
                    pixels,
                    region: common(drawn.region, *needed),
                });
            }
            if bytes > most.1 {
                most = (number, bytes);
            }
        }
        most
    }

    /// Arranges the steps after the joining transform. `part` is that of the sample's own record.
    pub(super) fn arrange_canvas(
        &self,
        own: SampleRecord<'_>,
        part: &SamplePart<'_>,
        after: &[(usize, Step)],
        layout: usize,
    ) -> CanvasWork {
        let plan = self.plan;
        let mut work = CanvasWork {
            pixels: Vec::with_capacity(part.visuals.len()),
            bytes: plan.function_inputs(own.record, layout),
            step_bytes: 0,
        };
        for visual in &part.visuals {
            let canvas = visual.on_canvas(&[], part.drawn.image.size);
            let pixels = canvas.arrange(after, &plan.decode);
            work.bytes += canvas.size.pixels() * canvas.pixel_bytes() as u64;
            work.bytes += plan.function_row(&canvas, &pixels.folded);
            work.step_bytes += canvas.scratch_bytes(&pixels, &self.scratch.decoder);
            work.pixels.push(pixels);
        }
        work
    }

    /// Decodes the fields of a record and makes the images of its whole tile.
    pub(super) fn make_part(
        &mut self,
        part: &SamplePart<'_>,
        images: &mut Vec<Image>,
    ) -> Result<(), StageFailure> {
        let scratch = &mut self.scratch;
        images.resize_with(part.visuals.len(), Image::default);
        for ((visual, field), image) in part.visuals.iter().zip(&part.arranged).zip(images) {
            keep_pixels(visual, &field.pixels, scratch, image)?;
        }
        Ok(())
    }

    /// Writes the row of a joined sample from its canvases.
    pub(super) fn write_joined(
        &mut self,
        (own, part): (SampleRecord<'_>, &SamplePart<'_>),
        (canvases, work): (&[Image], &CanvasWork),
        images: SampleImages<'_>,
        row: &mut BatchRow,
    ) -> Result<(), PartFailure> {
        let scratch = &mut self.scratch;
        scratch.counted = 0;
        for ((visual, canvas), pixels) in part.visuals.iter().zip(canvases).zip(&work.pixels) {
            let visual = visual.on_canvas(&canvas.data, part.drawn.image.size);
            visual.make(pixels, &mut row.cells[visual.field], scratch)?;
        }
        scratch.counted = 1;
        self.write_others(own, images, row)
    }
}

/// Makes the pixels of a field, and keeps them in an image.
pub(super) fn keep_pixels(
    visual: &VisualField<'_>,
    pixels: &ArrangedPixels,
    scratch: &mut FieldScratch,
    image: &mut Image,
) -> Result<(), StageFailure> {
    visual.with_pixels(pixels, scratch, |view| {
        let size = view.size();
        // A list that doubles its memory would exceed the bytes of a tile.
        image.data.clear();
        let bytes = size.pixels() as usize * view.pixel_bytes();
        image.data.reserve_exact(bytes);
        image.reset(size, view.channels(), view.depth());
        paste(view, pixels.folded.flips, size.whole(), image);
        Ok(())
    })?;
    scratch.lap(Stage::Transform);
    Ok(())
}

/// Copies pixels to a region of the canvas, mirrored if needed.
pub(super) fn paste(view: PixelView<'_>, flips: Flips, region: Region, canvas: &mut Image) {
    let pixel = view.pixel_bytes();
    let (left, height) = (region.left as usize * pixel, view.height());
    for y in 0..height {
        let from = view.row(if flips.y { height - 1 - y } else { y });
        let to = canvas.row_mut(region.top as usize + y);
        let to = &mut to[left..left + from.len()];
        match flips.x {
            false => to.copy_from_slice(from),
            true => {
                let mirrored = to.chunks_exact_mut(pixel).zip(from.rchunks_exact(pixel));
                mirrored.for_each(|(to, from)| to.copy_from_slice(from));
            }
        }
    }
}
