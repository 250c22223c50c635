//! Measurements of a case: the survey of its records, its plain run, its storage, and variants that
//! run in turn.

pub(crate) mod cache_hits;
pub(crate) mod consumer;
pub(crate) mod functions;
pub(crate) mod plain_run;
pub(crate) mod progress;
pub(crate) mod quiet;
pub(crate) mod storage;
pub(crate) mod survey;
pub(crate) mod trial;
pub(crate) mod variant;
