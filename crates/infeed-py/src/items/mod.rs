//! Items of a Python object as records. The I/O threads call `__getitem__`, by default one at a
//! time, and the time of each call is counted.

mod picture;
mod turns;
pub(crate) mod values;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use infeed_core::error::Cause;
use infeed_core::random::{DrawKey, hash, hash_bytes};
use infeed_core::sample::{Field, Record, RecordId};
use infeed_source::columns::ColumnRequest;
use infeed_source::{Admission, PythonTime, Read, ReadError, Sink, Source, draw_key};
use pyo3::prelude::*;

use crate::error::{raise, source_error};
use crate::raised_exception::line;
use turns::Turns;
use values::{ItemPlan, named_values};

/// Records that are the items of a Python object.
pub(crate) struct Items {
    name: String,
    object: Py<PyAny>,
    /// Function of a number and the key of random draws that returns the item, if the object draws
    /// random numbers.
    draw: Option<Py<PyAny>>,
    plan: ItemPlan,
    len: u64,
    /// Version of the items, if the user states that they never change.
    version: Option<u64>,
    turns: Turns,
    spent: ItemTimes,
}

/// Number of items, and the time they took in nanoseconds.
#[derive(Debug, Default)]
struct ItemTimes {
    items: AtomicU64,
    waited: AtomicU64,
    inside: AtomicU64,
}

impl fmt::Debug for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Items")
            .field("name", &self.name)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// The exception that Python raised for an item, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ItemError(String);

impl Items {
    /// Makes a source of the items of an object. Item 0 is fetched to find the fields. `version`
    /// names the class of the object and the version of its items, if they never change. Up to
    /// `threads` threads call the object at a time. `draw` returns an item that depends on random
    /// draws, given its number and their key.
    pub(crate) fn new(
        object: &Bound<'_, PyAny>,
        name: &str,
        wanted: &[ColumnRequest],
        version: Option<&str>,
        threads: usize,
        draw: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Items> {
        let py = object.py();
        let to_error = |part: String| move |raised| source_error(py, &part, raised);
        let len = object.len();
        let len = len.map_err(to_error(format!("the length of {name}")))? as u64;
        if len == 0 {
            let empty = infeed::Error::config("source", format!("{name} has no items"));
            return raise(py, Err(empty));
        }
        let item_error = || to_error(format!("item 0 of {name}"));
        let item = item_of(object, draw.as_ref(), 0, None).map_err(item_error())?;
        let first = named_values(&item, wanted).map_err(item_error())?;
        let plan = ItemPlan::new(&first, wanted);
        let plan = plan.map_err(|problem| infeed::Error::config("source", problem));
        let plan = raise(py, plan)?;
        let version = match version {
            None => None,
            // Objects of one class with as many items may differ, and usually do so in the first one.
            Some(version) => {
                let fields = plan.take(&item).map_err(item_error())?;
                let parts = fields.iter().map(|bytes| hash_bytes(bytes));
                let parts = [hash_bytes(version.as_bytes()), len]
                    .into_iter()
                    .chain(parts);
                Some(hash(&parts.collect::<Vec<u64>>()))
            }
        };
        Ok(Items {
            name: name.to_owned(),
            object: object.clone().unbind(),
            draw: draw.map(Bound::unbind),
            plan,
            len,
            version,
            turns: Turns::new(threads),
            spent: ItemTimes::default(),
        })
    }

    /// Fetches an item and returns the bytes of its fields.
    fn fetch(
        &self,
        py: Python<'_>,
        record: u64,
        key: Option<DrawKey>,
    ) -> Result<Vec<Bytes>, Cause> {
        let draw = self.draw.as_ref().map(|draw| draw.bind(py));
        let item = item_of(self.object.bind(py), draw, record, key);
        let fetched = item.and_then(|item| self.plan.take(&item));
        fetched.map_err(|error| -> Cause { Arc::new(ItemError(line(py, &error))) })
    }
}

impl Source for Items {
    fn fields(&self) -> &[Field] {
        self.plan.fields()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn id(&self, record: u64, _field: Option<usize>) -> RecordId {
        RecordId {
            index: record,
            name: format!("item {record} of {}", self.name),
        }
    }

    fn version(&self) -> Option<u64> {
        self.version
    }

    fn python(&self) -> Option<PythonTime> {
        let time = |ns: &AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed));
        Some(PythonTime {
            items: self.spent.items.load(Ordering::Relaxed),
            waited: time(&self.spent.waited),
            inside: time(&self.spent.inside),
        })
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        for (at, &(place, record)) in read.records.iter().enumerate() {
            let key = read.draws.get(at).copied();
            // Waits without the interpreter lock, which the thread that has the turn needs.
            let turn = self.turns.take();
            let requested_at = Instant::now();
            let mut begun = requested_at;
            // None while the interpreter shuts down. The loader is closed by then.
            let fetched = Python::try_attach(|py| {
                begun = Instant::now();
                self.fetch(py, record, key)
            });
            drop(turn);
            let add = |to: &AtomicU64, time: Duration| {
                to.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
            };
            add(&self.spent.waited, begun - requested_at);
            add(&self.spent.inside, begun.elapsed());
            self.spent.items.fetch_add(1, Ordering::Relaxed);
            let Some(fetched) = fetched else {
                let error = io::Error::other("the interpreter is shutting down");
                return Err(ReadError::Io {
                    record,
                    field: None,
                    error,
                });
            };
            // The size of an item is known only after Python has made it, so each I/O thread holds
            // one item more than was admitted. It waits here without the interpreter lock.
            let bytes = fetched.as_ref().map_or(0, |fields| {
                fields.iter().map(|field| field.len() as u64).sum()
            });
            admit(bytes).map_err(|refused| ReadError::Refused {
                record,
                bytes,
                refused,
            })?;
            let found = fetched.map(|fields| Record {
                index: record,
                fields,
            });
            sink(place, found);
        }
        Ok(())
    }
}

/// Returns an item of an object. Outside a run over epochs there is no key: the draws then depend on
/// the number alone.
fn item_of<'py>(
    object: &Bound<'py, PyAny>,
    draw: Option<&Bound<'py, PyAny>>,
    record: u64,
    key: Option<DrawKey>,
) -> PyResult<Bound<'py, PyAny>> {
    match draw {
        None => object.get_item(record),
        Some(draw) => {
            let key = key.unwrap_or_else(|| draw_key(0, 0, record)).0;
            draw.call1((record, (key[0], key[1])))
        }
    }
}
