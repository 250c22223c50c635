//! `Mosaic`: the images of four records in one, before the transforms that follow.
//!
//! Each record is decoded and transformed up to the mosaic as at its own position, and its visible
//! part is written into a canvas. Parts of the canvas that no later step reads stay empty, such as
//! those that a crop after a warp cuts off. For the transforms that follow, the canvas is an image without a
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
use infeed_core::sample::{Image, Record, Region, Size};

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
    /// The steps of each field up to the needed pixels, with their location in the canvas. `None`
    /// for a field of which no pixel is needed.
    arranged: Vec<Option<(FoldedSteps, Option<Request>, Region)>>,
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
        let made = self.run_with(at, row, None, scratch, counters, |row, scratch| {
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
        let mut parts = Vec::with_capacity(TILES);
        for (tile, of) in tiles.iter().enumerate() {
            let part = self.draw_fields(of, (mosaic, tile), fields, scratch);
            parts.push(part.map_err(|failure| TileFailure { tile, failure })?);
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
        let needed: Vec<Region> = arranged.iter().map(FoldedSteps::needed).collect();
        // The record that needs most memory, and its bytes.
        let mut most = (0, 0);
        for (tile, (of, part)) in tiles.iter().zip(&mut parts).enumerate() {
            let bytes = self.arrange_tile(part, of.state, (mosaic.0, &needed), scratch);
            if bytes > most.1 {
                most = (tile, bytes);
            }
        }
        scratch.meter.lap(Stage::Decode, counters);
        admit(canvas_bytes + most.1.max(after_bytes)).map_err(|error| TileFailure {
            tile: most.0,
            failure: error.in_field(0),
        })?;
        counters.waited(Stage::Decode, scratch.meter.skip());
        canvases.resize_with(parts[0].looked.len(), Image::default);
        let cleared = parts[0].looked.iter().zip(&mut *canvases).zip(&needed);
        for ((look, canvas), needed) in cleared {
            mosaic.0.clear(look, *needed, canvas)?;
        }
        scratch.counted = 1;
        for (tile, part) in parts.iter().enumerate() {
            if part.arranged.iter().all(Option::is_none) {
                continue;
            }
            self.paste_tile(part, canvases, scratch, counters)
                .map_err(|failure| TileFailure { tile, failure })?;
            scratch.counted = 0;
        }
        scratch.counted = 0;
        let looked = parts[0].looked.iter().zip(&*canvases).zip(&arranged);
        for ((look, canvas), folded) in looked {
            let look = on_canvas(look, &canvas.data, &parts[0].drawn);
            self.make(&look, folded, None, row, scratch, counters)?;
        }
        scratch.counted = 1;
        self.write_others(own.record, fields, row)?;
        let images = tiles.iter().zip(&parts);
        let images: Vec<SampleImage<'_>> = images
            .map(|(of, part)| SampleImage::new(of.record, &part.looked[0], &part.drawn.image.steps))
            .collect();
        self.write_boxes((&images, &after), &mut row.cells)?;
        counters.count(Stage::Write, scratch.counted, 0, 0);
        scratch.meter.lap(Stage::Write, counters);
        scratch.meter.settle(counters);
        Ok(())
    }

    /// Reads the headers of a record and draws its steps into the canvas.
    fn draw_fields<'a>(
        &'a self,
        of: &TileRecord<'a>,
        mosaic: ((&MosaicPlan, &MosaicDraw), usize),
        fields: &'a [FieldPlan],
        scratch: &mut SampleScratch,
    ) -> Result<ArrangedTile<'a>, StageFailure> {
        let looked = self.look(of.record, of.state, fields, scratch)?;
        let first = looked.first().expect("transforms need an image");
        let drawn = self.draw_tile(of.record, first, of.at, mosaic)?;
        let arranged = Vec::with_capacity(looked.len());
        Ok(ArrangedTile {
            looked,
            drawn,
            arranged,
        })
    }

    /// Arranges the steps of a record's pixels, of which the canvas of each field needs those of a
    /// region. Returns the bytes of working memory.
    fn arrange_tile(
        &self,
        part: &mut ArrangedTile<'_>,
        state: PixelState,
        (own, needed): (&MosaicPlan, &[Region]),
        scratch: &SampleScratch,
    ) -> u64 {
        let visible = part.drawn.region;
        let steps = &part.drawn.image.steps[..part.drawn.visible];
        let mut bytes = 0;
        for (look, needed) in part.looked.iter().zip(needed) {
            let Some(region) = common(visible, *needed) else {
                part.arranged.push(None);
                continue;
            };
            let mut steps = steps.to_vec();
            if region != visible {
                let cut = Region {
                    top: region.top - visible.top,
                    left: region.left - visible.left,
                    size: region.size,
                };
                steps.push((own.number, Step::Crop(cut)));
            }
            let folded = fold(&look.plan.steps, self.missing(&steps, state), look.size);
            let request = self.request(look, &folded);
            bytes += look.scratch_bytes(&folded, request.as_ref(), &scratch.decoder);
            part.arranged.push(Some((folded, request, region)));
        }
        bytes
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
        for ((look, arranged), canvas) in looked {
            let Some((folded, request, region)) = arranged else {
                continue;
            };
            self.with_pixels(
                look,
                folded,
                request.as_ref(),
                scratch,
                counters,
                false,
                |view, _, _| {
                    paste(view, folded.flips, *region, canvas);
                    Ok(())
                },
            )?;
            scratch.meter.lap(Stage::Transform, counters);
        }
        Ok(())
    }
}

impl MosaicPlan {
    /// Fills a region of the canvas of a field.
    pub(super) fn clear(
        &self,
        look: &VisualField<'_>,
        region: Region,
        canvas: &mut Image,
    ) -> Result<(), StageFailure> {
        let pixels = (look.plan.channels, look.plan.depth);
        let cleared = self
            .mosaic
            .canvas(look.plan.is_mask, pixels, region, canvas);
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
