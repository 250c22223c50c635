//! Several sources as one: concatenated, or mixed by weights.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::left_out::LeftOut;
use super::shards::values::describe_kind;
pub use super::source::SourceShares;
use super::{Admission, PythonTime, Read, ReadError, ResidentRows, Sink, Source};
use infeed_core::error::Error;
use infeed_core::order::mixture::{self, BLOCK};
use infeed_core::order::window::Groups;
use infeed_core::random::hash;
use infeed_core::sample::{Field, RecordId};

/// Records per group of a part without groups, where another part has groups: far fewer groups than
/// records, in windows that still mix well.
const GROUP: u64 = 1024;

/// Records of several sources with the same fields, numbered consecutively.
#[derive(Debug)]
pub struct Mix {
    parts: Vec<Arc<dyn Source>>,
    /// None: every record occurs once in an epoch.
    weights: Option<SourceShares>,
    /// One past the last record of each part.
    ends: Vec<u64>,
    groups: Option<Arc<Groups>>,
}

impl Mix {
    /// Joins sources. With `shares`, one per part, each epoch has `epoch` records (None: as many as
    /// there are) and each part contributes its share. Without, every record occurs once in an
    /// epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if fields or classes differ, or a share is not greater than zero.
    pub fn new(
        parts: Vec<Arc<dyn Source>>,
        shares: Option<Vec<f64>>,
        epoch: Option<u64>,
    ) -> Result<Mix, Error> {
        let wrong = |problem: String| Err(Error::config("source", problem));
        let Some(first) = parts.first() else {
            return wrong("a mix needs at least one source".to_owned());
        };
        for (at, part) in parts.iter().enumerate() {
            if part.fields() != first.fields() {
                let names = |source: &dyn Source| {
                    let fields = source.fields().iter();
                    let named = fields
                        .map(|field| format!("{}: {}", field.name, describe_kind(&field.kind)));
                    named.collect::<Vec<_>>().join(", ")
                };
                return wrong(format!(
                    "source {at} of the mix has other fields ({}) than the first ({}); set \
                     `fields` of the sources so that names and kinds are equal",
                    names(&**part),
                    names(&**first)
                ));
            }
            if shares.is_none() && part.weighted_parts().is_some() {
                return wrong(format!(
                    "source {at} of the mix is a weighted mix, but this mix has no weights; give \
                     every source of this mix a weight, or remove the weights of that source"
                ));
            }
            if part.classes() != first.classes() {
                return wrong(format!(
                    "source {at} of the mix has other classes than the first, so its labels have \
                     another meaning; set classes= of all sources to the same names"
                ));
            }
        }
        let ends: Vec<u64> = parts
            .iter()
            .scan(0, |sum, part| {
                *sum += part.len();
                Some(*sum)
            })
            .collect();
        let weights = match shares {
            None if epoch.is_some() => {
                return wrong(
                    "epoch is only for mixes with weights; remove it, or give weights".to_owned(),
                );
            }
            None => None,
            Some(_) if epoch == Some(0) => {
                return wrong("epoch must be at least 1".to_owned());
            }
            Some(shares) => {
                if shares.len() != parts.len() {
                    let (weights, parts) = (shares.len(), parts.len());
                    return wrong(format!(
                        "{weights} weights for {parts} sources; give every source one"
                    ));
                }
                if let Some(share) = shares
                    .iter()
                    .find(|share| !share.is_normal() || **share < 0.0)
                {
                    return wrong(format!("weights must be greater than zero, not {share}"));
                }
                if let Some(at) = mixture::shares(&shares, BLOCK).iter().position(|n| *n == 0) {
                    return wrong(format!(
                        "the weight {} of source {at} is too small compared to the others: a part \
                         needs at least one position of {BLOCK}; raise it, or remove the source",
                        shares[at]
                    ));
                }
                Some(SourceShares { shares, epoch })
            }
        };
        let groups = match weights {
            None => join_groups(&parts).map(Arc::new),
            Some(_) => None,
        };
        Ok(Mix {
            parts,
            weights,
            ends,
            groups,
        })
    }

    /// Returns the part that holds a record, and the number of the part's first record.
    fn part(&self, record: u64) -> (usize, u64) {
        let part = self.ends.partition_point(|&end| end <= record);
        (part, self.first(part))
    }

    fn first(&self, part: usize) -> u64 {
        part.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

/// Concatenates the groups of all parts, if one part has groups that must be read whole. Otherwise
/// all records can be read one by one and are shuffled as a whole.
fn join_groups(parts: &[Arc<dyn Source>]) -> Option<Groups> {
    let groups: Vec<Option<Arc<Groups>>> = parts.iter().map(|part| part.groups()).collect();
    let whole = groups.iter().flatten().any(|groups| groups.whole);
    if !whole && groups.iter().any(Option::is_none) {
        return None;
    }
    let (mut ends, mut bytes, mut first) = (Vec::new(), Vec::new(), 0);
    for (part, own) in parts.iter().zip(groups) {
        match own {
            Some(own) => {
                ends.extend(own.ends.iter().map(|end| first + end));
                bytes.extend(&own.bytes);
            }
            None => {
                let count = part.len().div_ceil(GROUP);
                ends.extend((1..=count).map(|n| first + (n * GROUP).min(part.len())));
                // Records that are read one by one hold almost no memory at a time.
                bytes.extend((0..count).map(|_| 0));
            }
        }
        first += part.len();
    }
    Some(Groups { ends, bytes, whole })
}

impl ResidentRows for Mix {
    fn stored_bytes(&self, record: u64, field: usize) -> Option<&[u8]> {
        let (part, first) = self.part(record);
        let rows = self.parts.get(part)?.resident()?;
        rows.stored_bytes(record - first, field)
    }

    fn copy(&self, record: u64, field: usize, to: &mut [u8]) -> bool {
        let (part, first) = self.part(record);
        let rows = self.parts.get(part).and_then(|part| part.resident());
        rows.is_some_and(|rows| rows.copy(record - first, field, to))
    }

    fn is_mapped(&self) -> bool {
        let mut rows = self.parts.iter().filter_map(|part| part.resident());
        rows.any(|rows| rows.is_mapped())
    }
}

impl Source for Mix {
    fn fields(&self) -> &[Field] {
        self.parts[0].fields()
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn fingerprint(&self) -> u64 {
        let parts: Vec<u64> = self.parts.iter().map(|part| part.fingerprint()).collect();
        let weights: Vec<u64> = self
            .weights
            .iter()
            .flat_map(|weights| {
                let shares = weights.shares.iter().map(|share| share.to_bits());
                shares.chain([weights.epoch.unwrap_or(self.len())])
            })
            .collect();
        hash(&[hash(&parts), hash(&weights)])
    }

    fn id(&self, record: u64, field: Option<usize>) -> RecordId {
        let (part, first) = self.part(record);
        RecordId {
            index: record,
            name: self.parts[part].id(record - first, field).name,
        }
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        let (part, first) = self.part(record);
        self.parts[part].files(record - first)
    }

    fn local_files(&self, record: u64) -> Vec<PathBuf> {
        let (part, first) = self.part(record);
        self.parts[part].local_files(record - first)
    }

    fn field_in_memory(&self, record: u64, field: usize) -> Option<Bytes> {
        let (part, first) = self.part(record);
        self.parts[part].field_in_memory(record - first, field)
    }

    fn name(&self, record: u64) -> Option<String> {
        let (part, first) = self.part(record);
        self.parts[part].name(record - first)
    }

    fn shard(&self, record: u64) -> Option<&str> {
        let (part, first) = self.part(record);
        self.parts[part].shard(record - first)
    }

    fn classes(&self) -> Option<&[String]> {
        self.parts[0].classes()
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.parts.iter().flat_map(|part| part.left_out()).collect()
    }

    fn version(&self) -> Option<u64> {
        let versions = self.parts.iter().map(|part| part.version());
        Some(hash(&versions.collect::<Option<Vec<u64>>>()?))
    }

    fn resident(&self) -> Option<&dyn ResidentRows> {
        let is_resident = self.parts.iter().all(|part| part.resident().is_some());
        is_resident.then_some(self)
    }

    fn python(&self) -> Option<PythonTime> {
        let times = self.parts.iter().filter_map(|part| part.python());
        times.reduce(|a, b| PythonTime {
            items: a.items + b.items,
            waited: a.waited + b.waited,
            inside: a.inside + b.inside,
        })
    }

    fn label(&self, record: u64) -> Option<i64> {
        let (part, first) = self.part(record);
        self.parts[part].label(record - first)
    }

    fn run_length(&self) -> u64 {
        let lengths = self.parts.iter().map(|part| match part.groups() {
            Some(groups) if groups.whole => window_records(&groups),
            _ => part.run_length(),
        });
        lengths.max().unwrap_or(1)
    }

    fn groups(&self) -> Option<Arc<Groups>> {
        self.groups.clone()
    }

    fn weighted_parts(&self) -> Option<(&[Arc<dyn Source>], &SourceShares)> {
        let weights = self.weights.as_ref()?;
        Some((&self.parts, weights))
    }

    fn parallel_reads(&self) -> Option<usize> {
        let parts = self.parts.iter().map(|part| part.parallel_reads());
        parts.max().flatten()
    }

    fn plan(&self, run: &[u64], room_bytes: u64) -> Vec<Read> {
        let mut reads = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            let own = self.first(at)..self.ends[at];
            let (positions, records): (Vec<usize>, Vec<u64>) = run
                .iter()
                .enumerate()
                .filter(|(_, record)| own.contains(record))
                .map(|(position, record)| (position, record - own.start))
                .unzip();
            if records.is_empty() {
                continue;
            }
            let room = room_bytes / self.parts.len() as u64;
            for mut read in part.plan(&records, room) {
                for (position, record) in &mut read.records {
                    *position = positions[*position];
                    *record += own.start;
                }
                // The key is the part's; the records of the read identify the part.
                reads.push(read);
            }
        }
        reads
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let Some(&(_, record)) = read.records.first() else {
            return Ok(());
        };
        let (at, first) = self.part(record);
        let records = read.records.iter();
        let own = Read {
            records: records
                .map(|&(position, record)| (position, record - first))
                .collect(),
            bytes: read.bytes,
            key: read.key,
            draws: read.draws.clone(),
        };
        self.parts[at]
            .read(&own, admit, &mut |position, found| {
                sink(
                    position,
                    found.map(|mut record| {
                        record.index += first;
                        record
                    }),
                );
            })
            .map_err(|error| error.with_number(|record| record + first))
    }
}

/// Maximum number of records in a window of whole groups: if one run covers it, no group is read
/// twice.
fn window_records(groups: &Groups) -> u64 {
    let sizes = (0..groups.ends.len()).map(|group| groups.ends[group] - groups.first(group));
    sizes.max().unwrap_or(1).clamp(1024, 65_536)
}

#[cfg(test)]
mod tests {

    use super::super::memory::{FieldData, Memory};
    use super::super::read_one;
    use super::*;
    use infeed_core::sample::{DType, FieldKind};

    fn numbers(range: std::ops::Range<u64>) -> Arc<dyn Source> {
        let kind = FieldKind::Tensor {
            dtype: DType::UInt64,
            shape: Vec::new(),
        };
        let field = Field {
            name: "number".to_owned(),
            kind,
        };
        let bytes: Vec<u8> = range.flat_map(u64::to_le_bytes).collect();
        let data = FieldData::Array(Bytes::from(bytes));
        Arc::new(Memory::new(vec![(field, data)], false).expect("numbers"))
    }

    #[test]
    fn records_are_numbered_through_and_keep_their_places_in_a_run() {
        let mix = Mix::new(vec![numbers(100..103), numbers(200..205)], None, None).expect("equal");
        assert_eq!(mix.len(), 8);
        assert_eq!(
            read_one(&mix, 4).expect("there").fields[0],
            201_u64.to_le_bytes()[..]
        );

        let run = [7, 0, 4, 2, 7];
        let mut found = vec![None; run.len()];
        for read in mix.plan(&run, u64::MAX) {
            mix.read(&read, &mut |_| Ok(()), &mut |position, one| {
                found[position] = Some(one.expect("good").index);
            })
            .expect("memory");
        }
        assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), run);
    }

    #[test]
    fn incompatible_sources_are_rejected() {
        let kind = FieldKind::Bytes;
        let field = Field {
            name: "other".to_owned(),
            kind,
        };
        let data = FieldData::List(vec![Bytes::from_static(b"x")]);
        let other: Arc<dyn Source> =
            Arc::new(Memory::new(vec![(field, data)], false).expect("one"));
        let two = || vec![numbers(0..3), numbers(3..5)];
        let weighted = || {
            let mix = Mix::new(two(), Some(vec![1.0, 2.0]), None).expect("equal");
            Arc::new(mix) as Arc<dyn Source>
        };
        for (parts, shares, epoch, reason) in [
            (vec![numbers(0..1), other], None, None, "other fields"),
            (
                vec![numbers(0..1), weighted()],
                None,
                None,
                "a weighted mix",
            ),
            (two(), Some(vec![1.0]), None, "1 weights for 2 sources"),
            (two(), Some(vec![1.0, 0.0]), None, "greater than zero"),
            (two(), Some(vec![1.0, f64::NAN]), None, "greater than zero"),
            (two(), Some(vec![5e7, 1e3]), None, "weight 1000 of source 1"),
            (two(), Some(vec![1.0, 2.0]), Some(0), "at least 1"),
            (two(), None, Some(7), "with weights"),
            (vec![], None, None, "at least one"),
        ] {
            let error = Mix::new(parts, shares, epoch)
                .expect_err(reason)
                .to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
