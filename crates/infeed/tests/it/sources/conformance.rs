//! The contract of all sources, as one suite: [`holds`].
//!
//! A new kind of source needs a [`WriteDataset`]: a function that writes the given images, one per record,
//! and damages the records with the given numbers. It returns how to open them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use infeed::pipeline::Handle;
use infeed::pipeline::SourceSpec;
use infeed::{Error, Loader, OnError, Options, Pipeline, Values};
use infeed_codec::transform::RandomResizedCrop;
use infeed_core::counters::Stage;
use infeed_core::sample::{Field, FieldKind, Pixels, RecordId};
use infeed_source::Source;
use infeed_source::selected_records::SelectedRecords;
use infeed_source::subset::Subset;

use super::super::data::{bits, epoch};

/// Number of records: a prime, so that neither shards nor batches divide it.
pub(crate) const RECORDS: u64 = 61;

/// Rows of a batch.
const ROWS: u64 = 7;

/// A written dataset, and how to open it. Its records have an image field `image`.
pub(crate) struct TestDataset {
    pub(crate) spec: SourceSpec,
    /// Buffers of a source in memory.
    pub(crate) handles: Vec<Handle>,
}

/// Writes images below a folder, and then damages the records with these numbers.
pub(crate) type WriteDataset = fn(root: &Path, images: &[Vec<u8>], damaged: &[u64]) -> TestDataset;

/// Checks a kind of source against the whole contract.
pub(crate) fn holds(make: WriteDataset) {
    let images = images();
    holds_whole(make, &images);
    holds_damaged(make, &images, &[5, 17, 60]);
}

/// Checks a kind of source whose images are pixels of one size, [`SIDE`] in each direction. With
/// `group`, records are damaged in groups of this size; without it, damage cannot be detected.
pub(crate) fn holds_arrays(make: WriteDataset, group: Option<u64>) {
    let images: Vec<Vec<u8>> = (0..RECORDS).map(pixels).collect();
    holds_whole(make, &images);
    if let Some(group) = group {
        let all = [5, 60].map(|record| record / group * group);
        let all = all.map(|first| first..(first + group).min(RECORDS));
        holds_damaged(
            make,
            &images,
            &all.into_iter().flatten().collect::<Vec<u64>>(),
        );
    }
}

fn holds_whole(make: WriteDataset, images: &[Vec<u8>]) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let made = make(root.path(), images, &[]);
    holds_the_records(&made, images);
    let reference = holds_the_order(&made);
    resumes_anywhere(&made, &reference);
    counts_what_it_reads(&made, images);
    closes_in_the_middle(&made);
}

fn holds_damaged(make: WriteDataset, images: &[Vec<u8>], damaged: &[u64]) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let made = make(root.path(), images, damaged);
    names_damaged_records(&made, damaged);
}

/// Height and width of images that are raw pixels.
pub(crate) const SIDE: u32 = 24;

fn pixels(n: u64) -> Vec<u8> {
    let bytes = 3 * u64::from(SIDE * SIDE);
    (0..bytes)
        .map(|at| (at * 7 + at / 31 + n * 3) as u8)
        .collect()
}

/// Returns the dataset as every other record of a dataset with twice as many.
pub(crate) fn write_selection(
    make: WriteDataset,
    root: &Path,
    images: &[Vec<u8>],
    damaged: &[u64],
) -> TestDataset {
    let twice: Vec<Vec<u8>> = images
        .iter()
        .flat_map(|image| [images[0].clone(), image.clone()])
        .collect();
    let damaged: Vec<u64> = damaged.iter().map(|record| 2 * record + 1).collect();
    let made = make(root, &twice, &damaged);
    let source = made.spec.open(&made.handles).expect("it was just written");
    let odd = Subset::whole(source.len()).filter(|_, record| record % 2 == 1);
    TestDataset {
        spec: SourceSpec::Object {
            handle: 0,
            name: "every other record".to_owned(),
        },
        handles: vec![Handle::Source(Arc::new(SelectedRecords::new(source, odd)))],
    }
}

fn images() -> Vec<Vec<u8>> {
    let image = |n: u64| {
        let picture = super::super::data::picture(n, 24 + n as u32 % 9, 24 + n as u32 % 7);
        infeed_sample::jpeg(&picture, 90, infeed_sample::Subsampling::Quarter).expect("encodes")
    };
    (0..RECORDS).map(image).collect()
}

fn open(made: &TestDataset, pipeline: &Pipeline, on_error: OnError, workers: usize) -> Loader {
    let source = made.spec.open(&made.handles).expect("it was just written");
    let mut options = Options::default();
    (options.workers, options.on_error) = (Some(workers), on_error);
    // Other numbers of readers and workers.
    options.readers = Some(1 + workers % 3 * 2);
    pipeline.open_over(source, &options).expect("it fits")
}

/// A pipeline of the images as bytes, shuffled.
fn bytes_pipeline(made: &TestDataset) -> Pipeline {
    Pipeline::new(made.spec.clone()).shuffle(11).batch(ROWS)
}

/// A pipeline of the images as pixels, shuffled.
fn pixels_pipeline(made: &TestDataset) -> Pipeline {
    let source = made.spec.open(&made.handles).expect("it was just written");
    let encoded = |field: &Field| field.kind == FieldKind::Image(Pixels::Encoded);
    let pipeline = match source.fields().iter().any(encoded) {
        true => bytes_pipeline(made).decode(),
        false => bytes_pipeline(made),
    };
    pipeline.transform(RandomResizedCrop::new(16))
}

/// Returns the image bytes of each row of an epoch, with their record.
fn rows(loader: &Loader) -> Vec<(u64, Vec<u8>)> {
    let mut rows = Vec::new();
    while let Some(batch) = loader.next_batch().expect("no bad record") {
        let records = batch.records.iter().copied();
        match batch.get("image") {
            Some(Values::Bytes(images)) => rows.extend(records.zip(images.iter().cloned())),
            _ => {
                let array = batch.array("image").expect("bytes or an array");
                let each = array.bytes().len() / batch.records.len();
                let images = array.bytes().chunks_exact(each).map(<[u8]>::to_vec);
                rows.extend(records.zip(images));
            }
        }
    }
    rows
}

fn holds_the_records(made: &TestDataset, images: &[Vec<u8>]) {
    let source: Arc<dyn Source> = made.spec.open(&made.handles).expect("it was just written");
    assert_eq!(source.len(), RECORDS);
    let at = source
        .fields()
        .iter()
        .position(|field| field.name == "image");
    let at = at.expect("it has images");
    for (number, image) in images.iter().enumerate() {
        let record = infeed_source::read_one(&*source, number as u64).expect("a good record");
        assert_eq!(record.fields.len(), source.fields().len());
        assert_eq!(record.fields[at], image[..], "record {number}");
    }
    let in_order = open(
        made,
        &Pipeline::new(made.spec.clone()).batch(ROWS),
        OnError::Stop,
        2,
    );
    let order: Vec<u64> = rows(&in_order).iter().map(|(record, _)| *record).collect();
    assert_eq!(order, (0..RECORDS).collect::<Vec<_>>(), "unshuffled");
}

/// Checks that each record occurs once per epoch with its own bytes, for every number of threads.
/// Returns the first two epochs.
fn holds_the_order(made: &TestDataset) -> Vec<(u64, Vec<u8>)> {
    let two = |workers| {
        let loader = open(made, &bytes_pipeline(made), OnError::Stop, workers);
        let first = rows(&loader);
        [first, rows(&loader)].concat()
    };
    let reference = two(1);
    let (first, second) = reference.split_at(RECORDS as usize);
    for seen in [first, second] {
        let records: BTreeSet<u64> = seen.iter().map(|(record, _)| *record).collect();
        assert_eq!(records, (0..RECORDS).collect());
    }
    assert!(first != second, "another epoch, another order");
    for workers in [2, 7] {
        assert!(two(workers) == reference, "{workers} workers");
    }
    reference
}

fn resumes_anywhere(made: &TestDataset, reference: &[(u64, Vec<u8>)]) {
    let steps = RECORDS.div_ceil(ROWS);
    for (at, step) in [(0, 3), (1, 0), (1, steps - 1), (0, 1)] {
        let loader = open(made, &bytes_pipeline(made), OnError::Stop, 2);
        loader.seek(at, step).expect("a step of the epoch");
        let begin = (at * RECORDS + step * ROWS) as usize;
        let end = ((at + 1) * RECORDS) as usize;
        assert!(
            rows(&loader) == reference[begin..end],
            "epoch {at} step {step}"
        );
    }
}

fn counts_what_it_reads(made: &TestDataset, images: &[Vec<u8>]) {
    let loader = open(made, &bytes_pipeline(made), OnError::Stop, 2);
    assert_eq!(rows(&loader).len() as u64, RECORDS);

    let stats = loader.stats().expect("it is open");

    let bytes: u64 = images.iter().map(|image| image.len() as u64).sum();
    let read = stats.stages.iter().find(|(stage, _)| *stage == Stage::Read);
    let read = &read.expect("reading is a stage").1;
    // Reading may have continued into later epochs.
    assert!(
        read.samples >= RECORDS && read.bytes_out >= bytes,
        "{read:?}"
    );
    assert_eq!((stats.samples, stats.bad), (RECORDS, 0));
}

fn closes_in_the_middle(made: &TestDataset) {
    for steps in [0, 1, 4] {
        let loader = open(made, &pixels_pipeline(made), OnError::Stop, 7);
        for _ in 0..steps {
            assert!(loader.next_batch().expect("a good record").is_some());
        }
        loader.close();
        assert!(matches!(loader.next_batch(), Err(Error::Closed)));
    }
}

fn names_damaged_records(made: &TestDataset, damaged: &[u64]) {
    let ids: Vec<RecordId> = {
        let source = made
            .spec
            .open(&made.handles)
            .expect("only records are damaged");
        assert_eq!(source.len(), RECORDS);
        // Ids with and without the field: not every source knows the field of a damaged record.
        let id = |&record: &u64| [Some(0), None].map(|field| source.id(record, field));
        damaged.iter().flat_map(id).collect()
    };

    let stopped = |workers| {
        let loader = open(made, &pixels_pipeline(made), OnError::Stop, workers);
        let mut good = Vec::new();
        loop {
            match loader.next_batch() {
                Ok(batch) => good.extend(batch.expect("not the end").records.clone()),
                Err(error) => return (good, error.to_string(), error),
            }
        }
    };
    let (good, text, error) = stopped(1);
    let record = error.record().expect("it is about a record");
    assert!(error.is_bad_record() && ids.contains(record), "{text}");
    for workers in [2, 7] {
        let (same, same_text, _) = stopped(workers);
        assert_eq!(
            (same, same_text),
            (good.clone(), text.clone()),
            "{workers} workers"
        );
    }

    let substituted = |workers| {
        let loader = open(made, &pixels_pipeline(made), OnError::Substitute, workers);
        let batches = epoch(&loader);
        let bad = loader.bad_records();
        let bad: Vec<(u64, u64)> = bad
            .iter()
            .map(|bad| (bad.position, bad.record.index))
            .collect();
        (bits(&batches_of_images(batches)), bad)
    };
    let (reference, bad) = substituted(1);
    let found: BTreeSet<u64> = bad.iter().map(|(_, record)| *record).collect();
    assert_eq!(found, ids.iter().map(|id| id.index).collect());
    let records: Vec<u64> = reference
        .iter()
        .flat_map(|(records, _)| records.clone())
        .collect();
    assert_eq!(records.len() as u64, RECORDS);
    assert!(!records.iter().any(|record| damaged.contains(record)));
    for workers in [2, 7] {
        assert!(
            substituted(workers) == (reference.clone(), bad.clone()),
            "{workers} workers"
        );
    }

    let loader = open(made, &pixels_pipeline(made), OnError::Skip, 2);
    let left: Vec<u64> = epoch(&loader)
        .iter()
        .flat_map(|batch| batch.records.clone())
        .collect();
    assert_eq!(left.len() + damaged.len(), RECORDS as usize);
    assert!(!left.iter().any(|record| damaged.contains(record)));
}

/// Keeps only the image column.
fn batches_of_images(mut batches: Vec<infeed::Batch>) -> Vec<infeed::Batch> {
    for batch in &mut batches {
        batch.columns.retain(|column| column.name == "image");
    }
    batches
}
