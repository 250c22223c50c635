//! `CopyPaste`: objects of another record on the image, before the transforms that follow.
//!
//! The masks of both records are painted at this stage. The objects of the other record are pasted
//! where their masks are, and these pixels are removed from the masks below.

use super::Plan;
use super::boxes::BoxesPlan;
use super::failure::StageFailure;
use super::fold::{Flips, fold};
use super::joined::{ArrangedTile, DrawnTile, on_canvas};
use super::masks::{MasksPlan, PaintedPlane};
use super::mosaic::{TileFailure, TileRecord};
use super::moved::SampleImage;
use super::points::PointsPlan;
use super::preview::PreviewStage;
use super::sample::{AdmitMemory, Position, SampleScratch, VisualField};
use infeed_codec::instances::{self, OBJECTS_PER_PLANE};
use infeed_codec::transform::{CopyPaste, CopyPasteDraw, MovingBox, PixelView, Step, Transform};
use infeed_core::batch::BatchRow;
use infeed_core::counters::{Stage, ThreadCounters};
use infeed_core::sample::{Image, Record, Size};

/// The copy-paste of a pipeline.
#[derive(Clone, Debug)]
pub(super) struct CopyPastePlan {
    /// Index of the transform; keys the draws.
    pub(super) number: usize,
    pub(super) copy_paste: CopyPaste,
}

/// Boxes and masks of a record after objects were pasted.
pub(super) struct PastedObjects {
    /// All boxes of the record; those that are not in the image are dropped.
    pub(super) boxes: Vec<MovingBox>,
    /// Masks of the others.
    pub(super) planes: Vec<PaintedPlane>,
}

/// Returns the reason why objects cannot be pasted. `rest` are the transforms that follow.
pub(super) fn problem(
    boxes: &[BoxesPlan],
    points: &[PointsPlan],
    rest: &[Transform],
) -> Option<String> {
    if let Some(points) = points.first() {
        return Some(format!(
            "it pastes some objects of another image, and the points in `{}` belong to no object; add \
             them to the columns of boxes",
            points.name()
        ));
    }
    if let Some(transform) = rest.iter().find(|transform| transform.needs_boxes()) {
        return Some(format!(
            "put it after {}, which crops around boxes",
            transform.name()
        ));
    }
    match boxes {
        [one] if one.masks.is_some() => None,
        [_, _, ..] => Some("a pipeline with it can have one field of boxes; remove one".to_owned()),
        _ => Some(
            "it pastes objects by their masks; declare these with .boxes(..., masks=...)"
                .to_owned(),
        ),
    }
}

impl Plan {
    /// Returns boxes and masks, which [`problem`] has checked.
    fn objects(&self) -> (&BoxesPlan, &MasksPlan) {
        let boxes = self.boxes.first().expect("checked with the pipeline");
        (
            boxes,
            boxes.masks.as_ref().expect("checked with the pipeline"),
        )
    }

    /// Makes the sample up to the user functions.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn fill_pasted(
        &self,
        tiles: &[TileRecord<'_>],
        (plan, drawn): (&CopyPastePlan, &CopyPasteDraw),
        row: &mut BatchRow,
        canvases: &mut Vec<Image>,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
        admit: AdmitMemory<'_>,
    ) -> Result<(), TileFailure> {
        scratch.unknown_pixels = 0;
        let fields = self.fields(row.form);
        let own = tiles[0];
        let mut most = (0, 0);
        let mut parts: Vec<ArrangedTile<'_>> = Vec::with_capacity(tiles.len());
        for (tile, of) in tiles.iter().enumerate() {
            let failed = |failure| TileFailure { tile, failure };
            let looked = self
                .look(of.record, of.state, fields, scratch)
                .map_err(failed)?;
            let canvas = parts.first().map(|part| part.drawn.image.size);
            let drawn = self.draw_part(of.record, &looked[0], of.at, plan, canvas);
            let drawn = drawn.map_err(failed)?;
            // Every pixel may be needed.
            let needed = vec![drawn.region; looked.len()];
            let mut part = ArrangedTile::new(looked, drawn);
            let needed = self.arrange_tile(&mut part, of.state, &needed, scratch);
            if needed > most.1 {
                most = (tile, needed);
            }
            parts.push(part);
        }
        let size = parts[0].drawn.image.size;
        let image = |tile: usize| {
            let drawn: &DrawnTile = &parts[tile].drawn;
            SampleImage::new(
                tiles[tile].record,
                &parts[tile].looked[0],
                &drawn.image.steps,
            )
        };
        let (boxes, _) = self.objects();
        let pasted = boxes.moved(&image(1), &[]);
        let (mut pasted, _) = pasted.map_err(|failure| TileFailure { tile: 1, failure })?;
        if !choose(drawn, &mut pasted) {
            let own = (own.record, own.state, own.at);
            return Ok(self.fill((own.0, own.1), own.2, row, scratch, counters, admit)?);
        }
        let images = parts.iter().map(|part| &part.drawn.image);
        let after = self.draw_after(plan.number, size, images, own.at)?;
        // Buffers of the canvas's steps are those of the records' steps.
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
        let both = [image(0), image(1)];
        // Planes of all objects, the pasted pixels and a buffer for them.
        let objects = both.iter().map(|image| boxes.count(&image.record.fields));
        let planes = objects.map(|count| count.div_ceil(OBJECTS_PER_PLANE as u64));
        let plane_bytes = size.pixels().saturating_mul(planes.sum::<u64>() + 2);
        canvas_bytes += self.box_bytes((&both, &after));
        scratch.meter.lap(Stage::Decode, counters);
        let needed = plane_bytes.saturating_add(canvas_bytes + most.1.max(after_bytes));
        admit(needed).map_err(|error| TileFailure {
            tile: most.0,
            failure: error.in_field(0),
        })?;
        counters.waited(Stage::Decode, scratch.meter.skip());
        let (objects, alpha) = self.paste_objects(plan, &both, pasted, size, scratch)?;
        scratch.meter.lap(Stage::Transform, counters);
        scratch.counted = 1;
        self.make_tile(&parts[0], canvases, scratch, counters)?;
        scratch.counted = 0;
        let looked = parts[1].looked.iter().zip(&parts[1].arranged);
        for ((look, field), canvas) in looked.zip(&mut *canvases) {
            let (folded, request) = (&field.folded, field.request.as_ref());
            self.with_pixels(
                look,
                folded,
                request,
                scratch,
                counters,
                false,
                |view, _, _| {
                    paste_where(view, folded.flips, &alpha, canvas);
                    Ok(())
                },
            )
            .map_err(|failure| TileFailure { tile: 1, failure })?;
            scratch.meter.lap(Stage::Transform, counters);
        }
        let looked = parts[0].looked.iter().zip(&*canvases).zip(&arranged);
        for ((look, canvas), folded) in looked {
            let look = on_canvas(look, &canvas.data, &parts[0].drawn);
            self.make(&look, folded, None, row, scratch, counters)?;
        }
        scratch.counted = 1;
        self.write_others(own.record, fields, row)?;
        let images = both.into_iter().zip(&objects);
        let images: Vec<SampleImage<'_>> = images
            .map(|(image, objects)| image.pasted(objects))
            .collect();
        self.write_boxes((&images, &after), &mut row.cells, scratch)?;
        counters.count(Stage::Write, scratch.counted, 0, 0);
        scratch.meter.lap(Stage::Write, counters);
        scratch.meter.settle(counters);
        Ok(())
    }

    /// Draws the steps of a record up to the paste, and a resize to the size of the canvas.
    fn draw_part(
        &self,
        record: &Record,
        first: &VisualField<'_>,
        at: Position,
        plan: &CopyPastePlan,
        canvas: Option<Size>,
    ) -> Result<DrawnTile, StageFailure> {
        let mut image = self.undrawn(record, first)?;
        self.draw_more(0..plan.number, at, &mut image)?;
        if let Some(size) = canvas.filter(|size| *size != image.size) {
            let filter = plan.copy_paste.interpolation;
            image.add(
                plan.number,
                Step::Resize {
                    size,
                    filter,
                    antialias: true,
                },
            );
        }
        let whole = image.steps.len();
        Ok(DrawnTile {
            whole,
            visible: whole,
            from: image.size.whole(),
            region: image.size.whole(),
            image,
        })
    }

    /// Paints the masks of the sample's own image and of the pasted objects, and removes pasted
    /// pixels from the former. `pasted` are the boxes of the other image. Returns the objects of both
    /// images, and the pasted pixels.
    fn paste_objects(
        &self,
        plan: &CopyPastePlan,
        images: &[SampleImage<'_>; 2],
        pasted: Vec<MovingBox>,
        size: Size,
        scratch: &mut SampleScratch,
    ) -> Result<([PastedObjects; 2], Image), TileFailure> {
        let (boxes, masks) = self.objects();
        let failed = |failure| TileFailure { tile: 1, failure };
        let planes = masks
            .painted(&images[1], &pasted, scratch)
            .map_err(failed)?;
        let mut alpha = Image::default();
        instances::clear(&mut alpha, size);
        for plane in &planes {
            let pixels = alpha.data.iter_mut().zip(&plane.image.data);
            pixels.for_each(|(to, from)| *to |= u8::from(*from != 0));
        }
        plan.copy_paste.blend(&mut alpha, &mut Vec::new());
        let (mut own, _) = boxes.moved(&images[0], &[])?;
        let mut below = masks.painted(&images[0], &own, scratch)?;
        for plane in &mut below {
            let before = instances::bits_of(&plane.image);
            let pixels = plane.image.data.iter_mut().zip(&alpha.data);
            pixels.for_each(|(to, pasted)| *to &= pasted.wrapping_sub(1));
            let after = instances::bits_of(&plane.image);
            for (bit, &number) in plane.numbers.iter().enumerate() {
                match (before[bit], after[bit]) {
                    (_, None) => own[number].drop_box(),
                    (Some((_, all)), Some((around, left))) if left < all => {
                        own[number].cover(around.map(|side| side as f64));
                    }
                    _ => {}
                }
            }
        }
        let objects = |boxes, planes| PastedObjects { boxes, planes };
        Ok(([objects(own, below), objects(pasted, planes)], alpha))
    }

    /// Runs both records through every stage.
    pub(super) fn preview_pasted(
        &self,
        records: &[(&Record, Position)],
        (plan, draw): (&CopyPastePlan, &CopyPasteDraw),
        scratch: &mut SampleScratch,
    ) -> Result<Vec<PreviewStage>, TileFailure> {
        let mut looked = Vec::with_capacity(records.len());
        let mut drawn: Vec<DrawnTile> = Vec::with_capacity(records.len());
        for (tile, (record, at)) in records.iter().enumerate() {
            let failed = |failure| TileFailure { tile, failure };
            let state = super::prepared::PixelState::Stored;
            let look = self
                .look(record, state, &self.fields, scratch)
                .map_err(failed)?;
            let canvas = drawn.first().map(|first| first.image.size);
            let image = self.draw_part(record, &look[0], *at, plan, canvas);
            drawn.push(image.map_err(failed)?);
            looked.push(look);
        }
        let size = drawn[0].image.size;
        let image = |tile: usize| {
            SampleImage::new(records[tile].0, &looked[tile][0], &drawn[tile].image.steps)
        };
        let start = [SampleImage::new(records[0].0, &looked[0][0], &[])];
        let boxed = (&start[..], &drawn[0].image.steps[..]);
        let mut pixels = self.decoded_whole(&looked[0], scratch)?;
        let mut stages = self.first_stage(&looked[0], boxed.0, &pixels, scratch)?;
        let before = 0..plan.number;
        self.preview_steps(before, &looked[0], boxed, &mut pixels, &mut stages, scratch)?;
        let failed = |failure| TileFailure { tile: 1, failure };
        let (mut pasted, _) = self.objects().0.moved(&image(1), &[]).map_err(failed)?;
        choose(draw, &mut pasted);
        let both = [image(0), image(1)];
        let (objects, alpha) = self.paste_objects(plan, &both, pasted, size, scratch)?;
        let mut other = self.decoded_whole(&looked[1], scratch).map_err(failed)?;
        for (_, step) in &drawn[1].image.steps {
            self.preview_step(step, &mut other, scratch)
                .map_err(failed)?;
        }
        for ((_, canvas), (_, other)) in pixels.iter_mut().zip(&other) {
            paste_where(PixelView::from(other), Flips::default(), &alpha, canvas);
        }
        let at = records[0].1;
        let after = self.draw_after(plan.number, size, std::iter::once(&drawn[0].image), at)?;
        let images = both.into_iter().zip(&objects);
        let images: Vec<SampleImage<'_>> = images
            .map(|(image, objects)| image.pasted(objects))
            .collect();
        let shapes = self.shapes((&images, &[]), scratch)?;
        stages.push(self.stage("CopyPaste", draw.to_string(), &pixels, shapes)?);
        let (boxed, rest) = (
            (&images[..], &after[..]),
            plan.number + 1..self.transforms.len(),
        );
        let looked = &looked[0];
        let erase = self.preview_steps(rest, looked, boxed, &mut pixels, &mut stages, scratch)?;
        stages.push(self.output(records[0].0, boxed, &pixels, &erase, scratch)?);
        Ok(stages)
    }
}

/// Drops the boxes that are not chosen. Returns whether any is.
fn choose(drawn: &CopyPasteDraw, boxes: &mut [MovingBox]) -> bool {
    let left = boxes.iter().filter(|one| one.is_left()).count();
    let chosen = drawn.choose(left);
    for (number, one) in boxes.iter_mut().filter(|one| one.is_left()).enumerate() {
        if chosen.binary_search(&number).is_err() {
            one.drop_box();
        }
    }
    !chosen.is_empty()
}

/// Copies the pixels where the mask is not 0, mirrored if needed.
fn paste_where(view: PixelView<'_>, flips: Flips, mask: &Image, canvas: &mut Image) {
    let pixel = view.pixel_bytes();
    let (height, width) = (view.height(), view.width());
    for y in 0..height {
        let from = view.row(if flips.y { height - 1 - y } else { y });
        let to = canvas.row_mut(y).chunks_exact_mut(pixel);
        for (x, (to, pasted)) in to.zip(mask.row(y)).enumerate() {
            if *pasted != 0 {
                let x = if flips.x { width - 1 - x } else { x };
                to.copy_from_slice(&from[x * pixel..(x + 1) * pixel]);
            }
        }
    }
}
