//! A resumed run continues the run that was started, and no other.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use infeed::pipeline::{Handle, MemoryField, Pipeline, SourceSpec};
use infeed_codec::transform::CenterCrop;
use infeed_core::error::Error;
use infeed_core::order::window::Groups;
use infeed_core::sample::{DType, Field, RecordId};
use infeed_pack::{MANIFEST, PackOptions, PackedDataset, Target, pack};
use infeed_source::{Admission, Read, ReadError, Sink, Source};

use crate::data;

const SHARDS: [Target; 5] = [
    Target::WebDataset,
    Target::TfRecord,
    Target::Arrow,
    Target::Parquet,
    Target::Npz,
];

fn options(to: Target) -> PackOptions {
    let mut options = PackOptions::new(to);
    if to == Target::Npz {
        options.transforms = vec![CenterCrop::new([36, 40]).into()];
    }
    options.shard_bytes = 6000;
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

fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(root).expect("a folder").flatten();
    let paths = paths.map(|entry| entry.path());
    let name = |path: &Path| path.strip_prefix(root).expect("below").to_owned();
    paths
        .map(|path| (name(&path), fs::read(&path).expect("readable")))
        .collect()
}

/// Wraps a source and holds one record back until `let_go` is called.
#[derive(Debug)]
struct Gate {
    inner: Arc<dyn Source>,
    shut: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
}

/// The record that is held back.
const KEPT_BACK: u64 = 24;

impl Gate {
    fn over(pipeline: &Pipeline) -> Arc<Gate> {
        Arc::new(Gate {
            inner: pipeline.source.open(&[]).expect("opens"),
            shut: AtomicBool::new(false),
            open: Mutex::new(false),
            opened: Condvar::new(),
        })
    }

    fn let_go(&self) {
        *self.open.lock().expect("no panic") = true;
        self.opened.notify_all();
    }
}

impl Source for Gate {
    fn fields(&self) -> &[Field] {
        self.inner.fields()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn id(&self, record: u64, field: Option<usize>) -> RecordId {
        self.inner.id(record, field)
    }

    fn groups(&self) -> Option<Arc<Groups>> {
        self.inner.groups()
    }

    fn classes(&self) -> Option<&[String]> {
        self.inner.classes()
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
        let is_kept_back = read.records.iter().any(|&(_, record)| record == KEPT_BACK);
        if is_kept_back && self.shut.load(Ordering::SeqCst) {
            let open = self.open.lock().expect("no panic");
            drop(self.opened.wait_while(open, |open| !*open));
        }
        self.inner.read(read, admit, sink)
    }
}

#[test]
fn a_stopped_run_resumes_after_its_last_shard() {
    let root = data::photos(30);
    let photos = photos(root.path());
    for to in SHARDS {
        let gate = Gate::over(&photos);
        let handles = [Handle::Source(Arc::clone(&gate) as Arc<dyn Source>)];
        let given = Pipeline {
            source: SourceSpec::Object {
                handle: 0,
                name: "photos".to_owned(),
            },
            ..photos.clone()
        };
        let out = tempfile::tempdir().expect("a temporary folder");
        let (once, twice) = (out.path().join("once"), out.path().join("twice"));
        let options = options(to);
        let journal = twice.join("infeed-pack.journal");

        let stopped = pack(&given, &handles, None, &twice, &options, &|_| {
            // Closed at the first call of `progress`, because the checksum of a source in memory is
            // read before.
            gate.shut.store(true, Ordering::SeqCst);
            let noted = fs::read_to_string(&journal).unwrap_or_default();
            let enough = noted.lines().count() >= 2;
            if enough {
                gate.let_go();
            }
            !enough
        });
        let name = to.name();
        assert!(matches!(stopped, Err(Error::Interrupted { .. })), "{name}");
        assert!(!twice.join(MANIFEST).exists());

        let done = pack(&given, &handles, None, &twice, &options, &|_| true).expect("goes on");

        assert!((1..30).contains(&done.reused), "{name}: {}", done.reused);
        pack(&given, &handles, None, &once, &options, &|_| true).expect("packs");
        assert!(files(&once) == files(&twice), "{name}");
    }
}

#[test]
fn shards_after_a_gap_are_written_again_and_not_counted() {
    let root = data::photos(30);
    let pipeline = photos(root.path());
    let out = tempfile::tempdir().expect("a temporary folder");
    let options = options(Target::TfRecord);
    pack_into(&pipeline, out.path(), &options).expect("packs");
    let before = files(out.path());
    let manifest = out.path().join(MANIFEST);
    let text = fs::read_to_string(&manifest).expect("a manifest");
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let shards = json["shards"].as_array_mut().expect("shards");
    assert!(shards.len() > 3, "{shards:?}");
    shards.remove(1);
    fs::write(&manifest, json.to_string()).expect("writes");

    let done = pack_into(&pipeline, out.path(), &options).expect("packs");

    assert_eq!(done.records, 30);
    assert!((1..20).contains(&done.reused), "{}", done.reused);
    assert!(files(out.path()) == before);
}

#[test]
fn bad_records_of_an_earlier_run_count_against_the_limit() {
    let root = data::photos(10);
    let pipeline = photos(root.path());
    for n in [2, 7] {
        fs::write(data::photo(root.path(), n), b"no image").expect("writes");
    }
    let out = tempfile::tempdir().expect("a temporary folder");
    let mut options = options(Target::WebDataset);
    let first = pack_into(&pipeline, out.path(), &options).expect("packs");
    let mut again = |limit| {
        options.max_bad = Some(limit);
        pack_into(&pipeline, out.path(), &options)
    };

    let refused = again(1).expect_err("two are bad").to_string();

    assert_eq!(first.bad, 2);
    assert!(
        refused.contains("2 bad records") && refused.contains("max_bad=1"),
        "{refused}"
    );
    assert_eq!(again(2).expect("as many as may be").bad, 2);
}

#[test]
fn other_values_in_memory_are_rejected_as_another_dataset() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let field = MemoryField::array("box", "tensor", DType::UInt8, vec![4], 0);
    let fields = vec![field];
    let pipeline = Pipeline::new(SourceSpec::Memory { fields }).batch(3);
    let write = |values: Vec<u8>| {
        let handles = [Handle::from(Bytes::from(values))];
        let options = PackOptions::new(Target::Arrow);
        pack(&pipeline, &handles, None, out.path(), &options, &|_| true)
    };
    let values: Vec<u8> = (0..120).collect();
    write(values.clone()).expect("packs");

    let same = write(values.clone()).expect("the same");
    let other = write(values.iter().rev().copied().collect());

    assert_eq!(same.reused, 30);
    let problem = other.expect_err("another").to_string();
    assert!(problem.contains("other values in memory"), "{problem}");
}

#[test]
fn a_folder_of_a_run_killed_at_its_first_write_is_accepted() {
    let root = data::photos(6);
    let out = tempfile::tempdir().expect("a temporary folder");
    fs::write(out.path().join(".infeed-pack.begun.part"), b"{").expect("writes");

    let done = pack_into(&photos(root.path()), out.path(), &options(Target::Arrow));

    assert_eq!(done.expect("packs").records, 6);
}

#[test]
fn more_shards_than_a_pattern_can_name_are_an_error() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let field = MemoryField::array("label", "tensor", DType::UInt8, Vec::new(), 0);
    let fields = vec![field];
    let pipeline = Pipeline::new(SourceSpec::Memory { fields });
    let handles = [Handle::from(Bytes::from(vec![1; 1_000_001]))];
    let write = |rows| {
        let mut options = PackOptions::new(Target::Npz);
        options.rows = rows;
        let done = pack(&pipeline, &handles, None, out.path(), &options, &|_| true);
        done.expect_err("rejected").to_string()
    };

    let (unsaid, too_many) = (write(None), write(Some(1)));

    assert!(
        unsaid.contains("rows") && unsaid.contains("batch"),
        "{unsaid}"
    );
    assert!(too_many.contains("over 1000000 files"), "{too_many}");
    assert!(files(out.path()).is_empty());
}

#[test]
fn the_manifest_has_no_path_of_the_machine_and_recognizes_the_source_after_a_move() {
    let root = data::photos(6);
    let out = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (out.path().join("first"), out.path().join("a/second"));
    let options = options(Target::WebDataset);
    pack_into(&photos(root.path()), &first, &options).expect("packs");

    let text = fs::read_to_string(first.join(MANIFEST)).expect("a manifest");

    let source = root.path().canonicalize().expect("exists");
    let name = source.file_name().expect("a name").to_string_lossy();
    assert!(text.contains(&format!("\"path\": \"{name}\"")), "{text}");
    let parent = source.parent().expect("a parent").to_string_lossy();
    assert!(!text.contains(&*parent), "{text}");
    fs::create_dir(out.path().join("a")).expect("creates");
    fs::rename(&first, &second).expect("moves");
    let again = pack_into(&photos(root.path()), &second, &options).expect("is complete");
    assert_eq!(again.reused, 6);
    // Another source with the same name.
    let other = out.path().join(&*name);
    fs::rename(root.path(), &other).expect("moves");
    let error = pack_into(&photos(&other), &second, &options).expect_err("another source");
    assert!(error.chain().contains("at another path"), "{error}");
    fs::rename(&other, root.path()).expect("moves");
    // A manifest of an older version has the absolute path and no checksum.
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    json["source"]["path"] = source.to_string_lossy().into();
    json.as_object_mut().expect("an object").remove("source_id");
    fs::write(second.join(MANIFEST), json.to_string()).expect("writes");
    let again = pack_into(&photos(root.path()), &second, &options).expect("is complete");
    assert_eq!(again.reused, 6);
}
