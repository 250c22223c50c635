//! Sources that can only be read in groups are packed with one read per group, and their records
//! are named without a read.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use infeed::pipeline::{Handle, Pipeline, SourceSpec};
use infeed_codec::transform::CenterCrop;
use infeed_core::error::Error;
use infeed_core::order::window::Groups;
use infeed_core::sample::{Field, RecordId};
use infeed_pack::{PackOptions, PackedDataset, Target, pack};
use infeed_source::{Admission, Read, ReadError, Sink, Source};
use tempfile::TempDir;

use crate::data;

/// Wraps a source and records the number of records of each read, by group.
#[derive(Debug)]
struct WatchedSource {
    inner: Arc<dyn Source>,
    reads: Mutex<Vec<(usize, usize)>>,
}

impl WatchedSource {
    /// Returns the number of reads of a group with more than one record.
    fn reads_of(&self, group: usize) -> usize {
        let reads = self.reads.lock().expect("no panic");
        let of_group = reads
            .iter()
            .filter(|(of, count)| *of == group && *count > 1);
        of_group.count()
    }

    /// Returns the number of reads of a single record.
    fn singles(&self) -> usize {
        let reads = self.reads.lock().expect("no panic");
        reads.iter().filter(|(_, count)| *count == 1).count()
    }
}

impl Source for WatchedSource {
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

    fn plan(&self, run: &[u64], room_bytes: u64) -> Vec<Read> {
        self.inner.plan(run, room_bytes)
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let group = read.key as usize;
        let mut reads = self.reads.lock().expect("no panic");
        reads.push((group, read.records.len()));
        drop(reads);
        self.inner.read(read, admit, sink)
    }
}

/// Writes photographs in Parquet files, one group each, and returns the wrapped source.
fn write_groups(count: u64) -> (TempDir, Arc<WatchedSource>, Pipeline, Pipeline) {
    let photos = data::photos(count);
    let root = tempfile::tempdir().expect("a temporary folder");
    let pipeline = Pipeline::new(SourceSpec::folder(photos.path()))
        .decode()
        .transform(CenterCrop::new([36, 40]))
        .batch(4);
    let mut options = PackOptions::new(Target::Parquet);
    options.shard_bytes = 40_000;
    let made = pack(&pipeline, &[], None, root.path(), &options, &|_| true).expect("packs");
    let inner = made.source.open(&[]).expect("opens");
    let reads = Mutex::default();
    let given = Pipeline {
        source: SourceSpec::Object {
            handle: 0,
            name: "the table".to_owned(),
        },
        ..made.pipeline.clone()
    };
    (
        root,
        Arc::new(WatchedSource { inner, reads }),
        given,
        made.pipeline,
    )
}

fn pack_source(
    (source, pipeline): (&Arc<WatchedSource>, &Pipeline),
    out: &Path,
    to: Target,
) -> Result<PackedDataset, Error> {
    let handle = Handle::Source(Arc::clone(source) as Arc<dyn Source>);
    let mut options = PackOptions::new(to);
    if to == Target::Arrays {
        options.transforms = vec![CenterCrop::new([36, 40]).into()];
    }
    options.workers = Some(3);
    pack(pipeline, &[handle], None, out, &options, &|_| true)
}

fn epoch(pipeline: &Pipeline) -> Vec<(Vec<u64>, Vec<u8>)> {
    data::bits(&data::epoch(&data::open(pipeline, 2)))
}

#[test]
fn every_target_reads_each_group_once() {
    let (_root, source, given, original) = write_groups(60);
    let groups = source.groups().expect("row groups");
    let sizes = (0..groups.ends.len()).map(|group| groups.ends[group] - groups.first(group));
    assert!(
        sizes.clone().count() > 2 && sizes.max() > Some(8),
        "{groups:?}"
    );
    for to in [Target::Folder, Target::Arrays, Target::WebDataset] {
        let out = tempfile::tempdir().expect("a temporary folder");
        source.reads.lock().expect("no panic").clear();

        let done = pack_source((&source, &given), out.path(), to).expect("packs");

        let several = |group: &usize| groups.ends[*group] - groups.first(*group) > 1;
        let several = (0..groups.ends.len()).filter(several);
        let reads: Vec<usize> = several.map(|group| source.reads_of(group)).collect();
        assert!(
            reads.iter().all(|&reads| reads == 1),
            "{}: {reads:?}",
            to.name()
        );
        // The packer reads one record for the shape, and some to identify the table.
        assert!(source.singles() < 20, "{}: {}", to.name(), source.singles());
        assert_eq!(epoch(&done.pipeline), epoch(&original), "{}", to.name());
    }
}

#[test]
fn a_resumed_folder_reads_the_labels_of_a_group_once() {
    let (_root, source, given, _) = write_groups(60);
    let out = tempfile::tempdir().expect("a temporary folder");
    pack_source((&source, &given), out.path(), Target::Folder).expect("packs");
    let labels = || fs::read_to_string(out.path().join("labels.csv")).expect("a list");
    let before = labels();
    fs::remove_file(out.path().join("labels.csv")).expect("there was one");
    fs::remove_file(out.path().join("07.jpg")).expect("there was one");
    source.reads.lock().expect("no panic").clear();

    let done = pack_source((&source, &given), out.path(), Target::Folder).expect("packs");

    assert_eq!((done.records, done.reused), (60, 59));
    assert_eq!(labels(), before);
    let groups = source.groups().expect("row groups").ends.len();
    assert!((0..groups).all(|group| source.reads_of(group) <= 1));
    assert!(out.path().join("07.jpg").exists());
}
