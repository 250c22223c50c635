//! A batch does not depend on its maker: feeders only, feeders with local workers, several ranks,
//! every kind of column and tail.

use std::fs;

use infeed::loader::digest::DigestScope;
use infeed::pipeline::SourceSpec;
use infeed::{Batch, OnError, Options, Pipeline};
use infeed_codec::transform::{CenterCrop, MixUp, OneHot, Resize};
use infeed_core::order::partition::Tail;
use infeed_core::sample::DType;
use infeed_feed::Local;

use super::*;
use crate::data::{pairs, photo, photos};

#[test]
fn order_and_bits_equal_a_local_run_with_0_to_2_feeders() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let feeders = [feeder(&pipeline), feeder(&pipeline)];
    let expected = locally(&pipeline, &Options::default(), 3);

    for local in [Local::Help, Local::Fallback] {
        for count in 1..=2 {
            let hosts = feeders[..count].iter().map(host);
            let loader = open(&pipeline, &options_for(hosts, local));

            assert!(epochs(&loader, 3) == expected, "{count} feeders, {local:?}");

            let reported = stats(&loader);
            let made: u64 = reported.iter().map(|feeder| feeder.batches).sum();
            assert_eq!(reported.len(), count);
            assert!(made > 0, "{reported:?}");
            if local == Local::Fallback {
                // Own cores make only batches that a feeder declines, as a busy one does.
                let declined: u64 = reported.iter().map(|feeder| feeder.declined).sum();
                assert!(made + declined >= 24, "{reported:?}");
            }
            assert!(
                reported
                    .iter()
                    .all(|feeder| feeder.redone + feeder.corrupt == 0),
                "{reported:?}"
            );
        }
    }
    assert!(feeders[1].stats().batches > 0);
}

#[test]
fn batches_and_their_bad_records_are_counted_as_in_a_local_run() {
    let root = photos(18);
    for n in [2, 3, 11] {
        let path = photo(root.path(), n);
        let bytes = fs::read(&path).expect("it is there");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    }
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    for on_error in [OnError::Substitute, OnError::Skip] {
        let run = |mut options: Options| {
            (options.on_error, options.digest) = (on_error, DigestScope::Pixels);
            let loader = open(&pipeline, &options);
            let found = epochs(&loader, 2);
            let bad = loader.bad_records();
            let bad: Vec<_> = bad
                .iter()
                .map(|bad| {
                    (
                        bad.epoch,
                        bad.position,
                        bad.record.clone(),
                        bad.reason.chain(),
                    )
                })
                .collect();
            let state = loader.state().to_json();
            (found, bad, loader.digest(), state)
        };
        let remote = run(options_for([host(&feeder)], Local::Fallback));

        assert_eq!(remote.1.len(), 3);
        assert!(
            remote == run(Options::default()),
            "{on_error:?}: {:?}",
            remote.1
        );
    }
    assert!(feeder.stats().batches > 0);
}

#[test]
fn a_bad_record_stops_the_run_in_the_trainer() {
    let root = photos(16);
    fs::write(photo(root.path(), 6), b"no image").expect("writes");
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let stopped = |options: &Options| {
        let loader = open(&pipeline, options);
        let mut delivered = 0;
        let error = loop {
            match loader.next_batch() {
                Ok(batch) => delivered += batch.map_or(0, |batch| batch.rows()),
                Err(error) => break error,
            }
        };
        (delivered, error.chain())
    };

    let remote = stopped(&options_for([host(&feeder)], Local::Fallback));

    assert_eq!(remote, stopped(&Options::default()));
    assert!(remote.1.contains("0006.jpg"), "{}", remote.1);
    assert!(feeder.stats().declined > 0);
}

#[test]
fn every_kind_of_column_and_tail_crosses_the_wire() {
    let photos = photos(14);
    let pairs = pairs(11, 20, 24);
    // The last class is missing, so some pixels are unknown.
    let all = fs::read_to_string(pairs.path().join("class_dict.csv")).expect("a palette");
    let (known, _) = all.trim_end().rsplit_once('\n').expect("classes");
    let some = pairs.path().join("some.csv");
    fs::write(&some, known).expect("writes");
    let folder = |decode: bool| {
        let pipeline = Pipeline::new(SourceSpec::folder(photos.path())).shuffle(3);
        if decode { pipeline.decode() } else { pipeline }
    };
    let masks = Pipeline::new(SourceSpec::pairs(
        pairs.path().join("images"),
        pairs.path().join("masks"),
    ));
    let cases: Vec<(&str, Pipeline)> = vec![
        ("bytes", folder(false).batch(4)),
        ("padded", folder(true).batch(4).pad()),
        (
            "zeros behind the end",
            folder(true)
                .transform(CenterCrop::new(20))
                .batch(4)
                .tail(Tail::Pad),
        ),
        (
            "restarted",
            folder(true)
                .transform(CenterCrop::new(20))
                .batch(4)
                .tail(Tail::Wrap),
        ),
        (
            "mixed",
            folder(true)
                .transform(Resize::new([16, 16]))
                .transform(MixUp {
                    classes: Some(2),
                    ..MixUp::new(0.4)
                })
                .batch(4),
        ),
        (
            "images and masks",
            masks
                .decode()
                .transform(Resize::new([16, 16]))
                .transform(OneHot {
                    dtype: DType::UInt8,
                    ..OneHot::from_palette(some.display().to_string()).ignoring_unknown()
                })
                .batch(4),
        ),
    ];
    for (name, pipeline) in cases {
        let feeder = feeder(&pipeline);
        let run = |options: &Options| {
            let loader = open(&pipeline, options);
            let batches: Vec<Batch> = (0..2).flat_map(|_| epoch(&loader)).collect();
            (batches, loader.stats().expect("open").unknown_pixels)
        };
        let (remote, remote_unknown) = run(&options_for([host(&feeder)], Local::Fallback));
        let (own, own_unknown) = run(&Options::default());

        assert_eq!(remote.len(), own.len());
        assert_eq!(remote_unknown, own_unknown, "{name}");
        assert_eq!(own_unknown > 0, name == "images and masks", "{name}");
        for (remote, own) in remote.iter().zip(&own) {
            assert_eq!(remote.records, own.records, "{name}");
            assert_eq!(text(remote), text(own), "{name}, step {}", own.step);
        }
        assert!(feeder.stats().batches > 0, "{name}");
    }
}

/// Returns the whole content of a batch, for comparison.
fn text(batch: &Batch) -> String {
    let mut text = String::new();
    for column in &batch.columns {
        text += &column.name;
        text += &match &column.values {
            infeed::Values::Array(array) => format!("{array:?} {:?}", array.bytes()),
            infeed::Values::Ragged { values, offsets } => {
                format!("{:?} {:?}", values.bytes(), offsets.bytes())
            }
            infeed::Values::Bytes(rows) => format!("{rows:?}"),
            infeed::Values::Text(rows) => format!("{rows:?}"),
        };
    }
    text
}

#[test]
fn two_ranks_share_a_feeder_and_each_receives_its_rows() {
    let root = photos(32);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let rank = |rank: u64, feeders: bool| {
        let mut options = options_for([host(&feeder)], Local::Fallback);
        (options.rank, options.world_size) = (rank, 2);
        if !feeders {
            options.remote = None;
        }
        open(&pipeline, &options)
    };
    let remote = [rank(0, true), rank(1, true)];

    let found: Vec<_> = std::thread::scope(|scope| {
        let run = |loader: &'_ Loader| epochs(loader, 2);
        let threads: Vec<_> = remote.iter().map(|l| scope.spawn(move || run(l))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });

    for number in 0..2 {
        let expected = epochs(&rank(number as u64, false), 2);
        assert!(found[number] == expected, "rank {number}");
        assert!(stats(&remote[number])[0].batches > 0);
    }
    assert_eq!(feeder.stats().sessions, 2);
    drop(remote);
}

#[test]
fn a_restarted_trainer_resumes_with_the_same_feeder() {
    let root = photos(30);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let options = options_for([host(&feeder)], Local::Help);
    let expected = locally(&pipeline, &options, 2);
    let first = open(&pipeline, &options);
    let mut found = Vec::new();
    for _ in 0..5 {
        found.extend(first.next_batch().expect("no bad record"));
    }
    let state = first.state();
    drop(first);

    let second = open(&pipeline, &options);
    second.restore(&state).expect("its own");
    found.extend(epoch(&second));
    found.extend(epoch(&second));

    assert!(bits(&found) == expected);
    // Forward and backward, while answers to earlier requests are in transfer.
    for place in [(0, 2), (1, 6), (0, 0), (1, 1)] {
        second.seek(place.0, place.1).expect("there is one");
        let batch = second.next_batch().expect("no bad record");
        let at = (place.0 * 8 + place.1) as usize;
        assert!(
            bits(&[batch.expect("a batch")])[0] == expected[at],
            "{place:?}"
        );
    }
}

#[test]
fn rows_for_a_device_arrive_as_bytes_and_become_the_same_floats() {
    use infeed::loader::device::Placement;
    use infeed_device::sim::{Sim, SimConfig};

    let root = photos(24);
    let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
        .shuffle(5)
        .decode()
        .transform(CenterCrop::new(24))
        .transform(Normalize::new([0.5, 0.5, 0.5], [0.2, 0.2, 0.2]))
        .batch(4);
    let feeder = feeder(&pipeline);
    let run = |options: &Options| {
        let sim = Sim::new(SimConfig::default());
        let loader = pipeline
            .open_on(sim, Placement::Device, 3, &[], options)
            .expect("opens");
        let mut records = Vec::new();
        while let Some(batch) = loader.next_batch().expect("no bad record") {
            records.push(batch.records().to_vec());
        }
        (records, loader.loader().stats().expect("open").remote)
    };

    let (remote, reported) = run(&options_for([host(&feeder)], Local::Fallback));
    let (own, _) = run(&Options::default());

    assert_eq!(remote, own);
    let bytes = reported[0].bytes;
    assert!(reported[0].batches > 0);
    assert!(
        bytes < reported[0].batches * 4 * 24 * 24 * 3 * 2,
        "{bytes} bytes are floats"
    );
}
