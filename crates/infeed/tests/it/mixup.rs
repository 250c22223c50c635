//! `MixUp` and `CutMix`: a mixed row is computed from the unmixed rows of both positions, the same
//! on every machine and for every world size.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use infeed::fields::pixels::prepared_record::PixelState;
use infeed::fields::scratch::Position;
use infeed::maker::{SampleMaker, SampleRecord};
use infeed::pipeline::{Layout, ShuffleWindow, SourceSpec};
use infeed::plan::SamplePlan;
use infeed::plan::join::JoinDraw;
use infeed::{Batch, Error, Loader, OnError, Options, Pipeline};
use infeed_codec::transform::{
    Blend, ClassIndex, CutMix, MixUp, Mixing, Normalize, OneHot, RandomHorizontalFlip,
    RandomResizedCrop, ToFloat,
};
use infeed_core::batch::RowCell;
use infeed_core::order::window::Groups;
use infeed_core::sample::{DType, Depth, Field, FieldKind, Pixels, Record, RecordId, Size};
use infeed_source::{Admission, Read, ReadError, Sink, Source, read_one};

use crate::data::{bits, epoch, open, pairs, photo, photos};
use crate::joins::draw_joins;

const SIDE: usize = 24;

fn unmixed_pipeline(root: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(5)
        .decode()
        .transform(RandomResizedCrop::new(SIDE as u32))
        .transform(RandomHorizontalFlip::new(0.5))
        .batch(4)
}

fn cut(p: f64) -> CutMix {
    CutMix {
        p,
        ..CutMix::new(1.0)
    }
}

fn blend(p: f64) -> MixUp {
    MixUp {
        p,
        ..MixUp::new(0.4)
    }
}

/// The mixing of each position of an epoch.
fn mixings(pipeline: &Pipeline, source: &dyn Source, epoch: u64) -> Vec<Option<Mixing>> {
    let of = |drawn| match drawn? {
        JoinDraw::Mix(mixing) => Some(mixing),
        other => panic!("no mixing: {other:?}"),
    };
    draw_joins(pipeline, source, epoch)
        .into_iter()
        .map(of)
        .collect()
}

/// Rows of a column over all batches.
fn rows(batches: &[Batch], name: &str) -> Vec<Vec<u8>> {
    let rows = |batch: &Batch| -> Vec<Vec<u8>> {
        let bytes = batch.array(name).expect("a column").bytes();
        let row = bytes.len() / batch.rows();
        bytes.chunks(row).map(<[u8]>::to_vec).collect()
    };
    batches.iter().flat_map(rows).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let floats = bytes.as_chunks::<4>().0.iter();
    floats.map(|&bytes| f32::from_ne_bytes(bytes)).collect()
}

/// Returns the mixed row of two unmixed float32 rows.
fn expected_row(mixing: &Mixing, own: &[f32], other: &[f32], layout: Layout) -> Vec<f32> {
    let pair = |(at, (&a, &b)): (usize, (&f32, &f32))| match mixing.blend {
        Blend::Whole { share } => a * share as f32 + b * (1.0 - share) as f32,
        Blend::Rectangle { share, x, y } => {
            let at = match layout {
                Layout::Hwc => at / 3,
                Layout::Chw => at % (SIDE * SIDE),
            };
            let half = (0.5 * (1.0 - share).sqrt() * SIDE as f64) as i64;
            let within = |at: usize, middle: f64| {
                let middle = (middle * SIDE as f64) as i64;
                (middle - half..middle + half).contains(&(at as i64))
            };
            if within(at % SIDE, x) && within(at / SIDE, y) {
                b
            } else {
                a
            }
        }
    };
    own.iter().zip(other).enumerate().map(pair).collect()
}

#[test]
fn rows_and_labels_are_those_of_both_positions_mixed() {
    let root = photos(30);
    let normalize = || Normalize::new([0.5, 0.4, 0.3], [0.2, 0.2, 0.2]);
    for layout in [Layout::Hwc, Layout::Chw] {
        let plain = unmixed_pipeline(root.path())
            .transform(normalize())
            .layout(layout);
        let mixed = plain.clone().transform(blend(0.5)).transform(cut(0.3));
        let source = mixed.source.open(&[]).expect("opens");
        let (plain, loader) = (open(&plain, 2), open(&mixed, 2));
        let (mut blended, mut pasted) = (0, 0);
        for at in 0..3 {
            let (own, found) = (epoch(&plain), epoch(&loader));
            let (images, labels) = (rows(&own, "image"), rows(&own, "label"));
            let images: Vec<Vec<f32>> = images.iter().map(|row| floats(row)).collect();
            let (rows_found, labels_found) = (rows(&found, "image"), rows(&found, "label"));
            for (row, mixing) in mixings(&mixed, &*source, at).iter().enumerate() {
                let class = |row: usize| usize::from(labels[row][0]);
                let mut shares = [0.0_f64; 2];
                let Some(mixing) = mixing else {
                    assert_eq!(floats(&rows_found[row]), images[row]);
                    shares[class(row)] = 1.0;
                    assert_eq!(floats(&labels_found[row]), shares.map(|share| share as f32));
                    continue;
                };
                let partner = mixing.partner as usize;
                assert_ne!(partner, row);
                let whole = expected_row(mixing, &images[row], &images[partner], layout);
                assert_eq!(floats(&rows_found[row]), whole, "row {row}: {mixing:?}");
                let share = match mixing.blend {
                    Blend::Whole { share } => {
                        blended += 1;
                        share
                    }
                    Blend::Rectangle { .. } => {
                        pasted += 1;
                        let size = Size {
                            height: SIDE as u32,
                            width: SIDE as u32,
                        };
                        let area = mixing
                            .blend
                            .region(size)
                            .expect("a rectangle")
                            .size
                            .pixels();
                        1.0 - area as f64 / (SIDE * SIDE) as f64
                    }
                };
                shares[class(row)] += share;
                shares[class(partner)] += 1.0 - share;
                assert_eq!(floats(&labels_found[row]), shares.map(|share| share as f32));
            }
        }
        assert!(blended > 20 && pasted > 10, "{blended} and {pasted} of 90");
    }
}

#[test]
fn bytes_are_rounded_to_the_nearest_and_half_floats_too() {
    let root = photos(12);
    let whole = |mixed: &Pipeline| {
        let source = mixed.source.open(&[]).expect("opens");
        mixings(mixed, &*source, 0)
    };
    let plain = unmixed_pipeline(root.path());
    let mixed = plain.clone().transform(blend(1.0));
    let own = rows(&epoch(&open(&plain, 2)), "image");
    let found = rows(&epoch(&open(&mixed, 2)), "image");
    for (row, mixing) in whole(&mixed).iter().enumerate() {
        let mixing = mixing.expect("p is 1");
        let Blend::Whole { share } = mixing.blend else {
            panic!("no MixUp: {mixing:?}")
        };
        for ((a, b), found) in own[row]
            .iter()
            .zip(&own[mixing.partner as usize])
            .zip(&found[row])
        {
            let exact = f64::from(*a) * share + f64::from(*b) * (1.0 - share);
            assert!(
                (f64::from(*found) - exact).abs() < 0.5001,
                "{a} {b} {share}"
            );
        }
    }

    let plain = unmixed_pipeline(root.path()).transform(ToFloat::default());
    let whole = rows(
        &epoch(&open(&plain.clone().transform(blend(1.0)), 2)),
        "image",
    );
    for (dtype, bits) in [(DType::Float16, 11), (DType::BFloat16, 8)] {
        let narrow = plain.clone().dtype(dtype).transform(blend(1.0));
        let narrow = rows(&epoch(&open(&narrow, 2)), "image");
        for (narrow, whole) in narrow.iter().zip(&whole) {
            let values = narrow.as_chunks::<2>().0.iter().map(|&bytes| match dtype {
                DType::Float16 => half::f16::from_ne_bytes(bytes).to_f32(),
                _ => half::bf16::from_ne_bytes(bytes).to_f32(),
            });
            for (narrow, whole) in values.zip(floats(whole)) {
                let limit = 2.0_f32.powi(1 - bits);
                assert!((narrow - whole).abs() <= limit, "{narrow} for {whole}");
            }
        }
    }
}

#[test]
fn masks_are_mixed_with_their_images() {
    let root = pairs(9, 30, 30);
    let csv = root.path().join("class_dict.csv").display().to_string();
    let base = || {
        Pipeline::new(SourceSpec::pairs(
            root.path().join("images"),
            root.path().join("masks"),
        ))
        .shuffle(1)
        .decode()
        .transform(infeed_codec::transform::Crop::new(30, 30))
        .batch(3)
    };
    let shares = base().transform(OneHot::from_palette(&csv));
    let mixed = shares.clone().transform(blend(1.0));
    let source = mixed.source.open(&[]).expect("opens");
    let own = rows(&epoch(&open(&shares, 2)), "mask");
    let found = rows(&epoch(&open(&mixed, 2)), "mask");
    for (row, mixing) in mixings(&mixed, &*source, 0).iter().enumerate() {
        let mixing = mixing.expect("p is 1");
        let partner = floats(&own[mixing.partner as usize]);
        let whole = expected_row(&mixing, &floats(&own[row]), &partner, Layout::Hwc);
        assert_eq!(floats(&found[row]), whole);
    }

    let numbers = base().transform(ClassIndex::new(&csv));
    let mixed = numbers.clone().transform(cut(1.0));
    let own = rows(&epoch(&open(&numbers, 2)), "mask");
    let found = rows(&epoch(&open(&mixed, 2)), "mask");
    let mut replaced = 0;
    for (row, mixing) in mixings(&mixed, &*source, 0).iter().enumerate() {
        let mixing = mixing.expect("p is 1");
        let size = Size {
            height: 30,
            width: 30,
        };
        let region = mixing.blend.region(size).expect("a rectangle");
        for at in 0..900_u32 {
            let (y, x) = (at / 30, at % 30);
            let inside = (region.top..region.bottom() as u32).contains(&y)
                && (region.left..region.right() as u32).contains(&x);
            let of = if inside { mixing.partner as usize } else { row };
            replaced += usize::from(inside);
            assert_eq!(found[row][at as usize], own[of][at as usize]);
        }
    }
    assert!(replaced > 0);
}

#[test]
fn a_preview_shows_the_partner_and_ends_with_the_row() {
    let root = photos(10);
    let mixed = unmixed_pipeline(root.path())
        .transform(blend(0.5))
        .transform(cut(0.5));
    let batches = epoch(&open(&mixed, 2));
    let (images, labels) = (rows(&batches, "image"), rows(&batches, "label"));
    for position in 0..10 {
        let (_, stages) = mixed.preview(&[], position, 0).expect("good");
        let [.., mixing, output] = &stages[..] else {
            panic!("{stages:?}")
        };
        assert!(
            ["MixUp", "CutMix"].contains(&mixing.name),
            "{}",
            mixing.name
        );
        let named = ["with position ", "; partner "];
        let has_all = named.iter().all(|part| mixing.draws.contains(part));
        assert!(has_all, "{}", mixing.draws);
        assert_eq!(output.name, "output");
        for (name, rows) in [("image", &images), ("label", &labels)] {
            let (_, values) = output.fields.iter().find(|(of, _)| of == name).expect(name);
            let infeed::Values::Array(array) = values else {
                panic!("{name} is no array")
            };
            assert!(*array.bytes() == rows[position as usize][..], "{name}");
        }
    }
}

fn open_rank(pipeline: &Pipeline, workers: usize, rank: u64, world_size: u64) -> Loader {
    let mut options = Options::default();
    options.on_error = OnError::Substitute;
    options.workers = Some(workers);
    (options.rank, options.world_size) = (rank, world_size);
    pipeline.open(&options).expect("opens")
}

fn damage(root: &Path, numbers: &[u64]) {
    for &n in numbers {
        let path = photo(root, n);
        let bytes = fs::read(&path).expect("it is there");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    }
}

#[test]
fn workers_ranks_resuming_bad_records_and_bad_partners_change_no_bit() {
    let root = photos(24);
    damage(root.path(), &[2, 9, 17]);
    let pipeline = unmixed_pipeline(root.path())
        .transform(blend(0.6))
        .transform(cut(0.4));
    let reference: Vec<_> = {
        let loader = open_rank(&pipeline, 1, 0, 1);
        (0..3).flat_map(|_| bits(&epoch(&loader))).collect()
    };

    for workers in [2, 7] {
        let loader = open_rank(&pipeline, workers, 0, 1);
        let same: Vec<_> = (0..3).flat_map(|_| bits(&epoch(&loader))).collect();
        assert!(same == reference, "{workers} workers");
    }
    for world_size in [2, 4] {
        let ranks: Vec<Vec<Batch>> = (0..world_size)
            .map(|rank| {
                let loader = open_rank(&pipeline, 2, rank, world_size);
                (0..3).flat_map(|_| epoch(&loader)).collect()
            })
            .collect();
        for (step, (records, whole)) in reference.iter().enumerate() {
            let parts: Vec<&Batch> = ranks.iter().map(|rank| &rank[step]).collect();
            let of: Vec<u64> = parts
                .iter()
                .flat_map(|batch| batch.records.clone())
                .collect();
            assert_eq!(of, *records, "step {step} of {world_size} ranks");
            let column = |name: &str| -> Vec<u8> {
                let arrays = parts.iter().map(|batch| batch.array(name).expect("there"));
                arrays.flat_map(|array| array.bytes().to_vec()).collect()
            };
            let all = [column("image"), column("label")].concat();
            assert!(all == *whole, "step {step} of {world_size} ranks");
        }
    }
    let first = open_rank(&pipeline, 2, 0, 1);
    for _ in 0..8 {
        first.next_batch().expect("good");
    }
    let state = first.state();
    drop(first);
    let second = open_rank(&pipeline, 3, 0, 1);
    second.restore(&state).expect("its own state");
    let rest: Vec<_> = (0..2).flat_map(|_| bits(&epoch(&second))).collect();
    // Eight calls are the six steps of the first epoch, its end, and one step.
    assert!(rest == reference[7..], "going on after 7 steps");
}

#[test]
fn on_error_applies_to_a_bad_partner() {
    let root = photos(16);
    let pipeline = unmixed_pipeline(root.path()).transform(blend(1.0));
    let source = pipeline.source.open(&[]).expect("opens");
    let order = pipeline.order(&*source, &[]).expect("an order").epoch(0);
    let all = mixings(&pipeline, &*source, 0);
    // A row of the first batch stays good; its partner, of a later batch, becomes bad.
    let partner_of = |row: usize| all[row].expect("p is 1").partner;
    let row = (0..4).find(|&row| partner_of(row) >= 4).expect("most are");
    let partner = partner_of(row);
    let bad = order.get(partner);
    damage(root.path(), &[number_of(&*source, bad)]);
    let with = |on_error| {
        let mut options = Options::default();
        (options.on_error, options.workers) = (on_error, Some(2));
        pipeline.open(&options).expect("opens")
    };

    let error = with(OnError::Stop).next_batch().expect_err("a bad partner");
    assert!(matches!(error, Error::Decode { .. }), "{error}");
    assert_eq!(error.record().expect("named").index, bad);

    // The row's own record takes the place of the partner, with the draws of the partner's position.
    let plan = SamplePlan::over(&unmixed_pipeline(root.path()), &*source).expect("a plan");
    let mut maker = SampleMaker::new(&plan);
    let record = read_one(&*source, order.get(row as u64)).expect("reads");
    let mut sample = |position: u64| {
        let mut row = plan.spare_row();
        let of = SampleRecord {
            record: &record,
            state: PixelState::Stored,
            at: Position { epoch: 0, position },
        };
        maker.make(&[of], None, &mut row).expect("a good record");
        match row.cells.swap_remove(0) {
            RowCell::Own { bytes, .. } => bytes,
            RowCell::Slab(_) => panic!("not in a batch"),
        }
    };
    let (own, other) = (sample(row as u64), sample(partner));
    assert_ne!(own, other, "other crops");
    let replaced = with(OnError::Substitute);
    let found = rows(&epoch(&replaced), "image");
    let mixing = all[row].expect("p is 1");
    let Blend::Whole { share } = mixing.blend else {
        panic!("{mixing:?}")
    };
    for ((a, b), found) in own.iter().zip(&other).zip(&found[row]) {
        let exact = f64::from(*a) * share + f64::from(*b) * (1.0 - share);
        assert!((f64::from(*found) - exact).abs() < 0.5001);
    }
    let skipping = with(OnError::Skip);
    let left: Vec<u64> = epoch(&skipping)
        .iter()
        .flat_map(|b| b.records.clone())
        .collect();
    let needs = |position: &u64| {
        let of = all[*position as usize].expect("p is 1").partner;
        order.get(*position) != bad && of != partner
    };
    let good: Vec<u64> = (0..16).filter(needs).map(|p| order.get(p)).collect();
    assert_eq!(left, good);
    // It counts as one bad record for all rows, at the position of the first row.
    let first = (0..16).find(|position| !needs(position)).expect("two rows");
    for loader in [&replaced, &skipping] {
        let found = loader.bad_records();
        let found: Vec<_> = found.iter().map(|m| (m.position, m.record.index)).collect();
        assert_eq!(found, [(first, bad)]);
    }
}

/// Returns the number of the photo in a record.
fn number_of(source: &dyn Source, record: u64) -> u64 {
    let name = source.id(record, None).name;
    let stem = name.rsplit('/').next().expect("a file");
    stem.trim_end_matches(".jpg").parse().expect("a number")
}

fn refusal(pipeline: &Pipeline) -> String {
    match pipeline.open(&Options::default()) {
        Ok(_) => panic!("it opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn fields_that_cannot_be_mixed_are_rejected_with_the_fix() {
    let root = photos(6);
    let streets = pairs(3, 20, 20);
    let masks = || {
        Pipeline::new(SourceSpec::pairs(
            streets.path().join("images"),
            streets.path().join("masks"),
        ))
        .decode()
        .transform(infeed_codec::transform::Crop::new(16, 16))
    };
    let after = unmixed_pipeline(root.path())
        .transform(blend(1.0))
        .transform(ToFloat::default());
    let sized = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .transform(blend(1.0))
        .batch(2)
        .pad();
    let twice = unmixed_pipeline(root.path())
        .transform(blend(0.7))
        .transform(cut(0.7));
    let named = MixUp {
        field: Some("breed".to_owned()),
        ..MixUp::new(1.0)
    };
    let one_class = MixUp {
        classes: Some(1),
        ..MixUp::new(1.0)
    };
    let unlike = unmixed_pipeline(root.path())
        .transform(MixUp {
            p: 0.5,
            ..one_class.clone()
        })
        .transform(cut(0.5));
    let flat = Pipeline::new(SourceSpec::Folder {
        path: root.path().join("cat"),
        labels: "none".to_owned(),
        classes: None,
        allow_empty: false,
        follow_links: true,
    })
    .decode()
    .transform(RandomResizedCrop::new(8))
    .transform(blend(1.0));
    for (pipeline, fix) in [
        (after, "transform 4 (ToFloat): put it before MixUp"),
        (sized, "such as RandomResizedCrop(224)"),
        (twice, "lower p, such as p=0.5"),
        (unlike, "use the same for both"),
        (
            unmixed_pipeline(root.path()).transform(named),
            "no label field `breed`",
        ),
        (flat, "no label field `label`"),
        (masks().transform(blend(1.0)), "or use CutMix"),
    ] {
        let refusal = refusal(&pipeline);
        assert!(refusal.contains(fix), "{refusal}");
    }

    let error = open(&unmixed_pipeline(root.path()).transform(one_class), 1)
        .next_batch()
        .expect_err("dogs are class 1");
    assert!(error.to_string().contains("label 1 in field"), "{error}");
    let colours = streets.path().join("class_dict.csv").display().to_string();
    let numbers = masks()
        .transform(ClassIndex::new(&colours))
        .transform(cut(1.0))
        .batch(3);
    assert_eq!(
        epoch(&open(&numbers, 1)).len(),
        1,
        "class numbers can be cut"
    );
}

/// Images in groups that can only be read whole.
#[derive(Debug)]
struct ImageGroups {
    fields: Vec<Field>,
    groups: Arc<Groups>,
    reads: AtomicU64,
}

const PER_SHARD: u64 = 20;
const RECORD_BYTES: u64 = 64 + 8;

impl ImageGroups {
    fn new(shards: u64) -> ImageGroups {
        let field = |name: &str, kind| Field {
            name: name.to_owned(),
            kind,
        };
        let image = Pixels::Raw {
            size: Size {
                height: 8,
                width: 8,
            },
            channels: 1,
            depth: Depth::U8,
        };
        let label = FieldKind::Tensor {
            dtype: DType::Int64,
            shape: Vec::new(),
        };
        ImageGroups {
            fields: vec![
                field("image", FieldKind::Image(image)),
                field("label", label),
            ],
            groups: Arc::new(Groups {
                ends: (1..=shards).map(|shard| shard * PER_SHARD).collect(),
                bytes: vec![PER_SHARD * RECORD_BYTES; shards as usize],
                whole: true,
            }),
            reads: AtomicU64::new(0),
        }
    }
}

impl Source for ImageGroups {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> u64 {
        self.groups.records()
    }

    fn id(&self, record: u64, _: Option<usize>) -> RecordId {
        RecordId {
            index: record,
            name: format!("record {record}"),
        }
    }

    fn groups(&self) -> Option<Arc<Groups>> {
        Some(Arc::clone(&self.groups))
    }

    fn plan(&self, run: &[u64], _: u64) -> Vec<Read> {
        let read = |shard: u64| {
            let of_shard = |&(_, record): &(usize, u64)| record / PER_SHARD == shard;
            Read {
                records: run.iter().copied().enumerate().filter(of_shard).collect(),
                bytes: Some(PER_SHARD * RECORD_BYTES),
                key: shard,
                draws: Vec::new(),
            }
        };
        (0..self.groups.ends.len() as u64).map(read).collect()
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let bytes = PER_SHARD * RECORD_BYTES;
        admit(bytes).map_err(|refused| ReadError::Refused {
            record: read.key * PER_SHARD,
            bytes,
            refused,
        })?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        for &(place, index) in &read.records {
            let fields = vec![
                Bytes::from(vec![index as u8; 64]),
                Bytes::copy_from_slice(&(index as i64).to_le_bytes()),
            ];
            sink(place, Ok(Record { index, fields }));
        }
        Ok(())
    }
}

#[test]
fn partners_are_of_the_same_window_so_that_every_shard_is_read_once() {
    let source = Arc::new(ImageGroups::new(12));
    let mut pipeline = Pipeline::new(SourceSpec::Memory { fields: Vec::new() })
        .shuffle(3)
        .transform(MixUp {
            classes: Some(240),
            ..MixUp::new(0.4)
        })
        .batch(8);
    if let Some(shuffle) = &mut pipeline.shuffle {
        shuffle.window = Some(ShuffleWindow::Bytes(3 * PER_SHARD * RECORD_BYTES));
    }
    let shared: Arc<dyn Source> = source.clone();
    let loader = pipeline
        .open_over(shared, &Options::default())
        .expect("fits");

    let batches = epoch(&loader);
    drop(loader);

    let order = pipeline.order(&*source, &[]).expect("an order").epoch(0);
    let all = mixings(&pipeline, &*source, 0);
    let (images, labels) = (rows(&batches, "image"), rows(&batches, "label"));
    for (position, mixing) in all.iter().enumerate() {
        let mixing = mixing.expect("p is 1");
        assert_eq!(
            mixing.partner / 60,
            position as u64 / 60,
            "three shards of 20"
        );
        let Blend::Whole { share } = mixing.blend else {
            panic!("{mixing:?}")
        };
        let (own, other) = (order.get(position as u64), order.get(mixing.partner));
        let exact = own as f64 * share + other as f64 * (1.0 - share);
        assert!((f64::from(images[position][0]) - exact).abs() < 0.5001);
        let shares = floats(&labels[position]);
        assert_eq!(shares[own as usize], share as f32);
        assert_eq!(shares[other as usize], (1.0 - share) as f32);
    }
    // The loader reads ahead until it is dropped: 288 positions, which end in the third epoch. If
    // shards were read again for partners, two epochs alone would take 48 reads.
    let reads = source.reads.load(Ordering::Relaxed);
    assert!((12..=36).contains(&reads), "{reads} reads of 12 shards");
}

#[test]
fn the_plan_names_the_mixed_fields_and_labels_become_shares() {
    let root = photos(6);
    let pipeline = unmixed_pipeline(root.path())
        .transform(blend(0.5))
        .transform(cut(0.5));
    let text = open(&pipeline, 1).plan().expect("open");

    assert!(
        text.contains("label: soft labels -> float32 [2], 8 B per sample\n"),
        "{text}"
    );
    assert!(
        text.ends_with(
            "mix: MixUp (alpha 0.4, 0.5 of the samples) or CutMix (alpha 1, 0.5 of the samples), \
             with the sample of another position, decoded for it\n"
        ),
        "{text}"
    );
}

#[test]
fn an_epoch_of_one_record_has_no_partner() {
    let root = photos(1);
    std::fs::remove_dir(root.path().join("dog")).expect("it is empty");
    let source: Arc<dyn Source> = unmixed_pipeline(root.path())
        .source
        .open(&[])
        .expect("opens");
    let pipeline = unmixed_pipeline(root.path()).transform(blend(1.0));

    assert_eq!(mixings(&pipeline, &*source, 0), [None]);
    let own = rows(&epoch(&open(&unmixed_pipeline(root.path()), 1)), "image");
    assert_eq!(rows(&epoch(&open(&pipeline, 1)), "image"), own);
}
