//! A look at what a few records hold, so that a copy of the data under the same names that was encoded
//! anew or made smaller is not taken for it.
//!
//! It has to cost little wherever the data lie: a few records spread over all of them, or one of each of
//! the smallest groups where records are read in groups; so many bytes and seconds in all. What cannot
//! be read in these bounds is told as unknown, and differs from nothing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::exec::budget::Refused;
use crate::random::{hash, hash_bytes};
use crate::source::{ReadError, Source};
use crate::wire::looks::Look;

/// Records that are looked at; of groups that can only be read whole, groups.
const RECORDS: u64 = 16;
const GROUPS: usize = 2;

/// Bytes that are read in all.
const BYTES: u64 = 64 << 20;

/// Bytes of a field that are hashed.
const FIELD_BYTES: usize = 16 << 20;

/// After so long no further record is begun.
const TIME: Duration = Duration::from_secs(3);

/// Stands for what is no record, which is the same wherever the bytes are.
const DAMAGED: u64 = 0x6461_6d61;

/// Looks at some records of a source.
pub(crate) fn look(source: &dyn Source) -> Vec<Look> {
    let records = chosen(source);
    let threads = source.parallel_reads().unwrap_or(1);
    let threads = threads.clamp(1, records.len().max(1));
    let (next, room) = (AtomicUsize::new(0), AtomicU64::new(BYTES));
    let begun = Instant::now();
    let looks = Mutex::new(Vec::with_capacity(records.len()));
    let selection = source.selection();
    let work = || {
        while let Some(&record) = records.get(next.fetch_add(1, Ordering::Relaxed)) {
            let held = match begun.elapsed() < TIME {
                true => held(source, record, &room),
                false => None,
            };
            // By which the record is known to whoever looks it up.
            let record = selection.map_or(record, |chosen| chosen.number(record));
            let mut looks = looks.lock().unwrap_or_else(PoisonError::into_inner);
            looks.push(Look { record, held });
        }
    };
    if threads == 1 {
        work();
    } else {
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    }
    let mut looks = looks.into_inner().unwrap_or_else(PoisonError::into_inner);
    looks.sort_unstable_by_key(|look| look.record);
    looks
}

/// Which records: they follow from numbers that are compared before, so both sides choose the same.
/// Those that are far from each other come first.
fn chosen(source: &dyn Source) -> Vec<u64> {
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

/// A hash of what a record holds, if it can be read within the room that is left.
fn held(source: &dyn Source, record: u64, room: &AtomicU64) -> Option<u64> {
    let mut asked = false;
    let mut admit = |bytes: u64| {
        // Who asks again asks for less.
        if std::mem::replace(&mut asked, true) {
            return Ok(());
        }
        let left = |left: u64| left.checked_sub(bytes);
        let taken = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        let refused = |left| Refused::TooLarge { limit: left };
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
    use crate::order::window::Groups;
    use crate::sample::{DType, Field, FieldKind, Record, RecordId};
    use crate::source::{Admit, Read, Sink};

    /// Records of their number alone, some of which cannot be read.
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
            admit: &mut Admit<'_>,
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
    fn sixteen_records_are_spread_over_all_and_those_apart_come_first() {
        let source = numbers(160);

        let looks = look(&source);

        let read = source.read.into_inner().expect("not poisoned");
        assert_eq!(read[..4], [0, 80, 40, 120]);
        let records: Vec<u64> = looks.iter().map(|look| look.record).collect();
        assert_eq!(records, (0..16).map(|n| n * 10).collect::<Vec<_>>());
        let held: std::collections::HashSet<_> = looks.iter().map(|look| look.held).collect();
        assert!(held.len() == 16 && !held.contains(&None));
        assert_eq!(look(&numbers(5)).len(), 5);
        assert_eq!(look(&numbers(0)), []);
        assert_eq!(chosen(&numbers(u64::MAX)).len(), 16);
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_stops_nothing() {
        let source = Numbers {
            failing: Some(80),
            parallel: Some(64),
            ..numbers(160)
        };

        let looks = look(&source);

        let unknown = looks.iter().filter(|look| look.held.is_none());
        assert_eq!(unknown.map(|look| look.record).collect::<Vec<_>>(), [80]);
        assert_eq!(looks.len(), 16);
    }

    #[test]
    fn no_more_is_read_than_there_is_room_for() {
        let source = Numbers {
            record_bytes: 30 << 20,
            ..numbers(160)
        };

        let looks = look(&source);

        let known = looks.iter().filter(|look| look.held.is_some());
        assert_eq!(known.map(|look| look.record).collect::<Vec<_>>(), [0, 80]);
        assert!(source.over.into_inner());
    }

    #[test]
    fn of_groups_that_are_read_whole_the_smallest_two_are_looked_at() {
        let source = Numbers {
            groups: Some(Arc::new(Groups {
                ends: vec![10, 20, 20, 30],
                bytes: vec![500, 300, 0, 400],
                whole: true,
            })),
            ..numbers(30)
        };

        assert_eq!(chosen(&source), [10, 20]);
    }
}
