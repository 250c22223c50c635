//! `CopyPaste`: objects of another record on the image, before the transforms that follow.
//!
//! The masks of both records are painted at this stage. The objects of the other record are pasted
//! where their masks are, and these pixels are removed from the masks below.

use super::parts::{DrawnPart, SamplePart};
use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::PartFailure;
use crate::fields::moving::{PastedObjects, SampleImage};
use crate::fields::steps::Flips;
use crate::plan::draws::DrawnImage;
use crate::plan::join::CopyPastePlan;
use infeed_codec::instances::{self, OBJECTS_PER_PLANE};
use infeed_codec::transform::{CopyPasteDraw, MovingBox, PixelView, Step};
use infeed_core::batch::BatchRow;
use infeed_core::counters::Stage;
use infeed_core::sample::{Image, Size};

impl SampleMaker<'_> {
    /// Makes the sample up to the user functions.
    pub(super) fn fill_pasted(
        &mut self,
        records: &[SampleRecord<'_>],
        (own, drawn): (&CopyPastePlan, &CopyPasteDraw),
        row: &mut BatchRow,
    ) -> Result<(), PartFailure> {
        let place = |_, image, before: &[_]| Ok(resize_to_canvas(own, image, before));
        let mut parts = self.draw_parts(records, (row.layout, own.number), place)?;
        let size = parts[0].drawn.image.size;
        // Every pixel may be needed.
        let needed = vec![size.whole(); parts[0].visuals.len()];
        let (largest, most) = self.arrange_parts(records, &mut parts, &needed);
        let image = |number: usize| parts[number].image(records[number]);
        let in_other = |failure| PartFailure { part: 1, failure };
        let mut pasted = own.objects.boxes(&image(1)).map_err(in_other)?;
        if !choose(drawn, &mut pasted) {
            return self.fill(&records[..1], None, row);
        }
        let images = parts.iter().map(|part| &part.drawn.image);
        let after = own.number + 1..self.plan.transforms.len();
        let after = self.plan.draw_joined(after, size, images, records[0].at)?;
        let work = self.arrange_canvas(records[0], &parts[0], &after, row.layout);
        let both = [image(0), image(1)];
        // Planes of all objects, the pasted pixels and a buffer for them.
        let planes = both.iter().map(|image| {
            let count = own.objects.count(image.record);
            count.div_ceil(OBJECTS_PER_PLANE as u64)
        });
        let plane_bytes = size.pixels().saturating_mul(planes.sum::<u64>() + 2);
        let boxes = self.kind_bytes(records[0], (&both, &after));
        let bytes = work.bytes + boxes + most.max(work.step_bytes);
        self.reserve(largest, plane_bytes.saturating_add(bytes))?;
        let (objects, alpha) = self.paste_objects(own, &both, pasted, size)?;
        self.scratch.lap(Stage::Transform);
        self.scratch.counted = 1;
        let mut canvases = std::mem::take(&mut self.canvases);
        self.make_part(&parts[0], &mut canvases)?;
        let scratch = &mut self.scratch;
        scratch.counted = 0;
        let visuals = parts[1].visuals.iter().zip(&parts[1].arranged);
        for ((visual, field), canvas) in visuals.zip(&mut canvases) {
            let flips = field.pixels.folded.flips;
            let made = visual.with_pixels(&field.pixels, scratch, |view| {
                paste_where(view, flips, &alpha, canvas);
                Ok(())
            });
            made.map_err(in_other)?;
            scratch.lap(Stage::Transform);
        }
        let images = both.into_iter().zip(&objects);
        let images: Vec<SampleImage<'_>> = images
            .map(|(image, objects)| image.with_pasted(objects))
            .collect();
        self.write_joined(
            (records[0], &parts[0]),
            (&canvases, &work),
            (&images, &after),
            row,
        )?;
        self.canvases = canvases;
        Ok(())
    }

    /// Paints the masks of the sample's own image and of the pasted objects, and removes pasted
    /// pixels from the former. `pasted` are the boxes of the other image. Returns the objects of both
    /// images, and the pasted pixels.
    pub(super) fn paste_objects(
        &mut self,
        own: &CopyPastePlan,
        images: &[SampleImage<'_>; 2],
        pasted: Vec<MovingBox>,
        size: Size,
    ) -> Result<([PastedObjects; 2], Image), PartFailure> {
        let objects = &own.objects;
        let scratch = &mut self.scratch;
        let failed = |failure| PartFailure { part: 1, failure };
        let planes = objects
            .masks(&images[1], &pasted, scratch)
            .map_err(failed)?;
        let mut alpha = Image::default();
        instances::clear(&mut alpha, size);
        for plane in &planes {
            let pixels = alpha.data.iter_mut().zip(&plane.image.data);
            pixels.for_each(|(to, from)| *to |= u8::from(*from != 0));
        }
        own.copy_paste.blend(&mut alpha, &mut Vec::new());
        let mut below_boxes = objects.boxes(&images[0])?;
        let mut below = objects.masks(&images[0], &below_boxes, scratch)?;
        for plane in &mut below {
            let before = instances::bits_of(&plane.image);
            let pixels = plane.image.data.iter_mut().zip(&alpha.data);
            pixels.for_each(|(to, pasted)| *to &= pasted.wrapping_sub(1));
            let after = instances::bits_of(&plane.image);
            for (bit, &number) in plane.numbers.iter().enumerate() {
                match (before[bit], after[bit]) {
                    (_, None) => below_boxes[number].drop_box(),
                    (Some((_, all)), Some((around, left))) if left < all => {
                        below_boxes[number].cover(around.map(|side| side as f64));
                    }
                    _ => {}
                }
            }
        }
        let pasted_objects = |boxes, planes| PastedObjects { boxes, planes };
        Ok((
            [
                pasted_objects(below_boxes, below),
                pasted_objects(pasted, planes),
            ],
            alpha,
        ))
    }
}

/// Resizes the image of the second record to the size of the first.
pub(super) fn resize_to_canvas(
    own: &CopyPastePlan,
    mut image: DrawnImage,
    before: &[SamplePart<'_>],
) -> DrawnPart {
    let canvas = before.first().map(|first| first.drawn.image.size);
    if let Some(size) = canvas.filter(|size| *size != image.size) {
        let filter = own.copy_paste.interpolation;
        image.add(
            own.number,
            Step::Resize {
                size,
                filter,
                antialias: true,
            },
        );
    }
    let whole = image.steps.len();
    DrawnPart {
        whole,
        visible: whole,
        from: image.size.whole(),
        region: image.size.whole(),
        image,
    }
}

/// Drops the boxes that are not chosen. Returns whether any is.
pub(super) fn choose(drawn: &CopyPasteDraw, boxes: &mut [MovingBox]) -> bool {
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
pub(super) fn paste_where(view: PixelView<'_>, flips: Flips, mask: &Image, canvas: &mut Image) {
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
