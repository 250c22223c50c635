//! Random pipelines that are killed twice and resume with other workers and ranks: the same bits,
//! the same digest, each record at its position. Failures print the seed of the case.

use std::collections::BTreeMap;
use std::fs;

use infeed::fields::scratch::Position;
use infeed::loader::digest::{Digest, DigestScope};
use infeed::loader::{CacheLimit, LoaderState};
use infeed::pipeline::{Class, SourceSpec, Tail, Weights};
use infeed::plan::SamplePlan;
use infeed::{Batch, Loader, OnError, Options, Pipeline};
use infeed_codec::transform::{CutMix, MixUp, RandomHorizontalFlip, RandomResizedCrop};
use infeed_core::batch::PADDING;
use infeed_core::random::mix;
use infeed_sample::{Subsampling, jpeg};
use infeed_source::Source;
use tempfile::TempDir;

use crate::data::{photo, photos, picture};
use crate::sources::write::mds;

/// Default number of cases; `INFEED_CASES` overrides it. Each case is a run and the same run in
/// three parts.
const CASES: u64 = 40;

/// Successive random draws of a case.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = mix(self.0.wrapping_add(0x9E37_79B9_7F4A_7C15));
        self.0 % end
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A random pipeline with its data.
#[derive(Debug)]
struct Case {
    seed: u64,
    records: u64,
    bad: Vec<u64>,
    /// Records per shard; `None` for a folder of photos.
    shard: Option<u64>,
    shuffled: bool,
    split: bool,
    taken: Option<u64>,
    weighted: bool,
    passes: u64,
    mixup: f64,
    cutmix: f64,
    batch: u64,
    tail: Tail,
    on_error: OnError,
}

impl Case {
    fn draw(seed: u64) -> Case {
        let mut dice = Dice(mix(seed));
        let records = 14 + dice.below(16);
        let shard = dice.once_in(3).then(|| 3 + dice.below(6));
        let tail = dice.of(&[Tail::Keep, Tail::Drop, Tail::Pad, Tail::Wrap]);
        let (mixup, cutmix) = dice.of(&[(0.0, 0.0), (1.0, 0.0), (0.0, 0.7), (0.5, 0.4)]);
        let bad = (0..dice.below(4)).map(|_| dice.below(records)).collect();
        let skips = tail == Tail::Keep && dice.once_in(2);
        Case {
            seed,
            records,
            bad,
            shard,
            shuffled: !dice.once_in(4),
            split: dice.once_in(3),
            taken: dice.once_in(3).then(|| 9 + dice.below(6)),
            // Shards of this format have no class names.
            weighted: shard.is_none() && dice.once_in(3),
            passes: dice.of(&[1, 1, 2, 3]),
            mixup,
            cutmix,
            batch: dice.of(&[4, 6, 8]),
            tail,
            on_error: if skips {
                OnError::Skip
            } else {
                OnError::Substitute
            },
        }
    }

    fn is_bad(&self, source: &dyn Source, record: u64) -> bool {
        let id = source.id(record, None);
        match self.shard {
            Some(_) => self.bad.contains(&id.index),
            None => {
                let ends = |n: &u64| id.name.ends_with(&format!("{n:04}.jpg"));
                self.bad.iter().any(ends)
            }
        }
    }

    /// Writes its data, with some truncated files.
    fn write(&self) -> TempDir {
        let cut = |n: u64, bytes: Vec<u8>| match self.bad.contains(&n) {
            true => bytes[..bytes.len() / 2].to_vec(),
            false => bytes,
        };
        let Some(shard) = self.shard else {
            let root = photos(self.records);
            for &n in &self.bad {
                let path = photo(root.path(), n);
                let whole = jpeg(&picture(n, 40, 48), 90, Subsampling::Quarter).expect("encodes");
                fs::write(path, cut(n, whole)).expect("writes");
            }
            return root;
        };
        let root = tempfile::tempdir().expect("a temporary folder");
        let record = |n: u64| {
            let image = jpeg(&picture(n, 40, 48), 90, Subsampling::Quarter).expect("encodes");
            (cut(n, image), (n % 2) as i64)
        };
        let all: Vec<_> = (0..self.records).map(record).collect();
        let shards: Vec<_> = all.chunks(shard as usize).map(<[_]>::to_vec).collect();
        mds(root.path(), &shards, self.seed.is_multiple_of(2));
        root
    }

    fn pipeline(&self, root: &TempDir) -> Pipeline {
        let mut pipeline = Pipeline::new(match self.shard {
            Some(_) => SourceSpec::mds(root.path().to_string_lossy()),
            None => SourceSpec::folder(root.path()),
        });
        if self.split {
            pipeline = pipeline.split(&[0.8, 0.2], 0, 1);
        }
        if let Some(taken) = self.taken {
            pipeline = pipeline.take(taken);
        }
        if self.weighted {
            let weight = (Class::Name("dog".to_owned()), 3.0);
            pipeline = pipeline.weights(Weights::classes([weight]));
        }
        if self.passes > 1 {
            pipeline = pipeline.repeat(self.passes);
        }
        if self.shuffled {
            pipeline = pipeline.shuffle(self.seed);
        }
        pipeline = pipeline
            .decode()
            .transform(RandomResizedCrop::new(12))
            .transform(RandomHorizontalFlip::new(0.5));
        if self.mixup > 0.0 {
            let mut mixed = MixUp::new(0.4);
            (mixed.p, mixed.classes) = (self.mixup, Some(2));
            pipeline = pipeline.transform(mixed);
        }
        if self.cutmix > 0.0 {
            let mut mixed = CutMix::new(1.0);
            (mixed.p, mixed.classes) = (self.cutmix, Some(2));
            pipeline = pipeline.transform(mixed);
        }
        pipeline.batch(self.batch).tail(self.tail)
    }

    /// Opens a loader per rank, each with random settings that change no bit.
    fn ranks(&self, pipeline: &Pipeline, dice: &mut Dice, world_size: u64) -> Vec<Loader> {
        let mut open = |rank| {
            let mut options = Options::default();
            options.on_error = self.on_error;
            options.digest = DigestScope::Pixels;
            options.workers = Some(1 + dice.below(5) as usize);
            options.readers = Some(1 + dice.below(3) as usize);
            options.memory = dice.of(&[None, Some(48 << 20)]);
            options.cache = dice
                .of(&[None, Some(50_000), Some(1 << 30)])
                .map(|bytes| CacheLimit::Bytes(bytes).into());
            (options.rank, options.world_size) = (rank, world_size);
            let opened = pipeline.open(&options);
            opened.unwrap_or_else(|error| panic!("{}: {self:?}", error.chain()))
        };
        (0..world_size).map(&mut open).collect()
    }
}

/// One global batch: its position, its records, and the bytes of all its columns.
#[derive(Debug, PartialEq)]
struct GlobalBatch {
    epoch: u64,
    step: u64,
    records: Vec<u64>,
    columns: BTreeMap<String, Vec<u8>>,
}

/// Takes `count` global batches and joins the ranks' parts.
fn take(ranks: &[Loader], count: usize) -> Vec<GlobalBatch> {
    let next = |rank: &Loader| -> Batch {
        loop {
            if let Some(batch) = rank.next_batch().expect("bad records are replaced") {
                return batch;
            }
        }
    };
    let step = |_| {
        let parts: Vec<Batch> = ranks.iter().map(next).collect();
        let bytes = |name: &str| -> Vec<u8> {
            let arrays = parts.iter().map(|part| part.array(name).expect("numbers"));
            arrays
                .map(|array| array.bytes())
                .collect::<Vec<_>>()
                .concat()
        };
        let names = parts[0].columns.iter().map(|column| &column.name);
        GlobalBatch {
            epoch: parts[0].epoch,
            step: parts[0].step,
            records: parts.iter().flat_map(|part| part.records.clone()).collect(),
            columns: names.map(|name| (name.clone(), bytes(name))).collect(),
        }
    };
    (0..count).map(step).collect()
}

fn sum(ranks: &[Loader]) -> Digest {
    let digests = ranks.iter().map(Loader::digest);
    digests.reduce(Digest::plus).expect("at least one rank")
}

/// Checks that every delivered row belongs to its position: the planned record, a good record
/// instead of a bad one, or padding after the end. Returns the number of good rows with a bad
/// partner.
fn each_at_its_place(
    case: &Case,
    pipeline: &Pipeline,
    source: &dyn Source,
    batches: &[GlobalBatch],
) -> usize {
    let plan = SamplePlan::over(pipeline, source).expect("a plan");
    let order = pipeline.order(source, &[]).expect("an order");
    let bad = |record| case.is_bad(source, record);
    let mut bad_partners = 0;
    for epoch in 0..2 {
        let planned = order.epoch(epoch);
        let records: Vec<u64> = (0..order.len()).map(|at| planned.get(at)).collect();
        if !case.weighted {
            let mut times = BTreeMap::new();
            for record in &records {
                *times.entry(*record).or_insert(0) += 1;
            }
            assert_eq!(times.len() as u64 * case.passes, order.len(), "{case:?}");
            assert!(times.values().all(|n| *n == case.passes), "{case:?}");
        }
        let has_bad_partner = |position| {
            let near = || order.near(epoch, position);
            let drawn = plan.join(Position { epoch, position }, near);
            drawn.is_some_and(|drawn| bad(planned.get(drawn.partners()[0])))
        };
        let of_epoch = batches.iter().filter(|batch| batch.epoch == epoch);
        let mut found = of_epoch.flat_map(|batch| batch.records.clone());
        let rows = match case.tail {
            Tail::Keep => order.len(),
            Tail::Drop => order.len() / case.batch * case.batch,
            Tail::Pad | Tail::Wrap => order.len().next_multiple_of(case.batch),
        };
        for position in 0..rows {
            let wanted = records[(position % order.len()) as usize];
            // After the end of the epoch, partners differ, but the record does not depend on them.
            let partner = position < order.len() && has_bad_partner(position);
            let own = bad(wanted);
            bad_partners += usize::from(!own && partner);
            if case.on_error == OnError::Skip && (own || partner) {
                continue;
            }
            let record = found.next();
            if case.tail == Tail::Pad && position >= order.len() {
                assert_eq!(record, Some(PADDING), "{case:?}");
            } else if own {
                let good = record.is_some_and(|record| record < source.len() && !bad(record));
                assert!(good, "position {position} of epoch {epoch}, {case:?}");
            } else {
                assert_eq!(record, Some(wanted), "position {position}, {case:?}");
            }
        }
        assert_eq!(
            found.next(),
            None,
            "no more rows than the epoch has, {case:?}"
        );
    }
    bad_partners
}

/// Runs a case whole and in three parts. Returns its number of good rows with a bad partner.
fn run(seed: u64) -> usize {
    let case = Case::draw(seed);
    let mut dice = Dice(seed);
    let root = case.write();
    let pipeline = case.pipeline(&root);
    let whole = case.ranks(&pipeline, &mut dice, 1);
    let steps = whole[0].steps().expect("open") as usize;
    let source = whole[0].source().expect("open");
    let total = 2 * steps + 1;
    let mut digests = vec![whole[0].digest()];
    let mut wanted = Vec::new();
    while wanted.len() < total {
        wanted.extend(take(&whole, 1));
        digests.push(whole[0].digest());
    }
    let bad_partners = each_at_its_place(&case, &pipeline, &*source, &wanted);

    let records = pipeline.order(&*source, &[]).expect("an order").len();
    let is_full = records.is_multiple_of(case.batch) && case.on_error == OnError::Substitute;
    let worlds: Vec<u64> = match case.tail {
        Tail::Keep if !is_full => vec![1],
        _ => (1..=4).filter(|n| case.batch.is_multiple_of(*n)).collect(),
    };
    let first = 1 + dice.below(total as u64 - 2) as usize;
    let second = first + 1 + dice.below((total - first - 1) as u64) as usize;
    let mut state: Option<LoaderState> = None;
    for part in [0..first, first..second, second..total] {
        let world_size = dice.of(&worlds);
        let context = || format!("steps {part:?} with {world_size} ranks of {case:?}");
        let ranks = case.ranks(&pipeline, &mut dice, world_size);
        if let Some(state) = &state {
            for rank in &ranks {
                rank.restore(state).expect("a state of the same run");
            }
        }
        assert!(
            take(&ranks, part.len()) == wanted[part.clone()],
            "{}",
            context()
        );
        assert_eq!(sum(&ranks), digests[part.end], "{}", context());
        let mut left = ranks[0].state();
        left.digest = Some(sum(&ranks));
        let same = |rank: &Loader| {
            let mut other = rank.state();
            // Each rank has its own bad records, and only a single process has a digest.
            (other.bad, other.digest) = (left.bad.clone(), left.digest);
            other == left
        };
        assert!(ranks.iter().all(same), "{}", context());
        state = Some(LoaderState::from_json(&left.to_json()).expect("its own form"));
    }
    bad_partners
}

#[test]
fn a_random_pipeline_resumes_after_any_step_with_any_workers_and_ranks_to_the_same_bits() {
    let cases = std::env::var("INFEED_CASES").ok();
    let cases = cases.map_or(CASES, |text| text.parse().expect("a number of cases"));

    let bad_partners: usize = (0..cases).map(run).sum();

    assert!(
        bad_partners > 10,
        "a good row with a bad partner was met {bad_partners} times"
    );
}
