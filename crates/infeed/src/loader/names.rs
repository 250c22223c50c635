//! Batches that are asked for by name, not in order: which each tray is, and by whose rules.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::digest::Digested;
use super::options::OnError;
use crate::exec::{Place, Ticket};
use crate::order::partition::{Partition, Spot};
use crate::wire::hello::Limits;

/// Where a row lies whose batch nobody asks for any more.
const NOWHERE: Spot = Spot {
    epoch: 0,
    step: 0,
    row: 0,
    position: 0,
    taken_from: None,
};

/// By what rules a batch is made, beside its description: those of who asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// What becomes of bad records.
    pub(crate) on_error: OnError,
    /// What digests of rows cover.
    pub(crate) digested: Digested,
    /// Beyond which a record is a bad one.
    pub(crate) limits: Limits,
}

/// A batch that somebody asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    /// How the rank of who asks cuts the order.
    pub(crate) partition: Partition,
    /// Epoch of the batch.
    pub(crate) epoch: u64,
    /// Its step.
    pub(crate) step: u64,
    /// By what rules.
    pub(crate) terms: Terms,
    /// Who asks, for who hands it on.
    pub(crate) by: u64,
}

impl Named {
    /// Whether the order has such a batch.
    pub(crate) fn is_there(&self) -> bool {
        // Tickets are counted on over all epochs.
        let countable = u64::MAX / 2 / self.partition.rows_an_epoch().max(1);
        self.step < self.partition.steps() && self.epoch < countable
    }
}

/// Which batch each tray is, of those under way.
#[derive(Debug)]
pub(crate) struct Names {
    /// Tickets from tray to tray: rows of a full batch.
    stride: u64,
    state: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    /// Number of the oldest tray.
    front: u64,
    batches: VecDeque<Named>,
}

impl Names {
    /// None yet, of batches that are `stride` rows at most.
    pub(super) fn new(stride: u64) -> Names {
        Names {
            stride,
            state: Mutex::default(),
        }
    }

    /// Makes a batch the next tray.
    pub(super) fn push(&self, named: Named) {
        self.lock().batches.push_back(named);
    }

    /// Forgets the oldest tray, and gives what it was.
    pub(super) fn pop(&self) -> Option<Named> {
        let mut asked = self.lock();
        asked.front += 1;
        asked.batches.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The batch that a tray is.
    pub(super) fn get(&self, tray: u64) -> Option<Named> {
        let asked = self.lock();
        let at = usize::try_from(tray.checked_sub(asked.front)?).ok()?;
        asked.batches.get(at).copied()
    }

    /// The batch that a ticket belongs to.
    pub(super) fn at(&self, ticket: Ticket) -> Option<Named> {
        self.get(ticket / self.stride)
    }

    pub(super) fn place(&self, ticket: Ticket) -> Place {
        Place {
            tray: ticket / self.stride,
            row: (ticket % self.stride) as usize,
        }
    }

    pub(super) fn first(&self, tray: u64) -> Ticket {
        tray.saturating_mul(self.stride)
    }

    /// Where the row of a ticket lies in the order; nowhere for those of trays that are not under way.
    pub(super) fn spot(&self, ticket: Ticket) -> Spot {
        let Some(Named {
            partition,
            epoch,
            step,
            ..
        }) = self.at(ticket)
        else {
            return NOWHERE;
        };
        partition.spot(partition.ticket(epoch, step) + ticket % self.stride)
    }

    /// One past the last row of the batch that a ticket belongs to; all are cut alike but for the rank.
    pub(super) fn rows_end(&self, ticket: Ticket, partition: &Partition) -> Ticket {
        let rows = match self.at(ticket) {
            Some(named) => partition.rows_at(named.step),
            None => self.stride,
        };
        self.first(ticket / self.stride) + rows
    }
}
