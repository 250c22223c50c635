//! Batches on their way, and batches in the consumer's hands.

use std::sync::Arc as StdArc;

use crate::batch::{PADDING, Values};
use crate::device::Device;
use crate::error::Error;
use crate::sample::DType;

use super::decoding::Doubts;
use super::gaps::Asked;
use super::shared::Held;
use super::sync::Arc;

/// What a batch consists of, the memory on the device left out.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) columns: Vec<(String, Part)>,
    pub(super) records: Vec<u64>,
    pub(super) epoch: u64,
    pub(super) step: u64,
}

/// Where a column is.
#[derive(Debug)]
pub(super) enum Part {
    Host(Values),
    Device {
        /// Which of the slot's columns.
        at: usize,
        shape: Vec<usize>,
        dtype: DType,
    },
}

/// A batch on its way to the device, ahead of the consumer. Dropped, it gives its slot back.
#[derive(Debug)]
pub struct Sent<D: Device> {
    pub(super) held: Held<D>,
    pub(super) content: Content,
    pub(super) doubts: Doubts,
    /// Behind its copies.
    pub(super) copied: Arc<D::Event>,
}

impl<D: Device> Sent<D> {
    /// Epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.content.epoch
    }

    /// Step in the epoch, from 0.
    pub fn step(&self) -> u64 {
        self.content.step
    }

    /// Number of each row's record, as in [`Batch::records`](crate::batch::Batch::records).
    pub fn records(&self) -> &[u64] {
        &self.content.records
    }

    /// Records whose rows do not hold what their files show, since neither the device nor the host could
    /// decode them. Where the device finds that out while it decodes, this waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed since.
    pub fn undecoded(&self) -> Result<Vec<u64>, Error> {
        let shared = self.held.shared();
        shared.check()?;
        if !self.doubts.are_settled() {
            shared.told(shared.device.synchronize(&self.copied))?;
        }
        let rows = self.doubts.rows().into_iter();
        let records = rows.filter_map(|row| self.content.records.get(row).copied());
        Ok(records.collect())
    }

    /// Gives it to the consumer, at once, wherever its bytes are by now. With what the consumer
    /// [`ask`](super::Ring::ask)ed, the gap of this step is measured.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed since.
    pub fn hand_over(mut self, asked: Option<Asked<D>>) -> Result<DeviceBatch<D>, Error> {
        let shared = self.held.shared();
        shared.check()?;
        shared.settle(None);
        let is_asked = asked.is_some();
        if let Some(asked) = asked {
            let step = (self.content.epoch, self.content.step);
            shared.given(asked, &self.held, step)?;
        }
        self.held.hand_over(is_asked);
        Ok(DeviceBatch {
            held: Arc::new(self.held),
            content: Arc::new(self.content),
        })
    }
}

/// A batch whose arrays of fixed shape are on the device. Cloning shares it; when the last share and
/// the last array of it are dropped, its memory is used for a later batch, in the order that the
/// streams it was used on are told to keep.
#[derive(Clone, Debug)]
pub struct DeviceBatch<D: Device> {
    held: Arc<Held<D>>,
    content: Arc<Content>,
}

impl<D: Device> DeviceBatch<D> {
    /// The device that it is on.
    pub fn device(&self) -> &D {
        &self.held.shared().device
    }

    /// Names of the columns, in field order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.content.columns.iter().map(|(name, _)| name.as_str())
    }

    /// Number of each row's record, as in [`Batch::records`](crate::batch::Batch::records).
    pub fn records(&self) -> &[u64] {
        &self.content.records
    }

    /// Epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.content.epoch
    }

    /// Step in the epoch, from 0.
    pub fn step(&self) -> u64 {
        self.content.step
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.content.records.len()
    }

    /// Number of rows that hold a record.
    pub fn samples(&self) -> usize {
        let holds = |record: &&u64| **record != PADDING;
        self.content.records.iter().filter(holds).count()
    }

    fn part(&self, name: &str) -> Option<&Part> {
        let mut columns = self.content.columns.iter();
        columns.find_map(|(column, part)| (column == name).then_some(part))
    }

    /// The values of a column that stayed on the host.
    pub fn host(&self, name: &str) -> Option<&Values> {
        match self.part(name)? {
            Part::Host(values) => Some(values),
            Part::Device { .. } => None,
        }
    }

    /// The array of a column on the device; None if there is no such column, or it stayed on the
    /// host. Its bytes may still be on their way: [`DeviceArray::ready_on`] orders a stream after
    /// them.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed since.
    pub fn array(&self, name: &str) -> Result<Option<DeviceArray<D>>, Error> {
        self.held.shared().check()?;
        let Some(Part::Device { at, shape, dtype }) = self.part(name) else {
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

    /// As [`DeviceArray::ready_on`], for all columns.
    ///
    /// # Errors
    ///
    /// As [`DeviceArray::ready_on`].
    pub fn ready_on(&self, queue: D::Queue) -> Result<(), Error> {
        self.held.ready_on(queue)
    }

    /// Says that a stream uses the batch, besides those that were made to wait for it: one that the
    /// caller ordered after such a stream. The memory is not written again before what is in it
    /// when the batch is dropped is done.
    ///
    /// # Errors
    ///
    /// As [`DeviceArray::ready_on`].
    pub fn record_stream(&self, queue: D::Queue) -> Result<(), Error> {
        self.held.used_on(queue)
    }

    /// Blocks until the batch is ready, for consumers whose streams nobody knows. Such a consumer
    /// must be done with it before it drops it.
    ///
    /// # Errors
    ///
    /// As [`DeviceArray::ready_on`].
    pub fn synchronize(&self) -> Result<(), Error> {
        self.held.synchronize()
    }

    /// Copies columns into memory of the caller's, in a stream of the caller's, and gives the slot
    /// back at once: for addresses that must stay the same from step to step. The memory must last
    /// until that stream has come so far.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if a column is not on the device, or its bytes and the memory's length
    /// differ; nothing was copied then. Else as [`DeviceArray::ready_on`].
    pub fn copy_into(
        self,
        queue: D::Queue,
        targets: &[(&str, &StdArc<D::Memory>)],
    ) -> Result<(), Error> {
        let device = &self.held.shared().device;
        let mut copies = Vec::with_capacity(targets.len());
        for (name, to) in targets {
            let Some(array) = self.array(name)? else {
                let problem = "is not a column on the device; ask for one of the batch's arrays";
                return Err(Error::config(format!("field `{name}`"), problem));
            };
            let (bytes, len) = (array.bytes(), device.len(to));
            if bytes != len {
                let problem = format!(
                    "is {bytes} bytes of {} {:?}, the memory it should be copied into is {len}; \
                     give a tensor of that shape and type",
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
            self.held.shared().told(copied)?;
        }
        Ok(())
    }
}

/// An array on the device, row-major without gaps, in memory that its batch shares. As long as it is
/// held, that memory is not written again.
#[derive(Debug)]
pub struct DeviceArray<D: Device> {
    held: Arc<Held<D>>,
    memory: StdArc<D::Memory>,
    shape: Vec<usize>,
    dtype: DType,
}

// Derived, it would ask for memory that can be cloned.
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
    /// The device that it is on.
    pub fn device(&self) -> &D {
        &self.held.shared().device
    }

    /// Where it lies, from the first byte; the memory may be longer. A clone of the handle keeps the
    /// memory and does not keep what is in it: hold the array.
    pub fn memory(&self) -> &StdArc<D::Memory> {
        &self.memory
    }

    /// Lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of bytes of its elements.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }

    /// Makes what enters a stream from now on wait, on the device, until the array is ready; and
    /// remembers the stream, so that the memory is not written again before what is in it when the
    /// last share is dropped is done. The host does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed since, or knows no such stream.
    pub fn ready_on(&self, queue: D::Queue) -> Result<(), Error> {
        self.held.ready_on(queue)
    }

    /// As [`DeviceBatch::record_stream`].
    ///
    /// # Errors
    ///
    /// As [`ready_on`](DeviceArray::ready_on).
    pub fn record_stream(&self, queue: D::Queue) -> Result<(), Error> {
        self.held.used_on(queue)
    }

    /// As [`DeviceBatch::synchronize`].
    ///
    /// # Errors
    ///
    /// As [`ready_on`](DeviceArray::ready_on).
    pub fn synchronize(&self) -> Result<(), Error> {
        self.held.synchronize()
    }
}
