//! Pipeline files, packs, states and digests of earlier versions. Every later version must read
//! them to the same bits.
//!
//! A case is a file in `testdata/golden/pipelines` or a line in [`PACKS`]. With `UPDATE_GOLDEN=1`
//! the test writes the files that a case lacks. It never changes a file that exists.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use infeed::function::{
    CallCost, DrawKey, Function, FunctionFailure, RunningFunction, ValueSink, ValueSpec,
};
use infeed::loader::LoaderState;
use infeed::loader::digest::{Digest, DigestScope};
use infeed::loader::verify::{VerifyOptions, VerifyReference};
use infeed::pipeline::{Handle, Tail};
use infeed::{Error, Loader, OnError, Options, Pipeline, Values};
use infeed_core::batch::Column;
use serde_json::{Value, json};

use crate::{infeed, stderr};

/// Relative to the crate's folder, where tests run. The golden files name their data by this path.
const ROOT: &str = "../../testdata/golden";

/// Packed datasets: name, pipeline that is packed, and options of `infeed pack`.
const PACKS: &[(&str, &str, &str)] = &[
    ("arrays", "photos", "--to arrays --fit 32x24"),
    ("arrow", "photos", "--to arrow"),
    ("arrow-raw", "photos", "--to arrow --encode raw --fit 32x24"),
    (
        "folder-jpeg",
        "photos",
        "--to folder --image jpeg:90 --short-side 24",
    ),
    (
        "folder-png-fast",
        "one_hot",
        "--to folder --image png-fast --mask png-fast",
    ),
    (
        "folder-png-stored",
        "one_hot",
        "--to folder --image png-stored --mask png-stored",
    ),
    ("folder-restart", "photos", "--to folder --restart-index=1"),
    (
        "folder-webp",
        "photos",
        "--to folder --image webp-lossless --short-side 24",
    ),
    ("npz", "photos", "--to npz --fit 32x24 --rows 5"),
    ("parquet", "photos", "--to parquet"),
    ("tfrecord", "photos", "--to tfrecord --shuffle 3"),
    ("webdataset", "photos", "--to webdataset --shard-size 20kB"),
    (
        "webdataset-pairs",
        "one_hot",
        "--to webdataset --image png:up:high",
    ),
];

/// Steps of a recorded run; more than an epoch of most cases.
const STEPS: u64 = 8;

/// Steps before the state of a run is saved.
const SAVED_AT: u64 = 4;

/// Ranks that are recorded: rank and world size.
const RANKS: [(u64, u64); 3] = [(0, 1), (0, 2), (1, 2)];

/// Whether missing files are written.
fn is_updating() -> bool {
    env::var_os("UPDATE_GOLDEN").is_some()
}

/// Fails for a missing file unless it is to be written.
fn require_updating(missing: &Path) {
    assert!(
        is_updating(),
        "{} is missing; restore it, or write the files of a new case with UPDATE_GOLDEN=1",
        missing.display()
    );
}

/// Names of the files in a folder that end in `suffix`, without it; sorted.
fn names(folder: &Path, suffix: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter_map(|name| name.strip_suffix(suffix).map(str::to_owned))
        .collect()
}

fn pipeline_file(name: &str) -> PathBuf {
    Path::new(ROOT).join(format!("pipelines/{name}.toml"))
}

/// Writes the packed datasets that are missing.
fn pack_missing() {
    for (name, pipeline, options) in PACKS {
        let out = Path::new(ROOT).join("packs").join(name);
        if out.exists() {
            continue;
        }
        require_updating(&out);
        let from = pipeline_file(pipeline);
        let paths = ["pack", from.to_str().unwrap(), out.to_str().unwrap()];
        let output = infeed(paths.into_iter().chain(options.split(' ')));
        assert!(output.status.success(), "{name}: {}", stderr(&output));
    }
}

/// Every case: the pipeline files, and the pipelines of the packed datasets.
fn cases() -> Vec<(String, Pipeline)> {
    let files = names(&Path::new(ROOT).join("pipelines"), ".toml");
    let files = files.into_iter().map(|name| {
        let pipeline = Pipeline::load(pipeline_file(&name));
        (name, pipeline.unwrap())
    });
    let packs = PACKS.iter().map(|(name, ..)| {
        let pipeline = Pipeline::load(Path::new(ROOT).join("packs").join(name));
        (format!("packed-{name}"), pipeline.unwrap())
    });
    files.chain(packs).collect()
}

/// A function that inverts the bytes of all arrays that it receives.
#[derive(Debug)]
struct Invert;

impl Function for Invert {
    fn name(&self) -> &str {
        "golden:invert"
    }

    fn bound_here(&self) -> Option<String> {
        None
    }

    fn start(&self, _: usize) -> Result<Box<dyn RunningFunction>, Error> {
        Ok(Box::new(Invert))
    }
}

impl RunningFunction for Invert {
    fn call(
        &self,
        inputs: &[Column],
        _: DrawKey,
        sink: &mut dyn ValueSink,
    ) -> Result<CallCost, FunctionFailure> {
        for column in inputs {
            let Values::Array(array) = &column.values else {
                return Err(FunctionFailure::wrong(format!(
                    "{} is no array",
                    column.name
                )));
            };
            let spec = ValueSpec::Array {
                dtype: array.dtype(),
                shape: array.shape(),
            };
            let out = sink
                .room(&column.name, spec)
                .map_err(FunctionFailure::wrong)?;
            for (out, byte) in out.iter_mut().zip(array.bytes()) {
                *out = !byte;
            }
        }
        Ok(CallCost::default())
    }
}

fn handles() -> Vec<Handle> {
    vec![Handle::Function(Arc::new(Invert))]
}

/// The files of a recorded rank: the run record, and the state after [`SAVED_AT`] steps.
fn files_of(run: &Path, (rank, ranks): (u64, u64)) -> (PathBuf, PathBuf) {
    let file = |what: &str| run.join(format!("rank{rank}-of-{ranks}.{what}"));
    (file("jsonl"), file("state.json"))
}

/// Ranks that a case is recorded for: several need batches of equal size.
fn ranks_of(pipeline: &Pipeline) -> &'static [(u64, u64)] {
    match pipeline.batch.settled_tail().unwrap() {
        Tail::Keep => &RANKS[..1],
        _ => &RANKS,
    }
}

fn options(rank: (u64, u64)) -> Options {
    let mut options = Options::default();
    (options.rank, options.world_size) = rank;
    options.workers = Some(2);
    options.on_error = OnError::Substitute;
    options.digest = DigestScope::Pixels;
    options
}

/// Digests of the next steps, across the ends of epochs.
fn digests_of(loader: &Loader, steps: u64) -> Result<Vec<Digest>, Error> {
    let mut digests = Vec::new();
    while (digests.len() as u64) < steps {
        if loader.next_batch()?.is_some() {
            digests.push(loader.step_digest());
        }
    }
    Ok(digests)
}

/// Runs a case and writes its digests and state.
fn record(pipeline: &Pipeline, run: &Path, rank: (u64, u64)) {
    fs::create_dir_all(run).unwrap();
    let (digests, state) = files_of(run, rank);
    let mut verify = VerifyOptions::default();
    verify.against = VerifyReference::Nothing;
    verify.steps = Some(STEPS);
    verify.options = options(rank);
    verify.write = Some(digests);
    let written = pipeline.verify(&handles(), &verify, &mut |_, _| true);
    assert_eq!(written.unwrap().steps, STEPS);
    let loader = pipeline.open_with(&handles(), &options(rank)).unwrap();
    digests_of(&loader, SAVED_AT).unwrap();
    fs::write(&state, loader.state().to_json() + "\n").unwrap();
}

/// Replays a recorded rank from its first step; returns the problem.
fn replay(pipeline: &Pipeline, digests: &Path) -> Result<(), String> {
    let mut verify = VerifyOptions::default();
    verify.against = VerifyReference::Recorded(digests.to_owned());
    verify.options.workers = Some(2);
    let verified = pipeline
        .verify(&handles(), &verify, &mut |_, _| true)
        .map_err(|error| error.chain())?;
    match verified.difference {
        Some(difference) => Err(difference.to_string()),
        None if verified.steps == STEPS => Ok(()),
        None => Err(format!("{} steps of {STEPS} were replayed", verified.steps)),
    }
}

/// Resumes a recorded rank from its state; returns the problem.
fn resume(pipeline: &Pipeline, rank: (u64, u64), run: &Path) -> Result<(), String> {
    let (digests, state) = files_of(run, rank);
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| error.to_string());
    let state = LoaderState::from_json(&read(&state)?).map_err(|error| error.chain())?;
    // The first line describes the run; each of the others is a step.
    let recorded: Vec<Value> = read(&digests)?
        .lines()
        .skip(1 + SAVED_AT as usize)
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["digest"].take())
        .collect();
    let resumed = pipeline
        .open_with(&handles(), &options(rank))
        .and_then(|loader| {
            loader.restore(&state)?;
            digests_of(&loader, STEPS - SAVED_AT)
        });
    let resumed = resumed.map_err(|error| error.chain())?;
    match json!(resumed) == json!(recorded) {
        true => Ok(()),
        false => Err(format!("digests are {resumed:?}, were {recorded:?}")),
    }
}

#[test]
fn recorded_runs_are_replayed_to_the_same_digests() {
    pack_missing();
    let runs = Path::new(ROOT).join("runs");
    let mut problems = Vec::new();
    let mut known = BTreeSet::new();
    for (name, pipeline) in cases() {
        for &rank in ranks_of(&pipeline) {
            let run = runs.join(&name);
            let (digests, _) = files_of(&run, rank);
            if !digests.exists() {
                require_updating(&digests);
                record(&pipeline, &run, rank);
            }
            let name = digests.display();
            if let Err(problem) = replay(&pipeline, &digests) {
                problems.push(format!("{name}: {problem}"));
            }
            if let Err(problem) = resume(&pipeline, rank, &run) {
                problems.push(format!("{name}, resumed from its state: {problem}"));
            }
        }
        known.insert(name);
    }

    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(
        names(&runs, ""),
        known,
        "each recorded run belongs to a case"
    );
}

#[test]
fn pipeline_files_in_toml_and_json_describe_the_same() {
    let folder = Path::new(ROOT).join("pipelines");
    for name in names(&folder, ".toml") {
        let toml = fs::read_to_string(pipeline_file(&name)).unwrap();
        let described = Pipeline::from_toml(&toml).unwrap();
        let json = folder.join(format!("{name}.json"));
        if !json.exists() {
            require_updating(&json);
            fs::write(&json, described.to_json() + "\n").unwrap();
        }

        let read = Pipeline::from_json(&fs::read_to_string(&json).unwrap()).unwrap();

        assert_eq!(read, described, "{name}");
    }
    assert_eq!(names(&folder, ".json"), names(&folder, ".toml"));
}
