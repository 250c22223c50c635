//! Planning of images and masks: their decoding, steps, row and column.

use super::classes::ClassMap;
use super::modes::{self, color_mode};
use super::plan::{PixelPlan, RowPass};
use super::write;
use crate::fields::failure::part_name;
use crate::fields::steps::{self, FieldStep};
use crate::function::FunctionScope;
use crate::pipeline::Pipeline;
use infeed_codec::transform::{Affine, Effect, MaskClasses};
use infeed_core::batch::ColumnKind;
use infeed_core::error::{Error, with_causes};
use infeed_core::sample::{DType, Depth, Field, FieldKind, Pixels};
use infeed_source::Source;

/// Plans the images and masks of a pipeline.
pub(crate) struct PixelPlanner<'a> {
    pub(crate) pipeline: &'a Pipeline,
    /// Records show the channels of stored pixels.
    pub(crate) source: Option<&'a dyn Source>,
}

impl PixelPlanner<'_> {
    /// Plans a field, and its column. `None` if the field has no pixels, or if they stay encoded.
    pub(crate) fn plan(
        &self,
        number: usize,
        field: &Field,
    ) -> Result<Option<(PixelPlan, ColumnKind)>, Error> {
        let (stored, is_mask) = match &field.kind {
            FieldKind::Image(stored) => (stored, false),
            FieldKind::Mask(stored) => (stored, true),
            _ => return Ok(None),
        };
        if *stored == Pixels::Encoded && self.pipeline.decode.is_none() {
            return Ok(None);
        }
        let plan = self.pixels((number, field), stored, is_mask)?;
        let kind = self.column(&plan)?;
        Ok(Some((plan, kind)))
    }

    fn pixels(
        &self,
        (number, field): (usize, &Field),
        stored: &Pixels,
        is_mask: bool,
    ) -> Result<PixelPlan, Error> {
        let mode = color_mode(self.pipeline, &field.name, is_mask);
        let (mut size, channels, depth) = match stored {
            Pixels::Encoded => {
                let found = modes::decoded_pixels(mode, self.source, (number, field));
                let (channels, depth) = found?;
                (None, channels, depth)
            }
            Pixels::Raw {
                size,
                channels,
                depth,
            } => (Some(*size), *channels, *depth),
        };
        let mut out_channels = channels;
        let mut affine = Affine::identity(channels, depth);
        let mut class_finish = None;
        let (mut steps, mut finished) = (Vec::new(), false);
        for (at, transform) in self.pipeline.transforms.iter().enumerate() {
            finished |= matches!(transform.effect(), Effect::Scale | Effect::Classes);
            let wrong = |problem: String| Error::config(part_name(at, transform), problem);
            size = transform
                .output_size(size)
                .map_err(|error| wrong(error.to_string()))?;
            let named = transform.field().is_none_or(|name| name == field.name);
            if is_mask && named && !transform.applies_to_masks() && transform.field().is_some() {
                return Err(wrong(format!(
                    "`{}` is a mask, whose values are class numbers; set the field of an image",
                    field.name
                )));
            }
            let applies = if is_mask {
                transform.applies_to_masks()
            } else {
                transform.applies_to_images()
            };
            if !named || !applies {
                if named && transform.effect() == Effect::Classes {
                    return Err(wrong(format!(
                        "`{}` is an image; set the field of a mask",
                        field.name
                    )));
                }
                continue;
            }
            if !transform.mixes() {
                let parts = FieldStep::of(at, transform, finished);
                let runs = |step: &FieldStep| match is_mask {
                    true => step.effect.is_geometric() || step.effect == Effect::Classes,
                    false => step.effect != Effect::Classes,
                };
                steps.extend(parts.filter(runs));
            }
            if !is_mask {
                transform
                    .check_pixels(out_channels, depth)
                    .map_err(|error| {
                        wrong(modes::unsupported_pixels(&error, field, stored, depth))
                    })?;
                let before = out_channels;
                out_channels = transform.output_channels(out_channels);
                if before != out_channels {
                    affine = Affine::identity(out_channels, depth);
                }
            }
            transform
                .scale(&mut affine)
                .map_err(|error| wrong(error.to_string()))?;
            if transform.effect() == Effect::Classes && class_finish.is_some() {
                return Err(wrong(format!(
                    "an earlier transform already converts the classes of `{}`; remove one of the \
                     two",
                    field.name
                )));
            }
            if let Some(to) = transform.classes() {
                let classes = self.class_map(at, &to, depth)?;
                let dtype = to.dtype;
                class_finish = Some(match to.index {
                    Some(index) => {
                        index
                            .validate_count(classes.count())
                            .map_err(|error| wrong(error.to_string()))?;
                        let none = index.index_of_none();
                        RowPass::Classes {
                            classes,
                            dtype,
                            none,
                        }
                    }
                    None => RowPass::OneHot {
                        classes,
                        dtype,
                        layout: self.pipeline.output.layout,
                    },
                });
            }
        }
        let wants_rgb = match &class_finish {
            Some(RowPass::OneHot { classes, .. } | RowPass::Classes { classes, .. }) => {
                classes.takes_colours()
            }
            _ => false,
        };
        if class_finish.is_some()
            && (wants_rgb != (channels == 3) || (depth != Depth::U8 && wants_rgb))
        {
            let (wants, mode) = match wants_rgb {
                true => ("3 of 8 bits (colours)", "rgb"),
                false => ("1 (class numbers)", "stored"),
            };
            let problem = format!(
                "mask `{}` has {channels} channels of {} bits, but its classes need {wants}; use \
                 .decode({}=\"{mode}\") for image files",
                field.name,
                match depth {
                    Depth::U8 => 8,
                    Depth::U16 => 16,
                },
                field.name
            );
            return Err(Error::config("decode", problem));
        }
        let finish = match class_finish {
            Some(finish) => finish,
            None => self.convert(field, is_mask, depth, &affine)?,
        };
        steps::arrange(&mut steps);
        steps.sort_by_key(FieldStep::order);
        let (name, stored) = (field.name.clone(), stored.clone());
        Ok(PixelPlan {
            name,
            is_mask,
            stored,
            mode,
            channels,
            depth,
            out_channels,
            size,
            steps,
            finish,
            on_device: None,
            crop_bytes: None,
            leaves_files: false,
        })
    }

    /// Creates the class mapping of the mask that transform `at` reads.
    fn class_map(&self, at: usize, to: &MaskClasses<'_>, depth: Depth) -> Result<ClassMap, Error> {
        let (before, rest) = self.pipeline.transforms.split_at(at);
        let (transform, content) = (&rest[0], to.content.expect("validated with the transform"));
        ClassMap::new(content, to.accepted, transform, before, depth)
            .map_err(|error| Error::config(part_name(at, transform), with_causes(&error)))
    }

    fn convert(
        &self,
        field: &Field,
        is_mask: bool,
        depth: Depth,
        affine: &Affine,
    ) -> Result<RowPass, Error> {
        let as_decoded = match depth {
            Depth::U8 => DType::UInt8,
            Depth::U16 => DType::UInt16,
        };
        let layout = self.pipeline.output.layout;
        let (scale, bias) = (affine.scale(), affine.bias());
        let four = |values: &[f32], rest: f32| {
            std::array::from_fn(|channel| values.get(channel).copied().unwrap_or(rest))
        };
        let (scale, bias) = (four(&scale, 1.0), four(&bias, 0.0));
        if is_mask {
            return Ok(RowPass::Convert {
                dtype: as_decoded,
                layout,
                scale,
                bias,
            });
        }
        let default = if affine.is_float() {
            DType::Float32
        } else {
            as_decoded
        };
        let dtype = self.pipeline.output.dtype.unwrap_or(default);
        let float = matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16);
        if float != affine.is_float() || (!float && dtype != as_decoded) {
            let fix = if float {
                "add ToFloat or Normalize".to_owned()
            } else {
                format!(
                    "remove dtype, or use float32, float16 or bfloat16 (without: {})",
                    default.name()
                )
            };
            let problem = format!(
                "`{}` cannot be converted to {}; {fix}",
                field.name,
                dtype.name()
            );
            return Err(Error::config("output", problem));
        }
        write::check_range(dtype, affine, &field.name)?;
        Ok(RowPass::Convert {
            dtype,
            layout,
            scale,
            bias,
        })
    }

    fn column(&self, plan: &PixelPlan) -> Result<ColumnKind, Error> {
        let dtype = plan.dtype();
        if let Some(size) = plan.size {
            let shape = plan.shape(size);
            let bytes = shape
                .iter()
                .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n));
            if bytes.is_none_or(|bytes| bytes > isize::MAX as usize / 2) {
                let problem = format!(
                    "a row of `{}` would be {shape:?}, which is too large; use a smaller size",
                    plan.name
                );
                return Err(Error::config("output", problem));
            }
            return Ok(ColumnKind::Fixed { dtype, shape });
        }
        // A function may make all rows one size.
        let goes_on = self
            .pipeline
            .python
            .iter()
            .any(|spec| spec.on == FunctionScope::Sample);
        if self.pipeline.batch.pad || self.pipeline.batch.is_of_one() || goes_on {
            return Ok(ColumnKind::Padded {
                dtype,
                rank: plan.rank(),
            });
        }
        Err(unsized_image(&plan.name))
    }
}

/// Returns the error for rows of different sizes without padding.
pub(crate) fn unsized_image(name: &str) -> Error {
    let problem = format!(
        "the size of `{name}` differs by record; add a transform that gives one size, such as \
         RandomResizedCrop(224), Resize([256, 256]) or CenterCrop(224), or use \
         .batch(n, pad=True)"
    );
    Error::config("batch", problem)
}
