//! Compares the boxes of records with their images, without decoding pixels.

use super::plan::{BoxesPlan, plans};
use crate::fields::failure::FieldError;
use crate::pipeline::Pipeline;
use infeed_codec::decode::{Decoder, ImageFrame, Limits};
use infeed_core::sample::{Field, FieldKind, Pixels, Record};

/// Part of a box that must be in the image, as a share of its area.
const INSIDE: f64 = 0.5;

/// Compares the boxes that a pipeline declares with the image of their record.
#[derive(Debug)]
pub struct BoxCheck {
    plans: Vec<BoxesPlan>,
    /// Index of the field with the image.
    image: usize,
    pixels: Pixels,
    decoder: Decoder,
    /// Whether the pipeline turns images by their EXIF orientation.
    orient: bool,
}

/// Number of boxes of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoxCount {
    /// All boxes.
    pub boxes: u64,
    /// Boxes with more than half of their area outside the image.
    pub outside: u64,
}

impl BoxCheck {
    /// Prepares the check of records with these fields. None if the pipeline declares no boxes for
    /// them, or cannot open.
    pub fn new(pipeline: &Pipeline, fields: &[Field]) -> Option<BoxCheck> {
        let mut pipeline = pipeline.clone();
        // Sources declare their boxes for decoded images.
        let orient = pipeline.decode.get_or_insert_default().orient;
        let (plans, _) = plans(&pipeline, fields, Vec::new(), false).ok()?;
        let (image, pixels) = fields.iter().enumerate().find_map(|(at, field)| {
            let (FieldKind::Image(pixels) | FieldKind::Mask(pixels)) = &field.kind else {
                return None;
            };
            Some((at, pixels.clone()))
        })?;
        (!plans.is_empty()).then(|| BoxCheck {
            plans,
            image,
            pixels,
            decoder: Decoder::new(),
            orient,
        })
    }

    /// Counts the boxes of a record. A record whose image has no valid header counts none.
    ///
    /// # Errors
    ///
    /// If the record has boxes that cannot be used.
    pub fn count(&mut self, record: &Record) -> Result<BoxCount, FieldError> {
        let frame = match &self.pixels {
            Pixels::Raw { size, .. } => ImageFrame::upright(*size),
            Pixels::Encoded => {
                let (file, limits) = (&record.fields[self.image], Limits::default());
                match self.decoder.header(file, self.orient, &limits) {
                    Ok(header) => header.frame(),
                    Err(_) => return Ok(BoxCount::default()),
                }
            }
        };
        let mut count = BoxCount::default();
        for plan in &self.plans {
            for moving in plan.moving(&record.fields, frame)? {
                count.boxes += 1;
                count.outside += u64::from(moving.visibility() < INSIDE);
            }
        }
        Ok(count)
    }
}
