//! Hashes of some records' contents. A feeder compares them to detect that its copy of the data
//! differs from the trainer's.
//!
//! Reading must be cheap for all storage, so records, bytes and time are limited. A record that
//! cannot be read within the limits is unknown and matches everything. The hashes of the first
//! records are sent one by one, so that a message can name the record. The others are sent in
//! groups, so that the text stays short.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::wire::content_hashes::ContentHash;
use infeed_core::exec::budget::BudgetError;
use infeed_core::random::{hash, hash_bytes};
use infeed_source::{ReadError, Source};

/// Maximum number of records to read, and of groups if they can only be read whole.
const RECORDS: u64 = 1024;
const GROUPS: usize = 2;

/// Number of hashes sent one by one, and records per group after them.
const SINGLE: usize = 16;
const GROUPED: usize = 32;

/// Maximum bytes to read in total.
const BYTES: u64 = 128 << 20;

/// Maximum bytes of a field that are hashed.
const FIELD_BYTES: usize = 16 << 20;

/// Time after which no further read begins.
const TIME: Duration = Duration::from_secs(3);

/// Hash of a damaged record, the same for every source.
const DAMAGED: u64 = 0x6461_6d61;

/// Hashes some records of a source.
pub(crate) fn hash_records(source: &dyn Source) -> Vec<ContentHash> {
    let records = choose_records(source);
    let threads = source.parallel_reads().unwrap_or(1);
    let threads = threads.clamp(1, records.len().max(1));
    let (next, room) = (AtomicUsize::new(0), AtomicU64::new(BYTES));
    let begun = Instant::now();
    let hashes = Mutex::new(vec![None; records.len()]);
    let work = || loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(&record) = records.get(at).filter(|_| begun.elapsed() < TIME) else {
            return;
        };
        let held = hash_record(source, record, &room);
        let mut hashes = hashes.lock().unwrap_or_else(PoisonError::into_inner);
        hashes[at] = held;
    };
    if threads == 1 {
        work();
    } else {
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    }
    let hashes = hashes.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Users know records by their number in the whole source.
    let selection = source.selection();
    let number = |&record: &u64| selection.map_or(record, |chosen| chosen.number(record));
    let numbers: Vec<u64> = records.iter().map(number).collect();
    let single = hashes.len().min(SINGLE);
    let groups = numbers[single..].chunks(GROUPED);
    let groups = groups.zip(hashes[single..].chunks(GROUPED));
    let all = numbers
        .chunks(1)
        .zip(hashes.chunks(1))
        .take(single)
        .chain(groups);
    all.map(|(numbers, held)| ContentHash {
        first: numbers.iter().copied().min().unwrap_or_default(),
        last: numbers.iter().copied().max().unwrap_or_default(),
        hash: match held {
            [one] => *one,
            _ => held
                .iter()
                .copied()
                .collect::<Option<Vec<_>>>()
                .map(|held| hash(&held)),
        },
    })
    .collect()
}

/// Chooses the records to read. The choice depends only on numbers that are compared earlier, so
/// both sides choose the same records. Distant records come first.
fn choose_records(source: &dyn Source) -> Vec<u64> {
    let count = source.len();
    if let Some(groups) = source.groups().filter(|groups| groups.whole) {
        let mut all: Vec<usize> = (0..groups.ends.len()).collect();
        all.retain(|&group| groups.ends[group] > groups.first(group));
        all.sort_by_key(|&group| groups.bytes[group]);
        let smallest = all.into_iter().take(GROUPS);
        return smallest.map(|group| groups.first(group)).collect();
    }
    if count <= RECORDS {
        return (0..count).collect();
    }
    let bits = RECORDS.trailing_zeros();
    let spread = (0..RECORDS).map(|turn| turn.reverse_bits() >> (u64::BITS - bits));
    let at = |part: u64| (u128::from(part) * u128::from(count) / u128::from(RECORDS)) as u64;
    spread.map(at).collect()
}

/// Hashes a record's contents, if it can be read with the remaining bytes.
fn hash_record(source: &dyn Source, record: u64, room: &AtomicU64) -> Option<u64> {
    let mut is_admitted = false;
    let mut admit = |bytes: u64| {
        // The first call has admitted the larger size.
        if std::mem::replace(&mut is_admitted, true) {
            return Ok(());
        }
        let left = |left: u64| left.checked_sub(bytes);
        let taken = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        let refused = |left| BudgetError::TooLarge { limit: left };
        taken.map(drop).map_err(refused)
    };
    let mut held = None;
    for read in source.plan(&[record], BYTES) {
        let done: Result<(), ReadError> = source.read(&read, &mut admit, &mut |_, found| {
            held = Some(match found {
                Ok(record) => {
                    let fields = record.fields.iter();
                    let field = |bytes: &bytes::Bytes| {
                        let beginning = &bytes[..bytes.len().min(FIELD_BYTES)];
                        hash(&[bytes.len() as u64, hash_bytes(beginning)])
                    };
                    hash(&fields.map(field).collect::<Vec<_>>())
                }
                Err(_) => DAMAGED,
            });
        });
        done.ok()?;
    }
    held
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use infeed_core::order::window::Groups;
    use infeed_core::sample::{DType, Field, FieldKind, Record, RecordId};
    use infeed_source::{Admission, Read, Sink};

    /// A source whose records contain their number. Some of them cannot be read.
    #[derive(Debug, Default)]
    struct Numbers {
        count: u64,
        record_bytes: u64,
        failing: Option<u64>,
        groups: Option<Arc<Groups>>,
        fields: Vec<Field>,
        read: Mutex<Vec<u64>>,
        over: AtomicBool,
        parallel: Option<usize>,
    }

    impl Source for Numbers {
        fn fields(&self) -> &[Field] {
            &self.fields
        }

        fn len(&self) -> u64 {
            self.count
        }

        fn id(&self, record: u64, _: Option<usize>) -> RecordId {
            RecordId {
                index: record,
                name: format!("number {record}"),
            }
        }

        fn groups(&self) -> Option<Arc<Groups>> {
            self.groups.clone()
        }

        fn parallel_reads(&self) -> Option<usize> {
            self.parallel
        }

        fn read(
            &self,
            read: &Read,
            admit: &mut Admission<'_>,
            sink: &mut Sink<'_>,
        ) -> Result<(), ReadError> {
            for &(place, record) in &read.records {
                let bytes = self.record_bytes;
                admit(bytes).map_err(|refused| {
                    self.over.store(true, Ordering::Relaxed);
                    ReadError::Refused {
                        record,
                        bytes,
                        refused,
                    }
                })?;
                self.read.lock().expect("not poisoned").push(record);
                if self.failing == Some(record) {
                    return Err(ReadError::Io {
                        record,
                        field: None,
                        error: std::io::Error::other("the disk is gone"),
                    });
                }
                let fields = vec![bytes::Bytes::copy_from_slice(&record.to_le_bytes())];
                let index = record;
                sink(place, Ok(Record { index, fields }));
            }
            Ok(())
        }
    }

    fn numbers(count: u64) -> Numbers {
        let kind = FieldKind::Tensor {
            dtype: DType::UInt64,
            shape: Vec::new(),
        };
        let name = "x".to_owned();
        Numbers {
            count,
            fields: vec![Field { name, kind }],
            ..Numbers::default()
        }
    }

    #[test]
    fn chosen_records_are_spread_with_distant_ones_first() {
        let source = numbers(10_240);

        let hashes = hash_records(&source);

        let read = source.read.into_inner().expect("not poisoned");
        assert_eq!(read[..4], [0, 5120, 2560, 7680]);
        assert_eq!(read.len(), 1024);
        assert_eq!(hashes.len(), 16 + (1024 - 16_usize).div_ceil(32));
        assert_eq!((hashes[1].first, hashes[1].last), (5120, 5120));
        assert!(
            hashes[16].first < 500 && hashes[16].last > 9000,
            "{:?}",
            hashes[16]
        );
        let held: std::collections::HashSet<_> = hashes.iter().map(|entry| entry.hash).collect();
        assert!(held.len() == hashes.len() && !held.contains(&None));
        assert!(
            crate::wire::content_hashes::text(&hashes).len() < 2000,
            "it fits a fact"
        );
        assert_eq!(hash_records(&numbers(5)).len(), 5);
        assert_eq!(hash_records(&numbers(0)), []);
        assert_eq!(choose_records(&numbers(u64::MAX)).len(), 1024);
    }

    #[test]
    fn unreadable_records_are_unknown_and_stop_nothing() {
        let source = Numbers {
            failing: Some(8),
            parallel: Some(64),
            ..numbers(160)
        };

        let hashes = hash_records(&source);

        let unknown = hashes.iter().filter(|entry| entry.hash.is_none());
        assert_eq!(unknown.map(|entry| entry.first).collect::<Vec<_>>(), [8]);
        assert_eq!(hashes.len(), 16 + (160 - 16_usize).div_ceil(32));
    }

    #[test]
    fn reads_stop_at_the_byte_limit() {
        let source = Numbers {
            record_bytes: 60 << 20,
            ..numbers(160)
        };

        let hashes = hash_records(&source);

        let known = hashes.iter().filter(|entry| entry.hash.is_some());
        assert_eq!(known.map(|entry| entry.first).collect::<Vec<_>>(), [0, 1]);
        assert!(source.over.into_inner());
    }

    #[test]
    fn the_two_smallest_whole_groups_are_read() {
        let source = Numbers {
            groups: Some(Arc::new(Groups {
                ends: vec![10, 20, 20, 30],
                bytes: vec![500, 300, 0, 400],
                whole: true,
            })),
            ..numbers(30)
        };

        assert_eq!(choose_records(&source), [10, 20]);
    }
}
