//! Upper bounds of the memory for the sample of a record, from its header.

use crate::fields::kind::DrawnSample;
use crate::fields::moving::{SampleImage, SampleImages};
use crate::fields::pixels::header::{ArrangedPixels, VisualField};
use crate::fields::pixels::prepared_record::PixelState;
use crate::fields::scratch::Position;
use crate::fields::steps::{FoldedSteps, fold};
use crate::plan::SamplePlan;
use crate::plan::draws::DrawnImage;
use crate::plan::join::JoinPlan;
use infeed_codec::decode::{DctScale, Decoder, ImageFrame, Request};
use infeed_codec::transform::Step;
use infeed_core::sample::{Pixels, Record, Region, Size};

/// Images between which the steps on a mosaic's canvas alternate, and the canvas.
const CANVASES: u64 = 3;

/// Bytes of memory for one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleBytes {
    /// Working memory.
    pub(crate) scratch: u64,
    /// The row, as far as it is outside slabs.
    pub(crate) row: u64,
}

/// Steps of an image: each with the index of its transform.
type DrawnSteps = Vec<(usize, Step)>;

impl SamplePlan {
    /// Whether the memory for a sample depends on its record: an image is decoded, or a row is
    /// outside slabs.
    pub(crate) fn needs_record_sizes(&self) -> bool {
        self.has_own_cells() || self.encoded_fields().next().is_some()
    }

    /// Whether [`SamplePlan::sample_bytes`] needs whole records, and not only the headers of images: rows
    /// hold the masks of boxes, or copies of fields of any length, or a field has the size of an image.
    pub(crate) fn needs_record_contents(&self) -> bool {
        !self.sizes.is_empty() || self.kinds.iter().any(|plan| plan.needs_contents())
    }

    /// Fields of encoded images and masks.
    pub(crate) fn encoded_fields(&self) -> impl Iterator<Item = usize> {
        let fields = self.pixels.iter().enumerate();
        let pixels = fields.filter_map(|(field, plan)| Some((field, plan.as_ref()?)));
        let encoded = pixels.filter(|(_, plan)| plan.stored == Pixels::Encoded);
        encoded.map(|(field, _)| field)
    }

    /// Whether the sizes of rows depend on functions.
    pub(crate) fn calls_functions(&self) -> bool {
        !self.sample_calls().is_empty()
    }

    /// Number of records that a row needs.
    pub(crate) fn records_per_row(&self) -> u64 {
        self.join.as_ref().map_or(1, JoinPlan::records)
    }

    /// Number of records whose fields a sample has at once.
    fn records_at_once(&self) -> u64 {
        match &self.join {
            // One row is made after the other.
            Some(JoinPlan::Mix(_)) => 1,
            _ => self.records_per_row(),
        }
    }

    /// Returns an upper bound of the memory for the sample of a record at a position. Its images may
    /// end after their headers. Without `has_contents`, fields that are in no file may be empty. Random sizes are
    /// those of this position. None if the record is bad.
    pub(crate) fn sample_bytes(
        &self,
        record: &Record,
        has_contents: bool,
        at: Position,
        decoder: &mut Decoder,
    ) -> Option<SampleBytes> {
        let mut visual: Vec<VisualField<'_>> = Vec::new();
        let (mut scratch, mut row) = (self.function_inputs(record, 0), 0_u64);
        for (field, (pixels, bytes)) in self.pixels.iter().zip(&record.fields).enumerate() {
            if let Some(pixels) = pixels {
                let (record, state) = (record.index, PixelState::Stored);
                let field = (field, pixels);
                let found = VisualField::read(record, field, bytes, state, &self.decode, decoder);
                visual.push(found.ok()?);
            }
        }
        let Some(first) = visual.first() else {
            let (kinds, row) = self.kind_needs(record, at, (&[], &[]));
            scratch = scratch.saturating_add(kinds);
            return Some(SampleBytes { scratch, row });
        };
        let (steps, canvas) = self.steps_alone(record, first, has_contents, at)?;
        for field in &visual {
            let folded = fold(&field.plan.steps, &steps, field.size);
            let request = field.header.as_ref().map(|header| Request {
                mode: field.plan.mode,
                // Other draws may need more of the image.
                region: Region {
                    top: 0,
                    left: 0,
                    size: header.size,
                },
                orient: self.decode.orient,
                scale: DctScale::Full,
                verify: self.decode.verify,
            });
            let pixels = ArrangedPixels { folded, request };
            let bytes = field.scratch_bytes(&pixels, decoder);
            scratch = scratch.saturating_add(bytes);
            scratch = scratch.saturating_add(self.function_row(field, &pixels.folded));
            let mut size = pixels.folded.view.size;
            if let Some((canvas, after)) = &canvas {
                let bytes = canvas.pixels() * field.pixel_bytes() as u64;
                scratch = scratch.saturating_add(bytes.saturating_mul(CANVASES));
                size = fold(&field.plan.steps, after, *canvas).view.size;
            }
            if self.is_own(field.field) {
                row = row.saturating_add(field.plan.row_bytes(size));
            }
        }
        let mut image = SampleImage::new(record, first.frame, &[]);
        let mut shared = &steps;
        if let Some((canvas, after)) = &canvas {
            (image.frame, shared) = (ImageFrame::upright(*canvas), after);
        }
        let images = [image];
        let images = match has_contents {
            true => (&images[..], &shared[..]),
            false => (&[][..], &[][..]),
        };
        let (kinds, kind_rows) = self.kind_needs(record, at, images);
        scratch = scratch.saturating_add(kinds);
        row = row.saturating_add(kind_rows);
        if let Some(JoinPlan::CopyPaste(_) | JoinPlan::ImageMixUp(_)) = &self.join {
            // Both images exist at once.
            scratch = scratch.saturating_mul(2);
        }
        scratch = scratch.saturating_add(self.mixed_row_bytes());
        Some(SampleBytes { scratch, row })
    }

    /// Bytes of the fields that user functions get, images aside, and of the functions' values.
    pub(super) fn function_inputs(&self, record: &Record, layout: usize) -> u64 {
        if self.sample_calls().is_empty() {
            return 0;
        }
        let copied = record.fields.iter().zip(self.pixels_of(layout));
        let copied = copied.filter(|(_, pixels)| pixels.is_none());
        let copied = copied.map(|(bytes, _)| bytes.len() as u64).sum::<u64>();
        copied + self.function_bytes()
    }

    /// Bytes of the row of a visual field that user functions get.
    pub(super) fn function_row(&self, visual: &VisualField<'_>, folded: &FoldedSteps) -> u64 {
        match self.sample_calls().is_empty() {
            true => 0,
            false => visual.plan.row_bytes(folded.view.size),
        }
    }

    /// Whether the rows of a field are outside slabs.
    fn is_own(&self, field: usize) -> bool {
        let column = self.columns.get(field);
        column.is_some_and(|column| column.kind.row_bytes().is_none())
    }

    /// Returns upper bounds of the working memory and of the rows outside slabs for the fields that
    /// are no images, of all records of a sample.
    fn kind_needs(&self, record: &Record, at: Position, images: SampleImages<'_>) -> (u64, u64) {
        let sample = DrawnSample {
            record,
            seed: self.seed,
            at,
            images,
        };
        let count = self.records_at_once();
        let (mut scratch, mut row) = (0_u64, 0_u64);
        for plan in &self.kinds {
            let bytes = plan.scratch_bytes(&sample).saturating_mul(count);
            scratch = scratch.saturating_add(bytes);
            row = row.saturating_add(plan.row_bytes(&sample).saturating_mul(count));
        }
        (scratch, row)
    }

    /// Draws the steps of an image as if it were the only one of its sample. For a mosaic, also
    /// returns the size of the canvas and the steps on it.
    fn steps_alone(
        &self,
        record: &Record,
        first: &VisualField<'_>,
        has_contents: bool,
        at: Position,
    ) -> Option<(DrawnSteps, Option<(Size, DrawnSteps)>)> {
        let empty = |size| DrawnImage {
            field: first.field,
            size,
            boxes: Vec::new(),
            sizes: Vec::new(),
            steps: Vec::new(),
        };
        let mut drawn = match has_contents {
            true => self.undrawn(record, first.field, first.frame).ok()?,
            false => empty(first.frame.size),
        };
        let all = self.transforms.len();
        let Some(mosaic) = self.mosaic() else {
            self.draw_more(0..all, at, &mut drawn).ok()?;
            return Some((drawn.steps, None));
        };
        self.draw_more(0..mosaic.number, at, &mut drawn).ok()?;
        let size = mosaic.mosaic.size.square();
        let after = self.draw_joined(mosaic.number + 1..all, size, std::iter::empty(), at);
        Some((drawn.steps, Some((size, after.ok()?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maker::memory::SampleMemory;
    use crate::maker::{SampleMaker, SampleRecord};
    use crate::pipeline::{BoxesSpec, Pipeline, SourceSpec};
    use bytes::Bytes;
    use infeed_codec::transform::{
        BoxFormat, CenterCrop, CopyPaste, CutMix, ImageMixUp, MirroredPaste, MixUp, Mosaic,
        RandomResizedCrop, RandomRotation, ScaleJitter, Transform,
    };
    use infeed_core::batch::RowCell;
    use infeed_core::exec::budget::BytePool;
    use infeed_core::sample::{Depth, Image};
    use infeed_sample::{Subsampling, jpeg, png};
    use infeed_source::{Source, read_one};
    use std::fs;
    use tempfile::TempDir;

    /// Eight photographs of different sizes with outlines for LabelMe.
    fn write_outlined_images() -> TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        for n in 0..8_u32 {
            let (height, width) = (40 + 13 * n, 150 - 11 * n);
            let mut image = Image::default();
            image.reset(Size { height, width }, 3, Depth::U8);
            let (name, bytes) = match n % 2 {
                0 => (format!("{n}.png"), png(&image)),
                _ => (format!("{n}.jpg"), jpeg(&image, 90, Subsampling::Quarter)),
            };
            fs::write(root.path().join(&name), bytes.expect("encodes")).expect("writes");
            let shape =
                r#"{"label": "a", "shape_type": "rectangle", "points": [[2, 2], [30, 30]]}"#;
            let shapes = vec![shape; 1 + n as usize].join(", ");
            let text = format!(
                r#"{{"imagePath": "{name}", "imageWidth": {width}, "imageHeight": {height},
                    "shapes": [{shapes}]}}"#
            );
            fs::write(root.path().join(format!("{n}.json")), text).expect("writes");
        }
        root
    }

    fn pipeline(root: &TempDir, masks: bool, transforms: Vec<Transform>) -> Pipeline {
        let source = SourceSpec::LabelMe {
            images: root.path().to_owned(),
            labels: None,
            classes: None,
            masks,
            follow_links: true,
        };
        let all = transforms.into_iter();
        let pipeline = all.fold(Pipeline::new(source).decode(), Pipeline::transform);
        pipeline.batch(2).pad()
    }

    /// Scratch and bytes outside slabs of the sample at a position.
    fn measure(plan: &SamplePlan, source: &dyn Source, at: Position) -> SampleBytes {
        let mut row = plan.spare_row();
        // Every reserved byte comes from the pool, so its peak is the memory of the sample.
        let large = BytePool::new(u64::MAX);
        let record = |number: u64| read_one(source, number % source.len()).expect("reads");
        let state = PixelState::Stored;
        let mut maker = SampleMaker::new(plan).with_memory(SampleMemory::new(0, &large));
        match plan.join(at, || 0..source.len()) {
            Some(drawn) => {
                let numbers = std::iter::once(at.position).chain(drawn.partners().iter().copied());
                let records: Vec<Record> = numbers.map(record).collect();
                let records: Vec<SampleRecord<'_>> = records
                    .iter()
                    .map(|record| SampleRecord {
                        record,
                        state,
                        at: Position {
                            position: record.index,
                            ..at
                        },
                    })
                    .collect();
                let made = maker.make(&records, Some(&drawn), &mut row);
                made.expect("a sample");
            }
            None => {
                let record = &record(at.position);
                let made = maker.make(&[SampleRecord { record, state, at }], None, &mut row);
                made.expect("a sample");
            }
        }
        let own = row.cells.iter().zip(plan.columns());
        let own = own.filter(|(_, column)| column.kind.row_bytes().is_none());
        let bytes = own.map(|(cell, _)| match cell {
            RowCell::Own { bytes, .. } => bytes.len() as u64,
            RowCell::Slab(_) => 0,
        });
        SampleBytes {
            scratch: large.peak_bytes(),
            row: bytes.sum(),
        }
    }

    fn check_bounds(pipeline: &Pipeline) {
        let source = pipeline.open_source(&[]).expect("opens");
        let plan = SamplePlan::over(pipeline, &*source).expect("a plan");
        let mut most = SampleBytes::default();
        let mut decoder = Decoder::new();
        for number in 0..source.len() {
            let record = read_one(&*source, number).expect("reads");
            for epoch in 0..64 {
                let at = Position {
                    epoch,
                    position: number,
                };
                let bytes = plan.sample_bytes(&record, true, at, &mut decoder);
                let bytes = bytes.expect("a good record");
                most.scratch = most.scratch.max(bytes.scratch);
                most.row = most.row.max(bytes.row);
            }
        }
        for epoch in 0..16 {
            for position in 0..source.len() {
                let at = Position { epoch, position };
                let found = measure(&plan, &*source, at);
                assert!(
                    found.scratch <= most.scratch && found.row <= most.row,
                    "{found:?} exceeds {most:?}: {:?}",
                    pipeline.transforms
                );
            }
        }
    }

    #[test]
    fn no_sample_needs_more_than_the_bounds_of_its_record() {
        let root = write_outlined_images();
        let size = CenterCrop::new(20);
        let transforms: [Vec<Transform>; 10] = [
            Vec::new(),
            vec![RandomResizedCrop::new(24).into()],
            vec![size.into()],
            vec![RandomRotation::new(30.0).into()],
            vec![ScaleJitter::new([90, 90]).into()],
            vec![Mosaic::new(64).into()],
            vec![CopyPaste::default().into()],
            vec![Mosaic::new(64).into(), ImageMixUp::default().into()],
            vec![
                Mosaic::new(64).into(),
                RandomRotation::new(30.0).into(),
                CenterCrop::new(20).into(),
                ImageMixUp::default().into(),
                RandomRotation::new(30.0).into(),
            ],
            vec![
                RandomResizedCrop::new(90).into(),
                ImageMixUp::default().into(),
            ],
        ];
        for masks in [false, true] {
            for transforms in transforms.clone() {
                let needs_masks = transforms.iter().any(|one| one.copy_paste().is_some());
                if needs_masks && !masks {
                    continue;
                }
                check_bounds(&pipeline(&root, masks, transforms));
            }
        }
    }

    #[test]
    fn no_outlined_sample_needs_more_than_the_bounds_of_its_record() {
        let root = write_outlined_images();
        let paste = || {
            Transform::from(MirroredPaste {
                share: 1.0,
                max_overlap: 9.0,
            })
        };
        let lists: [Vec<Transform>; 4] = [
            vec![RandomRotation::new(30.0).into()],
            vec![paste(), RandomRotation::new(30.0).into()],
            vec![Mosaic::new(64).into(), paste(), CenterCrop::new(40).into()],
            vec![
                Mosaic::new(64).into(),
                paste(),
                ImageMixUp::default().into(),
            ],
        ];
        for stride in [None, Some(1), Some(2)] {
            for transforms in lists.clone() {
                let boxes = BoxesSpec::new("boxes", BoxFormat::Xyxy).outlines("masks", stride);
                check_bounds(&pipeline(&root, true, transforms).boxes(boxes));
            }
        }
    }

    #[test]
    fn no_mixed_sample_needs_more_than_the_bounds_of_its_records() {
        let root = write_outlined_images();
        for class in ["a", "b"] {
            fs::create_dir(root.path().join(class)).expect("creates");
        }
        for n in 0..8 {
            let (class, kind) = if n % 2 == 0 {
                ("a", "png")
            } else {
                ("b", "jpg")
            };
            let name = format!("{n}.{kind}");
            let to = root.path().join(class).join(&name);
            fs::rename(root.path().join(&name), to).expect("moves");
        }
        let all = Pipeline::new(SourceSpec::folder(root.path())).decode();
        let all = all.transform(RandomResizedCrop::new(64)).batch(2);
        for transform in [MixUp::new(1.0).into(), CutMix::new(1.0).into()] {
            let transform: Transform = transform;
            check_bounds(&all.clone().transform(transform));
        }
    }

    #[test]
    fn the_head_of_a_file_has_the_bounds_of_the_whole_file() {
        let root = write_outlined_images();
        let pipeline = pipeline(&root, false, Vec::new());
        let source = pipeline.open_source(&[]).expect("opens");
        let plan = SamplePlan::over(&pipeline, &*source).expect("a plan");
        let mut decoder = Decoder::new();
        let image = plan.encoded_fields().next().expect("an image");
        for number in 0..source.len() {
            let whole = read_one(&*source, number).expect("reads");
            let mut head = Record {
                index: number,
                fields: vec![Bytes::new(); whole.fields.len()],
            };
            let bytes = &whole.fields[image];
            head.fields[image] = bytes.slice(..bytes.len() - 20);
            let at = Position::default();

            let of_whole = plan.sample_bytes(&whole, false, at, &mut decoder);
            let of_head = plan.sample_bytes(&head, false, at, &mut decoder);

            let (of_whole, of_head) = (of_whole.expect("good"), of_head.expect("good"));
            assert_eq!(of_whole.scratch, of_head.scratch);
            assert!(of_head.row > 3 * 40 * 70, "{of_head:?}");
        }
    }
}
