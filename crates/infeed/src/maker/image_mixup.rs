//! `ImageMixUp`: blends the image of another position into the sample's own, before the transforms
//! that follow.
//!
//! Each of the two images is a record's, or a mosaic's, with the transforms up to this one as at its
//! own position. For the transforms that follow, the result is an image without a decoder, and the
//! objects of both images are on it.

use super::mix::blend;
use super::mosaic::ArrangedMosaic;
use super::parts::{DrawnPart, SamplePart, keep_pixels};
use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::{PartFailure, SampleError, StageFailure};
use crate::fields::moving::SampleImage;
use crate::plan::draws::DrawnImage;
use crate::plan::image_mixup::{ImageMixUpPlan, MixedImages};
use infeed_core::batch::BatchRow;
use infeed_core::counters::Stage;
use infeed_core::sample::{Image, Size};

/// One of the two images before its pixels are made.
pub(super) struct ArrangedImage<'s, 'r> {
    pub(super) records: &'s [SampleRecord<'r>],
    /// Number of its first record in the sample.
    first: usize,
    pub(super) source: ImageSource<'r>,
    /// Number of the record that needs most working memory.
    largest: usize,
    /// Bytes of working memory.
    work_bytes: u64,
}

/// Origin of one of the two images.
pub(super) enum ImageSource<'r> {
    Record(Vec<SamplePart<'r>>),
    Mosaic(ArrangedMosaic<'r>),
}

impl<'r> ArrangedImage<'_, 'r> {
    pub(super) fn parts(&self) -> &[SamplePart<'r>] {
        match &self.source {
            ImageSource::Record(parts) => parts,
            ImageSource::Mosaic(mosaic) => &mosaic.parts,
        }
    }

    /// Size of the image after the transforms up to the blending one.
    pub(super) fn size(&self) -> Size {
        self.parts()[0].drawn.image.size
    }

    /// Bytes of the image in memory.
    fn bytes(&self) -> u64 {
        let visuals = self.parts()[0].visuals.iter();
        let pixel_bytes = visuals.map(|visual| visual.pixel_bytes() as u64);
        self.size().pixels().saturating_mul(pixel_bytes.sum())
    }

    /// Returns a failure of one of its records as one of the sample.
    pub(super) fn place_failure(&self, failure: PartFailure) -> PartFailure {
        in_sample(self.first, failure)
    }
}

/// Returns a failure with the number of the record in the sample. `first` is the number of the
/// image's first record.
fn in_sample(first: usize, failure: PartFailure) -> PartFailure {
    PartFailure {
        part: first + failure.part,
        ..failure
    }
}

impl<'a> SampleMaker<'a> {
    /// Makes the sample up to the user functions.
    pub(super) fn fill_blended(
        &mut self,
        records: &[SampleRecord<'_>],
        (own, drawn): (&ImageMixUpPlan, &MixedImages),
        row: &mut BatchRow,
    ) -> Result<(), PartFailure> {
        let plan = self.plan;
        let (own_image, other) = self.arrange_images(own, (records, drawn), row.layout)?;
        let images = [&own_image, &other];
        let size = own_image.size();
        let parts = images.into_iter().flat_map(ArrangedImage::parts);
        let drawn_images = parts.clone().map(|part| &part.drawn.image);
        let transforms = own.number + 1..plan.transforms.len();
        let after = plan.draw_joined(transforms, size, drawn_images, records[0].at)?;
        let first = &own_image.parts()[0];
        let work = self.arrange_canvas(records[0], first, &after, row.layout);
        let parts = records.iter().zip(parts);
        let moving: Vec<SampleImage<'_>> = parts.map(|(of, part)| part.image(*of)).collect();
        let boxes = self.kind_bytes(records[0], (&moving, &after));
        let largest = images.into_iter().max_by_key(|image| image.work_bytes);
        let (part, most) = largest.map_or((0, 0), |image| (image.largest, image.work_bytes));
        let kept: u64 = images.into_iter().map(ArrangedImage::bytes).sum();
        self.reserve(part, kept + work.bytes + most.max(work.step_bytes) + boxes)?;
        self.scratch.counted = 1;
        let [mut pixels, mut others] = std::mem::take(&mut self.blended);
        self.make_image(own, &own_image, (&mut pixels, row.layout))?;
        self.scratch.counted = 0;
        self.make_image(own, &other, (&mut others, row.layout))?;
        for (image, other) in pixels.iter_mut().zip(&others) {
            blend(
                image.depth.dtype(),
                drawn.share,
                &mut image.data,
                &other.data,
            );
        }
        self.scratch.lap(Stage::Transform);
        self.write_joined(
            (records[0], first),
            (&pixels, &work),
            (&moving, &after),
            row,
        )?;
        self.blended = [pixels, others];
        Ok(())
    }

    /// Draws and arranges both images of a sample, for the images of a layout.
    pub(super) fn arrange_images<'s, 'r>(
        &mut self,
        own: &ImageMixUpPlan,
        (records, drawn): (&'s [SampleRecord<'r>], &MixedImages),
        layout: usize,
    ) -> Result<(ArrangedImage<'s, 'r>, ArrangedImage<'s, 'r>), PartFailure>
    where
        'a: 'r,
    {
        let (of_own, of_other) = records.split_at(drawn.records()[0]);
        let [center, other_center] = drawn.centers;
        let image = self.arrange_image(own, (0, of_own, center), layout)?;
        let from = (of_own.len(), of_other, other_center);
        let other = self.arrange_image(own, from, layout)?;
        check_sizes(&image, &other)?;
        Ok((image, other))
    }

    /// Draws and arranges one of the two images. `first` is the number of its first record.
    fn arrange_image<'s, 'r>(
        &mut self,
        own: &ImageMixUpPlan,
        (first, records, center): (usize, &'s [SampleRecord<'r>], Option<[u32; 2]>),
        layout: usize,
    ) -> Result<ArrangedImage<'s, 'r>, PartFailure>
    where
        'a: 'r,
    {
        let failed = |failure| in_sample(first, failure);
        let (source, largest, work_bytes) = match (&own.mosaic, center) {
            (Some(mosaic), Some(center)) => {
                let steps = (layout, own.number);
                let arranged = self.arrange_mosaic(records, (mosaic, center), steps);
                let mut arranged = arranged.map_err(failed)?;
                for part in &mut arranged.parts {
                    for (transform, step) in &arranged.after {
                        part.drawn.image.add(*transform, step.clone());
                    }
                }
                let (largest, bytes) = (arranged.largest, arranged.bytes);
                (ImageSource::Mosaic(arranged), largest, bytes)
            }
            _ => {
                let place = |_, image, _: &[_]| Ok(keep_place(image));
                let parts = self.draw_parts(records, (layout, own.number), place);
                let mut parts = parts.map_err(failed)?;
                self.add_copies_of(records[0], &mut parts[0])
                    .map_err(failed)?;
                let needed = parts[0].drawn.image.size.whole();
                let needed = vec![needed; parts[0].visuals.len()];
                let (largest, bytes) = self.arrange_parts(records, &mut parts, &needed);
                (ImageSource::Record(parts), largest, bytes)
            }
        };
        Ok(ArrangedImage {
            records,
            first,
            source,
            largest: first + largest,
            work_bytes,
        })
    }

    /// Adds the mirrored copies of the objects of a record to its steps.
    fn add_copies_of(
        &self,
        of: SampleRecord<'_>,
        part: &mut SamplePart<'_>,
    ) -> Result<(), PartFailure> {
        let frame = part.visuals[0].frame;
        let image = [SampleImage::new(of.record, frame, &[])];
        let drawn = &mut part.drawn;
        if let Some(at) = self.add_copies(&image, &mut drawn.image.steps, frame.size)? {
            drawn.whole += usize::from(at <= drawn.whole);
            drawn.visible += usize::from(at <= drawn.visible);
        }
        Ok(())
    }

    /// Makes the pixels of one of the two images.
    fn make_image(
        &mut self,
        own: &ImageMixUpPlan,
        image: &ArrangedImage<'_, '_>,
        (pixels, layout): (&mut Vec<Image>, usize),
    ) -> Result<(), PartFailure> {
        let made = match (&image.source, &own.mosaic) {
            (ImageSource::Mosaic(arranged), Some(mosaic)) => {
                let mut canvases = std::mem::take(&mut self.canvases);
                let to = (&mut canvases, layout);
                let made = self.make_mosaic(image.records, mosaic, arranged, to);
                let size = mosaic.mosaic.size.square();
                let made =
                    made.and_then(|()| Ok(self.finish_mosaic(arranged, size, &canvases, pixels)?));
                self.canvases = canvases;
                made
            }
            (source, _) => match source {
                ImageSource::Record(parts) => self.make_part(&parts[0], pixels).map_err(Into::into),
                ImageSource::Mosaic(_) => unreachable!("only a plan with a mosaic draws one"),
            },
        };
        made.map_err(|failure| image.place_failure(failure))
    }

    /// Applies the steps after a mosaic to its canvases.
    fn finish_mosaic(
        &mut self,
        mosaic: &ArrangedMosaic<'_>,
        size: Size,
        canvases: &[Image],
        pixels: &mut Vec<Image>,
    ) -> Result<(), StageFailure> {
        let visuals = &mosaic.parts[0].visuals;
        pixels.resize_with(visuals.len(), Image::default);
        let fields = visuals.iter().zip(&mosaic.work.pixels).zip(canvases);
        for (((visual, arranged), canvas), image) in fields.zip(pixels) {
            let visual = visual.on_canvas(&canvas.data, size);
            keep_pixels(&visual, arranged, &mut self.scratch, image)?;
        }
        Ok(())
    }
}

/// Returns the part of a record that is the whole image.
fn keep_place(image: DrawnImage) -> DrawnPart {
    let (steps, whole) = (image.steps.len(), image.size.whole());
    DrawnPart {
        image,
        whole: steps,
        visible: steps,
        from: whole,
        region: whole,
    }
}

/// Checks that both images have the same size.
fn check_sizes(
    own: &ArrangedImage<'_, '_>,
    other: &ArrangedImage<'_, '_>,
) -> Result<(), PartFailure> {
    if own.size() == other.size() {
        return Ok(());
    }
    let error = SampleError::Shape {
        found: format!("{} px", other.size()),
        expected: format!("{} px", own.size()),
        fix: "both images of ImageMixUp must have the same size",
    };
    let failure = error.in_field(other.parts()[0].drawn.image.field);
    let part = other.first;
    Err(PartFailure { part, failure })
}
