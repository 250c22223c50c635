//! Takes a slot and makes its memory large enough for a batch.

use std::sync::Arc as StdArc;

use crate::{Device, DeviceError};
use infeed_core::error::Error;

use super::device_ring::Ring;
use super::ring_state::{Slot, SlotColumn};
use super::route;
use super::slots::TakenSlot;
use super::sync;

/// Number of batches after which a run should have all its memory. Every later allocation is
/// logged.
const SETTLED: u64 = 50;

/// The device has no memory for a slot.
#[derive(Debug, thiserror::Error)]
#[error(
    "a batch needs {slot_bytes} bytes on the device, in addition to {slots} other batches; {limit} \
     slots need {all_bytes} bytes. Use a smaller batch, fewer slots or a smaller model, or drop \
     batches that are held"
)]
struct NoSlot {
    slot_bytes: u64,
    slots: usize,
    limit: usize,
    all_bytes: u64,
    source: DeviceError,
}

impl<D: Device> Ring<D> {
    /// Takes a slot with this much memory. With `trims`, frees memory that is larger.
    pub(super) fn slot(
        &self,
        needed: &[route::ColumnBytes],
        trims: bool,
    ) -> Result<Slot<D>, Error> {
        let shared = &self.shared;
        let mut slot = match shared.slots.take() {
            TakenSlot::Closed => return Err(Error::Closed),
            TakenSlot::Free(slot, surplus) => {
                if let Some(surplus) = surplus
                    && let Err(error) = self.give_up(surplus)
                {
                    shared.free(slot);
                    shared.slots.remove_slot(true);
                    return Err(error);
                }
                slot
            }
            TakenSlot::Make(overflow) => {
                if overflow && shared.slots.counts().overflow == 1 {
                    tracing::warn!(
                        target: "infeed_device",
                        "the consumer holds all {} batches of {}; the loader allocates memory for \
                         more. Drop batches after their step, or copy the data to keep",
                        self.settings.slots,
                        shared.name
                    );
                }
                Slot {
                    columns: Vec::new(),
                    ready: None,
                    released: Vec::new(),
                }
            }
        };
        if let Err(fault) = shared.check() {
            // The slot was returned while this call waited, but the ring has failed since.
            shared.free(slot);
            shared.slots.remove_slot(true);
            return Err(fault);
        }
        if trims {
            self.trim(&mut slot, needed);
        }
        self.grow_slot(slot, needed)
    }

    /// Frees memory that a slot has for batches of another layout, unless a kernel may still read
    /// it.
    fn trim(&self, slot: &mut Slot<D>, needed: &[route::ColumnBytes]) {
        let device = &self.shared.device;
        let Some(Ok(true)) = slot.ready.as_ref().map(|ready| device.is_done(ready)) else {
            return;
        };
        for (column, needed) in slot.columns.iter_mut().zip(needed) {
            // `grow` allocates the memory that is needed.
            column
                .staging
                .take_if(|staging| device.len(staging) > needed.staging);
            column
                .table
                .take_if(|table| device.len(table) > needed.table);
        }
    }

    /// Frees a surplus slot, or returns it if a consumer's stream may still read it.
    fn give_up(&self, slot: Slot<D>) -> Result<(), Error> {
        let shared = &self.shared;
        for event in slot.ready.iter().chain(&slot.released) {
            let is_done = shared.or_fail(shared.device.is_done(event));
            if !matches!(is_done, Ok(true)) {
                shared.give_back(slot, false);
                return is_done.map(|_| ());
            }
        }
        drop(slot);
        shared.slots.remove_slot(false);
        Ok(())
    }

    /// Grows the memory of the slot to at least this size in every column.
    fn grow_slot(
        &self,
        mut slot: Slot<D>,
        needed: &[route::ColumnBytes],
    ) -> Result<Slot<D>, Error> {
        // Memory that is too small is freed, which may have to wait. That is acceptable, because a
        // batch larger than the settings is rare.
        let len = |memory: &StdArc<D::Memory>| self.shared.device.len(memory);
        let mut columns = slot.columns.iter().zip(needed);
        let outgrown = columns.any(|(column, needed)| {
            let (mut staging, mut table) = (column.staging.iter(), column.table.iter());
            len(&column.output) < needed.output
                || staging.any(|s| len(s) < needed.staging)
                || table.any(|t| len(t) < needed.table)
        });
        if outgrown && let Err(error) = self.shared.free_behind(&slot) {
            match self.shared.check() {
                // The host cannot wait while a stream is captured, so the slot stays unchanged.
                Ok(()) => self.shared.give_back(slot, true),
                Err(_) => {
                    drop(slot);
                    self.shared.slots.remove_slot(true);
                }
            }
            return Err(error);
        }
        let made = self.grow(&mut slot, needed);
        let Err(source) = made else { return Ok(slot) };
        // The next batch could not use a half-grown slot. No command uses its new memory yet.
        self.shared.free(slot);
        self.shared.slots.remove_slot(true);
        let bytes = needed
            .iter()
            .map(|n| (n.staging + n.table + n.output) as u64);
        let slot_bytes: u64 = bytes.sum();
        let limit = self.settings.slots;
        let error = NoSlot {
            slot_bytes,
            limit,
            all_bytes: slot_bytes.saturating_mul(limit as u64),
            slots: self.shared.slots.counts().made,
            source,
        };
        Err(Error::Device {
            device: self.shared.name.clone(),
            source: std::sync::Arc::new(error),
        })
    }

    fn memory(&self, bytes: usize) -> Result<StdArc<D::Memory>, DeviceError> {
        let memory = self.shared.device.memory(bytes)?;
        let (sent, _) = *sync::lock(&self.counted);
        if sent >= SETTLED {
            tracing::debug!(
                target: "infeed_device",
                "allocated {bytes} bytes on {} at batch {sent}",
                self.shared.name
            );
        }
        Ok(memory)
    }

    fn grow(&self, slot: &mut Slot<D>, needed: &[route::ColumnBytes]) -> Result<(), DeviceError> {
        let device = &self.shared.device;
        for (at, bytes) in needed.iter().enumerate() {
            let existing = slot.columns.get(at);
            let staged = |staging: &StdArc<D::Memory>| device.len(staging) >= bytes.staging;
            // Keep memory that a batch of another layout needed.
            let staging = match existing.and_then(|column| column.staging.as_ref()) {
                Some(staging) if staged(staging) => Some(StdArc::clone(staging)),
                _ if bytes.staging == 0 => None,
                _ => Some(self.memory(bytes.staging)?),
            };
            let output = match existing.map(|column| &column.output) {
                Some(output) if device.len(output) >= bytes.output => StdArc::clone(output),
                _ => self.memory(bytes.output)?,
            };
            let fits = |table: &StdArc<D::Memory>| device.len(table) >= bytes.table;
            let table = match existing.and_then(|column| column.table.as_ref()) {
                Some(table) if fits(table) => Some(StdArc::clone(table)),
                _ if bytes.table == 0 => None,
                _ => Some(self.memory(bytes.table)?),
            };
            let column = SlotColumn {
                staging,
                table,
                output,
            };
            match slot.columns.get_mut(at) {
                Some(small) => *small = column,
                None => slot.columns.push(column),
            }
        }
        Ok(())
    }
}
