//! `Mosaic`: the images of four records in one, before the transforms that follow.
//!
//! Each record is decoded and transformed up to the mosaic as at its own position, and its visible
//! part is written into a canvas. For the transforms that follow, the canvas is an image without a
//! decoder. The boxes of each record take the steps of their own image first.

use std::ops::Range;

use super::failure::{SampleError, StageFailure};
use super::fold::{Flips, FoldedSteps, fold};
use super::moved::SampleImage;
use super::prepared::PixelState;
use super::sample::{AdmitMemory, DrawnImage, Position, SampleScratch, VisualField};
use super::{FieldPlan, Plan, place};
use crate::pipeline::Pipeline;
use infeed_codec::decode::{ImageFrame, Request};
use infeed_codec::transform::{Mosaic, MosaicDraw, PixelView, Rng, Step, TILES, TransformError};
use infeed_core::batch::BatchRow;
use infeed_core::counters::{Stage, ThreadCounters};
use infeed_core::error::Error;
use infeed_core::sample::{Image, Record, Region};

/// The mosaic of a pipeline.
#[derive(Clone, Debug)]
pub(super) struct MosaicPlan {
    /// Index of the transform; keys the draws.
    pub(super) number: usize,
    mosaic: Mosaic,
}

/// A record in a mosaic.
#[derive(Clone, Copy, Debug)]
pub struct TileRecord<'a> {
    /// The record.
    pub record: &'a Record,
    /// Its images and masks.
    pub state: PixelState,
    /// Position whose random draws it gets.
    pub at: Position,
}

/// A failure of a record in a mosaic.
#[derive(Debug)]
pub struct TileFailure {
    /// Number of the record, 0 to 3.
    pub tile: usize,
    /// The failure.
    pub failure: StageFailure,
}

impl From<StageFailure> for TileFailure {
    /// Blames the sample's own record.
    fn from(failure: StageFailure) -> TileFailure {
        TileFailure { tile: 0, failure }
    }
}

impl From<TileFailure> for StageFailure {
    fn from(failed: TileFailure) -> StageFailure {
        failed.failure
    }
}

/// An image of a mosaic with its drawn steps.
pub(super) struct DrawnTile {
    /// The image at its location in the canvas.
    pub(super) image: DrawnImage,
    /// Number of the steps up to the visible pixels; the rest moves them to their location.
    pub(super) visible: usize,
    /// The location of the visible pixels.
    pub(super) region: Region,
}

/// A record on its way into the canvas.
struct ArrangedTile<'a> {
    looked: Vec<VisualField<'a>>,
    drawn: DrawnTile,
    arranged: Vec<(FoldedSteps, Option<Request>)>,
}

/// Checks the mosaic of a pipeline.
pub(super) fn plan(pipeline: &Pipeline) -> Result<Option<MosaicPlan>, Error> {
    let all = || pipeline.transforms.iter().enumerate();
    let mut mosaics = all().filter_map(|(at, transform)| Some((at, transform.mosaic()?)));
    let Some((number, mosaic)) = mosaics.next() else {
        return Ok(None);
    };
    let wrong =
        |at: usize, problem: &str| Err(Error::config(place(at, &pipeline.transforms[at]), problem));
    if let Some((second, _)) = mosaics.next() {
        return wrong(second, "a pipeline can have one Mosaic; remove one");
    }
    if let Some((at, _)) = all().find(|(_, transform)| transform.mixes()) {
        let problem = "it mixes samples, which Mosaic does already; remove one of the two";
        return wrong(at, problem);
    }
    let keeps_channels = |channels| {
        let mut before = pipeline.transforms[..number].iter();
        before.all(|transform| transform.output_channels(channels) == channels)
    };
    if !keeps_channels(1) || !keeps_channels(3) {
        let problem = "an earlier transform changes the number of channels; put it after Mosaic";
        return wrong(number, problem);
    }
    let mosaic = mosaic.clone();
    Ok(Some(MosaicPlan { number, mosaic }))
}

impl Plan {
    /// Whether samples are made of several images.
    pub(crate) fn has_mosaic(&self) -> bool {
        self.mosaic.is_some()
    }

    /// Draws the partners of a position: a function of the seed, epoch, position and the positions
    /// in `near`. None if its image is alone.
    pub fn mosaic(&self, at: Position, near: impl FnOnce() -> Range<u64>) -> Option<MosaicDraw> {
        let MosaicPlan { number, mosaic } = self.mosaic.as_ref()?;
        let mut rng = Rng::new(self.seed, at.epoch, at.position, *number as u64);
        mosaic.draw_partners(at.position, near, &mut rng)
    }

    /// Makes the sample of four records in its row. The first one is the sample's own: fields that
    /// are neither images nor boxes are copied from it.
    ///
    /// # Errors
    ///
    /// The error of a record, the same on every run. The row's content is then unspecified.
    pub fn run_mosaic(
        &self,
        tiles: &[TileRecord<'_>; TILES],
        drawn: &MosaicDraw,
        row: &mut BatchRow,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
        admit: AdmitMemory<'_>,
    ) -> Result<(), TileFailure> {
        let TileRecord { record, state, at } = tiles[0];
        let Some(own) = &self.mosaic else {
            return Ok(self.run((record, state), at, row, scratch, counters, admit)?);
        };
        let mut canvases = std::mem::take(&mut scratch.canvases);
        let made = self.run_with(at, row, scratch, counters, |row, scratch| {
            let (mosaic, buffers) = ((own, drawn), &mut canvases);
            self.fill_mosaic(tiles, mosaic, row, buffers, scratch, counters, admit)
        });
        // The cost of the partners belongs to the sample.
        scratch.counted = 1;
        scratch.canvases = canvases;
        made
    }

    /// Makes the sample up to the user functions.
    #[allow(clippy::too_many_arguments)]
    fn fill_mosaic(
        &self,
        tiles: &[TileRecord<'_>; TILES],
        mosaic: (&MosaicPlan, &MosaicDraw),
        row: &mut BatchRow,
        canvases: &mut Vec<Image>,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
        admit: AdmitMemory<'_>,
    ) -> Result<(), TileFailure> {
        scratch.unknown_pixels = 0;
        let fields = self.fields(row.form);
        let own = tiles[0];
        // The record that needs most memory, and its bytes.
        let mut most = (0, 0);
        let mut parts = Vec::with_capacity(TILES);
        for (tile, of) in tiles.iter().enumerate() {
            let failed = |failure| TileFailure { tile, failure };
            let (part, needed) = self
                .arrange_tile(of, (mosaic, tile), fields, scratch)
                .map_err(failed)?;
            if needed > most.1 {
                most = (tile, needed);
            }
            parts.push(part);
        }
        let images = parts.iter().map(|part| &part.drawn.image);
        let after = self.draw_after(mosaic.0, images, own.at)?;
        // Buffers of the canvas's steps are those of the tiles' steps.
        let (mut canvas_bytes, mut after_bytes) = (self.function_inputs(own.record, fields), 0);
        let mut arranged = Vec::with_capacity(canvases.len());
        for look in &parts[0].looked {
            let look = on_canvas(look, &[], &parts[0].drawn);
            let folded = fold(&look.plan.steps, &after, look.size);
            canvas_bytes += look.size.pixels() * look.pixel_bytes() as u64;
            canvas_bytes += self.function_row(&look, &folded);
            after_bytes += look.scratch_bytes(&folded, None, &scratch.decoder);
            arranged.push(folded);
        }
        let images = tiles.iter().zip(&parts);
        let images: Vec<SampleImage<'_>> = images
            .map(|(of, part)| SampleImage::new(of.record, &part.looked[0], &part.drawn.image.steps))
            .collect();
        canvas_bytes += self.mask_bytes((&images, &after));
        scratch.meter.lap(Stage::Decode, counters);
        admit(canvas_bytes + most.1.max(after_bytes)).map_err(|error| TileFailure {
            tile: most.0,
            failure: error.in_field(0),
        })?;
        counters.waited(Stage::Decode, scratch.meter.skip());
        canvases.resize_with(parts[0].looked.len(), Image::default);
        for (look, canvas) in parts[0].looked.iter().zip(&mut *canvases) {
            mosaic.0.clear(look, canvas)?;
        }
        for (tile, part) in parts.iter().enumerate() {
            scratch.counted = u64::from(tile == 0);
            self.paste_tile(part, canvases, scratch, counters)
                .map_err(|failure| TileFailure { tile, failure })?;
        }
        scratch.counted = 0;
        let looked = parts[0].looked.iter().zip(&*canvases).zip(&arranged);
        for ((look, canvas), folded) in looked {
            let look = on_canvas(look, &canvas.data, &parts[0].drawn);
            self.make(&look, folded, None, row, scratch, counters)?;
        }
        scratch.counted = 1;
        self.write_others(own.record, fields, row)?;
        self.write_boxes((&images, &after), &mut row.cells, scratch)?;
        counters.count(Stage::Write, scratch.counted, 0, 0);
        scratch.meter.lap(Stage::Write, counters);
        scratch.meter.settle(counters);
        Ok(())
    }

    /// Draws the steps of a record into the canvas, and arranges those of its pixels. Returns the
    /// bytes of working memory, too.
    fn arrange_tile<'a>(
        &'a self,
        of: &TileRecord<'a>,
        mosaic: ((&MosaicPlan, &MosaicDraw), usize),
        fields: &'a [FieldPlan],
        scratch: &mut SampleScratch,
    ) -> Result<(ArrangedTile<'a>, u64), StageFailure> {
        let looked = self.look(of.record, of.state, fields, scratch)?;
        let first = looked.first().expect("transforms need an image");
        let drawn = self.draw_tile(of.record, first, of.at, mosaic)?;
        let pixels = self.missing(&drawn.image.steps[..drawn.visible], of.state);
        let mut arranged = Vec::with_capacity(looked.len());
        let mut needed = 0;
        for look in &looked {
            let folded = fold(&look.plan.steps, pixels, look.size);
            let request = self.request(look, &folded);
            needed += look.scratch_bytes(&folded, request.as_ref(), &scratch.decoder);
            arranged.push((folded, request));
        }
        let part = ArrangedTile {
            looked,
            drawn,
            arranged,
        };
        Ok((part, needed))
    }

    /// Draws the steps of a record up to its location in the canvas.
    pub(super) fn draw_tile(
        &self,
        record: &Record,
        first: &VisualField<'_>,
        at: Position,
        ((own, mosaic), tile): ((&MosaicPlan, &MosaicDraw), usize),
    ) -> Result<DrawnTile, StageFailure> {
        let mut image = self.undrawn(record, first)?;
        self.draw_more(0..own.number, at, &mut image)?;
        let placed = own.mosaic.tile(image.size, tile, mosaic.center);
        let placed = placed.map_err(|error| failed(first.field, error))?;
        for step in placed.steps {
            image.add(own.number, step);
        }
        let visible = image.steps.len();
        image.add(own.number, own.mosaic.pad(placed.region));
        Ok(DrawnTile {
            image,
            visible,
            region: placed.region,
        })
    }

    /// Draws the steps after the mosaic of these images.
    pub(super) fn draw_after<'a>(
        &self,
        own: &MosaicPlan,
        images: impl Iterator<Item = &'a DrawnImage>,
        at: Position,
    ) -> Result<Vec<(usize, Step)>, StageFailure> {
        let mut canvas = DrawnImage {
            field: 0,
            size: own.mosaic.size.square(),
            boxes: Vec::new(),
            steps: Vec::new(),
        };
        for image in images {
            canvas.field = image.field;
            canvas.boxes.extend_from_slice(&image.boxes);
        }
        self.draw_more(own.number + 1..self.transforms.len(), at, &mut canvas)?;
        Ok(canvas.steps)
    }

    /// Decodes the fields of a record and copies their visible pixels to the canvases.
    fn paste_tile(
        &self,
        part: &ArrangedTile<'_>,
        canvases: &mut [Image],
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
    ) -> Result<(), StageFailure> {
        let looked = part.looked.iter().zip(&part.arranged).zip(canvases);
        for ((look, (folded, request)), canvas) in looked {
            self.with_pixels(
                look,
                folded,
                request.as_ref(),
                scratch,
                counters,
                false,
                |view, _, _| {
                    paste(view, folded.flips, part.drawn.region, canvas);
                    Ok(())
                },
            )?;
            scratch.meter.lap(Stage::Transform, counters);
        }
        Ok(())
    }
}

impl MosaicPlan {
    /// Fills the canvas of a field.
    pub(super) fn clear(
        &self,
        look: &VisualField<'_>,
        canvas: &mut Image,
    ) -> Result<(), StageFailure> {
        let pixels = (look.plan.channels, look.plan.depth);
        let cleared = self.mosaic.canvas(look.plan.is_mask, pixels, canvas);
        cleared.map_err(|error| failed(look.field, error))
    }
}

fn failed(field: usize, error: TransformError) -> StageFailure {
    StageFailure {
        field,
        transform: Some("Mosaic"),
        error: SampleError::Transform(error),
    }
}

/// Returns a field whose image is the canvas.
fn on_canvas<'a>(look: &VisualField<'a>, pixels: &'a [u8], drawn: &DrawnTile) -> VisualField<'a> {
    let size = drawn.image.size;
    VisualField {
        field: look.field,
        plan: look.plan,
        bytes: pixels,
        header: None,
        size,
        frame: ImageFrame::upright(size),
        is_devices: false,
    }
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
