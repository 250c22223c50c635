//! Sources made of other sources.

use std::path::Path;
use std::sync::Arc;

use infeed::pipeline::{MixPart, SourceSpec};
use infeed_source::repeated_records::RepeatedRecords;
use infeed_source::{RecordResult, Source};

use super::conformance::{TestDataset, holds};
use super::formats::tfrecord;

/// Packed shards in a mix of two mixes.
fn write_nested(root: &Path, images: &[Vec<u8>], damaged: &[u64]) -> TestDataset {
    // Packed shards are read whole; the shard's number is the key of the read.
    tfrecord(root, images, damaged, true);
    let shard = |shards: &str| {
        let path = root.join(shards).display().to_string();
        SourceSpec::tfrecord(path)
    };
    let mix = |sources: [SourceSpec; 2]| {
        let part = |source| MixPart {
            weight: None,
            source,
        };
        SourceSpec::Mix {
            parts: sources.map(part).into(),
            epoch: None,
        }
    };
    let first = mix([
        shard("train-{00000..00001}-of-00005"),
        shard("train-00002-of-00005"),
    ]);
    let second = mix([shard("train-00003-of-00005"), shard("train-00004-of-00005")]);
    TestDataset {
        spec: mix([first, second]),
        handles: Vec::new(),
    }
}

#[test]
fn nested_mixes_meet_the_source_contract() {
    holds(write_nested);
}

/// Returns the source's result for each record of a run.
fn read_run(source: &dyn Source, run: &[u64]) -> Vec<Option<RecordResult>> {
    let mut all: Vec<Option<RecordResult>> = run.iter().map(|_| None).collect();
    for read in source.plan(run, u64::MAX) {
        let sink = &mut |place: usize, found| {
            assert!(all[place].replace(found).is_none(), "each place once");
        };
        source
            .read(&read, &mut |_| Ok(()), sink)
            .expect("the storage is good");
    }
    all
}

#[test]
fn a_damaged_record_of_a_selection_in_memory_keeps_its_number() {
    let images: Vec<Vec<u8>> = (0..40_u8).map(|n| vec![n; 30]).collect();
    let root = tempfile::tempdir().expect("a temporary folder");
    let made = tfrecord(root.path(), &images, &[30], false);
    let source = made.spec.open(&made.handles).expect("it was just written");

    let chosen =
        RepeatedRecords::in_memory(source, vec![35, 30, 2], 6).expect("the storage is good");

    for (at, found) in read_run(&chosen, &[0, 1, 2, 4, 5]).into_iter().enumerate() {
        let found = found.expect("every place");
        match at {
            1 | 3 => assert!(found.is_err(), "record 30 is damaged"),
            _ => {
                let index = [35, 30, 2, 30, 2][at];
                let record = found.expect("a good record");
                assert_eq!(record.index, index);
                assert_eq!(record.fields[0], images[index as usize][..]);
            }
        }
    }
}

#[test]
fn a_selection_of_damaged_records_reports_each() {
    let images: Vec<Vec<u8>> = (0..40_u8).map(|n| vec![n; 30]).collect();
    let root = tempfile::tempdir().expect("a temporary folder");
    let made = tfrecord(root.path(), &images, &[30, 31], false);
    let source: Arc<dyn Source> = made.spec.open(&made.handles).expect("it was just written");

    let chosen = RepeatedRecords::in_memory(source, vec![30, 31], 4).expect("the storage is good");

    let bad = |found: &Option<RecordResult>| matches!(found, Some(Err(_)));
    assert!(read_run(&chosen, &[0, 1, 2, 3]).iter().all(bad));
}
