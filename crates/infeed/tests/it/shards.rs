//! The source trait supports records that can only be read in groups, front to back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use infeed::pipeline::SourceSpec;
use infeed::{Error, Loader, OnError, Options, Pipeline};
use infeed_core::order::window::Groups;
use infeed_core::sample::{DType, Field, FieldKind, Record, RecordId};
use infeed_source::mix::Mix;
use infeed_source::{Admission, Read, ReadError, Sink, Source};

use crate::data::epoch;

const PER_SHARD: u64 = 25;

/// Shards of numbers; a shard is one stream that is read from beginning to end.
#[derive(Debug)]
struct NumberShards {
    fields: Vec<Field>,
    shards: u64,
    record_bytes: u64,
    streams_read: AtomicU64,
    /// Groups of shards that can only be read whole.
    groups: Option<Arc<Groups>>,
    damaged: Option<u64>,
}

impl NumberShards {
    fn new(shards: u64, record_bytes: u64) -> NumberShards {
        let kind = FieldKind::Tensor {
            dtype: DType::UInt64,
            shape: Vec::new(),
        };
        let fields = vec![Field {
            name: "number".to_owned(),
            kind,
        }];
        NumberShards {
            fields,
            shards,
            record_bytes,
            streams_read: AtomicU64::new(0),
            groups: None,
            damaged: None,
        }
    }

    /// Creates shards that report groups of this size in MiB.
    fn with_groups(shards: u64, mib: u64) -> NumberShards {
        let bytes = (mib << 20) / PER_SHARD * PER_SHARD;
        let groups = Groups {
            ends: (1..=shards).map(|shard| shard * PER_SHARD).collect(),
            bytes: vec![bytes; shards as usize],
            whole: true,
        };
        NumberShards {
            groups: Some(Arc::new(groups)),
            ..NumberShards::new(shards, bytes / PER_SHARD)
        }
    }
}

impl Source for NumberShards {
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

    fn groups(&self) -> Option<Arc<Groups>> {
        self.groups.clone()
    }

    fn plan(&self, run: &[u64], _: u64) -> Vec<Read> {
        let read = |shard: u64| {
            let of_shard = |&(_, record): &(usize, u64)| record / PER_SHARD == shard;
            let records = run.iter().copied().enumerate().filter(of_shard).collect();
            Read {
                records,
                bytes: Some(self.record_bytes * PER_SHARD),
                key: shard,
                draws: Vec::new(),
            }
        };
        let reads = (0..self.shards).map(read);
        reads.filter(|read| !read.records.is_empty()).collect()
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
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
                let found = match self.damaged == Some(wanted) {
                    true => Err(Arc::new(std::io::Error::other("damaged")) as _),
                    false => Ok(Record { index, fields }),
                };
                sink(place, found);
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
    let source = Arc::new(NumberShards::new(8, 64));
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
    // Reading may have continued into the fourth and fifth epoch.
    assert!((24..=40).contains(&source.streams_read.load(Ordering::Relaxed)));
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

#[test]
fn shards_over_the_budget_are_rejected_with_the_bytes_needed() {
    let mut options = Options::default();
    options.workers = Some(1);
    options.memory = Some(20 << 20);
    let source: Arc<dyn Source> = Arc::new(NumberShards::new(8, 1 << 20));
    let loader = pipeline().open_over(source, &options).expect("opens");

    let error = loader.next_batch().expect_err("200 MiB of shards");

    assert!(
        matches!(error, Error::Config { .. }) && error.to_string().contains("memory"),
        "{error}"
    );
}

fn with_memory(source: NumberShards, mib: u64, on_error: OnError) -> Result<Loader, Error> {
    let mut options = Options::default();
    (options.workers, options.memory) = (Some(2), Some(mib << 20));
    options.on_error = on_error;
    pipeline().open_over(Arc::new(source), &options)
}

/// Returns every record of an epoch, sorted.
fn records(loader: &Loader) -> Vec<u64> {
    let batches = epoch(loader);
    let mut records: Vec<u64> = batches.iter().flat_map(|b| b.records.clone()).collect();
    records.sort_unstable();
    records
}

#[test]
fn groups_larger_than_the_usual_read_ahead_are_read_where_memory_is_given() {
    let error = with_memory(NumberShards::with_groups(3, 300), 200, OnError::Stop)
        .expect_err("a group of 300 MiB")
        .to_string();
    let (_, behind) = error.split_once("raise memory to ").expect("a fix");
    let number: String = behind.chars().take_while(char::is_ascii_digit).collect();
    let needed: u64 = number.parse().expect("a number");

    let loader = with_memory(
        NumberShards::with_groups(3, 300),
        needed.div_ceil(1 << 20),
        OnError::Stop,
    );

    assert_eq!(
        records(&loader.expect("the suggested memory")),
        (0..75).collect::<Vec<_>>()
    );
    let larger =
        with_memory(NumberShards::with_groups(3, 300), 4 << 10, OnError::Stop).expect("plenty");
    assert_eq!(records(&larger), (0..75).collect::<Vec<_>>());
}

#[test]
fn a_bad_record_of_a_large_group_has_one_substitute_and_makes_no_other_record_bad() {
    let mut source = NumberShards::with_groups(4, 150);
    source.damaged = Some(30);

    let loader = with_memory(source, 1 << 10, OnError::Substitute).expect("enough");

    let seen = records(&loader);
    assert_eq!(seen.len(), 100);
    assert!(!seen.contains(&30));
    let bad: Vec<u64> = loader
        .bad_records()
        .iter()
        .map(|bad| bad.record.index)
        .collect();
    assert_eq!(bad, [30]);
}

#[test]
fn a_weighted_mix_of_groups_reports_its_memory_and_runs_with_it() {
    let mix = || -> Arc<dyn Source> {
        let part = |_| Arc::new(NumberShards::with_groups(9, 50)) as Arc<dyn Source>;
        let parts = (0..4).map(part).collect();
        Arc::new(Mix::new(parts, Some(vec![1.0, 2.0, 1.0, 1.0]), None).expect("one form"))
    };
    let mut options = Options::default();
    (options.workers, options.memory) = (Some(2), Some(300 << 20));
    let error = pipeline()
        .open_over(mix(), &options)
        .expect_err("four windows")
        .to_string();
    let (_, behind) = error.split_once("raise memory to ").expect("a fix");
    let number: String = behind.chars().take_while(char::is_ascii_digit).collect();
    options.memory = Some(number.parse().expect("a number"));

    let loader = pipeline()
        .open_over(mix(), &options)
        .expect("the suggested memory");

    assert_eq!(records(&loader).len(), 900);
}
