//! Samples of several records: `Mosaic` and `CopyPaste`.
//!
//! Each record is decoded and transformed up to the joining transform as at its own position. The
//! result is an image without a decoder for the transforms that follow.

use std::ops::Range;

use super::boxes::BoxesPlan;
use super::copy_paste::{self, CopyPastePlan};
use super::failure::{SampleError, StageFailure};
use super::fold::{Flips, FoldedSteps, fold};
use super::mosaic::{MosaicPlan, TileFailure, TileRecord, paste};
use super::points::PointsPlan;
use super::prepared::PixelState;
use super::preview::PreviewStage;
use super::sample::{AdmitMemory, DrawnImage, Position, SampleScratch, VisualField};
use super::{Plan, place};
use crate::pipeline::Pipeline;
use infeed_codec::decode::{ImageFrame, Request};
use infeed_codec::transform::{
    CopyPasteDraw, MosaicDraw, PixelView, Rng, Step, Transform, TransformError,
};
use infeed_core::batch::BatchRow;
use infeed_core::counters::{Stage, ThreadCounters};
use infeed_core::error::Error;
use infeed_core::sample::{Image, Record, Region, Size};

/// The transform that makes samples of several records.
#[derive(Clone, Debug)]
pub(super) enum JoinPlan {
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

/// An image of a joined sample with its drawn steps.
pub(super) struct DrawnTile {
    /// The image at its location in the canvas.
    pub(super) image: DrawnImage,
    /// Number of the steps up to the whole tile, and up to its visible pixels. The rest moves these to
    /// their location.
    pub(super) whole: usize,
    pub(super) visible: usize,
    /// The visible pixels in the whole tile, and their location in the canvas.
    pub(super) from: Region,
    pub(super) region: Region,
}

/// A record on its way into the canvas.
pub(super) struct ArrangedTile<'a> {
    pub(super) looked: Vec<VisualField<'a>>,
    pub(super) drawn: DrawnTile,
    /// The steps of each field.
    pub(super) arranged: Vec<ArrangedField>,
}

/// A field of a record on its way into the canvas.
pub(super) struct ArrangedField {
    /// The steps up to the whole tile.
    pub(super) folded: FoldedSteps,
    pub(super) request: Option<Request>,
    /// The needed pixels in the canvas. `None` if no pixel is needed.
    pub(super) region: Option<Region>,
}

impl<'a> ArrangedTile<'a> {
    /// Returns a record whose pixels are not arranged yet.
    pub(super) fn new(looked: Vec<VisualField<'a>>, drawn: DrawnTile) -> ArrangedTile<'a> {
        let arranged = Vec::with_capacity(looked.len());
        ArrangedTile {
            looked,
            drawn,
            arranged,
        }
    }

    /// Copies the needed pixels of a tile to the canvases.
    pub(super) fn paste(&self, tile: &[Image], canvases: &mut [Image]) -> Result<(), StageFailure> {
        let DrawnTile { from, region, .. } = self.drawn;
        let fields = self.looked.iter().zip(&self.arranged).zip(tile);
        for (((look, field), image), canvas) in fields.zip(canvases) {
            let Some(needed) = field.region else {
                continue;
            };
            let needed_in_tile = Region {
                top: from.top + needed.top - region.top,
                left: from.left + needed.left - region.left,
                size: needed.size,
            };
            let view = PixelView::from(image).crop(needed_in_tile);
            let view = view.map_err(|error| failed(look.field, "Mosaic", error))?;
            paste(view, Flips::default(), needed, canvas);
        }
        Ok(())
    }
}

/// Checks the joining transform of a pipeline.
pub(super) fn plan(
    pipeline: &Pipeline,
    boxes: &[BoxesPlan],
    points: &[PointsPlan],
) -> Result<Option<JoinPlan>, Error> {
    let all = || pipeline.transforms.iter().enumerate();
    let joins =
        |transform: &Transform| transform.mosaic().is_some() || transform.copy_paste().is_some();
    let mut joining = all().filter(|(_, transform)| joins(transform));
    let Some((number, transform)) = joining.next() else {
        return Ok(None);
    };
    let name = transform.name();
    let wrong = |at: usize, problem: String| {
        Err(Error::config(place(at, &pipeline.transforms[at]), problem))
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
    match copy_paste::problem(boxes, points, rest) {
        Some(problem) => wrong(number, problem),
        None => Ok(Some(JoinPlan::CopyPaste(CopyPastePlan {
            number,
            copy_paste: copy_paste.clone(),
        }))),
    }
}

impl Plan {
    /// Whether samples are made of several images.
    pub(crate) fn joins(&self) -> bool {
        self.join.is_some()
    }

    /// Draws the partners of a position: a function of the seed, epoch, position and the positions
    /// in `near`. None if its image is alone.
    pub fn join(&self, at: Position, near: impl FnOnce() -> Range<u64>) -> Option<JoinDraw> {
        let rng = |number: usize| Rng::new(self.seed, at.epoch, at.position, number as u64);
        match self.join.as_ref()? {
            JoinPlan::Mosaic(MosaicPlan { number, mosaic }) => mosaic
                .draw_partners(at.position, near, &mut rng(*number))
                .map(JoinDraw::Mosaic),
            JoinPlan::CopyPaste(CopyPastePlan { number, copy_paste }) => copy_paste
                .draw_partner(at.position, near, &mut rng(*number))
                .map(JoinDraw::CopyPaste),
        }
    }

    /// Makes the sample of several records in its row. The first one is the sample's own: fields that
    /// are neither images nor boxes are copied from it.
    ///
    /// # Errors
    ///
    /// The error of a record, the same on every run. The row's content is then unspecified.
    pub fn run_joined(
        &self,
        tiles: &[TileRecord<'_>],
        drawn: &JoinDraw,
        row: &mut BatchRow,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
        admit: AdmitMemory<'_>,
    ) -> Result<(), TileFailure> {
        let TileRecord { record, state, at } = tiles[0];
        let Some(own) = &self.join else {
            return Ok(self.run((record, state), at, row, scratch, counters, admit)?);
        };
        let mut canvases = std::mem::take(&mut scratch.canvases);
        let made = self.run_with(at, row, None, scratch, counters, |row, scratch| {
            match (own, drawn) {
                (JoinPlan::Mosaic(own), JoinDraw::Mosaic(drawn)) => {
                    let (mosaic, buffers) = ((own, drawn), &mut canvases);
                    self.fill_mosaic(tiles, mosaic, row, buffers, scratch, counters, admit)
                }
                (JoinPlan::CopyPaste(own), JoinDraw::CopyPaste(drawn)) => {
                    let (paste, buffers) = ((own, drawn), &mut canvases);
                    self.fill_pasted(tiles, paste, row, buffers, scratch, counters, admit)
                }
                _ => Ok(self.fill((record, state), at, row, scratch, counters, admit)?),
            }
        });
        // The cost of the partners belongs to the sample.
        scratch.counted = 1;
        scratch.canvases = canvases;
        made
    }

    /// Runs the records of a joined sample through every stage. Up to the joining transform, the
    /// stages are those of the first record.
    ///
    /// # Errors
    ///
    /// As [`Plan::run_joined`].
    pub fn preview_joined(
        &self,
        records: &[(&Record, Position)],
        drawn: &JoinDraw,
        scratch: &mut SampleScratch,
    ) -> Result<Vec<PreviewStage>, TileFailure> {
        match (&self.join, drawn) {
            (Some(JoinPlan::Mosaic(own)), JoinDraw::Mosaic(drawn)) => {
                self.preview_mosaic(records, (own, drawn), scratch)
            }
            (Some(JoinPlan::CopyPaste(own)), JoinDraw::CopyPaste(drawn)) => {
                self.preview_pasted(records, (own, drawn), scratch)
            }
            _ => Ok(self.preview(records[0].0, records[0].1, scratch)?),
        }
    }

    /// Arranges the steps of a record's pixels, of which the canvas of each field needs those of a
    /// region. Returns the bytes of working memory.
    pub(super) fn arrange_tile(
        &self,
        part: &mut ArrangedTile<'_>,
        state: PixelState,
        needed: &[Region],
        scratch: &SampleScratch,
    ) -> u64 {
        let steps = self.missing(&part.drawn.image.steps[..part.drawn.whole], state);
        let mut bytes = 0;
        for (look, needed) in part.looked.iter().zip(needed) {
            let folded = fold(&look.plan.steps, steps, look.size);
            let request = self.request(look, &folded);
            bytes += look.scratch_bytes(&folded, request.as_ref(), &scratch.decoder);
            part.arranged.push(ArrangedField {
                folded,
                request,
                region: common(part.drawn.region, *needed),
            });
        }
        bytes
    }

    /// Decodes the fields of a record and makes the images of its whole tile.
    pub(super) fn make_tile(
        &self,
        part: &ArrangedTile<'_>,
        images: &mut Vec<Image>,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
    ) -> Result<(), StageFailure> {
        images.resize_with(part.looked.len(), Image::default);
        for ((look, field), image) in part.looked.iter().zip(&part.arranged).zip(images) {
            let (folded, request) = (&field.folded, field.request.as_ref());
            let copy = |view: PixelView<'_>, image: &mut Image| {
                let size = view.size();
                // A list that doubles its memory would exceed the bytes of a tile.
                image.data.clear();
                let bytes = size.pixels() as usize * view.pixel_bytes();
                image.data.reserve_exact(bytes);
                image.reset(size, view.channels(), view.depth());
                paste(view, folded.flips, size.whole(), image);
            };
            self.with_pixels(
                look,
                folded,
                request,
                scratch,
                counters,
                false,
                |view, _, _| {
                    copy(view, image);
                    Ok(())
                },
            )?;
            scratch.meter.lap(Stage::Transform, counters);
        }
        Ok(())
    }

    /// Draws the steps after the joining transform, whose result of these images has this size.
    pub(super) fn draw_after<'a>(
        &self,
        number: usize,
        size: Size,
        images: impl Iterator<Item = &'a DrawnImage>,
        at: Position,
    ) -> Result<Vec<(usize, Step)>, StageFailure> {
        let mut canvas = DrawnImage {
            field: 0,
            size,
            boxes: Vec::new(),
            steps: Vec::new(),
        };
        for image in images {
            canvas.field = image.field;
            canvas.boxes.extend_from_slice(&image.boxes);
        }
        self.draw_more(number + 1..self.transforms.len(), at, &mut canvas)?;
        Ok(canvas.steps)
    }
}

/// Returns the region that two regions share. None if there is none.
fn common(a: Region, b: Region) -> Option<Region> {
    let range = |[a, b]: [u32; 2], ends: [u64; 2]| {
        let (first, end) = (a.max(b), ends[0].min(ends[1]));
        (u64::from(first) < end).then(|| (first, (end - u64::from(first)) as u32))
    };
    let (left, width) = range([a.left, b.left], [a.right(), b.right()])?;
    let (top, height) = range([a.top, b.top], [a.bottom(), b.bottom()])?;
    let size = Size { height, width };
    Some(Region { top, left, size })
}

/// Returns a failure of the joining transform.
pub(super) fn failed(field: usize, transform: &'static str, error: TransformError) -> StageFailure {
    StageFailure {
        field,
        transform: Some(transform),
        error: SampleError::Transform(error),
    }
}

/// Returns a field whose image is the canvas.
pub(super) fn on_canvas<'a>(
    look: &VisualField<'a>,
    pixels: &'a [u8],
    drawn: &DrawnTile,
) -> VisualField<'a> {
    let size = drawn.image.size;
    VisualField {
        record: look.record,
        field: look.field,
        plan: look.plan,
        bytes: pixels,
        header: None,
        size,
        frame: ImageFrame::upright(size),
        is_devices: false,
    }
}
