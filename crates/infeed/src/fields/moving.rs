//! Coordinates that move with the images of a sample: what boxes, masks and points share.

use super::failure::part_name;
use crate::pipeline::Pipeline;
use infeed_codec::decode::ImageFrame;
use infeed_codec::transform::{MovingBox, Step};
use infeed_core::batch::Array;
use infeed_core::error::Error;
use infeed_core::sample::{DType, Field, FieldKind, Image, Record, Size};

/// An image of a sample, with which the boxes and points of its record move.
#[derive(Clone, Copy)]
pub(crate) struct SampleImage<'a> {
    pub(crate) record: &'a Record,
    pub(crate) frame: ImageFrame,
    /// Steps before those that all images of the sample share.
    pub(crate) steps: &'a [(usize, Step)],
    /// Number of the image among those of its canvas.
    pub(crate) number: usize,
    /// Boxes and masks after these steps, if objects were pasted.
    pub(crate) pasted: Option<&'a PastedObjects>,
}

/// Images of a sample, and the steps that they share.
pub(crate) type SampleImages<'a> = (&'a [SampleImage<'a>], &'a [(usize, Step)]);

impl<'a> SampleImage<'a> {
    /// Creates an image of a record with its own steps.
    pub(crate) fn new(
        record: &'a Record,
        frame: ImageFrame,
        steps: &'a [(usize, Step)],
    ) -> SampleImage<'a> {
        SampleImage {
            record,
            frame,
            steps,
            number: 0,
            pasted: None,
        }
    }

    /// Sets the number of the image among those of its canvas.
    pub(crate) fn with_number(self, number: usize) -> SampleImage<'a> {
        SampleImage { number, ..self }
    }

    /// Returns the mirrored copies of the image's objects, if there are any. `shared` are the steps
    /// after its own.
    pub(crate) fn copies(&self, shared: &[(usize, Step)]) -> Option<MirroredObjects<'a>> {
        let all = || self.steps.iter().chain(shared);
        let copies = |(at, (_, step)): (usize, &(usize, Step))| match step {
            Step::PasteMirrored(copies) => Some((at, copies.objects_of(self.number).collect())),
            _ => None,
        };
        let (at, objects): (usize, Vec<usize>) = all().enumerate().find_map(copies)?;
        let mut steps: Vec<(usize, Step)> = all().cloned().collect();
        steps[at].1 = Step::FlipX;
        (!objects.is_empty()).then_some(MirroredObjects {
            record: self.record,
            frame: self.frame,
            steps,
            objects,
        })
    }

    /// Sets boxes and masks after the image's own steps.
    pub(crate) fn with_pasted(self, objects: &'a PastedObjects) -> SampleImage<'a> {
        let pasted = Some(objects);
        SampleImage { pasted, ..self }
    }
}

/// Mirrored copies of objects of a record.
pub(crate) struct MirroredObjects<'a> {
    record: &'a Record,
    frame: ImageFrame,
    /// All steps of the copies.
    steps: Vec<(usize, Step)>,
    /// Numbers of the objects in the record.
    pub(crate) objects: Vec<usize>,
}

impl MirroredObjects<'_> {
    /// Returns the image with which the copies move.
    pub(crate) fn image(&self) -> SampleImage<'_> {
        SampleImage::new(self.record, self.frame, &self.steps)
    }
}

/// Boxes, points and masks of a stage of a preview.
#[derive(Clone, Debug, Default)]
pub struct StageShapes {
    /// Left, top, right and bottom of the boxes that stay, in pixels.
    pub boxes: Vec<[f64; 4]>,
    /// Column and row of each visible point.
    pub points: Vec<[f64; 2]>,
    /// Object of each pixel, uint8 `[height, width]`: 0 for none, else a number from 1. `None`
    /// without masks.
    pub objects: Option<Array>,
}

/// Boxes and masks of a record after objects were pasted.
pub(crate) struct PastedObjects {
    /// All boxes of the record; those that are not in the image are dropped.
    pub(crate) boxes: Vec<MovingBox>,
    /// Masks of the others.
    pub(crate) planes: Vec<PaintedPlane>,
}

/// A plane of masks.
pub(crate) struct PaintedPlane {
    /// The box of each bit.
    pub(crate) numbers: Vec<usize>,
    pub(crate) image: Image,
}

/// Checks that there is an image with which the boxes or points of `part` can move.
pub(crate) fn check_image(
    part: &'static str,
    pipeline: &Pipeline,
    fields: &[Field],
) -> Result<(), Error> {
    let wrong = |problem: String| Err(Error::config(part, problem));
    let is_visual = |field: &Field| matches!(field.kind, FieldKind::Image(_) | FieldKind::Mask(_));
    let is_decoded = |field: &Field| match &field.kind {
        FieldKind::Image(pixels) | FieldKind::Mask(pixels) => {
            pipeline.decode.is_some() || *pixels != infeed_core::sample::Pixels::Encoded
        }
        _ => false,
    };
    if !fields.iter().any(is_visual) {
        return wrong(format!(
            "the source has no image that the {part} could belong to"
        ));
    }
    if !fields.iter().any(is_decoded) {
        return wrong(format!("{part} need the size of the image; add .decode()"));
    }
    for (at, transform) in pipeline.transforms.iter().enumerate() {
        let problem = if transform.mixes() {
            format!(
                "it mixes the pixels of two samples, and {part} would belong to one of them; remove it"
            )
        } else if transform.changes_geometry() && !transform.moves_points() {
            format!(
                "its padding repeats parts of the image, which {part} cannot follow; use \
                 padding_mode=\"constant\""
            )
        } else {
            continue;
        };
        return Err(Error::config(part_name(at, transform), problem));
    }
    Ok(())
}

/// Width and height.
pub(crate) fn sides(size: Size) -> [f64; 2] {
    [size.width.into(), size.height.into()]
}

/// Reads a number in little-endian order. Numbers that no float64 holds are not finite.
pub(crate) fn number_of(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::Float32 => bytes
            .try_into()
            .map_or(f64::NAN, |b| f32::from_le_bytes(b).into()),
        DType::Float64 => bytes.try_into().map_or(f64::NAN, f64::from_le_bytes),
        _ => dtype
            .integer(bytes)
            .map_or(f64::NAN, |integer| integer as f64),
    }
}
