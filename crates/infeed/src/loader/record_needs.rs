//! Memory that the records of a source need, from the sizes of all or many of them: so that a budget
//! fits the data without an option.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::fields::scratch::Position;
use crate::maker::needs::SampleBytes;
use crate::pipeline::Pipeline;
use crate::plan::SamplePlan;
use crate::plan::headers::HeaderReader;
use infeed_codec::decode::Decoder;
use infeed_core::batch::ColumnKind;
use infeed_core::order::permute::Permutation;
use infeed_core::random::{hash, hash_bytes};
use infeed_core::sample::Record;
use infeed_source::store::held_bytes;
use infeed_source::{Read, Source};

/// Maximum number of records whose sizes are read.
const RECORDS: u64 = 10_000;

/// Maximum number of records if each one is a request to an object store or a web server.
const REMOTE_RECORDS: u64 = 64;

/// Maximum bytes that are read: the first pages of the files of all of these records, or a few
/// thousand of their heads.
const BYTES: u64 = 256 << 20;

/// Time after which no further record is read: opening must not wait for slow storage.
const TIME: Duration = Duration::from_secs(1);

/// Records for which one thread is enough, and most threads.
const PER_THREAD: usize = 8;
const THREADS: usize = 16;

/// Draws of random sizes: those of few records are repeated.
const DRAWS: u64 = 256;

/// Key of the permutation in which records are read, so that each part of it is spread over the
/// source.
const SPREAD: u64 = 0x5EED;

/// Needs of records whose sizes cannot be known at open: a photograph of 50 megapixels.
const UNKNOWN: RecordNeeds = RecordNeeds {
    read_bytes: 32 << 20,
    scratch_bytes: 150 << 20,
    row_bytes: 0,
    assumed_row_bytes: 0,
    sized: None,
};

/// Bytes of a row of a column outside slabs whose size cannot be known at open: a float image of
/// 1333x1000 pixels, or a long list.
const UNKNOWN_IMAGE: u64 = 16 << 20;
const UNKNOWN_LIST: u64 = 1 << 20;

/// Memory for one record: the largest of those whose sizes are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordNeeds {
    /// Encoded bytes.
    pub(super) read_bytes: u64,
    /// Bytes of scratch.
    pub(super) scratch_bytes: u64,
    /// Bytes of a row outside slabs.
    pub(super) row_bytes: u64,
    /// Bytes of such a row, as far as only running shows them; more than that of known sizes only if
    /// memory allows.
    pub(super) assumed_row_bytes: u64,
    /// Number of records whose sizes are known, and of all records. None if no size is known.
    pub(super) sized: Option<(u64, u64)>,
}

impl RecordNeeds {
    /// Computes the needs of a pipeline's records. Reads the headers of up to [`RECORDS`] records;
    /// whole records if their rows hold more than images, or if they are not files. Later calls for
    /// the same pipeline and stored source read nothing.
    pub(super) fn of(
        pipeline: &Pipeline,
        plan: &SamplePlan,
        source: &dyn Source,
        readers: usize,
    ) -> RecordNeeds {
        // A trial opens many loaders. Reading sizes again would bring back the pages that it dropped.
        static KNOWN: Mutex<Option<HashMap<u64, RecordNeeds>>> = Mutex::new(None);
        // To read a Python source would call the user's code before the run.
        if !plan.needs_record_sizes() || source.is_empty() || source.python().is_some() {
            return RecordNeeds {
                assumed_row_bytes: assumed_row_bytes(plan),
                ..UNKNOWN
            };
        }
        // Arrays and tables in memory are cheap to read, and a pipeline does not identify them.
        let files = source.local_files(0);
        if files.is_empty() && source.parallel_reads().is_none() {
            return SizeReader::new(plan, source).read(readers);
        }
        // A program that writes a dataset again writes its first record, too.
        let metadata = files.iter().map(|path| fs::metadata(path).ok());
        let changed: Vec<_> = metadata
            .map(|found| found.and_then(|found| found.modified().ok()))
            .collect();
        let description = hash_bytes(format!("{changed:?} {pipeline:?}").as_bytes());
        let key = hash(&[description, source.fingerprint(), source.len()]);
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&needs) = known().get_or_insert_default().get(&key) {
            return needs;
        }
        let needs = SizeReader::new(plan, source).read(readers);
        known().get_or_insert_default().insert(key, needs);
        needs
    }

    /// Needs of records that are larger by a factor.
    pub(super) fn times(self, factor: u64) -> RecordNeeds {
        RecordNeeds {
            read_bytes: self.read_bytes.saturating_mul(factor),
            scratch_bytes: self.scratch_bytes.saturating_mul(factor),
            row_bytes: self.row_bytes.saturating_mul(factor),
            ..self
        }
    }

    /// Adds a record.
    fn add(&mut self, read_bytes: u64, sample: SampleBytes) {
        self.read_bytes = self.read_bytes.max(read_bytes);
        self.scratch_bytes = self.scratch_bytes.max(sample.scratch);
        self.row_bytes = self.row_bytes.max(sample.row);
        let (sized, all) = self.sized.unwrap_or_default();
        self.sized = Some((sized + 1, all));
    }

    /// Adds the records of another thread.
    fn join(&mut self, other: RecordNeeds) {
        self.read_bytes = self.read_bytes.max(other.read_bytes);
        self.scratch_bytes = self.scratch_bytes.max(other.scratch_bytes);
        self.row_bytes = self.row_bytes.max(other.row_bytes);
        let sizes = [self.sized, other.sized].into_iter().flatten();
        self.sized = sizes.reduce(|(one, all), (other, _)| (one + other, all));
    }
}

/// Bytes that a row outside slabs gets, without knowledge of a record.
fn assumed_row_bytes(plan: &SamplePlan) -> u64 {
    let kinds = plan.columns().iter().map(|column| &column.kind);
    let bytes = kinds.map(|kind| match kind {
        ColumnKind::Fixed { .. } => 0,
        ColumnKind::Padded { rank, .. } if *rank >= 2 => UNKNOWN_IMAGE,
        _ => UNKNOWN_LIST,
    });
    bytes.sum()
}

/// Reads the sizes of a source's records.
struct SizeReader<'a> {
    plan: &'a SamplePlan,
    source: &'a dyn Source,
    /// Whether headers suffice for records that are files.
    by_header: bool,
    /// Reads of one record or of a whole group each.
    reads: Vec<Vec<Read>>,
    draws: u64,
}

impl<'a> SizeReader<'a> {
    fn new(plan: &'a SamplePlan, source: &'a dyn Source) -> SizeReader<'a> {
        let is_remote = source.parallel_reads().is_some();
        let most = match is_remote {
            // Without own rows, only scratch depends on sizes.
            true if !plan.has_own_cells() => 0,
            true => REMOTE_RECORDS,
            false => RECORDS,
        };
        let mut reads = Vec::new();
        let mut numbers = HashSet::new();
        let groups = source.groups().filter(|groups| groups.whole);
        let runs = groups
            .as_ref()
            .map_or(source.len(), |groups| groups.ends.len() as u64);
        let order = Permutation::with_key(runs, SPREAD);
        for run in (0..runs.min(RECORDS)).map(|position| order.get(position)) {
            if numbers.len() as u64 >= most {
                break;
            }
            let run: Vec<u64> = match &groups {
                Some(groups) => (groups.first(run as usize)..groups.ends[run as usize]).collect(),
                None => vec![run],
            };
            let planned = source.plan(&run, BYTES);
            // A trial's source repeats records. Reads have their numbers in the original source.
            let records = planned.iter().flat_map(|read| &read.records);
            let mut is_new = false;
            records.for_each(|&(_, number)| is_new |= numbers.insert(number));
            if is_new {
                reads.push(planned);
            }
        }
        SizeReader {
            plan,
            source,
            by_header: !is_remote && !plan.needs_record_contents(),
            draws: DRAWS.div_ceil((numbers.len() as u64).max(1)),
            reads,
        }
    }

    fn read(&self, readers: usize) -> RecordNeeds {
        let threads = self.reads.len().div_ceil(PER_THREAD);
        let threads = threads.clamp(1, readers.clamp(1, THREADS));
        let next = AtomicUsize::new(0);
        let until = Instant::now() + TIME;
        let left = AtomicU64::new(BYTES);
        let work = || {
            let mut reader = HeaderReader::new(&left);
            let mut needs = RecordNeeds::default();
            while Instant::now() < until {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(reads) = self.reads.get(at) else {
                    break;
                };
                self.add(&mut reader, at, reads, &mut needs);
            }
            needs
        };
        let mut all = thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .filter_map(|number| {
                    let name = format!("infeed-sizes-{number}");
                    thread::Builder::new()
                        .name(name)
                        .spawn_scoped(scope, work)
                        .ok()
                })
                .collect();
            let mut needs = work();
            for other in others {
                // A panic in a source ends only the reading of sizes.
                needs.join(other.join().unwrap_or_default());
            }
            needs
        });
        let assumed_row_bytes = match (all.sized, self.plan.calls_functions()) {
            (Some(_), false) => 0,
            _ => assumed_row_bytes(self.plan),
        };
        let known = match all.sized {
            Some((sized, _)) => {
                all.sized = Some((sized, self.source.len()));
                all
            }
            None => UNKNOWN,
        };
        RecordNeeds {
            assumed_row_bytes,
            ..known
        }
    }

    /// Adds the records of some reads.
    fn add(
        &self,
        reader: &mut HeaderReader<'_>,
        at: usize,
        reads: &[Read],
        needs: &mut RecordNeeds,
    ) {
        let number = match reads {
            [read] => read.records.first().map(|(_, number)| *number),
            _ => None,
        };
        let files = number
            .map(|number| self.source.files(number))
            .unwrap_or_default();
        if let (true, Some(number), [_, ..]) = (self.by_header, number, &files[..]) {
            let fields = 0..self.source.fields().len();
            let fields = fields.map(|field| self.source.field_in_memory(number, field));
            let mut fields: Vec<Option<Bytes>> = fields.collect();
            let mut bytes = 0;
            for (path, field) in files.iter().zip(self.plan.encoded_fields()) {
                let Some(head) = reader.head(path, false) else {
                    return;
                };
                bytes += held_bytes(head.length);
                if let Some(to) = fields.get_mut(field) {
                    *to = Some(head.bytes.into());
                }
            }
            let has_contents = fields.iter().all(Option::is_some);
            let record = Record {
                index: number,
                fields: fields.into_iter().map(Option::unwrap_or_default).collect(),
            };
            self.add_record(reader.decoder(), at, (&record, has_contents), bytes, needs);
            return;
        }
        reader.read(self.source, reads, |decoder, index, fields| {
            let record = Record { index, fields };
            self.add_record(decoder, at, (&record, true), record.bytes(), needs);
        });
    }

    /// Adds a record, of which `read_bytes` are read. Its images may end after their headers. Without
    /// `has_contents`, fields that are in no file may be empty.
    fn add_record(
        &self,
        decoder: &mut Decoder,
        at: usize,
        (record, has_contents): (&Record, bool),
        read_bytes: u64,
        needs: &mut RecordNeeds,
    ) {
        let mut found: Option<SampleBytes> = None;
        for epoch in 0..self.draws {
            let at = Position {
                epoch,
                position: at as u64,
            };
            let Some(bytes) = self.plan.sample_bytes(record, has_contents, at, decoder) else {
                continue;
            };
            let most = found.get_or_insert_default();
            most.scratch = most.scratch.max(bytes.scratch);
            most.row = most.row.max(bytes.row);
        }
        if let Some(found) = found {
            needs.add(read_bytes, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::SourceSpec;
    use infeed_codec::transform::CenterCrop;
    use infeed_core::sample::{Depth, Field, Image, RecordId, Size};
    use infeed_source::repeated_records::RepeatedRecords;
    use infeed_source::{Admission, ReadError, Sink};
    use std::sync::Arc;
    use tempfile::TempDir;

    fn png(height: u32, width: u32) -> Vec<u8> {
        let mut image = Image::default();
        image.reset(Size { height, width }, 3, Depth::U8);
        infeed_sample::png(&image).expect("encodes")
    }

    /// PNGs of 1 to `count` rows and 50 columns.
    fn folder(count: u32) -> TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(root.path().join("a")).expect("creates");
        for n in 1..=count {
            let path = root.path().join(format!("a/{n:03}.png"));
            fs::write(path, png(n, 50)).expect("writes");
        }
        root
    }

    fn needs(pipeline: &Pipeline, source: &dyn Source) -> RecordNeeds {
        let plan = SamplePlan::over(pipeline, source).expect("a plan");
        RecordNeeds::of(pipeline, &plan, source, 4)
    }

    fn open_and_estimate(pipeline: &Pipeline) -> RecordNeeds {
        let source = pipeline.open_source(&[]).expect("opens");
        needs(pipeline, &*source)
    }

    #[test]
    fn the_largest_image_of_a_folder_sets_the_needs() {
        let root = folder(40);
        let folder = || Pipeline::new(SourceSpec::folder(root.path())).decode();

        let own = open_and_estimate(&folder().batch(2).pad());
        let slabs = open_and_estimate(&folder().transform(CenterCrop::new(30)).batch(2));

        assert_eq!(own.sized, Some((40, 40)));
        assert_eq!((own.row_bytes, slabs.row_bytes), (40 * 50 * 3, 0));
        assert!(own.scratch_bytes >= 40 * 50 * 3);
        assert!(slabs.scratch_bytes >= own.scratch_bytes);
        let longest = fs::metadata(root.path().join("a/040.png")).expect("a file");
        assert!(own.read_bytes >= longest.len());
    }

    #[test]
    fn boxes_next_to_image_files_count_in_their_rows_and_in_decoding() {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (n, boxes) in [(1, 1), (2, 40)] {
            let shape = r#"{"label": "a", "shape_type": "rectangle", "points": [[2, 2], [9, 9]]}"#;
            let shapes = vec![shape; boxes].join(", ");
            let text = format!(
                r#"{{"imagePath": "{n}.png", "imageWidth": 50, "imageHeight": 10, "shapes": [{shapes}]}}"#
            );
            fs::write(root.path().join(format!("{n}.json")), text).expect("writes");
            fs::write(root.path().join(format!("{n}.png")), png(10, 50)).expect("writes");
        }
        let source = SourceSpec::LabelMe {
            images: root.path().to_owned(),
            labels: None,
            classes: None,
            masks: false,
            follow_links: true,
        };
        let pipeline = Pipeline::new(source).decode().batch(1).pad();

        let all = open_and_estimate(&pipeline);
        let selected = open_and_estimate(&pipeline.clone().take(1));

        // Four float32 corners and an int64 label for each box.
        let row = |boxes: u64| 10 * 50 * 3 + boxes * (4 * 4 + 8);
        assert_eq!((all.row_bytes, selected.row_bytes), (row(40), row(1)));
        // Moving boxes needs memory next to the pixels.
        assert!(all.scratch_bytes > selected.scratch_bytes);
    }

    #[test]
    fn damaged_records_do_not_count_and_do_not_fail() {
        let root = folder(9);
        fs::write(root.path().join("a/003.png"), b"no image").expect("writes");
        fs::remove_file(root.path().join("a/004.png")).expect("removes");
        let pipeline = Pipeline::new(SourceSpec::folder(root.path())).decode();
        let pipeline = pipeline.batch(2).pad();
        let source = pipeline.open_source(&[]).expect("opens");
        for name in ["a/005.png", "a/006.png"] {
            fs::remove_file(root.path().join(name)).expect("removes");
        }
        fs::create_dir(root.path().join("a/006.png")).expect("creates");

        let found = needs(&pipeline, &*source);

        assert_eq!(found.sized, Some((5, 8)));
        assert_eq!(found.row_bytes, 9 * 50 * 3);
    }

    #[test]
    fn sizes_are_read_once_per_source_and_pipeline_until_the_first_file_changes() {
        let root = folder(5);
        let pipeline = Pipeline::new(SourceSpec::folder(root.path())).decode();
        let pipeline = pipeline.batch(2).pad();
        let write = |name: &str, height: u32| {
            fs::write(root.path().join(name), png(height, 50)).expect("writes");
        };
        let first = open_and_estimate(&pipeline);
        write("a/003.png", 90);

        let again = open_and_estimate(&pipeline);
        let other = open_and_estimate(&pipeline.clone().batch(3).pad());
        let file = fs::File::options()
            .write(true)
            .open(root.path().join("a/001.png"));
        let later = std::time::SystemTime::now() + Duration::from_secs(9);
        file.and_then(|file| file.set_modified(later))
            .expect("sets a time");
        let changed = open_and_estimate(&pipeline);

        assert_eq!(first, again);
        assert_eq!(
            (other.row_bytes, changed.row_bytes),
            (90 * 50 * 3, 90 * 50 * 3)
        );
    }

    #[test]
    fn a_long_source_is_sampled_and_repeated_records_count_once() {
        let root = folder(7);
        let pipeline = Pipeline::new(SourceSpec::folder(root.path())).decode();
        let pipeline = pipeline.batch(2).pad();
        let source = pipeline.open_source(&[]).expect("opens");
        let all = u64::MAX / 2;
        let repeated = RepeatedRecords::new(source, (0..7).collect(), all);

        let found = needs(&pipeline, &repeated);

        assert_eq!(found.sized, Some((7, all)));
        assert_eq!(found.row_bytes, 7 * 50 * 3);
    }

    #[test]
    fn records_of_shards_are_read_whole() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().join("a.tar");
        let mut tar = tar::Builder::new(fs::File::create(&path).expect("creates"));
        for n in 1..=20_u32 {
            let image = png(n, 10);
            for (name, bytes) in [
                ("png", &image[..]),
                ("txt", "word".repeat(n as usize).as_bytes()),
            ] {
                let mut header = tar::Header::new_gnu();
                header.set_size(bytes.len() as u64);
                tar.append_data(&mut header, format!("{n:02}.{name}"), bytes)
                    .expect("writes");
            }
        }
        tar.finish().expect("writes");
        let text = format!(
            "[source]\nkind = \"webdataset\"\nshards = [{path:?}]\n[decode]\n[batch]\nsize = 2\n\
             pad = true\n"
        );
        let pipeline = Pipeline::from_toml(&text).expect("a pipeline");

        let found = open_and_estimate(&pipeline);

        assert_eq!(found.sized, Some((20, 20)));
        assert_eq!(found.row_bytes, 20 * 10 * 3 + 20 * 4);
    }

    /// Records of another source, as if each one were a request to a bucket.
    #[derive(Debug)]
    struct RemoteSource(Arc<dyn Source>, AtomicU64);

    impl Source for RemoteSource {
        fn fields(&self) -> &[Field] {
            self.0.fields()
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn id(&self, record: u64, field: Option<usize>) -> RecordId {
            self.0.id(record, field)
        }

        fn parallel_reads(&self) -> Option<usize> {
            Some(64)
        }

        fn read(
            &self,
            read: &Read,
            admit: &mut Admission<'_>,
            sink: &mut Sink<'_>,
        ) -> Result<(), ReadError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read(read, admit, sink)
        }
    }

    #[test]
    fn few_records_of_a_bucket_are_read_and_only_for_rows_of_differing_size() {
        let root = folder(150);
        let folder = || Pipeline::new(SourceSpec::folder(root.path())).decode();
        let remote = |pipeline: Pipeline| {
            let source = pipeline.open_source(&[]).expect("opens");
            let remote = RemoteSource(source, AtomicU64::new(0));
            let found = needs(&pipeline, &remote);
            (found.sized, remote.1.into_inner())
        };

        let own = remote(folder().batch(2).pad());
        let slabs = remote(folder().transform(CenterCrop::new(1)).batch(2));

        assert_eq!(own, (Some((64, 150)), 64));
        assert_eq!(slabs, (None, 0));
    }

    #[test]
    fn files_that_are_not_decoded_count_with_their_length() {
        let root = folder(3);
        fs::write(root.path().join("a/002.png"), vec![7; 9000]).expect("writes");

        let found = open_and_estimate(&Pipeline::new(SourceSpec::folder(root.path())));

        assert_eq!((found.sized, found.row_bytes), (Some((3, 3)), 9000));
    }

    #[test]
    fn rows_of_unknown_size_get_memory_without_reading() {
        let root = folder(3);
        let pipeline = Pipeline::new(SourceSpec::folder(root.path())).decode();
        let pipeline = pipeline.batch(2).pad();
        let source = pipeline.open_source(&[]).expect("opens");
        for n in 1..=3 {
            fs::remove_file(root.path().join(format!("a/{n:03}.png"))).expect("removes");
        }

        let found = needs(&pipeline, &*source);

        assert_eq!(
            (found.sized, found.assumed_row_bytes),
            (None, UNKNOWN_IMAGE)
        );
    }
}
