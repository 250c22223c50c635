//! `Mosaic`: the images of four records in one, before the transforms that follow.
//!
//! Each record is decoded and transformed up to the mosaic as at its own position. The result is a tile,
//! which other mosaics use as well, and its visible part is written into a canvas. Parts of the canvas that
//! no later step reads stay empty, such as those that a crop after a warp cuts off. For the transforms that
//! follow, the canvas is an image without a decoder. The boxes of each record take the steps of their own
//! image first.

use std::sync::Arc;

use super::parts::{CanvasWork, DrawnPart, SamplePart, transform_failure};
use super::sample_maker::{SampleMaker, SampleRecord};
use super::shared_tiles::{SharedTiles, TilePixels};
use crate::fields::failure::{PartFailure, StageFailure};
use crate::fields::moving::SampleImage;
use crate::fields::pixels::header::VisualField;
use crate::fields::scratch::FieldScratch;
use crate::plan::SamplePlan;
use crate::plan::draws::DrawnImage;
use crate::plan::join::JoinPlan;
use crate::plan::mosaic::MosaicPlan;
use infeed_codec::transform::{MosaicDraw, Step};
use infeed_core::batch::BatchRow;
use infeed_core::counters::Stage;
use infeed_core::sample::{Image, Region};

/// Most memory for tiles, also for large windows.
const MOST_BYTES: u64 = 1 << 30;

/// Tiles beyond a window, for the rows that workers fill at the same time.
const ROWS_IN_WORK: u64 = 64;

/// A mosaic before its pixels are made.
pub(super) struct ArrangedMosaic<'r> {
    pub(super) parts: Vec<SamplePart<'r>>,
    /// The drawn steps on the canvas.
    pub(super) after: Vec<(usize, Step)>,
    pub(super) work: CanvasWork,
    /// The pixels of each canvas that the steps need.
    needed: Vec<Region>,
    /// Number of the record that needs most working memory.
    pub(super) largest: usize,
    /// Bytes of working memory.
    pub(super) bytes: u64,
}

impl<'a> SampleMaker<'a> {
    /// Makes the sample up to the user functions.
    pub(super) fn fill_mosaic(
        &mut self,
        records: &[SampleRecord<'_>],
        (own, drawn): (&MosaicPlan, &MosaicDraw),
        row: &mut BatchRow,
    ) -> Result<(), PartFailure> {
        let all = self.plan.transforms.len();
        let mosaic = self.arrange_mosaic(records, (own, drawn.center), (row.layout, all))?;
        let images = records.iter().zip(&mosaic.parts);
        let images: Vec<SampleImage<'_>> = images.map(|(of, part)| part.image(*of)).collect();
        let boxes = self.kind_bytes(records[0], (&images, &mosaic.after));
        self.reserve(mosaic.largest, mosaic.bytes + boxes)?;
        let mut canvases = std::mem::take(&mut self.canvases);
        self.scratch.counted = 1;
        self.make_mosaic(records, own, &mosaic, (&mut canvases, row.layout))?;
        self.write_joined(
            (records[0], &mosaic.parts[0]),
            (&canvases, &mosaic.work),
            (&images, &mosaic.after),
            row,
        )?;
        self.canvases = canvases;
        Ok(())
    }

    /// Draws and arranges a mosaic around a centre, with the transforms up to `end`.
    pub(super) fn arrange_mosaic<'r>(
        &mut self,
        records: &[SampleRecord<'r>],
        (own, center): (&MosaicPlan, [u32; 2]),
        (layout, end): (usize, usize),
    ) -> Result<ArrangedMosaic<'r>, PartFailure>
    where
        'a: 'r,
    {
        let plan = self.plan;
        let place = |tile, image, _: &[_]| place_tile((own, center), tile, image);
        let mut parts = self.draw_parts(records, (layout, own.number), place)?;
        let size = own.mosaic.size.square();
        let images = parts.iter().map(|part| &part.drawn.image);
        let mut after = plan.draw_joined(own.number + 1..end, size, images, records[0].at)?;
        let images = records.iter().zip(&parts);
        let images: Vec<SampleImage<'_>> = images.map(|(of, part)| part.image(*of)).collect();
        self.add_copies(&images, &mut after, size)?;
        let work = self.arrange_canvas(records[0], &parts[0], &after, layout);
        let needed = work
            .pixels
            .iter()
            .map(|pixels| pixels.folded.needed_region());
        let needed: Vec<Region> = needed.collect();
        let (largest, most) = self.arrange_parts(records, &mut parts, &needed);
        // The oldest tile may leave the shared memory while its pixels are copied.
        let bytes = work.bytes + plan.tile_bytes() + most.max(work.step_bytes);
        Ok(ArrangedMosaic {
            parts,
            after,
            work,
            needed,
            largest,
            bytes,
        })
    }

    /// Makes the canvases of a mosaic for the images of a layout.
    pub(super) fn make_mosaic(
        &mut self,
        records: &[SampleRecord<'_>],
        own: &MosaicPlan,
        mosaic: &ArrangedMosaic<'_>,
        (canvases, layout): (&mut Vec<Image>, usize),
    ) -> Result<(), PartFailure> {
        let parts = &mosaic.parts;
        canvases.resize_with(parts[0].visuals.len(), Image::default);
        let cleared = parts[0].visuals.iter().zip(&mut *canvases);
        for ((visual, canvas), needed) in cleared.zip(&mosaic.needed) {
            clear(own, visual, *needed, canvas)?;
        }
        for (tile, (of, part)) in records.iter().zip(parts).enumerate() {
            if part.arranged.iter().all(|field| field.region.is_none()) {
                continue;
            }
            let failed = |failure| PartFailure {
                part: tile,
                failure,
            };
            let made = self.tile(*of, layout, part).map_err(failed)?;
            part.paste(&made, canvases).map_err(failed)?;
            self.scratch.lap(Stage::Transform);
        }
        Ok(())
    }

    /// Returns the pixels of a record's tile: those that another mosaic left, or new ones.
    fn tile(
        &mut self,
        of: SampleRecord<'_>,
        layout: usize,
        part: &SamplePart<'_>,
    ) -> Result<TilePixels, StageFailure> {
        let tiles = Arc::clone(&self.tiles);
        let at = (of.at.epoch, of.at.position);
        let entry = tiles.entry(of.record.index, at, layout);
        let mut kept = entry.lock();
        self.scratch.exclude_wait(Stage::Decode);
        if let Some(tile) = &*kept {
            return Ok(Arc::clone(tile));
        }
        let mut images = tiles.buffers();
        let reports = |scratch: &FieldScratch| scratch.warnings + scratch.losses.len() as u64;
        let before = reports(&self.scratch);
        self.make_part(part, &mut images)?;
        let scratch = &mut self.scratch;
        // One image of the sample counts.
        scratch.counted = 0;
        let tile = Arc::new(images);
        // Every mosaic reports the warnings and losses of its images.
        if reports(scratch) == before {
            *kept = Some(Arc::clone(&tile));
        }
        Ok(tile)
    }
}

impl SamplePlan {
    /// Creates the memory for shared tiles, with up to `bytes`.
    pub(crate) fn shared_tiles(&self, bytes: u64) -> SharedTiles {
        let limit = bytes.checked_div(self.tile_bytes()).unwrap_or(0);
        SharedTiles::new(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Bytes of memory for all tiles that mosaics of this number of records use again.
    pub(crate) fn wanted_tile_bytes(&self, records: u64) -> u64 {
        let Some(own) = self.mosaic() else {
            return 0;
        };
        // The second mosaic of a sample is up to a window before the first.
        let windows = match self.join {
            Some(JoinPlan::ImageMixUp(_)) => own.mosaic.window.saturating_mul(2),
            _ => own.mosaic.window,
        };
        let tiles = windows.min(records).saturating_add(ROWS_IN_WORK);
        tiles.saturating_mul(self.tile_bytes()).min(MOST_BYTES)
    }

    /// Most bytes of a tile of a mosaic.
    pub(super) fn tile_bytes(&self) -> u64 {
        let Some(own) = self.mosaic() else {
            return 0;
        };
        let pixels = self.pixels.iter().flatten();
        let pixel_bytes = pixels.map(|plan| plan.channels * plan.depth.bytes());
        own.mosaic.tile_pixels() * pixel_bytes.sum::<usize>() as u64
    }
}

/// Moves the image of a record to its location in the canvas.
pub(super) fn place_tile(
    (own, center): (&MosaicPlan, [u32; 2]),
    tile: usize,
    mut image: DrawnImage,
) -> Result<DrawnPart, StageFailure> {
    let placed = own.mosaic.tile(image.size, tile, center);
    let placed = placed.map_err(|error| transform_failure(image.field, "Mosaic", error))?;
    for step in placed.steps {
        image.add(own.number, step);
    }
    let whole = image.steps.len();
    if placed.visible.size != image.size {
        image.add(own.number, Step::Crop(placed.visible));
    }
    let visible = image.steps.len();
    image.add(own.number, own.mosaic.pad(placed.region));
    Ok(DrawnPart {
        image,
        whole,
        visible,
        from: placed.visible,
        region: placed.region,
    })
}

/// Fills a region of the canvas of a field.
pub(super) fn clear(
    own: &MosaicPlan,
    visual: &VisualField<'_>,
    region: Region,
    canvas: &mut Image,
) -> Result<(), StageFailure> {
    let pixels = (visual.plan.channels, visual.plan.depth);
    let cleared = own
        .mosaic
        .canvas(visual.plan.is_mask, pixels, region, canvas);
    cleared.map_err(|error| transform_failure(visual.field, "Mosaic", error))
}
