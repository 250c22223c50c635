//! `Mosaic`: the images of four records in one, before the transforms that follow.
//!
//! Each record is decoded and transformed up to the mosaic as at its own position. The result is a tile,
//! which other mosaics use as well, and its visible part is written into a canvas. Parts of the canvas that
//! no later step reads stay empty, such as those that a crop after a warp cuts off. For the transforms that
//! follow, the canvas is an image without a decoder. The boxes of each record take the steps of their own
//! image first.

use std::sync::Arc;

use super::failure::StageFailure;
use super::fold::{Flips, FoldedSteps, fold};
use super::joined::{ArrangedTile, DrawnTile, JoinPlan, failed, on_canvas};
use super::moved::SampleImage;
use super::prepared::PixelState;
use super::sample::{AdmitMemory, Position, SampleScratch, VisualField};
use super::shared_tiles::{SharedTiles, TilePixels};
use super::{FieldPlan, Plan};
use infeed_codec::transform::{Mosaic, MosaicDraw, PixelView, Step, TILES};
use infeed_core::batch::BatchRow;
use infeed_core::counters::{Stage, ThreadCounters};
use infeed_core::sample::{Image, Record, Region};

/// The mosaic of a pipeline.
#[derive(Clone, Debug)]
pub(super) struct MosaicPlan {
    /// Index of the transform; keys the draws.
    pub(super) number: usize,
    pub(super) mosaic: Mosaic,
}

/// Most memory for tiles, also for large windows.
const MOST_BYTES: u64 = 1 << 30;
/// Tiles beyond a window, for the rows that workers fill at the same time.
const ROWS_IN_WORK: u64 = 64;

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

impl Plan {
    /// Makes the sample up to the user functions.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn fill_mosaic(
        &self,
        tiles: &[TileRecord<'_>],
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
            let failed = |failure| TileFailure { tile, failure };
            let looked = self.look(of.record, of.state, fields, scratch);
            let looked = looked.map_err(failed)?;
            let drawn = self.draw_tile(of.record, &looked[0], of.at, (mosaic, tile));
            parts.push(ArrangedTile::new(looked, drawn.map_err(failed)?));
        }
        let images = parts.iter().map(|part| &part.drawn.image);
        let size = mosaic.0.mosaic.size.square();
        let after = self.draw_after(mosaic.0.number, size, images, own.at)?;
        // Buffers of the canvas's steps are those of the tiles' steps.
        let (mut canvas_bytes, mut after_bytes) = (self.function_inputs(own.record, fields), 0);
        // The oldest tile may leave the shared memory while its pixels are copied.
        canvas_bytes += self.tile_bytes();
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
            let bytes = self.arrange_tile(part, of.state, &needed, scratch);
            if bytes > most.1 {
                most = (tile, bytes);
            }
        }
        let images = tiles.iter().zip(&parts);
        let images: Vec<SampleImage<'_>> = images
            .map(|(of, part)| SampleImage::new(of.record, &part.looked[0], &part.drawn.image.steps))
            .collect();
        canvas_bytes += self.box_bytes((&images, &after));
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
        for (tile, (of, part)) in tiles.iter().zip(&parts).enumerate() {
            if part.arranged.iter().all(|field| field.region.is_none()) {
                continue;
            }
            let failed = |failure| TileFailure { tile, failure };
            let made = self.tile(of, row.form, part, scratch, counters);
            part.paste(&made.map_err(failed)?, canvases)
                .map_err(failed)?;
            scratch.meter.lap(Stage::Transform, counters);
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
        let placed = placed.map_err(|error| failed(first.field, "Mosaic", error))?;
        for step in placed.steps {
            image.add(own.number, step);
        }
        let whole = image.steps.len();
        if placed.visible.size != image.size {
            image.add(own.number, Step::Crop(placed.visible));
        }
        let visible = image.steps.len();
        image.add(own.number, own.mosaic.pad(placed.region));
        Ok(DrawnTile {
            image,
            whole,
            visible,
            from: placed.visible,
            region: placed.region,
        })
    }

    /// Returns the pixels of a record's tile: those that another mosaic left, or new ones.
    fn tile(
        &self,
        of: &TileRecord<'_>,
        form: usize,
        part: &ArrangedTile<'_>,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
    ) -> Result<TilePixels, StageFailure> {
        let tiles = Arc::clone(&scratch.tiles);
        let at = (of.at.epoch, of.at.position);
        let entry = tiles.entry(of.record.index, at, form);
        let mut kept = entry.lock();
        counters.waited(Stage::Decode, scratch.meter.skip());
        if let Some(tile) = &*kept {
            return Ok(Arc::clone(tile));
        }
        let mut images = tiles.buffers();
        let reports = |scratch: &SampleScratch| scratch.warnings + scratch.losses.len() as u64;
        let before = reports(scratch);
        self.make_tile(part, &mut images, scratch, counters)?;
        // One image of the sample counts.
        scratch.counted = 0;
        let tile = Arc::new(images);
        // Every mosaic reports the warnings and losses of its images.
        if reports(scratch) == before {
            *kept = Some(Arc::clone(&tile));
        }
        Ok(tile)
    }

    /// Creates the memory for shared tiles, with up to `bytes`.
    pub(crate) fn shared_tiles(&self, bytes: u64) -> SharedTiles {
        let limit = bytes.checked_div(self.tile_bytes()).unwrap_or(0);
        SharedTiles::new(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Bytes of memory for all tiles that mosaics of this number of records use again.
    pub(crate) fn wanted_tile_bytes(&self, records: u64) -> u64 {
        let Some(JoinPlan::Mosaic(own)) = &self.join else {
            return 0;
        };
        let tiles = own.mosaic.window.min(records).saturating_add(ROWS_IN_WORK);
        tiles.saturating_mul(self.tile_bytes()).min(MOST_BYTES)
    }

    /// Most bytes of a tile of a mosaic.
    fn tile_bytes(&self) -> u64 {
        let Some(JoinPlan::Mosaic(own)) = &self.join else {
            return 0;
        };
        let pixel_bytes = self.fields.iter().map(|field| match field {
            FieldPlan::Pixels(plan) => plan.channels * plan.depth.bytes(),
            _ => 0,
        });
        own.mosaic.tile_pixels() * pixel_bytes.sum::<usize>() as u64
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
        cleared.map_err(|error| failed(look.field, "Mosaic", error))
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
