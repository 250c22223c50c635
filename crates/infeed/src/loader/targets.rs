//! Batches copied into memory of the caller on the device. Its address stays the same from step to
//! step, so a captured graph can read it.

use std::sync::Arc;
use std::time::Duration;

use super::OnError;
use super::device::{DeviceLoader, PartsStep};
use infeed_core::batch::ColumnKind;
use infeed_core::error::Error;
use infeed_core::order::partition::Tail;
use infeed_core::sample::DType;
use infeed_device::Device;
use infeed_device::ring::Upload;

/// The batch that was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilledTargets {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step in the epoch, from 0.
    pub step: u64,
    /// Rows with a record, without padding.
    pub samples: usize,
}

/// Result of a call with a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntoStep {
    /// The copies of the next batch are enqueued in the stream.
    Filled(FilledTargets),
    /// The epoch is over; the next call begins the next one.
    End,
    /// No batch was ready in time.
    Timeout,
}

/// Destination memory of fields of a batch, or of a device's part of it.
pub type Targets<'a, M> = [(&'a str, &'a Arc<M>)];

fn wrong(field: &str, problem: impl Into<String>) -> Error {
    Error::config(format!("next_into, field `{field}`"), problem)
}

impl<D: Device> DeviceLoader<D> {
    /// Returns element type and shape, rows first, of a field in every batch. With several devices,
    /// the shape is that of one device's part.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], with the fix, if there is no such field, if it stays on the host, or if
    /// batches differ in size. [`Error::Closed`].
    pub fn place_of(&self, field: &str) -> Result<(DType, Vec<usize>), Error> {
        let routes = self.ring().routes();
        let Some(route) = routes.iter().find(|route| route.device.name == field) else {
            let names: Vec<&str> = routes.iter().map(|r| r.device.name.as_str()).collect();
            let problem = format!("no such field; a batch has {}", names.join(", "));
            return Err(wrong(field, problem));
        };
        let (ColumnKind::Fixed { dtype, shape }, false) =
            (&route.device.kind, route.upload == Upload::Stay)
        else {
            let problem = "it stays on the host, because its shape is not fixed; leave it out";
            return Err(wrong(field, problem));
        };
        let rows = self.all_rows()? / self.rings().len();
        Ok((*dtype, [&[rows], &shape[..]].concat()))
    }

    /// Returns the number of rows of every batch.
    fn all_rows(&self) -> Result<usize, Error> {
        let loader = self.loader();
        let rows = loader.most_rows()?;
        let executor = loader.executor()?;
        let partition = executor.job().partition();
        if let Some(found) = partition.rows_unless(|own| own == rows as u64) {
            let (drop, pad, wrap) = (Tail::Drop.name(), Tail::Pad.name(), Tail::Wrap.name());
            let (which, fix) = match partition.has_equal_batches() {
                true => (
                    "the last batch",
                    format!("tail=\"{drop}\", \"{pad}\" or \"{wrap}\""),
                ),
                false => ("a batch", "batches without max_tokens".to_owned()),
            };
            let problem =
                format!("{which} of an epoch has {found} rows, but targets have {rows}; use {fix}");
            return Err(Error::config("next_into", problem));
        }
        if loader.options.on_error == OnError::Skip {
            let problem = "without bad records, batches are shorter than the targets; open with \
                           on_error=\"substitute\" or \"stop\"";
            return Err(Error::config("next_into", problem));
        }
        Ok(rows)
    }

    /// Copies fields of the next batch to the caller's memory in the caller's stream, and frees the
    /// batch's slot at once. The host waits for the batch to be sent, not for the device.
    ///
    /// # Errors
    ///
    /// As [`DeviceLoader::next_into_each`].
    pub fn next_into(
        &self,
        timeout: Duration,
        queue: D::Queue,
        targets: &Targets<'_, D::Memory>,
    ) -> Result<IntoStep, Error> {
        self.next_into_each(timeout, &[(queue, targets)])
    }

    /// As [`DeviceLoader::next_into`], with one part per device. Each stream and memory belongs to
    /// its device; `each` is in device order.
    ///
    /// # Errors
    ///
    /// As [`DeviceLoader::place_of`] and [`DeviceLoader::next_parts`]. [`Error::Config`] if a
    /// memory has a wrong length, or `each` does not have one entry per device. [`Error::Device`]
    /// if a stream is under capture; the next call then returns this batch.
    pub fn next_into_each(
        &self,
        timeout: Duration,
        each: &[(D::Queue, &Targets<'_, D::Memory>)],
    ) -> Result<IntoStep, Error> {
        let rings = self.rings();
        if each.len() != rings.len() {
            let problem = format!(
                "{} devices need one set of targets each, in device order; got {}",
                rings.len(),
                each.len()
            );
            return Err(Error::config("next_into", problem));
        }
        for (ring, (queue, targets)) in rings.iter().zip(each) {
            for (field, to) in *targets {
                let (dtype, shape) = self.place_of(field)?;
                let bytes = shape.iter().product::<usize>() * dtype.bytes();
                let len = ring.device().len(to);
                if bytes != len {
                    let problem = format!("it needs {bytes} bytes, but its target has {len}");
                    return Err(wrong(field, problem));
                }
            }
            // A stream that cannot record an event cannot take copies. Check before taking a batch.
            drop(ring.ask(*queue)?);
        }
        let queues: Vec<_> = each.iter().map(|(queue, _)| Some(*queue)).collect();
        let parts = match self.next_parts(timeout, &queues)? {
            PartsStep::Parts(parts) => parts,
            PartsStep::End => return Ok(IntoStep::End),
            PartsStep::Timeout => return Ok(IntoStep::Timeout),
        };
        let mut filled: Option<FilledTargets> = None;
        for (part, (queue, targets)) in parts.into_iter().zip(each) {
            let of = filled.get_or_insert(FilledTargets {
                epoch: part.epoch(),
                step: part.step(),
                samples: 0,
            });
            of.samples += part.samples();
            part.copy_into(*queue, targets)?;
        }
        Ok(filled.map_or(IntoStep::Timeout, IntoStep::Filled))
    }
}
