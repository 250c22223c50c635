//! Why the consumer waits, what each remedy would gain, and whether it did.
//!
//! [`explain`] runs the pipeline as it is, measures what each resource allows (`capacity`), names
//! the least of them (`verdict`), and tries every remedy on a few hundred of the records
//! (`remedies`, `trial`). [`apply()`] does one of them to all records and measures again; the
//! [`ledger`] keeps what was predicted and what came of it.
//!
//! Where there is a device, or one is planned for, the same arithmetic says what of the work belongs on
//! it ([`Placing`]), and which share of the JPEGs its decoder might have ([`Decoding`]); [`Transfers`] tells
//! what crossed to it.
//!
//! Other machines are in it too: what so many [feeders](crate::feed) would give before one is started, and
//! what those give that there are ([`Feeding`]).
//!
//! The model is arithmetic: the rate is the least over resources of capacity over demand. What
//! cores give is never computed from single parts but measured, with all of them at work, as the
//! ratio of two runs in turn.

mod apply;
mod capacity;
mod case;
mod decoders;
mod decoding;
mod difference;
mod feed;
mod feeders;
mod feeding;
mod findings;
mod functions;
mod interval;
pub mod ledger;
mod limit;
mod measure;
mod placement;
mod prepare;
mod ready;
mod remedies;
mod run;
mod running;
mod sides;
mod storage;
mod survey;
mod transfers;
mod trial;
mod units;
mod verdict;
mod ways;

use std::time::{SystemTime, UNIX_EPOCH};

pub use apply::{Applied, apply, remedy};
pub use case::{Case, Conditions, Stand};
pub use decoding::{Decoding, DecodingWay};
pub use feeders::applies;
pub use feeding::{Fed, FedHost, FeederCount, FeederKnown, Feeding, Network, NetworkKnown};
pub use findings::{
    Explanation, LedgerEntry, Machine, NotTried, QueuePoint, Remedy, Run, Span, StageCost, Stall,
    Subject, Tried, VERSION, Verdict,
};
pub use interval::Interval;
pub use limit::{Limit, Resource};
pub use measure::explain;
pub use placement::{Allowed, Bound, Change, Known, Placing, Split, Way};
pub use running::{running, running_on};
pub use transfers::{Carried, Transfers};

/// FeederKnown what is being done and which share of it is done; says whether to go on.
pub type Progress<'a> = &'a (dyn Fn(&str, f64) -> bool + Sync);

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
