//! Finds why the consumer waits, predicts the gain of each remedy, and checks the prediction.
//!
//! [`explain()`] runs the pipeline as it is, measures the rate that each resource allows, and names
//! the lowest one. It then tries every remedy on a few hundred records. [`apply()`] applies one remedy
//! to all records and measures again. The [`ledger`] keeps predicted and measured gains.
//!
//! With a device, real or planned, the same arithmetic determines which part of the work belongs on
//! the device ([`PlacementReport`]) and which share of the JPEGs its decoder should take
//! ([`DecodingReport`]). [`Transfers`] reports the bytes and copies that went to the device.
//!
//! [`loop_verdict`] concludes what limits a loop over another loader, from measured times alone.
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
//!
//! The modules in their order; each uses those above it in this table only (`crates/tidy` checks it):
//!
//! | module | holds |
//! |---|---|
//! | `model` | the arithmetic: rates of resources, of placements, of decoding shares and of feeders |
//! | `findings` | the results as plain data, and the ledger |
//! | `case` | the pipeline to explain, with the conditions and questions of the user |
//! | `measure` | survey, plain run, storage, variants in turn |
//! | `device` | the cost of each placement, and of the device's decoder |
//! | `remedies` | the remedies that fit a case, their trials, and their gain |
//! | `feeders` | other machines: planned, measured, or counted by a running loop |
//! | `what_if` | the rate with other cores, memory, storage or batches |
//! | `explain` | explanations of a pipeline and of a running loader; applying a remedy |
//! | `watch` | the verdict on a loop over another loader |
//! | `recording` | the file with the explanation of a loop and its counters over time |
//! | [`report`] | text, JSON, HTML, trace events and Prometheus |
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "feed"),
    allow(dead_code, reason = "the arithmetic of feeders has no caller")
)]

pub mod report;

mod case;
mod device;
mod explain;
mod feeders;
mod findings;
mod measure;
mod model;
mod recording;
mod remedies;
mod watch;
mod what_if;

pub use case::what_if::{DescribedStorage, WhatIf};
pub use case::{Case, Conditions, Feeders, PlannedMachine};
pub use explain::apply::{AppliedRemedy, apply, remedy};
pub use explain::pipeline::explain;
pub use explain::running_loader::{running, running_on};
pub use feeders::applies;
pub use findings::ledger::{self, LedgerEntry};
pub use findings::what_if::{PredictedChange, WhatIfReport};
pub use findings::{
    Explanation, MeasuredMachine, QueuePoint, Remedy, Run, Span, Subject, TrialSample,
    TunedPlacement, UntriedRemedy, VERSION, Verdict,
};
pub use measure::progress::Progress;
pub use model::crossover::Crossover;
pub use model::decoding::{DecodingRate, DecodingReport};
pub use model::feeders::{
    FeederCount, FeederGain, FeederHost, FeederOrigin, Feeding, Network, NetworkOrigin,
};
pub use model::interval::{Interval, PredictionOutcome};
pub use model::limit::{Limit, Resource};
pub use model::placement::{
    AllowedRate, DeviceOrigin, PlacementRate, PlacementReport, ResourceChange, Split,
};
pub use model::stages::{StageCost, Stall, stage_costs};
pub use model::transfers::{FieldTransfer, Transfers};
pub use recording::{
    LoopTotals, RecordedEvent, RecordedEvents, RecordedMachine, RecordedSource, RecordedWatch,
    RecordedWindow, Recorder, Recording, RecordingOptions, RecordingPart, RecordingWindows,
    WatchRecorder,
};
pub use remedies::list::check_id;
pub use watch::loop_verdict;
pub use watch::measurements::{
    AdoptedCode, AdoptedSteps, CallPart, CallPartKind, Ceiling, DatasetCalls, DurationSummary,
    LockShares, PipelineThroughput, ProcessorLoad, WatchedLoop,
};
