//! What reads bring to a worker's door: one record for a row, or two where it is mixed.

use std::sync::Arc;

use crate::error::Error;
use crate::exec::budget::Permit;
use crate::exec::{Joined, Ticket};
use crate::sample::{Record, RecordId};

/// A record that was skipped or substituted.
#[derive(Clone, Debug)]
pub struct BadRecord {
    /// Which.
    pub record: RecordId,
    /// Epoch in which it was met.
    pub epoch: u64,
    /// Position in the epoch whose row it should have filled.
    pub position: u64,
    /// What is wrong with it.
    pub reason: Error,
}

/// What a record is to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The row is its sample.
    Own,
    /// Its sample is mixed into the row.
    Partner,
}

/// Whose record a read brings in one of its places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) ticket: Ticket,
    pub(super) role: Role,
    /// Whether its row cannot be filled before another read has brought the other record.
    pub(super) paired: bool,
}

/// How far a row is, where records of it were bad.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    /// Substitutes asked for in its own place.
    pub(super) own: u16,
    /// The same in its partner's.
    pub(super) partner: u16,
    /// Record of the sample that is in the row already; only the partner is missing then.
    pub(super) written: Option<u64>,
    /// Bad records met for it.
    pub(super) bad: Vec<BadRecord>,
    /// Pixels of no class in the masks of its samples.
    pub(super) unknown_pixels: u32,
}

impl Tried {
    /// Counts pixels of no class.
    pub(super) fn add_unknown(&mut self, pixels: u64) {
        let pixels = u32::try_from(pixels).unwrap_or(u32::MAX);
        self.unknown_pixels = self.unknown_pixels.saturating_add(pixels);
    }
}

/// A record, or why there is none; with its bytes' leave, shared with the read's other records.
pub(super) struct Content {
    pub(super) found: Result<Record, Error>,
    pub(super) _permit: Option<Arc<Permit>>,
}

/// The records of a row at a worker's door.
pub(crate) struct Parcel {
    pub(super) own: Option<Content>,
    pub(super) partner: Option<Content>,
    pub(super) tried: Tried,
    paired: bool,
}

impl Want {
    /// A row for which nothing is read.
    pub(super) fn padding(ticket: Ticket) -> Want {
        Want {
            ticket,
            role: Role::Own,
            paired: false,
        }
    }
}

impl Parcel {
    /// What comes for a row of padding: nothing. Or why nothing comes.
    pub(super) fn without_reading(failed: Option<Error>) -> Parcel {
        Parcel {
            own: failed.map(|error| Content {
                found: Err(error),
                _permit: None,
            }),
            partner: None,
            tried: Tried::default(),
            paired: false,
        }
    }

    /// One record.
    pub(super) fn new(want: Want, content: Content, tried: Tried) -> Parcel {
        let (own, partner) = match want.role {
            Role::Own => (Some(content), None),
            Role::Partner => (None, Some(content)),
        };
        Parcel {
            own,
            partner,
            tried,
            paired: want.paired,
        }
    }

    /// The records of two parcels for one row.
    pub(super) fn join(waiting: Option<Parcel>, come: Parcel) -> Joined<Parcel> {
        let mut whole = come;
        if let Some(before) = waiting {
            whole.own = whole.own.or(before.own);
            whole.partner = whole.partner.or(before.partner);
        }
        if whole.paired && (whole.own.is_none() || whole.partner.is_none()) {
            Joined::Part(whole)
        } else {
            Joined::Whole(whole)
        }
    }
}
