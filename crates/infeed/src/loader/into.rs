//! Batches copied to places of the consumer's on the device, which stay the same from step to step: what
//! a captured graph reads.

use std::sync::Arc;
use std::time::Duration;

use super::OnError;
use super::ahead::{DeviceLoader, PartsStep};
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

/// Memory for fields of a batch, or of a device's part of it.
pub type Targets<'a, M> = [(&'a str, &'a Arc<M>)];

fn wrong(field: &str, problem: impl Into<String>) -> Error {
    Error::config(format!("next_into, field `{field}`"), problem)
}

impl<D: Device> DeviceLoader<D> {
    /// Element type and shape, rows first, of a field in every batch; of several devices, in the part
    /// of it that each has.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is no such field, it stays on the host, or batches are not all of one
    /// size; with the mend. [`Error::Closed`].
    pub fn place_of(&self, field: &str) -> Result<(DType, Vec<usize>), Error> {
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
        let rows = self.all_rows()? / self.rings().len();
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
    /// As [`DeviceLoader::next_into_each`].
    pub fn next_into(
        &self,
        patience: Duration,
        queue: D::Queue,
        targets: &Targets<'_, D::Memory>,
    ) -> Result<IntoStep, Error> {
        self.next_into_each(patience, &[(queue, targets)])
    }

    /// As [`DeviceLoader::next_into`], on each device its part, in a stream and to memory of that device;
    /// they are given in the order of the devices.
    ///
    /// # Errors
    ///
    /// As [`DeviceLoader::place_of`] and [`DeviceLoader::next_parts`]; [`Error::Config`] if a memory has
    /// another length, or there is not one set for each device; [`Error::Device`] if a stream is being
    /// captured: the batch is still to come then.
    pub fn next_into_each(
        &self,
        patience: Duration,
        each: &[(D::Queue, &Targets<'_, D::Memory>)],
    ) -> Result<IntoStep, Error> {
        let rings = self.rings();
        if each.len() != rings.len() {
            let problem = format!(
                "a step has a part on each of {} devices, and places are given for {}; give a set \
                 of them for each, in the order of the devices",
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
                    let problem =
                        format!("it takes {bytes} bytes, and the memory for it has {len}");
                    return Err(wrong(field, problem));
                }
            }
            // A stream that takes no mark takes no copies: found before a batch is taken.
            drop(ring.ask(*queue)?);
        }
        let queues: Vec<_> = each.iter().map(|(queue, _)| Some(*queue)).collect();
        let parts = match self.next_parts(patience, &queues)? {
            PartsStep::Parts(parts) => parts,
            PartsStep::End => return Ok(IntoStep::End),
            PartsStep::Timeout => return Ok(IntoStep::Timeout),
        };
        let mut filled: Option<Filled> = None;
        for (part, (queue, targets)) in parts.into_iter().zip(each) {
            let of = filled.get_or_insert(Filled {
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
