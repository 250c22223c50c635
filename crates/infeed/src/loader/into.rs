//! Batches copied to places of the consumer's on the device, which stay the same from step to step: what
//! a captured graph reads.

use std::sync::Arc;
use std::time::Duration;

use super::ahead::{DeviceLoader, DeviceStep};
use super::{OnError, several};
use crate::batch::ColumnKind;
use crate::device::Device;
use crate::device::ring::Upload;
use crate::error::Error;
use crate::order::partition::Tail;
use crate::sample::DType;

/// Which batch the places hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step in the epoch, from 0.
    pub step: u64,
    /// Rows that hold a record: all but those of padding.
    pub samples: usize,
}

/// What a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntoStep {
    /// The places hold the next batch, once the stream has come so far.
    Filled(Filled),
    /// The epoch is over; the next call begins the next one.
    End,
    /// Nothing yet.
    Timeout,
}

fn wrong(field: &str, problem: impl Into<String>) -> Error {
    Error::config(format!("next_into, field `{field}`"), problem)
}

impl<D: Device> DeviceLoader<D> {
    /// Element type and shape, rows first, of a field in every batch.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is no such field, it stays on the host, batches are not all of one
    /// size, or each is cut for several devices; with the mend. [`Error::Closed`].
    pub fn place_of(&self, field: &str) -> Result<(DType, Vec<usize>), Error> {
        several::only_one(self.rings())?;
        let routes = self.ring().routes();
        let Some(route) = routes.iter().find(|route| route.device.name == field) else {
            let names: Vec<&str> = routes.iter().map(|r| r.device.name.as_str()).collect();
            let problem = format!("there is none; a batch has {}", names.join(", "));
            return Err(wrong(field, problem));
        };
        let (ColumnKind::Fixed { dtype, shape }, false) =
            (&route.device.kind, route.upload == Upload::Stay)
        else {
            let problem = "it stays on the host, as all but arrays of fixed shape do; leave it out";
            return Err(wrong(field, problem));
        };
        let rows = self.all_rows()?;
        Ok((*dtype, [&[rows], &shape[..]].concat()))
    }

    /// Rows of every batch.
    fn all_rows(&self) -> Result<usize, Error> {
        let loader = self.loader();
        let rows = loader.most_rows()?;
        let conveyor = loader.conveyor()?;
        let partition = conveyor.job().partition();
        let last = partition.rows_at(partition.steps().saturating_sub(1));
        if last != rows as u64 {
            let (drop, pad) = (Tail::Drop.name(), Tail::Pad.name());
            let problem = format!(
                "the last batch of an epoch has {last} rows, and places are for {rows}; describe the \
                 batch with tail=\"{drop}\" or \"{pad}\""
            );
            return Err(Error::config("next_into", problem));
        }
        if loader.options.on_error == OnError::Skip {
            let problem = "a batch without its bad records is shorter than the places for it; open with \
                           on_error=\"substitute\" or \"stop\"";
            return Err(Error::config("next_into", problem));
        }
        Ok(rows)
    }

    /// Copies fields of the next batch to memory of the caller's, in a stream of the caller's, and gives
    /// the batch's slot back at once. The host waits for the batch to be sent, and not for the device.
    ///
    /// # Errors
    ///
    /// As [`DeviceLoader::place_of`] and [`DeviceLoader::next_within`]; [`Error::Config`] if a memory has
    /// another length, [`Error::Device`] if the stream is being captured: the batch is still to come then.
    pub fn next_into(
        &self,
        patience: Duration,
        queue: D::Queue,
        targets: &[(&str, &Arc<D::Memory>)],
    ) -> Result<IntoStep, Error> {
        for (field, to) in targets {
            let (dtype, shape) = self.place_of(field)?;
            let bytes = shape.iter().product::<usize>() * dtype.bytes();
            let len = self.ring().device().len(to);
            if bytes != len {
                let problem = format!("it takes {bytes} bytes, and the memory for it has {len}");
                return Err(wrong(field, problem));
            }
        }
        // A stream that takes no mark takes no copies: found before a batch is taken.
        drop(self.ring().ask(queue)?);
        Ok(match self.next_within(patience, Some(queue))? {
            DeviceStep::Batch(batch) => {
                let filled = Filled {
                    epoch: batch.epoch(),
                    step: batch.step(),
                    samples: batch.samples(),
                };
                batch.copy_into(queue, targets)?;
                IntoStep::Filled(filled)
            }
            DeviceStep::End => IntoStep::End,
            DeviceStep::Timeout => IntoStep::Timeout,
        })
    }
}
