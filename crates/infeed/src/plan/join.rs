//! The transform that makes samples of several records: `Mosaic` or `CopyPaste`.

use crate::fields::failure::part_name;
use crate::fields::kind::PlanInput;
use crate::fields::kinds::boxes::BoxesPlan;
use crate::fields::kinds::masks::MasksPlan;
use crate::fields::kinds::moved::MovedFields;
use infeed_codec::transform::{CopyPaste, CopyPasteDraw, Mosaic, MosaicDraw, Transform};
use infeed_core::error::Error;

/// The transform that makes samples of several records.
#[derive(Clone, Debug)]
pub(crate) enum JoinPlan {
    Mosaic(MosaicPlan),
    CopyPaste(CopyPastePlan),
}

/// Random parameters of a sample of several records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinDraw {
    /// Four images around a centre.
    Mosaic(MosaicDraw),
    /// Objects of another image.
    CopyPaste(CopyPasteDraw),
}

impl JoinDraw {
    /// Returns the positions of the other records.
    pub fn partners(&self) -> &[u64] {
        match self {
            JoinDraw::Mosaic(drawn) => &drawn.partners,
            JoinDraw::CopyPaste(drawn) => std::slice::from_ref(&drawn.partner),
        }
    }

    /// Returns the positions of the other records, to move them.
    pub fn partners_mut(&mut self) -> &mut [u64] {
        match self {
            JoinDraw::Mosaic(drawn) => &mut drawn.partners,
            JoinDraw::CopyPaste(drawn) => std::slice::from_mut(&mut drawn.partner),
        }
    }
}

/// Checks the joining transform of a pipeline.
pub(crate) fn plan(input: &PlanInput<'_>) -> Result<Option<JoinPlan>, Error> {
    let pipeline = input.pipeline;
    let all = || pipeline.transforms.iter().enumerate();
    let joins =
        |transform: &Transform| transform.mosaic().is_some() || transform.copy_paste().is_some();
    let mut joining = all().filter(|(_, transform)| joins(transform));
    let Some((number, transform)) = joining.next() else {
        return Ok(None);
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
    let rest = &pipeline.transforms[number + 1..];
    match objects(MovedFields::new(input)?, rest) {
        Err(problem) => wrong(number, problem),
        Ok((boxes, masks)) => Ok(Some(JoinPlan::CopyPaste(CopyPastePlan {
            number,
            copy_paste: copy_paste.clone(),
            boxes,
            masks,
        }))),
    }
}

/// The mosaic of a pipeline.
#[derive(Clone, Debug)]
pub(crate) struct MosaicPlan {
    /// Index of the transform; keys the draws.
    pub(crate) number: usize,
    pub(crate) mosaic: Mosaic,
}

/// The copy-paste of a pipeline.
#[derive(Clone, Debug)]
pub(crate) struct CopyPastePlan {
    /// Index of the transform; keys the draws.
    pub(crate) number: usize,
    pub(crate) copy_paste: CopyPaste,
    /// Boxes of the objects, and their masks.
    pub(crate) boxes: BoxesPlan,
    pub(crate) masks: MasksPlan,
}

/// Returns the boxes and masks of the objects to paste, or the reason why they cannot be pasted.
/// `rest` are the transforms that follow.
fn objects(moved: MovedFields, rest: &[Transform]) -> Result<(BoxesPlan, MasksPlan), String> {
    let MovedFields { mut boxes, points } = moved;
    if let Some(points) = points.first() {
        return Err(format!(
            "it pastes some objects of another image, and the points in `{}` belong to no object; add \
             them to the columns of boxes",
            points.name()
        ));
    }
    if let Some(transform) = rest.iter().find(|transform| transform.needs_boxes()) {
        return Err(format!(
            "put it after {}, which crops around boxes",
            transform.name()
        ));
    }
    match (boxes.pop(), boxes.is_empty()) {
        (Some(one), true) if one.masks.is_some() => {
            let masks = one.masks.clone();
            Ok((one, masks.expect("checked before")))
        }
        (Some(_), false) => {
            Err("a pipeline with it can have one field of boxes; remove one".to_owned())
        }
        _ => Err(
            "it pastes objects by their masks; declare these with .boxes(..., masks=...)"
                .to_owned(),
        ),
    }
}
