//! Rows that are copied in runs are equal to rows that are filled one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{ArrayRef, FixedSizeListArray, Int16Array, Int32Array, RecordBatch};
use arrow_schema::{DataType, Field as ArrowField};
use infeed::loader::digest::DigestScope;
use infeed::pipeline::{SourceSpec, Tail};
use infeed::{Error, Loader, OnError, Options, Pipeline};
use infeed_core::batch::Batch;
use infeed_core::sample::{DType, Field, FieldKind, RecordId};
use infeed_source::batches::Batches;
use infeed_source::memory::{FieldData, Memory};
use infeed_source::mix::Mix;
use infeed_source::selected_records::SelectedRecords;
use infeed_source::subset::Subset;
use infeed_source::{Admission, Read, ReadError, ResidentRows, Sink, Source};

use crate::data::epoch;

/// A source that counts the records that are read, and can hide that they are in memory.
#[derive(Debug)]
struct ObservedSource {
    inner: Arc<dyn Source>,
    is_resident: bool,
    reads: AtomicU64,
}

impl Source for ObservedSource {
    fn fields(&self) -> &[Field] {
        self.inner.fields()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn id(&self, record: u64, field: Option<usize>) -> RecordId {
        self.inner.id(record, field)
    }

    fn resident(&self) -> Option<&dyn ResidentRows> {
        self.inner.resident().filter(|_| self.is_resident)
    }

    fn plan(&self, run: &[u64], room_bytes: u64) -> Vec<Read> {
        self.inner.plan(run, room_bytes)
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let records = read.records.len() as u64;
        self.reads.fetch_add(records, Ordering::Relaxed);
        self.inner.read(read, admit, sink)
    }
}

fn numbers(name: &str, length: usize, data: FieldData) -> (Field, FieldData) {
    let kind = FieldKind::Tensor {
        dtype: DType::UInt8,
        shape: vec![length],
    };
    let name = name.to_owned();
    (Field { name, kind }, data)
}

/// Records of two fields. The damaged ones have a byte too few.
fn records(first: u64, count: u64, damaged: &[u64]) -> Arc<dyn Source> {
    let x = (first..first + count).map(|n| {
        let length = 5 - usize::from(damaged.contains(&n));
        n.to_le_bytes()[..length].to_vec().into()
    });
    let y: Vec<u8> = (first..first + count)
        .flat_map(|n| [n as u8, 7, !(n as u8)])
        .collect();
    let fields = vec![
        numbers("x", 5, FieldData::List(x.collect())),
        numbers("y", 3, FieldData::Array(y.into())),
    ];
    Arc::new(Memory::new(fields, false).expect("equal lengths"))
}

fn pipeline(rows: u64) -> Pipeline {
    Pipeline::new(SourceSpec::Memory { fields: Vec::new() }).batch(rows)
}

/// Everything that a run delivers.
struct DeliveredRun {
    batches: Vec<BatchContents>,
    digest: String,
    bad: Vec<(u64, u64, String)>,
    error: Option<String>,
}

/// Epoch, step, records and columns of a batch.
type BatchContents = (u64, u64, Vec<u64>, Vec<Vec<u8>>);

fn contents(batch: &Batch) -> BatchContents {
    let arrays = ["x", "y", "label", "valid"].into_iter();
    let arrays = arrays.filter_map(|name| Some(batch.array(name)?.bytes().to_vec()));
    (
        batch.epoch,
        batch.step,
        batch.records.clone(),
        arrays.collect(),
    )
}

/// Delivers two epochs, and half an epoch after a seek, or the batches before an error.
fn deliver(loader: &Loader) -> DeliveredRun {
    let mut batches = Vec::new();
    let mut deliver = || -> Result<(), Error> {
        for _ in 0..2 {
            while let Some(batch) = loader.next_batch()? {
                batches.push(contents(&batch));
            }
        }
        loader.seek(3, loader.steps()? / 2)?;
        while let Some(batch) = loader.next_batch()? {
            batches.push(contents(&batch));
        }
        Ok(())
    };
    let error = deliver().err().map(|error| error.chain());
    let bad = loader.bad_records().into_iter();
    DeliveredRun {
        batches,
        digest: loader.digest().to_string(),
        bad: bad
            .map(|bad| (bad.epoch, bad.position, bad.reason.chain()))
            .collect(),
        error,
    }
}

/// Asserts that a pipeline delivers the same with and without runs. Returns it, and the number of
/// records that were read with runs.
fn assert_equal(
    source: &Arc<dyn Source>,
    pipeline: &Pipeline,
    options: &Options,
) -> (DeliveredRun, u64) {
    let [(runs, reads), (rows, all)] = [true, false].map(|is_resident| {
        let source = Arc::new(ObservedSource {
            inner: Arc::clone(source),
            is_resident,
            reads: AtomicU64::new(0),
        });
        let loader = pipeline
            .open_over(Arc::<ObservedSource>::clone(&source), options)
            .expect("opens");
        let delivered = deliver(&loader);
        drop(loader);
        (delivered, source.reads.load(Ordering::Relaxed))
    });
    for (run, row) in runs.batches.iter().zip(&rows.batches) {
        assert!(run == row, "step {} of epoch {} differs", row.1, row.0);
    }
    assert_eq!(runs.batches.len(), rows.batches.len());
    let others = |all: &DeliveredRun| (all.digest.clone(), all.bad.clone(), all.error.clone());
    assert_eq!(others(&runs), others(&rows));
    assert!(reads < all, "rows are read one by one: {reads}, {all}");
    (runs, reads)
}

fn options(on_error: OnError) -> Options {
    let mut options = Options::default();
    (options.on_error, options.workers) = (on_error, Some(3));
    options.digest = DigestScope::Pixels;
    options
}

#[test]
fn batches_and_digests_are_equal_for_all_sizes_and_tails() {
    let source = records(0, 1500, &[]);
    for rows in [1, 7, 256, 300, 700, 4000] {
        for tail in [Tail::Keep, Tail::Drop, Tail::Pad, Tail::Wrap] {
            for shuffled in [false, true] {
                if tail == Tail::Drop && rows > 1500 {
                    continue;
                }
                let pipeline = match shuffled {
                    true => pipeline(rows).tail(tail).shuffle(3),
                    false => pipeline(rows).tail(tail),
                };
                let options = options(OnError::Stop);

                let (delivered, reads) = assert_equal(&source, &pipeline, &options);

                assert_eq!((delivered.error, reads), (None, 0), "{rows} {tail:?}");
            }
        }
    }
}

#[test]
fn each_rank_gets_its_rows() {
    let source = records(0, 1500, &[]);
    for rank in 0..3 {
        let mut options = options(OnError::Stop);
        (options.rank, options.world_size) = (rank, 3);
        let pipeline = pipeline(900).tail(Tail::Pad).shuffle(3);

        let (delivered, _) = assert_equal(&source, &pipeline, &options);

        assert!(delivered.batches.iter().all(|batch| batch.2.len() == 300));
    }
}

#[test]
fn bad_records_are_treated_alike() {
    let damaged: Vec<u64> = (0..1500).filter(|n| n % 97 == 11).collect();
    let source = records(0, 1500, &damaged);
    for on_error in [OnError::Stop, OnError::Skip, OnError::Substitute] {
        for seed in [3, 4] {
            let pipeline = pipeline(400).shuffle(seed);

            let (delivered, _) = assert_equal(&source, &pipeline, &options(on_error));

            let is_stopped = on_error == OnError::Stop;
            assert_eq!(delivered.error.is_some(), is_stopped);
            assert_eq!(delivered.bad.is_empty(), is_stopped);
        }
    }
}

#[test]
fn a_dataset_of_bad_records_ends_with_their_error() {
    let damaged: Vec<u64> = (0..100).collect();
    let source = records(0, 100, &damaged);

    let (delivered, _) = assert_equal(&source, &pipeline(10), &options(OnError::Substitute));

    let error = delivered.error.expect("no record is good");
    assert!(error.contains("field `x`"), "{error}");
}

#[test]
fn selected_and_joined_records_are_copied_in_runs() {
    let joined = Mix::new(
        vec![records(0, 700, &[]), records(9000, 800, &[])],
        None,
        None,
    );
    let joined: Arc<dyn Source> = Arc::new(joined.expect("equal fields"));
    let third = Subset::whole(1500).filter(|_, number| number % 3 == 1);
    let selected: Arc<dyn Source> = Arc::new(SelectedRecords::new(Arc::clone(&joined), third));
    for source in [joined, selected] {
        let (_, reads) = assert_equal(&source, &pipeline(300).shuffle(1), &options(OnError::Stop));

        assert_eq!(reads, 0);
    }
}

#[test]
fn rows_of_tables_are_copied_unless_they_are_null() {
    let batches: Vec<RecordBatch> = (0..5)
        .map(|batch| {
            let numbers = batch * 300..(batch + 1) * 300;
            let x: Int16Array = numbers.clone().flat_map(|n| [n as i16, -7]).collect();
            let item = Arc::new(ArrowField::new("item", DataType::Int16, true));
            let x = FixedSizeListArray::new(item, 2, Arc::new(x), None);
            // Labels become int64.
            let label: Int32Array = numbers.map(|n| (n % 90 != 5).then_some(n)).collect();
            let columns: [(&str, ArrayRef); 2] = [("x", Arc::new(x)), ("label", Arc::new(label))];
            RecordBatch::try_from_iter(columns).expect("equal lengths")
        })
        .collect();
    let table = Batches::new("the table", &batches[0].schema(), &batches, &[]);
    let table: Arc<dyn Source> = Arc::new(table.expect("a table"));
    for on_error in [OnError::Stop, OnError::Skip, OnError::Substitute] {
        let (delivered, reads) =
            assert_equal(&table, &pipeline(400).shuffle(2), &options(on_error));

        let is_stopped = on_error == OnError::Stop;
        assert_eq!(delivered.error.is_some(), is_stopped);
        assert_eq!(delivered.bad.is_empty(), is_stopped);
        assert!(reads > 0, "null labels are read");
    }
}

#[test]
fn all_epochs_of_a_long_run_have_every_record_once() {
    let source = records(0, 1500, &[]);
    let loader = pipeline(64)
        .shuffle(8)
        .open_over(source, &Options::default())
        .expect("opens");
    for _ in 0..20 {
        let mut seen: Vec<u64> = epoch(&loader)
            .iter()
            .flat_map(|batch| batch.records.clone())
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..1500).collect::<Vec<_>>());
    }
}
