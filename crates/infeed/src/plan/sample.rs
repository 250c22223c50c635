//! One sample on one thread: draws, decodes the needed region, transforms, and writes the row.

use std::ops::Range;
use std::sync::Arc;

use super::computed::KeptSample;
use super::failure::{SampleError, StageFailure};
use super::fold::{FoldedSteps, fold};
use super::masks::MaskScratch;
use super::moved::SampleImage;
use super::prepared::{self, PixelState};
use super::shared_tiles::SharedTiles;
use super::{FieldPlan, PixelPlan, Plan, RowPass, added, write};
use infeed_codec::decode::{
    DctScale, Decoder, Format, Header, ImageFrame, Loss, PixelTable, Request,
};
use infeed_codec::transform::{
    Filter, MovingBox, PixelView, Rng, Step, Transform, TransformError, TransformScratch, fuse,
};
use infeed_core::batch::{BatchRow, RowCell};
use infeed_core::counters::{Meter, Stage, ThreadCounters};
use infeed_core::sample::{Image, Pixels, Record, Region, Size};

/// A position in the order, which keys random draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Position in the epoch, from 0.
    pub position: u64,
}

/// Working memory of one worker. Buffers keep their capacity between samples.
#[derive(Debug)]
pub struct SampleScratch {
    pub(super) decoder: Decoder,
    pub(super) images: [Image; 2],
    pub(super) transform: TransformScratch,
    pub(super) classes: write::ClassScratch,
    /// Weight of a sample in the statistics of its stages: 1, or 0 for a partner, whose cost
    /// belongs to the sample that it is mixed into.
    pub counted: u64,
    /// Columns of a sample before the user functions.
    pub(super) row: BatchRow,
    /// Time by stage.
    pub meter: Meter,
    /// Planes of the masks of boxes.
    pub(super) masks: MaskScratch,
    /// Images and masks of a mosaic.
    pub(super) canvases: Vec<Image>,
    /// Tiles of mosaics that all workers share.
    pub(super) tiles: Arc<SharedTiles>,
    /// Buffer in which records are prepared for the cache.
    pub prepared: Vec<u8>,
    /// Number of decoder warnings about records that are still usable.
    pub warnings: u64,
    /// Data that decoded pixels do not have.
    pub losses: Vec<FieldLoss>,
    /// Pixels of unknown class in the masks of the last sample.
    pub unknown_pixels: u64,
}

impl SampleScratch {
    /// Creates empty buffers, and a meter for the calling thread.
    pub fn new() -> SampleScratch {
        SampleScratch {
            decoder: Decoder::new(),
            images: [Image::default(), Image::default()],
            transform: TransformScratch::default(),
            classes: write::ClassScratch::default(),
            counted: 1,
            row: BatchRow::default(),
            meter: Meter::new(infeed_raw::machine::thread_cpu_time),
            masks: MaskScratch::default(),
            canvases: Vec::new(),
            tiles: Arc::default(),
            prepared: Vec::new(),
            warnings: 0,
            losses: Vec::new(),
            unknown_pixels: 0,
        }
    }

    /// Uses the tiles of a loader from now on.
    pub(crate) fn with_tiles(self, tiles: &Arc<SharedTiles>) -> SampleScratch {
        let tiles = Arc::clone(tiles);
        SampleScratch { tiles, ..self }
    }

    /// Releases memory that large samples needed.
    pub fn shrink(&mut self) {
        self.decoder = Decoder::new();
        self.images = Default::default();
        self.transform = TransformScratch::default();
        self.classes = write::ClassScratch::default();
        self.row.cells.clear();
        self.masks = MaskScratch::default();
        self.canvases = Vec::new();
        self.prepared = Vec::new();
    }
}

impl Default for SampleScratch {
    fn default() -> SampleScratch {
        SampleScratch::new()
    }
}

/// Called with the bytes of working memory before their allocation; may block.
pub type AdmitMemory<'a> = &'a mut dyn FnMut(u64) -> Result<(), SampleError>;

/// Data of a field of a record that its decoded pixels do not have.
#[derive(Clone, Copy, Debug)]
pub struct FieldLoss {
    /// Number of the record.
    pub record: u64,
    /// Index of the field.
    pub field: usize,
    /// The lost data.
    pub loss: Loss,
}

/// A visual field of a record with its parsed header.
pub(super) struct VisualField<'a> {
    /// Number of the record.
    pub(super) record: u64,
    pub(super) field: usize,
    pub(super) plan: &'a PixelPlan,
    pub(super) bytes: &'a [u8],
    /// `None` for pixels that need no decoding.
    pub(super) header: Option<Header>,
    /// Size of the pixels in `bytes`, or of the file's image.
    pub(super) size: Size,
    /// The image before any transform.
    pub(super) frame: ImageFrame,
    /// Whether a device decodes the field, if its file is suitable.
    pub(super) is_devices: bool,
}

/// An image after the steps that were drawn for it so far.
pub(super) struct DrawnImage {
    /// Index of its field.
    pub(super) field: usize,
    pub(super) size: Size,
    /// Boxes, if draws depend on them.
    pub(super) boxes: Vec<MovingBox>,
    /// Steps, each with the index of its transform.
    pub(super) steps: Vec<(usize, Step)>,
}

impl DrawnImage {
    /// Adds a step of a transform.
    pub(super) fn add(&mut self, transform: usize, step: Step) {
        for one in &mut self.boxes {
            one.follow(&step, self.size);
        }
        self.size = step.output_size(self.size);
        self.steps.push((transform, step));
    }

    /// Fuses the steps from a number on whose transforms have at least this index. `size` is that of
    /// the image before these steps.
    fn fuse(&mut self, number: usize, index: usize, size: Size) {
        let mut own = self.steps.split_off(number);
        let kept = own.iter().take_while(|(transform, _)| *transform < index);
        let (kept, size) = kept.fold((0, size), |(kept, size), (_, step)| {
            (kept + 1, step.output_size(size))
        });
        let rest = own.split_off(kept);
        self.steps.append(&mut own);
        self.steps.append(&mut fuse(rest, size));
    }
}

impl Plan {
    /// Makes the sample of a record in its row.
    ///
    /// # Errors
    ///
    /// The error of the record, the same on every run. The row's content is then unspecified.
    pub fn run(
        &self,
        (record, state): (&Record, PixelState),
        at: Position,
        row: &mut BatchRow,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
        admit: AdmitMemory<'_>,
    ) -> Result<(), StageFailure> {
        self.run_keeping((record, state), at, row, None, scratch, counters, admit)
    }

    /// As [`Plan::run`]. Writes what a cache keeps of the sample to `keep`, if the plan keeps the
    /// results of functions.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn run_keeping(
        &self,
        (record, state): (&Record, PixelState),
        at: Position,
        row: &mut BatchRow,
        keep: Option<&mut Vec<u8>>,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
        admit: AdmitMemory<'_>,
    ) -> Result<(), StageFailure> {
        if state == PixelState::Computed {
            return self.run_computed(record, at, row, scratch, counters);
        }
        self.run_with(at, row, keep, scratch, counters, |row, scratch| {
            self.fill((record, state), at, row, scratch, counters, admit)
        })
    }

    /// Makes a row: `fill` writes the sample up to the user functions. Writes what a cache keeps of
    /// it to `keep`.
    pub(super) fn run_with<E: From<StageFailure>>(
        &self,
        at: Position,
        row: &mut BatchRow,
        keep: Option<&mut Vec<u8>>,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
        fill: impl FnOnce(&mut BatchRow, &mut SampleScratch) -> Result<(), E>,
    ) -> Result<(), E> {
        scratch.meter.start();
        if self.sample_calls().is_empty() {
            fill(row, scratch)?;
            added::measure(&self.lists, row);
            return Ok(());
        }
        let mut columns = std::mem::take(&mut scratch.row);
        for cell in &mut columns.cells {
            if let RowCell::Own { shape, bytes } = cell {
                shape.clear();
                bytes.clear();
            }
        }
        columns
            .cells
            .resize_with(self.columns.len(), || RowCell::Own {
                shape: Vec::new(),
                bytes: Vec::new(),
            });
        let filled = fill(&mut columns, scratch);
        let meter = &mut scratch.meter;
        let keep = keep.map(|bytes| KeptSample {
            bytes,
            unknown_pixels: scratch.unknown_pixels,
        });
        let made = filled.and_then(|()| {
            let called = self.through_functions(&mut columns, at, row, keep, meter, counters);
            called.map_err(E::from)
        });
        scratch.row = columns;
        made?;
        added::measure(&self.lists, row);
        Ok(())
    }

    /// Makes the sample of a record up to the user functions.
    pub(super) fn fill(
        &self,
        (record, state): (&Record, PixelState),
        at: Position,
        row: &mut BatchRow,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
        admit: AdmitMemory<'_>,
    ) -> Result<(), StageFailure> {
        scratch.unknown_pixels = 0;
        let fields = self.fields(row.form);
        let looked = self.look(record, state, fields, scratch)?;
        let drawn = self.draw(record, &looked, at)?;
        let missing = self.missing(&drawn, state);
        let mut arranged = Vec::with_capacity(looked.len());
        let mut needed = self.function_inputs(record, fields);
        let images = looked
            .first()
            .map(|first| SampleImage::new(record, first, &[]));
        let images = (images.as_slice(), &drawn[..]);
        needed += self.box_bytes(images);
        for look in &looked {
            let folded = fold(&look.plan.steps, missing, look.size);
            let request = self.request(look, &folded);
            needed += look.scratch_bytes(&folded, request.as_ref(), &scratch.decoder);
            needed += self.function_row(look, &folded);
            arranged.push((folded, request));
        }
        scratch.meter.lap(Stage::Decode, counters);
        admit(needed).map_err(|error| error.in_field(0))?;
        counters.waited(Stage::Decode, scratch.meter.skip());
        for (look, (folded, request)) in looked.iter().zip(&arranged) {
            self.make(look, folded, request.as_ref(), row, scratch, counters)?;
        }
        self.write_others(record, fields, row)?;
        self.write_boxes(images, &mut row.cells, scratch)?;
        counters.count(Stage::Write, scratch.counted, 0, 0);
        scratch.meter.lap(Stage::Write, counters);
        scratch.meter.settle(counters);
        Ok(())
    }

    /// Bytes of the fields that user functions get, images aside, and of the functions' values.
    pub(super) fn function_inputs(&self, record: &Record, fields: &[FieldPlan]) -> u64 {
        if self.sample_calls().is_empty() {
            return 0;
        }
        let copied = record.fields.iter().zip(fields);
        let copied = copied.filter(|(_, plan)| !matches!(plan, FieldPlan::Pixels(_)));
        let copied = copied.map(|(bytes, _)| bytes.len() as u64).sum::<u64>();
        copied + self.function_bytes()
    }

    /// Bytes of the row of a visual field that user functions get.
    pub(super) fn function_row(&self, look: &VisualField<'_>, folded: &FoldedSteps) -> u64 {
        match self.sample_calls().is_empty() {
            true => 0,
            false => look.plan.row_bytes(folded.view.size),
        }
    }

    /// Writes the fields of a record that are neither images nor boxes.
    pub(super) fn write_others(
        &self,
        record: &Record,
        fields: &[FieldPlan],
        row: &mut BatchRow,
    ) -> Result<(), StageFailure> {
        for ((field, bytes), cell) in record.fields.iter().enumerate().zip(&mut row.cells) {
            match &fields[field] {
                FieldPlan::Pixels(_) | FieldPlan::Boxed => {}
                FieldPlan::Copy | FieldPlan::Own => copy(field, bytes, cell)?,
                FieldPlan::Soft(label) => {
                    label
                        .write(bytes, cell)
                        .map_err(|error| error.in_field(field))?;
                }
            }
        }
        Ok(())
    }

    /// Reads headers and checks that each record is complete, even if only a part of it is used.
    pub(super) fn look<'a>(
        &'a self,
        record: &'a Record,
        state: PixelState,
        fields: &'a [FieldPlan],
        scratch: &mut SampleScratch,
    ) -> Result<Vec<VisualField<'a>>, StageFailure> {
        let mut looked: Vec<VisualField<'a>> = Vec::with_capacity(record.fields.len());
        for (field, (plan, bytes)) in fields.iter().zip(&record.fields).enumerate() {
            let FieldPlan::Pixels(plan) = plan else {
                continue;
            };
            let failed = |error: SampleError| error.in_field(field);
            let look = self.visual(
                record.index,
                (field, plan),
                bytes,
                state,
                &mut scratch.decoder,
            )?;
            if let Some(header) = &look.header {
                let checked = scratch
                    .decoder
                    .check(look.bytes, header, self.decode.verify);
                checked.map_err(|error| failed(SampleError::Decode(error)))?;
            }
            let size = look.size;
            if let Some(first) = looked.first()
                && first.size != size
                && self.transforms.iter().any(Transform::changes_geometry)
            {
                return Err(failed(SampleError::Shape {
                    found: format!("{size} px"),
                    expected: format!("{} px, the size of `{}`", first.size, first.plan.name),
                    fix: "an image and its mask must have the same size",
                }));
            }
            looked.push(look);
        }
        Ok(looked)
    }

    /// Reads the header of a visual field. `bytes` may end after the header.
    pub(super) fn visual<'a>(
        &'a self,
        record: u64,
        (field, plan): (usize, &'a PixelPlan),
        mut bytes: &'a [u8],
        state: PixelState,
        decoder: &mut Decoder,
    ) -> Result<VisualField<'a>, StageFailure> {
        let failed = |error: SampleError| error.in_field(field);
        let (header, size, frame) = match (state, &plan.stored) {
            (PixelState::Prepared | PixelState::Computed, _) => {
                let found = prepared::pixels(bytes, plan.channels * plan.depth.bytes());
                let (size, frame, pixels) = found.ok_or_else(|| failed(prepared::damaged()))?;
                bytes = pixels;
                (None, size, frame)
            }
            (PixelState::Stored, Pixels::Raw { size, .. }) => {
                (None, *size, ImageFrame::upright(*size))
            }
            (PixelState::Stored, Pixels::Encoded) => {
                let decode = |error| failed(SampleError::Decode(error));
                let header = decoder.header(bytes, self.decode.orient, &self.limits);
                let header = header.map_err(decode)?;
                let (channels, depth) = header.output(plan.mode).map_err(decode)?;
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
            is_devices: plan.leaves_files && self.is_devices(record),
        })
    }

    /// Draws every random parameter, from sizes and boxes alone. Returns the steps, each with the
    /// index of its transform.
    pub(super) fn draw(
        &self,
        record: &Record,
        looked: &[VisualField<'_>],
        at: Position,
    ) -> Result<Vec<(usize, Step)>, StageFailure> {
        let Some(first) = looked.first() else {
            return Ok(Vec::new());
        };
        let mut drawn = self.undrawn(record, first)?;
        self.draw_more(0..self.transforms.len(), at, &mut drawn)?;
        Ok(drawn.steps)
    }

    /// Returns the image of a record before any step, with its boxes if draws depend on them.
    pub(super) fn undrawn(
        &self,
        record: &Record,
        first: &VisualField<'_>,
    ) -> Result<DrawnImage, StageFailure> {
        let mut boxes = Vec::new();
        if self.transforms.iter().any(Transform::needs_boxes) {
            for plan in &self.boxes {
                boxes.extend(plan.start(&record.fields, first.frame)?);
            }
        }
        Ok(DrawnImage {
            field: first.field,
            size: first.frame.size,
            boxes,
            steps: Vec::new(),
        })
    }

    /// Draws the steps of some transforms.
    pub(super) fn draw_more(
        &self,
        transforms: Range<usize>,
        at: Position,
        drawn: &mut DrawnImage,
    ) -> Result<(), StageFailure> {
        let (first, size) = (drawn.steps.len(), drawn.size);
        for number in transforms {
            let transform = &self.transforms[number];
            let mut rng = Rng::new(self.seed, at.epoch, at.position, number as u64);
            let left = drawn.boxes.iter().filter(|one| one.is_left());
            let boxes: Vec<[f64; 4]> = left.map(MovingBox::visible).collect();
            let steps = transform
                .draw_around(drawn.size, &boxes, &mut rng)
                .map_err(|error| StageFailure {
                    field: drawn.field,
                    transform: Some(transform.name()),
                    error: SampleError::Transform(error),
                })?;
            steps.into_iter().for_each(|step| drawn.add(number, step));
        }
        if let Some(index) = self.fuses_from {
            drawn.fuse(first, index, size);
        }
        Ok(())
    }

    pub(super) fn request(&self, look: &VisualField<'_>, folded: &FoldedSteps) -> Option<Request> {
        let header = look.header.as_ref()?;
        let mut request = Request {
            mode: look.plan.mode,
            region: folded.region,
            orient: self.decode.orient,
            scale: DctScale::Full,
            verify: self.decode.verify,
        };
        if self.decode.dct_scale
            && header.format == Format::Jpeg
            && !look.plan.is_mask
            && let Some(Step::Resize {
                size,
                filter,
                antialias: true,
            }) = folded.middle.first()
            && *filter != Filter::Nearest
        {
            let scaled = |scale| scaled_region(folded.region, header.scaled(scale), scale);
            let covers = |&scale: &DctScale| {
                let region = scaled(scale).size;
                region.height >= size.height && region.width >= size.width
            };
            request.scale = DctScale::ALL.into_iter().find(covers).unwrap_or_default();
            request.region = scaled(request.scale);
        }
        Some(request)
    }

    /// Decodes, transforms and writes one visual field.
    pub(super) fn make(
        &self,
        look: &VisualField<'_>,
        folded: &FoldedSteps,
        request: Option<&Request>,
        row: &mut BatchRow,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
    ) -> Result<(), StageFailure> {
        let failed = |error: SampleError| error.in_field(look.field);
        if let (Some(request), RowCell::Slab(cell)) = (request, &mut row.cells[look.field])
            && let Some(bytes) = look.leave_file(folded, request, cell.bytes_mut())
        {
            counters.count(Stage::Write, 0, bytes, bytes);
            scratch.meter.lap(Stage::Write, counters);
            return Ok(());
        }
        let cell = &mut row.cells[look.field];
        let (unknown, bytes_in) = self.with_pixels(
            look,
            folded,
            request,
            scratch,
            counters,
            true,
            |view, pixels, classes| {
                let (flips, erase) = (folded.flips, &folded.erase);
                let unknown = look.plan.write(view, pixels, flips, erase, cell, classes);
                let bytes_in = view.height() * view.width() * view.pixel_bytes();
                Ok((unknown.map_err(failed)?, bytes_in as u64))
            },
        )?;
        scratch.unknown_pixels += unknown;
        counters.count(Stage::Write, 0, bytes_in, cell_bytes(cell));
        scratch.meter.lap(Stage::Write, counters);
        Ok(())
    }

    /// Decodes one visual field, runs the steps that need a pass, and passes the region to write to
    /// `write`. If `writes_row`, a device may resize afterwards, and the region may hold positions in
    /// a table of pixels, which `write` gets too.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn with_pixels<T>(
        &self,
        look: &VisualField<'_>,
        folded: &FoldedSteps,
        request: Option<&Request>,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
        writes_row: bool,
        write: impl FnOnce(
            PixelView<'_>,
            Option<&PixelTable>,
            &mut write::ClassScratch,
        ) -> Result<T, StageFailure>,
    ) -> Result<T, StageFailure> {
        let failed = |error: SampleError| error.in_field(look.field);
        let [first, second] = &mut scratch.images;
        let (mut current, mut other) = (first, second);
        let mut pixels = None;
        let raw = match (request, &look.header) {
            (Some(request), Some(header)) => {
                let decoder = &mut scratch.decoder;
                let decode = |error| failed(SampleError::Decode(error));
                if writes_row && look.plan.takes_positions(folded) {
                    pixels = decoder
                        .decode_positions(look.bytes, header, request, current)
                        .map_err(decode)?;
                }
                if pixels.is_none() {
                    let warnings = decoder
                        .decode(look.bytes, header, request, current)
                        .map_err(decode)?;
                    scratch.warnings += u64::from(warnings);
                    let (record, field) = (look.record, look.field);
                    let losses = decoder.losses().map(|loss| FieldLoss {
                        record,
                        field,
                        loss,
                    });
                    scratch.losses.extend(losses);
                }
                let out = current.data.len() as u64;
                counters.count(Stage::Decode, scratch.counted, look.bytes.len() as u64, out);
                scratch.meter.lap(Stage::Decode, counters);
                None
            }
            _ => Some(
                look.view(folded.region)
                    .map_err(|e| failed(SampleError::Transform(e)))?,
            ),
        };
        // Raw pixels are read in place until a step copies them.
        let mut raw = raw;
        let size = raw.as_ref().map_or(current.size, PixelView::size);
        let shorter;
        let folded = if writes_row && look.plan.resized_behind(folded, size) {
            shorter = folded.without_middle(size);
            &shorter
        } else {
            folded
        };
        for step in &folded.middle {
            let is_mask = look.plan.is_mask;
            let input = raw.take().unwrap_or_else(|| PixelView::from(&*current));
            let bytes_in = (input.height() * input.width() * input.pixel_bytes()) as u64;
            step.apply(input, other, is_mask, &mut scratch.transform)
                .map_err(|error| StageFailure {
                    field: look.field,
                    transform: Some(step.name()),
                    error: SampleError::Transform(error),
                })?;
            counters.count(Stage::Transform, 0, bytes_in, other.data.len() as u64);
            std::mem::swap(&mut current, &mut other);
        }
        if !folded.middle.is_empty() {
            counters.count(Stage::Transform, scratch.counted, 0, 0);
            scratch.meter.lap(Stage::Transform, counters);
        }
        let whole = raw.unwrap_or_else(|| PixelView::from(&*current));
        let view = whole
            .crop(folded.view)
            .map_err(|e| failed(SampleError::Transform(e)))?;
        write(view, pixels.as_ref(), &mut scratch.classes)
    }
}

impl<'a> VisualField<'a> {
    /// Upper bound of working memory: decoding, and two images between which steps alternate.
    pub(super) fn scratch_bytes(
        &self,
        folded: &FoldedSteps,
        request: Option<&Request>,
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

    /// Bytes of a decoded pixel.
    pub(super) fn pixel_bytes(&self) -> usize {
        self.plan.channels * self.plan.depth.bytes()
    }

    fn view(&self, region: Region) -> Result<PixelView<'a>, TransformError> {
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

/// Copies the bytes of a field to its cell.
pub(super) fn copy(field: usize, bytes: &[u8], cell: &mut RowCell) -> Result<(), StageFailure> {
    match cell {
        RowCell::Slab(row) => {
            let to = row.bytes_mut();
            if to.len() != bytes.len() {
                let error = SampleError::Shape {
                    found: format!("{} bytes", bytes.len()),
                    expected: format!("{}", to.len()),
                    fix: "every record must have the shape its source declares",
                };
                return Err(error.in_field(field));
            }
            to.copy_from_slice(bytes);
        }
        RowCell::Own { bytes: to, .. } => {
            to.clear();
            to.extend_from_slice(bytes);
        }
    }
    Ok(())
}

pub(super) fn cell_bytes(cell: &RowCell) -> u64 {
    match cell {
        RowCell::Slab(row) => row.bytes().len() as u64,
        RowCell::Own { bytes, .. } => bytes.len() as u64,
    }
}
