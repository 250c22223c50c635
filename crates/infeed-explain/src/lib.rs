//! Finds why the consumer waits, predicts the gain of each remedy, and checks the prediction.
//!
//! [`explain`] runs the pipeline as it is, measures the rate that each resource allows
//! (`supply`), and names the lowest one (`verdict`). It then tries every remedy on a few hundred
//! records (`remedies`, `trial`). [`apply()`] applies one remedy to all records and measures again.
//! The [`ledger`] keeps predicted and measured gains.
//!
//! With a device, real or planned, the same arithmetic determines which part of the work belongs on
//! the device ([`PlacementReport`]) and which share of the JPEGs its decoder should take
//! ([`DecodingReport`]). [`Transfers`] reports the bytes and copies that went to the device.
//!
//! [`watched`] concludes what limits a loop over another loader, from measured times alone.
//!
//! A [`Recording`] keeps the explanation of a loop, with its counters over time, in a small file.
//!
//! [`Feeding`] covers other machines: the predicted gain of feeders (`infeed-feed`) before the user
//! starts one, and the measured gain of those that run.
//!
//! [`WhatIf`] asks for other cores, memory, storage or batches. The answer is the same arithmetic with
//! one rate replaced.
//!
//! The rate of the model is the lowest capacity divided by demand over all resources. The gain from
//! cores is never computed from single parts. It is measured as the ratio of two runs in turn, with
//! all cores at work.
//!
//! The cargo feature `feed` (default) plans and measures feeders.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "feed"),
    allow(dead_code, reason = "the arithmetic of feeders has no caller")
)]

pub mod report;

mod apply;
mod cached;
mod calibration;
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
mod placement_trials;
mod prepare;
mod progress;
mod quiet;
mod ready;
mod recording;
mod remedies;
mod run;
mod running;
mod sides;
mod stages;
mod starved;
mod storage;
mod supply;
mod survey;
mod transfers;
mod trial;
mod units;
mod verdict;
mod watch;
mod what_if;
mod words;

use std::time::{SystemTime, UNIX_EPOCH};

pub use apply::{AppliedRemedy, apply, remedy};
pub use case::{Case, Conditions, PlannedMachine};
pub use decoding::{DecodingRate, DecodingReport};
pub use feeders::{Feeders, applies};
pub use feeding::{
    FeederCount, FeederGain, FeederHost, FeederOrigin, Feeding, Network, NetworkOrigin,
};
pub use findings::{
    Explanation, LedgerEntry, MeasuredMachine, NotTried, QueuePoint, Remedy, Run, Span, Subject,
    TrialSample, TunedPlacement, VERSION, Verdict,
};
pub use interval::{Interval, PredictionOutcome};
pub use limit::{Limit, Resource};
pub use measure::explain;
pub use placement::{
    AllowedRate, DeviceOrigin, PlacementRate, PlacementReport, ResourceChange, Split,
};
pub use recording::{
    LoopTotals, RecordedEvent, RecordedEvents, RecordedMachine, RecordedSource, RecordedWatch,
    RecordedWindow, Recorder, Recording, RecordingOptions, RecordingPart, RecordingWindows,
    WatchRecorder,
};
pub use remedies::check_id;
pub use running::{running, running_on};
pub use stages::{StageCost, Stall};
pub use transfers::{FieldTransfer, Transfers};
pub use watch::{
    AdoptedCode, AdoptedSteps, CallPart, CallPartKind, Ceiling, DatasetCalls, DurationSummary,
    LockShares, PipelineThroughput, ProcessorLoad, WatchedLoop, watched,
};
pub use what_if::{Crossover, DescribedStorage, PredictedChange, WhatIf, WhatIfReport};

/// Receives the name of the current phase and the share of the whole work that is done, 0 to 1.
/// Returns whether to continue.
pub type Progress<'a> = &'a (dyn Fn(&str, f64) -> bool + Sync);

/// Returns seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
