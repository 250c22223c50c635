//! The transform that makes samples of several records: `Mosaic` or `CopyPaste` before the
//! transforms that follow, or `MixUp` and `CutMix` on finished rows.

use std::fmt;
use std::ops::Range;

use super::mix::{self, MixPlan};
use crate::fields::failure::part_name;
use crate::fields::kind::PlanInput;
use crate::fields::kinds::moved_fields::MovedFields;
use crate::fields::kinds::objects::ObjectsPlan;
use crate::fields::pixels::plan::PixelPlan;
use infeed_codec::transform::{
    CopyPaste, CopyPasteDraw, Mixing, Mosaic, MosaicDraw, Rng, Transform,
};
use infeed_core::error::Error;

/// The transform that makes samples of several records.
#[derive(Debug)]
pub(crate) enum JoinPlan {
    Mosaic(MosaicPlan),
    CopyPaste(CopyPastePlan),
    Mix(MixPlan),
}

impl JoinPlan {
    /// Returns the number of records of a sample.
    pub(crate) fn records(&self) -> u64 {
        match self {
            JoinPlan::Mosaic(_) => 4,
            JoinPlan::CopyPaste(_) | JoinPlan::Mix(_) => 2,
        }
    }

    /// Draws the partners of a position. None if its record is alone.
    pub(super) fn draw(
        &self,
        at: u64,
        near: impl FnOnce() -> Range<u64>,
        rng: impl FnOnce(usize) -> Rng,
    ) -> Option<JoinDraw> {
        match self {
            JoinPlan::Mosaic(own) => {
                let drawn = own.mosaic.draw_partners(at, near, &mut rng(own.number));
                drawn.map(JoinDraw::Mosaic)
            }
            JoinPlan::CopyPaste(own) => {
                let drawn = own.copy_paste.draw_partner(at, near, &mut rng(own.number));
                drawn.map(JoinDraw::CopyPaste)
            }
            JoinPlan::Mix(own) => {
                let drawn = Mixing::draw(&own.choices, at, near, &mut rng(own.number));
                drawn.map(JoinDraw::Mix)
            }
        }
    }
}

impl fmt::Display for JoinPlan {
    /// Writes the line of the plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinPlan::Mosaic(own) => {
                let window = own.mosaic.window;
                let text = "each decoded once for the mosaics that show it";
                write!(
                    f,
                    "mosaic: with three images of the {window} positions before, {text}"
                )
            }
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
    /// Two samples, mixed.
    Mix(Mixing),
}

impl JoinDraw {
    /// Returns the name of the transform.
    pub fn name(&self) -> &'static str {
        match self {
            JoinDraw::Mosaic(_) => "Mosaic",
            JoinDraw::CopyPaste(_) => "CopyPaste",
            JoinDraw::Mix(drawn) => drawn.blend.name(),
        }
    }

    /// Returns the positions of the other records.
    pub fn partners(&self) -> &[u64] {
        match self {
            JoinDraw::Mosaic(drawn) => &drawn.partners,
            JoinDraw::CopyPaste(drawn) => std::slice::from_ref(&drawn.partner),
            JoinDraw::Mix(drawn) => std::slice::from_ref(&drawn.partner),
        }
    }

    /// Returns the positions of the other records, to move them.
    pub fn partners_mut(&mut self) -> &mut [u64] {
        match self {
            JoinDraw::Mosaic(drawn) => &mut drawn.partners,
            JoinDraw::CopyPaste(drawn) => std::slice::from_mut(&mut drawn.partner),
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
    let joins =
        |transform: &Transform| transform.mosaic().is_some() || transform.copy_paste().is_some();
    let mut joining = all().filter(|(_, transform)| joins(transform));
    let Some((number, transform)) = joining.next() else {
        return Ok(mix::plan(input, pixels)?.map(JoinPlan::Mix));
    };
    let name = transform.name();
    let wrong = |at: usize, problem: String| {
        Err(Error::config(
            part_name(at, &pipeline.transforms[at]),
            problem,
        ))
    };
    if let Some((second, _)) = joining.next() {
        return wrong(
            second,
            format!("a pipeline can have one {name}; remove one of the two"),
        );
    }
    if let Some((at, _)) = all().find(|(_, transform)| transform.mixes()) {
        let problem = format!("it mixes samples, which {name} does already; remove one of the two");
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
    if let Some(mosaic) = transform.mosaic() {
        let mosaic = mosaic.clone();
        return Ok(Some(JoinPlan::Mosaic(MosaicPlan { number, mosaic })));
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

/// The mosaic of a pipeline.
#[derive(Debug)]
pub(crate) struct MosaicPlan {
    /// Index of the transform; keys the draws.
    pub(crate) number: usize,
    pub(crate) mosaic: Mosaic,
}

/// The copy-paste of a pipeline.
#[derive(Debug)]
pub(crate) struct CopyPastePlan {
    /// Index of the transform; keys the draws.
    pub(crate) number: usize,
    pub(crate) copy_paste: CopyPaste,
    pub(crate) objects: ObjectsPlan,
}
