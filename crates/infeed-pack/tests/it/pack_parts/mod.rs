//! Several processes write the shards of one dataset, in a folder and in a bucket. The bytes equal
//! those that one process writes into a folder.

mod bucket;
mod killed_runs;
mod steps;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use infeed::pipeline::{Pipeline, SourceSpec};
use infeed_codec::transform::CenterCrop;
use infeed_core::error::Error;
use infeed_pack::{PackOptions, PackedDataset, Parts, Target, pack};
use infeed_source::store;
use infeed_testkit::server::Server;
use serde_json::Value;
use tempfile::TempDir;

const FORMATS: [Target; 5] = [
    Target::WebDataset,
    Target::TfRecord,
    Target::Arrow,
    Target::Parquet,
    Target::Npz,
];

type Files = BTreeMap<String, Vec<u8>>;

fn options(to: Target) -> PackOptions {
    let mut options = PackOptions::new(to);
    if to == Target::Npz {
        options.transforms = vec![CenterCrop::new([36, 40]).into()];
    }
    options.shard_bytes = 6000;
    options.workers = Some(2);
    options
}

fn photos(root: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root)).decode().batch(4)
}

fn pack_into(
    pipeline: &Pipeline,
    out: &Path,
    options: &PackOptions,
) -> Result<PackedDataset, Error> {
    pack(pipeline, &[], None, out, options, &|_| true)
}

/// Returns the files that one process writes into a folder.
fn expected_files(pipeline: &Pipeline, options: &PackOptions) -> Files {
    let out = tempfile::tempdir().expect("a temporary folder");
    pack_into(pipeline, out.path(), options).expect("packs");
    files_in(out.path())
}

fn files_in(root: &Path) -> Files {
    let paths = fs::read_dir(root).into_iter().flatten().flatten();
    let file = |path: PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into();
        (name, fs::read(&path).expect("readable"))
    };
    paths.map(|entry| file(entry.path())).collect()
}

/// Destination of shards.
enum Site {
    Folder(TempDir),
    Bucket(Server, &'static str),
}

impl Site {
    fn folder() -> Site {
        Site::Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    /// A bucket with a name that no other test uses, because its settings apply to the whole
    /// process.
    fn bucket(name: &'static str) -> Site {
        let server = Server::start().expect("a free port");
        let endpoint = server.url();
        let settings = [
            ("aws_endpoint_url", endpoint.as_str()),
            ("aws_skip_signature", "true"),
            ("aws_region", "us-east-1"),
        ];
        store::configure(&format!("s3://{name}"), &settings).expect("known options");
        Site::Bucket(server, name)
    }

    fn both(name: &'static str) -> [Site; 2] {
        [Site::folder(), Site::bucket(name)]
    }

    fn out(&self) -> PathBuf {
        match self {
            Site::Folder(folder) => folder.path().join("out"),
            Site::Bucket(_, name) => PathBuf::from(format!("s3://{name}/some/out/")),
        }
    }

    fn files(&self) -> Files {
        match self {
            Site::Folder(_) => files_in(&self.out()),
            Site::Bucket(server, name) => {
                let objects = server.objects(&format!("{name}/some/out"));
                let bytes = |(name, bytes): (String, _)| (name, Vec::from(bytes));
                objects.into_iter().map(bytes).collect()
            }
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        match self {
            Site::Folder(_) => fs::write(self.out().join(name), bytes).expect("writes"),
            Site::Bucket(server, bucket) => {
                server.put(&format!("{bucket}/some/out/{name}"), bytes.to_vec());
            }
        }
    }

    fn remove(&self, name: &str) {
        match self {
            Site::Folder(_) => fs::remove_file(self.out().join(name)).expect("was there"),
            Site::Bucket(server, bucket) => server.remove(&format!("{bucket}/some/out/{name}")),
        }
    }

    fn clear(&self) {
        for name in self.files().keys() {
            self.remove(name);
        }
    }
}

/// Returns the numbers of the shards that exist when a process begins.
fn there(parts: &Parts) -> Vec<u64> {
    let json: Value = serde_json::from_str(&parts.to_json()).expect("JSON");
    let shards = json["shards"].as_array().expect("shards").iter();
    let mut numbers: Vec<u64> = shards
        .map(|shard| shard["number"].as_u64().expect("a number"))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Weighs and writes up to this number of missing shards, as several processes would. Returns the
/// numbers of the written shards.
fn write(
    pipeline: &Pipeline,
    out: &Path,
    options: &PackOptions,
    most: usize,
) -> Result<Vec<u64>, Error> {
    let begun = Parts::begin(pipeline, out, options)?;
    let others = [
        Parts::join(pipeline, out, options)?,
        Parts::join(pipeline, out, options)?,
    ];
    let json: Value = serde_json::from_str(&begun.to_json()).expect("JSON");
    let places = json["places"].as_u64().expect("a number");
    // Runs in another order than that of the dataset, alternating between processes.
    let runs: Vec<u64> = (0..places).step_by(7).collect();
    let mut weights = vec![None; places as usize];
    for (nth, &from) in runs.iter().enumerate().rev() {
        let run = from..places.min(from + 7);
        let weighed = others[nth % 2].weigh(run.clone())?;
        weights[run.start as usize..run.end as usize].copy_from_slice(&weighed);
    }
    let mut ends = begun.ends(&weights);
    ends.push(places);
    let begins = std::iter::once(0).chain(ends.clone());
    let known = there(&begun);
    let mut written = Vec::new();
    let missing = begins.zip(ends).enumerate();
    // The last shards first.
    let missing: Vec<_> = missing
        .filter(|(n, _)| !known.contains(&(*n as u64)))
        .collect();
    for (nth, (begin, end)) in missing.into_iter().rev().take(most) {
        others[nth % 2].shard(nth, begin..end)?;
        written.push(nth as u64);
    }
    Ok(written)
}
