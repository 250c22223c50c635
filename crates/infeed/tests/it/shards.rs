//! The source trait holds for records that can only be read front to back, many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use infeed::pipeline::SourceSpec;
use infeed::sample::{DType, Field, FieldKind, Record, RecordId};
use infeed::source::{Admit, Read, ReadError, Sink, Source};
use infeed::{Error, Options, Pipeline};

use crate::data::epoch;

const PER_SHARD: u64 = 25;

/// Shards of numbers; a shard is one stream, read from its beginning to its end.
#[derive(Debug)]
struct Shards {
    fields: Vec<Field>,
    shards: u64,
    record_bytes: u64,
    streams_read: AtomicU64,
}

impl Shards {
    fn new(shards: u64, record_bytes: u64) -> Shards {
        let kind = FieldKind::Tensor {
            dtype: DType::UInt64,
            shape: Vec::new(),
        };
        let fields = vec![Field {
            name: "number".to_owned(),
            kind,
        }];
        Shards {
            fields,
            shards,
            record_bytes,
            streams_read: AtomicU64::new(0),
        }
    }
}

impl Source for Shards {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> u64 {
        self.shards * PER_SHARD
    }

    fn id(&self, record: u64, _: Option<usize>) -> RecordId {
        let name = format!(
            "member {} of shard {}",
            record % PER_SHARD,
            record / PER_SHARD
        );
        RecordId {
            index: record,
            name,
        }
    }

    fn run_length(&self) -> u64 {
        self.len()
    }

    fn plan(&self, run: &[u64], _: u64) -> Vec<Read> {
        let read = |shard: u64| {
            let of_shard = |&(_, record): &(usize, u64)| record / PER_SHARD == shard;
            let records = run.iter().copied().enumerate().filter(of_shard).collect();
            Read {
                records,
                bytes: Some(self.record_bytes * PER_SHARD),
                key: shard,
            }
        };
        (0..self.shards).map(read).collect()
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admit<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let bytes = self.record_bytes * PER_SHARD;
        let record = read.key * PER_SHARD;
        admit(bytes).map_err(|refused| ReadError::Refused {
            record,
            bytes,
            refused,
        })?;
        self.streams_read.fetch_add(1, Ordering::Relaxed);
        for record in read.key * PER_SHARD..(read.key + 1) * PER_SHARD {
            for &(place, wanted) in read.records.iter().filter(|(_, wanted)| *wanted == record) {
                let fields = vec![Bytes::copy_from_slice(&wanted.to_le_bytes())];
                let index = wanted;
                sink(place, Ok(Record { index, fields }));
            }
        }
        Ok(())
    }
}

fn pipeline() -> Pipeline {
    Pipeline::new(SourceSpec::Memory { fields: Vec::new() })
        .shuffle(1)
        .batch(10)
}

#[test]
fn shards_read_front_to_back_give_every_record_once_with_one_read_a_shard_and_epoch() {
    let source = Arc::new(Shards::new(8, 64));
    let shared: Arc<dyn Source> = source.clone();
    let loader = pipeline()
        .open_over(shared, &Options::default())
        .expect("fits");

    let mut orders = Vec::new();
    for _ in 0..3 {
        let batches = epoch(&loader);
        let numbers: Vec<u64> = batches
            .iter()
            .flat_map(|b| {
                b.array("number")
                    .expect("numbers")
                    .bytes()
                    .chunks_exact(8)
                    .map(number)
                    .collect::<Vec<_>>()
            })
            .collect();
        let records: Vec<u64> = batches.iter().flat_map(|b| b.records.clone()).collect();
        assert_eq!(numbers, records);
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..200).collect::<Vec<_>>());
        orders.push(numbers);
    }

    assert!(orders[0] != orders[1] && orders[1] != orders[2]);
    // Preparation may have gone on into the fourth and fifth epoch.
    assert!((24..=40).contains(&source.streams_read.load(Ordering::Relaxed)));
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

#[test]
fn shards_that_do_not_fit_the_budget_together_are_refused_with_the_bytes_needed() {
    let mut options = Options::default();
    options.workers = Some(1);
    options.memory = Some(20 << 20);
    let source: Arc<dyn Source> = Arc::new(Shards::new(8, 1 << 20));
    let loader = pipeline().open_over(source, &options).expect("opens");

    let error = loader.next_batch().expect_err("200 MiB of shards");

    assert!(
        matches!(error, Error::Config { .. }) && error.to_string().contains("memory"),
        "{error}"
    );
}
