//! The plan as `explain` prints it: the stages of each field, where they run, and the size of each
//! representation.

use std::fmt;

use super::added_columns::VALID;
use super::function::{ColumnOrigin, FunctionCall};
use super::sample_plan::SamplePlan;
use crate::fields::pixels::plan::PixelPlan;
use crate::fields::steps::{FieldStep, StepStage};
use crate::function::FunctionScope;
use crate::pipeline::Layout;
use infeed_codec::transform::Effect;
use infeed_core::batch::{ColumnKind, ColumnSpec};
use infeed_core::sample::Pixels;

impl fmt::Display for SamplePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (pixels, column)) in self.pixels.iter().zip(&self.columns).enumerate() {
            if let Some(plan) = pixels {
                self.pixels(f, plan, column)?;
                self.others(f, at, plan)?;
                continue;
            }
            let mut kinds = self.kinds.iter();
            let kind = kinds.find(|kind| kind.columns().iter().any(|(field, _)| *field == at));
            if let Some(kind) = kind {
                let text = kind.describe(at);
                writeln!(f, "{}: {text} -> {}", column.name, shape(&column.kind))?;
            }
        }
        // After the source's fields, there may be lengths of lists and a column that marks padding.
        for column in self.columns.iter().skip(self.pixels.len()) {
            describe_added(f, column)?;
        }
        if let Some(join) = &self.join {
            writeln!(f, "{join}")?;
        }
        for call in self.sample_calls().iter().chain(self.batch_calls()) {
            self.function(f, call)?;
        }
        if let (Some(columns), Some(call)) = (&self.marked, self.sample_calls().last()) {
            for column in columns.iter().skip(call.columns.len()) {
                describe_added(f, column)?;
            }
        }
        Ok(())
    }
}

/// Describes a column that is no field of the source.
fn describe_added(f: &mut fmt::Formatter<'_>, column: &ColumnSpec) -> fmt::Result {
    let text = match column.name == VALID {
        true => "false where a row is padding",
        false => "length of each list",
    };
    writeln!(f, "{}: {text} -> {}", column.name, shape(&column.kind))
}

impl SamplePlan {
    /// Names the steps of a field that run in a stage. Several parts of a transform are one name.
    fn names(&self, plan: &PixelPlan, stage: StepStage) -> Vec<String> {
        let usual = || plan.steps.iter().filter(|step| !step.is_rare);
        let here: Vec<&FieldStep> = usual().filter(|step| step.stage == stage).collect();
        let named = here
            .chunk_by(|a, b| a.transform == b.transform)
            .map(|parts| {
                let first = parts[0];
                let name = self.transforms[first.transform].name();
                let all = usual().filter(|step| step.transform == first.transform);
                match (first.stage, first.effect) {
                    (StepStage::Decode, _) => format!("the region of {name}"),
                    _ if all.count() == parts.len() => name.to_owned(),
                    (_, Effect::Crop) => format!("{name}'s crop"),
                    (_, Effect::Pad) => format!("{name}'s padding"),
                    _ => format!("{name}'s resize"),
                }
            });
        named.collect()
    }

    /// Describes a function, its output, and the columns that pass unchanged.
    fn function(&self, f: &mut fmt::Formatter<'_>, call: &FunctionCall) -> fmt::Result {
        let what = match call.on {
            FunctionScope::Sample => "sample",
            FunctionScope::Batch => "batch",
        };
        let place = match call.processes {
            0 => "in this process".to_owned(),
            1 => "in a separate process".to_owned(),
            count => format!("in {count} processes"),
        };
        writeln!(f, "{}: python, with each {what}, {place}", call.name)?;
        for (column, gives) in call.columns.iter().zip(&call.gives) {
            let verb = match gives {
                ColumnOrigin::Returned => "returns",
                ColumnOrigin::Passed(_) => "passes",
            };
            writeln!(f, "  {verb:<10} {}: {}", column.name, shape(&column.kind))?;
        }
        Ok(())
    }

    fn pixels(
        &self,
        f: &mut fmt::Formatter<'_>,
        plan: &PixelPlan,
        column: &ColumnSpec,
    ) -> fmt::Result {
        let at = |stage| self.names(plan, stage);
        let (decode, pass) = (at(StepStage::Decode), at(StepStage::Pass));
        writeln!(f, "{}: -> {}", column.name, shape(&column.kind))?;
        let mut line =
            |stage: &str, parts: &[String]| writeln!(f, "  {stage:<10} {}", parts.join(", "));
        match plan.stored {
            Pixels::Encoded => {
                let mut parts = vec![plan.mode.name().to_owned()];
                if !decode.is_empty() {
                    parts.push(format!("only {}", decode.join(", ")));
                }
                if let Some(devices) = self.devices.as_ref().filter(|_| plan.leaves_files) {
                    parts.push(devices.describe());
                }
                if self.decode.verify {
                    parts.push("checksums verified".to_owned());
                }
                if self.decode.dct_scale && !plan.is_mask {
                    parts.push("at a reduced DCT scale where a large downscale follows".to_owned());
                }
                line("decode", &parts)?;
            }
            Pixels::Raw { .. } => {
                let mut parts = vec!["in place".to_owned()];
                parts.extend(decode.iter().map(|name| format!("{name} as a view")));
                line("read", &parts)?;
            }
        }
        if !pass.is_empty() {
            let mut parts = pass;
            if self.fuses_from.is_some() {
                parts.push("chains of warps and colours fused".to_owned());
            }
            line("transform", &parts)?;
        }
        let mut parts = at(StepStage::Row);
        let axes = |layout: Layout| match layout {
            Layout::Hwc => "HWC".to_owned(),
            Layout::Chw => "CHW".to_owned(),
        };
        parts.extend(plan.finish.layout().map(axes));
        parts.push("in one pass".to_owned());
        line("write", &parts)?;
        if let Some((layout, kind)) = &plan.on_device {
            let mut parts = at(StepStage::Device);
            parts.extend(layout.map(axes));
            parts.push(format!("in one pass after the transfer -> {}", shape(kind)));
            line("device", &parts)?;
        }
        Ok(())
    }

    /// Describes the other layouts of a field on trial, if there are any.
    fn others(&self, f: &mut fmt::Formatter<'_>, at: usize, first: &PixelPlan) -> fmt::Result {
        let texts = self.others.iter().filter_map(|(fields, _)| {
            let Some(Some(other)) = fields.get(at) else {
                return None;
            };
            match (&first.on_device, &other.on_device) {
                (Some(_), None) => Some("the host does this"),
                (None, Some(_)) => Some("the device resizes it"),
                _ if other.crop_bytes != first.crop_bytes => Some("the device also resizes it"),
                _ => None,
            }
        });
        let texts: Vec<&str> = texts.collect();
        let which = match texts.len() {
            0 => return Ok(()),
            1 => "better",
            _ => "best",
        };
        let texts = texts.join(", or ");
        writeln!(
            f,
            "  {:<10} {texts}; the loader measures which is {which}",
            "or"
        )
    }
}

/// Describes type, shape and size of a row.
fn shape(kind: &ColumnKind) -> String {
    match kind {
        ColumnKind::Fixed { dtype, shape } => {
            let bytes = shape.iter().product::<usize>() * dtype.bytes();
            let weight = match bytes {
                bytes if bytes < 1000 => format!("{bytes} B"),
                bytes => format!("{} kB", bytes / 1000),
            };
            format!("{} {shape:?}, {weight} per sample", dtype.name())
        }
        ColumnKind::Padded { dtype, .. } => {
            format!("{}, padded to the largest of the batch", dtype.name())
        }
        ColumnKind::Ragged { dtype, item } if item.is_empty() => {
            format!("{} values and their offsets", dtype.name())
        }
        ColumnKind::Ragged { dtype, item } => {
            format!("{} {item:?} items and their offsets", dtype.name())
        }
        ColumnKind::Bytes => "bytes".to_owned(),
        ColumnKind::Text => "text".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Pipeline, SourceSpec};
    use infeed_codec::transform::{
        Crop, Normalize, OneHot, RandomAffine, RandomHorizontalFlip, RandomResizedCrop,
        RandomRotation, Resize, ToFloat,
    };

    fn text(pipeline: &Pipeline) -> String {
        let fields = pipeline
            .source
            .known_fields()
            .expect("fields")
            .expect("known");
        SamplePlan::new(pipeline, &fields)
            .expect("a plan")
            .to_string()
    }

    #[test]
    fn the_plan_shows_push_down_and_fusion() {
        let pipeline = Pipeline::new(SourceSpec::folder("photos"))
            .decode()
            .transform(RandomResizedCrop::new(224))
            .transform(RandomHorizontalFlip::new(0.5))
            .transform(Normalize::new([0.5; 3], [0.5; 3]))
            .layout(Layout::Chw);

        assert_eq!(
            text(&pipeline),
            "image: -> float32 [3, 224, 224], 602 kB per sample\n  \
             decode     rgb, only the region of RandomResizedCrop, checksums verified\n  \
             transform  RandomResizedCrop's resize\n  \
             write      RandomHorizontalFlip, Normalize, CHW, in one pass\n"
        );
    }

    #[test]
    fn the_plan_says_that_chains_are_fused() {
        let pipeline = Pipeline::new(SourceSpec::folder("photos"))
            .decode()
            .transform(Resize::new(32))
            .transform(RandomAffine::new(10.0))
            .transform(RandomRotation::new(10.0))
            .fuse();

        let text = text(&pipeline);

        let line =
            "transform  Resize, RandomAffine, RandomRotation, chains of warps and colours fused\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_flip_before_a_resize_is_a_separate_pass() {
        let pipeline = Pipeline::new(SourceSpec::pairs("a", "b"))
            .decode()
            .transform(Crop::new(64, 64))
            .transform(RandomHorizontalFlip::new(0.5))
            .transform(Resize::new(32))
            .transform(ToFloat::of("image"))
            .transform(OneHot::from_indices(12));

        let text = text(&pipeline);

        assert!(
            text.contains("transform  RandomHorizontalFlip, Resize\n"),
            "{text}"
        );
        assert!(
            text.contains("write      OneHot, HWC, in one pass"),
            "{text}"
        );
        assert!(text.contains("mask: -> float32 [32, 32, 12]"), "{text}");
    }
}
