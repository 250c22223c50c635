//! A subset of the records of another source.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::left_out::LeftOut;
use super::mix::SourceShares;
use super::subset::Subset;
use super::{Admission, PythonTime, Read, ReadError, ResidentRows, Sink, Source};
use infeed_core::order::window::Groups;
use infeed_core::random::hash;
use infeed_core::sample::{Field, RecordId};

/// Selected records of a source, numbered without gaps in their order. The names and numbers that
/// users see are those of the source.
#[derive(Debug)]
pub struct SelectedRecords {
    inner: Arc<dyn Source>,
    subset: Subset,
    groups: Option<Arc<Groups>>,
    /// Selected records of each mixed source, where the source mixes others by weights.
    mixed: Option<(Vec<Arc<dyn Source>>, SourceShares)>,
}

impl SelectedRecords {
    /// Selects the records of `inner` that are in `subset`.
    pub fn new(inner: Arc<dyn Source>, subset: Subset) -> SelectedRecords {
        let groups = inner
            .groups()
            .map(|groups| Arc::new(select_groups(&groups, &subset)));
        SelectedRecords {
            inner,
            subset,
            groups,
            mixed: None,
        }
    }

    /// Like [`SelectedRecords::new`], for a source that mixes others by weights. `parts` are the
    /// selected records of each mixed source; concatenated, they are `subset`.
    pub fn with_parts(
        inner: Arc<dyn Source>,
        subset: Subset,
        parts: Vec<Arc<dyn Source>>,
        weights: SourceShares,
    ) -> SelectedRecords {
        SelectedRecords {
            mixed: Some((parts, weights)),
            ..SelectedRecords::new(inner, subset)
        }
    }
}

/// Limits the groups of a source to the selected records. A group that is read whole keeps its size
/// in bytes; any other group has its share.
fn select_groups(groups: &Groups, subset: &Subset) -> Groups {
    let ends: Vec<u64> = groups.ends.iter().map(|&end| subset.before(end)).collect();
    let bytes = |group: usize| {
        let first = |ends: &[u64]| group.checked_sub(1).map_or(0, |before| ends[before]);
        let kept = ends[group] - first(&ends);
        let all = groups.ends[group] - first(&groups.ends);
        match groups.whole {
            true => groups.bytes[group],
            false => {
                let share = u128::from(groups.bytes[group]) * u128::from(kept);
                share.div_ceil(u128::from(all.max(1))) as u64
            }
        }
    };
    Groups {
        bytes: (0..ends.len()).map(bytes).collect(),
        whole: groups.whole,
        ends,
    }
}

impl ResidentRows for SelectedRecords {
    fn stored_bytes(&self, record: u64, field: usize) -> Option<&[u8]> {
        let rows = self.inner.resident()?;
        rows.stored_bytes(self.subset.number(record), field)
    }

    fn copy(&self, record: u64, field: usize, to: &mut [u8]) -> bool {
        let rows = self.inner.resident();
        rows.is_some_and(|rows| rows.copy(self.subset.number(record), field, to))
    }

    fn is_mapped(&self) -> bool {
        self.inner.resident().is_some_and(|rows| rows.is_mapped())
    }
}

impl Source for SelectedRecords {
    fn fields(&self) -> &[Field] {
        self.inner.fields()
    }

    fn len(&self) -> u64 {
        self.subset.len()
    }

    fn fingerprint(&self) -> u64 {
        hash(&[self.inner.fingerprint(), self.subset.fingerprint()])
    }

    fn id(&self, record: u64, field: Option<usize>) -> RecordId {
        self.inner.id(self.subset.number(record), field)
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        self.inner.files(self.subset.number(record))
    }

    fn local_files(&self, record: u64) -> Vec<PathBuf> {
        self.inner.local_files(self.subset.number(record))
    }

    fn field_in_memory(&self, record: u64, field: usize) -> Option<Bytes> {
        self.inner
            .field_in_memory(self.subset.number(record), field)
    }

    fn name(&self, record: u64) -> Option<String> {
        self.inner.name(self.subset.number(record))
    }

    fn shard(&self, record: u64) -> Option<&str> {
        self.inner.shard(self.subset.number(record))
    }

    fn classes(&self) -> Option<&[String]> {
        self.inner.classes()
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.inner.left_out()
    }

    fn label(&self, record: u64) -> Option<i64> {
        self.inner.label(self.subset.number(record))
    }

    fn selection(&self) -> Option<&Subset> {
        Some(&self.subset)
    }

    fn run_length(&self) -> u64 {
        self.inner.run_length()
    }

    fn groups(&self) -> Option<Arc<Groups>> {
        self.groups.clone()
    }

    fn weighted_parts(&self) -> Option<(&[Arc<dyn Source>], &SourceShares)> {
        let (parts, weights) = self.mixed.as_ref()?;
        Some((parts, weights))
    }

    fn resident(&self) -> Option<&dyn ResidentRows> {
        self.inner.resident().is_some().then_some(self)
    }

    fn version(&self) -> Option<u64> {
        self.inner.version()
    }

    fn python(&self) -> Option<PythonTime> {
        self.inner.python()
    }

    fn parallel_reads(&self) -> Option<usize> {
        self.inner.parallel_reads()
    }

    fn plan(&self, run: &[u64], room_bytes: u64) -> Vec<Read> {
        let numbers: Vec<u64> = run
            .iter()
            .map(|&record| self.subset.number(record))
            .collect();
        let mut reads = self.inner.plan(&numbers, room_bytes);
        for (position, record) in reads.iter_mut().flat_map(|read| &mut read.records) {
            *record = run[*position];
        }
        reads
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let records = read.records.iter();
        let own = Read {
            records: records
                .map(|&(position, record)| (position, self.subset.number(record)))
                .collect(),
            bytes: read.bytes,
            key: read.key,
            draws: read.draws.clone(),
        };
        self.inner
            .read(&own, admit, &mut |position, found| {
                sink(
                    position,
                    found.map(|mut record| {
                        record.index = self.subset.before(record.index);
                        record
                    }),
                );
            })
            .map_err(|error| error.with_number(|record| self.subset.before(record)))
    }
}
