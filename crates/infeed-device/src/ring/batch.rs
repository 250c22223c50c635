//! Batches that were sent, and batches that the consumer holds.

use std::sync::Arc as StdArc;

use crate::Device;
use infeed_core::batch::{PADDING, Values};
use infeed_core::error::Error;
use infeed_core::sample::DType;

use super::decoding::UndecodedRows;
use super::gaps::TimedRequest;
use super::ring_state::SlotHandle;
use super::sync::Arc;

/// A batch without its device memory.
#[derive(Debug)]
pub(super) struct BatchContent {
    pub(super) columns: Vec<(String, ColumnData)>,
    pub(super) records: Vec<u64>,
    pub(super) epoch: u64,
    pub(super) step: u64,
}

/// Location of a column's values.
#[derive(Debug)]
pub(super) enum ColumnData {
    Host(Values),
    Device {
        /// Index among the slot's columns.
        at: usize,
        shape: Vec<usize>,
        dtype: DType,
    },
}

/// A batch sent ahead of the consumer. Dropping it returns its slot.
#[derive(Debug)]
pub struct SentBatch<D: Device> {
    pub(super) held: SlotHandle<D>,
    pub(super) content: BatchContent,
    pub(super) undecoded_rows: UndecodedRows,
    /// Recorded after the batch's copies.
    pub(super) copied: Arc<D::Event>,
}

impl<D: Device> SentBatch<D> {
    /// Returns the epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.content.epoch
    }

    /// Returns the step in the epoch, from 0.
    pub fn step(&self) -> u64 {
        self.content.step
    }

    /// Returns the record number of each row, as in
    /// [`Batch::records`](infeed_core::batch::Batch::records).
    pub fn records(&self) -> &[u64] {
        &self.content.records
    }

    /// Returns the records whose rows are invalid because neither the device nor the host could
    /// decode their files. Waits for the decoding if the device detects errors only while it
    /// decodes.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed.
    pub fn undecoded_records(&self) -> Result<Vec<u64>, Error> {
        let shared = self.held.ring_state();
        shared.check()?;
        if !self.undecoded_rows.are_settled() {
            shared.or_fail(shared.device.synchronize(&self.copied))?;
        }
        let rows = self.undecoded_rows.rows().into_iter();
        let records = rows.filter_map(|row| self.content.records.get(row).copied());
        Ok(records.collect())
    }

    /// Hands the batch to the consumer immediately, even if its copies are still running. `request`
    /// is the consumer's request ([`ask`](super::Ring::ask)). If it is given, the ring measures the
    /// gap of this step.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed.
    pub fn hand_over(mut self, request: Option<TimedRequest<D>>) -> Result<DeviceBatch<D>, Error> {
        let shared = self.held.ring_state();
        shared.check()?;
        shared.settle();
        let is_requested = request.is_some();
        if let Some(request) = request {
            let step = (self.content.epoch, self.content.step);
            shared.measure_request(request, &self.held, step)?;
        }
        self.held.hand_over(is_requested);
        Ok(DeviceBatch {
            held: Arc::new(self.held),
            content: Arc::new(self.content),
        })
    }
}

/// A batch whose arrays of fixed shape are on the device. Clones share the memory. After the last
/// clone and the last array are dropped, a later batch reuses the memory. Events order that reuse
/// after the streams that used the batch.
#[derive(Clone, Debug)]
pub struct DeviceBatch<D: Device> {
    held: Arc<SlotHandle<D>>,
    content: Arc<BatchContent>,
}

impl<D: Device> DeviceBatch<D> {
    /// Returns the device of the batch.
    pub fn device(&self) -> &D {
        &self.held.ring_state().device
    }

    /// Returns the names of the columns, in field order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.content.columns.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the record number of each row, as in
    /// [`Batch::records`](infeed_core::batch::Batch::records).
    pub fn records(&self) -> &[u64] {
        &self.content.records
    }

    /// Returns the epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.content.epoch
    }

    /// Returns the step in the epoch, from 0.
    pub fn step(&self) -> u64 {
        self.content.step
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.content.records.len()
    }

    /// Returns the number of rows that hold a record.
    pub fn samples(&self) -> usize {
        let holds = |record: &&u64| **record != PADDING;
        self.content.records.iter().filter(holds).count()
    }

    fn part(&self, name: &str) -> Option<&ColumnData> {
        let mut columns = self.content.columns.iter();
        columns.find_map(|(column, part)| (column == name).then_some(part))
    }

    /// Returns the values of a column that stayed on the host. None for other columns.
    pub fn host(&self, name: &str) -> Option<&Values> {
        match self.part(name)? {
            ColumnData::Host(values) => Some(values),
            ColumnData::Device { .. } => None,
        }
    }

    /// Returns the array of a column on the device. None if the batch has no such column, or the
    /// column stayed on the host. The copy of the column may still run: [`DeviceArray::ready_on`]
    /// makes a stream wait for it.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed.
    pub fn array(&self, name: &str) -> Result<Option<DeviceArray<D>>, Error> {
        self.held.ring_state().check()?;
        let Some(ColumnData::Device { at, shape, dtype }) = self.part(name) else {
            return Ok(None);
        };
        let memory = self.held.output(*at).map(StdArc::clone);
        Ok(memory.map(|memory| DeviceArray {
            held: Arc::clone(&self.held),
            memory,
            shape: shape.clone(),
            dtype: *dtype,
        }))
    }

    /// Like [`DeviceArray::ready_on`], for all columns.
    ///
    /// # Errors
    ///
    /// As [`DeviceArray::ready_on`].
    pub fn ready_on(&self, queue: D::Queue) -> Result<(), Error> {
        self.held.ready_on(queue)
    }

    /// Registers a stream that uses the batch without having waited for it here: the caller ordered
    /// it after a stream that did. When the batch is dropped, its memory is reused only after the
    /// commands that are in the stream at that time.
    ///
    /// # Errors
    ///
    /// As [`DeviceArray::ready_on`].
    pub fn record_stream(&self, queue: D::Queue) -> Result<(), Error> {
        self.held.used_on(queue)
    }

    /// Blocks until the batch is ready. For consumers whose streams are unknown: such a consumer
    /// must finish all work on the batch before dropping it.
    ///
    /// # Errors
    ///
    /// As [`DeviceArray::ready_on`].
    pub fn synchronize(&self) -> Result<(), Error> {
        self.held.synchronize()
    }

    /// Copies columns into the caller's memory, in the caller's stream, and returns the slot
    /// immediately. For consumers that need the same addresses in every step. The caller's memory
    /// must stay allocated until the copies are done.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if a column is not on the device, or its size differs from the memory's
    /// length; nothing is copied in that case. Otherwise as [`DeviceArray::ready_on`].
    pub fn copy_into(
        self,
        queue: D::Queue,
        targets: &[(&str, &StdArc<D::Memory>)],
    ) -> Result<(), Error> {
        let device = &self.held.ring_state().device;
        let mut copies = Vec::with_capacity(targets.len());
        for (name, to) in targets {
            let Some(array) = self.array(name)? else {
                let problem = "is not on the device; name an array column of the batch";
                return Err(Error::config(format!("field `{name}`"), problem));
            };
            let (bytes, len) = (array.bytes(), device.len(to));
            if bytes != len {
                let problem = format!(
                    "has {bytes} bytes of {} {:?}, but its target has {len} bytes; pass a tensor \
                     of this shape and type",
                    array.dtype.name(),
                    array.shape
                );
                return Err(Error::config(format!("field `{name}`"), problem));
            }
            copies.push((array, *to));
        }
        self.ready_on(queue)?;
        for (array, to) in &copies {
            let copied = device.copy_within(queue, &array.memory, to, array.bytes());
            self.held.ring_state().or_fail(copied)?;
        }
        Ok(())
    }
}

/// An array on the device, row-major without gaps. It shares the memory of its batch. The memory is
/// not reused while the array is held.
#[derive(Debug)]
pub struct DeviceArray<D: Device> {
    held: Arc<SlotHandle<D>>,
    memory: StdArc<D::Memory>,
    shape: Vec<usize>,
    dtype: DType,
}

/// An array that a consumer uses in a stream. After the drop, the memory may be reused behind the
/// commands that are in the stream at that time, once the batch is dropped too.
#[derive(Debug)]
pub struct TakenArray<D: Device> {
    array: DeviceArray<D>,
    queue: D::Queue,
}

impl<D: Device> Drop for TakenArray<D> {
    fn drop(&mut self) {
        self.array.held.end_use(self.queue);
    }
}

// A derived `Clone` would require `D::Memory: Clone`.
impl<D: Device> Clone for DeviceArray<D> {
    fn clone(&self) -> DeviceArray<D> {
        DeviceArray {
            held: Arc::clone(&self.held),
            memory: StdArc::clone(&self.memory),
            shape: self.shape.clone(),
            dtype: self.dtype,
        }
    }
}

impl<D: Device> DeviceArray<D> {
    /// Returns the device of the array.
    pub fn device(&self) -> &D {
        &self.held.ring_state().device
    }

    /// Returns the memory that holds the array from its first byte on. It may be longer than the
    /// array. A clone of the `Arc` keeps the memory allocated but not its contents; hold the array
    /// to keep the contents.
    pub fn memory(&self) -> &StdArc<D::Memory> {
        &self.memory
    }

    /// Returns the lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the number of bytes of the elements.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }

    /// As [`ready_on`](DeviceArray::ready_on), for a consumer that says when its use of the array
    /// ends: it drops the result, and may destroy the stream afterwards, even while the batch is
    /// held.
    ///
    /// # Errors
    ///
    /// As [`ready_on`](DeviceArray::ready_on).
    pub fn take_on(&self, queue: D::Queue) -> Result<TakenArray<D>, Error> {
        self.held.take_on(queue)?;
        Ok(TakenArray {
            array: self.clone(),
            queue,
        })
    }

    /// Makes later commands of a stream wait, on the device, until the array is ready. The host
    /// does not wait. Registers the stream: when the last clone or array of the batch is dropped,
    /// the memory is reused only after the commands that are in the stream at that time.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed, or if the stream does not exist.
    pub fn ready_on(&self, queue: D::Queue) -> Result<(), Error> {
        self.held.ready_on(queue)
    }

    /// Like [`DeviceBatch::record_stream`].
    ///
    /// # Errors
    ///
    /// As [`ready_on`](DeviceArray::ready_on).
    pub fn record_stream(&self, queue: D::Queue) -> Result<(), Error> {
        self.held.used_on(queue)
    }

    /// Like [`DeviceBatch::synchronize`].
    ///
    /// # Errors
    ///
    /// As [`ready_on`](DeviceArray::ready_on).
    pub fn synchronize(&self) -> Result<(), Error> {
        self.held.synchronize()
    }
}
