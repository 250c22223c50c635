//! Remedies: changes of how the pipeline is opened or described, of its data, or of the machines that
//! make its batches. A trial runs them on a few hundred records, and [`crate::apply()`] applies one to
//! all records.
//!
//! `open`, `processes`, `arrange`, `rewrite` and `feeders` make the candidates of each sort, and
//! `list` collects them. `prepare` makes a candidate ready to run, `prepare_all` does so for a trial.
//! `trials` runs them in turn, and `gain` predicts the rate of the whole dataset from a trial.

mod arrange;
mod calibration;
mod candidate;
mod difference;
pub(crate) mod feeders;
pub(crate) mod gain;
pub(crate) mod list;
mod open;
mod prepare;
mod prepare_all;
mod processes;
mod rewrite;
pub(crate) mod trials;
