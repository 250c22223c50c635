//! The transforms that make samples of several records: `Mosaic`, `ImageMixUp`, both, or `CopyPaste`
//! before the transforms that follow, or `MixUp` and `CutMix` on finished rows.

use std::fmt;
use std::ops::Range;

use super::image_mixup::{self, ImageMixUpPlan, MixedImages};
use super::mix::{self, MixPlan};
use super::mosaic::MosaicPlan;
use crate::fields::failure::part_name;
use crate::fields::kind::PlanInput;
use crate::fields::kinds::moved_fields::MovedFields;
use crate::fields::kinds::objects::ObjectsPlan;
use crate::fields::pixels::plan::PixelPlan;
use infeed_codec::transform::{CopyPaste, CopyPasteDraw, Mixing, MosaicDraw, Rng, Transform};
use infeed_core::error::Error;

/// The transforms that make samples of several records.
#[derive(Debug)]
pub(crate) enum JoinPlan {
    Mosaic(MosaicPlan),
    CopyPaste(CopyPastePlan),
    ImageMixUp(ImageMixUpPlan),
    Mix(MixPlan),
}

impl JoinPlan {
    /// Returns the number of records of a sample.
    pub(crate) fn records(&self) -> u64 {
        match self {
            JoinPlan::Mosaic(_) => 4,
            JoinPlan::CopyPaste(_) | JoinPlan::Mix(_) => 2,
            JoinPlan::ImageMixUp(own) => own.records(),
        }
    }

    /// Returns the mosaic, if there is one.
    pub(crate) fn mosaic(&self) -> Option<&MosaicPlan> {
        match self {
            JoinPlan::Mosaic(own) => Some(own),
            JoinPlan::ImageMixUp(own) => own.mosaic.as_ref(),
            JoinPlan::CopyPaste(_) | JoinPlan::Mix(_) => None,
        }
    }

    /// Draws the partners of a position. None if its record is alone. `rng` returns the generator of
    /// a position and a transform.
    pub(super) fn draw(
        &self,
        at: u64,
        near: impl FnOnce() -> Range<u64>,
        rng: impl Fn(u64, usize) -> Rng,
    ) -> Option<JoinDraw> {
        match self {
            JoinPlan::CopyPaste(own) => {
                let mut rng = rng(at, own.number);
                let drawn = own.copy_paste.draw_partner(at, near, &mut rng);
                drawn.map(JoinDraw::CopyPaste)
            }
            JoinPlan::Mix(own) => {
                let drawn = Mixing::draw(&own.choices, at, near, &mut rng(at, own.number));
                drawn.map(JoinDraw::Mix)
            }
            JoinPlan::Mosaic(own) => own.draw(at, &near(), &rng).map(JoinDraw::Mosaic),
            JoinPlan::ImageMixUp(own) => {
                let near = near();
                let mosaic = own.mosaic.as_ref();
                let tiles = mosaic.and_then(|mosaic| mosaic.draw(at, &near, &rng));
                match own.draw(at, tiles, &near, &rng) {
                    Some(mixed) => Some(JoinDraw::ImageMixUp(mixed)),
                    None => tiles.map(JoinDraw::Mosaic),
                }
            }
        }
    }
}

impl fmt::Display for JoinPlan {
    /// Writes the line of the plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinPlan::Mosaic(own) => own.fmt(f),
            JoinPlan::ImageMixUp(own) => own.fmt(f),
            JoinPlan::CopyPaste(_) => {
                let text = "with objects of the image at another position, decoded for the sample";
                write!(f, "copy-paste: {text}")
            }
            JoinPlan::Mix(own) => own.fmt(f),
        }
    }
}

/// Random parameters of a sample of several records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JoinDraw {
    /// Four images around a centre.
    Mosaic(MosaicDraw),
    /// Objects of another image.
    CopyPaste(CopyPasteDraw),
    /// Two images, blended.
    ImageMixUp(MixedImages),
    /// Two samples, mixed.
    Mix(Mixing),
}

impl JoinDraw {
    /// Returns the name of the transform.
    pub fn name(&self) -> &'static str {
        match self {
            JoinDraw::Mosaic(_) => "Mosaic",
            JoinDraw::CopyPaste(_) => "CopyPaste",
            JoinDraw::ImageMixUp(_) => "ImageMixUp",
            JoinDraw::Mix(drawn) => drawn.blend.name(),
        }
    }

    /// Returns the positions of the other records.
    pub fn partners(&self) -> &[u64] {
        match self {
            JoinDraw::Mosaic(drawn) => &drawn.partners,
            JoinDraw::CopyPaste(drawn) => std::slice::from_ref(&drawn.partner),
            JoinDraw::ImageMixUp(drawn) => drawn.partners(),
            JoinDraw::Mix(drawn) => std::slice::from_ref(&drawn.partner),
        }
    }

    /// Returns the positions of the other records, to move them.
    pub fn partners_mut(&mut self) -> &mut [u64] {
        match self {
            JoinDraw::Mosaic(drawn) => &mut drawn.partners,
            JoinDraw::CopyPaste(drawn) => std::slice::from_mut(&mut drawn.partner),
            JoinDraw::ImageMixUp(drawn) => drawn.partners_mut(),
            JoinDraw::Mix(drawn) => std::slice::from_mut(&mut drawn.partner),
        }
    }
}

/// Checks the transforms of a pipeline that join records. `pixels` are the plans of its images and
/// masks.
pub(crate) fn plan(
    input: &PlanInput<'_>,
    pixels: &[Option<PixelPlan>],
) -> Result<Option<JoinPlan>, Error> {
    let pipeline = input.pipeline;
    let all = || pipeline.transforms.iter().enumerate();
    let joining: Vec<(usize, &Transform)> = all()
        .filter(|(_, transform)| transform.joins_images())
        .collect();
    let (Some(&(first, of_first)), Some(&(number, transform))) = (joining.first(), joining.last())
    else {
        return Ok(mix::plan(input, pixels)?.map(JoinPlan::Mix));
    };
    let wrong = |at: usize, problem: String| {
        Err(Error::config(
            part_name(at, &pipeline.transforms[at]),
            problem,
        ))
    };
    for pair in joining.windows(2) {
        let [(_, before), (at, after)] = [pair[0], pair[1]];
        match (place_in_order(before), place_in_order(after)) {
            (Some(before), Some(after)) if before < after => continue,
            _ => {}
        }
        let problem = match (before.name(), after.name()) {
            (before, after) if before == after => {
                format!("a pipeline can have one {before}; remove one of the two")
            }
            (before, _) => format!(
                "it cannot follow {before}; of the transforms that join images, a pipeline can have \
                 CopyPaste, or Mosaic, MirroredPaste and ImageMixUp in this order"
            ),
        };
        return wrong(at, problem);
    }
    let mosaic = of_first.mosaic().map(|mosaic| MosaicPlan {
        number: first,
        mosaic: mosaic.clone(),
    });
    let name = transform.name();
    if let Some((at, _)) = all().find(|(_, transform)| transform.mixes()) {
        let problem = format!("it mixes samples, which {name} does already; remove one of the two");
        return wrong(at, problem);
    }
    let mut after = all().skip(first + 1);
    if let Some((at, _)) = after.find(|(_, transform)| transform.size_field().is_some()) {
        let problem = format!(
            "an image after {0} has several records; put it before {0}",
            of_first.name()
        );
        return wrong(at, problem);
    }
    let keeps_channels = |channels| {
        let mut before = pipeline.transforms[..number].iter();
        before.all(|transform| transform.output_channels(channels) == channels)
    };
    if !keeps_channels(1) || !keeps_channels(3) {
        let problem =
            format!("an earlier transform changes the number of channels; put it after {name}");
        return wrong(number, problem);
    }
    if let Some(mixup) = transform.image_mixup() {
        let planned = image_mixup::plan(input, pixels, (number, mixup), mosaic)?;
        return Ok(Some(JoinPlan::ImageMixUp(planned)));
    }
    if let Some(mosaic) = mosaic {
        return Ok(Some(JoinPlan::Mosaic(mosaic)));
    }
    let Some(copy_paste) = transform.copy_paste() else {
        return Ok(None);
    };
    let mut rest = pipeline.transforms[number + 1..].iter();
    if let Some(after) = rest.find(|transform| transform.needs_boxes()) {
        let problem = format!("put it after {}, which crops around boxes", after.name());
        return wrong(number, problem);
    }
    match ObjectsPlan::new(MovedFields::new(input)?) {
        Err(problem) => wrong(number, problem),
        Ok(objects) => Ok(Some(JoinPlan::CopyPaste(CopyPastePlan {
            number,
            copy_paste: copy_paste.clone(),
            objects,
        }))),
    }
}

/// Returns the place of a transform among those that a pipeline can combine.
fn place_in_order(transform: &Transform) -> Option<u8> {
    if transform.mosaic().is_some() {
        Some(0)
    } else if transform.mirrored_paste().is_some() {
        Some(1)
    } else {
        transform.image_mixup().map(|_| 2)
    }
}

/// The copy-paste of a pipeline.
#[derive(Debug)]
pub(crate) struct CopyPastePlan {
    /// Index of the transform; keys the draws.
    pub(crate) number: usize,
    pub(crate) copy_paste: CopyPaste,
    pub(crate) objects: ObjectsPlan,
}
