//! One sample, stage by stage, without push-down or fusion. Serves for inspection, and as the
//! reference of the fast plan.

use super::failure::{SampleError, StageFailure};
use super::fold::Flips;
use super::function::list_shape;
use super::prepared::PixelState;
use super::sample::{Position, SampleScratch, VisualField};
use super::{FieldPlan, Plan, boxes};
use infeed_codec::decode::Request;
use infeed_codec::transform::{Mixing, PixelView, Step};
use infeed_core::batch::{Array, BatchRow, ColumnKind, RowCell, Values};
use infeed_core::sample::{DType, Image, Pixels, Record, RecordId, Region};

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
    /// Left, top, right and bottom of the boxes that stay, in pixels of the stage's images.
    pub outlines: Vec<[f64; 4]>,
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
        let mut stages = Vec::new();
        let outlines = |drawn: &[(usize, Step)]| match looked.first() {
            Some(image) => self.outlines(record, image, drawn),
            None => Ok(Vec::new()),
        };
        let mut images: Vec<(usize, Image)> = Vec::new();
        for look in &looked {
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
        let encoded = |look: &VisualField<'_>| look.plan.stored == Pixels::Encoded;
        if looked.iter().any(encoded) {
            stages.push(self.stage("decode", String::new(), &images, outlines(&[])?)?);
        }
        let mut erase = Vec::new();
        for (number, transform) in self.transforms.iter().enumerate() {
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
                for (field, image) in &mut images {
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
            }
            let draws: Vec<String> = own.iter().map(|step| step.to_string()).collect();
            let so_far = drawn.partition_point(|(of, _)| *of <= number);
            let outlines = outlines(&drawn[..so_far])?;
            stages.push(self.stage(transform.name(), draws.join(", "), &images, outlines)?);
        }
        let mut boxed = self.spare_row();
        if let Some(image) = looked.first() {
            for boxes in &self.boxes {
                boxes.write(&record.fields, image.frame, &drawn, &mut boxed.cells)?;
            }
        }
        let mut output = self.output(record, &images, &erase, &boxed, scratch)?;
        output.outlines = outlines(&drawn)?;
        stages.push(output);
        Ok(stages)
    }

    /// Returns the boxes that stay after these steps.
    fn outlines(
        &self,
        record: &Record,
        image: &VisualField<'_>,
        drawn: &[(usize, Step)],
    ) -> Result<Vec<[f64; 4]>, StageFailure> {
        let mut outlines = Vec::new();
        for boxes in &self.boxes {
            let (kept, _) = boxes.kept(&record.fields, image.frame, drawn)?;
            outlines.extend(kept.into_iter().map(|(_, corners)| corners));
        }
        Ok(outlines)
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
            outlines: Vec::new(),
        });
        stages.push(output);
        Ok(())
    }

    fn stage(
        &self,
        name: &'static str,
        draws: String,
        images: &[(usize, Image)],
        outlines: Vec<[f64; 4]>,
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
            outlines,
        })
    }

    fn output(
        &self,
        record: &Record,
        images: &[(usize, Image)],
        erase: &[(Region, Vec<f64>)],
        boxed: &BatchRow,
        scratch: &mut SampleScratch,
    ) -> Result<PreviewStage, StageFailure> {
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
                    let kind = boxes::kind_of(&self.boxes, field);
                    let (RowCell::Own { bytes, .. }, Some(ColumnKind::Ragged { dtype, item })) =
                        (&boxed.cells[field], kind)
                    else {
                        continue;
                    };
                    let array = Array::own(bytes, list_shape(bytes.len(), dtype, &item), dtype);
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
            outlines: Vec::new(),
        })
    }
}

fn no_memory(field: usize) -> StageFailure {
    let error = SampleError::TooLarge {
        purpose: "a preview",
        needed_bytes: 0,
        limit_bytes: 0,
    };
    error.in_field(field)
}
