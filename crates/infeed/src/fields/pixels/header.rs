//! An image or mask of one record: its header, and its steps, arranged.

use super::plan::{PixelPlan, RowPass};
use super::prepared_record::{self, PixelState};
use crate::fields::failure::{SampleError, StageFailure};
use crate::fields::steps::{FoldedSteps, fold};
use crate::pipeline::Decode;
use infeed_codec::decode::{DctScale, Decoder, Format, Header, ImageFrame, Limits, Request};
use infeed_codec::transform::{Filter, PixelView, Step, TransformError};
use infeed_core::sample::{Pixels, Region, Size};

/// A visual field of a record with its parsed header.
pub(crate) struct VisualField<'a> {
    /// Number of the record.
    pub(crate) record: u64,
    pub(crate) field: usize,
    pub(crate) plan: &'a PixelPlan,
    pub(crate) bytes: &'a [u8],
    /// `None` for pixels that need no decoding.
    pub(crate) header: Option<Header>,
    /// Size of the pixels in `bytes`, or of the file's image.
    pub(crate) size: Size,
    /// The image before any transform.
    pub(crate) frame: ImageFrame,
    /// Whether a device decodes the field, if its file is suitable.
    pub(crate) is_devices: bool,
}

/// The work on a visual field: which pixels are decoded, and the steps that follow.
pub(crate) struct ArrangedPixels {
    pub(crate) folded: FoldedSteps,
    /// `None` for pixels that need no decoding.
    pub(crate) request: Option<Request>,
}

impl<'a> VisualField<'a> {
    /// Reads the header of a visual field. `bytes` may end after the header.
    pub(crate) fn read(
        record: u64,
        (field, plan): (usize, &'a PixelPlan),
        mut bytes: &'a [u8],
        state: PixelState,
        decode: &Decode,
        decoder: &mut Decoder,
    ) -> Result<VisualField<'a>, StageFailure> {
        let failed = |error: SampleError| error.in_field(field);
        let (header, size, frame) = match (state, &plan.stored) {
            (PixelState::Prepared | PixelState::Computed, _) => {
                let found = prepared_record::pixels(bytes, plan.channels * plan.depth.bytes());
                let (size, frame, pixels) =
                    found.ok_or_else(|| failed(prepared_record::invalid_pixels_error()))?;
                bytes = pixels;
                (None, size, frame)
            }
            (PixelState::Stored, Pixels::Raw { size, .. }) => {
                (None, *size, ImageFrame::upright(*size))
            }
            (PixelState::Stored, Pixels::Encoded) => {
                let undecodable = |error| failed(SampleError::Decode(error));
                let limits = Limits {
                    max_pixels: decode.max_pixels,
                };
                let header = decoder.header(bytes, decode.orient, &limits);
                let header = header.map_err(undecodable)?;
                let (channels, depth) = header.output(plan.mode).map_err(undecodable)?;
                if (channels, depth) != (plan.channels, plan.depth) {
                    return Err(failed(SampleError::Shape {
                        found: format!("{channels} channels"),
                        expected: format!("{}", plan.channels),
                        fix: match plan.is_mask {
                            true => {
                                "set the palette of a colour mask, or decode this field as \
                                 \"rgb\" or \"gray\" with .decode()"
                            }
                            false => {
                                "decode this field as \"rgb\" or \"gray\" with .decode(), or \
                                 give all images the channels of the first one"
                            }
                        },
                    }));
                }
                let (size, frame) = (header.size, header.frame());
                (Some(header), size, frame)
            }
        };
        Ok(VisualField {
            record,
            field,
            plan,
            bytes,
            header,
            size,
            frame,
            is_devices: false,
        })
    }

    /// Arranges the drawn steps that the pixels still need.
    pub(crate) fn arrange(&self, steps: &[(usize, Step)], decode: &Decode) -> ArrangedPixels {
        let folded = fold(&self.plan.steps, steps, self.size);
        let request = self.request(&folded, decode);
        ArrangedPixels { folded, request }
    }

    fn request(&self, folded: &FoldedSteps, decode: &Decode) -> Option<Request> {
        let header = self.header.as_ref()?;
        let mut request = Request {
            mode: self.plan.mode,
            region: folded.region,
            orient: decode.orient,
            scale: DctScale::Full,
            verify: decode.verify,
        };
        if decode.dct_scale
            && header.format == Format::Jpeg
            && !self.plan.is_mask
            && let Some(Step::Resize {
                size,
                filter,
                antialias: true,
            }) = folded.middle.first()
            && *filter != Filter::Nearest
        {
            let scaled = |scale| scaled_region(folded.region, header.scaled_size(scale), scale);
            let covers = |&scale: &DctScale| {
                let region = scaled(scale).size;
                region.height >= size.height && region.width >= size.width
            };
            request.scale = DctScale::ALL.into_iter().find(covers).unwrap_or_default();
            request.region = scaled(request.scale);
        }
        Some(request)
    }

    /// Upper bound of working memory: decoding, and two images between which steps alternate.
    pub(crate) fn scratch_bytes(
        &self,
        ArrangedPixels { folded, request }: &ArrangedPixels,
        decoder: &Decoder,
    ) -> u64 {
        let decoded = match (request, &self.header) {
            (Some(request), Some(header)) => decoder.scratch_bytes(header, request),
            _ => 0,
        };
        let pixel =
            (self.plan.channels.max(self.plan.out_channels) * self.plan.depth.bytes()) as u64;
        let mut size = folded.region.size;
        let mut largest = 0;
        for step in &folded.middle {
            size = step.output_size(size);
            largest = size.pixels().max(largest);
        }
        let classes = match self.plan.finish {
            RowPass::Convert { .. } => 0,
            _ => folded.view.size.pixels() * 2,
        };
        decoded + 2 * largest * pixel + classes
    }

    /// Returns the same field of an image that needs no decoding, such as a canvas of this size.
    pub(crate) fn on_canvas(&self, pixels: &'a [u8], size: Size) -> VisualField<'a> {
        VisualField {
            bytes: pixels,
            header: None,
            size,
            frame: ImageFrame::upright(size),
            is_devices: false,
            ..*self
        }
    }

    /// Bytes of a decoded pixel.
    pub(crate) fn pixel_bytes(&self) -> usize {
        self.plan.channels * self.plan.depth.bytes()
    }

    pub(super) fn view(&self, region: Region) -> Result<PixelView<'a>, TransformError> {
        let row_bytes = self.size.width as usize * self.pixel_bytes();
        let plan = self.plan;
        PixelView::new(self.bytes, self.size, plan.channels, plan.depth, row_bytes)?.crop(region)
    }
}

/// Returns the region at a reduced scale, with edges rounded to the nearest pixel.
fn scaled_region(region: Region, scaled: Size, scale: DctScale) -> Region {
    let at = |edge: u64, limit: u32| {
        ((edge * u64::from(scale.eighths()) + 4) / 8).min(u64::from(limit)) as u32
    };
    let (top, left) = (
        at(region.top.into(), scaled.height),
        at(region.left.into(), scaled.width),
    );
    let (top, left) = (top.min(scaled.height - 1), left.min(scaled.width - 1));
    let (bottom, right) = (
        at(region.bottom(), scaled.height),
        at(region.right(), scaled.width),
    );
    let size = Size {
        height: (bottom - top.min(bottom)).max(1),
        width: (right - left.min(right)).max(1),
    };
    Region { top, left, size }
}
