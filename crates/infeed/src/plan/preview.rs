//! One sample, stage by stage, without push-down or fusion. Serves for inspection, and as the
//! reference of the fast plan.

use std::ops::Range;

use super::failure::{SampleError, StageFailure};
use super::fold::Flips;
use super::function::list_shape;
use super::mosaic::{self, MosaicPlan, TileFailure};
use super::moved::{SampleImage, SampleImages};
use super::prepared::PixelState;
use super::sample::{Position, SampleScratch, VisualField};
use super::{FieldPlan, Plan, boxes, points};
use infeed_codec::decode::Request;
use infeed_codec::transform::{Mixing, MosaicDraw, PixelView, Step, TILES};
use infeed_core::batch::{Array, ColumnKind, RowCell, Values};
use infeed_core::error::MemoryPurpose;
use infeed_core::sample::{DType, Image, Pixels, Record, RecordId, Region};

pub use super::moved::StageShapes;

/// A sample after one stage.
#[derive(Clone, Debug)]
pub struct PreviewStage {
    /// `decode`, the name of a transform, or `output`.
    pub name: &'static str,
    /// Drawn parameters as text; empty without draws.
    pub draws: String,
    /// Values by field: images as `[H, W, C]`; in the last stage, one row of the batch. The stage
    /// of `MixUp` and `CutMix` has the finished partner.
    pub fields: Vec<(String, Values)>,
    /// Boxes, points and masks that stay.
    pub shapes: StageShapes,
}

impl Plan {
    /// Runs one record through every stage separately.
    ///
    /// # Errors
    ///
    /// As [`Plan::run`].
    pub fn preview(
        &self,
        record: &Record,
        at: Position,
        scratch: &mut SampleScratch,
    ) -> Result<Vec<PreviewStage>, StageFailure> {
        let looked = self.look(record, PixelState::Stored, &self.fields, scratch)?;
        let drawn = self.draw(record, &looked, at)?;
        let images = looked
            .first()
            .map(|first| SampleImage::new(record, first, &[]));
        let boxed = (images.as_slice(), &drawn[..]);
        let mut pixels = self.decoded_whole(&looked, scratch)?;
        let mut stages = self.first_stage(&looked, boxed.0, &pixels, scratch)?;
        let all = 0..self.transforms.len();
        let erase = self.preview_steps(all, &looked, boxed, &mut pixels, &mut stages, scratch)?;
        stages.push(self.output(record, boxed, &pixels, &erase, scratch)?);
        Ok(stages)
    }

    /// Runs the four records of a mosaic through every stage.
    pub(super) fn preview_mosaic(
        &self,
        records: &[(&Record, Position)],
        (own, draw): (&MosaicPlan, &MosaicDraw),
        scratch: &mut SampleScratch,
    ) -> Result<Vec<PreviewStage>, TileFailure> {
        let (record, at) = records[0];
        let mut looked = Vec::with_capacity(TILES);
        let mut drawn = Vec::with_capacity(TILES);
        for (tile, (record, at)) in records.iter().enumerate() {
            let failed = |failure| TileFailure { tile, failure };
            let look = self.look(record, PixelState::Stored, &self.fields, scratch);
            let look = look.map_err(failed)?;
            let first = look.first().expect("transforms need an image");
            let image = self.draw_tile(record, first, *at, ((own, draw), tile));
            drawn.push(image.map_err(failed)?);
            looked.push(look);
        }
        let (mut stages, mut canvases) = (Vec::new(), Vec::new());
        for (tile, (record, _)) in records.iter().enumerate() {
            let failed = |failure| TileFailure { tile, failure };
            let (look, drawn) = (&looked[tile], &drawn[tile]);
            let mut pixels = self.decoded_whole(look, scratch).map_err(failed)?;
            let image = [SampleImage::new(record, &look[0], &[])];
            let boxed = (&image[..], &drawn.image.steps[..drawn.visible]);
            let mut own_stages = self
                .first_stage(look, boxed.0, &pixels, scratch)
                .map_err(failed)?;
            let before = 0..own.number;
            self.preview_steps(before, look, boxed, &mut pixels, &mut own_stages, scratch)
                .map_err(failed)?;
            let placing = boxed.1.iter().filter(|(of, _)| *of == own.number);
            for (_, step) in placing {
                self.preview_step(step, &mut pixels, scratch)
                    .map_err(failed)?;
            }
            for (at, (field, pixels)) in pixels.iter().enumerate() {
                if tile == 0 {
                    let mut canvas = Image::default();
                    own.clear(&look[at], drawn.image.size.whole(), &mut canvas)?;
                    canvases.push((*field, canvas));
                }
                let view = PixelView::from(pixels);
                mosaic::paste(view, Flips::default(), drawn.region, &mut canvases[at].1);
            }
            if tile == 0 {
                stages = own_stages;
            }
        }
        let size = own.mosaic.size.square();
        let images = drawn.iter().map(|drawn| &drawn.image);
        let after = self.draw_after(own.number, size, images, at)?;
        let images = records.iter().zip(&looked).zip(&drawn);
        let images: Vec<SampleImage<'_>> = images
            .map(|((of, look), drawn)| SampleImage::new(of.0, &look[0], &drawn.image.steps))
            .collect();
        let shapes = self.shapes((&images, &[]), scratch)?;
        stages.push(self.stage("Mosaic", draw.to_string(), &canvases, shapes)?);
        let (boxed, rest) = (
            (&images[..], &after[..]),
            own.number + 1..self.transforms.len(),
        );
        let looked = &looked[0];
        let erase = self.preview_steps(rest, looked, boxed, &mut canvases, &mut stages, scratch)?;
        stages.push(self.output(record, boxed, &canvases, &erase, scratch)?);
        Ok(stages)
    }

    /// Decodes the images and masks of a record.
    pub(super) fn decoded_whole(
        &self,
        looked: &[VisualField<'_>],
        scratch: &mut SampleScratch,
    ) -> Result<Vec<(usize, Image)>, StageFailure> {
        let mut images = Vec::with_capacity(looked.len());
        for look in looked {
            let failed = |error: SampleError| error.in_field(look.field);
            let mut image = Image::default();
            match &look.header {
                Some(header) => {
                    let request = Request {
                        orient: self.decode.orient,
                        ..Request::whole(header, look.plan.mode)
                    };
                    scratch
                        .decoder
                        .decode(look.bytes, header, &request, &mut image)
                        .map_err(|error| failed(SampleError::Decode(error)))?;
                }
                None => {
                    image.reset(look.size, look.plan.channels, look.plan.depth);
                    image.data.copy_from_slice(look.bytes);
                }
            }
            images.push((look.field, image));
        }
        Ok(images)
    }

    /// Returns the stage of the decoder, if there is one.
    pub(super) fn first_stage(
        &self,
        looked: &[VisualField<'_>],
        boxed: &[SampleImage<'_>],
        images: &[(usize, Image)],
        scratch: &mut SampleScratch,
    ) -> Result<Vec<PreviewStage>, StageFailure> {
        let is_encoded = |look: &VisualField<'_>| look.plan.stored == Pixels::Encoded;
        if !looked.iter().any(is_encoded) {
            return Ok(Vec::new());
        }
        let shapes = self.shapes((boxed, &[]), scratch)?;
        Ok(vec![self.stage("decode", String::new(), images, shapes)?])
    }

    /// Runs some transforms and adds their stages. Returns the rectangles to erase in the row.
    pub(super) fn preview_steps(
        &self,
        transforms: Range<usize>,
        looked: &[VisualField<'_>],
        (boxed, drawn): SampleImages<'_>,
        images: &mut [(usize, Image)],
        stages: &mut Vec<PreviewStage>,
        scratch: &mut SampleScratch,
    ) -> Result<Vec<(Region, Vec<f64>)>, StageFailure> {
        let mut erase = Vec::new();
        for number in transforms {
            let own = drawn.iter().filter(|(of, _)| *of == number);
            let own: Vec<&Step> = own.map(|(_, step)| step).collect();
            let mut planned = looked.iter().flat_map(|look| &look.plan.steps);
            if planned.any(|step| step.transform == number && step.erases_row()) {
                erase.extend(own.iter().filter_map(|step| match step {
                    Step::Erase { region, value } => Some((*region, value.clone())),
                    _ => None,
                }));
                continue;
            }
            if own.is_empty() {
                continue;
            }
            for step in &own {
                self.preview_step(step, images, scratch)?;
            }
            let draws: Vec<String> = own.iter().map(|step| step.to_string()).collect();
            let so_far = drawn.partition_point(|(of, _)| *of <= number);
            let shapes = self.shapes((boxed, &drawn[..so_far]), scratch)?;
            let name = self.transforms[number].name();
            stages.push(self.stage(name, draws.join(", "), images, shapes)?);
        }
        Ok(erase)
    }

    /// Applies a step to images and masks.
    pub(super) fn preview_step(
        &self,
        step: &Step,
        images: &mut [(usize, Image)],
        scratch: &mut SampleScratch,
    ) -> Result<(), StageFailure> {
        for (field, image) in images {
            let is_mask = matches!(&self.fields[*field], FieldPlan::Pixels(p) if p.is_mask);
            if is_mask && !step.applies_to_masks() {
                continue;
            }
            let mut out = Image::default();
            step.apply(
                PixelView::from(&*image),
                &mut out,
                is_mask,
                &mut scratch.transform,
            )
            .map_err(|error| StageFailure {
                field: *field,
                transform: Some(step.name()),
                error: SampleError::Transform(error),
            })?;
            *image = out;
        }
        Ok(())
    }

    /// Mixes the stages of a sample with those of its partner, named `partner`.
    ///
    /// # Errors
    ///
    /// As [`Plan::mix`].
    pub fn preview_mix(
        &self,
        mixing: &Mixing,
        partner: &RecordId,
        stages: &mut Vec<PreviewStage>,
        mut of_partner: Vec<PreviewStage>,
    ) -> Result<(), StageFailure> {
        let (Some(mut output), Some(other)) = (stages.pop(), of_partner.pop()) else {
            return Ok(());
        };
        let row = |stage: &PreviewStage| {
            let mut row = self.spare_row();
            for (cell, (_, values)) in row.cells.iter_mut().zip(&stage.fields) {
                if let (RowCell::Own { bytes, .. }, Values::Array(array)) = (cell, values) {
                    bytes.extend_from_slice(array.bytes());
                }
            }
            row
        };
        let mut own = row(&output);
        self.mix(mixing, &mut row(&other), &mut own)?;
        for (at, (_, values)) in output.fields.iter_mut().enumerate() {
            if let (RowCell::Own { bytes, .. }, Values::Array(array)) = (&own.cells[at], &*values) {
                let mixed = Array::own(bytes, array.shape().to_vec(), array.dtype());
                *values = Values::Array(mixed.map_err(|_| no_memory(at))?);
            }
        }
        stages.push(PreviewStage {
            name: mixing.blend.name(),
            draws: format!(
                "with position {} ({partner}), {}",
                mixing.partner, mixing.blend
            ),
            fields: other.fields,
            shapes: StageShapes::default(),
        });
        stages.push(output);
        Ok(())
    }

    pub(super) fn stage(
        &self,
        name: &'static str,
        draws: String,
        images: &[(usize, Image)],
        shapes: StageShapes,
    ) -> Result<PreviewStage, StageFailure> {
        let value = |(field, image): &(usize, Image)| {
            let shape = vec![image.height(), image.width(), image.channels];
            let array = Array::own(&image.data, shape, image.depth.dtype())
                .map_err(|_| no_memory(*field))?;
            Ok((self.columns[*field].name.clone(), Values::Array(array)))
        };
        let fields = images
            .iter()
            .map(value)
            .collect::<Result<_, StageFailure>>()?;
        Ok(PreviewStage {
            name,
            draws,
            fields,
            shapes,
        })
    }

    pub(super) fn output(
        &self,
        record: &Record,
        boxed: SampleImages<'_>,
        images: &[(usize, Image)],
        erase: &[(Region, Vec<f64>)],
        scratch: &mut SampleScratch,
    ) -> Result<PreviewStage, StageFailure> {
        let shapes = self.shapes(boxed, scratch)?;
        let mut row = self.spare_row();
        self.write_boxes(boxed, &mut row.cells, scratch)?;
        let mut fields = Vec::with_capacity(self.fields.len());
        for (field, (plan, column)) in self.fields.iter().zip(&self.columns).enumerate() {
            let values = match plan {
                FieldPlan::Pixels(plan) => {
                    let failed = |error: SampleError| error.in_field(field);
                    let Some((_, image)) = images.iter().find(|(of, _)| *of == field) else {
                        continue;
                    };
                    let mut cell = RowCell::Own {
                        shape: Vec::new(),
                        bytes: Vec::new(),
                    };
                    let erase = if plan.is_mask { &[][..] } else { erase };
                    plan.write(
                        PixelView::from(image),
                        None,
                        Flips::default(),
                        erase,
                        &mut cell,
                        &mut scratch.classes,
                    )
                    .map_err(failed)?;
                    let RowCell::Own { shape, bytes } = cell else {
                        continue;
                    };
                    let array = Array::own(&bytes, shape, plan.dtype());
                    Values::Array(array.map_err(|_| no_memory(field))?)
                }
                FieldPlan::Soft(label) => {
                    let mut cell = RowCell::Own {
                        shape: Vec::new(),
                        bytes: Vec::new(),
                    };
                    let written = label.write(&record.fields[field], &mut cell);
                    written.map_err(|error| error.in_field(field))?;
                    let (RowCell::Own { bytes, .. }, ColumnKind::Fixed { dtype, shape }) =
                        (cell, &column.kind)
                    else {
                        continue;
                    };
                    let array = Array::own(&bytes, shape.clone(), *dtype);
                    Values::Array(array.map_err(|_| no_memory(field))?)
                }
                FieldPlan::Boxed => {
                    let kind = boxes::kind_of(&self.boxes, field)
                        .or_else(|| points::kind_of(&self.points, field));
                    let RowCell::Own { bytes, shape } = &row.cells[field] else {
                        continue;
                    };
                    let (dtype, shape) = match kind {
                        Some(ColumnKind::Ragged { dtype, item }) => {
                            (dtype, list_shape(bytes.len(), dtype, &item))
                        }
                        Some(ColumnKind::Fixed { dtype, shape }) => (dtype, shape),
                        Some(ColumnKind::Padded { dtype, .. }) => (dtype, shape.clone()),
                        _ => continue,
                    };
                    let array = Array::own(bytes, shape, dtype);
                    Values::Array(array.map_err(|_| no_memory(field))?)
                }
                FieldPlan::Copy | FieldPlan::Own => {
                    let bytes = &record.fields[field];
                    let array = |dtype: DType, shape: Vec<usize>| {
                        Array::own(bytes, shape, dtype).map_err(|_| no_memory(field))
                    };
                    match &column.kind {
                        ColumnKind::Fixed { dtype, shape } => {
                            Values::Array(array(*dtype, shape.clone())?)
                        }
                        ColumnKind::Ragged { dtype, .. } | ColumnKind::Padded { dtype, .. } => {
                            Values::Array(array(*dtype, vec![bytes.len() / dtype.bytes()])?)
                        }
                        ColumnKind::Bytes => Values::Bytes(vec![bytes.to_vec()]),
                        ColumnKind::Text => {
                            Values::Text(vec![String::from_utf8_lossy(bytes).into_owned()])
                        }
                    }
                }
            };
            fields.push((column.name.clone(), values));
        }
        Ok(PreviewStage {
            name: "output",
            draws: String::new(),
            fields,
            shapes,
        })
    }
}

fn no_memory(field: usize) -> StageFailure {
    let error = SampleError::TooLarge {
        purpose: MemoryPurpose::Preview,
        needed_bytes: 0,
        limit_bytes: 0,
    };
    error.in_field(field)
}
