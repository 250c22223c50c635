//! The last batch of an epoch: kept, dropped, padded or wrapped. Every rank has the same number of
//! steps.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use infeed::loader::LoaderState;
use infeed::loader::digest::{Digest, DigestScope};
use infeed::pipeline::{SourceSpec, Tail};
use infeed::{Batch, Loader, OnError, Options, Pipeline};
use infeed_codec::transform::{MixUp, RandomHorizontalFlip, RandomResizedCrop};
use infeed_core::batch::PADDING;
use infeed_sample::{Subsampling, jpeg};

use crate::data::{photo, photos, picture};
use crate::sources::write::mds;

/// Records of the folder, and rows of a global batch; the last batch has 2 of 8 rows.
const RECORDS: u64 = 26;
const GLOBAL: u64 = 8;

/// Numbers of the truncated files.
const BAD: [u64; 3] = [3, 8, 20];

fn folder() -> tempfile::TempDir {
    let root = photos(RECORDS);
    for n in BAD {
        let path = photo(root.path(), n);
        let bytes = fs::read(&path).expect("it is there");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    }
    root
}

fn pipeline(root: &Path, tail: Tail) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(5)
        .decode()
        .transform(RandomResizedCrop::new(16))
        .transform(RandomHorizontalFlip::new(0.5))
        .batch(GLOBAL)
        .tail(tail)
}

fn options(workers: usize, rank: u64, world_size: u64) -> Options {
    let mut options = Options::default();
    options.on_error = OnError::Substitute;
    options.digest = DigestScope::Pixels;
    options.workers = Some(workers);
    (options.rank, options.world_size) = (rank, world_size);
    options
}

fn ranks(pipeline: &Pipeline, workers: usize, world_size: u64) -> Vec<Loader> {
    let open = |rank| pipeline.open(&options(workers, rank, world_size));
    (0..world_size)
        .map(|rank| open(rank).expect("opens"))
        .collect()
}

fn take(loader: &Loader, count: usize) -> Vec<Batch> {
    let mut batches = Vec::new();
    while batches.len() < count {
        batches.extend(loader.next_batch().expect("good"));
    }
    batches
}

/// Content of one global batch: records, and the bytes of all columns.
#[derive(Debug, PartialEq)]
struct GlobalBatchContent {
    epoch: u64,
    records: Vec<u64>,
    columns: Vec<(String, Vec<u8>)>,
}

/// Joins global batches from the ranks' parts.
fn put_together(parts: &[Vec<Batch>]) -> Vec<GlobalBatchContent> {
    let step = |step: usize| {
        let batches = || parts.iter().map(|part| &part[step]);
        let column = |name: &String| -> Vec<u8> {
            let arrays = batches().map(|batch| batch.array(name).expect("a column"));
            arrays.flat_map(|array| array.bytes().to_vec()).collect()
        };
        let names = parts[0][step]
            .columns
            .iter()
            .map(|column| column.name.clone());
        GlobalBatchContent {
            epoch: parts[0][step].epoch,
            records: batches().flat_map(|batch| batch.records.clone()).collect(),
            columns: names.map(|name| (name.clone(), column(&name))).collect(),
        }
    };
    (0..parts[0].len()).map(step).collect()
}

fn sum(loaders: &[Loader]) -> Digest {
    let digests = loaders.iter().map(Loader::digest);
    digests.reduce(Digest::plus).expect("at least one rank")
}

#[test]
fn kill_points_workers_and_ranks_resume_the_same_for_every_tail() {
    kill_and_resume(3);
}

#[test]
#[ignore = "long"]
fn any_kill_point_workers_and_ranks_resume_the_same_for_every_tail() {
    kill_and_resume(1);
}

/// Kills runs at each step of two epochs, or at one in `every`, and resumes them.
fn kill_and_resume(every: usize) {
    let root = folder();
    for tail in [Tail::Keep, Tail::Drop, Tail::Pad, Tail::Wrap] {
        let pipeline = pipeline(root.path(), tail);
        let worlds: &[u64] = match tail {
            Tail::Keep => &[1],
            _ => &[1, 2, 4],
        };
        let steps = if tail == Tail::Drop { 3 } else { 4 };
        let whole = ranks(&pipeline, 2, 1);
        let mut digests = vec![whole[0].digest()];
        let mut batches = Vec::new();
        for _ in 0..2 * steps {
            batches.extend(take(&whole[0], 1));
            digests.push(whole[0].digest());
        }
        let wanted = put_together(&[batches]);

        let mut workers = (1..=4).cycle();
        for kill_at in (1..2 * steps).step_by(every) {
            for &before in worlds {
                for &after in worlds {
                    let case = format!("{tail:?}, killed at {kill_at}, {before} to {after} ranks");
                    let first = ranks(&pipeline, workers.next().expect("a cycle"), before);
                    let parts: Vec<_> = first.iter().map(|one| take(one, kill_at)).collect();
                    assert!(put_together(&parts) == wanted[..kill_at], "{case}");
                    assert_eq!(sum(&first), digests[kill_at], "{case}");
                    let mut state = first[0].state();
                    assert_eq!(state.digest.is_some(), before == 1, "{case}");
                    state.digest = Some(sum(&first));
                    let state = state.to_json();
                    drop(first);

                    let second = ranks(&pipeline, workers.next().expect("a cycle"), after);
                    let state = LoaderState::from_json(&state).expect("its own form");
                    for loader in &second {
                        loader.restore(&state).expect("the same run");
                        assert_eq!(loader.steps().expect("open"), steps as u64);
                    }
                    let left = 2 * steps - kill_at;
                    let parts: Vec<_> = second.iter().map(|one| take(one, left)).collect();
                    assert!(put_together(&parts) == wanted[kill_at..], "{case}");
                    assert_eq!(sum(&second), digests[2 * steps], "{case}");
                }
            }
        }
        each_record_once(&pipeline, &whole[0], &wanted, tail);
    }
}

/// Checks that every good record has exactly one position; substitutes are additional.
fn each_record_once(
    pipeline: &Pipeline,
    loader: &Loader,
    batches: &[GlobalBatchContent],
    tail: Tail,
) {
    let source = loader.source().expect("open");
    let order = pipeline.order(&*source, &[]).expect("an order");
    let bad_records = loader.bad_records();
    let broken: BTreeSet<u64> = bad_records.iter().map(|bad| bad.record.index).collect();
    assert_eq!(broken.len(), BAD.len());
    for epoch in 0..2 {
        let planned = order.epoch(epoch);
        let rows = batches.iter().filter(|batch| batch.epoch == epoch);
        let rows: Vec<u64> = rows.flat_map(|batch| batch.records.clone()).collect();
        let own = |(position, _): &(usize, &u64)| {
            !broken.contains(&planned.get(*position as u64 % RECORDS))
        };
        let mut seen: Vec<u64> = rows
            .iter()
            .enumerate()
            .filter(own)
            .map(|(_, &r)| r)
            .collect();
        let beyond = rows.len().saturating_sub(RECORDS as usize);
        let padding = rows.iter().filter(|&&record| record == PADDING).count();
        seen.retain(|&record| record != PADDING);
        seen.sort_unstable();
        let good: Vec<u64> = (0..RECORDS).filter(|n| !broken.contains(n)).collect();
        match tail {
            Tail::Keep => assert_eq!((beyond, padding), (0, 0)),
            Tail::Pad => assert_eq!((beyond, padding), (6, 6)),
            Tail::Wrap => assert_eq!((beyond, padding), (6, 0)),
            Tail::Drop => assert_eq!(rows.len(), 24),
        }
        if matches!(tail, Tail::Keep | Tail::Pad) {
            assert_eq!(seen, good, "{tail:?}");
        } else {
            let distinct: BTreeSet<u64> = seen.iter().copied().collect();
            assert!(distinct.len() + 2 >= good.len(), "at most two are left out");
            assert!(
                seen.len() <= distinct.len() + beyond,
                "none but the first comes twice"
            );
        }
    }
}

#[test]
fn padding_is_zeros_marked_by_the_valid_mask_and_reads_nothing() {
    let root = photos(10);
    let pipeline = pipeline(root.path(), Tail::Pad).batch(8);
    for rank in 0..4 {
        let loader = pipeline.open(&options(2, rank, 4)).expect("equal steps");
        let batches = take(&loader, 4);
        for batch in &batches {
            let valid = batch.array("valid").expect("in every batch");
            assert_eq!(valid.shape(), [2]);
            assert_eq!(valid.dtype().name(), "bool");
            // Ten records in batches of 8: the last batch has only rows of rank 0.
            let holds = u8::from(batch.step == 0 || rank == 0);
            assert_eq!(
                valid.bytes(),
                [holds; 2],
                "rank {rank}, step {}",
                batch.step
            );
            let image = batch.array("image").expect("a column");
            assert_eq!(image.shape(), [2, 16, 16, 3]);
            assert_eq!(image.bytes().iter().any(|&byte| byte != 0), holds == 1);
            assert_eq!(batch.samples(), 2 * usize::from(holds == 1));
        }
        let stats = loader.stats().expect("open");
        assert_eq!(stats.samples, if rank == 0 { 8 } else { 4 });
    }
}

#[test]
fn wrapped_records_draw_parameters_for_their_new_positions() {
    let root = photos(5);
    let one = pipeline(root.path(), Tail::Wrap).batch(4);
    let loader = one.open(&options(2, 0, 1)).expect("opens");

    let batches = take(&loader, 2);

    assert_eq!(batches[1].records[1..], batches[0].records[..3]);
    let image = |batch: &Batch, row: usize| {
        let bytes = batch.array("image").expect("a column").bytes();
        bytes[row * 768..(row + 1) * 768].to_vec()
    };
    for row in 0..3 {
        assert_ne!(
            image(&batches[1], row + 1),
            image(&batches[0], row),
            "row {row}"
        );
    }
}

#[test]
fn shards_that_are_read_whole_can_be_padded_and_wrapped() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let record = |n| {
        let image = jpeg(&picture(n, 40, 40), 90, Subsampling::Quarter);
        (image.expect("encodes"), n as i64)
    };
    let shard = |n: u64| (7 * n..7 * n + 7).map(record).collect();
    mds(root.path(), &[shard(0), shard(1), shard(2)], true);
    for tail in [Tail::Pad, Tail::Wrap] {
        let pipeline = Pipeline::new(SourceSpec::mds(root.path().to_string_lossy()))
            .shuffle(2)
            .decode()
            .transform(RandomResizedCrop::new(16))
            .batch(8)
            .tail(tail);
        let reference = put_together(&[take(&ranks(&pipeline, 2, 1)[0], 6)]);
        for world_size in [2, 4, 8] {
            let loaders = ranks(&pipeline, 3, world_size);
            let parts: Vec<_> = loaders.iter().map(|one| take(one, 6)).collect();
            assert_eq!(
                put_together(&parts),
                reference,
                "{tail:?}, {world_size} ranks"
            );
        }
    }
}

#[test]
fn mixed_rows_after_the_end_have_partners_for_every_world_size() {
    let root = photos(13);
    for tail in [Tail::Pad, Tail::Wrap] {
        let pipeline = pipeline(root.path(), tail).transform(MixUp::new(0.4));
        let plain = self::pipeline(root.path(), tail);
        let whole = take(&ranks(&pipeline, 2, 1)[0], 4);
        let unmixed = take(&ranks(&plain, 2, 1)[0], 4);
        for world_size in [2, 4, 8] {
            let loaders = ranks(&pipeline, 2, world_size);
            let parts: Vec<_> = loaders.iter().map(|one| take(one, 4)).collect();
            let same = put_together(&parts) == put_together(std::slice::from_ref(&whole));
            assert!(same, "{tail:?}, {world_size} ranks");
        }
        // Rows 5 to 7 of the last batch are padding or repeated records.
        let row = |batches: &[Batch], row: usize| {
            let bytes = batches[1].array("image").expect("a column").bytes();
            bytes[row * 768..(row + 1) * 768].to_vec()
        };
        for at in 5..8 {
            assert_eq!(row(&whole, at) == row(&unmixed, at), tail == Tail::Pad);
        }
    }
}

#[test]
fn a_tail_that_cannot_be_filled_is_rejected_with_the_fix() {
    let root = photos(9);
    let refused = |pipeline: &Pipeline, options: &Options| {
        let error = pipeline.open(options).expect_err("it cannot work");
        error.to_string()
    };
    let of = |tail| pipeline(root.path(), tail).batch(4);

    let mut skip = options(1, 0, 1);
    skip.on_error = OnError::Skip;
    for tail in [Tail::Drop, Tail::Pad, Tail::Wrap] {
        assert!(refused(&of(tail), &skip).contains("on_error=\"substitute\""));
    }

    let error = refused(&of(Tail::Keep), &options(1, 0, 2));
    assert!(error.contains("tail=\"pad\" or tail=\"wrap\""), "{error}");

    let error = refused(&of(Tail::Pad).drop_last(), &options(1, 0, 1));
    assert!(error.contains("set only one of them"), "{error}");

    let mut sizes = Pipeline::new(SourceSpec::folder(root.path())).decode();
    sizes = sizes.batch(4).pad().tail(Tail::Pad);
    let error = refused(&sizes, &options(1, 0, 2));
    assert!(
        error.contains("`image`") && error.contains("tail=\"wrap\""),
        "{error}"
    );
    assert_eq!(
        take(&sizes.open(&options(1, 0, 1)).expect("one rank"), 3).len(),
        3
    );
}
